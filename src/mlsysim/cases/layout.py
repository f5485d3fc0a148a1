"""How a training job is laid out on a fleet: degrees of parallelism, what divides what, who sits where.

Ranks are numbered with tensor parallelism innermost, then context, data and pipeline parallelism outermost, so that the
chattiest group shares a node. Experts are spread over the tensor and data ranks of a stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cached_property
from math import log
from typing import Any, NamedTuple

from mlsysim.cases.assumptions import INFERRED, Assumptions
from mlsysim.errors import InputError, either
from mlsysim.models.base import Workload
from mlsysim.physics.pipeline import CHUNKED
from mlsysim.timing.network import Group, Network
from mlsysim.units.ops import floor, maximum, minimum, some, where
from mlsysim.units.records import dataclass


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism and how the batch is cut."""

    dp: int
    tp: int
    pp: int
    ep: int
    cp: int
    micro_batches: int
    local_batch: int
    virtual_stages: int = 1
    schedule: str | None = None
    """None for 1F1B, interleaved with virtual stages."""
    group: int | None = None
    """Micro-batches that go through one chunk before the next, where that is said of an interleaved schedule."""
    shard: Any = None
    """Ranks that share what ZeRO shards, where that is not all that hold the same weights (HSDP)."""

    @cached_property
    def micro_batch(self) -> float:
        return self.local_batch / self.micro_batches

    def groups(self, net: Network) -> Groups:
        """Where the ranks of each group sit."""
        same, z = self.dp * self.cp, self.shard
        fleet = same * self.tp * self.pp
        experts = maximum(same * self.tp / self.ep, 1.0)
        spread = net.sites
        data = net.group(same, self.tp)._replace(sites=spread)
        expert_data = net.group(experts, self.ep)._replace(sites=spread)
        shard, expert_shard, copies, expert_copies = data, expert_data, None, None
        if z is not None:
            few = minimum(z * 1.0, experts)
            shard, expert_shard = net.group(z, self.tp), net.group(few, self.ep)
            copies, expert_copies = net.group(same / z, self.tp * z), net.group(experts / few, self.ep * few)
            if net.sites > 1:
                # Shards that fit into a site stay there, and their copies are at the others.
                far = (where(z * spread <= same, 1, spread), where(few * spread <= experts, 1, spread))
                shard, expert_shard = shard._replace(sites=far[0]), expert_shard._replace(sites=far[1])
                copies = copies._replace(sites=where(z * spread <= same, spread, 1))
                expert_copies = expert_copies._replace(sites=where(few * spread <= experts, spread, 1))
        return Groups(
            tensor=net.neighbours(self.tp, fleet),
            expert=net.neighbours(self.ep, fleet),
            data=data,
            expert_data=expert_data,
            shard=shard,
            expert_shard=expert_shard,
            copies=copies,
            expert_copies=expert_copies,
            context_near=self.tp * self.cp <= net.domain,
            stage_near=self.tp * self.cp * self.dp * self.pp <= net.domain,
        )


@dataclass(frozen=True, slots=True)
class Groups:
    """Who talks to whom: ranks of each group, and whether neighbours in a ring of contexts or stages share a domain.

    ``data`` are the ranks that hold the same weights (of all data and context ranks), ``expert_data`` the same experts. ``shard`` are
    those of them that share state, ``copies`` those that have the same share of it, where there are several.
    """

    tensor: Group
    expert: Group
    data: Group
    expert_data: Group
    shard: Group
    expert_shard: Group
    copies: Group | None
    expert_copies: Group | None
    context_near: Any
    stage_near: Any

    def at_one_site(self) -> Groups:
        """The same as if all ranks were at one site."""
        groups = ((each.name, getattr(self, each.name)) for each in fields(self))
        return replace(self, **{name: g._replace(sites=1) for name, g in groups if isinstance(g, Group)})


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _near(number: int, wanted: int) -> str:
    """All divisors where they are few, else those next to what was wanted by their ratio to it."""
    found = divisors(number)
    return either(found if len(found) <= 4 else sorted(sorted(found, key=lambda d: abs(log(d / wanted)))[:3]))


