"""``Plan``: what is to run, on what, where, how it is split, and what is demanded of it.

A plan is typed data and nothing else: names instead of objects, quantities as text with a unit. The same record is a
scenario file, the arguments of a command, the body of a request and the state of the explorer. Keys may be written by any name
of :mod:`mlsysim.vocabulary`, in their parts or beside each other; unknown ones are refused with the nearest valid one.

    task          training, serving, inference (one pass) or rl (post-training); found from the other parts where it is not said
    workload      model, batch, sequence length, precision, tokens to train on
    hardware      a fleet in one string (``on``), or a chip or node with a number
    parallelism   degrees and choices of a layout, or "auto"
    serving       traffic, engine, limits on latency
    rl            post-training: prompts, samples, lengths, how trainer and generator share the accelerators
    ops           region, duration, deadline, budget, prices
    constraints   assertions on metrics of the answer
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from mlsysim.cases.rent import machine_price
from mlsysim.errors import InputError, either, nearest
from mlsysim.plans.ops_part import OpsPart
from mlsysim.plans.plan_parts import Constraints, HardwarePart, ParallelismPart, ServingPart, WorkloadPart
from mlsysim.plans.rl_part import RlPart
from mlsysim.plans.schema import INSTEAD, Leaf, gathered, key_named, leaves, record_of, said, tasks_text
from mlsysim.units.fields import Record
from mlsysim.units.registry import Quantity
from mlsysim.vocabulary import PARTS
from mlsysim.zoo.layouts import mapping

Task = Literal["training", "serving", "inference", "rl"]


def _named(task: Any) -> Any:
    """The task of a command that is given instead."""
    return {"train": "training", "serve": "serving"}.get(task, task) if isinstance(task, str) else task


def _or_text(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [{"type": "string", "examples": ["auto", "tp=8,pp=4"]}, {"$ref": schema.pop("$ref")}]


class Plan(Record):
    """A whole plan."""

    part_of: ClassVar[tuple[str, str]] = ("A plan", "")

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield from said(self, super().__repr_args__())

    name: str = Field(default="plan", max_length=200, description="what it is called")
    description: str = Field(default="", max_length=4000, description="what it is for")
    task: Annotated[Task | None, BeforeValidator(_named)] = Field(
        default=None, description="training, serving, inference or rl; inferred if left out"
    )
    workload: WorkloadPart
    hardware: HardwarePart
    parallelism: ParallelismPart = Field(default_factory=ParallelismPart, json_schema_extra=_or_text)
    serving: ServingPart | None = None
    rl: RlPart | None = None
    ops: OpsPart = Field(default_factory=OpsPart)
    constraints: Constraints = Field(default_factory=Constraints)

    @model_validator(mode="before")
    @classmethod
    def _in_parts(cls, value: Any) -> Any:
        return _rented(cls.in_parts(value)) if isinstance(value, dict) else value

    @classmethod
    def in_parts(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that may stand beside each other, under any of their names, as a document of parts."""
        return gathered(cls, _spread(settings, cls.leaves()), cls.leaves())

    @classmethod
    @cache
    def leaves(cls) -> dict[str, Leaf]:
        """Every field that holds a value, by key."""
        return leaves(cls)

    @model_validator(mode="after")
    def _agrees(self) -> "Plan":
        if self.task in ("training", "inference") and self.serving is not None:
            raise ValueError(_foreign(self.serving, "serving", self.task))
        if self.task not in (None, "rl") and self.rl is not None:
            raise ValueError(_foreign(self.rl, "rl", self.task))
        return self

    @property
    def kind(self) -> Task:
        """The task, found where it is not said: serving traffic means serving, tokens or a layout training."""
        if self.task is not None:
            return self.task
        if self.rl is not None:
            return "rl"
        if self.serving is not None:
            return "serving"
        split = self.parallelism
        trains = split.mode == "auto" or any(
            getattr(split, name) is not None
            for name in ("zero", "recompute", "micro_batch", "micro_batches", "offload", "dp", "pp")
        )
        return "training" if trains or self.workload.tokens is not None or self.workload.optimizer else "inference"

    def replacing(self, **parts: Any) -> "Plan":
        """A copy with other fields in some parts, None for left out: ``plan.replacing(workload={"precision": "fp8"})``.

        A field that is given takes the place of what may not stand beside it (``micro_batches`` of ``micro_batch``).
        """
        document = self.document()
        for part, fields in parts.items():
            if part not in type(self).model_fields:
                raise InputError(f"A plan has no part {part!r}.", field=part)
            if isinstance(fields, dict):
                record = record_of(type(self).model_fields[part].annotation)
                document[part] = _replaced(document.get(part) or {}, record, fields)
            elif fields is None:
                document.pop(part, None)
            else:
                document[part] = fields
        return Plan.model_validate(document)

    def with_settings(self, settings: Mapping[str, Any]) -> "Plan":
        """A copy with other values for some keys, each by any of its names: ``plan.with_settings({"tp": 8, "isl": 2000})``."""
        if not settings:
            return self
        parts = self.in_parts({"task": self.kind} | dict(settings))
        if "task" not in settings:
            del parts["task"]
        return self.replacing(**parts)

    def document(self) -> dict[str, Any]:
        """The plan as plain data, without what was left out; quantities as text. ``Plan(**plan.document())`` is equal."""
        return _plain(self)

    to_dict = document


