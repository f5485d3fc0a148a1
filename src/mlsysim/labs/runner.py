"""What the page of a lab asks: the texts and controls, predictions, what is computed, grades, the result code.

The page keeps the state (predictions, answers, attempts) and hands it over with each call; nothing is stored here, so that a
reload of the page loses nothing. Nothing is computed before the predictions are made.

The subset of Markdown that labs are written in, as HTML: everything is escaped first, so no text can bring markup.

Paragraphs, ``###`` headings, lists with ``-`` or ``1.``, tables with ``|``, fenced code, ``**strong**``, ``*stress*``, ```code``` and
links to pages of the same site (``[text](#lab/roofline)``). A fence of ``math`` holds equations in LaTeX, one a line, which
become MathML.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs.codes import add_words, make_code
from mlsysim.labs.design import all_designs, start_of, tried
from mlsysim.labs.grading import compare_prediction, grade, read_answer, right_answer, slip_answer
from mlsysim.labs.lab import TRACKS, Lab, lab, labs
from mlsysim.labs.lab_charts import draw
from mlsysim.labs.question import Control, Question
from mlsysim.labs.rpc import offer
from mlsysim.labs.scope import Scope, all_variants, shown, student_name
from mlsysim.report.formula import mathml


@offer
def list_labs() -> list[dict[str, Any]]:
    """Every lab with what a student chooses it by."""
    told = ("id", "number", "title", "track", "summary", "minutes", "walls", "objectives", "after")
    return [{**{name: getattr(each, name) for name in told}, "questions": len(each.graded)} for each in labs()]


@offer
def list_tracks() -> dict[str, str]:
    """The tracks of the labs with their titles, in their order."""
    return {str(track): title for track, title in TRACKS.items()}


@offer
def lab_open(name: str, student: str = "") -> dict[str, Any]:
    """The texts, controls and questions of a lab, with the student's own parameters."""
    of = lab(name)
    scope = _own(name, student)
    told = ("id", "number", "version", "title", "minutes", "walls", "points", "reflect")
    return {
        **{name: getattr(of, name) for name in told},
        "practice": not student_name(student),
        "objectives": [to_html(text).removeprefix("<p>").removesuffix("</p>") for text in of.objectives],
        "introduction": to_html(scope.text(of.introduction)),
        "task": to_html(scope.text(of.task)),
        "controls": [_control(scope, control) for control in of.controls],
        "questions": [_question(scope, question) for question in of.questions],
    }


def _control(scope: Scope, control: Control) -> dict[str, Any]:
    slides = all(not isinstance(value, str) for value in control.values)
    return {**control.model_dump(), "value": scope.parameters[control.parameter], "slides": slides}


def _question(scope: Scope, question: Question) -> dict[str, Any]:
    told = question.model_dump(include={"id", "stage", "unit", "points"})
    options = [{"value": option.value, "text": scope.text(option.text)} for option in question.options]
    start = start_of(scope, question)
    moves = [_control(scope, move) | {"value": start[move.parameter]} for move in question.moves]
    return {
        **told,
        "kind": question.kind,
        "text": to_html(scope.text(question.text)),
        "options": options,
        "moves": moves,
    }


@offer
def lab_predict(name: str, question: str, answer: str) -> str:
    """Whether a prediction can be read; its empty sentence means yes. It is not told whether it is right."""
    try:
        read_answer(lab(name).question(question), answer)
    except InputError as error:
        return str(error)
    return ""


@offer
def lab_compute(
    name: str, predictions: dict[str, str], student: str = "", moved: dict[str, Any] | None = None, width: int = 720
) -> dict[str, Any]:
    """What the engine says at the controls, and each prediction beside what became of it."""
    of = lab(name)
    _require_predictions(of, predictions)
    own = _own(name, student)
    scope = Scope.of_student(of, student, moved) if moved else own
    labels = {key: scope.text(of.values[key].label or key.replace("_", " ")) for key in of.show}
    return {
        "compared": {q.id: compare_prediction(own, q, predictions[q.id]) for q in of.predictions if q.kind != "words"},
        "values": [
            {"name": key, "label": label, "text": scope.shown(key), "wall": of.values[key].wall}
            for key, label in labels.items()
        ],
        "charts": [draw(scope, chart, width) for chart in of.charts],
    }


