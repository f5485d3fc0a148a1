"""The fit of engines asks the very case that answers are read off."""

from __future__ import annotations

import csv
import tomllib
from importlib.resources import files

import numpy as np
import pytest

from mlsysim.calibrate import fit_iterations
from mlsysim.calibrate.fit_serving import Run, priors, run_of, write
from mlsysim.calibrate.fitting import table_of
from mlsysim.calibrate.posterior import together
from mlsysim.calibrate.questions import Excluded, Skipped, predicted
from mlsysim.calibrate.tables import TABLES
from mlsysim.models.registry import Models
from mlsysim.timing.engines import ANY, architecture, engine
from tests.calibrate.test_serving_tables import ROW, RUN

APART = RUN | {
    "mode": "disagg", "model": "deepseek-ai/DeepSeek-V3", "gpu": "h200_sxm", "concurrency": "64", "tp": "", "attention_dp": "",
    "prefill_workers": "1", "prefill_tp": "8", "prefill_attention_dp": "1", "prefill_moe_tp": "8", "prefill_moe_ep": "1",
    "decode_workers": "1", "decode_tp": "8", "decode_attention_dp": "1", "decode_moe_tp": "8", "decode_moe_ep": "1",
    "engine": "sglang",
}  # fmt: skip
MASKED = ROW | {
    "source": "trtllm-0.9.0", "model": "falcon-180b", "gpu": "H200", "n_gpus": "4", "tp": "4", "precision_weights": "fp8",
    "isl": "128", "osl": "2048", "batch_or_concurrency": "1024", "scenario": "static batch offline",
}  # fmt: skip


def test_settings_of_an_engine_are_fitted_with_it():
    """Runs of the table's own tool let prompts join steps of answers, which SGLang by itself does not; all of them are SGLang's."""
    own, others = (
        run_of("serving_runs", RUN | {"source": "aiconfigurator-x", "engine": "sglang", "client": client})
        for client in ("", "closed loop, 10")
    )
    assert own is not None and others is not None
    mixed, plain = own.machine.writer.engine, others.machine.writer.engine
    assert (mixed.name, plain.name) == ("SGLang", "SGLang")
    assert (mixed.policy, plain.policy) == ("mixed", "prefill_first")
    assert own.predicted({}, (1.0, 1.0, 1.0)) != others.predicted({}, (1.0, 1.0, 1.0))


@pytest.mark.parametrize(("table", "row"), [("serving_runs", RUN), ("serving_runs", APART), ("inference", ROW)])
def test_the_case_gives_the_public_answer(table: str, row: dict[str, str]) -> None:
    run = run_of(table, row)
    assert run is not None
    runner = run.machine.writer.engine
    factors = run.machine.writer.factors or (1.0, 1.0, 1.0)
    found = run.predicted({"step": runner.step, "per_sequence": runner.per_sequence}, factors)
    answers = [predicted(question).predicted for question in TABLES[table].questions(row)]
    assert found == pytest.approx(answers, rel=1e-9)


def test_many_candidates_are_as_many_answers() -> None:
    run = run_of("serving_runs", RUN)
    assert run is not None
    steps = np.array([1e-4, 5e-4, 2e-3])
    together = run.predicted({"step": steps}, (np.ones(3), np.ones(3), np.ones(3)))
    for i, step in enumerate(steps.tolist()):
        assert [value[i] for value in together] == pytest.approx(
            run.predicted({"step": step}, (1.0, 1.0, 1.0)), rel=1e-12
        )
    assert (np.diff(together[0]) > 0).all()


def test_what_is_left_out_together() -> None:
    run = run_of("serving_runs", RUN)
    assert run is not None
    left = together([run] * 8, ("model", "chip"), 4)
    assert [name.split(" ")[0] for name in left] == ["model", "chip", "part", "part", "part", "part"]
    assert np.sum([mask for name, mask in left.items() if name.startswith("part")], axis=0).tolist() == [1] * 8


def test_offline_rows_say_nothing_of_a_front_end() -> None:
    run = run_of("inference", ROW)
    assert isinstance(run, Run)
    assert "front_end" not in priors("TensorRT_LLM_Cpp_2025", [run])
    assert "hand_over" not in priors("TensorRT_LLM_Cpp_2025", [run])


