"""Commands on plans: ``eval``, ``train``, ``serve``, ``rl``, ``plan``; ``report``, ``audit``, ``compare``, ``sensitivity``, ``explain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option

from mlsysim.cli.options import AsJson, Output, Target, chosen_form, is_plan_file
from mlsysim.cli.output import (
    Line,
    end,
    print_answer,
    print_json,
    print_result,
    print_table,
    print_text,
    sentences,
)
from mlsysim.cli.plan_options import as_an_option, changed, is_hardware, load, named_plan, plan_of, settings_of
from mlsysim.cli.terminal import busy
from mlsysim.errors import InputError, either

if TYPE_CHECKING:
    from mlsysim.plans.answer import Answer
    from mlsysim.plans.plan import Plan

Model = Annotated[str, Argument(metavar="MODEL", help="a model of the zoo, or a path to a model file")]
Fleet = Annotated[str | None, Argument(metavar="HARDWARE", help="a chip or fleet, as --on")]


def where(model: str, hardware: str | None, on: str | None) -> tuple[str, str | None]:
    """The model, and the hardware after it, in one word with it (MODEL@FLEET), or that of --on."""
    if hardware is None and "@" in model and not is_plan_file(model):
        model, _, hardware = model.partition("@")
    if hardware is None or on is None:
        return model, hardware if on is None else on
    from mlsysim.cli.usage import beside

    raise InputError(beside(on, hardware), field="on")


def _asked(context: Context, task: str, model: str, hardware: str | None, on: str | None) -> Plan:
    """The plan of a model on hardware; or a plan file of the task, with what the options change."""
    if hardware is None and on is None and is_plan_file(model):
        found = changed(context, load(model))
        if found.kind != task:
            raise InputError(
                f"{model[-60:]!r} is a plan of {found.kind}, not of {task}: mlsysim eval takes any.", field="task"
            )
        return found
    return _placed(context, model, hardware, on, task=task)


def _placed(context: Context, model: str, hardware: str | None, on: str | None, **more: Any) -> Plan:
    model, found = where(model, hardware, on)
    if found is None:
        usual = "8xH100" if context.info_name == "serve" else "512xH100"
        raise InputError(f"On which hardware? Give --on, such as --on {usual}.", field="on")
    from mlsysim.models.registry import Models

    if not Models.has(model) and Models.has(found) and is_hardware(model):
        words = f"The model comes first: mlsysim {context.info_name} {found[:60]} {model[:60]}."
        raise InputError(words, field="model")
    return plan_of(context, model=model, on=found, **more)


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
    mlsysim eval scenario:llama3-70b-512-h100
    mlsysim eval scenario:llama3-70b-512-h100 --tp 4 --zero 3
    """
    form = chosen_form(context, output, as_json)
    if is_plan_file(target) and hardware is None:
        plan = changed(context, load(target))
    elif hardware is not None or "@" in target:
        plan = _placed(context, target, hardware, None)
    elif {"on", "hardware_name"} & set(settings_of(context)):
        plan = plan_of(context, model=target)
    else:
        from mlsysim.plans.files import ENDINGS

        # An ending of letters is that of a file; one with a number is a part of a name, such as llama3.1-8b.
        ending = Path(target).suffix.lower()
        file = not target.strip("./") or (ending[1:].isalpha() and ending not in ENDINGS)
        if is_hardware(target):
            raise InputError(f"eval takes a model first, as in `mlsysim eval Llama3_8B {target[:60]}`.", field="model")
        then = (
            f"{target[:60]!r} is no plan file, which ends in {either(ENDINGS)}, and no model"
            if file
            else f"give a chip after {target[:60]!r}, such as H100"
        )
        raise InputError(f"eval takes a model and a chip, or a plan file; {then}.", field="hardware")
    _finish(plan, form)


