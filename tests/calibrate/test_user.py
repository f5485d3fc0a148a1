"""A profile from a user's own measurements: recovered constants, honest errors, files, sentences."""

from __future__ import annotations

import csv
import math
import tomllib

import pytest

from mlsysim.calibrate.movable import changed, constants_of
from mlsysim.calibrate.samples import MOST, read_samples, sample_of
from mlsysim.calibrate.user import calibrate, shipped_profile, user_profile
from mlsysim.calibrate.write import profile_toml, write_profile, zoo_folder
from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate
from mlsysim.timing.kernels import Profile
from mlsysim.timing.profile import profile

H100 = Hardware.get("H100")

PRODUCTS = [
    {"op": "gemm", "m": str(m), "n": str(n), "k": str(k), "dtype": "bf16"}
    for m in (1, 64, 512, 4096)
    for n, k in ((28672, 4096), (4096, 4096), (4096, 14336))
]
COPIES = [{"op": "copy", "bytes": str(size)} for size in (1 << 24, 1 << 28, 1 << 31)]


def slower(rate: float, memory: float) -> Profile:
    """An H100 whose products reach less of the peak and of the bandwidth than the shipped one's."""
    shipped = shipped_profile(H100)
    table = shipped.gemm["bf16"]
    change = {"rate_share": rate * table.rate_share, "memory_share": memory * table.memory_share}
    return changed(shipped, {"gemm.bf16": change})


def timed(rows: list[dict[str, str]], truth: Profile, noise: float = 0.01) -> list[dict[str, str]]:
    """The rows with the times that a chip with these constants would show, and a little regular noise."""
    result = []
    for number, row in enumerate(rows):
        sample = sample_of({**row, "seconds": "1"})
        wobble = 1 + noise * math.sin(2.3 * number)
        result.append({**row, "seconds": repr(sample.predict(H100, truth) * wobble)})
    return result


def write_csv(path, rows):
    columns = sorted({key for row in rows for key in row})
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_recovers_constants_and_predicts_unseen_rows():
    truth = slower(0.8, 0.85)
    samples = [sample_of(row) for row in timed(PRODUCTS + COPIES, truth)]
    result = calibrate(samples, H100)
    assert result.before_pct > 10
    assert result.after_pct < 4
    assert result.improves
    fitted = result.profile.gemm["bf16"]
    assert fitted.rate_share == pytest.approx(truth.gemm["bf16"].rate_share, rel=0.04)
    assert fitted.memory_share == pytest.approx(truth.gemm["bf16"].memory_share, rel=0.04)
    moved = {a.path for a in result.adjusted}
    assert {"gemm.bf16.rate_share", "gemm.bf16.memory_share"} <= moved
    assert not any(path.startswith("attention") for path in moved)
    assert any("no row depends on" in note and "attention" in note for note in result.notes)


def test_three_rows_move_one_constant():
    truth = slower(0.8, 1.0)
    rows = [row for row in PRODUCTS if row["m"] == "4096"]
    result = calibrate([sample_of(row) for row in timed(rows, truth)], H100)
    assert len(rows) == 3
    assert [a.path for a in result.adjusted] == ["gemm.bf16.rate_share"]
    # Held towards the prior, so the fit stays between prior and truth.
    prior = result.prior.gemm["bf16"].rate_share
    assert truth.gemm["bf16"].rate_share < result.profile.gemm["bf16"].rate_share < prior


def test_a_stray_row_is_named_and_does_little_harm():
    truth = slower(0.8, 0.85)
    rows = timed(PRODUCTS, truth)
    rows[4]["seconds"] = repr(10 * float(rows[4]["seconds"]))
    result = calibrate([sample_of(row) for row in rows], H100)
    assert result.profile.gemm["bf16"].rate_share == pytest.approx(truth.gemm["bf16"].rate_share, rel=0.08)
    assert any("1 of 12 rows do not fit" in note and "64x4096x4096" in note for note in result.notes)


