"""Ways to serve a plan under its load, and the best of them.

Devices are split into replicas of TP x PP. Without a degree, every one that divides a node and fits is tried; the
cheapest that keeps the limits is taken, that is the one with most output for the same devices. Load is a number of
clients in a closed loop (``concurrency``) or a rate (``qps``) of requests that come at random (:func:`mlsysim.cases.closed_loop.open_loop`); at
first order, where nothing queues, the fewest clients whose answers come at that rate. With neither, the largest load that
keeps the limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.cases.assumptions import DEFAULT, Assumptions
from mlsysim.cases.deployment import Degrees, most_context
from mlsysim.cases.layout import divisors
from mlsysim.errors import InputError
from mlsysim.plans.arrivals import Arrivals, check_played, grows_to, is_simulated
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import ServingPart
from mlsysim.plans.resolve import fidelity_of, find_model, precision_of, say_model
from mlsysim.plans.served import ANY_RATE, Layout, Served, split_text
from mlsysim.plans.sheet import Sheet
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.systems.types import Fleet
from mlsysim.timing.engines import engine
from mlsysim.units.text import many
from mlsysim.vocabulary import python_name
from mlsysim.walls.node.serving import ServingModel

PROMPT, OUTPUT = 1024, 256
_PASSED = (
    *("cache_precision", "chunk_tokens", "cached_prefix", "acceptance", "redundant_experts"),
    *("adapters", "adapter_rank"),
    *("prefix_hits", "prefix_tokens", "offload_memory"),
    *("network", "memory_fraction", "requests", "range_ratio", "length_cv", "max_num_seqs", "poll_steps", "wait_steps"),
    *("warm_up", "offline"),
)
"""Fields of a plan's serving part that ServingModel takes, under its own names."""
_CLIENTS = 8
_MOST_CLIENTS = 4096

_MOST_STAGES = 16
_HARDLY, _HALVINGS, _PLAYED = 1e-3, 10, 7
"""A small share of the most requests a second that are answered, and how often the rate between is halved, by the closed form and in plays."""
_TRIES = 5
"""Rates that are tried on a line before what is left is halved."""
_LAST = 3
"""Layouts that a simulation decides between."""
_WIDEST = 64
"""Most devices whose groups of attention share experts, where a layout is searched."""


Play = Callable[[Served, Arrivals, bool], Served]
"""A way to serve as a simulation of requests sees it; of fewer of them where it must be quick."""


def is_limited(part: ServingPart) -> bool:
    """Whether a plan limits times of requests."""
    return part.slo is not None or any(limit is not None for limit in (part.ttft, part.tpot, part.latency))


