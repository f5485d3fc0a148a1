"""What a trainer runs of a layout, as data (``data/software/launchers.toml``): a search passes over the rest, and no launch file says it.

A layout that a trainer does not run deadlocks, is refused when it starts, or becomes another one: a last group of micro-batches that is
shorter than the stages waits for itself, a pipeline without chunks drops the virtual stages that its time was counted with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from mlsysim.errors import UnknownNameError, unknown_name
from mlsysim.timing.profile import software_file
from mlsysim.units.records import dataclass
from mlsysim.vocabulary import Setting, listed, worded

_ALIASES = {"megatron_lm": "megatron", "accelerate": "fsdp"}
_STAGES = (0, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class Launcher:
    """A trainer's rules; the file says what each is."""

    name: str
    title: str
    schedules: tuple[str, ...]
    source: str
    rounds: str = ""
    zero: tuple[int, ...] = _STAGES
    zero_in_pipeline: tuple[int, ...] = _STAGES
    zero_with_tp: tuple[int, ...] = _STAGES
    modes: tuple[str, ...] = ("none", "selective", "full")
    experts: bool = True
    stack: str = ""

    def refuses(self, row: Mapping[str, Any]) -> tuple[str, str, str] | None:
        """What it does not run of a layout by the names of a search: words, the plan's field, and what to give instead; None where it runs."""
        pp, count, schedule, stage = (row[name] for name in ("pp", "microbatch_count", "schedule", "zero_stage"))
        shared = row["dp"] * row["cp"] > 1
        if pp > 1 and not self.schedules:
            return "a pipeline", "pp", worded(Setting("pp", 1))
        if pp > 1 and schedule not in self.schedules:
            return f"schedule {schedule}", "schedule", _either("schedule", self.schedules)
        if pp > 1 and schedule == "interleaved" and row["v_stages"] > 1:
            if self.rounds == "full" and count < pp:
                words = f"{pp} micro-batches or more, or no virtual stages"
                return (
                    "fewer interleaved micro-batches than stages, which would wait for themselves",
                    "micro_batch",
                    words,
                )
            if self.rounds == "even" and count % max(1, count // pp):
                words = f"a multiple of {pp} micro-batches, or no virtual stages"
                return "interleaved micro-batches in unequal groups", "micro_batch", words
        stages = [n for n in self.zero if n in (*self.zero_in_pipeline, *_STAGES[4 * (pp > 1) :])]
        stages = [n for n in stages if row["tp"] == 1 or n in self.zero_with_tp]
        if shared and stage not in stages:
            beside = (
                " in a pipeline"
                if pp > 1 and stage in self.zero
                else " with tensor parallelism"
                if stage in self.zero
                else ""
            )
            return f"ZeRO {stage}{beside}", "zero", _either("zero", stages)
        if row["recompute"] not in self.modes:
            return f"recompute {row['recompute']}", "recompute", _either("recompute", self.modes)
        return None if self.experts or row["ep"] == 1 else ("expert parallelism", "ep", worded(Setting("ep", 1)))


def _either(name: str, values: Iterable[Any]) -> str:
    return listed((Setting(name, value) for value in values), " or ")


def launcher_names() -> tuple[str, ...]:
    """Trainers that launch files are written for."""
    return tuple(software_file("launchers"))


@cache
def launcher(name: str) -> Launcher:
    """The rules of a trainer."""
    plain = name.strip().lower().replace("-", "_")
    plain = _ALIASES.get(plain, plain)
    found = software_file("launchers").get(plain)
    if found is None:
        raise unknown_name("launcher", name, launcher_names(), f"use one of {', '.join(launcher_names())}.")
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in found.items()}
    return Launcher(name=plain, **fields)


def refuse_as_stack(name: str) -> None:
    """Raise where somebody names a trainer for the software whose times are asked, and published runs of it have another name."""
    rules = launcher(name) if name in (*launcher_names(), *_ALIASES) else None
    if rules is not None and rules.stack:
        stack, runs = Setting("stack", rules.stack), Setting("launcher", rules.name)
        said = worded(
            f"There is no stack named {name!r}; ", stack, f" has the times of published runs of {rules.title}, "
        )
        raise UnknownNameError(worded(said, runs, " the layouts that it runs."), name=name, suggestions=[rules.stack])
