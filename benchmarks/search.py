"""Points per second of a training search on one core, and the ratio to solving them one by one, in one run.

    python benchmarks/search.py [--seconds 4] [--tile 8192]

GPT3-175B on 4,096 A100 over tensor and pipeline parallelism, virtual stages, micro-batches, ZeRO stage, recomputation
and batch. Every point gets the full stack: memory, step time, MFU, goodput, dollars, energy and carbon. Layouts that do
not divide are found and left out; the rate that counts is that of the layouts that are evaluated.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

from mlsysim.search.space import Space  # noqa: E402
from mlsysim.search.training import evaluate  # noqa: E402
from mlsysim.systems.registry import Fabrics, Nodes  # noqa: E402
from mlsysim.systems.types import Fleet  # noqa: E402
from mlsysim.walls.fleet.communication import DistributedModel  # noqa: E402
from mlsysim.walls.fleet.fragility import ReliabilityModel  # noqa: E402
from mlsysim.walls.operations.capital import EconomicsModel  # noqa: E402

AIM = 1_000_000
NODES = 512
SPACE = Space.from_dict(
    {
        "kind": "training",
        "fixed": {
            "model": "GPT3_175B",
            "node": "DGX_A100",
            "fabric": "InfiniBand_HDR",
            "nodes": NODES,
            "grid": "Quebec",
            "overlap_comm": True,
        },
        "axes": {
            "batch_size": {"powers_of": 2, "from": 256, "to": 16384},
            "tp": {"divisors_of": 96, "to": 32},
            "pp": {"divisors_of": 4096, "to": 64},
            "v_stages": {"range": [1, 12]},
            "micro_batches": {"powers_of": 2, "to": 4096},
            "zero_stage": {"range": [0, 3]},
            "recompute": ["none", "selective", "full"],
        },
    },
    name="gpt3-175b-4096-a100",
)


def scalar_rate(count: int) -> tuple[float, float]:
    """Resolver calls for whole points per second: the step alone, and with goodput and cost."""
    fleet = Fleet(name="A100", node=Nodes["DGX_A100"], count=NODES, fabric=Fabrics["InfiniBand_HDR"])
    rng = np.random.default_rng(1)
    columns = SPACE.decode(rng.integers(0, SPACE.size, 200 * count))
    valid = np.flatnonzero(evaluate(SPACE, columns)["valid"])[:count]
    points = [{name: column[place].item() for name, column in columns.items()} for place in valid]
    names = {"tp": "tp_size", "pp": "pp_size", "micro_batches": "microbatch_count"}
    names["recompute"] = "activation_recomputation"
    points = [{names.get(name, name): value for name, value in point.items()} for point in points]
    model, fragility, capital = DistributedModel(), ReliabilityModel(), EconomicsModel()
    best = [float("inf"), float("inf")]
    for _ in range(3):
        start = time.process_time()
        steps = [model.solve("GPT3_175B", fleet, overlap_comm=True, **point) for point in points]
        middle = time.process_time()
        for step in steps:
            goodput = fragility.solve(fleet=fleet, job_duration_hours=720.0).goodput_ratio
            useful = step.tokens_per_second.magnitude * goodput
            capital.solve(fleet=fleet, duration_days=30.0, grid="Quebec", mfu=step.mfu, throughput=useful)
        end = time.process_time()
        best = [min(best[0], middle - start), min(best[1], end - start)]
    return len(points) / best[0], len(points) / best[1]


def rate(function: Callable[[Any], object], tiles: Sequence[Any], seconds: float) -> float:
    """Points per second of CPU time."""
    done, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        for tile in tiles:
            function(tile)
            done += tile.size
    return done / (time.process_time() - start)


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="CPU seconds for the search")
    parser.add_argument("--tile", type=int, default=8192, help="points evaluated at once")
    given = parser.parse_args()
    # Tiles spread over the whole space, so that no corner of it decides the rate.
    rng = np.random.default_rng(0)
    tiles = [SPACE.decode(rng.integers(0, SPACE.size, given.tile)) for _ in range(32)]
    divide = [np.flatnonzero(evaluate(SPACE, tile)["valid"]) for tile in tiles]
    share = sum(index.size for index in divide) / (len(tiles) * given.tile)
    indices = rng.integers(0, SPACE.size, int(len(tiles) * given.tile / share))
    kept = indices[evaluate(SPACE, SPACE.decode(indices))["valid"]]
    full = [SPACE.decode(part) for part in np.array_split(kept, max(1, kept.size // given.tile))]

    numbers = np.array_split(kept, max(1, kept.size // given.tile))
    rates = {
        "all points": rate(lambda tile: evaluate(SPACE, tile), tiles, given.seconds / 3),
        "layouts that divide": rate(lambda tile: evaluate(SPACE, tile), full, given.seconds / 3),
        "the same with decoding": rate(lambda part: evaluate(SPACE, SPACE.decode(part)), numbers, given.seconds / 3),
    }
    step, whole = scalar_rate(200)
    print(f"{SPACE.name}: {SPACE.size:,} points, {share:.1%} of them divide; tiles of {given.tile:,}")
    for name, reached in rates.items():
        print(f"{name:<24}{reached:>14,.0f} points/s")
    print(f"{'one by one, step':<24}{step:>14,.0f} points/s")
    print(f"{'one by one, full stack':<24}{whole:>14,.0f} points/s")
    reached = rates["layouts that divide"]
    verdict = "met" if reached >= AIM else "missed"
    print(f"ratio to full-stack solves: {reached / whole:,.0f}   aim {AIM:,} points/s: {verdict}")


if __name__ == "__main__":
    main()
