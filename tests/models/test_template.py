"""One lowering: a forward pass has the same operations and weights for training, for an engine's prompt and for ``lower``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.models.stack import Block, Stack
from mlsysim.models.template import Between, Core, Counts, Mixer, Product, Reduce
from mlsysim.models.training_shape import training_shape
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.timing.engine_block import ALL, PROMPT, step_blocks
from mlsysim.timing.engine_step import engine_step
from mlsysim.timing.engines import engine

TOKENS = 384
LANGUAGE = [
    model.metadata.key
    for model in Models
    if isinstance(model, TransformerWorkload) and model.has_dimensions and model.encoder_stack is None
]


def lowered(model: TransformerWorkload) -> dict[str, float]:
    """Operations and weights of the blocks of a prompt, by kind of operator."""
    found: dict[str, float] = {}
    for op in model.lower("prefill", batch_size=1, seq_len=TOKENS, precision="bf16").operators:
        if op.layer == "head":
            continue
        # Indexers that pick keys are trained apart, so that a training step has none.
        kind = "index" if op.name.startswith("index_") and model.sparse_attention else op.kind
        found[kind] = found.get(kind, 0.0) + op.count * op.flops
        found[f"{kind} weights"] = found.get(f"{kind} weights", 0.0) + op.count * op.weight_bytes / 2
    return found


@pytest.mark.parametrize("name", LANGUAGE)
def test_training_and_engines_have_the_products_of_a_lowered_pass(name):
    model = Models.get(name)
    here = lowered(model)
    products = here.get("gemm", 0.0) + here.get("batched_gemm", 0.0)
    weights = here.get("gemm weights", 0.0) + here.get("batched_gemm weights", 0.0)
    shape = training_shape(model)
    assert 2 * TOKENS * shape.dense_parameters == pytest.approx(products, rel=1e-12)
    assert shape.dense_parameters == pytest.approx(weights, rel=1e-12)
    blocks = step_blocks(model.stack, 1, 1, mixers=False, feed=False, quantises=False)
    prompt = sum(p.count * p.elements for p in blocks.products if p.tokens in (ALL, PROMPT))
    assert 2 * TOKENS * prompt == pytest.approx(products + here.get("index", 0.0) - index_scores(model), rel=1e-12)
    assert prompt == pytest.approx(weights + here.get("index weights", 0.0), rel=1e-12)


def index_scores(model: TransformerWorkload) -> float:
    ops = model.lower("prefill", batch_size=1, seq_len=TOKENS, precision="bf16").operators
    return sum(op.count * op.flops for op in ops if op.name == "index_scores")


@pytest.mark.parametrize("name", [name for name in LANGUAGE if getattr(Models.get(name), "experts", 1) > 1])
def test_experts_are_the_same_everywhere(name):
    model = Models.get(name)
    imbalance = getattr(model, "routing_imbalance", 1.0)
    here = lowered(model).get("grouped_gemm", 0.0) / imbalance
    for experts in (
        [(kind.count, kind.experts) for kind in training_shape(model).kinds if kind.experts],
        step_blocks(model.stack, 1, 1, mixers=False, feed=False, quantises=False).experts,
    ):
        routed = sum(n * e.per_token * e.parameters / e.count for n, e in experts)
        assert 2 * TOKENS * routed == pytest.approx(here, rel=1e-12)


@pytest.mark.parametrize("name", ["Llama3_8B", "Qwen3_0_6B", "Gemma3_27B", "DeepSeekV3", "DeepSeek_V4_Flash"])
def test_attention_counts_the_same_pairs(name):
    """Training counts half of a causal square, lowering the diagonal too: (S + 1) / 2 keys a query instead of S / 2."""
    model = Models.get(name)
    seq, counted = 8192, 0.0
    shape = training_shape(model)
    every, causal = (shape.operations_per_token(seq, causal=half) for half in (False, True))
    ops = model.lower("prefill", batch_size=1, seq_len=seq, precision="bf16").operators
    counted = sum(op.count * op.flops for op in ops if op.kind == "attention") / seq
    windowed = any(core.window < seq or core.ratio > 1 for kind in shape.kinds for core in kind.cores)
    assert every >= causal
    if not windowed:
        assert counted == pytest.approx((every - causal) / 3 * (seq + 1) / seq, rel=1e-9)


def test_a_split_pass_has_the_products_of_an_engine():
    """Keys of eight heads over sixteen devices: each keeps a whole copy of one."""
    model = Models.get("Llama3_70B")
    step = engine_step(model, Hardware.get("H100"), engine("vLLM"), tp=16)
    ops = model.lower("prefill", batch_size=1, seq_len=64, precision="bf16", tp=16).operators
    here = sum(op.count * op.weight_bytes for op in ops if op.kind == "gemm")
    there = 2 * sum(p.count * p.elements for p in step.blocks.products)
    assert there == pytest.approx(here, rel=1e-12)
    (qkv,) = {op.n for op in ops if op.name == "qkv"}
    assert qkv == 128 * (64 / 16 + 2)


def test_an_engine_refuses_an_encoder():
    with pytest.raises(InputError, match="decoders"):
        engine_step(Models.get("T5_3B"), Hardware.get("H100"), engine("vLLM"))


@dataclass(frozen=True, slots=True)
class Averaging(Mixer):
    """A mixer that nobody has written: averages over groups of tokens, then one product."""

    hidden: int

    @property
    def family(self) -> tuple[str, ...]:
        return ("attention",)

    @property
    def counts(self) -> Counts:
        return Counts(2.0 * self.hidden)

    def template(self, decode: bool = False) -> tuple[Any, ...]:
        h = self.hidden
        return (Between("average", "mixer", h, h), Product("mix", "mixer", h, h, "n"), Reduce("sum", "mixer", h))


def test_a_new_mixer_is_one_class():
    """Lowering, training and an engine's step know it without a line of their own."""
    model = Models.get("Llama3_8B")
    blocks = tuple(replace(block, mixers=(Averaging(model.hidden_dim),)) for block in model.stack.blocks)
    other = model.model_copy(update={"name": "Averaged"})
    stack = Stack(
        **{name: getattr(model.stack, name) for name in model.stack.__dataclass_fields__} | {"blocks": blocks}
    )
    assert all(isinstance(block, Block) for block in blocks)
    other.__dict__["stack"] = stack
    ops = other.lower("prefill", batch_size=1, seq_len=TOKENS, precision="bf16", tp=2).operators
    assert sum(op.count for op in ops if op.name == "mix") == model.layers
    shape = training_shape(other)
    assert [p.name for p in shape.kinds[0].products] == ["mix", "ffn_up", "ffn_down"] and not shape.kinds[0].cores
    step = engine_step(other, Hardware.get("H100"), engine("vLLM"))
    known = engine_step(model, Hardware.get("H100"), engine("vLLM"))
    assert 0 < step.time(sequences=4.0, context=512.0).total < known.time(sequences=4.0, context=512.0).total
    assert step.sequence_bytes(512.0) == 0


def test_a_core_without_windows_sees_every_key():
    assert Core(8, 2, 64, 64, 128).window > 1e9
