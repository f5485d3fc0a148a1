"""Networks of the zoo with random weights, in PyTorch.

``build(model, device, dtype)`` makes the layers that the entry's blocks list: grouped-query attention with or without a sliding window, latent
attention (expanded over a sequence, absorbed for one query on its cache), gated or plain feed-forward layers, mixtures of experts (tokens sorted by
expert, one grouped product each way), RMS or layer norm; or a vision transformer. Projections of queries, keys and values are one product, and so are
the two halves of a gated layer, as the lowered graph has them. Networks that are given by layer rows are in
:mod:`mlsysim.calibrate.network_rows`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.calibrate.device import Attend, Device, decode_attention, fastest, prefill_attention
from mlsysim.models.attention import LatentAttention
from mlsysim.models.ffn import MixtureOfExperts
from mlsysim.models.vision import VisionTransformerWorkload


def build(model: Any, device: Device, dtype: Any, length: int, rank: int = 0) -> Any:
    """The network, on the device; with adapters of a rank beside every product of its layers."""
    with device.torch.device(device.kind):
        if isinstance(model, VisionTransformerWorkload):
            return ImageEncoder(model, device, dtype)
        return Decoder(model, device, dtype, length, rank)


class Linear:
    """A product with a bias, and the low-rank adapter beside it where the weights are frozen."""

    def __init__(self, network: _Network, inputs: int, outputs: int, bias: bool = False) -> None:
        self.functional = network.functional
        self.weight, self.bias = network.matrix(outputs, inputs), network.vector(outputs) if bias else None
        self.adapter: tuple[Any, Any] | None = None
        if network.rank:
            down, up = network.matrix(network.rank, inputs), network.matrix(outputs, network.rank)
            self.adapter = down, up
            network.adapters += [down, up]

    def __call__(self, x: Any) -> Any:
        y = self.functional.linear(x, self.weight, self.bias)
        if self.adapter is None:
            return y
        down, up = self.adapter
        return y + self.functional.linear(self.functional.linear(x, down), up)


class _Network:
    """Parameters made as the dtype asks, without the cost of a careful initialisation, and attention by the fastest kernel."""

    def __init__(self, model: Any, device: Device, dtype: Any, rank: int = 0) -> None:
        self.model, self.device, self.torch, self.dtype = model, device, device.torch, dtype
        self.functional, self.rank, self.computed = device.torch.nn.functional, rank, dtype
        self.parameters: list[Any] = []
        self.adapters: list[Any] = []
        self.ropes: dict[int, Any] = {}
        self.kernels: dict[Any, tuple[str, Attend]] = {}

    @property
    def kernel(self) -> str:
        """The attention kernels that were chosen."""
        return ", ".join(dict.fromkeys(name for name, _ in self.kernels.values()))

    @property
    def trained(self) -> list[Any]:
        """What a step updates."""
        return self.adapters or self.parameters

    def matrix(self, *shape: int) -> Any:
        return self._keep(self.torch.empty(*shape, dtype=self.dtype).normal_(0.0, 0.02))

    def vector(self, *shape: int, value: float = 0.0) -> Any:
        return self._keep(self.torch.full(shape, value, dtype=self.dtype))

    def _keep(self, tensor: Any) -> Any:
        self.parameters.append(tensor.requires_grad_(False))
        return tensor

    def norm(self, width: int | None = None) -> Callable[[Any], Any]:
        """The model's norm, with weights of its own."""
        size = width or self.model.hidden_dim
        scale = self.vector(size, value=1.0)
        if self.model.norm != "layernorm":
            return lambda x: self.functional.rms_norm(x, (size,), scale)
        shift = self.vector(size)
        return lambda x: self.functional.layer_norm(x, (size,), scale, shift)

    def rope(self, size: int, length: int) -> None:
        """Tables of the rotary embedding of heads of a size."""
        if size not in self.ropes:
            torch, half = self.torch, size // 2
            angle = torch.outer(torch.arange(length).float(), 10_000.0 ** (-torch.arange(half).float() / half))
            cosine, sine = torch.cos(angle), torch.sin(angle)
            doubled = torch.cat([cosine, cosine], -1), torch.cat([-sine, sine], -1)
            self.ropes[size] = tuple(table[None, :, None, :].to(self.dtype) for table in doubled)

    def rotated(self, x: Any, position: int) -> Any:
        """Queries or keys of (batch, length, heads, size), turned; as they are where positions are embedded."""
        if x.shape[-1] not in self.ropes:
            return x
        return rotate(x, tuple(t[:, position : position + x.shape[1]] for t in self.ropes[x.shape[-1]]))

    def random(self, *shape: int) -> Any:
        return self.torch.empty(*shape, dtype=self.computed, device=self.device.kind).normal_()

    def tune(self, batch: int, length: int, phase: str, computed: Any = None) -> None:
        """Pick the attention kernel of each kind of layer for these sizes, on inputs that lie in memory as the network's do.

        Where precision is mixed, attention is ``computed`` in another format than parameters have.
        """
        self.computed, self.kernels = computed or self.dtype, {}
        for block in self.blocks:
            mixer = block.mixer
            if mixer.kind not in self.kernels:
                forms, (q, k, v) = mixer.forms(batch, length, phase)
                self.kernels[mixer.kind] = fastest(self.device, forms, q, k, v, backward=phase == "train")
            mixer.attend = self.kernels[mixer.kind][1]

    blocks: list[Block]


