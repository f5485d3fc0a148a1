"""How tests read a report: the elements of the HTML, and its words without markup."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path

from mlsysim.plans.files import load_plan
from mlsysim.report.blocks import Cards, Points, Text, Verdict
from mlsysim.report.build import Report, build_report
from mlsysim.report.front import asked, front_of

SCENARIOS = sorted((Path(__file__).parents[2] / "src" / "mlsysim" / "examples" / "scenarios").glob("*.toml"))


@cache
def report_of(name: str) -> Report:
    """The report of a file in examples/scenarios, by its name without ending."""
    return build_report(load_plan(next(path for path in SCENARIOS if path.stem == name)))


def parsed(text: str) -> ElementTree.Element:
    """The document, which must be well-formed."""
    return ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def local(element: ElementTree.Element) -> str:
    """The tag without its namespace."""
    return element.tag.rpartition("}")[2]


def words(text: str) -> str:
    """What a page says, spaces made even."""
    root = parsed(text)
    return " ".join(
        " ".join(piece for element in root.iter() for piece in (element.text, element.tail) if piece).split()
    )


def unescaped(markdown: str) -> str:
    """Markdown without the escapes of its text and without bold marks."""
    plain = re.sub(r"\\([\\`*_\[\]|$#~])", r"\1", markdown.replace("**", ""))
    return " ".join(html.unescape(plain).split())


def even(text: str) -> str:
    """A text with its spaces made even."""
    return " ".join(text.split())


NO_NUMBER = {"Fits", "Does not fit", "Not known", "Not asked"}
CODE = re.compile(
    r"[a-z]_[a-z]+ ?=|\b[a-z_]+ = |--[a-z]|\bNone\b(?! of)|\bnan\b|\binf\b|\{|\}|[\u2013\u2014]|\be[+-]\d\d|GiB|Traceback"
)
"""What no sentence of a report has."""


def front_texts(report: Report) -> list[str]:
    """Every sentence of the first page."""
    found = [report.title, asked(report.answer)]
    for block in front_of(report):
        match block:
            case Verdict():
                found += [block.claim, block.because]
            case Cards():
                found += [text for row in block.rows for text in row]
            case Points():
                found += [text for row in block.rows for text in row] + [block.title]
            case Text():
                found.append(block.text)
    return found


def faults(report: Report) -> list[str]:
    """What contradicts the answer on a first page: figures that are none of it, a verdict against what binds or against the exit code, code in
    sentences."""
    answer, wrong = report.answer, []
    blocks = list(front_of(report))
    cards = next((block for block in blocks if isinstance(block, Cards)), Cards(()))
    verdict = next(block for block in blocks if isinstance(block, Verdict))
    texts = {metric.text for metric in answer.metrics} | NO_NUMBER
    wrong += [f"{value} is no metric" for _, value, _ in cards.rows if value not in texts]
    if len(cards.rows) != (4 if answer.runs else 0):
        wrong.append(f"{len(cards.rows)} cards")
    for text in front_texts(report):
        wrong += [f"{found.group()!r} in {text!r}" for found in CODE.finditer(text)]
        if text and (text != text.strip() or "  " in text or ".." in text or " ." in text):
            wrong.append(f"spaces or points in {text!r}")
    certain = all(check.certain for check in answer.checks)
    expected = "fails" if answer.exit_code and (certain or not answer.feasible) else "holds" if certain else None
    if expected is not None and verdict.state != expected:
        wrong.append(f"the verdict is {verdict.state}, the exit code {answer.exit_code}")
    if (answer.binding.limit == "goodput") != verdict.claim.startswith("Failures decide"):
        wrong.append(f"{answer.binding.sentence!r} binds, and the verdict is {verdict.claim!r}")
    whole = report.figures.get("whole")
    if answer.runs and answer.time_parts and "latency" in answer.held and whole is None:
        wrong.append("no bar of time")
    if answer.carbon_parts:
        running = answer.held["carbon_footprint"].text
        if running not in cards.rows[2][2] or answer.carbon_in_all not in cards.rows[2][2]:
            wrong.append("carbon of running, or all of it, is not told")
    if answer.paid is not None and answer.period not in cards.rows[1][2]:
        wrong.append("a cost without its period")
    return wrong
