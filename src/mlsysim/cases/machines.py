"""Who serves: replicas that read prompts and write answers, at first order (:class:`Replicated`) or as an engine's steps (:class:`Engines`).

Both answer the same questions (:class:`Machine`), of which :mod:`mlsysim.cases.serve` makes what requests see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from mlsysim.cases.algebra import Algebra
from mlsysim.cases.apart import disaggregated_arrivals, disaggregated_loop, rates_apart
from mlsysim.cases.cache import DeviceMemory, engine_memory, replica_memory
from mlsysim.cases.closed_loop import Loop, closed_loop, open_loop
from mlsysim.cases.dealt import Dealt
from mlsysim.cases.iterations import Iterations
from mlsysim.cases.phases import Decoder, prefill_passes
from mlsysim.cases.replica import Replica
from mlsysim.cases.traffic import Traffic
from mlsysim.cases.turns import accepted_tokens, draft_cost, head_acceptance
from mlsysim.hardware.arithmetic import no_runs
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.stage_turns import pipelined_completion, pipelined_share
from mlsysim.timing.engine_step import EngineStep
from mlsysim.timing.engines import serving_table, strangeness
from mlsysim.timing.tags import Tag, untagged
from mlsysim.units.ops import ceil, maximum, minimum, some
from mlsysim.units.records import dataclass
from mlsysim.zoo.intervals import COLD, PROMPTS, STRANGE, UNFITTED, Interval, interval, measured

Sum = Callable[..., Any]
"""``total(make, machine, traffic, first, steps, stride)``: the sum of ``make(machine, traffic)(context)`` over contexts."""


class Machine(Protocol):
    """A replica that reads prompts and one that writes answers, at either fidelity."""

    @property
    def reader(self) -> Any:
        """The replica that reads prompts."""

    @property
    def writer(self) -> Any:
        """The replica that writes answers, whose network caches come over."""

    @property
    def apart(self) -> bool:
        """Whether prompts and answers have devices of their own."""

    def reading(self, t: Traffic, tokens: Any, tag: Tag) -> Callable[[Any], Any]:
        """Time until so many tokens of the prompts that go together are read, by the context that they follow."""

    def pace(self, t: Traffic) -> Any:
        """The share of a prefill's time after which the next one may be through: of a pipeline that of its longest stage."""

    def writing(self, t: Traffic, tag: Tag) -> Callable[[Any], Any]:
        """Mean time of a token of each sequence, by the context."""

    def cache(self, tokens: Any) -> Any:
        """Bytes of one sequence's cache, each element counted once."""

    def memories(self, t: Traffic) -> list[DeviceMemory]:
        """The fullest device that writes answers and, where they are others, that reads prompts."""

    def prompts(self, t: Traffic) -> Any:
        """Prompts that a replica of readers holds at once."""

    def clients(self, t: Traffic, a: Algebra, total: Sum) -> tuple[Loop, Any] | None:
        """What clients in a closed loop see, and how many loops run side by side; None where the batch says it."""

    def take(self, index: Any) -> Machine:
        """The machines of some of many points."""


def head_share(model: TransformerWorkload, t: Traffic) -> float:
    """What a head of the model's own that drafts tokens has of the model: a layer of it, where there is one."""
    return model.layer_share if t.habits.own_heads and some(t.habits.drafted > 0) else 0.0


def drafting(machine: Replicated | Engines, t: Traffic) -> Traffic:
    """The same with what a draft model drafts, where there is one."""
    if machine.draft is None:
        return t
    return replace(t, habits=replace(t.habits, drafted=t.drafted, acceptance=t.acceptance, own_heads=False))


