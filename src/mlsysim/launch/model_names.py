"""Names of models in launch files to entries of the zoo, and back.

A command names a checkpoint: ``meta-llama/Llama-3.1-70B-Instruct``, ``/data/Qwen3-32B-FP8``. Its last part is read as every name of a model is
(:mod:`mlsysim.zoo.checkpoints`); words for quantisation give the precision.
"""

from __future__ import annotations

import re

from mlsysim.errors import InputError, nearest
from mlsysim.models.registry import Models
from mlsysim.zoo.checkpoints import checkpoint_name, format_named

_HUB = re.compile(r"https://huggingface\.co/([\w.-]+/[\w.-]+)")


def model_named(text: str) -> str:
    """The key of the zoo for a checkpoint's name or path; raises with the nearest."""
    last = checkpoint_name(text.strip())
    for name in (text.strip(), last):
        if name in Models:
            return Models.key_of(name)
    close = nearest(last, Models.keys())
    hint = f"the nearest entries of the zoo are {', '.join(close)}" if close else "nothing in the zoo is near"
    raise InputError(
        f"The launch file names the model {text[:100]!r}, which the zoo does not have; {hint} (say which with --model).",
        field="model",
    )


def _folded(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def checkpoint_of(key: str, precision: str | None = None) -> tuple[str, bool]:
    """The checkpoint's name on the Hugging Face hub, and whether it is known; else the key.

    A checkpoint in the wanted number format comes first where the zoo knows one.
    """
    if key not in Models:
        return key, False
    model = Models.get(key)
    on_hub = [name for name in Models.aliases_of(key) if re.fullmatch(r"[\w.-]+/[\w.-]+", name)]
    formatted = [name for name in on_hub if format_named(name) is not None]
    if precision is not None:
        on_hub = [n for n in formatted if format_named(n) == precision] or [n for n in on_hub if n not in formatted]
    own = [name for name in on_hub if _folded(name.split("/")[-1]).endswith(_folded(model.name))]
    for name in own or on_hub:
        return name, True
    for source in model.metadata.sources:
        match = _HUB.match(source.url or "")
        if match is not None and match[1] in Models and Models.key_of(match[1]) == Models.key_of(key):
            return match[1], True
    return key, False
