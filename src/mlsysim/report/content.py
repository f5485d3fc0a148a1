"""The sections of a report: the first for a manager, the rest for an engineer."""

from __future__ import annotations

from collections.abc import Iterator

from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import HARDWARE, settled
from mlsysim.plans.files import plan_to_toml
from mlsysim.plans.metrics import Level, kinds, readable
from mlsysim.plans.sheet import percentile_label, percentile_texts
from mlsysim.plans.targets import levels_of
from mlsysim.plot.scale import amount
from mlsysim.report.blocks import Block, Cards, Chart, Code, Documents, Facts, Formulas, Section, Table, Text
from mlsysim.report.build import Report
from mlsysim.report.figures import WHOLES
from mlsysim.units.text import bytes_text, format_value

NOT_KNOWN = "not known"

_KEY = {
    "training": ("run_time", "tokens", "latency", "mfu", "tokens_per_second", "tco", "carbon_footprint"),
    "serving": ("ttft", "tpot", "tokens_per_second", "requests_per_second", "usd_per_mtoken", "carbon_per_mtoken"),
    "rl": ("latency", "rollout_time", "training_time", "training_mfu", "tokens_per_second_per_device", "tco"),
    "inference": ("latency", "throughput", "mfu", "memory", "energy_per_sample"),
}
"""Numbers of the first page by task; those of money and carbon are there even where they are not known."""
_ALWAYS = ("tco", "carbon_footprint", "usd_per_mtoken", "carbon_per_mtoken", "energy_per_sample")
_COSTS = ("tco", "energy", "carbon_footprint", "water")
_MACRO = {"training": _COSTS, "serving": _COSTS, "rl": _COSTS, "inference": ("energy_per_sample",)}
"""Costs that are listed even where they are not known."""
_MOST_ON_FRONT = 10


def sections_of(report: Report) -> tuple[Section, ...]:
    """All sections in their order; one without blocks is left out."""
    equations = report.answer.equations
    found = (
        ("verdict", "Verdict", _verdict(report)),
        ("walls", "Scorecard by wall", _charts(report, "scorecard")),
        ("numbers", "Numbers", _numbers(report.answer)),
        ("time", "Where the time goes", _time(report)),
        (
            "percentiles",
            f"Percentiles of the {'runs' if report.answer.task == 'training' else 'requests'}",
            _percentiles(report),
        ),
        ("run", "The run over time", _charts(report, "run", "lost", "finish", "hours")),
        ("memory", "Memory", _memory(report)),
        ("pipeline", "The pipeline", _pipeline(report)),
        ("cost", "Cost and carbon", _cost(report)),
        ("sensitivity", "What moves the answer", _sensitivity(report)),
        ("designs", "Designs around this plan", _designs(report)),
        ("assumptions", "Assumptions and sources", _assumptions(report)),
        ("equations", "Equations with their numbers", [Formulas(equations)] if equations else ()),
        ("plan", "The plan", _plan(report)),
    )
    sections = (Section(name, title, tuple(blocks)) for name, title, blocks in found)
    return tuple(section for section in sections if section.blocks)


def _charts(report: Report, *names: str) -> Iterator[Block]:
    yield from (Chart(name, report.figures[name]) for name in names if name in report.figures)


def _verdict(report: Report) -> Iterator[Block]:
    answer = report.answer
    yield Text(answer.headline)
    if answer.verdict:
        yield Text(" ".join(answer.verdict))
    yield Cards(tuple(_cards(answer)))
    yield Facts(tuple(_facts(answer)))
    if answer.checks:
        rows = tuple(("holds" if check.passed else "FAILS", check.sentence) for check in answer.checks)
        missed = tuple(k for k, check in enumerate(answer.checks) if not check.passed)
        yield Table(("Asked for", ""), rows, marked=missed)


def _cards(answer: Answer) -> Iterator[tuple[str, str, str]]:
    for name in _KEY[answer.task]:
        metric = answer.paid if name == "tco" else answer.held.get(name)
        if metric is not None:
            yield metric.label, metric.text, metric.interval
        elif name in _ALWAYS and answer.runs:
            yield kinds()[name].label_of(answer.task), NOT_KNOWN, ""


def _facts(answer: Answer) -> Iterator[tuple[str, str]]:
    binding = answer.binding
    margin = f" Margin over the next: {binding.margin:.3g} times." if binding.margin is not None else ""
    yield "What binds", f"{binding.sentence}{margin if answer.feasible else ''}"
    if answer.next_wall is not None:
        yield "The next wall", answer.next_wall.sentence
    change = "Not looked for on several kinds of accelerator."
    if answer.change is not None:
        change = capital(answer.change.sentence.removeprefix("Cheapest change: "))
    elif not _several(answer):
        helps = "helps by 2 % or more" if answer.feasible else "makes it fit"
        change = f"None of the settings, formats, networks and chips that were tried {helps}."
    yield "Cheapest change", change
    if answer.runs:
        yield "How sure", answer.interval or "No measured runs of this kind are known; take it as a first-order bound."
    if answer.warnings:
        yield "Note", " ".join(answer.warnings)


def capital(text: str) -> str:
    """A text that begins a line."""
    return text[:1].upper() + text[1:]


def _numbers(answer: Answer) -> Iterator[Block]:
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


