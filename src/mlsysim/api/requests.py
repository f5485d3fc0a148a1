"""What each operation takes. The classes check requests, and the JSON Schemas of both faces are made from them.

``train``, ``serve`` and ``rl`` take the keys of a plan that matter to their task, beside each other; which those are, and what they mean,
is the plan's own schema. Requests that hold a plan take its keys beside the rest as well, and a comparison those that both plans share.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema

from mlsysim.errors import InputError
from mlsysim.launch.targets import TARGETS
from mlsysim.plans.collectives import OPS, SIZES
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import Short
from mlsysim.plans.planned import task_for
from mlsysim.plans.schema import SAID, in_words, key_named, record_of
from mlsysim.search.kinds import KINDS
from mlsysim.units.fields import Record
from mlsysim.zoo.files import shipped

_NAME = 400
Detail = Literal["full", "summary"]
ZooKind = Literal["hardware", "models", "systems", "grids"]

Change = Annotated[bool, Field(description="look for the cheapest change")]
HowMuch = Annotated[Detail | None, Field(description="summary: fewer parts")]
Filter = Annotated[str, Field(max_length=200, description="field, comparison, value: memory.capacity>=80GB")]


def file(name: str) -> dict[str, Any]:
    """A table of this folder."""
    return shipped("mlsysim.api", name)


_SPACE = file("description.toml")["space"]
_SPACE["properties"]["kind"]["enum"] = [name for name in KINDS if name != "kernel"]
WallName = Annotated[
    str,
    Field(max_length=_NAME, coerce_numbers_to_str=True),
    WithJsonSchema({"type": ["integer", "string"], "description": "number or name of one"}),
]
SpaceTable = Annotated[dict[str, Any], WithJsonSchema(_SPACE)]


def apart(request: type[Record], given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What of a document are fields of the request, or nothing that is known, and what are keys of a plan that stand beside them."""
    known = Plan.leaves()
    loose = {
        name: value
        for name, value in given.items()
        if name not in request.model_fields
        and (key_named(str(name), known) or name in Plan.model_fields or name == "layout")
    }
    return {name: value for name, value in given.items() if name not in loose}, loose


def _check_named(request: type[Record], parts: dict[str, Any], within: str = "") -> None:
    """Refuse parts of a plan without a model or what it is on."""
    for part, names in (("workload", ("model",)), ("hardware", ("on", "name"))):
        held = parts.get(part) or {}
        if not isinstance(held, dict) or not any(name in held for name in names):
            example = "Llama3_70B" if part == "workload" else "8xH100 or 512xH100"
            raise InputError(
                f"{request.__name__} needs the {within + names[0]!r} field, which was not given: such as {example}.",
                field=within + names[0],
            )


class Loose(Record):
    """A request one of whose fields holds keys of a plan, which may stand beside it."""

    within: ClassVar[tuple[str, ...]] = ("plan",)

    @classmethod
    def model_validate(cls, obj: Any, **kwargs: Any) -> Self:
        own, loose = apart(cls, obj)
        for name in cls.within:
            held = own.get(name) or {}
            if loose and isinstance(held, dict) and (held or len(cls.within) == 1):
                own[name] = loose | held
        try:
            return super().model_validate(own, **kwargs)
        except InputError as error:
            if "needs the" in str(error):
                # What a plan lacks is said by the name that stands in a request.
                for name in cls.within:
                    if name != "settings" and isinstance(own.get(name), dict):
                        _check_named(cls, Plan.in_parts(own[name]), "" if loose else f"{name}.")
            raise

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The schema, with room for keys of the plan beside the rest."""
        whole = super().model_json_schema(*args, **kwargs)
        beside = {"description": "keys of the plan may stand beside the rest, under any of their names"}
        needed = [name for name in whole.get("required", ()) if name != "plan"]
        for name in {"Plan"} & whole.get("$defs", {}).keys():
            whole["$defs"][name] |= {"additionalProperties": beside, "required": []}
        return {**whole, "additionalProperties": beside, "required": needed}


class OfAPlan(Loose):
    """A plan and what is asked of it."""

    plan: Plan


class EvaluateRequest(OfAPlan):
    """A whole plan: training, serving or one pass."""

    change: Change = True
    detail: HowMuch = None


class FlatRequest(EvaluateRequest):
    """A plan of one task, its keys beside each other under any of their names."""

    task: ClassVar[str]

    @classmethod
    def model_validate(cls, obj: Any, **kwargs: Any) -> Self:
        """The request in a document, its errors in the words of the flat document."""
        own = {name: value for name, value in obj.items() if name in ("change", "detail")}
        flat = {name: value for name, value in obj.items() if name not in own}
        if flat.setdefault("task", cls.task) != cls.task:
            raise InputError(f"This operation is for {cls.task}; evaluate takes plans of every task.", field="task")
        try:
            parts = Plan.in_parts(flat)
            _check_named(cls, parts)
            plan = Plan.model_validate(parts)
        except InputError as error:
            raise in_words(error, lambda leaf: f"the {leaf.flat!r} field", Plan.leaves()) from None
        return super().model_validate({**own, "plan": plan}, **kwargs)

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The keys of the plan that matter to the task, and what goes beside them."""
        return _flat(super().model_json_schema(*args, **kwargs), (cls.task,), "on")


