"""Fits the constants of serving engines on published runs, in closed loops and under open load.

A folder holds ``serving_runs.csv``, ``serving_runs_more.csv``, ``serving_open.csv`` and ``inference.csv``. A row becomes a plan, and the case that the
plan's answer reads is asked for arrays of candidate constants (:mod:`mlsysim.calibrate.posterior`). Priors with their sources are in
``data/fits.toml``: microseconds a launch, a scheduler's step, a sampled token; their medians were written down after a first look at public
residuals, so that "nothing fitted" is not blind. Left out in turn, each from the priors: every model (a family of one architecture, on all chips),
every chip, and a fifth of the rows, whose models and chips are seen.

Written to ``data/software/engine_constants.toml``: the constants, their standard errors and ranges over left-out fits, and for each model that was
seen on the engine factors on kernels of its prompts, on those of its answers, and on the operators that the host launches beside prompts: short ones are what
the host launches, long ones what kernels take, and only the first differs much from one model to another. Formats of its weights have other kernels and other
operators around them, so that each has factors of its own, which are those of the model where a format was not seen. They are used for that architecture on
that engine; others have those that the seen ones let expect (``any``, and in a format), the engine's own level beside the kernels' tables: their sum of logarithms over
one more than they are, so that an engine of few models stays near 1.
The constants of expert kernels are those of kernel tables and stay; a factor on them for each format is fitted. Engines share libraries of such
kernels, so that the factors of one that has the most mixtures are what is known of the others' before their own rows (``follows`` in the priors; none of
its mixtures is among theirs, so that a model that is left out of theirs is left out of these).
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import copy
from dataclasses import replace
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from mlsysim.calibrate.fitting import line, table_of
from mlsysim.calibrate.fitting import loose as is_loose
from mlsysim.calibrate.measurements import published, table_rows
from mlsysim.calibrate.posterior import Posterior, Prior, Row, posterior, together
from mlsysim.calibrate.questions import Excluded, Question, Skipped
from mlsysim.calibrate.residuals import Residual
from mlsysim.calibrate.tables import TABLES
from mlsysim.cases.machines import Engines
from mlsysim.cases.serve import serve
from mlsysim.cases.traffic import Traffic
from mlsysim.errors import InputError, MLSysError
from mlsysim.importers.markup import table_lines
from mlsysim.plans.files import plan_from_text, plan_to_toml
from mlsysim.plans.serving import best_served
from mlsysim.timing.engines import ANY, architecture, format_class
from mlsysim.units.records import dataclass
from mlsysim.units.registry import quantity

FILES = {
    "serving_runs.csv": "serving_runs",
    "serving_runs_more.csv": "serving_runs",
    "serving_open.csv": "serving_open",
    "inference.csv": "inference",
}
SHIPPED = Path(str(files("mlsysim.data"))) / "software" / "engine_constants.toml"
_ASKED = ("tpot", "itl_p50", "ttft", "user_rate", "tokens_per_second", "tokens_per_second_per_device")
_SPREADS = {"ttft": 0.25}
_SPREAD, _OFFSETS, _PARTS = 0.1, (0.15, 0.08, 0.1), 4
_FORMATS, _CELLS = (0.08, 0.04, 0.3), (0.12, 0.08, 0.25)
"""Spread of first tokens, of all else, of a model's factors on kernels of prompts, of answers, and on launches; parts that settings are left out by; spreads of
the factors of a model in one format, and in one setting."""
_FACTORS = ("prompts", "answers", "launches")
_TIMES = ("step", "front_end", "hand_over", "cold_start")


class Asked(NamedTuple):
    """What was measured of a run, and how the case gives it."""

    metric: str
    regime: str
    asked: str
    measured: float
    factor: float


@dataclass(frozen=True, slots=True)
class Run:
    """A row as the case that its plan's answer reads."""

    table: str
    row: str
    machine: Engines
    traffic: Traffic
    devices: float
    values: tuple[Asked, ...]
    engine: str = ""

    @property
    def model(self) -> str:
        return architecture(self.machine.writer.deployment.model)

    @property
    def format(self) -> str:
        return format_class(self.machine.writer.deployment.precision)

    @property
    def chip(self) -> str:
        return str(self.machine.writer.deployment.chip.metadata.key)

    @property
    def setting(self) -> str:
        """Chip and format, pools apart, drafts: what rows of a model have in common beside it."""
        drafted = bool(self.traffic.habits.drafted)
        return f"{self.chip} {self.machine.writer.deployment.precision} {bool(self.machine.apart)} {drafted}"

    def predicted(self, constants: Mapping[str, Any], factors: Sequence[Any]) -> list[Any]:
        """The measured metrics under candidate constants and a model's factors."""
        runner = self.machine.writer.engine.model_copy(update=dict(constants))

        def moved(step: Any) -> Any:
            if step is None:
                return None
            found = copy(step)
            found.engine, found.factors = runner, tuple(factors)
            if "reduce_scale" in constants:
                found.network = replace(step.network, scale=constants["reduce_scale"])
            return found

        m = self.machine
        writer = moved(m.writer)
        reader = writer if m.reader is m.writer else moved(m.reader)
        seen = serve(Engines(reader, writer, moved(m.draft), m.apart), self.traffic)
        rate = seen.requests * self.traffic.mean_answer
        found = {
            "tpot": seen.tpot,
            "itl_p50": seen.middle,
            "ttft": seen.ttft,
            "user_rate": 1 / seen.tpot,
            "tokens_per_second": rate,
            "tokens_per_second_per_device": rate / self.devices,
        }
        return [found[value.asked] * value.factor for value in self.values]


