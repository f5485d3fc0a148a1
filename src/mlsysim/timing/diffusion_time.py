"""Calibrated fidelity for denoisers: one pass, or all denoising steps of a batch of images, on one device or several.

    t = | device, launches |_p
    device = F_lin/(eta P n) + attention + b B/(V n) + w W_bytes/W steps + v images/V + operators x k x steps + exchange + ring steps
    attention = a F_att/(P n) + s S/(V n)      PyTorch's own kernels: products at the peak, S exponentials of scores at the vector rate
              = a F_att/(V n)                  flash-attention 2, as xDiT calls it
    launches = (operators x h + [n > 1] blocks x l) x steps

Norms, modulations and copies between products scale with the vector rate V (cores times clock) and not with the bandwidth, which is why a chip
of 2.3 times the peak is 1.4 times as fast under eager code. S = F_att / 4d: heads of few dimensions wait for their exponentials (0.4 PFLOP/s on an
H200 at 64, 0.6 at 128). n devices split the tokens: ``ulysses`` of them exchange heads all to all, ``ring`` of them pass keys and values
around. The decoder runs once for each image. A stack (``data/software/runtimes.toml``, table ``denoising``) says which terms count: launched one
by one, captured in a graph (no launches), compiled (fewer bytes and launches), or xDiT of 2025. Coefficients are fitted to all of them at once
(``data/software/vision.toml``, table ``diffusion``).

Left out: products of few rows, which fill no chip (one small image is up to a third slower), and how often a network's code asks the host for each
operator (a DiT of diffusers, whose blocks embed the label anew, takes twice the launches of others).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.precision import bytes_per_element, format_of
from mlsysim.physics.vision import overlapped_time
from mlsysim.timing.power import Activity, power_constants, vector_share
from mlsysim.timing.profile import profile
from mlsysim.timing.tags import Tag, untagged
from mlsysim.timing.vision_time import constants, expansion_time, first_peak, issue_rate
from mlsysim.units.ops import some
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si

if TYPE_CHECKING:
    from mlsysim.models.vision import DiffusionWorkload

_HALF = bytes_per_element("bf16")
_PARTS = {
    "products": ("products", 1, "peak"),
    "attention_products": ("attention", 1, "peak"),
    "scores": ("attention", 1, "peak"),
    "flash_attention": ("attention", 1, "peak"),
    "product_bytes": ("products", 1, "peak"),
    "elementwise_bytes": ("norms and activations", 1, "peak"),
    "attention_bytes": ("attention", 1, "peak"),
    "fused_product_bytes": ("products", 1, "peak"),
    "fused_elementwise_bytes": ("norms and activations", 1, "peak"),
    "weights": ("weights", 2, "bandwidth"),
    "decoder": ("image decoder", 1, "peak"),
    "kernels": ("smallest kernels", 3, "host"),
    "ring": ("ring of keys and values", 14, "link"),
    "exchange": ("exchange of heads", 14, "link"),
    "operators": ("launches", 3, "host"),
    "served_operators": ("launches", 3, "host"),
    "fused_operators": ("launches", 3, "host"),
    "group": ("launches", 3, "host"),
}
"""Name, wall and resource of each term. Bytes of eager diffusion code go at the vector rate, so arithmetic is their wall."""
HOST_TERMS = ("operators", "served_operators", "fused_operators", "group")
DEVICE_TERMS = tuple(term for term in _PARTS if term not in HOST_TERMS)
EAGER, XDIT = "diffusion", "diffusion_xdit"


@dataclass(frozen=True, slots=True)
class Denoiser:
    """One denoiser pass of one image: operations, bytes in 16 bit and calls."""

    products: float
    attention: float
    scores: float
    product_bytes: float
    elementwise_bytes: float
    attention_bytes: float
    exchanged_bytes: float
    weight_bytes: float
    operators: float
    blocks: float

    @property
    def operations(self) -> float:
        return self.products + self.attention


def denoiser(model: DiffusionWorkload) -> Denoiser:
    """What one pass of one image asks for."""
    if not model.rows:
        raise InputError(f"{model.name} is known by its totals only; calibrated times need its layers.")
    found = dict.fromkeys(Denoiser.__slots__, 0.0)
    for op in model.lower("inference", batch_size=1, precision="bf16").operators:
        moved = op.count * (op.input_bytes + op.output_bytes)
        found["operators"] += op.count
        if op.kind == "attention":
            found["attention"] += op.count * op.flops
            found["scores"] += op.count * op.flops / (4 * op.k)
            found["attention_bytes"] += moved
            if op.n >= op.m / 2:  # attention among the image's tokens, not to the text
                found["blocks"] += op.count
                found["exchanged_bytes"] += moved
        elif op.kind in ("gemm", "conv", "batched_gemm", "grouped_gemm"):
            found["products"] += op.count * op.flops
            found["product_bytes"] += moved
            found["weight_bytes"] += op.count * op.weight_bytes
        else:
            found["elementwise_bytes"] += moved
    return Denoiser(**found)


def diffusion_features(
    work: Denoiser,
    chip: HardwareNode,
    batch: float,
    passes: float,
    steps: float,
    ulysses: int = 1,
    ring: int = 1,
    precision: str = "bf16",
    images_decoded: float | None = None,
    stack: str = EAGER,
) -> dict[str, float]:
    """Seconds of each term of a stack at a coefficient of one, for ``steps`` denoising steps of ``passes`` / ``steps`` passes each.

    Measured in 16 bits; another format changes the rate of the products and the bytes of the weights, a wider one all bytes, and the rate
    of attention as that of the products.
    """
    devices = ulysses * ring
    wide = "fp16" if precision == "bf16" and not chip.compute.supports("bf16") else precision
    peak = arithmetic_peak(chip, wide)[0] * profile(chip).gemm_for("bf16").rate_share
    vector = issue_rate(chip)
    memory = to_si(chip.memory.bandwidth, "byte/s")
    if devices > 1 and chip.link is None:
        raise InputError(f"{chip.name} states no link to other chips, so {devices} of them cannot share an image.")
    images, wider, slower = batch * passes, 1.0, 1.0
    if format_of(precision).wide:
        usual = first_peak(chip, "bf16", "fp16") or arithmetic_peak(chip, precision)[0]
        wider, slower = bytes_per_element(precision) / _HALF, usual / arithmetic_peak(chip, precision)[0]
    exchange = 0.0
    if devices > 1 and chip.link is not None:
        link = to_si(chip.link.bandwidth_per_direction, "byte/s")
        exchange = wider * work.exchanged_bytes * images / devices * (ulysses - 1) / ulysses / link
    products = wider * work.product_bytes * images / (vector * devices)
    elementwise = wider * work.elementwise_bytes * images / (vector * devices)
    operators = work.operators * steps * 1e-6
    found = {
        "products": work.products * images / (peak * devices),
        "attention_products": slower * work.attention * images / (peak * devices),
        "scores": work.scores * images / (vector * devices),
        "flash_attention": slower * work.attention * images / (vector * devices),
        "product_bytes": products,
        "elementwise_bytes": elementwise,
        "fused_product_bytes": products,
        "fused_elementwise_bytes": elementwise,
        "attention_bytes": wider * work.attention_bytes * images / (vector * devices),
        "weights": work.weight_bytes * _read(precision) / _HALF * steps / memory,
        "decoder": (batch if images_decoded is None else images_decoded)
        * constants()["diffusion_facts"]["decoder_flops"]
        / vector,
        "kernels": operators,
        "ring": (ring - 1) * work.blocks * steps * 1e-6,
        "exchange": exchange,
        "operators": operators,
        "served_operators": operators,
        "fused_operators": operators,
        "group": (devices > 1) * work.blocks * steps * 1e-6,
    }
    counted = constants()["denoising"]
    return {term: seconds for term, seconds in found.items() if term in (*counted[stack], *counted["every"])}


def _read(precision: str) -> float:
    """Bytes of a weight as products read it: 16 bits where it was expanded in memory."""
    found = format_of(precision)
    return _HALF if found.weight_only and found.expanded == "memory" else found.bytes


def diffusion_time(
    model: DiffusionWorkload,
    chip: HardwareNode,
    batch_size: float,
    steps: int | None = None,
    ulysses: int = 1,
    ring: int = 1,
    precision: str = "bf16",
    stack: str = EAGER,
    tag: Tag = untagged,
) -> Any:
    """Seconds to make a batch of images."""
    steps = steps or model.denoising_steps
    work = denoiser(model)
    features = diffusion_features(
        work, chip, batch_size, steps * model.guidance_passes, steps, ulysses, ring, precision, stack=stack
    )
    made = _combined(features, work.operations * batch_size * steps * model.guidance_passes / (ulysses * ring), tag)
    return made + steps * expansion_time(chip, work.weight_bytes / _HALF, precision, tag)


def denoising_time(
    model: DiffusionWorkload,
    chip: HardwareNode,
    batch_size: float,
    precision: str = "bf16",
    stack: str = EAGER,
    tag: Tag = untagged,
) -> Any:
    """Seconds of one pass of the denoiser, of which :func:`diffusion_time` has many and the decoder."""
    work = denoiser(model)
    features = diffusion_features(work, chip, batch_size, 1, 1, precision=precision, images_decoded=0.0, stack=stack)
    made = _combined(features, work.operations * batch_size, tag)
    return made + expansion_time(chip, work.weight_bytes / _HALF, precision, tag)


def _combined(features: Mapping[str, float], operations: float, tag: Tag) -> Any:
    table = constants()["diffusion"]
    counted = {"products": operations}

    def seconds(term: str) -> Any:
        equation = "t = | device, launches |_p"
        return tag(*_PARTS[term], equation, table[term] * features[term], flop=counted.get(term, 0.0))

    device = sum(seconds(term) for term in DEVICE_TERMS if some(features.get(term, 0.0)))
    host = sum(seconds(term) for term in HOST_TERMS if some(features.get(term, 0.0)))
    return overlapped_time(device, host, table["sharpness"])


def diffusion_activity(
    model: DiffusionWorkload,
    chip: HardwareNode,
    devices: int,
    batch_size: float,
    steps: int,
    seconds: float,
    stack: str = EAGER,
) -> Activity:
    """What each device does while a group of them makes a batch of images in a given time.

    It is busy for what the device work alone would take on one device, over the time of all of them; to a fitted exponent, since
    its many small kernels leave gaps. All of it is taken for eager code.
    """
    table, work = constants()["diffusion"], denoiser(model)
    operations = work.operations * batch_size * steps * model.guidance_passes
    features = diffusion_features(work, chip, batch_size, steps * model.guidance_passes, steps, stack=stack)
    busy = min(1.0, sum(table[name] * features.get(name, 0.0) for name in DEVICE_TERMS) / (devices * seconds))
    busy = busy ** power_constants()["eager"]["exponent"]
    return Activity(operations / (devices * seconds), 0.0, busy, vector_share("eager"))
