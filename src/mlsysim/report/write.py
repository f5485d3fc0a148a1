"""Write a report to a file; the ending says in which format."""

from __future__ import annotations

import os
from pathlib import Path

from mlsysim.errors import InputError
from mlsysim.report.build import Report
from mlsysim.report.html import to_html
from mlsysim.report.markdown import to_markdown

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
    target = Path(path)
    text = to_html(report) if format_of(target) == "html" else to_markdown(report)
    waiting = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        waiting.write_text(text, encoding="utf-8", newline="\n")
        waiting.replace(target)
    except OSError as error:
        waiting.unlink(missing_ok=True)
        reason = (error.strerror or "unknown reason").lower()
        raise InputError(f"{str(target)[:200]!r} cannot be written: {reason}.", field="output") from None
    return target
