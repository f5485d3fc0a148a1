"""What others write down of requests: one reader a format, found by what is in the file.

| format | how it is known | times | source |
|---|---|---|---|
| CSV of ours | columns ``arrival_s, input_tokens, output_tokens``, or other names of them (data/vocabulary.toml) | seconds, ms | below |
| Azure 2023, 2024 | ``TIMESTAMP, ContextTokens, GeneratedTokens`` | dates | github.com/Azure/AzurePublicDataset |
| BurstGPT | ``Timestamp, Model, Request tokens, Response tokens`` | seconds | github.com/HPMLL/BurstGPT; no response tokens: failed |
| Vidur | ``arrived_at, num_prefill_tokens, num_decode_tokens`` | seconds | github.com/microsoft/vidur |
| Mooncake | JSON lines ``timestamp, input_length, output_length, hash_ids`` | ms | github.com/kvcache-ai/Mooncake; blocks of 512 tokens |
| vLLM, SGLang | JSON ``input_lens, output_lens, ttfts, itls, start_times`` | s | vllm/benchmarks/serve.py, ``--save-detailed`` |
| inference-perf | JSON list of ``start_time, end_time, info`` | s | per_request_lifecycle_metrics.json, inference_perf/reportgen |
| GuideLLM | JSON ``benchmarks[].requests.successful[]`` | s, ms | guidellm/schemas/request_stats.py |

A CSV of ours may have more columns: ``session``, ``prefix``, ``tenant``, ``priority``, ``adapter``, ``run``, and what was measured:
``ttft_s``, ``tpot_s``, ``e2e_s``, ``wait_in_queue_s``, or clock times ``scheduled_s``, ``first_token_s``, ``finish_s``. ``prefix`` (or
``prefix_blocks``) has the hashes of the prompt's blocks, ``first+k`` for a run of k + 1 of them (``0+3 17`` is 0, 1, 2, 3, 17), or
``name:tokens`` for a prompt that begins with so many tokens of a text of that name.

inference-perf counts the tokens of an answer by reading its text again, which finds too few; the server's own count or, where the
end token was ignored, the number that was asked for is taken first. Requests that failed are left out and counted.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from mlsysim import vocabulary
from mlsysim.errors import InputError, nearest
from mlsysim.simulate.lines import EXPECTED, Line, tpot_of
from mlsysim.simulate.packed import MAGIC, unpack
from mlsysim.simulate.requests import Measured, Request
from mlsysim.simulate.results import results_of

__all__ = ["lines_of", "named_blocks", "opened"]


_NEEDED = ("arrival", "prompt", "answer")
_FAR = 1e11
"""Seconds since 1970 that nobody has seen: milliseconds that are not said to be."""
_TIMES = {"arrival", "ttft", "tpot", "e2e", "queue", "scheduled", "first", "finish"}


def opened(path: Path) -> bytes | io.TextIOBase:
    """A packed trace as bytes, anything else as text; gzip is undone whatever the name says."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise InputError(f"The trace {path} cannot be read: {error.strerror or error}.") from None
    first = raw.read(len(MAGIC))
    raw.seek(0)
    if first == MAGIC:
        with raw:
            return raw.read()
    stream = gzip.GzipFile(fileobj=raw) if first[:2] == b"\x1f\x8b" else raw
    return io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")


def lines_of(path: Path, block_tokens: int, run: str | None = None) -> Iterator[Line]:
    """The requests of a file, or of one run of it, in the order they stand in; ``block_tokens`` is for texts that are given by name."""
    source = opened(path)
    if isinstance(source, bytes):
        yield from (Line(n, "", request) for n, request in enumerate(unpack(source), 1))
        return
    with source:
        try:
            first = next((text for text in source if text.strip()), "")
            if not first:
                raise InputError(f"The trace {path} is empty; expected {EXPECTED}.")
            if "\0" in first:
                raise csv.Error
            source.seek(0)
            if first.lstrip()[0] in "{[":
                yield from (line for line in results_of(path, source, first) if run is None or line.run == run)
            else:
                yield from _table(path, source, first, block_tokens, run)
        except (UnicodeDecodeError, csv.Error, gzip.BadGzipFile, EOFError, zlib.error):
            raise InputError(f"The trace {path} is no text, or its gzip is damaged; expected {EXPECTED}.") from None


