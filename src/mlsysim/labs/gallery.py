"""The first page: every scenario of the package with its answer, written when the site is built.

A card says what was asked, whether it holds, three figures, what binds, and where the time goes. It is read off the answer that
every face gives, so it stands there before Python has started and without JavaScript; its link is the plan's address in the
explorer. ``gallery/NAME.json.gz`` beside it is what the explorer would be told, for the time until it can ask.

A plan as an address of the explorer, which keeps its state behind the # (``site/state.js`` writes and reads the same form).

#task=training&workload.model=Llama3_70B&hardware.on=512xH100

A small picture of each lab for the list: its first chart without words, so that it shows the form and no answer.

What is drawn is what the lab itself draws, of the practice parameters. Text, and with it every number, is left out; so is what
stands above the first long line or large area: the title and the marks of the legend.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any
from urllib.parse import urlencode

from mlsysim.labs.explorer import Document
from mlsysim.labs.further import explore
from mlsysim.labs.lab import Lab
from mlsysim.labs.lab_charts import draw
from mlsysim.labs.scope import Scope
from mlsysim.plans.answer import Answer
from mlsysim.plans.audit import AUDITED
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.files import load_plan
from mlsysim.plans.plan import Plan
from mlsysim.plot.answers import whole_of
from mlsysim.plot.theme import unstyled
from mlsysim.zoo.files import shipped, shipped_files

GROUPS = {
    "serving": "Serving",
    "training": "Training",
    "rl": "Post-training",
    "inference": "On a small device",
}
"""Headings of the page by task, in its order."""


FIRST = "first"
"""The design that the explorer starts with, the tutorial's run; no scenario has this name."""

_COLOURS = {"holds": "good", "open": "warn", "fails": "bad"}
_SHOWN = 3
_WIDTH = 380
_CHARTS = (440, 880)
"""How wide the charts are until the engine knows how wide the page is: two beside each other on a laptop, one on its line."""
_FEW = 4
"""Parts that a small bar tells apart."""


def gallery() -> tuple[str, dict[str, Document]]:
    """The cards as HTML, grouped, and what the explorer shows of each scenario by name, and of its first design."""
    groups: dict[str, list[str]] = {task: [] for task in GROUPS}
    told = {FIRST: _told(AUDITED)}
    for name in shipped_files("scenario"):
        plan = load_plan(f"scenario:{name}")
        answer = evaluate(plan, change=False)
        groups[answer.task].append(_card(name, answer))
        told[name] = _told(plan)
    parts = [
        f'<section aria-labelledby="gallery-{task}"><h2 id="gallery-{task}">{escape(GROUPS[task])}</h2>'
        f'\n<ul class="scenarios">\n{"".join(cards)}</ul></section>\n'
        for task, cards in groups.items()
        if cards
    ]
    return "".join(parts), told


def _told(plan: Plan) -> Document:
    answer = explore(plan.document(), *_CHARTS)
    del answer["took"], answer["plan"]  # how long it takes where the site is built is nobody's
    return {"plan": plan.document(), "answer": answer}


def _card(name: str, answer: Answer) -> str:
    plan = answer.plan
    ruling = answer.ruling
    headline = answer.headline.split(": ", 1)[-1].partition("; ")[0].removesuffix(".") + "."  # the times stand below
    shown = shipped("mlsysim.labs", "catalogue.toml")["cards"][answer.task]
    figures = [answer.held[figure] for figure in shown if figure in answer.held][:_SHOWN]
    rows = "".join(
        f"<div><dt>{escape(each.label)}</dt><dd>{escape(each.text)}</dd>"
        f'<dd class="muted">{escape(_ends(each.interval))}</dd></div>'
        for each in figures
    )
    figure = whole_of(answer, title="Where the time goes", most=_FEW, width=_WIDTH)
    chart = f'<div class="chart">{unstyled(figure.svg())}</div>' if figure is not None else ""
    return (
        f'<li class="card scenario" data-scenario="{name}">\n'
        f'<h3><a href="{escape(address(plan.document()))}">{escape(plan.name or answer.subject)}</a></h3>\n'
        f'<p class="muted about">{escape(plan.description or "")}</p>\n'
        f'<p class="says"><strong class="badge" data-state="{_COLOURS[ruling.state]}">{escape(ruling.claim)}</strong> {escape(headline[:1].upper() + headline[1:])}</p>\n'
        f'<dl class="three">{rows}</dl>\n<p class="binds">{escape(answer.binding.sentence)}</p>\n{chart}</li>\n'
    )


