"""Predictions beside measurements: ``validate`` (published ones), ``calibrate`` (your own, into constants), ``verify`` (a pass that is run here)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from mlsysim.cli.options import OneJson
from mlsysim.cli.output import print_line, print_table, print_text
from mlsysim.errors import InputError
from mlsysim.zoo.writing import written

Device = Annotated[str | None, Option(help="cuda or cpu (a GPU where there is one)")]


def validate(
    files: Annotated[list[Path], Argument(help="CSV tables of measurements, recognised by their header")],
    as_json: OneJson = False,
    out: Annotated[Path | None, Option(help="write every prediction with its interval to this CSV")] = None,
) -> None:
    """Predict every row of measurement tables and report the errors, per file and per source.

    mlsysim validate runs.csv --out predictions.csv
    """
    from mlsysim.calibrate.validate import validate as run
    from mlsysim.calibrate.validate import write_predictions

    reports = run(*files)
    if out is not None:
        write_predictions(reports, out)
    if as_json:
        print(json.dumps([report.to_dict() for report in reports], indent=1))
    else:
        for report in reports:
            _show_errors(report.to_dict())
    if not any(report.predicted for report in reports):
        reason = next((reason for report in reports for reason, _ in report.skipped_reasons.most_common(1)), "")
        said = f"no row could be predicted: {reason or 'none is a measurement'}"
        raise InputError(said if said.endswith(("?", ".")) else f"{said}.")


def _show_errors(report: dict[str, Any]) -> None:
    """One file's report as a table."""
    print_text("")
    print_text(
        f"{Path(report['file']).name} ({report['table']}): {report['rows']} row{'' if report['rows'] == 1 else 's'}, "
        f"{report['predicted']} predicted ({report['coverage']:.1%}), {report['skipped']} skipped, {report['excluded']} excluded",
        "bold",
    )
    for reason, count in list(report["skipped_reasons"].items())[:8]:
        print_text(f"  skipped {count}: {reason}", "dim")
    if report["unread"]:
        print_text(f"  columns that were not read: {', '.join(report['unread'][:8])}", "dim")
    groups = [("all", report)]
    groups += [(f"metric {name}", part) for name, part in report["by_metric"].items()]
    groups += [(name, part) for name, part in report["by_source"].items() if name]
    forms = {
        "values": "{:,}", "median_ape": "{:,.1f} %", "p90_ape": "{:,.1f} %", "interval_coverage": "{:.0f} %", "bias": "{:+,.1f} %",
        "within_10": "{:.0f} %", "within_25": "{:.0f} %", "mape": "{:,.1f} %",
    }  # fmt: skip
    rows = [
        [name, *("" if part[key] is None else form.format(part[key]) for key, form in forms.items())]
        for name, part in groups
        if part.get("values")
    ]
    headers = ["", "values", "median", "p90", "in interval", "bias", "in 10 %", "in 25 %", "mean"]
    numbers = range(1, len(headers))
    print_table("text", headers, rows, right=numbers, drop=numbers[:3:-1], whole=numbers, full="--json")


