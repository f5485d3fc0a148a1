"""Kernels, links, launches and power of our own H200: seconds and watts by the functions and constants that answers are made of.

Each section has one function of a configuration and the chip's constants. What no answer would run is excluded, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.operators import FORMATS, LIBRARY, PRODUCT, constants, library, product, speeds
from mlsysim.calibrate.questions import Excluded, Skipped
from mlsysim.cases.offload import host_link
from mlsysim.hardware.registry import Hardware
from mlsysim.models.graph import Operator
from mlsysim.physics.operators import attention_decode_time, gemm_time, host_bound_time, memory_bound_time
from mlsysim.physics.precision import bytes_per_element
from mlsysim.timing.kernels import REACH, Profile
from mlsysim.timing.operator_times import Execution, operator_time, pass_time
from mlsysim.timing.power import Activity, equivalent, power_of
from mlsysim.timing.stacks import software
from mlsysim.units.registry import to_si


class Config(dict[str, Any]):
    """A configuration; what it lacks is a reason."""

    def __missing__(self, key: str) -> Any:
        raise Skipped(f"the configuration has no {key}")


CHIP = "H200"
WORDS = settings("rows")["silicon"]
_AUTOGRAD = 10
"""Host operators of one attention core, forward and backward, under autograd."""
_HALF = bytes_per_element("bf16")
_MEGA = 1 << 20


def _gemm(c: Config, shares: Profile) -> Any:
    form = FORMATS.get(c.get("dtype", ""))
    if form is None:
        raise Skipped(f"the number format {c.get('dtype')!r} is not known")
    values = constants(shares.product_for(form.precision), *PRODUCT)
    return product(CHIP, form, c["M"], c["N"], c["K"], False, c.get("B", 1))(**values)


def _of_format(label: str) -> Callable[[Config, Profile], Any]:
    return lambda c, shares: _gemm(Config(c, dtype=label), shares)


def _ceiling(c: Config, shares: Profile) -> Any:
    label = str(c["dtype"]).removesuffix("_fast").removesuffix("_slow")
    if label in WORDS["not_run"]:
        raise Excluded(WORDS["not_run"][label])
    if label not in ("bf16", "fp16", "fp8", "tf32", "fp32"):
        raise Skipped(f"products in {c['dtype']} have no constants of their own")
    kernel = shares.product_for(label)
    share = kernel.rate_share * (1.0 if c["mode"] == "burst" else kernel.kept)
    n, (start, chain, _), (peak, bandwidth) = float(c["n"]), kernel.times, speeds(CHIP, label)
    moved, walk = 3 * bytes_per_element(label) * n * n, (start, n / REACH, chain)
    return gemm_time(2 * n**3, moved, 0.0, peak * share, bandwidth, kernel.memory_share, 1.0, *walk)


def _grouped(name: str, rows: float, hit: float, n: float, k: float) -> Operator:
    sizes: dict[str, Any] = {"flops": 2 * rows * n * k, "weight_bytes": _HALF * hit * n * k}
    sizes |= {"input_bytes": _HALF * rows * k, "output_bytes": _HALF * rows * n}
    return Operator(name, "grouped_gemm", "moe", m=rows / hit, n=n, k=k, groups=hit, **sizes)


def _torch(operators: list[Operator], shares: Profile) -> Any:
    how = Execution(fused=False, fine=True, convert="fused", software=software("torch_graph"))
    return pass_time(operators, Hardware.get(CHIP), shares, "bf16", how).total


def _even_groups(c: Config, shares: Profile) -> Any:
    """One grouped product; groups of one size leave no tile half empty."""
    own = shares.experts["torch"].model_copy(update={"ragged": 0.0})
    whole = shares.model_copy(update={"experts": {**shares.experts, "torch": own}})
    hit = min(c["experts"], c["rows"])
    return _torch([_grouped("experts_up", float(c["rows"]), float(hit), c["N"], c["K"])], whole)


def _mixture(c: Config, shares: Profile) -> Any:
    """Experts of a layer, or all of its mixture of experts, as plain PyTorch runs them."""
    tokens, rows, hit, h, width = float(c["T"]), float(c["T"] * c["topk"]), float(c["active"]), c["h"], c["F"]
    between = {"input_bytes": 2 * _HALF * rows * width, "output_bytes": _HALF * rows * width}
    found = [
        _grouped("experts_up", rows, hit, 2 * width, h),
        Operator("experts_activation", "elementwise", "moe", m=rows, n=2 * width, **between),
        _grouped("experts_down", rows, hit, h, width),
    ]
    if c["what"] == "layer":
        router = {"weight_bytes": _HALF * c["E"] * h, "input_bytes": _HALF * tokens * h}
        added = {"input_bytes": _HALF * rows * h, "output_bytes": _HALF * tokens * h}
        found += [
            Operator("router", "gemm", "moe", m=tokens, n=c["E"], k=h, flops=2 * tokens * c["E"] * h, **router),
            Operator("experts_sum", "elementwise", "moe", m=tokens, n=c["topk"] * h, **added),
        ]
    return _torch(found, shares)


def _attention(c: Config, shares: Profile) -> Any:
    kernel = WORDS["attention"].get(c["backend"])
    if kernel is None:
        raise Skipped(f"attention by {c['backend']!r} has no constants")
    best = shares.attention.kernel_rate(kernel)
    seconds = library(CHIP, c["B"], c["S"], c["H"], c["D"], c["causal"], best)
    return seconds(**constants(shares.attention, *LIBRARY))


def _attention_both(c: Config, shares: Profile) -> Any:
    forward, start = _attention(c, shares), shares.attention.times[0]
    device = forward + start + 2.5 * (forward - start) / shares.attention.backward_share
    return max(device, _AUTOGRAD * (software("torch").host or 0.0))


def _decode_attention(c: Config, shares: Profile) -> Any:
    """Keys split by a kernel of Triton as engines have them, and the best library."""
    path = str(c["path"]).split("_")[0]
    if path in WORDS["not_run"]:
        raise Excluded(WORDS["not_run"][path])
    if path not in ("triton", "cudnn"):
        raise Skipped(f"decode attention by {c['path']!r} has no constants")
    moved = 4.0 * c["B"] * c["S"] * c["KV"] * c["D"]
    operations = 4.0 * c["B"] * c["S"] * c["H"] * c["D"]
    share, start = shares.attention.decode_memory_share, shares.attention.times[1]
    share = share if path == "cudnn" else software("engine").cache_share or 1.0
    return attention_decode_time(moved, operations, *speeds(CHIP), share, start)


def _memop(c: Config, shares: Profile) -> Any:
    bound, (_, bandwidth) = shares.memory_bound, speeds(CHIP)
    if c["op"] == "adamw":
        if c["mode"] != "fused":
            raise Excluded("an optimizer that is not fused: every stack of the package has a fused one")
        share = bound.optimizer_share if c["dtype"] == "float32" else bound.optimizer_share_16bit
        return c["bytes"] / (share * bandwidth)
    known = bound.kernels.get(f"{c['op']}/{c['mode']}")
    if known is None:
        reason = WORDS["not_run"].get(f"{c['op']}/{c['mode']}")
        raise Excluded(reason) if reason else Skipped(f"{c['op']} in {c['mode']} mode has no constants of its own")
    return memory_bound_time(c["bytes"], bandwidth, known.share, to_si(known.start, "s"))


def _streaming(c: Config, shares: Profile) -> Any:
    """Buffers that are read, written, copied or added by one kernel, in the way of fused operators; additions have constants of their own."""
    bound, (_, bandwidth) = shares.memory_bound, speeds(CHIP)
    if c["op"] in WORDS["not_run"]:
        raise Excluded(WORDS["not_run"][c["op"]])
    if c["mode"] == "hot" and c["bytes"] < 2 * WORDS["cache_bytes"]:
        raise Excluded("a buffer that stays in the chip's last cache: every operator of an answer reads memory")
    own = bound.kernels.get("add/eager") if c["op"] == "add3" else None
    share, start = (own.share, to_si(own.start, "s")) if own else (bound.fused_share, bound.times[0])
    host = bound.times[2] if c["op"].startswith("eager") else 0.0
    return host_bound_time(memory_bound_time(c["bytes"], bandwidth, share, start), 1, host)


def _lookup(c: Config, shares: Profile) -> Any:
    """Rows of a table, pooled or not, as recommendation models and vocabularies read them."""
    row = c["D"] * bytes_per_element({"float32": "fp32", "float16": "fp16"}[c["dtype"]])
    if c["op"] == "gather" and row < WORDS["wide_row"]:
        raise Excluded(
            "a gather of rows below 512 bytes costs the same for each: tables are pooled, and vocabularies have wider rows"
        )
    op = Operator(
        "embedding_bags", "embedding", "embedding", m=c["B"] * c["pool"], n=c["D"], input_bytes=float(c["bytes"])
    )
    return operator_time(op, Hardware.get(CHIP), shares, "fp32", Execution(fine=True))


def _link(c: Config, shares: Profile) -> Any:
    if not c["pinned"]:
        raise Excluded("a copy from memory that is not pinned: what an answer offloads is pinned")
    return c["mb"] * _MEGA / host_link(Hardware.get(CHIP))


def _launch(c: Config, shares: Profile) -> Any:
    """One kernel of a graph, an addition by the host, an operator of PyTorch."""
    if "roundtrip" in c["kind"]:
        raise Excluded("a kernel that the host waits for alone: no pass of an answer waits after each kernel")
    if c["op"] == "sleep0":
        raise Excluded("an empty kernel: no operator of an answer is one")
    _, node, eager = shares.memory_bound.times
    return node if c["kind"] == "graph_node" else eager if c["op"] == "add_" else software("torch").host


def _convolution(c: Config, shares: Profile) -> Any:
    k, (peak, bandwidth) = shares.convolution, speeds(CHIP, "fp16")
    assert k is not None
    if c["groups"] > 1:
        return memory_bound_time(c["bytes"], bandwidth, k.depthwise_share, k.seconds)
    rate = peak * k.rate_share
    return gemm_time(c["flops"], c["bytes"], 0.0, rate, bandwidth, k.memory_share, 1.0, k.seconds)


def watts(load: str, told: dict[str, float]) -> Any:
    """Power of a load by its own rates of operations and bytes; the limit does what a lower clock did."""
    words, chip = WORDS["loads"], Hardware.get(CHIP)
    for part, reason in words["not_run"].items():
        if part in load:
            raise Excluded(reason)
    rate, moved = told.get("flops_rate", 0.0), told.get("byte_rate", 0.0)
    form = next((name for name in ("fp8", "tf32", "fp32") if name in load), "bf16")
    waits = any(load.startswith(name) for name in words["waiting"])
    if not (rate or moved or waits):
        raise Skipped(f"the rates of the load {load!r} are not given")
    busy = 0.0 if waits else float(load.partition("duty")[2] or 1.0)
    vector = float(any(part in load for part in words["vector"]))
    return power_of(chip, Activity(rate * equivalent(chip, form), moved, busy, vector))


KERNELS: dict[str, tuple[Callable[[Config, Profile], Any], str]] = {
    **dict.fromkeys(("gemm", "gemm_random", "gemm_random2", "gemm_sweep", "bmm"), (_gemm, "kernel gemm")),
    "gemm_bf16": (_of_format("bf16"), "kernel gemm"),
    **dict.fromkeys(("gemm_fp8_tensorwise", "gemm_fp8_rowwise"), (_of_format("fp8"), "kernel gemm")),
    "gemm_ceiling": (_ceiling, "kernel gemm"),
    "grouped_bf16": (_even_groups, "kernel experts"),
    "moe": (_mixture, "kernel experts"),
    "attn_fwd": (_attention, "kernel attention"),
    "attn_fwdbwd": (_attention_both, "kernel attention"),
    "attn_decode": (_decode_attention, "kernel attention"),
    "memop": (_memop, "kernel memory"),
    **dict.fromkeys(("bandwidth", "bandwidth2"), (_streaming, "kernel memory")),
    "dlrm": (_lookup, "lookup gather"),
    "pcie": (_link, "host link"),
    "launch": (_launch, "host launch"),
    "conv": (_convolution, "kernel convolution"),
}
"""Sections of kernels: their seconds, and the kind of work."""
