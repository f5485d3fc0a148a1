"""The batch with the highest throughput under a latency target."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.search.batching import BatchingOptimizer
from mlsysim.walls.node.serving import ServingModel
from mlsysim.walls.node.tail import TailLatencyModel

MODEL = BatchingOptimizer()
BASE = {
    "model": "Llama3_8B",
    "hardware": "H100",
    "seq_len": 1024,
    "sla_latency_ms": 10_000,
    "arrival_rate_qps": 20,
    "num_replicas": 2,
}


def p99_of(batch, qps=20.0, replicas=2):
    """Walls 4 and 7 by hand."""
    served = ServingModel().solve("Llama3_8B", "H100", seq_len=1024, batch_size=batch, output_len=128)
    service = served.ttft + 127 * served.itl
    tail = TailLatencyModel().solve(qps, service, replicas * batch, slo_latency_ms=10_000)
    return service.to("s").magnitude, tail


def test_the_best_batch_is_the_largest_that_meets_the_target():
    result = MODEL.solve(**BASE)
    best = result.best_batch_size
    service, tail = p99_of(best)
    assert result.is_feasible and result.feasible
    assert tail.feasible and not p99_of(best + 1)[1].feasible
    assert result.p99_latency.to("s").magnitude == pytest.approx(tail.p99_latency.to("s").magnitude)
    assert result.slo_violation_probability == pytest.approx(tail.slo_violation_probability)
    # U19: throughput is that of the batch, in tokens of answers, not the arrival rate times the prompt's length.
    assert result.max_throughput.to("1/s").magnitude == pytest.approx(2 * best * 128 / service)
    assert result.offered_throughput.to("1/s").magnitude == pytest.approx(20 * 128)
    assert result.assumptions["output_len"] == "128"


def test_the_smallest_feasible_batch_carries_the_load():
    result = MODEL.solve(**BASE)
    smallest = result.smallest_feasible_batch
    assert p99_of(smallest)[1].feasible and not p99_of(smallest - 1)[1].feasible
    assert result.rejected["Wall 7 (unstable queue)"] == smallest - 1


def test_every_batch_is_accounted_for():
    result = MODEL.solve(**BASE)
    accepted = result.best_batch_size - result.smallest_feasible_batch + 1
    assert sum(result.rejected.values()) + accepted == result.total_searched == 256
    assert result.runner_up["batch_size"] == result.best_batch_size - 1
    assert [c["batch_size"] for c in result.top_candidates] == sorted(
        (c["batch_size"] for c in result.top_candidates), reverse=True
    )


def test_memory_rejects():
    result = MODEL.solve(
        **BASE | {"sla_latency_ms": "1000 s", "max_search_batch": 1024, "seq_len": 4096, "arrival_rate_qps": 2}
    )
    assert result.rejected["Wall 2 (Memory)"] == 1024 - result.largest_fitting_batch
    assert result.best_batch_size == result.largest_fitting_batch and result.binding.wall == 2


def test_no_batch_is_fast_enough():
    result = MODEL.solve(**BASE | {"sla_latency_ms": 1000})
    assert not result.is_feasible and not result.feasible
    assert result.best_batch_size is None and result.p99_latency is None and result.max_throughput is None
    assert result.closest["percentile_latency_s"] > 1 and "closest" in result.binding.sentence
    assert "even without a queue" in result.binding.sentence


def test_no_batch_carries_the_load():
    result = MODEL.solve(**BASE | {"arrival_rate_qps": 5000})
    assert not result.is_feasible and result.closest is None
    assert result.rejected["Wall 7 (unstable queue)"] == 256 and "more replicas" in result.binding.sentence


def test_a_model_that_does_not_fit():
    result = MODEL.solve("Llama3_70B", "H100", 1024, 10_000, 1)
    assert not result.is_feasible and result.rejected["Wall 2 (Memory)"] == 256
    assert result.largest_fitting_batch is None and result.binding.wall == 2


def test_nothing_rejected_says_so():
    result = MODEL.solve(**BASE | {"arrival_rate_qps": 0.1, "sla_latency_ms": "1 h", "max_search_batch": 8})
    assert result.best_batch_size == 8 and "larger 'max_search_batch'" in result.binding.sentence


@settings(max_examples=10, deadline=None)
@given(st.floats(1, 60), st.floats(1.1, 3))
def test_signs(qps, factor):
    def best(**changed):
        result = MODEL.solve(**BASE | {"arrival_rate_qps": qps, "max_search_batch": 64} | changed)
        return result.best_batch_size or 0

    here = best()
    assert best(sla_latency_ms=10_000 * factor) >= here
    assert best(num_replicas=4) >= here


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"sla_latency_ms": 0}, "sla_latency_ms"),
        ({"arrival_rate_qps": -1}, "arrival_rate_qps"),
        ({"max_search_batch": 0}, "max_search_batch"),
        ({"percentile": 100}, "percentile"),
        ({"model": "ResNet50"}, "ResNet"),
    ],
)
def test_error_sentences(inputs, said):
    with pytest.raises(InputError, match=said):
        MODEL.solve(**BASE | inputs)


def test_runs_without_numpy():
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from mlsysim.search.batching import BatchingOptimizer\n"
        "print(BatchingOptimizer().solve('Llama3_8B', 'H100', 512, 20000, 1, max_search_batch=4).best_batch_size)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "4"


def test_the_next_batch_is_forbidden_by_the_wall_that_rejected_it():
    result = MODEL.solve(**BASE)
    steps = result.sensitivity["batch_size"]
    assert steps["at"] == result.best_batch_size
    assert steps["up"] == {
        "to": result.best_batch_size + 1,
        "worth": None,
        "rejected_by": "Wall 7 (latency target)",
    }
    second = result.runner_up["throughput_tokens_per_s"] / result.best_config["throughput_tokens_per_s"]
    assert steps["down"]["worth"] == pytest.approx(second - 1)
    assert result.runner_up_behind_fraction == pytest.approx(1 - second)
    assert result.ties == 1


@pytest.mark.parametrize(
    ("name", "up", "down"),
    [("num_replicas", 3, 1), ("sla_latency_ms", 11_000, 9_000), ("arrival_rate_qps", 22, 18)],
)
def test_a_step_is_worth_what_a_search_with_it_finds(name, up, down):
    result = MODEL.solve(**BASE)
    for direction, to in (("up", up), ("down", down)):
        entry = result.sensitivity[name][direction]
        assert entry["to"] == pytest.approx(to)
        other = MODEL.solve(**{**BASE, name: entry["to"]})
        if other.is_feasible:
            assert entry["worth"] == pytest.approx(other.objective_value / result.objective_value - 1, abs=1e-9)
        else:
            assert entry["worth"] is None and entry["rejected_by"]


def test_without_an_answer_there_is_no_sensitivity():
    assert MODEL.solve(**{**BASE, "sla_latency_ms": 1}).sensitivity == {}
