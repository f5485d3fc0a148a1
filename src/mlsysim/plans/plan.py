"""``Plan``: what is to run, on what, where, how it is split, and what is demanded of it.

A plan is typed data and nothing else: names instead of objects, quantities as text with a unit. The same record is a
scenario file, the arguments of a command, the body of a request and the state of the explorer. Keys may be written by any name
of :mod:`mlsysim.vocabulary`, in their parts or beside each other; unknown ones are refused with the nearest valid one.

    task          training, serving or inference (one pass); found from the other parts where it is not said
    workload      model, batch, sequence length, precision, tokens to train on
    hardware      a fleet in one string (``on``), or a chip or node with a number
    parallelism   degrees and choices of a layout, or "auto"
    serving       traffic, engine, limits on latency
    ops           region, duration, deadline, budget, prices
    constraints   assertions on metrics of the answer
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from mlsysim.errors import InputError
from mlsysim.physics.precision import precision_name
from mlsysim.plans.schema import Leaf, Part, gathered, leaves, record_of
from mlsysim.units.fields import (
    Bandwidth,
    ByteRate,
    Bytes,
    Dollars,
    EnergyPrice,
    FlopRate,
    HourlyPrice,
    QuantityField,
    Record,
    Watts,
)
from mlsysim.units.registry import Quantity

Task = Literal["training", "serving", "inference"]
_MOST = 10**9
_TEXT = 400

FREE = ("mode", "overlap", "offload")
"""Fields of a layout that are kept where the others are searched."""

_SIZES = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


def amount(value: Any) -> Any:
    """A count that may be written 15e12, 15T or 15_000_000.

    >>> amount("1.24T"), amount("300e9"), amount(5)
    (1240000000000.0, 300000000000.0, 5)
    """
    if not isinstance(value, str):
        return value
    text = value.strip()[:60].replace(",", "").replace("_", "").lower()
    factor = _SIZES.get(text[-1:], 1.0)
    try:
        return float(text[:-1] if factor != 1.0 else text) * factor
    except ValueError:
        raise ValueError(f"expected a positive number such as 15e12 or 15T, got {value[:40]!r}") from None


Amount = Annotated[
    float, Field(gt=0, le=1e18, allow_inf_nan=False), BeforeValidator(amount, json_schema_input_type=float | str)
]
Long = Annotated[Any, QuantityField("s", "30 day")]
Short = Annotated[Any, QuantityField("s", "500 ms")]
Number = Annotated[float, Field(allow_inf_nan=False)]
Written = Annotated[str, Field(min_length=1, max_length=80)]


class DimensionsPart(Part):
    """Dimensions of the model that are other than the zoo's, or all of those of a model that the zoo does not have."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "workload.dimensions.")
    layers: int | None = Field(default=None, ge=1, le=10**5, description="transformer layers")
    hidden_dim: int | None = Field(default=None, ge=1, le=10**7, description="width of the residual stream")
    ffn_dim: int | None = Field(default=None, ge=1, le=10**8, description="width of the feed-forward network")
    heads: int | None = Field(default=None, ge=1, le=10**5, description="attention heads")
    kv_heads: int | None = Field(default=None, ge=1, le=10**5, description="heads of keys and values")
    vocab_size: int | None = Field(default=None, ge=1, le=10**8, description="entries of the vocabulary")
    gated_ffn: bool | None = Field(default=None, description="the feed-forward network has a gate (three matrices)")
    parameters: float | None = Field(
        default=None,
        gt=0,
        le=1e15,
        description="parameters in all, where no width of the feed-forward network is given",
    )


