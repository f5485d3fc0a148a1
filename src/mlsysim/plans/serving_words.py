"""What an answer to a serving plan says: the headline, the sentences after it, and limits on times in words."""

from __future__ import annotations

from mlsysim.cases.request import ANSWER, FIRST, of_phase
from mlsysim.errors import InputError
from mlsysim.plans.parts import unfit
from mlsysim.plans.served import Layout, Served, split_text
from mlsysim.plans.sheet import Sheet
from mlsysim.plans.spending import cost_sentence, energy_sentence
from mlsysim.plans.targets import rank_text
from mlsysim.units.text import compact_time, listed, many, plainly
from mlsysim.vocabulary import Setting, worded

_NAMED = 4
"""Parts of a token's time that a sentence names."""
_SMALL = 1e-3
"""Share of a token's time below which a sentence leaves a part out."""
_LIMITED: dict[str, tuple[str, str | None, str]] = {
    "ttft": ("the first token", FIRST, "wait for it"),
    "tpot": ("a further token", ANSWER, "token"),
    "latency": ("a request", None, "request"),
}
"""Limits on times in words, the phase that they are on, and what its ledger adds up to."""


def limited(name: str) -> tuple[str, str | None, str]:
    """The same of a percentile."""
    kind, _, level = name.rpartition("_")
    words, phase, noun = _LIMITED[{"": name, "e2e": "latency", "itl": "tpot", "queue": "ttft"}.get(kind, kind)]
    return (f"{words} at its {rank_text(level)} percentile" if kind else words), phase, noun


def headline(sheet: Sheet, served: Served) -> str:
    """Whether it fits, on what, and the two times that a user sees."""
    if not served.result.feasible:
        return unfit(served.result.binding)
    if served.overloaded:
        return f"Overloaded: {served.too_many}, so the queue and the time to the first token grow without end."
    context = served.server.plan.parallelism.cp or 1
    split = f"{many(served.replicas, 'replica')} of {split_text(served.split)}{f' DCP{context}' if context > 1 else ''}"
    if served.writing is not None and (pool := served.server.decode_fleet) is not None:
        writers = f"{many(served.writers, 'replica')} of {split_text(served.writing)}"
        reads, writes = (
            f"{verb}s" if n == 1 else verb for verb, n in (("read", served.replicas), ("write", served.writers))
        )
        split = f"{split} that {reads} prompts and {writers} on {pool.name} that {writes} answers"
    further = f", then one every {sheet.text('tpot')}{sheet.band('tpot')}" if served.further else ""
    return (
        f"Fits: {sheet.text('memory')} of {sheet.text('memory_capacity')} with {split}; "
        f"the first token after {sheet.text('ttft')}{sheet.band('ttft')}{further}."
    )


def verdict(sheet: Sheet, served: Served, tried: int) -> tuple[str, ...]:
    """What is found; of what does not fit no rate or cost, which it will not have."""
    server, places = served.server, served.places
    if served.overloaded:
        return (*_thrashing(served), _growth(served), *sheet.unknown)
    if not served.result.feasible:
        return _least(served)
    load = f"{served.flying} in flight of {server.prompt:,} + {server.output:,} tokens"
    tokens, requests = (sheet.text(f"{what}_per_second") for what in ("tokens", "requests"))
    rates = f"{tokens} output {'token' if tokens == '1' else 'tokens'} and {requests} {'request' if requests == '1' else 'requests'} a second"
    over = (
        f", over the {sheet.text('until_last_answer')} from the first request to the last answer"
        if served.span() is not None
        else ""
    )
    mean = "On average " if over else ""
    lines = [f"{mean}{load} {'gives' if served.flying == '1 request' else 'give'} {rates}{over}."]
    if tried > 1 and server.limited and not served.within:
        lines.append(f"None of the {tried} layouts tried keeps every limit; {split_text(served.split)} comes nearest.")
    if places is not None and served.clients > places:
        waiting = served.clients - places
        lines.append(
            f"Caches of {places:,} of them fit at once, so {mean.lower()}{waiting:,} wait for a place before their first token."
        )
    if server.decode_fleet is not None:
        pools = served.result.named("pools")
        rates = f"the prefill pool reads up to {plainly(pools.reading, 3)} requests a second, the decode pool writes up to {plainly(pools.writing, 3)}"
        lines.append(f"Each by itself, {rates}: the {pools.slower} pool is the slower.")
    if server.calibrated:
        lines += _token_time(sheet, served)
    if served.simulated:
        from mlsysim.plans.percentiles import causes_of, replicas_over_time
        from mlsysim.plans.simulated import Played

        assert isinstance(served, Played)
        lines.append(f"A request takes {sheet.text('latency')}, mostly {causes_of(served.ledger)}.")
        lines += filter(None, [replicas_over_time(served)])
    if served.come is not None and server.part.requests is None and server.calibrated:
        lines += filter(None, [served.near_saturation])
    lines += [
        f"{limited(name)[0].capitalize()} takes {compact_time(value)}, over the limit of {compact_time(limit)}."
        for name, value, limit in served.limits
        if value > limit
    ]
    if "usd_per_mtoken" in sheet.metrics:
        energy = (
            f", and each token takes {sheet.text('energy_per_token')}" if "energy_per_token" in sheet.metrics else ""
        )
        lines.append(f"A million output tokens cost {sheet.text('usd_per_mtoken')}{energy}.")
    lines += cost_sentence(sheet, server.plan.ops.days or 1.0, "The service") + energy_sentence(sheet)
    return (*lines, *sheet.unknown)


