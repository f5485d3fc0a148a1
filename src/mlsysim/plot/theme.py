"""Colours of the charts, as CSS variables: light, dark, and what the page around says.

The series colours descend from Okabe and Ito's palette, which people with any colour vision can tell apart. It was made
for print: orange, sky blue and yellow are too pale on white. Each colour here is moved in lightness until it has a
contrast of at least 3 to 1 on its background (WCAG 2.2, 1.4.11), and 4.5 to 1 with the text on it; a test computes both.
Nothing is told by colour alone: fills carry a hatch each, lines a dash, points a shape, and all a label.

Dark applies where the reader asks for it (``prefers-color-scheme``); an ancestor with ``data-theme="light"`` or ``"dark"``
has the last word. Print is light. A page can set ``--figure-background`` to its own.
"""

from __future__ import annotations

from functools import cache

SERIES = 8
RAMP = 7

LIGHT = {
    "bg": "#ffffff", "ink": "#1c2128", "muted": "#59626e", "axis": "#848d97", "grid": "#e4e7eb", "faint": "#eef0f3",
    "on": "#ffffff", "bad": "#b3261e", "0": "#0069a8", "1": "#b84e00", "2": "#007a58", "3": "#a34d80", "4": "#8a5c00",
    "5": "#5a4fc0", "6": "#9c2f3f", "7": "#5b646f", "q0": "#eaf1f8", "q1": "#cfe1f0", "q2": "#abcbe6",
    "q3": "#7fb0d8", "q4": "#2f7bb3", "q5": "#15598c", "q6": "#0a3a60",
}  # fmt: skip
DARK = {
    "bg": "#15181d", "ink": "#e8eaed", "muted": "#a4acb7", "axis": "#6f7883", "grid": "#2b3038", "faint": "#20252b",
    "on": "#0d1013", "bad": "#ff8a80", "0": "#5bb4ea", "1": "#f08a4b", "2": "#35bf97", "3": "#dd93bf", "4": "#e2a93a",
    "5": "#a59cf5", "6": "#f0808f", "7": "#a7b0bb", "q0": "#1d2935", "q1": "#203648", "q2": "#24465f",
    "q3": "#2a5879", "q4": "#5b9cc9", "q5": "#8fc0e2", "q6": "#cbe3f4",
}  # fmt: skip

# Drawn over a fill in the colour of the background; the first is none.
HATCHES = (
    "",
    '<path d="M-2 2L2 -2M0 8L8 0M6 10L10 6" class="hatch"/>',
    '<circle cx="2" cy="2" r="1.1" class="dot"/><circle cx="6" cy="6" r="1.1" class="dot"/>',
    '<path d="M-2 6L2 10M0 0L8 8M6 -2L10 2" class="hatch"/>',
    '<path d="M0 2H8M0 6H8" class="hatch"/>',
    '<path d="M2 0V8M6 0V8" class="hatch"/>',
    '<path d="M0 0L8 8M0 8L8 0" class="hatch"/>',
    '<path d="M0 4H8M4 0V8" class="hatch"/>',
)

_DASHES = ("none", "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "1 2", "6 2 1 2 1 2")

FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'Liberation Sans',sans-serif"


def _variables(colours: dict[str, str]) -> str:
    own = {**colours, "bg": f"var(--figure-background,{colours['bg']})"}
    return "{" + ";".join(f"--mlp-{name}:{value}" for name, value in own.items()) + "}"


@cache
def stylesheet() -> str:
    """The style of every chart. It is the same for all, so that several on one page do not disturb each other."""
    light, dark = _variables(LIGHT), _variables(DARK)
    rules = [
        f".mlp{light}",
        f"@media (prefers-color-scheme:dark){{.mlp{dark}}}",
        f"[data-theme=light] .mlp,.mlp[data-theme=light]{light}",
        f"[data-theme=dark] .mlp,.mlp[data-theme=dark]{dark}",
        f"@media print{{.mlp,[data-theme] .mlp,.mlp[data-theme]{light}}}",
        f".mlp text{{font-family:{FONT};font-variant-numeric:tabular-nums}}",
        ".mlp .bg{fill:var(--mlp-bg)}",
        *(f".mlp text.{name}{{fill:var(--mlp-{name})}}" for name in ("ink", "muted", "on", "bad")),
        ".mlp .grid{stroke:var(--mlp-grid);stroke-width:1}",
        ".mlp .axis{stroke:var(--mlp-axis);stroke-width:1}",
        ".mlp .zero{stroke:var(--mlp-ink);stroke-width:1.25}",
        ".mlp .limit{stroke:var(--mlp-bad);stroke-width:2;stroke-dasharray:6 3;fill:none}",
        ".mlp .leader{stroke:var(--mlp-muted);stroke-width:.75;fill:none}",
        ".mlp .faint{fill:var(--mlp-faint)}",
        ".mlp .void{fill:var(--mlp-faint);stroke:var(--mlp-axis);stroke-width:1;stroke-dasharray:3 2}",
        ".mlp .inkfill{fill:var(--mlp-ink)}",
        ".mlp .hatch{stroke:var(--mlp-bg);stroke-width:1;stroke-opacity:.45;fill:none}",
        ".mlp .dot{fill:var(--mlp-bg);fill-opacity:.5}",
        ".mlp .edge{stroke:var(--mlp-bg);stroke-width:1}",
        ".mlp .mark{stroke:var(--mlp-ink);stroke-width:2;fill:none}",
        *(f".mlp .f{k}{{fill:var(--mlp-{k})}}" for k in range(SERIES)),
        *(
            f".mlp .l{k}{{stroke:var(--mlp-{k});stroke-width:2;fill:none;stroke-linejoin:round;stroke-dasharray:{_DASHES[k]}}}"
            for k in range(SERIES)
        ),
        *(f".mlp .q{k}{{fill:var(--mlp-q{k})}}" for k in range(RAMP)),
        ".mlp .halo{paint-order:stroke;stroke:var(--mlp-bg);stroke-width:3px;stroke-linejoin:round}",
        ".mlp .wash{fill-opacity:.22}",
        ".mlp .ceiling{stroke-width:1.25;stroke-dasharray:3 3;stroke-opacity:.8}",
    ]
    return "".join(rules)
