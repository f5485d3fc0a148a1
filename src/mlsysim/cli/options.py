"""Options that commands share, and how each reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option

from mlsysim.errors import InputError, unknown_name

FORMS = ("text", "json", "markdown", "csv")

Output = Annotated[str | None, Option("-o", "--output", help="text, json, markdown or csv", show_default=False)]
AsJson = Annotated[bool, Option("--json", help="the same as -o json: one JSON document on stdout")]
OneJson = Annotated[bool, Option("--json", help="one JSON document and nothing else")]
Target = Annotated[
    str, Argument(metavar="FILE|MODEL@FLEET", help="a plan file, scenario:NAME, or such as Llama3_70B@512xH100")
]


def chosen_form(context: Context, output: str | None, as_json: bool) -> str:
    """The form of the output: the command's own, else the one given before the command, else text."""
    earlier = (context.find_root().obj or {}).get("output")
    form = "json" if as_json else (output or earlier or "text")
    if form == "html":
        raise InputError("HTML is what `mlsysim report FILE -o report.html` writes.", field="output")
    if form not in FORMS:
        raise unknown_name("form of output", form, FORMS, "use one of " + ", ".join(FORMS) + ".")
    return form


def is_plan_file(name: str) -> bool:
    """Whether a target is a plan file rather than a model."""
    from mlsysim.zoo.files import is_example

    path = Path(name)
    if is_example(name, "scenario") or path.suffix.lower() in (".toml", ".yaml", ".yml"):
        return True
    try:
        if not name.lower().endswith(".json") or path.stat().st_size > 1_000_000:
            return False
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError):
        return False
    except ValueError:
        return True  # which is said where it is read
    return not isinstance(found, dict) or ("workload" in found or {"model", "on"} <= found.keys())
