"""Passes and steps of vision networks on GPUs: every stack in one fit, so that what is of the chip is told from what is of the software.

    device = sum_j c_j x_j,   host = (n + c k) h,   t = | device, host |_p,   log c_j = sum_k L_jk theta_k

Each constant theta has a log-normal prior (``data/fits.toml``: ``vision_*``). A stack's coefficient is the eager one times its own factor, a byte's part of
the issue slots the coefficient times the operations of its class for each byte, so that chips with fast memory (A100, H200) and cards with slow memory
share both. The noise is Student's t and a table of rows counts as :data:`EFFECTIVE` rows at most, as in :mod:`mlsysim.calibrate.posterior`, whose steps
these are; the slopes of a sum are known, so rows are whole arrays here. Left-out fits start from the priors.

Rows: timm's tables, NVIDIA's DeepLearningExamples on one device, and our own H200 passes (``h200_vision``). The passes of ``mlsysim verify`` and of the
silicon tables (ResNet-50, ViT-B/16, MobileNetV3, EfficientNet-B0) are in no fit.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from mlsysim.calibrate.cells import chip_of
from mlsysim.calibrate.fitting import Columns, Keep, descend, forgotten, line, table_of
from mlsysim.calibrate.measurements import own_rows
from mlsysim.calibrate.questions import Skipped
from mlsysim.calibrate.residuals import PART, family
from mlsysim.calibrate.tables.vision import network_of, runtime_of_row
from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.counted import at_image_size, timm_network
from mlsysim.models.inventory import Inventory, inventory_of
from mlsysim.models.timm_counts import counted_sizes
from mlsysim.timing import vision_time
from mlsysim.timing.runtimes import regime_of, runtime_for
from mlsysim.units.records import dataclass

EFFECTIVE, FREEDOM, SPREAD = 200.0, 4.0, 0.1
_ROUNDS, _LARGEST, _GAIN = 80, 0.7, 1e-3
FOLDS = 4
SHARPNESS = 1.7
SEEN = 30
"""Rows of a stack that tell it apart from others."""
STACKS = (
    *("eager_nhwc", "eager_nchw", "eager_nhwc_16bit", "eager_nchw_16bit"),
    *("compiled", "train_nhwc", "train_nchw", "compiled_train", "mlperf_train"),
)
_NAMED = table_of("vision_stacks")
FACTORS, _LAUNCH, _HOW = (_NAMED[name] for name in ("made_of", "launched_as", "ours"))
"""What each stack's coefficients are made of, whose launches it has, and the stacks of our own passes."""
STATISTICS = "batch_norm_bytes"
"""What no compiler fuses in a step: its norms wait for sums over the batch, which a pass has as factors."""
GROUPS, OURS = ("device", "model", "source"), "ours"
SCALES = ("unfused", "mxnet", "tensorflow")
"""Factors on a few terms, of stacks that are otherwise like another."""


class Run(NamedTuple):
    """A measured pass or step."""

    source: str
    row: str
    model: str
    stack: str
    chip: HardwareNode
    inventory: Inventory
    batch: float
    precision: str
    seconds: float

    @property
    def chip_key(self) -> str:
        return self.chip.metadata.key or self.chip.name

    @property
    def about(self) -> tuple[str, ...]:
        """What a residual says of it."""
        regime = regime_of(self.stack, self.chip)
        return ("vision", self.row, "samples_per_s", regime, "", family(self.model), self.chip_key)

    @property
    def groups(self) -> dict[str, str]:
        """What it is left out with: its chip, in whatever size; networks whose names begin alike, by fold; its source."""
        stem = re.match(r"[a-z]*", self.model.lower())
        fold = zlib.crc32((stem[0] if stem else self.model).encode()) % FOLDS
        return dict(zip(GROUPS, (re.sub(r"_\d+GB$", "", self.chip_key), str(fold), self.source), strict=True))


