"""A file that a reader drops onto the page: what it is, in a sentence, and what becomes of the design.

Known are a Hugging Face ``config.json``, a plan (TOML, JSON, YAML where PyYAML is there), a trace of requests (every format of
:mod:`mlsysim.simulate.formats`) and a launch file (:mod:`mlsysim.launch`). What is left open by a launch file, which seldom names the
chip, is taken from the design on the page. Files stay where the engine runs; a trace is kept there as a file that plans name.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.hf import read_config
from mlsysim.importers.limits import nesting, where_broken
from mlsysim.importers.markup import DEEPEST, read_toml
from mlsysim.labs.catalogue import size_text
from mlsysim.labs.explorer import Document, forget, plan_of
from mlsysim.labs.rpc import offer
from mlsysim.launch.targets import read_launch
from mlsysim.models.registry import Models
from mlsysim.plans.files import plan_from_text
from mlsysim.simulate.traces import read_trace
from mlsysim.systems.fleet_text import parts_of
from mlsysim.units.text import compact_time, format_value

_LARGEST_TRACE, _LARGEST = 50_000_000, 1_000_000
_TRACES = Path(gettempdir()) / "mlsysim-traces"


@offer
def take_file(name: str, text: str, plan: Document) -> Document:
    """What a file is taken for: its kind, a sentence, and the design with it in; of a model that it is one."""
    if len(text) > _LARGEST_TRACE or (len(text) > _LARGEST and not _is_trace(name, text)):
        raise InputError(f"{name} has {len(text):,} characters, which no plan, configuration or launch file has.")
    if not text.strip():
        raise InputError(f"{name} is empty.")
    if nesting(text) > DEEPEST:
        raise InputError(f"{name} has brackets that are nested more than {DEEPEST} deep.")
    if _is_plan(name, text):
        return _plan(name, text)
    if _is_config(text):
        return {"kind": "model"}
    if _is_trace(name, text):
        return _trace(name, text, plan)
    if name.lower().endswith(".json") and (broken := _broken(text)):
        raise InputError(f"{name} is not valid JSON: {broken}.")
    try:
        return _launch(name, text, plan)
    except InputError as error:
        kinds = "a config.json, a plan, a trace of requests or a launch file"
        raise InputError(f"{name} was not taken: it is none of {kinds} that can be read ({error})") from None


@offer
def take_model(text: str, name: str = "") -> Document:
    """A model of this visit from the text of a config.json; its name is then known to every plan."""
    if len(text) > _LARGEST:
        raise InputError(f"The file has {len(text):,} characters, which no model's configuration has.")
    report = read_config(text, None, source=name or "config.json")
    # The digest keeps two configurations of one name apart, and from the zoo's own.
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    key = f"Imported_{re.sub(r'[^0-9A-Za-z]+', '_', report.name).strip('_')}_{digest}"
    Models.add(report.workload, key=key)
    forget()
    return {
        "key": key,
        "name": report.name,
        "group": "Imported",
        "note": size_text(report.workload),
        "context": report.context,
        "parameters": format_value(report.parameters),
        "warnings": list(report.warnings),
        "unread": list(report.unread),
    }


@offer
def keep_trace(name: str, text: str) -> str:
    """Write a trace where plans find it; its path."""
    _TRACES.mkdir(parents=True, exist_ok=True)
    path = _TRACES / (re.sub(r"[^\w.-]+", "_", name).strip("._")[:80] or "trace.csv")
    path.write_text(text, encoding="utf-8")
    return str(path)


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _broken(text: str) -> str:
    """Why a text is no JSON; nothing where it is."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return where_broken(error)
    return ""


def _is_plan(name: str, text: str) -> bool:
    if name.lower().endswith(".toml"):
        return "[workload" in text
    if name.lower().endswith((".yaml", ".yml")):
        return bool(re.search(r"^workload\s*:", text, re.M))
    return "workload" in _json_object(text)


def _plan(name: str, text: str) -> Document:
    form = {"toml": "toml", "yaml": "yaml", "yml": "yaml"}.get(name.lower().rpartition(".")[2], "json")
    found = plan_from_text(text, form, name)
    embedded = (read_toml(text, name) if form == "toml" else _json_object(text)).get("models", {})
    models = {key: entry["config"] for key, entry in embedded.items()}
    brings = f" It brings {len(models)} model{'s' if len(models) > 1 else ''} along." if models else ""
    told = f"{name} was taken for a plan{f', {found.name!r}' if 'name' in found.model_fields_set else ''}.{brings}"
    return {"kind": "plan", "says": told, "plan": found.document(), "models": models}


def _is_config(text: str) -> bool:
    return bool({"model_type", "architectures", "hidden_size", "n_embd", "d_model"} & _json_object(text).keys())


def _is_trace(name: str, text: str) -> bool:
    if name.lower().endswith((".csv", ".jsonl")):
        return True
    first = text.lstrip()[:1]
    return first == "[" or bool({"input_lens", "benchmarks"} & _json_object(text).keys()) if first in "{[" else False


def _trace(name: str, text: str, plan: Document) -> Document:
    path = keep_trace(name, text)
    try:
        found = read_trace(path).summary
    except InputError as error:
        why = (
            str(error)
            .removeprefix(f"{path}, ")
            .removeprefix(f"{path}: ")
            .replace(f"The trace {path}", "it")
            .replace(path, "it")
        )
        raise InputError(f"{name} was taken for a trace, and cannot be read as one: {why}") from None
    if not found.count:
        raise InputError(f"{name} was taken for a trace, and has no request in it.")
    if plan.get("task") != "serving":
        raise InputError(
            f"{name} was taken for a trace of {found.count:,} requests; switch the task to serving to play it."
        )
    rate = f" in {compact_time(found.duration)}, {found.rate:.3g} a second" if found.duration else " at once"
    lengths = f"{found.prompt:,.0f} tokens of prompt and {found.answer:,.0f} of answer on average"
    told = f"{name} was taken for a trace: {found.count:,} requests{rate}, {lengths}. It stays in this browser; a link does not carry it."
    own = ("qps", "concurrency", "prompt_tokens", "output_tokens", "burst", "length_cv", "requests", "seed")
    serving = {key: value for key, value in plan.get("serving", {}).items() if key not in own}
    changed = plan_of({**plan, "serving": {**serving, "trace": path}})
    return {"kind": "trace", "says": told, "plan": changed.document(), "path": path}


def _launch(name: str, text: str, plan: Document) -> Document:
    reading = read_launch(text)
    taken = []
    document = reading.document
    if not document.get("workload", {}).get("model"):
        reading = reading.placed(model=plan["workload"]["model"])
        taken.append("the model")
    if not (document.get("hardware", {}).get("on") or document.get("hardware", {}).get("name")):
        on = str(plan["hardware"].get("on") or plan["hardware"].get("name"))
        reading = reading.placed(on=parts_of(on)[1] if "+" not in on else on)
        taken.append("the chip")
    told = f"{name} was taken for a launch file of {reading.target}."
    if taken:
        told += f" It does not name {' and '.join(taken)}, which stay{'s' if len(taken) == 1 else ''} as here."
    if reading.unread:
        told += f" Not read: {', '.join(reading.unread[:8])}{' ...' if len(reading.unread) > 8 else ''}."
    says = " ".join([told, *reading.warnings])
    return {"kind": "launch", "says": says, "plan": reading.plan.document(), "models": {}}
