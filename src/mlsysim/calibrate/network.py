"""Networks of the zoo with random weights, in PyTorch.

``build(model, device, dtype)`` makes a decoder or encoder with grouped-query attention, RMS or layer norm, gated or plain
feed-forward layers, or a vision transformer, from the dimensions of its entry. Projections of queries, keys and values are one
product, and so are the two halves of a gated layer, as the lowered graph has them.
"""

from __future__ import annotations

from typing import Any

from mlsysim.calibrate.attention_kernel import Attend, decode_attention, fastest, prefill_attention
from mlsysim.calibrate.device import Device
from mlsysim.errors import InputError
from mlsysim.models.sparse import SparseTransformerWorkload
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.models.vision import CNNWorkload, VisionTransformerWorkload


def refuse(model: Any) -> None:
    """One sentence for a model that is not built here."""
    if isinstance(model, (VisionTransformerWorkload, CNNWorkload)):
        if isinstance(model, CNNWorkload) and not model.rows:
            raise InputError(f"{model.name} has no layer rows, so there is nothing to run.")
        return
    if type(model) is not TransformerWorkload or isinstance(model, SparseTransformerWorkload):
        raise InputError(f"verify builds dense transformers, vision transformers and layer rows; {model.name} is none.")
    if model.structure == "encoder-decoder" or model.mla or model.csa or model.window or model.sparse_attention:
        raise InputError(f"verify builds plain grouped-query attention; {model.name} has another kind.")
    if model.attention_output_gate or model.embedding_dim:
        raise InputError(f"verify does not build the attention gate or narrow embedding of {model.name}.")
    if not (model.has_dimensions and model.vocab_size):
        raise InputError(f"{model.name} lacks dimensions (layers, hidden_dim, heads, vocab_size) to be built from.")


def build(model: Any, device: Device, dtype: Any, length: int) -> Any:
    """The network, on the device, in evaluation mode."""
    refuse(model)
    torch = device.torch
    with torch.device(device.kind):
        if isinstance(model, VisionTransformerWorkload):
            network: Any = ImageEncoder(model, device, dtype)
        else:
            network = Decoder(model, device, dtype, length)
    return network


class _Weights:
    """Parameters by name, made as the dtype asks, without the cost of a careful initialisation."""

    def __init__(self, device: Device, dtype: Any) -> None:
        self.device = device
        self.torch = device.torch
        self.dtype = dtype
        self.parameters: list[Any] = []

    def matrix(self, rows: int, columns: int) -> Any:
        return self._keep(self.torch.empty(rows, columns, dtype=self.dtype).normal_(0.0, 0.02))

    def vector(self, size: int, value: float = 0.0) -> Any:
        return self._keep(self.torch.full((size,), value, dtype=self.dtype))

    def _keep(self, tensor: Any) -> Any:
        self.parameters.append(tensor.requires_grad_(False))
        return tensor

    def linear(self, inputs: int, outputs: int, bias: bool) -> tuple[Any, Any]:
        return self.matrix(outputs, inputs), self.vector(outputs) if bias else None


