"""Plans with recorded requests: a trace ends, so that it is played however late its answers are."""

from __future__ import annotations

import pytest

from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan

HEAD = "arrival_s,input_tokens,output_tokens\n"


def answer(trace):
    serving = {"trace": str(trace), "engine": "vLLM"}
    return evaluate_plainly(
        Plan.model_validate(
            {"task": "serving", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "1xH100"}, "serving": serving}
        )
    )


def test_more_than_is_answered_for_a_while(tmp_path):
    """200 prompts of 4,000 tokens within two seconds: the last waits for those before it, and the answer says how long."""
    trace = tmp_path / "rush.csv"
    trace.write_text(HEAD + "".join(f"{i / 100},4000,100\n" for i in range(200)))
    found = answer(trace)
    first, last = (found.metric(f"ttft_{level}").value.to("s").magnitude for level in ("p50", "p99"))
    assert found.feasible and last > 1.5 * first > 3


def test_all_at_once(tmp_path):
    trace = tmp_path / "batch.csv"
    trace.write_text(HEAD + "0,500,50\n" * 64)
    found = answer(trace)
    assert found.metric("e2e_p99").value >= found.metric("ttft_p99").value
    assert any("all at once" in str(said) for said in found.assumptions.values())
    # A batch of 64 takes less than 64 requests alone.
    alone = tmp_path / "one.csv"
    alone.write_text(HEAD + "0,500,50\n")
    assert found.metric("e2e_p99").value < 16 * answer(alone).metric("e2e_p99").value


@pytest.mark.parametrize("name", ["azure-code", "mooncake-conversation"])
def test_shipped_names(name):
    serving = {"trace": name, "requests": 300}
    plan = {"task": "serving", "workload": {"model": "Llama3_1_8B"}, "hardware": {"on": "1xH200"}, "serving": serving}
    found = evaluate_plainly(Plan.model_validate(plan), quick=True)
    assert any(f"300 requests of {name}" in str(said) for said in found.assumptions.values())
