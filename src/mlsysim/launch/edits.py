"""What to write into a launch file: the settings of two plans by the target's own writer, and where they differ.

A change is a plan with another setting, and what it is in the file is what the writer of launch files makes of it: one flag, several
(ZeRO 3 of Megatron-LM is four), or one taken away. Values are spelled as the file spells them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.markup import toml
from mlsysim.launch.flags import put, table
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import completed
from mlsysim.launch.settings import Setting, words_of, write_toml, write_yaml
from mlsysim.launch.targets import AROUND, TARGETS, target_named
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import LOWER_IS_BETTER, score
from mlsysim.plans.metrics import value_text
from mlsysim.units.fields import Record
from mlsysim.units.registry import Q_, to_si

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


def flags_of(reading: Reading, answer: Answer) -> dict[str, Any]:
    """The settings that the writer of the reading's target makes of an answer; raises where it cannot run it."""
    target = TARGETS[target_named(reading.inner or reading.target)]
    whole = {} if answer.task == "training" else {"replicas": reading.target not in AROUND}
    found = target.arguments(completed(answer.plan, answer), answer, **whole)
    return {setting.flag: setting.value for setting in (found[0] if isinstance(found, tuple) else found)}


def edits_of(reading: Reading, before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Edit, ...]:
    """What turns the one into the other, in a file that says what the reading was given."""
    return tuple(_edits(reading, before, after))


def _edits(reading: Reading, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Edit]:
    known, given = table(TARGETS[target_named(reading.inner or reading.target)].NAME), reading.given
    flags, load = known.flags, known.names.get("serving.concurrency")
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
        beside = flags[flag].needs if new is not None else None
        if beside is not None and str(given.get(beside)) != str(after[beside]):
            yield _edit(beside, None, after[beside], reading)


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
    return None
