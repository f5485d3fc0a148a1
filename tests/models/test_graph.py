from __future__ import annotations

import pytest

from mlsysim import ComputationGraph, InputError, Models, Workload
from mlsysim.models.graph import sum_over
from mlsysim.models.types import Operator, TransformerWorkload, VisionLanguageWorkload


def test_totals_may_be_given_directly():
    graph = ComputationGraph("mine", total_ops="8.2 GFLOP", parameter_count="25.6 Mparam", weight_bytes="51.2 MB")
    assert graph.flops == graph.hardware_flops == pytest.approx(8.2e9)
    assert graph.arithmetic_intensity.to("flop/byte").magnitude == pytest.approx(8.2e9 / 51.2e6)


def test_totals_are_sums_over_calls():
    ops = [
        Operator("a", "gemm", "x", count=3, flops=10.0, weight_bytes=4.0, input_bytes=1.0),
        Operator("b", "gemm", "y", flops=5.0, output_bytes=2.0, direction="recompute"),
        Operator("c", "all_reduce", "y", groups=8, input_bytes=1000.0),
    ]
    graph = ComputationGraph("mine", operators=ops)
    assert (graph.flops, graph.hardware_flops, graph.bytes_moved) == (30, 35, 17)
    assert graph.weight_bytes.to("byte").magnitude == 12
    assert graph.arithmetic_intensity.magnitude == pytest.approx(30 / 17)
    assert graph.by_layer() == {"x": 30, "y": 5}
    assert ops[0].times(4).count == 12


def test_units_are_checked():
    with pytest.raises(
        InputError,
        match=r"^The 'total_ops' field got 5 GB, which is no number of operations; expected a number of operations",
    ):
        ComputationGraph("mine", total_ops="5 GB")
    with pytest.raises(InputError, match=r"^ComputationGraph 'mine' needs operators or total_ops\.$"):
        ComputationGraph("mine")


def test_a_new_workload_needs_only_lower():
    class Table(Workload):
        def lower(self, phase=None, **sizes):
            return ComputationGraph(self.name, total_ops="1 GFLOP", weight_bytes=self.size_in_bytes())

    graph = Table(name="table", parameters=1e6).lower()
    assert graph.weight_bytes.to("MB").magnitude == 2
    with pytest.raises(InputError, match=r"^Workload does not say how it lowers to operators; implement lower\(\)\.$"):
        Workload(name="nothing", parameters=1).lower()


def test_repr_says_what_it_is():
    assert repr(Models.Llama3_70B.lower()).startswith("ComputationGraph('Llama-3.1-70B', decode, ")


def full_pass(model):
    if isinstance(model, TransformerWorkload):
        return model.lower("inference" if model.structure == "encoder" else "prefill", batch_size=64, seq_len=2048)
    if isinstance(model, VisionLanguageWorkload) and model.image_tokens:
        return model.lower(seq_len=128)
    return model.lower()


@pytest.mark.parametrize("key", Models.keys())
def test_no_pass_reads_more_weights_than_there_are(key):
    graph = full_pass(Models[key])
    read = sum_over(graph.operators, "weight_bytes")
    assert 0 < read <= graph.weight_bytes.to("byte").magnitude * 1.005
    assert graph.flops > 0
    assert all(op.flops >= 0 and op.bytes >= 0 and op.count >= 0 for op in graph.operators)


@pytest.mark.parametrize("key", Models.keys())
def test_every_model_survives_json(key):
    model = Models[key]
    again = type(model).model_validate_json(model.model_dump_json())
    assert again == model
    assert again.lower().flops == model.lower().flops
