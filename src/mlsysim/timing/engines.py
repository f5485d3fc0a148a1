"""Serving engines and the kernels that they run: named profiles, read from ``data/engines.toml`` and ``data/serving.toml``.

``engine("vLLM")`` gives what an engine adds to its kernels and how it schedules; ``kernels(chip, engine)`` what its
attention, expert and communication kernels reach on a chip beyond the chip's own efficiency profile. Chips without
measured serving kernels take the constants of their class, or of "other".
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field

from mlsysim.errors import unknown_name
from mlsysim.hardware.profiles import profile
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.timing.network import Reduction, Tabled
from mlsysim.units.fields import Record, Seconds
from mlsysim.units.registry import Q_, Quantity, to_si
from mlsysim.zoo.provenance import Source

__all__ = [
    "ENGINES",
    "Engine",
    "Experts",
    "Products",
    "ServingKernels",
    "engine",
    "engine_names",
    "kernels",
    "serving_table",
    "trying",
]


class _EngineRecord(Record):
    year: int
    policy: Literal["mixed", "prefill_first"]
    kernels: str
    step: Seconds
    per_sequence: Seconds
    small_kernels: float = Field(ge=0)
    host_operator: Seconds
    prefill_step: Seconds
    front_end: Seconds
    hand_over: Seconds
    hand_over_network: Seconds
    expert_block: Seconds
    cold_start: Seconds
    gather_steps: int = Field(ge=0)
    reduce_scale: float = Field(default=1.0, gt=0)
    block_scaled: bool = True
    token_budget: int = Field(gt=0)
    prefill_budget: int = Field(gt=0)
    memory_utilisation: float = Field(gt=0, le=1)
    memory_rule: Literal["all", "free"] = "all"
    source: Source
    fit_error_pct: float | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Engine:
    """A serving engine; times in seconds. What each means is said at the top of ``data/engines.toml``."""

    name: str
    year: int
    policy: str
    kernels: str
    step: float
    per_sequence: float
    small_kernels: float
    host_operator: float
    prefill_step: float
    front_end: float
    hand_over: float
    hand_over_network: float
    expert_block: float
    cold_start: float
    gather_steps: int
    reduce_scale: float
    block_scaled: bool
    token_budget: int
    prefill_budget: int
    memory_utilisation: float
    memory_rule: str
    fit_error_pct: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Experts:
    """What the kernels of a mixture reach: shares of the peak and of the bandwidth, and the start of the block."""

    rate_share: float
    memory_share: float
    start: float
    activation_share: float


@dataclass(frozen=True, slots=True)
class Products:
    """What matrix products reach: shares of the peak and of the bandwidth, start, and the cost of narrowing inputs."""

    rate_share: float
    memory_share: float
    start: float
    quantise_share: float


@dataclass(frozen=True, slots=True)
class ServingKernels:
    """Kernels of one engine on one chip; SI numbers. What serving tables lack comes from the chip's profile."""

    family: str
    products: Mapping[str, Products]
    prompt_attention: Mapping[str, float]
    ramp_tokens: float
    small_kernel: float
    elementwise_share: float
    cache_share: Mapping[str, float]
    attention_start: float
    latent_memory_share: float
    latent_rate_share: float
    latent_fp8_rate: float
    rate_scale: float
    state_share: Mapping[str, float]
    network: Tabled
    experts: Mapping[str, Experts]
    experts_wide: Mapping[str, Experts]
    usable_memory: float


_NO_LINK = 64e9
"""Two-way bytes a second between chips whose host link is not known (PCI Express 4 x16)."""


@cache
def serving_table(name: str) -> dict[str, Any]:
    """One table of ``data/serving.toml``."""
    return _file("serving.toml")[name]


@cache
def _file(name: str) -> dict[str, Any]:
    return tomllib.loads(files("mlsysim.data").joinpath(name).read_text(encoding="utf-8"))


def engine_names() -> tuple[str, ...]:
    """Engines that have constants."""
    return tuple(_file("engines.toml"))


DEFAULT_ENGINE = "vLLM"
ENGINES = engine_names()
"""The engines of ``data/engines.toml``: an entry there is all that a further one needs."""


_trial: ContextVar[Engine | None] = ContextVar("trial", default=None)


@contextmanager
def trying(candidate: Engine) -> Iterator[None]:
    """Within it the engine of the candidate's name is the candidate: for fits, which move constants and ask again."""
    before = _trial.set(candidate)
    try:
        yield
    finally:
        _trial.reset(before)


def engine(name: str) -> Engine:
    """The engine of that name; raises with the nearest one."""
    found, trial = _engine(name), _trial.get()
    return trial if trial is not None and trial.name == found.name else found


def _key(name: str) -> str | None:
    table, folded = _file("engines.toml"), _folded(name)
    return next((k for k, row in table.items() if folded in {_folded(n) for n in (k, *row.get("aliases", ()))}), None)


def is_engine(name: str) -> bool:
    """Whether a name is that of a serving engine."""
    return _key(name) is not None


@cache
def _engine(name: str) -> Engine:
    table, key = _file("engines.toml"), _key(name)
    if key is None:
        raise unknown_name("serving engine", name, table)
    record = _EngineRecord(**table[key])
    values = {field: getattr(record, field) for field in type(record).model_fields if field != "aliases"}
    seconds = {field: to_si(value, "s") for field, value in values.items() if isinstance(value, Quantity)}
    return Engine(name=key, **{**values, **seconds, "source": record.source.title})


def _folded(name: str) -> str:
    return re.sub(r"[-_. ]", "", name.lower())