_SPLIT = {
    "tp": "Tensor parallelism", "pp": "Pipeline stages", "cp": "Context parallelism", "ep": "Expert parallelism",
    "attention_dp": "Groups of attention",
    "dp": "Data parallelism", "micro_batches": "Micro-batches of a step", "virtual_stages": "Virtual stages",
    "schedule": "Pipeline schedule", "zero": "ZeRO stage", "recompute": "Recomputation", "batch_size": "Batch",
    "seq_len": "Sequence length", "replicas": "Replicas", "concurrency": "Requests in flight",
}  # fmt: skip


def _layout(answer: Answer) -> Iterator[tuple[str, str]]:
    for name, value in answer.layout.items():
        if isinstance(value, dict):
            split = ", ".join(f"{_SPLIT.get(str(key), str(key)).lower()} {item}" for key, item in value.items())
            yield name, split
        elif not (name == "schedule" and answer.layout.get("pp") == 1):
            yield _SPLIT.get(name, name.replace("_", " ")), f"{value:,}" if isinstance(value, int) else str(value)


def walls_table(answer: Answer) -> Table:
    """The scorecard as a table, for formats without charts."""
    stops = tuple(k for k, s in enumerate(answer.scorecard) if s.status in ("binds", "fails"))
    rows = []
    for k, s in enumerate(answer.scorecard):
        status, used = s.status.upper() if k in stops else s.status, "" if s.load is None else f"{s.load:.0%}"
        rows.append((f"{s.wall}", s.name, s.domain, status, used, "; ".join(filter(None, (s.value, s.note)))))
    return Table(("Wall", "Name", "Domain", "Status", "Used", "Found"), tuple(rows), right=(0, 4), marked=stops)


def _time(report: Report) -> Iterator[Block]:
    answer = report.answer
    yield from _charts(report, "time", "roofline")
    points = []
    for point in answer.roofline:
        roof = min(point["peak_flops"], point["intensity"] * point["bandwidth"])
        reached = (amount(point["achieved"], "FLOP/s"), f"{point['achieved'] / roof:.1%}")
        chip = f"{point['chip']}, {point['precision']}"
        points.append((point["label"], chip, f"{point['intensity']:,.4g} FLOP/B", *reached))
    if points:
        yield Table(("Work", "Chip", "Intensity", "Reached", "Of its roof"), tuple(points), right=(2, 3, 4))
    total = sum(part.value for part in answer.time_parts)
    if total > 0:
        parts = tuple(
            (part.label, format_value(readable(part.value, "s")), f"{part.value / total:.1%}", f"{part.wall or ''}")
            for part in answer.time_parts
        )
        yield Table((f"Part of {WHOLES[answer.task]}", "Time", "Share", "Wall"), parts, right=(1, 2, 3))


def _percentiles(report: Report) -> Iterator[Block]:
    found = report.answer.percentiles
    if not found:
        return
    yield from _charts(report, "percentiles", "traffic")
    rows = tuple((percentile_label(kind), *percentile_texts(kind, held)) for kind, held in found.items())
    levels = levels_of(next(iter(found.values())))
    yield Table(("Time", *levels), rows, right=tuple(range(1, 1 + len(levels))))
    yield Text("± is the sampling error of 90 %; the model's own error is the interval in the table of numbers.")


def _memory(report: Report) -> Iterator[Block]:
    bar = report.answer.memory
    if bar is None:
        return
    yield from _charts(report, "memory")
    rows = [(part.label, bytes_text(part.value), f"{part.value / bar.capacity:.1%}") for part in bar.parts]
    rows.append(("all", report.answer.metric("memory").text, f"{bar.used / bar.capacity:.1%}"))
    rows.append(("capacity", bytes_text(bar.capacity), "100.0%"))
    yield Table(("Memory of one accelerator", "Size", "Of the capacity"), tuple(rows), right=(1, 2))


def _pipeline(report: Report) -> Iterator[Block]:
    if "pipeline" not in report.figures or not report.answer.runs:
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
    if not answer.runs:
        yield Text("What does not fit has no cost.", quiet=True)
        return
    rows = _rows(answer, "macro")
    missing = [kinds()[name] for name in _MACRO[answer.task] if name not in answer.held]
    rows += [(kind.label_of(answer.task), NOT_KNOWN, "", f"{kind.wall}") for kind in missing]
    yield _metrics(answer.questions["macro"], rows)
    reasons = [line for line in answer.verdict if NOT_KNOWN in line]
    assumed = [(name.replace("_", " ").capitalize(), text) for name, text in answer.assumptions.items()]
    reasons += [f"{name} is {text}." for name, text in assumed if text.startswith("unknown")]
    if answer.task == "inference":
        reasons.append("One pass has no duration and no fleet, so there is no cost of owning and no carbon to tell.")
    if reasons:
        yield Text(" ".join(reasons), quiet=True)
    yield from _charts(report, "cost", "carbon")


def _sensitivity(report: Report) -> Iterator[Block]:
    answer = report.answer
    if not answer.sensitivities:
        return
    yield from _charts(report, "sensitivity")
    rows = tuple((HARDWARE[name], *(_shift(side) for side in sides)) for name, sides in answer.sensitivities.items())
    main = answer.metric(answer.main)
    yield Table((f"{main.label} ({main.text}) with", "10 % less", "10 % more"), rows, right=(1, 2))


def _shift(side: float | None) -> str:
    if side is None:
        return "does not fit"
    return f"{side:+.1%}" if abs(side) >= 0.0005 else "no change"


def _designs(report: Report) -> Iterator[Block]:
    designs = report.designs
    if designs is None:
        yield Text("This plan does not fit, or too few designs around it can be compared.", quiet=True)
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