def _flat(whole: dict[str, Any], tasks: tuple[str, ...], *needed: str) -> dict[str, Any]:
    """The schema of a request with the keys of a plan that matter to some tasks in the place of the plan."""
    kinds = whole["$defs"]
    leaves = [leaf for leaf in Plan.leaves().values() if {*tasks} & {*leaf.tasks} and leaf.key not in SAID]
    found = {leaf.flat: _property(kinds, leaf.key) for leaf in leaves}
    found["model"] = {**found["model"], "description": "a name of the zoo, such as Llama3_70B; no path"}
    own = {name: schema for name, schema in whole["properties"].items() if name != "plan"}
    layout = {**kinds["Plan"]["properties"]["parallelism"], "description": "the keys of parallelism together"}
    return {
        **whole,
        "properties": {**found, "layout": layout, **own},
        "required": ["model", *needed],
        "additionalProperties": False,
        "$defs": {name: kind for name, kind in kinds.items() if name in ("Assertion", "ParallelismPart")},
    }


def _property(kinds: dict[str, Any], key: str) -> dict[str, Any]:
    """The schema of a key of a plan, found through the parts that it stands in."""
    record: Any = Plan
    *path, last = key.split(".")
    for step in path:
        record = record_of(record.model_fields[step].annotation)
    return kinds[record.__name__]["properties"][last]


class TrainRequest(FlatRequest):
    """A training run."""

    task: ClassVar[str] = "training"


class ServeRequest(FlatRequest):
    """A served language model."""

    task: ClassVar[str] = "serving"


class RlRequest(FlatRequest):
    """A step of post-training."""

    task: ClassVar[str] = "rl"


