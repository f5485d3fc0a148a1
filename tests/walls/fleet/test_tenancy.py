"""Wall 16: waiting for a shared cluster."""

import heapq
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim import Systems
from mlsysim.errors import InputError
from mlsysim.walls.catalog import wall
from mlsysim.walls.fleet.tenancy import OrchestrationModel

MODEL = OrchestrationModel()
FLEET = Systems.Clusters.Frontier_8K


def test_wait_and_queue_of_one_server():
    # M/D/1 at rho = 0.9: W = 0.9 D / (2 x 0.1) = 4.5 D, L = lambda W = 4.05 at one job a day.
    result = MODEL.solve(FLEET, arrival_rate_jobs_per_day=0.9, avg_job_duration_days=1.0)
    assert result.cluster_utilization == pytest.approx(0.9)
    assert result.avg_wait_time_days == pytest.approx(4.5)
    assert result.avg_queue_length == pytest.approx(4.05)
    assert result.avg_turnaround_days == pytest.approx(5.5)
    assert result.is_stable and result.feasible
    assert result.assumptions["num_servers"].startswith("1")
    assert result.busy_accelerators == pytest.approx(0.9 * 8192)


def test_from_half_to_nine_tenths():
    # The paper says 5 times the queue (P19): the wait grows 9 times, the queue 16.2 times.
    low, high = (MODEL.solve(FLEET, rate, 1.0) for rate in (0.5, 0.9))
    assert high.avg_wait_time_days / low.avg_wait_time_days == pytest.approx(9.0)
    assert high.avg_queue_length / low.avg_queue_length == pytest.approx(16.2)


def test_strings_and_names():
    by_name = MODEL.solve("Frontier_8K", "0.0375 1/hour", "24 h")
    assert by_name.avg_wait_time_days == pytest.approx(4.5)


@pytest.mark.parametrize("rate", [1.0, 1.5])
def test_unstable(rate):
    result = MODEL.solve(FLEET, rate, 1.0, target_wait_days=1)
    assert not result.is_stable and not result.feasible
    assert result.avg_wait_time_days is None and result.avg_queue_length is None
    assert result.backlog_jobs_per_day == pytest.approx(rate - 1)
    assert result.servers_for_target == 2
    assert "unstable" in result.binding.sentence
    assert "NaN" not in result.to_json()


def test_parallel_jobs():
    one = MODEL.solve(FLEET, 9, 0.1)
    pooled = MODEL.solve(FLEET, 9, 1.0, num_servers=10)
    assert pooled.cluster_utilization == pytest.approx(one.cluster_utilization)
    # The same load on ten slices, each ten times slower: fewer wait, and the queue is shorter.
    assert pooled.avg_queue_length < one.avg_queue_length
    assert pooled.wait_probability < one.wait_probability
    assert MODEL.solve(FLEET, 9, 1.0, accelerators_per_job=819).num_servers == 10


def simulated_wait(servers, rho, cv, seed):
    draw = random.Random(seed)
    free, now, waits, count = [0.0] * servers, 0.0, 0.0, 200_000
    for _ in range(count):
        now += draw.expovariate(servers * rho)
        start = max(now, heapq.heappop(free))
        heapq.heappush(free, start + (draw.gammavariate(1 / cv**2, cv**2) if cv else 1.0))
        waits += start - now
    return waits / count


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0])
def test_parallel_jobs_against_simulation(cv):
    # The mean wait of one run scatters by 2 to 5 %, the mean of four by half of that.
    expected = sum(simulated_wait(8, 0.8, cv, seed) for seed in range(4)) / 4
    result = MODEL.solve(FLEET, 8 * 0.8, 1.0, num_servers=8, job_duration_cv=cv)
    assert result.avg_wait_time_days == pytest.approx(expected, rel=0.06)


def test_variation_doubles_the_wait_of_one_server():
    assert MODEL.solve(FLEET, 0.9, 1.0, job_duration_cv=1).avg_wait_time_days == pytest.approx(9.0)


