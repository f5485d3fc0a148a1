"""A whole pass on quantities: every operator of a model on a chip, with units on all numbers that have one.

``to_si`` gives plain numbers to the arithmetic of a pass. Here it keeps the unit instead, bytes of an element are bytes, and
operators carry FLOP and bytes: a dropped factor with a dimension, or a literal that hides one, then raises or comes out as
something else than seconds. What comes out must also be the number that the plain pass gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from mlsysim.hardware import arithmetic
from mlsysim.hardware.registry import Hardware
from mlsysim.models import passes, stack, template
from mlsysim.models.graph import Operator
from mlsysim.models.inventory import CLASSES, inventory_of
from mlsysim.models.registry import Models
from mlsysim.physics import precision as formats
from mlsysim.timing import engine_device, engine_kernels, kernels, operator_times, sustained, vision_time
from mlsysim.timing.collectives import measured_network
from mlsysim.timing.engine_block import Deployment
from mlsysim.timing.engine_step import EngineStep
from mlsysim.timing.engines import engine, engine_network
from mlsysim.timing.kernels import Profile
from mlsysim.timing.network import Group, Hierarchical, Reduction, Tabled
from mlsysim.timing.operator_times import Execution, pass_time
from mlsysim.timing.profile import profile
from mlsysim.timing.stacks import software
from mlsysim.units.fields import Record
from mlsysim.units.registry import Q_, DimensionalityError, Quantity

UNITS = {"flops": "flop", "weight_bytes": "byte", "input_bytes": "byte", "output_bytes": "byte", "cache_bytes": "byte"}


def fresh(value: Any) -> Any:
    """A record without what was worked out from it."""
    if isinstance(value, Record):
        kind = type(value)
        return kind.model_construct(**{name: fresh(getattr(value, name)) for name in kind.model_fields})
    return {key: fresh(item) for key, item in value.items()} if isinstance(value, dict) else value


def carried(op: Operator) -> Operator:
    return replace(op, **{name: Q_(getattr(op, name), unit) for name, unit in UNITS.items()})


def kept(value: Any, unit: str) -> Any:
    """In place of ``to_si``: the quantity itself."""
    return value.to(unit)


@pytest.fixture
def carrying(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (operator_times, kernels, arithmetic):
        monkeypatch.setattr(module, "to_si", kept)
    for module in (operator_times, formats):
        monkeypatch.setattr(module, "bytes_per_element", lambda name: Q_(formats.BYTES_PER_ELEMENT[name], "byte"))
    yield


CASES = [
    ("Llama3_8B", "H100", {"phase": "prefill", "batch_size": 2, "seq_len": 512}),
    ("Llama3_8B", "H200", {"phase": "decode", "batch_size": 4, "context": 1024}),
    ("Llama3_8B", "A100", {"phase": "training", "batch_size": 2, "seq_len": 512}),
    ("Mixtral_8x7B", "H100", {"phase": "decode", "batch_size": 4, "context": 1024}),
    ("DeepSeekV3", "B200", {"phase": "decode", "batch_size": 4, "context": 1024}),
    ("Mamba2_2_7B", "H100", {"phase": "prefill", "batch_size": 2, "seq_len": 512}),
    ("ResNet50", "H100", {"phase": "inference", "batch_size": 8}),
]
WAYS = [
    Execution(),
    Execution(graph=False, fused=False, attention="fa2", sustained=False),
    Execution(fine=True, convert="separate"),
    Execution(fine=True, engine="trtllm", cache_precision="fp8"),
    Execution(graph=False, software=software("engine_eager"), rotary=True),
]


def with_units(how: Execution) -> Execution:
    runs = how.software
    if runs is not None and runs.host is not None:
        runs = replace(runs, host=Q_(runs.host, "s"))
    return replace(how, software=runs)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@pytest.mark.parametrize("how", WAYS, ids=["graph", "eager", "fine", "engine", "software"])
@pytest.mark.parametrize(("model", "chip", "sizes"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_pass_carries_its_units(
    model: str, chip: str, sizes: dict[str, Any], how: Execution, precision: str, request: pytest.FixtureRequest
) -> None:
    operators = list(Models.get(model).lower(**{**sizes, "precision": precision}).operators)
    device = Hardware.get(chip)
    own: Profile = profile(device)
    plain = pass_time(operators, device, own, precision, how)
    request.getfixturevalue("carrying")
    found = pass_time(map(carried, operators), device, fresh(own), precision, with_units(how))
    for name, unit in {"total": "s", "device": "s", "flops": "flop", "moved": "byte"}.items():
        value = getattr(found, name)
        assert isinstance(value, Quantity), name
        assert value.to(unit).magnitude == pytest.approx(getattr(plain, name), rel=1e-12)
    assert all(seconds.check("[time]") for seconds in found.by_layer.values())


def test_a_dropped_factor_is_noticed(carrying: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes given where operations belong: the pass refuses."""
    operators = Models.get("Llama3_8B").lower("decode", batch_size=1, context=64).operators
    op = next(op for op in operators if op.kind == "gemm")
    wrong = replace(carried(op), flops=Q_(op.flops, "byte"))
    device = Hardware.get("H100")
    with pytest.raises(DimensionalityError):
        pass_time([wrong], device, fresh(profile(device)), "bf16", Execution())


