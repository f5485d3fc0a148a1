"""``verify``: run a pass of a model with random weights here, and put the prediction beside the measurement.

The network is built from the zoo entry's dimensions, with as many layers as asked for or as fit. What is predicted is the
public answer to the same pass with the same number of layers, under the software that runs here. A prefill, a decode step and an image network's forward
pass are captured in a CUDA graph on a GPU, unless operators are to be launched one by one. A training step is forward, backward and a fused AdamW,
launched operator by operator: of a language model in the network's precision, or of low-rank adapters beside frozen weights. Image networks run as their runtimes were measured, in mixed
precision over single-precision parameters, channels last, with convolutions tuned by trying (``cudnn.benchmark``); a convolutional network is torchvision's where that is installed, else its layers run
side by side without what lies between them, and the answer says so. Compiled is ``torch.compile`` of the forward pass, and in training of the backward pass that follows from it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import field
from functools import partial
from typing import Any, ClassVar, NamedTuple

from mlsysim.calibrate.cells import key_of
from mlsysim.calibrate.device import Device
from mlsysim.calibrate.network import build
from mlsysim.calibrate.network_rows import convolutional
from mlsysim.calibrate.samples import with_layers
from mlsysim.errors import InputError, unknown_name
from mlsysim.models.attention import Attention, LatentAttention
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.models.vision import CNNWorkload, VisionTransformerWorkload
from mlsysim.physics.precision import bytes_per_element, precision_name
from mlsysim.systems.registry import Fabrics
from mlsysim.systems.types import Fleet, Node
from mlsysim.timing.profile import profile
from mlsysim.timing.runtimes import trained_by_runtime
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si
from mlsysim.walls.document import Document
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.node.compute_memory import SingleNodeModel

PHASES = ("prefill", "decode", "train")

_PRECISIONS = ("bf16", "fp16", "fp32")
_SHARE_OF_MEMORY = 0.92
_FEWER = 0.9
"""What is built of the layers that did not fit after all."""
_CPU_LAYERS = 2


@dataclass(frozen=True)
class Verification(Document):
    """A prediction beside a measurement."""

    beside: ClassVar = ("error_pct", "inside")

    model: str
    phase: str
    batch: int
    seq_len: int | None
    layers: int | None
    of_layers: int | None
    precision: str
    device: str
    chip: str
    profile: str
    basis: str
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    extrapolating: bool
    graph: bool
    compiled: bool
    adapters: int
    attention: str
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def error_pct(self) -> float:
        """Predicted over measured, in per cent."""
        return 100 * (self.predicted_s / self.measured_s - 1)

    @property
    def inside(self) -> bool:
        return self.low_s <= self.measured_s <= self.high_s


def verify(
    model: Any,
    phase: str | None = None,
    *,
    layers: int | None = None,
    batch: int = 1,
    seq_len: int | None = None,
    precision: str | None = None,
    chip: str | None = None,
    device: Device | None = None,
    fuse: bool = False,
    eager: bool = False,
    lora: int = 0,
    seconds: float = 1.0,
) -> Verification:
    """Run one pass and predict it."""
    device = device or Device()
    workload = Models.get(model)
    _refuse(workload)
    vision = isinstance(workload, (VisionTransformerWorkload, CNNWorkload))
    phase = phase or "prefill"
    if phase not in PHASES:
        raise unknown_name("phase", phase, PHASES, remedy="use prefill, decode or train.")
    if phase == "decode" and (vision or workload.structure != "decoder"):
        raise InputError(f"{workload.name} does not decode; use prefill (its forward pass) or train.")
    if phase == "train":
        _refuse_training(workload)
    if lora < 0 or (lora and (phase != "train" or vision)):
        raise InputError("adapters have a rank of at least 1 and belong to a training step of a language model.")
    if batch < 1 or (seq_len is not None and seq_len < 1):
        raise InputError("the batch and the sequence length must be at least 1.")
    if vision and seq_len is not None:
        raise InputError(f"{workload.name} has images of a fixed size and takes no sequence length.")
    length = seq_len or (2048 if device.gpu else 64)
    node = device.chip(chip)
    precision = precision_name(precision or ("bf16" if device.gpu else "fp32"))
    if precision not in _PRECISIONS:
        raise InputError(f"verify runs in {', '.join(_PRECISIONS)}, not in {precision}.")
    if device.gpu and precision != "bf16" and hasattr(workload, "experts"):
        raise InputError(f"PyTorch has grouped products in bf16 alone; run {workload.name} so.")
    whole, found = getattr(workload, "layers", None), None
    if isinstance(workload, CNNWorkload) and layers is not None:
        raise InputError(f"{workload.name} is given by its layer rows and cannot be shortened.")
    work = Pass(workload, phase, batch, length, precision, fuse, lora)
    while found is None:
        gc.collect()
        device.release()
        if layers is not None:
            work = work._replace(workload=with_layers(workload, layers))
        elif not isinstance(workload, CNNWorkload):
            work = work._replace(workload=_shortened(work, node, device))
        try:
            found = _measure(work, device, eager, seconds)
        except device.torch.OutOfMemoryError:
            built = getattr(work.workload, "layers", None) or 1
            if layers is not None or built == 1:
                raise InputError(f"{workload.name} does not fit here with these sizes; take fewer --layers.") from None
            work = work._replace(workload=with_layers(workload, max(1, int(_FEWER * built))))
    measured, graph, kernel = found
    constants = profile(node)
    return Verification(
        workload.name, phase, batch, None if vision else length, getattr(work.workload, "layers", None), whole, precision,
        device.name, key_of(node), constants.name, constants.basis, measured, graph=graph, compiled=fuse, adapters=lora,
        attention=kernel, **predict(work, node, graph),
    )  # fmt: skip


def _refuse(model: Any) -> None:
    """One sentence for a model that is not built here."""
    if isinstance(model, (VisionTransformerWorkload, CNNWorkload)):
        if isinstance(model, CNNWorkload) and not model.rows:
            raise InputError(f"{model.name} has no layer rows, so there is nothing to run.")
        return
    if not isinstance(model, TransformerWorkload) or model.structure == "encoder-decoder":
        raise InputError(f"verify builds decoders, encoders, vision transformers and layer rows; {model.name} is none.")
    if not (model.has_dimensions and model.vocab_size):
        raise InputError(f"{model.name} lacks dimensions (layers, hidden_dim, heads, vocab_size) to be built from.")
    mixers = [mixer for block in model.stack.blocks for mixer in block.mixers]
    plain = (type(m) is Attention and not m.gate and not m.shared for m in mixers)
    latent = (type(m) is LatentAttention and m.sparse is None for m in mixers)
    if not all(map(any, zip(plain, latent, strict=True))) or model.embedding_dim:
        raise InputError(f"verify builds grouped-query, windowed and latent attention; {model.name} has another kind.")
    if any(block.ffn is None or getattr(block.ffn, "latent", None) for block in model.stack.blocks):
        raise InputError(f"verify builds feed-forward layers and mixtures of experts; {model.name} has another kind.")


def _refuse_training(workload: Any) -> None:
    if isinstance(workload, CNNWorkload):
        return
    headless = not workload.classes if workload.fixed_shape else workload.structure != "decoder"
    if headless:
        raise InputError(f"{workload.name} has no output head to train on; use prefill (its forward pass).")


class Pass(NamedTuple):
    """What is run and predicted."""

    workload: Any
    phase: str
    batch: int
    length: int
    precision: str
    fuse: bool = False
    lora: int = 0


def predict(work: Pass, chip: Any, graph: bool) -> dict[str, Any]:
    """What the resolvers say of a pass or a step of one device, under the software that runs here."""
    workload, phase, batch, length, precision, fuse, _ = work
    if phase == "train" and not workload.fixed_shape:
        step = _step(work, chip)
        return _read(step, step.step_interval)
    if phase == "train":
        options: dict[str, Any] = {"is_training": True}
        if trained_by_runtime(workload, chip):
            options["runtime"] = "compiled" if fuse else "eager_nhwc"
    elif workload.fixed_shape:
        options = {"runtime": "compiled" if fuse else "graph" if graph else "eager_nhwc"}
    else:
        runtime = RUNTIMES[fuse][graph]
        options = {"runtime": runtime, "seq_len": length - (phase == "decode"), "phase": phase}
    found = SingleNodeModel().solve(workload, chip, batch, precision, "calibrated", **options)
    return _read(found, found.interval)


def _step(work: Pass, chip: Any) -> Any:
    """The answer to a training step of a language model: parameters, gradients and moments are in the network's own precision."""
    stack = f"plain{'-compiled' if work.fuse else ''}{'' if bytes_per_element(work.precision) > 2 else '-16bit'}"
    node = Node(name=chip.name, accelerator=chip, accelerators_per_node=1, intra_node_bw="1 GB/s")
    fleet = Fleet(name=chip.name, node=node, count=1, fabric=Fabrics["Ethernet_100G"])
    more = {"is_lora": True, "lora_rank": work.lora} if work.lora else {}
    return DistributedModel().solve(
        work.workload, fleet, work.batch, work.precision, "calibrated", seq_len=work.length, stack=stack,
        sequence_parallel=False, **more,
    )  # fmt: skip


