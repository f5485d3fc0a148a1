"""Calibrated training steps per second on one core: whole answers one by one, and points of an array.

    python benchmarks/calibrated.py [--seconds 0.6]

Targets: 1,000 answers of DistributedModel and 1,000,000 points in array form each second.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from mlsysim.cases.job import Job, Overlap
from mlsysim.cases.layout import Layout
from mlsysim.cases.train_layers import calibrated
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.models.training_shape import training_shape
from mlsysim.search.training_inputs import Names
from mlsysim.timing.stacks import stack
from mlsysim.timing.training_chip import constants, training_chip
from mlsysim.walls.fleet.communication import DistributedModel, DistributedResult

TILE = 8192


def rate(function: Callable[[], object], seconds: float) -> float:
    """Calls per second of CPU time, the best of three stretches."""
    function()
    best = 0.0
    for _ in range(3):
        calls, start = 0, time.process_time()
        while time.process_time() - start < seconds / 3:
            function()
            calls += 1
        best = max(best, calls / (time.process_time() - start))
    return best


def layouts(accelerators: int) -> tuple[Layout, dict[str, np.ndarray]]:
    """A tile of layouts of a fleet, and what else differs between them."""
    dice = np.random.default_rng(1)
    tp, pp = 2 ** dice.integers(0, 4, TILE), 2 ** dice.integers(0, 5, TILE)
    parts = 2 ** dice.integers(3, 8, TILE)
    layout = Layout(
        dp=accelerators // (tp * pp),
        tp=tp,
        pp=pp,
        ep=2 ** dice.integers(0, 6, TILE),
        cp=np.ones(TILE),
        micro_batches=parts,
        local_batch=parts * 2 ** dice.integers(0, 3, TILE),
        virtual_stages=dice.integers(1, 4, TILE),
    )
    modes = Names(("full", "none", "selective"), dice.integers(0, 3, TILE))
    return layout, {"seq_len": 2 ** dice.integers(11, 15, TILE), "zero": dice.integers(0, 4, TILE), "recompute": modes}


def main() -> None:
    """Print both rates for a dense model and for a mixture of experts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.6)
    seconds = parser.parse_args().seconds
    distributed = DistributedModel()
    (layout, columns), k, software = layouts(4096), constants(), stack("bridge")
    overlap = Overlap(tensor=0.6, expert=0.3, context=0.7, pipeline=1.0, data=0.7, data_room=0.7, gathers=0.7)
    for name in ("Llama3_70B", "DeepSeek_V3"):
        shape, chip = training_shape(Models.get(name)), training_chip(Hardware.get("H100"), "bf16")
        job = Job(model=Models.get(name), precision="bf16", overlap=overlap, **columns)

        def tile(job: Job = job, shape: object = shape, chip: object = chip) -> object:
            return calibrated(job, layout, shape, chip, software, k)

        points = TILE * rate(tile, seconds)

        def answer(name: str = name) -> DistributedResult:
            return distributed.solve(
                name, "Frontier_8K", 8192, tp_size=8, pp_size=4, seq_len=4096, efficiency="calibrated"
            )

        answers, told = rate(answer, seconds), rate(lambda: answer().ledger, seconds)
        print(
            f"{name:12s} {points:12,.0f} points/s (target 1,000,000) {answers:8,.0f} answers/s, {told:6,.0f} with ledger"
        )


if __name__ == "__main__":
    main()
