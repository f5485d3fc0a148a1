"""Cells of a row: numbers and names, or the reason why a row cannot be predicted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.questions import Excluded, Skipped, calibrated_plan, whole_nodes
from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import bytes_per_element, precision_name
from mlsysim.plans.plan import Plan
from mlsysim.systems.registry import Nodes
from mlsysim.timing.engines import engine, is_engine
from mlsysim.units.registry import quantity, to_si
from mlsysim.zoo.checkpoints import format_named
from mlsysim.zoo.labels import chip_label, counted, held, words
from mlsysim.zoo.registry import Registry

_MEASURED = re.compile(
    r"[~≈]?\s*([+-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*(?:(k|m)(?![a-z]))?\s*(?:(?:±|\+/-)\s*[\d.,]+)?\s*(.*)"
)
_NUMBER = re.compile(r"[~≈]?\s*([+-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*([kmb]?)(?:\s*(?:tokens|sequences|samples|gpus))?")


def cell(row: Mapping[str, str], name: str) -> str:
    """The text of a cell, empty where there is none."""
    return (row.get(name) or "").strip()


def half_digit(text: str) -> float:
    """Half of the last digit of a number as it is written.

    >>> half_digit("2"), half_digit("16.25"), half_digit("1.2e3")
    (0.5, 0.005, 0.0)
    """
    found = re.fullmatch(r"[-+]?[\d,]+(?:\.(\d*))?", text.strip())
    return 0.0 if found is None else 0.5 * 10.0 ** -len(found[1] or "")


def measured(row: Mapping[str, str], name: str = "value") -> float:
    """What was measured: about so many (~), in thousands (42k), with its scatter (±) and the row's unit behind it.

    >>> measured({"value": "~6,300"}), measured({"value": "42k tok/s", "unit": "tok/s"}), measured({"value": "46.2 ± 0.1"})
    (6300.0, 42000.0, 46.2)
    """
    text = cell(row, name).lower()
    found = _MEASURED.fullmatch(text)
    if found is None or found[3] not in ("", cell(row, "unit").lower(), name.rpartition("_")[2]):
        raise Excluded(
            f"{cell(row, name)[:40]!r} is a range or a bound, not a measured value" if text else "no measured value"
        )
    return float(found[1].replace(",", "")) * {"k": 1e3, "m": 1e6}.get(found[2] or "", 1.0)


def number(row: Mapping[str, str], name: str, default: float | None = None) -> float:
    """A number; the default where the cell is empty."""
    text = cell(row, name)
    if not text:
        if default is None:
            raise Skipped(f"{name} is not given")
        return default
    found = _NUMBER.fullmatch(text.lower())
    if found is None:
        raise Skipped(f"{name} is {text[:40]!r}, not a number")
    return float(found[1].replace(",", "")) * {"k": 1024, "m": 1e6, "b": 1e9}.get(found[2], 1)


def whole(row: Mapping[str, str], name: str, default: int | None = None) -> int:
    """A whole number."""
    return int(number(row, name, default))


def whole_or_none(row: Mapping[str, str], name: str) -> int | None:
    """A whole number, or None where it is not given."""
    return int(number(row, name)) if cell(row, name) else None


def _known(zoo: Registry, name: str) -> Any:
    """The entry that a name means; where there is none the reason is that of the zoo, with the nearest names."""
    try:
        return zoo.get(name)
    except MLSysError as error:
        raise Skipped(str(error)) from None


@lru_cache(maxsize=256)
def chip_of(label: str) -> HardwareNode:
    """The chip that a cell names: alone, as a number of them, as a machine that holds them, with a power limit beside its name."""
    if label in ("", "N/A"):
        raise Skipped("the row does not name its processor")
    found: HardwareNode | None = Hardware.get(label, None)
    if found is None and (machine := held(label)):
        found = Hardware.get(machine[1])
    if found is None:
        found = next((chip for _, name in counted(label) if (chip := Hardware.get(name, None))), None)
    if found is None and label in Nodes:
        found = Nodes.get(label).accelerator
    if found is None and (capped := Hardware.capped(label)) is not None:
        found = capped[0]
    if found is None:
        found = _of_its_sizes(label)
    if found is None and len(kinds := [part for part in label.split(",") if part.strip()]) > 1:
        keys = dict.fromkeys(key_of(chip_of(part.strip())) for part in kinds)
        raise Skipped(f"several kinds of accelerators: {', '.join(keys)}")
    return found or _known(Hardware, label)


def devices_of(label: str) -> int | None:
    """How many chips a label says: a machine's, or a number of them; None where it names a chip.

    >>> devices_of("8xH100"), devices_of("p5.48xlarge"), devices_of("RTX 4090")
    (8, 8, None)
    """
    found = held(label) or next((each for each in counted(label) if Hardware.get(each[1], None)), None)
    return None if found is None else found[0]


def _of_its_sizes(label: str) -> HardwareNode | None:
    """The processor whose memory is sold in several sizes, of which a label gives a smaller one than the zoo's: what ran fitted."""
    said = chip_label(label).memory
    found: HardwareNode | None = Hardware.get(re.sub(r"\d+ ?[GT]i?B\b", "", label, flags=re.IGNORECASE).strip(), None)
    if said is None or found is None or found.vendor not in words()["chip"]["sized"]:
        return None
    return found if said * 1e9 < to_si(found.memory.capacity, "byte") else None