def test_the_share_of_vector_units_is_fitted_where_query_heads_are_computed_one_by_one() -> None:
    rows = [MASKED, MASKED | {"source": "trtllm-0.11.0"}]
    alone, grouped = (run_of("inference", row) for row in rows)
    assert alone is not None and grouped is not None
    assert "masked_share" in priors("TensorRT_LLM_Cpp", [grouped, alone])
    assert "masked_share" not in priors("TensorRT_LLM_Cpp", [grouped])
    shares = {"masked_share": np.array([0.1, 0.2])}
    slow, fast = alone.predicted(shares, (np.ones(2),) * 3)[0].tolist()
    assert slow < 0.9 * fast
    same = np.broadcast_to(grouped.predicted(shares, (np.ones(2),) * 3)[0], 2).tolist()
    assert same[0] == same[1]


def test_expert_factors_start_from_those_of_the_engine_that_is_followed() -> None:
    run = run_of("serving_runs", APART)
    assert run is not None
    assert priors("SGLang", [run], {"experts_fp8": 0.9, "experts_int4": 0.9})["experts_fp8"] == (0.9, 0.2)
    assert "experts_int4" not in priors("SGLang", [run], {"experts_int4": 0.9})  # no row has such experts
    assert priors("SGLang", [run])["experts_fp8"] == (1.0, 0.25)


def test_every_shipped_constant_is_near_its_prior_and_those_that_rows_do_not_hold_are_listed() -> None:
    shipped = tomllib.loads(files("mlsysim.data").joinpath("software/engine_constants.toml").read_text())
    assert set(shipped) == {*table_of("engine_priors")["launches"], fit_iterations.ENGINE}
    for name, table in shipped.items():
        runner = engine(name)
        for key, (median, spread, *_) in priors_of(name).items():
            assert abs(np.log(getattr(runner, key) / median)) < 3.5 * spread, (name, key)
        loose = []
        for key, (_, *ends) in table["spread"].items():
            value, low, high = (float(str(each).split(" ")[0]) for each in (table[key], *ends))
            assert low <= high
            if high > 1.5 * value or low < value / 1.5:
                loose.append(key)
        assert table["loose"] == loose


def priors_of(name: str) -> dict[str, tuple[float, ...]]:
    table = table_of("engine_priors")
    if name == fit_iterations.ENGINE:
        return table[name]
    return table["every"] | table[table["launches"][name]] | table.get(name, {})


def test_checkpoints_of_one_architecture_are_one_model() -> None:
    assert architecture(Models.DeepSeek_V3) == architecture(Models.DeepSeek_R1)
    assert architecture(Models.Llama3_8B) != architecture(Models.Llama3_70B)


def test_a_small_table_gives_constants_and_residuals(tmp_path) -> None:
    with (tmp_path / "serving_runs.csv").open("w", newline="") as stream:
        made = [RUN | {"id": f"{c}", "concurrency": f"{c}", "tpot_ms": f"{8 + 0.1 * c}"} for c in (4, 16, 32, 64)]
        writer = csv.DictWriter(stream, list(made[0]))
        writer.writeheader()
        writer.writerows(made)
    left = write(tmp_path, tmp_path / "out.toml")
    found = tomllib.loads((tmp_path / "out.toml").read_text())[left[0].software]
    assert found["chips"] and found["spread"]["step"][0] > 1
    of_model, in_format, other, alike = found["models"].values()
    assert list(found["models"])[-2:] == [ANY, f"{ANY} fp8"]
    # Of one model, half of the logarithm is expected of another, and half of the rest in the same format.
    assert other["prompts"] ** 2 == pytest.approx(in_format["prompts"], rel=1e-3) != of_model["prompts"]
    assert alike["prompts"] == pytest.approx(in_format["prompts"] ** 0.75, rel=1e-3)
    assert {row.left_out for row in left} == {"model", "chip", "part"}
    write(tmp_path, tmp_path / "again.toml")
    assert (tmp_path / "again.toml").read_text() == (tmp_path / "out.toml").read_text()


@pytest.mark.parametrize("bad", [RUN | {"unusable": "lost requests"}, RUN | {"gpu": "abacus"}])
def test_rows_that_cannot_be_asked_are_refused_like_everywhere(bad: dict[str, str]) -> None:
    with pytest.raises((Skipped, Excluded)):
        run_of("serving_runs", bad)


def test_a_model_that_states_no_size_has_an_architecture() -> None:
    imported = Models.Llama3_8B.model_copy(update={"parameters": None})
    assert architecture(imported) == architecture(Models.Llama3_8B)
