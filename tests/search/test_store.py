"""Every point of a sweep in a folder, and back."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import numpy as np
import pytest

from mlsysim.errors import InputError
from mlsysim.search import forecast as forecasts
from mlsysim.search import store as module
from mlsysim.search.forecast import check_size, check_storage, duration, forecast
from mlsysim.search.kinds import KINDS
from mlsysim.search.space import Space
from mlsysim.search.store import PointStore, chosen_format, parts, read
from mlsysim.search.sweep import part_size, sweep
from mlsysim.search.tabled import header_of, title_of, value_text, write_points

PART = 700
FORMATS = ["npz", pytest.param("parquet", marks=pytest.mark.skipif(chosen_format() == "npz", reason="no DuckDB"))]


def chips(**more: Any) -> Space:
    """Chips of the zoo, some without a price; many constraints, so that some parts are empty."""
    return Space.from_dict(
        {
            "kind": "node",
            "name": "stored",
            "axes": {
                "seq_len": [1, 128, 1024, 4096],
                "hardware": {"zoo": "Hardware.Cloud"},
                "precision": ["fp16", "fp8"],
                "batch_size": {"range": [1, 16]},
            },
            "fixed": {"model": "Llama3_70B", "efficiency": 0.5},
            "constraints": ["batch_size * seq_len <= 2048"],
            "subject_to": ["latency_s < 0.1"],
            **more,
        }
    )


def layouts() -> Space:
    return Space.from_dict(
        {
            "kind": "training",
            "axes": {
                "batch_size": [256, 384],
                "tp": [1, 2, 3, 8],
                "pp": [1, 2, 4],
                "recompute": ["none", "full"],
                "grid": ["Quebec", "Poland"],
            },
            "fixed": {"model": "Llama3_8B", "node": "DGX_H100", "fabric": "InfiniBand_NDR", "nodes": 4},
        }
    )


def expected(space: Space) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    indices = np.concatenate(list(space.admitted(0, space.size)))
    columns = space.decode(indices)
    outputs = KINDS[space.kind].evaluate(space, columns)
    valid = np.broadcast_to(outputs.pop("valid", True), indices.shape)
    return indices[valid], {n: c[valid] for n, c in columns.items()}, {n: c[valid] for n, c in outputs.items()}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("space", [chips(), layouts()], ids=["node", "training"])
def test_what_is_read_is_what_was_evaluated(tmp_path, form, space):
    found = sweep(space, points=tmp_path / "points", points_format=form, points_per_part=PART)
    indices, columns, outputs = expected(space)
    table = read(tmp_path)
    assert (table["point"] == indices).all() and len(indices) == found.points > 0
    for name, values in columns.items():
        assert (table[name] == values).all() and table[name].dtype.kind == values.dtype.kind, name
    allowed = outputs["feasible"]
    for constraint in space.subject_to:
        allowed = allowed & constraint(outputs.__getitem__)
    assert (table["feasible"] == allowed).all() and table["feasible"].sum() == found.feasible
    assert (table["wall"] == outputs["wall"]).all()
    names = [name for name in KINDS[space.kind].outputs if name not in ("feasible", "wall")]
    for name in names:
        assert np.array_equal(table[name], outputs.get(name, np.full(len(indices), np.nan)), equal_nan=True), name
    assert sum(len(part["point"]) for part in parts(tmp_path)) == found.points


@pytest.mark.parametrize("form", FORMATS)
def test_points_and_checkpoint_go_on_together(tmp_path, form):
    points, run = tmp_path / "points", tmp_path / "parts"
    options: dict[str, Any] = {"points_format": form, "checkpoint": run, "points": points, "points_per_part": PART}
    whole = sweep(chips(), **options)
    before = read(tmp_path)
    written = {path.name: path.read_bytes() for path in points.iterdir()}
    assert any(name.endswith(".empty") for name in written)
    # A part whose points are gone is computed again, and so is one whose reduction is gone.
    (points / f"part-00000000.{form}").unlink()
    (run / "part-00000001.json").unlink()
    with pytest.raises(InputError, match=r"not complete \(1 of"):
        read(tmp_path)
    assert len(read(tmp_path, partial=True)["point"]) < len(before["point"])
    again = sweep(chips(), **options)
    assert again.to_dict(timings=False) == whole.to_dict(timings=False) and 0 < again.resumed_points < again.points
    after = read(points)
    assert all(np.array_equal(after[name], before[name], equal_nan=before[name].dtype.kind == "f") for name in before)
    assert {path.name for path in points.iterdir()} == set(written)


def test_workers_write_the_same_points(tmp_path):
    sweep(chips(), points=tmp_path / "one", points_per_part=PART)
    sweep(chips(), points=tmp_path / "two", points_per_part=PART, workers=2)
    one, two = read(tmp_path / "one"), read(tmp_path / "two")
    assert all(np.array_equal(one[name], two[name], equal_nan=one[name].dtype.kind == "f") for name in one)


def test_unknown_is_null_in_parquet(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    sweep(chips(), points=tmp_path / "points", points_per_part=PART)
    unknown = int(np.isnan(read(tmp_path)["price_usd"]).sum())
    query = f"SELECT count(*) FROM '{tmp_path}/points/*.parquet' WHERE price_usd IS NULL"
    assert duckdb.sql(query).fetchall() == [(unknown,)] and unknown > 0


def test_foreign_and_damaged_points_are_refused(tmp_path, monkeypatch):
    points = tmp_path / "points"
    form = chosen_format()
    sweep(chips(), points=points, points_per_part=PART)
    with pytest.raises(InputError, match=r"store of points in .* belongs to another space"):
        sweep(chips(subject_to=[]), points=points, points_per_part=PART)
    with pytest.raises(InputError, match="has parts of 700 points, not 800"):
        sweep(chips(), points=points, points_per_part=800)
    with pytest.raises(InputError, match="holds no points of a sweep"):
        read(tmp_path / "elsewhere")
    if form == "parquet":
        with pytest.raises(InputError, match="are parquet, not npz"):
            sweep(chips(), points=points, points_per_part=PART, points_format="npz")
    part = points / f"part-00000000.{form}"
    part.write_bytes(part.read_bytes()[:-100])
    with pytest.raises(InputError, match="cut short or damaged"):
        read(points)
    with pytest.raises(InputError, match="A worker does not see the folder"):
        PointStore.seen_by_worker(str(tmp_path / "elsewhere"), chips())
    with pytest.raises(InputError, match="at most 262,144 points"):
        sweep(chips(), points=tmp_path / "large", points_per_part=2**20)


def test_parquet_needs_duckdb(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="did you mean 'parquet'"):
        chosen_format("parket")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert chosen_format() == "npz"
    with pytest.raises(InputError, match=r"mlsysim\[parquet\]"):
        sweep(chips(), points=tmp_path, points_format="parquet")


# --- before it starts -------------------------------------------------------------------------------------------------


def hypothetical(count: int, *constraints: str) -> Space:
    axis = {"count": count}
    return Space.from_dict(
        {
            "kind": "node",
            "axes": {
                "peak": {"range": [100, 2000], "unit": "TFLOP/s", **axis},
                "bandwidth": {"range": [1, 6], "unit": "TB/s", **axis},
                "capacity": {"range": [80, 240], "unit": "GB", **axis},
                "price": {"range": [10000, 20000], "unit": "USD", **axis},
            },
            "fixed": {"model": "Llama3_8B"},
            "constraints": ["peak <= 800e12", *constraints],
        }
    )


def test_a_forecast_counts_what_the_constraints_leave():
    found = forecast(hypothetical(100))
    # 100 peaks from 100 to 2,000 in steps of 1,900 / 99: the 37 up to 800 are allowed.
    assert found.points == pytest.approx(0.37 * 1e8, rel=0.03)
    assert found.seconds > 0 and found.stored_bytes == 0
    assert forecast(hypothetical(100), "npz").stored_bytes == pytest.approx(found.points * 8 * 18, rel=0.1)


def test_a_space_past_the_limit_is_refused_with_its_time():
    check_size(hypothetical(500), 1)
    with pytest.raises(
        InputError, match=r"16 trillion points, some 5.\d trillion after constraints, which would take about .* here"
    ):
        sweep(hypothetical(2000))
    # One peak and one bandwidth of 2,000 each leave four million.
    few = hypothetical(2000, "peak <= 100e12", "bandwidth <= 1e12")
    check_size(few, 1)
    assert forecast(few).points < 1e9 and sum(block.size for block in few.admitted(0, few.size)) == 2000**2


def test_parts_whose_points_are_stored_are_small():
    assert part_size(hypothetical(2000)) == 2**24 and part_size(hypothetical(2000), stored=True) == 2**18
    assert part_size(chips()) == part_size(chips(), stored=True) == 2**18


def test_the_disk_is_looked_at_first(tmp_path, monkeypatch):
    sentence = check_storage(hypothetical(100), "npz", tmp_path / "new" / "points")
    assert "points take about" in sentence and "GB are free" in sentence
    monkeypatch.setattr(forecasts.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 5, 5))
    with pytest.raises(InputError, match="larger disk, or leave the points out"):
        check_storage(hypothetical(100), "npz", tmp_path / "points")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.25, "0.2 seconds"), (59, "59 seconds"), (180, "3 minutes"), (7200, "2 hours"), (6.4e7, "2 years")],
)
def test_durations_in_words(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("damage", ["cut", "changed", "lost"])
def test_a_file_of_points_that_is_damaged_is_computed_again(tmp_path, form, damage):
    """A resume takes what was finished only where its points are the ones that were written."""
    space = chips()

    def run() -> Any:
        kept = {"checkpoint": tmp_path / "parts", "points": tmp_path / "points"}
        return sweep(space, **kept, points_format=form, points_per_part=PART)

    whole = run()
    rows = read(tmp_path / "points")
    assert run().resumed_points == whole.points
    victim = sorted((tmp_path / "points").glob(f"part-*.{form}"))[0]
    content = victim.read_bytes()
    if damage == "lost":
        victim.unlink()
    else:
        victim.write_bytes(content[: len(content) // 2] if damage == "cut" else content[:-1] + bytes([content[-1] ^ 1]))
    again = run()
    assert again.complete and 0 < again.resumed_points < whole.points
    assert again.to_dict(timings=False) == whole.to_dict(timings=False)
    for name, values in read(tmp_path / "points").items():
        np.testing.assert_array_equal(values, rows[name])


@pytest.mark.parametrize("ending", ["csv", pytest.param("parquet", marks=FORMATS[1].marks)])
def test_every_point_in_one_file_with_units(tmp_path, ending):
    space = chips()
    sweep(
        space,
        points=tmp_path / "points",
        points_format="parquet" if ending == "parquet" else "npz",
        points_per_part=PART,
    )
    rows = read(tmp_path / "points")
    file = tmp_path / f"all.{ending}"
    assert write_points(space, tmp_path / "points", file) == len(rows["point"])
    if ending == "csv":
        lines = file.read_text(encoding="utf-8").splitlines()
        assert len(lines) == 1 + len(rows["point"]) and lines[0].split(",") == [title_of(space, name) for name in rows]
        assert "nan" not in "".join(lines)
    else:
        import duckdb

        found = duckdb.sql(f"select * from '{file}'").fetchnumpy()
        assert [*found] == [title_of(space, name) for name in rows] and list(found["point"]) == list(rows["point"])
    with pytest.raises(InputError, match=r"\.csv or \.parquet"):
        write_points(space, tmp_path / "points", tmp_path / "all.xlsx")


def test_values_carry_their_units():
    space = Space.from_dict(
        {"kind": "node", "fixed": {"model": "Llama3_8B"}, "axes": {"bandwidth": ["1 TB/s"], "price": ["6000 USD"]}}
    )
    assert (header_of(space, "bandwidth"), value_text(space, "bandwidth", 3.35e12)) == ("bandwidth", "3.35 TB/s")
    assert (header_of(space, "price"), value_text(space, "price", 6000.0)) == ("price [USD]", "6,000")
    assert title_of(space, "bandwidth") == "bandwidth [byte/s]" and title_of(space, "latency_s") == "latency_s"
