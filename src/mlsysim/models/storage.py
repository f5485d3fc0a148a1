"""Bytes of a model's weights in a format: which parts are stored in it, and which stay in 16 bits.

A checkpoint in AWQ or GPTQ keeps embeddings and output head in 16 bits, gpt-oss everything but its experts. The table of formats
says which (``kept``); a format that is kept by all weights has bits/8 bytes for every parameter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.physics.precision import HALF, compute_precision, expanded_bytes, format_of, recipe_of
from mlsysim.vocabulary import Setting, worded


class Stored(NamedTuple):
    """Mean bytes of a weight: of those that all tokens share, of routed experts, and of all."""

    shared: float
    experts: float
    mean: float


def routed_parameters(model: Any) -> float:
    """Parameters of all routed experts of a mixture: by its layers, else what is not active, and the experts that are."""
    experts, chosen = getattr(model, "experts", 1), getattr(model, "active_experts_per_token", 1)
    if experts <= chosen:
        return 0.0
    if getattr(model, "has_dimensions", False):
        routed = ((block.count, getattr(block.ffn, "routed", None)) for block in model.stack.blocks)
        return float(
            min(sum(count * each.parameters for count, each in routed if each is not None), model.parameter_count)
        )
    return float((model.parameter_count - model.active_parameter_count) / (1 - chosen / experts))


def tables(model: Any) -> int:
    """Tables of tokens: the embeddings, and an output head of its own."""
    alone = getattr(model, "tied_embeddings", False) or getattr(model, "structure", "decoder") == "encoder"
    return 1 if alone else 2


def token_table(model: Any) -> float:
    """Parameters of one table of tokens."""
    return float((getattr(model, "vocab_size", None) or 0) * (getattr(model, "hidden_dim", None) or 0))


def table_parameters(model: Any) -> float:
    """Parameters of embeddings and of an output head of its own."""
    return tables(model) * token_table(model)


def kept_parts(model: Any, precision: str) -> str:
    """Which parts of this model the format is of: all, layers or experts; a dense model has no experts to set apart."""
    kept = format_of(precision).kept
    return "layers" if kept == "experts" and getattr(model, "experts", 1) <= 1 else kept


def stored(model: Any, precision: str) -> Stored:
    """Bytes of a weight in a format."""
    found = format_of(precision)
    own = found.bytes
    kept = kept_parts(model, precision)
    if kept == "all" or not found.narrow:
        return Stored(own, own, own)
    total = model.parameter_count
    pool = routed_parameters(model)
    rest = total - pool
    wide = rest if kept == "experts" else min(table_parameters(model), rest)
    shared = (found.rest / 8 * wide + own * (rest - wide)) / rest if rest else own
    return Stored(shared, own, (shared * rest + own * pool) / total)


def weight_products(model: Any, tokens: Any) -> Any:
    """Operations of a forward pass with weights; the others of a transformer are scores."""
    return 2 * model.active_parameter_count * tokens


def expanded_work(model: Any, demand: Any, precision: Any) -> tuple[Any, Any, Any]:
    """Operations with the weights that a forward pass reads: of a narrow format with a single row, and of all; and bytes of expanding
    them in memory."""
    asked = format_of(precision)
    products = demand.hardware_flops if model.fixed_shape else weight_products(model, demand.tokens)
    if not asked.narrow:
        return 0.0, products, 0.0
    read = demand.weight_bytes / stored(model, precision).mean
    return 2 * read, products, expanded_bytes(read, HALF, demand.tokens) if asked.expanded == "memory" else 0.0


def expanded_training(model: Any, demand: Any, precision: str, frozen: bool) -> Any:
    """Bytes of frozen weights that are expanded in memory for each product of a training step: adapters on a weight-only format.

    Trained weights are kept in 16 bits at least. Whole matrices are written and read again, as PEFT does for every such format; reading them as they are
    stored is counted with the weights.
    """
    asked = format_of(precision)
    if not (frozen and asked.weight_only):
        return 0.0
    return (asked.expansion - asked.bytes + HALF) * demand.weight_bytes / stored(model, precision).mean


def check_trained(precision: str, frozen: Any, core: Any, chip: str) -> None:
    """Refuse to train weights that are stored in a format which nothing multiplies in, and to train in one that this chip does not."""
    recipe, narrow = recipe_of(precision), compute_precision(precision)
    if recipe.narrow and not core.supports(narrow):
        wide = "bf16" if core.supports("bf16") else "fp16"
        words = f"{chip} has no {narrow} arithmetic, in which {precision} trains; train in "
        raise InputError(worded(words, Setting("precision", wide), "."), field="precision")
    if recipe.narrow and not format_of(precision).scaled_by(core):
        words = f"{chip} multiplies in {narrow} without scales of blocks, with which {precision} trains; train in "
        raise InputError(worded(words, Setting("precision", narrow), "."), field="precision")
    if format_of(precision).weight_only and not frozen:
        raise InputError(
            worded(
                f"{precision} stores weights and trains none; train adapters on them (",
                Setting("lora_rank", 16),
                "), or use bf16, fp8, mxfp8 or nvfp4.",
            ),
            field="precision",
        )
