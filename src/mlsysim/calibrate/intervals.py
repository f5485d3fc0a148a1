"""Writes ``data/intervals.toml`` from left-out residuals (``calibrate/data/residuals.csv``, :mod:`mlsysim.calibrate.residuals`). A band is conformal: of n
values |log(predicted / measured)| the ceil(0.9 (n + 1))-th, by regime and by what was left out. Half-widths are one for both sides: which side
another model or chip errs to is not known before. A regime is a path of words ("serving tpot vLLM"). A key of fewer than 10 values gives way to that of
the path without its last word, in the end to all rows; the wider of both is taken where a key has

    fewer than 30 values,
    fewer than 5 groups of what was left out: a few do not show how they differ (all rows, whose kinds of work and units are others, say nothing of five,
    unless they are models),
    a nested coverage (each group inside the width that the other groups give) below 88 %: it does not hold by itself.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mlsysim.calibrate.residuals import FORMAT, OTHERS, PART, Group, Residual, read_summary
from mlsysim.calibrate.residuals import SHIPPED as RESIDUALS
from mlsysim.zoo.intervals import ALL, UNSEEN, entry_name, paths

SHIPPED = Path(str(files("mlsysim.data"))) / "intervals.toml"
LEVEL = 0.9
FEWEST, FEW, HOLDS = 10, 30, 0.88
ENOUGH = 5
"""Groups that show how they differ; where all of a question was seen, its rows show it."""
NAMED = ("training",)
"""Regimes whose measured models and formats are listed, so that an answer can tell whether it is of one of them."""


class Key(NamedTuple):
    """The band of a regime where something was left out: its half-width as a factor, its rows and groups, and its nested coverage."""

    factor: float
    rows: int
    groups: int
    coverage: float


Table = dict[str, dict[str, Key]]


def half_width(errors: Iterable[float], level: float = LEVEL) -> float:
    """The logarithm that nine tenths of further errors of the same kind stay below, by so many."""
    ordered = sorted(map(abs, errors))
    return ordered[_place(len(ordered), level)]


def _place(values: int, level: float) -> int:
    return min(math.ceil(level * (values + 1)), values) - 1


def covered(groups: Sequence[Sequence[float]], level: float = LEVEL) -> float:
    """The share of values inside the half-width that the other groups give; of one group, that its other values give."""
    if len(groups) == 1:
        groups = [(error,) for error in groups[0]]
    sizes = np.abs(np.array([error for own in groups for error in own]))
    names = np.repeat(np.arange(len(groups)), [len(own) for own in groups])
    order = np.argsort(sizes, kind="stable")
    sizes, names, inside = sizes[order], names[order], 0
    for i in range(len(groups)):
        others = sizes[names != i]
        inside += int(np.sum(sizes[names == i] <= others[_place(len(others), level)]))
    return inside / len(sizes)


def key_of(groups: Iterable[Group], path: str, left_out: str, wider: Callable[[bool], Key | None]) -> Key | None:
    """The band that groups give; None where it gives way to the ``wider`` one."""
    named: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        named[group.name].append(group)
    each = [[error for group in own for error in group.errors] for own in named.values()]
    # A path of one regime alone is that regime.
    regimes, values = {group.regime for own in named.values() for group in own}, sum(map(len, each))
    if values < FEWEST or (len(regimes) == 1 and path not in (ALL, *regimes)):
        return None
    rows, share = sum(group.rows for own in named.values() for group in own), covered(each)
    own = Key(math.exp(half_width(error for errors in each for error in errors)), rows, len(each), share)
    few = left_out != PART and len(each) < ENOUGH
    weak = values < FEW or share < HOLDS or left_out == "model"
    if path == ALL or not (few or values < FEW or share < HOLDS):
        return own
    other = wider(weak)
    return own if other is None else own._replace(factor=max(own.factor, other.factor))


class Bands:
    """Bands of groups, found as they are asked for."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self.pooled: dict[tuple[str, str], list[Group]] = defaultdict(list)
        for group in groups:
            for path in paths(group.regime):
                self.pooled[path, group.left_out].append(group)

    def without(self, name: str) -> Callable[[str, str], Key | None]:
        """The band of a path and of what was left out, from all groups but those of this name."""

        @cache
        def key(path: str, left_out: str) -> Key | None:
            def wider(every: bool) -> Key | None:
                above = [other for other in paths(path)[1:] if every or other != ALL]
                return next((found for other in above if (found := key(other, left_out)) is not None), None)

            own = (group for group in self.pooled[path, left_out] if group.name != name)
            return key_of(own, path, left_out, wider)

        return key

    def table(self) -> Table:
        """All of them."""
        found: Table = defaultdict(dict)
        key = self.without("")
        for path, left_out in sorted(self.pooled):
            if (own := key(path, left_out)) is not None:
                found[path][left_out] = own
        return found


