"""What each operation takes. The classes check requests, and the JSON Schemas of both faces are made from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from mlsysim.plans.plan import ParallelismPart, Plan
from mlsysim.units.fields import Bandwidth, Dollars, EnergyPrice, HourlyPrice, Record, Seconds

__all__ = [
    "CompareRequest",
    "Detail",
    "EvaluateRequest",
    "ExplainRequest",
    "ExportRequest",
    "Filter",
    "OptimizeRequest",
    "SchemaRequest",
    "ServeRequest",
    "SweepRequest",
    "TrainRequest",
    "WallsRequest",
    "ZooKind",
    "ZooRequest",
]

_NAME = 400
Detail = Literal["full", "summary"]
ZooKind = Literal["hardware", "models", "systems", "grids"]

Change = Annotated[bool, Field(description="look for the cheapest change that moves the binding wall")]
Sensitivity = Annotated[bool, Field(description="what 10 % less and more of each figure of the hardware is worth")]
HowMuch = Annotated[
    Detail | None,
    Field(description="full: everything; summary: without scorecard, roofline, equations and sources"),
]
Model = Annotated[
    str, Field(min_length=1, max_length=_NAME, description="a name of the zoo, such as Llama3_70B; no path")
]
Fleet = Annotated[
    str,
    Field(min_length=1, max_length=_NAME, description="such as 512xH100, 64xDGX_H100@NDR, 8xB200 + 8xH100 or Meta_16K"),
]
Efficiency = Annotated[
    float | Literal["calibrated"] | None,
    Field(description="a fraction of peak (first order) or 'calibrated' (default)"),
]
Precision = Annotated[str | None, Field(max_length=40, description="number format, such as bf16 or fp8")]
Region = Annotated[str | None, Field(max_length=_NAME, description="a grid of the zoo, such as Quebec")]
Filter = Annotated[str, Field(max_length=200, description="field, comparison, value: memory.capacity>=80GB")]
SpaceTable = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "description": "a design space: kind (training, serving, node, compression), axes, fixed inputs, constraints and goals",
            "required": ["kind", "axes"],
            "additionalProperties": False,
            "properties": {
                "name": {"type": "string", "maxLength": 200},
                "description": {"type": "string", "maxLength": 4000},
                "kind": {"enum": ["compression", "node", "serving", "training"]},
                "fidelity": {"enum": ["first order", "calibrated"]},
                "axes": {
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": 32,
                    "description": "for each input a list of values, or a table: values, range with step or count, powers_of, "
                    "divisors_of, zoo, linked",
                    "additionalProperties": {"type": ["array", "object"]},
                },
                "fixed": {"type": "object", "description": "inputs with one value"},
                "constraints": {"type": "array", "items": {"type": "string", "maxLength": 500}},
                "subject_to": {"type": "array", "items": {"type": "string", "maxLength": 500}},
                "minimize": {"type": "string"},
                "maximize": {"type": "string"},
                "pareto": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 6},
                "top": {"type": "integer", "minimum": 1, "maximum": 1000},
                "uncertain": {"type": "object", "additionalProperties": {"type": ["string", "object"]}},
                "rank_by": {"type": "string", "pattern": "^p[0-9.]+$"},
                "confidence": {"type": "number", "minimum": 0, "maximum": 1},
                "samples": {"type": "integer", "minimum": 1, "maximum": 100000},
                "seed": {"type": "integer", "minimum": 0},
            },
        }
    ),
]


class EvaluateRequest(Record):
    """A whole plan: training, serving or one pass."""

    plan: Plan
    change: Change = True
    sensitivity: Sensitivity = False
    detail: HowMuch = None


class TrainRequest(Record):
    """A training run."""

    model: Model
    on: Fleet
    batch_size: int | None = Field(default=None, ge=1, le=10**9, description="sequences of a step")
    seq_len: int | None = Field(default=None, ge=1, le=10**8, description="tokens of a sequence")
    precision: Precision = None
    tokens: float | None = Field(default=None, gt=0, le=1e18, description="tokens to train on, such as 15e12")
    optimizer: str | None = Field(default=None, max_length=40)
    lora_rank: int | None = Field(default=None, ge=1, le=4096, description="train adapters of this rank")
    layout: ParallelismPart | None = Field(
        default=None, description='degrees such as {"tp": 8, "pp": 4, "zero": 1}; searched where left out'
    )
    efficiency: Efficiency = None
    stack: str | None = Field(default=None, max_length=40, description="training software of the calibrated fidelity")
    region: Region = None
    duration: Seconds | None = None
    deadline: Seconds | None = None
    budget: Dollars | None = None
    electricity: EnergyPrice | None = None
    cloud_price: HourlyPrice | None = Field(default=None, description="rent of one accelerator for an hour")
    change: Change = True
    sensitivity: Sensitivity = False
    detail: HowMuch = None


class ServeRequest(Record):
    """A served language model."""

    model: Model
    on: Fleet
    prompt_tokens: int = Field(default=1024, ge=1, le=10**8, description="mean tokens of a prompt (ISL)")
    output_tokens: int | None = Field(default=None, ge=1, le=10**8, description="mean tokens of an answer (OSL)")
    qps: float | None = Field(default=None, gt=0, le=1e9, description="requests a second; or concurrency")
    concurrency: int | None = Field(default=None, ge=1, le=10**6, description="requests in flight; or qps")
    ttft: Seconds | None = Field(default=None, description="limit on the time to the first token")
    tpot: Seconds | None = Field(default=None, description="limit on the time of each further token")
    latency: Seconds | None = Field(default=None, description="limit on the 99th percentile of a whole request")
    batch_size: int | None = Field(default=None, ge=1, le=10**9)
    precision: Precision = None
    cache_precision: Precision = None
    tp: int | None = Field(default=None, ge=1, le=65536, description="tensor-parallel degree")
    pp: int | None = Field(default=None, ge=1, le=4096, description="pipeline stages")
    ep: int | None = Field(default=None, ge=1, le=65536, description="expert-parallel degree")
    replicas: int | None = Field(default=None, ge=1, le=10**7)
    engine: str | None = Field(default=None, max_length=40, description="vLLM, SGLang, TRT-LLM ...")
    chunk_tokens: int | None = Field(default=None, ge=1, le=10**8, description="tokens of a prefill chunk")
    cached_prefix: int | None = Field(default=None, ge=0, le=10**8, description="tokens of the prompt in the cache")
    draft_model: str | None = Field(default=None, max_length=_NAME, description="a model of the zoo that drafts tokens")
    draft_tokens: int | None = Field(default=None, ge=1, le=64)
    acceptance: float | None = Field(default=None, ge=0, le=1, description="share of draft tokens that are accepted")
    decode_on: str | None = Field(default=None, max_length=_NAME, description="other chip for decode (disaggregation)")
    network: Bandwidth | None = Field(default=None, description="between prefill and decode")
    memory_fraction: float | None = Field(default=None, gt=0, le=1)
    efficiency: Efficiency = None
    region: Region = None
    change: Change = True
    sensitivity: Sensitivity = False
    detail: HowMuch = None


class ExplainRequest(Record):
    """A plan and a metric of its answer."""

    plan: Plan
    metric: str | None = Field(
        default=None, max_length=_NAME, description="such as mfu, latency or tco; all without one"
    )


class CompareRequest(Record):
    """Two plans of one task."""

    first: Plan
    second: Plan
    detail: HowMuch = None


class OptimizeRequest(Record):
    """The best layout, batch, place, fleet or point of a space."""

    what: Literal["parallelism", "batching", "placement", "fleet", "space"] = Field(
        description="parallelism: layout of a training plan; batching: batch of a serving plan within a latency target; placement: "
        "grid for a run; fleet: fewest accelerators that train by a deadline; space: best point of a design space"
    )
    plan: Plan | None = Field(default=None, description="for all but space")
    space: SpaceTable | None = Field(default=None, description="for space: what sweep takes")
    sla: Seconds | None = Field(default=None, description="batching: limit on the 99th percentile of a request; 10 s")
    qps: float | None = Field(default=None, gt=0, le=1e9, description="batching: requests a second; 1")
    carbon_tax: float | None = Field(default=None, ge=0, le=1e9, description="placement: USD for a tonne of CO2e; 100")
    regions: tuple[str, ...] | None = Field(
        default=None, min_length=1, max_length=200, description="placement: grids; all"
    )
    chips: tuple[str, ...] | None = Field(
        default=None, min_length=1, max_length=16, description="fleet: chips to compare"
    )


class SweepRequest(Record):
    """Every point of a design space."""

    space: SpaceTable


class ZooRequest(Record):
    """What the zoo has, or one entry."""

    kind: ZooKind | None = Field(default=None, description="a part of the zoo; counts of all parts without one")
    name: str | None = Field(default=None, min_length=1, max_length=_NAME, description="one entry, with its sources")
    filters: tuple[Filter, ...] = Field(default=(), max_length=16)
    sort: str | None = Field(default=None, max_length=100, description="field to sort by, largest first")
    limit: int = Field(default=100, ge=1, le=1000, description="entries of a listing")
    offset: int = Field(default=0, ge=0, le=10**6, description="entries to leave out first")


class WallsRequest(Record):
    """The 22 walls, or the card of one."""

    number: int | None = Field(default=None, ge=1, le=22)


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
    to: str = Field(
        min_length=1,
        max_length=60,
        description="megatron, torchtitan, deepspeed, fsdp, vllm, sglang, trtllm, kubernetes or slurm",
    )
    command: str | None = Field(
        default=None, max_length=60, description="what runs inside kubernetes or slurm, such as vllm or megatron"
    )
