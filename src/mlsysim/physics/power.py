"""Power of an accelerator at first order: a fixed idle share and the rest in proportion to utilisation.

P = TDP (i + (1 - i) MFU) with i = 0.3 (Barroso and Hölzle, 2007). Measured accelerators are far from proportional: an
H200 that only moves memory draws 0.6 to 0.9 of its TDP at an MFU of zero, so this form understates memory-bound work
by up to three times.
"""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import Arg, kernel

__all__ = ["proportional_power"]


@kernel(
    inputs={"tdp": Arg("W", 0.01, 2e4), "idle_fraction": Arg("", 0.01, 1.0), "utilisation": Arg("", 0.001, 1.0)},
    outputs={"power": "W"},
)
def proportional_power(tdp: Any, idle_fraction: Any, utilisation: Any) -> Any:
    """Power at a utilisation between 0 and 1."""
    return tdp * (idle_fraction + (1 - idle_fraction) * utilisation)