def _near_group(micro_batches: int, pp: int) -> str:
    """Group sizes that run: of those that divide the micro-batches the least, or all at once."""
    options = [d for d in divisors(micro_batches) if d >= pp]
    return either(options[:3] or [micro_batches])


def choose_micro_batches(local_batch: int, pp: int) -> int:
    """One without a pipeline, else the largest divisor of the local batch up to four per stage."""
    if pp == 1:
        return 1
    return max(d for d in divisors(local_batch) if d <= 4 * pp)


class Rule(NamedTuple):
    """One thing that has to divide: whether it does, the input to blame, and one sentence with what would."""

    holds: Any
    field: str
    words: Callable[[], str]


def divides(part: Any, whole: Any) -> Any:
    """Whether ``whole`` is a multiple of ``part``."""
    times = whole / part
    return times == floor(times)


def asked_layout(
    accelerators: Any, batch: Any, tp: Any, pp: Any, ep: Any, cp: Any, micro_batches: Any = None, **more: Any
) -> Layout:
    """The layout that degrees leave, of one or of arrays of them; what does not divide is a fraction, see :func:`rules`."""
    dp = accelerators / (tp * pp * cp)
    return Layout(dp, tp, pp, ep, cp, micro_batches, batch / dp, **more)


def rules(
    model: Workload, asked: Layout, accelerators: Any, batch: Any, seq_len: Any, sites: int = 1
) -> Iterator[Rule]:
    """All that has to hold of a layout, for one or for arrays of them; a rule may rest on those before it."""
    dp, tp, pp, ep, cp = asked.dp, asked.tp, asked.pp, asked.ep, asked.cp
    virtual_stages, schedule, shard = asked.virtual_stages, asked.schedule, asked.shard
    yield Rule(divides(tp * pp * cp, accelerators), "tp_size", lambda: _not_divided(accelerators, tp, pp, cp))
    if sites > 1:
        yield Rule(
            divides(sites, dp),
            "sites",
            lambda: f"{int(dp)} replicas (DP) do not divide over {sites} sites; a replica stays at one.",
        )
    heads, layers, experts = getattr(model, "heads", None), getattr(model, "layers", None), getattr(model, "experts", 1)
    if heads:
        yield Rule(
            divides(tp, heads),
            "tp_size",
            lambda: f"{heads} attention heads of {model.name} do not divide over TP {tp}; use {_near(heads, tp)}.",
        )
    if layers:
        yield Rule(
            (pp <= layers) & (pp * (virtual_stages - 1) < layers),
            "pp_size",
            lambda: (
                f"{model.name} has {layers} layers, too few for PP {pp} x {virtual_stages} virtual stages; use fewer stages."
            ),
        )
    if some(ep > 1):
        yield Rule(
            divides(ep, experts) | (ep <= 1),
            "ep_size",
            lambda: (
                f"The {experts} experts of {model.name} do not divide over EP {ep}; use EP {_near(experts, ep)}."
                if experts > 1
                else f"EP {ep} spreads experts, and {model.name} has none; leave EP out."
            ),
        )
        yield Rule(
            divides(ep, dp * tp * cp) | (ep <= 1),
            "ep_size",
            lambda: (
                f"EP {ep} does not divide the {int(dp * tp * cp)} ranks of a stage (DP {int(dp)} x TP {tp} x CP {cp}); "
                f"use {_near(int(dp * tp * cp), ep)}."
            ),
        )
    if some(cp > 1):
        yield Rule(
            divides(cp, seq_len),
            "cp_size",
            lambda: (
                f"CP {cp} splits sequences of tokens, which {model.name} does not take; leave CP out."
                if model.fixed_shape
                else f"{seq_len} tokens do not divide over CP {cp}; use {_near(seq_len, cp)}."
            ),
        )
    if schedule == "dualpipe":
        yield Rule(
            (pp % 2 == 0) | (pp == 1), "schedule", lambda: f"DualPipe needs an even number of stages, got PP {pp}."
        )
    if schedule not in (None, *CHUNKED):
        yield Rule(
            virtual_stages <= 1,
            "v_stages",
            lambda: f"Virtual stages belong to the interleaved schedules, not to {schedule}.",
        )
    if shard is not None:
        yield Rule(
            divides(shard, dp * cp),
            "zero_shard",
            lambda: (
                f"The {int(dp * cp)} ranks that hold the same weights (DP {int(dp)} x CP {cp}) do not divide into shards of "
                f"{shard}; use {_near(int(dp * cp), shard)}."
            ),
        )
    yield from _rules_of_batches(asked, batch)


