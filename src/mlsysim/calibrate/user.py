"""``calibrate``: a profile fitted to a user's own 3 to 50 measurements.

The chip's shipped profile (its own, or that of its class) is the prior. A constant is its prior value times exp(x); x has
mean 0 and a spread that says how much such constants differ between machines (``calibration_*`` in the constants). The fit
minimises

    sum_j w_j (log predicted_j - log measured_j)^2 / s^2  +  sum_i v log(1 + x_i^2 / (v spread_i^2)),     v = 4

by Gauss-Newton steps, with Huber weights w against stray rows and s the scatter, at least the expected one. The second term is
Student's: it holds a constant near the prior as a Gaussian would, and lets go where rows insist that the chip is another one. Only constants
that the rows say something about are moved: they are picked one after the other by what the rows still tell about each
once the picked ones are known (a pivoted Cholesky factorisation of the information matrix), while that is more than the
prior knows, and at most one for every two rows. The choice looks at sizes, not at times, so that leaving one row out and
predicting it from the others is an honest test; the profile is written only where it passes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np

from mlsysim.calibrate.cells import key_of
from mlsysim.calibrate.movable import Adjusted, changed, constants_of
from mlsysim.calibrate.samples import FEWEST, Sample
from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.precision import compute_precision
from mlsysim.timing.kernels import Profile
from mlsysim.timing.profile import profile
from mlsysim.units.records import dataclass
from mlsysim.units.registry import quantity
from mlsysim.walls.document import Summary
from mlsysim.zoo.constants import constant

_HUBER = 2.0
_STEPS = 8
_SMALLEST_STEP = 1e-3
_NUDGE = 0.02
_TAIL = 4.0
_STRAY = 4.0


@dataclass(frozen=True)
class Calibration(Summary):
    """A fitted profile and how much better it predicts rows that it has not seen."""

    told: ClassVar = (
        *("name", "chip", "prior", "rows", "before", "after_leave_one_out", "in_sample", "improves", "adjusted"),
        *("kept", "notes", "measurements"),
    )

    chip: HardwareNode
    name: str
    prior: Profile
    profile: Profile
    rows: int
    adjusted: tuple[Adjusted, ...]
    kept: tuple[str, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    fitted: tuple[float, ...]
    samples: tuple[Sample, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def before_pct(self) -> float:
        """Median absolute error of the prior, in per cent."""
        return _sizes(self.before)["median_ape"]

    @property
    def after_pct(self) -> float:
        """The same where each row is predicted from the others."""
        return _sizes(self.after)["median_ape"]

    @property
    def before_mean_pct(self) -> float:
        return _sizes(self.before)["mape"]

    @property
    def after_mean_pct(self) -> float:
        return _sizes(self.after)["mape"]

    @property
    def improves(self) -> bool:
        """Whether unseen rows are predicted better than by the prior."""
        return bool(self.adjusted) and float(np.abs(self.after).mean()) < float(np.abs(self.before).mean())

    def to_dict(self) -> dict[str, Any]:
        """The calibration as JSON has it."""
        return {
            "name": self.name,
            "chip": key_of(self.chip),
            "prior": {"profile": self.prior.name, "basis": self.prior.basis},
            "rows": self.rows,
            "before": _sizes(self.before),
            "after_leave_one_out": _sizes(self.after),
            "in_sample": _sizes(self.fitted),
            "improves": self.improves,
            "adjusted": [{"constant" if k == "path" else k: v for k, v in asdict(a).items()} for a in self.adjusted],
            "kept": list(self.kept),
            "notes": list(self.notes),
            "measurements": [
                {"what": s.label, "seconds": s.seconds, "before_pct": before, "after_leave_one_out_pct": after}
                for s, before, after in zip(self.samples, _per_cent(self.before), _per_cent(self.after), strict=True)
            ],
        }


def _per_cent(errors: Sequence[float]) -> list[float]:
    return [100 * math.expm1(e) for e in errors]


def _sizes(errors: Sequence[float]) -> dict[str, float]:
    """Median and mean of the absolute errors in per cent, of logarithms."""
    sizes = np.abs(_per_cent(errors))
    return {"median_ape": float(np.median(sizes)), "mape": float(np.mean(sizes))}


@contextmanager
def user_profile(text: str = "") -> Iterator[None]:
    """Within it the user's zoo holds this profile alone; without text there is none."""
    before = os.environ.get("MLSYSIM_ZOO")
    with TemporaryDirectory() as folder:
        (Path(folder) / "profiles").mkdir()
        (Path(folder) / "profiles" / "own.toml").write_text(text, encoding="utf-8")
        os.environ["MLSYSIM_ZOO"] = folder if text else ""
        try:
            yield
        finally:
            del os.environ["MLSYSIM_ZOO"]
            if before is not None:
                os.environ["MLSYSIM_ZOO"] = before


