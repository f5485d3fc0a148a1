"""What a row of a training table means: model, chip, software, layout and batch, and which settings it leaves to be inferred.

Settings that a row does not give follow the rules of ``docs/accuracy.md`` and are listed. The result is a :class:`Run`, from which
:mod:`mlsysim.calibrate.tables.training` makes a plan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mlsysim.calibrate.cells import cell, experts_of, key_of, number
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.questions import Skipped
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.training_shape import training_shape
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.plans.plan_parts import DimensionsPart, WorkloadPart
from mlsysim.plans.resolve import workload_of
from mlsysim.timing.stacks import Recipe, Stack, nearest_stack, recipe, stack, stack_of_source
from mlsysim.timing.training_chip import constants
from mlsysim.units.registry import to_si

_WORDS = settings("rows")["training"]
_GLOBAL_SEQUENCES = 2048
_MICRO_TOKENS = 16384
_STATE_SHARE = 0.55
_DECODER_SHARE = 0.25


class Run:
    """A row understood; ``inferred`` lists what it does not say."""

    def __init__(self, row: Mapping[str, str]) -> None:
        self.row = row
        self.inferred: list[str] = []
        notes, label = cell(row, "notes"), cell(row, "recompute")
        self.dimensions = read_dimensions(row)
        own = DimensionsPart(**self.dimensions) if self.dimensions else None
        found = workload_of(WorkloadPart(model=row["model"], dimensions=own))
        assert isinstance(found, TransformerWorkload)
        self.model = found
        self.frozen = "lora" in notes.lower() or "lora" in row["model"].lower()
        self.hardware = hardware_of(cell(row, "gpu"))
        unsaid = _WORDS["unsaid"].get(row["model"], "")
        self.precision = read_precision(cell(row, "precision") or unsaid)
        if unsaid and not cell(row, "precision"):
            self.inferred.append(f"products in {unsaid}")
        seq_len, accelerators = whole(row, "seq"), whole(row, "n_gpus")
        if seq_len and "padding removed" in notes:
            seq_len = round(seq_len * _WORDS["unpadded"])
            self.inferred.append(f"{seq_len} tokens of a sequence without its padding")
        if not seq_len:
            raise Skipped("no sequence length is given")
        if not accelerators:
            raise Skipped("the number of accelerators is not given")
        self.seq_len, self.accelerators = seq_len, accelerators
        if self.precision == "nvfp4" and any(kind.scan for kind in training_shape(self.model, 1.0).kinds):
            # Published hybrids keep mixers and latent projections in wider formats; MXFP8 and NVFP4 runs are equally fast.
            self.precision = "mxfp8"
            self.inferred.append("products in MXFP8 where the hybrid says NVFP4")
        self.target_share = _DECODER_SHARE if self.model.structure == "encoder-decoder" else 1.0
        if self.target_share != 1.0:
            self.inferred.append("decoder length a quarter of the encoder's")
        self.shape = training_shape(self.model, self.target_share)
        self.stack = read_stack(row, self.hardware, self.inferred)
        known = recipe(self.stack.name, self.model.metadata.key or "", key_of(self.hardware), read_release(row))
        self.recipe = known or Recipe("", (), "")
        if self.recipe.stack:
            self.stack = stack(self.recipe.stack)
        family = self.stack.name.partition("-")[0]
        self.gradients: str | None = _WORDS["gradients"].get(family)
        self.wide_layers: int | None = _WORDS["wide_layers"].get(family) if self.precision == "nvfp4" else None
        self.adapter, self.power_cap = read_cluster(row)
        self.zero = read_zero(row, self.stack)
        self._read_layout(notes)
        self._read_recompute(label)

    def _read_layout(self, notes: str) -> None:
        row, known = self.row, self.recipe
        tp, pp = whole(row, "tp"), whole(row, "pp")
        self.cp, self.ep = whole(row, "cp") or 1, whole(row, "ep") or 1
        if (tp is None or pp is None) and known.tp is not None:
            tp, pp = tp or known.tp, pp or known.pp
            self.inferred.append(f"TP {tp}, PP {pp} by the published recipe")
        if tp is None or pp is None:
            tp, pp = self._infer_layout(tp, pp)
            self.inferred.append(f"layout TP {tp}, PP {pp}")
        self.tp, self.pp, self.dp = tp, pp, max(self.accelerators // (tp * pp * self.cp), 1)
        batch, virtual, micro = (whole(row, name) for name in ("global_batch", "virtual_stages", "microbatch"))
        if batch is None:
            batch = known.global_batch or _GLOBAL_SEQUENCES
            self.inferred.append(f"global batch {batch} sequences")
        if virtual is None:
            virtual = 1
            if pp > 1:
                # One for each layer, or two of an interleaved schedule.
                chunks = max(int(-(-self.shape.layers // pp)), 1) if self.stack.virtual_stages == "layer" else 0
                virtual = known.virtual_stages or chunks or (2 if "Interleaved" in notes else 1)
                self.inferred.append(f"{virtual} virtual stages")
        self.batch, self.virtual_stages = batch, virtual
        self.local_batch = max(batch / self.dp, 1.0)
        self.micro_batch: float = micro or 0.0
        if micro is None and known.micro_batch is not None:
            self.micro_batch = min(known.micro_batch, self.local_batch)
            self.inferred.append(f"micro-batch {self.micro_batch} by the published recipe")
        elif micro is None:
            self.micro_batch = max(min(self.local_batch, _MICRO_TOKENS // self.seq_len), 1)
            if pp > 1:
                titan = self.stack.name.startswith("titan")
                self.micro_batch = max(self.local_batch / (pp * virtual), 1.0) if titan else 1
            self.inferred.append(f"micro-batch {self.micro_batch}")

    def _infer_layout(self, tp: int | None, pp: int | None) -> tuple[int, int]:
        """The smallest tensor-parallel degree up to 8, then the fewest stages, whose state fills at most 55 % of memory."""
        if self.zero >= 3:
            return tp or 1, pp or 1
        shape = self.shape
        parameters = shape.dense_parameters + shape.embedding + shape.expert_parameters
        choices = [(t, p) for p in (1, 2, 4, 8, 16, 32, 64) for t in (1, 2, 4, 8)]
        choices = [(t, p) for t, p in choices if (p == 1 or t == 8) and t * p <= self.accelerators]
        choices = [(t, p) for t, p in choices if tp in (None, t) and pp in (None, p)] or [(tp or 1, pp or 1)]
        for t, p in choices:
            dp = max(self.accelerators // (t * p), 1)
            state = parameters / (t * p) * (2 + self.stack.gradient_bytes + 12 / (dp if self.zero else 1))
            if state < _STATE_SHARE * to_si(self.hardware.memory.capacity, "byte"):
                return t, p
        return choices[-1]

    def _read_recompute(self, label: str) -> None:
        mode, known, software = read_recompute(label, self.stack), self.recipe, self.stack
        self.sequence_parallel = known.sequence_parallel
        if "seqpar" in label:
            self.sequence_parallel = "no seqpar" not in label
        elif mode == "none" and "memory" in cell(self.row, "reported_metric"):
            # Tables of memory count savings against tensor parallelism alone.
            self.sequence_parallel = False
        if software.name == "megatron22" and mode == "full":
            self.sequence_parallel = False
        if mode is None and known.recompute:
            mode = known.recompute
            self.inferred.append(f"recompute {mode} by the published recipe")
        elif mode is None:
            mode = self._infer_recompute()
            self.inferred.append(f"recompute {mode}")
        self.recompute = mode

    def _infer_recompute(self) -> str:
        """What a stack recomputes when nobody says: its default, or the least that makes the state fit."""
        software, k = self.stack, constants()
        if software.recompute_in_pipeline and self.pp > 1:
            return software.recompute_in_pipeline
        if software.recompute != "fit":
            return software.recompute
        room = k.usable_memory * to_si(self.hardware.memory.capacity, "byte") - k.state_bytes_reserve
        return "none" if self._state_and_activations() < room else "modules"

    def _state_and_activations(self) -> float:
        """Bytes on the fullest device without recomputation: 16-bit weights, fp32 gradients, sharded Adam, activations."""
        shape, gradient = self.shape, self.stack.gradient_bytes
        dense = (shape.dense_parameters + shape.embedding) / (self.tp * self.pp)
        experts = shape.expert_parameters / (self.ep * self.pp)
        group = self.dp * self.cp
        expert_group = max(group * self.tp / self.ep, 1.0)
        weights = 2 + gradient if self.zero < 3 else (2 + gradient) / group
        state = dense * (weights + 12 / group) + experts * (weights + 12 / expert_group)
        count = max(self.local_batch / self.micro_batch, 1.0)
        flight = min(self.pp + (self.pp - 1) / self.virtual_stages, count)
        tokens = self.micro_batch * self.seq_len / self.cp
        return float(state + 2 * tokens * self.model.stack.saved.total / self.tp * shape.layers / self.pp * flight)


def whole(row: Mapping[str, str], name: str) -> int | None:
    """A whole number of a row, or None where it is not given."""
    return int(number(row, name)) if cell(row, name) else None


def read_precision(label: str) -> str:
    """The arithmetic behind a label such as amp_bf16, FP8-CS, MXFP8 or NVFP4; unknown labels are refused."""
    folded = re.sub(r"[^a-z0-9]", "", label.lower()).removeprefix("amp")
    for prefix, name in _WORDS["precisions"].items():
        if folded.startswith(prefix):
            return str(name)
    raise Skipped(f"the precision {label!r} is unknown" if label else "no precision is given")


def read_dimensions(row: Mapping[str, str]) -> dict[str, Any]:
    """The row's dimensions where they differ from the zoo's; all of them where the zoo does not have the model."""
    fields = _WORDS["dimensions"]
    given: dict[str, Any] = {field: value for name, field in fields.items() if (value := whole(row, name))}
    known: Any = Models.get(row["model"], None)
    if known is not None and not isinstance(known, TransformerWorkload):
        raise Skipped(f"{row['model']} is not a transformer")
    if known is None:
        missing = [label for label in ("layers", "hidden", "heads") if fields[label] not in given]
        if missing or ("ffn_dim" not in given and "parameters" not in given):
            lacking = ", ".join(missing) or "ffn"
            raise Skipped(f"the model {row['model']!r} is not in the zoo and its row lacks {lacking}")
        if "ffn_dim" in given:
            given.pop("parameters", None)
        return {**given, "gated_ffn": given.get("ffn_dim", 0) < 4 * given["hidden_dim"]}
    given.pop("parameters", None)
    if experts_of(known) > 1:
        # Rows give the width of one expert, or of the dense layers, in the same column.
        given.pop("ffn_dim", None)
    if given.get("kv_heads") == known.heads:
        del given["kv_heads"]
    return {field: value for field, value in given.items() if value != getattr(known, field, None)}


def read_stack(row: Mapping[str, str], chip: HardwareNode, inferred: list[str]) -> Stack:
    """The software of a row, by the name of its source; for an unknown source the nearest in time."""
    source, notes = cell(row, "source"), cell(row, "notes")
    found = stack_of_source(source)
    if found is None:
        year = _year(source + " " + notes) or (chip.release_year or 2023) + 1
        sharded = cell(row, "zero_stage").startswith(("3", "FSDP")) and (cell(row, "tp") or "1") == "1"
        found = nearest_stack(year, sharded)
        inferred.append(f"stack {found.name} by the year {year}")
    if found.name == "titan" and "no torch.compile" not in notes and re.search("compile|float8|AsyncTP", notes):
        found = stack("titanc")
    return found


def read_release(row: Mapping[str, str]) -> float:
    """The release in a source's name as a number: 26.04.01 is 26.0401."""
    found = re.search(r"(\d\d)\.(\d\d)(?:\.(\d\d))?", cell(row, "source"))
    return float(f"{found[1]}.{found[2]}{found[3] or ''}") if found else 0.0


