"""``mlsysim labs``: the engine in the browser from static files, and the labs for those who teach with them."""

from __future__ import annotations

import threading
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option, echo

from mlsysim.cli.output import end, print_json, print_table
from mlsysim.errors import InputError

AsJson = Annotated[bool, Option("--json", help="as JSON")]
Codes = Annotated[
    list[str],
    Argument(metavar="CODE...|FILE", help="result codes, or files of them: .csv with columns student and code, .txt"),
]
SiteKey = Annotated[str, Option(help="the key that the site was built with")]

labs = typer.Typer(name="labs", help="Explorer and labs in the browser, as static files.", no_args_is_help=True)


@labs.command("build")
def build_site(
    folder: Annotated[Path, Argument(metavar="DIR", help="a new or empty folder, or a site built before")],
    key: Annotated[str, Option(help="an instructor's key, mixed into the result codes of labs")] = "",
) -> None:
    """Write the site into a folder that any static host can serve; the first build fetches pinned files.

    mlsysim labs build site
    """
    from mlsysim.labs.build import build

    site = build(folder, say=echo, key=key)
    echo(f"{site.folder}: {site.files} files, {site.bytes / 1e6:.1f} MB; see it with `mlsysim labs open {folder}`")


@labs.command("open")
def open_site(
    folder: Annotated[
        Path | None, Argument(metavar="[DIR]", help="a built site; without it one is built in the user's cache")
    ] = None,
    port: Annotated[int, Option(help="loopback port; 0 takes any that is free")] = 0,
    browser: Annotated[bool, Option(help="open a browser at the address")] = True,
) -> None:
    """Serve a site on this machine alone and open a browser; Ctrl-C ends it."""
    from mlsysim.labs.build import build
    from mlsysim.labs.fetch import cache_folder
    from mlsysim.labs.lab import labs as labs_of
    from mlsysim.labs.serve import in_background, site_server

    if folder is not None and not folder.exists() and folder.name in {each.id for each in labs_of()}:
        raise InputError(
            f"`mlsysim labs open` opens all labs; `mlsysim labs show {folder}` prints one.", field="folder"
        )
    if folder is None:
        folder = build(cache_folder() / "site").folder
    with in_background(site_server(folder, port)) as address:
        echo(f"{address} serves {folder}; Ctrl-C ends it")
        if browser:
            webbrowser.open(address)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


@labs.command("list")
def list_labs(as_json: AsJson = False) -> None:
    """The labs, in the order in which they are meant to be done."""
    from mlsysim.labs.runner import list_labs as listed

    found = listed()
    if as_json:
        print_json(found)
        return
    rows = [
        [str(lab["number"]), lab["track"], lab["id"], lab["title"], f"{lab['minutes']} min", str(lab["questions"])]
        for lab in found
    ]
    print_table("table", ["", "track", "lab", "title", "time", "graded"], rows)


@labs.command("show")
def show_lab(
    name: Annotated[str, Argument(metavar="LAB", help="a lab, as `mlsysim labs list` names it")],
    student: Annotated[str, Option(help="whose numbers to show; without it those of practice")] = "",
    answers: Annotated[bool, Option("--answers", help="with the right answers, for instructors")] = False,
) -> None:
    """The text of a lab with a student's numbers, its questions, and the right answers if you ask for them.

    mlsysim labs show roofline --student ann
    """
    from mlsysim.labs.grading import right_answer
    from mlsysim.labs.lab import lab
    from mlsysim.labs.quoting import for_terminal
    from mlsysim.labs.scope import Scope, shown

    of = lab(name)
    scope = Scope.of_student(of, student)

    def said(text: str) -> str:
        return for_terminal(scope.text(text)).strip()

    echo(f"{of.number}. {of.title} ({of.minutes} minutes, version {of.version})\n\n{said(of.introduction)}\n")
    echo(f"{said(of.task)}\n")
    for question in of.questions:
        echo(f"[{question.stage}] {question.id}: {said(question.text)}")
        for option in question.options:
            echo(f"    {option.value}: {said(option.text)}")
        for move in question.moves:
            echo(f"    {move.parameter}: {', '.join(map(str, move.values))} ({move.label})")
        if answers and question.kind == "words":
            echo(f"    -> {said(question.outcome)}")
        elif answers:
            right = right_answer(scope, question)
            within = f" (within {question.tolerance * 100:g} %)" if question.kind == "number" else ""
            echo(f"    -> {shown(right, question.unit) if within else right}{within}")
            for slip in question.slips:
                echo(f"       {slip.name}: {said(slip.says)}")
    if answers:
        echo(f"\n{said(of.explanation)}")


