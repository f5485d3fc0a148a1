"""``verify``: run a pass of a model with random weights here, and put the prediction beside the measurement.

The network is built from the zoo entry's dimensions, with as many layers as asked for or as fit. What is predicted is the
public answer to the same pass with the same number of layers, under the software that runs here. A prefill and a decode step are captured in a CUDA graph on a GPU; a training step (forward, backward, AdamW
in the network's precision) is launched operator by operator.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

from mlsysim.calibrate.cells import key_of
from mlsysim.calibrate.device import Device
from mlsysim.calibrate.network import build, refuse, run_rows
from mlsysim.calibrate.samples import with_layers
from mlsysim.errors import InputError, unknown_name
from mlsysim.models.registry import Models
from mlsysim.models.vision import CNNWorkload, VisionTransformerWorkload
from mlsysim.physics.precision import bytes_per_element, precision_name
from mlsysim.systems.registry import Fabrics
from mlsysim.systems.types import Fleet, Node
from mlsysim.timing.profile import profile
from mlsysim.units.registry import to_si
from mlsysim.walls.document import Document
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.node.compute_memory import SingleNodeModel

PHASES = ("prefill", "decode", "train")

_PRECISIONS = ("bf16", "fp16", "fp32")
_SHARE_OF_MEMORY = 0.8
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
    seconds: float = 1.0,
) -> Verification:
    """Run one pass and predict it."""
    device = device or Device()
    workload = Models.get(model)
    refuse(workload)
    vision = isinstance(workload, (VisionTransformerWorkload, CNNWorkload))
    phase = phase or "prefill"
    if phase not in PHASES:
        raise unknown_name("phase", phase, PHASES, remedy="use prefill, decode or train.")
    if phase == "decode" and (vision or workload.structure != "decoder"):
        raise InputError(f"{workload.name} does not decode; use prefill (its forward pass) or train.")
    if phase == "train":
        _refuse_training(workload, fuse)
    if batch < 1 or (seq_len is not None and seq_len < 1):
        raise InputError("the batch and the sequence length must be at least 1.")
    if vision and seq_len is not None:
        raise InputError(f"{workload.name} has images of a fixed size and takes no sequence length.")
    length = seq_len or (2048 if device.gpu else 64)
    node = device.chip(chip)
    precision = precision_name(precision or ("bf16" if device.gpu else "fp32"))
    if precision not in _PRECISIONS:
        raise InputError(f"verify runs in {', '.join(_PRECISIONS)}, not in {precision}.")
    gc.collect()
    device.release()
    whole = getattr(workload, "layers", None)
    if isinstance(workload, CNNWorkload):
        if layers is not None:
            raise InputError(f"{workload.name} is given by its layer rows and cannot be shortened.")
    elif layers is not None:
        workload = with_layers(workload, layers)
    else:
        workload = _shortened(Pass(workload, phase, batch, length, precision), device)
    work = Pass(workload, phase, batch, length, precision)
    measured, graph, kernel = _measure(work, device, fuse, seconds)
    constants = profile(node)
    return Verification(
        workload.name, phase, batch, None if vision else length, getattr(workload, "layers", None), whole, precision,
        device.name, key_of(node), constants.name, constants.basis, measured, graph=graph, attention=kernel,
        **predict(work, node, graph, fuse),
    )  # fmt: skip


def _refuse_training(workload: Any, fuse: bool) -> None:
    if isinstance(workload, CNNWorkload):
        raise InputError(f"{workload.name} is run layer by layer, forward only; use prefill (its forward pass).")
    headless = not workload.classes if workload.fixed_shape else workload.structure != "decoder"
    if headless:
        raise InputError(f"{workload.name} has no output head to train on; use prefill (its forward pass).")
    if fuse:
        raise InputError("verify compiles prefill and decode only, not training steps.")


class Pass(NamedTuple):
    """What is run and predicted."""

    workload: Any
    phase: str
    batch: int
    length: int
    precision: str


def predict(work: Pass, chip: Any, graph: bool, fuse: bool) -> dict[str, Any]:
    """What the resolvers say of a pass or a step of one device, under the software that runs here."""
    workload, phase, batch, length, precision = work
    if phase == "train" and not workload.fixed_shape:
        # Parameters, gradients and moments are in the network's own precision.
        stack = "plain" if bytes_per_element(precision) > 2 else "plain-16bit"
        node = Node(name=chip.name, accelerator=chip, accelerators_per_node=1, intra_node_bw="1 GB/s")
        fleet = Fleet(name=chip.name, node=node, count=1, fabric=Fabrics["Ethernet_100G"])
        step = DistributedModel().solve(
            workload, fleet, batch, precision, "calibrated", seq_len=length, stack=stack, sequence_parallel=False
        )
        return _read(step, step.step_interval)
    if phase == "train":
        options: dict[str, Any] = {"is_training": True}
    elif workload.fixed_shape:
        options = {"runtime": "compiled" if fuse else "graph" if graph else "eager_nhwc"}
    else:
        runtime = _RUNTIMES[fuse][graph]
        options = {"runtime": runtime, "seq_len": length - (phase == "decode"), "phase": phase}
    found = SingleNodeModel().solve(workload, chip, batch, precision, "calibrated", **options)
    return _read(found, found.interval)


_RUNTIMES = {False: ("torch", "torch_graph"), True: ("torch_compiled", "engine")}
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


def _shortened(work: Pass, device: Device) -> Any:
    """As many layers as memory takes (two on a CPU)."""
    whole, available = work.workload, _SHARE_OF_MEMORY * device.memory
    wanted = whole.layers if device.gpu else min(_CPU_LAYERS, whole.layers)
    while wanted > 1 and _needed(*work._replace(workload=with_layers(whole, wanted))) > available:
        wanted -= 1
    return with_layers(whole, wanted)


def _needed(workload: Any, phase: str, batch: int, length: int, precision: str) -> float:
    """Bytes of weights, caches, gradients, moments and kept activations, roughly."""
    element, kept = bytes_per_element(precision), workload.stack.saved.total
    weights = workload.derived_parameters * element
    tokens = batch * (workload.tokens_per_image if workload.fixed_shape else length)
    if phase == "train":
        vocabulary = 0 if workload.fixed_shape else 12 * tokens * (workload.vocab_size or 0)
        return float(4 * weights + 1.5 * workload.layers * tokens * kept * element + vocabulary)
    cache = workload.stack.cache_bytes(length, element) * batch if phase == "decode" else 0
    return float(weights + cache + 4 * tokens * kept * element)


def _measure(work: Pass, device: Device, fuse: bool, seconds: float) -> tuple[float, bool, str]:
    """Seconds, whether a graph was used, and the attention kernel."""
    workload, phase, batch, length, precision = work
    torch, dtype, kernel, training = device.torch, device.dtype(precision), "", phase == "train"
    torch.manual_seed(0)
    try:
        with torch.set_grad_enabled(training):
            if isinstance(workload, CNNWorkload):
                run = run_rows(workload, device, dtype, batch)
            else:
                network = build(workload, device, dtype, length)
                network.tune(batch, length, phase)
                kernel = network.kernel
                run = _work(network, phase, batch, length, device)
                run = torch.compile(run, dynamic=False) if fuse else run
            return *device.time(run, seconds, graph=not training), kernel
    except torch.OutOfMemoryError:
        raise InputError(f"{workload.name} does not fit here with these sizes; take fewer --layers.") from None


def _work(network: Any, phase: str, batch: int, length: int, device: Device) -> Callable[[], Any]:
    """One pass, on fixed inputs."""
    torch, model = device.torch, network.model
    random = partial(torch.randint, device=device.kind)
    if phase == "decode":
        token, caches = random(model.vocab_size, (batch, 1)), network.caches(batch, length)
        return lambda: network.forward(token, caches, length - 1)
    if isinstance(model, VisionTransformerWorkload):
        shape = (batch, model.channels, model.image_size, model.image_size)
        forward = partial(network.forward, torch.randn(*shape, device=device.kind).to(network.dtype))
        labels = random(model.classes or model.hidden_dim, (batch,))
    else:
        tokens = random(model.vocab_size, (batch, length))
        forward, labels = partial(network.forward, tokens, every_token=phase == "train"), tokens.reshape(-1)
    if phase != "train":
        return forward
    for parameter in network.parameters:
        parameter.requires_grad_(True)
    optimizer = torch.optim.AdamW(network.parameters, lr=1e-5, fused=True)

    def step() -> None:
        scores = forward()
        loss = torch.nn.functional.cross_entropy(scores.reshape(labels.numel(), -1).float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step
