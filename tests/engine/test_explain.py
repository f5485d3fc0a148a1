"""Explanations carry equation, numbers, value, source; comparisons say what changed and why."""

from __future__ import annotations

import pytest

from mlsysim import SingleNodeModel, compare, explain
from mlsysim.engine.explain import DifferentialExplainer
from mlsysim.errors import InputError


def test_text_markdown_latex() -> None:
    answer = SingleNodeModel().solve("Llama3_8B", "H100")
    text = explain(answer)
    assert "T_compute = F / (P eta)" in text and "P = 989 TFLOPs/s" in text and "eta = 0.5" in text
    assert "Sources:" in text and "Assumed:" in text and "What binds:" in text
    assert r"\frac{F}{P\,\eta}" in explain(answer, "markdown") and explain(answer, "latex").startswith(r"\[")
    with pytest.raises(InputError, match="result of a resolver"):
        explain(3)


def test_the_equation_of_the_case_at_hand() -> None:
    fits, spills = (SingleNodeModel().solve(m, "H100") for m in ("Llama3_8B", "Llama3_70B"))
    assert "T_memory = B / W" in explain(fits) and "spilled" not in explain(fits)
    assert "S spilled to the host" in explain(spills) and "L = 64 GB/s" in explain(spills)


def test_compare_names_factor_and_wall() -> None:
    before, after = (
        SingleNodeModel().solve("Llama3_8B", "H100", seq_len=s, phase=p) for s, p in ((0, "decode"), (4096, "prefill"))
    )
    difference = compare(before, after)
    assert difference.changes["mfu"].factor > 50
    assert "moves from Memory to Compute" in str(difference)
    assert difference.to_dict()["changes"]["latency"]["factor"] > 1
    same = compare(before, before)
    assert "Nothing changes" in str(same) and "same wall" in same.reason
    assert DifferentialExplainer.compare_performance(before, after) == str(difference)


def test_only_like_is_compared_with_like() -> None:
    from mlsysim import ScalingModel

    with pytest.raises(InputError, match="two answers of one resolver"):
        compare(SingleNodeModel().solve("Llama3_8B", "H100"), ScalingModel().solve("1e23 flop"))
