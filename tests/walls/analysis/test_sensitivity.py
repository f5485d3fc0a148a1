"""Wall 21: elasticities of -1 and 0 where a roofline says so, kinks from both sides, capacity when it does not fit."""

from __future__ import annotations

import pytest

from mlsysim import Hardware, Models, SensitivitySolver, SingleNodeModel
from mlsysim.errors import InputError
from mlsysim.walls.analysis.sensitivity import scaled


def solve(**call: object):
    return SensitivitySolver().solve(**{"model": "Llama2_7B", "hardware": "H100", **call})


def quick(chip: str):
    """The chip without dispatch, so that only the roofline is left."""
    return Hardware.get(chip).model_copy(update={"dispatch_tax": Hardware.H100.dispatch_tax * 0})


def test_memory_bound_decode() -> None:
    answer = solve(hardware=quick("H100"))
    assert answer.sensitivities == {
        "peak_flops": 0.0,
        "memory_bandwidth": pytest.approx(-1, abs=1e-5),
        "memory_capacity": 0.0,
    }
    assert answer.binding_constraint == "memory_bandwidth"
    assert answer.response["memory_bandwidth"] == pytest.approx(1 / 1.1 - 1)


def test_compute_bound_prefill() -> None:
    answer = solve(hardware=quick("H100"), seq_len=4096)
    assert answer.sensitivities["peak_flops"] == pytest.approx(-1, abs=1e-5)
    assert answer.all_sensitivities["efficiency"] == pytest.approx(-1, abs=1e-5)
    assert answer.binding_constraint == "peak_flops"


def test_a_kink_differs_on_its_two_sides() -> None:
    """At the ridge both ceilings meet: more of either helps nothing, less of either hurts in full."""
    chip = quick("H100")
    base = SingleNodeModel().solve("Llama2_7B", chip, batch_size=64)
    ratio = (base.latency_memory / base.latency_compute).to("").magnitude
    ridge = scaled(chip, {"memory_bandwidth": ratio})
    answer = solve(hardware=ridge, batch_size=64)
    assert answer.sensitivities["peak_flops"] == pytest.approx(0, abs=1e-4)
    assert answer.sensitivities["memory_bandwidth"] == pytest.approx(0, abs=1e-4)
    assert answer.from_below["peak_flops"] == pytest.approx(-1, abs=1e-4)
    assert answer.from_below["memory_bandwidth"] == pytest.approx(-1, abs=1e-4)


def test_capacity_binds_when_it_does_not_fit() -> None:
    answer = solve(model="Llama3_70B")
    assert not answer.feasible and answer.binding_constraint == "memory_capacity"
    assert answer.sensitivities["memory_capacity"] < 0 > answer.all_sensitivities["host_link_bandwidth"]
    assert list(answer.sensitivities) == ["peak_flops", "memory_bandwidth", "memory_capacity"]


@pytest.mark.parametrize("model", ["Llama3_8B", "ResNet50", "Mixtral_8x7B"])
def test_elasticities_lie_between_minus_one_and_zero(model: str) -> None:
    answer = solve(model=model, hardware="H200")
    assert answer.feasible
    for name, value in {**answer.sensitivities, **answer.all_sensitivities}.items():
        low, high = (0, 1) if name == "dispatch_tax" else (-1, 0)
        assert low - 1e-5 <= value <= high + 1e-5, name


def test_other_outputs() -> None:
    assert solve(output="throughput").sensitivities["memory_bandwidth"] == pytest.approx(0.9975, abs=0.001)
    assert solve(output="energy").sensitivities["memory_bandwidth"] < 0
    assert solve(output="mfu").sensitivities["memory_bandwidth"] > 0.9


def test_a_fleet() -> None:
    layout = {"tp_size": 8, "zero_stage": 1, "microbatch_count": 8}
    answer = solve(hardware=None, fleet="Research_256", model=Models.Llama3_70B, batch_size=256, layout=layout)
    assert answer.binding_constraint == "peak_flops"
    shares = [
        answer.sensitivities["peak_flops"],
        *(v for k, v in answer.all_sensitivities.items() if k.endswith("bandwidth")),
    ]
    assert sum(shares) == pytest.approx(-1, abs=0.02)


def test_one_of_hardware_and_fleet() -> None:
    with pytest.raises(InputError, match="'hardware' or 'fleet'"):
        solve(fleet="Research_256")
    with pytest.raises(InputError, match="Energy is not known"):
        solve(hardware=None, fleet="Research_256", batch_size=256, output="energy")
