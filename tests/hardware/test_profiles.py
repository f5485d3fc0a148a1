"""Efficiency profiles: every chip has one, and it says where it comes from."""

from __future__ import annotations

import pytest

from mlsysim.hardware import profiles
from mlsysim.hardware.profiles import Profile, profile, profile_names
from mlsysim.hardware.registry import Hardware
from mlsysim.units.registry import to_si

CHIPS = list(Hardware)


@pytest.mark.parametrize("name", CHIPS)
def test_every_chip_of_the_zoo_has_a_profile(name):
    chip = Hardware.get(name)
    found = profile(chip)
    assert isinstance(found, Profile) and found.source
    kernel = found.product_for(chip.compute.headline)
    assert 0 < kernel.rate_share <= 1.2 and 0 < kernel.memory_share <= 1 and kernel.times[0] > 0
    assert found.gemm_for(chip.compute.headline).rate_share > 0


def test_measured_chips_carry_their_fit_and_classes_say_that_they_are_estimates():
    for name in ("A100", "H100", "H200", "B200"):
        found = profile(Hardware.get(name))
        assert found.measured and found.name == name
        assert found.products["bf16"].points > 100 and found.products["bf16"].fit_error_pct < 10
    l40s = profile(Hardware.get("L40S"))
    assert not l40s.measured and l40s.basis == "generation" and l40s.source[0].kind == "estimate"
    assert profile(Hardware.get("MI300X")).name == "generation_CDNA_3"


def test_families_back_every_generation():
    families = {Hardware.get(name).family for name in CHIPS}
    missing = {f"family_{family}" for family in families} - set(profile_names())
    assert not missing


@pytest.mark.parametrize("name", profile_names())
def test_every_table_builds(name):
    found = profiles._build(name, "")
    assert found.basis in ("measured", "generation", "family")
    assert found.memory_bound.times[0] > 0 and found.attention.times[0] > 0


def test_a_precision_without_a_fit_takes_the_nearest():
    h100 = profile(Hardware.get("H100"))
    assert h100.product_for("fp16") == h100.products["bf16"]
    assert h100.product_for("fp8", "block") == h100.products["fp8_block"] != h100.product_for("fp8")
    assert h100.product_for("fp32") == h100.gemm["fp32"].kernel
    assert to_si(h100.gemm["fp32"].kernel.start, "s") == to_si(h100.gemm["fp32"].start, "s")


def test_a_user_table_replaces_a_shipped_one(tmp_path, monkeypatch):
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "mine.toml").write_text('[L4]\nlike = "H100"\nbasis = "measured"\n[L4.gemm.bf16]\nrate_share = 0.5\n')
    monkeypatch.setenv("MLSYSIM_ZOO", str(tmp_path))
    found = profile(Hardware.get("L4"))
    assert found.measured and found.gemm["bf16"].rate_share == 0.5 and found.gemm["bf16"].memory_share > 0.5
