"""``zoo``, ``walls``, ``schema``, ``import``: what there is, what it means, and what you bring."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option

from mlsysim.cli.options import AsJson, Output, chosen_form
from mlsysim.cli.output import Line, end, print_json, print_lines, print_result, print_table, print_text
from mlsysim.errors import InputError, did_you_mean, nearest


def zoo(
    context: Context,
    kind: Annotated[
        str | None, Argument(help="hardware, models, systems, grids, check; the name of an entry, or a part of several")
    ] = None,
    name: Annotated[str | None, Argument(help="one entry, with its sources")] = None,
    sort: Annotated[str | None, Option(help="field to sort by, such as memory.bandwidth")] = None,
    filter_: Annotated[
        list[str] | None, Option("--filter", help="such as vendor=NVIDIA or memory.capacity>=80GB; repeatable")
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """What the zoo has, or one entry with its sources; ``zoo check`` checks your own entries.

    mlsysim zoo hardware --sort memory.bandwidth --filter vendor=NVIDIA
    mlsysim zoo Llama3_70B
    mlsysim zoo llama
    mlsysim zoo check
    """
    form = chosen_form(context, output, as_json)
    from mlsysim.plans.catalogue import KINDS, alike, counts, kind_of_entry, registries

    kind = _ALSO.get(kind or "", kind)
    if kind is not None and name is None and kind not in (*KINDS, "check"):
        if several := alike(kind):
            return _listing(several, sort, filter_ or [], form, kind)
        kind, name = kind_of_entry(kind), kind
    if kind == "check":
        if name is not None:
            raise InputError(f"`mlsysim zoo check` checks your own zoo, and takes no {name[:60]!r}.", field="name")
        _check(form)
    elif kind is not None:
        if name is not None and kind not in KINDS:
            words = "; `mlsysim compare MODEL@A MODEL@B` has two chips side by side"
            raise InputError(f"One entry at a time: `mlsysim zoo {kind[:60]}`{words}.", field="name")
        zoos = registries(kind, "check")
        _listing(zoos, sort, filter_ or [], form) if name is None else _entry(zoos, kind, name, form)
    elif sort or filter_:
        words = f"--filter '{filter_[0][:60]}'" if filter_ else f"--sort {(sort or '')[:60]}"
        raise InputError(f"Entries of which part? Write `mlsysim zoo hardware {words}`.", field="kind")
    else:
        parts = {part: ", ".join(f"{count} {word}" for word, count in held.items()) for part, held in counts().items()}
        rows = [[part, text, f"mlsysim zoo {part}"] for part, text in parts.items()]
        print_result(form, counts, ["zoo", "entries", "to see them"], rows)


_ALSO = {
    **dict.fromkeys(("chips", "chip", "gpus", "gpu", "accelerators"), "hardware"),
    **dict.fromkeys(("regions", "region", "grid", "places", "carbon", "electricity"), "grids"),
    **dict.fromkeys(("clusters", "nodes", "fabrics", "fleets", "system"), "systems"),
    "model": "models",
}
"""Other words for the parts of the zoo."""
_WORDS = (
    "key", "name", "precision", "source", "accelerator", "fabric", "node", "topology", "vendor", "type", "kind",
    "architecture",
)  # fmt: skip
_LONGEST = 30
_LESS = ("source", "name", "year", "precision")
"""Columns that a narrow terminal misses least, in this order."""


def _listing(zoos: list[Any], sort: str | None, filters: list[str], form: str, like: str = "") -> None:
    from mlsysim.plans.catalogue import as_documents, listing

    listed = listing(zoos, filters, sort, "--filter", like)
    if form == "json":
        print_json(as_documents(listed))
        return
    for word, headers, rows in listed:
        title = f"{word}: {len(rows)}" if form == "text" else None
        numbers = [i for i, header in enumerate(headers) if header not in _WORDS]
        order = [headers.index(header) for header in _LESS if header in headers]
        order += [i for i in range(len(headers) - 1, 0, -1) if i not in order]
        if form == "text":
            rows = [[cell if len(cell) <= _LONGEST else cell[: _LONGEST - 1] + "…" for cell in row] for row in rows]
        print_table(form, headers, rows, numbers, title, order)


def _entry(zoos: list[Any], kind: str, name: str, form: str) -> None:
    from mlsysim.plans.catalogue import entry_named

    _, found = entry_named(kind, zoos, name)
    if form == "json":
        print_json(found.model_dump(mode="json", exclude_none=True))
        return
    if form == "text":
        print_text(found.name, "bold")
    print_table(form, ["field", "value"], [list(row) for row in found.card()])
    if form != "csv":
        sources = [[s.title, s.kind, s.checked or "", s.url] for s in found.metadata.sources]
        print_table(form, ["source", "kind", "checked", "address"], sources)


def _check(form: str) -> None:
    from mlsysim.importers.user_zoo import check_user_zoo

    found = check_user_zoo()
    if form == "json":
        print_json([str(problem) for problem in found])
    elif not found:
        print_text("Your own entries of the zoo pass every check.", "green")
    else:
        print_lines((str(problem), "red") for problem in found)
    end(1 if found else 0)


def walls(
    context: Context,
    number: Annotated[str | None, Argument(metavar="WALL", help="a number or a name: the card of one wall")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """All walls, or one of them: equation, reference, resolver, fallacies.

    mlsysim walls
    mlsysim walls 14
    mlsysim walls memory
    """
    from mlsysim.plans.catalogue import wall_card, wall_cards

    form = chosen_form(context, output, as_json)
    if number is None:
        headers = ["number", "name", "domain", "bounds", "equation"]
        rows = [[card[header] for header in headers] for card in wall_cards()]
        print_result(form, wall_cards, ["wall", *headers[1:]], rows, right=(0,), drop=(4, 2))
        return
    card = wall_card(number)
    words: list[Line] = [
        (f"Wall {card['number']}: {card['name']}: {card['question']}", "bold"),
        f"{card['equation']}    ({card['reference']})",
        f"{card['domain']}, resolved by mlsysim.{card['resolver']}; bounds {card['bounds']}.",
    ]
    fallacies = [(f"Fallacy: {fallacy}", "yellow") for fallacy in card["fallacies"]]
    print_result(form, card, ["input", "meaning"], list(card["inputs"].items()), before=words, after=fallacies)


def scenarios(context: Context, output: Output = None, as_json: AsJson = False) -> None:
    """Plans and design spaces that come with mlsysim, each by a name that commands take in place of a file.

    mlsysim scenarios
    mlsysim eval scenario:llama3-70b-512-h100
    mlsysim sweep space:compression-pareto --top 3
    """
    from mlsysim.zoo.files import examples

    form = chosen_form(context, output, as_json)
    found = [
        {"name": f"{kind}:{name}", "task": table.get("task") or table["kind"], "description": table["description"]}
        | ({"title": table["name"]} if kind == "scenario" else {})
        for kind in ("scenario", "space")
        for name, table in examples(kind).items()
    ]
    rows = [[each["name"], each["task"], each.get("title", each["description"])] for each in found]
    print_result(form, found, ["name", "task", "what it is"], rows, whole=(0, 1))


def schema(
    context: Context,
    kind: Annotated[str | None, Argument(metavar="TYPE", help="the same as --type")] = None,
    type_: Annotated[
        str,
        Option("--type", help="plan, hardware, workload, space.training ..., or a resolver such as ServingModel"),
    ] = "plan",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """JSON Schema of a plan file, of the zoo's types or of a resolver, for editors and programs.

    mlsysim schema --type plan > plan.schema.json
    mlsysim schema --type ServingModel
    """
    form = chosen_form(context, output, as_json)
    if form not in ("json", "text"):
        raise InputError(f"A schema is JSON, so -o {form} says nothing; leave it out.", field="output")
    from mlsysim.plans.catalogue import schema_of

    print_json(schema_of(_TYPES.get(kind or type_, kind or type_)))


_TYPES = {"chip": "hardware", "model": "workload", "scenario": "plan"}
"""Other words for types with a schema."""

_FILES = (".json", ".safetensors", ".onnx", ".gz", ".csv", ".sh", ".toml", ".yaml", ".yml", ".pt", ".pt2", ".txt")


def _of_the_hub(name: str) -> InputError:
    """What is said of a model's name on a hub, from which nothing is fetched."""
    from mlsysim.models.registry import Models

    known = Models.get(re.sub(r"^(hf:/*|https?:/+)(huggingface\.co/)?", "", name).rstrip("/"), None)
    if known is not None:
        key = known.metadata.key
        what = "in the zoo already" if name == key else f"{key} of the zoo"
        return InputError(f"{name[:60]!r} is {what}: ask `mlsysim eval {key} H100`.", field="file")
    told = f"{name[:60]!r} is no file here, and nothing is fetched: download its config.json and import that."
    if "/" not in name and (near := nearest(name, Models.keys())):
        told = f"{name[:60]!r} is no file here, nor a model of the zoo; {did_you_mean(near)}"
    return InputError(told, field="file")


