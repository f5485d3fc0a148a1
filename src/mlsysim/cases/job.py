"""A training job as a case takes it: what is trained and under which rules, whatever the layout."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from mlsysim.models.base import Workload
from mlsysim.models.keeping import TEXTBOOK, Keeping
from mlsysim.models.recompute import Again
from mlsysim.models.recompute import again as recomputed
from mlsysim.physics.precision import HALF, Recipe, recipe_of
from mlsysim.units.ops import minimum
from mlsysim.units.records import dataclass

__all__ = ["OF_OPERATORS", "Job", "Overlap"]

OF_OPERATORS = {"of_operators": True}
"""What marks a field of a job that speaks of single operators: a first-order step, which has one, refuses it."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Shares of communication that may hide, and of the computing that it may hide behind (``room``).

    ``gathers`` are the exchanges of sharded weights and gradients beside the layers of each micro-batch, ``data`` what is
    synchronised once a step.
    """

    tensor: Any = 0.0
    expert: Any = 0.0
    context: Any = 0.85
    context_room: Any = 1.0
    pipeline: Any = 0.85
    data: Any = 0.0
    data_room: Any = 1.0
    gathers: Any = 0.0


DEFAULT_OVERLAP = Overlap()


@dataclass(frozen=True, slots=True)
class Job:
    """Numbers may be arrays, one value for each of many points; names are one for all of them.

    ``recompute`` is a mode by name (or an array of modes that compares with names), ``selective`` the parts of a layer that the mode
    of that name computes again.
    ``accumulation`` micro-steps of the layout's micro-batches make a step; a first-order one has the optimizer's own work in it where it
    ``updates``. ``frozen`` weights train adapters of ``lora_rank`` beside attention or all products (``lora_targets``).
    ``recipe`` says what narrow arithmetic is for, that of the precision where None, but for ``wide_layers`` of them (its own share where None).
    ``reshards`` says whether what ZeRO 2 and 3 share is gathered and scattered for every micro-batch; None: as the software does.
    """

    model: Workload
    precision: str
    seq_len: Any
    recompute: Any = "none"
    selective: str = "attention"
    zero: Any = 0
    accumulation: Any = 1
    optimizer: Any = "adam"
    updates: bool = False
    reshards: bool | None = None
    offload: Any = 0.0
    host_update: bool = False
    weights_offload: Any = 0.0
    activations_offload: Any = 0.0
    lora_rank: int | None = None
    lora_targets: str = "attention"
    sequence_parallel: bool = True
    overlap: Overlap = DEFAULT_OVERLAP
    straggler: Any = 1.0
    imbalance: Any = 1.0
    headroom: Any = 0.0
    keeps: Keeping = TEXTBOOK
    fp8_attention: bool = field(default=False, metadata=OF_OPERATORS)
    deduplicated: bool = False
    dispatched: float = HALF
    predicted_tokens: int = field(default=0, metadata=OF_OPERATORS)
    recipe: Recipe | None = None
    wide_layers: Any = None

    @property
    def arithmetic(self) -> Recipe:
        """What is computed, kept and sent in the precision."""
        return self.recipe or recipe_of(self.precision)

    @property
    def wide_share(self) -> Any:
        """Of the layers those that stay in 16 bits."""
        if self.wide_layers is None or not self.arithmetic.narrow:
            return self.arithmetic.wide_layers
        return minimum(self.wide_layers / (getattr(self.model, "layers", None) or 1), 1.0)

    @property
    def updated_here(self) -> Any:
        """Share of the update that the device computes: all of it, unless the host updates what rests there."""
        return 1 - self.offload if self.host_update else 1.0

    @property
    def again(self) -> Again:
        """What is computed again, as numbers."""
        return recomputed(self.recompute, self.selective)

    def regathers(self, pp: Any) -> Any:
        """Whether what is shared is sent for every micro-batch; what is not is held whole for the step, and sent once.

        Software that keeps it whole in a pipeline spares as many messages as there are micro-batches.
        """
        if self.reshards is not None:
            return self.reshards
        return (pp <= 1) if self.keeps.gathered else True

    def gradient_bytes(self, weight: float) -> float:
        """Bytes of a gradient that replicas sum, as they hold it, where a weight has ``weight`` bytes; none of frozen weights."""
        return 0.0 if self.frozen else max(self.keeps.gradient or 0.0, weight)

    @property
    def exchanged(self) -> float:
        """Bytes between tokens and experts over those in 16 bits: half are dispatched, half come back in 16 bits."""
        return (self.dispatched / HALF + 1) / 2

    @property
    def frozen(self) -> bool:
        return self.lora_rank is not None
