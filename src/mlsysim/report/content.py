"""The sections behind the first page, for an engineer: each is a fold with a line that says what is in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mlsysim.cases.assumptions import CHECKPOINT, CHIP, DEFAULT, IDLE, INFERRED, SEARCHED, SOFTWARE, UNKNOWN
from mlsysim.cases.ledger import within
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import settled
from mlsysim.plans.files import plan_to_toml
from mlsysim.plans.metrics import Level, kinds
from mlsysim.plans.sheet import percentile_label, percentile_texts
from mlsysim.plans.targets import levels_of
from mlsysim.report.blocks import Block, Chart, Code, Documents, Formulas, Section, Table, Text
from mlsysim.report.build import Report
from mlsysim.report.figures import WHOLES
from mlsysim.report.front import NOT_KNOWN
from mlsysim.report.words import WORDS, capital
from mlsysim.units.text import listed, many, number

_COSTS = ("tco", "energy", "carbon_footprint", "water")
_MACRO = {"training": _COSTS, "serving": _COSTS, "rl": _COSTS, "inference": ("energy_per_sample",)}
"""Costs that are listed even where they are not known."""
_MOST_ON_FRONT = 10
_OF_RUNS = ("time", "memory", "pipeline", "cost", "designs")
_MATTERS = 0.1
"""Share of a wall that is used from which it matters."""


def sections_of(report: Report) -> tuple[Section, ...]:
    """All sections in their order. One without blocks is left out, and of a plan that does not run what only a run has; the first page has its memory."""
    answer = report.answer
    run = "runs" if answer.task == "training" else "requests"
    found = (
        ("walls", "Walls", _walls_said(answer), _walls(report)),
        ("time", "Time", _time_said(answer), _time(report)),
        ("percentiles", f"Percentiles of the {run}", answer.assumed_value("simulated", ""), _percentiles(report)),
        ("run", "The run over time", _run_said(answer), _charts(report, "run", "lost", "finish", "hours")),
        ("memory", "Memory", _memory_said(answer), _charts(report, "memory")),
        ("pipeline", "Pipeline", _pipeline_said(answer), _pipeline(report)),
        ("cost", "Cost and carbon", _cost_said(answer), _cost(report)),
        ("sensitivity", "Sensitivities", "10 % less and more of each figure of the hardware", _charts(report, "sensitivity")),
        ("designs", "Designs nearby", _designs_said(report), _designs(report)),
        ("numbers", "All numbers", many(len(answer.metrics), "metric"), _numbers(answer)),
        ("assumptions", "Assumptions and sources", _assumed_said(answer), _assumptions(report)),
        ("equations", "Equations with their numbers", many(len(answer.equations), "equation"), _equations(answer)),
        ("plan", "The plan", "as it was given, and with all that was chosen", _plan(report)),
    )  # fmt: skip
    sections = (
        Section(name, title, summary, tuple(blocks))
        for name, title, summary, blocks in found
        if answer.runs or name not in _OF_RUNS
    )
    return tuple(section for section in sections if section.blocks)


def _walls_said(answer: Answer) -> str:
    scored = [score for score in answer.scorecard if score.status != "not asked"]
    matter = [s for s in scored if s.status in ("binds", "fails") or (s.load or 0.0) >= _MATTERS]
    return f"{len(scored)} scored, {len(matter)} {'matters' if len(matter) == 1 else 'matter'}"


def _time_said(answer: Answer) -> str:
    parts = answer.time_parts
    largest = max(parts, key=lambda part: part.value, default=None)
    whole = sum(part.value for part in parts)
    most = f"{largest.value / whole:.0%} of it {within(largest.label)}" if largest is not None and whole else ""
    if len(parts) == 1:
        return f"{WHOLES[answer.task]}, all of it {within(parts[0].label)}"
    return ", ".join(filter(None, (f"{WHOLES[answer.task]} in {many(len(parts), 'part')}", most)))


def _run_said(answer: Answer) -> str:
    return f"goodput {answer.held['goodput'].text}" if "goodput" in answer.held else ""


def _memory_said(answer: Answer) -> str:
    held = answer.held
    if "memory" not in held:
        return ""
    whose = f" of each {answer.memory.of}" if answer.memory is not None and answer.memory.of else ""
    return f"{held['memory'].text} of {held['memory_capacity'].text}{whose}"


def _pipeline_said(answer: Answer) -> str:
    return f"bubble {answer.held['bubble'].text} of a step" if "bubble" in answer.held else ""


def _cost_said(answer: Answer) -> str:
    paid, energy = answer.paid, answer.held.get("energy") or answer.held.get("energy_per_sample")
    money = "" if paid is None else f"{paid.text} to {'rent' if paid.name == 'rent' else 'own'} for {answer.period}"
    return ", ".join(filter(None, (money, "" if energy is None else f"{energy.text} of energy")))


def _designs_said(report: Report) -> str:
    found = report.designs
    return (
        "too few to compare"
        if found is None
        else f"{len(found.points):,} of {found.tried:,} run, {found.near:,} within 5 % of this plan"
    )


_ORIGINS = {
    SOFTWARE: "from the software",
    CHIP: "from the chip",
    CHECKPOINT: "from the checkpoint",
    INFERRED: "inferred",
    SEARCHED: "searched",
    DEFAULT: "by default",
    IDLE: "given without effect",
    UNKNOWN: "not known",
}


def _assumed_said(answer: Answer) -> str:
    counts = Counter(each.origin for each in answer.assumed)
    told = [f"{counts[origin]:,} {words}" for origin, words in _ORIGINS.items() if counts[origin]]
    return f"{len(answer.assumptions):,}, of which {listed(told)}" if told else f"{len(answer.assumptions):,}"


def _walls(report: Report) -> Iterator[Block]:
    answer = report.answer
    yield from _charts(report, "scorecard")
    margin = answer.binding.margin
    ahead = (
        f" That is {margin:.3g} times as much as the next wall has." if margin is not None and answer.feasible else ""
    )
    yield Text(f"{answer.binding.sentence}{ahead}")
    if answer.next_wall is not None:
        yield Text(f"Next: {answer.next_wall.sentence}")


def _of_cost(line: str) -> bool:
    """Whether a sentence of the verdict is about money, energy or carbon."""
    return "$" in line or NOT_KNOWN in line or "energy" in line or "emits" in line


def _time(report: Report) -> Iterator[Block]:
    answer = report.answer
    told = [answer.headline, *(line for line in answer.verdict if not _of_cost(line))]
    yield Text(" ".join(told))
    yield from _charts(report, "time", "roofline")


def _equations(answer: Answer) -> Iterator[Block]:
    if answer.equations:
        yield Formulas(answer.equations)


def _charts(report: Report, *names: str) -> Iterator[Block]:
    yield from (Chart(name, report.figures[name]) for name in names if name in report.figures)


_STATES = {True: "holds", False: "FAILS"}


def _numbers(answer: Answer) -> Iterator[Block]:
    if answer.checks:
        asked = tuple(
            (
                _STATES[check.passed] if check.certain else "open",
                check.sentence,
                "" if check.odds is None else f"{check.odds:.0%}",
            )
            for check in answer.checks
        )
        missed = tuple(k for k, check in enumerate(answer.checks) if not check.passed and check.certain)
        yield Table(("Asked for", "", "Odds that it holds"), asked, right=(2,), marked=missed)
    for level in ("feasibility", "performance"):
        rows = _rows(answer, level)
        if rows:
            yield _metrics(answer.questions[level], rows)
    layout = tuple(_layout(answer))
    if layout:
        yield Table(("How it is split", ""), layout, right=() if _several(answer) else (1,))


def _several(answer: Answer) -> bool:
    """Whether there are groups of accelerators, each with its layout."""
    return any(isinstance(value, dict) for value in answer.layout.values())


def _rows(answer: Answer, level: Level) -> list[tuple[str, str, str, str]]:
    return [(m.label, m.text, m.interval, f"{m.wall}") for m in answer.metrics if m.level == level]


def _metrics(title: str, rows: list[tuple[str, str, str, str]]) -> Table:
    """Metrics with interval and wall; without the intervals where there are none."""
    if any(interval for _, _, interval, _ in rows):
        return Table((title, "Value", "90 % interval", "Wall"), tuple(rows), right=(1, 2, 3))
    return Table((title, "Value", "Wall"), tuple((label, text, wall) for label, text, _, wall in rows), right=(1, 2))


_SPLIT = WORDS["split"]


def _layout(answer: Answer) -> Iterator[tuple[str, str]]:
    for name, value in answer.layout.items():
        if isinstance(value, dict):
            split = ", ".join(f"{_SPLIT.get(str(key), str(key)).lower()} {number(item)}" for key, item in value.items())
            yield name, split
        elif not (name == "schedule" and answer.layout.get("pp") == 1):
            yield _SPLIT.get(name, name.replace("_", " ")), number(value)


def walls_table(answer: Answer) -> Table:
    """The scorecard as a table, for formats without charts."""
    stops = tuple(k for k, s in enumerate(answer.scorecard) if s.status in ("binds", "fails"))
    rows = []
    for k, s in enumerate(answer.scorecard):
        status, used = s.status.upper() if k in stops else s.status, "" if s.load is None else f"{s.load:.0%}"
        rows.append((f"{s.wall}", s.name, s.domain, status, used, "; ".join(filter(None, (s.value, s.note)))))
    return Table(("Wall", "Name", "Domain", "Status", "Used", "Found"), tuple(rows), right=(0, 4), marked=stops)


def _percentiles(report: Report) -> Iterator[Block]:
    found = report.answer.percentiles
    if not found:
        return
    yield from _charts(report, "percentiles", "traffic")
    rows = tuple((percentile_label(kind), *percentile_texts(kind, held)) for kind, held in found.items())
    levels = levels_of(next(iter(found.values())))
    yield Table(("Time", *levels), rows, right=tuple(range(1, 1 + len(levels))))
    sampled = "± is the sampling error of 90 %; t" if any("±" in text for row in rows for text in row) else "T"
    yield Text(f"{sampled}he model's own error is the interval in the table of numbers.")


def _pipeline(report: Report) -> Iterator[Block]:
    if "pipeline" not in report.figures:
        return
    yield from _charts(report, "pipeline")
    if "pipeline-memory" in report.figures:
        yield from _charts(report, "pipeline-memory")
        text = (
            "Activations follow the schedule; the fullest stage is the memory above. Communication takes no time here."
        )
        yield Text(text, quiet=True)


def _cost(report: Report) -> Iterator[Block]:
    answer = report.answer
    rows = _rows(answer, "macro")
    missing = [kinds()[name] for name in _MACRO[answer.task] if name not in answer.held]
    rows += [(kind.label_of(answer.task), NOT_KNOWN, "", f"{kind.wall}") for kind in missing]
    yield _metrics(answer.questions["macro"], rows)
    told = [line for line in answer.verdict if _of_cost(line)]
    if told:
        yield Text(" ".join(told))
    reasons = []
    unknown = (each for each in answer.assumed if each.origin == UNKNOWN)
    reasons += [f"{capital(each.name.replace('_', ' '))}: {each.text}." for each in unknown]
    if answer.task == "inference":
        reasons.append("One pass has no duration and no fleet, so there is no cost of owning and no carbon to tell.")
    if reasons:
        yield Text(" ".join(reasons), quiet=True)
    yield from _charts(report, "cost", "carbon")


def _designs(report: Report) -> Iterator[Block]:
    designs = report.designs
    if designs is None:
        yield Text("Too few designs around this plan can be compared.", quiet=True)
        return
    yield Text(designs.sentence)
    yield Text(designs.varied, quiet=True)
    yield from _charts(report, "designs")
    best = designs.front[:_MOST_ON_FRONT]
    shown = [0, *(k for k in best if k != 0)]
    rows = tuple((designs.points[k].label, designs.points[k].x_text, designs.points[k].y_text) for k in shown)
    yield Table(("This plan and the front", *designs.titles), rows, right=(1, 2), marked=(0,))


def _assumptions(report: Report) -> Iterator[Block]:
    if report.assumptions:
        yield Table(("Assumed", "Value", "What it is", "From"), report.assumptions)
    if report.documents:
        yield Documents(report.documents)


def _plan(report: Report) -> Iterator[Block]:
    plan = report.answer.plan
    yield Code(plan_to_toml(plan), "toml")
    whole = settled(report.answer)
    if whole != plan:
        yield Text("The same plan with everything that was chosen for it written down:", quiet=True)
        yield Code(plan_to_toml(whole), "toml")
    made = f"Made with mlsysim {report.version}, {report.answer.fidelity}."
    yield Text(f"{made} To make it again, save the plan as plan.toml and run:", quiet=True)
    yield Code("mlsysim report plan.toml -o report.html", "sh")
