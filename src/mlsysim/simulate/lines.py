"""A request as files have it, whatever their format."""

from __future__ import annotations

from typing import NamedTuple

from mlsysim.simulate.requests import Measured, Request

EXPECTED = "the columns arrival_s,input_tokens,output_tokens of a CSV, or a trace of Azure, BurstGPT, Mooncake, vLLM, inference-perf or GuideLLM"
"""What a trace may be."""


class Line(NamedTuple):
    """A request as it stands in a file; None where it failed."""

    where: int | str
    """Number of its line; in a result of a benchmark, which is no table of lines, words."""
    run: str
    request: Request | None
    measured: Measured = Measured()


def tpot_of(ttft: float | None, e2e: float | None, tokens: int) -> float | None:
    """Seconds of each token after the first."""
    return (e2e - ttft) / (tokens - 1) if ttft is not None and e2e is not None and tokens > 1 else None
