"""A report as one HTML file: style and charts inside, no script, and a policy that forbids every request.

The file is also well-formed XML, so that tools can read it. Each chart is there twice, laid out for a wide page and for a
phone; the style shows one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from html import escape as _escape
from importlib.resources import files

from mlsysim.plot.figure import PHONE
from mlsysim.plot.svg import clean
from mlsysim.plot.theme import stylesheet, unstyled
from mlsysim.report.blocks import Block, Cards, Chart, Code, Documents, Formulas, Points, Section, Table, Text, Verdict
from mlsysim.report.build import Report
from mlsysim.report.content import sections_of
from mlsysim.report.formula import mathml
from mlsysim.report.front import asked, front_of
from mlsysim.report.words import capital

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def to_html(report: Report) -> str:
    """The whole file."""
    answer = report.answer
    texts = {
        "title": report.title,
        "kicker": report.name or "Report",
        "asked": asked(answer),
        "version": report.version,
    }
    description = clean(answer.plan.description)
    lead = f'<p class="lead">{escape(description)}</p>' if description else ""
    front = "\n".join(_block(block) for block in front_of(report))
    folds = "\n".join(_fold(section) for section in sections_of(report))
    told = {name: escape(text) for name, text in texts.items()}
    return _page().format(policy=_POLICY, lead=lead, front=front, folds=folds, **told)


def escape(text: object) -> str:
    """Text for HTML: markup and quotes escaped, and no characters that XML does not have."""
    kept = "".join(ch for ch in str(text) if ch in "\n\t" or (ord(ch) >= 32 and ch not in "\ufffe\uffff\x7f"))
    return _escape("".join(ch for ch in kept if not 0xD800 <= ord(ch) <= 0xDFFF), quote=True)


def _read(name: str) -> str:
    return files("mlsysim.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _page() -> str:
    """The page around the sections, with its style."""
    style = _read("style.css").strip() + "\n" + stylesheet()
    return _read("page.html").replace("{style}", style.replace("{", "{{").replace("}", "}}"))


def _fold(section: Section) -> str:
    summary = f'<span class="said">{escape(section.summary)}</span>' if section.summary else ""
    inner = "\n".join(_block(block) for block in section.blocks)
    heading = f"<summary><h2>{escape(section.title)}</h2> {summary}</summary>"
    return f'<details id="{section.name}">\n{heading}\n<div class="inside">\n{inner}\n</div>\n</details>'


def _block(block: Block) -> str:
    if isinstance(block, Text):
        return f'<p class="quiet">{escape(block.text)}</p>' if block.quiet else f"<p>{escape(block.text)}</p>"
    if isinstance(block, Verdict):
        because = f" {escape(block.because)}" if block.because else ""
        return f'<p class="verdict {block.state}"><b>{escape(block.claim)}</b>{because}</p>'
    if isinstance(block, Points):
        tag = "ol" if block.numbered else "ul"
        return f'<h2>{escape(block.title)}</h2>\n<{tag} class="points">{"".join(_point(*row) for row in block.rows)}</{tag}>'
    if isinstance(block, Cards):
        return f'<ul class="cards">{"".join(_card(*row) for row in block.rows)}</ul>'
    if isinstance(block, Code):
        return f'<pre tabindex="0"><code>{escape(block.text.rstrip())}</code></pre>'
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Chart):
        return _chart(block)
    return _formulas(block) if isinstance(block, Formulas) else _documents(block)


def _card(label: str, value: str, remark: str) -> str:
    lines = remark.split("; ") if remark else ()
    note = "".join(f'<span class="note">{escape(capital(line))}</span>' for line in lines)
    return f'<li><span class="label">{escape(label)}</span><span class="value">{escape(value)}</span>{note}</li>'


def _point(about: str, said: str) -> str:
    return f"<li><b>{escape(about)}</b>: {escape(said)}.</li>" if about else f"<li>{escape(said)}</li>"


_LONG = 24
"""Signs of a text that is worth two columns."""


def _table(table: Table) -> str:
    def cell(tag: str, column: int, text: str) -> str:
        extra = ' class="number"' if column in table.right else ""
        if tag == "td" and column in table.right:
            # A number stays on the line of its unit; an interval may break behind its "to".
            text = text.replace(" ", "\u00a0").replace("\u00a0to\u00a0", "\u00a0to ")
        scope = ' scope="col"' if tag == "th" else ""
        return f"<{tag}{scope}{extra}>{escape(text)}</{tag}>"

    def cells(row: Sequence[str]) -> Iterator[str]:
        """The cells of a row; a long text takes the place of an empty one behind it too."""
        column = 0
        while column < len(row):
            wide = column + 1 < len(row) and not row[column + 1] and len(row[column]) > _LONG
            made = cell("td", column, row[column])
            yield made.replace("<td", '<td colspan="2"', 1) if wide else made
            column += 1 + wide

    head = "".join(cell("th", k, text) for k, text in enumerate(table.headers))
    rows = []
    for k, row in enumerate(table.rows):
        mark = ' class="marked"' if k in table.marked else ""
        rows.append(f"<tr{mark}>" + "".join(cells(row)) + "</tr>")
    body = "\n".join(rows)
    # Numbers behind one column of words share their widths with other tables of that kind.
    numbers = len(table.right) == len(table.headers) - 1 and 0 not in table.right
    words = not table.right and len(table.headers) == 4
    kind = f"c{len(table.headers)}{' numbers' if numbers else ' words' if words else ''}"
    # A table that is wider than a phone scrolls in its own frame, which the keyboard can reach.
    inner = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    return f'<div class="frame" tabindex="0"><table class="{kind}">{inner}</table></div>'


def _chart(chart: Chart) -> str:
    """Both layouts, with the style of charts taken out: the page has it once."""
    wide = unstyled(chart.figure.svg(identity=f"{chart.name}-wide"))
    phone = unstyled(chart.figure.svg(PHONE, identity=f"{chart.name}-phone"))
    return f'<figure class="chart" id="{chart.name}-chart"><div class="wide">{wide}</div><div class="phone">{phone}</div></figure>'


def _formulas(block: Formulas) -> str:
    """Equations by the resolver that they belong to."""
    groups: dict[str, list[str]] = {}
    for equation in block.equations:
        drawn = mathml(equation.latex)
        shown = f'<div class="math">{drawn}</div>' if drawn is not None else ""
        groups.setdefault(equation.resolver, []).append(
            f'<div class="equation"><p class="gives">{escape(equation.gives.replace("_", " "))}</p>{shown}'
            f'<p class="text"><code>{escape(equation.text)}</code></p>'
            f'<p>{escape(block.given(equation))}</p><p class="result">= {escape(equation.value)}</p></div>'
        )
    headings = {resolver: f"<h3>{escape(resolver)}</h3>" if resolver else "" for resolver in groups}
    return "\n".join(headings[resolver] + "\n".join(equations) for resolver, equations in groups.items())


def _documents(block: Documents) -> str:
    items = []
    for cited in block.cited:
        title = escape(cited.title)
        if cited.url.startswith(("https://", "http://")):
            title = f'<a href="{escape(cited.url)}" rel="noreferrer">{title}</a>'
        items.append(f"<li><b>{escape(cited.subject)}:</b> {title}{escape(cited.remark)}</li>")
    return f'<h3>Sources</h3><ul class="sources">{"".join(items)}</ul>'
