"""What the cells of a training table's row say: metric, products, dimensions, software, release, cluster, sharding and recomputation."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from mlsysim.calibrate.cells import cell, experts_of, format_of, metric_named, year_of
from mlsysim.calibrate.cells import whole_or_none as whole
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.questions import Skipped
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.timing.stacks import Stack, nearest_stack, stack, stack_of_source
from mlsysim.zoo.labels import chip_label

_WORDS = settings("rows")["training"]
_ASYNC = r"async[- ]?tp|async(?:hronous)? tensor"
_EIGHT = 2023
"""From this year on submissions to MLPerf Training compute in 8 bits where the chip has them."""
_FOUR = 2026
"""And from this one in 4 bits: configurations for NVFP4 came with v5.1, and logs of v6.0 name mxfp4 on CDNA 4."""
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?) ?([bm])\b", re.IGNORECASE)
"""Parameters in a model's name."""
_AFTER = 2
"""Years after a chip that published runs on it are of, where a row tells no year."""
UNPADDED = "padding removed"


def read_metric(row: Mapping[str, str]) -> str:
    """What was measured; a name that leaves it to the unit is read there."""
    found = metric_named(cell(row, "reported_metric"), _WORDS["metrics"])
    return metric_named(cell(row, "unit"), _WORDS["metrics"]) if found in _WORDS["by_unit"] else found


def product_of(row: Mapping[str, str], *names: str) -> int | None:
    """What degrees that a row gives multiply to."""
    degrees = [whole(row, name) for name in names]
    return None if None in degrees else math.prod(d for d in degrees if d)


def read_precision(row: Mapping[str, str], chip: HardwareNode, inferred: list[str]) -> str:
    """The arithmetic that a label names; without one that of the benchmark's submitters, or 16 bits, as far as the chip has it."""
    if (label := cell(row, "precision")) and label.lower() not in (*_WORDS["mixed"], *_WORDS["half"]):
        return _row_scaled(format_of(label), label, cell(row, "notes"))
    year = year_of(cell(row, "source"), cell(row, "notes")) or 0
    benchmark = cell(row, "source").startswith("mlperf") and label.lower() not in _WORDS["half"]
    narrow = (*(("nvfp4", "mxfp4") if year >= _FOUR else ()), *(("fp8",) if year >= _EIGHT else ()))
    wanted = (*(narrow if benchmark else ()), "bf16", "fp16", "fp32")
    chosen = next((name for name in wanted if chip.compute.supports(name)), chip.compute.headline)
    inferred.append(f"products in {chosen}")
    return chosen


def _row_scaled(name: str, *texts: str) -> str:
    return "fp8_row" if name == "fp8" and re.search(r"row-?\s?wise", " ".join(texts), re.IGNORECASE) else name


def read_dimensions(row: Mapping[str, str]) -> dict[str, Any]:
    """The row's dimensions where they differ from the zoo's; all of them where the zoo does not have the model."""
    fields = _WORDS["dimensions"]
    given: dict[str, Any] = {field: value for name, field in fields.items() if (value := whole(row, name))}
    known: Any = Models.get(row["model"], None)
    if known is not None and not isinstance(known, TransformerWorkload):
        raise Skipped(f"{row['model']} is not a transformer")
    if known is None:
        if "ffn_dim" not in given and "parameters" not in given and (size := _SIZE.search(row["model"])):
            given["parameters"] = round(float(size[1]) * (1e9 if size[2] in "bB" else 1e6))
        if missing := [label for label in ("layers", "hidden", "heads") if fields[label] not in given]:
            raise Skipped(f"the model {row['model']!r} is not in the zoo and its row lacks {', '.join(missing)}")
        if "ffn_dim" not in given and "parameters" not in given:
            given["ffn_dim"] = 4 * given["hidden_dim"]  # as GPT has it
        if "ffn_dim" in given:
            given.pop("parameters", None)
        return {**given, "gated_ffn": given.get("ffn_dim", 0) < 4 * given["hidden_dim"]}
    given.pop("parameters", None)
    if experts_of(known) > 1:
        # Rows give the width of one expert, or of the dense layers, in the same column.
        given.pop("ffn_dim", None)
    if given.get("kv_heads") == known.heads:
        given.pop("kv_heads", None)
    return {field: value for field, value in given.items() if value != getattr(known, field, None)}


