"""What a row of a training table means: model, chip, software, layout and batch, and which settings it leaves to be inferred.

Settings that a row does not give follow the rules of ``docs/accuracy.md`` and are listed. The result is a :class:`Run`, from which
:mod:`mlsysim.calibrate.tables.training` makes a plan.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlsysim.calibrate.cells import cell, chip_of, experts_of, key_of
from mlsysim.calibrate.cells import whole_or_none as whole
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.questions import Skipped
from mlsysim.calibrate.training_cells import (
    UNPADDED,
    product_of,
    read_cluster,
    read_dimensions,
    read_metric,
    read_precision,
    read_recompute,
    read_release,
    read_stack,
    read_zero,
)
from mlsysim.cases.layout import divisors
from mlsysim.models.recompute import Formats, again
from mlsysim.models.registry import Models
from mlsysim.models.training_shape import training_shape
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import HALF
from mlsysim.plans.plan_parts import DimensionsPart, WorkloadPart
from mlsysim.plans.resolve import workload_of
from mlsysim.timing.stacks import Recipe, recipe, stack
from mlsysim.timing.training_chip import constants
from mlsysim.units.registry import to_si

_WORDS = settings("rows")["training"]
_GLOBAL_SEQUENCES = 2048
_MICRO_TOKENS = 16384
_STATE_SHARE = 0.55
_NODE = 8
_DECODER_SHARE = 0.25
_LONGEST = 8192
"""Tokens of a sequence where a row gives none and the model takes longer ones: what most pre-training uses."""
_EACH = ("_per_gpu", "mfu", "hfu")
"""How metrics end that hardly depend on how many accelerators there are."""
_HELD = 18.0
"""Bytes a parameter: 16-bit weights, gradients and Adam in 32 bits."""
GUESSED = ("layout", "stack", "products", "sequences")
"""How settings begin that no row of the table behind the intervals left open."""


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
        self.hardware = chip_of(cell(row, "gpu"))
        self.precision = read_precision(row, self.hardware, self.inferred)
        seq_len, accelerators = whole(row, "seq"), whole(row, "n_gpus") or product_of(row, "tp", "pp", "cp", "dp")
        self.pack = 1.0
        if seq_len and UNPADDED in notes:
            self.pack = 1 / _WORDS["unpadded"]
            seq_len = round(seq_len / self.pack)
            self.inferred.append(f"{seq_len} tokens of a sequence without its padding")
        if not seq_len:
            seq_len = min(self.model.max_context or _LONGEST, _LONGEST)
            self.inferred.append(f"sequences of {seq_len} tokens")
        self.seq_len, self.accelerators = seq_len, accelerators or 0
        if self.precision == "nvfp4" and any(kind.scan for kind in training_shape(self.model, 1.0).kinds):
            # Published hybrids keep mixers and latent projections in wider formats; MXFP8 and NVFP4 runs are equally fast.
            self.precision = "mxfp8"
            self.inferred.append("products in MXFP8 where the hybrid says NVFP4")
        self.target_share = _DECODER_SHARE if self.model.structure == "encoder-decoder" else 1.0
        if self.target_share != 1.0:
            self.inferred.append("decoder length a quarter of the encoder's")
        self.shape = training_shape(self.model, self.target_share)
        if not accelerators:
            self.accelerators = self._nodes()
            self.inferred.append(f"{self.accelerators} accelerators, the fewest nodes that hold it")
        self.stack = read_stack(row, self.hardware, self.model.release_year, self.inferred)
        # A model of other dimensions has the recipe of its own.
        named = Models.get(row["model"], self.model).metadata.key or ""
        known = recipe(self.stack.name, named, key_of(self.hardware), read_release(row))
        self.recipe = known or Recipe("", (), "")
        if self.recipe.stack:
            self.stack = stack(self.recipe.stack)
        family = self.stack.name.partition("-")[0]
        self.gradients: str | None = _WORDS["gradients"].get(family)
        self.wide_layers: int | None = _WORDS["wide_layers"].get(family) if self.precision == "nvfp4" else None
        self.adapter, self.power_cap = read_cluster(row)
        if self.adapter is None and self.recipe.adapter is not None:
            self.adapter = self.recipe.adapter * 1e9
            self.inferred.append(f"network of {self.recipe.adapter:g} Gb/s an accelerator by the published recipe")
        self.zero = read_zero(row, self.stack)
        if self.recipe.zero is not None and self.recipe.zero != self.zero:
            # Tables that do not print it have it assumed.
            self.zero = self.recipe.zero
            self.inferred.append(f"ZeRO {self.zero} by the published recipe")
        self._read_layout(notes)
        self._read_recompute(label)

    def _nodes(self) -> int:
        """Accelerators of the fewest nodes, doubled, that hold weights, gradients and Adam: what each of them does hardly depends on how many there are more."""
        if not read_metric(self.row).endswith(_EACH):
            raise Skipped("the number of accelerators is not given")
        shape, count = self.shape, _NODE
        held = (shape.dense_parameters + shape.embedding + shape.expert_parameters) * _HELD
        while held / count > _STATE_SHARE * to_si(self.hardware.memory.capacity, "byte"):
            count *= 2
        return count

    def _read_layout(self, notes: str) -> None:
        row, known = self.row, self.recipe
        tp, pp = whole(row, "tp"), whole(row, "pp")
        self.cp, self.ep = whole(row, "cp") or 1, whole(row, "ep") or 1
        if (tp is None or pp is None) and known.tp is not None:
            tp, pp = tp or known.tp, pp or known.pp
            self.inferred.append(f"TP {tp}, PP {pp} by the published recipe")
        if tp is None or pp is None:
            experts = experts_of(self.model) if self.zero < 3 and not cell(row, "ep") else 1
            tp, pp, self.ep = self._spread_experts(tp, pp, experts) or (*self._infer_layout(tp, pp), self.ep)
            self.inferred.append(f"layout TP {tp}, PP {pp}" + (f", EP {self.ep}" if experts > 1 else ""))
        batch, virtual, micro = (whole(row, name) for name in ("global_batch", "virtual_stages", "microbatch"))
        if known.pp is not None and self._impossible(tp, pp):
            tp, pp, virtual, micro = known.tp or 1, known.pp, known.virtual_stages, known.micro_batch
            self.inferred.append(f"TP {tp}, PP {pp} by the published recipe, as no device holds what the row says")
        self.tp, self.pp, self.dp = tp, pp, max(self.accelerators // (tp * pp * self.cp), 1)
        if batch is not None and "token" in cell(row, "global_batch").lower():
            batch = max(1, batch // self.seq_len)
        if batch is None:
            batch = known.global_batch or _GLOBAL_SEQUENCES
            self.inferred.append(f"global batch {batch} sequences")
        if virtual is None:
            virtual = 1
            if pp > 1:
                virtual = known.virtual_stages or self._virtual_stages(pp) or (2 if "Interleaved" in notes else 1)
                self.inferred.append(f"{virtual} virtual stages")
        self.batch, self.virtual_stages = batch, virtual
        self.local_batch = max(batch / self.dp, 1.0)
        self.micro_batch: float = min(self.pack * (micro or 0), self.local_batch)
        if micro is None and known.micro_batch is not None:
            self.micro_batch = min(known.micro_batch, self.local_batch)
            self.inferred.append(f"micro-batch {self.micro_batch} by the published recipe")
        elif micro is None:
            # Each micro-step of sharded weights gathers them all, so that frameworks take one of all sequences that fit.
            most = self.local_batch if self.zero >= 3 else _MICRO_TOKENS // self.seq_len
            self.micro_batch = max(min(self.local_batch, most), 1)
            if pp > 1:
                titan = self.stack.name.startswith("titan")
                self.micro_batch = max(self.local_batch / (pp * virtual), 1.0) if titan else 1
            self.inferred.append(f"micro-batch {self.micro_batch}")

    @property
    def smaller(self) -> float | None:
        """The micro-batch to take where this one does not fit: the published recipe's, or half of a guess; None where there is none."""
        known, own = self.recipe.micro_batch, self.micro_batch
        if known is not None and known < own:
            return known
        return max(own // 2, 1) if f"micro-batch {own}" in self.inferred and own > 1 else None

    def cut(self) -> None:
        """Take it."""
        guess, found = f"micro-batch {self.micro_batch}", self.smaller
        assert found is not None
        if guess in self.inferred:
            self.inferred[self.inferred.index(guess)] = f"micro-batch {found}"
        else:
            self.inferred.append(f"micro-batch {found} by the published recipe, as no device holds what the row says")
        self.micro_batch = found

    def _impossible(self, tp: int, pp: int) -> bool:
        """Whether 16-bit weights and gradients alone are more than a device has: a table's line with the layout of another."""
        shape = self.shape
        held = (shape.dense_parameters + shape.embedding) / tp + shape.expert_parameters / max(self.ep, tp)
        trained = 0.0 if self.frozen else self.stack.gradient_bytes
        return self.zero < 2 and held / pp * (2 + trained) > to_si(self.hardware.memory.capacity, "byte")

    def _virtual_stages(self, pp: int) -> int:
        """What the software's recipes interleave: a stage for each layer, or for each two; 0 where it is not said."""
        each = max(int(-(-self.shape.layers // pp)), 1)
        if self.stack.virtual_stages == "layer":
            return each
        return max(1, *divisors(each // 2)) if self.stack.virtual_stages == "pairs" and each % 2 == 0 else 0

    def _infer_layout(self, tp: int | None, pp: int | None) -> tuple[int, int]:
        """The smallest tensor-parallel degree of a node, then the fewest stages, whose state fills at most 55 % of memory. Degrees
        divide the accelerators, the heads and the layers."""
        if self.zero >= 3:
            return tp or 1, pp or 1
        shape, devices = self.shape, self.accelerators // self.cp
        parameters, experts = shape.dense_parameters + shape.embedding, shape.expert_parameters
        heads = int(self.model.heads or 1)
        wide = [t for t in divisors(devices) if t <= _NODE and heads % t == 0 and tp in (None, t)]
        deep = [p for p in divisors(devices) if p <= shape.layers and pp in (None, p)]
        choices = [(t, p) for p in deep for t in wide if devices % (t * p) == 0 and (p == 1 or t == wide[-1] or pp)]
        for t, p in choices:
            dp = devices // (t * p)
            trained = 0.0 if self.frozen else self.stack.gradient_bytes + 12 / (dp if self.zero else 1)
            state = (parameters / t + experts / max(self.ep, t)) / p * (2 + trained)
            if state < _STATE_SHARE * to_si(self.hardware.memory.capacity, "byte"):
                return t, p
        return choices[-1] if choices else (tp or 1, pp or 1)

    def _spread_experts(self, tp: int | None, pp: int | None, experts: int) -> tuple[int, int, int] | None:
        """TP, PP and EP of a mixture whose experts nobody says how they are split: as its frameworks advise, over as many devices as a host, or a rack
        with links throughout, has, with the least tensor parallelism and then the fewest stages that hold it."""
        if experts <= 1:
            return None
        shape, devices, link = self.shape, self.accelerators // self.cp, self.hardware.link
        near = max(_NODE, link.domain or 0) if link else _NODE
        heads, gradient = int(self.model.heads or 1), 0.0 if self.frozen else self.stack.gradient_bytes
        room = _STATE_SHARE * to_si(self.hardware.memory.capacity, "byte")
        for t in (t for t in divisors(devices) if t <= _NODE and heads % t == 0 and tp in (None, t)):
            for p in (p for p in divisors(devices // t) if p <= shape.layers and pp in (None, p)):
                ranks = devices // p
                e = max(d for d in divisors(ranks) if d <= near and experts % d == 0)
                kept = 0.0 if self.frozen else 12.0
                dense = (shape.dense_parameters + shape.embedding) / (t * p) * (2 + gradient + kept / (ranks / t))
                mixed = shape.expert_parameters / (e * p) * (2 + gradient + kept / (ranks / e))
                if dense + mixed < room:
                    return t, p, e
        return None

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
        """What a stack recomputes when nobody says: its default, or the first of its ladder that fits."""
        software, k = self.stack, constants()
        if software.recompute_in_pipeline and self.pp > 1:
            return software.recompute_in_pipeline
        ladder = software.ladder or (("none", "modules") if software.recompute == "fit" else (software.recompute,))
        room = k.usable_memory * to_si(self.hardware.memory.capacity, "byte") - k.state_bytes_reserve
        return next((mode for mode in ladder if self._state_and_activations(mode) < room), ladder[-1])

    def _state_and_activations(self, mode: str) -> float:
        """Bytes on the fullest device: 16-bit weights, fp32 gradients, sharded Adam, and the activations that stay, in 16 bit."""
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
        each = sum(self.model.stack.saved.bytes(Formats(HALF, HALF, HALF), again(mode)))
        return float(state + tokens * each / self.tp * shape.layers / self.pp * flight)
