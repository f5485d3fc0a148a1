"""What a plan calls an object: a model, chip, node, fleet or grid stands wherever its name does.

An object of the zoo has its key there; another one is found under its name for as long as the program runs (:meth:`Registry.name_for`), so that
a plan stays data.
"""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.infra.registry import Grids
from mlsysim.infra.types import GridProfile
from mlsysim.models.base import Workload
from mlsysim.models.registry import Models
from mlsysim.systems.registry import Clusters, Nodes
from mlsysim.systems.types import Fleet, Node

_KINDS = {Workload: Models, HardwareNode: Hardware, Node: Nodes, Fleet: Clusters, GridProfile: Grids}
"""Where objects of a kind are kept."""


def name_of(value: Any) -> Any:
    """The name of an object, or of a path; what is neither stays what it is."""
    if isinstance(value, PathLike):
        return str(fspath(value))
    return next((zoo.name_for(value) for kind, zoo in _KINDS.items() if isinstance(value, kind)), value)
