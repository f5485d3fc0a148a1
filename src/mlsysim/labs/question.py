"""What a lab asks: a number, a choice, a design or words; and the slips that lead to wrong answers, by name.

    number   an expression of the right answer, a unit and a tolerance
    choice   options, one of which the expression names
    design   parameters to move over some values until every target holds; any plan that does is right
    words    a prediction in the student's own words, kept and shown beside what came out

A misconception is an expression too: of a number or a choice the answer that it leads to, of a design whether a plan that
misses a target shows it. Which one a student met is what the page explains and what a result code carries.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from mlsysim.errors import InputError
from mlsysim.labs.expression import formula
from mlsysim.units.fields import Record

ID = r"^[a-z][a-z0-9_]{0,39}$"
Stage = Literal["predict", "compute", "build", "explain"]
Kind = Literal["number", "choice", "design", "words"]
MOST_DESIGNS = 256
MOST_SLIPS = 15


def _checked(text: str) -> str:
    try:
        formula(text)
    except InputError as error:
        raise ValueError(str(error)) from None
    return text


Expression = Annotated[str, AfterValidator(_checked)]


class Column(Record):
    """A column of a table or an axis of a chart: an expression, the unit it is shown in, and a label."""

    of: Expression
    label: str
    unit: str = ""


class Control(Record):
    """A parameter that the student moves over some values."""

    parameter: str
    label: str
    values: list[str | int | float] = Field(min_length=2, max_length=64)


class Option(Record):
    """One of several answers."""

    value: str
    text: str


class Misconception(Record):
    """A known way to a wrong answer: what it leads to, what it is called, and what is wrong about it."""

    of: Expression
    when: Expression = Field(default="True", description="where it leads elsewhere than the right answer does")
    name: str = Field(max_length=60)
    says: str


class Target(Column):
    """What a design has to reach: a value within a bound, or, without one, something that has to be true."""

    at_most: Expression | None = None
    at_least: Expression | None = None

    @model_validator(mode="after")
    def _one_bound(self) -> Target:
        if self.at_most is not None and self.at_least is not None:
            raise ValueError(f"the target {self.label!r} has one bound, at_most or at_least")
        return self


class Goal(Record):
    """What tells a good design from one that merely holds."""

    lowest: Expression | None = None
    highest: Expression | None = None
    label: str
    unit: str = ""

    @model_validator(mode="after")
    def _one_way(self) -> Goal:
        if (self.lowest is None) == (self.highest is None):
            raise ValueError(f"the goal {self.label!r} has one of 'lowest' and 'highest'")
        return self

    @property
    def of(self) -> str:
        return self.lowest or self.highest or ""


class Question(Record):
    """A question, the expression of its answer, and what to say to those who miss it."""

    id: str = Field(pattern=ID)
    stage: Stage
    text: str
    answer: Expression | None = None
    unit: str = ""
    tolerance: float = Field(default=0.02, ge=0, le=0.5)
    options: list[Option] = Field(default_factory=list, max_length=8)
    moves: list[Control] = Field(default_factory=list, max_length=6, description="what a design chooses")
    given: dict[str, Expression] = Field(default_factory=dict, description="parameters that a design finds fixed")
    targets: list[Target] = Field(default_factory=list, max_length=6, description="what a design has to reach")
    goal: Goal | None = Field(default=None, description="what a design that holds is compared by")
    outcome: str = Field(default="", description="what came out, beside a prediction in words")
    slips: list[Misconception] = Field(default_factory=list, max_length=MOST_SLIPS)
    hint: str = ""
    points: int = Field(default=1, ge=1, le=10)

    @property
    def kind(self) -> Kind:
        if self.targets:
            return "design"
        return "choice" if self.options else "words" if self.outcome else "number"

    @property
    def is_choice(self) -> bool:
        return self.kind == "choice"

    @property
    def is_graded(self) -> bool:
        """Predictions are kept, not graded: being wrong there is how one learns."""
        return self.stage != "predict"

    @model_validator(mode="after")
    def _holds_together(self) -> Question:
        name, kind = f"question {self.id!r}", self.kind
        if self.is_graded and not self.hint:
            raise ValueError(f"{name} is graded, so it needs a hint")
        if len({option.value for option in self.options}) != len(self.options) or len(self.options) == 1:
            raise ValueError(f"{name} needs at least two options, each with its own value")
        if (self.answer is None) != (kind in ("design", "words")):
            raise ValueError(f"{name} needs one of 'answer', 'targets' and 'outcome'")
        if (kind == "design") != (self.stage == "build") or (kind == "words" and self.is_graded):
            raise ValueError(f"{name} is a {kind}: a design belongs to the stage 'build', words to 'predict'")
        if (kind == "design") != bool(self.moves):
            raise ValueError(f"{name} needs 'moves' and 'targets' together")
        if math.prod(len(move.values) for move in self.moves) > MOST_DESIGNS:
            raise ValueError(f"{name} has more than {MOST_DESIGNS} designs; give its moves fewer values")
        if len({slip.name for slip in self.slips}) != len(self.slips):
            raise ValueError(f"{name} names a misconception twice")
        return self

    def expressions(self) -> list[str]:
        """Every expression of the question."""
        found = [self.answer, *self.given.values(), *(text for slip in self.slips for text in (slip.of, slip.when))]
        for target in self.targets:
            found += [target.of, target.at_most, target.at_least]
        return [text for text in (*found, self.goal.of if self.goal else None) if text]

    def texts(self) -> list[str]:
        """Every text of the question that may quote values."""
        said: list[Any] = [self.text, self.hint, self.outcome, *(option.text for option in self.options)]
        return [*said, *(slip.says for slip in self.slips), *(target.label for target in self.targets)]