def _spread(document: Mapping[str, Any], known: Mapping[str, Leaf]) -> dict[str, Any]:
    """A document of settings with a layout that is one text, ``"tp=8,pp=4,zero=1"`` or as people write it (``"TP8 PP4"``, ``"DEP8"``), as the
    settings that it holds. Every face takes it: ``--layout``, ``layout=`` in Python, a key of files and requests, an axis of a sweep."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        is_layout = PARTS.get(str(name), name) == "parallelism" and isinstance(value, str)
        for other, held in (_settings(value, known) if is_layout else {name: value}).items():
            if other in found:
                key = key_named(str(other), known) or str(other)
                raise InputError(f"The {key!r} field is given twice.", record="Plan", field=key)
            found[other] = held
    return found


def _settings(text: str, known: Mapping[str, Leaf]) -> dict[str, Any]:
    if text.strip() == "auto":
        return {"mode": "auto"}
    offered = {k: leaf for k, leaf in known.items() if k.startswith("parallelism.") or k == "serving.replicas"}
    found: dict[str, Any] = {}
    degrees = mapping(text) if "=" not in text else None
    for piece in text.split(",") if degrees is None else [f"{name}={degree}" for name, degree in degrees.items()]:
        name, mark, value = piece.partition("=")
        key = key_named(name, offered)
        if not mark:
            words = f"The 'layout' field takes pairs such as tp=8,pp=4, got {piece.strip()[:40]!r}."
        elif key is None:
            names = [leaf.flat for leaf in offered.values()]
            close = nearest(name, names)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            words = f"The 'layout' field knows {', '.join(names)}, got {name.strip()[:40]!r}{hint}"
        else:
            found[offered[key].flat] = value.strip()
            continue
        raise InputError(words, record="Plan", field="layout")
    return found


def _rented(document: dict[str, Any]) -> dict[str, Any]:
    """The document of a plan with the price at which a cloud's machines are rented, where it says nothing of money itself."""
    hardware, ops = (document.get(part) or {} for part in ("hardware", "ops"))
    if (
        not (isinstance(hardware, dict) and isinstance(ops, dict))
        or {"price", "cost_scope"} & {*ops}
        or "chip" in hardware
    ):
        return document
    price = machine_price(hardware.get("on"))
    return document if price is None else document | {"ops": ops | {"price": price}}


def _foreign(part: Record, own: str, task: str) -> str:
    """What is said of keys that another task has."""
    names = list(_plain(part)) or [f"the part {own}"]
    belong = "it belongs" if len(names) == 1 else "they belong"
    return f"{tasks_text(task)} has no use for {either(names, 'and')}: {belong} to {tasks_text(own)}."


def _replaced(old: dict[str, Any], part: Any, fields: dict[str, Any]) -> dict[str, Any]:
    new = {part.field_named(name): value for name, value in fields.items()}
    given = {name for name, value in new.items() if value is not None}
    gone = {pair[1 - k] for pair in INSTEAD for k in (0, 1) if pair[k] in given and pair[1 - k] not in given}
    merged = {name: value for name, value in old.items() if name not in gone} | new
    for name, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(name), dict):
            merged[name] = _replaced(old[name], record_of(part.model_fields[name].annotation), value)
    return {name: value for name, value in merged.items() if value is not None}


def _plain(record: Record) -> dict[str, Any]:
    fields = type(record).model_fields
    held = {name: getattr(record, name) for name in fields}
    default = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    stated = [name for name, value in held.items() if value is not None and value != default[name]]
    return {fields[name].alias or name: _value(held[name]) for name in stated}


def _value(value: Any) -> Any:
    if isinstance(value, Quantity):
        return f"{value.magnitude!r} {value.units:~}"
    if isinstance(value, Record):
        return _plain(value)
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    return value
