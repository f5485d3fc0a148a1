"""Iterations of a serving engine, as the sequences of one group see them: stages that they share with other groups, and a draft model.

    latency   T = all stages, one after the other, the sends between them, and K steps of the draft model before a verification
    stage     s = the longest stage, and those K steps, which one stage has
    period    max( T, g s )                    with g groups in flight, g at most the number p of stages

A pipeline of p stages is kept busy by p groups of sequences (micro-batches): while one is in the second stage the next is in the first. Each
group has its own loop (schedule, pass, sample), so that the pipeline is p engines of the same speed, each with 1/p of the requests and of the
room for caches, whose step takes the period. Throughput is a group a stage's time; a token never takes less than a pass through all layers.
One stage and no draft model: the engine itself.

Left out: groups of different sizes (a group with a long prompt delays the others by the difference, on the mean not at all).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlsysim.cases.phases import of_draft
from mlsysim.physics.stage_turns import pipelined_period
from mlsysim.timing.engine_block import Deployment
from mlsysim.timing.engine_step import EngineStep, StepTime
from mlsysim.timing.engines import Engine
from mlsysim.timing.network import Tabled
from mlsysim.timing.tags import Tag, untagged
from mlsysim.units.ops import maximum, some
from mlsysim.units.records import dataclass


@dataclass(frozen=True, slots=True)
class Iterations:
    """Steps of one of ``groups`` groups; what is asked of an :class:`EngineStep` by those who wait for it."""

    step: EngineStep
    groups: Any = 1.0
    draft: EngineStep | None = None
    head: float = 0.0
    """What a head of the model's own that drafts has of the model's layers."""

    @property
    def engine(self) -> Engine:
        return self.step.engine

    @property
    def network(self) -> Tabled:
        return self.step.network

    @property
    def deployment(self) -> Deployment:
        """As if it had a stage alone: a group has a stage's devices at a time."""
        return replace(self.step.deployment, pp=1)

    @property
    def longest_stage(self) -> float:
        return self.step.longest_stage

    @property
    def usable_memory(self) -> float:
        return self.step.usable_memory

    @property
    def memory(self) -> float:
        return self.step.memory

    @property
    def device_weights(self) -> float:
        return self.step.device_weights * (1 + self.head) + (0.0 if self.draft is None else self.draft.device_weights)

    @property
    def adapter_bytes(self) -> float:
        return self.step.adapter_bytes

    @property
    def context_bytes(self) -> float:
        return self.step.context_bytes

    @property
    def sampling(self) -> tuple[Any, Any]:
        """What a sequence takes of the room of its group, as its cache does."""
        row, rows = self.step.sampling
        return self.groups * row, rows / self.groups

    def activation_bytes(self, budget: Any = None) -> Any:
        """The most that a step of either model has of activations: they take turns."""
        own = self.step.activation_bytes(budget)
        return own if self.draft is None else maximum(own, self.draft.activation_bytes(budget))

    def slot_bytes(self, slots: Any = None) -> Any:
        """What the engine has for each request that it is built for."""
        return self.step.slot_bytes(slots)

    def sequence_bytes(self, tokens: Any) -> Any:
        """What a sequence takes of the room of its group, which has its share of that of all."""
        own = self.step.sequence_bytes(tokens) * (1 + self.head)
        return self.groups * (own if self.draft is None else own + self.draft.sequence_bytes(tokens))

    def port_bytes(self, tokens: Any) -> Any:
        """Bytes of a sequence's cache that go over the port of each device to another pool."""
        return self.step.port_bytes(tokens)

    def cache_bytes(self, tokens: Any) -> Any:
        """Bytes of a sequence's cache, each counted once."""
        return self.step.cache_bytes(tokens)

    def time(
        self,
        sequences: Any = 0.0,
        context: Any = 0.0,
        prompts: Any = 0.0,
        prompt_tokens: Any = 0.0,
        prompt_context: Any = 0.0,
        drafted: Any = 0,
        reading_ranks: Any = 1.0,
        tag: Tag = untagged,
    ) -> StepTime:
        """A step of one attention rank's part of the group, until the next one of the same group."""
        asked = sequences, context, prompts, prompt_tokens, prompt_context, drafted, reading_ranks
        found = self.step.time(*asked, tag=tag)
        total, stage = found.total, found.stage
        if self.draft is not None and some(drafted > 0):
            # It writes for the whole group, whatever the attention ranks of the model.
            whole = sequences * self.step.deployment.attention_dp
            drafting = self.draft.time(whole, context, tag=of_draft(tag)).total * drafted
            total, stage = total + drafting, stage + drafting
        if some(self.step.deployment.pp > 1):
            total = pipelined_period(total, self.groups, stage)
        return found if total is found.total and stage is found.stage else replace(found, total=total, stage=stage)
