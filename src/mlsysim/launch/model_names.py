"""Names of models in launch files to entries of the zoo, and back.

A command names a checkpoint: ``meta-llama/Llama-3.1-70B-Instruct``, ``/data/Qwen3-32B-FP8``. Its last part, without words for tuning and
quantisation, is looked up among the names and aliases of the zoo; words for quantisation give the precision.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from mlsysim.errors import InputError, nearest
from mlsysim.models.registry import Models

_TUNED = re.compile(
    r"[-_.](instruct|chat|it|hf|base|pt|bf16|fp16|fp8|fp8[-_]dynamic|awq|gptq|int4|int8|nvfp4|fp4|mxfp4|w8a8|w4a16|w8a16|gguf|dynamic|quantized|\d{4}|v\d(\.\d)?)$",
    re.I,
)
_FORMATS = (
    ("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("fp4", "nvfp4"), ("fp8", "fp8"), ("awq", "awq"), ("gptq", "gptq"),
    ("int4", "int4"), ("w4a16", "gptq"), ("int8", "int8"), ("w8a8", "int8"), ("w8a16", "w8a16"), ("nf4", "nf4"), ("bnb", "nf4"),
)  # fmt: skip
_HUB = re.compile(r"https://huggingface\.co/([\w.-]+/[\w.-]+)")


def model_named(text: str) -> str:
    """The key of the zoo for a checkpoint's name or path; raises with the nearest."""
    for name in _variants(text.strip()):
        if name in Models:
            return Models.key_of(name)
    last = _last(text)
    close = nearest(last, Models.keys())
    hint = f"the nearest entries of the zoo are {', '.join(close)}" if close else "nothing in the zoo is near"
    raise InputError(
        f"The launch file names the model {text[:100]!r}, which the zoo does not have; {hint} (say which with --model).",
        field="model",
    )


def _last(text: str) -> str:
    parts = [part for part in text.replace("\\", "/").split("/") if part]
    # A snapshot in a local cache is models--ORG--NAME/snapshots/HASH.
    cached = next((part for part in parts if part.startswith("models--")), None)
    if cached is not None:
        return cached.split("--")[-1]
    return PurePosixPath(text).name or text


def _variants(text: str) -> list[str]:
    """The name, and shorter forms of it, most specific first."""
    found = [text]
    bases = [_last(text)]
    if bases[0].lower().startswith("meta-"):
        bases.append(bases[0][5:])
    for base in bases:
        short = base
        for _ in range(6):
            found.append(short)
            cut = _TUNED.sub("", short)
            if cut == short:
                break
            short = cut
    return list(dict.fromkeys(name for name in found if name))


def precision_in_name(text: str) -> str | None:
    """The number format that a checkpoint's name states."""
    words = re.split(r"[-_./]", text.lower())
    return next((name for word, name in _FORMATS if word in words), None)


def checkpoint_of(key: str, precision: str | None = None) -> tuple[str, bool]:
    """The checkpoint's name on the Hugging Face hub, and whether it is known; else the key.

    A checkpoint in the wanted number format comes first where the zoo knows one.
    """
    if key not in Models:
        return key, False
    model = Models.get(key)
    on_hub = [name for name in Models.aliases_of(key) if re.fullmatch(r"[\w.-]+/[\w.-]+", name)]
    formatted = [name for name in on_hub if precision_in_name(name) is not None]
    if precision is not None:
        on_hub = [n for n in formatted if precision_in_name(n) == precision] or [
            n for n in on_hub if n not in formatted
        ]
    own = [name for name in on_hub if name.split("/")[-1].lower().endswith(model.name.lower())]
    for name in own or on_hub:
        return name, True
    for source in model.metadata.sources:
        match = _HUB.match(source.url or "")
        if match is not None and match[1] in Models and Models.key_of(match[1]) == Models.key_of(key):
            return match[1], True
    return key, False
