"""Networks of fixed shape: every sample costs the same, so that a batch and a precision are all that a pass asks for."""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.models.base import Workload, choose_phase, positive_number, sharding
from mlsysim.models.graph import ComputationGraph, Operator
from mlsysim.models.passes import Pass
from mlsysim.models.stack import Recompute, training_operators
from mlsysim.physics.precision import bytes_per_element
from mlsysim.units.registry import Quantity


class FixedShapeWorkload(Workload):
    """A network whose subclass says what its forward pass consists of."""

    @property
    def fixed_shape(self) -> bool:
        return True

    def forward(self, p: Pass) -> list[Operator]:
        """The operators of a forward pass on ``p.batch`` samples."""
        raise InputError(f"{type(self).__name__} does not say what a forward pass consists of; implement forward().")

    def lower(
        self,
        phase: str | None = None,
        *,
        batch_size: Any = 1,
        precision: str = "fp16",
        activation_precision: str | None = None,
        recompute: Recompute = "none",
        **sizes: Any,
    ) -> ComputationGraph:
        """The operators of a forward pass (``inference``) or of a training step on ``batch_size`` samples."""
        if sizes:
            raise InputError(f"{self.name} has a fixed shape and takes no {', '.join(map(repr, sizes))}.")
        phase = choose_phase(phase, "inference", ("inference", "training"), self.name)
        batch_size = positive_number(batch_size, "batch_size")
        p = Pass.of(phase, batch_size, 1, 0, precision, sharding(), activation_precision)
        ops = self.forward(p)
        return ComputationGraph(
            name=self.name,
            parameter_count=self.parameter_count,
            weight_bytes=Quantity(self.parameter_count * bytes_per_element(precision), "byte"),
            layers=getattr(self, "layers", None),
            operators=training_operators(ops, recompute) if phase == "training" else ops,
            phase=phase,
            batch_size=batch_size,
        )
