"""The fitter finds constants that made the data, and does so twice alike."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from mlsysim.calibrate.fitting import fit, loose, summary
from mlsysim.calibrate.operators import FORMATS, fit_products
from mlsysim.physics.operators import gemm_time
from mlsysim.timing.kernels import REACH


def made(noise: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    shapes = np.round(np.exp(rng.uniform(np.log(16), np.log(16384), (400, 3))))
    m, n, k = shapes.T
    times = gemm_time(
        2 * m * n * k,
        2 * (m * k + n * k + m * n),
        0.0,
        0.7 * 989e12,
        3.35e12,
        0.8,
        1.0,
        3e-6,
        k / REACH,
        4e-6,
        0.6,
        4.0,
    )
    return shapes, times * np.exp(rng.normal(0, noise, 400))


def test_constants_come_back():
    found = fit_products("H100", FORMATS["bf16"], *made(0.0)).values
    expected = {"start": 3e-6, "rate_share": 0.7, "memory_share": 0.8, "chain": 4e-6, "growth": 0.6, "corner": 4.0}
    assert found == pytest.approx(expected, rel=0.02)


def test_outliers_do_not_bend_the_fit():
    shapes, times = made(0.03)
    times[::20] *= 5
    found = fit_products("H100", FORMATS["bf16"], shapes, times).values
    assert found["rate_share"] == pytest.approx(0.7, rel=0.03)
    assert found["memory_share"] == pytest.approx(0.8, rel=0.03)


def test_the_same_data_give_the_same_constants():
    one, two = (fit_products("H100", FORMATS["bf16"], *made(0.1)).values for _ in range(2))
    assert one == two


def test_bounds_hold():
    x = np.linspace(1, 10, 50)
    found = fit(lambda slope: slope * x, {"slope": (1.0, 0.5, 2.0)}, 5 * x)
    assert found.values["slope"] == pytest.approx(2.0)
    assert summary(found.errors)["bias"] == pytest.approx(-60)


def _moved(table: dict[str, Any]) -> Iterator[str]:
    """Names of constants that move by more than half over the fits that leave something out, among those that say so."""
    for name, entry in table.items():
        if isinstance(entry, dict) and "least" in entry:
            value, *ends = (float(str(entry[each]).split(" ")[0]) for each in ("value", "least", "most"))
            if entry["error"] and loose(value, ends):
                yield name
        elif isinstance(entry, dict) and name != "default":
            yield from _moved(entry)


@pytest.mark.parametrize(
    "file", ["software/training_constants", "software/rl_constants", "collective_constants", "power_constants"]
)
def test_constants_that_move_by_more_than_half_are_listed(file: str) -> None:
    """Of a chip that nobody measured power is the mean of others, whose range is theirs."""
    text = (files("mlsysim.data") / f"{file}.toml").read_text(encoding="utf-8")
    listed = " ".join(line.partition("loose")[2] for line in text.splitlines() if line.startswith("#"))
    moved = list(_moved(tomllib.loads(text)))
    assert [name for name in moved if not re.search(rf"\b(?:\w+_)?{name}\b", listed)] == []
