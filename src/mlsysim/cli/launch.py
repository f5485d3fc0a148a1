"""``export`` and ``review``: launch files from plans and plans from launch files. Nothing of them is executed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option, echo

from mlsysim.cli.options import FORMS, AsJson, Output, chosen_form, is_plan_file
from mlsysim.cli.output import end, print_json, print_lines, print_result, print_table, print_text
from mlsysim.cli.plan_options import named_plan, settings_of
from mlsysim.errors import InputError
from mlsysim.zoo.writing import written

if TYPE_CHECKING:
    from mlsysim.launch.review import FlagChange, Review


def export(
    context: Context,
    target: Annotated[
        str,
        Argument(
            metavar="TARGET",
            help="megatron, torchtitan, deepspeed, fsdp, vllm, sglang, trtllm, verl, nemo_rl, kubernetes, slurm",
        ),
    ],
    plan: Annotated[str, Argument(metavar="PLAN|MODEL@FLEET", help="a plan file, or such as Llama3_70B@512xH100")],
    output: Annotated[
        str | None, Option("-o", "--output", help="file to write; or text or json", show_default=False)
    ] = None,
    task: Annotated[
        str | None, Option(help="training, serving or rl, for MODEL@FLEET; by default what the target is for")
    ] = None,
    command: Annotated[
        str | None,
        Option(help="what runs inside slurm or kubernetes: megatron, torchtitan, vllm, sglang, trtllm"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the launch file of a plan, with a reason for each value. Nothing is run.

    mlsysim export megatron Llama3_70B@512xH100
    mlsysim export vllm Llama3_70B@8xH200 -p fp8 --isl 2000 --osl 300 -o serve.sh
    mlsysim export slurm scenario:llama3-70b-512-h100 -o train.sbatch
    mlsysim export verl Qwen3_8B@16xH100 --prompts 128 --samples 16 --response 2000 --split auto
    mlsysim export kubernetes Llama3_70B@8xH200 --task serving --command sglang
    """
    from mlsysim.launch.targets import launched, target_named, written
    from mlsysim.plans.evaluate import evaluate_plainly

    earlier = (context.find_root().obj or {}).get("output")
    name, file = target_named(target), None if output in FORMS else output
    form = "json" if as_json or "json" in (output, earlier) else "text"
    wanted = named_plan(context, plan, _task(task, name, command, is_plan_file(plan)))
    answer = evaluate_plainly(launched(name, wanted, command))
    text = written(name, answer, command=command)
    if file is not None:
        _save(file, text)
    if form == "json":
        print_json({"target": name, "feasible": answer.feasible, "headline": answer.headline, "text": text})
    elif file is not None:
        print_text(f"{file} has {len(text.splitlines())} lines for {name}. {answer.headline}")
    else:
        echo(text, nl=False)
    end(answer.exit_code)


def _task(task: str | None, target: str, command: str | None, in_file: bool) -> str | None:
    if task is not None:
        if task not in ("training", "serving", "rl"):
            raise InputError(f"--task is training, serving or rl, got {task[:40]!r}.", field="task")
        return task
    from mlsysim.launch.targets import task_of

    found = task_of(target, command)
    if found is None and not in_file:
        raise InputError("Say --task training or --task serving, as both can run there.", field="task")
    return found


def _save(path: str, text: str) -> None:
    with written(path, field="output"):
        Path(path).write_text(text, encoding="utf-8")


def review(
    context: Context,
    path: Annotated[str, Argument(metavar="FILE", help="a launch command, script or configuration")],
    on: Annotated[str | None, Option(help="the fleet, such as 64xH100, if the file does not name it")] = None,
    model: Annotated[str | None, Option(help="the model, if the file does not name one of the zoo")] = None,
    target: Annotated[str | None, Option(help="megatron, vllm ... (default: recognised from the text)")] = None,
    write: Annotated[str | None, Option(help="file for the launch file with the best settings")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """What your launch flags cost compared with the best settings for the same fleet, and what to change. Exit code 2 if they do not fit.

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
    found = reviewed(reading.placed(**given))
    remember(found.answer.plan)
    if write is not None:
        _save(write, found.corrected())
    _print_review(found, form)
    end(found.exit_code)


def _print_review(found: Review, form: str) -> None:
    if form == "json":
        print_json(found.to_dict())
        return
    headers = ["flag", "now", "better", "alone", "saves", "why"]
    rows, narrow = ([row for c in changes for row in _rows(c)] for changes in (found.changes, found.formats))
    if form == "csv":
        kinds = [["setting", *row] for row in rows] + [["format", *row] for row in narrow]
        print_table("csv", ["kind", *headers], kinds)
        return
    if form == "text":
        print_lines((text, _STYLES.get(kind)) for text, kind in found.sentences())
        return
    print_lines((text, None) for text, kind in found.sentences() if kind in _FIRST)
    for title, part in (
        ("What to change", rows),
        ("Narrower number formats, which change results", narrow),
    ):
        if part:
            print_table(form, headers, part, right=(3, 4), title=title)
    print_lines((text, None) for text, kind in found.sentences() if kind in ("warning", "note"))


_FIRST = ("subject", "stop", "well", "headline", "problem", "binding")
_STYLES = {
    **dict.fromkeys(("subject", "title", "flag"), "bold"),
    **dict.fromkeys(("stop", "headline"), "bold red"),
    **{"well": "bold green", "problem": "red", "warning": "yellow", "note": "dim"},
}


def _rows(change: FlagChange) -> list[list[str]]:
    """A row for each flag of a change, the first with what it does."""
    does = [change.effect, change.saves.text if change.saves else "", change.reason]
    return [[e.flag, e.now, e.better, *(does if i == 0 else [""] * 3)] for i, e in enumerate(change.edits)]


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
    reading = read_launch(text, on=on)
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
    print_result(form, reading.to_dict, ["", "launch file"], rows)
    return True
