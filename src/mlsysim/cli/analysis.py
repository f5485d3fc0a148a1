"""Commands that look at plans more closely: ``audit``, ``compare``, ``sensitivity``, ``explain``."""

from __future__ import annotations

from typing import Annotated

import typer

from mlsysim.cli.options import AsJson, Output, chosen_form
from mlsysim.cli.output import busy, print_json, print_sentences, print_table, print_text
from mlsysim.cli.plan_options import as_an_option, changed, load, named_plan, plan_of
from mlsysim.errors import InputError


def audit(
    context: typer.Context,
    scenario: Annotated[
        str | None, typer.Argument(metavar="SCENARIO", help="a plan file; Llama-70B on 512 H100 without one")
    ] = None,
    workload: Annotated[
        str | None, typer.Option("-w", "--workload", help="a model, on the chip of this machine, instead of a scenario")
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """A plan through all six domains of walls, first order beside calibrated.

    mlsysim audit
    mlsysim audit examples/scenarios/llama3-405b-16k-h100.toml
    mlsysim audit -w Llama3_8B
    """
    from mlsysim.cli.last import remember
    from mlsysim.plans.audit import AUDITED
    from mlsysim.plans.audit import audit as audited

    form = chosen_form(context, output, as_json)
    if scenario is not None and workload is not None:
        raise InputError("audit takes a scenario or -w with a model, one of them.", field="workload")
    if workload is not None:
        wanted = plan_of(context, task="inference", model=workload, on=_chip_here())
    else:
        wanted = changed(context, AUDITED if scenario is None else load(scenario))
    with busy("evaluating ..."):
        found = audited(wanted)
    remember(wanted)
    if form == "json":
        print_json(found.to_dict())
    elif form == "text":
        print_sentences(found.answer)
        rows = [[r.domain, f"{r.wall} {r.name}", r.first_order, r.calibrated, r.status] for r in found.rows]
        print_text("")
        print_table(form, ["Domain", "Wall", "First order", "Calibrated", ""], rows)
        for note in found.notes:
            print_text(note, "dim")
    else:
        rows = [
            [r.domain, r.resolver, r.metric, r.first_order, r.calibrated, f"{r.wall} {r.name}", r.status]
            for r in found.rows
        ]
        print_table(form, ["Domain", "Solver", "Metric", "First order", "Calibrated", "Wall", "Status"], rows)
    if found.answer.exit_code:
        raise typer.Exit(found.answer.exit_code)


def _chip_here() -> str:
    from mlsysim.cli.doctor import chip_here

    found = chip_here()
    if found is None:
        raise InputError(
            "No chip of the zoo was found on this machine (mlsysim doctor says what was); give a scenario instead.",
            field="workload",
        )
    return found


def compare(
    context: typer.Context,
    first: Annotated[str, typer.Argument(metavar="A", help="a plan file, or MODEL@FLEET such as Llama3_70B@512xH100")],
    second: Annotated[str, typer.Argument(metavar="B")],
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Two plans side by side: what changes, by what factor, and why.

    mlsysim compare Llama3_70B@512xH100 Llama3_70B@512xB200 --task training
    mlsysim compare Llama3_8B@H100 Llama3_8B@MI300X --task serving
    """
    from mlsysim.plans.compare import compare_answers
    from mlsysim.plans.evaluate import evaluate as answer_to

    form = chosen_form(context, output, as_json)
    with busy("evaluating ..."):
        answers = [answer_to(named_plan(context, text), change=False) for text in (first, second)]
    found = compare_answers(*answers)
    if form == "json":
        print_json(found.to_dict())
        return
    if form == "text":
        for line in found.sentences:
            print_text(line, "bold")
        for letter, answer in zip("AB", answers, strict=True):
            print_text(f"{letter}: {answer.subject}. {answer.in_words(as_an_option).headline}")
        print_text("")
    rows = [[row.label, row.first, row.second, row.factor_text] for row in found.rows]
    names = ["A", "B"] if form == "text" else [answer.subject for answer in answers]
    print_table(form, ["metric" if form == "csv" else "", *names, "B / A"], rows, right=(1, 2, 3))


def sensitivity(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="FILE|MODEL@FLEET", help="a plan file, or such as Llama3_70B@512xH100")
    ],
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """How much each figure of the hardware is worth: 10 % less and 10 % more of it.

    mlsysim sensitivity Llama3_70B@512xH100 --task training
    mlsysim sensitivity examples/scenarios/chatbot-llama70b-h200.toml
    """
    from mlsysim.cli.last import remember
    from mlsysim.plans.evaluate import evaluate as answer_to

    form = chosen_form(context, output, as_json)
    wanted = named_plan(context, target)
    with busy("evaluating ..."):
        answer = answer_to(wanted, change=False)
    remember(wanted)
    if form == "json":
        print_json(
            {
                "main": answer.main,
                "value": answer.metric(answer.main).to_dict(),
                "sensitivities": {k: list(v) for k, v in answer.sensitivities.items()},
                "binding": answer.binding.model_dump(),
            }
        )
        return
    rows = [
        [name.replace("_", " "), *("does not fit" if side is None else f"{side:+.1%}" for side in sides)]
        for name, sides in answer.sensitivities.items()
    ]
    if form == "text":
        print_text(
            f"{answer.subject}: {answer.metric(answer.main).label.lower()} is {answer.metric(answer.main).text}", "bold"
        )
        print_text(answer.binding.sentence)
        print_text("")
    print_table(form, ["figure of the hardware", "10 % less", "10 % more"], rows, right=(1, 2))


def explain(
    context: typer.Context,
    metric: Annotated[str | None, typer.Argument(help="a metric of the last answer; all without one")] = None,
    scenario: Annotated[str | None, typer.Option("--of", help="a plan file instead of the last answer")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Where a number of the last answer comes from: equations with values, assumptions, sources.

    mlsysim explain mfu
    mlsysim explain tco --of examples/scenarios/llama3-70b-512-h100.toml
    """
    from mlsysim.cli.last import recall
    from mlsysim.plans.evaluate import evaluate as answer_to

    form = chosen_form(context, output, as_json)
    answer = answer_to(changed(context, load(scenario) if scenario is not None else recall()), change=False)
    found = answer.equations if metric is None else answer.explain(metric)
    if form == "json":
        print_json(
            {
                "subject": answer.subject,
                "metric": None if metric is None else answer.metric(metric).to_dict(),
                "equations": [equation.model_dump() for equation in found],
                "assumptions": dict(answer.assumptions),
                "sources": answer.sources_of(found),
            }
        )
        return
    if form == "csv":
        print_table(
            "csv",
            ["gives", "equation", "inputs", "value"],
            [[e.gives, e.text, "; ".join(f"{k} = {v}" for k, v in e.inputs.items()), e.value] for e in found],
        )
        return
    if metric is not None:
        held = answer.metric(metric)
        print_text(f"{held.label}: {held.text}" + (f" ({held.interval_text})" if held.interval_text else ""), "bold")
    for equation in found:
        by = f" ({equation.resolver})" if equation.resolver else ""
        print_text(f"{equation.gives}{by}: {equation.text}")
        print_text("    " + ", ".join(f"{symbol} = {value}" for symbol, value in equation.inputs.items()))
        print_text(f"    = {equation.value}")
    print_text("Sources: " + "; ".join(f"{name}: {text}" for name, text in answer.sources_of(found).items()), "dim")
    print_text("Assumed: " + "; ".join(f"{name} = {text}" for name, text in answer.assumptions.items()), "dim")
