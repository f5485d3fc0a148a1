"""Wall 7: percentiles under load."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim import Q_
from mlsysim.errors import InputError, UnitError
from mlsysim.walls.catalog import wall
from mlsysim.walls.node.tail import TailLatencyModel

MODEL = TailLatencyModel()


def p99(result):
    return result.p99_latency.to("ms").magnitude


@pytest.mark.parametrize(("rho", "ratio"), [(0.5, 4.61), (0.8, 4.95), (0.95, 10.21)])
def test_ten_replicas(rho, ratio):
    # The paper's 3x and 10x add the P99 of the wait to the mean service (P33); this is the P99 of their sum.
    result = MODEL.solve(arrival_rate_qps=100 * rho, service_latency_ms=100, num_replicas=10)
    assert p99(result) / 100 == pytest.approx(ratio, abs=0.005)
    assert result.queue_utilization == pytest.approx(rho)
    assert result.is_stable and result.feasible


def test_one_replica_has_a_closed_form():
    # M/M/1: T is exponential with rate mu - lambda = 10 - 6 per second.
    result = MODEL.solve(6, 100)
    assert p99(result) == pytest.approx(-math.log(0.01) / 4 * 1000)
    assert result.p50_latency.to("s").magnitude == pytest.approx(math.log(2) / 4)
    assert result.mean_latency.to("s").magnitude == pytest.approx(1 / 4)
    assert result.mean_queue_length == pytest.approx(0.6 * 0.6 / 0.4)
    assert result.assumptions["num_replicas"] == "1"


def test_numbers_strings_and_quantities_mean_the_same():
    plain = MODEL.solve(80, 100, 10, slo_latency_ms=500)
    given_units = MODEL.solve("80 1/s", Q_("0.1 s"), 10, slo_latency_ms="0.5 s")
    assert plain.to_dict() == given_units.to_dict()


def test_unstable_has_no_percentiles():
    result = MODEL.solve(arrival_rate_qps=120, service_latency_ms=100, num_replicas=10, slo_latency_ms=500)
    assert not result.is_stable and not result.feasible
    assert result.p50_latency is None and result.p99_latency is None and result.mean_wait is None
    assert result.replicas_for_stability == 13
    assert result.queue_utilization == pytest.approx(1.2)
    assert result.slo_violation_probability == 1.0 and result.slo_headroom_ratio == 0.0
    assert "unstable" in result.binding.sentence and "13" in result.binding.sentence
    assert "NaN" not in result.to_json() and json.loads(result.to_json())["p99_latency"] is None
    assert "NaN" not in result.explain()


def test_exactly_full_is_unstable():
    result = MODEL.solve(100, 100, 10)
    assert not result.is_stable and result.replicas_for_stability == 11


def test_slo():
    result = MODEL.solve(80, 100, 10, slo_latency_ms=500)
    assert result.feasible and result.replicas_for_slo == 10
    assert result.slo_headroom_ratio == pytest.approx(500 / p99(result))
    assert result.slo_violation_probability < 0.01
    tight = MODEL.solve(80, 100, 10, slo_latency_ms=470)
    assert not tight.feasible and tight.slo_violation_probability > 0.01
    enough = tight.replicas_for_slo
    assert MODEL.solve(80, 100, enough, slo_latency_ms=470).feasible
    assert not MODEL.solve(80, 100, enough - 1, slo_latency_ms=470).feasible
    assert f"needs {enough} replicas" in tight.binding.sentence


def test_no_number_of_replicas_makes_the_service_faster():
    # Exponential service alone has a P99 of 460.5 ms.
    result = MODEL.solve(80, 100, 10, slo_latency_ms=460)
    assert result.replicas_for_slo is None and not result.feasible
    assert "no number of replicas" in result.binding.sentence


def test_without_slo_its_fields_are_unknown():
    result = MODEL.solve(80, 100, 10)
    assert result.slo_latency is None and result.slo_headroom_ratio is None
    assert result.slo_violation_probability is None and result.replicas_for_slo is None


def test_another_percentile():
    result = MODEL.solve(80, 100, 10, percentile=99.9)
    assert result.percentile_latency > result.p99_latency
    assert MODEL.solve(80, 100, 10, percentile=50).percentile_latency == result.p50_latency


def test_service_variation():
    # M/D/10 at rho 0.95: 1 + ln(C / 0.01) / (2 c (1 - rho)); C = 0.8256.
    constant = MODEL.solve(95, 100, 10, service_time_cv=0)
    waits = constant.wait_probability
    assert p99(constant) == pytest.approx(100 * (1 + math.log(waits / 0.01) / (2 * 10 * 0.05)))
    waits_exponential = MODEL.solve(95, 100, 10).mean_wait
    assert (constant.mean_wait / waits_exponential).magnitude == pytest.approx(0.5)
    assert (MODEL.solve(95, 100, 10, service_time_cv=2).mean_wait / waits_exponential).magnitude == pytest.approx(2.5)
    steady, usual, wild = (p99(MODEL.solve(95, 100, 10, cv)) for cv in (0.5, 1.0, 2.0))
    assert p99(constant) < steady < usual < wild


def test_a_hundred_thousand_replicas():
    result = MODEL.solve(999_000, 100, 100_000, slo_latency_ms=470)
    assert 460.5 < p99(result) < 500
    assert 99_900 < result.replicas_for_slo <= 100_000
    idle = MODEL.solve(1, 100, 100_000)
    assert p99(idle) == pytest.approx(460.517, abs=0.001)
    assert idle.wait_probability == 0.0


def test_infinitely_many_replicas_leave_the_service():
    assert p99(MODEL.solve(1e-6, 100, 1)) == pytest.approx(-math.log(0.01) * 100, rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 0.98), st.integers(1, 300), st.floats(1.001, 1.5))
def test_signs(rho, replicas, factor):
    rate = rho * replicas * 10
    here = p99(MODEL.solve(rate, 100, replicas))
    assert p99(MODEL.solve(rate, 100, replicas + 1)) <= here * (1 + 1e-9)
    more = MODEL.solve(rate * factor, 100, replicas)
    assert not more.is_stable or p99(more) >= here * (1 - 1e-9)
    slower = MODEL.solve(rate, 100 * factor, replicas)
    assert not slower.is_stable or p99(slower) >= here * factor * (1 - 1e-9)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"arrival_rate_qps": 0}, "arrival_rate_qps"),
        ({"arrival_rate_qps": -3}, "arrival_rate_qps"),
        ({"arrival_rate_qps": math.nan}, "arrival_rate_qps"),
        ({"service_latency_ms": 0}, "service_latency_ms"),
        ({"num_replicas": 1.5}, "num_replicas"),
        ({"num_replicas": 0}, "num_replicas"),
        ({"service_time_cv": -0.1}, "service_time_cv"),
        ({"percentile": 100}, "percentile"),
        ({"slo_latency_ms": -1}, "slo_latency_ms"),
    ],
)
def test_what_is_out_of_range_is_named(inputs, said):
    with pytest.raises(InputError, match=said):
        MODEL.solve(**{"arrival_rate_qps": 80, "service_latency_ms": 100, "num_replicas": 10} | inputs)


def test_a_wrong_unit_is_refused():
    with pytest.raises(UnitError, match="service_latency_ms"):
        MODEL.solve(80, "100 GB", 10)


def test_explanation_and_card():
    text = MODEL.solve(80, 100, 10).explain()
    assert "rho = lambda S / c" in text and "C = 0.4092" in text
    assert wall(7).name == "Tail Latency" and wall(7).resolver == "TailLatencyModel"
    assert TailLatencyModel.schema()["inputs"]["required"] == ["arrival_rate_qps", "service_latency_ms"]
    assert TailLatencyModel.fallacies()