def _rules_of_batches(asked: Layout, batch: Any) -> Iterator[Rule]:
    dp, pp, local, micro_batches, group = asked.dp, asked.pp, asked.local_batch, asked.micro_batches, asked.group
    yield Rule(divides(dp, batch), "batch_size", lambda: _batch_not_divided(int(batch), int(dp)))
    if micro_batches is not None:
        yield Rule(
            micro_batches <= local,
            "microbatch_count",
            lambda: (
                f"{micro_batches} micro-batches are more than the {int(local)} samples of each replica "
                f"(batch {batch} / DP {int(dp)})."
            ),
        )
        yield Rule(
            divides(micro_batches, local),
            "microbatch_count",
            lambda: (
                f"{int(local)} samples of each replica do not divide into {micro_batches} micro-batches; "
                f"use {_near(int(local), micro_batches)}."
            ),
        )
    if group is not None:
        yield Rule(
            micro_batches is not None,
            "microbatch_count",
            lambda: "A size of groups needs the number of micro-batches that they are made of.",
        )
        if micro_batches is not None:
            rest = micro_batches % group
            yield Rule(
                (group >= micro_batches) | (group >= pp) & ((rest == 0) | (rest >= pp)),
                "microbatch_group_size",
                lambda: (
                    f"Groups of {group} of {micro_batches} micro-batches would wait for themselves on {pp} stages: every group, the "
                    f"last too, needs {pp} or more; use {_near_group(micro_batches, pp)}."
                ),
            )


def plan_layout(
    model: Workload,
    accelerators: int,
    batch: int,
    seq_len: int,
    *,
    assumed: Assumptions,
    sites: int = 1,
    **degrees: Any,
) -> Layout:
    """A layout in which everything divides; one sentence with the nearest degrees where it does not."""
    asked = asked_layout(accelerators, batch, **degrees)
    for rule in rules(model, asked, accelerators, batch, seq_len, sites):
        if not rule.holds:
            raise InputError(rule.words(), field=rule.field)
    local, micro_batches = int(asked.local_batch), asked.micro_batches
    if micro_batches is None:
        micro_batches = choose_micro_batches(local, asked.pp)
        words = f"{micro_batches} micro-batch{'es' * (micro_batches > 1)} of {local // micro_batches}"
        assumed.say("microbatch_count", micro_batches, INFERRED, words)
    return replace(asked, dp=int(asked.dp), local_batch=local, micro_batches=micro_batches)


def _not_divided(accelerators: int, tp: int, pp: int, cp: int) -> str:
    wrong = f"TP {tp} x PP {pp} x CP {cp} = {tp * pp * cp} does not divide {accelerators} accelerators; "
    # The first degree that does not divide what the others leave is the one to change.
    for name, degree, others in (("TP", tp, pp * cp), ("PP", pp, tp * cp), ("CP", cp, tp * pp)):
        if accelerators % others == 0:
            return f"{wrong}with the others as they are, {name} may be {_near(accelerators // others, degree)}."
    return f"{wrong}choose degrees whose product divides it, such as TP {_near(accelerators, tp)} alone."


def _batch_not_divided(batch: int, dp: int) -> str:
    lower, upper = batch // dp * dp, (batch // dp + 1) * dp
    return f"A batch of {batch} does not divide over DP {dp}; use {f'{lower} or {upper}' if lower else upper}."
