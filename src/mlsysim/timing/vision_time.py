"""Calibrated fidelity for convolutional networks and vision transformers: a pass as a sum over classes of operators.

    device = sum_c a_c F_c / P + sum_c b_c B_c (1/W + i_c/V) + b_w (weights / W) + n t_k
    t = | device, (n + c k) h |_p                                h what the host needs to start one operator, c h to convert one of k tensors

F operations of class c at the tensor peak P (depthwise convolutions at V), B bytes of memory at W, for each of which i_c slots
are issued at the rate V (:func:`mlsysim.physics.vision.elementwise_bandwidth`): few in elementwise kernels, many in spatial convolutions, which
gather each input for every tap, and more where channels are not last. Slots are those of lanes: where integers have lanes of their own (Volta, Turing, A100) they are twice those that the
single-precision rate counts. t_k is the gap between one kernel and the next. Where operators choose their format (autocast), each
weight and half of the inputs of products are converted in every pass; h is more on older hosts, less on desktops. The coefficients belong to a named software stack (``data/software/vision.toml``: eager or compiled, memory layout, inference or
training), i_c to all of them, and neither to a chip. Terms add up; one maximum over a whole network is worse. Where a card's power limit is low
for its rate, the clock falls and with it P and V.

On a CPU the same sum holds in single precision, with a latency for each operator that grows with the number of cores.
Left out: how a kernel's efficiency depends on its own shape (6 % in the median, and 25 % for one network in ten), image
decoding and copies to the device.

On a ledger operations are wall 1. The bytes of elementwise kernels take memory and vector arithmetic one after the other, so that
each byte term is two parts, of walls 2 and 1. Starts and launches are wall 3.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.inventory import Inventory
from mlsysim.physics.power import clock_for, voltage, waiting_power
from mlsysim.physics.precision import bytes_per_element, compute_precision, format_of
from mlsysim.physics.vision import elementwise_bandwidth, overlapped_time
from mlsysim.timing.operator_times import started
from mlsysim.timing.power import power_constants
from mlsysim.timing.profile import profile, software_file
from mlsysim.timing.tags import Tag, untagged
from mlsysim.units.registry import Q_, to_si

TENSOR = {"conv": ("conv",), "dense": ("pointwise", "gemm"), "attention": ("attention",), "grouped": ("grouped",)}
MOVED = (
    *("conv", "pointwise", "gemm", "attention", "softmax", "view", "depthwise", "grouped"),
    *("batch_norm", "relu", "activation", "elementwise", "layer_norm", "group_norm", "copy", "reduction"),
)
TERMS = (
    *(f"{name}_operations" for name in TENSOR),
    "depthwise_operations",
    *(f"{name}_bytes" for name in MOVED),
    "weights",
    "kernels",
)
_CPU_OPERATIONS = ("conv", "pointwise", "gemm", "attention", "grouped", "depthwise")
_CPU_BYTES = {
    "product": ("conv", "pointwise", "gemm", "attention", "softmax", "grouped"),
    "depthwise": ("depthwise",),
    "elementwise": ("batch_norm", "relu", "activation", "elementwise", "reduction", "softmax"),
    "norm": ("layer_norm", "group_norm"),
    "copy": ("copy",),
}
_CPU_CALLS = {
    "conv": ("conv", "pointwise", "grouped", "depthwise"),
    "gemm": ("gemm", "attention"),
    "elementwise": (
        *("elementwise", "activation", "reduction", "layer_norm", "group_norm"),
        *("softmax", "batch_norm", "relu"),
    ),
    "copy": ("copy",),
}
CPU_TERMS = (
    *(f"{name}_operations" for name in _CPU_OPERATIONS),
    "weights",
    *(f"{name}_bytes" for name in _CPU_BYTES),
    *(f"{name}_calls" for name in _CPU_CALLS),
)
UNFUSED = "_2022"
CAPTURED = ("compiled", "compiled_train", "mlperf_train", "graph", "graph_16bit")
"""Stacks that convert inside other kernels; the attention of those before (:data:`UNFUSED`) is a row of calls."""
STRIDED = "nchw"
"""What names of stacks have whose channels are not last, so that kernels turn their inputs around."""
THROUGHOUT = "_16bit"
"""How names of stacks end whose weights have the format of the arithmetic, so that nothing is cast."""
UPDATED = 36 / 50
"""Of what moves weights in a trained pass, the update: decay, momentum and step each read two numbers of four bytes a parameter and write one; before it the
weight is read and written in 16 bits (6 bytes), and its gradient written, read and written in 32 (8)."""
WEIGHED = ("conv", "dense", "grouped", "depthwise", "pointwise", "gemm")
"""What has weights: of its passes, which take as long each, one is their gradient."""
FROZEN = 6 / 50
"""Of what moves weights in a trained pass, what is left of frozen ones: reading and casting them."""
INTENSITIES = {
    **dict.fromkeys(("pointwise", "gemm"), "product"),
    **dict.fromkeys(("layer_norm", "group_norm"), "norm"),
    **dict.fromkeys(("copy", "reduction", "view"), "copy"),
    **{name: name for name in ("conv", "grouped", "depthwise")},
}
"""The kind whose slots a byte of a class takes; of all others those of elementwise kernels."""
_NAMES = {
    **dict.fromkeys(("conv", "grouped", "depthwise"), "convolutions"),
    **dict.fromkeys(("dense", "pointwise", "gemm", "product"), "products"),
    **dict.fromkeys(("attention", "softmax", "view"), "attention"),
    "weights": "weights",
}
_PRECISIONS = {"amp": "fp16", "mixed": "fp16"}
_MICROSECOND = 1e-6
_HALF = bytes_per_element("bf16")


@cache
def constants() -> dict[str, Any]:
    """The tables of ``data/software/vision.toml`` and ``data/software/runtimes.toml``."""
    return software_file("vision") | software_file("runtimes")


def clock_of(chip: HardwareNode) -> float:
    """Clock under the card's power limit over that of its datasheet; 1 where the generation's usual limit is not known.

    A card at its datasheet's clock would draw what its vector rate takes on the generation's parts that are not limited; all but a share of
    that, which is drawn asleep, follows clock and voltage (:mod:`mlsysim.physics.power`).
    """
    usual = constants()["usual_power"].get((chip.generation or "").replace(" ", "_"))
    if usual is None or chip.tdp is None:
        return 1.0
    tables, whole = power_constants(), vector_rate(chip) * to_si(Q_(usual), "J/flop")
    deep, slope, least = tables["chip"]["default"]["deep"], tables["limit"]["slope"], tables["limit"]["least"]
    # Powers as shares of the whole.
    found = clock_for(
        float(min(to_si(chip.tdp, "W") / whole, 1.0)), lambda x: waiting_power(deep, 1.0, x, voltage(x, slope, least))
    )
    return float(found)


def first_peak(chip: HardwareNode, *formats: str) -> float | None:
    """Peak of the first of these formats that the chip computes in."""
    known = (name for name in formats if chip.compute.supports(name))
    return next((to_si(chip.compute.peak(name), "flop/s") for name in known), None)


def vector_rate(chip: HardwareNode) -> float:
    """Rate of single-precision arithmetic outside matrix units; a share of the 16-bit peak where the chip states none."""
    own = first_peak(chip, "fp32")
    if own is not None:
        return own
    wide = first_peak(chip, "bf16", "fp16") or to_si(chip.compute.peak_flops, "flop/s")
    return float(constants()["vector_rate"]["share"] * wide)


def issue_rate(chip: HardwareNode) -> float:
    """Operations of a kernel's lanes a second, of whatever type: twice the single-precision rate where integers have lanes of their own."""
    lanes = constants()["integer_lanes"]
    apart = chip.generation in lanes["generations"] or chip.metadata.key in lanes["chips"]
    return vector_rate(chip) * (2.0 if apart else 1.0)


