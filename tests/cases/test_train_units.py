"""A whole training step on quantities: every operator, message and byte held, with units on all numbers that have one.

What comes out must be seconds (or bytes) and the number that the plain case gives; a dropped factor with a dimension, or a literal
that hides one, raises or comes out as something else.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from mlsysim.cases import train_layers, train_operators
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Layout
from mlsysim.cases.offload import HostTimes, host_round_trip
from mlsysim.cases.train import Step
from mlsysim.cases.train_layers import calibrated
from mlsysim.cases.train_whole import Amounts, Device, first_order, first_order_amounts
from mlsysim.hardware.registry import Hardware
from mlsysim.models import footprint
from mlsysim.models import keeping as software_keeping
from mlsysim.models.footprint import Training
from mlsysim.models.keeping import Keeping
from mlsysim.models.registry import Models
from mlsysim.models.training_shape import training_shape
from mlsysim.physics.precision import bytes_per_element
from mlsysim.physics.training_memory import optimizer_bytes
from mlsysim.timing import kernels
from mlsysim.timing import training_chip as chips
from mlsysim.timing.network import Hierarchical
from mlsysim.timing.stacks import stack
from mlsysim.timing.training_chip import constants, training_chip
from mlsysim.units.fields import Record
from mlsysim.units.registry import Q_, DimensionalityError, Quantity

BYTES = dict.fromkeys(
    (
        *("gradient_traffic", "unfused_forward_bytes", "unfused_backward_bytes", "optimizer_bytes"),
        *("expert_activation_bytes", "ungated_activation_bytes", "loss_bytes", "gradient_bytes", "cast_bytes"),
        *("update_bytes", "product_bytes", "capacity", "gradient", "masks", "log_sums", "scores", "logits"),
        *("weight_bytes", "activation_bytes", "cache_bytes", "moments", "main_gradient"),
    ),
    "byte",
)
RATES = {"half_rate": "flop/s", "product_rate": "flop/s", "attention_rate": "flop/s", "bandwidth": "byte/s"}
NETWORK = {
    "link": "byte/s",
    "link_latency": "s",
    "fabric": "byte/s",
    "fabric_latency": "s",
    "far_start": "s",
    "post": "s",
}
TIMED = [*(field.name for field in fields(Step) if field.name not in ("messages", "stages")), "pipeline"]
STAGES = ("first", "between", "last")
UNITS = BYTES | RATES | NETWORK | {"step_overhead": "s", "peak": "flop/s", "flops": "flop", "hardware_flops": "flop"}


def carried(record: Any, **more: Any) -> Any:
    """A record with the units of its numbers."""
    own = {f.name: getattr(record, f.name) for f in fields(record)}
    found = {n: Q_(v, UNITS[n]) for n, v in own.items() if n in UNITS and v is not None}
    return replace(record, **(found | more))


def fresh(value: Any) -> Any:
    """A record without what was worked out from it."""
    if isinstance(value, Record):
        kind = type(value)
        return kind.model_construct(**{name: fresh(getattr(value, name)) for name in kind.model_fields})
    return {key: fresh(item) for key, item in value.items()} if isinstance(value, dict) else value


def keeping(optimizer: Any, weight: Any) -> Any:
    return Q_(optimizer_bytes(optimizer, weight.to("byte").magnitude), "byte")


@pytest.fixture
def carrying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "to_si", lambda value, unit: value.to(unit))
    for module in (train_operators, train_layers, chips):
        monkeypatch.setattr(module, "HALF", Q_(2.0, "byte"))
    monkeypatch.setattr(train_operators, "FLOP", Q_(1.0, "flop"))
    monkeypatch.setattr(train_layers, "optimizer_bytes", keeping)
    monkeypatch.setattr(software_keeping, "optimizer_bytes", keeping)
    for module in (footprint, software_keeping):
        monkeypatch.setattr(module, "bytes_per_element", lambda name: Q_(bytes_per_element(name), "byte"))
        monkeypatch.setattr(module, "HALF", Q_(2.0, "byte"), raising=False)
        monkeypatch.setattr(module, "FULL", Q_(4.0, "byte"))


LAYOUTS = {
    "split": Layout(dp=4, tp=4, pp=2, ep=1, cp=2, micro_batches=4, local_batch=8, virtual_stages=2),
    "experts": Layout(dp=16, tp=1, pp=1, ep=8, cp=1, micro_batches=2, local_batch=4),
    "alone": Layout(dp=1, tp=1, pp=1, ep=1, cp=1, micro_batches=1, local_batch=2),
}
CASES = [
    ("Llama3_8B", "split", "bridge", "bf16", {}),
    ("Llama3_8B", "split", "megatron21", "bf16", {"sequence_parallel": False, "optimizer": "sgd"}),
    ("Llama3_8B", "alone", "plain", "bf16", {"recompute": "full"}),
    ("Llama3_8B", "alone", "bridge", "fp32", {}),
    ("Llama3_8B", "split", "titan", "fp8", {"zero": 3, "lora_rank": 16}),
    (
        "Mixtral_8x7B",
        "experts",
        "bridge",
        "fp8",
        {"zero": 2, "recompute": "selective", "selective": "attention+light+moe"},
    ),
    (
        "DeepSeekV3",
        "experts",
        "bridge-fused",
        "mxfp8",
        {"zero": 1, "recompute": "selective", "selective": "up", "predicted_tokens": 1},
    ),
    ("Nemotron3_Nano_30B_A3B", "experts", "bridge", "bf16", {"zero": 1}),
]


@pytest.mark.parametrize(("model", "where", "software", "precision", "more"), CASES, ids=[c[0] + c[2] for c in CASES])
def test_a_calibrated_step_carries_its_units(
    model: str, where: str, software: str, precision: str, more: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    chip = training_chip(Hardware.get("H100"), precision)
    layout, how, shape = LAYOUTS[where], stack(software), training_shape(Models.get(model))
    job = Job(Models.get(model), precision, 4096, **more)
    state = 1e9
    plain = calibrated(job, layout, shape, chip, how, constants(), HostTimes(host_round_trip(state, 50e9), 0.01))
    request.getfixturevalue("carrying")
    own = fresh(chip.kernels)
    with_units = carried(chip, network=carried(chip.network), kernels=own, product=fresh(chip.product))
    offload = HostTimes(host_round_trip(Q_(state, "byte"), Q_(50e9, "byte/s")), Q_(0.01, "s"))
    job = replace(job, keeps=carried(job.keeps))
    found = calibrated(job, layout, shape, with_units, carried(how), carried(constants()), offload)
    for name in TIMED:
        value, expected = getattr(found, name), getattr(plain, name)
        number = value.to("s").magnitude if isinstance(value, Quantity) else value
        assert isinstance(value, Quantity) or value == 0, name
        assert number == pytest.approx(expected, rel=1e-12), name
    for name in STAGES:
        assert getattr(found.stages, name).to("s").magnitude == pytest.approx(getattr(plain.stages, name), rel=1e-12)


def test_a_literal_that_hides_bytes_is_noticed(carrying: None, monkeypatch: pytest.MonkeyPatch) -> None:
    chip = training_chip(Hardware.get("H100"), "bf16")
    with_units = carried(chip, network=carried(chip.network), kernels=fresh(chip.kernels), product=fresh(chip.product))
    job, shape = Job(Models.get("Llama3_8B"), "bf16", 4096), training_shape(Models.get("Llama3_8B"))
    job = replace(job, keeps=carried(job.keeps))
    for module, name in ((chips.TrainingChip, "element"), (train_operators, "FLOP")):
        with monkeypatch.context() as changed, pytest.raises(DimensionalityError):
            changed.setattr(module, name, 2.0)
            calibrated(job, LAYOUTS["split"], shape, with_units, carried(stack("bridge")), carried(constants()))


AMOUNTS = {"flops": "flop", "moved": "byte", "tensor_message": "byte", "expert_token": "byte"}
AMOUNTS |= dict.fromkeys(("context_message", "boundary_message", "gradient_bytes", "update_bytes"), "byte")
AMOUNTS |= dict.fromkeys(("weight_bytes", "expert_gradient_bytes", "expert_weight_bytes"), "byte")


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize(("model", "where"), [("Llama3_8B", "split"), ("Mixtral_8x7B", "experts")])
def test_a_first_order_step_carries_its_units(model: str, where: str, zero: int) -> None:
    layout, net = LAYOUTS[where], Hierarchical(450e9, 3e-6, 50e9, 5e-6, 8)
    job = Job(Models.get(model), "bf16", 4096, zero=zero, updates=True)
    micro = job.model.demand("training", batch_size=layout.micro_batch, seq_len=4096, precision="bf16")
    amounts, device = first_order_amounts(job, layout, micro), Device(989e12, 0.5, 3.35e12)
    plain = first_order(job, layout, amounts, device, net, HostTimes(0.0, 0.01))
    given = {f.name: getattr(amounts, f.name) for f in fields(Amounts)}
    quantities = Amounts(**{name: Q_(v, AMOUNTS[name]) if name in AMOUNTS else v for name, v in given.items()})
    found = first_order(job, layout, quantities, carried(device), carried(net), HostTimes(Q_(0.0, "s"), Q_(0.01, "s")))
    for name in TIMED:
        assert getattr(found, name).to("s").magnitude == pytest.approx(getattr(plain, name), rel=1e-12)
    for name in STAGES:
        assert getattr(found.stages, name).to("s").magnitude == pytest.approx(getattr(plain.stages, name), rel=1e-12)


@pytest.mark.parametrize("software", ["bridge", "megatron21", "plain", "plain-16bit"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_memory_carries_its_units(software: str, recompute: str, request: pytest.FixtureRequest) -> None:
    model, keeps = Models.get("Llama3_8B"), stack(software).keeps
    sizes = {"tp": 2, "pp": 2, "dp": 4, "zero_stage": 1, "recompute": recompute, "optimizer_offload": 0.5}

    def state(keeps: Keeping) -> Any:
        return Training(model, 2, 4096, "bf16", keeps=keeps, sequence_parallel=False, **sizes).fullest

    plain = state(keeps)
    request.getfixturevalue("carrying")
    found = state(carried(keeps))
    for name in ("weights", "gradients", "optimizer", "activations", "host", "total"):
        assert getattr(found, name).to("byte").magnitude == pytest.approx(getattr(plain, name), rel=1e-12), name
