"""Memory of a training step: state that stays, activations that wait for the backward pass.

State. Mixed precision with Adam keeps 2 bytes of weight, 2 of gradient and 12 of optimizer (fp32 weight, first and
second moment) for each parameter: 16 in all. ZeRO (Rajbhandari et al., SC'20) shares the optimizer (stage 1), gradients
(2) and weights (3) over the data-parallel group.

Activations. A transformer layer keeps for its backward pass, per token, the inputs of both norms and of both halves
(4 h), queries and attention output (2 H d), keys and values (2 H_kv d), and what enters and leaves the activation of the
feed-forward layer (3 f gated, 2 f plain). For GPT that is 16 h elements, 32 bytes in 16 bit: Korthikanti et al. (MLSys
2023) count 34 with dropout masks. Attention scores are not kept (flash attention, or selective recomputation). Full
recomputation keeps only the input of each layer, h. Without sequence parallelism the 4 h are not split over the
tensor-parallel group.
"""

from __future__ import annotations

import re
from typing import Any

from mlsysim.errors import unknown_name
from mlsysim.units.kernel import kernel

# Bytes of optimizer state per parameter in mixed precision, the fp32 master weight included, and in full fp32.
OPTIMIZERS: dict[str, tuple[float, float]] = {
    "adam": (12.0, 8.0),
    "adamw": (12.0, 8.0),
    "adam_bf16": (8.0, 4.0),
    "adam_8bit": (6.0, 2.0),
    "adafactor": (4.0, 0.0),
    "sgd": (4.0, 0.0),
    "momentum": (8.0, 4.0),
    "lion": (8.0, 4.0),
    "muon": (8.0, 4.0),
}
_EIGHT_BITS = re.compile(r"(paged_)?adamw?_(bnb_)?8_?bit")

MUON = "muon"


def optimizer_key(name: str) -> str:
    """An optimizer by its key, however it is spelled.

    >>> optimizer_key("AdamW"), optimizer_key("paged_adamw_8bit")
    ('adamw', 'adam_8bit')
    """
    key = name.lower().replace("-", "_") if isinstance(name, str) else name
    if isinstance(key, str) and _EIGHT_BITS.fullmatch(key):
        return "adam_8bit"
    if not isinstance(key, str) or key not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS, remedy="use one of " + ", ".join(OPTIMIZERS) + ".")
    return key


def optimizer_bytes(name: str, weight_bytes: float) -> float:
    """Optimizer bytes per parameter; 32-bit weights are their own master copy."""
    mixed, full = OPTIMIZERS[optimizer_key(name)]
    return full if weight_bytes >= 4 else mixed


@kernel("""
    parameters [1e6, 1e13], weight: byte [0.5, 4], gradient: byte [1, 4], optimizer: byte [1, 12],
    weight_shards [1, 1e4], gradient_shards [1, 1e4],
    optimizer_shards [1, 1e4] -> weights: byte, gradients: byte, optimizer_state: byte
""")
def sharded_state(
    parameters: Any,
    weight: Any,
    gradient: Any,
    optimizer: Any,
    weight_shards: Any,
    gradient_shards: Any,
    optimizer_shards: Any,
) -> Any:
    """Weights, gradients and optimizer state on one device."""
    return (
        parameters * weight / weight_shards,
        parameters * gradient / gradient_shards,
        parameters * optimizer / optimizer_shards,
    )


@kernel("tokens, replicated, split [1, 1e7], tensor_parallel whole [1, 72], element: byte [1, 4] -> size: byte")
def activation_bytes_per_layer(tokens: Any, replicated: Any, split: Any, tensor_parallel: Any, element: Any) -> Any:
    """Bytes that one layer keeps for ``tokens`` tokens: elements per token that every device has, and those split."""
    return tokens * (replicated + split / tensor_parallel) * element
