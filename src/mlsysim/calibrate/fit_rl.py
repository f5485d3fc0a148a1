"""Constants of post-training frameworks from published steps: ``data/software/rl_constants.toml``.

A folder holds ``rl.csv``. A row becomes the plan that ``validate`` asks (:mod:`mlsysim.calibrate.tables.rl`); what its step is put together from does not
depend on the constants, and :func:`mlsysim.cases.rl.step` is the form. Five constants a framework, and a sixth where passes for log-probabilities have times
of their own, with priors of ``data/fits.toml``; of a framework without versions those of the first are the priors. What had to be guessed is in no fit. Rows of a version, and of a model, are left out in turn; of one model's runs each row.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlsysim.calibrate.fitting import line, loose, stated, table_of
from mlsysim.calibrate.intervals import half_width
from mlsysim.calibrate.measurements import published, table_rows
from mlsysim.calibrate.posterior import Posterior, Prior, Row, posterior, together
from mlsysim.calibrate.questions import Excluded, Skipped
from mlsysim.calibrate.residuals import Residual
from mlsysim.calibrate.tables import rl as table
from mlsysim.cases import rl as case
from mlsysim.plans.rl_steps import Stepper, Worked

SHIPPED = Path(str(files("mlsysim.data"))) / "software" / "rl_constants.toml"
_SPREAD, _SPREADS = 0.08, {"weight_sync_s": 1.0}
"""Of what is measured; of transfers alone, which one framework has two ways for that differ by 2.5 to 6 times."""
_NINETY = 0.9


class Measured(NamedTuple):
    """A step: what it is put together from, what was measured of it, and what it is left out with."""

    key: str
    version: str
    model: str
    framework: case.Framework
    chip: str
    worked: Worked
    measured: dict[str, float]


def rows_of(folder: Path) -> dict[str, list[Measured]]:
    """Published steps by framework."""
    found: dict[str, list[Measured]] = defaultdict(list)
    for row in table_rows(published(folder) / "rl.csv"):
        with suppress(Skipped, Excluded):
            asked = {each.metric: each for each in table.read(row) if not each.guessed and each.metric != "train_mfu"}
            if not asked:
                continue
            plan = next(iter(asked.values())).plan
            way = Stepper(plan).ways()[0]
            seen = {name: each.measured for name, each in asked.items()}
            chip = str(way.trainer.fleet.node.accelerator.metadata.key)
            about = (row["id"], row["version"], row["model"], way.asked.framework, chip)
            found[row["framework"]].append(Measured(*about, way.worked, seen))
    return dict(found)


def predicted(row: Measured, values: Mapping[str, Any]) -> dict[str, float]:
    """What was measured, with other constants."""
    step = row.worked.step(replace(row.framework, **values))
    parts = {"gen_s": step.rollout, "train_s": step.training, "logprob_s": step.passes, "weight_sync_s": step.transfer}
    all_of = {"step_s": float(step.ledger.seconds), **parts}
    return {name: all_of[name] for name in row.measured}


def masks(rows: Sequence[Measured]) -> dict[str, Any]:
    """Rows that are left out together: of a version, of a model; where steps are of one of both, each row."""
    steps = [row for row in rows if "step_s" in row.measured]
    several = [what for what in ("version", "model") if len({getattr(row, what) for row in steps}) > 1]
    return together(rows, several) or {f"part {row.key}": np.arange(len(rows)) == n for n, row in enumerate(rows)}


def fit(rows: Sequence[Measured], priors: Mapping[str, Prior], left: Mapping[str, Any]) -> Posterior:
    """The constants of a framework."""

    def row(own: Measured) -> Row:
        def values(constants: Mapping[str, Any], _: Any) -> list[Any]:
            each = [dict(zip(constants, point, strict=True)) for point in zip(*constants.values(), strict=True)]
            told = [predicted(own, point) for point in each]
            return [np.array([point[name] for point in told]) for name in own.measured]

        spreads = tuple(_SPREADS.get(name, _SPREAD) for name in own.measured)
        return Row(own.key, tuple(own.measured.values()), spreads, values)

    return posterior([row(own) for own in rows], priors, (), list(left.values()), effective=math.inf)


_HEAD = """# Fitted constants of post-training frameworks, laid over rl.toml; written by `python -m mlsysim.calibrate FOLDER --only rl`. What each means is said in cases/rl.py.
# error: the standard error as a factor; least, most: over the fits that leave rows out. interval: factors within which 90 % of left-out steps lay.
# Of "other" those within which 90 % of a framework's steps lay with another's constants. shortest: seconds of the shortest step, colocated and split; chips: of the steps.
# transfers: the factor within which 90 % of left-out weight transfers lay."""


