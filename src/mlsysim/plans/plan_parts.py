"""The parts of a plan: what each key is, in one line, with its bounds and its meaning.

Schemas, options, controls and axes are made from these lines (:mod:`mlsysim.plans.schema`).
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from mlsysim.models.adapters import targets_of
from mlsysim.models.recompute import PARTS, parts_of
from mlsysim.physics.precision import precision_name
from mlsysim.plans.schema import Part, read_number
from mlsysim.plans.targets import parse_targets, per_second
from mlsysim.units import fields as of
from mlsysim.units.fields import QuantityField
from mlsysim.units.registry import number_from

_MOST = 10**9
_TEXT = 400

SPLITS = ("tp", "pp", "dp", "ep", "attention_dp", "cp", "ring", "micro_batch_group")
"""Fields of a layout that say how work is split; where none is given it is searched, and what else is given is kept."""


def _amount(value: Any) -> Any:
    found = read_number(value)
    if not isinstance(found, int | float | None) or 0 < (found or 0) < 1 / of.BEYOND:
        raise ValueError(f"The 'tokens' field got {str(found)[:40]!r}; expected a positive number such as 15e12 or 15T")
    return found


Amount = Annotated[
    float, Field(gt=0, le=1e18, allow_inf_nan=False), BeforeValidator(_amount, json_schema_input_type=float | str)
]
Limit = Annotated[Any, QuantityField("s", "500 ms", zero=False)]
Short = Annotated[Any, QuantityField("s", "30 s")]
Int = int | None
Real = float | None
Text = str | None
Flag = bool | None
Number = Annotated[float, Field(allow_inf_nan=False)]
Written = Annotated[str, Field(min_length=1, max_length=80)]


def _open(words: str) -> Any:
    """A field that may be left out, and what it means."""
    return Field(default=None, description=words)


def _within(low: float, high: float, words: str, example: int | None = None) -> Any:
    """The same of a number within bounds, such as the example."""
    return Field(default=None, ge=low, le=high, description=words, examples=None if example is None else [example])


def _above_0(high: float, words: str) -> Any:
    """The same of a number above nothing."""
    return Field(default=None, gt=0, le=high, description=words)


def _text(longest: int, words: str) -> Any:
    """The same of a text."""
    return Field(default=None, max_length=longest, description=words)


def _name(value: Any) -> Any:
    """A name, or that of an object."""
    if value is None or isinstance(value, str):
        return value
    from mlsysim.plans.objects import name_of  # few plans are made of objects

    return name_of(value)


def _format(value: str | None) -> str | None:
    """A format; ``auto`` is what stands where none is given, as engines have it."""
    return None if value is None or value.lower() == "auto" else precision_name(value)


class DimensionsPart(Part):
    """Dimensions of the model that are other than the zoo's, or all of those of a model that the zoo does not have."""

    part_of: ClassVar[tuple[str, str]] = ("A plan", "workload.dimensions.")
    layers: Int = _within(1, 10**5, "transformer layers", 32)
    hidden_dim: Int = _within(1, 10**7, "width of the residual stream", 4096)
    ffn_dim: Int = _within(1, 10**8, "width of the feed-forward network", 14336)
    heads: Int = _within(1, 10**5, "attention heads", 32)
    kv_heads: Int = _within(1, 10**5, "heads of keys and values", 8)
    vocab_size: Int = _within(1, 10**8, "entries of the vocabulary", 128256)
    gated_ffn: Flag = _open("the feed-forward network has a gate (three matrices)")
    parameters: Real = _above_0(1e15, "total parameters, if ffn_dim is not given")


