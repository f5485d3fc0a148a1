"""FLOPs of lowered graphs against PyTorch's own counter, for one model of each family.

The networks below are written from the published architectures and run on the meta device, so they cost no memory and
no arithmetic. Two conventions differ and are levelled here:

* the counter counts every query-key pair, masked or not, so causal attention is compared by its dense count;
* the counter sees matrix products and convolutions only, so the scans of recurrent layers are left out on both sides.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from mlsysim import Models
from mlsysim.models.graph import ComputationGraph
from mlsysim.models.types import BlockKind, Operator

try:
    import torch
    import torch.nn.functional as F
    from torch.utils.flop_counter import FlopCounterMode
except ImportError:
    torch = None  # type: ignore[assignment]

REQUIRED = bool(os.environ.get("MLSYSIM_REQUIRE_ORACLES"))
SKIPPED = (
    "torch is not installed, so the operations of lowered graphs were not compared with PyTorch's FLOP counter "
    "(one model of each family)"
)
TOLERANCE = 0.01

pytestmark = [pytest.mark.oracle, pytest.mark.skipif(torch is None and not REQUIRED, reason=SKIPPED)]


@pytest.fixture(autouse=True)
def _torch_is_installed() -> None:
    if torch is None:
        pytest.fail("MLSYSIM_REQUIRE_ORACLES is set, but torch is not installed.")


def counted(network: Callable[[], Any]) -> int:
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        network()
    return int(counter.get_total_flops())


def dense_flops(graph: ComputationGraph, v_dim: int | None = None) -> float:
    """Operations of a graph with every query-key pair counted and without scans."""

    def one(op: Operator) -> float:
        if op.kind == "scan":
            return 0.0
        if op.kind == "attention":
            forward = 2 * op.groups * op.m * op.n * (op.k + (v_dim or op.k))
            return float(2 * forward if op.direction == "backward" else forward)
        return float(op.flops)

    return sum(one(op) * op.count for op in graph.operators)


def close(graph: ComputationGraph, network: Callable[[], Any], v_dim: int | None = None) -> None:
    ours, theirs = dense_flops(graph, v_dim), counted(network)
    assert theirs > 0
    assert ours == pytest.approx(theirs, rel=TOLERANCE)


@dataclass
class Layers:
    """The layers that the networks are made of; weights are made where they are used."""

    training: bool = False

    def weight(self, *shape: int) -> Any:
        return torch.empty(*shape, requires_grad=self.training)

    def dense(self, x: Any, width: int) -> Any:
        return F.linear(x, self.weight(width, x.shape[-1]))

    def table(self, tokens: Any, rows: int, width: int) -> Any:
        return F.embedding(tokens, self.weight(rows, width))

    def conv(self, x: Any, out: int, kernel: int, stride: int = 1) -> Any:
        return F.conv2d(x, self.weight(out, x.shape[1], kernel, kernel), stride=stride, padding=kernel // 2)

    def causal_conv(self, x: Any, kernel: int) -> Any:
        """Depthwise over the sequence; x is batch x length x channels."""
        channels = x.shape[-1]
        padded = F.pad(x.transpose(1, 2), (kernel - 1, 0))
        return F.conv1d(padded, self.weight(channels, 1, kernel), groups=channels).transpose(1, 2)

    @staticmethod
    def heads(x: Any, count: int) -> Any:
        b, s, width = x.shape
        return x.view(b, s, count, width // count).transpose(1, 2)

    @staticmethod
    def attend(q: Any, k: Any, v: Any) -> Any:
        repeat = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        out = torch.softmax(q @ k.transpose(-1, -2), -1) @ v
        return out.transpose(1, 2).flatten(2)

    def attention(self, x: Any, heads: int, kv_heads: int, d: int, source: Any = None, gate: bool = False) -> Any:
        keys = x if source is None else source
        q = self.heads(self.dense(x, heads * d), heads)
        k = self.heads(self.dense(keys, kv_heads * d), kv_heads)
        v = self.heads(self.dense(keys, kv_heads * d), kv_heads)
        out = self.attend(q, k, v)
        if gate:
            out = out * torch.sigmoid(self.dense(x, heads * d))
        return self.dense(out, x.shape[-1])

    def ffn(self, x: Any, width: int, gated: bool) -> Any:
        inner = F.silu(self.dense(x, width))
        return self.dense(inner * self.dense(x, width) if gated else inner, x.shape[-1])

    def moe(self, x: Any, experts: int, per_token: int, width: int) -> Any:
        """The active experts of every token under even routing: each expert serves tokens x k / E rows."""
        self.dense(x, experts)
        rows, left_over = divmod(x.shape[0] * x.shape[1] * per_token, experts)
        assert left_over == 0
        for _ in range(experts):
            self.ffn(x.flatten(0, 1)[:rows], width, gated=True)
        return x

    def encoder_layer(self, x: Any, heads: int, width: int, gated: bool = False) -> Any:
        x = x + self.attention(x, heads, heads, x.shape[-1] // heads)
        return x + self.ffn(x, width, gated)


BATCH, LENGTH = 2, 64


def tokens(length: int = LENGTH) -> Any:
    return torch.zeros(BATCH, length, dtype=torch.long)


def decoder(model: Any, net: Layers, all_logits: bool = False) -> Any:
    x = net.table(tokens(), model.vocab_size, model.hidden_dim)
    for _ in range(model.layers):
        x = x + net.attention(x, model.heads, model.effective_kv_heads, model.effective_head_dim)
        x = x + net.ffn(x, model.ffn_dim, model.gated_ffn)
    return net.dense(x if all_logits else x[:, -1], model.vocab_size)


def test_the_counter_counts_masked_pairs() -> None:
    """The reason for comparing dense counts: a causal mask changes nothing in the counter."""
    shape = (2, 8, 128, 64)

    def fused(causal: bool) -> int:
        return counted(
            lambda: F.scaled_dot_product_attention(*(torch.empty(*shape) for _ in range(3)), is_causal=causal)
        )

    assert fused(True) == fused(False) == 2 * 2 * 8 * 128 * 128 * (64 + 64)


def test_dense_decoder_with_grouped_queries_and_gated_ffn() -> None:
    model = Models.Llama3_8B.model_copy(update={"layers": 2})
    graph = model.lower("prefill", batch_size=BATCH, seq_len=LENGTH)
    close(graph, lambda: decoder(model, Layers()))


def test_decoder_training_step() -> None:
    model = Models.Llama3_2_1B.model_copy(update={"layers": 2})
    graph = model.lower("training", batch_size=BATCH, seq_len=LENGTH)
    close(graph, lambda: decoder(model, Layers(training=True), all_logits=True).sum().backward())


def test_encoder() -> None:
    model = Models.BERT_Base

    def network() -> None:
        net = Layers()
        x = net.table(tokens(), model.vocab_size, model.hidden_dim)
        for _ in range(model.layers):
            x = net.encoder_layer(x, model.heads, model.ffn_dim)

    close(model.lower(batch_size=BATCH, seq_len=LENGTH), network)


def test_encoder_decoder() -> None:
    model, target = Models.T5_Base, 48

    def network() -> None:
        net, d = Layers(), model.effective_head_dim
        source = net.table(tokens(), model.vocab_size, model.hidden_dim)
        for _ in range(model.encoder_layers):
            source = net.encoder_layer(source, model.heads, model.ffn_dim, model.gated_ffn)
        x = net.table(tokens(target), model.vocab_size, model.hidden_dim)
        for _ in range(model.layers):
            x = x + net.attention(x, model.heads, model.heads, d)
            x = x + net.attention(x, model.heads, model.heads, d, source=source)
            x = x + net.ffn(x, model.ffn_dim, model.gated_ffn)
        net.dense(x[:, -1], model.vocab_size)

    close(model.lower("prefill", batch_size=BATCH, seq_len=LENGTH, target_len=target), network)


def test_mixture_of_experts() -> None:
    model = Models.Mixtral_8x7B.model_copy(update={"layers": 2})

    def network() -> None:
        net = Layers()
        x = net.table(tokens(), model.vocab_size, model.hidden_dim)
        for _ in range(model.layers):
            x = x + net.attention(x, model.heads, model.kv_heads, model.effective_head_dim)
            x = x + net.moe(x, model.experts, model.active_experts_per_token, model.expert_ffn_dim)
        net.dense(x[:, -1], model.vocab_size)

    close(model.lower("prefill", batch_size=BATCH, seq_len=LENGTH), network)


def test_latent_attention_with_shared_and_routed_experts() -> None:
    model = Models.DeepSeek_V3.model_copy(update={"layers": 3, "dense_layers": 1})
    m = model.mla

    def attention(net: Layers, x: Any) -> Any:
        b, s, h = x.shape
        qk = m.qk_nope_head_dim + m.qk_rope_head_dim
        q = net.heads(net.dense(net.dense(x, m.q_lora_rank), model.heads * qk), model.heads)
        latent = net.dense(x, m.kv_lora_rank + m.qk_rope_head_dim)
        rope = latent[..., m.kv_lora_rank :].unsqueeze(1).expand(b, model.heads, s, m.qk_rope_head_dim)
        expanded = net.dense(latent[..., : m.kv_lora_rank], model.heads * (m.qk_nope_head_dim + m.v_head_dim))
        nope, v = net.heads(expanded, model.heads).split([m.qk_nope_head_dim, m.v_head_dim], -1)
        return net.dense(net.attend(q, torch.cat([nope, rope], -1), v), h)

    def network() -> None:
        net = Layers()
        x = net.table(tokens(), model.vocab_size, model.hidden_dim)
        for layer in range(model.layers):
            x = x + attention(net, x)
            if layer < model.dense_layers:
                x = x + net.ffn(x, model.ffn_dim, gated=True)
            else:
                routed = net.moe(x, model.experts, model.active_experts_per_token, model.expert_ffn_dim)
                x = x + routed + net.ffn(x, model.expert_ffn_dim * model.shared_experts, gated=True)
        net.dense(x[:, -1], model.vocab_size)

    close(model.lower("prefill", batch_size=BATCH, seq_len=LENGTH), network, v_dim=m.v_head_dim)


def test_mamba_projections_and_convolution() -> None:
    model = Models.Mamba_130M
    inner, n = 2 * model.hidden_dim, model.mamba.state_size

    def network() -> None:
        net = Layers()
        x = net.table(tokens(), model.vocab_size, model.hidden_dim)
        for _ in range(model.layers):
            u, gate = net.dense(x, 2 * inner).chunk(2, -1)
            u = net.causal_conv(u, model.mamba.conv_kernel)
            net.dense(net.dense(u, model.mamba.dt_rank + 2 * n)[..., : model.mamba.dt_rank], inner)
            x = x + net.dense(u * gate, model.hidden_dim)
        net.dense(x[:, -1], model.vocab_size)

    close(model.lower("prefill", batch_size=BATCH, seq_len=LENGTH), network)


def test_mamba2_projections_and_convolution() -> None:
    model = Models.Mamba2_130M
    spec = model.mamba
    inner, states = spec.heads * spec.head_dim, 2 * spec.groups * spec.state_size

    def network() -> None:
        net = Layers()
        x = net.table(tokens(), model.vocab_size, model.hidden_dim)
        for _ in range(model.layers):
            gate, mixed, _ = net.dense(x, 2 * inner + states + spec.heads).split(
                [inner, inner + states, spec.heads], -1
            )
            u = net.causal_conv(mixed, spec.conv_kernel)[..., :inner]
            x = x + net.dense(u * gate, model.hidden_dim)
        net.dense(x[:, -1], model.vocab_size)

    close(model.lower("prefill", batch_size=BATCH, seq_len=LENGTH), network)


def test_linear_attention_projections_and_gated_attention() -> None:
    blocks = (BlockKind(mixer="linear", ffn="dense", count=3), BlockKind(mixer="attention", ffn="dense", count=1))
    model = Models.Qwen3_5_27B.model_copy(update={"layers": 4, "blocks": blocks})
    spec = model.linear_attention
    keys, values = spec.key_heads * spec.key_head_dim, spec.value_heads * spec.value_head_dim

    def network() -> None:
        net = Layers()
        x = net.table(tokens(), model.vocab_size, model.hidden_dim)
        for layer in range(4):
            if layer < 3:
                net.causal_conv(net.dense(x, 2 * keys + values), spec.conv_kernel)
                gate = net.dense(x, values)
                net.dense(x, spec.value_heads)  # decay
                net.dense(x, spec.value_heads)  # write strength
                x = x + net.dense(gate, model.hidden_dim)
            else:
                x = x + net.attention(x, model.heads, model.kv_heads, model.head_dim, gate=True)
            x = x + net.ffn(x, model.ffn_dim, gated=True)
        net.dense(x[:, -1], model.vocab_size)

    close(model.lower("prefill", batch_size=BATCH, seq_len=LENGTH), network)


def resnet50(net: Layers) -> None:
    x = net.conv(torch.empty(BATCH, 3, 224, 224), 64, 7, 2)
    x = F.max_pool2d(x, 3, 2, 1)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            out = net.conv(net.conv(net.conv(x, width, 1), width, 3, stride), 4 * width, 1)
            x = out + (x if block else net.conv(x, 4 * width, 1, stride))
    net.dense(x.mean((2, 3)), 1000)


def test_convolutional_network() -> None:
    close(Models.ResNet50.lower(batch_size=BATCH), lambda: resnet50(Layers()))


def patches(net: Layers, model: Any, images: int) -> Any:
    pixels = torch.empty(images, model.channels, model.image_size, model.image_size)
    kernel = net.weight(model.hidden_dim, model.channels, model.patch_size, model.patch_size)
    x = F.conv2d(pixels, kernel, stride=model.patch_size).flatten(2).transpose(1, 2)
    return torch.cat([torch.empty(images, 1, model.hidden_dim), x], 1)


def test_vision_transformer() -> None:
    model = Models.ViT_B_16

    def network() -> None:
        net = Layers()
        x = patches(net, model, BATCH)
        for _ in range(model.layers):
            x = net.encoder_layer(x, model.heads, model.ffn_dim)
        net.dense(x[:, 0], model.classes)

    close(model.lower(batch_size=BATCH), network)


def test_diffusion_transformer() -> None:
    model = Models.DiT_XL_2
    depth, hidden, heads = 28, 1152, 16

    def network() -> None:
        net = Layers()
        x = net.conv(torch.empty(BATCH, 4, 33, 33), hidden, 2, 2)[..., :16, :16].flatten(2).transpose(1, 2)
        time = net.dense(net.dense(torch.empty(BATCH, 256), hidden), hidden)
        for _ in range(depth):
            net.dense(time, 6 * hidden)
            x = net.encoder_layer(x, heads, 4 * hidden)
        net.dense(time, 2 * hidden)
        net.dense(x, 2 * 2 * 8)

    close(model.lower(batch_size=BATCH), network)


def unet(net: Layers) -> None:
    """The U-Net of Stable Diffusion 1.x on a 64 x 64 latent with 77 text tokens."""
    channels, heads = (320, 640, 1280, 1280), 8
    text = torch.empty(BATCH, 77, 768)
    time = net.dense(net.dense(torch.empty(BATCH, 320), 1280), 1280)

    def residual(x: Any, out: int) -> Any:
        net.dense(time, out)
        y = net.conv(net.conv(x, out, 3), out, 3)
        return y + (x if x.shape[1] == out else net.conv(x, out, 1))

    def transform(x: Any) -> Any:
        b, c, h, w = x.shape
        y = net.conv(x, c, 1).flatten(2).transpose(1, 2)
        y = y + net.attention(y, heads, heads, c // heads)
        y = y + net.attention(y, heads, heads, c // heads, source=text)
        y = y + net.ffn(y, 4 * c, gated=True)
        return net.conv(y.transpose(1, 2).reshape(b, c, h, w), c, 1)

    x = net.conv(torch.empty(BATCH, 4, 64, 64), 320, 3)
    skips = [x]
    for level, c in enumerate(channels):
        for _ in range(2):
            x = residual(x, c)
            x = transform(x) if level < 3 else x
            skips.append(x)
        if level < 3:
            x = net.conv(x, c, 3, 2)
            skips.append(x)
    x = residual(transform(residual(x, 1280)), 1280)
    for level, c in reversed(list(enumerate(channels))):
        for _ in range(3):
            x = residual(torch.cat([x, skips.pop()], 1), c)
            x = transform(x) if level < 3 else x
        if level:
            x = net.conv(F.interpolate(x, scale_factor=2), c, 3)
    net.conv(x, 4, 3)


def test_diffusion_unet() -> None:
    close(Models.StableDiffusion_1_5.lower(batch_size=BATCH), lambda: unet(Layers()))


def test_recommendation() -> None:
    model = Models.DLRM_MLPerf

    def network() -> None:
        net = Layers()
        x = torch.empty(BATCH, model.dense_features)
        for width in model.bottom_mlp[1:]:
            x = net.dense(x, width)
        vectors = torch.cat([x.unsqueeze(1), torch.empty(BATCH, model.tables, model.embedding_dim)], 1)
        pairs = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)[:, : (model.tables + 1) * model.tables // 2]
        x = torch.cat([x, pairs], 1)
        for width in model.top_mlp:
            x = net.dense(x, width)

    close(model.lower(batch_size=BATCH), network)


def test_recommendation_with_cross_layers() -> None:
    model = Models.DLRM_DCNv2

    def network() -> None:
        net = Layers()
        x = torch.empty(BATCH, model.dense_features)
        for width in model.bottom_mlp[1:]:
            x = net.dense(x, width)
        start = x = torch.cat([x, torch.empty(BATCH, model.tables * model.embedding_dim)], 1)
        for _ in range(model.dcn_layers):
            x = start * net.dense(net.dense(x, model.dcn_rank), x.shape[1]) + x
        for width in model.top_mlp:
            x = net.dense(x, width)

    close(model.lower(batch_size=BATCH), network)


def test_speech() -> None:
    model = Models.Whisper_Small
    h = model.hidden_dim

    def network() -> None:
        net, d = Layers(), model.effective_head_dim
        mel = torch.empty(BATCH, model.mel_bins, 2 * model.encoder_positions)
        mel = F.conv1d(mel, net.weight(h, model.mel_bins, 3), padding=1)
        source = F.conv1d(mel, net.weight(h, h, 3), stride=2, padding=1).transpose(1, 2)
        for _ in range(model.encoder_layers):
            source = net.encoder_layer(source, model.heads, model.ffn_dim)
        x = net.table(tokens(), model.vocab_size, h)
        for _ in range(model.layers):
            x = x + net.attention(x, model.heads, model.heads, d)
            x = x + net.attention(x, model.heads, model.heads, d, source=source)
            x = x + net.ffn(x, model.ffn_dim, model.gated_ffn)
        net.dense(x[:, -1], model.vocab_size)

    close(model.lower("prefill", batch_size=BATCH, seq_len=LENGTH), network)


@pytest.mark.parametrize("phase", ["prefill", "training"])
def test_vision_language(phase: str) -> None:
    whole = Models.LLaVA_1_5_7B
    vision = whole.vision.model_copy(update={"layers": 2})
    language = whole.language.model_copy(update={"layers": 2})
    model = whole.model_copy(update={"vision": vision, "language": language})

    def network() -> None:
        net = Layers(training=phase == "training")
        x = patches(net, vision, BATCH)
        for _ in range(vision.layers):
            x = net.encoder_layer(x, vision.heads, vision.ffn_dim)
        image = net.dense(F.gelu(net.dense(x[:, 1:], language.hidden_dim)), language.hidden_dim)
        text = net.table(tokens(), language.vocab_size, language.hidden_dim)
        x = torch.cat([image, text], 1)
        for _ in range(language.layers):
            x = x + net.attention(x, language.heads, language.heads, language.effective_head_dim)
            x = x + net.ffn(x, language.ffn_dim, gated=True)
        logits = net.dense(x if phase == "training" else x[:, -1], language.vocab_size)
        if phase == "training":
            logits.sum().backward()

    close(model.lower(phase, batch_size=BATCH, seq_len=LENGTH), network)
