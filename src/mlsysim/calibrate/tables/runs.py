"""Tables as people keep them: a row is a run, its columns have any name of data/vocabulary.toml (``measured``), and each column that is called as a metric
is a measurement. The row is then read as one of a published table: of training, of serving, or of networks of images.

    concurrency   clients that ask again when they are answered, through a server; so many requests as the row says, else ten for each
    batch         of a served model as many requests at once, beyond a server
    software      of a network of images PyTorch as it stands, where the row names no compiler
    an encoder    is trained, unless its metric speaks of inferences
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from mlsysim import vocabulary
from mlsysim.calibrate.cells import (
    cell,
    chip_of,
    devices_of,
    key_of,
    measured,
    metric_named,
    milliseconds_in,
    model_of,
    served_format,
    whole,
)
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.questions import Question, Row, Skipped, calibrated_plan
from mlsysim.calibrate.tables import collectives, inference, training, vision
from mlsysim.calibrate.training_cells import read_metric
from mlsysim.errors import MLSysError, did_you_mean, either, nearest
from mlsysim.models.registry import Models
from mlsysim.timing.engines import chip_class
from mlsysim.zoo.layouts import mapping

_WORDS = settings("rows")
_TRAINED: Mapping[str, str] = _WORDS["training"]["metrics"]
_SERVED: Mapping[str, str] = _WORDS["inference"]["metrics"]
_BY_UNIT: tuple[str, ...] = tuple(_WORDS["training"]["by_unit"])
_TIMES: tuple[str, ...] = tuple(_WORDS["vision"]["times"])
_LEVELS = {f"{name}_{level}" for name in _WORDS["inference"]["percentiles"] for level in ("p90", "p95", "p99")}
_METRICS = {
    "training": (_TRAINED, {*_TRAINED.values(), *_BY_UNIT} - {"time_to_train"}),
    "serving": (_SERVED, {*_WORDS["inference"]["asked"], "prefill_rate", *_LEVELS}),
    "vision": (_TRAINED, {"samples_per_s", *_BY_UNIT, *_TIMES}),
}
"""By kind of table what else metrics are called, and their names."""
_EXAMPLES = ("step_time", "tokens/s/gpu", "mfu", "ttft_ms", "tpot_ms", "output_throughput", "images/s")
_ROUNDS = 10
"""Requests of a client where a row does not say how many were sent."""
_DEGREES = {"zero": "zero_stage", "micro_batch": "microbatch"}
"""Columns of the degrees of a layout that have another name."""
_OF_A_STEP = ("step_time", "iteration_time", "steps_per_s")
_UNIT = re.compile(r"(.+?)_(ms|us|s|sec|seconds?|pct)")
_GGML = {*_WORDS["engines"]["ggml"]}
_LENGTHS = re.compile(r"\s*([\d.,]+k?)\s*(?:/|x|:|->|→|\+)\s*([\d.,]+k?)\s*", re.IGNORECASE)
_FULL = re.compile(r"max(?:imum)?[- ]throughput|offline|saturat", re.IGNORECASE)
"""Words of a server that is given as many requests as it takes."""
_SIDE = re.compile(r"(.+?)[ @_-]+(\d{3,4})(?: ?[x×] ?\2)?(?: ?px| ?pixels)?", re.IGNORECASE)
"""A network with the side of its images behind its name."""
_ORDER = re.compile(r"(mean|median|average|avg|p\d\d)_(.+)")


def column_of(name: str) -> str | None:
    """What a column is, by its name; None where it is no setting of a run.

    >>> column_of("GPU Type"), column_of("num_users"), column_of("Seq. Len"), column_of("# GPU"), column_of("mfu")
    ('gpu', 'concurrency', 'seq', 'n_gpus', None)
    """
    words = re.findall(r"[a-z0-9]+", re.sub(r"\(.*?\)|\[.*?\]", "", name.lower()))
    counts = ["_".join(["n", *words])] if "#" in name else []
    return next((found for way in (*counts, "_".join(words)) if (found := vocabulary.MEASURED.get(way))), None)


@cache
def metric_of(name: str, kind: str) -> tuple[str, str] | None:
    """The metric and the unit that the name of a column says; None where nothing of that kind is called so.

    >>> metric_of("ttft_s", "serving"), metric_of("p50 TTFT (ms)", "serving"), metric_of("Step Time (s)", "training")
    (('ttft', 's'), ('ttft_p50', 'ms'), ('step_time', 's'))
    """
    words, known = _METRICS[kind]
    bracket = re.search(r"[(\[]([^()\[\]]*)[)\]]", name)
    bare = re.sub(r"\s*[(\[].*?[)\]]", "", name).strip()
    plain = re.sub(r"[ -]+", "_", bare.lower())
    stem = _UNIT.fullmatch(plain)
    ways = [(name, bracket[1] if bracket else ""), (bare, bracket[1] if bracket else "")]
    ways += [(re.sub("[_ ][Pp]50$", "", bare), bracket[1] if bracket else "")]  # a median
    ways += [(stem[1], {"pct": "%"}.get(stem[2], stem[2]))] if stem else []
    for way, unit in ways:
        turned = _ORDER.fullmatch(re.sub(r"[ -]+", "_", way.lower())) if "(" not in way else None
        for each in (way, f"{turned[2]}_{turned[1]}") if turned else (way,):
            if metric_named(each, words) in known:
                return (plain if each == way and way in (name, bare) else each), unit
    return None


def lacking(header: Iterable[str]) -> str | None:
    """Why a header is none of a table of runs, in a sentence; None where it is one."""
    columns, names = {column_of(name) for name in header}, list(header)
    columns |= {"gpu"} if "n_gpus" in columns else set()  # 8xH100
    if "model" not in columns and any(re.search(r"(?:bus|alg)_? ?bw", name, re.IGNORECASE) for name in names):
        wanted = ", ".join(collectives.COLUMNS)
        return f"it has bandwidths of collectives: call its columns {wanted}, or give a log of nccl-tests to `mlsysim collectives`."
    for column, what, example in (("model", "model", "Llama3_8B"), ("gpu", "accelerator", "H100")):
        if column not in columns:
            near = _near(names, column) or f"call it {column}, with {example} or another of `mlsysim zoo` in it."
            return f"no column says the {what}; {near}"
    if {"metric", "value"} <= columns or any(_kinds(name) for name in names):
        return None
    near = _near(names) or "rename the one that was measured."
    return f"no column is a known measurement, such as {either(_EXAMPLES)}; {near}"


def unread(header: Iterable[str]) -> Iterator[str]:
    """Columns that say nothing to the reader, each with the nearest known name."""
    for name in header:
        if name and column_of(name) is None and not _kinds(name):
            near = nearest(name, _names(), 1)
            yield f"{name}{f' ({did_you_mean(near)})' if near else ''}"


def _near(header: list[str], column: str | None = None) -> str:
    """The first column of a header that is nothing, and what it may be meant to be."""
    wanted = [name for name in _names() if column in (None, column_of(name))]
    for name in header:
        if column_of(name) is None and not _kinds(name) and (near := nearest(name, wanted, 1)):
            return f"of {name[:40]!r}: {did_you_mean(near)}"
    return ""


@cache
def _names() -> tuple[str, ...]:
    return (
        *vocabulary.MEASURED,
        *_EXAMPLES,
        *(name for words, known in _METRICS.values() for name in (*known, *words)),
    )


def _kinds(name: str) -> list[str]:
    """The kinds of tables in which a column is a metric; none for a setting."""
    return [kind for kind in _METRICS if column_of(name) is None and metric_of(name, kind)]


def read(row: Mapping[str, str]) -> list[Question]:
    """What to ask for each measurement of a row."""
    known: dict[str, str] = {}
    for name, text in row.items():
        if text and (column := column_of(name)):
            known.setdefault(column, text)
    for degree, count in (mapping(known.get("layout", "")) or {}).items():
        known.setdefault(_DEGREES.get(degree, degree), str(count))
    if told := _LENGTHS.fullmatch(known.get("lengths", "")):
        known |= {"isl": told[1], "osl": told[2]}
    if (side := known.get("img_size")) and not side.isdigit():
        square = re.fullmatch(r"(\d{2,5}) ?(?:[x×*] ?\1)?(?: ?px| ?pixels)?", side.strip(), re.IGNORECASE)
        if square is None:
            raise Skipped(f"the size of images {side[:40]!r} is no side of a square in pixels")
        known["img_size"] = square[1]
    sized = None if "img_size" in known else _SIDE.fullmatch(known.get("model", ""))
    if sized and Models.get(known["model"], None) is None:
        known |= {"model": sized[1], "img_size": sized[2]}
    if "gpu" not in known and devices_of(known.get("n_gpus", "")):
        known["gpu"] = known.pop("n_gpus")
    if "gpu" not in known:
        raise Skipped("the row names no accelerator: give it in a column gpu, such as H100")
    values = [(name, text) for name, text in row.items() if text and _kinds(name)]
    if "metric" in known and "value" in known:
        values.append((known["metric"], known["value"]))
    # A column that only a served model has tells what its others are of.
    kind = "serving" if any(_kinds(name) == ["serving"] for name, _ in values) else ""
    found, reasons = [], []
    for name, text in values:
        try:
            found += [replace(each, metric=name) for each in _asked(Row(known), name, text, kind)]
        except (Skipped, MLSysError) as reason:
            reasons.append(reason)
    if reasons and not found:
        raise Skipped(str(reasons[0]))
    return found


def _asked(run: Row, name: str, text: str, kind: str) -> list[Question]:
    kind = kind or _kind(run, name)
    told = metric_of(name, "vision" if kind == "encoder" else kind)
    if told is None:
        raise Skipped(f"the metric {name!r} is none of {kind}")
    metric, unit = told
    unit = cell(run, "unit") or unit or "%" * text.endswith("%")
    run |= {"metric": metric, "reported_metric": metric, "value": text.removesuffix("%"), "unit": unit}
    if kind != "serving" and metric in _BY_UNIT and not unit:
        raise Skipped(f"{name!r} does not say what it counts: call it tokens_per_s, tokens/s/gpu or images/s")
    return {"training": _trained, "serving": _served, "vision": _seen, "encoder": _encoded}[kind](run)


def _kind(run: Row, name: str) -> str:
    """The kind of table that a row belongs to: by what only one of them has, by its model, else by the metric."""
    model = Models.get(run["model"], None)
    if getattr(model, "structure", "") == "encoder" and re.search("infer|latency", name, re.IGNORECASE):
        return "encoder"
    if any(cell(run, each) for each in ("isl", "osl", "concurrency", "rate", "engine", "test")):
        return "serving"
    if getattr(model, "fixed_shape", False):
        return "vision"
    if not cell(run, "seq"):
        try:
            vision.network_of(run["model"], run["img_size"])
            return "vision"
        except MLSysError:
            pass
    return "training" if metric_of(name, "training") or not metric_of(name, "serving") else "serving"


def _trained(run: Row) -> list[Question]:
    if not run["batch"] and read_metric(run) in _OF_A_STEP:
        raise Skipped("how long a step takes depends on its sequences: give them in a column batch_size")
    devices = run["n_gpus"] or str(devices_of(run["gpu"]) or "")
    return training.read(Row(run | {"global_batch": run["batch"], "n_gpus": devices}))


def _served(run: Row) -> list[Question]:
    clients, rate = run["concurrency"], run["rate"]
    if not (run["isl"] or run["scenario"] or run["test"]) and (clients or run["batch"] or "1") != "1":
        raise Skipped(inference.UNTOLD)
    sent = run["requests"] or (str(_ROUNDS * whole(run, "concurrency")) if clients else "")
    ggml = set(re.findall(r"[a-z]+", run["engine"].lower()))
    full = "" if clients or run["batch"] or rate else _FULL.search(f"{run['scenario']} {run['notes']}") and "max"
    words = {
        "batch_or_concurrency": f"qps {rate}" if rate and not clients else clients or run["batch"] or full or "",
        "scenario": run["test"] or run["scenario"] or ("closed loop" if clients else ""),
        "notes": "; ".join(filter(None, (run["notes"], f"{sent} requests" if sent else ""))),
        "precision_weights": run["precision"],
        "engine": "llama.cpp" if ggml and ggml <= _GGML else run["engine"] or run["software"],
    }
    return inference.read(Row(run | words))


def _encoded(run: Row) -> list[Question]:
    """Passes of an encoder of language on one device, or on several that each run passes of their own."""
    chip, model = chip_of(run["gpu"]), model_of(run["model"])
    devices, inferred = whole(run, "n_gpus", devices_of(run["gpu"]) or 1), list[str]()
    work: dict[str, Any] = {
        "batch_size": whole(run, "batch", 1),
        "seq_len": whole(run, "seq", whole(run, "isl", 0)) or None,
    }
    work["precision"] = served_format(run, "precision", chip, inferred)
    if work["seq_len"] is None:
        raise Skipped("how long sequences are is not said: give their tokens in a column seq_len")
    plan = calibrated_plan("inference", key_of(model), f"1x{key_of(chip)}", **work)
    timed = metric_named(run["metric"], _TRAINED) in _TIMES
    asked = ("latency", "ms", milliseconds_in(run["unit"])) if timed else ("throughput", "1/s", float(devices))
    return [
        Question(run["metric"], measured(run), plan, *asked, "encoder", chip_class(chip) != "other", tuple(inferred))
    ]


def _denoised(run: Row, model: Any) -> list[Question]:
    """Whole images or films of a denoiser, of its own size."""
    if run["img_size"] and model.resolution not in (None, int(run["img_size"])):
        raise Skipped(f"{model.name} is known for images of {model.resolution} pixels, not {run['img_size']}")
    how = next(
        (word for word in ("compile", "tensorrt") if word in run["software"].lower() + run["compiler"].lower()), "eager"
    )
    words = {
        "task": "diffusion-infer",
        "device": run["gpu"],
        "n_devices": run["n_gpus"] or str(devices_of(run["gpu"]) or 1),
        "batch": run["batch"] or "1",
        "compiler": how,
        "notes": f"{run['notes']}; steps={run['steps']}" if run["steps"] else run["notes"],
    }
    per_second = 1e3 * milliseconds_in(run["unit"] or "s")
    return [replace(each, factor=each.factor * per_second) for each in vision.read(Row(run | words))]


def _seen(run: Row) -> list[Question]:
    model = Models.get(run["model"], None)
    if getattr(model, "denoises", False):
        return _denoised(run, model)
    trained, told = run["task"].lower().startswith("train"), run["compiler"] or run["software"] or "eager"
    plain = re.sub(r"[\W\d_]+", " ", told.lower()).split()
    if told.lower() not in _WORDS["vision"]["compilers"]:
        meant = (word for word in _WORDS["vision"]["compiler_words"] if word in plain)
        told = next(meant, told)
    words = {
        "device": run["gpu"],
        "n_devices": run["n_gpus"] or str(devices_of(run["gpu"]) or ""),
        "task": "train" if trained else "infer",
        "compiler": told,
        "layout": run["layout"] or ("nhwc" if {"channels", "last"} <= {*plain} or "nhwc" in plain else ""),
    }
    return vision.read(Row(run | words))
