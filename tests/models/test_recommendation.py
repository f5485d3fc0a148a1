from __future__ import annotations

import pytest

from mlsysim import InputError, Models, RecommendationWorkload

SIZES = {"embedding_rows": (100, 50), "embedding_dim": 8, "dense_features": 4, "bottom_mlp": (4, 8), "top_mlp": (6, 1)}


def test_dot_interaction_by_hand():
    model = RecommendationWorkload(name="mine", **SIZES)
    width = 3 + 8
    dense = 4 * 8 + 8 + width * 6 + 6 + 6 + 1
    assert model.dense_parameter_count == dense
    assert model.derived_parameters == 150 * 8 + dense
    assert model.lower(batch_size=5).flops == 5 * 2 * (4 * 8 + 3 * 3 * 8 + width * 6 + 6)


def test_lookups_move_bytes_and_no_operations():
    model = RecommendationWorkload(name="mine", **SIZES, pooling=(3, 4))
    gather = model.lower(batch_size=10).operators[0]
    assert gather.flops == 0
    assert gather.input_bytes == 10 * 7 * 8 * 4
    assert gather.output_bytes == 10 * 2 * 8 * 4


def test_tables_keep_their_own_precision():
    model = RecommendationWorkload(name="mine", **SIZES)
    tables, dense = 150 * 8 * 4, model.dense_parameter_count
    assert model.size_in_bytes(precision="fp16").to("byte").magnitude == tables + 2 * dense
    assert model.lower(precision="fp16").weight_bytes.to("byte").magnitude == tables + 2 * dense


def test_capacity_is_in_the_tables_and_work_in_the_layers():
    model = Models.DLRM_MLPerf
    assert model.dense_parameter_count < 0.001 * model.parameter_count
    assert model.lower().flops < 0.001 * 2 * model.parameter_count


def test_the_cross_network_has_two_low_rank_products_a_layer():
    names = {op.name: op for op in Models.DLRM_DCNv2.lower().operators}
    assert (names["cross_down"].count, names["cross_down"].n, names["cross_down"].k) == (3, 512, 27 * 128)
    assert names["cross_up"].flops == names["cross_down"].flops


def test_sizes_that_do_not_fit_together_are_refused():
    with pytest.raises(InputError, match=r"mine: 3 pooling sizes for 2 tables\.$"):
        RecommendationWorkload(name="mine", **SIZES, pooling=(1, 2, 3))
    with pytest.raises(InputError, match=r"mine: the bottom layers must lead from 4 features to 8\.$"):
        RecommendationWorkload(name="mine", **{**SIZES, "bottom_mlp": (4, 7)})
