"""``Lab``: one lab as data, read from one TOML file. Types and checks; what it computes is in :mod:`mlsysim.labs.scope`.

    parameters   a value, or a list of which each student gets one (chosen from the student's id)
    compute      calls of resolvers, plans, and searches of a parameter, each with a name
    values       named results with a unit: what texts quote as {name} and what the page shows
    controls     which parameters the student moves, over which values
    charts       drawn of what was computed
    questions    of the stages predict, compute, build and explain (:mod:`mlsysim.labs.question`)

A right answer is always an expression over what the engine computes, and a design is right when its targets hold: a file
holds no answers.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from mlsysim.errors import InputError, unknown_name
from mlsysim.labs.expression import formula
from mlsysim.labs.question import ID, Column, Control, Question, Stage
from mlsysim.labs.quoting import PLACEHOLDER, quoted
from mlsysim.units.fields import Record
from mlsysim.walls.catalog import RESOLVERS

Track = Literal["foundations", "serving", "training", "fleet", "design"]
TRACKS: dict[Track, str] = {
    "foundations": "Foundations",
    "serving": "Serving",
    "training": "Training",
    "fleet": "Fleet and operations",
    "design": "Design",
}
"""The tracks in the order of the page."""


class Compute(Record):
    """One thing to compute: a resolver with inputs, a plan, the least or the best value of a parameter, or a copy.

    Texts among the inputs that start with ``=`` are expressions; in others ``{name}`` is replaced.
    """

    resolver: str | None = None
    inputs: dict[str, Any] = Field(default_factory=dict)
    plan: dict[str, Any] | None = None
    least: str | None = Field(
        default=None, description="parameter whose least value is sought for which 'holds' is true"
    )
    start: int = Field(default=1, ge=0, description="where the search of 'least' starts")
    stop: int = Field(default=4096, le=10**7, description="where it ends; 'holds' must be true from some value on")
    holds: str | None = None
    best: str | None = Field(default=None, description="parameter whose best value of 'among' is sought")
    among: list[Any] = Field(default_factory=list, max_length=64)
    lowest: str | None = None
    highest: str | None = None
    copy_of: str | None = Field(default=None, description="another thing computed, with the parameters of 'changed'")
    changed: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_kind(self) -> Compute:
        given = [name for name in ("resolver", "plan", "least", "best", "copy_of") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of resolver, plan, least, best and copy_of, got {', '.join(given) or 'none'}")
        if self.resolver is not None and self.resolver not in RESOLVERS:
            raise ValueError(str(unknown_name("resolver", self.resolver, RESOLVERS)))
        if self.least is not None and self.holds is None:
            raise ValueError("'least' needs 'holds', the expression that becomes true")
        if self.best is not None and (not self.among or (self.lowest is None) == (self.highest is None)):
            raise ValueError("'best' needs 'among' and one of 'lowest' and 'highest'")
        return self


class Value(Column):
    """A named result."""

    label: str = ""
    wall: int | None = Field(default=None, ge=1)
    changed: dict[str, str] = Field(default_factory=dict, description="parameters that differ, as expressions")


class Axis(Control):
    """A parameter and the values that a table or a map goes through."""

    values: list[str | int | float] = Field(min_length=2, max_length=16)


class Chart(Record):
    """Something drawn of what was computed."""

    kind: Literal[
        "roofline", "waterfall", "memory", "tornado", "scorecard", "heat_map", "regime_map", "pareto", "timeline", "table"
    ]  # fmt: skip
    title: str
    of: list[str] = Field(default_factory=list, description="names of what was computed")
    labels: list[str] = Field(default_factory=list, description="a label for each")
    chips: list[str] = Field(default_factory=list, description="expressions of chips whose roofs are drawn")
    parts: list[Column] = Field(default_factory=list, description="of a waterfall or of a memory bar")
    capacity: str | None = None
    rows: Axis | None = None
    columns: Axis | None = None
    cells: list[Column] = Field(default_factory=list, description="columns of a table, or the cell of a map")
    schedule: dict[str, Any] = Field(default_factory=dict)


class Lab(Record):
    """A whole lab."""

    id: str = Field(pattern=ID)
    number: int = Field(ge=1, le=999)
    version: int = Field(ge=1, le=255)
    title: str
    track: Track
    minutes: int = Field(ge=10, le=45)
    walls: list[int] = Field(min_length=1)
    summary: str
    objectives: list[str] = Field(min_length=2)
    after: list[str] = Field(default_factory=list, description="labs to do before this one")
    parameters: dict[str, Any] = Field(default_factory=dict)
    compute: dict[str, Compute]
    values: dict[str, Value]
    controls: list[Control] = Field(min_length=1)
    show: list[str] = Field(min_length=2, description="values on the page, in this order")
    charts: list[Chart] = Field(min_length=1)
    questions: list[Question] = Field(max_length=24)
    introduction: str
    task: str
    explanation: str
    reflect: str = Field(default="", description="a question without a grade, answered in words")

    @model_validator(mode="after")
    def _holds_together(self) -> Lab:
        named = [*self.parameters, *self.compute, *self.values]
        twice = {name for name in named if named.count(name) > 1}
        if twice:
            raise ValueError(f"the name {sorted(twice)[0]!r} is given twice")
        self._known(self.show, list(self.values), "value to show")
        moved = [control.parameter for control in self.controls]
        searched = [found for c in self.compute.values() for found in (c.least, c.best) if found]
        axes = [axis.parameter for chart in self.charts for axis in (chart.rows, chart.columns) if axis]
        changed = [key for table in self._changes() for key in table]
        designed = [move.parameter for question in self.questions for move in question.moves]
        self._known([*moved, *searched, *axes, *changed, *designed], list(self.parameters), "parameter")
        self._known([name for chart in self.charts for name in chart.of], list(self.compute), "thing computed")
        for text in self.expressions():
            self._known(formula(text).names, named, f"name for {text!r}")
        for text in (*self.texts(), *(text for q in self.questions for text in q.texts())):
            self._known([name.split(".")[0] for name in quoted(text)], named, "placeholder")
        ids = [question.id for question in self.questions]
        if len(set(ids)) != len(ids):
            raise ValueError("two questions have the same id")
        for stage in get_args(Stage):
            if not any(question.stage == stage for question in self.questions):
                raise ValueError(f"there is no question of the stage {stage!r}")
        return self

    def _known(self, names: Any, valid: list[str], what: str) -> None:
        for name in names:
            if name not in valid:
                raise ValueError(str(unknown_name(f"{what} of the lab {self.id!r}", name, valid)))

    def _changes(self) -> list[dict[str, str]]:
        computed = [each.changed for each in self.compute.values()] + [each.changed for each in self.values.values()]
        return [*computed, *(dict(question.given) for question in self.questions)]

    def texts(self) -> list[str]:
        """The texts around the questions."""
        return [self.introduction, self.task, self.explanation]

    def expressions(self) -> list[str]:
        """Every expression of the lab."""
        found: list[str | None] = [value.of for value in self.values.values()]
        for table in self._changes():
            found += table.values()
        for computed in self.compute.values():
            found += [computed.holds, computed.lowest, computed.highest]
            found += _inside(computed.inputs) + _inside(computed.plan)
        for chart in self.charts:
            found += [*(column.of for column in (*chart.parts, *chart.cells)), *chart.chips, chart.capacity]
        found += [text for question in self.questions for text in question.expressions()]
        return [text for text in found if text]

    @property
    def graded(self) -> list[Question]:
        """The questions that count, in their order."""
        return [question for question in self.questions if question.is_graded]

    @property
    def predictions(self) -> list[Question]:
        """The questions that are asked before anything is computed."""
        return [question for question in self.questions if not question.is_graded]

    @property
    def points(self) -> int:
        """What can be reached."""
        return sum(question.points for question in self.graded)

    def question(self, name: str) -> Question:
        """A question by its id."""
        known = {question.id: question for question in self.questions}
        if name not in known:
            raise unknown_name(f"question of the lab {self.id!r}", name, known)
        return known[name]


def _inside(value: Any) -> list[str]:
    """Expressions among nested inputs."""
    if isinstance(value, (dict, list)):
        return [text for item in (value.values() if isinstance(value, dict) else value) for text in _inside(item)]
    if isinstance(value, str):
        return [value[1:]] if value.startswith("=") else PLACEHOLDER.findall(value)
    return []


def lab_from_text(text: str, name: str = "the lab file") -> Lab:
    """A lab of the text of its file."""
    try:
        return Lab.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{name} is no TOML: {error}.") from None


@lru_cache(maxsize=1)
def _shipped() -> dict[str, Lab]:
    folder = Path(str(files("mlsysim.labs"))) / "content"
    found = [lab_from_text(path.read_text(encoding="utf-8"), path.name) for path in sorted(folder.glob("*.toml"))]
    return {lab.id: lab for lab in sorted(found, key=lambda lab: lab.number)}


def labs() -> list[Lab]:
    """All labs, in the order in which they are meant to be done."""
    return list(_shipped().values())


def lab(name: str) -> Lab:
    """A lab by its id, or by its number in the order of the list."""
    found = _shipped()
    numbered = {str(each.number): each for each in found.values()}
    if name not in found and name.isdigit() and name not in numbered:
        raise InputError(f"There is no lab {name[:20]}; they are numbered 1 to {len(found)}.", field="lab")
    if name not in {*found, *numbered}:
        raise unknown_name("lab", name, found, "`mlsysim labs list` has them.")
    return numbered.get(name) or found[name]
