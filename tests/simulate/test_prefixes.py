"""What a replica keeps of prompts: more room never finds less, and nothing that was not there."""

from __future__ import annotations

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
        kept.hold(request)
        kept.keep(request)
        kept.leave(request, request.prompt)
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
