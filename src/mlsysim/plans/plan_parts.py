"""The parts of a plan: what each key is, in one line, with its bounds and its meaning.

Schemas, options, controls and axes are made from these lines (:mod:`mlsysim.plans.schema`).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from mlsysim.physics.precision import precision_name
from mlsysim.plans.schema import INSTEAD, Part
from mlsysim.units.fields import (
    Bandwidth,
    ByteRate,
    Bytes,
    Dollars,
    EnergyPrice,
    FlopRate,
    HourlyPrice,
    QuantityField,
    Watts,
)

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
Recomputed = Literal["attention", "light", "up", "moe", "half", "attention+light", "attention+light+moe"]
Number = Annotated[float, Field(allow_inf_nan=False)]
Written = Annotated[str, Field(min_length=1, max_length=80)]


def _open(words: str) -> Any:
    """A field that may be left out, and what it means."""
    return Field(default=None, description=words)


def _within(low: float, high: float, words: str) -> Any:
    """The same of a number within bounds."""
    return Field(default=None, ge=low, le=high, description=words)


def _above_0(high: float, words: str) -> Any:
    """The same of a number above nothing."""
    return Field(default=None, gt=0, le=high, description=words)


def _text(longest: int, words: str) -> Any:
    """The same of a text."""
    return Field(default=None, max_length=longest, description=words)


def _format(value: str | None) -> str | None:
    return None if value is None else precision_name(value)


class DimensionsPart(Part):
    """Dimensions of the model that are other than the zoo's, or all of those of a model that the zoo does not have."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "workload.dimensions.")
    layers: int | None = _within(1, 10**5, "transformer layers")
    hidden_dim: int | None = _within(1, 10**7, "width of the residual stream")
    ffn_dim: int | None = _within(1, 10**8, "width of the feed-forward network")
    heads: int | None = _within(1, 10**5, "attention heads")
    kv_heads: int | None = _within(1, 10**5, "heads of keys and values")
    vocab_size: int | None = _within(1, 10**8, "entries of the vocabulary")
    gated_ffn: bool | None = _open("the feed-forward network has a gate (three matrices)")
    parameters: float | None = _above_0(1e15, "parameters in all, where no width of the feed-forward network is given")


class WorkloadPart(Part):
    """What runs."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "workload.")
    model: str = Field(min_length=1, max_length=_TEXT, description="a name of the zoo, or a path to a model file")
    batch_size: int | None = _within(1, _MOST, "sequences or samples of a step or pass")
    seq_len: int | None = _within(1, 10**8, "tokens of a sequence")
    image_size: int | None = _within(1, 10**5, "pixels of an image's side, where the network takes more than one")
    precision: str | None = _text(40, "number format, such as bf16 or fp8")
    steps: int | None = _within(1, 10**4, "denoising steps of an image, where they are not the model's own")
    random_arrivals: bool | None = _open("samples of one pass come at random and may not wait long (tensorrt)")
    measured_rate: float | None = _above_0(1e12, "samples a second as measured; the energy of a pass is of this rate")
    tokens: Amount | None = _open("tokens to train on, such as 15e12 or 15T")
    optimizer: str | None = _text(40, "such as adam, sgd or muon")
    lora_rank: int | None = _within(1, 4096, "train adapters of this rank")
    predicted_tokens: int | None = _within(
        0, 16, "tokens beyond the next that modules of their own predict in training"
    )
    target_share: float | None = _above_0(1000, "tokens of the decoder over those of the encoder")
    dimensions: DimensionsPart | None = _open("dimensions other than the zoo's")
    phase: Literal["prefill", "decode", "inference", "generate"] | None = _open(
        "of one pass of a language model; generate: all denoising steps of an image"
    )

    _known = field_validator("precision")(_format)


class ChipPart(Part):
    """Figures of the accelerator that are other than the zoo's: a hypothetical chip."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "hardware.chip.")
    peak_flops: FlopRate | None = _open("dense peak of the chip's headline format; its other formats scale alike")
    memory_bandwidth: ByteRate | None = _open("of the accelerator's memory")
    memory_capacity: Bytes | None = _open("of the accelerator's memory")
    link_bandwidth: ByteRate | None = _open("of the link in the node, both directions")
    fabric_bandwidth: Bandwidth | None = _open("of one port of the network")
    tdp: Watts | None = _open("power at full load")
    price: Dollars | None = _open("of one accelerator")


