"""Options that commands share, and how each reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mlsysim.errors import InputError, unknown_name

__all__ = [
    "FORMS",
    "AsJson",
    "Batch",
    "Efficiency",
    "Output",
    "Precision",
    "Region",
    "SeqLen",
    "chosen_form",
    "efficiency_of",
    "is_plan_file",
    "number_of",
]

FORMS = ("text", "json", "markdown", "csv")

Output = Annotated[str | None, typer.Option("-o", "--output", help="text, json, markdown or csv", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="the same as -o json: one JSON document on stdout")]
Batch = Annotated[int | None, typer.Option("-b", "--batch-size", help="sequences or samples of a step or pass")]
SeqLen = Annotated[int | None, typer.Option("-s", "--seq-len", help="tokens of a sequence")]
Precision = Annotated[str | None, typer.Option("-p", "--precision", help="number format, such as bf16, fp8, int4")]
Efficiency = Annotated[str | None, typer.Option("-e", "--efficiency", help="a fraction of peak, or 'calibrated'")]
Region = Annotated[str | None, typer.Option("--region", help="a grid of the zoo, such as Quebec")]


def chosen_form(context: typer.Context, output: str | None, as_json: bool) -> str:
    """The form of the output: the command's own, else the one given before the command, else text."""
    earlier = (context.find_root().obj or {}).get("output")
    form = "json" if as_json else (output or earlier or "text")
    if form == "html":
        raise InputError("HTML is what `mlsysim report FILE -o report.html` writes.", field="output")
    if form not in FORMS:
        raise unknown_name("form of output", form, FORMS, "use one of " + ", ".join(FORMS) + ".")
    return form


def efficiency_of(text: str | None) -> float | str | None:
    """The value of --efficiency."""
    if text is None or text == "calibrated":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"--efficiency takes a fraction such as 0.5, or 'calibrated', got {text[:40]!r}.", field="efficiency"
        ) from None


_WORDS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


def number_of(text: str | None, what: str) -> float | None:
    """A count that may be written 15e12, 15T or 15_000_000.

    >>> number_of("1.24T", "tokens"), number_of("300e9", "tokens")
    (1240000000000.0, 300000000000.0)
    """
    if text is None:
        return None
    plain = text.strip()[:60].replace(",", "").replace("_", "").lower()
    factor = _WORDS.get(plain[-1:], 1.0)
    try:
        value = float(plain[:-1] if factor != 1.0 else plain) * factor
    except ValueError:
        value = float("nan")
    if not 0 < value < 1e30:
        raise InputError(f"--{what} takes a positive number such as 15e12 or 15T, got {text[:40]!r}.", field=what)
    return value


def is_plan_file(name: str) -> bool:
    """Whether a target is a plan file rather than a model."""
    return Path(name).suffix.lower() in (".toml", ".yaml", ".yml") or (
        name.lower().endswith(".json") and _has_workload(name)
    )


def _has_workload(name: str) -> bool:
    import json

    try:
        path = Path(name)
        if path.stat().st_size > 1_000_000:
            return False
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "workload" in found