class Server:
    """Evaluates ways to serve a plan; ``play`` simulates those that are asked for over time."""

    def __init__(self, plan: Plan, sheet: Sheet, model: Any, fleet: Fleet, play: Play, quick: bool = False) -> None:
        self.plan, self.sheet, self.model, self.fleet, self.play, self.quick = plan, sheet, model, fleet, play, quick
        self.part = plan.serving or ServingPart()
        self._kept = 0.0
        self._asked: dict[tuple[Layout, int | None, float | None], Served] = {}
        copies = plan.parallelism.dp
        if copies is not None and self.part.replicas not in (None, copies):
            raise InputError(
                f"dp {copies} are the replicas of a serving plan, and replicas are {self.part.replicas}.", field="dp"
            )
        self.chip = fleet.node.accelerator
        self.decode_fleet = self._decode_fleet()
        assumed = sheet.assumed
        self.prompt = self.part.prompt_tokens or plan.workload.seq_len or PROMPT
        self.output = self.part.output_tokens or OUTPUT
        if self.part.prompt_tokens is None and plan.workload.seq_len is None:
            assumed.say("prompt_tokens", PROMPT, DEFAULT, f"{PROMPT:,}")
        if self.part.output_tokens is None:
            assumed.say("output_tokens", OUTPUT, DEFAULT, f"{OUTPUT:,}")
        efficiency = fidelity_of(plan, model, assumed, chip=self.chip)
        self.calibrated = efficiency == "calibrated"
        self.arrivals: Arrivals | None = None
        if is_simulated(self.part):
            self._simulated(assumed)
        self.options = self._options(efficiency, assumed)

    @property
    def drafts(self) -> bool:
        """Whether a step may give several tokens of a request."""
        return bool(self.part.draft_model or self.part.draft_tokens)

    def _simulated(self, assumed: Assumptions) -> None:
        """Requests one by one: their lengths, and their rate where a trace has it."""
        if not self.calibrated:
            words = "percentiles, traces and schedulers are simulated with calibrated steps; leave the efficiency out"
            raise InputError(f"At first order nothing queues: {words}.", field="efficiency")
        check_played(self.part, self.limited)
        self.arrivals = found = Arrivals.of(self.part, self.prompt, self.output, self.model)
        self.prompt, self.output = found.prompt, found.answer
        part = self.part
        if part.offload_disk is not None and found.blocks is None:
            words = "give turns, or prefix_hits and prefix_tokens, or a trace with prefixes"
            raise InputError(f"A disk keeps prefixes that requests share: {words}.", field="offload_disk")
        # The closed form that ranks has what is on a device, and finds what was said before as far as there is room for all that is asked for again.
        if part.resident_adapters is not None:
            self.part = part.model_copy(update={"adapters": min(part.adapters or 1, part.resident_adapters)})
        if found.repeated is not None and part.prefix_hits is None:
            again = {"prefix_hits": found.repeated, "prefix_tokens": found.said_meanwhile}
            self.part = self.part.model_copy(update=again)
        if found.trace is not None:
            load: dict[str, Any] = {"qps": found.rate, "length_cv": found.length_cv}
            if found.rate is None:
                load |= dict.fromkeys(("concurrency", "requests"), found.count())
            self.part = self.part.model_copy(update=load)
            for name in ("prompt_tokens", "output_tokens"):
                assumed.pop(name, None)

    def seen(self, served: Served) -> Served:
        """As a simulation sees it, where the plan asks for one and it fits."""
        if self.arrivals is None or not served.result.feasible:
            return served
        most = grows_to(self.part)
        if most > served.replicas:
            room = f"{many(served.replicas, 'replica')} of {many(served.split.devices, 'accelerator')}"
            words = f"A service that grows to {most:,} replicas has no place on {self.fleet.name}, which has room for {room}."
            raise InputError(words, field="autoscale")
        return served if served.overloaded else self.play(served, self.arrivals, self.quick)

    def _decode_fleet(self) -> Fleet | None:
        """The pool that writes answers: a fleet of any size, or of a chip alone as many as read prompts."""
        text = self.part.decode_on
        if text is None:
            return None
        pool = parse_fleet(text).one
        if pool.total_accelerators == 1 and not text.strip().lower().startswith("1x"):
            pool = parse_fleet(f"{self.fleet.total_accelerators}x{text.strip()}").one
        return pool

    def _options(self, efficiency: float | str, assumed: Assumptions) -> dict[str, Any]:
        part, pool = self.part, self.decode_fleet
        say_model(self.plan, assumed, self.model)
        options = {python_name(f"serving.{name}"): getattr(part, name) for name in _PASSED} | {
            "seq_len": self.prompt,
            "output_len": self.output,
            "precision": precision_of(self.plan, assumed, self.chip, self.model),
            "efficiency": efficiency,
            "power_cap": self.plan.hardware.power_cap,
            "cp_size": self.plan.parallelism.cp,
            "num_speculative_tokens" if part.draft_model is not None else "mtp_tokens": part.draft_tokens,
            "engine": None if part.engine is None else engine(part.engine).name,
            "draft_model": None if part.draft_model is None else find_model(part.draft_model),
            "decode_hardware": None if pool is None else pool.node.accelerator,
            "fabric": self.fleet.fabric if self.fleet.count > 1 else None,
        }
        return {name: value for name, value in options.items() if value is not None}

    def at(self, layout: Layout, clients: int | None, rate: float | None = None) -> Served:
        """One layout under one load: clients, or a rate of requests at random, the plan's where None is given; asked for again, the same."""
        asked = layout, clients, rate
        if asked not in self._asked:
            self._asked[asked] = self._at(*asked)
        return self._asked[asked]

    def _at(self, layout: Layout, clients: int | None, rate: float | None) -> Served:
        names = ("tp_size", "pp_size", "ep_size", "attention_dp", "num_replicas", "decode_replicas")
        degrees = [*zip(names, (*layout.split, layout.replicas, layout.writers), strict=True)]
        if layout.writing is not None and layout.writing != layout.split:
            degrees += [("decode_tp_size", layout.writing.tp), ("decode_ep_size", layout.writing.experts)]
        options = self.options | {name: degree for name, degree in degrees if degree is not None}
        load = {"concurrency": clients} if clients is not None else {"arrival_rate": rate or self.part.qps}
        result = ServingModel().solve(self.model, self.chip, **options, **load)
        return Served(self, result, layout, clients, rate)

    @property
    def limited(self) -> bool:
        return is_limited(self.part)

    def layouts(self) -> list[Layout]:
        """Ways to split the fleet into replicas: with the degrees that are given, and all that divide a node where they are not."""
        split = self.plan.parallelism
        tensors = [split.tp] if split.tp is not None else self._tensors()
        return self._room([Degrees(tp, split.pp or 1, split.ep or 1, split.attention_dp) for tp in tensors])

    def _grouped(self) -> list[Layout]:
        """Attention of a mixture in groups of one device, which share the experts of up to several nodes.

        Tried where nothing else holds the model or carries the load, else told as a change: with hundreds of sequences a device what is
        predicted is 1.3 times what pages of TensorRT-LLM reach with DeepSeek-R1 (11,489 tokens a second on eight H200, 36,009 on eight B200) and
        1.7 times its submissions to MLPerf Inference v5.1, whose groups are of one device too (closed/NVIDIA/configs, enable_attention_dp).
        """
        split, experts = self.plan.parallelism, getattr(self.model, "experts", 1)
        if experts == 1 or any(given is not None for given in (split.tp, split.ep, split.attention_dp)):
            return []
        pp = split.pp or 1
        total = self.fleet.total_accelerators // pp
        widths = (w for w in divisors(total) if 1 < w <= _WIDEST and experts % w == 0)
        return self._room([Degrees(1, pp, w, w) for w in widths])

    def staged(self) -> list[Layout]:
        """The same in pipeline stages, where nothing else holds the model or carries the load: with fewer copies of the weights there is more
        room for caches."""
        split, layers = self.plan.parallelism, getattr(self.model, "layers", None) or 1
        total, tensors = self.fleet.total_accelerators, [split.tp] if split.tp is not None else self._tensors()
        found = [Degrees(tp, pp, split.ep or 1, split.attention_dp) for tp in tensors for pp in divisors(total // tp)]
        most = min(layers, _MOST_STAGES)
        return self._room([each for each in found if 1 < each.pp <= most], needed=False)

    def _tensors(self, pool: Fleet | None = None) -> list[int]:
        """Tensor-parallel degrees that divide a node and the heads."""
        heads, fleet = getattr(self.model, "heads", None) or 1, pool or self.fleet
        chip = fleet.node.accelerator
        joined = chip.link is not None or chip.interconnect is not None
        most = min(fleet.node.accelerators_per_node, fleet.total_accelerators) if joined else 1
        cp = self.plan.parallelism.cp or 1
        found = [t for t in divisors(most) if heads % t == 0] or [1]
        return [t for t in found if cp == 1 or most_context(self.model, t) % cp == 0] or found[-1:]

    def wider(self) -> list[Degrees]:
        """Ways to split a replica over one accelerator and more, whatever the fleet has; fewest first, of as many the widest."""
        heads, layers = getattr(self.model, "heads", None) or 1, getattr(self.model, "layers", None) or 1
        # Of a part of a node the whole.
        key, width = self.chip.metadata.key, self.fleet.node.accelerators_per_node
        width = max(width, parse_fleet(f"64x{key}").one.node.accelerators_per_node if key else 1)
        tensors = [t for t in divisors(width) if heads % t == 0]
        stages = (2**k for k in range(_MOST_STAGES.bit_length()))
        found = [Degrees(tp, pp) for pp in stages if pp <= layers for tp in tensors]
        return sorted(found, key=lambda each: (each.devices, each.pp))

    def _room(self, splits: list[Degrees], needed: bool = True) -> list[Layout]:
        """The splits whose replicas the fleet has room for; an error where there is none and one is ``needed``."""
        total, asked = self.fleet.total_accelerators, self.part.replicas or self.plan.parallelism.dp
        # Those that stand by answer nothing: what is said holds while as many are away.
        spare = self.part.spare or 0
        reading = [each for each in splits if total // each.devices - spare >= (asked or 1)]
        found = [
            Layout(each, asked or total // each.devices - spare, *writing)
            for each in reading
            for writing in self._writing(each)
        ]
        if not found and splits and needed:
            who, key, count = many(total, "accelerator"), "spare" if spare else "replicas", asked or 1
            more = f" and {spare} to stand by" if spare else ""
            if reading and self.decode_fleet is not None:
                who = f"The decode pool's {many(self.decode_fleet.total_accelerators, 'accelerator')}"
                key, count, more = "decode_on", self.part.decode_replicas or 1, ""
            verb = "does" if who.endswith("accelerator") else "do"
            words = (
                f"{who} {verb} not hold {many(count, 'replica')} of {split_text(self._written(splits[0])[0])}{more}."
            )
            raise InputError(words, field=key)
        return found

    def _written(self, split: Degrees) -> list[Degrees]:
        """Degrees of the decode pool beside those of the other: as given, else the same, and as wide as a node where both are ours."""
        part = self.part
        if part.decode_tp or part.decode_ep:
            experts = part.decode_ep or (split.ep if part.decode_tp is None else 1)
            return [Degrees(part.decode_tp or split.tp, split.pp, experts)]
        if self.decode_fleet is None or self.plan.parallelism.tp is not None or split.groups > 1:
            return [split]
        return [*dict.fromkeys((split, Degrees(self._tensors(self.decode_fleet)[-1], split.pp, split.ep)))]

    def _writing(self, split: Degrees) -> list[tuple[Degrees | None, int | None]]:
        """The same with as many replicas as are given, or as the pool has room for."""
        if self.decode_fleet is None:
            return [(None, None)]
        total, asked = self.decode_fleet.total_accelerators, self.part.decode_replicas
        room = [(each, asked or total // each.devices) for each in self._written(split)]
        return [(each, count) for each, count in room if count and each.devices * count <= total]

    def loaded(self, layout: Layout) -> Served:
        """A layout under the plan's load."""
        part, replicas = self.part, layout.replicas
        if part.concurrency is not None:
            return self.at(layout, part.concurrency)
        if part.qps is not None and self.calibrated:
            return self.at(layout, None)
        if self.limited and self.calibrated and part.requests is None:
            return self._fastest(layout)
        alone = self.at(layout, replicas)
        most = _MOST_CLIENTS * replicas if alone.places is None else min(_MOST_CLIENTS * replicas, alone.places)
        if not alone.result.feasible:
            return alone
        if part.qps is not None:
            qps = part.qps
            # The fewest clients whose answers come at that rate, never more than are sent; the most that fit where none do.
            most = most if part.requests is None else min(most, part.requests)
            return self._turn(layout, self.at(layout, 1), most, lambda served: served.requests >= qps)[1]
        if self.limited:
            # The most clients that fit at once and keep the limits; one for each replica where not even they do.
            return self._turn(layout, alone, most, lambda served: not served.within)[0]
        batch = self.plan.workload.batch_size
        clients = batch * replicas if batch else min(_CLIENTS * self.fleet.total_accelerators, most)
        return self.at(layout, clients)

    def _fastest(self, layout: Layout) -> Served:
        """The highest rate of requests at random that keeps the limits, which are those of a server that people ask, and whose requests
        are all there is room for; one that hardly anybody asks where not even that does."""
        full = self.at(layout, None, ANY_RATE)
        if not full.result.feasible and not (alone := self.at(layout, layout.replicas)).result.feasible:
            return alone
        if full.most <= self._kept:
            return full  # another way keeps the limits at more than this one could answer
        # As many as another way answers within the limits, or it is none.
        first = self._kept if self.arrivals is None and self._kept else full.most * _HARDLY
        best = self.seen(self.at(layout, None, first))
        if best.within and self._roomy(best):
            rate, best = self._last_kept(layout, best, first, full.most)
            self._kept = max(self._kept, rate)
        return best

    @staticmethod
    def _roomy(served: Served) -> bool:
        return served.places is None or served.clients <= served.places

    def _last_kept(self, layout: Layout, best: Served, first: float, highest: float) -> tuple[float, Served]:
        """The last of the rates that halvings of the highest give at which limits are kept, as they are at the first, and what is seen at it. A queue takes
        T_0/(1 - rate/most) or so, whose inverse is straight over the rate: a line through the last two finds the same as halving in fewer tries."""
        halvings = _HALVINGS if self.arrivals is None else _PLAYED
        high, tries = 1 << halvings, 0
        low = start = int(first / highest * high)
        ends = [(first / highest * high, 1 / max(best.over, _HARDLY)), (float(high), 0.0)]
        while high - low > 1:
            (x, y), (u, v) = ends[-2:]
            tries += 1
            # Plays are moved by chance, and what is not straight is halved.
            middle = self.arrivals is not None or tries > _TRIES or y == v
            place = (low + high) // 2 if middle else round(x + (1 - y) * (u - x) / (v - y))
            place = min(max(place, low + 1), high - 1)
            tried = self.seen(self.at(layout, None, _halved(highest, place, halvings)))
            ends = [ends[0] if tries == 1 else ends[-1], (float(place), 1 / max(tried.over, _HARDLY))]
            if tried.within and self._roomy(tried):
                low, best = place, tried
            else:
                high = place
        rate = _halved(highest, low, halvings)
        return rate, self.at(layout, None, rate) if 0 < low == start else best

    def _turn(
        self, layout: Layout, first: Served, most: int, turned: Callable[[Served], bool]
    ) -> tuple[Served, Served]:
        """The loads before and after something turns with more clients, found by doubling and halving; one of both where it
        has turned at the first or does not up to the most."""
        before = after = first
        while not turned(after):
            before = after
            if after.clients >= most:
                return before, after
            after = self.at(layout, min(2 * after.clients, most))
        while after.clients - before.clients > max(1, before.clients // 32):
            middle = self.at(layout, (before.clients + after.clients) // 2)
            before, after = (before, middle) if turned(middle) else (middle, after)
        return before, after

    def _last_few(self, tried: list[Served]) -> list[Served]:
        """The best few as a simulation sees them; one that a request of the traffic has no room on is none."""
        found: list[Served] = []
        refused: InputError | None = None
        for served in sorted(tried, key=lambda served: served.rank, reverse=True):
            try:
                found.append(self.seen(served))
            except InputError as error:
                refused = refused or error
            if len(found) == _LAST:
                break
        if refused is not None and not found:
            raise refused
        return found

    def best(self) -> tuple[Served, int]:
        """The layout that fits and keeps the limits with most output, else the one that is nearest to that."""
        tried = [self.loaded(layout) for layout in self.layouts()]
        for more in (self._grouped, *((self.staged,) if self.plan.parallelism.pp is None else ())):
            if not any(served.suffices for served in tried):
                tried += [self.loaded(layout) for layout in more()]
        if self.arrivals is not None and (self.part.qps is not None or self.part.concurrency is not None):
            # The closed form ranks, the simulation decides.
            return max(self._last_few(tried), key=lambda served: served.rank), len(tried)
        return max(tried, key=lambda served: served.rank), len(tried)


def _halved(highest: float, place: int, halvings: int) -> float:
    """A share of the highest in 2^halvings parts, as halving gives it."""
    low, high, part = 0.0, highest, 1 << halvings
    while place % part:
        part //= 2
        middle = (low + high) / 2
        low, high = (middle, high) if place & part else (low, middle)
    return low
