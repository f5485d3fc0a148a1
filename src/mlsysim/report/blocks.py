"""What a report is made of, in no format: sections of blocks. HTML and Markdown render the same ones."""

from __future__ import annotations

from dataclasses import dataclass

from mlsysim.plans.answer import Equation
from mlsysim.plot.figure import Figure
from mlsysim.report.provenance import Cited


@dataclass(frozen=True)
class Text:
    """A paragraph; ``quiet`` is a remark."""

    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Facts:
    """Words with what is said about them."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Cards:
    """The few numbers that matter: (label, value, remark)."""

    rows: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Table:
    """A table; columns in ``right`` are numbers, rows in ``marked`` stand out."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()
    marked: tuple[int, ...] = ()


@dataclass(frozen=True)
class Chart:
    """A figure; ``name`` is its id on the page."""

    name: str
    figure: Figure


@dataclass(frozen=True)
class Code:
    """Text as it is."""

    text: str
    language: str


@dataclass(frozen=True)
class Formulas:
    """Equations with their numbers."""

    equations: tuple[Equation, ...]


@dataclass(frozen=True)
class Documents:
    """Sources."""

    cited: tuple[Cited, ...]


Block = Text | Facts | Cards | Table | Chart | Code | Formulas | Documents


@dataclass(frozen=True)
class Section:
    """A section with its heading."""

    name: str
    title: str
    blocks: tuple[Block, ...]
