"""How replicas are split, and what a deployment refuses."""

from __future__ import annotations

import numpy as np
import pytest

from mlsysim.cases.deployment import Degrees, check_degrees
from mlsysim.errors import InputError
from mlsysim.models.registry import Models
from mlsysim.search.serving import evaluate
from mlsysim.search.space import Space
from mlsysim.units.registry import to_si
from mlsysim.walls.node.serving import ServingModel


def test_a_dense_model_has_no_experts_to_hold_twice() -> None:
    with pytest.raises(InputError, match="has no experts to hold twice"):
        check_degrees(Models.get("Llama3_8B"), tp=1, pp=1, ep=1, redundant=4)
    check_degrees(Models.get("DeepSeekV3"), tp=1, pp=1, ep=96, redundant=32)
    # SGLang's 72 devices, lmsys.org/blog/2025-05-05-large-scale-ep.
    with pytest.raises(InputError, match="are 32 and 64, or use redundant_experts=32"):
        check_degrees(Models.get("DeepSeekV3"), tp=1, pp=1, ep=72)


FIDELITIES = (0.5, "calibrated")


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_draft_model_holds_no_experts_twice(fidelity):
    """It has a layout of its own, whatever the experts of the model that it drafts for."""
    given = {"tp_size": 4, "ep_size": 4, "draft_model": "Llama3_8B", "efficiency": fidelity}
    twice, once = (ServingModel().solve("Mixtral_8x7B", "H200", 1000, redundant_experts=n, **given) for n in (4, None))
    assert twice.draft_time == once.draft_time


def solved(fidelity, model="DeepSeek_V3", **given):
    given = {"precision": "fp8", "output_len": 256, "concurrency": 256, "efficiency": fidelity} | given
    return ServingModel().solve(model, "H200", 1024, **given)


def test_degrees_of_a_replica():
    assert Degrees(8).devices == 8 and Degrees(8).groups == 1 and Degrees(8).experts == 1
    assert Degrees(8, 2, 8).devices == 16 and Degrees(8, 2, 8).groups == 1
    # An expert-parallel degree beyond the tensor group is groups of attention; so many groups have the experts between them.
    assert Degrees(2, 1, 16).groups == 8 and Degrees(2, 1, 16).width == 16
    assert Degrees(2, 1, 1, 8).experts == 16 and Degrees(2, 1, 1, 8).devices == 16
    assert Degrees(2, 1, 4, 8).experts == 4 and Degrees(2, 1, 4, 8).devices == 16


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_groups_of_attention_are_what_an_expert_degree_implies(fidelity):
    """One question, three ways to ask it."""
    asked = ({"ep_size": 8}, {"attention_dp": 8}, {"ep_size": 8, "attention_dp": 8})
    first, *others = (solved(fidelity, **degrees) for degrees in asked)
    for other in others:
        assert (other.tpot, other.ttft_at_concurrency, other.memory_per_device) == (
            first.tpot,
            first.ttft_at_concurrency,
            first.memory_per_device,
        )


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_latent_cache_is_copied_by_tensors_and_dealt_out_by_groups(fidelity):
    """Of 8 devices each holds the caches of all sequences with TP 8, of its own with groups of one device."""
    tensors, groups = solved(fidelity, tp_size=8, ep_size=8), solved(fidelity, attention_dp=8)
    held = [to_si(each.memory_breakdown["KV caches"], "byte") for each in (tensors, groups)]
    assert held[0] == pytest.approx(8 * held[1])
    # Everything but the experts is there eight times.
    weights = [to_si(each.memory_breakdown["weights"], "byte") for each in (tensors, groups)]
    assert weights[1] > weights[0]
    assert groups.max_batch_size > 4 * tensors.max_batch_size
    assert groups.longest_context <= tensors.longest_context


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_dense_cache_is_divided_either_way(fidelity):
    given = {"model": "Qwen3_235B_A22B", "precision": "fp8", "concurrency": 64}
    tensors, groups = solved(fidelity, tp_size=4, ep_size=4, **given), solved(fidelity, attention_dp=4, **given)
    held = [to_si(each.memory_breakdown["KV caches"], "byte") for each in (tensors, groups)]
    assert held[0] == pytest.approx(held[1])


