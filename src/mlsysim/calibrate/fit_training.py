"""Fits the constants of training stacks and of chips in training on published runs.

A folder holds ``training.csv``, ``training_mlperf.csv``, ``training_mlperf_other.csv`` (encoders alone) and ``training_tpu.csv``. A row becomes a plan,
and the case that the plan's answer reads is asked for arrays of candidate constants (:mod:`mlsysim.calibrate.posterior`). Constants are those of
every run, of a stack, or of a chip; never of a source, a model or a row. Priors with their sources are in ``data/fits.toml``. Left out in turn, each
from the priors: every chip, model, source and stack, a stack's runs of a kind in a format, and a fourth of the rows, of which all these are seen.

Written to ``data/software/training_constants.toml``, which lies over ``training.toml`` and ``stacks.toml``: each constant with its standard error (a
factor) and its range over the fits that leave something out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.calibrate.cells import cell, key_of
from mlsysim.calibrate.fitting import line, stated, table_of
from mlsysim.calibrate.measurements import published, table_rows
from mlsysim.calibrate.posterior import Posterior, Prior, Row, posterior, together
from mlsysim.calibrate.questions import Excluded, Question, Skipped
from mlsysim.calibrate.residuals import FORMAT, PART, Residual
from mlsysim.calibrate.tables import TABLES
from mlsysim.cases.job import Job
from mlsysim.cases.trainer import Software
from mlsysim.cases.training import Training
from mlsysim.errors import InputError, MLSysError
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.precision import recipe_of
from mlsysim.plans.training import trained
from mlsysim.timing.profile import classes, origin
from mlsysim.timing.stacks import owner_of
from mlsysim.units.records import dataclass

FILES = ("training.csv", "training_mlperf.csv", "training_mlperf_other.csv", "training_tpu.csv")
SHIPPED = Path(str(files("mlsysim.data"))) / "software" / "training_constants.toml"
OWN_TABLE = "own"
OWN = Path(str(files("mlsysim.calibrate"))) / "data" / "h200_transformers.csv"
FREE: dict[str, Any] = table_of("training")
"""Prior of each constant: median, spread of its logarithm, source, and the most it can be."""
_SPREAD, _FEWEST, _PARTS = 0.08, 4, 4
"""Spread of a step's time, rows of a group that leaves alone, and parts that settings are left out by."""
_KINDS = ("chip", "model", "source", "software", FORMAT)
_OVERLAPS = {
    "tensor_exposed": ("overlap_tp", ("tensor",)),
    "exchange_exposed": ("overlap_ep", ("expert",)),
    "kappa": ("overlap_efficiency", ("data", "data_room", "gathers", "context", "context_room")),
}
"""What a stack hides: the key of a plan that says otherwise, and the shares of :class:`~mlsysim.cases.job.Overlap` that it is."""


@dataclass(frozen=True, slots=True)
class Run:
    """A row as the case that its answer reads, and the constants that it depends on."""

    table: str
    row: str
    source: str
    question: Question
    asked: Training
    moved: tuple[str, ...]

    @property
    def trained(self) -> Software:
        found = self.asked.trainer.software
        assert isinstance(found, Software)
        return found

    @property
    def model(self) -> str:
        return self.question.plan.workload.model or ""

    @property
    def hardware(self) -> HardwareNode:
        assert self.asked.trainer.chip is not None
        return self.asked.trainer.chip

    @property
    def chip(self) -> str:
        return key_of(self.hardware)

    @property
    def software(self) -> str:
        return self.trained.stack.name

    @property
    def format(self) -> str:
        """The stack's runs of this kind in a format."""
        return f"{self.question.regime.partition(', ')[0]} {self.software} {self.trained.chip.bits}"

    def predicted(self, constants: Mapping[str, Any], _: Sequence[Any] = ()) -> list[Any]:
        """The row's metric under candidate constants."""
        software, job = self.trained, self.asked.job
        for path in self.moved:
            software, job = _moved(software, job, path.split("."), _bounded(path, constants[path]), self)
        found = self.asked.under(software, job)
        asked = found.step.seconds if self.question.asked == "latency" else found.tokens_per_second
        return [asked * self.question.factor]


def _bounded(path: str, value: Any) -> Any:
    return np.minimum(value, FREE[path][3]) if len(FREE[path]) > 3 else value


