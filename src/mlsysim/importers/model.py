"""``import_model``: a model from its files. The file's kind decides which reader takes it.

config.json, or any Hugging Face configuration under another name
a folder with config.json, and with hf_quant_config.json, model.safetensors.index.json or *.safetensors where it has them
*.safetensors and model.safetensors.index.json, by the config.json beside them
*.onnx and *.pt2, as graphs of operators

Headers of safetensors files and their index: how many parameters a checkpoint holds, and in which types.

A safetensors file begins with the length of its header in eight bytes (little endian), then the header, which is JSON: for each tensor
its type, shape and place. Only the header is read; the format runs no code. Quantised checkpoints pack several weights into
one stored element (two 4-bit weights in a byte, eight in a 32-bit word) and keep scales beside them; ``weights`` undoes the
packing and leaves the scales out.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers import table
from mlsysim.importers.fields import Config
from mlsysim.importers.hf import read_config
from mlsysim.importers.limits import existing, load_json, read_bounded, refuse_pickle, size_in_words
from mlsysim.importers.onnx import read_onnx
from mlsysim.importers.report import ImportReport
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


LARGEST_HEADER = 100_000_000
"""The format's own limit."""
LARGEST_INDEX = 200_000_000
_MOST_FILES = 5_000
_MOST_ELEMENTS = 10**18

_BITS: dict[str, int] = table("names")["safetensors"]["bits"]
_BESIDE = tuple(table("names")["safetensors"]["beside"])
_PACKED_WORDS = ("qweight", "weight_packed")


@dataclass
class Checkpoint:
    """Stored elements by type, weights after unpacking, bytes and tensors of one file or of several."""

    elements: Counter[str] = field(default_factory=Counter)
    weights: int = 0
    bytes: int = 0
    tensors: int = 0

    def add(self, other: Checkpoint) -> None:
        self.elements.update(other.elements)
        self.weights += other.weights
        self.bytes += other.bytes
        self.tensors += other.tensors


def read_header(path: str | os.PathLike[str], word_bits: int = 4) -> Checkpoint:
    """What the header of one file says. ``word_bits`` is the width of weights packed into 32-bit words."""
    name = Path(path).name
    start = read_bounded(path, LARGEST_HEADER + 8, at_most=8)
    size = os.path.getsize(path)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or not 2 <= length <= LARGEST_HEADER or 8 + length > size:
        raise InputError(
            f"{name[:200]!r} is not a safetensors file: its header would be {size_in_words(length)} long in a file of "
            f"{size_in_words(size)}."
        )
    table = load_json(read_bounded(path, LARGEST_HEADER + 8, at_most=8 + length)[8:], name=name)
    if not isinstance(table, dict):
        raise InputError(f"{name[:200]!r} is not a safetensors file: its header is not a table of tensors.")
    return _count(table, size - 8 - length, name, word_bits)


def _count(table: Mapping[str, Any], data: int, name: str, word_bits: int) -> Checkpoint:
    found = Checkpoint()
    for tensor, entry in table.items():
        if tensor == "__metadata__":
            continue
        config = Config(entry if isinstance(entry, Mapping) else {}, f"{tensor[:60]}.")
        kind, shape, offsets = config.text("dtype"), config.integers("shape"), config.sequence("data_offsets")
        if kind not in _BITS or shape is None or len(shape) > 64:
            raise InputError(f"{name[:200]!r}: the tensor {tensor[:60]!r} has no known type and shape.")
        elements = math.prod(shape)
        if elements > _MOST_ELEMENTS:
            raise InputError(f"{name[:200]!r}: the tensor {tensor[:60]!r} is larger than any file.")
        needed = -(-elements * _BITS[kind] // 8)
        places = offsets or []
        whole = len(places) == 2 and all(isinstance(place, int) and not isinstance(place, bool) for place in places)
        if not whole or not 0 <= places[0] <= places[1] <= data or places[1] - places[0] != needed:
            raise InputError(
                f"{name[:200]!r}: the place of the tensor {tensor[:60]!r} does not fit its shape and the file."
            )
        found.elements[kind] += elements
        found.weights += _unpacked(tensor, kind, elements, word_bits)
        found.bytes += needed
        found.tensors += 1
    return found


def _unpacked(tensor: str, kind: str, elements: int, word_bits: int) -> int:
    last = tensor.rsplit(".", 1)[-1]
    if last.endswith(_BESIDE) or tensor.endswith(_BESIDE):
        return 0
    if kind in ("I32", "U32") and last.endswith(_PACKED_WORDS):
        return elements * 32 // word_bits
    if kind in ("I32", "I64", "BOOL", "U32", "U64"):
        return 0
    return 2 * elements if kind == "U8" else elements


def read_folder(folder: Path, word_bits: int = 4) -> tuple[Checkpoint | None, int | None]:
    """The checkpoint in a folder, None where its files are not all there, and the total size that its index states."""
    index = folder / "model.safetensors.index.json"
    stated: int | None = None
    wanted: set[str] | None = None
    if index.is_file():
        table = Config(load_json(read_bounded(index, LARGEST_INDEX), name=index.name))
        inner = table.section("metadata")
        size = inner.raw("total_size") if inner is not None else None
        if isinstance(size, int | float) and not isinstance(size, bool) and 0 < size < 1e18:
            stated = int(size)
        names = table.raw("weight_map")
        if isinstance(names, dict):
            # Names of files beside the index; a path that leads elsewhere is not followed.
            wanted = {name for name in names.values() if isinstance(name, str) and Path(name).name == name}
    present = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    present = [path for path in present if wanted is None or path.name in wanted]
    if not present or len(present) < len(wanted or ()):
        return None, stated
    if len(present) > _MOST_FILES:
        raise InputError(f"{folder.name[:200]!r} holds more than {_MOST_FILES:,} safetensors files.")
    total = Checkpoint()
    for path in present:
        total.add(read_header(path, word_bits))
    return total, stated
