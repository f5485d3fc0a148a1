"""What a replica keeps of prompts: more room never finds less, and nothing that was not there."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.simulate.prefixes import Prefixes, Tier
from mlsysim.simulate.requests import Request

_TOKENS, _BYTES = 16, 4.0
# Prompts as paths through a tree of three branches at most: equal beginnings are shared text.
paths = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=40)


def _request(at: int, path: list[int]) -> Request:
    blocks = tuple(hash(tuple(path[: depth + 1])) for depth in range(len(path)))
    return Request(float(at), len(path) * _TOKENS, 1, blocks=blocks)


def _found(asked: list[list[int]], blocks: int, tiers: tuple[Tier, ...] = ()) -> list[int]:
    """Tokens that each of some requests finds, one after another, where nobody else holds anything."""
    kept, found = Prefixes(_TOKENS, _BYTES, tiers), []
    for at, path in enumerate(asked):
        request = _request(at, path)
        found.append(kept.find(request, blocks * _BYTES))
        kept.hold(at, request, found[-1])
        kept.keep(at, request)
        kept.leave(at, request, request.prompt)
    return found


@given(paths, st.integers(0, 30), st.integers(0, 30))
def test_more_room_never_finds_less(asked: list[list[int]], one: int, other: int) -> None:
    """The least recently used are forgotten first, so that a larger cache holds all that a smaller one does (Mattson et al. 1970)."""
    small, large = sorted((one, other))
    assert all(less <= more for less, more in zip(_found(asked, small), _found(asked, large), strict=True))


@given(paths, st.integers(0, 10), st.integers(0, 20))
def test_a_host_behind_the_device_never_finds_less(asked: list[list[int]], blocks: int, more: int) -> None:
    alone, behind = _found(asked, blocks), _found(asked, blocks, (Tier(more, 1e9),))
    assert all(less <= found for less, found in zip(alone, behind, strict=True))


@given(paths)
def test_with_room_for_all_the_longest_common_beginning_is_found(asked: list[list[int]]) -> None:
    for at, found in enumerate(_found(asked, 10_000)):
        alike = [
            next((k for k, (a, b) in enumerate(zip(asked[at], before, strict=False)) if a != b), min(len(asked[at]), len(before)))
            for before in asked[:at]
        ]  # fmt: skip
        assert found == max(alike, default=0) * _TOKENS


@given(paths)
def test_without_room_nothing_is_found(asked: list[list[int]]) -> None:
    assert not any(_found(asked, 0))


class _Blocks:
    """The same caches block by block: the requests that hold each, or minus the number of the one that left it last."""

    def __init__(self) -> None:
        self.there: dict[Any, set[int] | int] = {}
        self.left: list[tuple[int, Any]] = []
        self.gone = 0

    @property
    def idle(self) -> int:
        return sum(isinstance(held, int) for held in self.there.values())

    def find(self, blocks: tuple[Any, ...], most: int) -> int:
        while self.idle > most:
            gone, block = self.left.pop(0)
            if self.there.get(block) == -gone:
                del self.there[block]
        return next((at for at, block in enumerate(blocks) if block not in self.there), len(blocks))

    def keep(self, number: int, blocks: tuple[Any, ...]) -> None:
        for block in blocks:
            held = self.there.get(block)
            self.there[block] = {number} | (held if isinstance(held, set) else set())

    def leave(self, number: int, blocks: tuple[Any, ...]) -> None:
        self.gone += 1
        for block in reversed(blocks):
            held = self.there.get(block)
            others = held - {number} if isinstance(held, set) else set()
            if others:
                self.there[block] = others
            else:
                self.there[block] = -self.gone
                self.left.append((self.gone, block))


def _chain(runs: Prefixes, request: Request, tokens: int) -> tuple[Any, ...]:
    blocks, many = runs.chain(request, tokens)
    return blocks[:many]


@pytest.mark.parametrize("seed", range(150))
def test_runs_of_blocks_are_the_blocks(seed: int) -> None:
    """Requests come, are read and go in any order, on caches that shrink and grow: found, held and idle are those of single blocks."""
    draw, runs, single = random.Random(seed), Prefixes(_TOKENS, _BYTES), _Blocks()
    inside: list[tuple[int, Request, bool]] = []
    for at in range(draw.randint(5, 100)):
        if draw.random() < 0.45 or not inside:
            path = [draw.randint(0, 2) for _ in range(draw.randint(1, 9))]
            request = _request(at, path)
            request = request._replace(prompt=draw.randint(1, len(path)) * _TOKENS + draw.randint(0, 15))
            blocks, most = _chain(runs, request, request.prompt), draw.choice((0, 5, 10, 30, 1000))
            found = runs.find(request, most * _BYTES)
            assert found == single.find(blocks, most) * _TOKENS
            if draw.random() < 0.8:
                runs.hold(at, request, found)
                single.keep(at, blocks[: found // _TOKENS])
                inside.append((at, request, False))
        else:
            number, request, read = inside.pop(draw.randrange(len(inside)))
            if not read and draw.random() < 0.85:
                runs.keep(number, request)
                single.keep(number, _chain(runs, request, request.prompt))
                inside.append((number, request, True))
            else:
                tokens = request.prompt + draw.choice((0, 40))
                runs.leave(number, request, tokens)
                single.leave(number, _chain(runs, request, tokens))
        assert runs._idle == single.idle
