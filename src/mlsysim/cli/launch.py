"""``export`` and ``review``: launch files from plans and plans from launch files. Nothing of them is executed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlsysim.cli.options import FORMS, AsJson, Output, chosen_form, is_plan_file
from mlsysim.cli.output import print_json, print_table, print_text
from mlsysim.cli.plan_options import named_plan, settings_of
from mlsysim.errors import InputError

if TYPE_CHECKING:
    from mlsysim.launch.reading import Reading
    from mlsysim.launch.review import Review

Model = Annotated[str | None, typer.Option("--model", help="the model, where the file does not name one of the zoo")]
Target = Annotated[str | None, typer.Option("--target", help="megatron, vllm ...; found from the text where left out")]


def export(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="megatron, torchtitan, deepspeed, fsdp, vllm, sglang, trtllm, kubernetes, slurm"
        ),
    ],
    plan: Annotated[
        str, typer.Argument(metavar="PLAN|MODEL@FLEET", help="a plan file, or such as Llama3_70B@512xH100")
    ],
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="file to write; or text or json", show_default=False)
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="training or serving, for MODEL@FLEET; the target's where left out")
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(help="what runs inside slurm or kubernetes: megatron, torchtitan, vllm, sglang, trtllm"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the launch file of a plan, each value with its reason. It is written, never run.

    mlsysim export megatron Llama3_70B@512xH100
    mlsysim export vllm Llama3_70B@8xH200 -p fp8 --isl 2000 --osl 300 -o serve.sh
    mlsysim export slurm examples/scenarios/llama3-70b-512-h100.toml -o train.sbatch
    mlsysim export kubernetes Llama3_70B@8xH200 --task serving --command sglang
    """
    from mlsysim.launch.targets import target_named, written
    from mlsysim.plans.evaluate import evaluate_plainly

    earlier = (context.find_root().obj or {}).get("output")
    name = target_named(target)
    form = "json" if as_json or "json" in (output, earlier) else "text"
    wanted = named_plan(context, plan, _task(task, name, command, is_plan_file(plan)))
    answer = evaluate_plainly(wanted)
    text = written(name, answer, command=command)
    if output is not None and output not in FORMS:
        _save(output, text)
        if form == "text":
            print_text(f"{output} has {len(text.splitlines())} lines for {name}. {answer.headline}")
    if form == "json":
        print_json({"target": name, "feasible": answer.feasible, "headline": answer.headline, "text": text})
    elif output is None or output in FORMS:
        typer.echo(text, nl=False)
    if not answer.feasible:
        raise typer.Exit(2)


def _task(task: str | None, target: str, command: str | None, in_file: bool) -> str | None:
    if task is not None:
        if task not in ("training", "serving"):
            raise InputError(f"--task is training or serving, got {task[:40]!r}.", field="task")
        return task
    from mlsysim.launch.targets import SERVES, TRAINS

    if target in TRAINS or command in TRAINS:
        return "training"
    if target in SERVES or command in SERVES:
        return "serving"
    if not in_file:
        raise InputError("Say --task training or --task serving, as both can run there.", field="task")
    return None


def _save(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{path[:200]!r} cannot be written: {(error.strerror or str(error)).lower()}.", field="output"
        ) from None


def review(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="FILE", help="a launch command, script or configuration")],
    on: Annotated[
        str | None, typer.Option("--on", help="the fleet, such as 64xH100, where the file does not name it")
    ] = None,
    model: Model = None,
    target: Target = None,
    write: Annotated[
        str | None, typer.Option("--write", help="file for the launch file with the best settings")
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """What launch flags cost beside the best settings for the same fleet, and what to change. Exit code 2 where they do not fit.

    mlsysim review train.sh --on 64xH100
    mlsysim review serve.sh --on 8xH200 --isl 2000 --osl 300
    mlsysim review ds_config.json --on 64xH100 --model Llama3_8B --seq-len 4096 --write better.json
    """
    from mlsysim.cli.last import remember
    from mlsysim.launch.review import review as reviewed
    from mlsysim.launch.targets import read_launch_file
    from mlsysim.plans.plan import Plan

    form = chosen_form(context, output, as_json)
    reading = read_launch_file(path, target, on=on, model=model)
    parts = Plan.in_parts({"task": reading.document.get("task"), **settings_of(context)})
    given: dict[str, Any] = {part: fields for part, fields in parts.items() if isinstance(fields, dict)}
    reading = reading.placed(**given)
    found = reviewed(reading)
    remember(found.answer.plan)
    if write is not None:
        _save(write, found.corrected())
    _print_review(found, form)
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _print_review(found: Review, form: str) -> None:
    if form == "json":
        print_json(found.to_dict())
        return
    headers = ["flag", "now", "better", "alone", "why"]
    rows = [[c.flag, c.now, c.better, c.effect, c.reason] for c in found.changes]
    narrow = [[c.flag, c.now, c.better, c.effect, c.reason] for c in found.formats]
    if form == "csv":
        kinds = [["setting", *row] for row in rows] + [["format", *row] for row in narrow]
        print_table("csv", ["kind", *headers], kinds)
        return
    print_text(found.answer.subject, "bold")
    print_text(found.headline, "bold green" if found.answer.feasible and (found.loss or 0) < 0.01 else "bold red")
    for problem in found.problems:
        print_text(problem, "red")
    if found.answer.feasible:
        print_text(found.answer.binding.sentence)
    if rows:
        print_table(form, headers, rows, right=(3,), title="What to change")
    if narrow:
        print_table(form, headers, narrow, right=(3,), title="Narrower numbers, which change what is computed")
    for warning in found.reading.warnings:
        print_text(warning, "yellow")
    if found.reading.unread:
        print_text("Not read: " + "; ".join(found.reading.unread), "yellow")
    if found.reading.details:
        print_text("Kept, without a part in the plan: " + ", ".join(found.reading.details), "dim")


def import_launch(path: str, form: str, on: str | None = None) -> bool:
    """Print what a launch file says; False where the file is none."""
    from mlsysim.importers.limits import read_text
    from mlsysim.launch.shell import LARGEST
    from mlsysim.launch.targets import is_launch_text, read_launch

    place = Path(path)
    try:
        if not place.is_file() or place.stat().st_size > LARGEST:
            return False
        text = read_text(place, LARGEST)
    except (InputError, OSError, ValueError):
        return False
    if not is_launch_text(text):
        return False
    _print_reading(read_launch(text, on=on), form)
    return True


def _print_reading(reading: Reading, form: str) -> None:
    if form == "json":
        print_json(reading.to_dict())
        return
    rows = [["target", reading.target + (f" with {reading.inner}" if reading.inner else "")]]
    for part, fields in reading.document.items():
        given = fields.items() if isinstance(fields, dict) else [("", fields)]
        rows += [[f"{part}.{name}".rstrip("."), str(value)] for name, value in given]
    if reading.accelerators is not None:
        rows.append(["accelerators", f"{reading.accelerators:,}"])
    rows += [["kept", f"{name} {'' if value is True else value}".rstrip()] for name, value in reading.details.items()]
    rows += [["not read", flag] for flag in reading.unread]
    rows += [["warning", sentence] for sentence in reading.warnings]
    if reading.missing:
        rows.append(["missing", reading.missing])
    print_table(form, ["", "launch file"], rows)