RUNTIMES = {False: ("torch", "torch_graph"), True: ("torch_compiled", "engine")}
"""Software of language models by whether operators are fused: launched one by one, and captured in a graph."""


def _read(result: Any, band: Any) -> dict[str, Any]:
    """Seconds of an answer, their interval, and by part."""
    parts: dict[str, float] = {}
    for part in result.ledger.parts:
        if part.exposed:
            parts[part.name] = parts.get(part.name, 0.0) + float(part.exposed)
    low, high = (to_si(end, "s") for end in band)
    unknown = str(result.assumptions.get("interval", "")).startswith("extrapolating")
    seconds = float(result.ledger.seconds)
    return {"predicted_s": seconds, "low_s": low, "high_s": high, "extrapolating": unknown, "parts": parts}


def _shortened(work: Pass, chip: Any, device: Device) -> Any:
    """As many layers as memory takes (two on a CPU), and no more than the last try had."""
    whole = work.workload
    least, most = 1, whole.layers if device.gpu else min(_CPU_LAYERS, whole.layers)
    available = _SHARE_OF_MEMORY * device.memory
    while least < most:
        middle = (least + most + 1) // 2
        fits = _needed(work._replace(workload=with_layers(whole, middle)), chip) <= available
        least, most = (middle, most) if fits else (least, middle - 1)
    return with_layers(whole, least)