class Heads:
    """Multi-head and grouped-query attention, over everything before or over a window of it."""

    attend: Attend

    def __init__(self, network: _Network, made: Any, causal: bool) -> None:
        self.network, self.causal = network, causal
        self.heads, self.kv_heads, self.size = made.heads, made.kv_heads, made.head_dim
        self.window = int(made.window) if made.window < 1e9 else None
        self.kind = (self.heads, self.kv_heads, self.size, self.window)
        self.qkv = Linear(network, made.hidden, (self.heads + 2 * self.kv_heads) * self.size, made.qkv_bias)
        self.out = Linear(network, self.heads * self.size, made.hidden, made.output_bias)

    def forms(self, batch: int, length: int, phase: str) -> tuple[dict[str, Attend], tuple[Any, Any, Any]]:
        heads, kept, random = self.heads, self.kv_heads, self.network.random
        if phase == "decode":
            return decode_attention(self.network.device, heads // kept), (
                random(batch, heads, 1, self.size),
                *self.cache(batch, length),
            )
        q, k = random(batch, length, heads + kept, self.size).transpose(1, 2).split([heads, kept], dim=1)
        v = random(batch, length, heads + 2 * kept, self.size).transpose(1, 2)[:, -kept:]
        window = self.window if self.window is not None and self.window < length else None
        return prefill_attention(self.network.device, self.causal, heads != kept, window, length), (q, k, v)

    def cache(self, batch: int, length: int) -> tuple[Any, Any]:
        shape = (batch, self.kv_heads, min(length, self.window or length), self.size)
        return self.network.random(*shape), self.network.random(*shape)

    def __call__(self, x: Any, cache: Any, position: int) -> Any:
        batch, length, _ = x.shape
        qkv = self.qkv(x).view(batch, length, -1, self.size)
        qk, v = qkv.split([self.heads + self.kv_heads, self.kv_heads], dim=2)
        qk = self.network.rotated(qk, position)
        q, k = (part.transpose(1, 2) for part in qk.split([self.heads, self.kv_heads], dim=2))
        v = v.transpose(1, 2)
        if cache is not None:
            keys, values = cache
            # A window is a ring.
            place = position % keys.shape[2]
            keys[:, :, place : place + 1] = k
            values[:, :, place : place + 1] = v
            k, v = keys, values
        return self.out(self.attend(q, k, v).transpose(1, 2).reshape(batch, length, -1))


