"""What each operation answers, as JSON Schema: made of the records and dataclasses that write the answers, and of ``[answer]`` in description.toml
where a document is put together of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NotRequired, TypedDict

from pydantic import WithJsonSchema

from mlsysim.api.requests import file
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
_WRITTEN = (
    *(Answer, Equation, FlagChange, Limit, Metric, Plan, Saving),
    *(BatchingResult, OptimizeResult, ParallelismResult, PlacementResult, SweepResult),
)
"""Records that documents hold."""


def _kinds() -> dict[str, Any]:
    """What operations and addresses answer, by name: types, as the description writes them."""
    said = file("description.toml")
    known: dict[str, Any] = {"Any": Any, **{kind.__name__: kind for kind in _WRITTEN}}
    known["Quantified"] = Annotated[Any, WithJsonSchema({"$ref": f"{_PLACE}Quantity"})]
    made: Any = TypedDict
    for name, (about, *entries) in said["answer"].items():
        fields = dict(entry.split(": ") for entry in entries)
        kinds = {field: eval(kind, known) for field, kind in fields.items()}
        known[name] = made(name, {f.rstrip("?"): NotRequired[k] if f.endswith("?") else k for f, k in kinds.items()})
        known[name].__doc__ = about
    return {name: eval(kind, known) for name, kind in said["answers"].items()}


def responses() -> tuple[Callable[[str], dict[str, Any]], dict[str, Any]]:
    """The schema of what an operation answers by its name, and the schemas that they refer to."""
    schemas = Schemas(_PLACE, {Plan: {"$ref": f"{_PLACE}Plan"}})
    found = {name: schemas.of(kind) for name, kind in _kinds().items()}
    made = schemas.made
    # Of an answer in summary some parts are left out; a sweep is told without how long it took.
    made["Answer"]["required"] = [name for name in made["Answer"]["required"] if name not in LEFT_OUT]
    swept = made["SweepResult"]
    for name in TIMINGS:
        swept["properties"].pop(name)
    why = "what binds the best point, and where its time and memory go"
    swept["properties"] |= {
        "pareto_size": {"type": "integer", "description": "points of the front; the longest are cut"},
        "explanation": {"type": ["object", "null"], "description": why},
    }
    swept["required"] = list(swept["properties"])
    assert set(Row.__annotations__) == {"name", *made["Changed"]["properties"]}
    return found.__getitem__, made
