"""Deployments of a serving space: each combination of model, chips, formats and degrees, as numbers for arrays.

A deployment is a replica that reads prompts, one that writes answers (the same, unless there is decode hardware) and one
of the draft model, built and checked by the functions that :class:`ServingModel` calls. What a degree does not divide is no
design; a chip without the arithmetic is rejected by wall 1, one without links between chips by wall 14.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsysim.cases.deployment import Deployment, check_degrees, language_model
from mlsysim.cases.replica import Replica
from mlsysim.cases.serve import Engines, Replicated
from mlsysim.errors import InputError, UnknownNameError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.search.costs import lowest_rents
from mlsysim.search.serving_inputs import DEPLOYMENT, INPUTS, NONE
from mlsysim.search.tables import Table
from mlsysim.timing.network import Hierarchical
from mlsysim.units.ops import taken
from mlsysim.units.registry import to_si
from mlsysim.walls.inputs import read_input

if TYPE_CHECKING:
    from mlsysim.search.space import Space

COMPUTE, COMMUNICATION = 1, 14
NO_DESIGN = -1

_OF_NETWORK = tuple(field.name for field in fields(Hierarchical))
_OF_REPLICA = (
    *("tp", "pp", "ep", "peak", "bandwidth", "weight_element", "activation_element", "cache_element", "dispatch"),
    *("width", "attention_groups", "longest_stage", "device_weights", "capacity", "reserve"),
)
_OR_NONE = {"decode_hardware": Hardware, "draft_model": Models}


class Replicas(Replica):
    """Replicas of one model at many points: what a Replica works out of its chip and formats is given here, as arrays."""

    unit_cost: Any
    """USD of a device; not a number where unknown."""
    tdp: Any
    """kW of a device; not a number where unknown."""
    rents: Mapping[str, Any]
    """USD/h of a device for each way of renting that the space names."""

    @classmethod
    def of(cls, **numbers: Any) -> Replicas:
        """Replicas with these numbers."""
        found = cls.__new__(cls)
        found.__dict__.update(numbers)
        return found

    def take(self, index: Any) -> Replicas:
        """The replicas of some of the points."""
        return Replicas.of(**{name: taken(value, index) for name, value in self.__dict__.items()})


@dataclass(frozen=True)
class Built:
    """One combination, checked: its machine at the space's fidelity, and its replicas. ``status`` is 0, a wall, or no design."""

    described: Deployment
    status: int
    machine: Replicated | Engines | None = None
    replicas: Replicated | None = None

    @property
    def apart(self) -> bool:
        return self.described.decode_chip is not None

    @cached_property
    def numbers(self) -> dict[str, list[float]]:
        """Of each replica its own numbers, those of its network, and what its chip costs and draws."""
        found = {}
        for role in ("reader", "writer", "draft"):
            replica = getattr(self.replicas, role)
            if replica is not None:
                cost, tdp = replica.chip.unit_cost, replica.chip.tdp
                found[role] = [
                    *(float(getattr(replica, name)) for name in _OF_REPLICA),
                    *(float(getattr(replica.network, name)) for name in _OF_NETWORK),
                    np.nan if cost is None else to_si(cost, "USD"),
                    np.nan if tdp is None else to_si(tdp, "kW"),
                ]
        return found


class Deployments:
    """The deployments of a space: for each point the status, the place of its deployment, and a group, which has one model, one
    draft model, and decode hardware or none (calibrated, one deployment)."""

    def __init__(
        self,
        space: Space,
        on_axes: Mapping[str, str],
        fixed: Mapping[str, Any],
        calibrated: bool,
        commitments: tuple[str, ...],
    ) -> None:
        self.calibrated, self.commitments = calibrated, commitments
        self.built: list[Built] = []
        self._groups: dict[Any, int] = {}
        names = {key: on_axes.get(key, key) for key in DEPLOYMENT}
        defaults = {name: fixed.get(key, INPUTS[key].default) for key, name in names.items()}
        self._keys = {name: key for key, name in names.items()}
        self.table = Table(space, names.values(), ("status", "place", "group"), self._numbers, defaults, "deployments")

    def replicas(self, places: Any, role: str, model: Any, efficiency: Any, bandwidth_efficiency: Any) -> Replicas:
        """Replicas of points of one group, by the places of their deployments; a number that all share stays one."""
        present, which = np.unique(places, return_inverse=True)
        built = [self.built[place] for place in present.tolist()]
        rows = np.array([each.numbers[role] for each in built]).T

        def many(row: Any) -> Any:
            return float(row[0]) if (row == row[0]).all() or np.isnan(row).all() else row[which]

        found = dict(zip((*_OF_REPLICA, *_OF_NETWORK, "unit_cost", "tdp"), map(many, rows), strict=True))
        found["bandwidth"] = found["bandwidth"] * bandwidth_efficiency
        network = Hierarchical(*(found.pop(name) for name in _OF_NETWORK))
        chips = [getattr(each.replicas, role).chip.metadata.key for each in built]
        rents = {
            way: many(np.array([lowest_rents().get((chip, way), np.nan) for chip in chips])) for way in self.commitments
        }
        return Replicas.of(model=model, efficiency=efficiency, redundant=0, network=network, rents=rents, **found)

    def _numbers(self, given: dict[str, Any]) -> list[float]:
        built = _build({self._keys[name]: _read(self._keys[name], v) for name, v in given.items()}, self.calibrated)
        place = len(self.built)
        self.built.append(built)
        kind = place if self.calibrated else (id(built.described.model), id(built.described.draft), built.apart)
        return [float(built.status), float(place), float(self._groups.setdefault(kind, len(self._groups)))]


def _read(name: str, value: Any) -> Any:
    """An input as the resolvers take it."""
    if value is None or (name in _OR_NONE and value == NONE):
        return None
    if name not in _OR_NONE:
        return read_input("a serving space", name, INPUTS[name], value)
    if isinstance(value, (str, HardwareNode, TransformerWorkload)):
        return _OR_NONE[name].get(value) if isinstance(value, str) else value
    raise InputError(f"{name!r} must be a name of the zoo or {NONE!r}, got {type(value).__name__}.", field=name)


def _build(given: dict[str, Any], calibrated: bool) -> Built:
    """A checked deployment, with what rejects it."""
    model, draft = given["model"], given["draft_model"]
    described = Deployment(
        language_model(model, "a serving space"),
        given["hardware"],
        given["precision"],
        given["cache_precision"],
        given["tp_size"],
        given["pp_size"],
        given["ep_size"],
        given["decode_hardware"],
        None if draft is None else language_model(draft, "a serving space"),
        given["fabric"],
        given["engine"] if calibrated else None,
        memory_fraction=given["memory_fraction"],
    )
    try:
        check_degrees(described.model, described.tp, described.pp, described.ep)
    except InputError:
        return Built(described, NO_DESIGN)
    try:
        for chip in (described.chip, described.writing_chip):
            arithmetic_peak(chip, described.precision)
    except UnknownNameError:
        return Built(described, COMPUTE)
    try:
        replicas = described.replicated({})
    except InputError:
        return Built(described, COMMUNICATION)
    try:
        return Built(described, 0, described.machine({}) if calibrated else replicas, replicas)
    except InputError as error:
        if error.field == "model":
            raise
        return Built(described, NO_DESIGN)