@offer
def lab_answer(name: str, question: str, answer: str, student: str = "") -> dict[str, Any]:
    """The grade of one answer."""
    asked = lab(name).question(question)
    if not asked.is_graded:
        raise InputError(f"{question!r} is a prediction, which is not graded.")
    given = grade(_own(name, student), asked, answer, compare=True)
    return {**given.to_dict(), "hint": to_html(given.hint) if given.hint else ""}


@offer
def lab_finish(
    name: str,
    predictions: dict[str, str],
    answers: dict[str, str],
    attempts: dict[str, int],
    student: str = "",
    site_key: str = "",
    slips: dict[str, int] | None = None,
    reflection: str = "",
) -> dict[str, Any]:
    """The score, graded anew; predictions beside what came out and the explanation, once everything is right; the codes.

    ``code`` is short, for those who copy it by hand; ``full_code`` carries what the student predicted and wrote too.
    """
    of = lab(name)
    _require_predictions(of, predictions)
    scope = _own(name, student)
    solved = {q.id: grade(scope, q, answers.get(q.id, "")).correct for q in of.graded}
    counted = {key: max(int(attempts.get(key, 1)), 1) if right else 0 for key, right in solved.items()}
    complete = all(solved.values())
    code = make_code(of, student, counted, site_key, slips) if student_name(student) else ""
    words = {q.id: predictions[q.id] for q in of.predictions} | ({"reflection": reflection} if reflection else {})
    return {
        "score": sum(q.points for q in of.graded if solved[q.id]),
        "points": of.points,
        "open": [key for key, right in solved.items() if not right],
        "complete": complete,
        "code": code,
        "full_code": add_words(code, words, site_key) if code else "",
        "confronted": _confronted(scope, of, predictions) if complete else [],
        "explanation": to_html(scope.text(of.explanation)) if complete else "",
    }


def _confronted(scope: Scope, of: Lab, predictions: Mapping[str, str]) -> list[dict[str, str]]:
    """What the student said in words before anything was computed, beside what came out."""
    return [
        {
            "asked": to_html(scope.text(q.text)),
            "said": predictions[q.id],
            "came": to_html(compare_prediction(scope, q, predictions[q.id])),
        }
        for q in of.predictions
        if q.kind == "words"
    ]


@lru_cache(maxsize=8)
def _own(name: str, student: str) -> Scope:
    """The scope of a student's own parameters; its values are kept, since every answer asks for the same ones."""
    return Scope.of_student(lab(name), student)


def _require_predictions(of: Lab, predictions: Mapping[str, str]) -> None:
    for question in of.predictions:
        try:
            read_answer(question, str(predictions.get(question.id, "")))
        except InputError as error:
            raise InputError(f"Predict first: {error}") from None


def check_lab(lab: Lab, charts: bool = True, designs: bool = True) -> int:
    """Whether a lab works for every student: each combination of parameters has every value, answer, text and chart.

    Without ``designs`` those of the first combination alone are tried, which takes less time. Returns the number of combinations; raises one sentence for the first thing that is wrong.
    """
    scopes = [Scope(lab, parameters) for parameters in all_variants(lab)]
    for scope in scopes:
        for control in lab.controls:
            own = scope.parameters[control.parameter]
            if own not in control.values:
                raise InputError(f"The control {control.label!r} of {lab.id} lacks {own!r}, which some students get.")
        for name in lab.values:
            scope.shown(name)
        for text in lab.texts():
            scope.text(text)
        for question in lab.questions:
            for text in question.texts():
                scope.text(text)
            if question.kind != "design":
                _check_question(scope, question)
            elif designs or scope is scopes[0]:
                _check_design(scope, question)
    for chart in lab.charts if charts else ():
        draw(scopes[0], chart, 720)
    return len(scopes)


def _check_design(scope: Scope, question: Question) -> None:
    """That a design has to be moved, and that there is one that holds."""
    name = f"The question {question.id!r} of {scope.lab.id}"
    start = start_of(scope, question)
    for move in question.moves:
        if start[move.parameter] not in move.values:
            raise InputError(f"{name} starts {move.label!r} at {start[move.parameter]!r}, which the control lacks.")
    if tried(scope, question, start).holds:
        raise InputError(f"{name} is solved before anything is moved.")
    if not any(tried(scope, question, plan).holds for plan in all_designs(question)):
        raise InputError(f"{name} has no design that holds its targets.")