def chip_class(chip: HardwareNode) -> str:
    """The class of serving kernels that a chip belongs to."""
    for name, members in serving_table("classes").items():
        if name != "source" and (chip.generation in members or chip.metadata.key in members):
            return str(name)
    return "other"


def _pick(table: Mapping[str, Any], *names: str) -> Any:
    for name in (*names, "other"):
        if name in table:
            return table[name]
    raise KeyError(names)


def _experts(table: Mapping[str, Any], family: str, kernels: str) -> dict[str, Experts]:
    found: dict[str, Experts] = {}
    for group, owner in (("other", "other"), (family, "vllm"), (family, kernels)):
        for name, (rate, memory, start, activation) in table.get(group, {}).get(owner, {}).items():
            found[name] = Experts(rate, memory, _seconds(start), activation)
    return found


@cache
def _seconds(text: str) -> float:
    return to_si(Q_(text), "s")


def _from_profile(chip: HardwareNode) -> tuple[dict[str, Products], dict[str, float], float]:
    """Products and attention of prompts as the chip's own efficiency profile has them."""
    own = profile(chip)
    products = {
        name: Products(g.rate_share * g.sustained, g.memory_share, to_si(g.start, "s"), g.quantise_share)
        for name, g in own.gemm.items()
    }
    attention = own.attention
    shares = {"bf16": attention.rate_share, "fp8": attention.rate_share * attention.fp8_gain}
    return products, shares, attention.ramp_tokens


def offered_memory(chip: HardwareNode) -> float:
    """Memory that the driver offers, over the datasheet's: as measured on the chip of that name, else as its profile has it."""
    key = chip.metadata.key or ""
    offered = serving_table("driver_memory").get(key)
    if offered is None or key not in Hardware:
        return profile(chip).usable_memory
    return float(offered) / to_si(Hardware.get(key).memory.capacity, "byte")


def kernels(chip: HardwareNode, of: str) -> ServingKernels:
    """What the kernels of an engine (``Engine.kernels``) reach on a chip."""
    family = chip_class(chip)
    attention = _pick(serving_table("attention"), family)
    products, prompt_attention, ramp = _from_profile(chip)
    gemm = serving_table("gemm")
    for name, (rate, share, start, quantise) in (gemm.get(family, {}) | gemm.get(f"{of}_{family}", {})).items():
        products[name] = Products(rate, share, _seconds(start), quantise)
    measured = serving_table("prefill_attention").get(family)
    if measured is not None:
        prompt_attention, ramp = {"bf16": measured["bf16"], "fp8": measured["fp8"]}, measured["ramp_tokens"]
    small = serving_table("small_kernel")
    memory = to_si(chip.memory.capacity, "byte") * offered_memory(chip)
    return ServingKernels(
        family=family,
        products=products,
        prompt_attention=prompt_attention,
        ramp_tokens=ramp,
        small_kernel=_seconds(_pick(small, family)),
        elementwise_share=small["memory_share"],
        cache_share=_pick(_pick(serving_table("cache_share"), family), of),
        attention_start=_seconds(attention["start"]),
        latent_memory_share=attention["latent_memory_share"],
        latent_rate_share=attention["latent_rate_share"],
        latent_fp8_rate=attention["latent_fp8_rate"],
        rate_scale=serving_table("rate_scale").get(chip.metadata.key or "", 1.0),
        state_share={name: _pick(serving_table("recurrent")[name], family) for name in ("delta", "mamba")},
        network=_network(chip, family),
        experts=_experts(serving_table("moe"), family, of),
        experts_wide=_experts(serving_table("moe_wide"), family, of),
        usable_memory=memory,
    )


_NODE = 8
"""Chips of a node."""


def _network(chip: HardwareNode, family: str) -> Tabled:
    """What messages between chips reach inside an engine."""
    link, sums = chip.link, serving_table("all_reduce")
    two_way = 2 * to_si(chip.interconnect.bandwidth, "byte/s") if chip.interconnect is not None else _NO_LINK
    near = host = _reduction(sums["host"], two_way)
    domain = 1
    if link is not None and chip.metadata.key not in serving_table("unbridged")["chips"]:
        two_way, domain = to_si(link.bandwidth_total, "byte/s"), link.domain or _NODE
        near = _reduction(_pick(sums, family), two_way)
    return Tabled(
        link=serving_table("exchange")["link_share"] * (two_way / 2),
        link_latency=table_seconds("exchange", "start"),
        fabric=table_bytes("exchange", "network_bandwidth"),
        fabric_latency=table_seconds("exchange", "network_start"),
        domain=domain,
        near=near,
        host=host,
        wide=Reduction(
            table_seconds("all_reduce_network", "start"), 0.0, {0: table_bytes("all_reduce_network", "bandwidth")}
        ),
        node=_NODE,
        pools=table_bytes("cache_transfer", "bandwidth"),
    )


def _reduction(table: Mapping[str, Any], two_way: float) -> Reduction:
    rates = {int(n): share * two_way for n, share in table["share"].items()}
    return Reduction(_seconds(table["start"]), _seconds(table["per_rank"]), rates)


@cache
def table_bytes(name: str, field: str) -> float:
    """A size or rate of ``data/serving.toml`` in bytes (per second)."""
    value = Q_(serving_table(name)[field])
    return to_si(value, "byte/s" if value.check("[information]/[time]") else "byte")


@cache
def table_seconds(name: str, field: str) -> float:
    """A time of ``data/serving.toml`` in seconds."""
    return _seconds(serving_table(name)[field])