def _moved(software: Software, job: Job, path: list[str], value: Any, run: Run) -> tuple[Software, Job]:
    """The case with another value of one constant."""
    kind, name, chip, stack = path[0], path[-1], software.chip, software.stack
    if kind == "stacks":
        key, shares = _OVERLAPS.get(name, ("", ()))
        if shares and getattr(run.question.plan.parallelism, key, None) is None:
            hidden = {share: 1 - value for share in shares if share != "data" or stack.data_overlap}
            job = replace(job, overlap=replace(job.overlap, **hidden))
        return replace(software, stack=replace(stack, **{name: value})), job
    if path[1] == "constants":
        if name == "block_scale_cost":
            chip = replace(chip, converts=value)
        elif name == "overlapped_exchange":
            job = replace(job, overlap=replace(job.overlap, expert=1 - value))
        found = replace(software.constants, **{name: value})
        return replace(software, chip=chip, constants=found), job
    kernels, (part, *_) = chip.kernels, path[4:]
    rates: dict[str, Any] = {}
    if part == "gemm":
        half, own = kernels.gemm_for("bf16"), run.trained.chip.product
        if name == "quantise_share":
            rates["product"] = chip.product.model_copy(update={name: value})
        elif path[5] in ("every", "bf16"):
            rates["half_rate"] = chip.half_rate * value / getattr(half, name)
        if name != "quantise_share" and (path[5] == "every" or own is kernels.gemm.get(path[5])):
            rates["product_rate"] = chip.product_rate * value / getattr(own, name)
    elif part == "attention":
        if name == "rate_share":
            rates["attention_rate"] = chip.attention_rate * value / kernels.attention.rate_share
        attention = kernels.attention.model_copy(update={name: value})
        rates["kernels"] = kernels.model_copy(update={"attention": attention})
    else:
        scan = {"any": kernels.scans["any"].model_copy(update={name: value})}
        rates["kernels"] = kernels.model_copy(update={"scans": scan})
    return replace(software, chip=replace(chip, **rates)), job


def _touches(path: list[str], run: Run) -> bool:
    """Whether a constant is one of this row's."""
    name, software, job = path[-1], run.trained, run.asked.job
    if path[0] == "stacks":
        return owner_of(software.stack.name, name, FREE) == path[1]
    chip, kinds = software.chip, software.shape.kinds
    if path[1] == "constants":
        block = chip.converts and recipe_of(job.precision, software.stack.name).conversion == "block"
        overlapped = run.question.plan.parallelism.overlap_ep is not None
        others = {"block_scale_cost": bool(block), "overlapped_exchange": overlapped, "scale_loss": True}
        return others.get(name, any(each.experts for each in kinds))
    if path[4] == "gemm" and path[5] not in ("every", "bf16") and chip.product is not chip.kernels.gemm.get(path[5]):
        return False
    kernel = software.stack.attention
    asked = {"quantise_share": bool(chip.converts), "flash1": kernel == "fa1", "triton": kernel == "triton"}
    if not asked.get(name, path[4] != "scans" or any(each.scan for each in kinds)):
        return False
    if path[3] == "every":
        return True
    named = [name for name in classes(run.hardware) if ".".join([*path[:3], name, *path[4:]]) in FREE]
    if named:
        return named[0] == path[3]
    constant = ".".join(path[4:]).replace("every", "bf16")
    return origin(run.hardware, constant, "training") == f"training, {path[3]}"


def run_of(table: str, row: Mapping[str, str]) -> Run | None:
    """A row as the case that its answer reads; None where no stack trains it, or no time was measured."""
    (question,) = TABLES["training"].questions(row)
    if question.asked not in ("latency", "tokens_per_second"):
        return None
    try:
        asked = trained(question.plan).step.named("asked")
    except MLSysError as error:
        raise Skipped(str(error)) from None
    if not isinstance(asked.trainer.software, Software):
        return None
    source = re.sub(r"-\d\d\.\d\d.*$|(?<=mlperf-training-\d\.\d)-.*$", "", cell(row, "source"))
    found = Run(table, row["id"], source, question, asked, ())
    return replace(found, moved=tuple(path for path in FREE if _touches(path.split("."), found)))


def runs(folder: Path) -> list[Run]:
    """All rows of a folder that are steps of a stack, and our own of Transformers, whose adapters are beside other matrices than a plan's."""
    found = []
    for file, path in ((file, published(folder) / file) for file in FILES):
        for row in table_rows(path) if path.exists() else ():
            with suppress(Skipped, Excluded):
                run = run_of(file.removesuffix(".csv"), row)
                if run is not None and ("other" not in file or run.software == "captured"):
                    found.append(run)
    own = (run_of(OWN_TABLE, row) for row in table_rows(OWN) if found and "LoRA" not in row["notes"])
    return [*found, *(run for run in own if run is not None)]


