"""The picture of one question's way: from what is asked through a plan, a case and its ledger to every face. Drawn as SVG, wide and for a phone."""

from __future__ import annotations

from html import escape

__all__ = ["STYLE", "drawn"]

_STAGES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Asked", "by people, programs", ("command line", "files, forms", "Python, HTTP, MCP")),
    ("Plan", "one set of keys", ("workload", "hardware, split", "place, limits")),
    ("Case", "what a step consists of", ("operators, network", "engine", "or every request played")),
    ("Ledger", "parts that add up", ("seconds by wall", "bytes held", "what binds")),
    ("Answer", "one for all", ("metrics", "intervals", "verdict, equations, sources")),
    ("Faces", "show, compute nothing", ("terminal, report", "explorer, labs", "charts, launch files")),
)
_DATA = ("Zoo", "what is known, with its source")
STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1d2b38}"
    ".box{fill:#eef3f8;stroke:#41627f}.key{fill:#fdf3e3;stroke:#b3640a}.way{stroke:#7a8794;fill:none;stroke-width:1.5}.tip{fill:#7a8794}.small{fill:#4a5866}"
    "@media (prefers-color-scheme:dark){text{fill:#e8eaed}.box{fill:#1d2935;stroke:#7fa6c8}.key{fill:#33261a;stroke:#f2a33a}.small{fill:#b3bcc6}}"
)


def drawn(phone: bool = False) -> str:
    """The picture: two rows, there and back, or one column on a phone. The zoo stands before what reads it."""
    width, box, tall = (360, 320, 66) if phone else (720, 212, 76)
    top = 66
    if phone:
        places = [(20, top + k * (tall + 22)) for k in range(6)]
    else:
        places = [(10 + k * (box + 32), top) for k in range(3)] + [(10 + k * (box + 32), top + 112) for k in (2, 1, 0)]
    at = places[0] if phone else places[1]
    wide = box if phone else 2 * box + 32
    parts = [_box("box", at[0], 10, wide, 34, *_DATA)]
    for k, ((name, about, lines), (x, y)) in enumerate(zip(_STAGES, places, strict=True)):
        parts.append(_box("key" if name == "Ledger" else "box", x, y, box, tall, name, about))
        parts += [_text(x + 10, y + 40, ", ".join(lines[:2])), _text(x + 10, y + 57, lines[2])]
        if k:
            (x1, y1), middle = places[k - 1], tall / 2
            if x == x1:
                parts.append(_arrow(x + box / 2, y1 + tall, x + box / 2, y))
            else:
                ends = (x1 + box, x) if x > x1 else (x1, x + box)
                parts.append(_arrow(ends[0], y + middle, ends[1], y + middle))
    if not phone:
        parts += [_arrow(x + box / 2, 44, x + box / 2, y) for x, y in places[1:3]]
    height = max(y for _, y in places) + tall + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
        "<title>One question's way: asked, plan, case, ledger, answer, faces; the zoo's data enter at plan and case</title>\n"
        f"<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _box(kind: str, x: float, y: float, width: float, height: float, name: str, about: str) -> str:
    title = f'<text x="{x + 10:g}" y="{y + 21:g}" font-size="14" font-weight="600">{name}</text>'
    shape = f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'
    return shape + title + _text(x + 80, y + 21, about)


def _text(x: float, y: float, text: str) -> str:
    return f'<text class="small" x="{x:g}" y="{y:g}" font-size="11">{escape(text)}</text>'


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    if x1 == x2:
        sign = 1 if y2 > y1 else -1
        tip = f"{x2 - 4:g} {y2 - 7 * sign:g}L{x2 + 4:g} {y2 - 7 * sign:g}L{x2:g} {y2:g}z"
        return f'<path class="way" d="M{x1:g} {y1:g}V{y2 - 6 * sign:g}"/><path class="tip" d="M{tip}"/>'
    sign = 1 if x2 > x1 else -1
    tip = f"{x2 - 7 * sign:g} {y2 - 4:g}L{x2 - 7 * sign:g} {y2 + 4:g}L{x2:g} {y2:g}z"
    return f'<path class="way" d="M{x1:g} {y1:g}H{x2 - 6 * sign:g}"/><path class="tip" d="M{tip}"/>'
