"""A design space: axes, fixed inputs, constraints and goals. A point is an integer, its digits are places on the axes.

    kind = "node"
    minimize = "usd_per_mtoken"
    constraints = ["capacity <= 40 * bandwidth"]        # before anything is evaluated
    subject_to = ["latency_s <= 0.05"]                  # on outputs, after
    [fixed]
    model = "Llama3_70B"
    [axes]
    bandwidth = {range = [1, 8], step = 0.5, unit = "TB/s"}

The first axis is the slowest digit. Nothing is materialised: the size is a product, and points that survive the
constraints are found digit by digit, so that a constraint on the first axes discards whole blocks at once.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.errors import InputError, unknown_name
from mlsysim.search.axes import Axis
from mlsysim.search.expression import Expression
from mlsysim.search.kinds import Kind, kind_named
from mlsysim.search.space_table import MOST_TOP, OBJECTIVES, read_table, read_toml
from mlsysim.search.uncertainty import Uncertainty
from mlsysim.units.ops import taken
from mlsysim.units.records import dataclass
from mlsysim.walls.inputs import read_input
from mlsysim.zoo.files import example

_FORMAT = 1
_LARGEST = 10**18
_BLOCK = 65_536
_TOP = 10


class Columns(dict[str, Any]):
    """Values of each input at some points; ``positions`` has their places on the axes and ``size`` their number."""

    def __init__(self, indices: Any) -> None:
        super().__init__()
        self.indices, self.size = indices, indices.size
        self.positions: dict[str, Any] = {}


@dataclass(frozen=True)
class Goal:
    """An output and whether more of it is better."""

    output: str
    larger: bool

    @property
    def sign(self) -> float:
        """What makes smaller values the better ones."""
        return -1.0 if self.larger else 1.0

    @property
    def direction(self) -> str:
        return "maximize" if self.larger else "minimize"


UNNAMED = "space"
"""What a space is called that has no name of its own."""


@dataclass(frozen=True)
class Space:
    """What may be chosen, what is given, what is allowed and what is wanted."""

    kind: str
    axes: tuple[Axis, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    constraints: tuple[Expression, ...] = ()
    subject_to: tuple[Expression, ...] = ()
    goal: Goal | None = None
    pareto: tuple[Goal, ...] = ()
    top: int = _TOP
    name: str = UNNAMED
    description: str = ""
    uncertain: Uncertainty | None = None

    @classmethod
    def from_toml(cls, path: str | Path) -> Space:
        """The space of a file, or of an example by its name: ``space:chip-design``."""
        path = example(path, "space")
        return cls.from_dict(read_toml(path), name=path.stem)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], name: str = UNNAMED) -> Space:
        """A space from a table with the keys of a space file."""
        space = cls(**read_table(table, name))
        if space.size > _LARGEST:
            raise InputError(f"The space {space.name!r} has {space.size:.3g} points; at most 10^18 can be numbered.")
        for expression in space.constraints:
            expression.check_names([*space.homes, *space.fixed], repr(space.name))
        space = space.subjected(())
        return space.with_goals(**{key: table.get(key) for key in ("minimize", "maximize", "pareto", "top")})

    def subjected(self, texts: Iterable[Any]) -> Space:
        """The same space with further constraints on outputs; all of them are checked."""
        found = (*self.subject_to, *(Expression(text) for text in texts))
        outputs = kind_named(self.kind).outputs
        varied = () if self.uncertain is None else self.uncertain.inputs
        for expression in found if outputs else ():
            expression.check_names([*outputs, *self.homes, *self.fixed, *varied], repr(self.name))
        return replace(self, subject_to=found)

    def with_goals(
        self, *, minimize: str | None = None, maximize: str | None = None, pareto: Any = None, top: int | None = None
    ) -> Space:
        """The same space with other goals; what is not given stays."""
        kind = kind_named(self.kind)
        if minimize is not None and maximize is not None:
            raise InputError("A space has one objective: 'minimize' or 'maximize', not both.")
        wanted = minimize if minimize is not None else maximize
        if wanted is not None:
            goal = Goal(_goal(kind, wanted).output, maximize is not None)
        else:
            goal = self.goal or _goal(kind, kind.objective)
        front = self.pareto
        if pareto is not None:
            names = pareto.split(",") if isinstance(pareto, str) else pareto
            if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
                raise InputError("'pareto' must be a list of outputs.")
            front = tuple(_goal(kind, name.strip()) for name in names)
            low, high = OBJECTIVES
            if not low <= len({goal.output for goal in front}) == len(front) <= high:
                raise InputError(f"A Pareto front needs {low} to {high} different outputs, got {', '.join(names)}.")
        count = self.top if top is None else top
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_TOP:
            raise InputError(f"'top' must be a whole number between 1 and {MOST_TOP:,}, got {str(count)[:40]!r}.")
        return replace(self, goal=goal, pareto=front, top=count)

    def document(self) -> dict[str, Any]:
        """All that a worker needs, as JSON."""
        return {
            "format": _FORMAT,
            "name": self.name,
            "kind": self.kind,
            "axes": [{"name": a.name, "columns": {c: list(v) for c, v in a.columns.items()}} for a in self.axes],
            "fixed": dict(self.fixed),
            "constraints": [expression.text for expression in self.constraints],
            "subject_to": [expression.text for expression in self.subject_to],
            "goal": None if self.goal is None else [self.goal.output, self.goal.larger],
            "pareto": [[goal.output, goal.larger] for goal in self.pareto],
            "top": self.top,
            "uncertain": None if self.uncertain is None else self.uncertain.document(),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Space:
        try:
            goal, uncertain = document["goal"], document["uncertain"]
            return cls(
                kind=kind_named(document["kind"]).name,
                axes=tuple(Axis(a["name"], {c: tuple(v) for c, v in a["columns"].items()}) for a in document["axes"]),
                fixed=dict(document["fixed"]),
                constraints=tuple(map(Expression, document["constraints"])),
                subject_to=tuple(map(Expression, document["subject_to"])),
                goal=None if goal is None else Goal(*goal),
                pareto=tuple(Goal(*pair) for pair in document["pareto"]),
                top=document["top"],
                name=document["name"],
                uncertain=None if uncertain is None else Uncertainty(**uncertain),
            )
        except (KeyError, TypeError, AttributeError):
            raise InputError("This is not the document of a space.") from None

    @cached_property
    def digest(self) -> str:
        """A fingerprint of everything that decides the result."""
        text = json.dumps([version("mlsysim"), self.document()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def size(self) -> int:
        """Points before constraints."""
        return math.prod(axis.size for axis in self.axes)

    @cached_property
    def cache(self) -> dict[str, Any]:
        """Room for the tables of an evaluator; it stays in the process."""
        return {}

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Points between two neighbours along each axis."""
        sizes = [axis.size for axis in self.axes]
        return tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))

    @cached_property
    def homes(self) -> dict[str, int]:
        """Which axis each input is on."""
        return {column: number for number, axis in enumerate(self.axes) for column in axis.columns}

    @cached_property
    def tables(self) -> dict[str, Any]:
        """Values of each input in the order of its axis, as an array."""
        return {column: _array(values) for axis in self.axes for column, values in axis.columns.items()}

    def values(self, column: str) -> tuple[Any, ...]:
        """Values of an input in the order of its axis; a fixed input has one."""
        if column in self.homes:
            return self.axes[self.homes[column]].columns[column]
        if column in self.fixed:
            return (self.fixed[column],)
        raise unknown_name(f"input of {self.name!r}", column, [*self.homes, *self.fixed])

    def decode(self, indices: Any) -> Columns:
        """Values of every input on an axis at these points."""
        rest = np.asarray(indices, dtype=np.int64)
        columns = Columns(rest)
        places = []
        for axis in reversed(self.axes):
            quotient = rest // axis.size
            places.append(rest - quotient * axis.size)
            rest = quotient
        for axis, place in zip(self.axes, reversed(places), strict=True):
            for column in axis.columns:
                columns[column] = taken(self.tables[column], place)
                columns.positions[column] = place
        return columns

    def point(self, index: int) -> dict[str, Any]:
        """The values of one point, as plain numbers and text."""
        if not 0 <= index < self.size:
            raise InputError(f"The space {self.name!r} has {self.size:,} points; there is no point {index}.")
        return {
            column: axis.columns[column][index // stride % axis.size]
            for axis, stride in zip(self.axes, self.strides, strict=True)
            for column in axis.columns
        }

    def admitted(self, start: int, stop: int) -> Iterator[Any]:
        """Points from ``start`` to before ``stop`` that the constraints allow, in order, in blocks."""
        if not self.constraints:
            for first in range(start, stop, _BLOCK):
                yield np.arange(first, min(first + _BLOCK, stop), dtype=np.int64)
            return
        if start < stop and not all(self._holds(expression, None, 0) for expression in self._by_depth[0]):
            return
        yield from self._expand(0, np.zeros(1, dtype=np.int64), start, stop)

    def allowed(self, indices: Any) -> Any:
        """Which of these points the constraints allow."""
        held = np.ones(len(indices), dtype=bool)
        for expression in self.constraints:
            held &= self._holds(expression, indices, len(self.axes))
        return held

    @cached_property
    def _by_depth(self) -> dict[int, list[Expression]]:
        """Constraints by the number of leading digits that decide them."""
        found: dict[int, list[Expression]] = {depth: [] for depth in range(len(self.axes) + 1)}
        for expression in self.constraints:
            homes = [self.homes.get(name.split(".")[0], -1) for name in expression.names]
            found[max(homes, default=-1) + 1].append(expression)
        return found

    def _expand(self, depth: int, prefixes: Any, start: int, stop: int) -> Iterator[Any]:
        """Points below prefixes of ``depth`` digits."""
        if depth == len(self.axes):
            yield prefixes
            return
        size, stride = self.axes[depth].size, self.strides[depth]
        low, high = start // stride, (stop - 1) // stride
        step = max(1, _BLOCK // size)
        for first in range(0, prefixes.size, step):
            parents = prefixes[first : first + step]
            longer = (parents[:, None] * size + np.arange(size)).ravel()
            if longer[0] < low or longer[-1] > high:
                longer = longer[(longer >= low) & (longer <= high)]
            for expression in self._by_depth[depth + 1]:
                if longer.size:
                    held = np.broadcast_to(self._holds(expression, longer, depth + 1), longer.shape)
                    longer = longer[held]
            if longer.size:
                yield from self._expand(depth + 1, longer, start, stop)

    def _holds(self, expression: Expression, prefixes: Any, depth: int) -> Any:
        def value(name: str) -> Any:
            column, number = name.split(".")[0], self.homes.get(name.split(".")[0])
            if number is None:
                return self.column(name)[0] if "." in name else self.fixed[column]
            place = prefixes // math.prod(axis.size for axis in self.axes[number + 1 : depth]) % self.axes[number].size
            return self.column(name).take(place)

        return expression(value)

    def column(self, name: str) -> Any:
        """Values of an input, or of a field of the zoo entries that it names, in the order of its axis."""
        column, _, attribute = name.partition(".")
        if not attribute:
            return self.tables[column]
        key = f"field {name}"
        if key not in self.cache:
            self.cache[key] = _array(tuple(self._field(column, attribute, value) for value in self.values(column)))
        return self.cache[key]

    def _field(self, column: str, attribute: str, value: Any) -> Any:
        spec = kind_named(self.kind).inputs.get(column)
        what = f"A constraint of {self.name!r} reads {column}.{attribute}"
        if spec is None:
            raise InputError(f"{what}, but {column!r} is no zoo entry.")
        found = getattr(read_input(self.name, column, spec, value), attribute, None)
        if isinstance(found, bool) or not isinstance(found, (int, float, str)):
            raise InputError(f"{what}, which {value!r} does not give.")
        return found


def points_of(space: Space, indices: Any, outputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Numbers, inputs and outputs of points; an output that is not known is None."""
    lists = {
        name: np.broadcast_to(values, indices.shape).tolist()
        for name, values in outputs.items()
        if name not in ("valid", "feasible", "wall")
    }

    def known(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return [
        {"point": index, "inputs": space.point(index), "outputs": {name: known(v[i]) for name, v in lists.items()}}
        for i, index in enumerate(indices.tolist())
    ]


def _array(values: tuple[Any, ...]) -> Any:
    if all(isinstance(value, (int, float, str)) for value in values):
        text, real = (any(isinstance(value, kind) for value in values) for kind in (str, float))
        return np.array(values, dtype=np.float64 if real and not text else None)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _goal(kind: Kind, name: Any) -> Goal:
    if kind.outputs and name not in kind.outputs:
        raise unknown_name(f"output of kind {kind.name!r}", name, kind.outputs)
    return Goal(str(name), name in kind.larger)
