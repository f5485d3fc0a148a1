"""How tests read a report: the elements of the HTML, and its words without markup."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path

from mlsysim.plans.files import load_plan
from mlsysim.report.build import Report, build_report

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
