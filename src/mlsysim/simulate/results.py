"""Requests in JSON: Mooncake's lines, and what benchmarks of servers write (:mod:`mlsysim.simulate.formats` has the list)."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.simulate.lines import EXPECTED, Line, tpot_of
from mlsysim.simulate.requests import Measured, Request


def results_of(path: Path, source: io.TextIOBase, first: str) -> Iterator[Line]:
    """The requests of a file in JSON, of which ``first`` is the first line."""
    try:
        start = json.loads(first)
    except (ValueError, RecursionError):
        start = None
    if isinstance(start, dict) and {"timestamp", "input_length", "output_length"} <= start.keys():
        yield from _mooncake(path, source)
        return
    try:
        whole = start if start is not None else json.loads(source.read())
    except (ValueError, RecursionError) as error:
        raise InputError(f"The trace {path} is no JSON: {error}; expected {EXPECTED}.") from None
    if isinstance(whole, dict) and "input_lens" in whole:
        read: Callable[[Any], Iterator[Line]] = _vllm
    elif isinstance(whole, dict) and "benchmarks" in whole:
        read = _guidellm
    elif isinstance(whole, list) and whole and isinstance(whole[0], dict) and {"start_time", "info"} <= whole[0].keys():
        read = _inference_perf
    else:
        keys = ", ".join(whole)[:200] if isinstance(whole, dict) else type(whole).__name__
        raise InputError(f"The trace {path} is JSON of no known kind ({keys}); expected {EXPECTED}.")
    done = 0
    try:
        for line in read(whole):
            yield line
            done += 1
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        if isinstance(error, InputError):
            raise InputError(f"{path}: {error}") from None
        raise InputError(
            f"{path}, request {done + 1} is not as {read.__name__[1:]} writes it: {type(error).__name__} {error}."
        ) from None


def _mooncake(path: Path, source: Iterable[str]) -> Iterator[Line]:
    for number, text in enumerate(source, 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
            came = float(row["timestamp"]) / 1000
            blocks = tuple(map(int, row["hash_ids"])) if "hash_ids" in row else None
            request = Request(came, int(row["input_length"]), int(row["output_length"]), row.get("session_id"), blocks)
        except (ValueError, KeyError, TypeError, OverflowError):
            raise InputError(
                f"{path}, line {number} is {text.strip()[:60]!r}; expected JSON with timestamp, input_length, output_length, hash_ids."
            ) from None
        yield Line(number, "", request)


_LISTS = ("input_lens", "output_lens", "start_times", "ttfts", "itls", "errors")


def _vllm(whole: dict[str, Any]) -> Iterator[Line]:
    reads, writes = whole["input_lens"], whole["output_lens"]
    starts = whole.get("start_times")
    if not starts:
        if whole.get("request_rate") not in ("inf", float("inf")) or whole.get("max_concurrency"):
            raise InputError(
                "it has no start_times, so when its requests came is not known; draw a load of its rate and lengths, or "
                "measure again with a client that writes them (vllm bench serve --save-detailed)."
            )
        starts = [0.0] * len(reads)
    ttfts, gaps, errors = (whole.get(key) or [None] * len(reads) for key in _LISTS[3:])
    given = {name: len(whole[name]) for name in _LISTS if whole.get(name)}
    if len({*given.values()}) > 1:
        long = ", ".join(f"{name} {many}" for name, many in given.items())
        raise InputError(f"its lists have one entry for each request, and are of different lengths: {long}.")
    for n, (start, read, write, ttft, between, error) in enumerate(
        zip(starts, reads, writes, ttfts, gaps, errors, strict=True), 1
    ):
        if error or not write:
            yield Line(f"request {n}", "", None)
            continue
        e2e = ttft + sum(between) if ttft is not None and between is not None else None
        measured = Measured(ttft, tpot_of(ttft, e2e, write), e2e)
        yield Line(f"request {n}", "", Request(float(start), int(read), int(write)), measured)


def _inference_perf(whole: list[dict[str, Any]]) -> Iterator[Line]:
    for n, row in enumerate(whole, 1):
        info, run = row["info"] or {}, str(row.get("stage_id") or "")
        got = info.get("response_metrics") or info
        times = got.get("output_token_times") or []
        if row.get("error") or not got.get("output_tokens"):
            yield Line(f"request {n}", run, None)
            continue
        asked = _asked(row.get("request"))
        said = (got.get("server_usage") or {}).get("completion_tokens")
        write = int(said or (asked.get("max_tokens") if asked.get("ignore_eos") else 0) or got["output_tokens"])
        read = int(info["input_tokens"] if "input_tokens" in info else info["request_metrics"]["text"]["input_tokens"])
        start = float(row["start_time"])
        ttft = times[0] - start if times else None
        e2e = (times[-1] if times else float(row["end_time"])) - start
        request = Request(start, read, write, row.get("session_id"), adapter=info.get("lora_adapter"))
        yield Line(f"request {n}", run, request, Measured(ttft, tpot_of(ttft, e2e, write), e2e))


def _asked(request: Any) -> dict[str, Any]:
    """The request as it was sent, where that is kept."""
    try:
        found = json.loads(request) if isinstance(request, str) else request
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _guidellm(whole: dict[str, Any]) -> Iterator[Line]:
    several = len(whole["benchmarks"]) > 1
    for number, benchmark in enumerate(whole["benchmarks"]):
        rows = benchmark["requests"]
        for n, row in enumerate(rows["successful"], 1):
            start = row["request_start_time"] if "request_start_time" in row else row["start_time"]
            ttft, between = row.get("time_to_first_token_ms"), row.get("inter_token_latency_ms")
            measured = Measured(
                None if ttft is None else ttft / 1000,
                None if between is None else between / 1000,
                row.get("request_latency"),
            )
            request = Request(float(start), int(row["prompt_tokens"]), int(row["output_tokens"]))
            yield Line(f"request {n}", str(number) if several else "", request, measured)
        for n, _ in enumerate([*(rows.get("incomplete") or ()), *(rows.get("errored") or ())], 1):
            yield Line(f"failed request {n}", str(number) if several else "", None)
