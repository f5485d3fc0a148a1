"""Ways to serve a plan under its load, and the best of them.

Devices are split into replicas of TP x PP. Without a degree, every one that divides a node and fits is tried; the
cheapest that keeps the limits is taken, that is the one with most output for the same devices. Load is a number of
clients in a closed loop (``concurrency``) or a rate (``qps``), from which the requests in flight follow: the fewest whose
answers come at that rate (Little's law, solved by bisection) when they come at random. With neither, the largest load that
keeps the limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.cases.layout import divisors
from mlsysim.cases.ledger import Ledger
from mlsysim.cases.traffic import Habits, Traffic
from mlsysim.errors import InputError
from mlsysim.physics.precision import bytes_per_element
from mlsysim.plans.fleet_text import parse_fleet
from mlsysim.plans.open_choices import fidelity_of, precision_of
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import ServingPart
from mlsysim.plans.resolve import find_model
from mlsysim.plans.sheet import Sheet, many
from mlsysim.systems.types import Fleet
from mlsysim.timing.engines import engine
from mlsysim.units.registry import to_si
from mlsysim.walls.node.serving import ServingModel, ServingResult

PROMPT, OUTPUT = 1024, 256
_SETTINGS = ("requests", "range_ratio", "max_num_seqs", "poll_steps", "wait_steps", "warm_up", "offline")
"""Fields of a plan's serving part that are inputs of ServingModel by the same name."""
_CLIENTS = 8
_MOST_CLIENTS = 4096


