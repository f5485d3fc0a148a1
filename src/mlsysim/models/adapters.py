"""Low-rank adapters (LoRA): which products they stand beside, and their parameters.

    parameters = r (rows + columns) for each matrix

Left out: adapters beside routed experts, which are refused, and of tables and heads.
"""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.models.base import Workload
from mlsysim.models.ffn import MixtureOfExperts
from mlsysim.models.stack import stack_of

ATTENTION, EVERY = "attention", "all"
"""Adapters beside the projections of attention, and beside all products of a layer."""
_MODULES = {
    ATTENTION: ("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "out_proj", "c_attn", "query_key_value", "dense"),
    EVERY: (
        *("all-linear", "all_linear", "gate_proj", "up_proj", "down_proj", "gate_up_proj"),
        *("w1", "w2", "w3", "c_fc", "fc1", "fc2"),
    ),
}
"""Names that PEFT's ``target_modules`` has for them."""


def targets_of(value: Any) -> Any:
    """Which products adapters stand beside, by our word or by names of modules; what is neither stays as it is.

    >>> targets_of("q_proj, v_proj"), targets_of(["q_proj", "down_proj"]), targets_of("all"), targets_of([[]])
    ('attention', 'all', 'all', [[]])
    """
    named = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if not isinstance(named, list):
        return value
    kinds = {next((kind for kind, names in _MODULES.items() if each in (kind, *names)), None) for each in named}
    if not kinds or None in kinds:
        return value
    return EVERY if EVERY in kinds else ATTENTION


def adapted_matrices(model: Workload) -> tuple[float, float]:
    """Matrices that adapters stand beside, the attention projections, and the side of one, taken as square; none where not known."""
    layers, hidden = getattr(model, "layers", None), getattr(model, "hidden_dim", None)
    return (4.0 * layers, float(hidden)) if layers and hidden else (0.0, 0.0)


def adapter_parameters(model: Workload, rank: Any, targets: str = ATTENTION) -> Any:
    """Parameters of rank-r adapters on the attention projections, 2 r h for each square-ish matrix, and of ``all`` products r (h + width) for each matrix
    of dense feed-forward layers."""
    matrices, side = adapted_matrices(model)
    found = matrices * 2 * rank * side if matrices else 0.01 * model.parameter_count
    if targets == ATTENTION:
        return found
    stack = stack_of(model)
    ffns = [] if stack is None else [(block.count, block.ffn) for block in stack.blocks]
    if stack is None or not matrices or any(isinstance(ffn, MixtureOfExperts) for _, ffn in ffns):
        words = f"Adapters beside routed experts or unknown layers are not counted, which {model.name} has; leave lora_targets out, or say attention."
        raise InputError(words, field="lora_targets")
    each = (count * (3 if ffn.gated else 2) * (stack.hidden + ffn.width) for count, ffn in ffns if ffn is not None)
    return found + rank * sum(each)
