"""``mlsysim.core.formulas``: thin functions over the walls' kernels, under the documents' names.

Arguments are quantities, strings with units, or bare numbers in the unit of the parameter's name (SI where the name has
none). Results are quantities; ratios, counts and probabilities are plain floats.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from mlsysim.cases import goodput, money
from mlsysim.cases.checkpoint import checkpoint_size
from mlsysim.cases.losslaw import training_flops
from mlsysim.errors import InputError
from mlsysim.physics import collectives, memory, pipeline, queueing, training_memory
from mlsysim.physics.roofline import compute_time, memory_time
from mlsysim.units.registry import Quantity, quantity, to_si
from mlsysim.zoo.constants import constant

_ARGUMENT = re.compile(r"(\w+)(?:: (\S+))?(?: (>=?) (\S+))?")


def _formula(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Arguments as checked numbers in the units of the text, at least 0 unless it says otherwise; the result in its unit."""
    taken, arrow, unit = text.partition(" -> ")
    found = [match for match in map(_ARGUMENT.fullmatch, taken.split(", ")) if match is not None]
    declared = {name: (its or "", float(low or 0), more == ">") for name, its, more, low in (m.groups() for m in found)}

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @wraps(function)
        def calculate(*args: Any, **given: Any) -> Any:
            bound = signature.bind(*args, **given)
            bound.apply_defaults()
            for name, limits in declared.items():
                bound.arguments[name] = _number(name, bound.arguments[name], *limits)
            result = function(*bound.args, **bound.kwargs)
            return quantity(result, unit) if arrow else result

        return calculate

    return declare


def _number(name: str, value: Any, unit: str, low: float, low_open: bool) -> float:
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


@_formula("n_params, n_tokens -> flop")
def calc_transformer_training_flops(n_params: Any, n_tokens: Any) -> Any:
    """Operations of a training run: 6 for each parameter and token."""
    cost = to_si(constant("training_flops_per_parameter_token").quantity, "flop")
    return training_flops(cost, n_params, n_tokens)


@_formula("mtbf: h > 0, job_duration: h")
def calc_failure_probability(mtbf: Any, job_duration: Any) -> float:
    """Probability of at least one failure; bare numbers are hours."""
    return float(goodput.failure_probability(job_duration, mtbf))


@_formula("peak_flops: flop/s, mfu, scaling_eff, goodput_ratio -> flop/s")
def calc_effective_flops(peak_flops: Any, mfu: float, scaling_eff: float, goodput_ratio: float) -> Any:
    """Useful rate of a fleet; ``mfu`` must be that of one device, since a published MFU contains scaling already."""
    return goodput.effective_rate(peak_flops, mfu, scaling_eff, goodput_ratio)


_COLLECTIVE = _formula("message_bytes: byte, n_gpus >= 1, bandwidth_bytes_s: byte/s > 0, latency_s: s -> s")


@_COLLECTIVE
def calc_ring_allreduce_time(message_bytes: Any, n_gpus: Any, bandwidth_bytes_s: Any, latency_s: Any = 0.0) -> Any:
    """Ring all-reduce."""
    return collectives.ring_all_reduce(message_bytes, n_gpus, bandwidth_bytes_s, latency_s)


@_COLLECTIVE
def calc_tree_allreduce_time(message_bytes: Any, n_gpus: Any, bandwidth_bytes_s: Any, latency_s: Any = 0.0) -> Any:
    """Tree all-reduce."""
    return collectives.tree_all_reduce(message_bytes, n_gpus, bandwidth_bytes_s, latency_s)


@_COLLECTIVE
def calc_all_to_all_time(message_bytes: Any, n_gpus: Any, bandwidth_bytes_s: Any, latency_s: Any = 0.0) -> Any:
    """All-to-all exchange."""
    return collectives.all_to_all(message_bytes, n_gpus, bandwidth_bytes_s, latency_s)


