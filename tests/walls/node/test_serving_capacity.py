"""Replicas for a stream of requests."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.units.kernel import KERNELS, prove
from mlsysim.walls.node.serving import ServingModel
from mlsysim.walls.node.serving_capacity import ServingCapacityModel
from mlsysim.walls.node.tail import TailLatencyModel

MODEL = ServingCapacityModel()
BASE = {"model": "Llama3_8B", "hardware": "H100", "qps": 50, "target_p99_latency_ms": 10_000, "seq_len": 1024}


def seconds(value):
    return value.to("s").magnitude


def rate(value):
    return value.to("1/s").magnitude


def test_kernel_units():
    prove(KERNELS["mlsysim.cases.serve.service_time"])


def test_service_time_has_the_length_of_the_answer():
    # U19: the answer's length counts, not the prompt's.
    result = MODEL.solve(**BASE, batch_size=8, output_len=200)
    served = ServingModel().solve("Llama3_8B", "H100", seq_len=1024, batch_size=8, output_len=200)
    assert seconds(result.ttft) == seconds(served.ttft) and seconds(result.itl) == seconds(served.itl)
    assert seconds(result.base_request_latency) == pytest.approx(seconds(served.ttft) + 199 * seconds(served.itl))
    assert rate(result.per_replica_qps_capacity) == pytest.approx(8 / seconds(result.base_request_latency))
    assert result.active_batch_size == 8


def test_defaults_are_echoed():
    result = MODEL.solve(**BASE)
    assert result.assumptions["output_len"] == "128"
    assert result.assumptions["service_time_cv"] == "1"
    assert result.assumptions["batch_size"].startswith(str(result.active_batch_size))


def test_p99_is_that_of_the_tail_model_over_all_slots():
    result = MODEL.solve(**BASE, batch_size=8)
    tail = TailLatencyModel().solve(
        50, result.base_request_latency, result.required_replicas * 8, slo_latency_ms=10_000
    )
    assert seconds(result.estimated_p99_latency) == pytest.approx(seconds(tail.p99_latency))
    assert result.utilization == pytest.approx(tail.queue_utilization)
    assert rate(result.qps_capacity) == pytest.approx(50 / result.utilization)
    assert seconds(result.estimated_p99_latency) <= 10


def test_one_replica_fewer_is_not_enough():
    # 4.5 s is close above the P99 of the service alone, so queueing decides.
    served = MODEL.solve(**BASE, batch_size=8)
    target = seconds(served.base_request_latency) * (-math.log(0.01)) * 1.02
    result = MODEL.solve(**BASE | {"target_p99_latency_ms": target * 1000}, batch_size=8)
    assert result.bottleneck == "Queueing"
    fewer = TailLatencyModel().solve(50, result.base_request_latency, (result.required_replicas - 1) * 8)
    assert fewer.p99_latency is None or seconds(fewer.p99_latency) > target


def test_a_service_that_is_too_slow():
    result = MODEL.solve(**BASE | {"target_p99_latency_ms": 100})
    assert not result.feasible and result.required_replicas is None and result.bottleneck == "Service"
    assert result.qps_capacity is None and result.utilization is None and result.queue_wait_p99 is None
    alone = -math.log(0.01) * seconds(result.base_request_latency)
    assert seconds(result.estimated_p99_latency) == pytest.approx(alone)
    assert "no number of replicas" in result.binding.sentence


def test_a_model_that_does_not_fit():
    result = MODEL.solve("Llama3_70B", "H100", 5, "100 s")
    assert not result.feasible and result.bottleneck == "Memory" and result.binding.wall == 2
    assert MODEL.solve("Llama3_70B", "H100", 5, "100 s", tp_size=4).feasible


def test_the_batch_of_fewest_replicas():
    chosen = MODEL.solve(**BASE)
    for size in (1, 4, 16, 64):
        given_size = MODEL.solve(**BASE, batch_size=size)
        assert given_size.required_replicas is None or chosen.required_replicas <= given_size.required_replicas
    assert chosen.active_batch_size > 1


def test_devices_count_the_whole_replica():
    result = MODEL.solve("Llama3_70B", "H100", 5, "60 s", tp_size=4)
    assert result.required_devices == 4 * result.required_replicas


def test_a_steadier_service_needs_no_more_replicas():
    counts = [MODEL.solve(**BASE, batch_size=16, service_time_cv=cv).required_replicas for cv in (0, 0.5, 1)]
    assert counts == sorted(counts)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.1, 500), st.integers(1, 64), st.floats(1.05, 3))
def test_signs(qps, batch, factor):
    def replicas(**changed):
        return MODEL.solve(**BASE | {"qps": qps, "batch_size": batch} | changed).required_replicas or math.inf

    here = replicas()
    assert replicas(qps=qps * factor) >= here
    assert replicas(target_p99_latency_ms=10_000 * factor) <= here
    assert replicas(efficiency=min(1.0, 0.5 * factor)) <= here
    assert replicas(output_len=int(128 * factor)) >= here


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"qps": 0}, "qps"),
        ({"target_p99_latency_ms": -1}, "target_p99_latency_ms"),
        ({"output_len": 0}, "output_len"),
        ({"model": "ResNet50"}, "ResNet"),
        ({"tp_size": 7}, "tp_size=7"),
    ],
)
def test_error_sentences(inputs, said):
    with pytest.raises(InputError, match=said):
        MODEL.solve(**BASE | inputs)


def test_explanation():
    text = MODEL.solve(**BASE).explain()
    assert "S = TTFT + (n_out - 1) ITL" in text and "rho = lambda S / (R B)" in text
