"""Constants of power: planted ones are found again, and loads of our own H200 are read."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from mlsysim.calibrate.fit_power import fit, load_rows, power, text
from mlsysim.calibrate.fitting import table_of
from mlsysim.calibrate.posterior import together

PLANTED = {
    "wait": 0.17,
    "floor": 0.26,
    "vector": 0.25,
    "per_byte": 0.4,
    "per_flop": 1.0,
    "prepared": 0.7,
    "converting": 1.1,
}


def rows() -> list[SimpleNamespace]:
    drawn, found = np.random.default_rng(7), []
    for i in range(240):
        kind = i % 4
        busy = 0.0 if i % 12 == 8 else drawn.uniform(0.4, 1.0)
        row = SimpleNamespace(
            operations=busy * drawn.uniform(0, 0.35), moved=busy * drawn.uniform(0, 0.6), busy=busy, eager=float(kind == 1),
            expanding=float(kind == 2), prepared=float(kind == 3), chip="B200", model=f"m{i % 12}", clock=math.nan, deep=0.1,
        )  # fmt: skip
        row.share = float(power(row, PLANTED)) * math.exp(drawn.normal(0, 0.02))
        found.append(row)
    return found


def test_planted_constants_are_found_within_their_errors():
    made = rows()
    found = fit(made, together(made, ("model",), 4))
    for name, each in found.table().items():
        assert abs(math.log(each["value"] / PLANTED[name])) < 3 * math.log(each["error"]) + 0.03, name
        assert each["least"] <= each["value"] <= each["most"]
    written = text({"B200": found}, {"B200": "planted"})
    assert "[chip.default]" in written and 'floor = {value = "2' in written


def test_our_loads_are_those_that_are_listed():
    listed = [load for kind, loads in table_of("power_loads").items() if kind != "clock" for load in loads]
    found = list(load_rows())
    assert len(found) == len(set(listed)) == len(listed)
    idle = [row for row in found if row[2] == 0.0]
    assert len(idle) == 4 and all(0.16 < row[8] < 0.2 for row in idle)


@pytest.mark.parametrize("clock", [0.7, 1.0])
def test_a_lower_clock_draws_less(clock):
    row = SimpleNamespace(
        operations=0.3, moved=0.2, busy=1.0, eager=0.0, expanding=0.0, prepared=0.0, clock=clock, deep=0.1
    )
    slower = SimpleNamespace(**(vars(row) | {"clock": clock - 0.1}))
    assert power(slower, PLANTED) < power(row, PLANTED)