def _as_fitted(machine: Engines) -> Engines:
    """The same with engines under the name of the one whose constants they have: settings of an engine are fitted with it."""

    def named(step: Any) -> Any:
        if step is None or step.engine.like is None:
            return step
        found = copy(step)
        found.engine = step.engine.model_copy(update={"name": step.engine.like, "like": None})
        return found

    writer = named(machine.writer)
    reader = writer if machine.reader is machine.writer else named(machine.reader)
    return Engines(reader, writer, named(machine.draft), machine.apart)


def run_of(table: str, row: Mapping[str, str]) -> Run | None:
    """A row as the case that its answer reads; None where the layout is searched, or nothing was measured that the case gives."""
    # Engines' kernels were measured on some generations of chips; what they take on others is not the engine's.
    questions: list[Question] = [q for q in TABLES[table].questions(row) if q.asked in _ASKED and q.chip_measured]
    if not questions or questions[0].plan.parallelism.tp is None:
        return None
    served = best_served(plan_from_text(plan_to_toml(questions[0].plan)))[1]
    asked_of, traffic = served.result.named("machine"), served.result.named("clients")
    machine = _as_fitted(asked_of)
    # A number of requests is walked through, which takes too long for a fit: no constant has seen such a row.
    if traffic is None or not served.result.feasible or traffic.habits.sent is not None:
        return None

    def asked(q: Question) -> Asked:
        si = "s" if q.asked in ("tpot", "itl_p50", "ttft") else "1/s"
        scale = quantity(1.0, si).to(q.unit).magnitude if q.unit else 1.0
        return Asked(q.metric, q.regime, q.asked, q.measured, scale * q.factor)

    name = row.get("id") or row.get("row_id") or ""
    values = tuple(map(asked, questions))
    return Run(table, name, machine, traffic, float(served.result.devices), values, asked_of.writer.engine.name)


def runs(folder: Path) -> list[Run]:
    """All rows of a folder that are runs with a layout of their own."""
    found = []
    for path, table in ((published(folder) / file, table) for file, table in FILES.items()):
        for row in table_rows(path) if path.exists() else ():
            try:
                run = run_of(table, row)
            except (Skipped, Excluded, MLSysError):
                continue
            if run is not None:
                found.append(run)
    return found


def known_before(name: str, shared: Mapping[str, float] = MappingProxyType({})) -> dict[str, tuple[float, float]]:
    """Medians and spreads of an engine's constants before its rows: those of every engine, of how it launches prompts, its own, and what other
    engines' runs say of kernels that they ``share``."""
    table = table_of("engine_priors")
    known = table["every"] | table[table["launches"][name]] | table.get(name, {})
    return {key: value[:2] for key, value in known.items()} | {
        key: (value, table["follows"]["spread"]) for key, value in shared.items()
    }


