"""Training of recommenders: tables are spread over devices, rows are looked up and scattered back, layers are copied."""

from __future__ import annotations

import numpy as np
import pytest

from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.search.training import evaluate
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.units.registry import to_si
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.fleet.step_inputs import FIRST_ORDER
from mlsysim.walls.node.compute_memory import SingleNodeModel

DCN = Models.get("DLRM_DCNv2")


def step(on: str, batch: int, efficiency: object = "calibrated", model: object = DCN, **options: object):
    return DistributedModel().solve(model, parse_fleet(on).one, batch, "bf16", efficiency, **options)


# MLPerf training, DLRM-DCNv2 with HugeCTR in half precision and Adagrad (one state); what a step takes beside its operators is of H100 steps of 4.0.
MLPERF = [
    ("4xH100", 49152, 7.32e6),  # v4.1, Fujitsu
    ("8xH100", 55296, 13.74e6),  # v4.1, NVIDIA
    ("64xH100", 135168, 49.1e6),  # v4.1, NVIDIA
    ("8xB200", 55296, 22.8e6),  # v5.0, NVIDIA
    ("8xGB200", 55296, 23.74e6),  # v5.0, NVIDIA
    ("8xH200", 55296, 15.11e6),  # v4.0, NVIDIA
]


@pytest.mark.parametrize(("on", "batch", "measured"), MLPERF)
def test_published_steps(on: str, batch: int, measured: float) -> None:
    found = step(on, batch, optimizer="momentum")
    rate = to_si(found.effective_throughput, "1/s")
    assert rate == pytest.approx(measured, rel=0.1)
    low, high = (batch / to_si(time, "s") for time in reversed(found.step_interval))
    assert low < measured < high


def test_a_row_that_several_samples_look_up_is_read_once() -> None:
    """One sample hits nearly as many rows as it draws; the small tables of a batch are read once, the large ones at nearly every draw."""
    assert 0.9 < DCN.distinct_share(1) <= 1.0
    shares = DCN.distinct_share(np.array([1.0, 1e3, 55296.0, 1e9]))
    assert (np.diff(shares) < 0).all()
    drawn = 55296 * np.array(DCN.pooling)
    exact = sum(rows * (1 - (1 - 1 / rows) ** k) for rows, k in zip(DCN.embedding_rows, drawn, strict=True))
    assert shares[2] == pytest.approx(exact / drawn.sum(), rel=1e-4)
    assert shares[3] * 1e9 * DCN.lookups_per_sample == pytest.approx(sum(DCN.embedding_rows), rel=1e-6)


def test_modes_of_recomputation_together_are_what_each_is_alone() -> None:
    """A plan whose tables do not fit tries all of them at once."""
    modes = np.array(["none", "selective", "full"])
    fixed = {"model": "DLRM", "node": "DGX_H100", "fabric": "InfiniBand_NDR", "precision": "bf16"}
    fixed |= {"accelerators": 1, "batch_size": 512, "efficiency": "calibrated"}
    together = evaluate(fixed, {"activation_recomputation": modes})["step_time_s"]
    alone = [evaluate(fixed, {"activation_recomputation": modes[i : i + 1]})["step_time_s"][0] for i in range(3)]
    assert together.tolist() == alone
    assert alone[0] == alone[1] < alone[2]
    asked = {"task": "training", "workload": {"model": "DLRM", "batch_size": 512}, "hardware": {"on": "H100"}}
    assert evaluate_plainly(Plan.model_validate(asked)).binding.wall == 2


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
def test_gradients_of_tables_are_not_summed(efficiency: object) -> None:
    """Their sum would be 8 x 26 GB over the fabric and take 300 ms; a published step takes 4."""
    found = step("8xH100", 55296, efficiency, update_step=True)
    parts = {part.name: part for part in found.ledger.parts}
    layers = DCN.parameter_count - DCN.table_parameters
    assert parts["gradient synchronisation"].sent < 10 * layers
    pooled = 55296 / 8 * 26 * 128 * 2
    assert parts["table exchange"].sent == pytest.approx(2 * pooled * 7 / 8)
    assert to_si(found.step_latency_total, "s") < 0.01
    assert sum(part.exposed for part in found.ledger.parts) == pytest.approx(found.ledger.seconds)


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
def test_tables_are_spread_over_all_devices(efficiency: object) -> None:
    def held(on: str) -> float:
        return float(to_si(step(on, 65536, efficiency).memory_breakdown["weights"], "byte"))

    layers = DCN.parameter_count - DCN.table_parameters
    for count in (8, 64):
        assert held(f"{count}xH100") == pytest.approx(4 * DCN.table_parameters / count + 2 * layers, rel=1e-6)
    assert not step("1xH100", 4096, efficiency).feasible


def test_a_fleet_of_one_is_the_node() -> None:
    alone = step("1xH200", 8192, model=Models.get("DLRM_RM1"))
    node = SingleNodeModel().solve("DLRM_RM1", Hardware.get("H200"), 8192, "bf16", "calibrated", is_training=True)
    assert to_si(alone.step_latency_total, "s") == pytest.approx(to_si(node.latency, "s"), rel=1e-12)
    for ours, its in zip(alone.step_interval, node.interval, strict=True):
        assert to_si(ours, "s") == pytest.approx(to_si(its, "s"), rel=1e-12)


def test_a_sweep_is_what_solve_gives() -> None:
    fixed = {"model": "DLRM_DCNv2", "node": "DGX_H100", "fabric": "InfiniBand_NDR", "precision": "bf16"}
    columns = {"nodes": np.array([1.0, 2.0, 8.0]), "batch_size": np.array([55296.0, 65536.0, 131072.0])}
    for efficiency in (0.5, "calibrated"):
        found = evaluate({**fixed, "efficiency": efficiency}, columns)
        for place, (nodes, batch) in enumerate(zip(*columns.values(), strict=True)):
            # As in a plan, a first-order point counts the optimizer's work and hides gradients behind the backward pass.
            planned = {} if efficiency == "calibrated" else FIRST_ORDER
            one = step(f"{int(8 * nodes)}xH100@InfiniBand_NDR", int(batch), efficiency, **planned)
            assert found["step_time_s"][place] == pytest.approx(to_si(one.step_latency_total, "s"), rel=1e-9)


def test_a_plan_is_calibrated_and_says_so() -> None:
    asked = {"task": "training", "workload": {"model": "DLRM_DCNv2", "batch_size": 55296}, "hardware": {"on": "8xH100"}}
    answer = evaluate_plainly(Plan.model_validate(asked))
    assert "tables spread" in answer.assumptions["layout"]
    assert next(metric for metric in answer.metrics if metric.name == "tokens_per_second").low is not None
    with pytest.raises(InputError, match="spreads its tables by itself"):
        step("8xH100", 55296, tp_size=2)


def test_more_states_take_longer_and_more_room() -> None:
    small, large = (step("8xH100", 55296, optimizer=name) for name in ("sgd", "adam"))
    assert large.step_latency_total > small.step_latency_total
    assert large.memory_per_accelerator > small.memory_per_accelerator
