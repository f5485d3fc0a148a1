"""What the axes of charts of a sweep are called: keys of plans, inputs of spaces and outputs of their kinds, in words and with a unit.

An output that is a metric has the metric's label; the others have theirs here. What an expression ranks by is told as it was written.
"""

from __future__ import annotations

from mlsysim.plans.metrics import kinds

_KEYS = {
    "on": "fleet",
    "seq_len": "sequence length",
    "tp": "tensor parallelism",
    "pp": "pipeline stages",
    "ep": "expert parallelism",
    "cp": "context parallelism",
    "dp": "data parallelism",
    "qps": "requests a second",
    "v_stages": "virtual stages",
    "microbatch_count": "micro-batches",
    "tdp": "power limit",
    "peak": "peak arithmetic rate",
    "bandwidth": "memory bandwidth",
    "capacity": "memory capacity",
}
"""Keys that do not say in themselves what they are."""
_METRICS = {
    **dict.fromkeys(("latency_s", "step_time_s", "e2e_s"), "latency"),
    **{f"{name}_s": name for name in ("ttft", "itl", "tpot")},
    "memory_bytes": "memory",
    "tokens_per_second_per_user": "user_rate",
    "throughput_per_s": "throughput",
    "goodput_ratio": "goodput",
    "run_days": "run_time",
}
_OTHERS = {
    "latency_compute_s": "Time of arithmetic",
    "latency_memory_s": "Time of memory",
    "longest_stall_s": "Longest stall of a token",
    "energy_j": "Energy of a pass",
    "price_usd": "Price of the chip",
    "throughput_per_usd": "Samples a second per dollar",
    "accuracy_delta": "Change of accuracy",
    "accuracy_worst": "Change of accuracy at worst",
    "active_requests": "Requests under way",
    "devices": "Accelerators",
}
_AMOUNTS = {"usd": "Cost", "kwh": "Energy", "kgco2e": "Carbon", "litres": "Water"}
_SCOPES = {"mtoken": "a million tokens", "run": "the run"}
_UNITS = {
    "s": "s", "bytes": "byte", "j": "J", "days": "day", "usd": "USD", "kwh": "kWh", "kgco2e": "kgCO2e", "litres": "litre"
}  # fmt: skip
_TASKS = {"training": "training", "serving": "serving"}


def title_of_key(name: str) -> str:
    """A key of a plan or an input of a space as a title.

    >>> title_of_key("tp_size"), title_of_key("batch_size")
    ('Tensor parallelism', 'Batch size')
    """
    words = _KEYS.get(name.removesuffix("_size"), _KEYS.get(name, name.replace("_", " ")))
    return words[:1].upper() + words[1:]


def title_of_output(kind: str, name: str) -> tuple[str, str]:
    """An output of a kind of space as a title, and the unit of its numbers.

    >>> title_of_output("serving", "ttft_s"), title_of_output("training", "kgco2e_per_run")
    (('Time to the first token', 's'), ('Carbon of the run', 'kgCO2e'))
    """
    amount, _, scope = name.partition("_per_")
    unit = _UNITS.get(amount if scope in _SCOPES else name.rpartition("_")[2] if "_per_" not in name else "", "")
    metric = kinds().get(_METRICS.get(name, name))
    if metric is not None:
        return metric.label_of(_TASKS.get(kind, "inference")), "percent" if metric.share else unit
    if amount in _AMOUNTS and scope in _SCOPES:
        return f"{_AMOUNTS[amount]} of {_SCOPES[scope]}", unit
    return _OTHERS.get(name, name), unit
