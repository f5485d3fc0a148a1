"""What stops a run and how long it takes to be back: one rate for each generation of accelerators, one restart, one goodput.

    M = M_1 / n                                     M_1 of data/failures.toml: interruptions of all causes, for each accelerator
    R = R_0 + T_read + t_join n                     notice and reschedule, read the checkpoint, join n ranks

Rates of components (wall 15 by itself) are used only where somebody gives one: an all-cause rate contains them. R_0 is ``recovery_time``,
five minutes, what the clusters of Meta's study take too. At 98,304 GPUs R comes to 10 minutes, which is what Meta reports for synchronous
training at that scale (Salpekar et al. 2026) and was not used here. What a plan says replaces any of these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from mlsysim.cases.assumptions import CHIP, DEFAULT, INFERRED, Assumptions
from mlsysim.cases.checkpoint import Checkpoint
from mlsysim.cases.goodput import PATIENCE, Goodput, Saving, exact_goodput_of
from mlsysim.cases.spares import all_there, backs, present
from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.units.ops import maximum, minimum
from mlsysim.units.registry import Q_, quantity, to_si
from mlsysim.units.text import compact_time, plainly
from mlsysim.units.uncertain import STUDENT
from mlsysim.zoo.constants import constant
from mlsysim.zoo.files import shipped
from mlsysim.zoo.intervals import Factors

_HOUR = 3600.0
_SHORTEST = 1e-6
"""Hours of a repair that takes no time."""
_COUNTED = {"hopper": "Hopper", "ampere": "Ampere", "tpu": "TPUs"}
_OTHERS = "hopper"
"""The rate of what is not listed."""


class Rate(NamedTuple):
    """Hours between two interruptions for each accelerator, what they rest on, and the document."""

    hours: float
    basis: str
    title: str

    @property
    def words(self) -> str:
        return f"{self.hours:,.0f} h for each accelerator, all causes ({self.basis})"


class Length(NamedTuple):
    """A run of ``work`` seconds at full speed, or one that ``lasts`` some; the other has no end."""

    work: Any = math.inf
    lasts: Any = math.inf


ENDLESS = Length()


class Said(NamedTuple):
    """What is said of failures: hours between those of the fleet and of each accelerator, seconds of a stall, of a restart and between
    checkpoints, spare nodes, hours of a repair. What is None follows from the rest."""

    mtbf: Any = None
    accelerator_mtbf: Any = None
    write: Any = None
    restart: Any = None
    interval: Any = None
    spares: int | None = None
    repair: Any = None


def _table(name: str) -> dict[str, Any]:
    return shipped("mlsysim.data", "failures.toml")[name]


def _short(seconds: float) -> str:
    """A time in seconds as long as these read best."""
    return f"{seconds:.3g} s" if 1 <= seconds < 1000 else compact_time(seconds)


def interruption_rate(chip: HardwareNode) -> Rate:
    """How often a run is stopped, for each accelerator: the chip's own figure, else that of its generation or the nearest."""
    if chip.reliability is not None:
        hours = float(to_si(chip.reliability.mtbf, "h"))
        return Rate(hours, f"as {chip.name} states", chip.name)
    tables = {name: _table(name) for name in _COUNTED}
    for key, value in (("generations", chip.generation), ("families", chip.family), ("nearest", chip.generation)):
        found = next((name for name, table in tables.items() if value in table[key]), None)
        if found is not None:
            break
    table = tables[found or _OTHERS]
    hours = float(to_si(Q_(table["mtbf"]), "h"))
    where = (
        ""
        if chip.generation in table["generations"]
        else f"; none is published for {chip.name}, so the rate of {_COUNTED[found or _OTHERS]} is used"
    )
    return Rate(hours, f"{table['meaning']}{where}", table["source"]["title"])


def spread_of_rates() -> float:
    """Factor by which the rate of a fleet that nobody counted is above or below that of one of its generation, 90 % of the time.

    Rates of counted fleets are taken as lognormal, of mean and deviation that are estimated from so few, hence Student's t for n - 1 and the
    root of 1 + 1/n of a prediction. Generation, operator and definition of a failure are all in it; that fleets mature is not.
    """
    hours = [_table(name)["mtbf"] for name in _COUNTED] + [*_table("spread")["others"].values()]
    logs, n = [math.log(to_si(Q_(each), "h")) for each in hours], len(hours)
    mean = math.fsum(logs) / n
    deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in logs) / (n - 1))
    return math.exp(STUDENT[n - 2] * deviation * math.sqrt(1.0 + 1.0 / n))