def published(rows: Sequence[Mapping[str, str]]) -> Iterator[Run]:
    """Rows of ``vision.csv`` that ran on one GPU and whose operators are counted."""
    for row in rows:
        source, trained = row["source"], row["task"] == "train"
        known = source.startswith(("timm-", "nvidia-dle")) and row["metric"] == "samples_per_s"
        if not known or int(row["n_devices"] or 1) > 1:
            continue
        with suppress(Skipped, MLSysError):
            chip = chip_of(row["device"])
            if chip.family != "gpu":
                continue
            model, size = network_of(row["model"], row["img_size"])
            stack = runtime_for(model, "training" if trained else "inference", runtime_of_row(row))[1]
            found = inventory_of(model if size is None else at_image_size(model, size))
            batch = float(row["batch"] or 128)
            release = re.search(r"-(pt\d+)", source)
            name = f"timm {release[1]}" if release else source
            what = (chip, found, batch, row["precision"], batch / float(row["value"]))
            yield Run(name, row["id"], row["model"], stack, *what)


def ours() -> Iterator[Run]:
    """Passes of our own H200."""
    chip = Hardware.get("H200")
    for number, row in enumerate(own_rows("vision")):
        size = int(row["img_size"])
        if size in counted_sizes().get(row["model"], ()):
            stack, found = _HOW[row["task"] + row["how"]], timm_network(row["model"], size).inventory
            what = (chip, found, float(row["batch"]), "bf16", float(row["seconds"]))
            yield Run(OURS, f"H200-{number}", row["model"], stack, *what)


@dataclass(frozen=True, slots=True)
class Block:
    """Runs whose terms are the same: seconds at coefficients of one, the host's in the last two columns, and what the coefficients are made of."""

    runs: tuple[int, ...]
    terms: Any
    links: Any


class Priors(NamedTuple):
    """Names of the constants, the logarithms of their medians, and spreads."""

    names: tuple[str, ...]
    centre: Any
    width: Any


def priors() -> Priors:
    """Of every constant: eager coefficients, factors of stacks, intensities, launches."""
    found: dict[str, list[float]] = {name: table_of("vision_gpu")[name] for name in vision_time.TERMS}
    factors = table_of("vision_factors")
    for factor, own in factors.items():
        terms = own if factor in SCALES else vision_time.TERMS
        found |= {f"{factor}.{name}": own.get(name) or own["every"] for name in terms}
    for group in ("intensity", "strided", "launch"):
        found |= {f"{group}.{name}": value for name, value in table_of(f"vision_{group}").items()}
    medians, spreads = np.array([value[:2] for value in found.values()], dtype=float).T
    return Priors(tuple(found), np.log(medians), spreads)


def blocks(runs: Sequence[Run], known: Priors) -> list[Block]:
    """The runs by stack and by what their launches cost."""
    sorted_by: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, run in enumerate(runs):
        sorted_by[run.stack, vision_time.host_of(run.chip) or ""].append(i)
    found = []
    for (stack, host), members in sorted(sorted_by.items()):
        links = np.zeros((len(vision_time.TERMS) + len(vision_time.MOVED) + 2, len(known.names)))

        def link(row: int, *names: str, links: Any = links) -> None:
            for name in names:
                if name in known.names:
                    links[row, known.names.index(name)] += 1.0

        for j, term in enumerate(vision_time.TERMS):
            link(j, *_made_of(stack, term))
        for j, name in enumerate(vision_time.MOVED):
            row = len(vision_time.TERMS) + j
            links[row] = links[vision_time.TERMS.index(f"{name}_bytes")]
            kind = vision_time.INTENSITIES.get(name, "elementwise")
            link(row, f"intensity.{kind}", *([f"strided.{kind}"] if vision_time.STRIDED in stack else []))
        starting = (f"launch.{_LAUNCH.get(stack, stack)}", f"launch.{host}")
        link(len(links) - 2, *starting)
        link(len(links) - 1, *starting, "launch.cast")
        found.append(Block(tuple(members), np.array([_terms(runs[i]) for i in members]), links))
    return found