def masks(own: Sequence[Run]) -> dict[str, Any]:
    """Rows that are left out together."""
    return together(own, _KINDS, _PARTS, _FEWEST)


def fit(own: Sequence[Run], left: Mapping[str, Any]) -> Posterior:
    """The constants, and those of every fit that leaves something out. A model on a stack and a chip has the votes of 30 rows at most."""
    rows = [
        Row(f"{run.model} {run.software} {run.chip}", (run.question.measured,), (_SPREAD,), run.predicted)
        for run in own
    ]
    priors = {path: Prior(*values[:2]) for path, values in FREE.items()}
    return posterior(rows, priors, (), list(left.values()))


def residuals(own: Sequence[Run], found: Posterior, left: Mapping[str, Any]) -> Iterator[Residual]:
    """Errors where nothing was fitted on a row's chip, model, source, stack, format or settings. Our own rows are of one chip, source and stack: without
    these nothing is left of them but a prior, which says nothing of others'. A chip without runs lacks what an answer says that it lacks, and a stack or a
    format without which its chip has no runs lacks that too."""
    lost = {(what.split(" ")[0], i) for what, mask in left.items() for i in _without_chip(own, mask)}
    for i, kind, error in found.each_left_out(left):
        run, asked = own[i], own[i].question
        if run.table == OWN_TABLE and kind not in (PART, "model"):
            continue
        strange = run.trained.chip.unseen if (kind, i) in lost else ""
        # A format is no news of a chip without runs.
        kind = {"chip": strange, FORMAT: strange or FORMAT, "software": f"software {strange}".rstrip()}.get(kind, kind)
        chip = run.trained.chip.bits if kind == FORMAT else run.chip
        yield Residual(run.table, run.row, asked.metric, asked.regime, run.software, run.model, chip, kind, error)


def _without_chip(own: Sequence[Run], mask: Any) -> list[int]:
    """Rows that are left out, and every other row of their chip with them."""
    kept = {run.chip for run, out in zip(own, mask, strict=True) if not out}
    return [i for i, (run, out) in enumerate(zip(own, mask, strict=True)) if out and run.chip not in kept]


def speeds(own: Sequence[Run], errors: Any) -> Any:
    """Signed relative errors of speed."""
    return np.expm1(
        np.array([-e if run.question.asked == "latency" else e for run, e in zip(own, errors, strict=True)])
    )


def summary(own: Sequence[Run], found: Posterior, left: Mapping[str, Any]) -> Iterator[str]:
    """Errors in sample and left out by table, and the constants."""
    tables = np.array([run.table for run in own])
    for table in dict.fromkeys(tables.tolist()):
        mine = tables == table
        yield f"{table:22s} in sample    {line(speeds(own, found.errors[:, 0])[mine])}"
        for kind in (*_KINDS, "part"):
            yield f"{'':22s} {kind + ' out':12s} {line(speeds(own, found.outside(left, kind))[mine])}"
    for path, each in found.table().items():
        ends = f"{each['least']:.4g} to {each['most']:.4g}"
        prior = f"prior {FREE[path][0]:.4g} x/ {np.exp(FREE[path][1]):.2f}"
        yield f"  {path:56s} {each['value']:.4g} x/ {each['error']:.2f}, left out {ends}; {prior}"


def constants_of(found: Posterior) -> list[str]:
    """What is written: each constant at its path, with its standard error and its range."""
    lines = []
    for path, each in found.table().items():
        value, *ends = (float(_bounded(path, each[name])) for name in ("value", "least", "most"))
        *table, name = path.split(".")
        entry = f"{name} = {stated(value, each['error'], ends)}"
        lines.append((".".join(f'"{part}"' if "+" in part else part for part in table), entry))
    tables = dict.fromkeys(table for table, _ in lines)
    return [text for table in tables for text in (f"[{table}]", *(entry for own, entry in lines if own == table))]


_HEAD = """# Fitted constants of training, laid over training.toml and stacks.toml; written by `python -m mlsysim.calibrate FOLDER --only training`.
# error: the standard error as a factor; least, most: over the fits that leave a chip, a model, a source, a stack, its format or settings out."""


def write(folder: Path, out: Path | None = SHIPPED) -> list[Residual]:
    """Fit, print and write."""
    own = runs(folder)
    if not own:
        raise InputError(f"{folder} has no training runs ({', '.join(FILES)}).")
    left = masks(own)
    found = fit(own, left)
    print("\n".join(summary(own, found, left)), flush=True)
    if out is not None:
        out.write_text("\n".join([_HEAD, *constants_of(found)]) + "\n", encoding="utf-8")
    return list(residuals(own, found, left))