def calibrate(
    file: Annotated[Path | None, Argument(help="CSV of 3 to 50 operator or end-to-end times")] = None,
    serving: Annotated[Path | None, Option(help="requests that a benchmark or a log measured: fit an engine")] = None,
    plan: Annotated[Path | None, Option(help="with --serving: the plan of the service that was measured")] = None,
    model: Annotated[str | None, Option(help="with --serving, in place of a plan: the model")] = None,
    on: Annotated[str | None, Option(help="and its fleet, such as 1xH200")] = None,
    engine: Annotated[str, Option(help="and the engine to start from")] = "vLLM",
    chip: Annotated[str | None, Option(help="the chip that was measured; found out with --measure")] = None,
    name: Annotated[str | None, Option(help="name of the new profile (My_CHIP)")] = None,
    zoo: Annotated[Path | None, Option(help="folder of your zoo, else MLSYSIM_ZOO, else ~/.config/mlsysim/zoo")] = None,
    measure: Annotated[bool, Option("--measure", help="measure kernels here with PyTorch first")] = False,
    seconds: Annotated[float, Option(help="time for measuring")] = 60.0,
    device: Device = None,
    tiny: Annotated[bool, Option("--tiny", help="measure tiny sizes only, to try it out")] = False,
    out: Annotated[Path | None, Option(help="where --measure writes its CSV")] = None,
    as_json: OneJson = False,
) -> None:
    """Fit a chip's profile, or an engine's constants, to your own measurements and write it to your zoo."""
    from mlsysim.calibrate.samples import read_samples
    from mlsysim.calibrate.user import calibrate as fit
    from mlsysim.calibrate.write import write_profile, zoo_folder
    from mlsysim.hardware.registry import Hardware

    folder = zoo_folder(zoo)
    if serving is not None:
        if file is not None or measure:
            raise InputError("give requests with --serving, or times of kernels, not both.")
        _fit_engine(serving, plan, model, on, engine, name, folder, as_json)
        return
    notes: list[str] = []
    if measure:
        if file is not None:
            raise InputError("give a file of measurements or --measure, not both.")
        file, chip, origin, notes = _measured(folder, chip, seconds, device, tiny, out)
    else:
        if file is None:
            raise InputError("calibrate needs a CSV file of measurements, or --measure.")
        if chip is None:
            raise InputError("say which chip was measured with --chip, such as --chip H100.")
        origin = file.name
    result = fit(read_samples(file), Hardware.get(chip), name)
    written = write_profile(result, folder, origin) if result.improves else ()
    document: dict[str, Any] = {**result.to_dict(), "measurements_file": str(file)}
    document |= {"written": [str(path) for path in written if path], "notes": notes + document["notes"]}
    if as_json:
        print(json.dumps(document, indent=1))
    else:
        _show_fit(document, folder)


def _fit_engine(
    file: Path, plan: Path | None, model: str | None, on: str | None, engine: str, name: str | None, folder: Path, as_json: bool
) -> None:  # fmt: skip
    from mlsysim.calibrate.fit_results import fit_results, service_of, write_engine
    from mlsysim.calibrate.questions import calibrated_plan
    from mlsysim.plans.files import load_plan

    if plan is not None:
        asked = load_plan(plan)
    elif model is None or on is None:
        raise InputError("say what was measured with --plan FILE, or with --model and --on.")
    else:
        asked = calibrated_plan("serving", model, on, serving={"engine": engine})
    fitted = fit_results(file, service_of(asked, file))
    found = fitted.to_dict()
    called = name or f"My_{fitted.engine.like or fitted.engine.name}"
    found["written"] = str(write_engine(fitted, called, folder, file.name)) if fitted.improves else None
    if as_json:
        print(json.dumps(found, indent=1))
        return
    print_line(f"{found['requests']} requests, starting from the engine {found['engine']}")
    rows = []
    for key, each in found["constants"].items():
        scale, unit = (1.0, "") if key in ("prompts", "answers") else (1e6, " us")
        shown = [f"{each[when] * scale:.4g}{unit}" for when in ("before", "after")]
        rows.append(
            [
                {"prompts": "factor of prompts", "answers": "factor of answers"}.get(key, key),
                *shown,
                f"x/ {each['standard_error']:.2f}",
            ]
        )
    print_table("text", ["constant", "before", "after", "standard error"], rows, right=(1, 2, 3))
    print_text(
        f"median error {found['before']['median_ape']:.1f} % before, {found['after_left_out']['median_ape']:.1f} % after, each run "
        "(of a single run each half) predicted without it"
    )
    if found["written"]:
        print_line(f"written: {found['written']}")
        print_line(f"use it with {_zoo_of(folder)}--engine {called}")
    else:
        print_text("not written: requests that the fit has not seen are predicted no better than before")


def _zoo_of(folder: Path) -> str:
    """What must be said so that commands read a zoo: nothing of the one that they read anyway."""
    from mlsysim.zoo.store import chosen_folder

    return "" if folder == chosen_folder() else f"MLSYSIM_ZOO={folder} and "


def _measured(
    folder: Path, chip: str | None, seconds: float, device: str | None, tiny: bool, out: Path | None
) -> tuple[Path, str, str, list[str]]:
    from mlsysim.calibrate.device import Device as Machine
    from mlsysim.calibrate.measure import measure
    from mlsysim.calibrate.samples import write_samples

    machine = Machine(device)
    node = machine.chip(chip)
    key = node.metadata.key or node.name
    suite = measure(machine, seconds, "tiny" if tiny else None)
    path = out or folder / "measurements" / f"{key}.csv"
    with written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_samples(suite.rows, path)
    return path, key, f"kernel suite on {suite.device}, PyTorch {machine.torch.__version__}", suite.notes