def _made_of(stack: str, term: str) -> list[str]:
    """The constants whose product is a stack's coefficient."""
    fused = term != STATISTICS or "train" not in stack
    # What a compiler has fused is not fused again by hand.
    left = ("compiled",) if not fused else ("mxnet",) if "compiled" in FACTORS[stack] else ()
    return [term, *(f"{factor}.{term}" for factor in FACTORS[stack] if factor not in left)]


def _terms(run: Run) -> list[float]:
    features = vision_time.gpu_features(run.inventory, run.chip, run.batch, run.precision, run.stack)
    issued = vision_time.issued_over_moved(run.chip)
    found = [run.batch * features[name] for name in vision_time.TERMS]
    found += [run.batch * features[f"{name}_bytes"] * issued for name in vision_time.MOVED]
    return [*found, *(count * 1e-6 for count in vision_time.launched(run.inventory, run.stack, run.precision))]


class Fitted(NamedTuple):
    """Logarithms of constants, those of predicted over measured, and the inverse of the curvature."""

    constants: Any
    errors: Any
    covariance: Any


def fit_links(parts: Sequence[Block], seconds: Any, weights: Any, known: Priors) -> Fitted:
    """The constants that make the runs likeliest; runs of weight 0 are predicted and not seen."""
    power, target = SHARPNESS, np.log(seconds)

    def predicted(theta: Any) -> tuple[Any, Any]:
        errors, slopes = np.empty(len(seconds)), np.empty((len(seconds), len(theta)))
        for part in parts:
            each = np.exp(part.links @ theta) * part.terms
            device, host = each[:, :-2].sum(1), each[:, -2:].sum(1)
            time = (device**power + host**power) ** (1 / power)
            each[:, :-2] *= (device ** (power - 1) / time**power)[:, None]
            each[:, -2:] *= (host ** (power - 1) / time**power)[:, None]
            members = list(part.runs)
            errors[members], slopes[members] = np.log(time) - target[members], each @ part.links
        return errors, slopes

    def loss(theta: Any, found: Any) -> float:
        data = weights * (FREEDOM + 1) / 2 * np.log1p((found[0] / SPREAD) ** 2 / FREEDOM)
        return float(data.sum() + (((theta - known.centre) / known.width) ** 2).sum() / 2)

    def curved(theta: Any, found: Any) -> tuple[Any, Any]:
        errors, slopes = found
        weight = weights * (FREEDOM + 1) / (FREEDOM + (errors / SPREAD) ** 2) / SPREAD**2
        curve = slopes.T @ (slopes * weight[:, None]) + np.diag(known.width**-2)
        return curve, slopes.T @ (weight * errors) + (theta - known.centre) / known.width**2

    how: dict[str, Any] = {"largest": _LARGEST, "rounds": _ROUNDS}
    theta, (errors, _), curve = descend(
        known.centre, predicted, loss, curved, **how, enough=lambda gain, _: gain < _GAIN
    )
    return Fitted(theta, errors, np.linalg.inv(curve))


def fit_gpu(rows: Sequence[Mapping[str, str]], keep: Keep = forgotten) -> str:
    """Coefficients of stacks, intensities and launches as TOML; prints errors in sample and left out by chip, model and source."""
    runs, known = [*published(rows), *ours()], priors()
    parts = blocks(runs, known)
    seconds = np.array([run.seconds for run in runs])
    counts = Counter((run.source, run.stack, run.chip_key) for run in runs)
    every = np.array([min(1.0, EFFECTIVE / counts[run.source, run.stack, run.chip_key]) for run in runs])
    whole = fit_links(parts, seconds, every, known)
    _print("in sample", runs, whole.errors)
    table = Columns.of([(run.about, run.stack, *run.groups.values()) for run in runs], "about", "stack", *GROUPS)
    mine = table.source == OURS
    keep(table.where(mine), PART, np.expm1(whole.errors[mine]))
    moved = []
    for column in GROUPS:
        names, errors, lacks = getattr(table, column), np.empty(len(runs)), np.zeros(len(runs), bool)
        for name in sorted(set(names.tolist())):
            inside = names == name
            found = fit_links(parts, seconds, np.where(inside, 0.0, every), known)
            errors[inside] = found.errors[inside]
            left = Counter(table.stack[~inside].tolist())
            # Where hardly a row of its stack is left, the software was left out too.
            lacks |= inside & np.array([left[stack] < SEEN for stack in table.stack.tolist()])
            moved.append(found.constants)
        _print(f"one {column} out", [run for run, lack in zip(runs, lacks, strict=True) if not lack], errors[~lacks])
        keep(table.where(~lacks), column, np.expm1(errors[~lacks]))
        if column == "device" and lacks.any():
            _print("and software", [run for run, lack in zip(runs, lacks, strict=True) if lack], errors[lacks])
            keep(table.where(lacks), "software", np.expm1(errors[lacks]))
    ends = np.exp([np.min(moved, axis=0), np.max(moved, axis=0)])
    deviations = np.exp(np.sqrt(np.diag(whole.covariance)))
    return _rendered(known.names, np.exp(whole.constants), deviations, ends, np.expm1(whole.errors), runs)


