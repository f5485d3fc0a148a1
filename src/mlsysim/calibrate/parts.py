"""``python -m mlsysim.calibrate FOLDER``: refits every fitted constant that ships from a folder of measurement tables.

The folder holds the published tables, itself or in ``truth``, and, if measured anew, the silicon tables anywhere below it. The same tables give the same
files, byte for byte. Parts come in the order in which they depend on each other, each in a process of its own that reads what those before it wrote.
``residuals`` needs what the fits left out: those that were not asked for are made again, and not written.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from mlsysim.calibrate.residuals import Residual
from mlsysim.errors import MLSysError

PARTS = {
    "kernels": "refit",
    "collectives": "fit_collectives",
    "vision": "fit_vision",
    "power": "fit_power",
    "training": "fit_training",
    "engines": "fit_serving",
    "iterations": "fit_iterations",
    "rl": "fit_rl",
    "residuals": "leave_out",
    "intervals": "intervals",
    "others": "others",
}
"""What can be asked for, and the modules that write it: each has ``write(FOLDER, FILE)`` and ``SHIPPED``, the file."""
LEAVING_OUT = ("collectives", "power", "vision", "training", "engines")
"""Fits whose left-out rows make up the residuals; a later one speaks for a row of several."""


def written(
    part: str, folder: Path, out: Path | None, keep: bool, *more: Sequence[Sequence[Residual]]
) -> list[Residual]:
    """Fit a part and write its file, into the folder ``out`` where one is given; the residuals of what it left out."""
    module = import_module(f"mlsysim.calibrate.{PARTS[part]}")
    shipped: Path | None = getattr(module, "SHIPPED", None)
    file = (shipped if out is None else out / shipped.name) if keep and shipped else None
    found: list[Residual] = list(module.write(folder, file, *more))
    if file is not None:
        print(f"{part}: wrote {file}", flush=True)
    return found


def _alone(part: str, *arguments: Any) -> list[Residual]:
    """A part in a process of its own."""
    begun = time.monotonic()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = pool.submit(written, part, *arguments).result()
    print(f"{part}: {time.monotonic() - begun:.0f} s", flush=True)
    return found


def main(arguments: Sequence[str]) -> int:
    """Refit what is asked for, write it, and print the errors of each fit."""
    parser = argparse.ArgumentParser(prog="python -m mlsysim.calibrate", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder with the published tables and, if any, the silicon tables")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, with commas between them: {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, help="folder to write into (default: the files that ship)")
    options = parser.parse_args(arguments)
    asked = options.only.split(",")
    if unknown := [part for part in asked if part not in PARTS]:
        print(f"there is no part {unknown[0]!r} to refit; parts are {', '.join(PARTS)}.", file=sys.stderr)
        return 2
    for folder in filter(None, (options.folder, options.out)):
        if not folder.is_dir():
            print(f"{folder} is not a folder.", file=sys.stderr)
            return 2
    made: dict[str, list[Residual]] = {}
    try:
        for part in (part for part in PARTS if part in asked):
            more = []
            if part == "residuals":
                for fit in LEAVING_OUT:
                    made[fit] = made.get(fit) or _alone(fit, options.folder, options.out, False)
                more.append([made[fit] for fit in LEAVING_OUT])
            made[part] = _alone(part, options.folder, options.out, True, *more)
    except (MLSysError, FileNotFoundError) as error:
        print(f"{part}: {error}", file=sys.stderr)
        return 2
    return 0