def import_(
    context: Context,
    path: Annotated[
        str,
        Argument(metavar="FILE", help="config.json, a folder of a model, safetensors, ONNX, a trace, a launch file"),
    ],
    save: Annotated[str | None, Option(help="add the model to your zoo under this name")] = None,
    on: Annotated[str | None, Option(help="a trace: what if it ran on this chip? a launch file: its fleet")] = None,
    batch: Annotated[float | None, Option(help="a trace: what if the batch were so many times as large?")] = None,
    chip: Annotated[str | None, Option(help="the chip of a trace or of emissions that do not name it")] = None,
    size: Annotated[list[str] | None, Option(help="ONNX: a size that the file leaves open, as NAME=N")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Read a model, a profiler's trace, codecarbon's emissions.csv or a launch file. Nothing in the file is executed.

    mlsysim import config.json
    mlsysim import model.onnx --size sequence=512
    mlsysim import trace.json.gz --on B200 --batch 2
    mlsysim import config.json --save My_Model && mlsysim serve My_Model --on 8xH100
    """
    from mlsysim.cli.launch import import_launch
    from mlsysim.cli.traces import print_emissions, print_trace, sizes_of
    from mlsysim.importers.detect import read_any
    from mlsysim.importers.report import ImportReport
    from mlsysim.importers.trace import TraceReport
    from mlsysim.importers.user_zoo import save_model

    form = chosen_form(context, output, as_json)
    if (
        re.fullmatch(r"(hf:(//)?|https?://huggingface\.co/)?[\w.-]+/[\w.-]+/?|\w+", path)
        and Path(path).suffix.lower() not in _FILES
        and not Path(path).exists()
    ):
        raise _of_the_hub(path)
    if save is None and batch is None and import_launch(path, form, on):
        return
    report = read_any(path, chip=chip, sizes=sizes_of(size))
    if not isinstance(report, TraceReport) and (on is not None or batch is not None):
        raise InputError("--on and --batch ask what a trace would be elsewhere; for a model use `mlsysim eval`.")
    if not isinstance(report, ImportReport) and save is not None:
        raise InputError("--save keeps a model, and this file holds none.", field="save")
    if isinstance(report, TraceReport):
        print_trace(report, form, on, batch)
    elif not isinstance(report, ImportReport):
        print_emissions(report, form)
    else:
        document = report.to_dict() | ({} if save is None else {"saved": str(save_model(report, save))})
        # A table has the sizes of the model in place of the object that JSON carries.
        sizes = {key: value for key, value in document["workload"].items() if isinstance(value, int | float | str)}
        told = sizes | {key: value for key, value in document.items() if key not in ("type", "workload", "name")}
        rows = [
            [key.replace("_", " "), _shown(value)] for key, value in told.items() if value not in (None, [], (), "")
        ]
        print_result(form, document, ["name", save or report.name], [row for row in rows if row[0] != "name"])


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_shown(each)}" for key, each in value.items() if each is not None)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        from mlsysim.zoo.provenance import listed

        return listed(value) if isinstance(value, (list, tuple)) else str(value)
    return f"{value:,.0f}" if abs(value) >= 1 and float(value).is_integer() else f"{value:,.4g}"