def _needed(work: Pass, chip: Any) -> float:
    """Bytes of weights, caches, gradients, moments and kept activations: of a language model's step as the answer has them, else roughly."""
    workload, element = work.workload, bytes_per_element(work.precision)
    if work.phase == "train" and not workload.fixed_shape:
        return to_si(_step(work, chip).memory_per_accelerator, "byte")
    weights, kept = workload.derived_parameters * element, workload.stack.saved.total
    tokens = work.batch * (workload.tokens_per_image if workload.fixed_shape else work.length)
    if work.phase == "train":
        return float(8 * weights + 1.5 * workload.layers * tokens * kept * element)
    if work.phase == "decode":
        cache = workload.stack.cache_bytes(work.length, element) * work.batch
        return float(weights + cache + 4 * work.batch * kept * element)
    return float(weights + 4 * tokens * kept * element)


def _measure(work: Pass, device: Device, eager: bool, seconds: float) -> tuple[float, bool, str]:
    """Seconds, whether a graph was used, and the attention kernel."""
    workload, phase, batch, length, precision, _, lora = work
    torch, dtype, training = device.torch, device.dtype(precision), phase == "train"
    # As the runtimes of image networks were measured: mixed precision over parameters in single precision, convolutions tuned by trying.
    mixed = workload.fixed_shape and bytes_per_element(precision) < 4
    scope: Any = partial(torch.autocast, device.kind, dtype, cache_enabled=training) if mixed else nullcontext
    torch.backends.cudnn.benchmark = bool(workload.fixed_shape)
    torch.manual_seed(0)
    with torch.set_grad_enabled(training):
        if isinstance(workload, CNNWorkload):
            network: Any = convolutional(workload, device, dtype, batch, training)
        else:
            network = build(workload, device, torch.float32 if mixed else dtype, length, lora)
            network.tune(batch, length, phase, *([dtype] if mixed else []))
        run = _work(network, work, device, scope)
        # Compiled image networks were measured with their launches.
        captured = not (training or eager or (work.fuse and workload.fixed_shape))
        return *device.time(run, seconds, graph=captured), network.kernel


def _work(network: Any, work: Pass, device: Device, scope: Any) -> Callable[[], Any]:
    """One pass or step, on fixed inputs."""
    torch, model, (_, phase, batch, length, _, fuse, _) = device.torch, work.workload, work
    random = partial(torch.randint, device=device.kind)
    compiled = partial(torch.compile, dynamic=False) if fuse else lambda call: call
    if phase == "decode":
        token, caches = random(model.vocab_size, (batch, 1)), network.caches(batch, length)
        return compiled(lambda: network.forward(token, caches, length - 1))
    if isinstance(model, CNNWorkload):
        forward, labels = network.forward, None
    elif isinstance(model, VisionTransformerWorkload):
        shape = (batch, model.channels, model.image_size, model.image_size)
        forward = partial(network.forward, torch.randn(*shape, device=device.kind).to(network.dtype))
        labels = random(model.classes or model.hidden_dim, (batch,))
    else:
        tokens = random(model.vocab_size, (batch, length))
        forward, labels = partial(network.forward, tokens, every_token=phase == "train"), tokens.reshape(-1)
    if phase != "train":

        @compiled
        def whole() -> Any:
            with scope():
                return forward()

        return whole
    for parameter in network.trained:
        parameter.requires_grad_(True)
    optimizer = torch.optim.AdamW(network.trained, lr=1e-5, fused=True)

    @compiled
    def ahead() -> Any:
        with scope():
            scores = forward()
            if labels is None:
                return scores
            return torch.nn.functional.cross_entropy(scores.reshape(labels.numel(), -1).float(), labels)

    def step() -> None:
        ends = ahead()
        ends = ends if isinstance(ends, list) else [ends]
        torch.autograd.backward(ends, [torch.ones_like(end) for end in ends])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step
