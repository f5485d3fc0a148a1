"""The subset of Markdown that labs are written in, as HTML: everything is escaped first, so no text can bring markup.

Paragraphs, ``###`` headings, lists with ``-`` or ``1.``, tables with ``|``, fenced code, ``**strong**``, ``*stress*``, ```code``` and
links to pages of the same site (``[text](#lab/roofline)``). A fence of ``math`` holds equations in LaTeX, one a line, which
become MathML.
"""

from __future__ import annotations

import html
import re

from mlsysim.report.formula import mathml

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
