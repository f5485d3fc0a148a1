"""``import_model``: a model from its files. The file's kind decides which reader takes it.

config.json, or any Hugging Face configuration under another name
a folder with config.json, and with hf_quant_config.json, model.safetensors.index.json or *.safetensors where it has them
*.safetensors and model.safetensors.index.json, by the config.json beside them
*.onnx and *.pt2, as graphs of operators
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.hf import read_config
from mlsysim.importers.limits import existing, load_json, read_bounded, refuse_pickle
from mlsysim.importers.onnx import read_onnx
from mlsysim.importers.report import ImportReport
from mlsysim.importers.safetensors import Checkpoint, read_folder, read_header
from mlsysim.importers.torch_graph import read_pt2
from mlsysim.models.base import Workload
from mlsysim.units.registry import quantity

LARGEST_CONFIG = 10_000_000
"""Real configurations are below 1 MB; those that list every quantised layer are the longest."""
DISAGREEMENT = 0.01

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}


def import_model(path: str | os.PathLike[str], name: str | None = None) -> Workload:
    """The workload of a model's files; :func:`read_model` tells what was read and what was not."""
    return read_model(path, name).workload


def read_model(path: str | os.PathLike[str], name: str | None = None) -> ImportReport:
    """The report on a model's files: a configuration, a folder that holds one, or a checkpoint beside one."""
    place = existing(path)
    if place.is_dir():
        if not (place / "config.json").is_file():
            raise InputError(f"The folder {str(place)[-200:]!r} has no config.json.")
        return _folder(place, place / "config.json", name)
    ending = place.suffix.lower()
    if ending == ".onnx":
        return read_onnx(place, name)
    if ending == ".pt2":
        return read_pt2(place, name)
    if place.name == "model.safetensors.index.json" or ending == ".safetensors":
        return _checkpoint(place, name)
    head = read_bounded(place, LARGEST_CONFIG, at_most=8)
    refuse_pickle(place.name, head)
    if head[:4] == b"GGUF":
        raise InputError(f"{place.name[:200]!r} is a GGUF file, which is not read; give the model's config.json.")
    if ending in (".toml", ".yaml", ".yml"):
        raise _of_another_kind(place)
    return _folder(place.parent if place.name == "config.json" else None, place, name)


def _of_another_kind(place: Path) -> InputError:
    """What a file of our own forms is, where a model's files are expected."""
    head = read_bounded(place, LARGEST_CONFIG).decode("utf-8", "replace")
    kind, remedy = "no configuration of a model", "give the model's config.json, or the name of a model of the zoo"
    if re.search(r"^(tdp|peak_flops|memory\w*|compute)\s*[=:]|^\[.*\.(compute|memory)\]", head, re.MULTILINE):
        kind, remedy = "a file of hardware", "give it where the hardware goes"
    elif re.search(r"^\s*\[?workload\b", head, re.MULTILINE):
        kind, remedy = "a plan", "ask for it with `mlsysim eval FILE`"
    elif re.search(r"^(layers|hidden_dim|parameters)\b", head, re.MULTILINE):
        kind, remedy = "a file of a zoo", "put it into models.toml of your own zoo, and give the model's name"
    return InputError(f"{place.name[:200]!r} is {kind}; {remedy}.", field="model")


def _checkpoint(place: Path, name: str | None) -> ImportReport:
    config = place.parent / "config.json"
    if config.is_file():
        return _folder(place.parent, config, name)
    held = read_header(place).weights if place.suffix.lower() == ".safetensors" else None
    count = f" (it holds {held:,} parameters)" if held else ""
    raise InputError(f"{place.name[:200]!r} has no config.json beside it, which says what its tensors compute{count}.")


def _title(config: Path) -> str:
    """A model's folder names it; a configuration under another name names itself."""
    if config.name == "config.json":
        folder = config.resolve().parent.name
        return folder if folder and not re.fullmatch(r"[0-9a-f]{40}", folder) else ""
    return re.sub(r"[-_.]?config$", "", config.stem) or config.stem


def _table(file: Path, kind: str) -> dict[str, Any]:
    found = load_json(read_bounded(file, LARGEST_CONFIG), name=file.name, finite=False)
    if not isinstance(found, dict):
        raise InputError(f"{file.name[:200]!r} is not {kind}a table of keys.")
    return found


def _folder(folder: Path | None, config: Path, name: str | None) -> ImportReport:
    data = _table(config, "a model's configuration, which is ")
    beside = config.with_name(re.sub(r"config\.json$", "hf_quant_config.json", config.name))
    quantised = _table(beside, "") if beside != config and beside.is_file() else None
    report = _counted(read_config(data, name or _title(config) or None, quantised, source=config.name))
    if folder is None:
        return report
    weights = (report.quantisation.weights if report.quantisation else None) or ""
    bits = int(weights[3:]) if re.fullmatch(r"int[2348]", weights) else 4
    checkpoint, stated = read_folder(folder, bits)
    return _compare(report, checkpoint, stated)


def _counted(report: ImportReport) -> ImportReport:
    """The report, its workload with the number of parameters that its dimensions give."""
    if report.workload.parameters is not None:
        return report
    count = quantity(round(report.workload.parameter_count), "")
    return report.model_copy(update={"workload": report.workload.model_copy(update={"parameters": count})})


def _compare(report: ImportReport, checkpoint: Checkpoint | None, stated: int | None) -> ImportReport:
    """The report with what the checkpoint holds, and a warning where it is not what the configuration describes."""
    held: float | None = None if checkpoint is None else checkpoint.weights
    if checkpoint is None and stated is not None and report.quantisation is None and report.dtype in _BYTES:
        held = stated / _BYTES[report.dtype]
    warnings = report.warnings
    if held and abs(held / report.parameters - 1) > DISAGREEMENT:
        warnings += (
            f"The checkpoint holds {held / 1e9:,.4g} B parameters, {held / report.parameters - 1:+.1%} from the "
            f"{report.parameters / 1e9:,.4g} B that the configuration gives.",
        )
    if checkpoint is not None and stated is not None and checkpoint.bytes != stated:
        warnings += (f"The index states {stated:,} bytes and the files hold {checkpoint.bytes:,}.",)
    stored, size = (None, stated) if checkpoint is None else (dict(checkpoint.elements), checkpoint.bytes)
    found: dict[str, Any] = {"warnings": warnings, "checkpoint_parameters": stored, "checkpoint_bytes": size}
    if warnings != report.warnings:
        found["workload"] = report.workload.model_copy(update={"caveats": warnings})
    return report.model_copy(update=found)