def train(
    context: Context,
    model: Model,
    hardware: Fleet = None,
    on: Annotated[str | None, Option(help="the fleet: 512xH100, 64xDGX_H100@NDR, 8xB200 + 8xH100, Meta_16K")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Train a model on a fleet: fits, time, cost, carbon, what binds and what to change.

    mlsysim train Llama3_70B --on 512xH100 --tokens 15T --region Quebec
    mlsysim train Llama3_8B --on 8xH100 --layout tp=2,zero=1 -b 256 -s 8192
    mlsysim train Llama3_8B --on 8xH100 --tp 2 --zero 1 --micro-batch 4
    """
    form = chosen_form(context, output, as_json)
    _finish(_asked(context, "training", model, hardware, on), form)


def serve(
    context: Context,
    model: Model,
    hardware: Fleet = None,
    on: Annotated[str | None, Option(help="the fleet, such as 8xH200")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Serve a language model: time to first token, time per token, throughput, cost of a million tokens.

    mlsysim serve Llama3_70B --on 8xH200 --isl 2000 --osl 300 --slo ttft=500ms,tpot=30ms -p fp8
    mlsysim serve Llama3_8B H100 -s 2048 -b 16
    mlsysim serve Llama3_70B --on 8xH200 --tp 4 --replicas 2 --kv-precision fp8
    """
    form = chosen_form(context, output, as_json)
    _finish(_asked(context, "serving", model, hardware, on), form)


def rl(
    context: Context,
    model: Model,
    hardware: Fleet = None,
    on: Annotated[str | None, Option(help="the fleet: 64xH100, 8xDGX_H100@NDR")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """A step of post-training: rollout and its long tail, training, weight transfer, the best split, cost of a thousand steps.

    mlsysim rl Llama3_8B --on 64xH100 --algorithm grpo --prompts 512 --samples 16 --prompt-len 1024 --response 2000
    mlsysim rl Qwen3_32B --on 64xH100 --prompts 64 --samples 32 --response 3200 --max-response 4k --split auto
    """
    form = chosen_form(context, output, as_json)
    _finish(_asked(context, "rl", model, hardware, on), form)


def least(
    context: Context,
    model: Model,
    hardware: Annotated[str | None, Argument(help="chips to compare, as --on")] = None,
    deadline: Annotated[str | None, Option(help="deadline of a training run, such as 14d")] = None,
    chips: Annotated[str | None, Option("--on", help="chips to compare, such as H100,B200")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The smallest fleet of each chip that trains a model by a deadline, or that answers requests within limits.

    mlsysim plan Llama3_70B --deadline 14d --budget 5MUSD
    mlsysim plan Llama3_8B --deadline 3d --tokens 1T --on H100,B200 --region Sweden
    mlsysim plan Llama3_8B --qps 50 --isl 1000 --osl 200 --slo ttft_p99=500ms,tpot=30ms --on H100,L40S
    mlsysim plan Llama3_70B --users 500 --slo tpot=50ms --on H100
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

    mlsysim report scenario:llama3-70b-512-h100 -o report.html
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


def audit(
    context: Context,
    scenario: Annotated[
        str | None,
        Argument(
            metavar="FILE|MODEL@FLEET", help="a plan file, or such as Llama3_8B@8xH100; Llama-70B on 512 H100 without"
        ),
    ] = None,
    workload: Annotated[
        str | None, Option("-w", "--workload", help="a model, on the chip of this machine, instead of a scenario")
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """A plan through all six domains of walls, first order beside calibrated.

    mlsysim audit
    mlsysim audit scenario:llama3-405b-16k-h100
    mlsysim audit Llama3_8B@8xH100 --task training
    mlsysim audit -w Llama3_8B
    """
    from mlsysim.cli.doctor import chip_here
    from mlsysim.cli.last import remember
    from mlsysim.plans.audit import AUDITED
    from mlsysim.plans.audit import audit as audited

    form = chosen_form(context, output, as_json)
    if scenario is not None and workload is not None:
        raise InputError("audit takes a scenario or -w with a model, one of them.", field="workload")
    if workload is not None:
        wanted = plan_of(context, task="inference", model=workload, on=chip_here())
    else:
        wanted = changed(context, AUDITED) if scenario is None else named_plan(context, scenario)
    with busy("evaluating ..."):
        found = audited(wanted)
    remember(wanted)
    if form == "text":
        headers = ["Domain", "Wall", "First order", "Calibrated", ""]
        rows = [[r.domain, f"{r.wall} {r.name}", r.first_order, r.calibrated, r.status] for r in found.rows]
    else:
        headers = ["Domain", "Solver", "Metric", "First order", "Calibrated", "Wall", "Status"]
        rows = [
            [r.domain, r.resolver, r.metric, r.first_order, r.calibrated, f"{r.wall} {r.name}", r.status]
            for r in found.rows
        ]
    words: list[Line] = [(found.answer.subject, "bold"), *sentences(found.answer), ""]
    notes = [(note, "dim") for note in found.notes]
    print_result(form, found.to_dict, headers, rows, before=words, after=notes)
    end(found.answer.exit_code)


def compare(
    context: Context,
    first: Annotated[str, Argument(metavar="A", help="a plan file, or MODEL@FLEET such as Llama3_70B@512xH100")],
    second: Annotated[str, Argument(metavar="B")],
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Two plans side by side: what changes, by what factor, and why.

    mlsysim compare Llama3_70B@512xH100 Llama3_70B@512xB200 --task training
    mlsysim compare Llama3_8B@H100 Llama3_8B@MI300X --task serving
    """
    from mlsysim.plans.compare import compare_plans

    form = chosen_form(context, output, as_json)
    with busy("evaluating ..."):
        found = compare_plans(*(named_plan(context, text) for text in (first, second)))
    answers = [found.first, found.second]
    words: list[Line] = [(line, "bold") for line in found.sentences]
    words += [f"{x}: {a.subject}. {a.in_words(as_an_option).headline}" for x, a in zip("AB", answers, strict=True)]
    names = ["A", "B"] if form == "text" else [answer.subject for answer in answers]
    if form == "csv":
        print_table("csv", ["metric", "label", "unit", *names, "B / A"], found.bare())
        return end(max((answer.exit_code for answer in answers), key=(0, 3, 2).index))
    rows = [[row.label, row.first, row.second, row.factor_text] for row in found.rows]
    headers = ["", *names, "B / A"]
    print_result(form, found.to_dict, headers, rows, right=(1, 2, 3), before=[*words, ""])
    # What does not fit is worse than a limit that is missed.
    end(max((answer.exit_code for answer in answers), key=(0, 3, 2).index))


def sensitivity(context: Context, target: Target, output: Output = None, as_json: AsJson = False) -> None:
    """How much each figure of the hardware is worth: 10 % less and 10 % more of it.

    mlsysim sensitivity Llama3_70B@512xH100 --task training
    mlsysim sensitivity scenario:chatbot-llama70b-h200
    """
    from mlsysim.cli.last import answered
    from mlsysim.plans.sensitivities import HARDWARE

    form = chosen_form(context, output, as_json)
    answer = answered(named_plan(context, target), change=False)
    main = answer.metric(answer.main)
    document = {
        "main": answer.main,
        "value": main.to_dict(),
        "sensitivities": {k: list(v) for k, v in answer.sensitivities.items()},
        "binding": answer.binding.model_dump(),
    }
    rows = [[HARDWARE[name], *(_side(each) for each in sides)] for name, sides in answer.sensitivities.items()]
    words: list[Line] = [
        (f"{answer.subject}: {main.label.lower()} is {main.text}", "bold"),
        answer.binding.sentence,
        "",
    ]
    print_result(form, document, ["figure of the hardware", "10 % less", "10 % more"], rows, right=(1, 2), before=words)
    end(answer.exit_code)


def _side(change: float | None) -> str:
    """A change of the main metric; what a reader cannot tell from none is none."""
    return "does not fit" if change is None else f"{change:+.1%}" if abs(change) >= 5e-4 else "0%"


def explain(
    context: Context,
    metric: Annotated[str | None, Argument(help="a metric of the last answer (default: all)")] = None,
    scenario: Annotated[
        str | None, Option("--of", help="a plan file, or such as Llama3_70B@512xH100, instead of the last answer")
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Where a number of the last answer comes from: equations with values, assumptions, sources.

    mlsysim explain mfu
    mlsysim explain tco --of scenario:llama3-70b-512-h100
    mlsysim explain mfu --of Llama3_70B@512xH100 --task training
    """
    from mlsysim.cli.last import recall
    from mlsysim.plans.evaluate import evaluate
    from mlsysim.plans.likely import with_task

    form = chosen_form(context, output, as_json)
    plan = changed(context, recall()) if scenario is None else with_task(named_plan(context, scenario), metric)
    answer = evaluate(plan, change=False)
    found = answer.explain(metric)
    if form == "json":
        print_json(answer.explanation(metric))
    elif form == "csv":
        rows = [[e.gives, e.text, "; ".join(f"{k} = {v}" for k, v in e.inputs.items()), e.value] for e in found]
        print_table("csv", ["gives", "equation", "inputs", "value"], rows)
    else:
        for line in (answer.subject, *found.lines()):
            print_text(line)