def issued_over_moved(chip: HardwareNode) -> float:
    """Seconds of an operation for each byte over those of moving it."""
    return to_si(chip.memory.bandwidth, "byte/s") / (issue_rate(chip) * clock_of(chip))


def is_mixed(precision: str, stack: str) -> bool:
    """Whether operators choose their format: 16-bit arithmetic over single-precision parameters, which norms and sums of several inputs keep."""
    if stack.endswith(THROUGHOUT):
        return False
    return precision not in ("fp32", "tf32") and bytes_per_element(_arithmetic(precision)) == _HALF


def host_of(chip: HardwareNode) -> str | None:
    """The kind of a chip's host, where it is no server of its time: ``desktop`` or ``older``."""
    hosts = constants()["hosts"]
    if (chip.metadata.key or "").startswith(tuple(hosts["desktop"])):
        return "desktop"
    return "older" if chip.generation in hosts["older"] else None


def launched(inventory: Inventory, stack: str, precision: str) -> tuple[float, float]:
    """Operators that the host starts for a pass, and conversions of tensors among them. Of an attention that is one call views and softmax are not."""
    if stack.startswith("graph"):
        return 0.0, 0.0
    cast = is_mixed(precision, stack) and stack not in CAPTURED
    return (inventory.kernels if stack.endswith(UNFUSED) else inventory.captured), inventory.casts if cast else 0.0


