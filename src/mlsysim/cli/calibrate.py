"""``mlsysim calibrate FILE.csv --chip H100`` and ``mlsysim calibrate --measure``: constants from your own measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mlsysim.cli.output import print_line, print_table, print_text
from mlsysim.errors import InputError


def calibrate(
    file: Annotated[Path | None, typer.Argument(help="CSV of 3 to 50 operator or end-to-end times")] = None,
    chip: Annotated[str | None, typer.Option(help="the chip that was measured; found out with --measure")] = None,
    name: Annotated[str | None, typer.Option(help="name of the new profile (My_CHIP)")] = None,
    zoo: Annotated[Path | None, typer.Option(help="folder of your zoo, else MLSYSIM_ZOO")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="measure kernels here with PyTorch first")] = False,
    seconds: Annotated[float, typer.Option(help="time for measuring")] = 60.0,
    device: Annotated[str | None, typer.Option(help="cuda or cpu (a GPU where there is one)")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="measure tiny sizes only, to try it out")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="where --measure writes its CSV")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document and nothing else")] = False,
) -> None:
    """Fit a chip's profile to your own measurements and write it to your zoo."""
    from mlsysim.calibrate.samples import read_samples
    from mlsysim.calibrate.user import calibrate as fit
    from mlsysim.calibrate.write import write_profile, zoo_folder
    from mlsysim.hardware.registry import Hardware

    folder = zoo_folder(zoo)
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
    written = write_profile(result, folder, origin) if result.improves else None
    document: dict[str, Any] = {
        **result.to_dict(),
        "measurements_file": str(file),
        "written": [str(path) for path in written if path] if written else [],
    }
    document["notes"] = notes + document["notes"]
    if as_json:
        print(json.dumps(document, indent=1))
        return
    show(document, folder)


def _measured(
    folder: Path, chip: str | None, seconds: float, device: str | None, tiny: bool, out: Path | None
) -> tuple[Path, str, str, list[str]]:
    from mlsysim.calibrate.device import Device
    from mlsysim.calibrate.measure import measure
    from mlsysim.calibrate.samples import write_samples

    machine = Device(device)
    node = machine.chip(chip)
    key = node.metadata.key or node.name
    suite = measure(machine, seconds, "tiny" if tiny else None)
    path = out or folder / "measurements" / f"{key}.csv"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_samples(suite.rows, path)
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror}.") from None
    origin = f"kernel suite on {suite.device}, PyTorch {machine.torch.__version__}"
    return path, key, origin, suite.notes


def show(document: dict[str, Any], folder: Path) -> None:
    """The calibration as tables."""
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
        print_line(f"use it with MLSYSIM_ZOO={folder} and the chip {document['name']}")
    else:
        print_text("not written: rows that the fit has not seen are predicted no better than before")