@labs.command("check")
def check_labs(
    paths: Annotated[
        list[Path] | None, Argument(metavar="[FILE]...", help="lab files; without any the shipped labs")
    ] = None,
) -> None:
    """Check lab files: that they can be read, and that every question has an answer for every student."""
    from mlsysim.labs.lab import lab_from_text
    from mlsysim.labs.lab import labs as shipped
    from mlsysim.labs.runner import check_lab

    found = shipped()
    if paths:
        try:
            found = [lab_from_text(path.read_text(encoding="utf-8"), str(path)) for path in paths]
        except OSError as error:
            raise InputError(f"The lab file {error.filename} cannot be read: {error.strerror}.") from None
    for each in found:
        count = check_lab(each)
        graded = f"{len(each.graded)} of them graded"
        echo(f"{each.id}: {len(each.questions)} questions, {graded}, {count} variants, all with answers")


@labs.command("answer")
def answer_lab(
    name: Annotated[str, Argument(metavar="LAB")],
    given: Annotated[list[str], Argument(metavar="QUESTION=ANSWER...", help="such as pass='4.8 ms' upgrade=none")],
    student: Annotated[str, Option(help="your id; without it this is practice")] = "",
    key: Annotated[str, Option(help="the instructor's key, where there is one")] = "",
) -> None:
    """Answer a lab in the terminal: what is right, what is not and why, and the result code.

    mlsysim labs answer roofline pass='4.8 ms' upgrade=none
    """
    from mlsysim.labs.codes import derived_key, make_code
    from mlsysim.labs.grading import grade_all
    from mlsysim.labs.lab import lab

    pairs = [item.partition("=") for item in given]
    if any(not equals for _, equals, _ in pairs):
        raise InputError("Give answers as QUESTION=ANSWER, such as pass='4.8 ms'.")
    of = lab(name)
    grades = grade_all(of, student, {question.strip(): answer for question, _, answer in pairs})
    for question, grade in grades.items():
        hint = f" {grade.hint}" if grade.hint else ""
        echo(f"{'right' if grade.correct else 'open '}  {question}: {grade.message}{hint}")
    right = {question: int(grade.correct) for question, grade in grades.items()}
    echo(f"{sum(q.points for q in of.graded if right[q.id])} of {of.points} points")
    if student:
        echo(f"Result code: {make_code(of, student, right, derived_key(key))}")
    end(0 if all(right.values()) else 2)


@labs.command("grade")
def grade_codes(
    given: Codes,
    student: Annotated[str, Option(help="whose code it has to be")] = "",
    name: Annotated[str, Option("--lab", help="which lab it has to be of")] = "",
    key: SiteKey = "",
    as_json: AsJson = False,
) -> None:
    """Verify result codes offline: a table of scores, and a sentence for each code that cannot be true.

    mlsysim labs grade codes.csv
    """
    from mlsysim.labs.submissions import grade_submissions, read_submissions

    results = grade_submissions(read_submissions(given, student), name, key)
    if as_json:
        print_json([result.to_dict() for result in results])
    else:
        rows = [[r.student or "-", r.lab or "-", r.score_text, r.attempts_text, r.note or "valid"] for r in results]
        print_table("table", ["student", "lab", "score", "attempts", "code"], rows)
    end(0 if all(result.counts for result in results) else 2)


@labs.command("class")
def show_class(
    given: Codes,
    key: SiteKey = "",
    as_csv: Annotated[bool, Option("--csv", help="a row for each question of each code")] = False,
    as_json: AsJson = False,
) -> None:
    """A class from its result codes: attempts until each question was solved, misconceptions, predictions.

    mlsysim labs class codes.csv
    """
    from mlsysim.labs.submissions import class_csv, classroom, grade_submissions, read_submissions

    graded = grade_submissions(read_submissions(given), key=key)
    found = classroom(graded)
    if as_csv:
        echo(class_csv(graded), nl=False)
    elif as_json:
        print_json(found.to_dict())
    else:
        for of in found.labs:
            echo(
                f"\n{of.title}: {of.students} {'student' if of.students == 1 else 'students'}, {of.mean_score:.3g} of {of.points} points on average"
            )
            head = ["question", "at once", "2nd", "3rd", "later", "open", "misconceptions"]
            print_table(
                "table",
                head,
                [
                    [
                        task.id,
                        *map(str, task.at),
                        str(task.open),
                        ", ".join(f"{n} x {name}" for name, n in task.slips.items()),
                    ]
                    for task in of.tasks
                ],
            )
            for asked in of.predictions:
                echo(f"\n{asked.text}")
                for one in asked.said:
                    echo(f"  {one.student or '-'}: {one.said}" + (f"  [{one.came}]" if one.came else ""))
        for note in found.notes:
            echo(f"\n{note.student or '-'}: {note.note}")
    end(0 if all(one.counts for one in graded) else 2)
