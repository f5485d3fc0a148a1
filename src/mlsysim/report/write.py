"""Write a report to a file; the ending says in which format."""

from __future__ import annotations

from pathlib import Path

from mlsysim.errors import InputError
from mlsysim.report.build import Report
from mlsysim.report.html import to_html
from mlsysim.report.markdown import to_markdown
from mlsysim.zoo.writing import write_whole

FORMATS = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown"}


def format_of(path: str | Path) -> str:
    """The format that a file name asks for: html or markdown."""
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        text = f"A report is written as .html or .md, got {Path(path).name[:60]!r}; use such as report.html."
        raise InputError(text, field="output")
    return FORMATS[ending]


def write_report(report: Report, path: str | Path) -> Path:
    """Write a report whole or not at all."""
    text = to_html(report) if format_of(path) == "html" else to_markdown(report)
    return write_whole(Path(path), text, field="output")