@dataclass(frozen=True, slots=True)
class Replicated:
    """First order: passes of replicas at one efficiency."""

    reader: Replica
    writer: Replica
    draft: Replica | None = None

    @property
    def apart(self) -> bool:
        return self.reader is not self.writer

    def reading(self, t: Traffic, tokens: Any, tag: Tag) -> Callable[[Any], Any]:
        return prefill_passes(self.reader, t.together, tokens, tag)

    def asked(self, t: Traffic) -> Traffic:
        """The same: at first order room alone limits the requests of a replica."""
        return t

    def pace(self, t: Traffic) -> Any:
        return pipelined_share(minimum(self.reader.pp, t.together), self.reader.longest_stage)

    def writing(self, t: Traffic, tag: Tag) -> Callable[[Any], Any]:
        return self.decoder(t, tag).time_per_token

    def decoder(self, t: Traffic, tag: Tag = untagged) -> Decoder:
        """How answers of a batch are written: plainly, with a draft model, or with heads of the model's own."""
        h = t.habits
        if self.draft is not None or not some(h.drafted > 0):
            return Decoder(self.writer, t.batch, self.draft, t.drafted, t.acceptance, tag)
        acceptance = head_acceptance() if h.acceptance is None else h.acceptance
        return Decoder(self.writer, t.batch, None, h.drafted, acceptance, tag, heads=True)

    def cache(self, tokens: Any) -> Any:
        return self.writer.cache(tokens)

    def memories(self, t: Traffic) -> list[DeviceMemory]:
        found = [replica_memory(self.writer, t.kept(), self.draft, t.length, head_share(self.writer.model, t))]
        return [*found, replica_memory(self.reader, t.prompt)] if self.apart else found

    def prompts(self, t: Traffic) -> Any:
        return t.together

    def clients(self, t: Traffic, a: Algebra, total: Sum) -> tuple[Loop, Any] | None:
        return None

    def take(self, index: Any) -> Replicated:
        reader = self.reader.take(index)
        writer = self.writer.take(index) if self.apart else reader
        return Replicated(reader, writer, None if self.draft is None else self.draft.take(index))


_WIDENED = {
    "chip": "",
    "kernels": ", and no kernel of its generation was measured (measured ones, predicted by those of other generations, show what that adds)",
    "cpu": ", and no engine on a processor was fitted (published rates of Xeons show what that adds)",
}
"""What widens an interval on a chip that no run was on."""


