"""Spaces over the inputs of any kernel."""

from __future__ import annotations

import pytest

from mlsysim.errors import InputError
from mlsysim.physics.collectives import ring_all_reduce
from mlsysim.search.kernel import kernels
from mlsysim.search.space import Space
from mlsysim.search.sweep import sweep

RING = {
    "kind": "kernel",
    "minimize": "time",
    "fixed": {"kernel": "ring_all_reduce", "message": "1 GB", "latency": "5 us"},
    "axes": {"ranks": [2, 8, 64], "bandwidth": ["50 GB/s", "400 Gbps", "900 GB/s"]},
}


def test_a_point_is_what_the_kernel_gives():
    names = list(ring_all_reduce.signature.inputs)
    result = sweep(Space.from_dict(_ring(names)))
    assert result.points == result.feasible == 9
    for point in result.best:
        inputs = point["inputs"]
        rate = {"50 GB/s": 50e9, "400 Gbps": 50e9, "900 GB/s": 900e9}[inputs["bandwidth"]]
        values = dict(zip(names, (1e9, inputs[names[1]], rate, 5e-6), strict=True))
        assert point["outputs"]["time"] == pytest.approx(ring_all_reduce(**values), rel=1e-12)


def _ring(names: list[str]) -> dict[str, object]:
    message, ranks, bandwidth, latency = names
    return {
        **RING,
        "top": 9,
        "fixed": {"kernel": "ring_all_reduce", message: "1 GB", latency: "5 us"},
        "axes": {ranks: [2, 8, 64], bandwidth: ["50 GB/s", "400 Gbps", "900 GB/s"]},
    }


def test_every_kernel_is_found_by_its_full_name():
    assert len(kernels()) > 100
    assert all(name == signature.where for name, signature in kernels().items())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"fixed": {"kernel": "ring_all_reduces"}}, "did you mean"),
        ({"fixed": {}}, "fixes 'kernel'"),
        (
            {"fixed": {"kernel": "memory_time", "moved": "3 GB/s"}, "axes": {"bandwidth": [1e9]}},
            "expected a size such as '1 byte'",
        ),
        ({"fixed": {"kernel": "memory_time"}, "axes": {"bandwidth": [1e9]}}, "needs 'moved'"),
        ({"fixed": {"kernel": "memory_time", "width": 3}, "axes": {"bandwidth": [1e9]}}, "There is no input"),
    ],
)
def test_bad_spaces_get_a_sentence(change, sentence):
    with pytest.raises(InputError, match=sentence):
        sweep(Space.from_dict({**RING, **change}))


def test_a_goal_has_to_be_said():
    document = {**RING, "axes": {"bandwidth": [1e9, 2e9]}, "fixed": {"kernel": "memory_time", "moved": "1 GB"}}
    del document["minimize"]
    with pytest.raises(InputError, match="minimize or maximize"):
        sweep(Space.from_dict(document))
