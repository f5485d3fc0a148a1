"""The places of a space: electricity, carbon and water of each, as wall 18 reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mlsysim.infra.registry import Grids
from mlsysim.walls.operations.sustainability import Site, site_of

__all__ = ["sites_of"]


def sites_of(places: Iterable[Any], fleet: Any) -> list[Site]:
    """Sites of grids by name, of grids and datacenters themselves, and of a fleet's own place where there is None."""
    return [site_of(Grids.get(place) if isinstance(place, str) else place, fleet, {}) for place in places]
