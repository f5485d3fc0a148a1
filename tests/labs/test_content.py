"""Every lab: it loads, every student's variant has answers, right ones pass, wrong ones are refused, texts have no gaps."""

from __future__ import annotations

import itertools
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from mlsysim.errors import InputError
from mlsysim.labs.design import all_designs, scope_of, start_of, tried, written
from mlsysim.labs.grading import grade, right_answer
from mlsysim.labs.lab import Lab, lab, lab_from_text, labs
from mlsysim.labs.lab_charts import draw
from mlsysim.labs.runner import check_lab, lab_answer, lab_compute, lab_finish, lab_open
from mlsysim.labs.scope import Scope, all_variants, parameters_of, shown

WANTED = [
    "roofline",
    "memory_wall",
    "two_phases",
    "kv_cache",
    "starving_gpu",
    "quantisation",
    "scaling",
    "geography",
    "nine_million",
    "sensitivity",
    "gpu_wafer",
    "training_memory",
    "failures",
    "design_space",
    "full_stack_audit",
    "llama3",
    "weeks",
    "power_caps",
    "traffic",
    "rl_split",
]
CONTENT = Path(str(files("mlsysim.labs"))) / "content"
STUDENTS = ["ann", "bob"]


def typed(scope, question) -> str:
    """The right answer as a student writes it; of a design one that holds."""
    if question.kind == "words":
        return "Memory decides, I think."
    if question.kind == "design":
        return next(written(plan) for plan in all_designs(question) if tried(scope, question, plan).holds)
    right = right_answer(scope, question)
    return right if question.is_choice else f"{right.magnitude:.6g} {question.unit}"


def test_the_labs_are_those_that_are_promised():
    assert [each.id for each in labs()] == WANTED
    assert [each.number for each in labs()] == list(range(1, len(WANTED) + 1))
    for each in labs():
        assert set(each.after) <= set(WANTED) - {each.id}
        assert all(1 <= wall <= 22 for wall in each.walls)


@pytest.mark.parametrize("name", WANTED)
def test_a_lab_is_one_file_that_holds_no_numeric_answer(name):
    raw = tomllib.loads((CONTENT / f"{name}.toml").read_text())
    assert raw["id"] == name
    of = lab(name)
    for question in of.questions:
        if question.answer is not None:
            assert question.answer in of.expressions() and not question.answer.replace(".", "").isdigit()
        for target in question.targets:
            assert (
                target.unit
                or target.at_most is None
                or not target.at_most.replace(".", "").isdigit()
                or name == "sensitivity"
            )


@pytest.mark.parametrize("name", WANTED)
def test_every_variant_has_values_answers_and_texts(name):
    of = lab(name)
    count = check_lab(of, charts=False, designs=False)
    assert count == len(list(all_variants(of))) > 1


@pytest.mark.parametrize("name", WANTED)
def test_a_student_can_complete_it_and_wrong_answers_are_refused(name):
    of = lab(name)
    for student in STUDENTS:
        scope = Scope.of_student(of, student)
        right = {question.id: typed(scope, question) for question in of.questions}
        predictions = {question.id: right[question.id] for question in of.predictions}
        opened = lab_open(name, student)
        assert opened["controls"] and len(opened["questions"]) == len(of.questions)
        with pytest.raises(InputError, match="Predict first"):
            lab_compute(name, {}, student)
        computed = lab_compute(name, predictions, student, width=400)
        assert len(computed["compared"]) == len([q for q in of.predictions if q.kind != "words"])
        for question in of.graded:
            assert lab_answer(name, question.id, right[question.id], student)["correct"], question.id
            for wrong in wrong_answers(scope, question, right[question.id]):
                refused = lab_answer(name, question.id, wrong, student)
                assert not refused["correct"], (question.id, wrong)
                assert refused["message"] and (refused["hint"] or not refused["counts"])
        attempts = {question.id: 1 for question in of.graded}
        done = lab_finish(name, predictions, right, attempts, student)
        assert done["complete"] and done["score"] == done["points"] and done["code"]
        assert [one["said"] for one in done["confronted"]] == ["Memory decides, I think."] and "{" not in done[
            "confronted"
        ][0]["came"]
        assert "{" not in done["explanation"] and "nan" not in done["explanation"].lower()
        first = of.graded[0].id
        partly = lab_finish(name, predictions, {**right, first: ""}, attempts, student)
        assert partly["open"] == [first] and not partly["explanation"] and partly["code"] != done["code"]