class PlanRequest(OfAPlan):
    """A goal: a deadline for a training run, or requests a second and limits for a service. ``on`` are chips to compare."""

    on: str | tuple[str, ...] = Field(
        (), max_length=_NAME, description="chips to compare, such as H100,B200; the usual"
    )
    detail: HowMuch = None

    @classmethod
    def model_validate(cls, obj: Any, **kwargs: Any) -> Self:
        """The request in a document; the first chip stands in the plan."""
        own = {name: value for name, value in obj.items() if name in ("on", "fleet", "chip", "detail")}
        flat = {name: value for name, value in obj.items() if name not in own}
        chips = next((own.pop(name) for name in ("on", "fleet", "chip") if name in own), ())
        if isinstance(chips, str):
            chips = [chip.strip() for chip in chips.split(",") if chip.strip()]
        if not isinstance(chips, list | tuple) or not all(isinstance(chip, str) for chip in chips):
            raise InputError(f"'on' takes names of chips, such as \"H100,B200\", got {str(chips)[:60]}.", field="on")
        known = Plan.leaves()
        keys = {key: name for name in flat if (key := key_named(str(name), known)) is not None}
        flat.setdefault("task", task_for(flat))
        if "workload.model" not in keys and "workload" not in flat:
            _check_named(cls, {"hardware": {"on": ""}})
        try:
            first = chips[0] if chips else "H100"
            plan = Plan.model_validate({**flat, "on": first})
        except InputError as error:
            raise in_words(error, lambda leaf: f"the {leaf.flat!r} field", known) from None
        return super().model_validate({**own, "plan": plan, "on": chips}, **kwargs)

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The keys of a plan of training or serving, and the chips."""
        return _flat(super().model_json_schema(*args, **kwargs), ("training", "serving"))


class ReviewRequest(Loose):
    """A launch command, script or configuration as text; what it leaves out may stand beside it as keys of a plan."""

    within = ("settings",)

    launch: str = Field(min_length=1, max_length=1_000_000, description="text of the command, script or file")
    on: str | None = Field(None, max_length=_NAME, description="the fleet, such as 64xH100, where the text names none")
    model: str | None = Field(None, max_length=_NAME, description="the model, where the text names none of the zoo")
    target: str | None = Field(None, max_length=60, description="megatron, vllm ...; found from the text")
    settings: dict[str, Any] = Field(
        {}, description="keys of a plan that the text leaves open: prompt_tokens, seq_len ..."
    )


class ExplainRequest(OfAPlan):
    """A plan and a metric of its answer."""

    metric: str | None = Field(None, max_length=_NAME, description="such as mfu, latency or tco; all without one")


class CompareRequest(Loose):
    """Two plans of one task, or ``plans`` as a list of two; keys that both share may stand beside them. A plan may be text: 16xH200, or Llama3_70B@512xH100."""

    within = ("first", "second")

    first: Plan
    second: Plan
    detail: HowMuch = None

    @classmethod
    def model_validate(cls, obj: Any, **kwargs: Any) -> Self:
        plans = obj.get("plans")
        if isinstance(plans, list):
            if len(plans) != len(cls.within):
                raise InputError(f"'plans' has {len(plans)}; compare takes two, and sweep any number.", field="plans")
            obj = {name: value for name, value in obj.items() if name != "plans"} | dict(
                zip(cls.within, plans, strict=True)
            )
        texts = {name: obj[name].rpartition("@") for name in cls.within if isinstance(obj.get(name), str)}
        read = {name: {"model": model, "on": on} if mark else {"on": on} for name, (model, mark, on) in texts.items()}
        return super().model_validate({**obj, **read}, **kwargs)


class OptimizeRequest(Loose):
    """The best layout, batch, place or point of a space."""

    what: Literal["parallelism", "batching", "placement", "space"] = Field(
        description="parallelism: layout of a training plan; batching: batch of a service in a latency limit; placement: "
        "region in which a run costs and emits least; space: best point of a design space"
    )
    plan: Plan | None = Field(None, description="for all but space")
    space: SpaceTable | None = Field(None, description="for space: a table as")
    sla: Short | None = Field(None, description="batching: limit on the 99th percentile of a request; 10 s")
    qps: float | None = Field(None, gt=0, le=1e9, description="batching: requests a second; 1")
    carbon_tax: float | None = Field(None, ge=0, le=1e9, description="placement: USD for a tonne of CO2e; 100")
    objective: Literal["cost", "carbon"] | None = Field(None, description="placement: what to make least; cost")
    regions: tuple[str, ...] | None = Field(None, min_length=1, max_length=200, description="placement: grids; all")


class SweepRequest(Loose):
    """A plan with some keys at several values, or every point of a design space."""

    plan: Plan | None = Field(None, description="with over; its keys may stand beside it")
    over: dict[str, list[Any]] | None = Field(
        None, description='keys of the plan at several values, such as {"tp": [1, 2, 4, 8]}'
    )
    space: SpaceTable | None = None

    @classmethod
    def model_validate(cls, obj: Any, **kwargs: Any) -> Self:
        """The request in a document; what a sweep varies need not be given beside it."""
        if "over" not in obj and "space" not in obj:
            obj = _varied(obj)
        over, plan = obj.get("over"), obj.get("plan")
        if isinstance(over, dict) and isinstance(plan, dict | None):
            said = Plan.in_parts({**apart(cls, obj)[1], **(plan or {})})
            for name, part in (("model", "workload"), ("on", "hardware")):
                values = over.get(name)
                if isinstance(values, list) and values and not {"on", "name", "model"} & (said.get(part) or {}).keys():
                    obj = {**obj, **({name: values[0]} if plan is None else {"plan": {**obj["plan"], name: values[0]}})}
        made = super().model_validate(obj, **kwargs)
        if (made.space is None) == (made.over is None) or (made.over is None) != (made.plan is None):
            raise InputError(
                "Give a plan and 'over' (keys of it at several values), or a 'space'.",
                field="space" if made.over is None else "plan",
            )
        return made


def _varied(obj: dict[str, Any]) -> dict[str, Any]:
    """A document whose keys at several values, beside a plan or in it, are what it varies."""
    plan = obj.get("plan")
    over: dict[str, Any] = {}
    for held in (obj, plan if isinstance(plan, dict) else {}):
        over |= {
            name: each
            for name, each in held.items()
            if isinstance(each, list) and not any(isinstance(one, dict) for one in each)
        }
    if not over:
        return obj
    rest = {name: each for name, each in obj.items() if name not in over}
    if isinstance(plan, dict):
        rest["plan"] = {name: each for name, each in plan.items() if name not in over}
    return {**rest, "over": over}


def _several(given: Any) -> Any:
    """One text is a list of one."""
    return (given,) if isinstance(given, str) else given


class ZooRequest(Record):
    """What the zoo has, or one entry."""

    kind: ZooKind | None = Field(None, description="a part of the zoo; counts of all parts without one")
    name: str | None = Field(
        None,
        min_length=1,
        max_length=_NAME,
        description="one entry, with its sources, or a part of several names, such as llama",
    )
    filter: Annotated[tuple[Filter, ...], BeforeValidator(_several)] = Field((), max_length=16)
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

    number: WallName | None = None


class SchemaRequest(Record):
    """A JSON Schema."""

    type: str = Field(
        default="plan",
        max_length=60,
        description="plan, hardware, workload, space.training ..., or a resolver such as ServingModel",
    )


class ExportRequest(OfAPlan):
    """A plan as something to launch."""

    to: str | None = Field(
        None,
        min_length=1,
        max_length=60,
        description="the target; megatron or vllm",
        json_schema_extra={"enum": list(TARGETS)},
    )
    command: str | None = Field(
        None, max_length=60, description="what runs inside kubernetes or slurm, such as vllm or megatron"
    )
