"""What an answer is made of: parts, the memory bar, limits, changes, scores, and demands that were checked."""

from typing import Literal

from pydantic import Field

from mlsysim.cases.ledger import RESERVE
from mlsysim.plans.plan import Plan
from mlsysim.plans.ruling import State
from mlsysim.units.fields import Record, Words
from mlsysim.walls.document import Document


class Part(Record):
    """One part of a time or of a memory; in seconds or bytes."""

    label: str
    value: float
    wall: int | None = None


class MemoryBar(Record):
    """What fills one accelerator; bytes. ``of`` names it where a plan has several kinds."""

    capacity: float
    parts: tuple[Part, ...]
    of: str = ""

    @property
    def used(self) -> float:
        return sum(part.value for part in self.parts)

    @property
    def reserve(self) -> float:
        """What is kept free on purpose, and counts as used."""
        return sum(part.value for part in self.parts if part.label == RESERVE)

    @property
    def spare(self) -> float:
        """What is left; below zero where it does not fit."""
        return self.capacity - self.used


class Limit(Record):
    """A wall that limits the plan: by how much it leads over the next (a factor), and a sentence. ``limit`` names what stopped
    the plan, where that is no wall: memory, a rate, a time, a budget."""

    wall: int
    name: str
    margin: float | None = None
    sentence: Words
    limit: str | None = None


class Change(Document, Record):
    """A change of the plan and what it does to its main metric (a factor; below 1 is less) and to what it costs. ``words`` say what to
    do, ``effects`` what comes of it, and the sentence both."""

    words: str
    effects: str
    sentence: str
    metric: str
    factor: float
    cost_factor: float | None = None
    plan: Plan


class Score(Record):
    """One wall in the scorecard."""

    wall: int
    name: str
    domain: str
    status: Literal["binds", "holds", "fails", "not asked"]
    value: str = ""
    note: str = ""
    load: float | None = Field(default=None, description="how much of the wall is used, 1 is at the wall")


class Checked(Record):
    """An assertion of the plan, checked."""

    metric: str
    sentence: str
    passed: bool
    odds: float | None = Field(default=None, description="probability that a limit is kept, where there is an interval")
    limit: str = Field(
        default="", description="what is limited: deadline, budget, ttft ... or the metric of an assertion"
    )
    asked: str = Field(default="", description="the demand in words, such as a deadline of 12 days")
    bound: float | None = Field(default=None, description="where the limit lies, in the unit of the metric's value")
    least: bool = Field(default=False, description="whether it is a least value, and not a most")

    @property
    def certain(self) -> bool:
        """Whether the limit lies outside of the 90 % interval: else it is too close to call."""
        return self.odds is None or not 0.05 < self.odds < 0.95

    @property
    def state(self) -> State:
        """One of three: the limit is kept, it is not, or its place within the interval leaves that open."""
        return "open" if not self.certain else "holds" if self.passed else "fails"
