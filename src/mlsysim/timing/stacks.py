"""Software as named data: what a framework fused, hid and kept in training, and how one device runs a network.

Training (``data/software/stacks.toml``): ``stack(name)`` gives one; ``nearest_stack(year, sharded)`` the one whose year is nearest,
for software that has no entry.

One device (``data/software/device.toml``): ``software(name)`` says how it runs what lies between the products. A lowered graph
counts the bytes that a norm, a residual or an activation must move at least. Software moves more: it runs them as several kernels,
or in wider numbers, or it fuses neighbours and moves less. ``traffic`` is that factor and ``launches`` the number of kernels, for
each operator by name; ``rotary`` is what stands beside an attention core.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import field, fields
from functools import cache
from typing import Any

from mlsysim.errors import ZooFileError, unknown_name
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.keeping import Keeping
from mlsysim.timing.profile import inherited, profile, software_file
from mlsysim.units.records import dataclass

ALONE = "plain"
"""The software on one accelerator where nothing is said: PyTorch as it comes."""


def default_stack(chip: HardwareNode, accelerators: int) -> str:
    """The software where nothing is said: on several accelerators that of Megatron's lineage at the chip's time (JAX on TPUs),
    because what newer software hides on an older chip was not measured."""
    return ALONE if accelerators == 1 else profile(chip, "training").stack


@dataclass(frozen=True, slots=True)
class Stack:
    """A framework generation.

    ``attention`` is the kernel: unfused, fa1, triton, fa2 or cudnn. ``elementwise`` is the fusion level: eager, megatron (fused
    dropout, bias and softmax) or fused. ``gradient_bytes`` are those of a gradient, held and sent. ``recompute`` is the default: none, selective
    (attention core), half (every other product), modules (norms and activations), parts of a layer such as light+up, full, or fit (the first
    of none and modules that fits); ``modes`` are those that it has, ``ladder`` what its users go down until a run fits. ``kappa`` is the share of
    hidden communication that slows computing anyway, ``send_exposed`` the share of a message between stages that delays the
    next one. ``host`` scales the launches of a mixture-of-experts layer, ``expert_fusion`` the bytes of permutation, conversion and activation around gated experts. ``cast_bytes`` are those of casting
    a parameter and its gradient in a step, ``update_bytes`` those of updating one with Adam (of every run where not given),
    ``light_launches`` the kernels of a layer's norms, residuals, position embedding and activation that start one by one,
    ``light_backward`` what they take backward, for each second forward. ``memory`` names what it holds,
    ``launcher`` the trainer whose rules a searched layout keeps (:mod:`mlsysim.timing.launchers`); none where empty. ``pads_vocabulary`` says whether
    the output head has aligned rows whatever the vocabulary, ``rings`` whether keys go around between devices that share a sequence (Liu et al. 2023,
    arXiv 2310.01889): a search for layouts has no context parallelism with software that is older.
    """

    name: str
    year: int
    title: str
    attention: str
    elementwise: str
    elementwise_share: float
    sequence_parallel: bool
    tensor_exposed: float
    data_overlap: bool
    gradient_bytes: float
    zero: int
    recompute: str
    loss_bytes: float
    kappa: float
    step_overhead: float
    source: str
    recompute_in_pipeline: str = ""
    ladder: tuple[str, ...] = ()
    modes: tuple[str, ...] = ("none", "selective", "full")
    exchange_exposed: float = 0.55
    send_exposed: float = 1.0
    host: float = 1.0
    expert_fusion: float = 1.0
    device_share: float = 1.0
    virtual_stages: str = "one"
    context_loss: float = 0.0
    cast_bytes: float = 0.0
    update_bytes: float | None = None
    light_launches: float = 0.0
    light_backward: float = 2.0
    memory: str = "mixed"
    pads_vocabulary: bool = True
    rings: bool = True
    launcher: str = ""
    sources: tuple[str, ...] = ()

    @property
    def fusion(self) -> Fusion:
        """What its elementwise kernels move."""
        return _fusion(self.elementwise)

    @property
    def keeps(self) -> Keeping:
        """What it holds in memory; gradients in the format that they are sent in."""
        return _keeping(self.memory, self.gradient_bytes)

    @property
    def schedule(self) -> str | None:
        """The pipeline schedule that it runs where nothing is said; None for 1F1B, interleaved with virtual stages."""
        return "dualpipe" if self.virtual_stages == "dualpipe" else None

    @property
    def selective(self) -> str:
        """What it recomputes under the name "selective": the core of attention where that keeps scores; beside attention that is fused, what Megatron
        names and next to no arithmetic makes again."""
        if self.recompute == "fit":
            return "norm+up+moe_act"
        return "attention" if self.recompute in ("none", "full") else self.recompute


@dataclass(frozen=True, slots=True)
class Fusion:
    """Elements that norms, residuals, position embedding and activation move, for each element of a width.

    ``adapter`` are those of an adapter beside a product, forward and backward: for each input, and for each output.
    """

    hidden: float
    rotary: float
    plain: float
    gated: float
    ungated: float
    adapter: tuple[tuple[float, float], tuple[float, float]]


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return {name: table for name, table in software_file("stacks").items() if name not in ("fusion", "memory")}


@cache
def _fusion(name: str) -> Fusion:
    found = inherited(software_file("stacks")["fusion"], name)
    return Fusion(**{key: value for key, value in found.items() if key != "source"})


@cache
def _keeping(name: str, gradient: float) -> Keeping:
    found = inherited(software_file("stacks")["memory"], name)
    return Keeping(gradient=gradient, placed=True, **{key: value for key, value in found.items() if key != "source"})


def stack_names() -> tuple[str, ...]:
    """Names of all stacks."""
    return tuple(_tables())


@cache
def stack(name: str) -> Stack:
    """The stack of that name."""
    folded = name.lower().replace("_", "-")
    if folded not in _tables():
        raise unknown_name("training stack", name, stack_names())
    table = inherited(_tables(), folded)
    unknown = set(table) - {each.name for each in fields(Stack)}
    if unknown:
        raise ZooFileError(
            f"stacks.toml, entry {folded!r}: unknown field {sorted(unknown)[0]!r}.",
            file="stacks.toml",
            entry=folded,
            reason="unknown field",
        )
    lists: dict[str, Any] = {key: tuple(table[key]) for key in ("sources", "modes") if key in table}
    return Stack(name=folded, **{**table, **lists})


def owner_of(name: str, field: str, fitted: Container[str] = ()) -> str:
    """The entry that a stack has a field from: its own, or that of one that it is like; ``fitted`` are paths of fields that may be in none."""
    table = _tables()[name]
    if field in table or f"stacks.{name}.{field}" in fitted:
        return name
    return owner_of(table["like"], field, fitted) if "like" in table else ""


def stack_of_source(source: str) -> Stack | None:
    """The stack whose published results carry this name, by the longest part of the name that an entry lists."""
    folded = source.lower().replace("_", "-")
    found = [(len(part), name) for name in _tables() for part in _tables()[name].get("sources", ()) if part in folded]
    return stack(max(found)[1]) if found else None


def nearest_stack(year: int, sharded: bool = False) -> Stack:
    """The stack nearest in time: of fully sharded data parallelism, or of Megatron's lineage."""
    names = ("fsdp23", "titan") if sharded else ("megatron21", "megatron22", "nemo23", "mcore24", "bridge")
    return min((stack(name) for name in names), key=lambda entry: abs(entry.year - year))