# --- tables ------------------------------------------------------------------------------------------------------------


def separator(first: str) -> str:
    """What stands between the cells of a table, by its first line.

    >>> separator("model;gpu"), separator("model,gpu")
    (';', ',')
    """
    return next((mark for mark in ",;\t" if mark in first), ",")


def _table(path: Path, source: Iterable[str], first: str, block_tokens: int, only: str | None) -> Iterator[Line]:
    rows = csv.reader(source, delimiter=separator(first))
    header = [cell.strip() for cell in next(filter(None, rows))]
    meaning = _columns(path, header)
    places, units = {mean: place for place, (mean, _) in enumerate(meaning)}, dict(meaning)
    places.pop("unused", None)
    arrival, prompt, answer = (places[mean] for mean in _NEEDED)
    more = places.keys() - {*_NEEDED, "run"}
    fails = header[answer].lower() == "response tokens"
    run, time = places.get("run"), _clock(units["arrival"])
    # As quick as tuples are made: a trace has millions of lines.
    made, plain, nothing = tuple.__new__, tuple(Request._field_defaults.values()), Measured()
    for row in rows:
        if not row:
            continue
        where = rows.line_num
        if len(row) != len(header):
            raise InputError(f"{path}, line {where} has {len(row)} cells and the header has {len(header)}.")
        named = row[run] if run is not None else ""
        if only is not None and named != only:
            continue
        try:
            place = arrival
            came = time(row[arrival])
            place = prompt
            read = int(row[prompt])
            place = answer
            write = int(row[answer])
        except ValueError:
            raise _cell(
                path, where, header[place], row[place], "a date or seconds" if place == arrival else "a whole number"
            ) from None
        if came > _FAR:
            better = header[arrival].removesuffix("_s") + "_ms"
            raise _cell(path, where, header[arrival], row[arrival], f"seconds, or a column {better}")
        if fails and write == 0:
            yield Line(where, named, None)
        elif more:
            request, measured = _more(
                path, where, {mean: row[places[mean]].strip() for mean in more}, came, read, write, block_tokens, units
            )
            yield Line(where, named, request, measured)
        else:
            yield made(Line, (where, named, made(Request, (came, read, write, *plain)), nothing))


def _column(name: str) -> tuple[str | None, float]:
    """What a column is, and the seconds of its unit; None where nobody calls one so."""
    word = re.sub(r"[\s.-]+", "_", name.lower())
    named, stem = vocabulary.COLUMNS, word.removesuffix("_ms")
    mean = named.get(word) or named.get(word.removesuffix("_s"))
    if mean is None and stem != word:
        mean = named.get(stem) or named.get(stem + "_s")
        return (mean, 1e-3) if mean in _TIMES else (None, 1.0)
    return mean, 1.0