def read_stack(row: Mapping[str, str], chip: HardwareNode, model_year: int | None, inferred: list[str]) -> Stack:
    """The software of a row: what a column or a remark on a baseline names, else its source's, else that of its year on that chip, not before the model was there."""
    source, notes = cell(row, "source"), cell(row, "notes")
    year = year_of(cell(row, "year"), cell(row, "date"), source, notes) or max(
        (chip.release_year or 2023) + _AFTER, model_year or 0
    )
    own = " ".join(cell(row, name) for name in ("software", "framework", "stack"))
    compared = re.search(r"[^;.]*\bbaseline\b[^;.]*", notes, re.IGNORECASE)
    found = stack_in_text(own, year) or (stack_in_text(compared[0], year) if compared else None)
    if found is None and source.startswith("mlperf") and UNPADDED in notes:
        found = stack(_WORDS["packed"])
    if found is None:
        found = stack_of_source(source)
    if found is None and (found := stack_in_text(f"{source} {notes}", year)):
        inferred += [
            f"stack {found.name} stands in for {_WORDS['stand_ins'][word]}"
            for word in _words_in(f"{source} {notes}")[:1]
            if word in _WORDS["stand_ins"]
        ]
    if found is None:
        sharded = cell(row, "zero_stage").startswith(("3", "FSDP")) and (cell(row, "tp") or "1") == "1"
        found = stack_in_text("jax", year) if chip.vendor == "Google" else nearest_stack(year, sharded)
        assert found is not None
        inferred.append(f"stack {found.name} by the year {year}")
    if found.name == "maxtext" and "weights in bf16" in notes:
        found = stack("maxtext-16bit")
    compiled = re.search(rf"compile|float8|{_ASYNC}", notes, re.IGNORECASE)
    if (
        found.name in ("titan", "plain")
        and compiled
        and not re.search(r"(?:no|without) (?:torch\.)?compile|eager", notes)
    ):
        whole_blocks = "titanc" if found.name == "titan" else "plain-compiled"
        found = stack("titan-async" if re.search(_ASYNC, notes, re.IGNORECASE) else whole_blocks)
    return found


def stack_in_text(text: str, year: int) -> Stack | None:
    """The stack of the software that a text names: of the first that is named, the one nearest in time."""
    known = _words_in(text)
    named = _WORDS["software"][known[0]] if known else ()
    return min((stack(name) for name in named), key=lambda each: abs(each.year - year), default=None)


def _words_in(text: str) -> list[str]:
    """Words of software in the order in which a text has them, the longest first; those of parts of others after them."""
    found = ((text.lower().find(word), -len(word), word) for word in _WORDS["software"])
    later = _WORDS["parts"]["words"]
    return [each[-1] for each in sorted((each[-1] in later, *each) for each in found if each[0] >= 0)]


def read_release(row: Mapping[str, str]) -> float:
    """The release in a source's name as a number: 26.04.01 is 26.0401; releases are called by their month, so a month in the notes tells it too."""
    found = re.search(r"(\d\d)\.(\d\d)(?:\.(\d\d))?", cell(row, "source"))
    found = found or re.search(r"\b20(\d\d)-(\d\d)(?:-(\d\d))?\b", cell(row, "notes"))
    return float(f"{found[1]}.{found[2]}{found[3] or ''}") if found else 0.0


def read_cluster(row: Mapping[str, str]) -> tuple[float | None, float | None]:
    """Network adapter (bit/s per accelerator) and power cap (W), where the row states them."""
    notes = cell(row, "notes")
    found = re.search(r"(\d+)\s*Gb/s RDMA per GPU|RoCE (\d+)G|\dx[HN]DR(\d+)", notes)
    adapter = float(found[found.lastindex or 0]) * 1e9 if found else None
    cap = re.search(r"\b(\d{3,4}) ?W cap", notes)
    return adapter, chip_label(cell(row, "gpu")).power or (float(cap[1]) if cap else None)


def read_zero(row: Mapping[str, str], software: Stack) -> int:
    """The ZeRO stage: the digit in the label, or the stack's habit."""
    label = cell(row, "zero_stage").lower()
    digit = re.search(r"[0-3]", label)
    if label and digit is None:
        named = next((stage for word, stage in _WORDS["sharded"].items() if word in label), None)
        if named is None:
            raise Skipped(f"the ZeRO stage {label!r} is unknown")
        return int(named)
    return int(digit[0]) if digit else software.zero


def read_recompute(label: str, software: Stack) -> str | None:
    """What is recomputed, or None where the row does not say."""
    modes = _WORDS["recompute"].items()
    mode = next((mode for word, mode in modes if label.lower().startswith(word)), None)
    if label and mode is None:
        raise Skipped(f"the recompute mode {label!r} is unknown")
    return software.recompute if mode == "selective" and software.recompute in ("half", "modules") else mode