class _Block:
    """Norm, attention, norm, feed-forward layer, with residuals."""

    def __init__(self, weights: _Weights, model: Any, head_dim: int, kv_heads: int, qkv_bias: bool, width: int) -> None:
        hidden = model.hidden_dim
        self.functional = weights.torch.nn.functional
        self.hidden, self.heads, self.kv_heads, self.head_dim = hidden, model.heads, kv_heads, head_dim
        self.layernorm = model.norm == "layernorm"
        self.gated = model.gated_ffn
        self.norms = [
            (weights.vector(hidden, 1.0), weights.vector(hidden) if self.layernorm else None) for _ in range(2)
        ]
        self.qkv = weights.linear(hidden, (model.heads + 2 * kv_heads) * head_dim, qkv_bias)
        self.out = weights.linear(model.heads * head_dim, hidden, model.bias)
        self.up = weights.linear(hidden, (2 if self.gated else 1) * width, model.bias)
        self.down = weights.linear(width, hidden, model.bias)

    def norm(self, x: Any, place: int) -> Any:
        scale, shift = self.norms[place]
        if self.layernorm:
            return self.functional.layer_norm(x, (self.hidden,), scale, shift)
        return self.functional.rms_norm(x, (self.hidden,), scale)

    def __call__(self, x: Any, rope: Any, attend: Attend, cache: Any, position: int) -> Any:
        functional = self.functional
        batch, length, _ = x.shape
        qkv = functional.linear(self.norm(x, 0), *self.qkv).view(batch, length, -1, self.head_dim)
        qk, v = qkv.split([self.heads + self.kv_heads, self.kv_heads], dim=2)
        if rope is not None:
            qk = rotate(qk, rope)
        q, k = (part.transpose(1, 2) for part in qk.split([self.heads, self.kv_heads], dim=2))
        v = v.transpose(1, 2)
        if cache is not None:
            keys, values = cache
            keys[:, :, position : position + 1] = k
            values[:, :, position : position + 1] = v
            k, v = keys, values
        mixed = attend(q, k, v).transpose(1, 2).reshape(batch, length, -1)
        x = x + functional.linear(mixed, *self.out)
        inner = functional.linear(self.norm(x, 1), *self.up)
        if self.gated:
            gate, value = inner.chunk(2, dim=-1)
            inner = functional.silu(gate) * value
        else:
            inner = functional.gelu(inner, approximate="tanh")
        return x + functional.linear(inner, *self.down)


