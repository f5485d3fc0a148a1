"""Networks of the zoo with random weights, in PyTorch.

``build(model, device, dtype)`` makes a decoder or encoder with grouped-query attention, RMS or layer norm, gated or plain
feed-forward layers, or a vision transformer, from the dimensions of its entry. Projections of queries, keys and values are one
product, and so are the two halves of a gated layer, as the lowered graph has them. ``run_rows`` runs a network that is given by layer rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.calibrate.device import Attend, Device, decode_attention, fastest, prefill_attention
from mlsysim.errors import InputError
from mlsysim.models.layers import Layer
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
    with device.torch.device(device.kind):
        if isinstance(model, VisionTransformerWorkload):
            return ImageEncoder(model, device, dtype)
        return Decoder(model, device, dtype, length)


class _Network:
    """Parameters made as the dtype asks, without the cost of a careful initialisation, and attention by the fastest kernel."""

    attend: Attend
    kernel = ""

    def __init__(self, model: Any, device: Device, dtype: Any) -> None:
        self.model, self.device, self.torch, self.dtype = model, device, device.torch, dtype
        self.functional = device.torch.nn.functional
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

    def norm(self) -> Callable[[Any], Any]:
        """The model's norm, with weights of its own."""
        hidden = self.model.hidden_dim
        scale = self.vector(hidden, 1.0)
        if self.model.norm != "layernorm":
            return lambda x: self.functional.rms_norm(x, (hidden,), scale)
        shift = self.vector(hidden)
        return lambda x: self.functional.layer_norm(x, (hidden,), scale, shift)

    def random(self, *shape: int) -> Any:
        return self.torch.empty(*shape, dtype=self.dtype, device=self.device.kind).normal_()

    def choose(self, forms: dict[str, Attend], q: Any, k: Any, v: Any, phase: str) -> None:
        """Take the fastest form of attention on these inputs."""
        self.kernel, self.attend = fastest(self.device, forms, q, k, v, backward=phase == "train")


class _Block:
    """Norm, attention, norm, feed-forward layer, with residuals."""

    def __init__(self, network: _Network, head_dim: int, kv_heads: int, qkv_bias: bool, width: int) -> None:
        model = network.model
        hidden, self.functional, self.gated = model.hidden_dim, network.functional, model.gated_ffn
        self.heads, self.kv_heads, self.head_dim = model.heads, kv_heads, head_dim
        self.norms = [network.norm() for _ in range(2)]
        self.qkv = network.linear(hidden, (model.heads + 2 * kv_heads) * head_dim, qkv_bias)
        self.out = network.linear(model.heads * head_dim, hidden, model.bias)
        self.up = network.linear(hidden, (2 if self.gated else 1) * width, model.bias)
        self.down = network.linear(width, hidden, model.bias)

    def __call__(self, x: Any, rope: Any, attend: Attend, cache: Any, position: int) -> Any:
        functional = self.functional
        batch, length, _ = x.shape
        qkv = functional.linear(self.norms[0](x), *self.qkv).view(batch, length, -1, self.head_dim)
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
        inner = functional.linear(self.norms[1](x), *self.up)
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