class Latent:
    """Multi-head latent attention: keys and values rebuilt over a sequence, absorbed into query and output for one."""

    attend: Attend
    kind = "latent"

    def __init__(self, network: _Network, made: LatentAttention) -> None:
        m, self.network, self.heads, self.sizes = made.mla, network, made.heads, made.mla
        into = m.q_lora_rank or made.hidden
        self.down = Linear(network, made.hidden, (m.q_lora_rank or 0) + m.kv_lora_rank + m.qk_rope_head_dim)
        self.q_norm = network.norm(m.q_lora_rank) if m.q_lora_rank else None
        self.q_up = Linear(network, into, made.heads * (m.qk_nope_head_dim + m.qk_rope_head_dim))
        self.kv_norm = network.norm(m.kv_lora_rank)
        self.kv_up = Linear(network, m.kv_lora_rank, made.heads * (m.qk_nope_head_dim + m.v_head_dim))
        self.out = Linear(network, made.heads * m.v_head_dim, made.hidden)

    def forms(self, batch: int, length: int, phase: str) -> tuple[dict[str, Attend], tuple[Any, Any, Any]]:
        m, heads, random = self.sizes, self.heads, self.network.random
        if phase == "decode":
            (cache,) = self.cache(batch, length)
            query = random(batch, heads, cache.shape[-1])
            return {"absorbed": self._absorbed}, (query, cache, cache[..., : m.kv_lora_rank])
        size = m.qk_nope_head_dim + m.qk_rope_head_dim
        q, k = (random(batch, length, heads, size).transpose(1, 2) for _ in range(2))
        v = random(batch, length, heads, m.v_head_dim).transpose(1, 2)
        return prefill_attention(self.network.device, True, False, None, length), (q, k, v)

    def _absorbed(self, q: Any, k: Any, v: Any) -> Any:
        size = self.sizes.qk_nope_head_dim + self.sizes.qk_rope_head_dim
        return self.network.torch.softmax(q @ k.transpose(1, 2) * size**-0.5, -1) @ v

    def cache(self, batch: int, length: int) -> tuple[Any]:
        return (self.network.random(batch, length, self.sizes.kv_lora_rank + self.sizes.qk_rope_head_dim),)

    def __call__(self, x: Any, cache: Any, position: int) -> Any:
        m, torch, (batch, length, _) = self.sizes, self.network.torch, x.shape
        nope, rope, rank = m.qk_nope_head_dim, m.qk_rope_head_dim, m.kv_lora_rank
        into, latent, turned = self.down(x).split([m.q_lora_rank or 0, rank, rope], dim=-1)
        q = self.q_up(x if self.q_norm is None else self.q_norm(into)).view(batch, length, self.heads, nope + rope)
        q_plain, q_turned = q.split([nope, rope], dim=-1)
        q_turned = self.network.rotated(q_turned, position)
        latent, turned = self.kv_norm(latent), self.network.rotated(turned.unsqueeze(2), position)
        if cache is not None:
            (kept,) = cache
            kept[:, position : position + 1] = torch.cat([latent, turned.squeeze(2)], -1)
            up = self.kv_up.weight.view(self.heads, nope + m.v_head_dim, rank)
            wide = torch.einsum("bhn,hnr->bhr", q_plain.squeeze(1), up[:, :nope])
            mixed = self.attend(torch.cat([wide, q_turned.squeeze(1)], -1), kept, kept[..., :rank])
            return self.out(torch.einsum("bhr,hvr->bhv", mixed, up[:, nope:]).reshape(batch, 1, -1))
        k, v = self.kv_up(latent).view(batch, length, self.heads, -1).split([nope, m.v_head_dim], dim=-1)
        k = torch.cat([k, turned.expand(-1, -1, self.heads, -1)], -1)
        q = torch.cat([q_plain, q_turned], -1)
        mixed = self.attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


class Dense:
    """A gated or plain feed-forward layer."""

    def __init__(self, network: _Network, hidden: int, width: int, gated: bool, bias: bool) -> None:
        self.functional, self.gated = network.functional, gated
        self.up = Linear(network, hidden, (2 if gated else 1) * width, bias)
        self.down = Linear(network, width, hidden, bias)

    def __call__(self, x: Any) -> Any:
        return self.down(activated(self.functional, self.up(x), self.gated))


def activated(functional: Any, inner: Any, gated: bool) -> Any:
    """What enters the second product of a feed-forward layer."""
    if not gated:
        return functional.gelu(inner, approximate="tanh")
    gate, value = inner.chunk(2, dim=-1)
    return functional.silu(gate) * value


class Experts:
    """A mixture of experts: tokens sorted by expert, a grouped product each way, a weighted sum; and the shared expert."""

    def __init__(self, network: _Network, made: MixtureOfExperts) -> None:
        self.network, self.made, hidden = network, made, made.hidden
        self.router = Linear(network, hidden, made.experts)
        wide = (2 if made.gated else 1) * made.width
        self.up, self.down = (
            network.matrix(made.experts, wide, hidden),
            network.matrix(made.experts, hidden, made.width),
        )
        self.biases = None
        if made.bias:
            self.biases = network.vector(made.experts, wide), network.vector(made.experts, hidden)
        self.shared = Dense(network, hidden, made.shared_width, made.gated, False) if made.shared_width else None

    def __call__(self, x: Any) -> Any:
        torch, made = self.network.torch, self.made
        rows = x.reshape(-1, made.hidden)
        weights, chosen = self.router(rows).float().softmax(-1).topk(made.per_token, dim=-1)
        flat = chosen.reshape(-1)
        order = flat.argsort()
        ids, token = flat[order], order // made.per_token
        ends = torch.searchsorted(ids, torch.arange(made.experts, device=ids.device), right=True).to(torch.int32)
        inner = self._grouped(rows[token], self.up, ends)
        inner = inner if self.biases is None else inner + self.biases[0][ids]
        y = self._grouped(activated(self.network.functional, inner, made.gated), self.down, ends)
        y = y if self.biases is None else y + self.biases[1][ids]
        y = y * weights.reshape(-1)[order].unsqueeze(1).to(y.dtype)
        mixed = torch.zeros_like(rows).index_add(0, token, y)
        mixed = mixed if self.shared is None else mixed + self.shared(rows)
        return mixed.view(x.shape)

    def _grouped(self, rows: Any, weights: Any, ends: Any) -> Any:
        if self.network.device.gpu:
            return self.network.torch._grouped_mm(rows, weights.transpose(1, 2), offs=ends)
        edges = [0, *ends.tolist()]
        parts = [rows[a:b] @ w.t() for a, b, w in zip(edges, edges[1:], weights, strict=False)]
        return self.network.torch.cat(parts)