class WorkloadPart(Part):
    """What runs."""

    part_of: ClassVar[tuple[str, str]] = ("A plan", "workload.")
    model: str = Field(min_length=1, max_length=_TEXT, description="a name of the zoo, or a path to a model file")
    batch_size: Int = _within(1, _MOST, "sequences or samples of a step or pass", 64)
    seq_len: Int = _within(1, 10**8, "tokens of a sequence", 4096)
    image_size: Int = _within(1, 10**5, "pixels of an image's side", 224)
    precision: Text = _text(40, "number format, such as bf16 or fp8")
    steps: Int = _within(1, 10**4, "denoising steps of an image (without them: one pass)", 50)
    random_arrivals: Flag = _open("samples arrive at random and may not wait long (tensorrt)")
    measured_rate: Real = _above_0(1e12, "samples a second as measured, for the energy of a pass")
    tokens: Amount | None = _open("tokens to train on, such as 15e12 or 15T")
    optimizer: Text = _text(40, "such as adam, sgd or muon")
    lora_rank: Int = _within(1, 4096, "train adapters of this rank", 16)
    lora_targets: Literal["attention", "all"] | None = _open("products that adapters stand beside (default: attention)")
    gradient_precision: Text = _text(40, "format of gradients, held and sent (default: the stack's)")
    activation_precision: Text = _text(40, "format of activations held for the backward pass")
    exchange_precision: Text = _text(40, "format of tokens sent to experts; they return in 16 bits")
    wide_layers: Int = _within(0, 10**5, "layers kept in 16 bits when the others are narrower")
    predicted_tokens: Int = _within(0, 16, "extra tokens predicted by the model's own heads")
    target_share: Real = _above_0(1000, "decoder tokens over encoder tokens")
    dimensions: DimensionsPart | None = _open("dimensions other than the zoo's")
    phase: Literal["prefill", "decode", "inference", "generate"] | None = _open(
        "phase of one pass of a language model; generate: all denoising steps of an image"
    )

    _known = field_validator("precision", "gradient_precision", "activation_precision", "exchange_precision")(_format)
    _named = field_validator("model", mode="before")(_name)
    _adapted = field_validator("lora_targets", mode="before")(targets_of)


class ChipPart(Part):
    """Figures of the accelerator that are other than the zoo's: a hypothetical chip."""

    part_of: ClassVar[tuple[str, str]] = ("A plan", "hardware.chip.")
    peak_flops: of.FlopRate | None = _open("dense peak of the headline format; other formats scale alike")
    memory_bandwidth: of.ByteRate | None = _open("bandwidth of the accelerator's memory")
    memory_capacity: of.Capacity | None = _open("capacity of the accelerator's memory")
    link_bandwidth: of.LinkRate | None = _open("bandwidth of the link in the node, both directions")
    fabric_bandwidth: of.Bandwidth | None = _open("bandwidth of one network port")
    tdp: of.Watts | None = _open("power at full load")
    price: of.Dollars | None = _open("price of one accelerator")

    @property
    def hypothetical(self) -> bool:
        """Whether it is another chip than the zoo's, which somebody's own price does not make it."""
        return any(getattr(self, name) is not None for name in type(self).model_fields if name != "price")