class WorkloadPart(Part):
    """What runs."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "workload.")
    model: str = Field(min_length=1, max_length=_TEXT, description="a name of the zoo, or a path to a model file")
    batch_size: int | None = Field(default=None, ge=1, le=_MOST, description="sequences or samples of a step or pass")
    seq_len: int | None = Field(default=None, ge=1, le=10**8, description="tokens of a sequence")
    image_size: int | None = Field(
        default=None, ge=1, le=10**5, description="pixels of an image's side, where the network takes more than one"
    )
    precision: str | None = Field(default=None, max_length=40, description="number format, such as bf16 or fp8")
    steps: int | None = Field(
        default=None, ge=1, le=10**4, description="denoising steps of an image, where they are not the model's own"
    )
    random_arrivals: bool | None = Field(
        default=None, description="samples of one pass come at random and may not wait long (tensorrt)"
    )
    measured_rate: float | None = Field(
        default=None, gt=0, le=1e12, description="samples a second as measured; the energy of a pass is of this rate"
    )
    tokens: Amount | None = Field(default=None, description="tokens to train on, such as 15e12 or 15T")
    optimizer: str | None = Field(default=None, max_length=40, description="such as adam, sgd or muon")
    lora_rank: int | None = Field(default=None, ge=1, le=4096, description="train adapters of this rank")
    predicted_tokens: int | None = Field(
        default=None, ge=0, le=16, description="tokens beyond the next that modules of their own predict in training"
    )
    target_share: float | None = Field(
        default=None, gt=0, le=1000, description="tokens of the decoder over those of the encoder"
    )
    dimensions: DimensionsPart | None = Field(default=None, description="dimensions other than the zoo's")
    phase: Literal["prefill", "decode", "inference", "generate"] | None = Field(
        default=None, description="of one pass of a language model; generate: all denoising steps of an image"
    )

    @field_validator("precision")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        return None if value is None else precision_name(value)


class ChipPart(Part):
    """Figures of the accelerator that are other than the zoo's: a hypothetical chip."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "hardware.chip.")
    peak_flops: FlopRate | None = Field(
        default=None, description="dense peak of the chip's headline format; its other formats scale alike"
    )
    memory_bandwidth: ByteRate | None = Field(default=None, description="of the accelerator's memory")
    memory_capacity: Bytes | None = Field(default=None, description="of the accelerator's memory")
    link_bandwidth: ByteRate | None = Field(default=None, description="of the link in the node, both directions")
    fabric_bandwidth: Bandwidth | None = Field(default=None, description="of one port of the network")
    tdp: Watts | None = Field(default=None, description="power at full load")
    price: Dollars | None = Field(default=None, description="of one accelerator")


class HardwarePart(Part):
    """What it runs on. ``on`` says it in one string; or a chip or node by name with a number of nodes or accelerators."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "hardware.")
    on: str | None = Field(default=None, max_length=_TEXT, description="such as 512xH100 or 64xDGX_H100@NDR")
    name: str | None = Field(default=None, max_length=_TEXT, description="a chip, a node or a cluster of the zoo")
    nodes: int | None = Field(default=None, ge=1, le=10**7, description="how many of it, beside name")
    accelerators: int | None = Field(default=None, ge=1, le=10**8, description="how many of it, beside name")
    fabric: str | None = Field(default=None, max_length=_TEXT, description="network between nodes, such as NDR")
    efficiency: float | Literal["calibrated"] | None = Field(
        default=None, description="a fraction of peak (first order) or 'calibrated'"
    )
    stack: str | None = Field(
        default=None,
        max_length=40,
        description="training software, or the runtime of a pass (compiled, eager, tensorrt ...), of calibrated times",
    )
    power_cap: Watts | None = Field(default=None, description="power limit of each accelerator")
    chip: ChipPart | None = Field(default=None, description="figures other than the zoo's")

    @field_validator("efficiency", mode="before")
    @classmethod
    def _fraction(cls, value: Any) -> Any:
        if value is None or value == "calibrated":
            return value
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if isinstance(value, bool) or not 0 < number <= 1:
            raise ValueError(f"efficiency is above 0 and at most 1, or 'calibrated', got {str(value)[:40]!r}")
        return number

    @model_validator(mode="after")
    def _one_of(self) -> HardwarePart:
        if (self.on is None) == (self.name is None):
            raise ValueError("give 'on' (such as '512xH100') or 'name', one of them")
        if self.on is not None and (self.nodes is not None or self.accelerators is not None):
            raise ValueError("the number of accelerators is part of 'on'; leave nodes and accelerators out")
        if self.nodes is not None and self.accelerators is not None:
            raise ValueError("give nodes or accelerators, one of them")
        return self


class ParallelismPart(Part):
    """How the work is split. What is left out is chosen (training: with mode auto) or one."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "parallelism.")
    mode: Literal["auto", "given"] | None = Field(
        default=None, description="auto: search the layout; so it is where nothing else is given"
    )
    tp: int | None = Field(default=None, ge=1, le=65536, description="tensor-parallel degree")
    pp: int | None = Field(default=None, ge=1, le=4096, description="pipeline stages")
    dp: int | None = Field(default=None, ge=1, le=10**7, description="data-parallel degree; must agree with the rest")
    ep: int | None = Field(default=None, ge=1, le=65536, description="expert-parallel degree")
    cp: int | None = Field(default=None, ge=1, le=4096, description="context-parallel degree")
    ring: int | None = Field(
        default=None, ge=1, le=1024, description="accelerators of a denoiser that pass keys around; the rest swap heads"
    )
    virtual_stages: int | None = Field(default=None, ge=1, le=128, description="pipeline chunks of a device")
    schedule: str | None = Field(default=None, max_length=40, description="pipeline schedule, such as 1f1b")
    micro_batch: int | None = Field(default=None, ge=1, le=_MOST, description="sequences of a micro-batch")
    micro_batches: int | None = Field(
        default=None, ge=1, le=_MOST, description="micro-batches of a step and replica, instead of their size"
    )
    zero: int | None = Field(default=None, ge=0, le=3, description="ZeRO stage")
    recompute: Literal["none", "selective", "full"] | None = Field(
        default=None, description="activations that are computed again instead of kept"
    )
    recomputed: Literal["attention", "light", "up", "moe", "half", "attention+light", "attention+light+moe"] | None = (
        Field(default=None, description="what selective recomputation computes again; the stack's habit")
    )
    offload: float | None = Field(
        default=None, ge=0, le=1, description="share of the optimizer's state that rests in the host's memory"
    )
    sequence_parallel: bool | None = Field(default=None, description="split norms over the tensor group")
    fp8_attention: bool | None = Field(default=None, description="attention in fp8")
    deduplicated_exchange: bool | None = Field(
        default=None, description="send a token once to each node that has experts for it"
    )
    overlap_tp: float | None = Field(
        default=None, ge=0, le=1, description="share of tensor-parallel communication that hides; the stack's"
    )
    overlap_ep: float | None = Field(
        default=None, ge=0, le=1, description="share of the experts' exchange that hides; the stack's"
    )
    overlap: bool | None = Field(default=None, description="hide gradient synchronisation behind the backward pass")

    @model_validator(mode="after")
    def _one_of(self) -> ParallelismPart:
        if self.micro_batch is not None and self.micro_batches is not None:
            raise ValueError("give micro_batch (sequences) or micro_batches (how many), one of them")
        return self

    @property
    def automatic(self) -> bool:
        """Whether the layout is to be searched."""
        if self.mode is not None:
            return self.mode == "auto"
        return all(getattr(self, name) is None for name in type(self).model_fields if name not in FREE)


