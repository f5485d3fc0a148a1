"""``mlsysim.core.walls``: the catalogue of walls under the documents' path."""

from __future__ import annotations

from mlsysim.walls.catalog import DOMAINS, Domain, Wall, taxonomy, wall, walls, walls_for_resolver, walls_in_domain

__all__ = ["DOMAINS", "Domain", "Wall", "taxonomy", "wall", "walls", "walls_for_resolver", "walls_in_domain"]
