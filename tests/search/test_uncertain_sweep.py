"""Sweeps over uncertain inputs: the same percentiles as solve(), ranking by them, and sentences for bad files."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mlsysim import Q_, DistributedModel, Hardware, InputError, ServingModel, SingleNodeModel, uncertain
from mlsysim.cli.main import app
from mlsysim.search.branch import branch_and_bound
from mlsysim.search.kinds import kind_named
from mlsysim.search.optimize import optimize
from mlsysim.search.space import Space
from mlsysim.search.space_table import schema
from mlsysim.search.sweep import merge, sweep
from mlsysim.search.uncertainty import percentiles
from mlsysim.walls.uncertain_result import percentile

NODE: dict[str, Any] = {
    "kind": "node",
    "minimize": "latency_s",
    "samples": 60,
    "fixed": {"model": "Llama3_8B", "hardware": "H100", "phase": "prefill", "seq_len": 512},
    "axes": {"batch_size": [1, 2, 4, 8]},
    "uncertain": {"efficiency": "0.1..0.6", "hardware.memory.bandwidth": "1.0..3.35 TB/s"},
}
TRAINING: dict[str, Any] = {
    "kind": "training",
    "maximize": "tokens_per_second",
    "samples": 40,
    "fixed": {"model": "Llama3_70B", "fleet": "Research_256", "batch_size": 256, "grid": "Quebec"},
    "axes": {"tp": [4, 8], "pp": [1, 2, 4], "zero_stage": [1, 3]},
    "uncertain": {
        "efficiency": "0.3..0.6",
        "kwh_price": "0.05..0.12",
        "grid.carbon_intensity_g_kwh": {"low": 20, "high": 40},
    },
}
PERCENTILES = ("p5", "p25", "p50", "p75", "p95", "mean")


def changed(table: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(table), **changes}


# --- the same as solve ----------------------------------------------------------------------------------------


def test_a_point_has_the_percentiles_of_solve() -> None:
    found = sweep(Space.from_dict(NODE))
    for point in found.best:
        answer = SingleNodeModel().solve(
            **NODE["fixed"], **point["inputs"], uncertain=NODE["uncertain"], samples=NODE["samples"]
        )
        for output, name in (("latency_s", "latency"), ("mfu", "mfu"), ("latency_memory_s", "latency_memory")):
            for share in PERCENTILES:
                expected = getattr(answer.outputs[name], share)
                expected = expected.to("s").magnitude if hasattr(expected, "to") else expected
                assert point["percentiles"][output][share] == pytest.approx(expected, rel=1e-12)
        named = {"1": "Compute", "2": "Memory"}
        assert {named[wall]: share for wall, share in point["binding_probability"].items()} == pytest.approx(
            answer.binding_probability
        )
        assert point["feasible_probability"] == answer.feasible_probability


def test_a_layout_has_the_percentiles_of_solve() -> None:
    table = changed(TRAINING, uncertain={"efficiency": "0.3..0.6", "fleet.fabric.bandwidth": "100..400 Gbps"})
    for point in sweep(Space.from_dict(table)).best[:4]:
        degrees = {"tp_size": point["inputs"]["tp"], "pp_size": point["inputs"]["pp"]}
        answer = DistributedModel().solve(
            "Llama3_70B",
            "Research_256",
            256,
            "bf16",
            zero_stage=point["inputs"]["zero_stage"],
            seq_len=4096,
            overlap_comm=True,
            update_step=True,
            **degrees,
            uncertain=table["uncertain"],
            samples=table["samples"],
        )
        for share in PERCENTILES:
            expected = getattr(answer.step_latency_total, share).to("s").magnitude
            assert point["percentiles"]["step_time_s"][share] == pytest.approx(expected, rel=1e-12)
        named = {"1": "Compute", "2": "Memory", "14": "Communication"}
        shares = {named[wall]: share for wall, share in point["binding_probability"].items()}
        assert shares == pytest.approx(answer.binding_probability)


def test_a_deployment_has_the_percentiles_of_solve() -> None:
    varied = {"efficiency": "0.3..0.6", "draft_acceptance_rate": "0.5..0.9"}
    fixed = {"model": "Llama3_70B", "hardware": "H100", "precision": "fp8", "draft_model": "Llama3_8B"}
    fixed["cache_precision"] = "bf16"
    table = {
        "kind": "serving",
        "maximize": "tokens_per_second",
        "samples": 50,
        "fixed": {**fixed, "isl": 1024, "osl": 256},
        "axes": {"tp": [2, 4], "batch_size": [4, 16]},
        "uncertain": varied,
    }
    best = sweep(Space.from_dict(table)).best
    assert len(best) == 4
    for point in best:
        degrees = {"tp_size": point["inputs"]["tp"], "batch_size": point["inputs"]["batch_size"]}
        answer = ServingModel().solve(
            **fixed, **degrees, seq_len=1024, output_len=256, uncertain=varied, samples=table["samples"]
        )
        for output, expected in (("itl_s", answer.itl), ("ttft_s", answer.ttft)):
            spread = point["percentiles"][output]
            assert spread["p5"] < spread["p95"]
            assert spread["p50"] == pytest.approx(expected.p50.to("s").magnitude, rel=1e-12)


def test_degenerate_ranges_are_the_certain_sweep() -> None:
    fixed = {**TRAINING["fixed"], "efficiency": 0.4, "kwh_price": 0.07}
    certain = sweep(
        Space.from_dict({**{k: v for k, v in TRAINING.items() if k not in ("uncertain", "samples")}, "fixed": fixed})
    )
    varied = sweep(
        Space.from_dict(changed(TRAINING, uncertain={"efficiency": "0.4..0.4", "kwh_price": "0.07..0.07"}, samples=3))
    )
    assert [p["point"] for p in varied.best] == [p["point"] for p in certain.best]
    for mine, theirs in zip(varied.best, certain.best, strict=True):
        assert mine["outputs"] == theirs["outputs"]
    assert (varied.points, varied.feasible, varied.infeasible_by_wall) == (
        certain.points,
        certain.feasible,
        certain.infeasible_by_wall,
    )


def test_carbon_of_a_grid_that_is_not_known_exactly() -> None:
    """kgCO2e is proportional to the intensity: from 20 to 40 it doubles."""
    best = sweep(
        Space.from_dict(changed(TRAINING, uncertain={"grid.carbon_intensity_g_kwh": "20..40"}, samples=800))
    ).best[0]
    spread = best["percentiles"]["kgco2e_per_mtoken"]
    assert spread["p95"] / spread["p5"] == pytest.approx(39 / 21, rel=0.02)
    assert best["percentiles"]["usd_per_mtoken"]["p5"] == best["percentiles"]["usd_per_mtoken"]["p95"]


# --- ranking --------------------------------------------------------------------------------------------------


def test_the_percentile_that_ranks_is_the_one_reported() -> None:
    for rank in ("p5", "p50", "p95"):
        found = sweep(Space.from_dict(changed(TRAINING, rank_by=rank)))
        values = [point["outputs"]["tokens_per_second"] for point in found.best]
        assert values == sorted(values, reverse=True)
        assert values == [point["percentiles"]["tokens_per_second"][rank] for point in found.best]
        assert found.uncertain is not None and found.uncertain["rank_by"] == float(rank[1:])


def test_caution_changes_the_choice() -> None:
    """A chip at the edge of its memory wins in the median and loses where it must be sure to fit."""
    need = SingleNodeModel().solve("Llama3_70B", "H100").memory_footprint.to("GB").magnitude
    table = {
        "kind": "node",
        "minimize": "price_usd",
        "fixed": {"model": "Llama3_70B", "peak": "1e15 flop/s", "bandwidth": "3 TB/s"},
        "axes": {
            "chip": {"linked": [{"price": "10 USD", "batch_size": 1}, {"price": "20 USD", "batch_size": 2}]},
        },
        "uncertain": {"capacity": f"{need - 1}..{need + 4} GB"},
    }
    assert sweep(Space.from_dict({**table, "confidence": 0.7})).best[0]["inputs"]["price"] == 10
    strict = sweep(Space.from_dict({**table, "confidence": 0.9}))
    assert strict.feasible == 0 and strict.infeasible_by_wall == {"2": 2}


def test_constraints_hold_with_the_asked_confidence() -> None:
    base = sweep(Space.from_dict(NODE))
    limit = base.best[0]["percentiles"]["latency_s"]["p75"]
    for confidence, feasible in ((0.7, 1), (0.8, 0)):
        table = changed(NODE, subject_to=[f"latency_s <= {limit!r}"], confidence=confidence)
        found = sweep(Space.from_dict(table))
        assert found.feasible == feasible
    point = sweep(Space.from_dict(changed(NODE, subject_to=[f"latency_s <= {limit!r}"], confidence=0.5))).best[0]
    assert point["feasible_probability"] == pytest.approx(0.75, abs=0.02)
    assert point["rejection_probability"] == pytest.approx(
        {f"latency_s <= {limit!r}": 1 - point["feasible_probability"]}
    )
    # A constraint may name what varies.
    found = sweep(Space.from_dict(changed(NODE, subject_to=["efficiency >= 0.35"], confidence=0.45)))
    assert found.best[0]["feasible_probability"] == pytest.approx(0.5, abs=0.02)


def test_all_points_see_the_same_draws() -> None:
    """With common draws a faster chip is faster at every percentile, however few the draws."""
    table = {
        "kind": "node",
        "samples": 3,
        "fixed": {"model": "Llama3_8B", "peak": "1e15 flop/s", "capacity": "80 GB"},
        "axes": {"bandwidth": ["3 TB/s", "3.001 TB/s"]},
        "uncertain": {"bandwidth_efficiency": "0.3..0.9"},
    }
    slow, fast = sorted(sweep(Space.from_dict(table)).best, key=lambda point: point["inputs"]["bandwidth"])
    for share in PERCENTILES:
        assert fast["percentiles"]["latency_s"][share] < slow["percentiles"]["latency_s"][share]


# --- reproducible ---------------------------------------------------------------------------------------------


def test_seed_document_and_digest() -> None:
    one, again, other = (Space.from_dict(changed(NODE, seed=seed)) for seed in (1, 1, 2))
    assert sweep(one).to_dict(timings=False) == sweep(again).to_dict(timings=False)
    assert sweep(one).best[0]["percentiles"] != sweep(other).best[0]["percentiles"]
    assert one.digest == again.digest != other.digest
    assert Space.from_document(one.document()).digest == one.digest
    certain = Space.from_dict({k: v for k, v in NODE.items() if k not in ("uncertain", "samples")})
    assert certain.digest != one.digest and certain.uncertain is None


def test_parts_merge_to_the_same(tmp_path: Any) -> None:
    space = Space.from_dict(TRAINING)
    whole = sweep(space)
    for i in (1, 2):
        sweep(space, checkpoint=tmp_path / str(i), portion=(i, 2), points_per_part=5)
    assert merge([tmp_path / "1", tmp_path / "2"]).to_dict(timings=False) == whole.to_dict(timings=False)


def test_tiles_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space.from_dict(TRAINING)
    columns = space.decode(np.arange(space.size))
    whole = kind_named("training").evaluate(space, columns)
    monkeypatch.setattr("mlsysim.search.uncertainty.TILE", 50)
    parts = kind_named("training").evaluate(space, columns)
    for name, values in whole.items():
        np.testing.assert_array_equal(values, parts[name])


# --- percentiles ----------------------------------------------------------------------------------------------


def test_rows_have_the_percentiles_of_their_values() -> None:
    rng = np.random.default_rng(1)
    values = rng.lognormal(size=(20, 33))
    values[3, 5:9], values[4, :], values[5, 0], values[6] = np.nan, np.nan, np.inf, 2.5
    shares = (0, 5, 37.5, 50, 95, 100)
    for share, column in zip(shares, percentiles(values, shares), strict=True):
        for row, found in zip(values, column, strict=True):
            known = sorted(row[~np.isnan(row)].tolist())
            if known:
                assert found == pytest.approx(percentile(known, share), rel=1e-14)
            else:
                assert np.isnan(found)


# --- sentences ------------------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"uncertain": {"efficency": "0.3..0.6"}}, "did you mean 'efficiency'"),
    ({"uncertain": {"efficiency": "0.6..0.3"}}, "backwards"),
    ({"uncertain": {"efficiency": "0.3..1.6"}}, "at most 1"),
    ({"uncertain": {"efficiency": 0.5}}, "got float"),
    ({"uncertain": {"seq_len": "1..5"}}, "both fixed and uncertain"),
    ({"uncertain": {"batch_size": "1..5"}}, "on an axis"),
    ({"uncertain": {"peak": "1..5 TB/s"}}, "flop/s"),
    ({"uncertain": {"hardware.memory.speed": "1..5 TB/s"}}, "no field of MemoryHierarchy"),
    ({"uncertain": 5}, "must be a table"),
    ({"uncertain": {}}, "no meaning without"),
    ({"rank_by": "median"}, "percentile"),
    ({"rank_by": "p101"}, "percentile"),
    ({"rank_by": 90}, "percentile"),
    ({"rank_by": "pnan"}, "percentile"),
    ({"confidence": 0}, "'confidence'"),
    ({"confidence": 1.5}, "'confidence'"),
    ({"samples": 0}, "'samples'"),
    ({"seed": 1.5}, "'seed'"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED, ids=str)
def test_refuses_with_one_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        Space.from_dict(changed(NODE, **changes))
    text = str(caught.value)
    assert words in text and "\n" not in text and text[-1] in ".?", text


def test_optimizers_that_do_not_look_at_draws_refuse() -> None:
    for search in (optimize, branch_and_bound):
        with pytest.raises(InputError, match="without uncertain inputs"):
            search(Space.from_dict(NODE))


def test_what_a_space_file_may_say_is_in_its_schema() -> None:
    assert {"uncertain", "rank_by", "confidence", "samples", "seed"} <= set(schema("node")["properties"])


def test_the_command_prints_it(tmp_path: Any) -> None:
    file = tmp_path / "space.toml"
    file.write_text(
        'kind = "node"\nminimize = "latency_s"\nrank_by = "p95"\nsamples = 20\n'
        '[fixed]\nmodel = "Llama3_8B"\nhardware = "H100"\n[axes]\nbatch_size = [1, 2]\n'
        '[uncertain]\nefficiency = "0.001..0.6"\n"hardware.memory.bandwidth" = "3.0..3.35 TB/s"\n',
        encoding="utf-8",
    )
    done = CliRunner().invoke(app, ["sweep", str(file)])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "minimize latency_s at p95" in said
    assert "20 draws (seed 0): efficiency = 0.001..0.6; hardware.memory.bandwidth = 3..3.35 TB/s" in said
    assert "feasible in 100.0% of draws; binds: wall" in said


def test_the_zoo_is_left_alone() -> None:
    before = Hardware.H100.memory.bandwidth
    sweep(Space.from_dict(NODE))
    assert Hardware.H100.memory.bandwidth == before == Q_("3.35 TB/s")
    assert uncertain("1..2").value(1) == 1
