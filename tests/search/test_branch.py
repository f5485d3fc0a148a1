"""Branch and bound finds what a walk through all points finds, and accounts for every point."""

from __future__ import annotations

import random

import pytest

from mlsysim.errors import InputError
from mlsysim.search import branch
from mlsysim.search.branch import branch_and_bound, walked_axes
from mlsysim.search.space import Space
from mlsysim.search.sweep import sweep

LARGER = ("throughput_per_usd", "mfu", "tokens_per_second")
SMALLER = ("latency_s", "usd_per_mtoken", "energy_j", "price_usd", "memory_bytes")


def chips(seed: int) -> Space:
    """A random small space of chips with random constraints."""
    r = random.Random(seed)

    def some(low: float, high: float) -> list[float]:
        return r.sample([round(low + (high - low) * i / 12, 4) for i in range(13)], r.randint(1, 5))

    axes = {
        "bandwidth": {"values": some(0.5, 8), "unit": "TB/s"},
        "peak": {"values": some(50, 2000), "unit": "TFLOPs/s"},
        "capacity": {"values": some(8, 200), "unit": "GB"},
        "price": {"values": some(1000, 40000), "unit": "USD"},
        "batch_size": r.sample([1, 2, 4, 8, 16, 64, 256], r.randint(1, 4)),
    }
    if r.random() < 0.5:
        axes["precision"] = ["fp16", "fp8"]
    if r.random() < 0.3:
        del axes["capacity"], axes["bandwidth"]
        axes["memory"] = {
            "linked": [
                {"capacity": "80 GB", "bandwidth": "3.35 TB/s"},
                {"capacity": "141 GB", "bandwidth": "4.8 TB/s"},
                {"capacity": "40 GB", "bandwidth": "8 TB/s"},
            ]
        }
    names = r.sample(list(axes), len(axes))
    objective = r.choice(LARGER + SMALLER)
    optional = [
        "price >= 2e-9 * bandwidth + 4e-12 * peak",
        "batch_size % 4 == 0",
        "price < 30000 or peak > 1e15",
        "model.layers > 40 or batch_size >= 2",
    ]
    if "precision" in axes:
        optional.append("precision == 'fp8' or batch_size <= 64")
    limits = [
        f"latency_s <= {10 ** r.uniform(-3, 0)}",
        "mfu >= 0.01 or price_usd < 10000",
        f"tokens_per_second / price_usd >= {10 ** r.uniform(-3, 0)}",
        "memory_bytes < 0.9 * capacity",
    ]
    fixed = {
        "model": r.choice(["Llama3_8B", "Llama3_70B"]),
        "tdp": "700 W",
        "seq_len": r.choice([128, 2048, 8192]),
        "phase": r.choice(["decode", "prefill"]),
    }
    if r.random() < 0.4:
        fixed["host_bandwidth"] = r.choice(["64 GB/s", "20 TB/s"])
    return Space.from_dict(
        {
            "kind": "node",
            "axes": {name: axes[name] for name in names},
            "fixed": fixed,
            "constraints": [text for text in optional if r.random() < 0.3],
            "subject_to": [text for text in limits if r.random() < 0.3],
            "maximize" if objective in LARGER else "minimize": objective,
        }
    )


def test_the_same_optimum_as_a_walk_through_all_points() -> None:
    solved = 0
    for seed in range(100):
        space = chips(seed)
        every, found = sweep(space), branch_and_bound(space)
        assert (found.index is None) == (not every.best), seed
        assert sum(found.dropped.values()) == space.size, seed
        if every.best:
            solved += 1
            best = every.best[0]["outputs"][space.goal.output]
            assert found.value == pytest.approx(best, rel=1e-12), seed
            again = sweep(Space.from_dict(table_of(space, found.index))).best[0]
            assert again["outputs"][space.goal.output] == pytest.approx(best, rel=1e-12), seed
    assert solved > 40


def table_of(space: Space, index: int) -> dict:
    """A space of one point, with the constraints of the whole."""
    units = {"bandwidth": "byte/s", "peak": "flop/s", "capacity": "byte", "price": "USD"}
    units |= {"tdp": "W", "host_bandwidth": "byte/s"}

    def written(name: str, value: object) -> object:
        return f"{value!r} {units[name]}" if name in units else value

    return {
        "kind": space.kind,
        "axes": {name: [written(name, value)] for name, value in space.point(index).items()},
        "fixed": {name: written(name, value) for name, value in space.fixed.items()},
        "constraints": [expression.text for expression in space.constraints],
        "subject_to": [expression.text for expression in space.subject_to],
        "maximize" if space.goal.larger else "minimize": space.goal.output,
    }