NETWORK = {"link": 450e9, "link_latency": 3e-6, "fabric": 50e9, "fabric_latency": 5e-6, "domain": 8}
NETWORK_UNITS = {"link": "byte/s", "link_latency": "s", "fabric": "byte/s", "fabric_latency": "s"}


@pytest.mark.parametrize("group", [Group(8, 8), Group(64, 8), Group(16, 1)], ids=str)
@pytest.mark.parametrize("kind", ["hierarchical", "measured"])
def test_messages_carry_their_units(kind: str, group: Group) -> None:
    """Every operation of a network gives seconds, and the plain number, under both algorithms."""
    plain: Any = Hierarchical(**NETWORK)
    units = dict(NETWORK_UNITS)
    if kind == "measured":
        plain = measured_network(Hardware.get("H100"), 8, fabric=50e9, hop=5e-6)
        units |= {"far_start": "s", "post": "s"}
    carrying = replace(plain, **{name: Q_(getattr(plain, name), unit) for name, unit in units.items()})
    message = 1e8
    for operation, more in (
        ("all_reduce", (group,)),
        ("gather", (group,)),
        ("exchange", (8, group, False)),
        ("exchange", (8, group, True)),
        ("send", (True,)),
        ("send", (False,)),
        ("hand_over", ()),
    ):
        found = getattr(carrying, operation)(Q_(message, "byte"), *more)
        expected = getattr(plain, operation)(message, *more)
        assert found.to("s").magnitude == pytest.approx(expected, rel=1e-12), operation
        with pytest.raises(DimensionalityError):
            getattr(carrying, operation)(Q_(message, "flop"), *more)


def carried_network(plain: Tabled) -> Tabled:
    units = {"link": "byte/s", "link_latency": "s", "fabric": "byte/s", "fabric_latency": "s", "pools": "byte/s"}
    changed: dict[str, Any] = {name: Q_(getattr(plain, name), unit) for name, unit in units.items()}
    far = {
        "link": "byte/s",
        "link_latency": "s",
        "fabric": "byte/s",
        "fabric_latency": "s",
        "far_start": "s",
        "post": "s",
    }
    changed["far"] = replace(plain.far, **{name: Q_(getattr(plain.far, name), unit) for name, unit in far.items()})
    for name in ("near", "host"):
        r = getattr(plain, name)
        rates = {n: Q_(rate, "byte/s") for n, rate in r.rates.items()}
        changed[name] = Reduction(Q_(r.start, "s"), Q_(r.per_rank, "s"), rates)
    return replace(plain, **changed)


@pytest.mark.parametrize("ranks", [4, 8, 16, 64])
def test_messages_of_an_engine_carry_their_units(ranks: int) -> None:
    """The measured form: inside a domain, over the host's link, across nodes."""
    plain = engine_network(Hardware.get("L40S" if ranks == 8 else "H100"))
    carrying, group = carried_network(plain), plain.group(ranks)
    for operation, more in (("all_reduce", (group,)), ("exchange", (8, group)), ("hand_over", ())):
        found = getattr(carrying, operation)(Q_(1e6, "byte"), *more)
        assert found.to("s").magnitude == pytest.approx(getattr(plain, operation)(1e6, *more), rel=1e-12)
        with pytest.raises(DimensionalityError):
            getattr(carrying, operation)(Q_(1e6, "flop"), *more).to("s")


STEPS = [
    ("Llama3_8B", "H100", "vLLM", {"precision": "fp8", "cache_precision": "fp8", "tp": 2}),
    ("Mixtral_8x7B", "A100", "SGLang", {"tp": 4}),
    (
        "DeepSeekV3",
        "B200",
        "TensorRT_LLM",
        {"precision": "nvfp4", "tp": 2, "attention_dp": 4, "moe_tp": 1, "moe_ep": 8},
    ),
    ("DeepSeek_V4_Flash", "H200", "SGLang", {"precision": "fp8", "tp": 8}),
    ("Mamba2_2_7B", "H100", "vLLM", {}),
    ("Qwen3_Next_80B_A3B", "H200", "vLLM", {"tp": 2}),
]