def _arithmetic(precision: str) -> str:
    return _PRECISIONS.get(precision) or compute_precision(precision)


def _peak(chip: HardwareNode, precision: str) -> float:
    """Rate of the products. A chip without one 16-bit format computes in the other, one without TF32 in fp32."""
    wanted = _arithmetic(precision)
    if not chip.compute.supports(wanted) and wanted in ("tf32", "fp16", "bf16"):
        wanted = "fp32" if wanted == "tf32" else "fp16" if chip.compute.supports("fp16") else "bf16"
    return arithmetic_peak(chip, wanted)[0]


def _width(chip: HardwareNode, precision: str) -> float:
    """Bytes of an element between operators: of the format that the chip computes in, which narrow weights are expanded to."""
    width = bytes_per_element("fp32" if precision in ("tf32", "fp32") else _arithmetic(precision))
    return width if width >= _HALF or not arithmetic_peak(chip, precision)[1] else _HALF


def gpu_features(
    inventory: Inventory, chip: HardwareNode, batch: float, precision: str, stack: str
) -> dict[str, float]:
    """Seconds of each term for one sample, at a coefficient of one; of bytes those of memory alone. What is trained keeps 16 bits between its
    products."""
    trained = "train" in stack
    width = max(_width(chip, precision), _HALF if trained else 0.0)
    clock = clock_of(chip)
    peak = _peak(chip, precision) * clock
    memory = to_si(chip.memory.bandwidth, "byte/s")
    features = {
        f"{name}_operations": sum(inventory.operations.get(c, 0.0) for c in classes) / peak
        for name, classes in TENSOR.items()
    }
    features["depthwise_operations"] = inventory.operations.get("depthwise", 0.0) / (issue_rate(chip) * clock)
    for name in MOVED:
        features[f"{name}_bytes"] = width * inventory.moved(name) / memory
    # Autocast reads each single-precision weight and writes its half-precision copy once a pass; narrow weights are stored so.
    narrow = bytes_per_element(_arithmetic(precision))
    cast = narrow >= _HALF and not stack.endswith(THROUGHOUT)
    stored = bytes_per_element("fp32") + width if cast or trained else narrow
    features["weights"] = stored * inventory.parameters / memory / batch
    features["kernels"] = inventory.captured * _MICROSECOND / batch
    return features


def cpu_features(inventory: Inventory, chip: HardwareNode, batch: float, precision: str = "fp32") -> dict[str, float]:
    """Seconds of each term for one sample on a CPU, at a coefficient of one; measured in single precision."""
    peak, memory = _peak(chip, precision), to_si(chip.memory.bandwidth, "byte/s")
    width = _width(chip, precision)
    found = {f"{name}_operations": inventory.operations.get(name, 0.0) / peak for name in _CPU_OPERATIONS}
    found["weights"] = width * inventory.parameters / memory / batch
    for name, classes in _CPU_BYTES.items():
        found[f"{name}_bytes"] = width * sum(inventory.elements.get(c, 0.0) for c in classes) / memory
    for name, classes in _CPU_CALLS.items():
        found[f"{name}_calls"] = _MICROSECOND * sum(inventory.calls.get(c, 0.0) for c in classes) / batch
    return found


def stack_constants(stack: str) -> dict[str, float]:
    """Coefficients of a named stack."""
    tables = constants()
    if stack in tables["stacks"]:
        return tables["stacks"][stack]
    if stack not in tables["derived"]:
        raise unknown_name("software stack", stack, [*tables["stacks"], *tables["derived"]])
    derived = tables["derived"][stack]
    scale = tables["scales"].get(derived.get("scale"), {})
    return {name: value * scale.get(name, 1.0) for name, value in tables["stacks"][derived["like"]].items()}


def launch_cost(stack: str, chip: HardwareNode) -> Any:
    """Seconds of the host for one operator."""
    tables = constants()
    return tables["launch_us"][stack] * tables["launch"].get(host_of(chip), 1.0) * _MICROSECOND


