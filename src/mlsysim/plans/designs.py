"""Designs of a service on one kind of chip, cheapest first: what the closed form ranks and the simulation decides.

Ways to split a replica are tensor and pipeline parallel, of a mixture expert parallel and groups of attention too; with one pool that
does both, and with pools of their own for prompts and answers.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from mlsysim.cases.deployment import Degrees
from mlsysim.cases.layout import divisors
from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.arrivals import grows_to, is_simulated
from mlsysim.plans.evaluate import completed, evaluate, evaluate_plainly, finished
from mlsysim.plans.limits import demands
from mlsysim.plans.offered import breaks
from mlsysim.plans.plan import Plan
from mlsysim.plans.served import ANY_RATE, Layout, Served, split_text
from mlsysim.plans.serving import AUTO, answer_of, best_served, server_of
from mlsysim.plans.serving_words import limited
from mlsysim.plans.sheet import Sheet
from mlsysim.plans.simulated import Played
from mlsysim.plans.targets import percent
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.units.registry import to_si
from mlsysim.units.text import compact_time

_FURTHER, _TRIES, _IDLE, _HALVINGS = 16, 6, 64, 3
"""Replicas that are added to a design at most (or as many as it has), designs that fail one after another before a search ends, times as many
replicas as hardly anybody asks, and plays of a headroom."""
_STAGES, _CROWDED, _WIDTHS, _MOST = 16, 0.6, (2, 4, 8, 16, 32, 64), 128
"""Most pipeline stages, the share of a device beyond which what it always holds asks for more of them, groups of attention that are tried, and most
accelerators of a replica."""
_KINDS = {"ttft": "ttft", "tpot": "tpot", "itl": "tpot", "e2e": "latency"}
_SKEWED = 75
"""Per cent of a percentile that the mean is not above."""
_OVER_TIME = ("trace", "burst", "scheduler", "router", "autoscale", "seed", "requests", "slo")
"""What only a simulation has."""

Tell = Callable[[str], None]


class Seen(NamedTuple):
    """Whether a design keeps up and every limit; the time that misses its limit most, or comes nearest: over it, its name, in seconds."""

    kept: bool
    over: float = 0.0
    name: str = ""
    value: float = 0.0


def _seen(limits: Sequence[tuple[str, float, float]], carries: bool) -> Seen:
    over, name, value = max(
        ((value / limit, name, value) for name, value, limit in limits if value == value), default=(0.0, "", 0.0)
    )
    return Seen(carries and over <= 1, over, name, value)


class Design(NamedTuple):
    """A layout on a chip, with the pool that writes answers where it is one of its own."""

    chip: str
    layout: Layout
    pool: str | None = None
    over: float = 0.0
    """The closed form's largest time over its limit."""

    def counts(self, spare: int = 0) -> tuple[int, int]:
        """Accelerators that read (or do both), and that write: beyond one node there are whole ones alone."""
        split, replicas, writing, writers = self.layout
        own = _bought(self.chip, split.devices * (replicas + spare))
        return own, 0 if self.pool is None or writing is None else _bought(self.pool, writing.devices * (writers or 0))

    def filled(self, spare: int) -> Design:
        """The same with every replica that there is room for: what is paid for serves."""
        split, _, writing, _ = self.layout
        own, others = self.counts(spare)
        writers = None if writing is None else others // writing.devices
        return self._replace(layout=Layout(split, own // split.devices - spare, writing, writers))

    def plan(self, plan: Plan) -> Plan:
        spare = (plan.serving and plan.serving.spare) or 0
        (split, replicas, _, writers), (own, others) = self.filled(spare).layout, self.counts(spare)
        degrees = {"tp": split.tp, "pp": split.pp, "ep": split.ep, "attention_dp": split.attention_dp, "dp": None}
        serving: dict[str, Any] = {"replicas": replicas}
        if self.pool is not None:
            serving |= {"decode_on": f"{others}x{self.pool}", "decode_replicas": writers}
        on = {"on": f"{own}x{self.chip}", "name": None, "nodes": None, "accelerators": None}
        return plan.replacing(task="serving", hardware=on, parallelism=degrees, serving=serving)

    def more(self, missed: str, by: int) -> Design:
        """The same with more replicas: of pools those that read where the first token is late, those that write where others are."""
        split, replicas, writing, writers = self.layout
        kind = missed.split("_")[0]
        if writers is None:
            return self._replace(layout=Layout(split, replicas + by))
        reads, writes = by * (kind not in ("tpot", "itl")), by * (kind not in ("ttft", "queue"))
        return self._replace(layout=Layout(split, replicas + reads, writing, writers + writes))

    @property
    def text(self) -> str:
        split, replicas, writing, writers = self.layout
        found = f"{replicas:,} x {split_text(split)}"
        return found if writing is None else f"{found} + {writers:,} x {split_text(writing)}"


def _bought(chip: str, needed: int) -> int:
    width = parse_fleet(f"64x{chip}").one.node.accelerators_per_node
    return needed if needed <= width else -(-needed // width) * width


def price(answer: Answer) -> float:
    """What a day costs; infinite where no price is known."""
    metric = answer.paid
    return math.inf if metric is None else float(metric.value.magnitude) / (answer.plan.ops.days or 1.0)


class ChipDesigns:
    """Ways to serve a plan on one kind of chip."""

    def __init__(self, plan: Plan, chip: str, tell: Tell) -> None:
        self.chip, self.tell, self.refused = chip, tell, ""
        self.staged: list[Design] = []
        self.plays: dict[Layout, tuple[Sheet, Served, int]] = {}
        self.answers: dict[Layout, Answer] = {}
        self.nearest: tuple[float, str] = (math.inf, "")
        self.missing: tuple[float, str] = (math.inf, "")
        fleet = parse_fleet(f"64x{chip}").one
        self.width = fleet.node.accelerators_per_node
        # Several nodes, so that a replica may span them; times of a replica do not depend on how many others there are.
        on = {"on": f"{8 * self.width}x{chip}", "name": None, "nodes": None, "accelerators": None}
        asked = plan.serving.decode_on if plan.serving is not None else None
        pool = chip if asked in (None, AUTO) else parse_fleet(asked).one.node.accelerator.metadata.key or chip
        cleared = dict.fromkeys(("replicas", "decode_replicas", "decode_on"))
        self.plan = plan.replacing(task="serving", hardware=on, serving=cleared)
        self.server = None if asked is not None else server_of(self.plan, quick=True)
        apart = self.plan.replacing(serving={"decode_on": f"{8 * self.width}x{pool}"})
        self.pool = pool
        self.pools = server_of(apart, quick=True)
        self.spare = (plan.serving and plan.serving.spare) or 0
        if self.pools.part.qps is None:
            words = "A least service answers requests that come over time, and those of the trace come all at once"
            raise InputError(f"{words}; give a longer trace, or qps and lengths without one.", field="trace")
        self.rate = self.pools.part.qps
        self.each: float | None = None
        self.simulated = is_simulated(self.pools.part)

    def cost(self, design: Design) -> tuple[float, int]:
        """About what a day costs, by which services are ranked; and accelerators."""
        count = sum(design.counts(self.spare))
        if self.each is None:
            steady = self.plan.replacing(serving=dict.fromkeys(_OVER_TIME) | self._means(), constraints=None)
            self.each = price(evaluate_plainly(design.plan(steady))) / count
        return self.each * count, count

    def _means(self) -> dict[str, Any]:
        """The traffic of a trace as its means, which the closed form knows."""
        server = self.pools
        return {
            "qps": self.rate,
            "prompt_tokens": server.prompt,
            "output_tokens": server.output,
            "length_cv": server.part.length_cv,
        }

    # --- the closed form ----------------------------------------------------------------------------------------------

    def _splits(self) -> list[Degrees]:
        """Ways to split a replica: with the degrees that are given, and others where they are not; of stages the fewest."""
        given, model = self.plan.parallelism, self.pools.model
        heads, experts = getattr(model, "heads", None) or 1, getattr(model, "experts", 1)
        found, pp = [], given.pp or 1
        for tp in [given.tp] if given.tp else [tp for tp in divisors(self.width) if heads % tp == 0]:
            widths = [given.ep] if given.ep else [1, tp] if experts > 1 and experts % tp == 0 else [1]
            found += [Degrees(tp, pp, ep, given.attention_dp) for ep in dict.fromkeys(widths)]
        if experts > 1 and not (given.tp or given.ep or given.attention_dp):
            found += [Degrees(1, pp, width, width) for width in _WIDTHS if experts % width == 0]
        return found

    def _staged(self, design: Design, most: Served) -> list[Design]:
        """The same in twice as many stages, where weights leave little room for caches or do not fit."""
        split, layers = design.layout.split, getattr(self.pools.model, "layers", None) or 1
        crowded = most.result.named("device_fixed") > _CROWDED * most.result.named("device_capacity")
        wider = split._replace(pp=2 * split.pp)
        if not crowded or self.plan.parallelism.pp or wider.pp > min(layers, _STAGES) or wider.devices > _MOST:
            return []
        return [design._replace(layout=Layout(wider, 1, *((wider, 1) if design.pool else ())))]

    def _at(self, design: Design, rate: float | None = None) -> Served:
        server = self.server if design.pool is None else self.pools
        assert server is not None
        return server.at(design.layout, None, rate)

    def _closed(self, design: Design, times: float = 1.0) -> Seen:
        """What the closed form says: its means are held against high percentiles too, which are no lower."""
        served = self._at(design, self.rate * times)

        def value(name: str) -> float:
            kind, _, level = name.rpartition("_")
            low = kind == "queue" or (kind and percent(level) < _SKEWED)
            return 0.0 if low else float(getattr(served, _KINDS.get(kind, name), 0.0))

        return _seen(served.limits_of(value), math.isfinite(served.ttft))

    def _play(self, design: Design, times: float = 1.0) -> Seen:
        """What a simulation says, where so many times as many requests come."""
        layout = design.filled(self.spare).layout
        found = self.plays.get(layout) if times == 1.0 else None
        if found is None:
            plan = design.plan(self.plan)
            if times != 1.0:
                plan = plan.replacing(serving={"qps": self.rate * times})
            found = best_served(plan, quick=True)
        if times == 1.0:
            # A few replicas more may be the same nodes, all of which serve.
            self.plays[layout] = found
        return _seen(found[1].limits, found[1].carries)

    def _tried(self, design: Design) -> Seen:
        """The same, without a play where the work of a trace alone breaks a limit: then nothing is known but that."""
        part, layout, arrivals = self.pools.part, design.filled(self.spare).layout, self.pools.arrivals
        asked = (part.router, part.scheduler, part.autoscale)
        if arrivals is None or arrivals.trace is None or arrivals.blocks or any(each is not None for each in asked):
            return self._play(design)
        broken = layout not in self.plays and breaks(self._at(design), arrivals.trace, layout.replicas)
        return Seen(False, 0.0, "ttft") if broken else self._play(design)

    def _busy(self, design: Design) -> Design | None:
        """The same with as many replicas as answer the rate when they are always full, or as it grows to; none where the model does not fit."""
        most, split = self._at(design, ANY_RATE), design.layout.split
        self.staged += self._staged(design, most)
        if not most.result.feasible:
            lacks = to_si(most.result.memory_missing, "byte")
            self.missing = min(self.missing, (lacks, f"{split_text(split)}: {most.result.binding.sentence}"))
            return None
        rates = (most.most,) if design.pool is None else most.result.named("pools")[:2]
        counts = [max(grows_to(self.pools.part), math.ceil(self.rate / each * (1 - 1e-9))) for each in rates]
        return design._replace(layout=Layout(split, counts[0], design.layout.writing, *counts[1:]))

    def designs(self) -> Iterator[Design]:
        """What keeps every limit, cheapest first: at most one for a number of accelerators, of one pool and of two each.

        A design waits with a number of accelerators that it needs at least: those of a replica, those that are busy all the time, those whose means
        lie within the limits, those that a simulation needs. What was looked at to the end when its turn comes has no cheaper one behind it.
        Of as many accelerators the one is played first whose means lie furthest within the limits.
        """
        waiting: list[tuple[tuple[int, int, float, int], int, Design]] = []
        stages: list[Callable[[Design], Design | None]] = [self._busy, partial(self._enough, see=self._closed)]
        stages += [partial(self._enough, see=self._tried)] if self.simulated else []
        last, known = len(stages), count()

        def push(design: Design, stage: int) -> None:
            turn = 0 if stage < 2 else 1 if stage == last else 2
            heapq.heappush(waiting, ((sum(design.counts(self.spare)), turn, design.over, next(known)), stage, design))

        for split in self._splits():
            if self.server is not None:
                push(Design(self.chip, Layout(split, 1)), 0)
            push(Design(self.chip, Layout(split, 1, split, 1), self.pool), 0)
        seen: set[tuple[int, bool]] = set()
        tries = _TRIES
        while waiting and tries:
            (number, *_), stage, design = heapq.heappop(waiting)
            kind = number, design.pool is not None
            if kind in seen:
                continue
            if stage == last:
                seen.add(kind)
                tries = _TRIES
                yield design.filled(self.spare)
                continue
            self.tell(f"trying {number:,} x {self.chip}: {design.text} ...")
            try:
                better = stages[stage](design)
            except InputError as error:
                self.refused = self.refused or error.message
                continue
            while self.staged:
                push(self.staged.pop(), 0)
            if better is not None:
                push(better, stage + 1)
            elif stage == 2:
                tries -= 1

    def _enough(self, design: Design, see: Callable[[Design], Seen]) -> Design | None:
        """The same with the fewest replicas, by doubling and halving, that keep every limit; none where not even those do that hardly
        anybody asks."""
        few, seen, step, most = None, see(design), 1, max(_FURTHER, 2 * design.layout.replicas)
        alone = seen if seen.kept else self._closed(design.more("", _IDLE * design.layout.replicas))
        if alone.over > 1:
            self._nearest(design, alone)
            return None
        while not seen.kept:
            few, design, step = design, design.more(seen.name, step), 2 * step
            if step > most:
                self._nearest(few, self._play(few) if seen.name and not seen.over else seen)
                return None
            seen = see(design)
        while few is not None and design.pool is None and (gap := design.layout.replicas - few.layout.replicas) > 1:
            middle = few.more("", gap // 2)
            found = see(middle)
            few, design, seen = (few, middle, found) if found.kept else (middle, design, seen)
        return design._replace(over=seen.over)

    def _nearest(self, design: Design, seen: Seen) -> None:
        words = (
            f"{limited(seen.name)[0]} takes {compact_time(seen.value)}"
            if seen.name
            else "requests come faster than they are answered"
        )
        over = f", over the limit of {compact_time(seen.value / seen.over)}" if seen.name else ""
        self.nearest = min(
            self.nearest,
            (seen.over, f"nothing that was tried keeps every limit; nearest comes {design.text}: {words}{over}."),
        )

    @property
    def reason(self) -> str:
        """Why there is none."""
        return self.nearest[1] or self.missing[1] or self.refused

    # --- the answer ---------------------------------------------------------------------------------------------------

    def answer(self, design: Design) -> Answer:
        """The answer to a design's plan; where it is simulated, of the requests that were played."""
        plan, found = design.plan(self.plan), self.plays.get(design.layout)
        answer = evaluate_plainly(plan) if found is None else finished(plan, lambda _: answer_of(*found))
        self.answers[design.layout] = answer
        return answer.model_copy(update={"checks": demands(answer.of_what_runs())})

    def whole(self, design: Design) -> Answer | None:
        """The whole answer; none where of as many requests as it plays a percentile is over its limit, which of fewer was not."""
        self.tell(f"looking closely at {sum(design.counts(self.spare)):,} x {self.chip}: {design.text} ...")
        plan, arrivals = design.plan(self.plan), self.pools.arrivals
        if arrivals is not None and arrivals.trace is not None and design.layout in self.answers:
            # All of a trace is played where designs are compared too.
            return completed(self.answers[design.layout])
        return evaluate(plan) if not self.simulated or best_served(plan)[1].within else None

    def headroom(self, design: Design) -> float:
        """How many times the rate first misses a limit: between it and the rate at which all replicas are full, by halving."""
        low, high = 1.0, max(1.0, self._at(design).most / self.rate)
        see, halvings = (self._play, _HALVINGS) if self.simulated else (self._closed, 2 * _HALVINGS)
        played = self.plays.get(design.layout)
        if played is not None and isinstance(played[1], Played) and "ends" in vars(played[1]):
            # Steps that are longer are the same as requests that come faster.
            low, high = _narrowed(played[1], low, high)
            halvings -= 2
        for _ in range(halvings):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if see(design, middle).kept else (low, middle)
        return math.sqrt(low * high)


def _narrowed(played: Played, low: float, high: float) -> tuple[float, float]:
    for seen, factor in played.ends:
        if low < factor < high:
            kept = all(value <= limit for _, value, limit in played.limits_of(partial(played.value, seen=seen)))
            low, high = (factor, high) if kept else (low, factor)
    return low, high