def width(key: Callable[[str, str], Key | None], regime: str, left_out: str) -> float:
    """The half-width of a question: that of :func:`mlsysim.zoo.intervals.interval`."""
    known = next(math.log(own.factor) for path in paths(regime) if (own := key(path, PART)) is not None)
    return math.sqrt(known**2 + sum(_added(key, regime, each) for each in left_out.split(" ")))


def _added(key: Callable[[str, str], Key | None], regime: str, left_out: str) -> float:
    for path in paths(regime):
        if path == ALL and left_out == "kernels":
            return _added(key, "kernel", "chip")
        lacking, own = key(path, left_out), key(path, PART)
        if lacking is not None and own is not None:
            if left_out == "cpu":
                return math.log(lacking.factor) ** 2
            return max(math.log(lacking.factor) ** 2 - math.log(own.factor) ** 2, 0.0)
    return 0.0


class Covered(NamedTuple):
    """The groups of a key: values of each, and how many of them lie inside the band that all others give."""

    groups: tuple[tuple[int, int], ...] = ()

    @property
    def values(self) -> int:
        return sum(values for values, _ in self.groups)

    @property
    def share(self) -> float:
        return sum(inside for _, inside in self.groups) / self.values

    @property
    def error(self) -> float:
        """The standard error of the share, of groups that are drawn whole; at least that of as many values by themselves, where a band is exact."""
        off = sum((inside - self.share * values) ** 2 for values, inside in self.groups)
        drawn = math.sqrt(off * len(self.groups) / max(len(self.groups) - 1, 1)) / self.values
        return max(drawn, math.sqrt(LEVEL * (1 - LEVEL) / self.values))

    @property
    def holds(self) -> bool:
        """Whether the share is what a band of the promised level shows, but for chance: within two standard errors."""
        return abs(self.share - LEVEL) <= 2 * self.error


def nested(groups: Sequence[Group], by: Sequence[str]) -> dict[tuple[str, ...], Covered]:
    """Coverage by fields of groups, each under bands from which its model or chip (whatever it was left out by) is taken in every regime."""
    found: dict[tuple[str, ...], Covered] = defaultdict(Covered)
    bands = Bands(groups)
    for name in sorted({group.name for group in groups}):
        others = bands.without(name)
        for group in (group for group in groups if group.name == name):
            half = width(others, group.regime, group.left_out)
            key = tuple(getattr(group, field) for field in by)
            inside = sum(abs(error) <= half for error in group.errors)
            found[key] = Covered((*found[key].groups, (len(group.errors), inside)))
    return found


def render(table: Table, groups: Sequence[Group]) -> str:
    """The bands as TOML."""
    lines = [
        "# Bands by regime and by what constants had not seen: the factor either way within which 90 % of left-out measurements lay,",
        "# how many these were, of how many groups (models, chips), and the coverage in per cent where the factor comes from the other groups.",
        "# Written by `python -m mlsysim.calibrate FOLDER --only intervals` from calibrate/data/residuals.csv.",
    ]
    for regime, own in sorted(table.items()):
        lines += ["", f"[{entry_name(regime)}]", f'regime = "{regime}"']
        lines += [
            f"{kind} = [{k.factor:.4f}, {k.rows}, {k.groups}, {100 * k.coverage:.1f}]"
            for kind, k in own.items()
            if kind in (PART, *UNSEEN)
        ]
        if regime in NAMED:
            mine = [g for g in groups if g.regime.startswith(f"{regime} ") and not g.name.startswith(OTHERS)]
            models = {g.name for g in mine if g.left_out == "model"}
            formats = {f"{g.regime} {' '.join(g.name.split()[-2:])}" for g in mine if g.left_out == FORMAT}
            lines += [f"models = {json.dumps(sorted(models))}", f"formats = {json.dumps(sorted(formats))}"]
    return "\n".join(lines) + "\n"


def write(folder: Path, out: Path | None = SHIPPED) -> list[Residual]:
    """Write the bands of the residuals beside ``out``, else of the shipped ones; print the nested coverage of every key with 30 rows or more."""
    own = RESIDUALS if out is None or out == SHIPPED else out.parent / RESIDUALS.name
    groups = read_summary(own if own.exists() else RESIDUALS)
    for by in ("table", "regime"):
        sizes: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for group in groups:
            sizes[getattr(group, by), group.left_out].append(group.rows)
        told = {key: each for key, each in nested(groups, (by, "left_out")).items() if sum(sizes[key]) >= FEW}
        for (name, kind), each in sorted(told.items()):
            many = f"{sum(sizes[name, kind])} rows, {len(each.groups)} groups"
            print(f"{by} {name:44s} {kind:10s} {each.share:6.1%} +- {each.error:.1%} of {many}")
        several = [each for each in told.values() if len(each.groups) > 1]
        print(f"{sum(each.holds for each in several)} of {len(several)} keys by {by} are {LEVEL:.0%} but for chance")
    if out is not None:
        out.write_text(render(Bands(groups).table(), groups), encoding="utf-8")
    return []
