"""What to write into a launch file: the settings of two plans by the target's own writer, and where they differ.

A change is a plan with another setting, and what it is in the file is what the writer of launch files makes of it: one flag, several
(ZeRO 3 of Megatron-LM is four), or one taken away. Values are spelled as the file spells them.

A review in words: what a change moves, what the file costs, what is wrong with it; read off the answers.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.markup import toml
from mlsysim.launch.flags import put, table
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import HALVES, completed
from mlsysim.launch.settings import Setting, words_of, write_toml, write_yaml
from mlsysim.launch.targets import AROUND, TARGETS, target_named
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import LOWER_IS_BETTER, score
from mlsysim.plans.metrics import value_text
from mlsysim.plans.resolve import workload_of
from mlsysim.units.fields import Record
from mlsysim.units.registry import Q_, to_si
from mlsysim.units.text import many

LEFT_OUT = "left out"
_DAY = 86_400.0


class Edit(Record):
    """One flag or key: what the file has, what it should have, and the text of that (empty where it is to be taken away)."""

    flag: str
    now: str
    better: str
    value: Any = None
    paste: str = ""

    @property
    def text(self) -> str:
        """What to write, or to take away; of what has no flag, the value."""
        return " ".join(self.paste.split()) or (
            f"without {self.flag}" if self.better == LEFT_OUT else f"{self.flag}: {self.better}"
        )


def target_of(reading: Reading) -> Any:
    """The target, or that of the command inside of it."""
    return TARGETS[target_named(reading.inner or reading.target)]


def flags_of(reading: Reading, answer: Answer) -> dict[str, Any]:
    """The settings that the writer of the reading's target makes of an answer; raises where it cannot run it."""
    whole = {} if answer.task == "training" else {"replicas": reading.target not in AROUND}
    found = target_of(reading).arguments(completed(answer.plan, answer), answer, **whole)
    return {setting.flag: setting.value for setting in (found[0] if isinstance(found, tuple) else found)}


def edits_of(reading: Reading, before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Edit, ...]:
    """What turns the one into the other, in a file that says what the reading was given."""
    return tuple(_edits(reading, before, after))


def _edits(reading: Reading, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Edit]:
    known, given = table(target_of(reading).NAME), reading.given
    flags, load = known.flags, known.names.get("serving.concurrency")
    beside: dict[str, Any] = {}
    for flag in (*after, *(name for name in before if name not in after)):
        new, old = after.get(flag), before.get(flag)
        # How many requests come is the load's, which no setting changes.
        if old == new or flag == load:
            continue
        others = [name for name in given if name in flags and flags[name].same == flag]
        for name in others:
            yield Edit(flag=name, now=_spelled(name, given[name], reading), better=LEFT_OUT)
        if str(given.get(flag)) == str(new):
            continue
        yield _edit(flag, None if others else old, new, reading)
        beside |= {name: after[name] for name in flags[flag].needs if new is not None and after.get(name) is not None}
    for flag, new in beside.items():
        if str(given.get(flag)) != str(new) and before.get(flag) == new:
            yield _edit(flag, None, new, reading)


def _edit(flag: str, old: Any, new: Any, reading: Reading) -> Edit:
    """From what the file has, or means where it leaves the flag out."""
    now = LEFT_OUT if old is None else f"{LEFT_OUT}: {_spelled(flag, old, reading)}"
    if flag in reading.given:
        now = _spelled(flag, reading.given[flag], reading)
    if new is None:
        return Edit(flag=flag, now=now, better=LEFT_OUT)
    text = "\n".join(pasted(reading, {flag: new}))
    return Edit(flag=flag, now=now, better=_spelled(flag, new, reading), value=new, paste=text)


def _spelled(flag: str, value: Any, reading: Reading) -> str:
    if flag.startswith("-"):
        return "given" if value is True else str(value)
    return toml(value) if (reading.inner or reading.target) == "torchtitan" else json.dumps(value)


