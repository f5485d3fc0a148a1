"""A report as one HTML file: style and charts inside, no script, and a policy that forbids every request.

The file is also well-formed XML, so that tools can read it. Each chart is there twice, laid out for a wide page and for a
phone; the style shows one of them.
"""

from __future__ import annotations

from functools import cache
from html import escape as _escape
from importlib.resources import files

from mlsysim.plot.figure import PHONE
from mlsysim.plot.svg import clean
from mlsysim.plot.theme import stylesheet
from mlsysim.report.blocks import Block, Cards, Chart, Code, Documents, Facts, Formulas, Section, Table, Text
from mlsysim.report.build import Report
from mlsysim.report.content import capital, sections_of
from mlsysim.report.formula import mathml

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_TONES = {0: "good", 2: "bad", 3: "bad"}


def to_html(report: Report) -> str:
    """The whole file."""
    sections = sections_of(report)
    answer = report.answer
    title = escape(report.title)
    description = clean(answer.plan.description)
    lead = f'<p class="lead">{escape(description)}</p>' if description else ""
    links = "".join(f'<li><a href="#{s.name}">{escape(s.title)}</a></li>' for s in sections[1:])
    first, *rest = (_section(section, report) for section in sections)
    texts = {"subject": capital(answer.subject), "fidelity": answer.fidelity, "version": report.version}
    parts = {"title": title, "lead": lead, "first": first, "links": links, "body": "\n".join(rest)}
    return _page().format(policy=_POLICY, **parts, **{name: escape(text) for name, text in texts.items()})


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


def _section(section: Section, report: Report) -> str:
    blocks = list(section.blocks)
    inner = ""
    if section.name == "verdict":
        headline = blocks.pop(0)
        assert isinstance(headline, Text)
        tone = _TONES.get(report.answer.exit_code, "bad")
        inner = (
            f'<p class="badge {tone}">{escape(report.status)}</p>\n<p class="headline">{escape(headline.text)}</p>\n'
        )
    inner += "\n".join(_block(block) for block in blocks)
    heading = f'<h2 id="{section.name}-title">{escape(section.title)}</h2>'
    return f'<section id="{section.name}" aria-labelledby="{section.name}-title">\n{heading}\n{inner}\n</section>'


def _block(block: Block) -> str:
    if isinstance(block, Text):
        return f'<p class="quiet">{escape(block.text)}</p>' if block.quiet else f"<p>{escape(block.text)}</p>"
    if isinstance(block, Facts):
        rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in block.rows)
        return f'<dl class="facts">{rows}</dl>'
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
    note = f'<span class="note">{escape(remark)}</span>' if remark else ""
    return f'<li><span class="label">{escape(label)}</span><span class="value">{escape(value)}</span>{note}</li>'


def _table(table: Table) -> str:
    def cell(tag: str, column: int, text: str) -> str:
        extra = ' class="number"' if column in table.right else ""
        if tag == "td" and column in table.right:
            # A number stays on the line of its unit; an interval may break behind its "to".
            text = text.replace(" ", "\u00a0").replace("\u00a0to\u00a0", "\u00a0to ")
        scope = ' scope="col"' if tag == "th" else ""
        return f"<{tag}{scope}{extra}>{escape(text)}</{tag}>"

    head = "".join(cell("th", k, text) for k, text in enumerate(table.headers))
    rows = []
    for k, row in enumerate(table.rows):
        mark = ' class="marked"' if k in table.marked else ""
        rows.append(f"<tr{mark}>" + "".join(cell("td", column, text) for column, text in enumerate(row)) + "</tr>")
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
    own = f"<style>{stylesheet()}</style>\n"
    wide = chart.figure.svg(identity=f"{chart.name}-wide").replace(own, "")
    phone = chart.figure.svg(PHONE, identity=f"{chart.name}-phone").replace(own, "")
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
