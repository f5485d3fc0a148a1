"""The terms of a step run on arrays as on floats: one source for one answer and for a sweep."""

from __future__ import annotations

import numpy as np
import pytest
from mlsysim.cases.step import Network, step_terms

from mlsysim.cases.layout import choose_micro_batches, divisors, place

NET = Network(450e9, 0.5e-6, 50e9, 5e-6)


def terms(**changes: object):
    call = {
        "compute": 0.5,
        "micro_batches": 8,
        "idle": 3,
        "stage_layers": 20,
        "tensor_message": 1e8,
        "tensor_sums": 4,
        "tensor_ranks": 8,
        "expert_message": 1e7,
        "expert_layers": 10,
        "expert_ranks": 4,
        "context_message": 1e6,
        "context_ranks": 2,
        "boundary_message": 1e7,
        "boundaries": 1,
        "gradient_bytes": 1e10,
        "zero_stage": 1,
        "place": place(8, 8, 4, 4, 2, 16),
        "net": NET,
        "hide_data": 0.85,
        "hide_tensor": 0.0,
        "hide_expert": 0.0,
        "hide_context": 0.85,
        "hide_pipeline": 0.85,
        "congestion": 1.0,
    }
    return step_terms(**{**call, **changes})


def test_arrays_equal_floats() -> None:
    rng = np.random.default_rng(7)
    tp = rng.choice([1, 2, 4, 8, 16], 200)
    dp = rng.choice([1, 2, 8, 64], 200)
    zero = rng.integers(0, 4, 200)
    message = rng.uniform(1e6, 1e9, 200)
    micro = rng.integers(1, 64, 200).astype(float)
    together = terms(
        tensor_ranks=tp,
        tensor_message=message,
        zero_stage=zero,
        micro_batches=micro,
        place=place(8, tp, 4, 4, 2, dp),
    )
    for i in range(200):
        alone = terms(
            tensor_ranks=int(tp[i]),
            tensor_message=float(message[i]),
            zero_stage=int(zero[i]),
            micro_batches=float(micro[i]),
            place=place(8, int(tp[i]), 4, 4, 2, int(dp[i])),
        )
        for name in ("step", "tensor", "data", "bubble", "exposed_data", "expert", "context", "pipeline"):
            assert np.broadcast_to(getattr(together, name), 200)[i] == pytest.approx(getattr(alone, name), rel=1e-12)


def test_groups_of_one_say_nothing() -> None:
    alone = terms(
        tensor_ranks=1,
        expert_ranks=1,
        context_ranks=1,
        boundaries=0,
        idle=0,
        place=place(8, 1, 1, 1, 1, 1),
    )
    assert (alone.tensor, alone.expert, alone.context, alone.pipeline, alone.data) == (0, 0, 0, 0, 0)
    assert alone.step == pytest.approx(8 * 0.5)


def test_hidden_communication_never_exceeds_the_work_it_hides_behind() -> None:
    long = terms(gradient_bytes=1e14, hide_data=1.0)
    assert long.exposed_data == pytest.approx(long.data - 2 / 3 * 8 * 0.5)


def test_placement() -> None:
    inside = place(8, 4, 1, 1, 1, 16)
    assert (inside.tp_per_node, inside.tp_nodes, inside.dp_per_node, inside.dp_nodes) == (4, 1, 2, 8)
    across = place(8, 16, 1, 1, 1, 4)
    assert (across.tp_per_node, across.tp_nodes, across.dp_per_node, across.dp_nodes) == (8, 2, 1, 4)


def test_divisors_and_default_micro_batches() -> None:
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
    assert choose_micro_batches(48, 1) == 1
    assert choose_micro_batches(48, 4) == 16
    assert choose_micro_batches(7, 4) == 7
