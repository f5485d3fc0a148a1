"""What each operation takes. The classes check requests, and the JSON Schemas of both faces are made from them.

``train`` and ``serve`` take the keys of a plan that matter to their task, beside each other; which those are, and what they mean,
is the plan's own schema.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, WithJsonSchema

from mlsysim.errors import InputError
from mlsysim.launch.targets import TARGETS
from mlsysim.plans.collectives import OPS, SIZES
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import Short
from mlsysim.plans.schema import SAID, in_words, record_of
from mlsysim.search.kinds import KINDS
from mlsysim.units.fields import Record
from mlsysim.zoo.files import shipped

_NAME = 400
Detail = Literal["full", "summary"]
ZooKind = Literal["hardware", "models", "systems", "grids"]

Change = Annotated[bool, Field(description="look for the cheapest change")]
HowMuch = Annotated[
    Detail | None,
    Field(description="summary: fewer parts"),
]
Filter = Annotated[str, Field(max_length=200, description="field, comparison, value: memory.capacity>=80GB")]


def file(name: str) -> dict[str, Any]:
    """A table of this folder."""
    return shipped("mlsysim.api", name)


_SPACE = file("description.toml")["space"]
_SPACE["properties"]["kind"]["enum"] = [name for name in KINDS if name != "kernel"]
SpaceTable = Annotated[dict[str, Any], WithJsonSchema(_SPACE)]


class EvaluateRequest(Record):
    """A whole plan: training, serving or one pass."""

    plan: Plan
    change: Change = True
    detail: HowMuch = None


class FlatRequest(EvaluateRequest):
    """A plan of one task, its keys beside each other under any of their names."""

    task: ClassVar[str]

    @classmethod
    def model_validate(cls, obj: Any, **kwargs: Any) -> Self:
        """The request in a document, its errors in the words of the flat document."""
        own = {name: value for name, value in obj.items() if name in cls.model_fields and name != "plan"}
        flat = {name: value for name, value in obj.items() if name not in own}
        if flat.setdefault("task", cls.task) != cls.task:
            raise InputError(f"This operation is for {cls.task}; evaluate takes plans of every task.", field="task")
        try:
            parts = Plan.in_parts(flat)
            for part, names in (("workload", ("model",)), ("hardware", ("on", "name"))):
                if not any(name in (parts.get(part) or ()) for name in names):
                    raise InputError(
                        f"{cls.__name__} needs the {names[0]!r} field, which was not given.", field=names[0]
                    )
            plan = Plan.model_validate(parts)
        except InputError as error:
            raise in_words(error, lambda leaf: f"the {leaf.flat!r} field", Plan.leaves()) from None
        return super().model_validate({**own, "plan": plan}, **kwargs)

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The keys of the plan that matter to the task, and what goes beside them."""
        whole = super().model_json_schema(*args, **kwargs)
        kinds = whole["$defs"]
        leaves = [leaf for leaf in Plan.leaves().values() if cls.task in leaf.tasks and leaf.key not in SAID]
        found = {leaf.flat: _property(kinds, leaf.key) for leaf in leaves}
        found["model"] = {**found["model"], "description": "a name of the zoo, such as Llama3_70B; no path"}
        own = {name: schema for name, schema in whole["properties"].items() if name != "plan"}
        layout = {**kinds["Plan"]["properties"]["parallelism"], "description": "the keys of parallelism together"}
        return {
            **whole,
            "properties": {**found, "layout": layout, **own},
            "required": ["model", "on"],
            "$defs": {name: kind for name, kind in kinds.items() if name in ("Assertion", "ParallelismPart")},
        }


def _property(kinds: dict[str, Any], key: str) -> dict[str, Any]:
    """The schema of a key of a plan, found through the parts that it stands in."""
    record: Any = Plan
    *path, last = key.split(".")
    for step in path:
        record = record_of(record.model_fields[step].annotation)
    found: dict[str, Any] = kinds[record.__name__]["properties"][last]
    return found


class TrainRequest(FlatRequest):
    """A training run."""

    task: ClassVar[str] = "training"


class ServeRequest(FlatRequest):
    """A served language model."""

    task: ClassVar[str] = "serving"


class RlRequest(FlatRequest):
    """A step of post-training."""

    task: ClassVar[str] = "rl"


class ExplainRequest(Record):
    """A plan and a metric of its answer."""

    plan: Plan
    metric: str | None = Field(None, max_length=_NAME, description="such as mfu, latency or tco; all without one")


class CompareRequest(Record):
    """Two plans of one task."""

    first: Plan
    second: Plan
    detail: HowMuch = None


class OptimizeRequest(Record):
    """The best layout, batch, place, fleet or point of a space."""

    what: Literal["parallelism", "batching", "placement", "fleet", "space"] = Field(
        description="parallelism: layout of a training plan; batching: batch of a service in a latency limit; placement: "
        "grid for a run; fleet: least for a deadline, or for requests and limits; space: best point of a design space"
    )
    plan: Plan | None = Field(None, description="for all but space")
    space: SpaceTable | None = Field(None, description="for space: a table as")
    sla: Short | None = Field(None, description="batching: limit on the 99th percentile of a request; 10 s")
    qps: float | None = Field(None, gt=0, le=1e9, description="batching: requests a second; 1")
    carbon_tax: float | None = Field(None, ge=0, le=1e9, description="placement: USD for a tonne of CO2e; 100")
    regions: tuple[str, ...] | None = Field(None, min_length=1, max_length=200, description="placement: grids; all")
    chips: tuple[str, ...] | None = Field(None, min_length=1, max_length=16, description="fleet: chips to compare")


class SweepRequest(Record):
    """Every point of a design space."""

    space: SpaceTable


class ZooRequest(Record):
    """What the zoo has, or one entry."""

    kind: ZooKind | None = Field(None, description="a part of the zoo; counts of all parts without one")
    name: str | None = Field(None, min_length=1, max_length=_NAME, description="one entry, with its sources")
    filters: tuple[Filter, ...] = Field((), max_length=16)
    sort: str | None = Field(None, max_length=100, description="field to sort by, largest first")
    limit: int = Field(100, ge=1, le=1000, description="entries of a listing")
    offset: int = Field(0, ge=0, le=10**6, description="entries to leave out first")


class CollectivesRequest(Record):
    """A collective on a fleet by the size of its message."""

    on: str | None = Field(None, max_length=_NAME, description="fleet, such as 64xH100@NDR; that of the log")
    op: str | None = Field(None, max_length=60, description=f"{', '.join(OPS)}")
    size: str | None = Field(None, max_length=200, description=f"{SIZES} doubles")
    group: int | None = Field(None, ge=1, description="ranks; all")
    stride: int = Field(1, ge=1, description="every so-many-th rank")
    log: str | None = Field(None, max_length=1_000_000, description="text of nccl-tests, to compare")


class WallsRequest(Record):
    """All walls, or the card of one."""

    number: int | None = Field(None, ge=1)


class SchemaRequest(Record):
    """A JSON Schema."""

    type: str = Field(
        default="plan",
        max_length=60,
        description="plan, hardware, workload, space.training ..., or a resolver such as ServingModel",
    )


class ExportRequest(Record):
    """A plan as something to launch."""

    plan: Plan
    to: str = Field(min_length=1, max_length=60, description="the target", json_schema_extra={"enum": list(TARGETS)})
    command: str | None = Field(
        None, max_length=60, description="what runs inside kubernetes or slurm, such as vllm or megatron"
    )
