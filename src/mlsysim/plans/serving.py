"""A serving plan: replicas of a model under traffic, within limits on latency, and what a million tokens cost.

Layout and load are those of :mod:`mlsysim.plans.serving_load`; here they become an answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from mlsysim.cases.assumptions import IDLE, SEARCHED, Assumptions
from mlsysim.cases.deployment import one_pass_only
from mlsysim.cases.request import ANSWER, FIRST, of_phase
from mlsysim.errors import InputError
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.plans.answer import Answer
from mlsysim.plans.equations import Together, texts_of
from mlsysim.plans.limits import NINETY
from mlsysim.plans.parts import binding_of, memory_facts, roof_point, time_parts, too_full
from mlsysim.plans.pieces import Limit
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, refuse_foreign, served_of, workload_of
from mlsysim.plans.served import Served, split_text
from mlsysim.plans.serving_costs import costs
from mlsysim.plans.serving_load import Play, Server
from mlsysim.plans.serving_words import headline, limited, verdict
from mlsysim.plans.sheet import Sheet
from mlsysim.units.registry import quantity, to_si
from mlsysim.units.text import many, plainly
from mlsysim.vocabulary import Setting, listed, worded
from mlsysim.walls.binding import NAMES, share_text
from mlsysim.zoo.intervals import independent

if TYPE_CHECKING:
    from mlsysim.plans.simulated import Played

_REQUEST = "request"
_FULL = {"slots": "as many as are let in", "prompts": "as prompts are read no faster"}
"""What keeps more requests from being in flight, but for room in the caches."""


def _play(served: Served, arrivals: Any, quick: bool = False, sure: bool = True) -> Played:
    """One way to serve, simulated; what that takes is loaded where it is asked for."""
    from mlsysim.plans.simulated import Played

    return Played(served, arrivals, quick, sure)


def _played(served: Served) -> Played | None:
    return cast("Played", served) if served.simulated else None


def evaluate_serving(plan: Plan, quick: bool = False) -> Answer:
    """The answer to a serving plan on one kind of accelerator; ``quick`` plays fewer requests where it is simulated, once."""
    return answer_of(*best_served(plan, quick, partial(_play, sure=not quick)))


def answer_of(sheet: Sheet, served: Served, tried: int) -> Answer:
    """The answer where the best way to serve was found."""
    sheet.keep(served.result)
    return _answer(sheet, served, tried)


def best_served(plan: Plan, quick: bool = False, play: Play = _play) -> tuple[Sheet, Served, int]:
    """The best way to serve a plan, and how many were tried."""
    if plan.serving is not None and plan.serving.decode_on == AUTO:
        return _best_share(plan, quick, play)
    server = server_of(plan, quick, play)
    return (server.sheet, *server.best())


def server_of(plan: Plan, quick: bool = False, play: Play = _play) -> Server:
    """What evaluates ways to serve a plan."""
    groups, model = _checked(plan)
    return Server(plan, Sheet(plan, groups.assumed, "serving", _REQUEST), model, groups.one, play, quick)


def _checked(plan: Plan) -> tuple[Any, Any]:
    """The fleet and the model of a plan that serving can answer."""
    _refuse_foreign(plan)
    groups, model = find_fleets(plan.hardware), served_of(workload_of(plan.workload))
    if not isinstance(model, TransformerWorkload) and not hasattr(model, "demand"):
        raise InputError(one_pass_only(model), field="model")
    if model.fixed_shape:
        raise InputError(one_pass_only(model), field="model")
    return groups, model


AUTO = "auto"
"""In place of a decode pool: the best share of the fleet."""


def _best_share(plan: Plan, quick: bool, play: Play) -> tuple[Sheet, Served, int]:
    """The best split of a fleet into a pool that reads prompts and one that writes answers: of a node by accelerators, of several by
    nodes."""
    fleet = _checked(plan)[0].one
    total, key, fabric = fleet.total_accelerators, fleet.node.accelerator.metadata.key, fleet.fabric.metadata.key
    step = 1 if fleet.count == 1 else fleet.node.accelerators_per_node
    found: list[tuple[Sheet, Served, int]] = []
    for readers in range(step, total, step):
        on, pool = (f"{count}x{key}" for count in (readers, total - readers))
        named = {"fabric": fabric if readers > step > 1 else None, **dict.fromkeys(("name", "nodes", "accelerators"))}
        share = plan.replacing(hardware={"on": on, **named}, serving={"decode_on": pool})
        try:
            found.append(best_served(share, quick, play))
        except InputError:
            # A share that has no room for a replica is none.
            continue
    if not found:
        words = f"{many(total, 'accelerator')} {'has' if total == 1 else 'have'} no room for a pool that reads prompts and one that writes answers"
        raise InputError(f"{words}; give more of them.", field="decode_on")
    sheet, served, tried = max(found, key=lambda each: each[1].rank)
    writers = total - served.server.fleet.total_accelerators
    words = f"{writers} of {total} accelerators, the best of {len(found)} shares"
    sheet.assumed.say("decode_on", writers, SEARCHED, words)
    return sheet, served, tried


_ALSO_SERVED = ("workload.seq_len", "workload.dimensions")
"""What belongs to other tasks and says something of served models too."""


def _refuse_foreign(plan: Plan) -> None:
    """Raise for what another task has alone, and for what has no meaning without another key."""
    refuse_foreign(plan, "serving", _ALSO_SERVED)
    part = plan.serving
    if part is None:
        return
    for name, owner, given in (
        *((name, "decode_on", part.decode_on) for name in ("network", "decode_tp", "decode_ep", "decode_replicas")),
        ("acceptance", "draft_model draft_tokens", part.draft_model or part.draft_tokens),
        ("think_time", "turns", part.turns),
        ("resident_adapters", "adapters", part.adapters),
        ("mtbf", "failures", part.failures),
        ("restart_time", "failures autoscale", part.failures or part.autoscale),
        ("storage_bandwidth", "offload_disk", part.offload_disk),
    ):
        if getattr(part, name, None) is None and getattr(plan.ops, name, None) is None:
            continue
        if not given:
            owners = listed(map(Setting, owner.split()), " or ")
            raise InputError(worded(Setting(name), " has no meaning without ", owners, "."), field=name)


def _without_effect(server: Server, assumed: Assumptions) -> None:
    """Say of what is given and shows nowhere why that is so."""
    part = server.part
    if server.plan.parallelism.mode == "auto" and server.plan.parallelism.tp is not None:
        assumed.idle("mode", "degrees that are given are kept, and the others are always searched")
    if not server.calibrated:
        for name in ("engine", "host_bound"):
            if (given := getattr(part, name)) is not None:
                assumed.say(name, given, IDLE, "no effect at first order, which knows no software")


def _answer(sheet: Sheet, served: Served, tried: int) -> Answer:
    server, result = served.server, served.result
    _without_effect(server, sheet.assumed)
    if tried > 1:
        load = " at this load" * (server.part.qps is not None)
        words = f"{split_text(served.split)}, the best of {tried} tried{load}"
        sheet.assumed.say("layout", None, SEARCHED, words)
    if server.part.concurrency is None:
        qps = served.come
        why = "" if qps is None else f" while {plainly(qps)} {'arrives' if qps == 1 else 'arrive'} a second"
        if served.overloaded:
            looped = result.named("looped")
            room = _FULL.get("" if looped is None else looped.bound, "as many as there is room for")
            why = f", {room}: {plainly(qps or 0.0)} requests a second are more than it can answer"
        sheet.assumed["concurrency"] = f"{served.flying} in flight{why}"
    split = served.split
    degrees = {"tp": split.tp, "pp": split.pp, "ep": split.experts, "attention_dp": split.groups}
    degrees |= {"cp": contexts} if (contexts := server.plan.parallelism.cp or 1) > 1 else {}
    sheet.shown["layout"] = degrees | {"replicas": served.replicas, "concurrency": served.clients}
    if served.writing is not None:
        sheet.shown["layout"] |= {"decode_tp": served.writing.tp, "decode_replicas": served.writers}
    if served.come is not None:
        sheet.shown["layout"]["qps"] = served.come
    ledger = sheet.read(served.ledger)
    if server.decode_fleet is not None:
        of = {"of": served.result.named("fullest").name}
        sheet.shown["memory"] = sheet.shown["memory"].model_copy(update=of)
    steady = math.isfinite(served.ttft)
    bands = _bands(served)
    _facts(sheet, served)
    sheet.add("memory", to_si(result.memory_per_device, "byte"))
    sheet.add("memory_capacity", to_si(result.memory_available, "byte"))
    sheet.add("kv_cache", None if result.kv_cache_size is None else result.kv_cache_size.to("GB"))
    sheet.add("max_batch", result.max_batch_size)
    sheet.add("longest_context", result.longest_context)
    sheet.add("ttft", served.ttft if steady else None, bands["ttft"])
    sheet.add("tpot", served.tpot if served.further else None, bands["tpot"])
    sheet.add("latency", quantity(served.latency, "s") if steady else None, bands["latency"], wall=4)
    requests, each = served.delivered(), bands["requests"]
    rate = requests * served.mean_output
    tokens = each and tuple(side * served.mean_output for side in each)
    sheet.add("tokens_per_second", rate, tokens, wall=4)
    of_device = tokens and tuple(side / served.devices for side in tokens)
    sheet.add("tokens_per_second_per_device", rate / served.devices, of_device)
    sheet.add("requests_per_second", requests, each)
    if (span := served.span()) is not None:
        sheet.add("until_last_answer", span, each and tuple(requests * span / side for side in reversed(each)))
    if "requests_at_saturation" in sheet.facts:
        sheet.add("most_requests_per_second", served.most_answered(), bands["most"])
    faster = bands["tpot"] and tuple(1 / side for side in reversed(bands["tpot"]))
    sheet.add("user_rate", 1 / served.tpot if served.further else None, faster)
    if served.middle is not None and not served.simulated:
        sheet.facts["step_in_the_middle"] = quantity(served.middle, "s")
        scale = served.middle / served.tpot
        sheet.add("itl_p50", served.middle, bands["tpot"] and tuple(side * scale for side in bands["tpot"]))
    if (played := _played(served)) is not None:
        from mlsysim.plans.percentiles import add_percentiles

        add_percentiles(sheet, played)
    # Walls 4 and 5 say what was found there whether or not a request waits for them.
    notes = {4: "more requests come than are answered"}
    if steady:
        further = f", then {sheet.text('tpot')} each" if served.further else ""
        notes[4] = f"first token {sheet.text('ttft')}{further}"
    if result.max_batch_size:
        notes[5] = f"{plainly(served.clients / served.replicas, 3)} of {result.max_batch_size:,} requests"
    sheet.score_walls(notes, fails=not result.feasible)
    costs(sheet, served, bands["requests"])
    # The first token's step and those of the answer, under the roofs of the chips that take them.
    phases = ((FIRST, server.fleet, "prefill"), (ANSWER, server.decode_fleet or server.fleet, "decode"))
    precision = server.options["precision"]
    points = (roof_point(of_phase(ledger, phase), f.node.accelerator, precision, label) for phase, f, label in phases)
    sheet.shown["roofline"] = tuple(chain.from_iterable(points))
    return sheet.answer(
        fidelity="simulated" if served.simulated else "",
        calibrated=server.calibrated,
        feasible=bool(result.feasible) and not served.overloaded,
        subject=f"serving {server.model.name} on {_where(served)}",
        headline=headline(sheet, served),
        verdict=verdict(sheet, served, tried),
        main="latency" if server.part.qps and steady else "tokens_per_second",
        binding=_binding(served),
    )


def _where(served: Served) -> str:
    """The accelerators, those of both pools where prompts and answers have their own."""
    pools = [served.server.fleet.name]
    if (writers := served.server.decode_fleet) is not None:
        pools = [f"{pools[0]} (prompts)", f"{writers.name} (answers)"]
    return " and ".join(pools)


def _facts(sheet: Sheet, served: Served) -> None:
    """What equations of metrics show beside other metrics, and the parts of the first and of a further token."""
    server, tokens, fullest = served.server, served.mean_output, served.result.named("fullest")
    part = server.part
    sheet.facts |= {
        **memory_facts(fullest, float(sheet.ledger.capacity)),
        "accelerators": server.fleet.total_accelerators,
        "devices_that_serve": served.devices,
        # Of a batch the mean, since those that have ended are not followed by others.
        "requests_in_flight": served.clients if served.come is not None else served.delivered() * served.latency,
        "tokens_of_an_answer": tokens,
    }
    if part.output_rate is not None:
        sheet.facts["measured_rate"] = quantity(part.output_rate, "1/s")
    elif served.overloaded:
        sheet.facts["answered_at_most"] = quantity(served.output_rate, "1/s")
    elif served.come is not None:
        sheet.facts["requests_that_come"] = quantity(served.come, "1/s")
        if served.span() is not None:
            sheet.facts["requests_in_all"] = part.requests if server.arrivals is None else server.arrivals.count()
    if served.come is not None and server.calibrated and served.result.feasible:
        fullest = served.saturated if served.warm is None else served.warm
        full = float(fullest.result.active_requests or fullest.clients)
        sheet.facts["requests_at_saturation"] = full
        sheet.facts["time_at_saturation"] = quantity(full / served.most_answered(), "s")
    for name, phase, share, noun in (
        ("ttft", FIRST, 1.0, "the time to the first token"),
        (
            "itl" if served.simulated else "tpot",
            ANSWER,
            1.0 / (tokens - 1) if tokens > 1 else 1.0,
            "the answer, for each further token",
        ),
    ):
        found = of_phase(served.ledger, phase)
        if found.seconds > 0 and not (name == "itl" and server.drafts):
            each = texts_of(time_parts(found), share=share)
            sheet.together[name] = Together(f"t = sum of the parts of {noun}", r"t = \sum_i t_i", each)


def _bands(served: Served) -> dict[str, Any]:
    """Intervals under the load: of the times of requests (:attr:`Served.ends_of_times`); of the rates at which requests are answered and could
    be what steps at the ends of theirs give, and of clients that wait for their answers Little's law."""
    found: dict[str, Any] = dict.fromkeys(("ttft", "tpot", "latency", "requests", "most"))
    slower = served.slower if served.looped is None else served.looped[1][::-1]
    if (played := _played(served)) is not None:
        found |= {name: played.interval(name) for name in ("ttft", "tpot", "latency")}
        return found | (_rates(played, slower) if played.ends else {})
    if served.ends_of_times is None:
        return found
    first, further, whole = served.ends_of_times
    found["tpot"] = tuple(quantity(side, "s").to("ms") for side in further)
    if not served.overloaded:
        found["ttft"] = tuple(quantity(side, "s").to("ms") for side in first)
        found["latency"] = tuple(quantity(side, "s") for side in whole)
    return found | _rates(served, slower)