class Decoder(_Network):
    """A language model: tokens in, logits of the last token (or all) out."""

    def __init__(self, model: Any, device: Device, dtype: Any, length: int) -> None:
        super().__init__(model, device, dtype)
        self.head_dim, self.kv_heads = model.effective_head_dim, model.effective_kv_heads
        self.causal = model.structure == "decoder"
        self.embedding, self.positions, self.rope = self.matrix(model.vocab_size, model.hidden_dim), None, None
        if model.position_embeddings:
            self.positions = self.matrix(max(model.position_embeddings, length + 1), model.hidden_dim)
        else:
            self.rope = self._rope(length + 1)
        sizes = (self.head_dim, self.kv_heads, model.bias or model.qkv_bias, model.effective_ffn_dim)
        self.blocks = [_Block(self, *sizes) for _ in range(model.layers)]
        self.final, self.head = self.norm(), None
        if self.causal:
            self.head = self.embedding if model.tied_embeddings else self.matrix(model.vocab_size, model.hidden_dim)

    def _rope(self, length: int) -> tuple[Any, Any]:
        torch, half = self.torch, self.head_dim // 2
        angle = torch.outer(torch.arange(length).float(), 10_000.0 ** (-torch.arange(half).float() / half))
        cosine, sine = torch.cos(angle), torch.sin(angle)
        doubled = torch.cat([cosine, cosine], -1), torch.cat([-sine, sine], -1)
        return tuple(table[None, :, None, :].to(self.dtype) for table in doubled)

    def tune(self, batch: int, length: int, phase: str) -> None:
        """Pick the attention kernel for these sizes, on inputs that lie in memory as the network's do."""
        heads, kv_heads, size = self.model.heads, self.kv_heads, self.head_dim
        if phase == "decode":
            q, (k, v) = self.random(batch, heads, 1, size), self.cache(batch, length)
            return self.choose(decode_attention(self.device, heads // kv_heads), q, k, v, phase)
        q, k = self.random(batch, length, heads + kv_heads, size).transpose(1, 2).split([heads, kv_heads], dim=1)
        v = self.random(batch, length, heads + 2 * kv_heads, size).transpose(1, 2)[:, -kv_heads:]
        return self.choose(prefill_attention(self.device, self.causal, heads != kv_heads), q, k, v, phase)

    def cache(self, batch: int, length: int) -> tuple[Any, Any]:
        shape = (batch, self.kv_heads, length, self.head_dim)
        return self.random(*shape), self.random(*shape)

    def caches(self, batch: int, length: int) -> list[tuple[Any, Any]]:
        """Filled caches of so many tokens, one of them still to be written."""
        return [self.cache(batch, length) for _ in self.blocks]

    def forward(self, tokens: Any, caches: Any = None, position: int = 0, every_token: bool = False) -> Any:
        length, rope = tokens.shape[1], None
        x = self.functional.embedding(tokens, self.embedding)
        if self.positions is not None:
            x = x + self.positions[position : position + length]
        elif self.rope is not None:
            rope = tuple(table[:, position : position + length] for table in self.rope)
        for place, block in enumerate(self.blocks):
            x = block(x, rope, self.attend, caches[place] if caches is not None else None, position)
        if self.head is None:
            return x
        x = self.final(x)
        return self.functional.linear(x if every_token else x[:, -1:], self.head)


class ImageEncoder(_Network):
    """A vision transformer: images in, class scores out."""

    def __init__(self, model: VisionTransformerWorkload, device: Device, dtype: Any) -> None:
        super().__init__(model, device, dtype)
        hidden, self.head_dim = model.hidden_dim, model.hidden_dim // model.heads
        self.patch = self.linear(model.channels * model.patch_size**2, hidden, model.bias)
        self.positions = self.matrix(model.tokens_per_image, hidden)
        self.token = self.matrix(1, hidden) if model.class_token else None
        sizes = (self.head_dim, model.heads, model.bias, model.ffn_dim)
        self.blocks = [_Block(self, *sizes) for _ in range(model.layers)]
        self.head = self.linear(hidden, model.classes, model.bias) if model.classes else None

    def tune(self, batch: int, length: int, phase: str) -> None:
        qkv = self.random(batch, self.model.tokens_per_image, 3 * self.model.heads, self.head_dim).transpose(1, 2)
        q, k, v = qkv.chunk(3, dim=1)
        self.choose(prefill_attention(self.device, False, False), q, k, v, phase)

    def forward(self, images: Any) -> Any:
        functional, model = self.functional, self.model
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


def run_rows(model: CNNWorkload, device: Device, dtype: Any, batch: int) -> Callable[[], Any]:
    """A function that runs every layer as often as it occurs, each on a random input of its own size.

    What a real network does between its layers (sums of branches, reshapes) is not run, and neither is it in the lowered graph.
    """
    calls = [(_layer(layer, model.name, device, dtype, batch), layer.count) for layer in model.network]

    def work() -> None:
        for call, count in calls:
            for _ in range(count):
                call()

    return work


def _layer(layer: Layer, name: str, device: Device, dtype: Any, batch: int) -> Callable[[], Any]:
    torch, functional = device.torch, device.torch.nn.functional

    def random(*shape: int) -> Any:
        made = torch.randn(*shape, device=device.kind).to(dtype) * 0.05
        return made.contiguous(memory_format=torch.channels_last) if made.dim() == 4 else made

    kernel, stride = layer.kernel, layer.stride
    height, width = layer.height * stride, layer.width * stride
    if layer.kind in ("conv", "dwconv"):
        depthwise = layer.kind == "dwconv"
        channels = layer.outputs if depthwise else layer.inputs
        groups = layer.outputs if depthwise else layer.groups
        x = random(batch, channels, height, width)
        weight = random(layer.outputs, channels // groups, *kernel)
        scale, shift = random(layer.outputs), random(layer.outputs)
        mean, spread = torch.zeros_like(scale), torch.ones_like(scale)
        padding = (kernel[0] // 2, kernel[1] // 2)

        def convolve() -> Any:
            y = functional.conv2d(x, weight, None, stride, padding, 1, groups)
            if layer.norm:
                y = functional.relu_(functional.batch_norm(y, mean, spread, scale, shift))
            return y

        return convolve
    if layer.kind == "linear":
        x, weight = random(batch * layer.positions, layer.inputs), random(layer.outputs, layer.inputs)
        return lambda: functional.linear(x, weight)
    if layer.kind == "attn":
        q = random(batch, layer.heads, layer.height, layer.outputs)
        k = random(batch, layer.heads, layer.width, layer.outputs)
        return lambda: functional.scaled_dot_product_attention(q, k, k)
    if layer.kind in ("norm", "pool", "upsample"):
        x = random(batch, layer.outputs, height, width)
        if layer.kind == "pool":
            return lambda: functional.max_pool2d(x, kernel, stride, (kernel[0] // 2, kernel[1] // 2))
        return lambda: functional.relu(x)
    raise InputError(f"verify does not run the {layer.kind!r} layers of {name}.")
