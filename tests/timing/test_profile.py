"""Efficiency profiles: every chip has one, and it says where it comes from."""

from __future__ import annotations

import pytest

from mlsysim.errors import UnknownNameError
from mlsysim.hardware.registry import Hardware
from mlsysim.timing.engines import engine, engine_names
from mlsysim.timing.kernels import Profile
from mlsysim.timing.profile import _build, merged, origin, profile, profile_names

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
    found = _build((name,), "", "")
    assert found.basis in ("measured", "generation", "family")
    assert found.memory_bound.times[0] > 0 and found.attention.times[0] > 0


def test_a_precision_without_a_fit_takes_the_nearest():
    h100 = profile(Hardware.get("H100"))
    assert h100.product_for("fp16") == h100.products["bf16"]
    assert h100.product_for("fp8", "block") == h100.products["fp8_block"] != h100.product_for("fp8")
    assert h100.product_for("fp32") == h100.gemm["fp32"]


def test_a_user_table_replaces_a_shipped_one(tmp_path, monkeypatch):
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "mine.toml").write_text('[L4]\nlike = "H100"\nbasis = "measured"\n[L4.gemm.bf16]\nrate_share = 0.5\n')
    monkeypatch.setenv("MLSYSIM_ZOO", str(tmp_path))
    found = profile(Hardware.get("L4"))
    assert found.measured and found.gemm["bf16"].rate_share == 0.5 and found.gemm["bf16"].memory_share > 0.5


SOFTWARE = ["training", *(f"serving.{engine(name).kernels}" for name in engine_names())]


@pytest.mark.parametrize("software", SOFTWARE)
def test_what_a_software_does_not_name_is_the_chips(software):
    """On every chip of the zoo the profile builds, and differs from the chip's own only where a table of the software says so."""

    def leaves(record, path=""):
        for name in type(record).model_fields if hasattr(type(record), "model_fields") else record:
            value = record[name] if isinstance(record, dict) else getattr(record, name)
            if isinstance(value, dict) or hasattr(type(value), "model_fields"):
                yield from leaves(value, f"{path}{name}.")
            elif value is not None:
                yield f"{path}{name}", value

    for chip in (Hardware.get(name) for name in ("H100", "A100_PCIe_80GB", "L40S", "TPU_v5e", "MI300X", "GB300", "T4")):
        own, under = dict(leaves(profile(chip))), dict(leaves(profile(chip, software)))
        assert own.keys() <= under.keys()
        for path, value in under.items():
            named = origin(chip, path, software).startswith(tuple(software.split("."))) if path != "name" else False
            assert named or value == own.get(path, value), path


def test_the_origin_of_a_constant_is_one_call_away():
    h100, h200 = Hardware.get("H100"), Hardware.get("H200")
    assert origin(h100, "attention.rate_share") == "H100"
    assert origin(h200, "attention.rate_share") in ("H100", "H200")
    assert origin(h100, "attention.flash2") == "every"
    assert origin(h200, "gemm.bf16.rate", "training") == "training, H100"
    assert origin(h100, "gemm.fp32.memory_share", "training") == "training, every"
    assert origin(h100, "attention.decode_fp8_share", "serving.sglang") == "sglang, generation_Hopper"
    assert origin(h100, "attention.rate_share", "serving.sglang") == "serving, generation_Hopper"
    with pytest.raises(UnknownNameError):
        origin(h100, "attention.hedaches")


def test_a_measured_rate_gives_way_to_a_later_share():
    base = {"bf16": {"rate": "768 TFLOPs/s", "rate_share": 0.7}, "fp8": {"rate_share": 0.6}}
    found = merged(base, {"bf16": {"rate_share": 0.777}, "every": {"start": "1 us"}})
    assert found == {"bf16": {"rate_share": 0.777, "start": "1 us"}, "fp8": {"rate_share": 0.6, "start": "1 us"}}
