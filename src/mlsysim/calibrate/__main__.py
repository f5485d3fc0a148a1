"""``python -m mlsysim.calibrate FOLDER``: refit the measured profiles from a folder of measurement tables."""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from pathlib import Path

from mlsysim.calibrate.fitting import line
from mlsysim.calibrate.refit import refit, render

SHIPPED = Path(str(files("mlsysim.data"))) / "profiles" / "measured.toml"


def main(arguments: list[str]) -> int:
    """Refit, write, and print the error of each fit."""
    parser = argparse.ArgumentParser(prog="python -m mlsysim.calibrate", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with operators.csv and, if any, the silicon tables")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="file to write (default: the shipped profiles)")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        print(f"{options.folder} is not a folder.", file=sys.stderr)
        return 2
    profiles, errors = refit(options.folder)
    options.out.write_text(render(profiles), encoding="utf-8")
    for name, found in sorted(errors.items()):
        print(f"{name:44s} {line(found)}")
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
