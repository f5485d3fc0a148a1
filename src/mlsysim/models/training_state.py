"""What a training step holds on one device, by kind."""

from __future__ import annotations

from typing import Any, NamedTuple

from mlsysim.units.ops import where
from mlsysim.units.records import dataclass


class Saved(NamedTuple):
    """Activations that wait for the backward pass: layers (those of a stage, for every micro-batch in flight), bytes that each
    keeps, the full set of the layer that is computed again, the logits, and weights that were cast."""

    layers: Any
    each: Any
    again: Any = 0.0
    logits: Any = 0.0
    casts: Any = 0.0

    @property
    def total(self) -> Any:
        return self.layers * self.each + self.again + self.logits + self.casts


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Bytes on one device, and those that rest in the memory of its host: optimizer state, weights, activations."""

    weights: Any
    gradients: Any
    optimizer: Any
    saved: Saved
    buffers: Any = 0.0
    host: Any = 0.0
    host_weights: Any = 0.0
    host_activations: Any = 0.0

    @property
    def activations(self) -> Any:
        return self.saved.total

    @property
    def total(self) -> Any:
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers

    def fuller(self, other: TrainingState) -> TrainingState:
        """This or the other, whichever has more on the device."""
        more = other.total > self.total
        if isinstance(more, bool):
            return other if more else self

        def pick(mine: Any, its: Any) -> Any:
            if isinstance(mine, Saved):
                return Saved(*map(pick, mine, its))
            return mine if its is mine else where(more, its, mine)

        return TrainingState(*(pick(getattr(self, name), getattr(other, name)) for name in self.__slots__))
