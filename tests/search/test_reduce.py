"""Reductions against brute force, and merging in any order."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.search.front import Archive, nondominated
from mlsysim.search.reduce import Reduction
from mlsysim.search.space import Space


def brute_front(rows: np.ndarray, indices: np.ndarray) -> list[int]:
    kept = []
    for i in range(rows.shape[1]):
        beaten = False
        for j in range(rows.shape[1]):
            no_worse = (rows[:, j] <= rows[:, i]).all()
            if j != i and no_worse and ((rows[:, j] < rows[:, i]).any() or indices[j] < indices[i]):
                beaten = True
        if not beaten:
            kept.append(int(indices[i]))
    return sorted(kept)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.integers(1, 60), st.integers(2, 9), st.integers(0, 2**31))
def test_the_front_is_that_of_brute_force(objectives, count, levels, seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, levels, (objectives, count)).astype(float)
    indices = rng.permutation(count).astype(np.int64)
    values, found = nondominated(rows, indices)
    assert found.tolist() == brute_front(rows, indices)
    assert all((values[:, k] == rows[:, list(indices).index(i)]).all() for k, i in enumerate(found))


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.integers(0, 2**31))
def test_an_archive_does_not_depend_on_order(objectives, seed):
    rng = np.random.default_rng(seed)
    rows, indices = rng.integers(0, 30, (objectives, 400)).astype(float), np.arange(400)
    _, wanted = nondominated(rows, indices)
    for order in (indices, indices[::-1], rng.permutation(400)):
        archive = Archive(objectives)
        for part in np.array_split(order, 7):
            archive.add(rows[:, part], indices[part])
            assert archive.indices.size  # settles, so that champions are in use
        assert archive.indices.tolist() == wanted.tolist()


def space() -> Space:
    return Space.from_dict(
        {
            "kind": "node",
            "axes": {"batch_size": [1, 2, 3, 4, 5], "seq_len": list(range(1, 41))},
            "fixed": {"model": "Llama3_8B", "hardware": "H100"},
            "subject_to": ["mfu <= 0.9"],
            "minimize": "latency_s",
            "pareto": ["latency_s", "mfu", "memory_bytes"],
            "top": 7,
        }
    )


def outputs(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    latency = rng.integers(1, 40, 200) / 8.0
    latency[rng.random(200) < 0.05] = np.nan
    walls = rng.choice([0, 0, 0, 2, 14], 200)
    return {
        "feasible": walls == 0,
        "wall": walls,
        "latency_s": latency,
        "mfu": rng.integers(0, 11, 200) / 10,
        "memory_bytes": rng.integers(0, 5, 200).astype(float),
    }


def reduced(target: Space, found: dict[str, np.ndarray], points: np.ndarray) -> Reduction:
    reduction = Reduction(target)
    if points.size:
        reduction.add(points, target.decode(points), {name: values[points] for name, values in found.items()})
    return reduction


@pytest.mark.parametrize("seed", range(8))
def test_a_reduction_is_that_of_brute_force(seed):
    target, found = space(), outputs(seed)
    state = reduced(target, found, np.arange(200))
    good = [i for i in range(200) if found["feasible"][i] and found["mfu"][i] <= 0.9]
    ranked = [i for i in good if not np.isnan(found["latency_s"][i])]
    order = sorted(ranked, key=lambda i: (found["latency_s"][i], i))
    assert (state.points, state.feasible, state.unranked) == (200, len(good), len(good) - len(ranked))
    assert state.best_indices.tolist() == order[:7]
    assert state.ties == sum(found["latency_s"][i] == found["latency_s"][order[0]] for i in ranked)
    assert state.infeasible["2"] == (found["wall"] == 2).sum() and state.infeasible["14"] == (found["wall"] == 14).sum()
    assert state.infeasible["mfu <= 0.9"] == (found["feasible"] & (found["mfu"] > 0.9)).sum()
    rows = np.stack([found["latency_s"], -found["mfu"], found["memory_bytes"]])[:, ranked]
    assert state.archive.indices.tolist() == brute_front(rows, np.array(ranked))
    marginals = state.marginals(target)
    for place, entry in enumerate(marginals["batch_size"]):
        mine = [i for i in ranked if i // 40 == place]
        assert entry["best"] == (min(found["latency_s"][i] for i in mine) if mine else None)
        assert entry["feasible"] == sum(i // 40 == place for i in good)
    assert sum(entry["count"] for entry in state.bins()) == len(ranked)
    for entry in state.bins():
        inside = [
            i for i in ranked if entry["low"] * (1 - 1e-12) <= found["latency_s"][i] < entry["high"] * (1 - 1e-12)
        ]
        assert len(inside) == entry["count"]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(0, 200), min_size=2, max_size=2))
def test_merging_is_associative_and_commutative(seed, cuts):
    target, found = space(), outputs(seed)
    first, second = sorted(cuts)
    pieces = [np.arange(first), np.arange(first, second), np.arange(second, 200)]
    whole = reduced(target, found, np.arange(200)).document()
    for order in itertools.permutations(range(3)):
        a, b, c = (reduced(target, found, pieces[i]) for i in order)
        assert a.merge(b).merge(c).document() == whole
        a, b, c = (reduced(target, found, pieces[i]) for i in order)
        assert a.merge(b.merge(c)).document() == whole


def test_a_document_gives_the_state_back_exactly():
    target = space()
    state = reduced(target, outputs(3), np.arange(200))
    text = json.dumps(state.document(), allow_nan=False)
    assert Reduction.from_document(target, json.loads(text)).document() == state.document()
    empty = Reduction(target).document()
    assert Reduction.from_document(target, json.loads(json.dumps(empty))).document() == empty


def test_what_is_no_design_is_no_point():
    target, found = space(), outputs(1)
    found["valid"] = np.arange(200) % 3 > 0
    kept = {name: values for name, values in found.items() if name != "valid"}
    state = reduced(target, found, np.arange(200)).document()
    wanted = reduced(target, kept, np.flatnonzero(found["valid"])).document()
    assert state.pop("invalid") == 67 and wanted.pop("invalid") == 0
    assert state == wanted
