"""How a checkpoint is quantised: ``quantization_config`` of config.json and ``hf_quant_config.json`` in one form.

The names of precisions are those of the rest of the engine (fp8, int4, nvfp4 as fp4 with scales). Only what is written is
reported: a method whose precision is not said comes back as such.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers import table
from mlsysim.importers.fields import LARGEST, Config
from mlsysim.physics.precision import FORMATS
from mlsysim.units.fields import Record


class Quantisation(Record):
    """``method`` as its files name it; precision of weights, activations and the cache, None where they keep the model's.

    ``format`` is the entry of the table of formats that weights are stored in, None where there is none.
    """

    method: str
    weights: str | None = None
    activations: str | None = None
    cache: str | None = None
    group_size: int | None = None
    format: str | None = None


Read = tuple[str | None, str | None, int | None]
"""Weights, activations and the size of a group, as one library says them."""


def _precisions(algorithm: str) -> tuple[str | None, str | None]:
    """Of weights and activations, by ModelOpt's name of the algorithm."""
    weights, activations = table("names")["modelopt"].get(algorithm.upper(), ("", ""))
    return weights or None, activations or None


def of_config(config: Config) -> Quantisation | None:
    """What ``quantization_config`` says, in the configuration or in its language model's part."""
    table = config.section("quantization_config", "compression_config")
    if table is None:
        return None
    table.ignore_all()
    method = table.text("quant_method", default="").lower()
    algorithm = table.raw("quant_algo")
    if isinstance(algorithm, str):
        return _modelopt(table, method or "modelopt", algorithm)
    cache = _scheme(table.raw("kv_cache_scheme", "kv_cache_quant_algo"))
    weights, activations, group = None, None, None
    if method in ("fp8", "fbgemm_fp8", "mxfp4"):
        weights, activations = ("mxfp4", None) if method == "mxfp4" else ("fp8", "fp8")
    elif method in ("awq", "gptq", "auto-round", "autoround"):
        weights = f"int{table.integer('bits', 'w_bit', default=4)}"
        group = _size(table.integer("group_size", "q_group_size", default=128, least=-1), LARGEST + 1)
        weights = {"mx_fp": "mx", "nv_fp": "nv"}.get(table.text("data_type"), "") + weights
        weights = weights.replace("mxint", "mxfp").replace("nvint", "nvfp")
    elif method == "bitsandbytes" or table.has("load_in_4bit", "load_in_8bit", "_load_in_4bit"):
        method = "bitsandbytes"
        four, eight = (table.flag(f"load_in_{n}bit", f"_load_in_{n}bit", default=False) for n in (4, 8))
        if four and eight:
            raise InputError("The key 'quantization_config' loads in 4 bits and in 8 at once.")
        weights = table.text("bnb_4bit_quant_type", default="fp4") if four else "int8" if eight else None
    elif method == "compressed-tensors" or table.has("config_groups"):
        weights, activations, group = _groups(table.raw("config_groups"))
        method, packed = method or "compressed-tensors", table.raw("format") == "mxfp4-pack-quantized"
        weights = "mxfp4" if packed else weights
    elif method in _SPELLED:
        weights, activations, group = _SPELLED[method](table)
    else:
        method = method[:60] or "unknown"
    scaled = table.has("weight_block_size") or table.flag("bnb_4bit_use_double_quant", default=False)
    stored = _format(method, weights, activations, group, scaled)
    return Quantisation(
        method=method, weights=weights, activations=activations, cache=cache, group_size=group, format=stored
    )


def _hqq(table: Config) -> Read:
    """``{"quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}``."""
    inner = table.raw("quant_config")
    sizes = inner.get("weight_quant_params") if isinstance(inner, dict) else None
    bits = _size(sizes.get("nbits"), 16) if isinstance(sizes, dict) else None
    return None if bits is None else f"int{bits}", None, _size(sizes.get("group_size")) if sizes else None


def _named(table: Config) -> Read:
    """Quanto and EETQ: ``{"weights": "int4", "activations": null}``."""
    return _spelled(table.text("weights", default="int8")), _spelled(table.text("activations", default="")), None


def _torchao(table: Config) -> Read:
    """``int4_weight_only``, ``Float8DynamicActivationFloat8WeightConfig`` and their kin, by themselves or as the type of a table."""
    given = table.raw("quant_type")
    given = given.get("default", given) if isinstance(given, dict) else given
    name = str(given.get("_type", "") if isinstance(given, dict) else given).lower().replace("_", "")
    weights, inputs = (re.search(rf"((?:int|float)\d)(?:dynamic)?{part}", name) for part in ("weight", "activation"))
    return *((_spelled(found[1]) if found else None) for found in (weights, inputs)), None  # type: ignore[return-value]


