"""Microcontrollers through the node wall: published MLPerf Tiny results in the interval, memory in its place, laws, refusals."""

from __future__ import annotations

import csv
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError, MLSysError, OOMError, UnknownNameError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.timing.microcontroller import board_of_chip
from mlsysim.timing.vision_time import constants
from mlsysim.units.registry import Q_
from mlsysim.units.text import bytes_text
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.zoo.intervals import interval

L4R5 = Hardware.get("STM32_L4R5")
NETWORKS = ("DS_CNN", "MobileNetV1_025_96", "ResNet8", "Autoencoder")
BOARDS = sorted(key for key in constants()["mcu"]["boards"] if key in Hardware)


def solve(model="DS_CNN", chip=L4R5, **options):
    return SingleNodeModel().solve(model, chip, **({"precision": "int8", "efficiency": "calibrated"} | options))


def clocked(chip, factor):
    core = chip.compute
    formats = {name: rate * factor for name, rate in core.precision_flops.items()}
    faster = core.model_copy(update={"peak_flops": core.peak_flops * factor, "precision_flops": formats})
    return chip.model_copy(update={"compute": faster})


def seconds(quantity):
    return quantity.to("s").magnitude


@pytest.mark.parametrize(
    ("model", "chip", "runtime", "rate"),
    [
        # MLPerf Tiny results, inferences a second: v0.7, v1.2 of the maker, v1.2 of Bosch; then v1.2 of Renesas and Bosch.
        ("DS_CNN", "STM32_L4R5", "STM32Cube.AI 7", 10.241),
        ("DS_CNN", "STM32_L4R5", "STM32Cube.AI 9", 23.155),
        ("DS_CNN", "STM32_L4R5", None, 16.623),
        ("MobileNetV1_025_96", "Renesas_RA8D1", None, 74.665),
        ("DS_CNN", "STM32_G0B1", None, 2.107),
    ],
)
def test_published_results_lie_in_the_interval(model, chip, runtime, rate):
    answer = solve(model, chip, runtime=runtime)
    low, high = answer.interval
    assert seconds(low) <= 1 / rate <= seconds(high)
    assert "extrapolating" not in answer.assumptions["interval"]
    assert answer.assumptions["runtime"].startswith(runtime or "default")


def test_shipped_rows():
    """The two rows of MLPerf Tiny that the package has on boards of the zoo: a rate and an energy."""
    with (files("mlsysim.calibrate") / "data/published/vision.csv").open(newline="", encoding="utf-8") as stream:
        rows = {row["id"]: row for row in csv.DictReader(stream) if row["task"] == "infer-mcu"}
    low, high = solve("ResNet8", "Syntiant_NDP120").interval
    assert seconds(low) <= 1 / float(rows["V27724"]["value"]) <= seconds(high)
    energy = solve("ResNet8", "STM32_U575", runtime="STM32Cube.AI 7").energy_per_inference.to("uJ").magnitude
    assert energy == pytest.approx(float(rows["V27640"]["value"]), rel=0.25)


def test_keyword_spotting_by_hand():
    """5.31 million operations are 2.657 million multiply-adds; 0.346 a cycle at 120 MHz; 44.3 mW."""
    answer = solve()
    time = 2656768 / (0.346 * 120e6)
    rates = interval("microcontroller time")
    assert seconds(answer.latency) == pytest.approx(time)
    named = solve(runtime="TensorFlow Lite Micro")
    assert seconds(named.latency) == pytest.approx(time)
    assert [seconds(side) for side in named.interval] == pytest.approx([time / rates.high, time / rates.low])
    assert answer.energy.to("J").magnitude == pytest.approx(0.0443 * time)
    assert answer.bottleneck == "Compute" and "Compute" in answer.binding.sentence
    assert "T = M / (r f)" in answer.explain() and "sum over operators" not in answer.explain()


def test_an_unnamed_runtime_has_the_band_of_all_of_them():
    """MLPerf Tiny's results on one board go from 10.2 to 23.2 inferences a second with the runtime."""
    low, high = (seconds(side) for side in solve().interval)
    assert low <= 1 / 23.155 and high >= 1 / 10.241
    for runtime in constants()["mcu"]["runtimes"]:
        inner = [seconds(side) for side in solve(runtime=runtime).interval]
        assert low <= inner[0] * (1 + 1e-9) and inner[1] <= high * (1 + 1e-9)


def test_floats_take_longer_and_other_formats_are_refused():
    assert seconds(solve(precision="fp32").latency) == pytest.approx(seconds(solve().latency) / 0.35)
    with pytest.raises(InputError, match="int8 and fp32, not in int4"):
        solve(precision="int4")


def test_boards_and_networks_that_were_not_measured_say_so():
    known = interval("microcontroller time")
    for answer in (solve(chip="nRF52840"), solve(chip="ESP32_S3"), solve("ResNet50", "STM32_H7A3")):
        assert "times as wide" in answer.assumptions["interval"]
        low, high = (seconds(side) / seconds(answer.latency) for side in answer.interval)
        assert low < known.low and high > known.high
    assert "ESP-NN" in solve(chip="ESP32_S3").assumptions["runtime"]
    unknown = solve(chip="Himax_WE_I_Plus")
    assert unknown.assumptions["profile"].startswith("family_mcu")