@dataclass(frozen=True, slots=True)
class Engines:
    """Calibrated: steps of engines. ``apart`` where prompts and answers have devices of their own, also of the same kind."""

    reader: EngineStep
    writer: EngineStep
    draft: EngineStep | None = None
    apart: bool = False

    def reading(self, t: Traffic, tokens: Any, tag: Tag) -> Callable[[Any], Any]:
        groups = minimum(self.reader.deployment.pp, t.together)
        each = t.together / groups / self.reader.deployment.attention_dp

        def read(context: Any) -> Any:
            found = self.reader.time(0.0, 0.0, each, tokens, context, tag=tag)
            return pipelined_completion(found.total, groups, found.stage)

        return read

    def pace(self, t: Traffic) -> Any:
        return pipelined_share(minimum(self.reader.deployment.pp, t.together), self.reader.longest_stage)

    def writing(self, t: Traffic, tag: Tag) -> Callable[[Any], Any]:
        steps, h = self.iterations(self.writer, t, t.batch), drafting(self, t).habits
        share = t.batch / steps.groups / self.writer.deployment.attention_dp
        scale = draft_cost(h) / accepted_tokens(h.drafted, h.acceptance)
        return lambda context: steps.time(share, context, drafted=h.drafted, tag=tag).total * scale

    def iterations(self, step: EngineStep, t: Traffic, sequences: Any) -> Iterations:
        """Steps of one of the groups that so many sequences of a replica make: as many as there are stages, if there are."""
        draft = self.draft if step is self.writer else None
        head = head_share(step.deployment.model, t) if step is self.writer else 0.0
        return Iterations(step, minimum(step.deployment.pp, sequences), draft, head)

    def asked(self, t: Traffic) -> Traffic:
        """The same with the most requests that a replica takes, where nobody says."""
        if t.habits.slots is not None:
            return t
        return replace(t, habits=replace(t.habits, slots=self.writer.most_requests))

    def cache(self, tokens: Any) -> Any:
        return self.writer.cache_bytes(tokens)

    def memories(self, t: Traffic) -> list[DeviceMemory]:
        head = head_share(self.writer.deployment.model, t)
        written, slots = None if self.apart else t.chunk, t.habits.slots
        found = [engine_memory(self.writer, t.kept(self.writer.engine), self.draft, t.length, head, written, slots)]
        budget = self.reader.engine.prefill_budget if t.chunk is None else t.chunk
        return [*found, engine_memory(self.reader, t.prompt, budget=budget, slots=slots)] if self.apart else found

    def prompts(self, t: Traffic) -> Any:
        if t.concurrency is None:
            return t.together
        ranks = self.reader.deployment.attention_dp
        budget = self.writer.engine.prefill_budget if t.chunk is None else t.chunk
        return ranks * ceil(minimum(maximum(t.concurrency / t.prefills / ranks, 1.0), maximum(1.0, budget / t.prompt)))

    def clients(self, t: Traffic, a: Algebra, total: Sum) -> tuple[Loop, Any] | None:
        return self._loop(t, a)

    def band(self, metric: str, t: Traffic, prompts: bool = False) -> tuple[Interval, str]:
        """The 90 % band of ``tpot``, ``ttft`` or ``rate`` of a traffic, and what it rests on, in words; ``prompts`` where requests end with the first
        token."""
        pools, engine = "disaggregated " if self.apart else "", self.writer.engine
        regime = f"serving {pools}{metric} {engine.like or engine.name}"
        nearer = (
            f"{regime} open" if t.rate is not None else "",
            f"serving {COLD} {pools}{metric} {engine.like or engine.name}" if not t.habits.warm else "",
            f"serving {pools}{metric} {engine.name}",
        )
        regime = next((each for each in nearer if each and measured(each)), regime)
        known = (*serving_table("measured")["chips"], *engine.chips)
        model, precision = self.writer.deployment.model, self.writer.precision
        chips = [step.deployment.chip for step in (self.writer, self.reader)]
        strange = {strangeness(chip): chip.name for chip in chips if chip.metadata.key not in known}
        lacks = {}
        if strange:
            kind = max(strange, key=STRANGE.index)
            lacks[kind] = f"no measured {pools}serving run was on {strange[kind]}{_WIDENED[kind]}"
        if not engine.measured(model, precision):
            lacks["model"] = f"no run of this architecture in {precision} on {engine.spoken} was measured"
        eager = (
            f"no run of {engine.spoken}, whose steps the host launches, was measured" if engine.answer_operator else ""
        )
        wide = no_runs(self.writer.format.name) if self.writer.format.wide else ""
        for more in filter(None, (wide, eager)):
            lacks["kernels"] = f"{lacks.get('kernels', '')} and {more}".removeprefix(" and ")
        if not engine.chips:
            lacks[PROMPTS if prompts else UNFITTED] = (
                f"no run of {engine.spoken} was fitted (runs that others published show what that adds)"
            )
        band = interval(regime, *lacks)
        of = {"tpot": "times per token", "ttft": "times to the first token"}.get(metric, "rates")
        return band, band.resting_on(f"{of} of measured {pools}serving runs", **lacks)

    @property
    def leaves_nodes(self) -> bool:
        """Whether a replica has its devices in several nodes, as none of the measured ones that read their own prompts had."""
        step = self.writer
        return not self.apart and step.deployment.devices > max(step.network.domain, step.network.node)

    def _loop(self, t: Traffic, a: Algebra) -> tuple[Loop, Any]:
        t = drafting(self, t)
        if self.apart:
            seen = disaggregated_loop if t.rate is None else disaggregated_arrivals
            return seen(*self._pools(t), a), 1.0
        if t.rate is not None:
            own = self.iterations(self.writer, t, self.writer.deployment.pp)
            many, each = t.replicas * own.groups, self._slots(t, own.groups)
            if t.habits.sent is not None:
                each = replace(each, habits=replace(each.habits, sent=t.habits.sent / many))
            return open_loop(own, replace(each, rate=t.rate / many, dealt=Dealt(many)), a), many
        alone = maximum(t.concurrency / t.replicas, 1.0)
        own = self.iterations(self.writer, t, alone)
        each = replace(self._slots(t, own.groups), concurrency=alone / own.groups)
        # Replicas beyond the clients have nothing to do.
        return closed_loop(own, each, a), minimum(t.replicas, t.concurrency) * own.groups

    def _pools(self, t: Traffic) -> tuple[Iterations, Iterations, Traffic]:
        """The steps of both pools, and the traffic of all of their groups."""
        reader, writer = (self.iterations(step, t, step.deployment.pp) for step in (self.reader, self.writer))
        each = self._slots(t, writer.groups)
        own = {"prefill_replicas": t.prefills * reader.groups, "replicas": t.replicas * writer.groups}
        return reader, writer, replace(each, **own)

    def pool_rates(self, t: Traffic) -> tuple[Any, Any]:
        """Requests a second that the readers and the writers could do by themselves."""
        return rates_apart(*self._pools(drafting(self, t)))

    @staticmethod
    def _slots(t: Traffic, groups: Any) -> Traffic:
        """The requests that one of so many groups may answer at a time."""
        most = t.habits.slots
        return t if most is None else replace(t, habits=replace(t.habits, slots=most / groups))

    def take(self, index: Any) -> Engines:
        if self.reader.clocks is None:
            return self
        clocks = self.reader.clocks.take(index)
        reader = self.reader.at(clocks)
        writer = reader if self.writer is self.reader else self.writer.at(clocks)
        return replace(self, reader=reader, writer=writer)