def test_the_prior_is_kept_where_it_is_right():
    result = calibrate([sample_of(row) for row in timed(PRODUCTS, shipped_profile(H100), noise=0.0)], H100)
    assert result.before_pct < 1e-6
    assert not result.improves


def test_the_same_rows_give_the_same_constants():
    samples = [sample_of(row) for row in timed(PRODUCTS[:6], slower(0.9, 0.8))]
    assert calibrate(samples, H100).to_dict() == calibrate(samples, H100).to_dict()


def test_end_to_end_rows():
    rows = [
        {"model": "Llama3_8B", "phase": phase, "batch": batch, "seq_len": length, "precision": "bf16"}
        for phase, batch, length in (
            ("prefill", "1", "2048"),
            ("prefill", "1", "512"),
            ("decode", "1", "2048"),
            ("decode", "16", "2048"),
            ("training", "1", "1024"),
            ("prefill", "4", "4096"),
        )
    ]
    result = calibrate([sample_of(row) for row in timed(rows, slower(0.8, 0.8))], H100)
    assert result.after_mean_pct < result.before_mean_pct / 2


def test_writes_a_profile_that_is_read_back(tmp_path, monkeypatch):
    monkeypatch.setenv("MLSYSIM_ZOO", str(tmp_path))
    path = write_csv(tmp_path / "own.csv", timed(PRODUCTS, slower(0.8, 0.85)))
    result = calibrate(read_samples(path), H100, "My_H100")
    target, chip = write_profile(result, zoo_folder(None), "own.csv")
    assert target == tmp_path / "profiles" / "My_H100.toml"
    assert chip == tmp_path / "hardware" / "My_H100.toml"
    own = Hardware.get("My_H100")
    assert own.memory.bandwidth == H100.memory.bandwidth
    read = profile(own)
    assert read.measured and read.name == "My_H100"
    assert read.source[0].kind == "measured"
    assert read.gemm["bf16"].rate_share == pytest.approx(result.profile.gemm["bf16"].rate_share, rel=1e-5)
    assert read.gemm["bf16"].fit_error_pct == pytest.approx(result.after_mean_pct, abs=0.01)
    assert read.attention == result.prior.attention
    assert profile(H100).gemm == shipped_profile(H100).gemm
    # A second fit starts from the shipped profile, not from the first.
    assert calibrate(read_samples(path), H100, "My_H100").to_dict() == result.to_dict()


def test_a_profile_of_the_chips_own_name_replaces_the_shipped_one(tmp_path, monkeypatch):
    monkeypatch.setenv("MLSYSIM_ZOO", str(tmp_path))
    result = calibrate([sample_of(row) for row in timed(PRODUCTS, slower(0.8, 0.85))], H100, "H100")
    _, chip = write_profile(result, tmp_path, "own.csv")
    assert chip is None
    assert profile(H100).gemm["bf16"].rate_share < shipped_profile(H100).gemm["bf16"].rate_share


@pytest.mark.parametrize("name", ["My_H100", "H100"])
def test_own_kernels_reach_what_a_software_makes_of_them(tmp_path, monkeypatch, name):
    """A pass, a service and a step are as many times slower as the kernels that bind them, and the answer says why."""
    plans = {
        "inference": {"model": "Llama3_8B"},
        "serving": {"model": "Llama3_8B", "concurrency": 1},
        "training": {"model": "Llama3_8B", "lora_rank": 16},
    }

    def asked(chip: str) -> dict[str, Answer]:
        return {task: evaluate({"task": task, "on": chip, **own}, change=False) for task, own in plans.items()}

    before = asked("H100")
    monkeypatch.setenv("MLSYSIM_ZOO", str(tmp_path))
    result = calibrate([sample_of(row) for row in timed(PRODUCTS, slower(0.5, 0.5))], H100, name)
    moved = result.profile.gemm["bf16"].rate_share / result.prior.gemm["bf16"].rate_share
    read = result.profile.gemm["bf16"].memory_share / result.prior.gemm["bf16"].memory_share
    write_profile(result, tmp_path, "own.csv")
    for software in ("training", "serving.vllm"):
        own, shipped = profile(Hardware.get(name), software).gemm["bf16"], shipped_under(H100, software).gemm["bf16"]
        assert own.rate_share == pytest.approx(moved * shipped.rate_share, rel=1e-4)
        assert own.memory_share == pytest.approx(read * shipped.memory_share, rel=1e-4)
        assert own.quantise_share == shipped.quantise_share
    for task, answer in asked(name).items() if name != "H100" else ():
        assert (
            answer.assumptions["own_profile"]
            == f"{name}, fitted from that of H100 to {len(PRODUCTS)} measurements: own.csv"
        )
        metric = {"inference": "latency", "serving": "tpot", "training": "latency"}[task]
        slower_by = (answer.value(metric) / before[task].value(metric)).to("").magnitude
        assert 1.4 < slower_by < 2.1, task
        assert "own_profile" not in before[task].assumptions