def _columns(path: Path, header: list[str]) -> list[tuple[str, float]]:
    """What each column of a header is, and the seconds of its unit."""
    columns, named = [_column(name) for name in header], vocabulary.COLUMNS
    found = [mean for mean, _ in columns]
    others = [name for name, mean in zip(header, found, strict=True) if mean is None]
    if missing := [mean for mean in _NEEDED if mean not in found]:
        lacks = {"arrival": "times of arrival", "prompt": "tokens of prompts", "answer": "tokens of answers"}
        close = [near for name in others for near in nearest(name, [n for n in named if named[n] == missing[0]], 1)]
        hint = f"did you mean {close[0]!r}?" if close else f"expected {EXPECTED}."
        raise InputError(f"{path}, line 1 has no column with {lacks[missing[0]]}: {', '.join(header)[:200]!r}; {hint}")
    for name, mean in zip(header, found, strict=True):
        if mean is None:
            close = nearest(name, named, 1)
            known = f"leave it out; known are {', '.join(named)}."
            hint = f"did you mean {close[0]!r}? Else leave it out." if close else known
            raise InputError(f"{path}, line 1 has a column {name[:80]!r} that is not known; {hint}")
        if mean != "unused" and found.count(mean) > 1:
            raise InputError(f"{path}, line 1 has two columns with the same meaning as {name!r}; leave one out.")
    return [(mean or "unused", unit) for mean, unit in columns]


def _more(
    path: Path,
    where: int,
    cells: dict[str, str],
    came: float,
    read: int,
    write: int,
    block_tokens: int,
    units: dict[str, float],
) -> tuple[Request, Measured]:
    """A request with what further columns say."""

    def number(mean: str, since: float = 0.0) -> float | None:
        if not (cell := cells.get(mean)):
            return None
        try:
            return float(cell) * units.get(mean, 1.0) - since
        except ValueError:
            raise _cell(path, where, mean, cell, "seconds") from None

    blocks = None
    if cell := cells.get("prefix"):
        try:
            blocks = _blocks(cell, read, block_tokens)
        except ValueError:
            raise _cell(path, where, "prefix", cell, "hashes of blocks such as '0+13 20', or 'name:tokens'") from None
    try:
        priority = int(float(cells.get("priority") or 0))
    except (ValueError, OverflowError):
        raise _cell(path, where, "priority", cells["priority"], "a whole number") from None
    request = Request(
        came, read, write, cells.get("session") or None, blocks, cells.get("tenant") or None, priority,
        cells.get("adapter") or None,
    )  # fmt: skip
    ttft = number("ttft") if "ttft" in cells else number("first", came)
    e2e = number("e2e") if "e2e" in cells else number("finish", came)
    queue = number("queue") if "queue" in cells else number("scheduled", came)
    return request, Measured(ttft, number("tpot") if "tpot" in cells else tpot_of(ttft, e2e, write), e2e, queue)


def _blocks(cell: str, prompt: int, block_tokens: int) -> tuple[int, ...]:
    name, named, tokens = cell.rpartition(":")
    if named:
        return named_blocks(name, min(int(tokens), prompt) // block_tokens)
    found: list[int] = []
    for word in cell.split():
        first, _, run = word.partition("+")
        if int(run or 0) >= prompt:
            raise ValueError("more blocks than tokens")
        found += range(int(first), int(first) + int(run or 0) + 1)
    return tuple(found)


def named_blocks(name: str, blocks: int) -> tuple[int, ...]:
    """Hashes of the first blocks of a text that has a name; negative, so that they meet no hash of a file."""
    first = -1 - zlib.crc32(name.encode()) << 32
    return tuple(range(first, first + blocks))


def _clock(unit: float) -> Callable[[str], float]:
    """A function from a cell to seconds: a number of so many, or a date from the first minute on, so that all digits of a second are kept."""
    last, since = "", 0.0
    origin: float | None = None

    def seconds(cell: str) -> float:
        nonlocal last, since, origin
        cell = cell.strip()
        if cell[4:5] != "-":
            return float(cell) * unit
        if cell[:16] != last:
            last = cell[:16]
            stamp = datetime.fromisoformat(last).replace(tzinfo=UTC).timestamp()
            origin = stamp if origin is None else origin
            since = stamp - origin
        return since + float(_ZONE.sub("", cell[17:]))

    return seconds


_ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)$")


def _cell(path: Path, where: int, column: str, cell: str, expected: str) -> InputError:
    return InputError(f"{path}, line {where} has {cell[:40]!r} for {column}; expected {expected}.")
