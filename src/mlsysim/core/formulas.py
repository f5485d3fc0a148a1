"""``mlsysim.core.formulas``: thin functions over the walls' kernels, under the documents' names.

Arguments are quantities, strings with units, or bare numbers in the unit of the parameter's name (SI where the name has
none). Results are quantities; ratios, counts and probabilities are plain floats.
"""

from __future__ import annotations

import math
from typing import Any

from mlsysim.cases import goodput, money
from mlsysim.cases.checkpoint import checkpoint_size
from mlsysim.cases.losslaw import training_flops
from mlsysim.errors import InputError
from mlsysim.physics import collectives, memory, pipeline, queueing, training_memory
from mlsysim.physics.roofline import compute_time, memory_time
from mlsysim.units.registry import Quantity, quantity, to_si
from mlsysim.zoo.constants import constant

__all__ = [
    "calc_activation_memory",
    "calc_all_to_all_time",
    "calc_amdahls_speedup",
    "calc_availability_stacked",
    "calc_bottleneck",
    "calc_checkpoint_size",
    "calc_effective_flops",
    "calc_failure_probability",
    "calc_fleet_tco",
    "calc_hierarchical_allreduce_time",
    "calc_kv_cache_size",
    "calc_monthly_egress_cost",
    "calc_mtbf_cluster",
    "calc_mtbf_node",
    "calc_network_latency_ms",
    "calc_paged_kv_cache_size",
    "calc_pipeline_bubble",
    "calc_queue_latency_mmc",
    "calc_ring_allreduce_time",
    "calc_training_time_days",
    "calc_transformer_training_flops",
    "calc_tree_allreduce_time",
    "calc_young_daly_interval",
]


