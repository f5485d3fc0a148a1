"""Networks that were counted: named, sized, and asked like any other model."""

from __future__ import annotations

from typing import Any

import pytest

from mlsysim.errors import InputError, UnknownNameError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.counted import at_image_size, timm_network
from mlsysim.models.inventory import inventory_of
from mlsysim.models.registry import Models
from mlsysim.models.timm_counts import PREFIX, counted_sizes
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.walls.node.compute_memory import SingleNodeModel


def test_a_network_of_timm_is_a_model_of_the_zoo_that_no_list_shows():
    network = Models.get("timm/resnet50.a1_in1k")
    assert network == Models.get("timm/resnet50") and network.metadata.key == "timm/resnet50"
    assert network.image_size == 224 and f"{PREFIX}resnet50" in Models and f"{PREFIX}resnet50" not in dir(Models)
    assert network.parameter_count == pytest.approx(Models.get("ResNet50").parameter_count, rel=1e-3)
    with pytest.raises(UnknownNameError, match="resnet50"):
        Models.get("timm/resnet5O")


def test_its_totals_are_those_of_its_classes():
    network = timm_network("efficientnet_b0")
    demand = network.demand("inference", batch_size=4, precision="fp16")
    assert demand.flops == pytest.approx(4 * sum(network.operations.values()))
    assert demand.weight_bytes == pytest.approx(2 * network.parameter_count)
    assert demand.activation_bytes == pytest.approx(4 * 2 * sum(network.elements.values()))
    step = network.demand("training", batch_size=4, precision="fp16")
    assert step.flops == pytest.approx(3 * demand.flops)
    assert inventory_of(network) is network.inventory


def test_other_image_sizes():
    assert counted_sizes()["resnet50"] == (160, 176, 224, 288)
    ratio = timm_network("resnet50", 288).flops_per_sample / timm_network("resnet50").flops_per_sample
    assert ratio == pytest.approx((288 / 224) ** 2, rel=0.02)
    with pytest.raises(InputError, match="counted at 160, 176, 224, 288 pixels"):
        timm_network("resnet50", 225)
    vit = Models.get("ViT_B_16")
    assert at_image_size(vit, 384).tokens_per_image == 24 * 24 + 1 and at_image_size(vit, 224) is vit
    with pytest.raises(InputError, match="its own images of 224 pixels"):
        at_image_size(Models.get("ResNet50"), 256)


def test_a_plan_asks_for_it():
    def seconds(**work):
        plan = {"workload": {"batch_size": 256, **work}, "hardware": {"on": "RTX_4090", "stack": "eager_nhwc"}}
        return evaluate_plainly(Plan.model_validate(plan)).value("latency").to("ms").magnitude

    known = seconds(model="ResNet50")
    assert seconds(model="timm/resnet50") == pytest.approx(known, rel=0.2)
    assert seconds(model="timm/resnet50", image_size=288) > 1.5 * seconds(model="timm/resnet50")


def _with_counts() -> list[Any]:
    return [m for m in Models.list() if getattr(m, "counted", None)]


def test_a_network_of_the_zoo_is_the_one_that_was_counted() -> None:
    """Same parameters and operations, so that both names give one answer."""
    assert len(_with_counts()) >= 30
    for model in _with_counts():
        same = timm_network(model.counted, model.image_size)
        assert same.parameter_count == pytest.approx(model.parameter_count, rel=1e-3), model.name
        assert same.flops_per_sample == pytest.approx(model.flops_per_sample, rel=4e-3), model.name


@pytest.mark.parametrize("name", ["Swin_T", "ResNet50", "ConvNeXt_B"])
@pytest.mark.parametrize("more", [{"runtime": "graph"}, {"is_training": True, "runtime": "eager_nhwc"}])
def test_both_names_of_a_network_have_one_time(name: str, more: dict[str, Any]) -> None:
    model = Models.get(name)
    chip, solve = Hardware.get("H200"), SingleNodeModel().solve
    both = (solve(m, chip, 64, "bf16", "calibrated", **more).ledger for m in (model, timm_network(model.counted)))
    first, second = (ledger.seconds for ledger in both)
    assert first == second


@pytest.mark.parametrize(("name", "activated"), [("AlexNet", True), ("SqueezeNet", True), ("DiT_XL_2", False)])
def test_only_convolutional_networks_without_norms_have_an_activation_behind_every_layer(name: str, activated: bool):
    assert ("relu" in inventory_of(Models.get(name)).calls) == activated


def test_a_changed_copy_of_a_network_is_no_longer_the_counted_one():
    whole = Models.get("ResNet50")
    shorter = whole.model_copy(update={"rows": whole.rows[:5], "parameters": None})
    assert sum(inventory_of(shorter).operations.values()) == pytest.approx(shorter.flops_per_sample)
    assert sum(inventory_of(shorter).operations.values()) < 0.9 * sum(inventory_of(whole).operations.values())