def rate_band(chip: HardwareNode, said: Said) -> Factors | None:
    """The interval of a time between failures, over it; None where the rate was said."""
    if said.mtbf is not None or said.accelerator_mtbf is not None or chip.reliability is not None:
        return None
    return 1.0 / spread_of_rates(), spread_of_rates()


def goodput_band(
    chip: HardwareNode, accelerators: Any, saved: Checkpoint, said: Said, kept: Goodput, length: Length = ENDLESS
) -> Factors | None:
    """The interval of what is kept, over it, for as much as rates of fleets differ: from 0 on where the run of one that fails more often has no end. None where the rate
    was said, or the run itself has none."""
    band = rate_band(chip, said)
    if band is None or not kept.lasting:
        return None
    often, seldom = (
        kept_of(chip, accelerators, saved, said._replace(mtbf=kept.mtbf * factor), kept.saving.step, length)
        for factor in band
    )
    return float(often.ratio / kept.ratio) if often.lasting else 0.0, float(seldom.ratio / kept.ratio)


def production_band(accelerators: int) -> Factors | None:
    """The interval of a run's time over that of steps as in a benchmark, with its failures: as long, up to the longest that was seen. None on fewer
    accelerators than the smallest of those runs had."""
    table = _table("production")
    return (1.0, float(table["longer"])) if accelerators >= table["fewest"] else None


def production_words() -> str:
    """Which runs say so."""
    return str(_table("production")["meaning"])


def counted_runs() -> tuple[str, ...]:
    """The sources of tables of truth that rates were taken from."""
    return tuple(source for name in _COUNTED for source in _table(name)["rows"])


def joining_time() -> float:
    """Seconds to join one rank after a restart."""
    return float(to_si(Q_(_table("restart")["joining"]), "s"))


def kept_of(
    chip: HardwareNode, accelerators: Any, saved: Checkpoint, said: Said, step: Any = 0.0, length: Length = ENDLESS
) -> Goodput:
    """What failures leave of a run on so many accelerators, whose ``step`` takes some seconds, on numbers or arrays."""
    mtbf, each, restart = said.mtbf, said.accelerator_mtbf, said.restart
    if mtbf is None:
        mtbf = (interruption_rate(chip).hours if each is None else each) / accelerators
    if restart is None:
        restart = notice() + saved.write + joining_time() * accelerators
    write = saved.stall if said.write is None else said.write
    kept = exact_goodput_of(mtbf, Saving(write, restart, said.interval, saved.lag, step))
    return with_spares(kept, (mtbf,), said, length)


def with_spares(kept: Goodput, groups: Sequence[Any], said: Said, length: Length) -> Goodput:
    """What is left where spares stand in for nodes in repair, of groups that fail every so many hours and have spares of their own; all of it where others do."""
    if said.spares is None:
        return kept
    mean = maximum(_repair(said), _SHORTEST)
    kinds = [(each.share, *each.repair) for each in components() if each.repair is not None]
    whole = sum(share for share, _, _ in kinds)
    back = backs(tuple((share / whole, hours, shape) for share, hours, shape in kinds))
    work = length.work / maximum(kept.ratio, 1e-300)
    most = minimum(length.lasts, PATIENCE * length.work)
    broken = [nodes_broken() * mean / mtbf for mtbf in groups]
    return kept.waiting_for(present(broken, said.spares, back, work / (mean * _HOUR), most / (mean * _HOUR)))


def enough_spares(mtbf: Any, said: Said) -> tuple[float, int]:
    """Nodes in repair on average, in the long run, and the fewest spares that stand in for all of them but in one hour of 10,000."""
    broken = nodes_broken() * max(_repair(said), _SHORTEST) / mtbf
    found = int(broken)
    while all_there(broken, found) < 1 - 1e-4:
        found += 1
    return broken, found


class Component(NamedTuple):
    """Something that fails: its name, its share of interruptions, and the mean (hours) and Weibull shape of a repair; None where none is needed."""

    name: str
    share: float
    repair: tuple[float, float] | None


