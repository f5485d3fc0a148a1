"""Designs: what is written is read, every target is told, and a plan that holds is set beside the best one."""

from __future__ import annotations

import pytest

from mlsysim.errors import InputError
from mlsysim.labs.design import all_designs, best_design, read_design, start_of, tried, word_on, written
from mlsysim.labs.grading import grade
from mlsysim.labs.lab import lab
from mlsysim.labs.runner import lab_answer
from mlsysim.labs.scope import Scope

LAB = lab("roofline")
BUILD = LAB.question("serve")
OWN = Scope.of_student(LAB, "ann")


def test_a_plan_is_read_as_it_is_written():
    plan = {"chip": "H200", "batch": 64}
    assert read_design(BUILD, written(plan)) == plan
    assert read_design(BUILD, " batch = 64 ;chip=H200") == {"batch": 64, "chip": "H200"}
    assert read_design(BUILD, "batch=64.0") == {"batch": 64}, "what is left out stays where it is"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no design yet"),
        ("batch", "says no value"),
        ("batsh=64", "did you mean 'batch'"),
        ("batch=65", "it takes 1, 4, 8"),
        ("batch=nan", "has no value 'nan'"),
    ],
)
def test_what_is_no_plan_gets_a_sentence_and_is_no_attempt(text, sentence):
    with pytest.raises(InputError, match=sentence):
        read_design(BUILD, text or " , ")
    refused = grade(OWN, BUILD, text or " , ")
    assert not refused.counts and not refused.correct and sentence in refused.message


def test_a_plan_that_misses_is_told_by_how_much():
    refused = grade(OWN, BUILD, "chip=A100, batch=512")
    late = next(target for target in refused.targets if target.label == "Time of a token")
    assert not late.holds and late.miss.endswith("ms too much") and late.bound.startswith("at most")
    assert "1 of 2 targets hold" in refused.message and "Past the ridge" in refused.message and refused.slip == 1
    small = grade(OWN, BUILD, "chip=A100, batch=1")
    assert small.slip == 2 and small.targets[0].miss.endswith("% too little")


def test_every_plan_that_holds_is_right_and_the_best_is_told():
    holding = [plan for plan in all_designs(BUILD) if tried(OWN, BUILD, plan).holds]
    assert len(holding) > 1
    assert all(grade(OWN, BUILD, written(plan)).correct for plan in holding)
    best = best_design(OWN, BUILD)
    assert best in holding and "no other plan of these controls does better" in word_on(OWN, BUILD, best)
    worse = next(plan for plan in holding if plan["batch"] < best["batch"])
    assert "% of that of the best plan here" in word_on(OWN, BUILD, worse)
    said = lab_answer("roofline", "serve", written(worse), "ann")
    assert (
        said["correct"] and "best plan here" in said["message"] and all(target["holds"] for target in said["targets"])
    )


def test_controls_start_at_the_students_own_values_and_fail_there():
    start = start_of(OWN, BUILD)
    assert start == {"chip": "A100", "batch": 4} and not tried(OWN, BUILD, start).holds


def test_a_plan_that_the_engine_refuses_is_an_attempt_with_its_sentence():
    layout = lab("llama3").question("layout")
    refused = grade(Scope.of_student(lab("llama3")), layout, "tp=1, pp=1")
    assert refused.counts and not refused.correct and refused.message.startswith("This plan does not run: ")
