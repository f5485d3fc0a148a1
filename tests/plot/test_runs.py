"""Pictures of a simulated run, of an answer that has one."""

from __future__ import annotations

import pytest

from mlsysim import train
from mlsysim.plans.pieces import Part
from mlsysim.plot.answers import finish_of, hours_of, lost_of, run_of

HOURS = [0.0, 30.0, 30.5, 31.0, 50.0, 60.0, 200.0]
STATES = ["training", "work done again", "restarts", "training", "stopped", "training"]
CAUSES = ["", "accelerators", "accelerators", "", "pause", ""]
LOST = {
    "useful work": 189.0,
    "accelerators: restarts": 0.5,
    "accelerators: work done again": 0.5,
    "pause: stopped": 10.0,
}


@pytest.fixture(scope="module")
def answer():
    plain = train("Llama3_8B", "8xH100", tokens=1e10, region="Texas", start="2026-12-01")
    played = {"days": [8.0, 8.3, 9.0], "hours": HOURS, "state": STATES, "cause": CAUSES, "nodes": [1] * 6}
    parts = tuple(Part(label=label, value=3600 * hours, wall=15) for label, hours in LOST.items())
    return plain.model_copy(update={"played": played, "run_parts": parts})


def test_the_run(check, answer):
    figure = check(run_of(answer, title="The run"))
    assert figure.ticks == [30.5] and figure.states() == ["pause", "work done again", "restarts"]
    assert "pause 10 h" in figure.alt and "2026-12-01" in figure.svg()


def test_what_was_lost_is_by_cause(check, answer):
    figure = check(lost_of(answer, title="Lost"))
    assert [label for label, _ in figure.parts] == ["pause", "accelerators"]
    assert "accelerators 60 min (0.5%)" in figure.alt


def test_when_runs_end(check, answer):
    figure = check(finish_of(answer, title="Ended"))
    assert [round(y) for _, y in figure.series[0][1]] == [0, 33, 67, 100]


def test_hours_of_the_region(check, answer):
    check(hours_of(answer, title="Hours"))
    assert hours_of(train("Llama3_8B", "8xH100", tokens=1e10, region="Texas"), title="Hours") is None


def test_a_run_that_was_not_simulated_has_no_picture():
    plain = train("Llama3_8B", "8xH100", tokens=1e10)
    assert run_of(plain, title="x") is finish_of(plain, title="x") is None