def pasted(reading: Reading, values: Mapping[str, Any]) -> list[str]:
    """Lines of the file with those values: flags of a command on one, tables as their file has them."""
    flags, target = (
        {name: value for name, value in values.items() if name.startswith("-")},
        reading.inner or reading.target,
    )
    lines = [" ".join(words_of(*flag) for flag in flags.items())] if flags else []
    keys = {name: value for name, value in values.items() if name not in flags}
    if not keys:
        return lines
    if target == "torchtitan":
        return write_toml(Setting(*key) for key in keys.items())
    tables: dict[str, Any] = {}
    for name, value in keys.items():
        put(tables, name, value)
    if target == "deepspeed":
        return [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in tables.items()]
    return [*lines, *write_yaml(tables)]


class Saving(Record):
    """What a change saves: seconds of the run, a step or a request, and dollars of the run or of a day at the file's rate."""

    seconds: float | None = None
    usd: float | None = None
    of: str = "day"

    @property
    def text(self) -> str:
        """The dollars in words; empty where nothing is saved."""
        if self.usd is None or self.usd < 0.005:
            return ""
        return f"{value_text('tco', Q_(self.usd, 'USD'))} {'a day' if self.of == 'day' else 'of the run'}"


def saving(now: Answer, then: Answer) -> Saving:
    """Read off two answers that fit."""
    mine, other = now.held, then.held
    if "run_time" in mine and now.paid is not None and then.paid is not None:
        seconds = to_si(mine["run_time"].value, "s") - to_si(other["run_time"].value, "s")
        return Saving(seconds=seconds, usd=float((now.paid.value - then.paid.value).magnitude), of="run")
    seconds = to_si(mine["latency"].value, "s") - to_si(other["latency"].value, "s")
    if now.main in LOWER_IS_BETTER or "usd_per_mtoken" not in mine or "usd_per_mtoken" not in other:
        return Saving(seconds=seconds)
    less = float((mine["usd_per_mtoken"].value - other["usd_per_mtoken"].value).magnitude)
    return Saving(seconds=seconds, usd=less * score(now) * _DAY / 1e6)


def runs(reading: Reading, answer: Answer) -> str | None:
    """Why the target does not run an answer's layout, in a sentence; None where it does."""
    try:
        flags_of(reading, answer)
    except InputError as error:
        return str(error)
    target = target_of(reading)
    return next(iter(target.wordless(completed(answer.plan, answer))), None) if answer.task == "serving" else None


def why(now: Answer, then: Answer | None) -> str:
    """What moves most: the part of the time that changes by most, the way that the whole does, or the memory."""
    if then is None:
        return "alone it does not divide the batch, the layers or the fleet"
    if not then.feasible:
        if then.memory is not None and then.memory.used > then.memory.capacity:
            return f"alone it needs {then.metric('memory').text} of {then.metric('memory_capacity').text}"
        return then.headline.rstrip(".")
    if not now.feasible:
        return ""
    before, after = (_by_label(answer) for answer in (now, then))
    scale = _work(now) / _work(then) if now.task == "training" else 1.0
    moved = {label: after.get(label, 0.0) * scale - before.get(label, 0.0) for label in {*before, *after}}
    # A part that moves against the whole explains nothing of it.
    whole = 1.0 if sum(moved.values()) > 0 else -1.0
    label = max(moved, key=lambda key: (whole * moved[key], key))
    total = sum(before.values()) or 1.0
    if abs(moved[label]) < 0.0005 * total:
        return "no part of the time moves"
    shares = [before.get(label, 0.0) / total, after.get(label, 0.0) * scale / total]
    return f"{label}: {shares[0]:.1%} of the time now, {shares[1]:.1%} then"


def _by_label(answer: Answer) -> Counter[str]:
    """The time of each part, those of one name together: products that wait for arithmetic, and those that wait for memory."""
    found: Counter[str] = Counter()
    for part in answer.time_parts:
        found[part.label.partition(" (")[0]] += part.value  # type: ignore[assignment]
    return found


