"""Room for caches on a replica, and what requests take of it: the memory of :mod:`mlsysim.cases.cache` as it fills and empties.

Bytes of a sequence grow with its context, straight between the contexts at which a window is full, and half a block is empty on
average. Engines that reserve (TensorRT-LLM) take what the whole answer will need at once. All attention ranks together have the room; what
one rank cannot hold because another is empty is left out (routers keep them even).
"""

from __future__ import annotations

from mlsysim.cases.cache import engine_memory
from mlsysim.cases.iterations import Iterations
from mlsysim.errors import InputError
from mlsysim.models.template import UNBOUNDED
from mlsysim.simulate.steps import Contexts


class Room:
    """Bytes for caches of one replica, whose engine was ``built`` for so many requests, and what a context takes of them."""

    def __init__(
        self, iterations: Iterations, slots: int, budget: int | None = None, built: float | None = None
    ) -> None:
        step = iterations.step
        memory = engine_memory(iterations, 1.0, budget=budget, slots=built)
        ranks = step.deployment.attention_dp
        logits = memory.row * min(memory.rows, slots / ranks)
        self.bytes = float(ranks * (memory.capacity - memory.fixed - logits))
        block, engine = step.engine.block_tokens, step.engine
        self.reserves = engine.reserves
        windows = {getattr(mixer, "window", UNBOUNDED) for each in step.stack.blocks for mixer in each.mixers}
        half = (block - 1) / 2
        breaks = sorted(window - half for window in windows if half < window < UNBOUNDED)
        self.contexts = Contexts(lambda context: float(iterations.sequence_bytes(context + half)), breaks)
        if self.bytes <= 0:
            raise InputError("The weights leave no room for caches on a replica: split it over more devices.")

    def holds(self, prompt: int, answer: int) -> bool:
        """Whether the whole of a request has room, alone."""
        return self.contexts.at(prompt + answer)[0] <= self.bytes
