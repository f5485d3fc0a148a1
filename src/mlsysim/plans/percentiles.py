"""What an answer tells of simulated requests: percentiles with their sampling error, what the time went on, and what was played."""

from __future__ import annotations

import math
from typing import Any

from mlsysim.cases.assumptions import IDLE, INFERRED
from mlsysim.cases.ledger import Ledger
from mlsysim.cases.request import ANSWER, FIRST, HAND_OVER
from mlsysim.cases.spares import all_there
from mlsysim.plans.sheet import Sheet
from mlsysim.plans.simulated import Played
from mlsysim.plans.targets import TIMES
from mlsysim.simulate.scheduling import ENDLESS
from mlsysim.simulate.serving import Settings
from mlsysim.units.registry import quantity
from mlsysim.units.text import compact_time, listed, many, plainly
from mlsysim.vocabulary import Setting, worded

_MOST = 10_000_000
"""Requests that nobody is told to play."""
_HOURS = 24
"""Stretches of a simulation, of an hour or of several, whose replicas are told one by one."""
_FULL = 0.9
"""Share of their room from which caches are nearly full."""
_NAMED = 0.01
"""Share of a request that a sentence about its causes names."""


def causes_of(ledger: Ledger) -> str:
    """What the time of a request goes on by cause, largest first, in words."""
    found: dict[str, float] = {}
    for part in ledger.parts:
        phase, _, own = part.name.rpartition(": ")
        work = "hand-over" if part.name == HAND_OVER else {FIRST: "prefill", ANSWER: "decode"}.get(phase, own)
        cause = work if part.resource else part.label.rpartition(": ")[2]
        found[cause] = found.get(cause, 0.0) + part.exposed
    most = sorted((item for item in found.items() if item[1] >= _NAMED * ledger.seconds), key=lambda item: -item[1])
    return listed(f"{cause} ({compact_time(seconds)})" for cause, seconds in most)


def replicas_over_time(served: Played) -> str:
    """How many replicas were there, by the hour where there are hours; nothing where their number is always the same."""
    hours, up = served.seen.by_hour, served.seen.over_time.up if served.seen.over_time else []
    if served.server.part.autoscale is None or not up:
        return ""
    few, most = min(up), max(up)
    told = (
        f"{few:,} to {most:,} replicas run"
        if few < most
        else f"{many(most, 'replica')} {'runs' if most == 1 else 'run'} all the time"
    )
    each = math.ceil(len(hours) / _HOURS)
    if few == most or len(hours) < 2 or served.arrivals.trace is None:
        return f"{told}."
    spans = [hours[k : k + each] for k in range(0, len(hours), each)]
    every = "by hour from its start" if each == 1 else f"every {each} hours from its start"
    return f"{told}; {every}, on average: {', '.join(plainly(sum(span) / len(span), 2) for span in spans)}."


def _say(sheet: Sheet, served: Played) -> None:
    """What a fleet that changes, its caches and its jobs did."""
    seen, part = served.seen, served.server.part
    if served.fails is not None:
        every, repair = served.fails.every, served.fails.repair
        # Without spares 1 - (every / (every + repair))^N.
        away = 1 - all_there(served.replicas * math.log1p(repair / every), part.spare or 0)
        played = f"{many(seen.failed, 'failure')} in {compact_time(seen.seconds)} of simulation"
        often = f"one fails every {compact_time(every)} and is back {compact_time(repair)} later"
        if part.spare:
            often += ", and one that stands by takes its place"
        sheet.assumed["failures"] = (
            f"{often}: {played}; fewer than {served.replicas:,} work {100 * away:.2g} % of the time"
        )
        if not seen.failed and not part.spare:
            unseen = "No replica failed during the simulation; use "
            sheet.note(worded(unseen, Setting("spare", 1), " to see whether limits hold while one is away."))
    tiers = {"offload_memory": "with the host", "offload_disk": "on disk"}
    given = [key for key in tiers if getattr(part, key) is not None]
    if seen.found and seen.requests and any(seen.found):
        places = zip(seen.found, ("on the device", *(tiers[key] for key in given)), strict=False)
        shares = ", ".join(f"{'under 1%' if 0 < share < 0.005 else f'{share:.0%}'} {where}" for share, where in places)
        sheet.assumed["prefixes"] = f"found of the prompts' tokens: {shares}"
    for key, share in zip(given, seen.found[1:] or [0.0] * len(given), strict=False):
        if not share:
            sheet.assumed.idle(key, f"no token of the simulated prompts was found {tiers[key]}")
        elif sheet.assumed.origin(key) == IDLE:
            # The closed form has no share that is found; the play has.
            del sheet.assumed[key]
    if seen.peak >= _FULL:
        again = seen.spent.repeated / max(seen.spent.read, 1)
        read = f", and {again:.0%} of what was read was read again" if again >= 0.005 else ""
        sheet.note(f"Caches were up to {min(seen.peak, 1.0):.0%} full at times{read}; memory is that of the mean load.")
    if part.backlog is not None:
        sheet.add("backlog_tokens_per_second", served.beside)
        ended = f"{seen.jobs[0]:,} requests of {part.backlog} tokens were answered beside the others"
        sheet.assumed["backlog"] = (
            f"{ended}; memory is that of the others alone, costs of a token are over those of both"
        )


