"""What each operation answers, as JSON Schema: made of the records and dataclasses that write the answers, and of typed dictionaries where an
answer is put together here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NotRequired, TypedDict

from pydantic import WithJsonSchema

from mlsysim.api.service import LEFT_OUT
from mlsysim.launch.edits import Saving
from mlsysim.launch.review import FlagChange
from mlsysim.plans.answer import Answer
from mlsysim.plans.compare import Row
from mlsysim.plans.explained import Equation
from mlsysim.plans.metrics import Metric
from mlsysim.plans.pieces import Limit
from mlsysim.plans.plan import Plan
from mlsysim.search.batching import BatchingResult
from mlsysim.search.optimize import OptimizeResult
from mlsysim.search.parallelism import ParallelismResult
from mlsysim.search.placement import PlacementResult
from mlsysim.search.sweep import TIMINGS, SweepResult
from mlsysim.walls.document_schema import Schemas

_PLACE = "#/components/schemas/"
Quantified = Annotated[Any, WithJsonSchema({"$ref": f"{_PLACE}Quantity"})]


class Candidate(TypedDict):
    """The least fleet or service of a chip, or the reason why there is none."""

    chip: str
    accelerators: int | None
    reason: str | None
    headline: str | None
    metrics: NotRequired[dict[str, Metric]]
    plan: Plan | None
    layout: NotRequired[str | None]
    replicas: NotRequired[int | None]
    price_a_day: NotRequired[float]
    headroom: NotRequired[float]
    headroom_qps: NotRequired[float]
    odds: NotRequired[float]


class Planned(TypedDict):
    """The least fleets for a goal: a sentence, the whole answer of the best, and one candidate or more for each chip."""

    sentence: str
    best: Answer | None
    candidates: list[Candidate]
    tokens: NotRequired[float]


class Explanation(TypedDict):
    """The equations behind a metric, or all, with values, assumptions and sources."""

    metric: Metric | None
    equations: list[Equation]
    assumptions: dict[str, str]
    sources: dict[str, str]
    subject: str
    binding: Limit


class Changed(TypedDict):
    """A metric of both plans, and the factor from the first to the second."""

    label: str
    first: str
    second: str
    factor: float


class Compared(TypedDict):
    """Two answers and what changes between them, by the path of each metric."""

    changes: dict[str, Changed]
    sentences: list[str]
    first: Answer
    second: Answer


class Point(TypedDict):
    """A combination of settings, and what was found."""

    settings: dict[str, Any]
    feasible: bool
    headline: str
    metrics: NotRequired[dict[str, Metric]]
    binding: NotRequired[Limit]
    layout: NotRequired[dict[str, Any]]
    percentiles: NotRequired[dict[str, dict[str, Any]]]


class Varied(TypedDict):
    """A plan with keys at several values."""

    over: dict[str, list[Any]]
    best: dict[str, Any] | None
    best_by: str | None
    points: list[Point]


class Reviewed(TypedDict):
    """A launch file beside the best settings: what it gives away, and what to write instead."""

    target: str
    feasible: bool
    headline: str
    metric: str
    now: Metric | None
    best: Metric | None
    loss: float
    saves: Saving | None
    problems: list[str]
    changes: list[FlagChange]
    paste: list[str]
    formats: list[FlagChange]
    unread: list[str]
    warnings: list[str]
    details: dict[str, Any]
    plan: Plan
    best_plan: Plan | None


class Exported(TypedDict):
    """A launch file as text."""

    target: str
    feasible: bool
    headline: str
    text: str


class MessageSize(TypedDict):
    """A size of message: time with its interval, algorithm and bandwidth; what was measured where a log is given."""

    size: Quantified
    time: Quantified
    low: Quantified
    high: Quantified
    algorithm: str
    algorithm_bandwidth: Quantified
    bus_bandwidth: Quantified
    measured: NotRequired[Quantified]
    measured_bus_bandwidth: NotRequired[Quantified]
    error: NotRequired[float]


class Collectives(TypedDict):
    """A collective by the size of its message."""

    op: str
    fleet: str
    ranks: int
    nodes: int
    ranks_in_a_node: int
    rows: list[MessageSize]
    interval: str
    assumptions: dict[str, str]
    median_error: float
    within_interval: tuple[int, int]


class ZooCounts(TypedDict):
    """How many entries each part of the zoo has."""

    zoo: dict[str, dict[str, int]]


class ZooListing(TypedDict):
    """Entries of a part of the zoo, as texts by column."""

    total: int
    offset: int
    entries: list[dict[str, str]]


class ZooEntry(TypedDict):
    """One entry with its sources; its fields are those of its kind, which `schema` has."""

    zoo: str
    entry: dict[str, Any]


class WallCard(TypedDict):
    """A wall: what bounds, the equation, the question that it answers."""

    number: int
    name: str
    resolver: str
    bounds: str
    equation: str
    reference: str
    question: str
    domain: str
    inputs: NotRequired[dict[str, str]]
    fallacies: NotRequired[list[str]]


class WallCards(TypedDict):
    """All walls."""

    walls: list[WallCard]


class Health(TypedDict):
    """Whether the server answers, and what it can do."""

    status: str
    operations: list[str]


_PLANS = ("train", "serve", "rl", "evaluate")
_KINDS: dict[str, Any] = {
    **dict.fromkeys(_PLANS, Answer),
    "plan": Planned, "explain": Explanation, "compare": Compared, "review": Reviewed, "export": Exported, "collectives": Collectives,
    "optimize": ParallelismResult | BatchingResult | PlacementResult | OptimizeResult,
    "sweep": Varied | SweepResult, "zoo": ZooCounts | ZooListing | ZooEntry, "walls": WallCards | WallCard, "schema": dict,
    "zoo_overview": ZooCounts, "zoo_list": ZooListing, "zoo_entry": ZooEntry, "walls_list": WallCards, "wall": WallCard, "schema_of": dict,
    "openapi": dict, "health": Health,
}  # fmt: skip
"""What operations and addresses answer, by name."""


def responses() -> tuple[Callable[[str], dict[str, Any]], dict[str, Any]]:
    """The schema of what an operation answers by its name, and the schemas that they refer to."""
    schemas = Schemas(_PLACE, {Plan: {"$ref": f"{_PLACE}Plan"}})
    found = {name: schemas.of(kind) for name, kind in _KINDS.items()}
    made = schemas.made
    # Of an answer in summary some parts are left out; a sweep is told without how long it took.
    made["Answer"]["required"] = [name for name in made["Answer"]["required"] if name not in LEFT_OUT]
    swept = made["SweepResult"]
    for name in TIMINGS:
        swept["properties"].pop(name)
    swept["properties"] |= {
        "pareto_size": {"type": "integer", "description": "points of the front; the longest are cut"},
        "explanation": {
            "type": ["object", "null"],
            "description": "what binds the best point, and where its time and memory go",
        },
    }
    swept["required"] = list(swept["properties"])
    assert set(Row.__annotations__) == {"name", *made["Changed"]["properties"]}
    return found.__getitem__, made
