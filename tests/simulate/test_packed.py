"""Traces in few bytes."""

from __future__ import annotations

from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.simulate.packed import block_size, pack, unpack
from mlsysim.simulate.requests import Request

ROWS = st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 10**6), st.integers(1, 70_000)), max_size=30)


@given(ROWS)
def test_what_was_packed_comes_back(rows):
    times = [sum(row[0] for row in rows[: n + 1]) for n in range(len(rows))]
    requests = [Request(time / 1000, *row[1:]) for time, row in zip(times, rows, strict=True)]
    assert list(unpack(pack(requests, 1000))) == requests


def test_blocks_come_back_as_what_is_shared_with_whom():
    texts = [(7, 8, 9), (7, 8, 5), (1,), (7, 2), (7, 8, 5, 4)]
    data = pack([Request(0.0, 10 * len(t) - 3, 1, None, t) for t in texts], 1, block_tokens=10)
    found = list(unpack(data))
    assert block_size(data) == 10
    assert [r.blocks for r in found] == [(0, 1, 2), (0, 1, 3), (4,), (0, 5), (0, 1, 3, 6)]
    # One block alone is what everybody begins with; two or more are a conversation.
    assert [r.session for r in found] == ["s0", "s0", "s2", "s3", "s0"]


def test_blocks_that_are_not_as_many_as_the_tokens():
    with pytest.raises(InputError, match="Request 1 has 1 blocks of 10 tokens for 25"):
        pack([Request(0.0, 25, 1, None, (0,))], 1, block_tokens=10)


def test_the_shipped_ones_are_small():
    folder = files("mlsysim.simulate") / "data"
    assert sum(len(path.read_bytes()) for path in folder.iterdir() if path.name.endswith(".trace")) < 200_000