class HardwarePart(Part):
    """What it runs on. ``on`` says it in one string; or a chip or node by name with a number of nodes or accelerators."""

    part_of: ClassVar[tuple[str, str]] = ("A plan", "hardware.")
    on: Text = _text(_TEXT, "such as 512xH100 or 64xDGX_H100@NDR")
    name: Text = _text(_TEXT, "a chip, a node or a cluster of the zoo")
    nodes: Int = _within(1, 10**7, "how many nodes, with name", 64)
    accelerators: Int = _within(1, 10**8, "how many accelerators, with name", 512)
    fabric: Text = _text(_TEXT, "network between nodes, such as NDR")
    oversubscription: Real = _within(1, 1000, "oversubscription of the fabric's upper stages")
    congestion: Real = _within(1, 1000, "slow-down of the fabric")
    straggler: Real = _within(1, 1000, "slow-down of the slowest accelerator")
    rails: Int = _within(1, 1024, "adapters of a node on the fabric")
    sites: Int = _within(1, 64, "sites with equal parts of the fleet")
    wan_bandwidth: of.Bandwidth | None = _open("from a site to the others, one way")
    wan_round_trip: Annotated[Any, QuantityField("s", "50 ms")] | None = _open("round trip to another site")
    efficiency: float | Literal["calibrated"] | None = _open("a fraction of peak (first order) or 'calibrated'")
    stack: Text = _text(40, "training software, or runtime (eager, tensorrt)")
    launcher: Text = _text(40, "software that must be able to run the layout, such as fsdp")
    power_cap: of.Watts | None = _open("power limit of each accelerator")
    cooling: Literal["air", "liquid"] | None = _open("cooling of the nodes")
    chip: ChipPart | None = _open("figures other than the zoo's")

    _named = field_validator("on", "name", mode="before")(_name)

    @field_validator("efficiency", mode="before")
    @classmethod
    def _fraction(cls, value: Any) -> Any:
        if value is None or value == "calibrated":
            return value
        number = number_from(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number <= 1:
            share = isinstance(number, (int, float)) and 10 <= number <= 100
            near = f"; {number:g} per cent is '{number:g}%'" if share else ""
            raise ValueError(f"efficiency is above 0 and at most 1, or 'calibrated', got {str(value)[:40]!r}{near}")
        return number

    @model_validator(mode="after")
    def _there(self) -> "HardwarePart":
        if self.on is None and self.name is None:
            raise ValueError("no hardware is given; 'on' says which, such as '512xH100'")
        return self


_OFFLOADED = {
    **dict.fromkeys(("optimizer", "optimiser", "state", "states"), "offload"),
    **dict.fromkeys(("weights", "weight", "parameters", "params", "param"), "offload_weights"),
    **dict.fromkeys(("activations", "activation"), "offload_activations"),
}
"""What people call what is kept in the host's memory, and the key that has its share."""


class ParallelismPart(Part):
    """How the work is split. What is left out is chosen (training: with mode auto) or one."""

    part_of: ClassVar[tuple[str, str]] = ("A plan", "parallelism.")
    mode: Literal["auto", "given"] | None = _open("auto: search the layout")
    tp: Int = _within(1, 65536, "tensor-parallel degree")
    pp: Int = _within(1, 4096, "pipeline stages")
    dp: Int = _within(1, 10**7, "data-parallel degree; replicas")
    ep: Int = _within(1, 65536, "expert-parallel degree")
    attention_dp: Int = _within(1, 65536, "attention groups that share experts")
    cp: Int = _within(1, 4096, "context-parallel degree; in serving DCP")
    ring: Int = _within(1, 1024, "ring-attention degree of a denoiser")
    virtual_stages: Int = _within(1, 128, "pipeline chunks on each device")
    schedule: Text = _text(40, "pipeline schedule, such as 1f1b")
    micro_batch: Int = _within(1, _MOST, "sequences of a micro-batch")
    micro_batches: Int = _within(1, _MOST, "micro-batches in a step, for each replica")
    micro_batch_group: Int = _within(1, _MOST, "micro-batches that a chunk runs in a row (interleaved)")
    zero: Int = _within(0, 3, "ZeRO stage")
    zero_shard: Int = _within(1, 10**7, "ranks that ZeRO shards over (HSDP; default: all)")
    reshard: Flag = _open("ZeRO 2, 3: communicate every micro-batch, not once a step")
    recompute: Literal["none", "selective", "full"] | None = _open("which activations are recomputed")
    recomputed: Text = _text(80, "parts that selective recomputes, such as norm+up")
    offload: Real = _within(0, 1, "share of the optimizer's state in the host's memory")
    host_update: Flag = _open("the host updates the state it holds")
    offload_weights: Real = _within(0, 1, "share of the weights in the host's memory")
    offload_activations: Real = _within(0, 1, "share of the activations in the host's memory")
    sequence_parallel: Flag = _open("split norms over the tensor group")
    fp8_attention: Flag = _open("attention in fp8")
    deduplicated_exchange: Flag = _open("send a token once to each node")
    overlap_tp: Real = _within(0, 1, "share of TP communication that is hidden")
    overlap_ep: Real = _within(0, 1, "share of the experts' exchange that is hidden")
    overlap: Flag = _open("hide gradient communication behind the backward pass")

    @model_validator(mode="before")
    @classmethod
    def _all_of_what_is_named(cls, values: Any) -> Any:
        """What is offloaded may be named, and then it is all of it: ``offload = "optimizer+weights"``."""
        given = values.get("offload") if isinstance(values, dict) else None
        named = set(re.split(r"[+,\s]+", given.strip().lower())) if isinstance(given, str) else set()
        keys = {_OFFLOADED.get(word, "") for word in named}
        if not keys or "" in keys or any(values.get(key) is not None for key in keys - {"offload"}):
            return values
        return {**values, "offload": None, **dict.fromkeys(keys, 1.0)}

    @model_validator(mode="before")
    @classmethod
    def _parts_of_a_layer(cls, values: Any) -> Any:
        """Parts of a layer are what selective recomputation takes: ``recompute = "norm+up"``."""
        given = values.get("recompute") if isinstance(values, dict) and values.get("recomputed") is None else None
        named = set(re.split(r"[+,\s]+", given.strip().lower())) if isinstance(given, str) else set()
        if not named or not named <= {*PARTS} - {"full"}:
            return values
        return {**values, "recompute": "selective", "recomputed": given}

    @field_validator("recomputed", mode="before")
    @classmethod
    def _parts(cls, value: Any) -> Any:
        value = "+".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        return "+".join(parts_of(value)) or None if isinstance(value, str) else value

    @property
    def automatic(self) -> bool:
        """Whether the layout is to be searched. That sequences or experts are not split (``cp`` or ``ep`` of 1) says nothing of the rest,
        and is kept."""
        if self.mode is not None:
            return self.mode == "auto"
        return all(
            given is None or (name in ("cp", "ep") and given == 1)
            for name in SPLITS
            for given in (getattr(self, name),)
        )


FREE = tuple(name for name in ParallelismPart.model_fields if name not in SPLITS)
"""Fields of a layout that are kept where the others are searched."""


class ServingPart(Part):
    """Traffic, engine and limits."""

    part_of: ClassVar[tuple[str, str]] = ("A plan", "serving.")
    prompt_tokens: Int = _within(1, 10**8, "mean tokens of a prompt (ISL)", 2000)
    output_tokens: Int = _within(1, 10**8, "mean tokens of an answer (OSL)", 300)
    concurrency: Int = _within(1, _MOST, "requests in flight, over all replicas", 64)
    qps: Real = _above_0(1e8, "requests a second, or such as 300/min")
    replicas: Int = _within(1, 10**7, "copies of the model")
    engine: Text = _text(40, "such as vLLM, SGLang or TRT-LLM")
    cache_precision: Text = _text(40, "number format of the caches")
    chunk_tokens: Int = _within(1, 10**8, "tokens of a prefill chunk", 2048)
    cached_prefix: Int = _within(0, 10**8, "tokens of the prompt in the cache", 1000)
    prefix_hits: Real = _within(0, 1, "share of prompts found in a large enough cache")
    prefix_tokens: Int = _within(1, 10**15, "tokens of all prefixes together")
    offload_memory: of.Capacity | None = _open("host memory for prefixes, per accelerator")
    draft_model: Text = _text(_TEXT, "for speculative decoding")
    draft_tokens: Int = _within(1, 64, "tokens drafted at a time; without a draft model, by own heads")
    acceptance: Real = _within(0, 1, "share of draft tokens that are accepted")
    decode_on: Text = _text(_TEXT, "decode pool: a fleet, a chip, or auto")
    redundant_experts: Int = _within(1, 10**5, "experts held twice")
    adapters: Int = _within(0, 10**5, "LoRA adapters that requests choose among")
    adapter_rank: Int = _within(1, 4096, "rank of the adapters (default 16)", 16)
    decode_tp: Int = _within(1, 65536, "tp of the decode pool")
    decode_ep: Int = _within(1, 65536, "ep of the decode pool")
    decode_replicas: Int = _within(1, 10**7, "replicas of the decode pool")
    network: of.Bandwidth | None = _open("network between prefill and decode")
    memory_fraction: Real = _above_0(1, "share of memory that the engine may use")
    requests: Int = _within(1, 10**9, "requests in all", 1000)
    range_ratio: Real = _within(0, 1, "lengths are uniform from this share to all of the stated one")
    length_cv: Real = _within(0, 10, "variation (cv) of the lengths")
    max_num_seqs: Int = _within(1, 10**6, "most requests that a replica runs at a time", 256)
    poll_steps: Int = _within(1, 10**4, "steps between checks for new requests")
    wait_steps: Int = _within(0, 10**4, "steps to wait for more prompts")
    warm_up: Flag = _open("false: the engine starts cold")
    offline: Flag = _open("true: the engine without a server")
    output_rate: Real = _above_0(1e12, "measured output tokens a second")
    host_bound: Flag = _open("true: accelerators wait for the host")
    ttft: Limit | None = _open("limit on the first token")
    tpot: Limit | None = _open("limit on each further token")
    latency: Limit | None = _open("limit on the mean time of a request")
    slo: Text = _text(_TEXT, "limits: ttft_p99=500ms,tpot=30ms,e2e_p95=4s")
    trace: Text = _text(_TEXT, "recorded requests: a file, or such as azure-code")
    burst: Real = _within(0, 100, "variation (cv) of gaps between requests (default 1)")
    scheduler: Text = _text(40, "such as chunked or prefill_first")
    router: Text = _text(40, "such as least_work or prefix")
    spare: Int = _within(0, 10**6, "replicas that stand by")
    autoscale: Text = _text(40, "least and most replicas, such as 2:8")
    failures: Flag = _open("true: replicas fail and come back")
    backlog: Text = _text(40, "batch jobs that fill what is free, such as 2000+500")
    preemption: Literal["recompute", "swap"] | None = _open("what happens to preempted requests")
    offload_disk: of.Capacity | None = _open("disk for prefixes, per accelerator")
    resident_adapters: Int = _within(1, 10**5, "adapters on a device at a time (default: all)")
    turns: Int = _within(1, 1000, "turns of a conversation, whose prompts repeat it (default 1)")
    think_time: Short | None = _open("time from one turn to the next (default 60 s)")
    seed: Int = _within(0, 2**31, "seed of drawn traffic (default 0)")

    _known = field_validator("cache_precision")(_format)
    _named = field_validator("draft_model", "decode_on", mode="before")(_name)
    _rate = field_validator("qps", mode="before")(per_second)

    @field_validator("autoscale")
    @classmethod
    def _range(cls, value: str | None) -> str | None:
        if value is not None and (
            not re.fullmatch(r"\d{1,6}:\d{1,6}", value) or not 1 <= int(value.split(":")[0]) <= int(value.split(":")[1])
        ):
            raise ValueError(f"autoscale is least and most replicas such as 2:8, got {value[:20]!r}")
        return value

    @field_validator("backlog")
    @classmethod
    def _lengths(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"([1-9]\d{0,6}x)?[1-9]\d{0,6}\+[1-9]\d{0,6}", value):
            raise ValueError(
                f"a backlog is tokens of prompts and answers such as 2000+500, or 64x2000+500 for 64 at a time, got {value[:20]!r}"
            )
        return value

    @field_validator("slo", mode="before")
    @classmethod
    def _in_one_text(cls, value: Any) -> Any:
        if isinstance(value, list) and value and all(isinstance(limit, str) for limit in value):
            return ",".join(value)
        return ",".join(f"{kind}={limit}" for kind, limit in value.items()) if isinstance(value, Mapping) else value

    @field_validator("slo")
    @classmethod
    def _targets(cls, value: str | None) -> str | None:
        parse_targets(value)
        return value


class Assertion(Part):
    """A limit on a metric of the answer: text with a unit, or a number (times in ms, energy in kWh, memory in GB)."""

    part_of: ClassVar[tuple[str, str]] = ("A plan", "constraints.assert.")
    metric: str = Field(min_length=1, max_length=_TEXT, description="name or path, such as mfu or macro.tco")
    max: Number | Written | dict[str, Any] | None = _open("it must be at most this")
    min: Number | Written | dict[str, Any] | None = _open("it must be at least this")

    @model_validator(mode="after")
    def _a_limit(self) -> "Assertion":
        if self.max is None and self.min is None:
            raise ValueError(f"the assertion on {self.metric!r} needs a max or a min")
        return self


class Constraints(Part):
    """What the answer must satisfy. In files the list is called ``assert``; text such as ``mfu >= 0.4`` will do too."""

    part_of: ClassVar[tuple[str, str]] = ("A plan", "constraints.")
    assertions: tuple[Assertion, ...] = Field(default=(), alias="assert", description="limits on metrics of the answer")
    model_config: ClassVar[ConfigDict] = ConfigDict(populate_by_name=True)

    @field_validator("assertions", mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        items = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
        return [_assertion(item) for item in items] or value


def _assertion(item: Any) -> Any:
    """The assertion in a text such as ``mfu >= 0.4`` or ``performance.ttft <= 500 ms``; one with a metric, as files write it, as it is."""
    if isinstance(item, Assertion) or (isinstance(item, Mapping) and {"metric", "min", "max"} & item.keys()):
        return item
    found = re.fullmatch(r"\s*([\w.]+)\s*(<=?|>=?)\s*(.*\d.*?)\s*", item[:_TEXT]) if isinstance(item, str) else None
    if found is None:
        raise ValueError(f"an assertion is such as 'mfu >= 0.4', got {str(item)[:40]!r}")
    number = number_from(found[3])
    return {"metric": found[1], {"<": "max", ">": "min"}[found[2][0]]: found[3] if number is None else float(number)}
