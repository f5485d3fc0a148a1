"""The first page: every scenario of the package with its answer, written when the site is built.

A card says what was asked, whether it holds, three figures, what binds, and where the time goes. It is read off the answer that
every face gives, so it stands there before Python has started and without JavaScript; its link is the plan's address in the
explorer. ``gallery/NAME.json`` beside it is what the explorer would be told, for the time until it can ask.
"""

from __future__ import annotations

import json
from html import escape

from mlsysim.labs.address import address
from mlsysim.labs.documents import Document
from mlsysim.labs.further import explore
from mlsysim.plans.answer import Answer
from mlsysim.plans.audit import AUDITED
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.files import load_plan
from mlsysim.plans.plan import Plan
from mlsysim.plot.answers import whole_of
from mlsysim.plot.theme import unstyled
from mlsysim.zoo.examples import shipped_files
from mlsysim.zoo.files import shipped

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
    return {"plan": plan.document(), "answer": explore(plan.document(), *_CHARTS)}


def _card(name: str, answer: Answer) -> str:
    plan = answer.plan
    ruling = answer.ruling
    headline = answer.headline.split(": ", 1)[-1]
    shown = shipped("mlsysim.labs", "catalogue.toml")["cards"][answer.task]
    figures = [answer.held[figure] for figure in shown if figure in answer.held][:_SHOWN]
    rows = "".join(f"<div><dt>{escape(figure.label)}</dt><dd>{escape(figure.text)}</dd></div>" for figure in figures)
    figure = whole_of(answer, title="Where the time goes", most=_FEW, width=_WIDTH)
    chart = f'<div class="chart">{unstyled(figure.svg())}</div>' if figure is not None else ""
    return (
        f'<li class="card scenario" data-scenario="{name}">\n'
        f'<h3><a href="{escape(address(plan.document()))}">{escape(plan.name or answer.subject)}</a></h3>\n'
        f'<p class="muted about">{escape(plan.description or "")}</p>\n'
        f'<p class="says"><strong class="badge" data-state="{_COLOURS[ruling.state]}">{escape(ruling.claim)}</strong> {escape(headline[:1].upper() + headline[1:])}</p>\n'
        f'<dl class="three">{rows}</dl>\n<p class="binds">{escape(answer.binding.sentence)}</p>\n{chart}</li>\n'
    )


def told_json(told: Document) -> bytes:
    """One file for the explorer."""
    return (json.dumps(told, separators=(",", ":")) + "\n").encode()
