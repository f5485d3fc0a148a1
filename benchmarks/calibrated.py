"""Calibrated training steps per second on one core: whole answers one by one, and points of an array.

    python benchmarks/calibrated.py [--seconds 0.6]

Targets: 1,000 answers of DistributedModel and 200,000 points in array form each second.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from mlsysim.cases.calibrated_step import Job, calibrated_step

from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.models.training_shape import training_shape
from mlsysim.timing.stacks import stack
from mlsysim.timing.training_chip import constants, training_chip
from mlsysim.walls.fleet.communication import DistributedModel

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


def layouts(accelerators: int) -> Job:
    """A tile of layouts of a fleet."""
    dice = np.random.default_rng(1)
    tp = 2 ** dice.integers(0, 4, TILE)
    pp = 2 ** dice.integers(0, 5, TILE)
    return Job(
        seq_len=2 ** dice.integers(11, 15, TILE),
        micro_batch=2 ** dice.integers(0, 3, TILE),
        micro_batches=2 ** dice.integers(3, 8, TILE),
        tp=tp,
        pp=pp,
        ep=2 ** dice.integers(0, 6, TILE),
        dp=accelerators // (tp * pp),
        virtual_stages=dice.integers(1, 4, TILE),
    )


def main() -> None:
    """Print both rates for a dense model and for a mixture of experts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.6)
    seconds = parser.parse_args().seconds
    distributed = DistributedModel()
    job, k, software = layouts(4096), constants(), stack("bridge")
    for name in ("Llama3_70B", "DeepSeek_V3"):
        shape, chip = training_shape(Models.get(name)), training_chip(Hardware.get("H100"), "bf16")
        points = TILE * rate(lambda s=shape, c=chip: calibrated_step(s, c, software, job, k), seconds)
        answers = rate(
            lambda n=name: distributed.solve(
                model=n,
                fleet="Frontier_8K",
                batch_size=8192,
                tp_size=8,
                pp_size=4,
                seq_len=4096,
                efficiency="calibrated",
            ),
            seconds,
        )
        print(
            f"{name:12s} {points:12,.0f} points/s in array form (target 200,000)   {answers:8,.0f} answers/s (target 1,000)"
        )


if __name__ == "__main__":
    main()