def _check_question(scope: Scope, question: Question) -> None:
    """That the right answer is accepted, and that each slip leads somewhere of its own."""
    name = f"The question {question.id!r} of {scope.lab.id}"
    if question.kind == "words":
        return
    right = right_answer(scope, question)
    typed = right if question.is_choice else f"{right.magnitude:.12g} {question.unit}"
    if not grade(scope, question, typed).correct:
        raise InputError(f"{name} refuses its own answer {typed!r}.")
    for number, slip in enumerate(question.slips, 1):
        if not scope.evaluate(slip.when):
            continue
        led = slip_answer(scope, question, slip)
        met = grade(scope, question, led if question.is_choice else f"{led.magnitude:.12g} {question.unit}")
        if met.slip != number:
            became = "is the right answer" if met.correct else "is not told from another"
            raise InputError(f"{name}: what {slip.name!r} leads to, {shown(led, question.unit)}, {became}.")


_LINK = re.compile(r"\[([^\]]+)\]\(((?:[\w-]+\.html)?(?:[?#][\w=&;./-]*)?)\)")
_STRONG = re.compile(r"\*\*(.+?)\*\*")
_STRESS = re.compile(r"(?<![\w*])\*([^\s*](?:[^*]*[^\s*])?)\*(?![\w*])")
_CODE = re.compile(r"`([^`]+)`")
_ITEM = re.compile(r"^(?:-|(\d+)\.)\s+(.*)$")
_RULE = re.compile(r"^\|[\s:|-]+\|$")


def to_html(text: str) -> str:
    """HTML of a text.

    >>> to_html("Two **walls**: `1 < 2`.")
    '<p>Two <strong>walls</strong>: <code>1 &lt; 2</code>.</p>'
    """
    blocks = re.split(r"\n\s*\n", text.strip("\n"))
    return "\n".join(_block([line.rstrip() for line in block.split("\n")]) for block in blocks if block.strip())


def _block(lines: list[str]) -> str:
    if lines[0].startswith("```"):
        inner = lines[1:-1] if lines[-1].startswith("```") else lines[1:]
        if lines[0] == "```math":
            return f'<div class="equations">{"".join(map(_equation, inner))}</div>'
        return f"<pre><code>{html.escape(chr(10).join(inner))}</code></pre>"
    heading = re.match(r"^(#{2,4})\s+(.*)$", lines[0])
    if heading:
        level = len(heading[1])
        rest = "\n" + _block(lines[1:]) if lines[1:] else ""
        return f"<h{level}>{_inline(heading[2])}</h{level}>{rest}"
    if lines[0].startswith("|") and len(lines) > 1 and _RULE.match(lines[1]):
        return _table(lines)
    if _ITEM.match(lines[0]):
        return _list(lines)
    return f"<p>{_inline(' '.join(line.strip() for line in lines))}</p>"


def _equation(line: str) -> str:
    return f"<div>{mathml(line) or f'<code>{html.escape(line)}</code>'}</div>"


def _list(lines: list[str]) -> str:
    items: list[str] = []
    for line in lines:
        found = _ITEM.match(line)
        if found:
            items.append(found[2])
        else:
            items[-1] += " " + line.strip()
    kind = "ol" if lines[0][0].isdigit() else "ul"
    return f"<{kind}>{''.join(f'<li>{_inline(item)}</li>' for item in items)}</{kind}>"


def _table(lines: list[str]) -> str:
    rows = [[_inline(cell.strip()) for cell in line.strip().strip("|").split("|")] for line in (lines[0], *lines[2:])]
    head = "".join(f'<th scope="col">{cell}</th>' for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f'<div class="scrolls"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _inline(text: str) -> str:
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(f"<code>{html.escape(found[1])}</code>")
        return f"\x00{len(kept) - 1}\x00"

    out = html.escape(_CODE.sub(keep, text.replace("\x00", "")), quote=False)
    out = _LINK.sub(r'<a href="\2">\1</a>', out)
    out = _STRESS.sub(r"<em>\1</em>", _STRONG.sub(r"<strong>\1</strong>", out))
    return re.sub("\x00(\\d+)\x00", lambda found: kept[int(found[1])], out)
