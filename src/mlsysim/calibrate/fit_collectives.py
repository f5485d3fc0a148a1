"""Refits the constants of collectives inside a link domain from ``collectives.csv``, and prints how well they fit.

    python -m mlsysim.calibrate.fit_collectives FOLDER

The start-up time of each machine is measured once: the smallest all-gather of two ranks. Everything else is shared by all
machines: in sample, then with one machine left out (machines of one generation leave together), median / p90 / bias in per cent.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.calibrate.additive import line
from mlsysim.calibrate.fitting import Parameter, fit
from mlsysim.calibrate.tables.collectives import KINDS
from mlsysim.hardware.registry import Hardware
from mlsysim.physics.operators import link_time
from mlsysim.timing.collectives import SWITCHED_RANKS, wire_and_steps
from mlsysim.units.registry import to_si

RING = (
    Parameter("step_share", 0.15, 0.02, 1.0),
    Parameter("copy_share", 0.424, 0.01, 2.0),
    Parameter("efficiency", 0.733, 0.2, 1.0),
    Parameter("eager_share", 0.396, 0.05, 1.0),
    Parameter("rendezvous", 2.175, 0.1, 10.0),
    Parameter("in_switch_start", 15.0, 2.0, 60.0),
    Parameter("in_switch_share", 0.573, 0.1, 1.0),
)
EXCHANGE = (
    Parameter("exchange_steps", 2.7, 0.1, 20.0),
    Parameter("exchange_copy_share", 0.424, 0.01, 4.0),
    Parameter("exchange_efficiency", 0.733, 0.2, 1.0),
    Parameter("exchange_eager_share", 0.396, 0.05, 1.0),
    Parameter("exchange_rendezvous", 2.175, 0.1, 10.0),
)
SOURCES = "aiconfigurator-nccl-"


class Rows:
    """Columns of the measured collectives as arrays."""

    def __init__(self, rows: list[dict[str, str]]) -> None:
        chips = [Hardware.get(r["gpu"]) for r in rows]
        self.kind = np.array([KINDS[r["collective"]] for r in rows])
        self.key = np.array([c.metadata.key for c in chips])
        self.generation = np.array([c.generation for c in chips])
        self.ranks = np.array([float(r["n_gpus"]) for r in rows])
        self.message = np.array([float(r["message_bytes"]) for r in rows])
        self.time = np.array([float(r["value"]) * 1e-6 for r in rows])
        self.link = np.array([to_si(c.link.bandwidth_per_direction, "byte/s") if c.link else 0.0 for c in chips])
        self.start = np.array([0.0] * len(rows))
        for key in set(self.key.tolist()):
            inside = self.key == key
            first = inside & (self.kind == "all_gather") & (self.ranks == 2)
            self.start[inside] = self.time[first & (self.message == self.message[first].min())].min()
        pairs = [wire_and_steps(k, n) for k, n in zip(self.kind.tolist(), self.ranks.tolist(), strict=True)]
        self.wire, self.steps = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
        self.switched = (self.kind == "all_reduce") & (self.ranks >= SWITCHED_RANKS) & (self.generation != "Ampere")


def ring(rows: Rows, at: Any, **v: float) -> Any:
    """Times of rings and trees by the faster of the protocols."""
    by_ring = link_time(
        rows.message[at],
        rows.ranks[at],
        rows.wire[at],
        rows.steps[at],
        rows.link[at],
        rows.start[at],
        v["step_share"],
        v["copy_share"],
        v["efficiency"],
        v["eager_share"],
        v["rendezvous"],
    )
    by_switch = rows.start[at] * (1 + v["in_switch_start"]) + rows.message[at] / (v["in_switch_share"] * rows.link[at])
    return np.where(rows.switched[at], np.minimum(by_ring, by_switch), by_ring)


def exchange(rows: Rows, at: Any, step_share: float, **v: float) -> Any:
    """Times of all-to-all exchanges."""
    return link_time(
        rows.message[at],
        rows.ranks[at],
        rows.wire[at],
        1 + v["exchange_steps"],
        rows.link[at],
        rows.start[at],
        step_share,
        v["exchange_copy_share"],
        v["exchange_efficiency"],
        v["exchange_eager_share"],
        v["exchange_rendezvous"],
    )


def constants(rows: Rows, chosen: Any) -> dict[str, float]:
    """Constants from the chosen rows."""
    rings = chosen & (rows.kind != "all_to_all")
    found = fit(lambda **v: ring(rows, rings, **v), RING, rows.time[rings]).values
    swaps = chosen & (rows.kind == "all_to_all")
    share = found["step_share"]
    return found | fit(lambda **v: exchange(rows, swaps, share, **v), EXCHANGE, rows.time[swaps]).values


def errors(rows: Rows, at: Any, values: dict[str, float]) -> Any:
    """Signed relative errors of the rows."""
    predicted = np.zeros(len(rows.time))
    rings, swaps = at & (rows.kind != "all_to_all"), at & (rows.kind == "all_to_all")
    predicted[rings] = ring(rows, rings, **{p.name: values[p.name] for p in RING})
    predicted[swaps] = exchange(rows, swaps, values["step_share"], **{p.name: values[p.name] for p in EXCHANGE})
    return predicted[at] / rows.time[at] - 1


def main(arguments: list[str]) -> None:
    """Fit and print."""
    with (Path(arguments[0]) / "collectives.csv").open(newline="", encoding="utf-8") as stream:
        table = list(csv.DictReader(stream))
    kept = [r for r in table if r["source"].startswith(SOURCES) and Hardware.get(r["gpu"]).link is not None]
    rows = Rows(kept)
    everything = np.ones(len(rows.time), dtype=bool)
    values = constants(rows, everything)
    found = errors(rows, everything, values)
    print("in sample           ", line(found))
    for kind in sorted(set(rows.kind.tolist())):
        print(f"  {kind:18s}", line(found[rows.kind == kind]))
    out = []
    for generation in sorted(set(rows.generation.tolist())):
        left = rows.generation == generation
        own = errors(rows, left, constants(rows, ~left))
        print(f"without {generation:12s}", line(own))
        out.append(own)
    print("one generation out  ", line(np.concatenate(out)))
    for key in sorted(set(rows.key.tolist())):
        inside = rows.key == key
        print(f'start of {key}: "{rows.start[inside][0] * 1e6:.2f} us"   {line(found[inside])}')
    for name, value in values.items():
        print(f"{name} = {value:.4g}")


if __name__ == "__main__":
    main(sys.argv[1:])
