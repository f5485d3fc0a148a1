"""Sweeps over what is not known exactly: designs ranked by a percentile of their objective.

    rank_by = "p90"            # the percentile that ranks, enters fronts and is stored; p50 unless given
    confidence = 0.9           # a design is feasible where walls and 'subject_to' hold in this share of draws; 0.5 unless given
    samples = 200
    seed = 0
    [uncertain]
    efficiency = "0.3..0.6"
    "grid.carbon_intensity_g_kwh" = {low = 20, high = 40}

Draws are the last axis of a wider space: each point is evaluated at every draw by the kind's own arithmetic on arrays of
(points x draws), a tile at a time, whatever the kind. All points see the same draws (common random numbers), so that two
designs are compared under the same conditions, and the draws of a name are those that ``solve(uncertain=...)`` uses.

A percentile is of the values themselves: p90 of a latency is nearly the worst, p90 of a throughput nearly the best. Draws in which an
output is not known do not enter its percentiles. A layout must divide in all draws. Memory stays flat; time grows with the draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsysim.errors import InputError
from mlsysim.search.axes import Axis, read_value
from mlsysim.search.expression import among
from mlsysim.search.tiles import TILE
from mlsysim.units.records import dataclass
from mlsysim.units.uncertain import uncertain as read_uncertain
from mlsysim.walls.inputs import Input
from mlsysim.walls.uncertain_result import PERCENTILES
from mlsysim.walls.uncertainty import latin_hypercube, read_variables, values_at

if TYPE_CHECKING:
    from mlsysim.search.kinds import Kind
    from mlsysim.search.space import Columns, Space

KEYS = ("uncertain", "rank_by", "confidence", "samples", "seed")
"""What a space file may say about uncertainty."""

_SAMPLES = 200
_MOST_SAMPLES = 100_000
_MARKS = ("valid", "feasible", "wall")
_DRAW = "draw"
_NUMBERS = {
    "confidence": Input.of("confidence", "(0, 1]", 0.5),
    "samples": Input.of("samples", f"whole [1, {_MOST_SAMPLES}]", _SAMPLES),
    "seed": Input("seed", low=0, high=2**63 - 1, whole=True, default=0),
}

UNCERTAINTY_SCHEMA: dict[str, Any] = {
    "uncertain": {"type": "object", "additionalProperties": {"type": ["string", "object"]}},
    "rank_by": {"type": "string", "pattern": r"^p[0-9.]+$", "default": "p50"},
    "confidence": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
    "samples": {"type": "integer", "minimum": 1, "maximum": _MOST_SAMPLES, "default": _SAMPLES},
    "seed": {"type": "integer", "minimum": 0, "default": 0},
}
"""JSON Schema of the keys."""


@dataclass(frozen=True)
class Uncertainty:
    """What varies, as text by name, and how designs are judged over it."""

    inputs: Mapping[str, str]
    rank_by: float = 50.0
    confidence: float = 0.5
    samples: int = _SAMPLES
    seed: int = 0

    def document(self) -> dict[str, Any]:
        return {**self.__dict__, "inputs": dict(self.inputs)}


def certain(space: Space, what: str) -> None:
    """Refuse a space with uncertain inputs, for what does not look at draws."""
    if space.uncertain is not None:
        raise InputError(
            f"{what} takes a space without uncertain inputs; sweep() ranks {space.name!r} by a percentile."
        )


def read_uncertainty(
    table: Mapping[str, Any], inputs: Mapping[str, Input], fixed: Mapping[str, Any], columns: Any, where: str
) -> Uncertainty | None:
    """What a space file says about uncertainty; None where it says nothing."""
    named = table.get("uncertain", {})
    if not isinstance(named, Mapping):
        raise InputError("'uncertain' of a space must be a table, [uncertain].")
    if not named:
        for key in KEYS[1:]:
            if key in table:
                raise InputError(f"{key!r} of the space {where} has no meaning without a table [uncertain].")
        return None
    for name in named:
        owner = str(name).split(".")[0]
        if owner in columns:
            raise InputError(f"{name!r} of {where} is uncertain, but {owner!r} is on an axis; vary what is fixed.")
        if name in fixed:
            raise InputError(f"The input {name!r} of {where} is both fixed and uncertain.")
    texts = {str(name): str(_read(name, text, where)) for name, text in named.items()}
    read_variables(where, inputs, fixed, texts)
    rank, numbers = _rank(table.get("rank_by", "p50")), {}
    for name, spec in _NUMBERS.items():
        numbers[name] = type(spec.default)(read_value("a space", name, spec, table.get(name, spec.default)))
    return Uncertainty(texts, rank, **numbers)


def _read(name: Any, text: Any, where: str) -> Any:
    try:
        return read_uncertain(text)
    except InputError as error:
        raise type(error)(f"The {name!r} of {where}: {error}", **error.details) from None


def _rank(value: Any) -> float:
    with suppress(ValueError):
        if isinstance(value, str) and value.startswith("p") and 0 <= float(value[1:]) <= 100:
            return float(value[1:])
    raise InputError(f'\'rank_by\' must be a percentile from "p0" to "p100", got {str(value)[:40]!r}.')


class Outputs(dict[str, Any]):
    """Outputs of points, and which of ``subject_to`` hold there, decided draw by draw (by text, in their order)."""

    def __init__(self, held: dict[str, Any]) -> None:
        super().__init__()
        self.held = held


def at_draws(kind: Kind, space: Space, columns: Columns) -> Outputs:
    """Outputs of points at the ranking percentile, and whether they are feasible with the asked confidence."""
    assert space.uncertain is not None
    rank, confidence = space.uncertain.rank_by, space.uncertain.confidence
    parts: list[dict[str, Any]] = []
    helds: list[list[Any]] = [[] for _ in space.subject_to]
    for _, found in _tiles(kind, space, columns):
        allowed = found["feasible"]
        feasible = allowed.mean(axis=1) >= confidence
        for held, decided in zip(helds, found["held"], strict=True):
            allowed = allowed & decided
            held.append(allowed.mean(axis=1) >= confidence)
        marks = (found["valid"].all(axis=1), feasible, np.where(feasible, 0, _most_frequent(found["wall"])))
        values = {name: percentiles(values, (rank,))[0] for name, values in found["values"].items()}
        parts.append(dict(zip(_MARKS, marks, strict=True)) | values)
    outputs = Outputs({e.text: np.concatenate(held) for e, held in zip(space.subject_to, helds, strict=True)})
    for name in parts[0]:
        if all(name in part for part in parts):
            outputs[name] = np.concatenate([part[name] for part in parts])
    return outputs


def describe(kind: Kind, space: Space, columns: Columns) -> list[dict[str, Any]]:
    """For each point percentiles and mean of every output, and how often it is feasible, what rejects it and (where the kind
    says) what binds it."""
    binding = kind.declared("binding")
    found: list[dict[str, Any]] = []
    names = (*(f"p{share}" for share in PERCENTILES), "mean")
    for size, tile in _tiles(kind, space, columns, binding):
        spread = {
            name: np.column_stack([*percentiles(values, PERCENTILES), _means(values)]).tolist()
            for name, values in tile["values"].items()
        }
        for i in range(size):
            allowed, walls = tile["feasible"][i], tile["wall"][i]
            rejected = {wall: share for wall, share in _frequencies(walls).items() if wall != "0"}
            for expression, held in zip(space.subject_to, tile["held"], strict=True):
                lost = float(np.mean(allowed & ~held[i]))
                if lost:
                    rejected[expression.text] = lost
                allowed = allowed & held[i]
            point = {
                "percentiles": {
                    name: {k: v if np.isfinite(v) else None for k, v in zip(names, rows[i], strict=True)}
                    for name, rows in spread.items()
                },
                "feasible_probability": float(np.mean(allowed)),
                "rejection_probability": rejected,
            }
            if binding is not None:
                point["binding_probability"] = _frequencies(np.where(walls > 0, walls, tile["binding"][i]))
            found.append(point)
    return found


def percentiles(values: Any, shares: tuple[float, ...]) -> list[Any]:
    """Percentiles of each row over its known values, interpolated; not a number where a row has none."""
    # Unknown values are sorted behind the known ones.
    rows, ends = np.sort(values, axis=1), np.maximum(np.count_nonzero(~np.isnan(values), axis=1) - 1, 0)
    found = []
    for share in shares:
        place = ends * share / 100
        low = place.astype(np.int64)
        pair = np.take_along_axis(rows, np.column_stack([low, np.minimum(low + 1, ends)]), axis=1)
        found.append(_between(pair[:, 0], pair[:, 1], place - low))
    return found


def _between(low: Any, high: Any, part: Any) -> Any:
    """A part of the way from one to the other; equal neighbours as they are, infinite ones without becoming NaN."""
    with np.errstate(invalid="ignore"):
        inside = low + (high - low) * part
    return np.where((low == high) | (part == 0), low, np.where(np.isinf(high), high, inside))


def _means(values: Any) -> Any:
    """The mean of each row over its known values; exactly the value where there is one."""
    known = ~np.isnan(values)
    count = np.count_nonzero(known, axis=1)
    filled = np.where(known, values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=1) / count
    low = np.where(known, values, np.inf).min(axis=1)
    high = np.where(known, values, -np.inf).max(axis=1)
    return np.where(low == high, low, mean)


def _tiles(kind: Kind, space: Space, columns: Columns, binding: Any = None) -> Any:
    """Points a few at a time with all their draws: how many, and arrays of (points x draws)."""
    wide, evaluate = _widened(space, kind.inputs), kind.declared("evaluate")
    draws = wide.axes[-1].size
    step = max(1, TILE // draws)
    for first in range(0, columns.size, step):
        indices = columns.indices[first : first + step]
        size = indices.size
        part = wide.decode((indices[:, None] * draws + np.arange(draws)).ravel())
        outputs = evaluate(wide, part)

        def square(values: Any, shape: tuple[int, int] = (size, draws)) -> Any:
            return np.broadcast_to(values, (math.prod(shape),)).reshape(shape)

        found = {mark: square(outputs.get(mark, True)) for mark in _MARKS}
        found["held"] = [square(expression(among(outputs, part, wide.fixed))) for expression in wide.subject_to]
        found["values"] = {
            name: square(values).astype(np.float64)
            for name, values in outputs.items()
            if name not in _MARKS and np.asarray(values).dtype.kind in "biuf"
        }
        if binding is not None:
            found["binding"] = square(binding(wide, part))
        yield size, found


def _widened(space: Space, inputs: Mapping[str, Input]) -> Space:
    """The space with its draws as the last axis, made once."""
    if "wide" not in space.cache:
        stated = space.uncertain
        assert stated is not None
        where = repr(space.name)
        certain, variables = read_variables(where, inputs, space.fixed, stated.inputs)
        shares = latin_hypercube({v.name: v.distribution for v in variables}, stated.samples, stated.seed)
        numbers = zip(*(v.draws(shares[v.name]) for v in variables), strict=True)
        drawn = [values_at(certain, variables, row) for row in numbers]
        # A part of an entry makes another entry, which needs no reading.
        axis = Axis(
            _DRAW,
            {
                v.owner: tuple(
                    row[v.owner] if v.path else read_value(where, v.owner, inputs.get(v.owner), row[v.owner])
                    for row in drawn
                )
                for v in variables
            },
        )
        fixed = {name: value for name, value in space.fixed.items() if name not in axis.columns}
        space.cache["wide"] = replace(space, axes=(*space.axes, axis), fixed=fixed, uncertain=None)
    return space.cache["wide"]


def _most_frequent(walls: Any) -> Any:
    """The wall that rejects most draws of each point; 0 where none does."""
    best, count = np.zeros(walls.shape[0], dtype=np.int64), np.zeros(walls.shape[0], dtype=np.int64)
    for wall in np.unique(walls).tolist():
        if wall:
            times = np.count_nonzero(walls == wall, axis=1)
            best, count = np.where(times > count, wall, best), np.maximum(times, count)
    return best


def _frequencies(walls: Any) -> dict[str, float]:
    """The share of each wall."""
    found, counts = np.unique(walls, return_counts=True)
    return {str(wall): count / walls.size for wall, count in zip(found.tolist(), counts.tolist(), strict=True)}
