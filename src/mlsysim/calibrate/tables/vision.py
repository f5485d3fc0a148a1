"""Rows of ``vision.csv``: throughput, latency and energy of vision networks, image diffusion and microcontrollers.

    timm, DeepLearningExamples, MLPerf training    a pass on one device, or a step of data parallelism, under the row's runtime
    MLPerf inference                               TensorRT: large batches (offline, server), or one query (latencies)
    ML.ENERGY                                      whole images of a denoiser on one device or several
    MLPerf Tiny                                    a microcontroller under the submitter's runtime

Settings that a row lacks: training of NVIDIA's DeepLearningExamples is taken at 128 images a device; MLPerf tasks have the lengths,
steps and batches of ``data/software/runtimes.toml``. Several devices that each run passes of their own are so many times one of them. A time to
train includes convergence, which no model of a system predicts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from mlsysim.calibrate.cells import cell, chip_of, format_of, key_of, measured, metric_named, milliseconds_in, number
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.questions import Excluded, Question, Skipped, calibrated_plan, whole_nodes
from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.inventory import Inventory, inventory_of
from mlsysim.models.registry import Models
from mlsysim.models.timm_counts import PREFIX, counted_sizes
from mlsysim.plans.plan import Plan
from mlsysim.timing.microcontroller import Board, board
from mlsysim.timing.runtimes import ENGINE, regime_of, runtime_for
from mlsysim.timing.vision_time import constants
from mlsysim.units.registry import to_si

COLUMNS = ("model", "task", "device", "img_size", "gmacs", "macts", "metric", "value")

_WORDS, _RATES = settings("rows")["vision"], settings("rows")["training"]["metrics"]
_BATCH, _PIXELS = 128, 224
_VIT = re.compile(r"vit[-_ ]?([bhlst])[a-z]*[-_/ ](?:patch)?(\d\d)[-_ ](\d{3})", re.IGNORECASE)
"""A transformer over patches, as papers and torchvision call it, with the pixels of a side."""
_SWIN = re.compile(r"swin[-_ ]([tsbl])(?:[-_ /](?:patch4[-_ ])?window\d+)?(?:[-_ /](\d{3}))?", re.IGNORECASE)
"""A transformer over windows, of an eighth of a side and a thirty-second: 7 at 224 pixels, 12 at 384."""
_VITS = {"t": "tiny", "s": "small", "b": "base", "l": "large", "h": "huge"}
_LAYOUTS = {"channels last": "nhwc", "channels first": "nchw", "contiguous": "nchw"}


def read(row: Mapping[str, str]) -> list[Question]:
    """What to ask for a row."""
    if "NOT CONFIRMED" in row["notes"]:
        raise Excluded("the source of this figure could not be confirmed")
    if row["metric"] == "time_to_train":
        raise Excluded("a time to train includes convergence, which is not a property of the system")
    kind = row["task"] if row["task"] in _OTHER else row["source"].rpartition("-")[0]
    return [_OTHER.get(kind, _framework)(row)]


def _question(row: Mapping[str, str], plan: Plan, *asked: Any) -> Question:
    return Question(row["metric"], measured(row), plan, *asked)


@cache
def network_of(name: str, size: str) -> tuple[Workload, int | None]:
    """The network of a row, and its image size where it was counted at several."""
    plain, pixels = _WORDS["networks"].get(name, (name, int(size or 0)))
    if (shaped := _VIT.fullmatch(name)) and not pixels:
        pixels = int(shaped[3])
    if shaped:
        plain = f"vit_{_VITS[shaped[1].lower()[0]]}_patch{shaped[2]}_{pixels}"
    if (windowed := _SWIN.fullmatch(name)) and (side := int(windowed[2] or pixels or 0)) not in (0, _PIXELS):
        plain, pixels = f"swin_{_VITS[windowed[1].lower()]}_patch4_window{side // 32}_{side}", side
    elif windowed and windowed[1].lower() == "l":
        plain, pixels = "swin_large_patch4_window7_224", _PIXELS
    if not pixels and (own := counted_sizes().get(plain.split(".")[0])):
        # Those of ImageNet where the network was counted at them, else the least.
        pixels = _PIXELS if _PIXELS in own else min(own)
    plain = plain.split(".")[0]
    if plain not in counted_sizes():
        # Names of checkpoints say the size once more.
        plain = plain.removesuffix(f"_{pixels}")
    if plain not in counted_sizes():
        # The Hub's have a publisher before them, and write "-" for "_".
        plain = re.sub(r".*/", "", plain).replace("-", "_").removesuffix(f"_{pixels}")
    sizes = counted_sizes().get(plain, ())
    if pixels in sizes:
        return Models.get(PREFIX + plain), pixels
    if sizes:
        raise InputError(f"The operators of {plain} were not counted at {pixels} pixels.")
    model = Models.get(name)
    if not model.fixed_shape:
        raise InputError(f"{model.name} is not a network of fixed shape.")
    own_side: int | None = getattr(model, "image_size", None)
    if own_side and pixels and pixels != own_side and str(own_side) not in name:
        raise InputError(f"{model.name} is known for images of {own_side} pixels, not {pixels}.")
    return model, None


def runtime_of_row(row: Mapping[str, str]) -> str:
    """The software that ran a network: of timm, and of whoever names a compiler, by its columns; of NVIDIA's examples by the model's name."""
    if row["source"].startswith("timm-") or row["compiler"]:
        layout = _LAYOUTS.get(layout := row["layout"].lower().replace("_", " "), layout)
        if row["compiler"].lower() not in _WORDS["compilers"] or layout not in ("", "nchw", "nhwc"):
            raise Skipped(f"the compiler {row['compiler']!r} or the layout {row['layout']!r} is not known")
        how = str(_WORDS["compilers"][row["compiler"].lower()])
        how = "eager_nhwc" if how == "eager" and layout == "nhwc" else how
        version = re.search(r"-pt(\d)|pytorch v?(\d)\.", f"{row['source']} {row['notes']}".lower())
        return (
            f"{how}_2022"
            if row["task"] == "train" and how != "compiled" and version and "1" in version.groups()
            else how
        )
    if row["source"].startswith("mlperf-training") and row["model"] not in _WORDS["mxnet"]:
        return "mlperf"
    if row["model"].endswith("-mxnet") or row["model"] in _WORDS["mxnet"]:
        return "dle_mxnet"
    return "dle_tensorflow" if row["model"].endswith("-tf") else "dle_pytorch"


def _framework(row: Mapping[str, str]) -> Question:
    timed = _timed(row)
    if timed is None and not _rate(row):
        raise Skipped(f"the metric {row['metric']!r} is not modelled")
    published = row["source"].startswith("mlperf-training")
    chip = chip_of(row["device"])
    model, size = network_of(row["model"], row["img_size"])
    inferred: tuple[str, ...] = ("operators from the zoo's layers",) if size is None else ()
    training, devices = row["task"] == "train", int(row["n_devices"] or 1)
    batch = int(number(row, "batch", _BATCH))
    if not row["batch"]:
        inferred += (f"batch {_BATCH}",)
    precision = row["precision"]
    if published:
        # Of these logs the batch is that of all devices. Where it is smaller, others evaluate, or help with a share of an image.
        if batch < devices:
            devices, inferred = batch, (*inferred, "a sample on each of so many devices")
        batch, precision = max(1, round(batch / devices)), "mixed"
        inferred += ("mixed precision",)
    if not precision:
        precision = "fp32" if chip.family == "cpu" or not chip.compute.supports("fp16") else "fp16"
        inferred += (f"{precision}",)
    name, regime = None, "recommender training"
    if not model.looks_up:
        name = runtime_of_row(row)
        if precision == "fp32" and row["compiler"] and chip.compute.supports("tf32") and _rounded(row, model):
            precision = "tf32"
            inferred += ("products of fp32 in TF32, as PyTorch's convolutions are unless it is told otherwise",)
        regime = regime_of(runtime_for(model, "training" if training else "inference", name)[1], chip)
    on, factor = f"1x{key_of(chip)}", float(devices)
    if training:
        on = whole_nodes(devices, key_of(chip))
        ranks = int(on.partition("x")[0])
        batch, factor = batch * ranks, devices / ranks
    if published and row["model"] == "ssd":
        # These logs print the throughput of one device: times the devices it agrees with the time to train, alone it does not.
        factor, inferred = factor / devices, (*inferred, "throughput of one device")
    work: dict[str, Any] = {
        "image_size": size,
        "batch_size": batch,
        "precision": _WORDS["precisions"].get(precision.lower()) or format_of(precision),
    }
    task, asked, split = "inference", "throughput", {}
    if training:
        task, asked, split = "training", "tokens_per_second", {"tp": 1, "micro_batches": 1}
        # As these benchmarks update.
        work["optimizer"] = "momentum"
        if published and name == "dle_mxnet":
            work["gradient_precision"] = "fp16"
    plan = calibrated_plan(task, key_of(model), on, stack=name, parallelism=split, **work)
    regime = "vision mlperf training" if published and name == "dle_mxnet" else regime
    unit = "1/s"
    if timed is not None:
        asked, unit, factor = "step_time" if training else "latency", "ms", timed
    stands = _WORDS["stand_ins"].get(row["compiler"].lower())
    inferred += (f"stands in for {stands}: {name}",) if stands else ()
    known = key_of(chip) in _WORDS["measured"]
    return _question(row, plan, asked, unit, factor, regime, known, inferred, int(stands is not None))


def _rounded(row: Mapping[str, str], model: Workload) -> bool:
    """Whether most products of full precision are in TF32: convolutions are; matrices were before PyTorch 1.12, and are where a benchmark (timm's) allows it."""
    version = re.search(r"torch ?v?(\d+)\.(\d+)", row["notes"].lower())
    if row["source"].startswith("timm-") or version is None or (int(version[1]), int(version[2])) < (1, 12):
        return True
    counted = inventory_of(model).operations
    return sum(counted.get(name, 0.0) for name in ("gemm", "attention")) < sum(counted.values()) / 2


def _rate(row: Mapping[str, str]) -> bool:
    """Whether the row has a rate of samples: by its metric, or by the unit of one that leaves it to that."""
    name = metric_named(row["metric"], _RATES)
    return (
        metric_named(cell(row, "unit") or "samples/s", _RATES) == "samples_per_s"
        if name in ("throughput", *_WORDS["times"])
        else name == "samples_per_s"
    )


def _timed(row: Mapping[str, str]) -> float | None:
    """What a millisecond is in the row's unit of a batch's time; None where it has a rate."""
    name, _, unit = (metric := metric_named(row["metric"], {})).rpartition("_")
    bare = unit not in ("ms", "s", "us")
    if (metric if bare else name) not in _WORDS["times"]:
        return None
    said = (cell(row, "unit") or "ms") if bare else unit
    if metric_named(said, _RATES) == "samples_per_s":
        return None
    return milliseconds_in(re.split("[/ ]", said.lower())[0])


@cache
def task_of(model: str) -> tuple[Workload, dict[str, Any]]:
    """The network of an MLPerf task and its facts; the accuracy target makes no difference here."""
    name = re.sub(r"-99(\.9)?$", "", re.sub(r"[ _]+(?=99)", "-", model))
    facts = constants()["mlperf"]["tasks"].get(name)
    if facts is None:
        raise Skipped(f"what a sample of the MLPerf task {name!r} evaluates is not published")
    return Models.get(facts["model"]), facts


def task_inventory(model: str) -> tuple[Inventory, int]:
    """The operators of an MLPerf task's network, and its passes for each sample."""
    network, facts = task_of(model)
    return inventory_of(network, facts.get("tokens")), getattr(network, "passes_per_image", 1)


_QUERIES = {"singlestream_p90_latency": 1, "multistream_p99_latency": 8}
_OFFLINE, _SERVER = "offline_samples_per_s", "server_completed_samples_per_s"


def _engine(row: Mapping[str, str]) -> Question:
    metric, chip = row["metric"], chip_of(row["device"])
    network, facts = task_of(row["model"])
    if metric not in (*_QUERIES, _OFFLINE, _SERVER):
        raise Skipped(f"the metric {metric!r} is not modelled")
    items = facts.get("items", 1)
    batch = (_QUERIES.get(metric) or facts["batch"]) * items
    if metric not in _QUERIES and network.fixed_shape:
        # As much of the batch as fits beside the weights.
        room = to_si(chip.memory.capacity, "byte") - network.parameter_count
        batch = max(1, min(batch, int(room / network.working_bytes(1, "int8"))))
    wide = chip.compute.supports("int8") or not chip.compute.supports("fp8")
    work = {"batch_size": batch, "seq_len": facts.get("tokens"), "precision": "int8" if wide else "fp8"}
    work["phase"] = "generate" if hasattr(network, "passes_per_image") else None
    work["random_arrivals"] = True if metric == _SERVER and items == 1 else None
    # Recommenders have no constants of that engine; what is known of them is what runs without one.
    plan = calibrated_plan(
        "inference", facts["model"], f"1x{key_of(chip)}", stack=None if items > 1 else ENGINE, **work
    )
    known = f"generation_{(chip.generation or '').replace(' ', '_')}" in constants()["profile"]["tensorrt"]
    if metric in _QUERIES:
        return _question(row, plan, "latency", "ms", 1.0, "vision engine latency", known, ("TensorRT",))
    regime = "vision engine server" if metric == _SERVER else "vision engine offline"
    inferred, regime = ("8-bit arithmetic", f"batch {batch}"), "recommender inference" if items > 1 else regime
    share = constants()["mlperf"]["server_share"] if metric == _SERVER and items > 1 else 1.0
    factor = number(row, "n_devices") / items * share
    found = _question(row, plan, "throughput", "1/s", factor, regime, known, inferred)
    # Listed apart: tables of embeddings in 8 bits, and hot rows in a cache, are not modelled.
    return replace(found, metric=f"{metric} of recommenders") if items > 1 else found


def denoising_plan(
    model: str, chip: HardwareNode, devices: int, batch: int, steps: int, ring: int | None = None, **more: Any
) -> Plan:
    """Whole images of a denoiser in so many steps."""
    work = {"phase": "generate", "steps": steps, "batch_size": batch, "precision": "bf16", **more}
    return calibrated_plan("inference", model, f"{devices}x{key_of(chip)}", parallelism={"ring": ring}, **work)


def settings_of(row: Mapping[str, str], *names: str) -> list[int]:
    """Whole numbers in a row's notes: steps=28, 28 steps."""
    found = [re.search(rf"\b{name}[=-](\d+)|(?<![=\w])(\d+) {name}\b", row["notes"], re.IGNORECASE) for name in names]
    if None in found:
        raise Skipped(f"the row gives no {names[found.index(None)]}")
    return [int(each[1] or each[2]) for each in found if each is not None]


def _diffusion(row: Mapping[str, str]) -> Question:
    chip, model = chip_of(row["device"]), Models.get(row["model"])
    steps = settings_of(row, "steps")[0]
    apart = re.search("ulysses=|ring=", row["notes"])
    ulysses, ring = settings_of(row, "ulysses", "ring") if apart else (int(number(row, "n_devices", 1.0)), 1)
    over = ring if ring > 1 else None
    how = _WORDS["compilers"].get(row["compiler"].lower(), row["compiler"])
    stack = "xdit" if apart else "diffusers" if how == "eager" else "compiled"
    plan = denoising_plan(key_of(model), chip, ulysses * ring, int(number(row, "batch")), steps, over, stack=stack)
    found = _question(row, plan, "latency", "s", 1.0, "diffusion", key_of(chip) in _WORDS["measured"])
    if how in ("eager", "compiled"):
        return found
    return replace(found, inferred=(f"stands in for {how}: compiled code",), guessed=1)


def board_of(row: Mapping[str, str]) -> tuple[Board, str | None]:
    """The board of a row, and the peak of the zoo's chip at its clock where that is another."""
    name = re.sub(r"_(int8|float)(_max_performance|_min_ram)?$", "", row["device"])
    boards = constants()["mcu"]["boards"]
    if name in Hardware and (key := Hardware.get(name).metadata.key) in boards:
        return board(key), None
    if re.search(r"acc=\s*\S", row["notes"]):
        raise Skipped(f"the accelerator of {row['device']!r} is not known")
    core = re.search(r"Cortex\W*-?(M\d+\+?)", row["notes"])
    clock = re.search(r"@ *([\d.]+) *([MG])Hz", row["notes"], re.IGNORECASE)
    same = [key for key, entry in boards.items() if core and entry["core"] == f"Cortex-{core[1]}" and key in Hardware]
    if clock is None or not same:
        raise Skipped(f"the core or the clock of {row['device']!r} is not known")
    hertz = float(clock[1]) * (1e6 if clock[2].upper() == "M" else 1e9)
    known = board(same[0])
    peak = Hardware.get(same[0]).compute.peak_flops * (hertz / known.clock)
    return replace(known, clock=hertz, power=None, measured=False), f"{peak.to('flop/s').magnitude!r} flop/s"


def runtime_of(row: Mapping[str, str], target: Board) -> str:
    """The runtime that a row's submitter used."""
    submitter = re.search(r"(?:closed|open) (\w+)", row["notes"])
    who = submitter[1].lower() if submitter else ""
    if who == "stmicroelectronics":
        return "STM32Cube.AI 9" if row["source"].endswith(("v1.2", "v1.3")) else "STM32Cube.AI 7"
    if who == "renesas" and target.core == "Cortex-M33":
        return "Renesas 2021"
    return "plumerai" if who == "plumerai" else "default"


def _microcontroller(row: Mapping[str, str]) -> Question:
    model, (target, peak) = Models.get(row["model"]), board_of(row)
    if row["metric"] not in _WORDS["boards"]:
        raise Skipped(f"the metric {row['metric']!r} is not modelled")
    asked, unit, regime = _WORDS["boards"][row["metric"]]
    if asked == "energy_per_sample" and target.power is None:
        raise Skipped(f"no active power is known for {target.name}")
    how: dict[str, Any] = {"precision": "fp32" if "_float" in row["device"] else "int8"}
    how |= {"stack": runtime_of(row, target), "hardware": {"chip": {"peak_flops": peak} if peak else None}}
    plan = calibrated_plan("inference", key_of(model), f"1x{target.name}", **how)
    return _question(row, plan, asked, unit, 1.0, regime, target.measured, ("runtime",))


_OTHER: dict[str, Callable[[Mapping[str, str]], Question]] = {
    "infer-mcu": _microcontroller,
    "diffusion-infer": _diffusion,
    "mlperf-inference": _engine,
}
"""Readers by task or source; every other row is a framework's."""
