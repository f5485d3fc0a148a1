"""A review in words: what a change moves, what the file costs, what is wrong with it; read off the answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from mlsysim.launch.edits import Saving
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import HALVES
from mlsysim.launch.settings import words_of
from mlsysim.launch.targets import TARGETS, target_named
from mlsysim.plans.answer import Answer
from mlsysim.plans.resolve import workload_of
from mlsysim.plans.sheet import many


def why(now: Answer, then: Answer | None) -> str:
    """What moves most: the part of the time that changes by most, or the memory."""
    if then is None:
        return "alone it does not divide the batch, the layers or the fleet"
    if not then.feasible:
        if then.memory is not None and then.memory.used > then.memory.capacity:
            return f"alone it needs {then.metric('memory').text} of {then.metric('memory_capacity').text}"
        return then.headline.rstrip(".")
    if not now.feasible:
        return "alone it makes the plan fit"
    before, after = (_by_label(answer) for answer in (now, then))
    scale = _work(now) / _work(then) if now.task == "training" else 1.0
    moved = {label: after.get(label, 0.0) * scale - before.get(label, 0.0) for label in {*before, *after}}
    label = max(moved, key=lambda key: (abs(moved[key]), key))
    total = sum(before.values()) or 1.0
    if abs(moved[label]) < 0.0005 * total:
        return "no part of the time moves"
    shares = [before.get(label, 0.0) / total, after.get(label, 0.0) * scale / total]
    return f"{label}: {shares[0]:.1%} of the time now, then {shares[1]:.1%}"


def _by_label(answer: Answer) -> Counter[str]:
    """The time of each part, those of one name together: products that wait for arithmetic, and those that wait for memory."""
    found: Counter[str] = Counter()
    for part in answer.time_parts:
        found[part.label.partition(" (")[0]] += part.value  # type: ignore[assignment]
    return found


def _work(answer: Answer) -> float:
    return float(answer.layout.get("batch_size", 1)) * float(answer.layout.get("seq_len", 1))


def headline_of(now: Answer, best: Answer | None, loss: float | None, saves: Saving | None) -> str:
    """What the file's flags cost."""
    metric = now.metric(now.main)
    if not now.feasible:
        base = now.headline.rstrip(".")
        if best is None:
            return f"{base}; no other settings of this file make it fit."
        return f"{base}; with the changes below it fits, at {best.metric(best.main).text} ({metric.label.lower()})."
    if best is None or loss is None or loss < 0.01:
        return f"Your flags are within 1 % of the best settings found: {metric.label.lower()} {metric.text}."
    if saves is not None and saves.of == "run" and now.paid is not None and best.paid is not None:
        before, after = (f"{each.metric('run_time').text} and {each.paid.text}" for each in (now, best) if each.paid)
        return f"Your flags cost you {loss:.0%}: the run takes {before}; with the changes below, {after}."
    name = "latency" if now.task == "training" else now.main
    before, after = (each.metric(name).text for each in (now, best))
    what = (
        f"a step takes {before} instead of {after}"
        if name == "latency"
        else f"{before} {metric.label.lower()} instead of {after}"
    )
    money = f", which is {saves.text}" if saves is not None and saves.text else ""
    return f"Your flags cost you {loss:.0%}: {what} with the changes below{money}."


def stops_of(reading: Reading, now: Answer) -> tuple[str, ...]:
    """What keeps a server from starting, or from taking the plan's requests: the longest request that its flag allows."""
    entry: Mapping[str, Any] = getattr(TARGETS[target_named(reading.inner or reading.target)], "entry", {})
    room, traffic = now.held.get("longest_context"), now.plan.serving
    if "lengths" not in entry or room is None or traffic is None or not now.feasible:
        return ()
    flag, own = entry["lengths"], getattr(workload_of(now.plan.workload), "max_context", None)
    given = _tokens(reading.details.get(flag))
    longest, fits, out = given or own, int(room.value), []
    if given and own and given > own:
        out.append(f"{flag} {given:,} is beyond the {own:,} tokens of the model's context.")
    elif longest and longest > fits and "lengths_must_fit" in entry:
        said = f"{flag} {given:,}" if given else f"{flag}, which is left out and so {own:,},"
        out.append(
            f"It does not start: {said} needs caches for one such request, and they hold {fits:,} tokens; say {flag} {fits}."
        )
    request = (traffic.prompt_tokens or 0) + (traffic.output_tokens or 0)
    if given and request > given:
        out.append(f"Requests of {request:,} tokens, prompt and answer, are refused: {flag} is {given:,}.")
    return tuple(out)


def _tokens(text: Any) -> int | None:
    """A length as a flag has it: 32768, or 32k (32,000) and 32K (32,768); None for what the engine finds out itself."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmM]?)", str(text).strip())
    return (
        None if found is None else int(float(found[1]) * {"": 1, "k": 1e3, "K": 1024, "m": 1e6, "M": 1024**2}[found[2]])
    )


def load_of(reading: Reading, now: Answer) -> tuple[str, ...]:
    """The load of a service whose file says what it lets in, which is no load, and nobody says what comes."""
    said, part = reading.document.get("serving", {}), now.plan.serving
    if part is None or part.max_num_seqs is None or any(said.get(key) for key in ("qps", "concurrency", "trace")):
        return ()
    return (
        f"No load is given: reviewed with {many(part.concurrency or 0, 'request')} in flight, as many as its flags let in.",
    )


def _small_caches(reading: Reading, now: Answer) -> tuple[str, ...]:
    """A limit on the tokens of caches that leaves memory free."""
    part, fits = now.plan.serving, now.held.get("max_batch")
    if reading.cache_tokens is None or part is None or part.max_num_seqs is None or fits is None:
        return ()
    flag = TARGETS[target_named(reading.inner or reading.target)].entry["cache_tokens"]
    if part.max_num_seqs >= fits.value or part.max_num_seqs == reading.document["serving"].get("max_num_seqs"):
        return ()
    held = f"{flag} {reading.cache_tokens:,} holds {many(part.max_num_seqs, 'request')} at a time"
    return (f"{held} where the memory has room for {fits.text}; leave it out.",)


def _halves(reading: Reading, now: Answer) -> tuple[str, ...]:
    """Flags without which the times are not those of the answer."""
    entry = getattr(TARGETS[target_named(reading.inner or reading.target)], "entry", {})
    if HALVES not in now.assumptions:
        return ()
    lacking = [words_of(flag, value) for flag, value in entry.get("halves", {}).items() if flag not in reading.given]
    said = " and ".join(lacking)
    return (f"Times are with the exchange of experts behind the other half of a batch: add {said}.",) if lacking else ()


def problems_of(reading: Reading, now: Answer) -> tuple[str, ...]:
    """What is wrong with the file's plan, or nearly so."""
    caches = _small_caches(reading, now)
    if not now.feasible:
        return (now.binding.sentence,)
    if now.memory is not None and now.memory.used > 0.95 * now.memory.capacity:
        return (f"Memory is nearly full: {now.metric('memory').text} of {now.metric('memory_capacity').text}.",)
    return (*caches, *_halves(reading, now))
