"""Commands that answer a plan: ``eval``, ``train``, ``serve``; ``plan``, the least fleet for a deadline; ``report``, an answer as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Context, Option

from mlsysim.cli.options import AsJson, Output, chosen_form, is_plan_file
from mlsysim.cli.output import busy, end, print_answer, print_json, print_result, print_text
from mlsysim.cli.plan_options import changed, load, named_plan, plan_of, settings_of
from mlsysim.errors import InputError

if TYPE_CHECKING:
    from mlsysim.plans.answer import Answer
    from mlsysim.plans.plan import Plan

Model = Annotated[str, Argument(metavar="MODEL", help="a model of the zoo, or a path to a model file")]


def _finish(plan: Plan, form: str) -> None:
    """Evaluate, remember, print, and end with the answer's exit code."""
    from mlsysim.cli.last import answered

    answer = answered(plan)
    print_answer(answer, form)
    end(answer.exit_code)


def evaluate(
    context: Context,
    target: Annotated[str, Argument(metavar="MODEL|FILE", help="a model of the zoo, a model file, or a plan file")],
    hardware: Annotated[str | None, Argument(help="a chip, such as H100")] = None,
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
    context: Context,
    model: Model,
    on: Annotated[str, Option("--on", help="the fleet: 512xH100, 64xDGX_H100@NDR, 8xB200 + 8xH100, Meta_16K")],
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
    context: Context,
    model: Model,
    hardware: Annotated[str | None, Argument(help="a chip or fleet, as --on")] = None,
    on: Annotated[str | None, Option("--on", help="the fleet, such as 8xH200")] = None,
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


def plan(
    context: Context,
    model: Model,
    deadline: Annotated[str, Option(help="such as 14d or '30 day'")],
    chips: Annotated[str | None, Option("--on", help="chips to compare, such as H100,B200")] = None,
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
    answer = None if best is None or best.answer is None else answer_to(best.answer.plan)
    if answer is None or best is None:
        verdict = (f"No fleet of {', '.join(names)} trains on {count_text(count)} tokens in time.", "bold red")
    else:
        words = f"{best.accelerators:,} x {best.chip} is the cheapest fleet that trains on {count_text(count)} tokens in time."
        verdict = (words, "bold green")
    candidates = [
        {
            "chip": c.chip,
            "accelerators": c.accelerators,
            "reason": c.reason or None,
            "answer": None if c.answer is None else c.answer.to_dict(),
        }
        for c in found
    ]
    document = {"tokens": count, "best": None if answer is None else answer.to_dict(), "candidates": candidates}
    rows = [[c.chip, "none" if c.answer is None else f"{c.accelerators:,}", *_columns(c.answer)] for c in found]
    headers = ["chip", "accelerators", "run", "cost", "MFU", "carbon"]
    reasons = [(f"{c.chip}: {c.reason}", "dim") for c in found if c.answer is None]
    print_result(form, document, headers, rows, right=(1, 2, 3, 4, 5), before=[verdict], after=reasons)
    if answer is None:
        end(2)
        return
    if form == "text":
        print_text("")
        print_answer(answer, form)
    remember(answer.plan)
    end(answer.exit_code)


def _columns(answer: Answer | None) -> list[str]:
    names = ("run_time", "tco", "mfu", "carbon_footprint")
    if answer is None:
        return [""] * len(names)
    held = {metric.name: metric.text for metric in answer.metrics}
    return [held.get(name, "not known") for name in names]


def report(
    context: Context,
    scenario: Annotated[
        str | None,
        Argument(
            metavar="FILE|MODEL@FLEET", help="a plan file, or such as Llama3_70B@512xH100; the audited run without"
        ),
    ] = None,
    output: Annotated[Path, Option("-o", "--output", help="file to write, .html or .md")] = Path("report.html"),
    as_json: AsJson = False,
) -> None:
    """Write a report: verdict, walls, charts, cost, sensitivities, assumptions with sources, equations.

    mlsysim report examples/scenarios/llama3-70b-512-h100.toml -o report.html
    mlsysim report Llama3_70B@512xH100 --task training -o report.md
    """
    from mlsysim.cli.last import remember
    from mlsysim.plans.audit import AUDITED
    from mlsysim.report.build import build_report
    from mlsysim.report.write import format_of, write_report

    form = format_of(output)
    plan = changed(context, AUDITED) if scenario is None else named_plan(context, scenario)
    made = build_report(plan)
    written = write_report(made, output)
    remember(plan)
    answer = made.answer
    if as_json:
        told = {name: getattr(answer, name) for name in ("subject", "headline", "feasible", "passed")}
        print_json({"file": str(written), "format": form, "bytes": written.stat().st_size, **told})
    else:
        print_text(answer.headline)
        print_text(f"Written to {written}.")
    end(answer.exit_code)