def write(folder: Path, out: Path | None = SHIPPED) -> list[Residual]:
    """Fit, print and write."""
    priors = {name: Prior(*values[:2]) for name, values in table_of("rl").items()}
    lines, held, frameworks = [_HEAD], rows_of(folder), list[case.Framework]()
    for name, rows in held.items():
        left = masks(rows)
        known = {
            c: prior for c, prior in priors.items() if c != "passes" or any("logprob_s" in r.measured for r in rows)
        }
        found = fit(rows, known, left)
        values = [(n, metric) for n, row in enumerate(rows) for metric in row.measured]
        told, outside, sent = [f"in sample {_by(values, found.errors[:, 0])}"], [], []
        for kind in dict.fromkeys(what.split(" ")[0] for what in left):
            errors = found.outside(left, kind)
            told.append(f"one {kind} out {_by(values, errors)}")
            outside += [abs(e) for e, (_, metric) in zip(errors, values, strict=True) if metric == "step_s"]
            sent += [abs(e) for e, (_, metric) in zip(errors, values, strict=True) if metric == "weight_sync_s"]
        for words in told:
            print(f"{name}: {words}", flush=True)
        band = math.exp(float(np.quantile(outside, _NINETY)))
        lines += ["", *(f"# median / p90 / bias in %, {words}" for words in told), f'["{name}"]']
        free = [name for name, each in found.table().items() if loose(each["value"], (each["least"], each["most"]))]
        lines.append(f"# loose, by more than half over these fits: {', '.join(free) or 'none'}.")
        for constant, each in found.table().items():
            print(f"    {constant} {each}")
            lines.append(f"{constant} = {stated(each['value'], each['error'], (each['least'], each['most']))}")
        whole = [row for row in rows if "step_s" in row.measured]
        steps = [(row.worked.staleness is None, row.measured["step_s"]) for row in whole]
        shortest = (min(step for turns, step in steps if turns is here) for here in (True, False))
        lines.append(f"shortest = [{', '.join(f'{step:.4g}' for step in shortest)}]")
        lines += [f"interval = [{1 / band:.4g}, {band:.4g}]", f"rows = {len(whole)}"]
        if sent:
            lines.append(f"transfers = {math.exp(half_width(sent)):.4g}")
        constants: dict[str, Any] = {c: each["value"] for c, each in found.table().items()}
        frameworks.append(replace(case.framework(name), **constants))
        lines.append(f"chips = {json.dumps(sorted({row.chip for row in whole}))}")
        if left and not next(iter(left)).startswith("part "):
            priors |= {c: Prior(each["value"], priors[c].spread) for c, each in found.table().items()}
    band = crossed(frameworks, held)
    lines += ["", f"[{case.OTHER}]", f"interval = [{1 / band:.4g}, {band:.4g}]"]
    if out is not None:
        out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return []


def crossed(frameworks: Sequence[case.Framework], rows: Mapping[str, Sequence[Measured]]) -> float:
    """The factor within which 90 % of a framework's steps lie when another's constants stand in for its own; each pair of them weighs the same."""
    steps = {name: [row for row in held if "step_s" in row.measured] for name, held in rows.items()}
    pairs = [(own, held) for own in frameworks for name, held in steps.items() if name != own.name]
    errors = [
        (abs(math.log(row.worked.step(own).ledger.seconds / row.measured["step_s"])), 1 / len(held) / len(pairs))
        for own, held in pairs
        for row in held
    ]
    off, weights = np.array(sorted(errors)).T
    return math.exp(float(off[np.searchsorted(np.cumsum(weights), _NINETY)]))


def _by(values: Sequence[tuple[int, str]], errors: Any) -> str:
    """Errors by what was measured."""
    names = np.array([metric for _, metric in values])
    told = [
        (name, np.expm1(errors[names == name])) for name in ("step_s", "gen_s", "train_s", "logprob_s", "weight_sync_s")
    ]
    return ", ".join(f"{name} {line(each).strip()}" for name, each in told if len(each))