def _rates(served: Served, slower: Sequence[float] | None) -> dict[str, Any]:
    """Intervals of what is answered and could be, where steps take so many times as long at their ends; none of what is answered as it
    comes at both."""
    asked = {"requests": served.delivered}
    if served.come is not None and served.server.calibrated and served.result.feasible:
        asked["most"] = served.most_answered
    ends = {name: [of(factor) for factor in slower or ()] for name, of in asked.items()}
    part, rate = served.server.part, served.delivered()
    if ends["requests"] and part.requests and part.qps and rate and part.trace is None:
        # The gaps between so many requests have a sum of their own, as much of the time as nobody waits for a place.
        gaps = math.sqrt(part.requests - 1) * (1.0 if part.burst is None else part.burst)
        drawn = math.exp(NINETY * gaps / part.requests * rate / part.qps)
        band = independent((min(ends["requests"]) / rate, max(ends["requests"]) / rate), (1 / drawn, drawn))
        ends["requests"] = [rate * side for side in band or (1.0, 1.0)]
    return {name: tuple(quantity(end, "1/s") for end in each) for name, each in ends.items() if len({*each}) > 1}


def _binding(served: Served) -> Limit:
    """The limit that stopped the plan (memory, a rate, a time), else the wall with most of a request."""
    wanted = served.server.part.qps
    if not served.result.feasible:
        return too_full(served.result.binding)
    if wanted is not None and served.overloaded:
        need = max(served.replicas + 1, math.ceil(served.replicas * wanted / served.most))
        sentence = f"Wall 7 (Tail Latency): {served.too_many}; about {need:,} replicas are needed."
        return Limit(wall=7, name=NAMES[7], margin=wanted / served.most, limit="qps", sentence=sentence)
    missed = [(name, value / limit) for name, value, limit in served.limits if value > limit]
    if not missed:
        return binding_of(served.ledger, _REQUEST)
    name, factor = max(missed, key=lambda each: each[1])
    words, phase, noun = limited(name)
    ledger = served.ledger if phase is None else of_phase(served.ledger, phase)
    wall = ledger.binding_wall
    share = f"Wall {wall} ({NAMES[wall]}) has {share_text(ledger, wall, noun)}"
    sentence = f"The limit on {words} is missed by a factor of {plainly(factor, 3)}; {share}."
    return Limit(wall=wall, name=NAMES[wall], margin=factor, limit=name, sentence=sentence)