class HardwarePart(Part):
    """What it runs on. ``on`` says it in one string; or a chip or node by name with a number of nodes or accelerators."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "hardware.")
    on: str | None = _text(_TEXT, "such as 512xH100 or 64xDGX_H100@NDR")
    name: str | None = _text(_TEXT, "a chip, a node or a cluster of the zoo")
    nodes: int | None = _within(1, 10**7, "how many of it, beside name")
    accelerators: int | None = _within(1, 10**8, "how many of it, beside name")
    fabric: str | None = _text(_TEXT, "network between nodes, such as NDR")
    efficiency: float | Literal["calibrated"] | None = _open("a fraction of peak (first order) or 'calibrated'")
    stack: str | None = _text(
        40, "training software, or the runtime of a pass (compiled, eager, tensorrt ...), of calibrated times"
    )
    power_cap: Watts | None = _open("power limit of each accelerator")
    chip: ChipPart | None = _open("figures other than the zoo's")

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
    def _there(self) -> HardwarePart:
        if self.on is None and self.name is None:
            raise ValueError(INSTEAD["on", "name"])
        return self


class ParallelismPart(Part):
    """How the work is split. What is left out is chosen (training: with mode auto) or one."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "parallelism.")
    mode: Literal["auto", "given"] | None = _open("auto: search the layout; so it is where nothing else is given")
    tp: int | None = _within(1, 65536, "tensor-parallel degree")
    pp: int | None = _within(1, 4096, "pipeline stages")
    dp: int | None = _within(1, 10**7, "data-parallel degree; must agree with the rest")
    ep: int | None = _within(1, 65536, "expert-parallel degree")
    cp: int | None = _within(1, 4096, "context-parallel degree")
    ring: int | None = _within(1, 1024, "accelerators of a denoiser that pass keys around; the rest swap heads")
    virtual_stages: int | None = _within(1, 128, "pipeline chunks of a device")
    schedule: str | None = _text(40, "pipeline schedule, such as 1f1b")
    micro_batch: int | None = _within(1, _MOST, "sequences of a micro-batch")
    micro_batches: int | None = _within(1, _MOST, "micro-batches of a step and replica, instead of their size")
    micro_batch_group: int | None = _within(
        1, _MOST, "micro-batches that interleaving takes through a chunk before the next"
    )
    zero: int | None = _within(0, 3, "ZeRO stage")
    recompute: Literal["none", "selective", "full"] | None = _open(
        "activations that are computed again instead of kept"
    )
    recomputed: Recomputed | None = _open("what selective recomputation computes again; the stack's habit")
    offload: float | None = _within(0, 1, "share of the optimizer's state that rests in the host's memory")
    sequence_parallel: bool | None = _open("split norms over the tensor group")
    fp8_attention: bool | None = _open("attention in fp8")
    deduplicated_exchange: bool | None = _open("send a token once to each node that has experts for it")
    overlap_tp: float | None = _within(0, 1, "share of tensor-parallel communication that hides; the stack's")
    overlap_ep: float | None = _within(0, 1, "share of the experts' exchange that hides; the stack's")
    overlap: bool | None = _open("hide gradient synchronisation behind the backward pass")

    @property
    def automatic(self) -> bool:
        """Whether the layout is to be searched."""
        if self.mode is not None:
            return self.mode == "auto"
        return all(getattr(self, name) is None for name in type(self).model_fields if name not in FREE)


