"""Networks of fixed shape: every sample costs the same, so that a batch and a precision are all that a pass asks for."""

from __future__ import annotations

from typing import Any, ClassVar

from mlsysim.errors import InputError
from mlsysim.models.base import Workload, choose_phase, positive_number
from mlsysim.models.graph import ComputationGraph, Operator
from mlsysim.models.passes import Pass, Sharding
from mlsysim.models.stack import Recompute, training_operators


class FixedShapeWorkload(Workload):
    """A network whose subclass says what its forward pass consists of, and by which degrees it can be split."""

    usual_precision: ClassVar[str] = "fp16"
    degrees: ClassVar[tuple[str, ...]] = ()

    @property
    def fixed_shape(self) -> bool:
        return True

    @property
    def tokens_per_sample(self) -> int | None:
        """How many tokens a sample is, where it is a sequence."""
        return None

    def forward(self, p: Pass) -> list[Operator]:
        """The operators of a forward pass on ``p.batch`` samples."""
        raise InputError(f"{type(self).__name__} does not say what a forward pass consists of; implement forward().")

    def lower(
        self,
        phase: str | None = None,
        *,
        batch_size: Any = 1,
        precision: str | None = None,
        activation_precision: str | None = None,
        recompute: Recompute = "none",
        **sizes: Any,
    ) -> ComputationGraph:
        """The operators of a forward pass (``inference``) or of a training step on ``batch_size`` samples."""
        refused = [repr(name) for name in sizes if name not in self.degrees]
        if refused:
            raise InputError(f"{self.name} has a fixed shape and takes no {', '.join(refused)}.")
        phase = choose_phase(phase, "inference", ("inference", "training"), self.name)
        precision = precision or self.usual_precision
        batch_size = positive_number(batch_size, "batch_size")
        new, shard = self.tokens_per_sample or 1, Sharding(**sizes)
        p = Pass.of(phase, batch_size, new, 0, precision, shard, activation_precision, causal=False)
        ops = self.forward(p)
        if phase == "training":
            ops = training_operators(ops, recompute)
        tokens = None if self.tokens_per_sample is None else p.tokens
        return self._graph(ops, phase, batch_size, p.weight, tokens=tokens, **self._stated_weights(precision))

    def _stated_weights(self, precision: str) -> dict[str, Any]:
        """Bytes of the weights where they are not all of one precision."""
        return {}