def test_training_with_prices_and_overlap() -> None:
    space = Space.from_dict(
        {
            "kind": "training",
            "minimize": "usd_per_mtoken",
            "fixed": {"model": "Llama3_8B", "fleet": "Research_256", "batch_size": 256, "overlap_comm": True},
            "subject_to": ["mfu <= 0.36", "kwh_per_mtoken <= 1"],
            "axes": {
                "tp": [1, 2, 3, 4, 8],
                "pp": [1, 2, 4],
                "efficiency": {"range": [0.3, 0.7], "count": 7},
                "kwh_price": [0.05, 0.1, 0.3],
                "congestion_factor": [1.0, 1.5, 2.0],
            },
        }
    )
    every, found = sweep(space), branch_and_bound(space)
    assert found.index is not None
    assert found.value == pytest.approx(every.best[0]["outputs"]["usd_per_mtoken"], rel=1e-12)
    assert walked_axes(space) == ["tp", "pp"]
    assert found.dropped["invalid"] > 0


def million_million(**changes: object) -> Space:
    table = {
        "kind": "node",
        "minimize": "usd_per_mtoken",
        "fixed": {"model": "Llama3_70B", "precision": "fp8", "seq_len": 4096, "phase": "decode"},
        "constraints": ["price >= 3000 + 2.5e-9 * bandwidth + 5e-12 * peak + 6e-8 * capacity"],
        "subject_to": ["latency_s <= 0.03"],
        "axes": {
            "batch_size": [1, 8, 64],
            "bandwidth": {"range": [0.5, 20], "count": 1000, "unit": "TB/s"},
            "peak": {"range": [100, 10000], "count": 1000, "unit": "TFLOPs/s"},
            "capacity": {"range": [32, 1024], "count": 500, "unit": "GB"},
            "price": {"range": [3000, 200000], "count": 1000, "unit": "USD"},
        },
    }
    return Space.from_dict({**table, **changes})


def test_more_than_a_million_million_points() -> None:
    space = million_million()
    assert space.size > 10**12
    found = branch_and_bound(space)
    assert found.index is not None and found.evaluated < 10**7
    assert sum(found.dropped.values()) == space.size
    # The optimum is where no axis has a better neighbour: the steps around it are all worse or forbidden.
    point = space.point(found.index)
    axes = {
        name: {"values": around(space, name, point[name]), "unit": unit}
        for name, unit in (("bandwidth", "byte/s"), ("peak", "flop/s"), ("capacity", "byte"), ("price", "USD"))
    }
    near = million_million(axes={"batch_size": [point["batch_size"]], **axes})
    assert sweep(near).best[0]["outputs"]["usd_per_mtoken"] == pytest.approx(found.value, rel=1e-12)


def around(space: Space, name: str, value: float) -> list[float]:
    values = space.values(name)
    place = values.index(value)
    return list(values[max(place - 6, 0) : place + 7])


def test_too_many_combinations_of_axes_that_may_do_anything() -> None:
    axes = {"batch_size": {"range": [1, 2000]}, "seq_len": {"range": [1, 2000]}}
    space = Space.from_dict({"kind": "node", "axes": axes, "fixed": {"model": "Llama3_8B", "hardware": "H100"}})
    branch_and_bound(space)
    with pytest.raises(InputError, match=r"batch_size, seq_len of 'space' have 4,000,000 combinations"):
        branch_and_bound(space.with_goals(maximize="tokens_per_second"))


def test_it_gives_up_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch, "_BATCH", 16)
    with pytest.raises(InputError, match="without a proof"):
        branch_and_bound(million_million(), most_evaluations=100)


def test_a_kind_without_directions_is_refused() -> None:
    space = Space.from_dict(
        {"kind": "compression", "axes": {"batch_size": [1, 2]}, "fixed": {"model": "Llama3_8B", "hardware": "H100"}}
    )
    with pytest.raises(InputError, match="no monotone axes of kind 'compression'"):
        branch_and_bound(space)