class ServingPart(Part):
    """Traffic, engine and limits."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "serving.")
    prompt_tokens: int | None = Field(default=None, ge=1, le=10**8, description="mean tokens of a prompt (ISL)")
    output_tokens: int | None = Field(default=None, ge=1, le=10**8, description="mean tokens of an answer (OSL)")
    concurrency: int | None = Field(default=None, ge=1, le=10**6, description="requests in flight, over all replicas")
    qps: float | None = Field(default=None, gt=0, le=1e9, description="requests a second")
    replicas: int | None = Field(default=None, ge=1, le=10**7, description="copies of the model")
    engine: str | None = Field(default=None, max_length=40, description="such as vLLM, SGLang or TRT-LLM")
    cache_precision: str | None = Field(default=None, max_length=40, description="number format of the caches")
    chunk_tokens: int | None = Field(default=None, ge=1, le=10**8, description="tokens of a prefill chunk")
    cached_prefix: int | None = Field(default=None, ge=0, le=10**8, description="tokens of the prompt in the cache")
    draft_model: str | None = Field(default=None, max_length=_TEXT, description="for speculative decoding")
    draft_tokens: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="tokens drafted at a time, by the model's own heads without a draft_model",
    )
    acceptance: float | None = Field(default=None, ge=0, le=1, description="share of draft tokens that are accepted")
    decode_on: str | None = Field(
        default=None,
        max_length=_TEXT,
        description="decode pool (disaggregation): a fleet, or a chip, as many as for prefill",
    )
    redundant_experts: int | None = Field(
        default=None, ge=1, le=10**5, description="experts held twice, so that the expert-parallel degree divides"
    )
    decode_tp: int | None = Field(default=None, ge=1, le=65536, description="tensor-parallel degree of the decode pool")
    decode_ep: int | None = Field(default=None, ge=1, le=65536, description="expert-parallel degree of the decode pool")
    decode_replicas: int | None = Field(default=None, ge=1, le=10**7, description="replicas of the decode pool")
    network: Bandwidth | None = Field(default=None, description="between prefill and decode")
    memory_fraction: float | None = Field(
        default=None, gt=0, le=1, description="share of each accelerator's memory that the engine may use"
    )
    requests: int | None = Field(
        default=None, ge=1, le=10**9, description="requests that are sent in all; as many as concurrency: one batch"
    )
    range_ratio: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="lengths are spread evenly from this share of prompt_tokens and output_tokens up to all of them",
    )
    max_num_seqs: int | None = Field(
        default=None, ge=1, le=10**6, description="most requests that a replica answers at a time"
    )
    poll_steps: int | None = Field(default=None, ge=1, le=10**4, description="steps between two looks for new requests")
    wait_steps: int | None = Field(
        default=None, ge=0, le=10**4, description="steps that the engine waits for prompts to gather"
    )
    warm_up: bool | None = Field(default=None, description="false: the first requests meet a cold engine")
    offline: bool | None = Field(
        default=None, description="true: the engine itself is asked, without a server in front"
    )
    output_rate: float | None = Field(
        default=None,
        gt=0,
        le=1e12,
        description="output tokens a second as measured; power, energy and costs are of this rate",
    )
    host_bound: bool | None = Field(
        default=None, description="true: accelerators wait for inputs that the host prepares, such as video"
    )
    ttft: Short | None = Field(default=None, description="limit on the time to the first token")
    tpot: Short | None = Field(default=None, description="limit on the time of each further token")
    latency: Short | None = Field(default=None, description="limit on the mean time of a whole request")

    @field_validator("cache_precision")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        return None if value is None else precision_name(value)

    @model_validator(mode="after")
    def _one_load(self) -> ServingPart:
        if self.concurrency is not None and self.qps is not None:
            raise ValueError("give concurrency or qps, one of them")
        return self


class OpsPart(Part):
    """Where, how long, for how much."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "ops.")
    region: str | None = Field(default=None, max_length=_TEXT, description="a grid of the zoo")
    duration: Long | None = Field(default=None, description="how long the run or the service lasts")
    duration_days: float | None = Field(default=None, gt=0, le=1e6, description="the same, as a number of days")
    deadline: Long | None = Field(default=None, description="limit on the time of a training run")
    budget: Dollars | None = Field(default=None, description="limit on the cost of owning, or else of renting")
    electricity: EnergyPrice | None = Field(default=None, description="price; that of the region where left out")
    cloud_price: HourlyPrice | None = Field(default=None, description="rent of one accelerator for an hour")
    checkpoint_time: Short | None = Field(
        default=None, description="that the run stands still to write one; that of writing the state where left out"
    )
    mtbf: Long | None = Field(default=None, description="mean time between failures of the whole fleet")

    @model_validator(mode="after")
    def _one_duration(self) -> OpsPart:
        if self.duration is not None and self.duration_days is not None:
            raise ValueError("give duration or duration_days, one of them")
        return self

    @property
    def days(self) -> float | None:
        """Duration in days."""
        if self.duration is not None:
            return float(self.duration.to("day").magnitude)
        return self.duration_days