def inventory_time(
    inventory: Inventory,
    chip: HardwareNode,
    batch: float,
    precision: str,
    stack: str,
    tag: Tag = untagged,
    updates: Any = 1.0,
    frozen: bool = False,
) -> Any:
    """Seconds of one pass over a batch on a GPU or a CPU, run by a named stack; training stacks were measured with an update of all weights in
    each pass, of which there may be fewer ``updates``. ``frozen`` weights have no gradients."""
    tables = constants()
    if chip.family == "cpu":
        return _cpu_time(inventory, chip, batch, precision, stack, tag)
    table = stack_constants(stack)
    features = gpu_features(inventory, chip, batch, precision, stack)
    memory, rate = to_si(chip.memory.bandwidth, "byte/s"), issue_rate(chip) * clock_of(chip)

    def term(name: str, seconds: float) -> Any:
        # What a byte takes of memory, of memory and its operations together.
        kind = INTENSITIES.get(name.removesuffix("_bytes"), "elementwise")
        share = 1.0
        if name.endswith("_bytes"):
            issued = tables["intensity"][kind] * (tables["strided"].get(kind, 1.0) if STRIDED in stack else 1.0)
            share = elementwise_bandwidth(memory, rate, issued) / memory
        if name == "weights" and "train" in stack:
            seconds = seconds * (FROZEN if frozen else 1 - UPDATED + UPDATED * updates)
        passed = 2 / 3 if frozen and name.rpartition("_")[0] in WEIGHED else 1.0
        seconds = passed * seconds
        spent = table[name] * seconds / share
        return _named(
            name,
            spent,
            share,
            seconds * memory,
            inventory,
            passed * batch,
            tag,
            "updated weights" if "train" in stack else "weights",
        )

    device = sum(term(name, value * batch) for name, value in features.items())
    device = device + expansion_time(chip, inventory.parameters, precision, tag, 2 if frozen else 0)
    (count, casts), cost = launched(inventory, stack, precision), launch_cost(stack, chip)
    if not count * cost:
        return device
    host = (count + tables["launch"]["cast"] * casts) * tag(
        "launches", 3, "host", "t = | device, (n + c k) h |_p", cost
    )
    return overlapped_time(device, host, tables["launch"]["sharpness"])


def expansion_time(chip: HardwareNode, parameters: float, precision: str, tag: Tag, trained: int = 0) -> Any:
    """Seconds of expanding weights of a weight-only format in memory, from where products read 16 bits: those that kernels do not expand themselves, once a
    pass, and all of them beside adapters that are ``trained``, in so many passes."""
    found = format_of(_PRECISIONS.get(precision, precision))
    if not found.weight_only or not (trained or found.expanded == "memory"):
        return 0.0
    moved = parameters * (trained * found.expansion if trained else found.bytes + _HALF)
    seconds = moved / (profile(chip).memory_bound.eager_share * to_si(chip.memory.bandwidth, "byte/s"))
    return tag("expansion of weights", 2, "bandwidth", "t = b w / W", seconds, moved=moved)


def _cpu_time(inventory: Inventory, chip: HardwareNode, batch: float, precision: str, stack: str, tag: Tag) -> Any:
    if "train" in stack:
        raise InputError(f"training of vision networks is not calibrated on {chip.name}.")
    cpu = constants()["cpu"]
    scales = cpu["classes"].get(chip.metadata.key, cpu["classes"]["default"])
    features = cpu_features(inventory, chip, batch, precision)
    memory = to_si(chip.memory.bandwidth, "byte/s")
    total: Any = 0
    for name, value in features.items():
        seconds = cpu[name] * value * batch * scales[_cpu_kind(name)]
        total = total + _named(name, seconds, 1.0, batch * value * memory, inventory, batch, tag)
    return total


def _named(
    term: str,
    seconds: float,
    memory_share: float,
    moved: float,
    inventory: Inventory,
    batch: float,
    tag: Tag,
    weights: str = "weights",
) -> Any:
    """A term as parts of a ledger. A kernel that moves elements uses memory for ``memory_share`` of its time. Weights that are trained are read, cast,
    and updated from their gradients, under another name."""
    word, _, kind = term.rpartition("_")
    name = _NAMES.get(word or term, "norms and activations")
    if term == "kernels" or kind == "calls":
        return started(seconds, tag)
    if kind == "operations":
        counted = batch * sum(inventory.operations.get(each, 0.0) for each in TENSOR.get(word, (word,)))
        return tag(name, 1, "peak", "t = a F / P", seconds, flop=counted)
    if term == "weights":
        return tag(weights, 2, "bandwidth", "t = b w / W", seconds, moved=moved)
    moving = tag(name, 2, "bandwidth", "t = b B (1 / W + i / V)", memory_share * seconds, moved=moved)
    if memory_share == 1.0:
        return moving
    return moving + tag(name, 1, "peak", "t = b B (1 / W + i / V)", (1 - memory_share) * seconds)


def _cpu_kind(term: str) -> str:
    return "latency" if term.endswith("_calls") else "arithmetic" if term.endswith("_operations") else "memory"