def wrong_answers(scope, question, right: str) -> list[str]:
    """Off by twice the tolerance, without its unit, of another dimension, another option, nothing; of a design its start."""
    if question.kind == "design":
        return [
            written(start_of(scope, question)),
            "",
            "such and such",
            f"{question.moves[0].parameter}=none such",
            "no=1",
        ]
    if question.is_choice:
        return [option.value for option in question.options if option.value != right] + ["", "no such option"]
    number = float(right.split()[0])
    off = 2 * max(question.tolerance, 0.01)
    found = [f"{number * (1 + off):.9g} {question.unit}", f"{number * (1 - off):.9g} {question.unit}", "", "fast"]
    found.append(f"{number:.6g} kB" if question.unit not in ("kB", "GB", "TB") else f"{number:.6g} s")
    if question.unit not in ("", "percent"):
        found.append(f"{number:.6g}")
    return found


@pytest.mark.parametrize("name", WANTED)
def test_every_lab_has_something_to_build_words_to_confront_and_named_misconceptions(name):
    of = lab(name)
    assert [q.kind for q in of.predictions].count("words") == 1
    assert sum(q.kind == "design" for q in of.questions) == 1
    asked = [q for q in of.graded if q.slips]
    assert len(asked) >= len(of.graded) - 1 and sum(len(q.slips) for q in of.graded) >= 5
    for question in of.graded:
        shown_already = [
            key for key in of.show if question.kind == "number" and question.answer in (key, of.values[key].of)
        ]
        assert not shown_already, f"{question.id} is read off the page"


@pytest.mark.parametrize("name", WANTED)
def test_designs_are_solved_in_more_than_no_way_and_their_slips_are_met(name):
    of = lab(name)
    question = next(q for q in of.questions if q.kind == "design")
    scope = Scope.of_student(of, STUDENTS[0])
    outcomes = [(plan, tried(scope, question, plan)) for plan in all_designs(question)]
    assert any(found.holds for _, found in outcomes) and not all(found.holds for _, found in outcomes)
    failed = [scope_of(scope, question, plan) for plan, found in outcomes if not found.holds and not found.refusal]
    for slip in question.slips:
        assert any(inside.evaluate(slip.of) for inside in failed), slip.name


@pytest.mark.parametrize("name", WANTED)
def test_charts_are_drawn_at_every_corner_of_the_controls(name):
    of = lab(name)
    for corner in itertools.product(*((control.values[0], control.values[-1]) for control in of.controls)):
        scope = Scope.of_student(of, "", {c.parameter: value for c, value in zip(of.controls, corner, strict=True)})
        for value in of.show:
            assert scope.shown(value)
        for chart in of.charts:
            drawn = draw(scope, chart, 360)
            assert drawn["rows"] if drawn["kind"] == "table" else drawn["svg"].startswith("<svg")


def test_students_get_different_numbers_and_always_the_same():
    for of in labs():
        mine = [tuple(map(str, parameters_of(of, f"student {k}").values())) for k in range(40)]
        assert len(set(mine)) > 1, of.id
        assert parameters_of(of, " Student 3 ") == parameters_of(of, "student 3")
    ann = parameters_of(lab("roofline"), "ann")
    assert (ann["chip"], ann["model"], ann["batch"]) == ("A100", "Mistral_7B", 4)