def shipped_under(chip: HardwareNode, software: str) -> Profile:
    with user_profile():
        return profile(chip, software)


def test_every_shipped_number_survives_the_file():
    for name in ("H100", "H200", "A100", "B200"):
        shipped = shipped_profile(Hardware.get(name))
        table = tomllib.loads(profile_toml(shipped))[shipped.name]
        again = Profile(name=shipped.name, **table)
        for before, after in zip(constants_of(shipped), constants_of(again), strict=True):
            assert after.value == pytest.approx(before.value, rel=1e-5), before.path


GOOD = "op,m,n,k,dtype,seconds\n" + "gemm,64,64,64,bf16,1e-5\n" * 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty; expected a line with the names of columns, and a line for each measurement."),
        ("a,b\n1,2\n", "its header has a, b"),
        (GOOD.replace("gemm", "gem", 1), "line 2: There is no operator named 'gem'; did you mean 'gemm'"),
        (GOOD.replace("bf16", "bf17", 1), "line 2: There is no precision named 'bf17'"),
        (GOOD.replace("1e-5", "-1", 1), "line 2: the column 'seconds' must be a number above 0, got '-1'"),
        (GOOD.replace("1e-5", "nan", 1), "must be a number above 0"),
        (GOOD.replace("64,64,64", "64,,64", 1), "the column 'n' is empty"),
        ("op,m,n,k,dtype,seconds\ngemm,64,64,64,bf16,1e-5\n", "has 1 measurements; a calibration takes 3 to 50"),
        (GOOD + "gemm,64,64,64,bf16,1e-5\n" * MOST, "has 53 measurements"),
        ("model,phase,batch,seq_len,precision,seconds\nNoModel,decode,1,1,bf16,1\n", "line 2: There is no model"),
        (
            "model,phase,batch,seq_len,precision,seconds\nLlama3_8B,dance,1,1,bf16,1\n",
            "There is no phase named 'dance'",
        ),
        ("\x00\x01", "needs a column 'seconds'"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path, text, sentence):
    path = tmp_path / "own.csv"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_samples(path)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_other_sentences(tmp_path, monkeypatch):
    monkeypatch.setenv("MLSYSIM_ZOO", "")
    with pytest.raises(InputError, match="or say --zoo FOLDER"):
        zoo_folder(None)
    monkeypatch.delenv("MLSYSIM_ZOO")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert zoo_folder(None) == tmp_path / "mlsysim" / "zoo"
    (tmp_path / "latin.csv").write_bytes(b"op,seconds\n\xff\xfe,1\n")
    with pytest.raises(InputError, match="is not a CSV table"):
        read_samples(tmp_path / "latin.csv")
    with pytest.raises(InputError, match="is not a file"):
        read_samples(tmp_path)
    samples = [sample_of(row) for row in timed(PRODUCTS[:3], shipped_profile(H100))]
    with pytest.raises(InputError, match="must be a Python identifier"):
        calibrate(samples, H100, "../x")
    with pytest.raises(InputError, match="at least 3"):
        calibrate(samples[:2], H100)
