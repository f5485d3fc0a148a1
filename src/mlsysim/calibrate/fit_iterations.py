"""Fits the constants of an engine on its own iterations: a continuous-batching server that was measured step by step.

A folder holds, anywhere below it, ``iterations.csv.gz`` beside ``runs.csv``: one line an iteration, with what it wrote and read. What is fitted is the time from the
start of an iteration to the start of the next, where requests were left to answer, so that the loop's own bookkeeping is in it. Iterations of a run that
are alike are one row, whose value is their mean: a simulation adds up means, and the mean of an iteration that the host bounds lies above its median.
Steps without prompts are alike where they have as many sequences (the form is straight in their contexts), steps with prompts where they have as
many of them and about as many tokens. The step is the case's (:class:`~mlsysim.timing.engine_step.EngineStep`).

Left out in turn, each from the priors: every run, with those that repeat it. Their constants are in ``left_out``, for who scores a run with what the
others say.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlsysim.calibrate.fit_serving import SHIPPED, write_tables, written
from mlsysim.calibrate.fitting import line, table_of
from mlsysim.calibrate.measurements import found_below, own_rows, table_rows
from mlsysim.calibrate.posterior import Posterior, Prior, Row, posterior
from mlsysim.calibrate.residuals import Residual
from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.timing.engine_step import EngineStep, engine_step
from mlsysim.timing.engines import engine, seen_as

__all__ = ["ENGINE", "SHIPPED", "fit", "iterations", "left_out", "write"]

ENGINE, CHIP = "torch_loop", "H200"
_SPREAD, _GRAPH, _EAGER, _WIDTH, _PRODUCTS = 0.02, 0.02, 0.12, 0.1, 0.015
"""Spread of the form itself; of one iteration in a graph and without; the width of a class of tokens (its logarithm); and the spread of products between
two loops."""


class Iteration(NamedTuple):
    """One step: seconds until the next began, what it wrote and read. ``chunks`` are (tokens before, tokens now)."""

    run: str
    seconds: float
    answers: int
    context: int
    chunks: tuple[tuple[int, int], ...]

    @property
    def kind(self) -> tuple[Any, ...]:
        """Iterations of the same kind are one row."""
        if not self.chunks:
            return self.run, self.answers
        tokens = self.answers + sum(now for _, now in self.chunks)
        return self.run, len(self.chunks), self.answers > 0, int(math.log(tokens) / _WIDTH)


def iterations(path: Path) -> Iterator[Iteration]:
    """Iterations after which requests were left to answer, so that the next began as soon as it could."""
    before: dict[str, str] | None = None
    with gzip.open(path, "rt", newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if before is not None and before["run"] == row["run"] and int(row["decodes"]) > 0:
                chunks = tuple((int(first), int(now)) for first, now in json.loads(before["chunks"]))
                seconds = float(row["start_s"]) - float(before["start_s"])
                written = int(before["decodes"]), int(before["decode_context_tokens"])
                yield Iteration(row["run"], seconds, *written, chunks)
            before = row


@dataclass(slots=True)
class Kind:
    """Iterations that are alike: their number, and means of what they have."""

    step: EngineStep
    members: list[Iteration] = field(default_factory=list)

    def row(self) -> Row:
        many, first = len(self.members), self.members[0]
        seconds = sum(each.seconds for each in self.members) / many
        spread = math.hypot(_SPREAD, (_EAGER if first.chunks else _GRAPH) / math.sqrt(many))
        return Row(first.run, (seconds,), (spread,), self.predictor())

    def predictor(self) -> Any:
        step, many, prompts = moved(self.step, {}), len(self.members), float(len(self.members[0].chunks))
        answers = sum(each.answers for each in self.members) / many
        # The token that is written is counted among those that attention reads.
        context = sum(each.context for each in self.members) / max(answers * many, 1.0) - 1.0
        chunks = [chunk for each in self.members for chunk in each.chunks]
        reading = sum(now for _, now in chunks) / many
        start = 2 * step.prompts_attended(1.0, 1.0, 0.0) - step.prompts_attended(2.0, 1.0, 0.0) if chunks else 0.0
        attention = sum(step.prompts_attended(1.0, float(now), float(at)) - start for at, now in chunks) / many
        unit = step.engine.prompt_scale

        def predict(constants: Mapping[str, Any], _: Sequence[Any]) -> list[Any]:
            own = moved(step, constants)
            if not chunks:
                return [own.time(answers, context).total]
            rows = own.rows(answers, reading, answers, prompts)
            attended = start + attention * (own.engine.prompt_scale / unit)
            if answers:
                attended = attended + min(answers, 1.0) * own.answers_attended(answers, context)
            return [own.step_time(rows, attended, answers, reading, answers, prompts).total]

        return predict


def moved(step: EngineStep, constants: Mapping[str, Any]) -> EngineStep:
    """The same engine with other constants, and without what was fitted on its models."""
    found = copy(step)
    found.engine, found.factors = step.engine.model_copy(update=dict(constants)), None
    return found


def kinds(path: Path) -> list[Kind]:
    """The iterations of a folder by kind, each with the step of its run's model."""
    runs = {row["run"]: row for row in table_rows(path.with_name("runs.csv"))}
    steps = {name: _step(name) for name in {r["model"] for r in runs.values()}}
    found: dict[Any, Kind] = {}
    for each in iterations(path):
        if each.kind not in found:
            found[each.kind] = Kind(steps[runs[each.run]["model"]])
        found[each.kind].members.append(each)
    return list(found.values())