def test_practice_takes_the_first_of_each_list():
    of = lab("roofline")
    first = {name: value[0] if isinstance(value, list) else value for name, value in of.parameters.items()}
    assert parameters_of(of) == first and (first["chip"], first["model"]) == ("H100", "Llama3_8B")


def test_known_answers_by_hand():
    """Arithmetic that a student does on paper, against what the labs ask."""
    roofline = Scope.of_student(lab("roofline"))
    assert right_answer(roofline, lab("roofline").question("ridge")).magnitude == pytest.approx(989 / 3.35)
    assert right_answer(roofline, lab("roofline").question("crossover")).magnitude == 148  # 989 x 0.5 / 3.35 = 147.6
    audit = Scope.of_student(lab("full_stack_audit"))
    check = right_answer(audit, lab("full_stack_audit").question("selfcheck")).magnitude
    assert check == pytest.approx(100 * 120 / (2 * 120 * 4 * 3600) ** 0.5)
    assert right_answer(audit, lab("full_stack_audit").question("least")).magnitude == 1098  # 512 x 30 / 14 = 1097.1
    llama = Scope(lab("llama3"), {**parameters_of(lab("llama3")), "v": 8})
    bubble = right_answer(llama, lab("llama3").question("bubble")).magnitude
    assert bubble == pytest.approx(100 * 15 / (8 * 16 + 15))
    cache = Scope.of_student(lab("kv_cache"))
    assert right_answer(cache, lab("kv_cache").question("token")).magnitude == pytest.approx(2 * 80 * 8 * 128 * 2 / 1e3)
    assert cache["per_token"].to("kB").magnitude == pytest.approx(327.68), "the engine agrees with the formula"


def test_the_least_of_a_search_is_the_least():
    of = lab("roofline")
    for parameters in all_variants(of):
        cross = Scope(of, parameters)["cross"]
        below, at = (Scope(of, {**parameters, "batch": batch})["one"] for batch in (cross - 1, cross))
        assert below.latency_compute <= below.latency_memory and at.latency_compute > at.latency_memory


SMALL = """
id = "small"
number = 1
version = 1
title = "A small one"
track = "foundations"
minutes = 10
walls = [1]
summary = "s"
objectives = ["a", "b"]
show = ["t", "rate"]
introduction = "A pass takes {t}."
task = "Move it."
explanation = "It took {t} at batch {batch}."
[parameters]
batch = [1, 2]
[compute]
one = { resolver = "SingleNodeModel", inputs = { model = "Llama3_8B", hardware = "H100", batch_size = "=batch" } }
[values]
t = { of = "one.latency", unit = "ms" }
rate = { of = "batch / one.latency", unit = "1/s" }
[[controls]]
parameter = "batch"
label = "Batch"
values = [1, 2]
[[charts]]
kind = "waterfall"
title = "Time"
of = ["one"]
[[questions]]
id = "p"
stage = "predict"
text = "t?"
answer = "t"
unit = "ms"
[[questions]]
id = "c"
stage = "compute"
text = "t?"
answer = "t"
unit = "ms"
hint = "look"
[[questions]]
id = "b"
stage = "build"
text = "Build."
moves = [{ parameter = "batch", label = "Batch", values = [1, 2, 4] }]
targets = [{ of = "rate", label = "Rate", unit = "1/s", at_least = "q('500 1/s')" }]
goal = { lowest = "t", label = "Pass", unit = "ms" }
hint = "look"
[[questions]]
id = "e"
stage = "explain"
text = "rate?"
answer = "rate"
unit = "1/s"
hint = "look"
"""


