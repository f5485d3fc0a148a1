"""How many requests at a time engines are set for where a row does not say: those that TensorRT-LLM's own benchmark builds.

Releases 0.10 to 0.14 say so for each model and split (``[trtllm_bench.built]``). From 0.15 on ``trtllm-bench`` takes it from the room that
caches have, on n devices of memory M with weights of W bytes, caches of c bytes a token, and p stages:

    R = min( 0.95 (n M - W) / (c (I + O)), 4096 ) / p, rounded up to 32, from 256 on to 128, from 1024 on to 256; 64 at least

of each of p micro-batches,

where each rank has at least one head of the cache (``tensorrt_llm/bench/build/tuning.py`` of release 0.20). Buffers of the C++ runtime's decoder
grow with it by gigabytes (:meth:`mlsysim.timing.engine_device.EngineDevice.slot_bytes`), so that an engine for 8,192 requests can have half the
room for caches of one for 256. Left out: the tokens of a step, which it sets as well (R (1 + I / O)): asked so, with the engine's constants as they are, prompts of 2,048 tokens on eight
devices are read 30 to 40 % faster than was measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from mlsysim.calibrate.cells import key_of
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import bytes_per_element
from mlsysim.timing.engines import device_memory, serving_table

_RELEASE = re.compile(r"(?:trt|tensorrt)[-_ ]?llm[-_ ]*v?(\d+)\.(\d+)", re.IGNORECASE)
_NAMED, _TUNED = (0, 10), (0, 15)
"""The first releases that name it, and that take it from the lengths."""
_SHARE, _MOST, _LEAST = 0.95, 4096, 64
_MULTIPLES = ((256, 32), (1024, 128), (math.inf, 256))


def built(
    row: Mapping[str, str],
    model: TransformerWorkload,
    chip: HardwareNode,
    split: Mapping[str, int],
    formats: tuple[str, str],
    lengths: tuple[int, int],
) -> int | None:
    """Requests at a time of the engine of a row; None where nobody says. ``formats`` of weights and caches."""
    release = _RELEASE.match(row.get("source", ""))
    if release is None or (found := (int(release[1]), int(release[2]))) < _NAMED:
        return None
    return _tuned(model, chip, split, formats, sum(lengths)) if found >= _TUNED else _named(model, split, sum(lengths))


def _named(model: TransformerWorkload, split: Mapping[str, int], length: int) -> int | None:
    for name, sizes in serving_table("trtllm_bench")["built"].items():
        if name != "source" and Models.key_of(name) == key_of(model):
            found = sizes.get(f"{split['tp']}:{length}", sizes.get(str(split["tp"])))
            return None if found is None else int(found)
    return None


def _tuned(
    model: TransformerWorkload, chip: HardwareNode, split: Mapping[str, int], formats: tuple[str, str], length: int
) -> int:
    weight, cached = (bytes_per_element(name) for name in formats)
    ranks = max(split["tp"], split["ep"])
    heads = max(1.0, ranks / (model.kv_heads or ranks))
    room = max(ranks * split["pp"] * device_memory(chip) - model.parameter_count * weight, 0.0)
    fitting = _SHARE * room / (model.kv_elements_per_token * heads * cached * length)
    requests = min(fitting, _MOST) / split["pp"]
    multiple = next(each for below, each in _MULTIPLES if requests < below)
    return split["pp"] * max(_LEAST, multiple * math.ceil(requests / multiple))


def stored_cache(label: str, precision: str, engine: str, chip: HardwareNode) -> str:
    """The format of the cache that a checkpoint has beside its weights: TensorRT-LLM takes what NVIDIA's Model Optimizer wrote, 8 bits
    (kv_cache_quant_algo FP8 in hf_quant_config.json of its FP8 and FP4 checkpoints); Intel's quantiser for Gaudi converts the cache with the
    products (KVCache among the modules of its FP8 inference); AMD's names say it (amd/...-FP8-KV). What OpenAI wrote in mxfp4 stores none:
    8 bits on Blackwell and 16 on Hopper, as NVIDIA's options for it are (perf-overview.md: ``kv_cache_config: dtype``)."""
    if re.search(r"fp8[-_]kv\b", label, re.IGNORECASE):
        return "fp8"
    both = engine.startswith("TensorRT_LLM") or (chip.vendor, chip.family) == ("Intel", "npu")
    if precision == "mxfp4" and not chip.compute.supports("fp4"):
        return ""
    return "fp8" if both and re.match("(?:nv|mx)?fp[48]", precision) else ""