def _quark(table: Config) -> Read:
    """AMD Quark: ``{"global_quant_config": {"weight": {"dtype": "fp8_e4m3"}, "input_tensors": {...}}}``."""
    whole = table.raw("global_quant_config")
    parts = [whole.get(name) if isinstance(whole, dict) else None for name in ("weight", "input_tensors")]
    tables = [part if isinstance(part, dict) else {} for part in parts]
    group = _size(tables[0].get("group_size"))
    weights, inputs = (_spelled(str(part.get("dtype") or ""), group) for part in tables)
    return weights, inputs, group


def _spelled(name: str, group: int | None = None) -> str | None:
    """A precision as libraries spell it: ``fp8_e4m3``, ``float8``, ``uint4``, four bits in groups of 32."""
    found = re.match(r"(?:mx)?(u?int|fp|float|qfloat|qint)(\d)", name.lower())
    if found is None:
        return None
    kind = "int" if "int" in found[1] else "fp"
    return "mxfp4" if (kind, found[2]) == ("fp", "4") and group in (None, 32) else f"{kind}{found[2]}"


_SPELLED: dict[str, Callable[[Config], Read]] = {
    "hqq": _hqq, "quanto": _named, "eetq": _named, "torchao": _torchao, "quark": _quark,
    "w4afp8": lambda table: ("int4", "fp8", None),
}  # fmt: skip
_WEIGHT_ONLY = {"int8": "w8a16", "fp8": "fp8_weight", "int4": "gptq", "int3": "int3", "int2": "int2"}
_OF_METHODS = {("awq", "int4"): "awq", ("bitsandbytes", "int8"): "int8", ("hqq", "int4"): "hqq"}


def _format(
    method: str, weights: str | None, activations: str | None, group: int | None = None, scaled: bool = False
) -> str | None:
    """The entry of the table of formats; ``scaled`` in blocks, or with scales that are quantised themselves."""
    if weights is None or " and " in weights:
        return None
    if method == "bitsandbytes" and weights in ("nf4", "fp4"):
        return "nf4" if scaled else "nf4_single"
    if (method, weights) in _OF_METHODS:
        return _OF_METHODS[method, weights]
    if activations is None and weights in _WEIGHT_ONLY:
        return "int4_g32" if (weights, group) == ("int4", 32) else _WEIGHT_ONLY[weights]
    if weights == "int4":
        return "w4a8"
    return "fp8_block" if weights == "fp8" and scaled else weights if weights in FORMATS else None


def of_modelopt(config: Config) -> Quantisation | None:
    """What ``hf_quant_config.json`` of NVIDIA's ModelOpt says."""
    config.section("producer")
    table = config.section("quantization")
    if table is None:
        return None
    algorithm = table.raw("quant_algo")
    return _modelopt(table, "modelopt", algorithm if isinstance(algorithm, str) else "")


def _modelopt(table: Config, method: str, algorithm: str) -> Quantisation:
    weights, activations = _precisions(algorithm)
    if algorithm.upper() == "MIXED_PRECISION":
        weights = _mixed(table.raw("quantized_layers")) or "mixed"
    cache = _scheme(table.raw("kv_cache_quant_algo")) or _scheme(table.raw("kv_cache_scheme"))
    method, group = f"{method} {algorithm}".strip()[:80], _size(table.raw("group_size"))
    stored = _format("", weights, activations, group, "BLOCK" in algorithm.upper() or "_PB_" in algorithm.upper())
    return Quantisation(
        method=method, weights=weights, activations=activations, cache=cache, group_size=group, format=stored
    )


def _size(value: Any, most: int = 1_000_000) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < most else None


def _mixed(layers: Any) -> str | None:
    """The precisions that occur, such as ``fp8 and nvfp4``."""
    if not isinstance(layers, dict):
        return None
    found = {_precisions(str(layer.get("quant_algo")))[0] for layer in layers.values() if isinstance(layer, dict)}
    return " and ".join(sorted(filter(None, found))) or None


def _scheme(value: Any) -> str | None:
    """A cache's precision from ``"FP8"`` or ``{"num_bits": 8, "type": "float"}``."""
    if isinstance(value, str):
        return {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8"}.get(value.upper())
    return _precision(value)


def _precision(table: Any) -> str | None:
    if not isinstance(table, dict):
        return None
    bits, kind, group = table.get("num_bits"), table.get("type"), table.get("group_size")
    if not isinstance(bits, int) or isinstance(bits, bool) or bits not in (2, 3, 4, 6, 8, 16):
        return None
    if kind == "float":
        return "nvfp4" if bits == 4 and group == 16 else "mxfp4" if bits == 4 and group == 32 else f"fp{bits}"
    return f"int{bits}"


def _groups(groups: Any) -> tuple[str | None, str | None, int | None]:
    if not isinstance(groups, dict):
        return None, None, None
    tables = [group for group in groups.values() if isinstance(group, dict)]
    weights, inputs = (
        " and ".join(sorted({p for group in tables if (p := _precision(group.get(part)))})) or None
        for part in ("weights", "input_activations")
    )
    sizes = [_size(group["weights"].get("group_size")) for group in tables if isinstance(group.get("weights"), dict)]
    return weights, inputs, next(filter(None, sizes), None)