def test_a_lab_of_ones_own_is_checked():
    assert check_lab(lab_from_text(SMALL)) == 2


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("walls = [1]", "wall = [1]", "has no field 'wall'"),
        ('answer = "rate"', 'answer = "rat"', "did you mean 'rate'"),
        ('of = "one.latency"', 'of = "two.latency"', "two"),
        ("SingleNodeModel", "SingleNodModel", "did you mean 'SingleNodeModel'"),
        ("takes {t}", "takes {time}", "placeholder"),
        ('hint = "look"', "", "needs a hint"),
        ('show = ["t", "rate"]', 'show = ["t", "rates"]', "did you mean 'rate'"),
        ('stage = "explain"', 'stage = "compute"', "'explain'"),
        ("minutes = 10", "minutes = 5", "minutes"),
        ('track = "foundations"', 'track = "fundations"', "track"),
        ("values = [1, 2, 4]", "values = [1]", "values"),
        ('at_least = "q(', 'at_leest = "q(', "at_leest"),
        ('goal = { lowest = "t"', 'goal = { lowest = "t", highest = "t"', "one of 'lowest' and 'highest'"),
        ('moves = [{ parameter = "batch", label', 'moves = [{ parameter = "bach", label', "did you mean 'batch'"),
        ('stage = "build"', 'stage = "compute"', "belongs to the stage 'build'"),
        ('answer = "t"', 'answer = "__import__(1)"', "function"),
        ('id = "e"', 'id = "c"', "same id"),
        ('title = "A small one"', "title = ", "no TOML"),
        ('batch_size = "=batch"', 'batch_size = "=batches"', "batches"),
    ],
)
def test_a_bad_file_is_refused_with_a_sentence(old, new, sentence):
    assert old in SMALL
    with pytest.raises(InputError) as caught:
        lab_from_text(SMALL.replace(old, new))
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("values = [1, 2]", "values = [2, 4]", "lacks 1"),
        ("values = [1, 2, 4]", "values = [2, 4]", "starts 'Batch' at 1"),
        ("q('500 1/s')", "q('1 1/s')", "solved before anything is moved"),
        ("q('500 1/s')", "q('5 GHz')", "no design that holds"),
        (
            'hint = "look"\n[[questions]]\nid = "b"',
            'hint = "look"\nslips = [{ of = "1.01 * t", name = "a", says = "b" }]\n[[questions]]\nid = "b"',
            "is the right answer",
        ),
        (
            'hint = "look"\n[[questions]]\nid = "b"',
            'hint = "look"\nslips = [{ of = "2 * t", name = "a", says = "b" }, { of = "2.02 * t", name = "c", says = "d" }]\n[[questions]]\nid = "b"',
            "not told from another",
        ),
        ('of = "batch / one.latency", unit = "1/s"', 'of = "batch + one.latency", unit = "1/s"', "has no value"),
        ('"one.latency", unit', '"t * 2", unit', "from itself"),
        ('hardware = "H100"', 'hardware = "H1000"', "H100"),
        ('of = "one.latency", unit', 'of = "one.latensy", unit', "latency"),
    ],
)
def test_a_lab_that_does_not_work_is_found_by_the_check(old, new, sentence):
    assert old in SMALL
    with pytest.raises(InputError) as caught:
        check_lab(lab_from_text(SMALL.replace(old, new)))
    assert sentence in str(caught.value)


def test_controls_take_only_their_own_values():
    of = lab_from_text(SMALL)
    assert isinstance(of, Lab)
    assert Scope.of_student(of, "", {"batch": 2}).shown("rate") != Scope.of_student(of, "", {"batch": 1}).shown("rate")
    with pytest.raises(InputError, match="no value 3"):
        Scope.of_student(of, "", {"batch": 3})
    with pytest.raises(InputError, match="did you mean 'batch'"):
        Scope.of_student(of, "", {"batsh": 1})


def test_controls_do_not_move_the_right_answer():
    of = lab("roofline")
    own = Scope.of_student(of, "ann")
    question = of.question("pass")
    assert grade(own, question, typed(own, question)).correct
    moved = Scope.of_student(of, "ann", {"batch": 512})
    assert shown(moved["latency"], "ms") != shown(own["latency"], "ms")
    assert lab_answer("roofline", "crossover", str(own["cross"]), "ann")["correct"]