def _number(value: Any, unit: str, name: str, low: float = 0.0, low_open: bool = False) -> float:
    """A checked number in ``unit``; bare numbers are taken to be in it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    elif isinstance(value, (str, Quantity)):
        number = float(to_si(value, unit))
    else:
        raise InputError(f"{name!r} must be a number or a quantity in {unit or 'counts'}, got {type(value).__name__}.")
    if not math.isfinite(number) or number < low or (low_open and number == low):
        raise InputError(f"{name!r} must be {'above' if low_open else 'at least'} {low:g} {unit}, got {number:g}.")
    return number


def calc_transformer_training_flops(n_params: Any, n_tokens: Any) -> Any:
    """Operations of a training run: 6 for each parameter and token."""
    cost = to_si(constant("training_flops_per_parameter_token").quantity, "flop")
    flops = training_flops(cost, _number(n_params, "", "n_params"), _number(n_tokens, "", "n_tokens"))
    return quantity(flops, "flop")


def calc_failure_probability(mtbf: Any, job_duration: Any) -> float:
    """Probability of at least one failure; bare numbers are hours."""
    duration = _number(job_duration, "h", "job_duration")
    return float(goodput.failure_probability(duration, _number(mtbf, "h", "mtbf", low_open=True)))


def calc_effective_flops(peak_flops: Any, mfu: float, scaling_eff: float, goodput_ratio: float) -> Any:
    """Useful rate of a fleet; ``mfu`` must be that of one device, since a published MFU contains scaling already."""
    peak = _number(peak_flops, "flop/s", "peak_flops")
    shares = [
        _number(v, "", n) for v, n in ((mfu, "mfu"), (scaling_eff, "scaling_eff"), (goodput_ratio, "goodput_ratio"))
    ]
    return quantity(goodput.effective_rate(peak, *shares), "flop/s")


def _link(message_bytes: Any, n_gpus: Any, bandwidth_bytes_s: Any, latency_s: Any) -> tuple[float, float, float, float]:
    return (
        _number(message_bytes, "byte", "message_bytes"),
        _number(n_gpus, "", "n_gpus", low=1),
        _number(bandwidth_bytes_s, "byte/s", "bandwidth_bytes_s", low_open=True),
        _number(latency_s, "s", "latency_s"),
    )


def calc_ring_allreduce_time(message_bytes: Any, n_gpus: Any, bandwidth_bytes_s: Any, latency_s: Any = 0.0) -> Any:
    """Ring all-reduce."""
    return quantity(collectives.ring_all_reduce(*_link(message_bytes, n_gpus, bandwidth_bytes_s, latency_s)), "s")


def calc_tree_allreduce_time(message_bytes: Any, n_gpus: Any, bandwidth_bytes_s: Any, latency_s: Any = 0.0) -> Any:
    """Tree all-reduce."""
    return quantity(collectives.tree_all_reduce(*_link(message_bytes, n_gpus, bandwidth_bytes_s, latency_s)), "s")


def calc_all_to_all_time(message_bytes: Any, n_gpus: Any, bandwidth_bytes_s: Any, latency_s: Any = 0.0) -> Any:
    """All-to-all exchange."""
    return quantity(collectives.all_to_all(*_link(message_bytes, n_gpus, bandwidth_bytes_s, latency_s)), "s")


def calc_hierarchical_allreduce_time(
    message_bytes: Any,
    n_nodes: Any,
    gpus_per_node: Any,
    intra_node_bw: Any,
    inter_node_bw: Any,
    intra_node_latency: Any = 0.0,
    inter_node_latency: Any = 0.0,
) -> Any:
    """Reduce-scatter inside nodes, all-reduce of each share between them, all-gather inside."""
    time = collectives.hierarchical_all_reduce(
        _number(message_bytes, "byte", "message_bytes"),
        _number(n_nodes, "", "n_nodes", low=1),
        _number(gpus_per_node, "", "gpus_per_node", low=1),
        _number(intra_node_bw, "byte/s", "intra_node_bw", low_open=True),
        _number(intra_node_latency, "s", "intra_node_latency"),
        _number(inter_node_bw, "byte/s", "inter_node_bw", low_open=True),
        _number(inter_node_latency, "s", "inter_node_latency"),
    )
    return quantity(time, "s")


def calc_pipeline_bubble(n_stages: Any, n_microbatches: Any, v_stages: Any = 1) -> float:
    """Share of a step that a stage waits: (P - 1) / (V M + P - 1)."""
    stages = _number(n_stages, "", "n_stages", low=1)
    idle = pipeline.idle_slots("interleaved", stages, _number(v_stages, "", "v_stages", low=1))
    return float(pipeline.bubble_fraction(idle, _number(n_microbatches, "", "n_microbatches", low=1)))


def calc_young_daly_interval(checkpoint_cost_s: Any, mtbf_s: Any) -> Any:
    """Time between checkpoints that wastes least: sqrt(2 delta M)."""
    return quantity(
        goodput.young_interval(_number(checkpoint_cost_s, "s", "checkpoint_cost_s"), _number(mtbf_s, "s", "mtbf_s")),
        "s",
    )


def calc_mtbf_cluster(component_mtbf_hours: Any, n_components: Any, correlation_factor: float = 1.0) -> Any:
    """Mean time between failures of many parts; correlated failures (factor above 1) strike less often, but together."""
    hours = goodput.cluster_mtbf(
        _number(component_mtbf_hours, "h", "component_mtbf_hours", low_open=True),
        _number(n_components, "", "n_components", low=1),
    )
    return quantity(hours * _number(correlation_factor, "", "correlation_factor", low_open=True), "h")


def calc_mtbf_node(gpu_mtbf_h: Any, n_gpus: Any, nic_mtbf_h: Any, n_nics: Any, psu_mtbf_h: Any, n_psus: Any) -> Any:
    """Mean time between failures of a node: the rates of its components add."""
    hours = goodput.node_mtbf(
        _number(gpu_mtbf_h, "h", "gpu_mtbf_h", low_open=True),
        _number(n_gpus, "", "n_gpus"),
        _number(nic_mtbf_h, "h", "nic_mtbf_h", low_open=True),
        _number(n_nics, "", "n_nics"),
        _number(psu_mtbf_h, "h", "psu_mtbf_h", low_open=True),
        _number(n_psus, "", "n_psus"),
    )
    return quantity(hours, "h")


def calc_kv_cache_size(
    n_layers: Any, n_heads: Any, head_dim: Any, seq_len: Any, batch_size: Any, bytes_per_elem: Any = 2
) -> Any:
    """Keys and values of all layers; ``n_heads`` counts key-value heads."""
    elements = (
        2 * _number(n_layers, "", "n_layers") * _number(n_heads, "", "n_heads") * _number(head_dim, "", "head_dim")
    )
    size = memory.cache_bytes(
        _number(batch_size, "", "batch_size"),
        _number(seq_len, "", "seq_len"),
        elements,
        _number(bytes_per_elem, "byte", "bytes_per_elem"),
    )
    return quantity(size, "byte")


def calc_paged_kv_cache_size(
    n_layers: Any,
    n_heads: Any,
    head_dim: Any,
    seq_len: Any,
    batch_size: Any,
    page_size_tokens: Any = 16,
    bytes_per_elem: Any = 2,
) -> Any:
    """The same in pages of ``page_size_tokens`` tokens."""
    elements = (
        2 * _number(n_layers, "", "n_layers") * _number(n_heads, "", "n_heads") * _number(head_dim, "", "head_dim")
    )
    size = memory.paged_cache_bytes(
        _number(batch_size, "", "batch_size"),
        _number(seq_len, "", "seq_len"),
        _number(page_size_tokens, "", "page_size_tokens", low=1),
        elements,
        _number(bytes_per_elem, "byte", "bytes_per_elem"),
    )
    return quantity(size, "byte")


def calc_checkpoint_size(n_params: Any, bytes_per_param: Any = 14) -> Any:
    """Bytes of a checkpoint: 14 for each parameter with Adam in mixed precision."""
    size = checkpoint_size(_number(n_params, "", "n_params"), _number(bytes_per_param, "byte", "bytes_per_param"), 0.0)
    return quantity(size, "byte")


def calc_activation_memory(
    n_layers: Any,
    seq_len: Any,
    batch_size: Any,
    hidden_dim: Any,
    n_heads: Any = None,
    precision_bytes: Any = 2,
    strategy: str = "selective",
) -> Any:
    """Activations that a GPT-like network keeps for its backward pass.

    ``selective`` (or flash attention) keeps 16 h elements a token and layer, ``none`` also the attention scores (needs
    ``n_heads``), ``full`` only the input of each layer.
    """
    tokens = _number(seq_len, "", "seq_len") * _number(batch_size, "", "batch_size")
    hidden = _number(hidden_dim, "", "hidden_dim")
    elements = {"selective": 16 * hidden, "none": 16 * hidden, "full": hidden}.get(strategy)
    if elements is None:
        raise InputError(f"{strategy!r} is no strategy; use none, selective or full.", field="strategy")
    if strategy == "none":
        if n_heads is None:
            raise InputError("Keeping attention scores needs 'n_heads'.", field="n_heads")
        # Scores, softmax and dropout mask: 5 a s bytes a token in 16 bit (Korthikanti et al. 2023).
        elements += 2.5 * _number(n_heads, "", "n_heads") * _number(seq_len, "", "seq_len")
    element = _number(precision_bytes, "byte", "precision_bytes")
    layer = training_memory.activation_bytes_per_layer(tokens, 0.0, elements, 1, element)
    return quantity(_number(n_layers, "", "n_layers") * layer, "byte")


def calc_bottleneck(ops: Any, model_bytes: Any, device_flops: Any, device_bw: Any) -> dict[str, Any]:
    """Compute and memory time of a pass, and which of them binds."""
    compute = compute_time(
        _number(ops, "flop", "ops"), _number(device_flops, "flop/s", "device_flops", low_open=True), 1.0
    )
    moved = memory_time(
        _number(model_bytes, "byte", "model_bytes"), _number(device_bw, "byte/s", "device_bw", low_open=True)
    )
    return {
        "compute_time": quantity(compute, "s"),
        "memory_time": quantity(moved, "s"),
        "bottleneck": "Compute" if compute >= moved else "Memory",
    }


def calc_amdahls_speedup(p: float, s: float) -> float:
    """Speed-up when a share ``p`` of the work runs ``s`` times as fast (Amdahl 1967)."""
    share, factor = _number(p, "", "p"), _number(s, "", "s", low_open=True)
    if share > 1:
        raise InputError(f"'p' must be at most 1, got {share:g}.")
    return 1 / ((1 - share) + share / factor)


def calc_training_time_days(
    total_ops: Any, num_devices: Any, peak_flops_per_device: Any, efficiency_eta: float
) -> float:
    """Days that a number of devices needs for some operations."""
    peak = _number(peak_flops_per_device, "flop/s", "peak_flops_per_device", low_open=True)
    fleet = peak * _number(num_devices, "", "num_devices", low=1)
    seconds = compute_time(
        _number(total_ops, "flop", "total_ops"), fleet, _number(efficiency_eta, "", "efficiency_eta", low_open=True)
    )
    return float(to_si(quantity(seconds, "s"), "day"))


def calc_availability_stacked(single_availability: float, n_replicas: int) -> float:
    """Probability that at least one replica is up."""
    return float(
        goodput.stacked_availability(
            _number(single_availability, "", "single_availability"), _number(n_replicas, "", "n_replicas", low=1)
        )
    )


def calc_queue_latency_mmc(arrival_rate_hz: Any, service_rate_hz: Any, num_servers: int) -> Any:
    """Mean time in an M/M/c system, waiting and being served."""
    arrivals = _number(arrival_rate_hz, "1/s", "arrival_rate_hz")
    service = _number(service_rate_hz, "1/s", "service_rate_hz", low_open=True)
    servers = _number(num_servers, "", "num_servers", low=1)
    if arrivals >= service * servers:
        raise InputError(
            f"{arrivals:g} arrivals a second overload {servers:g} servers of {service:g} a second; the queue grows without end."
        )
    return quantity(queueing.mmc_wait(arrivals, 1 / service, servers) + 1 / service, "s")


def calc_fleet_tco(
    unit_cost: Any, power_w: Any, quantity_: Any = None, years: Any = 1, kwh_price: Any = 0.12, **given: Any
) -> Any:
    """Purchase of a fleet and its electricity over some years."""
    devices = given.pop("quantity", quantity_)
    if given or devices is None:
        raise InputError("calc_fleet_tco takes unit_cost, power_w, quantity, years and kwh_price.")
    cost = money.ownership_cost(
        _number(unit_cost, "USD", "unit_cost"),
        _number(power_w, "W", "power_w") / 1e3,
        _number(devices, "", "quantity", low=1),
        to_si(quantity(_number(years, "year", "years"), "year"), "h"),
        _number(kwh_price, "USD/kWh", "kwh_price"),
    )
    return quantity(cost, "USD")


def calc_monthly_egress_cost(bytes_per_sec: Any, cost_per_gb: Any) -> Any:
    """Price of sending data out for 30 days."""
    rate = _number(bytes_per_sec, "byte/s", "bytes_per_sec")
    sent = to_si(quantity(rate * to_si("30 day", "s"), "byte"), "GB")
    return quantity(sent * _number(cost_per_gb, "USD/GB", "cost_per_gb"), "USD")


def calc_network_latency_ms(distance_km: Any) -> float:
    """Time of light through fibre, there and not back."""
    speed = to_si(constant("light_in_fibre").quantity, "km/ms")
    return _number(distance_km, "km", "distance_km") / speed