def shipped_profile(chip: HardwareNode) -> Profile:
    """The profile of a chip or of its class as shipped, so that a second fit does not start from the first."""
    with user_profile():
        return profile(chip)


def calibrate(samples: Sequence[Sample], chip: HardwareNode, name: str | None = None) -> Calibration:
    """Fit a chip's profile to measurements."""
    if len(samples) < FEWEST:
        raise InputError(f"a calibration takes at least {FEWEST} measurements, got {len(samples)}.")
    key = key_of(chip)
    prior = _with_precisions(shipped_profile(chip), samples)
    name = name or f"My_{key}"
    if not name.isidentifier():
        raise InputError(f"the name {name!r} must be a Python identifier, such as My_{key}.")
    problem = _Problem(samples, chip, prior)
    before = problem.errors(np.zeros(len(problem.constants)))
    everything = range(len(samples))
    chosen, x, scatter = problem.fit(everything)
    after = []
    for left_out in everything:
        _, other, _ = problem.fit([j for j in everything if j != left_out])
        after.append(problem.error(left_out, other))
    fitted = problem.errors(x)
    adjusted = problem.adjusted(chosen, x, scatter)
    kept = tuple(c.path for i, c in enumerate(problem.constants) if i not in chosen)
    made = problem.profile(x).model_copy(update={"name": name, "basis": "measured", "prior": prior.name})
    notes = problem.notes(adjusted, fitted, scatter)
    return Calibration(
        chip, name, prior, made, len(samples), adjusted, kept, tuple(before), tuple(after), tuple(fitted),
        tuple(samples), notes,
    )  # fmt: skip


def _with_precisions(prior: Profile, samples: Sequence[Sample]) -> Profile:
    """The profile with a table of its own for each precision that the rows multiply in."""
    products = [s for s in samples if any(op.kind.endswith("gemm") or op.kind == "conv" for op in s.operators)]
    wanted = {compute_precision(s.precision) for s in products}
    tables = {p: prior.gemm_for(p) for p in sorted(wanted) if p not in prior.gemm}
    return prior.model_copy(update={"gemm": {**prior.gemm, **tables}}) if tables else prior


