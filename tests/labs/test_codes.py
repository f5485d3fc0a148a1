"""Result codes: they come back as they went in, and what was altered is noticed; the table of an instructor."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mlsysim.cli.main import app
from mlsysim.errors import InputError
from mlsysim.labs.codes import _lab_mark, derived_key, make_code, read_code
from mlsysim.labs.lab import lab, labs
from mlsysim.labs.submissions import Submission, grade_submissions, read_submissions

ROOFLINE = lab("roofline")
SOLVED = {"ridge": 1, "pass": 2, "crossover": 3, "serve": 4, "upgrade": 1}
CODE = make_code(ROOFLINE, "ann", SOLVED)
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def test_a_code_is_short_and_always_the_same():
    assert CODE == "05HM0-9FHX7-MS20G-30G0G-JPYGF-DRH"
    assert make_code(ROOFLINE, " ANN ", SOLVED) == CODE
    assert len({_lab_mark(each.id) for each in labs()}) == len(labs())


@settings(max_examples=60)
@given(
    st.integers(0, len(labs()) - 1),
    st.text(min_size=1, max_size=20),
    st.lists(st.integers(0, 40), max_size=24),
    st.text(max_size=8),
)
def test_codes_round_trip(index, student, counts, key):
    of = labs()[index]
    attempts = {question.id: count for question, count in zip(of.graded, counts, strict=False)}
    if not student.strip():
        return
    try:
        code = make_code(of, student, attempts, derived_key(key))
    except InputError:
        return  # nothing but what normalisation removes
    result = read_code(code.lower().replace("-", " "), key)
    assert result.lab == of.id and result.version == of.version and result.is_of(student)
    assert result.attempts == {q.id: min(attempts.get(q.id, 0), 15) for q in of.graded}
    assert result.score == sum(q.points for q in of.graded if attempts.get(q.id)) and result.points == of.points


def test_every_single_letter_counts():
    """Each letter changed to each other one: none of the altered codes is accepted."""
    for place, letter in enumerate(CODE):
        if letter == "-":
            continue
        for other in ALPHABET:
            if other != letter:
                with pytest.raises(InputError):
                    read_code(CODE[:place] + other + CODE[place + 1 :])


@pytest.mark.parametrize("text", ["", "hello", CODE[:-1], CODE + "A", CODE[6:], "0" * 30, "Ü" * 10, "A" * 500])
def test_what_is_no_code_is_refused_with_a_sentence(text):
    with pytest.raises(InputError) as caught:
        read_code(text)
    assert "\n" not in str(caught.value)


def test_a_key_separates_sites():
    keyed = make_code(ROOFLINE, "ann", SOLVED, derived_key("secret"))
    assert keyed != CODE and read_code(keyed, "secret").score == 5
    for key in ("", "other"):
        with pytest.raises(InputError, match="does not check"):
            read_code(keyed, key)
    with pytest.raises(InputError):
        read_code(CODE, "secret")
    assert "secret" not in derived_key("secret") and derived_key("") == ""


def test_there_is_no_code_without_a_student_or_for_unknown_questions():
    with pytest.raises(InputError, match="student"):
        make_code(ROOFLINE, "  ", SOLVED)
    with pytest.raises(InputError, match="no graded question"):
        make_code(ROOFLINE, "ann", {"guess_bound": 1})


def test_another_version_is_told(monkeypatch):
    older = ROOFLINE.model_copy(update={"version": 9})
    with pytest.raises(InputError, match="version 9 of roofline"):
        read_code(make_code(older, "ann", SOLVED))


def test_the_table_of_an_instructor(tmp_path):
    bob = make_code(lab("geography"), "bob", {"power": 1})
    file = tmp_path / "codes.csv"
    file.write_text(f"Student,Code\nann,{CODE}\nbob,{bob}\neve,{CODE}\nann,{CODE[:-1]}0\n", encoding="utf-8")
    results = grade_submissions(read_submissions([str(file)]))
    assert [(one.student, one.lab, one.score_text) for one in results] == [
        ("ann", "roofline", "5/5"), ("bob", "geography", "1/5"), ("eve", "roofline", "0/5"), ("ann", "", "-"),
    ]  # fmt: skip
    assert results[0].attempts_text == "1 2 3 4 1" and not results[0].note
    assert "not of eve" in results[2].note and results[3].note
    of_lab = grade_submissions([Submission(bob, "bob")], name="roofline")
    assert "of the lab geography" in of_lab[0].note


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n"])
def test_a_table_without_codes_is_refused(tmp_path, content):
    file = tmp_path / "codes.csv"
    file.write_text(content)
    with pytest.raises(InputError, match="column 'code'"):
        read_submissions([str(file)])
    with pytest.raises(InputError, match="cannot be read"):
        read_submissions([str(tmp_path / "none.csv")])


def run(*arguments: str):
    return CliRunner().invoke(app, ["labs", *arguments])


def test_commands():
    assert "nine_million" in run("list").output
    assert len(json.loads(run("list", "--json").output)) == len(labs())
    shown = run("show", "geography", "--student", "ann", "--answers").output
    assert "-> grid" in shown and "{" not in shown
    assert "->" not in run("show", "geography").output
    graded = run("grade", CODE, "--student", "ann", "--lab", "roofline", "--json")
    assert graded.exit_code == 0 and json.loads(graded.output)[0]["score"] == 5
    refused = run("grade", CODE, "--student", "bob")
    assert refused.exit_code == 2 and "not of bob" in refused.output


def test_answers_in_the_terminal_give_the_code_of_the_page():
    right = run(
        "answer",
        "roofline",
        "ridge=153 FLOP/B",
        "pass=7.109 ms",
        "crossover=77",
        "serve=chip=H200, batch=64",
        "upgrade=none",
        "--student",
        "ann",
    )
    assert right.exit_code == 0 and "5 of 5 points" in right.output
    code = right.output.strip().rsplit(" ", 1)[1]
    assert code == make_code(ROOFLINE, "ann", dict.fromkeys(SOLVED, 1))
    wrong = run("answer", "roofline", "ridge=153", "pass=7 s")
    assert wrong.exit_code == 2 and "has no unit" in wrong.output and "Result code" not in wrong.output


def test_check_reads_files(tmp_path):
    assert run("check", str(tmp_path / "none.toml")).exit_code != 0