def _print(title: str, runs: Sequence[Run], errors: Any) -> None:
    stacks = np.array([f"{run.stack} {run.chip_key}" for run in runs])
    for name in sorted(set(stacks.tolist())):
        print(f"{title:16s} {name:32s} {line(np.expm1(errors[stacks == name]))}")
    print(f"{title:16s} {'all':32s} {line(np.expm1(errors))}", flush=True)


def _rendered(names: Sequence[str], values: Any, deviations: Any, ends: Any, errors: Any, runs: Sequence[Run]) -> str:
    value = dict(zip(names, values.tolist(), strict=True))

    def product(stack: str, term: str) -> float:
        return float(np.prod([value.get(name, 1.0) for name in _made_of(stack, term)]))

    def lines(name: str, own: Mapping[str, float]) -> list[str]:
        return ["", f"[{name}]", *(f"{key} = {number:.4g}" for key, number in own.items())]

    def group(prefix: str) -> dict[str, float]:
        return {name.removeprefix(prefix): v for name, v in value.items() if name.startswith(prefix)}

    launch = group("launch.")
    text = ["# vector operations for each byte of kernels that are not fused into others (flop/byte), by kind"]
    text += lines("intensity", group("intensity."))[1:]
    text += ["", "# and over these where channels are not last"]
    text += lines("strided", group("strided."))[1:]
    text += [
        "",
        "# exponent of the norm over device work and launches, which is chosen; factors on the host's cost of an operator: of a conversion in mixed precision, kinds of hosts",
    ]
    text += lines(
        "launch", {"sharpness": SHARPNESS} | {name: launch.pop(name) for name in ("cast", "older", "desktop")}
    )[1:]
    text += ["", "# us of the host for an operator"]
    text += lines("launch_us", {stack: launch.get(_LAUNCH.get(stack, stack), 0.0) for stack in FACTORS})[1:]
    for stack in STACKS:
        own = np.array([run.stack.removesuffix(vision_time.UNFUSED) == stack for run in runs])
        text += lines(f"stacks.{stack}", {term: product(stack, term) for term in vision_time.TERMS})
        note = (
            f"fit error, median / p90 / bias in %: {line(errors[own]).strip()}" if own.any() else "no rows of its own"
        )
        text.insert(len(text) - len(vision_time.TERMS), f"# {note}")
    for scale in SCALES:
        text += lines(f"scales.{scale}", group(f"{scale}."))
    text += [
        "",
        "# Constants as they were fitted, factors of stacks on eager ones: value, standard error as a factor, least and most over left-out fits.",
        "[fitted]",
    ]
    rows = list(zip(names, values, deviations, *ends, strict=True))
    text += [f'"{name}" = [{v:.4g}, {d:.3g}, {low:.4g}, {high:.4g}]' for name, v, d, low, high in rows]
    loose = [name for name, _, _, low, high in rows if high > 1.5 * low]
    text += [f"loose = {loose!r} # move by more than half: priors hold them, not the rows".replace("'", '"')]
    return "\n".join(text) + "\n"
