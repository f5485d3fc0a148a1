"""Grading: units, tolerance, the sentences of refusals; the arithmetic of lab files; the text of labs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.labs.expression import Formula
from mlsysim.labs.grading import compare_prediction, grade, grade_all, read_answer, right_answer
from mlsysim.labs.lab import lab
from mlsysim.labs.question import Misconception, Option, Question
from mlsysim.labs.runner import to_html
from mlsysim.labs.scope import Scope, shown
from mlsysim.units.registry import Q_

LAB = lab("roofline")
OWN = Scope.of_student(LAB)


def asked(unit: str = "ms", answer: str = "q('12 ms')", tolerance: float = 0.02, **more) -> Question:
    return Question(
        id="x", stage="compute", text="?", answer=answer, unit=unit, tolerance=tolerance, hint="a hint", **more
    )


@pytest.mark.parametrize("text", ["12 ms", "12.0 ms", "0.012 s", "12,000 us", "1.2e-2 s", "12.2ms", "0.0002 min"])
def test_the_same_time_in_any_unit_is_right(text):
    assert grade(OWN, asked(), text).correct


@pytest.mark.parametrize(
    ("text", "sentence", "counts"),
    [
        ("12", "has no unit; this is a time, so write it like '10 ms'", False),
        ("12 MB", "is an amount of data, but this is a time", False),
        ("12 ms/s", "is a plain number, but this is a time", False),
        ("", "no answer yet", False),
        ("quick", "holds no number", False),
        ("12 mss", "There is no unit 'mss'", False),
        ("13 ms", "too large by more than 2 %", True),
        ("11 ms", "too small by more than 2 %", True),
        ("12 s", "neighbouring prefixes", True),
        ("96 ms", "too large by more than 2 %.", True),
        ("-12 ms", "wrong sign", True),
        ("0 ms", "not zero", True),
    ],
)
def test_what_is_not_right_gets_a_sentence(text, sentence, counts):
    refused = grade(OWN, asked(), text)
    assert not refused.correct and sentence in refused.message and refused.counts is counts
    assert refused.hint == ("a hint" if counts else "")
    assert "12 ms" not in refused.message.replace(text, ""), "a refusal does not give the answer away"


@given(st.floats(1e-6, 1e6), st.floats(0.001, 0.4), st.floats(-3, 3))
def test_tolerance_is_relative_and_sharp(value, tolerance, off):
    question = asked("s", f"q('{value!r} s')", tolerance)
    given_value = value * (1 + off * tolerance)
    outcome = grade(OWN, question, f"{given_value!r} s")
    if abs(abs(off) - 1) > 1e-6:
        assert outcome.correct is (abs(off) < 1)


@pytest.mark.parametrize("text", ["$9,000,000", "$9M", "$ 9 million", "9 MUSD", "9000000 USD", "$9000k"])
def test_money_as_people_write_it(text):
    assert grade(OWN, asked("USD", "q('9 MUSD')"), text).correct


@pytest.mark.parametrize("text", ["5 tCO2e", "5 t CO2e", "5 t CO2", "5000 kg CO2e", "5,000 kgCO2", "5 tonnes of CO2"])
def test_carbon_as_people_write_it(text):
    assert grade(OWN, asked("tCO2e", "q('5 tCO2e')"), text).correct


def test_a_mass_is_no_carbon():
    assert "an amount of carbon" in grade(OWN, asked("tCO2e", "q('5 tCO2e')"), "5 kg").message


def test_shares_are_per_cent_or_fractions():
    question = asked("percent", "0.12")
    assert grade(OWN, question, "12 %").correct and grade(OWN, question, "0.12").correct
    refused = grade(OWN, question, "12")
    assert not refused.counts and "write '12 %'" in refused.message


def test_counts_need_no_unit_and_take_one():
    question = asked("", "64", 0)
    assert grade(OWN, question, "64").correct and grade(OWN, question, "64 GPUs").correct
    assert not grade(OWN, question, "65").correct and not grade(OWN, question, "64.5").correct


def test_choices():
    question = asked(
        "", "'a' if batch == 4 else 'b'", options=[Option(value="a", text="A"), Option(value="b", text="B")]
    )
    assert grade(OWN, question, "a").correct
    wrong = grade(OWN, question, "b")
    assert not wrong.correct and wrong.counts and wrong.hint == "a hint"
    assert not grade(OWN, question, "c").counts


@pytest.mark.parametrize("answer", ["0", "q('0 s')", "'text'", "1 / 0"])
def test_an_answer_that_cannot_be_graded_is_an_error_of_the_lab(answer):
    with pytest.raises(InputError):
        right_answer(OWN, asked("", answer))


EIGHT_USERS = Misconception(of="8 * q('12 ms')", name="eight users", says="they are served together at batch {batch}.")
BITS = Misconception(of="q('12 ms') / 8", name="bits for bytes", says="count bytes.")


def test_a_misconception_is_told_by_its_name_and_not_by_its_ratio():
    question = asked(slips=[EIGHT_USERS, BITS])
    users, bits, other = (grade(OWN, question, text) for text in ("96 ms", "1.5 ms", "70 ms"))
    assert "Eight users: they are served together at batch 4." in users.message and users.slip == 1
    assert "Bits for bytes" in bits.message and bits.slip == 2
    assert other.slip == 0 and ":" not in other.message
    assert grade(OWN, question, "12 ms").slip == 0


def test_a_misconception_counts_only_where_it_leads_elsewhere():
    never = EIGHT_USERS.model_copy(update={"when": "batch > 4"})
    assert grade(OWN, asked(slips=[never]), "96 ms").slip == 0


def test_a_choice_has_misconceptions_too():
    options = [Option(value="a", text="A"), Option(value="b", text="B"), Option(value="c", text="C")]
    slip = Misconception(of="'b'", name="the second", says="it is the first.")
    question = asked("", "'a'", options=options, slips=[slip])
    assert "The second: it is the first." in grade(OWN, question, "b").message
    assert grade(OWN, question, "c").message == "That is not it."


def test_predictions_are_compared_in_words():
    question = asked()
    assert compare_prediction(OWN, question, "12 ms").endswith("close.")
    assert "too high by a factor of 10" in compare_prediction(OWN, question, "120 ms")
    assert "too low by a factor of 4" in compare_prediction(OWN, question, "3 ms")
    with pytest.raises(InputError):
        compare_prediction(OWN, question, "3")


def test_grading_is_deterministic_and_complete():
    answers = {"ridge": "153 FLOP/byte", "upgrade": "none"}
    first = grade_all(LAB, "ann", answers)
    assert first == grade_all(LAB, "ann", answers)
    assert list(first) == [question.id for question in LAB.graded]
    assert [name for name, one in first.items() if one.correct] == ["ridge", "upgrade"]
    with pytest.raises(InputError, match="did you mean 'ridge'"):
        grade_all(LAB, "ann", {"ridg": "1"})


@given(st.text(max_size=30))
def test_no_typed_text_breaks_the_grader(text):
    outcome = grade(OWN, asked(), text)
    assert outcome.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("q('2 min') / q('1 s')", 120),
        ("ceil(7 / 2) + floor(7 / 2)", 7),
        ("ceil(3.0000000001 - 0.0000000001)", 3),
        ("min(3, 2) ** 3", 8),
        ("1 if 2 > 1 and not 1 > 2 else 0", 1),
        ("Hardware('H100').memory.bandwidth / q('1 TB/s')", 3.35),
        ("sqrt(q('4 m**2')) / q('1 m')", 2),
        ("log2(1024)", 10),
    ],
)
def test_expressions(text, value):
    found = Formula(text).value({}.__getitem__)
    assert float(
        Q_(found, "").to("").magnitude if not hasattr(found, "to") else found.to("").magnitude
    ) == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')", "x.__class__", "(1).__class__", "[1, 2]", "{}", "lambda: 1", "open('x')", "x[0]", "f'{x}'",
        "x := 1", "1 < 2 < 3", "max(1, key=abs)", "", "1 +", "'a' * 2 @ 3", "x" * 500, "b'x'",
    ],
)  # fmt: skip
def test_nothing_else_of_python_is_reachable(text):
    with pytest.raises(InputError):
        Formula(text)


@pytest.mark.parametrize(
    "text", ["2 ** 1000", "1 / 0", "q('1 s') + q('1 byte')", "'a' + 1", "sqrt('x')", "q('1 zorg')"]
)
def test_an_expression_without_a_value_is_an_input_error(text):
    with pytest.raises(InputError):
        Formula(text).value({}.__getitem__)


def test_methods_are_not_fields():
    answer = OWN["one"]
    with pytest.raises(InputError, match="field"):
        Formula("one.explain").value({"one": answer}.__getitem__)


def test_markdown_escapes_and_keeps_to_its_subset():
    html = to_html(
        "### A\n\n- one\n- *two* **three**\n\n| a | b |\n|---|---|\n| 1 | `<x>` |\n\n```\n<b>\n```\n<script>"
    )
    assert (
        "<h3>A</h3>" in html
        and "<em>two</em> <strong>three</strong>" in html
        and "<td><code>&lt;x&gt;</code></td>" in html
    )
    assert "<script>" not in html and "<b>" not in html
    assert '<a href="#lab/kv_cache">x</a>' in to_html("[x](#lab/kv_cache)")
    assert "<a" not in to_html("[x](https://example.com)") and "<a" not in to_html("[x](javascript:alert(1))")
    assert to_html("2 * 3 * 4") == "<p>2 * 3 * 4</p>"


def test_numbers_as_they_are_shown_are_accepted():
    question = asked("ms", "q('12.345678 ms')", 0.001)
    assert grade(OWN, question, shown(Q_("12.345678 ms"), "ms")).correct
    assert read_answer(question, "12 ms").magnitude == 12


def test_stress_marks_single_letters():
    made = to_html("A batch of *B* uses each weight *B* times; 2 * 3 * 4 stays.")
    assert made == "<p>A batch of <em>B</em> uses each weight <em>B</em> times; 2 * 3 * 4 stays.</p>"


def test_equations_become_mathml_with_the_values_of_the_student():
    made = to_html(OWN.text("So\n\n```math\nI = \\frac{\\val{peak}}{\\val{bandwidth}}\n```"))
    assert "<mfrac>" in made and "<mn>989</mn>" in made and "3.35" in made and "val" not in made
    assert "<code>" in to_html("```math\n\\unknown{x}\n```")