class Block:
    """Norm, attention, norm, feed-forward layer, with residuals; norms behind both where the model has four."""

    def __init__(self, network: _Network, mixer: Any, ffn: Any, norms: int) -> None:
        self.norms = [network.norm() for _ in range(4 if norms >= 4 else 2)]
        self.mixer, self.ffn = mixer, ffn

    def __call__(self, x: Any, cache: Any = None, position: int = 0) -> Any:
        before, middle, *behind = self.norms
        mixed = self.mixer(before(x), cache, position)
        x = x + (behind[0](mixed) if behind else mixed)
        made = self.ffn(middle(x))
        return x + (behind[1](made) if behind else made)


def _ffn(network: _Network, made: Any) -> Any:
    if isinstance(made, MixtureOfExperts):
        return Experts(network, made)
    return Dense(network, made.hidden, made.width, made.gated, made.bias)


def rotate(x: Any, rope: Any) -> Any:
    """Rotary embedding in three operators: the sign of the rotated half is in the sine."""
    cosine, sine = rope
    return (x * cosine).addcmul_(x.roll(x.shape[-1] // 2, -1), sine)


class Decoder(_Network):
    """A language model: tokens in, logits of the last token (or all) out."""

    def __init__(self, model: Any, device: Device, dtype: Any, length: int, rank: int = 0) -> None:
        super().__init__(model, device, dtype, rank)
        self.causal = model.structure == "decoder"
        self.embedding, self.positions = self.matrix(model.vocab_size, model.hidden_dim), None
        if model.position_embeddings:
            self.positions = self.matrix(max(model.position_embeddings, length + 1), model.hidden_dim)
        self.blocks = []
        for made in model.stack.blocks:
            (kind,) = made.mixers
            latent = isinstance(kind, LatentAttention)
            if self.positions is None:
                self.rope(kind.mla.qk_rope_head_dim if latent else kind.head_dim, length + 1)
            for _ in range(made.count):
                mixer = Latent(self, kind) if latent else Heads(self, kind, self.causal)
                self.blocks.append(Block(self, mixer, _ffn(self, made.ffn), made.norms))
        self.final, self.head = self.norm(), None
        if self.causal:
            self.head = self.embedding if model.tied_embeddings else self.matrix(model.vocab_size, model.hidden_dim)

    def caches(self, batch: int, length: int) -> list[Any]:
        """Filled caches of so many tokens, one of them still to be written."""
        return [block.mixer.cache(batch, length) for block in self.blocks]

    def forward(self, tokens: Any, caches: Any = None, position: int = 0, every_token: bool = False) -> Any:
        x = self.functional.embedding(tokens, self.embedding)
        if self.positions is not None:
            x = x + self.positions[position : position + tokens.shape[1]]
        for place, block in enumerate(self.blocks):
            x = block(x, caches[place] if caches is not None else None, position)
        if self.head is None:
            return x
        x = self.final(x)
        return self.functional.linear(x if every_token else x[:, -1:], self.head)


class ImageEncoder(_Network):
    """A vision transformer: images in, class scores out."""

    def __init__(self, model: VisionTransformerWorkload, device: Device, dtype: Any) -> None:
        super().__init__(model, device, dtype)
        hidden = model.hidden_dim
        self.patch = Linear(self, model.channels * model.patch_size**2, hidden, model.bias)
        self.positions = self.matrix(model.tokens_per_image, hidden)
        self.token = self.matrix(1, hidden) if model.class_token else None
        self.blocks = []
        for made in model.stack.blocks:
            for _ in range(made.count):
                self.blocks.append(Block(self, Heads(self, made.mixers[0], False), _ffn(self, made.ffn), made.norms))
        self.head = Linear(self, hidden, model.classes, model.bias) if model.classes else None

    def tune(self, batch: int, length: int, phase: str, computed: Any = None) -> None:
        super().tune(batch, self.model.tokens_per_image, phase, computed)

    def forward(self, images: Any) -> Any:
        model = self.model
        batch, size = images.shape[0], model.patch_size
        side = model.image_size // size
        patches = images[:, :, : side * size, : side * size].unfold(2, size, size).unfold(3, size, size)
        x = self.patch(patches.permute(0, 2, 3, 1, 4, 5).reshape(batch, side * side, -1))
        if self.token is not None:
            x = self.torch.cat([self.token.expand(batch, 1, -1).to(x.dtype), x], 1)
        x = x + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0]) if self.head is not None else x
