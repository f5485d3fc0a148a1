"""Calibrated power: the measured loads of one H200, published energies, limits and signs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.physics.power import proportional_power
from mlsysim.systems.registry import Systems
from mlsysim.timing.diffusion_time import diffusion_activity
from mlsysim.timing.power import (
    Activity,
    energy_per_item,
    power_of,
    serving_activity,
)
from mlsysim.walls.operations.sustainability import SustainabilityModel

# One H200: watts, MFU and MBU of loads in loops (own measurements).
H200_LOADS = [
    (123, 0.0, 0.0),
    (322, 0.20, 0.0),
    (517, 0.39, 0.0),
    (651, 0.56, 0.0),
    (469, 0.003, 0.68),
    (518, 0.045, 0.69),
    (640, 0.12, 0.75),
    (640, 0.0, 0.97),
    (685, 0.59, 0.06),
    (690, 0.41, 0.26),
    (688, 0.48, 0.22),
    (682, 0.68, 0.0),
]


def test_measured_loads_of_one_h200():
    chip = Hardware.get("H200")
    errors = sorted(abs(power_of(chip, Activity(mfu, mbu), "kernels") / watts - 1) for watts, mfu, mbu in H200_LOADS)
    assert errors[len(errors) // 2] < 0.05
    assert errors[-1] < 0.16
    proportional = [abs(proportional_power(700, 0.3, mfu) / watts - 1) for watts, mfu, _ in H200_LOADS]
    assert sorted(proportional)[len(errors) // 2] > 0.25


def test_published_energy_of_a_token():
    """ML.ENERGY: Qwen3-14B, one B200, 7.9 sequences, 1,086.7 tokens/s: 0.699 J."""
    chip = Hardware.get("B200")
    activity = serving_activity(Models.get("Qwen3-14B"), chip, 1, 7.9, 1086.7, "bf16", 400, 615)
    assert energy_per_item(power_of(chip, activity), 1, 1086.7) == pytest.approx(0.699, rel=0.15)


def test_published_energy_of_an_image():
    """ML.ENERGY: FLUX.1-dev, four B200, 8 images in 21.717 s: 9,574.7 J an image."""
    chip = Hardware.get("B200")
    activity = diffusion_activity(Models.get("FLUX_1_dev"), chip, 4, 8, 50, 21.717)
    assert energy_per_item(power_of(chip, activity, "diffusion"), 4, 8 / 21.717) == pytest.approx(9574.7, rel=0.15)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.01, 1))
def test_more_work_never_draws_less_and_the_cap_holds(arithmetic, memory, busy):
    chip = Hardware.get("H100")
    for work in ("serving", "diffusion", "kernels"):
        watts = power_of(chip, Activity(arithmetic, memory, busy), work)
        assert 0.17 * 700 <= watts <= 0.98 * 700
        assert watts <= power_of(chip, Activity(min(1, arithmetic + 0.1), memory, min(1, busy + 0.1)), work) + 1e-9


def test_unknown_work_raises():
    with pytest.raises(MLSysError, match="kind of work"):
        power_of(Hardware.get("H100"), Activity(0.1, 0.1), "mining")


def test_sustainability_takes_the_calibrated_power_when_the_memory_is_known():
    fleet = Systems.get("Frontier_8K") if hasattr(Systems, "get") else "Frontier_8K"
    plain = SustainabilityModel().solve(fleet=fleet, duration_days=1, mfu=0.02)
    running = SustainabilityModel().solve(fleet=fleet, duration_days=1, mfu=0.02, memory_utilisation=0.6)
    assert running.it_energy_kwh > 1.5 * plain.it_energy_kwh
    assert "calibrated" in running.assumptions["power"]
