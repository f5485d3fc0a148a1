"""The places of a space: electricity, carbon and water of each, as a run reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.footprint import Site
from mlsysim.cases.run_inputs import site_of
from mlsysim.infra.registry import Grids
from mlsysim.systems.types import Fleet


def sites_of(places: Iterable[Any], fleet: Fleet | None) -> list[Site]:
    """Sites of grids by name, of grids and datacenters themselves, and of a fleet's own place where there is None."""
    return [site_of(Grids.get(place) if isinstance(place, str) else place, fleet, Assumptions()) for place in places]