@_formula(
    "message_bytes: byte, n_nodes >= 1, gpus_per_node >= 1, intra_node_bw: byte/s > 0, inter_node_bw: byte/s > 0, "
    "intra_node_latency: s, inter_node_latency: s -> s"
)
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
    links = intra_node_bw, intra_node_latency, inter_node_bw, inter_node_latency
    return collectives.hierarchical_all_reduce(message_bytes, n_nodes, gpus_per_node, *links)


@_formula("n_stages >= 1, n_microbatches >= 1, v_stages >= 1")
def calc_pipeline_bubble(n_stages: Any, n_microbatches: Any, v_stages: Any = 1) -> float:
    """Share of a step that a stage waits: (P - 1) / (V M + P - 1) for M >= P; with fewer it waits for its own wrap."""
    return float(1 - n_microbatches / pipeline.makespan("interleaved", n_stages, n_microbatches, 1.0, v=v_stages))


@_formula("checkpoint_cost_s: s, mtbf_s: s -> s")
def calc_young_daly_interval(checkpoint_cost_s: Any, mtbf_s: Any) -> Any:
    """Time between checkpoints that wastes least: sqrt(2 delta M)."""
    return goodput.young_interval(checkpoint_cost_s, mtbf_s)


@_formula("component_mtbf_hours: h > 0, n_components >= 1, correlation_factor > 0 -> h")
def calc_mtbf_cluster(component_mtbf_hours: Any, n_components: Any, correlation_factor: float = 1.0) -> Any:
    """Mean time between failures of many parts; correlated failures (factor above 1) strike less often, but together."""
    return goodput.cluster_mtbf(component_mtbf_hours, n_components) * correlation_factor


@_formula("gpu_mtbf_h: h > 0, n_gpus, nic_mtbf_h: h > 0, n_nics, psu_mtbf_h: h > 0, n_psus -> h")
def calc_mtbf_node(gpu_mtbf_h: Any, n_gpus: Any, nic_mtbf_h: Any, n_nics: Any, psu_mtbf_h: Any, n_psus: Any) -> Any:
    """Mean time between failures of a node: the rates of its components add."""
    return goodput.node_mtbf(gpu_mtbf_h, n_gpus, nic_mtbf_h, n_nics, psu_mtbf_h, n_psus)


@_formula("n_layers, n_heads, head_dim, seq_len, batch_size, bytes_per_elem: byte -> byte")
def calc_kv_cache_size(
    n_layers: Any, n_heads: Any, head_dim: Any, seq_len: Any, batch_size: Any, bytes_per_elem: Any = 2
) -> Any:
    """Keys and values of all layers; ``n_heads`` counts key-value heads."""
    return memory.cache_bytes(batch_size, seq_len, 2 * n_layers * n_heads * head_dim, bytes_per_elem)


@_formula("n_layers, n_heads, head_dim, seq_len, batch_size, page_size_tokens >= 1, bytes_per_elem: byte -> byte")
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
    elements = 2 * n_layers * n_heads * head_dim
    return memory.paged_cache_bytes(batch_size, seq_len, page_size_tokens, elements, bytes_per_elem)


@_formula("n_params, bytes_per_param: byte -> byte")
def calc_checkpoint_size(n_params: Any, bytes_per_param: Any = 14) -> Any:
    """Bytes of a checkpoint: 14 for each parameter with Adam in mixed precision."""
    return checkpoint_size(n_params, bytes_per_param, 0.0)


@_formula("n_layers, seq_len, batch_size, hidden_dim, precision_bytes: byte -> byte")
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
    elements = {"selective": 16 * hidden_dim, "none": 16 * hidden_dim, "full": hidden_dim}.get(strategy)
    if elements is None:
        raise InputError(f"{strategy!r} is no strategy; use none, selective or full.", field="strategy")
    if strategy == "none":
        if n_heads is None:
            raise InputError("Keeping attention scores needs 'n_heads'.", field="n_heads")
        # Scores, softmax and dropout mask: 5 a s bytes a token in 16 bit (Korthikanti et al. 2023).
        elements += 2.5 * _number("n_heads", n_heads, "", 0.0, False) * seq_len
    return n_layers * training_memory.activation_bytes_per_layer(
        seq_len * batch_size, 0.0, elements, 1, precision_bytes
    )


