"""A serving plan: replicas of a model under traffic, within limits on latency, and what a million tokens cost.

Devices are split into replicas of TP x PP. Without a degree, every one that divides a node and fits is tried; the
cheapest that keeps the limits is taken, that is the one with most output for the same devices. Load is a number of
clients in a closed loop (``concurrency``) or a rate (``qps``), from which the clients follow: the fewest whose answers come
at that rate (Little's law, solved by bisection on the closed loop). With neither, the largest load that keeps the limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import bytes_per_element
from mlsysim.plans.answer import Answer, Limit, MemoryBar, Part, equations_of
from mlsysim.plans.fleet_text import parse_fleet
from mlsysim.plans.plan import Plan, ServingPart
from mlsysim.plans.resolve import find_fleets, find_model
from mlsysim.plans.sheet import (
    FIRST_ORDER_ONLY,
    Share,
    Sheet,
    band_text,
    compact_time,
    interval_sentence,
    limit_of,
    many,
    spend,
)
from mlsysim.plans.training import fidelity_of, precision_of
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.fleet.layout import divisors
from mlsysim.walls.node.compute_memory import arithmetic_peak
from mlsysim.walls.node.engines import engine
from mlsysim.walls.node.serving import ServingModel, ServingResult
from mlsysim.walls.operations.calibrated_power import power_of, serving_activity

__all__ = ["Served", "evaluate_serving"]

PROMPT, OUTPUT = 1024, 256
_CLIENTS = 8
_MOST_CLIENTS = 4096
_DAYS = 1.0


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

    @property
    def latency(self) -> float:
        """Mean time of a whole request."""
        return self.ttft + (self.output - 1) * self.tpot

    @property
    def requests(self) -> float:
        """Requests a second that are answered while all clients keep asking."""
        return self.output_rate / self.output

    def delivered(self, qps: float | None) -> float:
        """Requests a second that are answered: no more than come."""
        return self.requests if qps is None else min(self.requests, qps)

    @property
    def devices(self) -> int:
        return self.result.devices


class Server:
    """Evaluates ways to serve a plan."""

    def __init__(self, plan: Plan, sheet: Sheet, model: Any, fleet: Fleet) -> None:
        self.plan, self.model, self.fleet = plan, model, fleet
        self.part = plan.serving or ServingPart()
        self.chip = self._usable(fleet.node.accelerator)
        self.decode_fleet = self._decode_fleet()
        assumed = sheet.assumed
        self.prompt = self.part.prompt_tokens or plan.workload.seq_len or PROMPT
        self.output = self.part.output_tokens or OUTPUT
        if self.part.prompt_tokens is None and plan.workload.seq_len is None:
            assumed["prompt_tokens"] = f"{PROMPT:,}"
        if self.part.output_tokens is None:
            assumed["output_tokens"] = f"{OUTPUT:,}"
        self.calibrated = fidelity_of(plan) == "calibrated"
        self.options = self._options(assumed)

    def _usable(self, chip: HardwareNode) -> HardwareNode:
        """A chip with the share of its memory that the engine may use."""
        share = self.part.memory_fraction
        if share is None:
            return chip
        memory = chip.memory.model_copy(update={"capacity": chip.memory.capacity * share})
        return chip.model_copy(update={"memory": memory})

    def _decode_fleet(self) -> Fleet | None:
        """The pool that writes answers, as many accelerators as read prompts."""
        text = self.part.decode_on
        if text is None:
            return None
        total = self.fleet.total_accelerators
        pool = parse_fleet(text).one
        if pool.total_accelerators == 1 and total > 1:
            pool = parse_fleet(f"{total}x{text.strip().removeprefix('1x')}").one
        if pool.total_accelerators != total:
            raise InputError(
                f"The decode pool has {pool.total_accelerators:,} accelerators and the prefill pool {total:,}; they are paired, "
                "so give as many, or the chip's name alone.",
                field="decode_on",
            )
        return pool

    def _options(self, assumed: dict[str, str]) -> dict[str, Any]:
        part = self.part
        options: dict[str, Any] = {
            "seq_len": self.prompt,
            "output_len": self.output,
            "precision": precision_of(self.plan, assumed, self.chip),
            "efficiency": fidelity_of(self.plan),
        }
        named = {
            "cache_precision": part.cache_precision,
            "prefill_chunk_tokens": part.chunk_tokens,
            "cached_prefix_len": part.cached_prefix,
            "draft_acceptance_rate": part.acceptance,
            "num_speculative_tokens": part.draft_tokens,
            "network_bandwidth": part.network,
            "engine": None if part.engine is None else engine(part.engine).name,
        }
        options |= {name: value for name, value in named.items() if value is not None}
        if part.cache_precision is None and bytes_per_element(options["precision"]) < 2:
            # What engines do unless they are told otherwise.
            options["cache_precision"] = "bf16"
            assumed["cache_precision"] = "bf16"
        if part.draft_model is not None:
            options["draft_model"] = find_model(part.draft_model)
        if self.decode_fleet is not None:
            options["decode_hardware"] = self._usable(self.decode_fleet.node.accelerator)
        if self.fleet.count > 1:
            options["fabric"] = self.fleet.fabric
        return options

    def at(self, tp: int, pp: int, ep: int, replicas: int, clients: int) -> Served:
        """One layout under one load."""
        batch = max(1, round(clients / replicas))
        options = {**self.options, "tp_size": tp, "pp_size": pp, "ep_size": ep, "num_replicas": replicas}
        looped = self.calibrated and "draft_model" not in options
        if looped:
            options["concurrency"] = clients
        result = ServingModel().solve(self.model, self.chip, batch_size=batch, **options)
        if looped:
            ttft, tpot, rate = self._loop(result, batch, options)
            # A replica without a client answers nothing.
            rate *= min(1.0, clients / replicas)
        else:
            ttft, tpot = to_si(result.ttft, "s"), to_si(result.itl, "s")
            rate = min(batch * replicas, clients) * self.output / (ttft + self.output * tpot)
        return Served(result, tp, pp, ep, replicas, clients, ttft, tpot, rate, self.prompt, self.output)

    def _loop(self, result: ServingResult, batch: int, options: dict[str, Any]) -> tuple[float, float, float]:
        """TTFT, TPOT and rate of clients in a closed loop. With a cached prefix only the rest of the prompt is read, while
        every token attends to all of it: the loop of the shorter prompt, and the longer cache's part of a step on top."""
        cached = self.part.cached_prefix or 0
        ttft, tpot = to_si(result.ttft_at_concurrency, "s"), to_si(result.tpot, "s")
        rate = to_si(result.output_tokens_per_sec, "1/s")
        if not cached:
            return ttft, tpot, rate
        short = {**options, "seq_len": max(1, self.prompt - cached)}
        short.pop("cached_prefix_len", None)
        fresh = ServingModel().solve(self.model, self.chip, batch_size=batch, **short)
        first, each = to_si(fresh.ttft_at_concurrency, "s"), to_si(fresh.tpot, "s")
        longer = each + max(0.0, to_si(result.itl, "s") - to_si(fresh.itl, "s"))
        cycle = (first + self.output * each) / (first + self.output * longer)
        return first, longer, to_si(fresh.output_tokens_per_sec, "1/s") * cycle

    def first_order(self, served: Served, batch: int) -> ServingResult:
        """The same layout at first order, for what does not depend on the fidelity: memory."""
        options = {key: value for key, value in self.options.items() if key not in ("efficiency", "engine")}
        return ServingModel().solve(
            self.model,
            self.chip,
            batch_size=batch,
            tp_size=served.tp,
            pp_size=served.pp,
            ep_size=served.ep,
            num_replicas=served.replicas,
            **options,
        )

    def within(self, served: Served) -> bool:
        """Whether the limits hold."""
        part = self.part
        return served.result.feasible and all(
            limit is None or value <= to_si(limit, "s")
            for limit, value in ((part.ttft, served.ttft), (part.tpot, served.tpot), (part.latency, served.latency))
        )

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
        most = _MOST_CLIENTS * replicas
        if part.qps is not None:
            return self._smallest(layout, lambda served: served.requests >= (part.qps or 0.0), most)
        if self.limited:
            return self._largest(layout, most)
        batch = self.plan.workload.batch_size
        return self.at(*layout, batch * replicas if batch else _CLIENTS * self.fleet.total_accelerators)

    def _smallest(self, layout: tuple[int, int, int, int], enough: Any, most: int) -> Served:
        """The fewest clients that are enough; the most that fit where none are."""
        low, high = 0, 1
        served = self.at(*layout, high)
        while not enough(served):
            if high >= most or not served.result.feasible:
                return served if served.result.feasible or low == 0 else self.at(*layout, low)
            low, high = high, min(2 * high, most)
            served = self.at(*layout, high)
        while high - low > max(1, low // 32):
            middle = (low + high) // 2
            tried = self.at(*layout, middle)
            if enough(tried):
                high, served = middle, tried
            else:
                low = middle
        return served

    def _largest(self, layout: tuple[int, int, int, int], most: int) -> Served:
        """The most clients within the limits; one client for each replica where not even they are."""
        best = self.at(*layout, layout[3])
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
        """The layout that keeps the limits with most output, else the one that is nearest to them."""
        tried = [self.loaded(layout) for layout in self.layouts()]
        wanted = self.part.qps

        def rank(served: Served) -> tuple[Any, ...]:
            carries = wanted is not None and served.requests >= wanted * 0.999
            return (
                served.result.feasible,
                self.within(served),
                carries,
                -served.latency if carries else served.output_rate,
                served.replicas,  # of equals more replicas: less waiting
            )

        return max(tried, key=rank), len(tried)


def evaluate_serving(plan: Plan) -> Answer:
    """The answer to a serving plan on one kind of accelerator."""
    groups = find_fleets(plan.hardware)
    fleet, model = groups.one, find_model(plan.workload.model)
    if not isinstance(model, TransformerWorkload) and not hasattr(model, "demand"):
        raise InputError(f"{model.name} has no prefill and decode; plan a task of inference for it.", field="model")
    if model.fixed_shape:
        raise InputError(f"{model.name} answers in one pass; plan a task of inference for it.", field="model")
    sheet = Sheet(plan, groups.assumed)
    server = Server(plan, sheet, model, fleet)
    served, tried = server.best()
    sheet.keep(served.result)
    return _answer(sheet, server, served, tried)


def _answer(sheet: Sheet, server: Server, served: Served, tried: int) -> Answer:
    plan, fleet, model, result = sheet.plan, server.fleet, server.model, served.result
    if plan.parallelism.tp is None and tried > 1:
        sheet.assumed["layout"] = f"TP {served.tp}, the best of {tried} tried"
    if server.part.concurrency is None:
        sheet.assumed["concurrency"] = f"{served.clients:,} requests in flight" + (
            f", what {server.part.qps:g} requests a second need" if server.part.qps is not None else ""
        )
    sheet.layout = {
        "tp": served.tp,
        "pp": served.pp,
        "ep": served.ep,
        "replicas": served.replicas,
        "concurrency": served.clients,
    }
    sheet.memory = _memory(server, served)
    sheet.time_parts = _time_parts(served)
    bands = _bands(served)
    sheet.interval = (
        interval_sentence(result.assumptions.get("interval", "")) if server.calibrated else FIRST_ORDER_ONLY
    )
    used, capacity = to_si(result.memory_per_device, "byte"), to_si(result.memory_available, "byte")
    sheet.add("feasibility", "memory", "Memory of each accelerator", result.memory_per_device.to("GB"), 2)
    sheet.add("feasibility", "memory_capacity", "Memory there is", result.memory_available.to("GB"), 2)
    sheet.add(
        "feasibility",
        "kv_cache",
        "Caches of a replica",
        None if result.kv_cache_size is None else result.kv_cache_size.to("GB"),
        5,
    )
    sheet.add("feasibility", "max_batch", "Requests that fit in a replica", result.max_batch_size, 5)
    sheet.score(2, f"{used / 1e9:.1f} of {capacity / 1e9:.1f} GB", used / capacity, fails=not result.feasible)
    sheet.add("performance", "ttft", "Time to the first token", quantity(served.ttft, "s").to("ms"), 4, bands["ttft"])
    sheet.add(
        "performance", "tpot", "Time of each further token", quantity(served.tpot, "s").to("ms"), 4, bands["tpot"]
    )
    sheet.add("performance", "latency", "Time of a request", quantity(served.latency, "s"), 4)
    requests = served.delivered(server.part.qps)
    rate = requests * served.output
    sheet.add("performance", "tokens_per_second", "Output tokens a second", quantity(rate, "1/s"), 4)
    sheet.add(
        "performance",
        "tokens_per_second_per_device",
        "Output tokens a second of a device",
        quantity(rate / served.devices, "1/s"),
        4,
    )
    sheet.add("performance", "requests_per_second", "Requests a second", quantity(requests, "1/s"), 4)
    sheet.add("performance", "user_rate", "Tokens a second of a user", quantity(1 / served.tpot, "1/s"), 4)
    sheet.score(4, f"{compact_time(served.ttft)}, then {compact_time(served.tpot)}", note="first token, then each")
    if result.max_batch_size:
        share = served.clients / served.replicas / result.max_batch_size
        sheet.score(
            5, f"{served.clients / served.replicas:.3g} of {result.max_batch_size:,} requests", min(share, 9.99)
        )
    _costs(sheet, server, served)
    sheet.roofline = _roofline(server, served)
    binding = _binding(server, served)
    return Answer(
        name=plan.name,
        task="serving",
        fidelity="calibrated" if server.calibrated else "first order",
        feasible=bool(result.feasible),
        subject=f"serving {model.name} on {fleet.name}",
        headline=_headline(sheet, server, served, bands),
        verdict=_verdict(sheet, server, served),
        metrics=tuple(sheet.metrics),
        main="tokens_per_second" if server.part.qps is None else "tpot",
        binding=binding,
        next_wall=_next_wall(served, binding),
        interval=sheet.interval,
        time_parts=sheet.time_parts,
        memory=sheet.memory,
        roofline=tuple(sheet.roofline),
        scorecard=sheet.scorecard(binding.wall),
        layout=sheet.layout,
        assumptions=sheet.assumed,
        sources=sheet.sources,
        equations=equations_of(sheet.results),
        plan=plan,
    )


def _memory(server: Server, served: Served) -> MemoryBar:
    """What fills one device: caches grow with the batch, so a second batch tells them from the weights (and a draft's)."""
    result = served.result
    used = to_si(result.memory_per_device, "byte")
    batch = max(1, round(served.clients / served.replicas))
    other = server.first_order(served, 1 if batch > 1 else 2)
    each = abs(used - to_si(other.memory_per_device, "byte")) / (batch - 1 if batch > 1 else 1)
    caches = min(each * batch, used)
    parts = [Part(label="weights", value=used - caches, wall=2)]
    if caches > 0:
        parts.append(Part(label="KV caches", value=caches, wall=5))
    return MemoryBar(capacity=to_si(result.memory_available, "byte"), parts=tuple(parts))


_ENGINE, _OTHERS = "decode: kernels and engine", "decode: prompts of others"


def _time_parts(served: Served) -> tuple[Part, ...]:
    """Parts of a request: the first token, then the answer by what its tokens wait for."""
    result = served.result
    answer = (served.output - 1) * served.tpot
    bounds = {
        "decode: weights": (to_si(result.decode_weights, "s"), 2),
        "decode: caches": (to_si(result.decode_memory, "s") - to_si(result.decode_weights, "s"), 5),
        "decode: communication": (to_si(result.decode_communication, "s"), 14),
    }
    bounds = {name: (max(value, 0.0), wall) for name, (value, wall) in bounds.items()}
    compute = to_si(result.decode_compute, "s")
    if compute > sum(value for value, _ in bounds.values()):
        bounds = {"decode: compute": (compute, 1), "decode: communication": bounds["decode: communication"]}
    total = sum(value for value, _ in bounds.values())
    scale = min(1.0, served.tpot / total) if total else 0.0
    parts = [("first token", served.ttft, 4)]
    parts += [(name, value * scale * (served.output - 1), wall) for name, (value, wall) in bounds.items()]
    # A batch alone takes the engine's time; what clients of a loop see beyond it is other requests' prompts.
    alone = min(max(to_si(result.itl, "s"), min(total, served.tpot)), served.tpot)
    if served.clients <= served.replicas:
        alone = served.tpot
    parts.append((_OTHERS, (served.tpot - alone) * (served.output - 1), 4))
    parts.append((_ENGINE, answer - sum(v for _, v, _ in parts[1:]), 3))
    return tuple(Part(label=a, value=v, wall=w) for a, v, w in parts if v > 1e-6 * served.latency)


def _bands(served: Served) -> dict[str, Any]:
    """Intervals of TTFT and TPOT under the load: the same factors as those of the batch."""
    found: dict[str, Any] = {"ttft": None, "tpot": None}
    result = served.result
    for name, value, base, band in (
        ("ttft", served.ttft, result.ttft, result.ttft_interval),
        ("tpot", served.tpot, result.itl, result.itl_interval),
    ):
        if band is not None and to_si(base, "s") > 0:
            scale = value / to_si(base, "s")
            found[name] = tuple(quantity(to_si(side, "s") * scale, "s").to("ms") for side in band)
    return found


def _costs(sheet: Sheet, server: Server, served: Served) -> None:
    plan, fleet, chip = sheet.plan, server.fleet, server.chip
    days = plan.ops.days or _DAYS
    busy = min(1.0, served.delivered(server.part.qps) / served.requests) if served.requests > 0 else 1.0
    power = _power(server, served, chip, busy)
    pools = 1 if server.decode_fleet is None else 2
    idle = fleet.total_accelerators * pools - served.devices
    if idle > 0:
        sheet.assumed["idle_devices"] = f"{idle} of the accelerators have no replica; they are paid for"
    more = []
    if server.decode_fleet is not None:
        more.append(Share(server.decode_fleet, 0.0, _power(server, served, server.decode_fleet.node.accelerator, busy)))
    spent = spend(sheet, fleet, days, 0.0, power, more)
    made = served.delivered(server.part.qps) * served.output * days * 86400.0
    if plan.ops.days is None:
        sheet.assumed["duration"] = "costs are of one day at this load"
    if spent.price is not None and made > 0:
        cost = quantity(spent.price / made * 1e6, "USD")
        sheet.add("macro", "usd_per_mtoken", "Cost of a million output tokens", cost, 17)
    if spent.kwh is not None and made > 0:
        sheet.add("macro", "energy_per_token", "Energy of an output token", quantity(spent.kwh * 3.6e6 / made, "J"), 18)
    if spent.kg is not None and made > 0:
        sheet.add(
            "macro",
            "carbon_per_mtoken",
            "Carbon of a million output tokens",
            quantity(spent.kg / made * 1e6 * 1e3, "gCO2e"),
            18,
        )


def _power(server: Server, served: Served, chip: HardwareNode, busy: float) -> float | None:
    """Mean power of one accelerator that serves; None where the zoo has no TDP for it."""
    if chip.tdp is None:
        return None
    each = served.clients / served.replicas
    activity = serving_activity(
        server.model,
        chip,
        max(1, served.devices // served.replicas),
        max(each, 1.0),
        served.output_rate * busy / served.replicas,
        server.options["precision"],
        served.prompt,
        served.output,
        busy,
    )
    return float(power_of(chip, activity))


def _roofline(server: Server, served: Served) -> list[dict[str, Any]]:
    """Prefill and decode on the roofline of one device."""
    model, chip, result = server.model, server.chip, served.result
    precision = server.options["precision"]
    peak, _ = arithmetic_peak(chip, precision)
    devices = max(1, served.devices // served.replicas)
    points = []
    batch = max(1.0, served.clients / served.replicas)
    for label, phase, seconds, options in (
        ("prefill", "prefill", to_si(result.ttft, "s"), {"batch_size": batch, "seq_len": served.prompt}),
        ("decode", "decode", to_si(result.itl, "s"), {"batch_size": batch, "seq_len": 1, "context": served.prompt}),
    ):
        demand = model.demand(phase, precision=precision, **options)
        if demand.bytes and seconds:
            points.append(
                {
                    "label": label,
                    "chip": chip.name,
                    "precision": precision,
                    "peak_flops": peak,
                    "bandwidth": to_si(chip.memory.bandwidth, "byte/s"),
                    "intensity": demand.flops / demand.bytes,
                    "achieved": demand.flops / devices / seconds,
                }
            )
    return points


def _binding(server: Server, served: Served) -> Limit:
    wanted, found = server.part.qps, limit_of(served.result.binding)
    if served.result.feasible and wanted is not None and served.requests < wanted * 0.999:
        need = served.replicas * wanted / served.requests
        return Limit(
            wall=7,
            name="Tail Latency",
            margin=wanted / served.requests,
            sentence=f"Wall 7 (Tail Latency): {many(served.replicas, 'replica')} answer at most {served.requests:.3g} requests a second "
            f"and {wanted:g} come; about {max(served.replicas + 1, math.ceil(need)):,} replicas are needed.",
        )
    return found


def _headline(sheet: Sheet, server: Server, served: Served, bands: dict[str, Any]) -> str:
    result = served.result
    if not result.feasible:
        return "Does not fit: " + result.binding.sentence.split(": ", 1)[-1]
    used, capacity = to_si(result.memory_per_device, "byte"), to_si(result.memory_available, "byte")
    split = (
        f"TP{served.tp}" + (f" PP{served.pp}" if served.pp > 1 else "") + (f" EP{served.ep}" if served.ep > 1 else "")
    )
    return (
        f"Fits: {used / 1e9:.1f} of {capacity / 1e9:.1f} GB with {many(served.replicas, 'replica')} of {split}; the first token after "
        f"{compact_time(served.ttft)}{band_text(bands['ttft'])}, then one each {compact_time(served.tpot)}{band_text(bands['tpot'])}."
    )


def _verdict(sheet: Sheet, server: Server, served: Served) -> tuple[str, ...]:
    requests = served.delivered(server.part.qps)
    rate = requests * served.output
    lines = [
        f"{many(served.clients, 'request')} in flight of {served.prompt:,} + {served.output:,} tokens give "
        f"{rate:,.0f} output tokens and {requests:.3g} requests a second."
    ]
    if server.calibrated:
        lines += _token_time(served)
    lines += _missed(server, served)
    costs = {metric.name: metric for metric in sheet.metrics}
    if "usd_per_mtoken" in costs:
        energy = f", {costs['energy_per_token'].text} of energy each token" if "energy_per_token" in costs else ""
        lines.append(f"A million output tokens cost {costs['usd_per_mtoken'].text}{energy}.")
    lines.extend(sheet.unknown)
    return tuple(lines)


def _token_time(served: Served) -> list[str]:
    """What a token's time is made of, where the hardware's bound is not most of it."""
    parts = {part.label: part.value for part in _time_parts(served)}
    engine_, others = parts.get(_ENGINE, 0.0), parts.get(_OTHERS, 0.0)
    tokens = served.output - 1
    if tokens < 1 or engine_ + others < 0.5 * tokens * served.tpot:
        return []
    bound = served.tpot - (engine_ + others) / tokens
    pieces = [f"{compact_time(bound)} are the hardware's bound"]
    pieces += [f"{compact_time(engine_ / tokens)} kernels and engine"] if engine_ else []
    pieces += [f"{compact_time(others / tokens)} prompts of other requests"] if others else []
    return [f"Of {compact_time(served.tpot)} for each token, {', '.join(pieces)}."]


def _missed(server: Server, served: Served) -> list[str]:
    part = server.part
    lines = []
    for limit, value, what in (
        (part.ttft, served.ttft, "The first token"),
        (part.tpot, served.tpot, "A further token"),
        (part.latency, served.latency, "A request"),
    ):
        if limit is not None and value > to_si(limit, "s"):
            lines.append(f"{what} takes {compact_time(value)}, over the limit of {compact_time(to_si(limit, 's'))}.")
    return lines


def _next_wall(served: Served, binding: Limit) -> Limit | None:
    result = served.result
    used, capacity = to_si(result.memory_per_device, "byte"), to_si(result.memory_available, "byte")
    if binding.wall != 2 or not result.feasible:
        return Limit(
            wall=2,
            name="Memory",
            margin=capacity / used,
            sentence=f"Wall 2 (Memory): {used / capacity:.0%} of it is full.",
        )
    times = {
        1: ("Compute", to_si(result.decode_compute, "s")),
        14: ("Communication", to_si(result.decode_communication, "s")),
    }
    wall = max(times, key=lambda number: times[number][1])
    name, seconds = times[wall]
    memory = to_si(result.decode_memory, "s")
    if seconds <= 0:
        return None
    return Limit(
        wall=wall,
        name=name,
        margin=memory / seconds,
        sentence=f"Wall {wall} ({name}), once memory is {max(memory / seconds, 1.0):.3g} times as fast.",
    )