def contemporary(found: Stack) -> tuple[str, ...]:
    """Other stacks of its time, a year before and after: what unknown software of that time may do as well."""
    names = (
        "megatron21",
        "megatron22",
        "neox22",
        "nemo23",
        "megatron23",
        "fsdp23",
        "mcore24",
        "titan",
        "titanc",
        "bridge",
    )
    return tuple(name for name in names if name != found.name and abs(stack(name).year - found.year) <= 1)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Settings that a framework's own scripts give for a model on a chip."""

    software: str
    models: tuple[str, ...]
    source: str
    chips: tuple[str, ...] = ()
    since: float = 0.0
    until: float = 1e9
    stack: str = ""
    recompute: str = ""
    tp: int | None = None
    pp: int | None = None
    virtual_stages: int | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    zero: int | None = None
    adapter: float | None = None
    """Network of one accelerator (Gb/s) in the cluster that the scripts are written for."""
    sequence_parallel: bool | None = None
    exchange_overlapped: bool = False
    deduplicated: bool = True
    fp8_attention: bool = False
    predicted_tokens: int = 0
    offloaded_layers: int = 0
    """Layers whose activations wait with the host, in runs that share everything (ZeRO 3)."""


@cache
def _recipes() -> tuple[Recipe, ...]:
    return tuple(
        Recipe(**{**entry, "models": tuple(entry["models"]), "chips": tuple(entry.get("chips", ()))})
        for entry in software_file("recipes")["recipe"]
    )


def recipe(software: str, model: str, chip: str, release: float = 0.0) -> Recipe | None:
    """The published recipe for a model on a chip, of a release; None where there is none."""
    for entry in _recipes():
        if (
            entry.software == software
            and model in entry.models
            and (not entry.chips or chip in entry.chips)
            and entry.since <= release < entry.until
        ):
            return entry
    return None


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes moved over the least number of bytes, and kernels launched."""

    traffic: float = 1.0
    launches: float = 1.0


_PLAIN = Cost()


@dataclass(frozen=True, slots=True)
class Software:
    """A way of running a network on one device.

    ``graph``: captured and replayed, else launched by the host at ``host`` seconds a kernel (the chip's usual cost where None).
    ``cache_share`` is the bandwidth share of its decode attention where that is not the chip's best, ``experts`` the kernels of its
    grouped products. ``backward`` is the traffic of a backward kernel over what a lowered graph counts for it. ``loss_bytes`` are moved for each
    token and vocabulary entry by the loss, forward and backward; ``cast_bytes`` for each parameter by converting weights to
    16 bits in every pass, ``step`` are seconds of a training step that no operator has. ``pads_vocabulary``: the output head has aligned rows whatever the vocabulary.
    """

    name: str
    title: str
    graph: bool
    fused: bool
    attention: str
    source: str
    costs: dict[str, Cost] = field(default_factory=dict)
    host: float | None = None
    cache_share: float | None = None
    experts: str = "any"
    backward: float = 1.0
    loss_bytes: float = 0.0
    cast_bytes: float = 0.0
    step: float = 0.0
    pads_vocabulary: bool = True

    def cost(self, operator: str) -> Cost:
        """What the operator of that name costs; backward kernels as their forward ones."""
        return self.costs.get(operator.removesuffix(".backward"), _PLAIN)


def software_names() -> tuple[str, ...]:
    """Names of all entries."""
    return tuple(software_file("device"))


@cache
def software(name: str) -> Software:
    """The entry of that name."""
    if name not in software_file("device"):
        raise unknown_name("software", name, software_names())
    table = inherited(software_file("device"), name)
    costs = {key: Cost(**value) for key, value in table.pop("costs", {}).items()}
    return Software(name=name, costs=costs, **table)