def components(repair: float | None = None) -> tuple[Component, ...]:
    """What fails; repairs take ``repair`` hours on average, or as long as those that were counted."""
    table = _table("components")
    counts, times = table["counts"], {name: (to_si(Q_(t), "h"), k) for name, (t, k) in table["repair"].items()}
    mean = sum(counts[name] * hours for name, (hours, _) in times.items()) / sum(counts[name] for name in times)
    longer = (_repair(Said()) if repair is None else repair) / mean
    found = {name: (hours * longer, shape) for name, (hours, shape) in times.items()}
    return tuple(Component(name, n / sum(counts.values()), found.get(name)) for name, n in counts.items())


def groups() -> tuple[tuple[int, float], ...]:
    """Numbers of nodes that one fault takes away, and the share of faults that do."""
    return tuple((size, share) for size, share in _table("groups")["shares"])


def nodes_broken() -> float:
    """Nodes that an interruption takes away, on average."""
    breaking = sum(each.share for each in components() if each.repair is not None)
    return breaking * sum(size * share for size, share in groups())


def fitted(name: str, key: str, unit: str = "") -> float:
    """A figure of ``data/failures.toml``."""
    value = _table(name)[key]
    return float(to_si(Q_(value), unit) if unit else value)


def facts(saved: Checkpoint) -> dict[str, Any]:
    """What the equation of a restart shows."""
    read, join = quantity(saved.write, "s"), Q_(_table("restart")["joining"])
    return {"notice_and_reschedule": constant("recovery_time").quantity, "checkpoint_read": read, "joining": join}


def notice() -> float:
    """Seconds to notice a failure and to reschedule."""
    return float(to_si(constant("recovery_time").quantity, "s"))


def _repair(said: Said) -> Any:
    return to_si(Q_(_table("repair")["time"]), "h") if said.repair is None else said.repair


def note(
    chip: HardwareNode, accelerators: float, saved: Checkpoint, said: Said, kept: Goodput, assumed: Assumptions
) -> dict[str, str]:
    """Say what nobody gave; the documents that speak for it. What contradicts itself is refused."""
    sources = {}
    if said.repair is not None and said.spares is None:
        raise InputError("The time of a repair matters where spares are counted; give spares too.", field="repair_time")
    if said.interval is not None and said.interval < saved.lag:
        written = f"but one takes {saved.lag:,.3g} s to write in the background"
        raise InputError(
            f"Checkpoints are to begin every {said.interval:,.3g} s, {written}.", field="checkpoint_interval"
        )
    if said.mtbf is None and said.accelerator_mtbf is None:
        rate = interruption_rate(chip)
        assumed.say("mtbf", kept.mtbf, CHIP, rate.words)
        sources["failures"] = rate.title
        words = f"fleets differ: the rate of another one is within a factor of {spread_of_rates():.1f} of this, 90 % of the time"
        assumed.say("interval_of_goodput", spread_of_rates(), INFERRED, f"{words} ({_table('spread')['meaning']})")
    if said.write is None:
        how = f"{plainly(saved.size / 1e9)} GB at {plainly(saved.size / saved.stall / 1e9)} GB/s"
        behind = "" if not saved.lag else f" to the hosts, then {_short(saved.lag)} in the background"
        assumed.say("checkpoint_time", saved.stall, INFERRED, f"{_short(saved.stall)}: {how}{behind}")
    if said.restart is None:
        parts = f"{notice():g} s to notice and reschedule, {_short(saved.write)} to read a checkpoint"
        joined = f"{_short(joining_time() * accelerators)} to join {accelerators:,.0f} rank{'s' * (accelerators != 1)}"
        assumed.say(
            "restart_time", kept.saving.recovery, INFERRED, f"{_short(kept.saving.recovery)}: {parts}, {joined}"
        )
        sources["restart"] = _table("restart")["source"]["title"]
    if said.spares is None:
        assumed.say(
            "spares", None, DEFAULT, "not counted: a node that breaks is replaced at once from outside the fleet"
        )
    elif said.repair is None:
        assumed.say("repair_time", _repair(said), DEFAULT, f"{_repair(said):g} h until a node that broke is back")
        sources["repair"] = _table("repair")["source"]["title"]
    if said.spares and said.spares > 2 * (needed := enough_spares(kept.mtbf, said))[1]:
        waits = f"{needed[0]:.2g} nodes are in repair on average, and more than {needed[1]:,} one hour in 10,000; the others wait"
        assumed.say("spares_in_use", needed[1], INFERRED, f"{needed[1]:,} of {said.spares:,}: {waits}")
    return sources
