"""A class from its codes: counts per attempt, misconceptions, predictions; what is damaged is named and loses nothing else."""

from __future__ import annotations

import csv
import io
import json

import pytest
from typer.testing import CliRunner

from mlsysim.cli.main import app
from mlsysim.errors import InputError
from mlsysim.labs.codes import add_words, derived_key, make_code, read_code
from mlsysim.labs.lab import lab
from mlsysim.labs.submissions import class_csv, class_view, classroom, grade_submissions, pasted

ROOFLINE = lab("roofline")
SOLVED = {question.id: 1 for question in ROOFLINE.graded}
WORDS = {"guess_bound": "Memory", "guess_batch": "100", "in_words": 'The pass doubles, I think = 2 x; "sure".\nÜber.'}


def full(student: str, attempts=SOLVED, slips=None, words=WORDS, key="") -> str:
    return add_words(make_code(ROOFLINE, student, attempts, derived_key(key), slips), words, derived_key(key))


ANN = full("ann", {**SOLVED, "ridge": 3}, {"ridge": 1})
BOB = full("bob", {**SOLVED, "ridge": 5, "upgrade": 0}, {"ridge": 1, "upgrade": 2})
CAN = make_code(ROOFLINE, "can", SOLVED)


def test_a_code_carries_slips_and_words():
    result = read_code(ANN)
    assert result.slips == {"ridge": "bits for bytes"} and result.words == WORDS and not result.note
    assert read_code(ANN.partition(".")[0]).words == {}, "the short code is the beginning of the long one"
    assert read_code(full("ann", key="k"), "k").words == WORDS


@pytest.mark.parametrize(
    "damaged", [ANN[:-4], ANN[:-6] + "AAAAAA", ANN + "!", CAN + "." + ANN.partition(".")[2], CAN + ".x"]
)
def test_damaged_words_are_named_and_the_results_count(damaged):
    result = read_code(damaged)
    assert result.score and not result.words and "was cut off or altered" in result.note and "\n" not in result.note


def test_words_of_another_site_are_not_taken():
    short, _, words = full("ann").partition(".")
    keyed = make_code(ROOFLINE, "ann", SOLVED, derived_key("k"))
    assert not read_code(f"{keyed}.{words}", "k").words and short != keyed


def test_a_class_is_counted():
    found = classroom(grade_submissions(pasted(f"student,code\nann,{ANN}\nbob,{BOB}\nstudent,code\ncan,{CAN}\n")))
    (of,) = found.labs
    tasks = {task.id: task for task in of.tasks}
    assert (of.lab, of.students, of.points) == ("roofline", 3, ROOFLINE.points)
    assert of.mean_score == pytest.approx(ROOFLINE.points - 1 / 3)
    assert (
        tasks["ridge"].at == [1, 0, 1, 1] and tasks["ridge"].open == 0 and tasks["ridge"].slips == {"bits for bytes": 2}
    )
    assert tasks["upgrade"].at == [2, 0, 0, 0] and tasks["upgrade"].open == 1
    words = {each.id: each.said for each in of.predictions}
    assert [one.student for one in words["in_words"]] == ["ann", "bob"]
    assert "Memory" in words["guess_bound"][0].said and words["guess_bound"][0].came.startswith("You predicted")
    assert "From batch" in words["in_words"][0].came and not found.notes


def test_the_last_code_of_a_student_counts_and_bad_ones_are_named():
    lines = [f"ann {CAN}", f"ann;{ANN}", f"ann\t{full('ann')}", f"bob, {BOB[:20]}", "hello", f"zoe {ANN}"]
    graded = grade_submissions(pasted("\n".join(lines)))
    found = classroom(graded)
    assert len(graded) == 6 and found.labs[0].students == 1
    assert {task.id: task.at[0] for task in found.labs[0].tasks}["ridge"] == 1, "the later one"
    assert ["not of ann" in found.notes[0].note, "not of zoe" in found.notes[-1].note] == [True, True]
    assert len(found.notes) == 4 and all(note.note and "\n" not in note.note for note in found.notes)


def test_saved_files_may_follow_what_was_pasted():
    graded = grade_submissions(pasted(f'bob {BOB}\nstudent,code\n"ann",{ANN}\n'))
    assert [one.student for one in graded] == ["bob", "ann"] and all(one.counts for one in graded)


def test_the_table_has_every_question_and_every_bad_code():
    graded = grade_submissions(pasted(f"ann {ANN}\nno code at all"))
    rows = list(csv.DictReader(io.StringIO(class_csv(graded))))
    ridge = next(row for row in rows if row["question"] == "ridge")
    assert (ridge["attempts"], ridge["misconception"], ridge["student"]) == ("3", "bits for bytes", "ann")
    assert next(row for row in rows if row["question"] == "in_words")["said"] == WORDS["in_words"]
    assert rows[-1]["counts"] == "no" and rows[-1]["note"] and len(rows) == len(ROOFLINE.questions) + 1


def test_a_spreadsheet_runs_nothing():
    graded = grade_submissions(pasted(f"=1+1 {full('=1+1', words={**WORDS, 'in_words': '=HYPERLINK(1)'})}"))
    rows = list(csv.DictReader(io.StringIO(class_csv(graded))))
    assert rows[0]["student"] == "'=1+1" and any(row["said"] == "'=HYPERLINK(1)" for row in rows)


def test_the_view_of_a_page():
    view = class_view(f"ann {ANN}\nbob {BOB}")
    assert view["codes"] == 2 and view["labs"][0]["tasks"][0]["slips"] == {"bits for bytes": 2}
    json.dumps(view, allow_nan=False)
    with pytest.raises(InputError, match="no code yet"):
        class_view(" \n ")


def test_the_command(tmp_path):
    (tmp_path / "ann.csv").write_text(f"student,code\nann,{ANN}\n")
    (tmp_path / "rest.txt").write_text(f"bob {BOB}\n{CAN}\n")
    files = [str(tmp_path / "ann.csv"), str(tmp_path / "rest.txt")]
    said = CliRunner().invoke(app, ["labs", "class", *files])
    assert said.exit_code == 0 and "3 students" in said.output and "2 x bits for bytes" in said.output
    table = CliRunner().invoke(app, ["labs", "class", *files, "--csv"])
    assert table.output.startswith("student,lab,score") and table.output.count("\n") > 20
    bad = CliRunner().invoke(app, ["labs", "class", files[0], "no code"])
    assert bad.exit_code == 2 and "is not a result code" in bad.output
    assert json.loads(CliRunner().invoke(app, ["labs", "class", *files, "--json"]).output)["labs"][0]["students"] == 3