@dataclass(frozen=True)
class Served:
    """One way to serve: a replica's layout, the clients, and what they see. Rates are of the whole fleet."""

    result: ServingResult
    tp: int
    pp: int
    ep: int
    replicas: int
    clients: int
    ttft: float
    tpot: float
    output_rate: float
    prompt: int
    output: int
    writers: int
    """Replicas that write answers: the same that read prompts, unless they are a pool of their own."""
    habits: Habits

    def traffic(self, cached: int = 0) -> Traffic:
        """What the replicas that write are at work on."""
        active = self.result.active_requests or self.clients
        return Traffic(self.prompt, self.output, active / self.writers, cached=cached, habits=self.habits)

    @property
    def mean_output(self) -> float:
        """Tokens of an answer on average."""
        return float(self.traffic().mean_answer)

    @property
    def latency(self) -> float:
        """Mean time of a whole request."""
        return self.ttft + (self.mean_output - 1) * self.tpot

    @property
    def requests(self) -> float:
        """Requests a second that are answered while all clients keep asking."""
        return self.output_rate / self.mean_output

    def delivered(self, part: ServingPart, slower: float = 1.0) -> float:
        """Requests a second that are answered: no more than come; of a number of requests, until the last answer.
        ``slower`` is for intervals: were every request so many times as long."""
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

    @property
    def devices(self) -> int:
        return self.result.devices

    @property
    def places(self) -> int | None:
        """Requests that all replicas hold at once; None where the size of a cache is not known."""
        most = self.result.max_batch_size
        return None if most is None else most * self.replicas

    @property
    def waiting(self) -> int:
        """Requests in flight that wait for a place: their caches do not fit beside those of the others."""
        return 0 if self.places is None else max(0, self.clients - self.places)


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
        self.calibrated = fidelity_of(plan, model, assumed) == "calibrated"
        self.options = self._options(assumed)

    def _decode_fleet(self) -> Fleet | None:
        """The pool that writes answers: a fleet, or as many accelerators as read prompts."""
        text = self.part.decode_on
        if text is None:
            return None
        total = self.fleet.total_accelerators
        pool = parse_fleet(text).one
        own = self.part.decode_tp or self.part.decode_ep or self.part.decode_replicas
        if own:
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

    def _options(self, assumed: dict[str, str]) -> dict[str, Any]:
        part = self.part
        options: dict[str, Any] = {
            "seq_len": self.prompt,
            "output_len": self.output,
            "precision": precision_of(self.plan, assumed, self.chip),
            "efficiency": fidelity_of(self.plan, self.model, assumed),
        }
        named = {
            "cache_precision": part.cache_precision,
            "prefill_chunk_tokens": part.chunk_tokens,
            "cached_prefix_len": part.cached_prefix,
            "draft_acceptance_rate": part.acceptance,
            "num_speculative_tokens" if part.draft_model is not None else "mtp_tokens": part.draft_tokens,
            "decode_tp_size": part.decode_tp,
            "decode_ep_size": part.decode_ep,
            "decode_replicas": self._decode_replicas(),
            "redundant_experts": part.redundant_experts,
            "arrivals": "random" if part.qps is not None and self.calibrated else None,
            "network_bandwidth": part.network,
            "memory_fraction": part.memory_fraction,
            "engine": None if part.engine is None else engine(part.engine).name,
        }
        options |= {name: value for name, value in named.items() if value is not None}
        options |= {name: getattr(part, name) for name in _SETTINGS if getattr(part, name) is not None}
        if part.cache_precision is None and bytes_per_element(options["precision"]) < 2:
            # What engines do unless they are told otherwise.
            options["cache_precision"] = "bf16"
            assumed["cache_precision"] = "bf16"
        if part.draft_model is not None:
            options["draft_model"] = find_model(part.draft_model)
        if self.decode_fleet is not None:
            options["decode_hardware"] = self.decode_fleet.node.accelerator
        if self.fleet.count > 1:
            options["fabric"] = self.fleet.fabric
        return options

    def _decode_replicas(self) -> int | None:
        """Replicas of the decode pool: those given, or as many as its own layout leaves room for."""
        part, pool = self.part, self.decode_fleet
        if part.decode_replicas is not None or pool is None or not (part.decode_tp or part.decode_ep):
            return part.decode_replicas
        return max(1, pool.total_accelerators // max(part.decode_tp or 1, part.decode_ep or 1))

    def at(self, tp: int, pp: int, ep: int, replicas: int, clients: int) -> Served:
        """One layout under one load."""
        options = {**self.options, "tp_size": tp, "pp_size": pp, "ep_size": ep, "num_replicas": replicas}
        result = ServingModel().solve(self.model, self.chip, **options, concurrency=clients)
        ttft, tpot = to_si(result.ttft_at_concurrency, "s"), to_si(result.tpot, "s")
        # A replica without a client answers nothing.
        rate = to_si(result.output_tokens_per_sec, "1/s") * min(1.0, clients / replicas)
        habits = Habits(shortest=1.0 if self.part.range_ratio is None else self.part.range_ratio)
        load = (ttft, tpot, rate, self.prompt, self.output)
        return Served(result, tp, pp, ep, replicas, clients, *load, options.get("decode_replicas", replicas), habits)

    def limits(self, served: Served) -> list[tuple[str, float, float]]:
        """Names of the plan's limits on times, what they are held against, and the limits, in seconds."""
        given = [(name, getattr(self.part, name)) for name in ("ttft", "tpot", "latency")]
        return [(name, getattr(served, name), to_si(limit, "s")) for name, limit in given if limit is not None]

    def over(self, served: Served) -> float:
        """How many times as long as its limit the time is that misses its limit most; at most 1 where all hold."""
        return max((value / limit for _, value, limit in self.limits(served)), default=0.0)

    def within(self, served: Served) -> bool:
        """Whether the limits hold."""
        return served.result.feasible and self.over(served) <= 1

    @property
    def limited(self) -> bool:
        part = self.part
        return any(limit is not None for limit in (part.ttft, part.tpot, part.latency))

    def layouts(self) -> list[tuple[int, int, int, int]]:
        """(TP, PP, EP, replicas) to try."""
        split, total = self.plan.parallelism, self.fleet.total_accelerators
        per_node = self.fleet.node.accelerators_per_node
        pp, ep = split.pp or 1, split.ep or 1
        heads = getattr(self.model, "heads", None) or 1
        if split.tp is not None:
            degrees = [split.tp]
        else:
            degrees = [t for t in divisors(min(per_node, total)) if heads % t == 0] or [1]
        found = []
        for tp in degrees:
            width = tp * pp * max(1, ep // tp)
            room = total // width
            if room < 1:
                continue
            if self.part.replicas is not None and self.part.replicas > room:
                continue
            found.append((tp, pp, ep, self.part.replicas or room))
        if not found:
            experts = f" x EP {ep}" if ep > 1 else ""
            raise InputError(
                f"{many(total, 'accelerator')} do not hold {many(self.part.replicas or 1, 'replica')} of TP {split.tp or degrees[0]} x "
                f"PP {pp}{experts}.",
                field="replicas",
            )
        return found

    def loaded(self, layout: tuple[int, int, int, int]) -> Served:
        """A layout under the plan's load."""
        part, replicas = self.part, layout[3]
        if part.concurrency is not None:
            return self.at(*layout, part.concurrency)
        alone = self.at(*layout, replicas)
        most = _MOST_CLIENTS * replicas if alone.places is None else min(_MOST_CLIENTS * replicas, alone.places)
        if not alone.result.feasible:
            return alone
        if part.qps is not None:
            # Never more are in flight than are sent.
            return self._smallest(layout, part.qps, most if part.requests is None else min(most, part.requests))
        if self.limited:
            return self._largest(layout, alone, most)
        batch = self.plan.workload.batch_size
        if batch:
            return self.at(*layout, batch * replicas)
        return self.at(*layout, min(_CLIENTS * self.fleet.total_accelerators, most))

    def _smallest(self, layout: tuple[int, int, int, int], qps: float, most: int) -> Served:
        """The fewest clients whose answers come at that rate; the most that fit where none do."""
        low, high = 0, 1
        served = self.at(*layout, high)
        while served.requests < qps:
            if high >= most:
                return served
            low, high = high, min(2 * high, most)
            served = self.at(*layout, high)
        while high - low > max(1, low // 32):
            middle = (low + high) // 2
            tried = self.at(*layout, middle)
            if tried.requests >= qps:
                high, served = middle, tried
            else:
                low = middle
        return served

    def _largest(self, layout: tuple[int, int, int, int], best: Served, most: int) -> Served:
        """The most clients that fit at once and keep the limits; one client for each replica where not even they do."""
        low, high = layout[3], layout[3]
        if not self.within(best):
            return best
        while high < most:
            high = min(2 * high, most)
            served = self.at(*layout, high)
            if not self.within(served):
                break
            low, best = high, served
        while high - low > max(1, low // 32):
            middle = (low + high) // 2
            served = self.at(*layout, middle)
            if self.within(served):
                low, best = middle, served
            else:
                high = middle
        return best

    def best(self) -> tuple[Served, int]:
        """The layout that fits and keeps the limits with most output, else the one that is nearest to that."""
        tried = [self.loaded(layout) for layout in self.layouts()]
        wanted = self.part.qps

        def rank(served: Served) -> tuple[Any, ...]:
            carries = wanted is not None and served.requests >= wanted * 0.999
            return (
                -max(served.result.memory_utilization, 1.0),
                -max(self.over(served), 1.0),
                carries,
                -served.latency if carries else served.output_rate,
                served.replicas,  # of equals more replicas: less waiting
            )

        return max(tried, key=rank), len(tried)