def rotate(x: Any, rope: Any) -> Any:
    """Rotary embedding in three operators: the sign of the rotated half is in the sine."""
    cosine, sine = rope
    return (x * cosine).addcmul_(x.roll(x.shape[-1] // 2, -1), sine)


class Decoder:
    """A language model: tokens in, logits of the last token (or all) out."""

    def __init__(self, model: Any, device: Device, dtype: Any, length: int) -> None:
        torch = device.torch
        self.device, self.model, self.torch = device, model, torch
        weights = _Weights(device, dtype)
        self.head_dim, self.kv_heads = model.effective_head_dim, model.effective_kv_heads
        self.causal = model.structure == "decoder"
        self.embedding = weights.matrix(model.vocab_size, model.hidden_dim)
        self.positions = (
            weights.matrix(max(model.position_embeddings, length + 1), model.hidden_dim)
            if model.position_embeddings
            else None
        )
        qkv_bias = model.bias or model.qkv_bias
        width = model.effective_ffn_dim
        self.blocks = [
            _Block(weights, model, self.head_dim, self.kv_heads, qkv_bias, width) for _ in range(model.layers)
        ]
        self.final = (weights.vector(model.hidden_dim, 1.0), weights.vector(model.hidden_dim))
        self.head = None
        if self.causal:
            self.head = self.embedding if model.tied_embeddings else weights.matrix(model.vocab_size, model.hidden_dim)
        self.parameters = weights.parameters
        self.rope = None if self.positions is not None else self._rope(length + 1, dtype)
        self.dtype = dtype
        self.attend: Attend | None = None
        self.kernel = ""

    def _rope(self, length: int, dtype: Any) -> tuple[Any, Any]:
        torch, half = self.torch, self.head_dim // 2
        angle = torch.outer(torch.arange(length).float(), 10_000.0 ** (-torch.arange(half).float() / half))
        cosine, sine = torch.cos(angle), torch.sin(angle)
        doubled = torch.cat([cosine, cosine], -1), torch.cat([-sine, sine], -1)
        return tuple(table[None, :, None, :].to(dtype) for table in doubled)

    def tune(self, batch: int, length: int, phase: str) -> None:
        """Pick the attention kernel for these sizes, on inputs that lie in memory as the network's do."""
        heads, kv_heads = self.model.heads, self.kv_heads
        if phase == "decode":
            q = self._like((batch, heads, 1, self.head_dim))
            k, v = (self._like((batch, kv_heads, length, self.head_dim)) for _ in range(2))
            forms = decode_attention(self.device, heads // kv_heads)
        else:
            qk = self._like((batch, length, heads + kv_heads, self.head_dim)).transpose(1, 2)
            q, k = qk.split([heads, kv_heads], dim=1)
            v = self._like((batch, length, heads + 2 * kv_heads, self.head_dim)).transpose(1, 2)[:, -kv_heads:]
            forms = prefill_attention(self.device, self.causal, heads != kv_heads)
        self.kernel, self.attend = fastest(self.device, forms, q, k, v, backward=phase == "train")

    def _like(self, shape: tuple[int, ...]) -> Any:
        return self.torch.empty(*shape, dtype=self.dtype, device=self.device.kind).normal_()

    def caches(self, batch: int, length: int) -> list[tuple[Any, Any]]:
        """Filled caches of so many tokens, one of them still to be written."""
        shape = (batch, self.kv_heads, length, self.head_dim)
        return [(self._like(shape), self._like(shape)) for _ in self.blocks]

    def forward(self, tokens: Any, caches: Any = None, position: int = 0, every_token: bool = False) -> Any:
        functional = self.torch.nn.functional
        assert self.attend is not None
        length = tokens.shape[1]
        x = functional.embedding(tokens, self.embedding)
        rope = None
        if self.positions is not None:
            x = x + self.positions[position : position + length]
        elif self.rope is not None:
            rope = tuple(table[:, position : position + length] for table in self.rope)
        for place, block in enumerate(self.blocks):
            x = block(x, rope, self.attend, caches[place] if caches is not None else None, position)
        if self.head is None:
            return x
        scale, shift = self.final
        hidden = self.model.hidden_dim
        if self.model.norm == "layernorm":
            x = functional.layer_norm(x, (hidden,), scale, shift)
        else:
            x = functional.rms_norm(x, (hidden,), scale)
        return functional.linear(x if every_token else x[:, -1:], self.head)


class ImageEncoder:
    """A vision transformer: images in, class scores out."""

    def __init__(self, model: VisionTransformerWorkload, device: Device, dtype: Any) -> None:
        self.device, self.model, self.torch, self.dtype = device, model, device.torch, dtype
        weights = _Weights(device, dtype)
        patch = model.channels * model.patch_size**2
        self.head_dim = model.hidden_dim // model.heads
        self.patch = weights.linear(patch, model.hidden_dim, model.bias)
        self.positions = weights.matrix(model.tokens_per_image, model.hidden_dim)
        self.token = weights.matrix(1, model.hidden_dim) if model.class_token else None
        self.blocks = [
            _Block(weights, model, self.head_dim, model.heads, model.bias, model.ffn_dim) for _ in range(model.layers)
        ]
        self.head = weights.linear(model.hidden_dim, model.classes, model.bias) if model.classes else None
        self.parameters = weights.parameters
        self.attend: Attend | None = None
        self.kernel = ""

    def tune(self, batch: int, length: int, phase: str) -> None:
        shape = (batch, self.model.tokens_per_image, 3 * self.model.heads, self.head_dim)
        qkv = self.torch.empty(*shape, dtype=self.dtype, device=self.device.kind).normal_().transpose(1, 2)
        forms = prefill_attention(self.device, False, False)
        q, k, v = qkv.chunk(3, dim=1)
        self.kernel, self.attend = fastest(self.device, forms, q, k, v, backward=phase == "train")

    def forward(self, images: Any) -> Any:
        functional, model = self.torch.nn.functional, self.model
        assert self.attend is not None
        batch, size = images.shape[0], model.patch_size
        side = model.image_size // size
        patches = images[:, :, : side * size, : side * size].unfold(2, size, size).unfold(3, size, size)
        patches = patches.permute(0, 2, 3, 1, 4, 5).reshape(batch, side * side, -1)
        x = functional.linear(patches, *self.patch)
        if self.token is not None:
            x = self.torch.cat([self.token.expand(batch, 1, -1), x], 1)
        x = x + self.positions
        for block in self.blocks:
            x = block(x, None, self.attend, None, 0)
        return functional.linear(x[:, 0], *self.head) if self.head is not None else x