def priors(name: str, own: Sequence[Run], shared: Mapping[str, float] = MappingProxyType({})) -> dict[str, Prior]:
    """The priors of an engine, of what its rows can tell."""
    known = known_before(name, shared)
    served = any(run.traffic.habits.server for run in own)
    apart = any(run.machine.apart for run in own)
    mixtures = {f"experts_{step.expert_format}" for step in (run.machine.writer for run in own) if step.blocks.experts}
    idle = {
        *({key for key in known if key.startswith("experts_")} - mixtures),
        *(() if served else ("front_end", "tokenise", "steps_ahead")),
        *(() if apart else ("hand_over",)),
        *(() if any(not run.machine.writer.engine.grouped for run in own) else ("masked_share",)),
    }
    return {key: Prior(*value) for key, value in known.items() if key not in idle}


def fit_engine(name: str, own: Sequence[Run], shared: Mapping[str, float]) -> tuple[Posterior, dict[str, Any]]:
    """The constants of an engine, and what was left out of each further fit."""
    left = together(own, ("model", "chip"), _PARTS)

    def row(run: Run) -> Row:
        spreads = tuple(_SPREADS.get(value.asked, _SPREAD) for value in run.values)
        return Row(
            run.model, tuple(value.measured for value in run.values), spreads, run.predicted, run.format, run.setting
        )

    rows, known = [row(run) for run in own], priors(name, own, shared)
    cells = _CELLS if name in table_of("engine_priors")["settings"]["engines"] else ()
    return posterior(rows, known, _OFFSETS, list(left.values()), kinds=_FORMATS, cells=cells), left


def residuals(own: Sequence[Run], found: Posterior, left: dict[str, Any]) -> list[Residual]:
    """Errors of each value where nothing was fitted on its model, its chip, or its settings."""
    lines, values = [], [(run, value) for run in own for value in run.values]
    for i, kind, error in found.each_left_out(left):
        run, value = values[i]
        about = (run.table, run.row, value.metric, value.regime, run.engine, run.model, run.chip)
        lines.append(Residual(*about, kind, error))
    return lines


def constants_of(own: Sequence[Run], found: Posterior, shared: Mapping[str, float]) -> dict[str, Any]:
    """What is written of an engine."""
    known = known_before(own[0].machine.writer.engine.name, shared)
    tpot = np.array([value.asked != "ttft" for run in own for value in run.values])
    error = np.median(np.abs(np.expm1(found.errors[tpot, 0]))) * 100
    counts = Counter(
        name for run in own for name in (run.model, f"{run.model} {run.format}", ANY, f"{ANY} {run.format}")
    )
    models = {
        group: {name: float(f"{factor:.4g}") for name, factor in zip(_FACTORS, factors, strict=True)}
        | {"rows": counts[group]}
        for group, factors in zip(
            (*found.groups, ANY, *(f"{ANY} {kind}" for kind in found.forms)),
            np.exp([*found.offsets[0], *found.expected[0]]).tolist(),
            strict=True,
        )
    }
    # What the rows say nothing of is what was known before.
    kept = {key: _shown(key, median) for key, (median, _) in known.items()}
    return kept | written(found, round(float(error), 1), {run.chip for run in own}) | {"models": models}


def written(found: Posterior, error: float, chips: set[str]) -> dict[str, Any]:
    """Constants as the file has them: values, the error of the fit, what is held by priors, and spreads."""
    kept, spread = {}, {}
    for key, each in found.table().items():
        kept[key] = _shown(key, each["value"])
        spread[key] = [float(f"{each['error']:.3g}"), _shown(key, each["least"]), _shown(key, each["most"])]
    loose = [key for key, (_, *ends) in spread.items() if _moves(kept[key], *ends)]
    return kept | {"fit_error_pct": error, "loose": loose, "chips": sorted(chips), "spread": spread}