def test_a_wait_target_for_one_server():
    # rho = 2 W / (D + 2 W): half a day of wait for jobs of one day allows rho = 0.5.
    result = MODEL.solve(FLEET, 0.9, 1.0, target_wait_days=0.5)
    assert result.utilization_for_target == pytest.approx(0.5)
    assert result.arrival_rate_for_target == pytest.approx(0.5)
    assert not result.feasible and "keep the load at 0.5" in result.binding.sentence
    assert MODEL.solve(FLEET, 0.4, 1.0, target_wait_days=0.5).feasible


@pytest.mark.parametrize("servers", [1, 2, 16])
@pytest.mark.parametrize("cv", [0.0, 1.5])
def test_the_load_for_a_target_gives_that_wait(servers, cv):
    allowed = MODEL.solve(FLEET, 0.1, 2.0, num_servers=servers, job_duration_cv=cv, target_wait_days="6 h")
    again = MODEL.solve(FLEET, allowed.arrival_rate_for_target, 2.0, num_servers=servers, job_duration_cv=cv)
    assert again.avg_wait_time_days == pytest.approx(0.25, rel=1e-6)


def test_servers_for_a_target():
    result = MODEL.solve(FLEET, 40, 0.2, num_servers=9, target_wait_days=0.01)
    enough = result.servers_for_target
    assert MODEL.solve(FLEET, 40, 0.2, num_servers=enough, target_wait_days=0.01).feasible
    assert not MODEL.solve(FLEET, 40, 0.2, num_servers=enough - 1, target_wait_days=0.01).feasible


def test_limits():
    assert MODEL.solve(FLEET, 1e-9, 1.0).avg_wait_time_days == pytest.approx(0, abs=1e-8)
    assert MODEL.solve(FLEET, 1.0, 1.0, num_servers=8192).avg_wait_time_days == 0.0


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 0.98), st.integers(1, 500), st.floats(0, 3))
def test_signs(rho, servers, cv):
    here = MODEL.solve(FLEET, rho * servers, 1.0, num_servers=servers, job_duration_cv=cv)
    busier = MODEL.solve(FLEET, rho * servers * 1.01, 1.0, num_servers=servers, job_duration_cv=cv)
    larger = MODEL.solve(FLEET, rho * servers, 1.0, num_servers=servers + 1, job_duration_cv=cv)
    wilder = MODEL.solve(FLEET, rho * servers, 1.0, num_servers=servers, job_duration_cv=cv + 0.1)
    assert busier.avg_wait_time_days >= here.avg_wait_time_days * (1 - 1e-9)
    assert larger.avg_wait_time_days <= here.avg_wait_time_days * (1 + 1e-9)
    assert wilder.avg_wait_time_days >= here.avg_wait_time_days * (1 - 1e-9)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"arrival_rate_jobs_per_day": 0}, "arrival_rate_jobs_per_day"),
        ({"avg_job_duration_days": -1}, "avg_job_duration_days"),
        ({"num_servers": 0}, "num_servers"),
        ({"num_servers": 10_000}, "cannot run 10,000 jobs"),
        ({"accelerators_per_job": 10_000}, "does not fit"),
        ({"num_servers": 2, "accelerators_per_job": 8}, "not both"),
        ({"target_wait_days": 0}, "target_wait_days"),
        ({"job_duration_cv": -1}, "job_duration_cv"),
    ],
)
def test_error_sentences(inputs, said):
    with pytest.raises(InputError, match=said):
        MODEL.solve(**{"fleet": FLEET, "arrival_rate_jobs_per_day": 1, "avg_job_duration_days": 0.5} | inputs)


def test_explanation_and_card():
    assert "W = rho D / (2 (1 - rho))" in MODEL.solve(FLEET, 0.9, 1.0).explain()
    assert "W(M/M/c)" in MODEL.solve(FLEET, 9, 1.0, num_servers=10).explain()
    assert wall(16).name == "Multi-tenant" and wall(16).resolver == "OrchestrationModel"
