"""emissions.csv of codecarbon: measured beside predicted, and rows that cannot be right."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.importers.codecarbon import read_emissions
from mlsysim.importers.detect import read_any

ROW = {
    "timestamp": "2025-05-01T10:00:00",
    "project_name": "train",
    "duration": "7200",
    "emissions": "1.7",
    "emissions_rate": "0.00024",
    "cpu_power": "120",
    "gpu_power": "2000",
    "ram_power": "40",
    "cpu_energy": "0.24",
    "gpu_energy": "4.0",
    "ram_energy": "0.08",
    "energy_consumed": "4.32",
    "country_name": "United States",
    "country_iso_code": "USA",
    "region": "",
    "gpu_count": "4",
    "gpu_model": "4 x NVIDIA H100 80GB HBM3",
    "pue": "1.0",
}


@pytest.fixture
def write(tmp_path):
    def put(*rows, name="emissions.csv"):
        columns = list(dict.fromkeys(key for row in rows for key in row))
        lines = [",".join(columns), *(",".join(row.get(key, "") for key in columns) for row in rows)]
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return put


def test_measured_beside_predicted(write):
    report = read_emissions(write(ROW))
    (row,) = report.rows
    assert (row.chip, row.gpus, row.flags, report.warnings) == ("H100", 4, (), ())
    assert row.measured_power_per_gpu == pytest.approx(4.0 / 2 / 4 * 1000)
    # 4 boards of 700 W for 2 h, at 0.3 + 0.7 u of it
    assert row.predicted_gpu_energy_low == pytest.approx(5.6 * 0.3)
    assert row.predicted_gpu_energy == pytest.approx(5.6 * 0.65)
    assert row.predicted_gpu_energy_high == pytest.approx(5.6)
    assert row.measured_intensity == pytest.approx(1.7 / 4.32 * 1000)
    assert row.grid_intensity == pytest.approx(383.55, abs=0.5)
    assert row.predicted_carbon == pytest.approx(4.32 * row.grid_intensity / 1000)
    assert (
        report.rows[0].gpus == 4
        and report.rows[0].chip == "H100"
        and json.loads(json.dumps(report.to_dict()))["type"] == "emissions"
    )


@pytest.mark.parametrize(
    ("iso", "region", "grid"),
    [
        ("CAN", "quebec", "Quebec"),
        ("USA", "california", "California"),
        ("FRA", "", "France"),
        ("POL", "mazovia", "Poland (2024"),
        ("USA", "atlantis", "United States (2024"),
    ],
)
def test_places(write, iso, region, grid):
    row = {**ROW, "country_iso_code": iso, "region": region, "country_name": ""}
    assert read_emissions(write(row)).rows[0].grid.startswith(grid)


def test_what_the_zoo_does_not_know_stays_unknown(write):
    row = {**ROW, "country_iso_code": "ATL", "country_name": "Atlantis", "gpu_model": "2 x Hyperdrive"}
    (found,) = read_emissions(write(row)).rows
    assert found.grid is found.predicted_carbon is found.chip is found.predicted_gpu_energy is None
    assert found.gpus == 2
    (named,) = read_emissions(write(row), chip="A100", grid="Norway").rows
    assert named.chip == "A100" and named.grid.startswith("Norway")
    with pytest.raises(InputError, match="H100"):
        read_emissions(write(row), chip="H10")


def flags(write, **changes):
    (row,) = read_emissions(write({**ROW, **changes})).rows
    return " ".join(row.flags)


def test_watts_taken_for_kilowatts_are_flagged(write):
    found = flags(write, gpu_energy="4000", energy_consumed="4000.32", emissions="1500")
    assert "500,000 W a GPU" in found and "watts were taken for kilowatts" in found and "a unit is wrong" in found
    assert "500 times" not in found
    assert "beyond" not in flags(write)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"gpu_energy": "0", "energy_consumed": "0.32", "emissions": "0.12", "gpu_power": "0"}, "took 0 kWh"),
        ({"cpu_energy": "240", "energy_consumed": "244.08", "emissions": "90"}, "more than any host draws"),
        ({"energy_consumed": "9", "emissions": "3"}, "add up to 4.32 kWh"),
        ({"emissions": "1700"}, "which no grid has"),
        ({"cpu_power": "0.12"}, "cpu_power says 0.12 W"),
        ({"duration": "0"}, "no duration"),
    ],
)
def test_rows_that_cannot_be_right(write, changes, sentence):
    assert sentence in flags(write, **changes)


def test_a_run_without_a_gpu_and_unknown_columns(write):
    row = {**ROW, "gpu_model": "", "gpu_count": "", "gpu_energy": "0", "gpu_power": "", "energy_consumed": "0.32", "emissions": "0.1", "shiny": "1"}  # fmt: skip
    report = read_any(write(row))
    assert report.unread == ("shiny",) and report.rows[0].flags == () and report.rows[0].predicted_gpu_energy is None


def sound(path):
    try:
        report = read_any(path)
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 1500
        return False
    json.dumps(report.to_dict(), allow_nan=False)
    return True


JUNK = ["", "nan", "inf", "-1", "1e400", "x", "0", "1e14", '"', "\x00", "4 x", "x" * 300, "999999999 x H100", "NVIDIA"]


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_mangled_tables(tmp_path_factory, seed):
    chance = random.Random(seed)
    path = Path(tmp_path_factory.mktemp("csv")) / "emissions.csv"
    for _ in range(10):
        row = {**ROW}
        for _ in range(chance.choice([1, 2, 5])):
            row[chance.choice(sorted(row))] = chance.choice(JUNK)
        if chance.random() < 0.2:
            del row[chance.choice(sorted(row))]
        text = ",".join(row) + "\n" + ",".join(row.values()) + "\n"
        path.write_text(text[: chance.choice([len(text), chance.randrange(len(text))])], encoding="utf-8")
        sound(path)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "duration,emissions,energy_consumed\n", "\x00"])
def test_other_tables_are_refused(tmp_path, text):
    path = tmp_path / "emissions.csv"
    path.write_text(text, encoding="utf-8")
    assert not sound(path)


@pytest.mark.parametrize("bad", [-0.1, 1.1, True, "half", float("nan")])
def test_a_bad_utilisation_is_refused(write, bad):
    with pytest.raises(InputError):
        read_emissions(write(ROW), utilisation=bad)
