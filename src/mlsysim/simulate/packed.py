"""Traces in few bytes, for those that are shipped: columns of whole numbers, each split into its low and high bytes and deflated.

    mlsysim trace 1
    {"rows": 8819, "per_second": 10000, "block_tokens": 0, "columns": [[2, 13217], ...]}
    gap to the request before, tokens of the prompt, tokens of the answer, and where there are blocks: how many leading blocks were
    seen before, and how many requests ago the last of these was new

A column is (bytes a number, deflated bytes). Whatever blocks were called, they are numbered in order of their first appearance. The
conversation of a request is guessed: that of the request whose blocks it repeats, if that is more than the text that all begin with.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence

from mlsysim.errors import InputError
from mlsysim.simulate.requests import Request

__all__ = ["MAGIC", "block_size", "pack", "unpack"]

MAGIC = b"mlsysim trace 1\n"


def pack(requests: Iterable[Request], per_second: int, block_tokens: int = 0) -> bytes:
    """The bytes of a trace whose times are whole multiples of 1 / ``per_second``."""
    gaps, prompts, answers, known, back = [], [], [], [], []
    before = 0
    seen: dict[int, int] = {}
    for number, request in enumerate(requests):
        time = round(request.arrival * per_second)
        gaps.append(time - before)
        prompts.append(request.prompt)
        answers.append(request.answer)
        before = time
        if block_tokens:
            blocks = request.blocks or ()
            if len(blocks) != -(-request.prompt // block_tokens):
                raise InputError(
                    f"Request {number + 1} has {len(blocks)} blocks of {block_tokens} tokens for {request.prompt}."
                )
            shared = next((i for i, block in enumerate(blocks) if block not in seen), len(blocks))
            known.append(shared)
            back.append(number - seen[blocks[shared - 1]] if shared else 0)
            for block in blocks[shared:]:
                seen[block] = number
    columns = [gaps, prompts, answers, *([known, back] if block_tokens else ())]
    packed = [_deflated(column) for column in columns]
    head = {
        "rows": len(gaps), "per_second": per_second, "block_tokens": block_tokens,
        "columns": [[width, len(data)] for width, data in packed],
    }  # fmt: skip
    return MAGIC + json.dumps(head).encode() + b"\n" + b"".join(data for _, data in packed)


def unpack(data: bytes) -> Iterator[Request]:
    """The requests of a packed trace."""
    head, at = _head(data)
    columns = []
    for width, size in head["columns"]:
        columns.append(_numbers(zlib.decompress(data[at : at + size]), head["rows"], width))
        at += size
    gaps, prompts, answers, *shared = columns
    known, back = shared or ([0] * len(gaps), [0] * len(gaps))
    time = fresh = 0
    rows: list[tuple[tuple[int, ...], str]] = []
    for number, (gap, prompt, answer) in enumerate(zip(gaps, prompts, answers, strict=True)):
        time += gap
        session = blocks = None
        if head["block_tokens"]:
            before, session = rows[number - back[number]] if known[number] else ((), "")
            own = -(-prompt // head["block_tokens"]) - known[number]
            blocks = before[: known[number]] + tuple(range(fresh, fresh + own))
            fresh += own
            session = session if known[number] > 1 else f"s{number}"
            rows.append((blocks, session))
        yield Request(time / head["per_second"], prompt, answer, session, blocks)


def block_size(data: bytes) -> int:
    """Tokens of a block, 0 without blocks."""
    return int(_head(data)[0]["block_tokens"])


def _head(data: bytes) -> tuple[dict, int]:
    end = data.index(b"\n", len(MAGIC)) + 1
    return json.loads(data[len(MAGIC) : end]), end


def _deflated(column: Sequence[int]) -> tuple[int, bytes]:
    width = max(1, (max(column, default=0).bit_length() + 7) // 8)
    planes = b"".join(bytes(value >> 8 * place & 255 for value in column) for place in range(width))
    return width, zlib.compress(planes, 9)


def _numbers(planes: bytes, rows: int, width: int) -> list[int]:
    places = [planes[place * rows : (place + 1) * rows] for place in range(width)]
    return [int.from_bytes(bytes(parts), "little") for parts in zip(*places, strict=True)]