@_formula("ops: flop, model_bytes: byte, device_flops: flop/s > 0, device_bw: byte/s > 0")
def calc_bottleneck(ops: Any, model_bytes: Any, device_flops: Any, device_bw: Any) -> dict[str, Any]:
    """Compute and memory time of a pass, and which of them binds."""
    compute, moved = compute_time(ops, device_flops, 1.0), memory_time(model_bytes, device_bw)
    bottleneck = "Compute" if compute >= moved else "Memory"
    return {"compute_time": quantity(compute, "s"), "memory_time": quantity(moved, "s"), "bottleneck": bottleneck}


@_formula("p, s > 0")
def calc_amdahls_speedup(p: float, s: float) -> float:
    """Speed-up when a share ``p`` of the work runs ``s`` times as fast (Amdahl 1967)."""
    if p > 1:
        raise InputError(f"'p' must be at most 1, got {p:g}.")
    return 1 / ((1 - p) + p / s)


@_formula("total_ops: flop, num_devices >= 1, peak_flops_per_device: flop/s > 0, efficiency_eta > 0")
def calc_training_time_days(
    total_ops: Any, num_devices: Any, peak_flops_per_device: Any, efficiency_eta: float
) -> float:
    """Days that a number of devices needs for some operations."""
    seconds = compute_time(total_ops, peak_flops_per_device * num_devices, efficiency_eta)
    return float(to_si(quantity(seconds, "s"), "day"))


@_formula("single_availability, n_replicas >= 1")
def calc_availability_stacked(single_availability: float, n_replicas: int) -> float:
    """Probability that at least one replica is up."""
    return float(goodput.stacked_availability(single_availability, n_replicas))


@_formula("arrival_rate_hz: 1/s, service_rate_hz: 1/s > 0, num_servers >= 1 -> s")
def calc_queue_latency_mmc(arrival_rate_hz: Any, service_rate_hz: Any, num_servers: int) -> Any:
    """Mean time in an M/M/c system, waiting and being served."""
    if arrival_rate_hz >= service_rate_hz * num_servers:
        servers = f"{num_servers:g} servers of {service_rate_hz:g} a second"
        raise InputError(f"{arrival_rate_hz:g} arrivals a second overload {servers}; the queue grows without end.")
    return queueing.mmc_wait(arrival_rate_hz, 1 / service_rate_hz, num_servers) + 1 / service_rate_hz


@_formula("unit_cost: USD, power_w: W, years: year, kwh_price: USD/kWh -> USD")
def calc_fleet_tco(
    unit_cost: Any, power_w: Any, quantity_: Any = None, years: Any = 1, kwh_price: Any = 0.12, **given: Any
) -> Any:
    """Purchase of a fleet and its electricity over some years."""
    devices = given.pop("quantity", quantity_)
    if given or devices is None:
        raise InputError("calc_fleet_tco takes unit_cost, power_w, quantity, years and kwh_price.")
    hours = to_si(quantity(years, "year"), "h")
    return money.ownership_cost(unit_cost, power_w / 1e3, _number("quantity", devices, "", 1, False), hours, kwh_price)


@_formula("bytes_per_sec: byte/s, cost_per_gb: USD/GB -> USD")
def calc_monthly_egress_cost(bytes_per_sec: Any, cost_per_gb: Any) -> Any:
    """Price of sending data out for 30 days."""
    return to_si(quantity(bytes_per_sec * to_si("30 day", "s"), "byte"), "GB") * cost_per_gb


@_formula("distance_km: km")
def calc_network_latency_ms(distance_km: Any) -> float:
    """Time of light through fibre, there and not back."""
    return float(distance_km / to_si(constant("light_in_fibre").quantity, "km/ms"))


__all__ = sorted(name for name in globals() if name.startswith("calc_"))