def _full(served: Served) -> float:
    """Requests a second that an overloaded service answers."""
    return float(served.saturated.requests if served.server.calibrated else served.most)


def _growth(served: Served) -> str:
    """How fast the queue of an overloaded service grows: by r - f a second, and who comes after a time t waits for (r - f) t / f."""
    come, full = served.server.part.qps or 0.0, _full(served)
    more = come - full
    after = f"after an hour {plainly(float(f'{3600 * more:.3g}'))} wait, and who comes then waits for {compact_time(3600 * more / full)}"
    return f"The queue grows by {plainly(more)} requests a second: {after}."


def _thrashing(served: Served) -> tuple[str, ...]:
    """What becomes of a server whose caches fill up, where it answers fewer than it could."""
    full = _full(served)
    if full >= served.most or plainly(full) == plainly(served.most):
        return ()
    why = "caches are full, and the newest requests are preempted and"
    said = f"Overloaded, it answers only {plainly(full)} a second: {why} read again; set "
    if served.server.part.preemption == "swap":
        said = f"Overloaded, it answers fewer: {why} brought back from the host; set "
    return (worded(said, Setting("max_num_seqs"), " to admit fewer at a time."),)


def _least(served: Served) -> tuple[str, ...]:
    """The fewest accelerators of the same chip on which a replica fits, and how it is split there; nothing where a request fits and only so many do not."""
    server = served.server
    if server.decode_fleet is not None or (served.result.max_batch_size or 0) >= 1:
        return ()
    for split in server.wider():
        try:
            fits = server.at(Layout(split, 1), 1).result.feasible
        except InputError:
            continue
        if fits:
            what = "fleet" if split.devices > server.fleet.total_accelerators else "replica"
            size = f"{split.devices:,} x {server.chip.name}, as {split_text(split)}"
            return (f"The smallest {what} that would hold it is {size}.",)
    return ()


def _token_time(sheet: Sheet, served: Served) -> list[str]:
    """What a token's time is made of, largest first."""
    tokens = served.mean_output - 1
    if tokens <= 0:
        return []
    parts: dict[str, float] = {}
    for part in of_phase(served.ledger, ANSWER).parts:
        parts[part.label] = parts.get(part.label, 0.0) + part.exposed / tokens
    most = sorted(parts.items(), key=lambda item: -item[1])[:_NAMED]
    pieces = [f"{name} ({compact_time(value)})" for name, value in most if value > _SMALL * served.tpot]
    # Of simulated requests the mean over all tokens: that over requests counts those of short answers for more.
    mean, seen = (
        sheet.text("itl" if "itl" in sheet.metrics and not served.server.drafts else "tpot"),
        sheet.text("tpot"),
    )
    whose = "" if mean == seen else f" over all tokens ({seen} over requests)"
    return [f"Each further token takes {mean}{whose}, mostly {listed(pieces)}."] if pieces else []