def key_of(entry: Any) -> str:
    """What the zoo calls a chip or a model."""
    return str(entry.metadata.key or entry.name)


@lru_cache(maxsize=256)
def language_model(name: str) -> Any:
    """The model; of a multimodal one that the zoo does not have its language model, whose inputs the host prepares."""
    return _known(Models, name)


_MODELS: dict[str, str] = settings("rows")["models"]


def model_of(name: str) -> TransformerWorkload:
    """A transformer of the zoo."""
    model = language_model(_MODELS.get(name, name))
    if not isinstance(model, TransformerWorkload) or not model.has_dimensions:
        raise Skipped(f"{name} has no public configuration")
    return model


def experts_of(model: Any) -> int:
    """Experts of a mixture; one where it is none."""
    return int(getattr(model, "experts", 1))


def format_of(name: str, model: str = "") -> str:
    """A number format; "fp4" is what the model is published in, or NVIDIA's."""
    if name.lower() == "fp4":
        return "mxfp4" if "gpt-oss" in model.lower() else "nvfp4"
    try:
        return precision_name(name)
    except MLSysError as error:
        raise Skipped(str(error)) from None


def served_plan(model: Any, devices: int, chip: str, split: Mapping[str, int], serving: Any, **work: Any) -> Plan:
    """The plan of a served model on so many chips; degrees of one but for ``tp`` are not said."""
    degrees = {name: degree for name, degree in split.items() if degree > 1 or name == "tp"}
    on = whole_nodes(devices, chip)
    return calibrated_plan("serving", key_of(model), on, parallelism=degrees, serving=serving, **work)


def served_format(row: Mapping[str, str], column: str, chip: HardwareNode, inferred: list[str]) -> str:
    """The format of a served model: the cell's, else that of the checkpoint's name, else what the model is published in, else 16 bits.

    Engines write ``auto`` where they take the checkpoint's, and tables a number of bits.
    """
    text, label = cell(row, column).lower(), cell(row, "model")
    bits = re.fullmatch(
        r"(?:mlx[- ]?)?(\d+)(?:[- ]?bits?)?|(?:fp|bf|float|bfloat)16 ?/ ?(?:fp|bf|float|bfloat)16", text
    )
    if text and text != "auto" and not bits:
        return format_of(cell(row, column), label)
    named = format_named(label) or model_of(label).native_format
    if named is not None and (not bits or round(bytes_per_element(format_of(named, label)) * 8) == int(bits[1] or 16)):
        inferred.append(f"{named} weights, those of the checkpoint")
        return format_of(named, label)
    if bits and int(bits[1] or 16) != 16:
        return format_of(f"{text[:3] if text.startswith('mlx') else ''}{bits[1]}bit", label)
    if not bits and "ollama" in " ".join(row.values()).lower():
        inferred.append(f"weights in {_TAGGED}, as Ollama's tags have them")
        return _TAGGED
    half = next((name for name in ("bf16", "fp16") if chip.compute.supports(name)), "fp32")
    inferred.append(f"{half} weights" if bits else f"weights in {half}")
    return half


def fitting_format(precision: str, model: Any, devices: int, chip: HardwareNode, inferred: list[str]) -> str:
    """The format of weights, which ran: one that nobody named gives way to a narrower one where so many devices do not hold it."""
    told = next((text for text in inferred if text.startswith(f"weights in {precision}")), None)
    room = devices * to_si(chip.memory.capacity, "byte")
    if told is None or model.parameter_count * bytes_per_element(precision) <= room:
        return precision
    eight = next((name for name in ("fp8", "int8") if chip.compute.supports(name)), "int8")
    for narrow in (eight, "int4"):
        if model.parameter_count * bytes_per_element(narrow) <= room:
            inferred[inferred.index(told)] = f"weights in {narrow}, as those in {precision} do not fit"
            return narrow
    return precision


_TAGGED = "q4_K_M"
"""Weights of a tag of Ollama's library that names no format."""
_METRIC_WORDS: dict[str, str] = settings("rows")["metric_words"]


