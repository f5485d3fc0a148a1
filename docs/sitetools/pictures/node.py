"""Pictures of walls 1 to 7: one accelerator, and the requests before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim import (
    ContinuousBatchingModel,
    EfficiencyModel,
    ServingModel,
    SingleNodeModel,
    TailLatencyModel,
    WeightStreamingModel,
)
from mlsysim.plot.charts.memory_bar import memory_bar
from mlsysim.plot.charts.roofline import roofline
from mlsysim.plot.figure import Figure

from .curves import along

__all__ = ["WALLS"]


def compute(prompts: tuple[int, ...] = (16, 64, 256, 1024, 4096)) -> Figure:
    """Prompts climb the slope and stop at what kernels reach of the roof."""
    passes = [
        (f"{tokens:,} tokens", SingleNodeModel().solve("Llama3_8B", "H100", seq_len=tokens)) for tokens in prompts
    ]
    return roofline("H100", passes, title="Prompts for Llama 3.1 8B on one H100: where arithmetic binds")


def memory() -> Figure:
    """One model in four formats against one chip."""
    bars = [
        (
            name,
            SingleNodeModel().solve("Llama3_70B", "H100", precision=name, phase="decode", batch_size=8, seq_len=4096),
        )
        for name in ("fp16", "fp8", "int4")
    ]
    return memory_bar(bars, title="Llama 3.1 70B with eight contexts of 4,096 tokens, against one H100")


def software() -> Figure:
    """What a faster attention is worth as contexts grow."""

    def reached(fused: bool) -> Callable[[int], float]:
        of: dict[str, Any] = {"workload_type": "transformer", "use_flash_attention": fused}
        return lambda tokens: 100 * EfficiencyModel().solve("Llama3_8B", "H100", seq_len=tokens, **of).mfu

    return along(
        [2**k for k in range(10, 18)],
        {"fused attention": reached(True), "attention that is not fused": reached(False)},
        names=_short,
        unit="percent",
        x_title="Tokens of context",
        y_title="Efficiency of the whole model",
        title="The longer the context, the more attention's own efficiency counts: Llama 3.1 8B",
    )


def serving() -> Figure:
    """Two phases, two walls."""

    return along(
        [2**k for k in range(8)],
        {"first token": "ttft", "each further token": "itl"},
        of=lambda batch: ServingModel().solve("Llama3_70B", "H100", seq_len=512, tp_size=2, batch_size=batch),
        names=_short,
        unit="s",
        x_title="Requests in a batch",
        y_title="Time",
        title="Llama 3.1 70B on two H100: prompts wait for arithmetic, answers for memory",
    )


def batching() -> Figure:
    """Pages against reserved maxima."""

    return along(
        [2**k for k in range(10)],
        {"continuous, paged": "throughput_tokens_per_sec", "static": "static_throughput_tokens_per_sec"},
        of=lambda most: ContinuousBatchingModel().solve("Llama3_8B", "H100", seq_len=2001, max_batch_size=most),
        names=_short,
        unit="1/s",
        x_title="Requests allowed at a time",
        y_title="Tokens a second",
        title="Llama 3.1 8B on one H100: tokens a second until caches fill the memory",
    )


def streaming() -> Figure:
    """Where the time to compute a layer meets the time to bring it."""

    return along(
        [2**k for k in range(4, 19, 2)],
        {"a layer's weights arrive": "layer_injection_time", "a layer is computed": "layer_compute_time"},
        of=lambda batch: WeightStreamingModel().solve(
            "Falcon_180B", "CerebrasCS3", seq_len=2048, batch_size=batch, efficiency=0.4
        ),
        names=_short,
        unit="s",
        x_title="Sequences at a time",
        y_title="Time of one layer",
        title="Falcon 180B on a wafer: weights arrive slower than they are used, up to the crossing",
    )


def tail() -> Figure:
    """Percentiles run away long before the servers are full."""

    return along(
        [10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92, 94, 96, 97],
        {"99 %": "p99_latency", "95 %": "p95_latency", "50 %": "p50_latency"},
        of=lambda rate: TailLatencyModel().solve(
            arrival_rate_qps=rate, service_latency_ms=100, num_replicas=10, slo_latency_ms=500
        ),
        unit="s",
        limit="500 ms",
        x_title="Requests a second",
        y_title="Time within which they are answered",
        title="Ten replicas of 100 ms: the slowest requests feel the load first",
    )


def _short(value: int) -> str:
    return f"{value // 1024}k" if value >= 1024 else str(value)


WALLS: dict[int, Callable[[], Figure | None]] = {
    1: compute,
    2: memory,
    3: software,
    4: serving,
    5: batching,
    6: streaming,
    7: tail,
}
"""Walls, and what draws the picture of each."""