@pytest.mark.parametrize(
    ("model", "chip", "name", "layout"), STEPS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_step_of_an_engine_carries_its_units(
    model: str,
    chip: str,
    name: str,
    layout: dict[str, Any],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Answers, prompts and both together, and the memory of weights and of a sequence."""
    run, device = engine(name), Hardware.get(chip)
    plain = EngineStep(Deployment(Models.get(model), device, run, **layout))
    expected = [plain.time(**work) for work in WORK]
    held = plain.device_weights, plain.sequence_bytes(1000.0)
    request.getfixturevalue("carrying")
    # The copy of a record takes numbers alone.
    timed = BaseModel.model_copy(run, update={key: Q_(getattr(run, key), "s") for key in TIMES})
    own = profile(device, f"serving.{run.kernels}")
    for module in (engine_device, engine_kernels, sustained):
        monkeypatch.setattr(module, "to_si", kept)
    monkeypatch.setattr(engine_device, "profile", lambda chip, software: fresh(own))
    monkeypatch.setattr(
        engine_device, "engine_network", lambda chip, *more: carried_network(engine_network(chip, *more))
    )
    for module in (template, passes, engine_kernels):
        monkeypatch.setattr(module, "MULTIPLY_ADD", Q_(2.0, "flop"))
    for kept_module in (template, stack):
        monkeypatch.setattr(kept_module, "HALF", Q_(2.0, "byte"))
    monkeypatch.setattr(engine_device, "bytes_per_element", lambda name: Q_(formats.BYTES_PER_ELEMENT[name], "byte"))
    step = EngineStep(Deployment(Models.get(model), device, timed, **layout))
    for kinds in step.blocks.mixing.values():
        for i, (count, kind) in enumerate(kinds):
            if isinstance(kind, template.Scan):
                kinds[i] = count, replace(kind, element_operations=Q_(kind.element_operations, "flop"))
    for work, there in zip(WORK, expected, strict=True):
        here = step.time(**work)
        for part in ("total", "stage", "device", "attention"):
            assert getattr(here, part).to("s").magnitude == pytest.approx(getattr(there, part), rel=1e-12), part
    assert step.device_weights.to("byte").magnitude == pytest.approx(held[0], rel=1e-12)
    assert Q_(step.sequence_bytes(1000.0)).to("byte").magnitude == pytest.approx(held[1], rel=1e-12)


WORK = [
    {"sequences": 8.0, "context": 700.0},
    {"prompts": 2.0, "prompt_tokens": 512.0, "prompt_context": 64.0},
    {"sequences": 16.0, "context": 300.0, "prompts": 1.0, "prompt_tokens": 128.0, "drafted": 1},
]
TIMES = ("step", "per_sequence", "drafted_token", "host_operator", "waited_operator", "expert_block")


def test_a_batch_of_an_array_takes_the_kernels_of_its_size() -> None:
    """Which decode kernel of an engine applies depends on the sizes, not on whether they stand in an array."""
    device, how = Hardware.get("H200"), Execution(fine=True, engine="trtllm")

    def seconds(batch: Any) -> Any:
        graph = Models.get("Llama3_8B").lower("decode", batch_size=batch, context=1024)
        return pass_time(graph.operators, device, profile(device), "bf16", how).total

    batches = np.array([1.0, 4.0, 64.0])
    assert seconds(batches) == pytest.approx([seconds(float(batch)) for batch in batches], rel=1e-12)


@pytest.mark.parametrize(
    ("model", "chip", "stack"),
    [
        ("ResNet50", "H100", "compiled"),
        ("ResNet50", "A100", "eager_nchw"),
        ("ResNet50", "L4", "train_nhwc"),
        ("MobileNetV2", "V100", "eager_nhwc"),
        ("ViT_B_16", "H200", "compiled"),
        ("ResNet50", "Core_i7_12700H", "cpu"),
    ],
)
def test_a_pass_over_images_carries_its_units(
    model: str, chip: str, stack: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, device = inventory_of(Models.get(model)), Hardware.get(chip)
    plain = vision_time.inventory_time(counted, device, 8.0, "fp32", stack)
    request.getfixturevalue("carrying")
    monkeypatch.setattr(vision_time, "to_si", kept)
    monkeypatch.setattr(vision_time, "bytes_per_element", formats.bytes_per_element)
    monkeypatch.setattr(vision_time, "_HALF", Q_(2.0, "byte"))
    monkeypatch.setattr(vision_time, "_MICROSECOND", Q_(1e-6, "s"))
    tables = vision_time.constants()
    intensity = {name: Q_(value, "flop/byte") for name, value in tables["intensity"].items()}
    monkeypatch.setattr(vision_time, "constants", lambda: tables | {"intensity": intensity})
    operations = {name: Q_(counted.operations.get(name, 0.0), "flop") for name in CLASSES}
    found = vision_time.inventory_time(replace(counted, operations=operations), device, 8.0, "fp32", stack)
    assert found.to("s").magnitude == pytest.approx(plain, rel=1e-12)
    with pytest.raises(DimensionalityError):
        bytes_for_operations = {name: value * Q_(1.0, "byte/flop") for name, value in operations.items()}
        vision_time.inventory_time(replace(counted, operations=bytes_for_operations), device, 8.0, "fp32", stack)
