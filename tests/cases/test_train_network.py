"""Training of networks of fixed shape: data parallelism over the step of one device."""

from __future__ import annotations

import numpy as np
import pytest

from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.plans.fleet_text import parse_fleet
from mlsysim.search.training import evaluate
from mlsysim.systems.registry import Systems
from mlsysim.systems.types import Fleet
from mlsysim.timing.vision_time import constants, inventory_time
from mlsysim.units.registry import to_si
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.node.compute_memory import SingleNodeModel

FLEET = DistributedModel()


def step(on: str, model: str = "timm/resnet50", batch: int = 128, **options):
    return FLEET.solve(Models.get(model), parse_fleet(on).one, batch, "fp16", "calibrated", **options)


@pytest.mark.parametrize("model", ["timm/resnet50", "ViT_B_16", "EfficientNet_B0"])
@pytest.mark.parametrize("chip", ["A100", "RTX_3090", "H200"])
def test_a_fleet_of_one_is_the_node(model: str, chip: str):
    alone = step(f"1x{chip}", model)
    node = SingleNodeModel().solve(Models.get(model), Hardware.get(chip), 128, "fp16", "calibrated", is_training=True)
    assert to_si(alone.step_latency_total, "s") == pytest.approx(to_si(node.latency, "s"), rel=1e-12)
    assert to_si(alone.memory_per_accelerator, "byte") == pytest.approx(to_si(node.memory_footprint, "byte"), rel=1e-12)
    assert alone.mfu == pytest.approx(node.mfu, rel=1e-12)
    for ours, its in zip(alone.step_interval, node.interval, strict=True):
        assert to_si(ours, "s") == pytest.approx(to_si(its, "s"), rel=1e-12)


def test_several_keep_their_share_and_hide_gradients():
    one, many = step("1xA100"), step("8xA100", batch=8 * 128)
    kept = constants()["data_parallel"]["share"]
    alone = to_si(one.step_latency_total, "s")
    assert alone / kept <= to_si(many.step_latency_total, "s") < 1.01 * alone / kept
    parts = {part.name: part for part in many.ledger.parts}
    assert parts["gradient synchronisation"].hidden > 0
    assert sum(part.exposed for part in many.ledger.parts) == pytest.approx(many.ledger.seconds)
    slow = step("8xA100", batch=8 * 128, overlap_efficiency=0.0)
    assert slow.step_latency_total > many.step_latency_total


def test_micro_batches_recomputation_and_frozen_weights():
    whole = to_si(step("1xA100").step_latency_total, "s")
    assert to_si(step("1xA100", microbatch_count=4).step_latency_total, "s") > whole
    chip, network = Hardware.get("A100"), Models.get("timm/resnet50").inventory
    forward = inventory_time(network, chip, 128, "fp16", "eager_nhwc")
    again = step("1xA100", activation_recomputation="full")
    assert to_si(again.step_latency_total, "s") == pytest.approx(whole + forward, rel=1e-9)
    frozen = step("1xA100", is_lora=True)
    assert to_si(frozen.step_latency_total, "s") == pytest.approx(2 / 3 * whole, rel=1e-9)


def test_what_was_not_measured_is_refused():
    with pytest.raises(InputError, match="data parallelism alone"):
        step("8xA100", batch=128, tp_size=2)
    with pytest.raises(InputError, match="fp8_attention has no effect"):
        step("1xA100", fp8_attention=True)
    with pytest.raises(InputError, match="no choice for the"):
        step("1xA100", stack="compiled")


def test_a_sweep_over_fleets_batches_and_recomputation_is_what_solve_gives() -> None:
    fixed = {"model": "ResNet50", "node": "DGX_A100", "fabric": "InfiniBand_HDR"}
    columns = {
        "nodes": np.array([1.0, 2.0, 4.0, 2.0]),
        "batch_size": np.array([256.0, 1024.0, 4096.0, 512.0]),
        "activation_recomputation": np.array(["none", "full", "none", "full"]),
    }
    found = evaluate(fixed, columns)
    node, fabric = Systems.Nodes.DGX_A100, Systems.Fabrics.InfiniBand_HDR
    for place, nodes in enumerate(columns["nodes"]):
        answer = DistributedModel().solve(
            "ResNet50",
            Fleet(name="some", node=node, count=int(nodes), fabric=fabric),
            batch_size=int(columns["batch_size"][place]),
            activation_recomputation=str(columns["activation_recomputation"][place]),
            efficiency="calibrated",
        )
        assert found["step_time_s"][place] == pytest.approx(answer.step_latency_total.magnitude, rel=1e-12)
