"""Spaces: axes, mixed-radix points, constraints, and files that are refused with a sentence."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlsysim.errors import InputError, UnitError, UnknownNameError
from mlsysim.hardware.registry import Hardware
from mlsysim.search import deployments, training_inputs
from mlsysim.search.axes import read_axis
from mlsysim.search.expression import Expression
from mlsysim.search.space import Space
from mlsysim.search.space_table import schema

FIXED = {"model": "Llama3_8B", "peak": "100 TFLOP/s", "bandwidth": "1 TB/s", "capacity": "80 GB"}


def node(axes: dict[str, Any], fixed: dict[str, Any] | None = None, **more: Any) -> Space:
    given = {key: value for key, value in FIXED.items() if key not in axes} | (fixed or {})
    linked = {key for spec in axes.values() if isinstance(spec, dict) for row in spec.get("linked", []) for key in row}
    given = {key: value for key, value in given.items() if key not in linked}
    return Space.from_dict({"kind": "node", "axes": axes, "fixed": given, **more})


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ([3, 1, 2], (3, 1, 2)),
        ({"range": [1, 4]}, (1, 2, 3, 4)),
        ({"range": [1, 8], "step": 3}, (1, 4, 7)),
        ({"range": [0, 1], "count": 5}, (0.0, 0.25, 0.5, 0.75, 1.0)),
        ({"powers_of": 2, "to": 20}, (1, 2, 4, 8, 16)),
        ({"powers_of": 3, "from": 3, "to": 27}, (3, 9, 27)),
        ({"divisors_of": 12}, (1, 2, 3, 4, 6, 12)),
        ({"divisors_of": 36, "from": 2, "to": 9}, (2, 3, 4, 6, 9)),
    ],
)
def test_axis_forms(spec, values):
    assert read_axis("a", spec, {}, "'x'").columns["a"] == values


def test_a_log_range_has_a_constant_ratio():
    values = read_axis("a", {"range": [1, 1000], "scale": "log", "count": 4}, {}, "'x'").columns["a"]
    assert values == pytest.approx((1, 10, 100, 1000))


def test_units_become_the_declared_one():
    space = node({"bandwidth": {"range": [1, 2], "step": 0.5, "unit": "TB/s"}, "capacity": ["80 GB", "1 GiB"]})
    assert space.values("bandwidth") == pytest.approx((1e12, 1.5e12, 2e12))
    assert space.values("capacity") == (80e9, 2**30)


def test_a_zoo_query_lists_the_entries_that_the_zoo_lists():
    space = node({"hardware": {"zoo": "Hardware.Cloud", "where": {"vendor": "NVIDIA"}}})
    wanted = [entry.name for entry in Hardware.Cloud.list(vendor="NVIDIA")]
    assert len(wanted) > 10
    assert [Hardware.get(key).name for key in space.values("hardware")] == wanted


def test_linked_inputs_move_together():
    rows = [{"capacity": "80 GB", "bandwidth": "2 TB/s"}, {"capacity": "141 GB", "bandwidth": "4.8 TB/s"}]
    space = node({"memory": {"linked": rows}, "batch_size": [1, 2, 3]})
    assert space.size == 6
    assert space.point(5) == {"capacity": 141e9, "bandwidth": 4.8e12, "batch_size": 3}


def test_decode_is_the_product_of_the_axes_in_order():
    axes = {
        "batch_size": [1, 4, 9],
        "seq_len": [10, 20],
        "precision": ["fp16", "fp8", "int4"],
        "is_lora": [True, False],
    }
    space = node(axes)
    columns = space.decode(np.arange(space.size))
    for index, values in enumerate(itertools.product(*axes.values())):
        wanted = dict(zip(axes, values, strict=True))
        assert {name: columns[name][index].item() for name in axes} == wanted == space.point(index)
    assert columns["batch_size"].dtype == np.int64 and columns["is_lora"].dtype == bool
    with pytest.raises(InputError, match="36 points"):
        space.point(36)


def test_a_huge_space_has_its_size_at_once_and_decodes_at_its_end():
    space = node({name: {"range": [1, 1000]} for name in ("batch_size", "seq_len", "dp_size", "lora_rank")})
    assert space.size == 10**12
    assert {k: v[0] for k, v in space.decode(np.array([10**12 - 2])).items()} == {
        "batch_size": 1000,
        "seq_len": 1000,
        "dp_size": 1000,
        "lora_rank": 999,
    }


CONSTRAINTS = [
    ["batch_size % dp_size == 0"],
    ["dp_size <= 4 and batch_size > 2 or seq_len == 30"],
    ["batch_size * seq_len == 60", "dp_size != 3"],
    ["not batch_size < dp_size", "max(batch_size, dp_size) // 2 >= 2"],
    ["1 < dp_size < 5"],
    ["zero_stage == 0"],
    ["zero_stage > 0"],
    ["seq_len % model.layers >= 0", "batch_size * 32 <= model.layers * 4"],
]


@pytest.mark.parametrize("constraints", CONSTRAINTS)
def test_admitted_points_are_those_of_brute_force(constraints):
    axes = {"batch_size": list(range(1, 8)), "dp_size": list(range(1, 7)), "seq_len": [10, 20, 30]}
    space = node(axes, {"zero_stage": 0}, constraints=constraints)

    class Layers:
        layers = 32

    wanted = [
        index
        for index, values in enumerate(itertools.product(*axes.values()))
        if all(
            eval(text, {"max": max}, {**dict(zip(axes, values, strict=True)), "zero_stage": 0, "model": Layers})
            for text in constraints
        )
    ]
    whole = [int(i) for block in space.admitted(0, space.size) for i in block]
    assert whole == wanted
    for start, stop in [(0, 1), (5, 77), (77, 126), (126, 126), (40, 41)]:
        part = [int(i) for block in space.admitted(start, stop) for i in block]
        assert part == [i for i in wanted if start <= i < stop]


def test_a_constraint_on_slow_axes_discards_blocks_unseen():
    space = node(
        {name: {"range": [1, 1000]} for name in ("batch_size", "seq_len", "dp_size", "lora_rank")},
        constraints=["batch_size == 7", "seq_len * 1000 == 500000", "dp_size == 3", "lora_rank < 4"],
    )
    found = np.concatenate(list(space.admitted(0, space.size)))
    assert [space.point(int(i))["lora_rank"] for i in found] == [1, 2, 3]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "a.__class__ == 1",
        "a ** 2 > 1",
        "[1] == a",
        "a if a else a",
        "a",
        "a +",
        "f(a) > 1",
        "",
        7,
        "a > 1j",
    ],
)
def test_an_expression_holds_no_more_than_it_may(text):
    with pytest.raises(InputError):
        Expression(text)


@pytest.mark.parametrize(
    ("table", "kind", "sentence"),
    [
        ({"knd": "node"}, UnknownNameError, "did you mean 'kind'"),
        ({"kind": "nodes"}, UnknownNameError, "did you mean 'node'"),
        ({"axes": {"bandwith": [1]}}, UnknownNameError, "did you mean 'bandwidth'"),
        ({"axes": {"batch_size": {"rnge": [1, 2]}}}, UnknownNameError, "did you mean 'range'"),
        ({"axes": {"batch_size": {"range": [1, 2], "values": [1]}}}, InputError, "exactly one of"),
        ({"axes": {"batch_size": {"powers_of": 2, "to": 8, "step": 2}}}, InputError, "no meaning beside 'powers_of'"),
        ({"axes": {"batch_size": []}}, InputError, "has no values"),
        ({"axes": {"batch_size": [1, 1]}}, InputError, "same value twice"),
        ({"axes": {"batch_size": [0]}}, InputError, "at least 1"),
        ({"axes": {"batch_size": {"range": [5, 1]}}}, InputError, "upwards"),
        ({"axes": {"batch_size": {"range": [1, 5], "unit": "TB"}}}, InputError, "takes no unit"),
        ({"axes": {"bandwidth": [1e12]}}, UnitError, "bandwidth"),
        ({"axes": {"model": ["Llama3_8C"]}}, UnknownNameError, "Llama3_8B"),
        ({"axes": {"hardware": {"zoo": "Hardwear"}}}, UnknownNameError, "did you mean 'Hardware'"),
        ({"axes": {}}, InputError, "at least one axis"),
        ({"fixed": {"batch_size": 1}}, InputError, "both fixed and on an axis"),
        ({"fixed": {}}, InputError, "needs 'model'"),
        ({"constraints": ["bach_size > 1"]}, UnknownNameError, "did you mean 'batch_size'"),
        ({"subject_to": ["latncy_s > 1"]}, UnknownNameError, "did you mean 'latency_s'"),
        ({"minimize": "latencys"}, UnknownNameError, "did you mean 'latency_s'"),
        ({"minimize": "mfu", "maximize": "mfu"}, InputError, "not both"),
        ({"pareto": ["mfu"]}, InputError, "2 to 6 different outputs"),
        ({"top": 0}, InputError, "between 1 and"),
        ({"fidelity": "calibrated", "fixed": {**FIXED, "efficiency": 0.4}}, InputError, "takes no efficiency"),
    ],
)
def test_a_bad_space_is_refused_with_a_sentence(table, kind, sentence):
    good = {"kind": "node", "axes": {"batch_size": [1, 2]}, "fixed": FIXED}
    if "bandwidth" in table.get("axes", {}) or "model" in table.get("axes", {}):
        good["fixed"] = {key: value for key, value in FIXED.items() if key not in table["axes"]}
    with pytest.raises(kind, match=sentence) as caught:
        Space.from_dict({**good, **table})
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        Space.from_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("kind = ")
    with pytest.raises(InputError, match="is not TOML"):
        Space.from_toml(tmp_path / "bad.toml")


def test_a_document_gives_the_space_back():
    space = node({"batch_size": [1, 2], "precision": ["fp16", "fp8"]}, constraints=["batch_size < 2"], top=3)
    again = Space.from_document(json.loads(json.dumps(space.document())))
    assert again.digest == space.digest and again.point(3) == space.point(3)
    assert space.with_goals(top=4).digest != space.digest
    with pytest.raises(InputError, match="not the document"):
        Space.from_document({"kind": "node"})


def test_the_schema_names_what_a_file_may_hold():
    found = schema("node")
    assert found["properties"]["fixed"]["properties"]["bandwidth"]["x-unit"] == "byte/s"
    assert json.dumps(found)


def test_shipped_spaces_load():
    files = sorted((Path(__file__).parents[2] / "src" / "mlsysim" / "examples" / "sweeps").glob("*.toml"))
    assert files
    space = Space.from_toml(next(file for file in files if file.stem == "chip-design"))
    assert space.size > 10**7 and space.goal is not None


@pytest.mark.parametrize(
    ("kind", "given", "meant"),
    [
        (training_inputs, ("tp", "tp_size", "tensor_parallel"), "tp_size"),
        (training_inputs, ("zero", "zero_stage"), "zero_stage"),
        (training_inputs, ("virtual_stages", "v_stages"), "v_stages"),
        (training_inputs, ("recompute", "activation_recomputation"), "activation_recomputation"),
        (training_inputs, ("micro_batches", "microbatch_count", "num_microbatches"), "microbatch_count"),
        (training_inputs, ("micro_batch", "micro_batch_size"), "micro_batch"),
        (training_inputs, ("region", "grid", "datacenter"), "datacenter"),
        (training_inputs, ("chip",), "chip"),
        (deployments, ("isl", "prompt_tokens", "seq_len"), "seq_len"),
        (deployments, ("osl", "output_tokens", "output_len"), "output_len"),
        (deployments, ("kv_precision", "cache_precision", "kv_cache_dtype"), "cache_precision"),
        (deployments, ("chunk", "chunk_tokens", "prefill_chunk_tokens"), "prefill_chunk_tokens"),
        (deployments, ("chip", "on", "hardware"), "hardware"),
    ],
)
def test_an_axis_may_be_written_by_every_name(kind, given, meant):
    for name in given:
        assert kind.canonical(name) == meant and kind.INPUTS[name] is kind.INPUTS[meant]


def test_an_axis_of_a_node_may_be_written_as_in_a_plan():
    fixed = {"model": "ResNet50", "peak_flops": "100 TFLOP/s", "memory_capacity": "40 GB", "batch": 2}
    space = Space.from_dict({"kind": "node", "axes": {"memory_bandwidth": ["1 TB/s", "2 TB/s"]}, "fixed": fixed})
    assert list(space.homes) == ["bandwidth"] and {"peak", "capacity", "batch_size"} <= set(space.fixed)


def test_two_names_of_one_input_are_refused():
    table = {
        "kind": "node",
        "axes": {"memory_bandwidth": ["1 TB/s"]},
        "fixed": {"model": "ResNet50", "batch": 1, "batch_size": 2},
    }
    with pytest.raises(InputError, match="give one of them"):
        Space.from_dict(table)
