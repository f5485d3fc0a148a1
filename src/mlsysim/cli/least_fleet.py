"""The command ``plan``: the least fleet for a deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mlsysim.cli.options import AsJson, Output, chosen_form
from mlsysim.cli.output import busy, print_answer, print_json, print_table, print_text
from mlsysim.cli.plan_options import plan_of
from mlsysim.errors import InputError

if TYPE_CHECKING:
    from mlsysim.plans.answer import Answer
    from mlsysim.plans.plan import Plan


def plan(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="a model of the zoo, or a path to a model file")],
    deadline: Annotated[str, typer.Option(help="such as 14d or '30 day'")],
    chips: Annotated[str | None, typer.Option("--on", help="chips to compare, such as H100,B200")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The least fleet that trains a model by a deadline, for each chip; on 20 tokens a parameter unless --tokens says more.

    mlsysim plan Llama3_70B --deadline 14d --budget 5MUSD
    mlsysim plan Llama3_8B --deadline 3d --tokens 1T --on H100,B200 --region Sweden
    """
    from mlsysim.cli.last import remember
    from mlsysim.plans.evaluate import evaluate as answer_to
    from mlsysim.plans.evaluate import evaluate_plainly
    from mlsysim.plans.least_fleet import CHIPS, least_fleet
    from mlsysim.plans.resolve import find_model
    from mlsysim.plans.sheet import count_text

    form = chosen_form(context, output, as_json)
    wanted = plan_of(context, task="training", model=model, on="8xH100", deadline=deadline)
    if wanted.workload.tokens is None:
        workload = find_model(model)
        if workload.parameters is None:
            raise InputError(f"{model} states no parameters; give --tokens.", field="tokens")
        wanted = wanted.with_settings({"tokens": 20 * float(workload.parameters.to("param").magnitude)})
    count = wanted.workload.tokens or 0.0
    names = [chip.strip() for chip in chips.split(",")] if chips else list(CHIPS)
    with busy("searching fleets ...") as saying:

        def tried(candidate: Plan) -> Answer:
            saying(f"trying {candidate.hardware.on} ...")
            return evaluate_plainly(candidate)

        found = least_fleet(wanted, names, tried)
    best = next((candidate for candidate in found if candidate.answer is not None), None)
    rows = [
        [c.chip, f"{c.accelerators:,}", *_columns(c.answer)]
        if c.answer is not None
        else [c.chip, "none", "", "", "", ""]
        for c in found
    ]
    answer = None if best is None or best.answer is None else answer_to(best.answer.plan)
    amount = count_text(count)
    if form == "json":
        print_json(
            {
                "tokens": count,
                "best": None if answer is None else answer.to_dict(),
                "candidates": [
                    {
                        "chip": c.chip,
                        "accelerators": c.accelerators,
                        "reason": c.reason or None,
                        "answer": None if c.answer is None else c.answer.to_dict(),
                    }
                    for c in found
                ],
            }
        )
    else:
        if form == "text" and answer is not None and best is not None:
            print_text(
                f"{best.accelerators:,} x {best.chip} is the cheapest fleet that trains on {amount} tokens in time.",
                "bold green",
            )
        elif form == "text":
            print_text(f"No fleet of {', '.join(names)} trains on {amount} tokens in time.", "bold red")
        print_table(form, ["chip", "accelerators", "run", "cost", "MFU", "carbon"], rows, right=(1, 2, 3, 4, 5))
        if form == "text":
            for candidate in found:
                if candidate.answer is None:
                    print_text(f"{candidate.chip}: {candidate.reason}", "dim")
        if form == "text" and answer is not None:
            print_text("")
            print_answer(answer, form)
    if answer is None:
        raise typer.Exit(2)
    remember(answer.plan)
    if answer.exit_code:
        raise typer.Exit(answer.exit_code)


def _columns(answer: Answer) -> list[str]:
    held = {metric.name: metric.text for metric in answer.metrics}
    return [held.get(name, "not known") for name in ("run_time", "tco", "mfu", "carbon_footprint")]
