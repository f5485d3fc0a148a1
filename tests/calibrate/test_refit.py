"""Refitting profiles: from the shipped measurements alone, and from the public tables where they are at hand."""

from __future__ import annotations

import os
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from mlsysim.calibrate.__main__ import main
from mlsysim.calibrate.measurements import OWN_TABLES, own
from mlsysim.calibrate.refit import refit, render

SHIPPED = files("mlsysim.data").joinpath("profiles", "measured.toml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def alone():
    return refit(None)


def test_our_measurements_ship_whole():
    assert {table: len(own(table)) for table in OWN_TABLES} == {
        "micro": 2964,
        "llm": 624,
        "train": 537,
        "other": 389,
        "extra": 418,
    }


def test_the_shipped_constants_are_those_of_the_shipped_measurements(alone):
    profiles, errors = alone
    assert set(profiles) == {"H200"}
    again, shipped = tomllib.loads(render(profiles))["H200"], tomllib.loads(SHIPPED)["H200"]
    assert again == shipped
    assert errors["H200 gemm bf16"]["median"] < 5 and errors["H200 attention, decode"]["median"] < 3


def test_every_fit_says_how_well_it_fits(alone):
    profiles, errors = alone
    for entry in profiles["H200"]["products"].values():
        assert entry["points"] > 0 and entry["fit_error_pct"] < 12
    assert all(figures["points"] > 0 for figures in errors.values())


def test_a_folder_without_tables_uses_the_shipped_measurements(tmp_path, capsys):
    out = tmp_path / "measured.toml"
    assert main([str(tmp_path), "--out", str(out)]) == 0
    assert tomllib.loads(out.read_text())["H200"] == tomllib.loads(SHIPPED)["H200"]
    assert "H200 gemm bf16" in capsys.readouterr().out
    assert main([str(tmp_path / "nowhere")]) == 2


@pytest.mark.skipif("MLSYSIM_TRUTH" not in os.environ, reason="MLSYSIM_TRUTH names no folder of public tables")
def test_the_public_table_gives_the_shipped_file():
    profiles, _ = refit(Path(os.environ["MLSYSIM_TRUTH"]))
    assert render(profiles) == SHIPPED
