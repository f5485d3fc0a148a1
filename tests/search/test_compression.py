"""Spaces of kind compression: what wall 13 says, priced, with accuracy as one of the objectives."""

from __future__ import annotations

import pytest

from mlsysim import CompressionModel, Grids, Hardware, SingleNodeModel
from mlsysim.errors import InputError
from mlsysim.search.compression import FORMS
from mlsysim.search.optimize import pareto
from mlsysim.search.space import Space
from mlsysim.search.sweep import sweep
from mlsysim.timing.power import Activity, power_of

SPACE = {
    "kind": "compression",
    "minimize": "latency_s",
    "top": 1000,
    "fixed": {"model": "Llama3_70B", "seq_len": 4096},
    "axes": {
        "hardware": ["H100", "B200"],
        "compression": list(FORMS)[:7],
        "batch_size": [1, 32],
        "grid": ["Quebec", "Poland"],
    },
}


def points(**changes: object) -> list[dict]:
    return sweep(Space.from_dict({**SPACE, **changes})).best


def test_a_point_is_what_wall_13_answers() -> None:
    found = points()
    assert 0 < len(found) < 56
    for point in found:
        inputs, outputs = point["inputs"], point["outputs"]
        result = CompressionModel().solve(
            "Llama3_70B",
            inputs["hardware"],
            seq_len=4096,
            batch_size=inputs["batch_size"],
            **FORMS[inputs["compression"]],
        )
        assert result.feasible
        assert outputs["latency_s"] == pytest.approx(result.latency.to("s").magnitude, rel=1e-12)
        assert outputs["memory_bytes"] == pytest.approx(result.memory.to("byte").magnitude, rel=1e-12)
        assert outputs["accuracy_delta"] == result.estimated_accuracy_delta
        assert outputs["accuracy_worst"] == result.accuracy_delta_range[0]
        assert outputs["tokens_per_second"] == pytest.approx(inputs["batch_size"] / outputs["latency_s"], rel=1e-12)


def test_cost_and_carbon_by_hand() -> None:
    """B200 at batch 32 in FP8: the share of its price, 5 % of it a year of upkeep, electricity; the grid's carbon for the same energy."""
    found = points(fixed={**SPACE["fixed"], "amortization_years": 4, "kwh_price": "0.10 USD/kWh"})
    point = next(p for p in found if list(p["inputs"].values()) == ["B200", "w8a8_fp", 32, "Poland"])["outputs"]
    chip, grid = Hardware.B200, Grids.Poland
    # 8-bit operations at 0.533 of the energy of the same in 16 bits, and weights and caches read once.
    rates = 0.533 * point["mfu"] * 4500e12, point["memory_bytes"] / point["latency_s"]
    watts = power_of(chip, Activity(*rates))
    kwh = watts * point["latency_s"] / 3.6e6 * grid.pue / 32 * 1e6
    assert point["kwh_per_mtoken"] == pytest.approx(kwh, rel=1e-9)
    assert point["kgco2e_per_mtoken"] == pytest.approx(grid.carbon_kg(kwh), rel=1e-9)
    years = point["latency_s"] / (365 * 86_400) / 32 * 1e6
    hardware = chip.unit_cost.to("USD").magnitude * years * (1 / 4 + 0.05)
    assert point["usd_per_mtoken"] == pytest.approx(hardware + kwh * 0.10, rel=1e-9)


def test_the_front_of_latency_cost_carbon_and_accuracy() -> None:
    objectives = ["latency_s", "usd_per_mtoken", "kgco2e_per_mtoken", "accuracy_delta"]
    front = pareto(SPACE, objectives)
    forms = {point["inputs"]["compression"] for point in front}
    # The smallest form is fastest, the original most accurate; the dirtier grid is never worth it.
    assert {"none", "w4a16"} <= forms
    assert {point["inputs"]["grid"] for point in front} == {"Quebec"}
    assert front[0]["inputs"]["compression"] == "w4a16"
    rows = [
        [p["outputs"][name] * (-1 if name == "accuracy_delta" else 1) for name in objectives]
        for p in (*front, *points())
    ]
    for mine in rows[: len(front)]:
        assert not any(all(a <= b for a, b in zip(other, mine, strict=True)) and other != mine for other in rows)


def test_what_nobody_measured_is_not_ranked_by_accuracy() -> None:
    found = sweep(Space.from_dict({**SPACE, "fixed": {"model": "ResNet50"}}).with_goals(maximize="accuracy_delta"))
    assert found.unranked > 0
    assert {point["inputs"]["compression"] for point in found.best} == {"none"}


def test_formats_of_the_table_are_forms() -> None:
    """AWQ, NVFP4 and the rest, as the pass of one device has them."""
    found = points(axes={**SPACE["axes"], "compression": ["awq", "q4_k_m", "nvfp4"], "batch_size": [1]})
    assert {point["inputs"]["compression"] for point in found} == {"awq", "q4_k_m", "nvfp4"}
    for point in found:
        form, chip = point["inputs"]["compression"], point["inputs"]["hardware"]
        asked = {"phase": "decode", "seq_len": 4096, "cache_precision": "fp16"}
        alone = SingleNodeModel().solve("Llama3_70B", chip, 1, form, **asked)
        assert point["outputs"]["latency_s"] == pytest.approx(alone.latency.to("s").magnitude, rel=1e-12)
        assert point["outputs"]["memory_bytes"] == pytest.approx(alone.memory_footprint.to("byte").magnitude, rel=1e-12)


def test_an_unknown_form_has_a_nearest() -> None:
    with pytest.raises(InputError, match="w4a16"):
        points(axes={**SPACE["axes"], "compression": ["w4a17"]})