class ServingPart(Part):
    """Traffic, engine and limits."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "serving.")
    prompt_tokens: int | None = _within(1, 10**8, "mean tokens of a prompt (ISL)")
    output_tokens: int | None = _within(1, 10**8, "mean tokens of an answer (OSL)")
    concurrency: int | None = _within(1, 10**6, "requests in flight, over all replicas")
    qps: float | None = _above_0(1e9, "requests a second")
    replicas: int | None = _within(1, 10**7, "copies of the model")
    engine: str | None = _text(40, "such as vLLM, SGLang or TRT-LLM")
    cache_precision: str | None = _text(40, "number format of the caches")
    chunk_tokens: int | None = _within(1, 10**8, "tokens of a prefill chunk")
    cached_prefix: int | None = _within(0, 10**8, "tokens of the prompt in the cache")
    draft_model: str | None = _text(_TEXT, "for speculative decoding")
    draft_tokens: int | None = _within(
        1, 64, "tokens drafted at a time, by the model's own heads without a draft_model"
    )
    acceptance: float | None = _within(0, 1, "share of draft tokens that are accepted")
    decode_on: str | None = _text(_TEXT, "decode pool (disaggregation): a fleet, or a chip, as many as for prefill")
    redundant_experts: int | None = _within(1, 10**5, "experts held twice, so that the expert-parallel degree divides")
    decode_tp: int | None = _within(1, 65536, "tensor-parallel degree of the decode pool")
    decode_ep: int | None = _within(1, 65536, "expert-parallel degree of the decode pool")
    decode_replicas: int | None = _within(1, 10**7, "replicas of the decode pool")
    network: Bandwidth | None = _open("between prefill and decode")
    memory_fraction: float | None = _above_0(1, "share of each accelerator's memory that the engine may use")
    requests: int | None = _within(1, 10**9, "requests that are sent in all; as many as concurrency: one batch")
    range_ratio: float | None = _within(
        0, 1, "lengths are spread evenly from this share of prompt_tokens and output_tokens up to all of them"
    )
    max_num_seqs: int | None = _within(1, 10**6, "most requests that a replica answers at a time")
    poll_steps: int | None = _within(1, 10**4, "steps between two looks for new requests")
    wait_steps: int | None = _within(0, 10**4, "steps that the engine waits for prompts to gather")
    warm_up: bool | None = _open("false: the first requests meet a cold engine")
    offline: bool | None = _open("true: the engine itself is asked, without a server in front")
    output_rate: float | None = _above_0(
        1e12, "output tokens a second as measured; power, energy and costs are of this rate"
    )
    host_bound: bool | None = _open("true: accelerators wait for inputs that the host prepares, such as video")
    ttft: Short | None = _open("limit on the time to the first token")
    tpot: Short | None = _open("limit on the time of each further token")
    latency: Short | None = _open("limit on the mean time of a whole request")

    _known = field_validator("cache_precision")(_format)


class OpsPart(Part):
    """Where, how long, for how much."""

    part_of: ClassVar[tuple[str, str]] = ("Plan", "ops.")
    region: str | None = _text(_TEXT, "a grid of the zoo")
    duration: Long | None = _open("how long the run or the service lasts")
    duration_days: float | None = _above_0(1e6, "the same, as a number of days")
    deadline: Long | None = _open("limit on the time of a training run")
    budget: Dollars | None = _open("limit on the cost of owning, or else of renting")
    electricity: EnergyPrice | None = _open("price; that of the region where left out")
    cloud_price: HourlyPrice | None = _open("rent of one accelerator for an hour")
    checkpoint_time: Short | None = _open(
        "that the run stands still to write one; that of writing the state where left out"
    )
    mtbf: Long | None = _open("mean time between failures of the whole fleet")

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
    max: Number | Written | dict[str, Any] | None = _open("it must be at most this")
    min: Number | Written | dict[str, Any] | None = _open("it must be at least this")

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
        items = value if isinstance(value, list) else []
        return [_assertion(item) if isinstance(item, str) else item for item in items] or value


def _assertion(text: str) -> dict[str, Any]:
    """The assertion in a text such as ``mfu >= 0.4`` or ``performance.ttft <= 500 ms``."""
    found = re.fullmatch(r"\s*([\w.]+)\s*(<=|>=)\s*(.+?)\s*", text[:_TEXT])
    if found is None:
        raise ValueError(f"an assertion is such as 'mfu >= 0.4', got {text[:40]!r}")
    number = re.fullmatch(r"[-+\d.eE]+", found[3])
    return {"metric": found[1], {"<=": "max", ">=": "min"}[found[2]]: float(found[3]) if number else found[3]}