def metric_named(text: str, known: Mapping[str, str]) -> str:
    """What a table calls a metric, as ``known`` has it: Output tok/s, TTFT (ms), tokens/s/GPU.

    >>> [metric_named(name, {"output_tokens_per_s": "output_throughput"}) for name in ("Output tok/s", "Output (tokens/s)", "TTFT mean (ms)")]
    ['output_throughput', 'output_throughput', 'ttft_mean']
    """
    name = text.lower()
    bare = re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", name)
    # A unit in brackets belongs to the name where that alone says too little: Output (tokens/s).
    ways = [re.findall(r"[a-z0-9]+", re.sub(r"\s*/\s*", " per ", way)) for way in (bare, name)]
    each = ["_".join(_METRIC_WORDS.get(piece, piece) for piece in pieces) for pieces in ways]
    spelled = (name, "_".join(ways[0]), *each)
    return next((known[way] for way in spelled if way in known), each[0])


def milliseconds_in(unit: str) -> float:
    """What a millisecond is in a row's unit of time: s, seconds, us; a row that names none has milliseconds."""
    try:
        return float(quantity(1.0, "ms").to(unit or "ms").magnitude)
    except (TypeError, ValueError, MLSysError):
        raise Skipped(f"the unit {unit!r} is no time") from None


def year_of(*texts: str) -> int | None:
    """The year that texts tell: of a paper's number, of a benchmark's round, or as it stands."""
    text = " ".join(texts)
    paper = re.search(r"arXiv:? ?(\d\d)\d\d\.\d{4,5}", text, re.IGNORECASE)
    plain = re.search(r"\b20([12]\d)\b", text)
    if found := paper or plain:
        return 2000 + int(found[1])
    if found := re.search(r"mlperf-(?:training|inference)-v?(\d+)\.\d", text, re.IGNORECASE):
        # Rounds of either benchmark: 1.x is of 2021, and a further number a year.
        return 2020 + int(found[1])
    return None


_WORDS = settings("rows")["engines"]
_ASYNCHRONOUS = (0, 12)
"""Before this version vLLM scheduled a step after the one before it had ended."""
_ENGINE = 2025
"""After this year an engine that nobody names is today's."""
_EAGER = re.compile(r"enforce[-_ ]eager(?!\W*false)|disable[-_ ]cuda[-_ ]graph(?!s?\W*false)", re.IGNORECASE)
"""Options of engines that run without graphs."""
_CLIENTS = re.compile(
    r"\b(?:vllm bench serve|sglang\.bench(?:mark)?[._]serving|(?:vllm'?s? )?benchmark_serving(?:\.py)?)\b"
)
"""Programs that ask a server, which may be of another house than they are."""


def _before(version: re.Match[str] | None) -> bool:
    return version is not None and (int(version[1]), int(version[2])) < _ASYNCHRONOUS


def engine_of(row: Mapping[str, str], inferred: list[str]) -> str:
    """The engine of a row, started without graphs where its options say so."""
    found = _engine_of(row, inferred)
    text = " ".join(cell(row, name) for name in ("engine", "settings", "scenario", "notes", "client"))
    eager = f"{found.removesuffix('_2025')}_eager"
    return engine(eager).name if _EAGER.search(text) and is_engine(eager) else found


def _engine_of(row: Mapping[str, str], inferred: list[str]) -> str:
    """That of its cell, of the year nearest to its version; else the first that its text has a word of; else one of its year."""
    named, version = cell(row, "engine"), re.match(r"v?(\d+)\.(\d+)", cell(row, "engine_version"))
    if named and is_engine(named):
        if engine(named).name != "vLLM" or not _before(version):
            return engine(named).name
        inferred.append("engine vLLM_2025")
        return "vLLM_2025"
    text = " ".join(cell(row, name) for name in ("engine", "engine_version", "source", "scenario", "notes")).lower()
    text = re.sub(r"(?:tensorrt|trt)[-_ ]?llm[-_ ]*v?(?=\d)", "trtllm-", text)
    text = re.sub(r"(?:tensorrt|trt)[-_ ]?llm", "trtllm", text)
    for said in (_CLIENTS.sub(" ", text), text):
        named_in = next((word for word in _WORDS["words"] if re.search(rf"(?<![a-z]){re.escape(word)}", said)), None)
        if named_in is not None:
            text, word, meant = said, named_in, _WORDS["words"][named_in]
            released = re.search(r"vllm[-_ ]*v?(\d+)\.(\d+)", text)
            if meant == "vLLM" and (_before(released) if released else (year_of(text) or _ENGINE + 1) <= _ENGINE):
                meant = "vLLM_2025"
            stands = _WORDS["stand_ins"].get(word)
            inferred.append(f"stands in for {stands}: {meant}" if stands else f"engine {meant}")
            return engine(meant).name
    name = "vLLM" if (year_of(text) or _ENGINE) > _ENGINE else "vLLM_2025"
    if "gaudi" in f"{text} {cell(row, 'gpu')} {cell(row, 'chip')}".lower():
        # Intel's tables are of batches that one compiled graph writes to their end.
        name = str(_WORDS["words"]["optimum-habana"])
    inferred.append(f"stands in for {named or 'an engine that is not named'}: {name}")
    return name
