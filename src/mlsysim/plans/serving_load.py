"""Ways to serve a plan under its load, and the best of them.

Devices are split into replicas of TP x PP. Without a degree, every one that divides a node and fits is tried; the
cheapest that keeps the limits is taken, that is the one with most output for the same devices. Load is a number of
clients in a closed loop (``concurrency``) or a rate (``qps``), from which the requests in flight follow: the fewest whose
answers come at that rate (Little's law, solved by bisection) when they come at random. With neither, the largest load that
keeps the limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.cases.layout import divisors
from mlsysim.cases.ledger import Ledger
from mlsysim.cases.traffic import Habits, Traffic
from mlsysim.errors import InputError
from mlsysim.physics.precision import bytes_per_element
from mlsysim.plans.fleet_text import parse_fleet
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import ServingPart
from mlsysim.plans.resolve import fidelity_of, find_model, precision_of
from mlsysim.plans.sheet import Sheet, many
from mlsysim.systems.types import Fleet
from mlsysim.timing.engines import engine
from mlsysim.units.registry import to_si
from mlsysim.vocabulary import python_name
from mlsysim.walls.node.serving import ServingModel, ServingResult

PROMPT, OUTPUT = 1024, 256
_PASSED = (
    *("cache_precision", "chunk_tokens", "cached_prefix", "acceptance", "decode_tp", "decode_ep", "redundant_experts"),
    *("network", "memory_fraction", "requests", "range_ratio", "max_num_seqs", "poll_steps", "wait_steps"),
    *("warm_up", "offline"),
)
"""Fields of a plan's serving part that ServingModel takes, under its own names."""
_CLIENTS = 8
_MOST_CLIENTS = 4096

Layout = tuple[int, int, int, int]
"""TP, PP, EP and replicas."""


class Served:
    """One way to serve: a replica's layout, the clients, and what they see. Rates are of the whole fleet, times in seconds."""

    def __init__(self, server: Server, result: ServingResult, layout: Layout, clients: int) -> None:
        part = server.part
        self.server, self.result, self.clients = server, result, clients
        self.tp, self.pp, self.ep, self.replicas = layout
        # Replicas that write answers: the same that read prompts, unless they are a pool of their own.
        self.writers: int = server.options.get("decode_replicas", self.replicas)
        # What they are at work on.
        active = (result.active_requests or clients) / self.writers
        habits = Habits(shortest=1.0 if part.range_ratio is None else part.range_ratio)
        self.traffic = Traffic(server.prompt, server.output, active, cached=part.cached_prefix or 0, habits=habits)
        self.mean_output = float(self.traffic.mean_answer)
        self.ttft, self.tpot = to_si(result.ttft_at_concurrency, "s"), to_si(result.tpot, "s")
        # The mean time of a whole request.
        self.latency = self.ttft + (self.mean_output - 1) * self.tpot
        # Tokens, and requests that are answered while all clients keep asking; a replica without a client answers nothing.
        self.output_rate = to_si(result.output_tokens_per_sec, "1/s") * min(1.0, clients / self.replicas)
        self.requests = self.output_rate / self.mean_output
        self.carries = part.qps is not None and self.requests >= part.qps * 0.999
        # Requests that all replicas hold at once; None where the size of a cache is not known.
        self.places = None if result.max_batch_size is None else result.max_batch_size * self.replicas
        given = [(name, getattr(part, name)) for name in ("ttft", "tpot", "latency")]
        # Names of the plan's limits on times, what they are held against, and the limits.
        self.limits = [(name, getattr(self, name), to_si(limit, "s")) for name, limit in given if limit is not None]
        # How many times as long as its limit the time is that misses its limit most; at most 1 where all hold.
        self.over = max((value / limit for _, value, limit in self.limits), default=0.0)
        self.within = result.feasible and self.over <= 1

    def delivered(self, slower: float = 1.0) -> float:
        """Requests a second that are answered: no more than come; of a number of requests, until the last answer.
        ``slower`` is for intervals: were every request so many times as long."""
        part = self.server.part
        if part.output_rate is not None:
            return part.output_rate / self.mean_output
        if part.qps is None:
            return self.requests / slower
        rate = min(self.requests / slower, part.qps)
        return rate if part.requests is None else part.requests / (part.requests / rate + self.latency * slower)

    @property
    def ledger(self) -> Ledger:
        """Parts of a request, and what the fullest device holds."""
        assert self.result.ledger is not None
        return self.result.ledger


