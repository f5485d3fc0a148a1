"""A query that is thought over: sequences side by side, steps one after the other, and what their tokens take.

    T = TTFT + sum over d t tokens of ITL(w sequences, context S + i)
    E = n TDP ( i T + (1 - i) F / (n Peak) )         the power i + (1 - i) MFU of the TDP over the whole query

The prompt is read once; all w sequences of all queries that are served together are written in one batch.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

from mlsysim.cases.phases import Decoder, prefill_passes, sum_over_steps
from mlsysim.cases.replica import Replica
from mlsysim.units.kernel import kernel
from mlsysim.units.records import dataclass


@kernel("""
    tdp: W [0.01, 2e4], idle_fraction [0.01, 0.99], devices [1, 1e4], time: s [1e-3, 1e5],
    operations: flop [1e9, 1e20], peak: flop/s [1e9, 1e16], queries [1, 1e4] -> energy: J
""")
def query_energy(
    tdp: Any, idle_fraction: Any, devices: Any, time: Any, operations: Any, peak: Any, queries: Any
) -> Any:
    """Energy of devices that draw i + (1 - i) MFU of their TDP: linear in MFU, so only the totals matter."""
    return tdp * (idle_fraction * devices * time + (1 - idle_fraction) * operations / peak) / queries


@kernel("price: USD/s [1e-6, 0.1], devices [1, 1e4], time: s [1e-3, 1e5], queries [1, 1e4] -> cost: USD")
def query_cost(price: Any, devices: Any, time: Any, queries: Any) -> Any:
    """A query's share of the accelerators while they serve it and its neighbours."""
    return price * devices * time / queries


@dataclass(frozen=True)
class Query:
    """``queries`` at once on a replica, of ``context`` tokens each, that write ``depth`` steps in ``parallel_sequences``.

    ``itl`` is the mean seconds between two tokens over all of them.
    """

    replica: Replica
    queries: int
    context: int
    tokens_per_step: int
    parallel_sequences: int
    depth: int
    itl: float

    @property
    def steps(self) -> int:
        """Tokens that one sequence writes."""
        return self.depth * self.tokens_per_step

    @property
    def tokens_generated(self) -> int:
        return self.parallel_sequences * self.steps

    @property
    def final_context(self) -> int:
        return self.context + self.steps

    @property
    def devices(self) -> int:
        return self.replica.devices

    @property
    def peak(self) -> float:
        return self.replica.peak

    @cached_property
    def ttft(self) -> float:
        return float(prefill_passes(self.replica, self.queries, self.context)(0))

    @property
    def time_per_step(self) -> float:
        return self.itl * self.steps / self.depth

    @property
    def total_reasoning_time(self) -> float:
        return self.ttft + self.itl * self.steps

    @cached_property
    def operations(self) -> float:
        return self._operations(self.queries * self.parallel_sequences, self.steps)

    @property
    def mfu(self) -> float:
        return self.operations / (self.total_reasoning_time * self.devices * self.peak)

    @cached_property
    def latency_multiplier(self) -> float:
        """Time over that of one step of one sequence."""
        one = Decoder(self.replica, self.queries).time_per_token
        writing = sum_over_steps(lambda *_: one, None, None, self.context, self.tokens_per_step)
        return self.total_reasoning_time / (self.ttft + float(writing))

    @property
    def compute_multiplier(self) -> float:
        """Operations over those of one step of one sequence."""
        return self.operations / self._operations(self.queries, self.tokens_per_step)

    def devices_for(self, rate: float) -> int:
        """Devices that answer so many queries a second."""
        return math.ceil(rate * self.total_reasoning_time / self.queries) * self.devices

    def _operations(self, sequences: int, steps: int) -> float:
        """Operations of reading the prompt and writing ``steps`` tokens in each of the sequences."""
        model, precision = self.replica.model, self.replica.precision

        def one(length: float) -> float:
            return float(model.demand("decode", batch_size=sequences, context=length, precision=precision).flops)

        prompt = model.demand("prefill", batch_size=self.queries, seq_len=self.context, precision=precision)
        return float(sum_over_steps(lambda *_: one, None, None, self.context, steps)) + float(prompt.flops)