def _year(text: str) -> int | None:
    paper = re.search(r"arXiv:? ?(\d\d)\d\d\.\d{4,5}", text)
    plain = re.search(r"\b20([12]\d)\b", text)
    found = paper or plain
    return 2000 + int(found[1]) if found else None


def read_cluster(row: Mapping[str, str]) -> tuple[float | None, float | None]:
    """Network adapter (bit/s per accelerator) and power cap (W), where the row states them."""
    notes = cell(row, "notes")
    found = re.search(r"(\d+)\s*Gb/s RDMA per GPU|RoCE (\d+)G|\dx[HN]DR(\d+)", notes)
    adapter = float(found[found.lastindex or 0]) * 1e9 if found else None
    cap = re.search(r"-(\d{3,4})W\b", cell(row, "gpu")) or re.search(r"\b(\d{3,4}) ?W cap", notes)
    return adapter, float(cap[1]) if cap else None


@lru_cache(maxsize=64)
def hardware_of(label: str) -> HardwareNode:
    """The accelerator of a row, with or without its power limit in its name."""
    found: HardwareNode | None = Hardware.get(label, None) or Hardware.get(re.sub(r"-\d{3,4}W$", "", label), None)
    if found is None:
        raise Skipped(f"the accelerator {label!r} is unknown")
    return found


def read_zero(row: Mapping[str, str], software: Stack) -> int:
    """The ZeRO stage: the digit in the label, or the stack's habit."""
    label = cell(row, "zero_stage")
    digit = re.search(r"[0-3]", label)
    if label and digit is None:
        if "fsdp" in label.lower():
            return 3
        raise Skipped(f"the ZeRO stage {label!r} is unknown")
    return int(digit[0]) if digit else software.zero


def read_recompute(label: str, software: Stack) -> str | None:
    """What is recomputed, or None where the row does not say."""
    mode = next((mode for mode in ("full", "selective", "none") if label.lower().startswith(mode)), None)
    if label and mode is None:
        raise Skipped(f"the recompute mode {label!r} is unknown")
    return software.recompute if mode == "selective" and software.recompute in ("half", "modules") else mode
