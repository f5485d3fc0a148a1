"""Writes a fitted profile to the user's zoo: ``FOLDER/profiles/NAME.toml``, whole, so that it stands for itself.

A profile of another name than its chip's gets an entry of that name in ``FOLDER/hardware/NAME.toml``, a copy of the chip's,
so that ``Hardware.NAME`` is the chip with its own constants.
"""

from __future__ import annotations

import datetime
import re
import sys
from pathlib import Path
from typing import Any

from mlsysim.calibrate.cells import key_of
from mlsysim.calibrate.movable import changed
from mlsysim.calibrate.user import Calibration
from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.importers.markup import plain, table_lines
from mlsysim.timing.kernels import Profile
from mlsysim.zoo.provenance import Source
from mlsysim.zoo.store import chosen_folder
from mlsysim.zoo.writing import write_whole


def zoo_folder(given: str | Path | None) -> Path:
    """The user's zoo: the folder given, else the one that commands read (:mod:`mlsysim.zoo.store`)."""
    path = Path(given) if given else chosen_folder()
    if path is None:
        raise InputError("MLSYSIM_ZOO is set to nothing; let it name the folder of your zoo, or say --zoo FOLDER.")
    if path.exists() and not path.is_dir():
        raise InputError(f"the zoo {path} is not a folder.")
    return path


def write_profile(
    result: Calibration, folder: str | Path, origin: str, checked: str | None = None
) -> tuple[Path, Path | None]:
    """Write the profile, and the chip's entry under its name where there is none; ``origin`` says what was measured."""
    folder = Path(folder)
    day = checked or datetime.date.today().isoformat()
    source = Source(title=f"{result.rows} measurements: {origin}", url="", checked=day, kind="measured")
    # The error on unseen rows is noted in each table that was moved.
    error = {"fit_error_pct": round(result.after_mean_pct, 2)}
    fitted = changed(result.profile, {a.path.rpartition(".")[0]: error for a in result.adjusted})
    fitted = fitted.model_copy(update={"source": (source,)})
    chip_file = None
    if result.name != result.chip.metadata.key and result.name not in Hardware:
        chip_file = write_whole(folder / "hardware" / f"{result.name}.toml", _chip_toml(result), folders=True)
    target = write_whole(folder / "profiles" / f"{result.name}.toml", profile_toml(fitted), folders=True)
    # Profiles are read once, and times are worked out once; what was just written must be seen.
    known = [module for name, module in sys.modules.items() if name.startswith(("mlsysim.timing.", "mlsysim.cases."))]
    for member in [member for module in known for member in vars(module).values()]:
        if callable(clear := getattr(member, "cache_clear", None)):
            clear()
    Hardware.reload()
    return target, chip_file


def profile_toml(profile: Profile) -> str:
    """A profile as the file that ``mlsysim.timing.profile`` reads."""
    fields = plain(profile, _quantity)
    return "\n".join(["# Fitted by mlsysim calibrate.", *table_lines(fields.pop("name"), fields, digits)[1:]]) + "\n"


def _quantity(value: Any) -> str:
    return f"{value.to('us').magnitude:.6g} us" if value.is_compatible_with("s") else f"{value:~}"


def digits(value: float) -> str:
    """A float as a profile writes it: six digits at most."""
    return f"{value:.6g}" if value != int(value) else f"{value:.1f}"


def _chip_toml(result: Calibration) -> str:
    """The chip's shipped entry under the profile's name."""
    key = key_of(result.chip)
    piece = Hardware._store.shipped.get(key)
    if piece is None:
        raise InputError(
            f"{result.chip.name} is not one of the shipped chips; call the profile {key!r} instead of {result.name!r}."
        )
    text = re.sub(rf"^(\[\[?\s*){re.escape(key)}(?=[.\]\s])", rf"\g<1>{result.name}", piece.text, flags=re.MULTILINE)
    text = re.sub(r"^aliases\s*=\s*\[.*?\][ \t]*(?:#.*)?\n", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"(\n\s*(#[^\n]*)?)*\Z", "\n", text)
    name = rf'name = "\g<1>, calibrated as {result.name}"'
    return re.sub(r'^name = "(.*)"$', name, text, count=1, flags=re.MULTILINE)
