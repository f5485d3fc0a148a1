"""A report as Markdown: the same sections, charts as the sentence that describes them, tables in pipes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlsysim.plot.svg import clean
from mlsysim.report.blocks import Block, Cards, Chart, Code, Documents, Formulas, Points, Section, Table, Text, Verdict
from mlsysim.report.build import Report
from mlsysim.report.content import sections_of, walls_table
from mlsysim.report.front import asked, front_of


def to_markdown(report: Report) -> str:
    """The whole file."""
    answer = report.answer
    pieces = [f"# {escape(report.title)}", f"*{escape(report.name)}*" if report.name else "", escape(asked(answer))]
    pieces.append(escape(answer.plan.description))
    pieces += [_block(block) for block in front_of(report)]
    for section in sections_of(report):
        pieces += _section(section, report)
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


def escape(text: object) -> str:
    """One line in which nothing is markup: neither of Markdown, nor of HTML, nor a formula in dollar signs."""
    plain = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|$#~])", r"\\\1", plain)


def _section(section: Section, report: Report) -> Iterator[str]:
    yield f"## {escape(section.title)}"
    yield f"*{escape(section.summary)}*" if section.summary else ""
    for block in section.blocks:
        if isinstance(block, Chart) and block.name == "scorecard":
            yield _table(walls_table(report.answer))
        else:
            yield _block(block)


def _block(block: Block) -> str:
    if isinstance(block, Text):
        return escape(block.text)
    if isinstance(block, Verdict):
        return f"> **{escape(block.claim)}** {escape(block.because)}".rstrip()
    if isinstance(block, Points):
        mark = "1." if block.numbered else "-"
        rows = (f"**{escape(about)}**: {escape(said)}." if about else escape(said) for about, said in block.rows)
        return "\n".join((f"## {escape(block.title)}", "", *(f"{mark} {row}" for row in rows)))
    if isinstance(block, Cards):
        return _table(Table(("", "", ""), block.rows, right=(1,)))
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Chart):
        title, alt = block.figure.title, block.figure.alt
        return f"*{escape(title)}.* {escape(alt.removeprefix(f'{title}: '))}"
    if isinstance(block, Code):
        return _fenced(block.text, block.language)
    return _formulas(block) if isinstance(block, Formulas) else _documents(block)


def _table(table: Table) -> str:
    marks = ["---:" if k in table.right else "---" for k in range(len(table.headers))]
    lines = ["| " + " | ".join(escape(text) for text in table.headers) + " |", "| " + " | ".join(marks) + " |"]
    for k, row in enumerate(table.rows):
        cells = [f"**{escape(text)}**" if k in table.marked and text else escape(text) for text in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _fenced(text: str, language: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _formulas(block: Formulas) -> str:
    pieces = []
    resolver = ""
    for equation in block.equations:
        if equation.resolver != resolver:
            resolver = equation.resolver
            pieces.append(f"### {escape(resolver)}")
        given = block.given(equation)
        lines = "\n".join(filter(None, (equation.text, given and f"  {given}", f"  = {equation.value}")))
        pieces.append(f"{escape(equation.gives.replace('_', ' '))}:\n\n{_fenced(lines, 'text')}")
    return "\n\n".join(pieces)


def _documents(block: Documents) -> str:
    lines = ["### Sources", ""]
    for cited in block.cited:
        address = f" &lt;{escape(cited.url)}&gt;" if cited.url else ""
        lines.append(f"- **{escape(cited.subject)}:** {escape(cited.title)}{address}{escape(cited.remark)}")
    return "\n".join(lines)
