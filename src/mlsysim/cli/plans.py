"""Commands that answer a plan: ``eval``, ``train``, ``serve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mlsysim.cli.options import AsJson, Output, chosen_form, is_plan_file
from mlsysim.cli.output import busy, print_answer
from mlsysim.cli.plan_options import changed, load, plan_of, settings_of
from mlsysim.errors import InputError

if TYPE_CHECKING:
    from mlsysim.plans.plan import Plan

Model = Annotated[str, typer.Argument(metavar="MODEL", help="a model of the zoo, or a path to a model file")]


def _finish(plan: Plan, form: str) -> None:
    """Evaluate, remember, print, and end with the answer's exit code."""
    from mlsysim.cli.last import remember
    from mlsysim.plans.evaluate import evaluate as answer_to

    with busy("evaluating ..."):
        answer = answer_to(plan)
    remember(plan)
    print_answer(answer, form)
    if answer.exit_code:
        raise typer.Exit(answer.exit_code)


def evaluate(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="MODEL|FILE", help="a model of the zoo, a model file, or a plan file")
    ],
    hardware: Annotated[str | None, typer.Argument(help="a chip, such as H100")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """One pass of a model on a chip, or a whole plan file.

    mlsysim eval ResNet50 A100
    mlsysim eval Llama3_8B H100 -b 8 -s 4096 -p fp8
    mlsysim eval examples/scenarios/llama3-70b-512-h100.toml
    mlsysim eval examples/scenarios/llama3-70b-512-h100.toml --tp 4 --zero 3
    """
    form = chosen_form(context, output, as_json)
    if hardware is not None:
        plan = plan_of(context, model=target, on=hardware)
    elif is_plan_file(target):
        plan = changed(context, load(target))
    elif {"on", "hardware_name"} & set(settings_of(context)):
        plan = plan_of(context, model=target)
    else:
        raise InputError(
            f"eval takes a model and a chip, or a plan file; give a chip after {target[:60]!r}, such as H100.",
            field="hardware",
        )
    _finish(plan, form)


def train(
    context: typer.Context,
    model: Model,
    on: Annotated[str, typer.Option("--on", help="the fleet: 512xH100, 64xDGX_H100@NDR, 8xB200 + 8xH100, Meta_16K")],
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Train a model on a fleet: fits, time, cost, carbon, what binds and what to change.

    mlsysim train Llama3_70B --on 512xH100 --tokens 15T --region Quebec
    mlsysim train Llama3_8B --on 8xH100 --layout tp=2,zero=1 -b 256 -s 8192
    mlsysim train Llama3_8B --on 8xH100 --tp 2 --zero 1 --micro-batch 4
    """
    form = chosen_form(context, output, as_json)
    _finish(plan_of(context, task="training", model=model, on=on), form)


def serve(
    context: typer.Context,
    model: Model,
    hardware: Annotated[str | None, typer.Argument(help="a chip or fleet, as --on")] = None,
    on: Annotated[str | None, typer.Option("--on", help="the fleet, such as 8xH200")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Serve a language model: time to first token, time per token, throughput, cost of a million tokens.

    mlsysim serve Llama3_70B --on 8xH200 --isl 2000 --osl 300 --slo ttft=500ms,tpot=30ms -p fp8
    mlsysim serve Llama3_8B H100 -s 2048 -b 16
    mlsysim serve Llama3_70B --on 8xH200 --tp 4 --replicas 2 --kv-precision fp8
    """
    form = chosen_form(context, output, as_json)
    if (hardware is None) == (on is None):
        raise InputError("serve takes a chip after the model or --on with a fleet, one of them.", field="on")
    _finish(plan_of(context, task="serving", model=model, on=on or hardware), form)
