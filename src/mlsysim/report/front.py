"""The first page, which is read in a minute: what was asked, whether it holds, four numbers, where the time goes, what to do, what would
change our mind. Everything on it is read off the answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlsysim.plans.answer import Answer
from mlsysim.plans.metrics import Metric, value_text
from mlsysim.report.blocks import Block, Cards, Chart, Points, Text, Verdict
from mlsysim.report.build import Report
from mlsysim.report.words import capital, small
from mlsysim.units.registry import quantity
from mlsysim.units.text import byte_unit, listed

NOT_KNOWN = "not known"
_FIDELITY = {
    "first order": "First order: bounds and ratios, not calibrated on measurements.",
    "calibrated": "Calibrated on measurements.",
}
_TIMES = {
    "training": ("run_time", "tokens", "latency"),
    "serving": ("ttft", "tokens_per_second"),
    "rl": ("latency",),
    "inference": ("latency",),
}
"""The time or the speed that a reader asks for first, by task."""
_NUMBERS = {1: "One thing", 2: "Two things", 3: "Three things"}


def asked(answer: Answer) -> str:
    """What was asked, and at which fidelity it is answered."""
    wanted = [check.asked for check in answer.checks if check.asked]
    question = f"{listed(wanted)}." if wanted else "does it fit, how fast is it, and what does it cost?"
    simulated = f"Simulated: {answer.assumed_value('simulated', '')}."
    return f"Asked: {question} {_FIDELITY.get(answer.fidelity, simulated)}"


def front_of(report: Report) -> Iterator[Block]:
    """The blocks of the first page."""
    answer = report.answer
    ruling = answer.ruling
    yield Verdict(ruling.state, ruling.claim, " ".join(ruling.because))
    if answer.runs:
        yield Cards((_time(answer), _money(answer), _energy(answer), _memory(answer)))
    # What does not run takes no time: then the first page shows where the memory goes.
    name = "whole" if answer.runs else "memory"
    if name in report.figures:
        yield Chart(name, report.figures[name])
    if answer.runs:
        yield Text(answer.binding.sentence, quiet=True)
    yield from _steps(answer)
    if answer.risks:
        yield Points("What would change our mind", tuple(("", risk) for risk in answer.risks))


def _with_interval(metric: Metric) -> str:
    return f"{metric.text} ({metric.interval})" if metric.interval else metric.text


def _time(answer: Answer) -> tuple[str, str, str]:
    held = answer.held
    limited = [check.metric.rpartition(".")[2] for check in answer.checks if check.metric.startswith("performance.")]
    own = [name for name in limited if answer.task == "serving" and name.startswith(("ttft", "e2e", "latency"))]
    metric = next(held[name] for name in (*own, *_TIMES[answer.task]) if name in held)
    remarks = [metric.interval] if metric.interval else []
    if metric.name == "tokens":
        remarks.append(f"in {answer.period}")
    if answer.task == "training" and metric.name != "latency":
        remarks.append(f"{small(held['latency'].label)} {held['latency'].text}")
    elif answer.task == "training":
        remarks.append(f"{held['tokens_per_second'].text} {small(held['tokens_per_second'].label)}")
    if answer.task == "serving":
        further = next((held[name] for name in limited if name.startswith(("tpot", "itl")) and name in held), None)
        further = further or held.get("tpot")
        remarks += [f"{small(further.label)} {_with_interval(further)}"] if further is not None else []
        remarks += [f"{held['requests_per_second'].text} requests a second{'' if answer.feasible else ' at most'}"]
    if answer.task == "inference":
        remarks.append(f"{held['throughput'].text} samples a second")
    if answer.task == "rl":
        remarks.append(f"{held['tokens_per_second'].text} tokens a second")
    return metric.label, metric.text, "; ".join(remarks)


def _money(answer: Answer) -> tuple[str, str, str]:
    paid = answer.paid
    if paid is None:
        if answer.task == "inference":
            return "Cost", "Not asked", "One pass has no duration and no fleet."
        why = next((line for line in answer.verdict if "price" in line and NOT_KNOWN in line), "")
        return "Cost", capital(NOT_KNOWN), why
    verb = "rent" if paid.name == "rent" else "own"
    parts = [part.label.lower() for part in answer.cost_parts if verb == "own"]
    covers = f": {listed(parts)}" if parts else ""
    remarks = [paid.interval, f"to {verb} for {answer.period}{covers}"]
    if "usd_per_mtoken" in answer.held:
        million = answer.held["usd_per_mtoken"]
        remarks.append(f"{million.text} {small(million.label).removeprefix('cost of ')}")
    return paid.label, paid.text, "; ".join(filter(None, remarks))


def _energy(answer: Answer) -> tuple[str, str, str]:
    held = answer.held
    metric = held.get("energy") or held.get("energy_per_sample")
    if metric is None:
        return "Energy and carbon", capital(NOT_KNOWN), "The chip states no power."
    remarks = [metric.interval] if metric.interval else []
    if "carbon_footprint" in held:
        running = held["carbon_footprint"].text
        if answer.carbon_in_all:
            made = value_text("carbon_footprint", quantity(answer.carbon_parts[-1].value, "kgCO2e"))
            remarks.append(
                f"carbon {running} of electricity and {made} of making the chips, {answer.carbon_in_all} in all"
            )
        else:
            remarks.append(f"carbon {running} of electricity; that of making the chips is {NOT_KNOWN}")
    elif answer.task != "inference":
        remarks.append(f"carbon {NOT_KNOWN}: no region is given")
    label = f"{metric.label} in {answer.period}" if metric.name == "energy" else metric.label
    return label, metric.text, "; ".join(remarks)


def _memory(answer: Answer) -> tuple[str, str, str]:
    bar, held = answer.memory, answer.held
    fits = "Fits" if answer.feasible or answer.overloaded else "Does not fit"
    if bar is None or "memory" not in held:
        return "Memory", fits, ""
    whose = f"of each {bar.of}" if bar.of else "of each accelerator" if answer.task != "inference" else ""
    needs = "" if bar.spare >= 0 else "needed "
    used = f"{held['memory'].text} {needs}of {held['memory_capacity'].text} {whose}".strip()
    unit = byte_unit(bar.capacity)

    def said(size: float) -> str:
        return value_text("memory", quantity(size, "byte").to(unit))

    left = f"{said(bar.spare)} to spare" if bar.spare >= 0 else f"{said(-bar.spare)} too much"
    kept = f"; {said(bar.reserve)} of what is {needs.strip() or 'used'} is a reserve" if bar.reserve else ""
    return "Memory", fits, f"{used}; {left}{kept}"


def _steps(answer: Answer) -> Iterator[Block]:
    """What to do first."""
    changes = answer.changes
    if changes:
        right = answer.passed
        title = f"{_NUMBERS[len(changes)]} to do first" if right else "What would put it right"
        rows = tuple((capital(change.words), change.effects) for change in changes)
        yield Points(title, rows, numbered=len(changes) > 1)
        return
    several = any(isinstance(value, dict) for value in answer.layout.values())
    helps = "helps by 2 % or more" if answer.feasible else "makes it fit"
    told = f"None of the settings, formats, networks and chips that were tried {helps}."
    told = "Changes are not looked for on several kinds of accelerator." if several else told
    yield Points("What to do first", (("", told),))