class _Problem:
    """The rows, the constants that might explain them, and the fit."""

    def __init__(self, samples: Sequence[Sample], chip: HardwareNode, prior: Profile) -> None:
        self.samples, self.chip, self.prior = samples, chip, prior
        self.constants = constants_of(prior)
        self.spread = np.array([c.spread for c in self.constants])
        self.expected = constant("calibration_scatter").number
        self._touched: dict[int, set[int]] = {}
        self._known: dict[tuple[int, bytes], float] = {}

    def profile(self, x: np.ndarray) -> Profile:
        changes: dict[str, dict[str, Any]] = {}
        for c, step in zip(self.constants, x, strict=True):
            if step:
                value: Any = c.at(float(step))
                changes.setdefault(c.group, {})[c.name] = quantity(value, "s") if c.is_time else value
        return changed(self.prior, changes)

    def error(self, j: int, x: np.ndarray, made: Profile | None = None) -> float:
        """Logarithm of predicted over measured."""
        key = (j, x.tobytes())
        if key not in self._known:
            sample = self.samples[j]
            predicted = sample.predict(self.chip, made or self.profile(x))
            self._known[key] = math.log(predicted / sample.seconds)
        return self._known[key]

    def errors(self, x: np.ndarray, rows: Sequence[int] | None = None) -> np.ndarray:
        made = self.profile(x)
        return np.array([self.error(j, x, made) for j in (range(len(self.samples)) if rows is None else rows)])

    def slopes(self, x: np.ndarray, rows: Sequence[int], columns: Sequence[int]) -> np.ndarray:
        """Change of each row's error with each constant, by central differences."""
        result = np.zeros((len(rows), len(columns)))
        for place, i in enumerate(columns):
            for sign in (1.0, -1.0):
                shifted = x.copy()
                shifted[i] += sign * _NUDGE
                made = self.profile(shifted)
                end = [self.error(j, shifted, made) if self.depends(j, i) else 0.0 for j in rows]
                result[:, place] += sign * np.array(end)
        return result / (2 * _NUDGE)

    def depends(self, j: int, i: int) -> bool:
        """Whether a row's time has anything to do with a constant: whether doubling or halving it shows."""
        if j not in self._touched:
            base = np.zeros(len(self.constants))
            at_prior = self.error(j, base)
            unit = np.eye(len(base)) * math.log(2)
            self._touched[j] = {
                column
                for column in range(len(base))
                if any(self.error(j, sign * unit[column]) != at_prior for sign in (1.0, -1.0))
            }
        return i in self._touched[j]

    def choose(self, x: np.ndarray, rows: Sequence[int], have: Sequence[int] = ()) -> list[int]:
        """Constants that the rows say more about than the prior does, besides those chosen before."""
        candidates = [i for i in range(len(self.constants)) if any(self.depends(j, i) for j in rows)]
        columns = self.slopes(x, rows, candidates) * self.spread[candidates] / self.expected
        most = (len(rows) + 1) // 2
        chosen: list[int] = []
        left, waiting = columns, [candidates.index(i) for i in have]
        while len(chosen) < most and left.size:
            told = (left**2).sum(axis=0)
            best = waiting.pop(0) if waiting else int(np.argmax(told))
            if candidates[best] not in have and told[best] <= 1.0:
                break
            chosen.append(candidates[best])
            if told[best] > 0:
                direction = left[:, best] / math.sqrt(told[best])
                left = left - np.outer(direction, direction @ left)
        return sorted(chosen)

    def fit(self, rows: Sequence[int]) -> tuple[list[int], np.ndarray, float]:
        """Chosen constants, where they end up, and the scatter around them.

        A second round may choose more where the first ended, since a prior far off may take products for bound by arithmetic
        that are bound by memory.
        """
        x, scatter = np.zeros(len(self.constants)), self.expected
        chosen: list[int] = []
        for _ in range(2):
            choice = self.choose(x, rows, chosen)
            if choice == chosen:
                break
            chosen = choice
            x, scatter = self._descend(x, chosen, rows)
        return chosen, x, scatter

    def _descend(self, x: np.ndarray, chosen: list[int], rows: Sequence[int]) -> tuple[np.ndarray, float]:
        """Gauss-Newton steps: first with the expected scatter and all rows alike, then with the scatter that is left."""
        scatter, spread = self.expected, self.spread[chosen]

        def cost(at: np.ndarray, robust: bool) -> float:
            sizes = np.abs(self.errors(at, rows)) / scatter
            misfit = sizes**2
            if robust:
                misfit = np.where(sizes <= _HUBER, misfit, 2 * _HUBER * sizes - _HUBER**2)
            return float(misfit.sum() + _TAIL * np.log1p((at[chosen] / spread) ** 2 / _TAIL).sum())

        for robust in (False, True):
            for _ in range(_STEPS if chosen else 0):
                errors = self.errors(x, rows)
                weights = np.ones(len(errors))
                if robust:
                    scatter = max(self.expected, 1.4826 * float(np.median(np.abs(errors - np.median(errors)))))
                    weights = np.minimum(1.0, _HUBER * scatter / np.maximum(np.abs(errors), 1e-12))
                slopes = self.slopes(x, rows, chosen)
                # The prior holds a constant less where the rows have pulled it far off.
                hold = 1 / (spread**2 * (1 + (x[chosen] / spread) ** 2 / _TAIL))
                matrix = (slopes.T * weights) @ slopes / scatter**2 + np.diag(hold)
                pull = -(slopes.T * weights) @ errors / scatter**2 - hold * x[chosen]
                move, start = np.linalg.solve(matrix, pull), cost(x, robust)
                # A step is halved until it helps; none is made where no part of it does.
                for halving in range(6):
                    trial = x.copy()
                    trial[chosen] += move / 2**halving
                    if cost(trial, robust) <= start:
                        break
                else:
                    break
                settled = float(np.abs(trial - x).max()) < _SMALLEST_STEP
                x = trial
                if settled:
                    break
        return x, scatter

    def adjusted(self, chosen: list[int], x: np.ndarray, scatter: float) -> tuple[Adjusted, ...]:
        if not chosen:
            return ()
        slopes = self.slopes(x, range(len(self.samples)), chosen)
        matrix = slopes.T @ slopes / scatter**2 + np.diag(1 / self.spread[chosen] ** 2)
        remaining = np.diag(np.linalg.inv(matrix)) / self.spread[chosen] ** 2
        result = []
        for i, left in zip(chosen, remaining, strict=True):
            c = self.constants[i]
            after, learned = c.at(float(x[i])), float(1 - math.sqrt(max(left, 0.0)))
            result.append(Adjusted(c.path, c.value, after, "s" if c.is_time else "", learned, after in (c.low, c.high)))
        return tuple(result)

    def notes(self, adjusted: tuple[Adjusted, ...], fitted: np.ndarray, scatter: float) -> tuple[str, ...]:
        """What could not be fitted, in sentences."""
        moved = {a.path for a in adjusted}
        left = [i for i, c in enumerate(self.constants) if c.path not in moved]
        shown = {i for i in left if any(self.depends(j, i) for j in range(len(self.samples)))}
        silent = [self.constants[i].path for i in left if i not in shown]
        confounded = [self.constants[i].path for i in left if i in shown]
        notes = []
        if silent:
            notes.append(f"no row depends on {', '.join(self._short(silent))}: kept as they were.")
        if confounded:
            notes.append(f"the rows do not tell {', '.join(confounded)} from the others: kept as they were.")
        for a in adjusted:
            if a.at_limit:
                notes.append(f"{a.path} ran into its limit of {a.after:.4g}; is this the right chip?")
        stray = [(s.label, e) for s, e in zip(self.samples, fitted, strict=True) if abs(e) > _STRAY * scatter]
        stray.sort(key=lambda pair: -abs(pair[1]))
        if stray:
            worst = "; ".join(f"{label} {100 * math.expm1(error):+.0f} %" for label, error in stray[:3])
            notes.append(f"{len(stray)} of {len(self.samples)} rows do not fit, the worst: {worst}; check them.")
        return tuple(notes)

    def _short(self, paths: list[str]) -> list[str]:
        """Paths, with a group named once where all of it is meant."""
        groups = dict.fromkeys(c.group for c in self.constants)
        whole = [g for g in groups if {c.path for c in self.constants if c.group == g} <= set(paths)]
        return whole + [path for path in paths if path.rpartition(".")[0] not in whole]