def repeated(path: Path) -> dict[str, list[str]]:
    """Runs by what is left out together: a run with those whose workload says that they are like it."""
    rows = table_rows(path.with_name("runs.csv"))
    names = {row["run"] for row in rows}
    groups: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        like = row.get("workload", "").removeprefix("as ")
        groups[like if like in names else row["run"]].append(row["run"])
    return dict(groups)


def priors() -> dict[str, Prior]:
    """What is known of the engine before its iterations are seen. One model cannot tell the kernels of a layer from its bytes: what products take is
    what they took of five models in another loop of this kind, whose own kernels and host are not this engine's."""
    known = {key: Prior(*value[:2]) for key, value in table_of("engine_priors")[ENGINE].items()}
    seen = posterior([kind.row() for kind in other_models()], known, (), ()).table()["product_scale"]
    return known | {"product_scale": Prior(seen["value"], _PRODUCTS)}


def other_models() -> list[Kind]:
    """Steps without prompts of five models in another loop of this kind."""
    found = []
    for row in own_rows("loops"):
        if not row["prompts"]:
            many, seconds = int(row["answers"]), float(row["median_ms"]) * 1e-3
            context = round(many * (float(row["mean_context"]) + 1))
            found.append(Kind(_step(row["model"]), [Iteration(row["model"], seconds, many, context, ())]))
    return found


def _step(model: str) -> EngineStep:
    return engine_step(Models.get(model), Hardware.get(CHIP), engine(ENGINE))


class Fitted(NamedTuple):
    """The fit of all runs and of those without some."""

    found: Posterior
    groups: dict[str, list[str]]
    kinds: list[Kind]

    def constants(self, run: str | None = None) -> dict[str, float]:
        """Constants of all runs, or of those that are not ``run`` and do not repeat it."""
        fits = [None, *self.groups]
        at = 0 if run is None else fits.index(next(name for name, runs in self.groups.items() if run in runs))
        return dict(zip(self.found.names, np.exp(self.found.constants[at]).tolist(), strict=True))


def fit(folder: Path) -> Fitted:
    """Constants of the engine from its iterations."""
    path = found_below(folder, "iterations.csv.gz")
    if path is None:
        raise InputError(f"{folder} has no iterations.csv.gz, itself or below it.")
    known, groups = kinds(path), repeated(path)
    runs = np.array([kind.members[0].run for kind in known])
    masks = [np.isin(runs, left) for left in groups.values()]
    return Fitted(posterior([kind.row() for kind in known], priors(), (), masks), groups, known)


def left_out(folder: Path) -> dict[str, dict[str, float]]:
    """Constants for each run that nothing of it was used for."""
    fitted = fit(folder)
    return {run: fitted.constants(run) for runs in fitted.groups.values() for run in runs}


def write(folder: Path, out: Path | None = SHIPPED) -> list[Residual]:
    """Fit the engine where a folder has its iterations, print, and write its constants."""
    if found_below(folder, "iterations.csv.gz") is None:
        print(f"{ENGINE}: {folder} has no iterations.csv.gz; its constants stay.")
        return []
    fitted = fit(folder)
    found, runs = fitted.found, np.array([kind.members[0].run for kind in fitted.kinds])
    weights = np.array([len(kind.members) for kind in fitted.kinds])
    prompted = np.array([bool(kind.members[0].chunks) for kind in fitted.kinds])
    numbers = {run: number for number, group in enumerate(fitted.groups.values(), 1) for run in group}
    out_of = found.errors[np.arange(len(runs)), [numbers[run] for run in runs]]
    for what, chosen in (("without prompts", ~prompted), ("with prompts", prompted)):
        for how, errors in (("in sample", found.errors[:, 0]), ("run left out", out_of)):
            print(f"{ENGINE:12s} {what:16s} {how:14s} {line(np.repeat(np.expm1(errors[chosen]), weights[chosen]))}")
    for key, each in found.table().items():
        print(
            f"    {key:18s} {each['value']:.4g} x/ {each['error']:.2f}, left out {each['least']:.4g} to {each['most']:.4g}"
        )
    if out is not None:
        error = float(np.median(np.abs(np.repeat(np.expm1(out_of), weights)))) * 100
        # An engine that was seen with one architecture has no factors of its own for it.
        seen = {seen_as(d.model, d.precision) for d in (kind.step.deployment for kind in fitted.kinds)}
        models = {name: {"prompts": 1.0, "answers": 1.0, "rows": len(set(runs))} for name in sorted(seen)}
        write_tables(out, {ENGINE: written(found, round(error, 1), {CHIP}) | {"models": models}})
    return []
