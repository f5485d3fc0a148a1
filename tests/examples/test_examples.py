from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "src" / "mlsysim" / "examples"


def test_there_are_examples() -> None:
    assert (EXAMPLES / "retrieval_augmented.py").is_file()


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("[!_]*.py")), ids=lambda path: path.name)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "error::UserWarning"}
    run = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
    assert not run.stderr.strip()


def test_retrieval_adds_the_search_to_what_the_models_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from retrieval_augmented import RetrievalAugmentedWorkload

    from mlsysim import Models

    workload = RetrievalAugmentedWorkload(
        name="mine", encoder=Models.BERT_Base, generator=Models.Llama3_8B, vectors=1000, vector_dim=768, passages=2
    )
    graph = workload.lower(batch_size=3, query_tokens=10)
    models = Models.BERT_Base.lower(batch_size=3, seq_len=10).flops
    models += Models.Llama3_8B.lower("prefill", batch_size=3, seq_len=10 + 2 * 256).flops
    assert graph.flops == models + 3 * 2 * 1000 * 768
    assert graph.by_layer()["search"] == 3 * 2 * 1000 * 768
    assert graph.weight_bytes.to("byte").magnitude == 2 * (workload.parameter_count + 1000 * 768)
