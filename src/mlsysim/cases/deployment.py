"""From inputs to a checked replica: degrees that divide, links between its devices, the arithmetic that a chip has."""

from __future__ import annotations

import math
from typing import Any

from mlsysim.cases.replica import Replica
from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.models.base import Workload
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.units.registry import to_si
from mlsysim.zoo.constants import constant
from mlsysim.zoo.provenance import cite

__all__ = ["build_replica", "check_degrees", "cite", "language_model"]


def language_model(model: Workload, resolver: str) -> TransformerWorkload:
    """The model, if it writes one token after another."""
    if isinstance(model, TransformerWorkload) and model.structure == "decoder":
        return model
    raise InputError(
        f"{resolver} serves models that write token after token (decoders), and {model.name} is none; "
        "SingleNodeModel gives the time of its pass.",
        field="model",
    )


def build_replica(
    model: TransformerWorkload,
    chip: Any,
    assumed: dict[str, str],
    *,
    precision: str,
    cache_precision: str | None = None,
    efficiency: float = 0.5,
    bandwidth_efficiency: float = 1.0,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    fabric: Any = None,
    memory_fraction: float | None = None,
    redundant: int = 0,
) -> Replica:
    """A checked replica. What had to be assumed of links and arithmetic is noted in ``assumed``."""
    check_degrees(model, tp, pp, ep, redundant)
    peak, note = arithmetic_peak(chip, precision)
    if note:
        assumed["arithmetic"] = note
    devices = max(tp, ep) * pp
    link = link_latency = network = network_latency = 0.0
    domain = math.inf
    if devices > 1:
        link, link_latency, domain = _link(chip, assumed)
        if not model.hidden_dim:
            assumed["communication"] = f"none: {model.name} states no hidden_dim, so its messages have no size"
        if devices > domain:
            network, network_latency = _network(fabric, assumed)
    return Replica(
        model=model,
        chip=chip,
        precision=precision,
        cache_precision=cache_precision,
        tp=tp,
        pp=pp,
        ep=ep,
        peak=peak,
        efficiency=efficiency,
        bandwidth=to_si(chip.memory.bandwidth, "byte/s") * bandwidth_efficiency,
        link=link,
        link_latency=link_latency,
        domain=domain,
        network=network,
        network_latency=network_latency,
        memory_fraction=memory_fraction,
    )


def _link(chip: Any, assumed: dict[str, str]) -> tuple[float, float, float]:
    latency = to_si(constant("intra_node_latency").quantity, "s")
    if chip.link is not None:
        if chip.link.latency is not None:
            latency = to_si(chip.link.latency, "s")
        return to_si(chip.link.bandwidth_per_direction, "byte/s"), latency, chip.link.domain or math.inf
    if chip.interconnect is not None:
        assumed["link"] = f"{chip.interconnect.name}: {chip.name} has no link of its own to other chips"
        return to_si(chip.interconnect.bandwidth, "byte/s"), latency, math.inf
    raise InputError(
        f"{chip.name} has no link to other chips, so a model cannot be split over several; "
        "give the chip a 'link' or use one device.",
        field="tp_size",
    )


def _network(fabric: Any, assumed: dict[str, str]) -> tuple[float, float]:
    default_latency = constant("fabric_latency").quantity
    if fabric is None:
        rate = constant("infiniband_ndr_bandwidth").quantity
        assumed["fabric"] = f"{rate:g~P} for each device and {default_latency:g~P} a message between nodes"
        return to_si(rate, "byte/s"), to_si(default_latency, "s")
    latency = fabric.latency if fabric.latency is not None else default_latency
    return to_si(fabric.bandwidth, "byte/s"), to_si(latency, "s")


def check_degrees(model: TransformerWorkload, tp: int, pp: int, ep: int, redundant: int = 0) -> None:
    """Raise where a degree does not divide what it splits, with the nearest that do; ``redundant`` experts are held twice."""
    if model.heads:
        _divides("tp_size", tp, model.heads, f"the {model.heads} attention heads of {model.name}")
    layers = model.layers
    if layers and pp > layers:
        raise InputError(
            f"pp_size={pp} leaves stages of {model.name} without any of its {layers} layers.", field="pp_size"
        )
    if pp > 1 and not layers:
        raise InputError(f"pp_size={pp} needs 'layers' of {model.name}, which are not stated.", field="pp_size")
    if ep == 1:
        return
    experts = getattr(model, "experts", 1)
    if experts > 1 and redundant and (experts + redundant) % ep == 0:
        experts += redundant
    if experts == 1:
        raise InputError(
            f"ep_size={ep} splits experts, and {model.name} has none; use tp_size or pp_size.", field="ep_size"
        )
    _divides("ep_size", ep, experts, f"the {experts} experts of {model.name}")
    if max(tp, ep) % min(tp, ep):
        raise InputError(f"ep_size={ep} and tp_size={tp} must be multiples of each other.", field="ep_size")


def _divides(name: str, degree: int, total: int, what: str) -> None:
    if total % degree == 0:
        return
    near = sorted((d for d in range(1, total + 1) if total % d == 0), key=lambda d: (abs(d - degree), d))[:2]
    raise InputError(
        f"{name}={degree} does not divide {what}; the nearest that do are {' and '.join(map(str, sorted(near)))}.",
        field=name,
    )
