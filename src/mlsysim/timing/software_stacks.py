"""How software on one device runs what lies between the products: named data in ``data/software/device.toml``.

A lowered graph counts the bytes that a norm, a residual or an activation must move at least. Software moves more: it runs
them as several kernels, or in wider numbers, or it fuses neighbours and moves less. ``traffic`` is that factor and
``launches`` the number of kernels, for each operator by name; ``rotary`` is what stands beside an attention core.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from mlsysim.errors import unknown_name
from mlsysim.timing.profile import inherited, software_file


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes moved over the least number of bytes, and kernels launched."""

    traffic: float = 1.0
    launches: float = 1.0


_PLAIN = Cost()


@dataclass(frozen=True, slots=True)
class Software:
    """A way of running a network on one device.

    ``graph``: captured and replayed, else launched by the host at ``host`` seconds a kernel (the chip's usual cost where None).
    ``cache_share`` is the bandwidth share of its decode attention where that is not the chip's best. ``backward`` is the traffic of a backward kernel over what a lowered graph counts for it. ``loss_bytes`` are moved for each
    token and vocabulary entry by the loss, forward and backward; ``cast_bytes`` for each parameter by converting weights to
    16 bits in every pass.
    """

    name: str
    title: str
    graph: bool
    fused: bool
    attention: str
    source: str
    costs: dict[str, Cost] = field(default_factory=dict)
    host: float | None = None
    cache_share: float | None = None
    backward: float = 1.0
    loss_bytes: float = 0.0
    cast_bytes: float = 0.0

    def cost(self, operator: str) -> Cost:
        """What the operator of that name costs; backward kernels as their forward ones."""
        return self.costs.get(operator.removesuffix(".backward"), _PLAIN)


def software_names() -> tuple[str, ...]:
    """Names of all entries."""
    return tuple(software_file("device"))


@cache
def software(name: str) -> Software:
    """The entry of that name."""
    if name not in software_file("device"):
        raise unknown_name("software", name, software_names())
    table = inherited(software_file("device"), name)
    costs = {key: Cost(**value) for key, value in table.pop("costs", {}).items()}
    return Software(name=name, costs=costs, **table)