def _ends(interval: str) -> str:
    """An interval whose ends have the same unit says it once, in one piece with the last of them.

    >>> _ends("253.0 ms to 389.9 ms")
    '253.0 to 389.9\\xa0ms'
    """
    return re.sub(r"^(\S+) (\S+) to (\S+) \2$", "\\1 to \\3\N{NO-BREAK SPACE}\\2", interval)


def told_json(told: Document) -> bytes:
    """One file for the explorer."""
    return (json.dumps(told, separators=(",", ":")) + "\n").encode()


def address(plan: Mapping[str, Any]) -> str:
    """The part of the address from the # on: a pair for each leaf, JSON where that is what it was and plain text otherwise.

    >>> address({"task": "serving", "workload": {"model": "Llama3_8B"}, "serving": {"qps": 2.0}})
    '#task=serving&workload.model=Llama3_8B&serving.qps=2.0'
    """
    return "#" + urlencode([(path, _written(value)) for path, value in _leaves(plan)], safe=",:@/")


def _leaves(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, part in value.items():
        here = f"{path}.{name}" if path else name
        if isinstance(part, Mapping):
            yield from _leaves(part, here)
        else:
            yield here, part


def _written(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        json.loads(value)
    except ValueError:
        return value
    return json.dumps(value)  # text that would be read as something else


_SMALL = 360
_WORDS = re.compile(r"<(text|title|desc)\b.*?</\1>", re.DOTALL)
_HEAD = re.compile(r'<svg [^>]*class="mlp" id="([^"]*)" viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>')
_GROUND = re.compile(r'<rect [^>]*class="bg"[^>]*/>')
_SHAPE = re.compile(r"<(rect|line)\b([^>]*)>")
_NUMBER = re.compile(r'\b(x|y|x1|y1|x2|y2|width|height)="(-?[\d.]+)"')
_LARGE, _LONG, _MARGIN = 320.0, 60.0, 6.0


def picture(lab: Lab) -> str:
    """The SVG of a lab's first chart that is drawn, without words."""
    chart = next(each for each in lab.charts if each.kind != "table")
    bare = _GROUND.sub("", _WORDS.sub("", draw(Scope.of_student(lab), chart, _SMALL)["svg"]))
    head = _HEAD.search(bare)
    assert head is not None, "a chart begins with its size"
    tops, bottoms = zip(*_extents(bare), strict=True)
    top, height = min(tops) - _MARGIN, max(bottoms) - min(tops) + 2 * _MARGIN
    box = f'viewBox="0 {top:g} {head[2]} {height:g}" preserveAspectRatio="xMidYMid meet"'
    return unstyled(bare).replace(head[0], f'<svg xmlns="http://www.w3.org/2000/svg" class="mlp" id="{head[1]}" {box}>')


def _extents(svg: str) -> list[tuple[float, float]]:
    """From where to where down the page the large areas and long lines go."""
    found = []
    for kind, said in _SHAPE.findall(svg):
        at = {name: float(value) for name, value in _NUMBER.findall(said)}
        if kind == "line" and abs(at["x2"] - at["x1"]) + abs(at["y2"] - at["y1"]) > _LONG:
            found.append((min(at["y1"], at["y2"]), max(at["y1"], at["y2"])))
        elif kind == "rect" and at["width"] * at["height"] > _LARGE:
            found.append((at.get("y", 0.0), at.get("y", 0.0) + at["height"]))
    return found
