"""Wall 22: the roofline turned round; solving forward with what it asks for meets the target exactly."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim import Q_, Hardware, Models, SingleNodeModel, SynthesisSolver
from mlsysim.errors import InputError
from mlsysim.hardware.types import ComputeCore, HardwareNode, MemoryHierarchy


def solve(**call: object):
    return SynthesisSolver().solve(**{"model": "Llama3_70B", "target_latency": "200 ms", **call})


def test_the_tutorials_values() -> None:
    answer = solve()
    assert answer.required_bw.to("TB/s").magnitude == pytest.approx(141.2e9 / 0.2 / 1e12)
    assert answer.required_flops.to("TFLOPs/s").magnitude == pytest.approx(2 * 70.6e9 / (0.2 * 0.5) / 1e12)
    assert answer.required_memory.to("GB").magnitude == pytest.approx(141.2)


def test_the_papers_50_ms() -> None:
    model = Models.Llama2_70B.model_copy(update={"parameters": Q_("70 Bparam")})
    assert solve(model=model, target_latency="50 ms").required_bw.to("GB/s").magnitude == pytest.approx(2800)


def test_a_training_step() -> None:
    """4 sequences of 2,048 tokens: 6 P D / (T eta) is 34.7 PFLOP/s, causal attention adds 2 %."""
    answer = solve(is_training=True, batch_size=4, seq_len=2048, hardware="H100")
    plain = 6 * 70.6e9 * 8192 / (0.2 * 0.5)
    attention = 3 * 80 * 4 * 8192 * 4 * (2048 * 2049 / 2) / (0.2 * 0.5)
    assert plain == pytest.approx(34.7e15, rel=1e-3)
    assert answer.required_flops.to("flop/s").magnitude == pytest.approx(plain + attention, rel=1e-9)
    assert answer.accelerators == 36 == answer.accelerators_by_wall["compute"]


def test_a_deadline() -> None:
    """The run of 512 H100 for 30 days in 14 days: 1,097 of them, and 2 % more for attention."""
    answer = solve(target_latency=None, deadline="14 day", training_tokens=1.2394e12, hardware="H100", efficiency=0.4)
    assert answer.accelerators == pytest.approx(512 * 30 / 14 * 1.0203, rel=0.002)


def test_a_throughput() -> None:
    by_rate = solve(target_latency=None, target_throughput="20 1/s", batch_size=4)
    assert by_rate.target_latency.to("ms").magnitude == pytest.approx(200)


@settings(max_examples=40, deadline=None)
@given(latency=st.floats(1.0, 1e4), batch=st.integers(1, 512), efficiency=st.floats(0.05, 1.0))
def test_forward_meets_the_target(latency: float, batch: int, efficiency: float) -> None:
    """A chip with exactly what is asked for takes exactly as long as was asked."""
    target = Q_(latency, "ms")
    need = solve(target_latency=target, batch_size=batch, efficiency=efficiency)
    chip = HardwareNode(
        name="made to measure",
        compute=ComputeCore(peak_flops=need.required_flops),
        memory=MemoryHierarchy(capacity=need.required_memory * 2, bandwidth=need.required_bw),
        dispatch_tax="0 s",
    )
    got = SingleNodeModel().solve("Llama3_70B", chip, batch_size=batch, efficiency=efficiency)
    assert got.latency_compute.to("ms").magnitude == pytest.approx(latency, rel=1e-9)
    assert got.latency_memory.to("ms").magnitude == pytest.approx(latency, rel=1e-9)


def test_exactly_one_target() -> None:
    with pytest.raises(InputError, match="exactly one"):
        solve(target_throughput="1 1/s")
    with pytest.raises(InputError, match="exactly one"):
        solve(target_latency=None)
    with pytest.raises(InputError, match="training_tokens"):
        solve(target_latency=None, deadline="14 day")


def test_what_asks_for_most_is_named() -> None:
    answer = solve(target_latency="5 ms", hardware=Hardware.H100)
    assert "memory bandwidth" in answer.binding.sentence
    assert answer.accelerators == answer.accelerators_by_wall["memory_bandwidth"] == 9