def _work(answer: Answer) -> float:
    return float(answer.layout.get("batch_size", 1)) * float(answer.layout.get("seq_len", 1))


def _without_keys(sentence: str) -> str:
    """Without what keys of a plan would do, which the changes say in the file's own words."""
    return sentence.rstrip(".").partition("; it fits with ")[0]


def headline_of(now: Answer, best: Answer | None, loss: float | None, saves: Saving | None) -> str:
    """What the file's flags cost."""
    metric = now.metric(now.main)
    if not now.feasible:
        base = now.headline.rstrip(".")
        if best is None:
            return f"{base}; no other settings of this file make it fit."
        found = best.metric(best.main)
        told = f"{found.text} {found.label.lower()}" if found.name not in LOWER_IS_BETTER else found.text
        return f"{_without_keys(base)}; with the changes below it fits, at {told}."
    if best is None or loss is None or loss < 0.01:
        return f"Your flags are within 1 % of the best settings found: {metric.label.lower()} {metric.text}."
    if saves is not None and saves.of == "run" and now.paid is not None and best.paid is not None:
        before, after = (f"{each.metric('run_time').text} and {each.paid.text}" for each in (now, best) if each.paid)
        return f"Your flags cost you {loss:.0%}: the run takes {before}; with the changes below, {after}."
    name = "latency" if now.task == "training" else now.main
    before, after = (each.metric(name).text for each in (now, best))
    what = (
        f"a {'step' if now.task == 'training' else 'request'} takes {before} instead of {after}"
        if name == "latency"
        else f"{before} {metric.label.lower()} instead of {after}"
    )
    money = f", which is {saves.text}" if saves is not None and saves.text else ""
    return f"Your flags cost you {loss:.0%}: {what} with the changes below{money}."


def stops_of(reading: Reading, now: Answer) -> tuple[str, ...]:
    """What keeps a server from starting, or from taking the plan's requests: the longest request that its flag allows."""
    entry: Mapping[str, Any] = getattr(target_of(reading), "entry", {})
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
        f"No load is given, so this is for {many(part.concurrency or 0, 'request')} in flight, the most that the flags allow.",
    )


def _small_caches(reading: Reading, now: Answer) -> tuple[str, ...]:
    """A limit on the tokens of caches that leaves memory free."""
    part, fits = now.plan.serving, now.held.get("max_batch")
    if reading.cache_tokens is None or part is None or part.max_num_seqs is None or fits is None:
        return ()
    flag = target_of(reading).entry["cache_tokens"]
    if part.max_num_seqs >= fits.value or part.max_num_seqs == reading.document["serving"].get("max_num_seqs"):
        return ()
    held = f"{flag} {reading.cache_tokens:,} holds {many(part.max_num_seqs, 'request')} at a time"
    return (f"{held} where the memory has room for {fits.text}; leave it out.",)


def _halves(reading: Reading, now: Answer) -> tuple[str, ...]:
    """Flags without which the times are not those of the answer."""
    entry = getattr(target_of(reading), "entry", {})
    if HALVES not in now.assumptions:
        return ()
    lacking = [words_of(flag, value) for flag, value in entry.get("halves", {}).items() if flag not in reading.given]
    said = " and ".join(lacking)
    return (f"Times are with the exchange of experts behind the other half of a batch: add {said}.",) if lacking else ()


def problems_of(reading: Reading, now: Answer) -> tuple[str, ...]:
    """What is wrong with the file's plan, or nearly so."""
    caches = _small_caches(reading, now)
    if not now.feasible:
        return (f"{_without_keys(now.binding.sentence)}.",)
    if now.memory is not None and now.memory.used > 0.95 * now.memory.capacity:
        return (f"Memory is nearly full: {now.metric('memory').text} of {now.metric('memory_capacity').text}.",)
    return (*caches, *_halves(reading, now))
