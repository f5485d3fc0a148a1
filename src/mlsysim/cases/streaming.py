"""A pass whose weights are streamed onto the chip, layer by layer, while activations and caches stay there.

T_layer = max( |W_l| / BW_inject, F_l / (P eta) );   B* = |W| P eta / (2 P_active BW_inject)
"""

from __future__ import annotations

from typing import Any

from mlsysim.physics.precision import activation_element, bytes_per_element, cache_format
from mlsysim.physics.roofline import compute_time, memory_time
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum
from mlsysim.units.records import dataclass


@kernel("""
    weights: byte [1e6, 1e13], work_per_token: flop [1e6, 1e13], peak: flop/s [1e12, 1e18], efficiency [0.01, 1],
    bandwidth: byte/s [1e8, 1e13] -> tokens
""")
def balanced_tokens(weights: Any, work_per_token: Any, peak: Any, efficiency: Any, bandwidth: Any) -> Any:
    """B*: tokens of a pass for which arithmetic takes as long as the injection of the weights."""
    return weights * peak * efficiency / (work_per_token * bandwidth)


@dataclass(frozen=True, slots=True)
class Streamed:
    """A pass of equal layers: bytes of weights, operations, tokens, and the rates of the chip and of its link."""

    weights: float
    flops: float
    tokens: int
    layers: int
    peak: float
    efficiency: float
    injection_bandwidth: float

    @property
    def layer_injection_time(self) -> float:
        return float(memory_time(self.weights, self.injection_bandwidth)) / self.layers

    @property
    def layer_compute_time(self) -> float:
        return float(compute_time(self.flops, self.peak, self.efficiency)) / self.layers

    @property
    def layer_time(self) -> float:
        """The weights of a layer arrive while the layer before is computed: the longer of the two."""
        return float(maximum(self.layer_injection_time, self.layer_compute_time))

    @property
    def pass_time(self) -> float:
        return self.layer_time * self.layers

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.pass_time

    @property
    def bottleneck(self) -> str:
        return "Injection" if self.layer_injection_time >= self.layer_compute_time else "Compute"


def bytes_each(model: Any, seq_len: int, new: int, precision: str, cache_precision: str | None) -> tuple[float, float]:
    """Cache and activations of one sequence; arithmetic narrower than a byte keeps 16 bits beside it."""
    kept = bytes_per_element(cache_format(cache_precision, precision))
    return float(model.stack.cache_bytes(seq_len, kept)), model.stack.saved.total * activation_element(precision) * new
