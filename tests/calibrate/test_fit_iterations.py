"""Constants of an engine from its iterations: planted ones are found, and a run is judged by what the others say."""

from __future__ import annotations

import csv
import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest

from mlsysim.calibrate import fit_iterations
from mlsysim.calibrate.fit_serving import SHIPPED, write_tables
from mlsysim.calibrate.fitting import table_of
from mlsysim.calibrate.posterior import Prior, posterior
from mlsysim.cases.iterations import Iterations
from mlsysim.cases.traffic import Habits
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.simulate.steps import Steps
from mlsysim.timing.engine_step import engine_step
from mlsysim.timing.engines import engine

PLANTED = {"host_operator": 2.6e-5, "context_scale": 1.4, "prompt_operators": 4.0}


def _written(folder: Path, slower: float) -> None:
    """Two runs and a repetition of the second, whose iterations all take ``slower`` times as long."""
    step = engine_step(Models.get("Llama3_8B"), Hardware.get("H200"), engine("torch_loop").model_copy(update=PLANTED))
    steps, draw = Steps(Iterations(step), Habits()), random.Random(3)
    head = [
        "run",
        "iteration",
        "start_s",
        "end_s",
        "decodes",
        "decode_context_tokens",
        "prefill_tokens",
        "chunks",
        "waiting",
    ]
    with gzip.open(folder / "iterations.csv.gz", "wt", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(head)
        for run, factor in (("a", 1.0), ("b", slower), ("b2", slower)):
            now = 0.0
            for number in range(400):
                n, context = draw.choice((1, 7, 30, 100, 180)), draw.randrange(100, 3000)
                attended = n * steps.contexts.at(context)[0]
                chunks = [(draw.choice((0, 600)), draw.choice((64, 200, 1000, 1900)))] * draw.choice((0, 0, 1, 2))
                tokens = sum(new for _, new in chunks)
                seconds = (
                    steps.mixed(n, attended, tokens, len(chunks), sum(steps.chunk(new, old) for old, new in chunks))
                    if chunks
                    else steps.decode_time(n, attended)
                )
                row = n, n * (context + 1), tokens, json.dumps(chunks), 0
                table.writerow((run, number, now, now + 0.9 * factor * seconds, *row))
                now += factor * seconds
    runs = ["run,model,workload", "a,llama3-8b,Poisson", "b,llama3-8b,other", "b2,llama3-8b,as b"]
    (folder / "runs.csv").write_text("\n".join(runs) + "\n")


def test_planted_constants_are_found(tmp_path: Path) -> None:
    _written(tmp_path, 1.0)
    fitted = fit_iterations.fit(tmp_path)
    found = fitted.constants()
    for name, value in PLANTED.items():
        assert found[name] == pytest.approx(value, rel=0.1), name
    assert abs(fitted.found.errors[:, 0]).mean() < 0.01


def test_a_run_and_what_repeats_it_are_left_out_together(tmp_path: Path) -> None:
    """Where a run is 30 % slower than the other, constants without it do not know."""
    _written(tmp_path, 1.3)
    fitted = fit_iterations.fit(tmp_path)
    assert fitted.groups == {"a": ["a"], "b": ["b", "b2"]}
    blind = fitted.found.errors[[kind.members[0].run != "a" for kind in fitted.kinds], 2]
    assert blind.mean() == pytest.approx(-0.26, abs=0.03)
    assert fitted.constants("b2") == fitted.constants("b") != fitted.constants()


def test_writing_an_engine_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    out = tmp_path / "engine_constants.toml"
    write_tables(out, {})
    assert out.read_bytes() == SHIPPED.read_bytes()


def test_the_form_holds_for_models_that_a_loop_was_not_fitted_on():
    """Five models of 0.5 to 14 B in another loop of this kind, each predicted from the other four; and by this engine's own constants, whose host takes
    0.14 ms longer a step."""
    kinds = fit_iterations.other_models()
    names = np.array([kind.members[0].run for kind in kinds])
    models = sorted(set(names.tolist()))
    table = table_of("engine_priors")[fit_iterations.ENGINE]
    known = {key: Prior(*value[:2]) for key, value in table.items()}
    rows = [kind.row() for kind in kinds]
    found = posterior(rows, known, (), [names == model for model in models])
    assert len(models) == 5 and len(kinds) > 80
    for number, model in enumerate(models, 1):
        assert np.median(np.abs(found.errors[names == model, number])) < 0.03, model
    shipped = np.array([row.predict({}, ())[0] / row.measured[0] - 1 for row in rows])
    assert np.median(np.abs(shipped[np.isin(names, ("Llama-3.2-3B", "Qwen2.5-14B"))])) < 0.06
    assert all(np.median(np.abs(shipped[names == model])) < 0.15 for model in models)