@pytest.mark.parametrize(
    ("model", "degrees", "words"),
    [
        ("Llama3_8B", {"attention_dp": 4}, "none; use num_replicas"),
        ("DeepSeek_V3", {"attention_dp": 4, "tp_size": 2, "ep_size": 16}, "does not divide the 8 devices"),
        ("DeepSeek_V3", {"attention_dp": 3}, "does not divide"),
        ("DeepSeek_V3", {"attention_dp": 1, "ep_size": 8}, "does not divide the 1 device"),
    ],
)
def test_groups_that_cannot_be(model, degrees, words):
    with pytest.raises(InputError, match=words):
        solved("calibrated", model=model, **degrees)


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_sweep_over_groups_is_what_solve_says(fidelity):
    fixed = {"model": "DeepSeek_V3", "hardware": "H200", "precision": "fp8", "seq_len": 1024, "output_len": 256}
    axes = {"attention_dp": [8, 16, 32], "tp_size": [1, 2]}
    space = Space.from_dict(
        {"kind": "serving", "axes": axes, "fixed": fixed | {"efficiency": fidelity, "concurrency": 256}}
    )
    found = evaluate(space, space.decode(np.arange(space.size)))
    assert found["valid"].all()
    for index in range(space.size):
        point = solved(fidelity, cache_precision="bf16", **space.point(index))
        assert found["tpot_s"][index] == pytest.approx(to_si(point.tpot, "s"), rel=1e-9)
        assert found["memory_bytes"][index] == pytest.approx(to_si(point.memory_per_device, "byte"), rel=1e-9)
        assert found["devices"][index] == point.devices


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_copies_of_a_latent_cache_are_split_by_tokens(fidelity):
    """Of 8 devices that hold the same keys each keeps and reads a c-th; what they say to each other grows with c, and 1 is as before."""
    given = {"tp_size": 8, "ep_size": 8, "concurrency": 8}
    long = [
        ServingModel().solve("DeepSeek_V3", "H200", 60_000, precision="fp8", output_len=500, efficiency=fidelity, cp_size=c, **given)
        for c in (1, 2, 4, 8)
    ]  # fmt: skip
    plain = ServingModel().solve(
        "DeepSeek_V3", "H200", 60_000, precision="fp8", output_len=500, efficiency=fidelity, **given
    )
    assert plain.tpot == long[0].tpot and plain.memory_per_device == long[0].memory_per_device
    held = [to_si(each.memory_breakdown["KV caches"], "byte") for each in long]
    assert held == pytest.approx([held[0] / c for c in (1, 2, 4, 8)])
    assert all(each.tpot < plain.tpot for each in long[1:])
    assert [each.max_batch_size for each in long] == sorted(each.max_batch_size for each in long)
    sent = [sum(float(p.exposed) for p in each.ledger.parts if "context parallelism" in p.name) for each in long]
    assert sent[0] == 0 and sent == sorted(sent) and sent[3] > 0
    # A short context leaves nothing to gain, and its messages cost.
    short = [solved(fidelity, tp_size=8, ep_size=8, cp_size=c, concurrency=1, output_len=2).tpot for c in (1, 8)]
    assert short[1] > short[0]


@pytest.mark.parametrize(
    ("model", "tp", "cp"), [("Llama3_70B", 8, 2), ("DeepSeek_V3", 8, 3), ("DeepSeek_V3", 4, 8), ("Jamba_v0_1", 8, 2)]
)
def test_keys_that_have_no_copies_are_not_split(model, tp, cp):
    with pytest.raises(InputError, match=r"cp_size=\d splits copies of the keys by tokens"):
        solved("calibrated", model=model, tp_size=tp, cp_size=cp, precision="bf16")


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_sweep_over_parts_of_contexts_is_what_solve_says(fidelity):
    fixed = {"model": "DeepSeek_V3", "hardware": "H200", "precision": "fp8", "seq_len": 1024, "output_len": 256}
    more = {"efficiency": fidelity, "concurrency": 256, "ep_size": 8, "tp_size": 8}
    space = Space.from_dict({"kind": "serving", "axes": {"dcp": [1, 2, 3, 8]}, "fixed": fixed | more})
    found = evaluate(space, space.decode(np.arange(space.size)))
    assert found["valid"].tolist() == [True, True, False, True]
    for index in (0, 1, 3):
        degrees = {"tp_size": 8, "ep_size": 8, "cp_size": space.point(index)["dcp"]}
        point = solved(fidelity, cache_precision="bf16", **degrees)
        assert found["tpot_s"][index] == pytest.approx(to_si(point.tpot, "s"), rel=1e-9)
        assert found["memory_bytes"][index] == pytest.approx(to_si(point.memory_per_device, "byte"), rel=1e-9)