def _say_unsure(sheet: Sheet, served: Played) -> None:
    """Means and percentiles that so many requests do not tell, and how many would."""
    missing, needed = dict[tuple[str, ...], list[str]](), 2.0 * served.seen.requests
    for kind in ("ttft", "tpot", "e2e"):
        found = served.seen.percentiles[kind]
        levels = zip(found.values, found.error, found.enough, strict=False)
        if own := {level: enough for level, error, enough in levels if math.isnan(error)}:
            missing.setdefault(tuple(own), []).append(TIMES[kind])
            needed = max(needed, *own.values())
    if not missing:
        return
    named = "; ".join(
        f"{listed(levels)} of {listed([f'the {kind}' for kind in kinds])}" for levels, kinds in missing.items()
    )
    verb = "is" if served.seen.requests == 1 else "are"
    few = f"{many(served.seen.requests, 'request')} {verb} too few to know these to within a factor of two: {named}"
    first = f"{few}. Long waits come together, in a few busy moments" if served.seen.requests > 1 else few
    # More requests of the same clients are other ones: fewer of them come together.
    if served.arrivals.trace is not None or served.arrivals.part.concurrency or not needed < _MOST:
        sheet.note(f"{first}.")
        return
    coarse = 10 ** max(math.floor(math.log10(needed)) - 1, 0)
    sheet.note(worded(f"{first}; draw more with ", Setting("requests", math.ceil(needed / coarse) * coarse), "."))


def _say_alike(sheet: Sheet, served: Played) -> None:
    """A scheduler that tells requests apart by what none of them says."""
    order, arrivals = served.seen.scheduling.order, served.arrivals
    says = {"fair": "tenant", "priority": "priority"}.get(order)
    if says is None or (says == "tenant" and arrivals.part.adapters):
        return
    if arrivals.trace is None or not any(getattr(request, says) for request in arrivals.trace):
        words = (
            f"No request says its {says}, so that the scheduler {served.seen.scheduling.name} takes them as they come"
        )
        sheet.note(f"{words}; a trace may have a column {says}.")


def add_percentiles(sheet: Sheet, served: Played) -> None:
    """Percentiles, what kept the limits, and what was played."""
    seen, rate = served.seen, served.come or 0.0
    if served.arrivals.trace is not None:
        sheet.assumed.pop("clients", None)  # the trace says when they come, and how long each is
    played = served.arrivals.described(rate, served.drawing)
    sheet.assumed.say("simulated", played[0], INFERRED, ", ".join(played))
    if skipped := served.drawing.skip:
        sheet.assumed["warm_up"] = f"requests of the first {compact_time(skipped)} fill the server and are not counted"
    plan = seen.scheduling
    slots = "as many requests as caches hold" if plan.slots >= ENDLESS else f"{plan.slots:,} requests at a time"
    sheet.assumed["scheduler"] = f"{plan.name}, {plan.budget:,} tokens a step, {slots}"
    sheet.facts["requests_played"] = seen.requests
    table: dict[str, dict[str, Any]] = {}
    for kind, found in seen.percentiles.items():
        if math.isnan(found.mean):
            continue
        errors = [None if math.isnan(error) else error for error in found.error]
        table[kind] = found.values | {"error": errors}
        for level, seconds in found.values.items():
            sheet.facts[f"{kind}_{level}_seen"] = quantity(seconds, "s")
            if level != "mean":
                name = f"{kind}_{level}"
                sheet.add(name, seconds, served.interval(name))
    if "itl" in table:
        # Over all tokens; the time of each further token is the mean over requests. Tokens that are drafted come several at a time.
        between = (served.latency - served.ttft) / (served.mean_output - 1)
        gap = seen.percentiles["itl"].mean if served.server.drafts else between
        sheet.add("itl", gap, served.interval("itl_mean"))
    sheet.add("queue", seen.percentiles["queue"].mean, served.interval("queue_mean"))
    sheet.shown["percentiles"] = table
    _say_unsure(sheet, served)
    _say_alike(sheet, served)
    if served.replicas > 1:
        sheet.assumed["router"] = served.server.part.router or Settings.router
    if served.server.part.autoscale is not None:
        aim = f"aims at {plainly(served.rate_each, 3)} requests a second for each replica"
        there = f"{plainly(served.up[-1], 3)} of {served.writers:,} ran on average"
        costs = "costs, energy and carbon count those; power, memory and caches are those of all of them running"
        sheet.assumed["autoscale"] = f"{aim}; {there}, and {costs}"
        sheet.add("replicas_up", served.up[-1])
    _say(sheet, served)
    if seen.over_time is not None:
        sheet.shown["over_time"] = seen.over_time._asdict()
    if seen.attained is not None:
        sheet.facts["requests_kept"] = round(seen.attained * seen.requests)
        sheet.add("attained", seen.attained)
        sheet.add("goodput_requests", seen.attained * served.delivered())
