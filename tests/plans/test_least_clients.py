"""The least fleet for so many users at once: it answers them, the next smaller does not, and ``serve`` says the same of it."""

import pytest

import mlsysim
from mlsysim.errors import InputError
from mlsysim.systems.fleet_text import parse_fleet


def keeps(answer, users):
    """Whether all are answered at once and every limit holds."""
    places = int(answer.value("max_batch")) * answer.layout["replicas"]
    return answer.feasible and places >= users and all(check.passed for check in answer.checks)


@pytest.mark.parametrize(
    ("model", "users", "limits"),
    [
        ("Llama3_70B", 500, {}),
        ("Llama3_70B", 500, {"tpot": "50ms"}),
        ("Llama3_8B", 40, {"ttft": "300ms", "precision": "fp8"}),
        ("Mixtral_8x7B", 2000, {"latency": "20s", "prompt_tokens": 4000}),
        ("Llama3_8B", 1, {}),
    ],
)
def test_the_next_smaller_fleet_does_not_do(model, users, limits):
    found = mlsysim.plan(model, on="H100", users=users, **limits)
    assert found.good and ("within every limit" in found.sentence) == bool({*limits} & {"tpot", "ttft", "latency"})
    number = parse_fleet(found.best.plan.hardware.on).accelerators
    assert found.sentence.startswith(f"{number:,} x H100 is the cheapest fleet that answers {users:,} user")
    again = mlsysim.serve(model, on=f"{number}xH100", users=users, **limits)
    assert keeps(again, users) and again.value("tokens_per_second") == found.best.value("tokens_per_second")
    fewer = number // 2 if number <= 8 else number - 8
    assert not fewer or not keeps(mlsysim.serve(model, on=f"{fewer}xH100", users=users, **limits), users)


def test_chips_are_compared_by_what_a_day_costs():
    found = mlsysim.plan("Llama3_70B", on="H100,H200,B200", users=200)
    costs = [float(row[3].replace(",", "")) for row in found.rows]
    assert costs == sorted(costs) and len(costs) == 3
    assert "1,000 who ask once a minute send 1000 / 60 = 16.7 a second" in found.notes[0]


def test_what_no_number_keeps_is_said_with_the_limit_that_is_missed():
    found = mlsysim.plan("Llama3_70B", on="H100", users=20, tpot="1ms")
    assert found.sentence == "No fleet of H100 answers 20 users at once within every limit."
    assert not found.good and found.best is None
    assert "Time of each further token is" in found.notes[-1] and "over the limit of 1 ms" in found.notes[-1]


def test_a_percentile_is_held_by_a_play():
    found = mlsysim.plan("Llama3_8B", on="H100", users=8, slo="ttft_p90=100ms", prompt_tokens=200, output_tokens=50)
    assert found.good and found.best.fidelity == "simulated"


def test_a_rate_and_users_are_two_questions():
    with pytest.raises(InputError, match="either concurrency or qps"):
        mlsysim.plan("Llama3_8B", on="H100", users=8, qps=3)