def test_person_detection_on_an_esp32_s3():
    """Espressif's 54 ms are of a grey image; the first layer of a coloured one has 0.33 million multiply-adds more."""
    assert seconds(solve("MobileNetV1_025_96", "ESP32_S3").latency) == pytest.approx(0.054 * 7.490 / 7.158, rel=2e-3)


def test_runtimes_are_checked():
    with pytest.raises(UnknownNameError, match="STM32Cube"):
        solve(runtime="STM32Cube.AI")
    with pytest.raises(UnknownNameError, match="plumerai"):
        solve(runtime="magic")
    for options in (
        {"chip": "H100", "precision": "fp16"},
        {"efficiency": 0.5},
        {"is_training": True, "precision": "fp32"},
        {"chip": "ESP32_S3"},
    ):
        with pytest.raises(InputError, match="leave"):
            solve(**options, runtime="plumerai")
    with pytest.raises(InputError, match="is a name"):
        solve(runtime=["plumerai"])


def test_weights_stay_in_flash_and_training_does_not():
    answer = solve()
    assert answer.memory_footprint.to("byte").magnitude == Models.get("DS_CNN").working_bytes(1, "int8")
    assert "23.76 kB" in answer.assumptions["weights"] and "flash" in answer.assumptions["weights"]
    trained = solve(is_training=True, precision="fp32", efficiency=0.1)
    assert trained.memory_footprint.to("byte").magnitude > 16 * Models.get("DS_CNN").parameter_count
    assert "weights" not in trained.assumptions


def test_sentences_have_units_that_suit():
    """The unit suits the size; the digits are those of a metric, so that a sentence prints what a table prints."""
    assert [bytes_text(value) for value in (16e3, 655.36e3, 2.097e6, 141.2e9, 999.99e6)] == [
        "16 kB",
        "655.4 kB",
        "2.10 MB",
        "141.2 GB",
        "1,000.0 MB",
    ]
    heavy = solve("ResNet50", "nRF52840")
    assert not heavy.feasible and "needs 25.56 MB of flash" in heavy.binding.sentence
    assert "1.05 MB" in heavy.binding.sentence and "as much flash" in heavy.binding.sentence
    wide = solve("MobileNetV1_025_96", "nRF52840", batch_size=10)
    assert not wide.feasible and "of RAM" in wide.binding.sentence and "737.3 kB" in wide.binding.sentence
    with pytest.raises(OOMError, match="kB"):
        solve("MobileNetV1_025_96", "nRF52840", batch_size=10, raise_errors=True)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NETWORKS), st.sampled_from(BOARDS), st.floats(1.0, 4.0), st.integers(1, 8))
def test_laws(model, key, factor, batch):
    """More clock is never slower and, at one voltage, no dearer; no pass beats the datasheet; weights are held somewhere."""
    chip = Hardware.get(key)
    base, fast = solve(model, chip, batch_size=batch), solve(model, clocked(chip, factor), batch_size=batch)
    assert seconds(fast.latency) == pytest.approx(seconds(base.latency) / factor)
    assert base.mfu <= 1 and base.interval[0] < base.latency < base.interval[1]
    assert seconds(base.latency) == pytest.approx(batch * seconds(solve(model, chip).latency))
    if board_of_chip(chip).power is not None:
        assert fast.energy.to("J").magnitude == pytest.approx(base.energy.to("J").magnitude)
    weights = Models.get(model).parameter_count
    flash = chip.memory.flash_capacity
    held = base.memory_footprint if flash is None else flash
    assert not base.feasible or held.to("byte").magnitude >= weights


def test_a_chip_of_ones_own_has_no_board():
    own = L4R5.model_copy(update={"metadata": L4R5.metadata.model_copy(update={"key": None}), "name": "mine"})
    assert board_of_chip(own) is None
    assert solve(chip=own).assumptions["interval"].startswith("extrapolating")


def test_power_of_the_datasheet_where_none_was_measured():
    answer = solve(chip="STM32_U585")
    assert "datasheet" in answer.assumptions["power"]
    assert answer.energy.to("J").magnitude == pytest.approx(0.0103 * seconds(answer.latency))
    assert solve(chip="STM32_F746").energy is None


def test_every_board_of_the_table_that_the_zoo_has_uses_it():
    measured = [key for key in BOARDS if board_of_chip(Hardware.get(key)).measured]
    assert len(measured) >= 10
    for key in measured:
        answer = solve(chip=key)
        assert answer.assumptions["fidelity"].startswith("calibrated: cycles") and answer.latency < Q_("1 s")


def test_unknown_layers_are_refused_as_elsewhere():
    totals = Models.get("DS_CNN").model_copy(update={"rows": ()})
    with pytest.raises(MLSysError):
        solve(totals)