def _show_fit(document: dict[str, Any], folder: Path) -> None:
    prior = document["prior"]
    print_line(
        f"{document['rows']} measurements of {document['chip']}, starting from the profile {prior['profile']} ({prior['basis']})"
    )
    rows = []
    for row in document["adjusted"]:
        scale, unit = (1e6, " us") if row["unit"] == "s" else (1.0, "")
        values = [f"{row[when] * scale:.4g}{unit}" for when in ("before", "after")]
        rows.append([row["constant"], *values, f"{100 * row['learned']:.0f} %"])
    print_table("text", ["constant", "before", "after", "learned"], rows, right=(1, 2, 3))
    before, after = document["before"], document["after_leave_one_out"]
    print_text(
        f"median error {before['median_ape']:.1f} % before, {after['median_ape']:.1f} % after "
        f"(mean {before['mape']:.1f} % and {after['mape']:.1f} %), each row predicted from the others"
    )
    for note in document["notes"]:
        print_line(f"  {note}", "dim")
    if document["written"]:
        print_line(f"written: {', '.join(document['written'])}")
        print_line(f"use it with {_zoo_of(folder)}the chip {document['name']}")
    else:
        print_text("not written: rows that the fit has not seen are predicted no better than before")


def verify(
    model: Annotated[
        str, Argument(help="a model of the zoo: a transformer (dense, windowed, latent, of experts), a ViT or a CNN")
    ],
    phase: Annotated[str, Option(help="prefill, decode or train")] = "prefill",
    layers: Annotated[int | None, Option(help="layers to build (as many as fit; two on a CPU)")] = None,
    batch: Annotated[int, Option(help="sequences or images")] = 1,
    seq_len: Annotated[int | None, Option(help="tokens of a sequence, or of the context")] = None,
    precision: Annotated[str | None, Option(help="bf16, fp16 or fp32")] = None,
    chip: Annotated[str | None, Option(help="the chip to predict for, where it is not recognised")] = None,
    device: Device = None,
    fuse: Annotated[bool, Option("--compile", help="fuse elementwise operators with torch.compile")] = False,
    eager: Annotated[
        bool, Option("--eager", help="launch a forward pass operator by operator, not as a graph")
    ] = False,
    lora: Annotated[int, Option(help="rank of adapters that a training step trains beside frozen weights")] = 0,
    as_json: OneJson = False,
) -> None:
    """Run a real forward pass, decode step or training step of a random-weight model, beside its prediction.

    mlsysim verify Llama3_8B
    mlsysim verify Llama3_8B --phase decode --batch 8
    """
    from mlsysim.calibrate.device import Device as Machine
    from mlsysim.calibrate.verify import verify as run

    size = {"layers": layers, "batch": batch, "seq_len": seq_len, "precision": precision}
    how_run = {"fuse": fuse, "eager": eager, "lora": lora}
    told: dict[str, Any] = run(model, phase, **size, chip=chip, device=Machine(device), **how_run).to_dict()  # type: ignore[arg-type]
    if as_json:
        print(json.dumps(told, indent=1))
        return
    length = f" x {told['seq_len']}" if told["seq_len"] else ""
    built = f", {told['layers']} of {told['of_layers']} layers" if told["layers"] else ""
    print_line(
        f"{told['model']} {told['phase']} {told['batch']}{length} {told['precision']}{built} on {told['device']}"
    )
    if told["layers"] and told["layers"] < told["of_layers"]:
        print_line("           prediction and measurement are of the layers that were built", "dim")
    how = "captured in a graph" if told["graph"] else "launched operator by operator"
    how += ", compiled" * told["compiled"]
    how += f", {told['attention']}" * (not told["seq_len"] and bool(told["attention"]))
    print_line(f"measured   {1e3 * told['measured_s']:10.4g} ms   {how}")
    extra = ", extrapolating" if told["extrapolating"] else ""
    print_line(
        f"predicted  {1e3 * told['predicted_s']:10.4g} ms   {1e3 * told['low_s']:.4g} to {1e3 * told['high_s']:.4g} ms{extra} "
        f"(profile {told['profile']}, {told['basis']})"
    )
    print_line(f"error      {told['error_pct']:+10.1f} %")
