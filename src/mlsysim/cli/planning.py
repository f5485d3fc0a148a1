"""The command ``plan``: the least fleet that trains a model in time, or that serves a traffic within its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Context, Option

from mlsysim.cli.options import AsJson, Output, chosen_form
from mlsysim.cli.output import busy, end, print_answer, print_result, print_text
from mlsysim.cli.plan_options import as_an_option, plan_of, settings_of
from mlsysim.cli.plans import Model, where

if TYPE_CHECKING:
    from mlsysim.plans.answer import Answer


def plan(
    context: Context,
    model: Model,
    hardware: Annotated[str | None, Argument(help="chips to compare, as --on")] = None,
    deadline: Annotated[str | None, Option(help="of a training run, such as 14d or '30 day'")] = None,
    chips: Annotated[str | None, Option("--on", help="chips to compare, such as H100,B200")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The least fleet for each chip: that trains a model by a deadline (on 20 tokens a parameter unless --tokens says more), or that
    answers requests within limits.

    mlsysim plan Llama3_70B --deadline 14d --budget 5MUSD
    mlsysim plan Llama3_8B --deadline 3d --tokens 1T --on H100,B200 --region Sweden
    mlsysim plan Llama3_8B --qps 50 --isl 1000 --osl 200 --slo ttft_p99=500ms,tpot=30ms --on H100,L40S
    mlsysim plan Llama3_70B --trace azure-conversation --slo ttft_p99=2s --on H100,H200 -p fp8
    """
    from mlsysim.plans.planned import planned, task_for

    form = chosen_form(context, output, as_json)
    model, listed = where(model, hardware, chips)
    names = [chip.strip() for chip in (listed or "").split(",") if chip.strip()]
    task = task_for(settings_of(context, deadline=deadline))
    wanted = plan_of(context, task=task, model=model, on=names[0] if names else "H100", deadline=deadline)
    with busy("searching fleets ...") as saying:
        found = planned(wanted, names, saying).in_words(as_an_option)
    before = [(found.sentence, "bold green" if found.good else "bold red")]
    right = [place for place, name in enumerate(found.headers) if name not in ("chip", "replicas")]
    rows, after = [list(row) for row in found.rows], [(note, "dim") for note in found.notes]
    print_result(form, found.to_dict(), list(found.headers), rows, right=right, before=before, after=after)
    _end_with(found.best, form)


def _end_with(answer: Answer | None, form: str) -> None:
    from mlsysim.cli.last import remember

    if answer is None:
        end(2)
        return
    if form == "text":
        print_text("")
        print_answer(answer, form)
    remember(answer.plan)
    end(answer.exit_code)
