"""Published training runs, each asked as a training plan: rates, step times, utilisation and memory.

What the row does not give is inferred in :mod:`mlsysim.calibrate.training_rows`. A plan's layout has to divide: where a batch is no
whole number of micro-batches on every replica, the nearest one that is stands in for it, and this is listed. Rows that print
utilisation or operations a second count operations as their source does; the factor is in the plan's description.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlsysim.calibrate.cells import cell, chip_of, format_of, key_of
from mlsysim.calibrate.cells import measured as value_of
from mlsysim.calibrate.cells import whole_or_none as whole
from mlsysim.calibrate.questions import Excluded, Question, Skipped, answer_to, calibrated_plan, whole_nodes
from mlsysim.calibrate.training_cells import read_metric
from mlsysim.calibrate.training_rows import GUESSED, Run
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.keeping import TEXTBOOK
from mlsysim.models.registry import Models
from mlsysim.models.training_shape import training_regime
from mlsysim.physics.precision import bytes_per_element, recipe_of
from mlsysim.plans.plan import Plan
from mlsysim.plans.training import trained
from mlsysim.timing.runtimes import regime_of, runtime_for
from mlsysim.timing.stacks import contemporary
from mlsysim.timing.training_chip import constants, training_chip
from mlsysim.units.registry import to_si

COLUMNS = ("model", "seq", "n_gpus", "tp", "pp", "microbatch", "global_batch", "recompute", "reported_metric", "value")

_NOT_MEASURED = ("chinchilla_optimal_params", "mfu_range")
_CAUSAL_SOURCES = ("llama3", "llama-3")
_NODE = 8
"""Ranks that share the optimizer of packed encoders: distributed LAMB scatters inside a node, and sums over nodes."""
_ADAPTER_RANK = 16
"""Of adapters where a row trains them and does not say it: that of MLPerf."""


def read(row: Mapping[str, str]) -> list[Question]:
    """What to ask for a row."""
    metric = read_metric(row)
    if metric in _NOT_MEASURED or cell(row, "source").startswith("seed"):
        raise Excluded("not a measurement")
    if metric == "time_to_train":
        raise Excluded("a time to train includes convergence, which is not a property of the system")
    measured = value_of(row)
    model = Models.get(row["model"], None)
    if model is not None and model.fixed_shape:
        return [_network(row, model, measured)]
    run = Run(row)
    plan, inferred = _fitting(run)
    asked, unit, factor = _memory(plan, metric) if "memory" in metric else _asked(run, plan, metric)
    regime = "training memory" if "memory" in metric else _regime(run)
    known = training_chip(run.hardware, run.precision).measured(plan.hardware.stack or "")
    guessed = sum(text.startswith(GUESSED) for text in run.inferred)
    foreign = any(text.startswith("stack") for text in run.inferred) and not cell(row, "source").startswith("mlperf")
    others = tuple(plan.replacing(hardware={"stack": name}) for name in contemporary(run.stack)) if foreign else ()
    return [
        Question(metric, measured, plan, asked, unit, factor, regime, known, tuple(inferred), guessed, others=others)
    ]


def _fitting(run: Run) -> tuple[Plan, list[str]]:
    """The plan of a run, which ran: a micro-batch that does not fit gives way to a smaller one, where it was a guess or a recipe has one."""
    while True:
        inferred = list(run.inferred)
        plan = plan_of(run, inferred)
        if run.smaller is None or trained(plan).step.feasible:
            return plan, inferred
        run.cut()


def _network(row: Mapping[str, str], model: Workload, measured: float) -> Question:
    """A step of data parallelism of a network of fixed shape. These benchmarks fuse their operators and capture them in a graph."""
    pixels = re.search(r"(\d+)x\1\b", cell(row, "notes"))
    own = getattr(model, "resolution", None)
    if pixels and own and int(pixels[1]) != own:
        scaled = Models.get(f"{key_of(model)}_{pixels[1]}", None)
        if scaled is None:
            raise Skipped(f"{model.name} is known for {own} pixels, and the run's images have {pixels[1]}")
        model = scaled
    chip, devices, batch = chip_of(cell(row, "gpu")), whole(row, "n_gpus"), whole(row, "global_batch")
    if not devices or not batch or read_metric(row) != "samples_per_s":
        raise Skipped("a network needs its accelerators, its batch and its samples a second")
    on = whole_nodes(devices, key_of(chip))
    ranks, each = int(on.partition("x")[0]), max(1, batch // devices)
    plan = calibrated_plan(
        "training",
        key_of(model),
        on,
        stack=None if model.looks_up else "mlperf",
        # These recommenders keep one state (Adagrad), these networks a momentum or what AdamW keeps.
        optimizer="momentum" if model.looks_up else None,
        batch_size=each * ranks,
        precision=format_of(cell(row, "precision") or ("bf16" if chip.compute.supports("bf16") else "fp16")),
        # Software shares the optimizer's state where it would not fit beside weights and gradients.
        parallelism={"tp": 1, "micro_batches": 1, "zero": None if _fits_whole(model, chip) else 1},
    )
    regime = "recommender training"
    if not model.looks_up:
        regime = regime_of(runtime_for(model, "training", "mlperf")[1], chip)
    return Question(
        "samples_per_s", measured, plan, "tokens_per_second", "1/s", devices / ranks, regime, True, ("bf16", "software")
    )


def _fleet(run: Run, devices: int) -> str:
    """The fleet of a run, in nodes of so many where the name of the system says it (8xR750-2xA100-PCIe-80GB)."""
    said = re.search(r"\b(\d+)x[A-Za-z]\w*?[x-](\d+)x?[A-Z]", cell(run.row, "notes"))
    nodes = f"{said[1]}x{said[2]}" if said and int(said[1]) * int(said[2]) == devices else f"{devices}"
    return f"{nodes}x{key_of(run.hardware)}"


def _fits_whole(model: Workload, chip: HardwareNode) -> bool:
    """Weights, gradients and the state of Adam on one device; of a recommender the tables are spread anyway."""
    state = TEXTBOOK.bytes_each("adam", bytes_per_element("bf16"), model)
    return model.looks_up or sum(state) * model.parameter_count < to_si(chip.memory.capacity, "byte")


def _regime(run: Run) -> str:
    # Encoders are small, and split over data alone.
    guessed = run.shape.causal and any(text.startswith(("layout", "stack")) for text in run.inferred)
    return training_regime(run.shape, run.frozen) + (", layout inferred" if guessed else "")


def plan_of(run: Run, inferred: list[str]) -> Plan:
    """The training plan that a run is."""
    known = run.recipe
    devices = run.dp * run.tp * run.pp * run.cp
    if devices != run.accelerators:
        inferred.append(f"{devices} accelerators, which the layout divides")
    micro = max(1, round(run.micro_batch))
    count = max(1, round(run.local_batch / micro))
    batch = run.dp * micro * count
    if batch != run.batch:
        inferred.append(f"{batch} sequences a step, which the layout divides")
    plain = run.recompute in ("none", "full")
    # Submitters to MLPerf tune adapters with attention, and what SwiGLU reads, in fp8 (FP8_DPA and FP8_ACTIVATION in config_common.sh, v4.1 and v5.0).
    tuned = run.frozen and recipe_of(run.precision).narrow and run.row["source"].startswith("mlperf")
    parts = None if plain else run.recompute
    return calibrated_plan(
        "training",
        run.row["model"] if run.dimensions else key_of(run.model),
        _fleet(run, devices),
        stack=run.stack.name,
        batch_size=batch,
        seq_len=run.seq_len,
        precision=run.precision,
        lora_rank=_rank(run) if run.frozen else None,
        predicted_tokens=known.predicted_tokens or None,
        gradient_precision=None if run.frozen else run.gradients,
        activation_precision="fp8" if tuned else None,
        wide_layers=run.wide_layers,
        target_share=run.target_share if run.target_share != 1 else None,
        dimensions=run.dimensions or None,
        hardware={
            "power_cap": None if run.power_cap is None else f"{run.power_cap!r} W",
            "chip": None if run.adapter is None else {"fabric_bandwidth": f"{run.adapter / 1e9!r} Gbps"},
        },
        parallelism={
            "tp": run.tp,
            "pp": run.pp,
            **{name: n for name in ("cp", "ep", "virtual_stages") if (n := getattr(run, name)) > 1},
            "micro_batch": micro,
            "zero": run.zero,
            "zero_shard": _NODE if run.pack > 1 and run.dp > _NODE and run.dp % _NODE == 0 else None,
            "offload_activations": 1.0
            if "offloaded" in cell(run.row, "recompute")
            else (run.zero >= 3 and known.offloaded_layers / run.shape.layers) or None,
            "recompute": run.recompute if plain else "selective",
            "recomputed": parts,
            "sequence_parallel": run.sequence_parallel,
            "fp8_attention": known.fp8_attention or tuned or None,
            "deduplicated_exchange": None if known.deduplicated else False,
            "overlap_ep": 1 - constants().overlapped_exchange if known.exchange_overlapped else None,
        },
    )


def _asked(run: Run, plan: Plan, metric: str) -> tuple[str, str, float]:
    """Metric of the answer, its unit, and the factor to the row's."""
    unit = cell(run.row, "unit")
    batch, devices = plan.workload.batch_size or 1, run.dp * run.tp * run.pp * run.cp
    each = 1.0 / devices
    if metric in ("iteration_time", "step_time"):
        told = unit or cell(run.row, "reported_metric")
        milliseconds = re.search(r"(?<![a-z])ms(?![a-z])", told.lower().replace("_", " ")) is not None
        return "latency", "s", (1e3 if milliseconds else 1.0) * run.batch / batch
    if metric == "gpu_hours_per_trillion_tokens":
        return "latency", "s", 1e12 / (batch * run.seq_len) * devices / 3600
    factors = {
        "tokens_per_s_per_gpu": each,
        "tokens_per_s": run.accelerators / devices,
        "samples_per_s": 1.0 / run.seq_len,
        "steps_per_s": 1.0 / (run.batch * run.seq_len),
        "samples_per_s_per_gpu": each / run.seq_len,
    }
    if metric in factors:
        return "tokens_per_second", "1/s", factors[metric]
    causal = any(part in cell(run.row, "source").lower() for part in _CAUSAL_SOURCES)
    counted = run.recompute if metric.startswith("h") else "none"
    operations = run.shape.operations_per_token(run.seq_len, causal, counted)
    if metric.endswith("tflops_per_gpu"):
        return "tokens_per_second", "1/s", operations * each / 1e12
    if metric in ("mfu", "hfu"):
        chip = run.hardware
        peak, _ = arithmetic_peak(chip, "bf16" if chip.compute.supports("bf16") else chip.compute.headline)
        # More than a whole is per cent, said or not.
        return (
            "tokens_per_second",
            "1/s",
            operations * each / peak * (100.0 if "%" in unit or value_of(run.row) > 1.5 else 1.0),
        )
    raise Skipped(f"the metric {metric!r} is unknown")


def _memory(plan: Plan, metric: str) -> tuple[str, str, float]:
    """Published tables of memory count the parts of a device in GiB, or activations against plain tensor parallelism."""
    if metric == "activation_memory_pct_of_tp_baseline":
        baseline = plan.replacing(parallelism={"recompute": "none", "recomputed": None, "sequence_parallel": False})
        kept: Any = answer_to(baseline).value("activations")
        return "activations", "GB", 100e9 / to_si(kept, "byte")
    asked = {"memory_activations": "activations", "memory_params_grads_optimizer": "model_state"}.get(metric)
    if asked is None:
        raise Skipped(f"the metric {metric!r} is unknown")
    return asked, "GB", 1e9 / 2**30


def _rank(run: Run) -> int:
    """The rank of adapters that a row's notes say."""
    said = re.search(r"\brank(?: of)? (\d+)\b", cell(run.row, "notes"))
    return int(said[1]) if said else _ADAPTER_RANK
