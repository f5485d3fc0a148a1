"""Mixers with a fixed-size state instead of a growing cache: Mamba, Mamba-2 and gated linear attention.

    Mamba             selective state space, one decay per channel and state          (Gu and Dao 2023)
    Mamba-2           the same with one decay per head                                (Dao and Gu 2024)
    LinearAttention   gated delta rule over a key x value matrix per head             (Yang, Kautz and Hatamizadeh 2024)

The recurrence is counted as written, token by token: decay, update and read-out of each state element (6 operations in
Mamba, 7 in the gated delta rule, which also reads the state once before it writes). Chunked kernels trade some of it
for matrix products; that choice belongs to the kernel, not to the model.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from mlsysim.models.template import Between, Counts, Mixer, Product, Reduce, Scan
from mlsysim.physics.precision import bytes_per_element, precision_name
from mlsysim.units.fields import Positive, Record
from mlsysim.units.records import dataclass

_STATE_OPERATIONS = 6
_DELTA_OPERATIONS = 7


class Recurrence(Record):
    """What keeps a state. ``state_format`` is that of the state where it has one of its own, such as fp32 beside 16 bits."""

    state_format: str | None = None

    @field_validator("state_format")
    @classmethod
    def _named(cls, value: str | None) -> str | None:
        return value and precision_name(value)

    @property
    def state_element(self) -> float:
        """Bytes of an element of the state; zero where it has the format of the caches."""
        return bytes_per_element(self.state_format) if self.state_format else 0.0


class Mamba(Recurrence):
    """Sizes of a Mamba block as its configuration names them. ``heads`` and ``groups`` belong to version 2."""

    version: Literal[1, 2] = 1
    state_size: Positive = 16
    expand: float = Field(default=2, gt=0)
    conv_kernel: Positive = 4
    dt_rank: Positive | None = None
    heads: Positive | None = None
    head_dim: Positive = 64
    groups: Positive = 1


class LinearAttention(Recurrence):
    """Sizes of a gated DeltaNet block."""

    key_heads: Positive
    value_heads: Positive
    key_head_dim: Positive
    value_head_dim: Positive
    conv_kernel: Positive = 4

    @model_validator(mode="after")
    def _grouped(self) -> LinearAttention:
        if self.value_heads % self.key_heads:
            raise ValueError(f"{self.value_heads} value heads do not divide into {self.key_heads} key heads.")
        return self


@dataclass(frozen=True, slots=True)
class StateSpace(Mixer):
    """A Mamba block inside a network of width ``hidden``."""

    hidden: int
    spec: Mamba

    family: ClassVar[tuple[str, ...]] = ("recurrent",)

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
    def _mixed(self) -> int:
        """Channels of the convolution; of version 2 the inputs that groups share among them."""
        return self.inner + (2 * self.spec.groups * self.spec.state_size if self.spec.version == 2 else 0)

    @property
    def beside_products(self) -> float:
        """The convolution, and decays with their biases."""
        d = self.inner
        decays = d + d * self.spec.state_size + d if self.spec.version == 1 else 3 * self.heads + d
        return self._mixed * (self.spec.conv_kernel + 1) + decays

    @property
    def counts(self) -> Counts:
        """Projected inputs, convolved inputs and the scan's output are saved; the state has the last inputs of the convolution."""
        s, d = self.spec, self.inner
        state, tail = d * s.state_size, self._mixed * s.conv_kernel
        return Counts(4 * d + 2 * s.groups * s.state_size, state=state, tail=tail, state_element=s.state_element)

    def template(self, decode: bool = False) -> tuple[Any, ...]:
        h, d, n, groups, mixed = self.hidden, self.inner, self.spec.state_size, self.spec.groups, self._mixed
        shared = mixed - d
        if self.spec.version == 1:
            made = [Product("ssm_in", "mixer", 2 * d, h, "n")]
            steps = [
                Product("ssm_parameters", "mixer", self.dt_rank + 2 * n, d, "k"),
                Product("ssm_dt", "mixer", d, self.dt_rank, "n"),
            ]
            divided = self.inner, "state-space channels"
        else:
            made, steps = [Product("ssm_in", "mixer", d + mixed + self.heads, h, "n", keys=shared, heads=groups)], []
            divided = self.heads, "state-space heads"
        scan = Scan(
            "selective_scan",
            d,
            n,
            groups,
            mixed,
            self.spec.conv_kernel,
            _STATE_OPERATIONS,
            *divided,
            shared=shared,
            element=self.spec.state_element,
        )
        gate, out = Between("ssm_gate", "mixer", 2 * d, d), Product("ssm_out", "mixer", h, d, "k")
        return (*made, *steps, scan, gate, out, Reduce("ssm_reduce", "mixer", h))


@dataclass(frozen=True, slots=True)
class GatedDeltaNet(Mixer):
    """A gated linear-attention block inside a network of width ``hidden``."""

    hidden: int
    spec: LinearAttention

    family: ClassVar[tuple[str, ...]] = ("delta",)

    @property
    def _keys(self) -> int:
        return self.spec.key_heads * self.spec.key_head_dim

    @property
    def _values(self) -> int:
        return self.spec.value_heads * self.spec.value_head_dim

    @property
    def beside_products(self) -> float:
        """The convolution, and norms."""
        convolution = (2 * self._keys + self._values) * self.spec.conv_kernel
        return convolution + 2 * self.spec.value_heads + self.spec.value_head_dim

    @property
    def counts(self) -> Counts:
        s = self.spec
        last = (2 * self._keys + self._values) * (s.conv_kernel - 1)
        state, saved = s.key_head_dim * self._values, 4 * (self._keys + self._values)
        return Counts(saved, state=state, tail=last, state_element=s.state_element)

    def template(self, decode: bool = False) -> tuple[Any, ...]:
        h, s, keys, values = self.hidden, self.spec, self._keys, self._values
        return (
            Product("linear_qkvz", "mixer", 2 * keys + 2 * values + 2 * s.value_heads, h, "n"),
            Scan(
                *("delta_rule", values, s.key_head_dim, s.key_heads, 2 * keys + values, s.conv_kernel),
                *(_DELTA_OPERATIONS, s.value_heads, "value heads"),
                element=s.state_element,
            ),
            Between("linear_gate", "mixer", 2 * values, values),
            Product("linear_out", "mixer", h, values, "k"),
            Reduce("linear_reduce", "mixer", h),
        )
