"""One question, one answer: a point of a training space is what `mlsysim train` says of the same plan."""

from __future__ import annotations

import numpy as np
import pytest

from mlsysim.errors import InputError
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.search.answers import answer
from mlsysim.search.space import Space
from mlsysim.search.training import evaluate
from mlsysim.units.registry import to_si

LAYOUTS = {
    "dense": {"model": "Llama3_70B", "batch_size": 512, "tp": 8, "pp": 2, "zero": 1, "micro_batches": 16},
    "nothing but degrees": {"model": "GPT3_13B", "batch_size": 256, "tp": 4, "micro_batches": 8},
    "experts": {"model": "Mixtral_8x7B", "batch_size": 256, "tp": 2, "ep": 8, "zero": 1, "micro_batches": 2},
    "muon": {"model": "Llama3_8B", "batch_size": 256, "zero": 3, "optimizer": "muon", "micro_batches": 2},
    "not hidden": {"model": "Llama3_8B", "batch_size": 256, "zero": 2, "overlap_comm": False, "micro_batches": 2},
    "parts again": {"model": "Llama3_8B", "batch_size": 256, "zero": 1, "recomputed": "norm", "micro_batches": 4},
    "no pipeline": {"model": "Llama3_8B", "batch_size": 256, "zero": 1, "schedule": "gpipe", "micro_batches": 4},
    "adapters": {"model": "Llama3_8B", "batch_size": 256, "lora_rank": 16, "micro_batches": 2, "tp": 1},
}
OUTPUTS = {"latency": ("step_time_s", "s"), "memory": ("memory_bytes", "byte"), "mfu": ("mfu", "")}


@pytest.mark.parametrize("efficiency", [0.5, "calibrated", None, "an axis"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_point_is_the_plan(name, efficiency):
    given = dict(LAYOUTS[name])
    axes = {"batch_size": [given.pop("batch_size")]}
    if efficiency == "an axis":
        axes["efficiency"] = [0.5]
    elif efficiency is not None:
        given["efficiency"] = efficiency
    here = {"node": "DGX_H100", "fabric": "InfiniBand_NDR", "nodes": 8}
    space = Space.from_dict({"kind": "training", "fixed": {**given, **here}, "axes": axes})
    columns = space.decode(np.arange(1))
    found = evaluate(space, columns)
    said = {key: value[0] for key, value in axes.items()}
    plan = evaluate_plainly(Plan(task="training", **given, **said, hardware={"on": "8xDGX_H100@InfiniBand_NDR"}))
    assert found["valid"][0] and bool(found["feasible"][0]) is plan.feasible
    for metric, (output, unit) in OUTPUTS.items():
        value = plan.held[metric].value
        expected = to_si(value, unit) if unit else value
        assert found[output][0] == pytest.approx(expected, rel=1e-12), metric
    # What is said of the point by one resolver is the same again.
    explained = answer(space, space.point(0))
    assert found["step_time_s"][0] == pytest.approx(to_si(explained.step_latency_total, "s"), rel=1e-12)


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
@pytest.mark.parametrize(
    ("node", "counts"), [("GB200_NVL72", [4, 72, 512, 577, 2560]), ("DGX_H100", [1, 4, 8, 12, 13, 16])]
)
def test_parts_of_racks_and_nodes_are_taken_in_every_face(node, counts, efficiency):
    """512 GB200 are 64 of 72 in each of 8 racks, however they are said; 12 H100 are three halves of nodes; 577 and 13 fill nothing, and are no designs of a sweep."""
    shared = {"model": "Llama3_8B", "micro_batch": 1, "zero": 1, "batch_size": 46_080, "efficiency": efficiency}
    here = {"node": node, "fabric": "InfiniBand_NDR"}
    space = Space.from_dict({"kind": "training", "fixed": {**shared, **here}, "axes": {"accelerators": counts}})
    found = evaluate(space, space.decode(np.arange(space.size)))
    for place, count in enumerate(counts):
        hardware = {"name": node, "accelerators": count, "fabric": "InfiniBand_NDR"}
        if count in (13, 577):
            assert not found["valid"][place]
            with pytest.raises(InputError, match=r"nodes of \d+ .*use"):
                evaluate_plainly(Plan(task="training", **shared, tp=1, hardware=hardware))
            continue
        for where in (hardware, {"on": f"{count}x{node.partition('_')[0] if 'GB200' in node else 'H100'}@NDR"}):
            plan = evaluate_plainly(Plan(task="training", **shared, tp=1, hardware=where))
            assert found["step_time_s"][place] == pytest.approx(to_si(plan.value("latency"), "s"), rel=1e-12)
        assert answer(space, space.point(place)).accelerators == count


def test_replicas_that_size_a_fleet_may_fill_parts_of_racks():
    fixed = {"model": "Llama3_8B", "micro_batch": 1, "batch_size": 46_080, "efficiency": 0.5, "zero": 1}
    fixed |= {"node": "GB200_NVL72", "fabric": "InfiniBand_NDR"}
    sized = Space.from_dict({"kind": "training", "fixed": fixed, "axes": {"dp": [64, 512], "tp": [1, 8]}})
    counted = Space.from_dict({"kind": "training", "fixed": fixed | {"accelerators": 512}, "axes": {"tp": [1, 8]}})
    found, same = (evaluate(space, space.decode(np.arange(space.size))) for space in (sized, counted))
    assert found["valid"].all()
    assert found["step_time_s"][[2, 1]] == pytest.approx(same["step_time_s"], rel=1e-12)
