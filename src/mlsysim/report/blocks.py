"""What a report is made of, in no format: sections of blocks. HTML and Markdown render the same ones."""

from __future__ import annotations

from typing import NamedTuple

from mlsysim.plans.explained import Equation
from mlsysim.plot.figure import Figure
from mlsysim.report.provenance import Cited


class Text(NamedTuple):
    """A paragraph; ``quiet`` is a remark."""

    text: str
    quiet: bool = False


class Cards(NamedTuple):
    """The few numbers that matter: (label, value, remark)."""

    rows: tuple[tuple[str, str, str], ...]


class Verdict(NamedTuple):
    """What is claimed, why, and whether that is good (holds), bad (fails) or undecided (open)."""

    state: str
    claim: str
    because: str


class Points(NamedTuple):
    """A list under a heading; ``numbered`` where the order counts. A point is what it is about and what is said."""

    title: str
    rows: tuple[tuple[str, str], ...]
    numbered: bool = False


class Table(NamedTuple):
    """A table; columns in ``right`` are numbers, rows in ``marked`` stand out."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()
    marked: tuple[int, ...] = ()


class Chart(NamedTuple):
    """A figure; ``name`` is its id on the page."""

    name: str
    figure: Figure


class Code(NamedTuple):
    """Text as it is."""

    text: str
    language: str


class Formulas(NamedTuple):
    """Equations with their numbers."""

    equations: tuple[Equation, ...]

    @staticmethod
    def given(equation: Equation) -> str:
        """The numbers that went into an equation."""
        return ", ".join(f"{symbol} = {value}" for symbol, value in equation.inputs.items())


class Documents(NamedTuple):
    """Sources."""

    cited: tuple[Cited, ...]


Block = Text | Cards | Verdict | Points | Table | Chart | Code | Formulas | Documents


class Section(NamedTuple):
    """A section that can be opened: its heading, and in a few words what is in it."""

    name: str
    title: str
    summary: str
    blocks: tuple[Block, ...]