class Assertion(Part):
    """A limit on a metric of the answer: text with a unit, or a number (times in ms, energy in kWh, memory in GB)."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "constraints.assert.")
    metric: str = Field(min_length=1, max_length=_TEXT, description="name or path, such as mfu or macro.tco")
    max: Number | Written | dict[str, Any] | None = Field(default=None, description="it must be at most this")
    min: Number | Written | dict[str, Any] | None = Field(default=None, description="it must be at least this")

    @model_validator(mode="after")
    def _a_limit(self) -> Assertion:
        if self.max is None and self.min is None:
            raise ValueError(f"the assertion on {self.metric!r} needs a max or a min")
        return self


class Constraints(Part):
    """What the answer must satisfy. In files the list is called ``assert``; text such as ``mfu >= 0.4`` will do too."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "constraints.")
    assertions: tuple[Assertion, ...] = Field(default=(), alias="assert", description="limits on metrics of the answer")
    model_config: ClassVar[ConfigDict] = ConfigDict(populate_by_name=True)

    @field_validator("assertions", mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        return (
            [_assertion(item) if isinstance(item, str) else item for item in value]
            if isinstance(value, list)
            else value
        )


def _assertion(text: str) -> dict[str, Any]:
    """The assertion in a text such as ``mfu >= 0.4`` or ``performance.ttft <= 500 ms``."""
    found = re.fullmatch(r"\s*([\w.]+)\s*(<=|>=)\s*(.+?)\s*", text[:_TEXT])
    if found is None:
        raise ValueError(f"an assertion is such as 'mfu >= 0.4', got {text[:40]!r}")
    number = re.fullmatch(r"[-+\d.eE]+", found[3])
    return {"metric": found[1], {"<=": "max", ">=": "min"}[found[2]]: float(found[3]) if number else found[3]}


def _or_auto(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [{"const": "auto"}, {"$ref": schema.pop("$ref")}]


class Plan(Record):
    """A whole plan."""

    name: str = Field(default="plan", max_length=200, description="what it is called")
    description: str = Field(default="", max_length=4000, description="what it is for")
    task: Task | None = Field(default=None, description="training, serving or inference; found where it is not said")
    workload: WorkloadPart
    hardware: HardwarePart
    parallelism: ParallelismPart = Field(default_factory=ParallelismPart, json_schema_extra=_or_auto)
    serving: ServingPart | None = None
    ops: OpsPart = Field(default_factory=OpsPart)
    constraints: Constraints = Field(default_factory=Constraints)

    @model_validator(mode="before")
    @classmethod
    def _in_parts(cls, value: Any) -> Any:
        return cls.in_parts(value) if isinstance(value, dict) else value

    @classmethod
    def in_parts(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that may stand beside each other, under any of their names, as a document of parts."""
        return gathered(cls, settings, cls.leaves())

    @classmethod
    @cache
    def leaves(cls) -> dict[str, Leaf]:
        """Every field that holds a value, by key."""
        return leaves(cls)

    @field_validator("parallelism", mode="before")
    @classmethod
    def _auto(cls, value: Any) -> Any:
        if isinstance(value, str):
            if value != "auto":
                raise ValueError(f"parallelism is 'auto' or a table of degrees, got {value[:40]!r}")
            return ParallelismPart(mode="auto")
        return value

    @model_validator(mode="after")
    def _agrees(self) -> Plan:
        if self.task in ("training", "inference") and self.serving is not None:
            raise ValueError(f"a plan of task {self.task} has no serving part")
        return self

    @property
    def kind(self) -> Task:
        """The task, found where it is not said: serving traffic means serving, tokens or a layout training."""
        if self.task is not None:
            return self.task
        if self.serving is not None:
            return "serving"
        split = self.parallelism
        trains = split.mode == "auto" or any(
            getattr(split, name) is not None
            for name in ("zero", "recompute", "micro_batch", "micro_batches", "offload", "dp", "pp")
        )
        return "training" if trains or self.workload.tokens is not None or self.workload.optimizer else "inference"

    def replacing(self, **parts: Any) -> Plan:
        """A copy with other fields in some parts, None for left out: ``plan.replacing(workload={"precision": "fp8"})``.

        A field that is given takes the place of what may not stand beside it (``micro_batches`` of ``micro_batch``).
        """
        document = self.document()
        for part, fields in parts.items():
            if part not in type(self).model_fields:
                raise InputError(f"A plan has no part {part!r}.", field=part)
            if isinstance(fields, dict):
                document[part] = _replaced(
                    document.get(part) or {}, record_of(type(self).model_fields[part].annotation), fields
                )
            elif fields is None:
                document.pop(part, None)
            else:
                document[part] = fields
        return Plan.model_validate(document)

    def with_settings(self, settings: Mapping[str, Any]) -> Plan:
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


_INSTEAD = (
    ("micro_batch", "micro_batches"),
    ("concurrency", "qps"),
    ("duration", "duration_days"),
    ("on", "name"),
    ("on", "nodes"),
    ("on", "accelerators"),
    ("nodes", "accelerators"),
)
"""Fields that may not stand beside each other."""


def _replaced(old: dict[str, Any], part: Any, fields: dict[str, Any]) -> dict[str, Any]:
    new = {part.field_named(name): value for name, value in fields.items()}
    given = {name for name, value in new.items() if value is not None}
    gone = {pair[1 - k] for pair in _INSTEAD for k in (0, 1) if pair[k] in given and pair[1 - k] not in given}
    merged = {name: value for name, value in old.items() if name not in gone} | new
    for name, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(name), dict):
            merged[name] = _replaced(old[name], record_of(part.model_fields[name].annotation), value)
    return {name: value for name, value in merged.items() if value is not None}


def _plain(record: Record) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, field in type(record).model_fields.items():
        value = getattr(record, name)
        if value is None or value == field.get_default(call_default_factory=True):
            continue
        out[field.alias or name] = _value(value)
    return out


def _value(value: Any) -> Any:
    if isinstance(value, Quantity):
        return f"{value.magnitude!r} {value.units:~}"
    if isinstance(value, Record):
        return _plain(value)
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    return value