class Server:
    """Evaluates ways to serve a plan."""

    def __init__(self, plan: Plan, sheet: Sheet, model: Any, fleet: Fleet) -> None:
        self.plan, self.model, self.fleet = plan, model, fleet
        self.part = plan.serving or ServingPart()
        self.chip = fleet.node.accelerator
        self.decode_fleet = self._decode_fleet()
        assumed = sheet.assumed
        self.prompt = self.part.prompt_tokens or plan.workload.seq_len or PROMPT
        self.output = self.part.output_tokens or OUTPUT
        if self.part.prompt_tokens is None and plan.workload.seq_len is None:
            assumed["prompt_tokens"] = f"{PROMPT:,}"
        if self.part.output_tokens is None:
            assumed["output_tokens"] = f"{OUTPUT:,}"
        efficiency = fidelity_of(plan, model, assumed)
        self.calibrated = efficiency == "calibrated"
        self.options = self._options(efficiency, assumed)

    def _decode_fleet(self) -> Fleet | None:
        """The pool that writes answers: a fleet, or as many accelerators as read prompts."""
        text = self.part.decode_on
        if text is None:
            return None
        total = self.fleet.total_accelerators
        pool = parse_fleet(text).one
        if self.part.decode_tp or self.part.decode_ep or self.part.decode_replicas:
            return pool
        if pool.total_accelerators == 1 and total > 1:
            pool = parse_fleet(f"{total}x{text.strip().removeprefix('1x')}").one
        if pool.total_accelerators != total:
            raise InputError(
                f"The decode pool has {pool.total_accelerators:,} accelerators and the prefill pool {total:,}; they are paired, "
                "so give as many, the chip's name alone, or the decode pool's own layout (decode_tp, decode_replicas).",
                field="decode_on",
            )
        return pool

    def _options(self, efficiency: float | str, assumed: dict[str, str]) -> dict[str, Any]:
        part, pool = self.part, self.decode_fleet
        options = {python_name(f"serving.{name}"): getattr(part, name) for name in _PASSED} | {
            "seq_len": self.prompt,
            "output_len": self.output,
            "precision": precision_of(self.plan, assumed, self.chip),
            "efficiency": efficiency,
            "num_speculative_tokens" if part.draft_model is not None else "mtp_tokens": part.draft_tokens,
            "decode_replicas": self._decode_replicas(),
            "arrivals": "random" if part.qps is not None and self.calibrated else None,
            "engine": None if part.engine is None else engine(part.engine).name,
            "draft_model": None if part.draft_model is None else find_model(part.draft_model),
            "decode_hardware": None if pool is None else pool.node.accelerator,
            "fabric": self.fleet.fabric if self.fleet.count > 1 else None,
        }
        if part.cache_precision is None and bytes_per_element(options["precision"]) < 2:
            # What engines do unless they are told otherwise.
            options["cache_precision"] = assumed["cache_precision"] = "bf16"
        return {name: value for name, value in options.items() if value is not None}

    def _decode_replicas(self) -> int | None:
        """Replicas of the decode pool: those given, or as many as its own layout leaves room for."""
        part, pool = self.part, self.decode_fleet
        if part.decode_replicas is not None or pool is None or not (part.decode_tp or part.decode_ep):
            return part.decode_replicas
        return max(1, pool.total_accelerators // max(part.decode_tp or 1, part.decode_ep or 1))

    def at(self, layout: Layout, clients: int) -> Served:
        """One layout under one load."""
        names = ("tp_size", "pp_size", "ep_size", "num_replicas")
        options = self.options | dict(zip(names, layout, strict=True))
        result = ServingModel().solve(self.model, self.chip, **options, concurrency=clients)
        return Served(self, result, layout, clients)

    @property
    def limited(self) -> bool:
        part = self.part
        return any(limit is not None for limit in (part.ttft, part.tpot, part.latency))

    def layouts(self) -> list[Layout]:
        """(TP, PP, EP, replicas) to try."""
        split, total = self.plan.parallelism, self.fleet.total_accelerators
        pp, ep = split.pp or 1, split.ep or 1
        heads = getattr(self.model, "heads", None) or 1
        if split.tp is not None:
            degrees = [split.tp]
        else:
            most = min(self.fleet.node.accelerators_per_node, total)
            degrees = [t for t in divisors(most) if heads % t == 0] or [1]
        rooms = [(tp, total // (tp * pp * max(1, ep // tp))) for tp in degrees]
        wanted = self.part.replicas or 1
        found = [(tp, pp, ep, self.part.replicas or room) for tp, room in rooms if room >= wanted]
        if not found:
            experts = f" x EP {ep}" if ep > 1 else ""
            raise InputError(
                f"{many(total, 'accelerator')} do not hold {many(wanted, 'replica')} of TP {split.tp or degrees[0]} x "
                f"PP {pp}{experts}.",
                field="replicas",
            )
        return found

    def loaded(self, layout: Layout) -> Served:
        """A layout under the plan's load."""
        part, replicas = self.part, layout[3]
        if part.concurrency is not None:
            return self.at(layout, part.concurrency)
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

    def best(self) -> tuple[Served, int]:
        """The layout that fits and keeps the limits with most output, else the one that is nearest to that."""
        tried = [self.loaded(layout) for layout in self.layouts()]

        def rank(served: Served) -> tuple[Any, ...]:
            return (
                -max(served.result.memory_utilization, 1.0),
                -max(served.over, 1.0),
                served.carries,
                -served.latency if served.carries else served.output_rate,
                served.replicas,  # of equals more replicas: less waiting
            )

        return max(tried, key=rank), len(tried)
