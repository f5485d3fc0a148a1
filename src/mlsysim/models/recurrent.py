"""Mixers with a fixed-size state instead of a growing cache: Mamba, Mamba-2 and gated linear attention.

    Mamba             selective state space, one decay per channel and state          (Gu and Dao 2023)
    Mamba-2           the same with one decay per head                                (Dao and Gu 2024)
    LinearAttention   gated delta rule over a key x value matrix per head             (Yang, Kautz and Hatamizadeh 2024)

The recurrence is counted as written, token by token: decay, update and read-out of each state element (6 operations in
Mamba, 7 in the gated delta rule, which also reads the state once before it writes). Chunked kernels trade some of it
for matrix products; that choice belongs to the kernel, not to the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from mlsysim.errors import InputError
from mlsysim.models.attention import split
from mlsysim.models.graph import Operator
from mlsysim.models.passes import Pass, all_reduce, elementwise, gemm
from mlsysim.units.fields import Record

_STATE_OPERATIONS = 6
_DELTA_OPERATIONS = 7


class Mamba(Record):
    """Sizes of a Mamba block as its configuration names them. ``heads`` and ``groups`` belong to version 2."""

    version: Literal[1, 2] = 1
    state_size: int = 16
    expand: float = 2
    conv_kernel: int = 4
    dt_rank: int | None = None
    heads: int | None = None
    head_dim: int = 64
    groups: int = 1


class LinearAttention(Record):
    """Sizes of a gated DeltaNet block."""

    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int = 4


def _scan(p: Pass, name: str, channels: Any, states: Any, operations: int) -> Operator:
    """The recurrence over ``channels`` x ``states`` elements per token; the state is read and written once per pass."""
    per_token = channels * states
    return Operator(
        name,
        "scan",
        "mixer",
        m=p.tokens,
        n=channels,
        k=states,
        flops=operations * p.tokens * per_token,
        input_bytes=p.tokens * (2 * channels + 2 * states) * p.activation,
        output_bytes=p.tokens * channels * p.activation,
        cache_bytes=2 * p.batch * per_token * p.cache,
    )


def _convolution(p: Pass, channels: Any, kernel: int) -> Operator:
    return Operator(
        "causal_conv",
        "depthwise_conv",
        "mixer",
        m=p.tokens,
        n=channels,
        k=kernel,
        flops=2 * p.tokens * channels * kernel,
        weight_bytes=channels * kernel * p.weight,
        input_bytes=p.tokens * channels * p.activation,
        output_bytes=p.tokens * channels * p.activation,
    )


@dataclass(frozen=True, slots=True)
class StateSpace:
    """A Mamba block inside a network of width ``hidden``."""

    hidden: int
    spec: Mamba

    @property
    def inner(self) -> int:
        if self.spec.version == 2 and self.spec.heads:
            return self.spec.heads * self.spec.head_dim
        return int(self.spec.expand * self.hidden)

    @property
    def heads(self) -> int:
        return self.spec.heads or self.inner // self.spec.head_dim

    @property
    def dt_rank(self) -> int:
        return self.spec.dt_rank or -(-self.hidden // 16)

    @property
    def parameters(self) -> float:
        h, d, n, k = self.hidden, self.inner, self.spec.state_size, self.spec.conv_kernel
        if self.spec.version == 1:
            return h * 2 * d + d * (k + 1) + d * (self.dt_rank + 2 * n) + self.dt_rank * d + d + d * n + d + d * h
        mixed = d + 2 * self.spec.groups * n
        return h * (d + mixed + self.heads) + mixed * (k + 1) + 3 * self.heads + d + d * h

    active_parameters = parameters

    @property
    def pair_operations(self) -> float:
        return 0.0

    @property
    def reach(self) -> float:
        return 0.0

    @property
    def saved_elements(self) -> float:
        """Elements per token kept for the backward pass: projected inputs, convolved inputs and the scan's output."""
        return 4 * self.inner + 2 * self.spec.groups * self.spec.state_size

    @property
    def cache_per_token(self) -> float:
        return 0.0

    @property
    def state(self) -> float:
        """Elements kept per sequence: the state and the last inputs of the convolution."""
        n = self.spec.state_size
        mixed = self.inner + (2 * self.spec.groups * n if self.spec.version == 2 else 0)
        return self.inner * n + mixed * self.spec.conv_kernel

    def cache_tokens(self, length: Any) -> Any:
        return 0.0 * length

    def operators(self, p: Pass, encoder_length: Any = None) -> list[Operator]:
        h, n, k, tp = self.hidden, self.spec.state_size, self.spec.conv_kernel, p.shard.tp
        if self.inner % tp:
            raise InputError(f"{self.inner} state-space channels do not divide over {tp} devices.")
        d = self.inner // tp
        if self.spec.version == 1:
            ops = [
                gemm("ssm_in", "mixer", p, 2 * d, h),
                _convolution(p, d, k),
                gemm("ssm_parameters", "mixer", p, self.dt_rank + 2 * n, d),
                gemm("ssm_dt", "mixer", p, d, self.dt_rank),
            ]
        else:
            groups = max(self.spec.groups / tp, 1)
            mixed = d + 2 * groups * n
            heads = split(self.heads, tp, "state-space heads")
            ops = [gemm("ssm_in", "mixer", p, d + mixed + heads, h), _convolution(p, mixed, k)]
        ops += [
            _scan(p, "selective_scan", d, n, _STATE_OPERATIONS),
            elementwise("ssm_gate", "mixer", p, 2 * d, d),
            gemm("ssm_out", "mixer", p, h, d),
        ]
        return ops + all_reduce("ssm_reduce", "mixer", p, h)


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """A gated linear-attention block inside a network of width ``hidden``."""

    hidden: int
    spec: LinearAttention

    @property
    def _keys(self) -> int:
        return self.spec.key_heads * self.spec.key_head_dim

    @property
    def _values(self) -> int:
        return self.spec.value_heads * self.spec.value_head_dim

    @property
    def parameters(self) -> float:
        h, s = self.hidden, self.spec
        projections = h * (2 * self._keys + 2 * self._values) + h * 2 * s.value_heads
        convolution = (2 * self._keys + self._values) * s.conv_kernel
        return projections + convolution + 2 * s.value_heads + s.value_head_dim + self._values * h

    active_parameters = parameters

    @property
    def pair_operations(self) -> float:
        return 0.0

    @property
    def reach(self) -> float:
        return 0.0

    @property
    def saved_elements(self) -> float:
        return 4 * self._keys + 4 * self._values

    @property
    def cache_per_token(self) -> float:
        return 0.0

    @property
    def state(self) -> float:
        s = self.spec
        return s.value_heads * s.key_head_dim * s.value_head_dim + (2 * self._keys + self._values) * (s.conv_kernel - 1)

    def cache_tokens(self, length: Any) -> Any:
        return 0.0 * length

    def operators(self, p: Pass, encoder_length: Any = None) -> list[Operator]:
        h, s = self.hidden, self.spec
        value_heads = split(s.value_heads, p.shard.tp, "value heads")
        keys, values = self._keys / p.shard.tp, self._values / p.shard.tp
        ops = [
            gemm("linear_qkvz", "mixer", p, 2 * keys + 2 * values + 2 * value_heads, h),
            _convolution(p, 2 * keys + values, s.conv_kernel),
            _scan(p, "delta_rule", values, s.key_head_dim, _DELTA_OPERATIONS),
            elementwise("linear_gate", "mixer", p, 2 * values, values),
            gemm("linear_out", "mixer", p, h, values),
        ]
        return ops + all_reduce("linear_reduce", "mixer", p, h)
