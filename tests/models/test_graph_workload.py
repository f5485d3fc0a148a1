"""A network by its operators: laws of batch and precision, the walls, and the user's zoo."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import DistributedModel, SingleNodeModel
from mlsysim.errors import InputError
from mlsysim.importers.user_zoo import check_user_zoo, save_model
from mlsysim.models.fixed_shape import GraphWorkload
from mlsysim.models.registry import Models

OPERATORS = (
    {"name": "conv", "kind": "conv", "m": 100, "n": 8, "k": 27, "flops": 43200, "weights": 216, "parameters": 216, "inputs": 300, "outputs": 800, "count": 2},
    {"name": "attention", "kind": "attention", "m": 10, "n": 10, "k": 8, "groups": 2, "kv_heads": 2, "flops": 6400, "inputs": 160, "outputs": 160, "cache": 320},
    {"name": "head", "kind": "gemm", "m": 1, "n": 10, "k": 8, "flops": 160, "weights": 80, "parameters": 80, "inputs": 8, "outputs": 10},
)  # fmt: skip


def network(**changes):
    return GraphWorkload(**{"name": "net", "operators": OPERATORS, **changes})


@given(st.integers(1, 1000), st.sampled_from(["fp32", "fp16", "fp8"]))
def test_work_grows_with_the_batch_and_weights_do_not(batch, precision):
    one, many = network().lower(precision=precision), network().lower(batch_size=batch, precision=precision)
    assert many.flops == batch * one.flops == batch * (2 * 43200 + 6400 + 160)
    assert many.weight_bytes == one.weight_bytes
    for a, b in zip(one.operators, many.operators, strict=True):
        assert b.weight_bytes == a.weight_bytes and b.input_bytes == batch * a.input_bytes
        grown = "groups" if a.kind == "attention" else "m"
        assert getattr(b, grown) == batch * getattr(a, grown)


def test_it_solves_on_one_chip_and_on_many():
    model = network()
    assert model.parameter_count == 2 * 216 + 80
    for efficiency in (0.5, "calibrated"):
        for training in (False, True):
            found = SingleNodeModel().solve(model, "H100", batch_size=8, efficiency=efficiency, is_training=training)
            assert found.feasible and 0 < found.latency.to("s").magnitude < 1
    assert DistributedModel().solve(model, "Research_256", 256).step_latency_total.magnitude > 0


def test_it_is_saved_and_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("MLSYSIM_ZOO", str(tmp_path))
    try:
        save_model(network(sample="x 3x10x10"), "My_Net")
        assert Models.get("My_Net").operators == network().operators
        assert [str(problem) for problem in check_user_zoo()] == []
    finally:
        monkeypatch.undo()
        Models.reload()


@pytest.mark.parametrize(
    "changes",
    [
        {"operators": ()},
        {"operators": ({**OPERATORS[1]},)},
        {"operators": ({**OPERATORS[0], "kind": "magic"},)},
        {"operators": ({**OPERATORS[0], "flops": -1},)},
        {"operators": ({**OPERATORS[0], "flops": float("nan")},)},
    ],
)
def test_what_is_no_network_is_refused(changes):
    with pytest.raises(InputError):
        network(**changes)