def _moves(value: Any, least: Any, most: Any) -> bool:
    """Whether a constant is loose, as it is shown."""
    middle, *ends = (float(str(each).split(" ")[0]) for each in (value, least, most))
    return is_loose(middle, ends)


def _shown(key: str, value: float) -> Any:
    if key in _TIMES:
        return f"{value * 1e3:.4g} ms"
    if key.startswith("experts_") or key.endswith(("_ahead", "_kernels", "_scale", "_share", "_operators")):
        return float(f"{value:.4g}")
    return f"{value * 1e6:.4g} us"


def summary(name: str, own: Sequence[Run], found: Posterior, left: dict[str, Any]) -> list[str]:
    """Errors in sample and left out, and the constants."""
    values = [value for run in own for value in run.values]
    lines = []
    for what, chosen in (("tpot", lambda v: v.asked != "ttft"), ("ttft", lambda v: v.asked == "ttft")):
        mask = np.array([chosen(value) for value in values])
        if not mask.any():
            continue
        lines.append(f"{name:22s} {what} in sample   {line(np.expm1(found.errors[mask, 0]))}")
        for kind in ("part", "model", "chip"):
            lines.append(f"{'':22s} {what} {f'{kind} out':12s} {line(np.expm1(found.outside(left, kind)[mask]))}")
    for key, each in found.table().items():
        ends = f"{each['least']:.4g} to {each['most']:.4g}"
        lines.append(f"    {key:18s} {each['value']:.4g} x/ {each['error']:.2f}, left out {ends}")
    return lines


_kept: list[Run] = []


def _keep(every: list[Run]) -> None:
    _kept[:] = every


def _fitted(name: str, shared: Mapping[str, float]) -> tuple[list[str], dict[str, Any], list[Residual]]:
    """What is printed and written of an engine."""
    own = [run for run in _kept if run.machine.writer.engine.name == name]
    found, left = fit_engine(name, own, shared)
    return summary(name, own, found, left), constants_of(own, found, shared), residuals(own, found, left)


_HEAD = """# Constants of serving engines; written by `python -m mlsysim.calibrate FOLDER --only engines,iterations`. What each means is said in engines.toml.
# spread: a standard error as a factor, and the least and the most over the fits that leave a model, a chip, settings or a run out.
# loose: constants that move by more than half over them, which their priors hold and not the rows.
# chips: those of the runs. models: factors on kernels of prompts, on those of answers, and on operators launched, of an
# architecture that was seen with the engine, and of it in a format, and its rows; any: of one that was not seen, and of it in a format."""


def write_tables(out: Path, tables: dict[str, Any]) -> None:
    """Write the constants of some engines; those of others stay."""
    kept = tomllib.loads((out if out.exists() else SHIPPED).read_text(encoding="utf-8"))
    lines = [line for name, table in (kept | tables).items() for line in table_lines(name, table)]
    out.write_text("\n".join([_HEAD, *lines]) + "\n", encoding="utf-8")


def write(folder: Path, out: Path | None = SHIPPED) -> list[Residual]:
    """Fit every engine, print, and write their constants."""
    every, left_over = runs(folder), []
    tables: dict[str, dict[str, Any]] = {}
    seen = {run.machine.writer.engine.name for run in every}
    names = [name for name in table_of("engine_priors")["launches"] if name in seen]
    if not names:
        raise InputError(f"{folder} has no runs of a serving engine ({', '.join(FILES)}).")
    led = table_of("engine_priors")["follows"]["engines"]
    # Each engine is fitted in a process of its own, which has the runs of its parent; those that follow another after it.
    with ProcessPoolExecutor(mp_context=get_context("fork"), initializer=_keep, initargs=(every,)) as pool:
        for turn in ([name for name in names if name not in led], [name for name in names if name in led]):
            shared = [
                {key: value for key, value in tables.get(led.get(name), {}).items() if key.startswith("experts_")}
                for name in turn
            ]
            for name, (told, table, left) in zip(turn, pool.map(_fitted, turn, shared), strict=True):
                print("\n".join(told), flush=True)
                tables[name] = table
                left_over += left
    tables = {name: tables[name] for name in names}
    if out is not None:
        write_tables(out, tables)
    return left_over
