"""Deployments of a serving space: each combination of model, chips, formats and degrees, as numbers for arrays.

A deployment is a replica that reads prompts, one that writes answers (the same, unless there is decode hardware) and one
of the draft model, built and checked by the functions that :class:`ServingModel` calls. What a degree does not divide is no
design; a chip without the arithmetic is rejected by wall 1, one without links between chips by wall 14.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsysim.cases.deployment import Deployment, check_degrees, language_model
from mlsysim.cases.replica import Replica
from mlsysim.cases.serve import Engines, Replicated
from mlsysim.cases.traffic import taken
from mlsysim.errors import InputError, UnknownNameError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.search.serving_costs import listed_rent
from mlsysim.search.serving_inputs import DEPLOYMENT, INPUTS, NONE
from mlsysim.search.tables import Table
from mlsysim.timing.network import Hierarchical
from mlsysim.units.registry import to_si
from mlsysim.walls.inputs import read_input

if TYPE_CHECKING:
    from mlsysim.search.space import Columns, Space


COMPUTE, COMMUNICATION = 1, 14
NO_DESIGN = -1

_OF_NETWORK = tuple(field.name for field in fields(Hierarchical))
_NUMBERS = (
    "tp",
    "pp",
    "ep",
    "peak",
    "bandwidth",
    *_OF_NETWORK,
    "weight_element",
    "activation_element",
    "cache_element",
    "dispatch",
    "width",
    "attention_groups",
    "longest_stage",
    "device_weights",
    "capacity",
    "reserve",
    "unit_cost",
    "tdp",
)
_ROLES = ("reader", "writer", "draft")


class Replicas(Replica):
    """Replicas of one model at many points: what a Replica works out of its chip and formats is given here, as arrays."""

    unit_cost: Any
    """USD of a device; not a number where unknown."""
    tdp: Any
    """kW of a device; not a number where unknown."""
    rents: tuple[Any, ...]
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

    @property
    def chips(self) -> tuple[HardwareNode, HardwareNode]:
        return self.described.chip, self.described.writing_chip


class Deployments:
    """The deployments of a space."""

    def __init__(
        self,
        space: Space,
        on_axes: Mapping[str, str],
        fixed: Mapping[str, Any],
        calibrated: bool,
        commitments: tuple[str, ...],
    ) -> None:
        self.calibrated, self.commitments = calibrated, commitments
        self.numbers = (*_NUMBERS, *commitments)
        self.built: dict[tuple[Any, ...], Built] = {}
        self.entries: dict[tuple[str, Any], Any] = {}
        self.groups: list[Built] = []
        self._places: dict[tuple[Any, ...], int] = {}
        names = {key: on_axes.get(key, key) for key in DEPLOYMENT}
        defaults = {name: fixed.get(key, INPUTS[key].default) for key, name in names.items()}
        self.keys = {name: key for key, name in names.items()}
        columns = ("status", "group", *(f"{role}.{name}" for role in _ROLES for name in self.numbers))
        self.table = Table(space, names.values(), columns, self._numbers, defaults, "deployments")

    def codes(self, columns: Columns) -> Any:
        """The deployment of each point, or one for all."""
        return self.table.codes(columns)

    def deployment(self, code: int) -> Built:
        """What a code stands for."""
        return self._of(self.table.values(code))

    def status(self, code: Any) -> Any:
        """0, the wall that rejects it, or -1 where it is no design."""
        return self.table.rows[0][code]

    def group(self, code: Any) -> Any:
        """A number for each point; those with the same have one model, one draft model, and decode hardware or none."""
        return self.table.rows[1][code]

    def replicas(
        self, code: Any, present: Any, role: str, model: Any, efficiency: Any, bandwidth_efficiency: Any
    ) -> Replicas:
        """Replicas of points of one group, whose different codes are ``present``; a number that all share stays one."""
        found: dict[str, Any] = {}
        offset = self.table.fields.index(f"{role}.{_NUMBERS[0]}")
        for place, name in enumerate(self.numbers):
            row = self.table.rows[offset + place]
            some = row[present]
            found[name] = float(some[0]) if (some == some[0]).all() or np.isnan(some).all() else row[code]
        found["bandwidth"] = found["bandwidth"] * bandwidth_efficiency
        found["rents"] = tuple(found.pop(name) for name in self.commitments)
        found["network"] = Hierarchical(*(found.pop(name) for name in _OF_NETWORK))
        return Replicas.of(model=model, efficiency=efficiency, redundant=0, **found)

    def _of(self, given: Mapping[str, Any]) -> Built:
        key = tuple(_key(value) for value in given.values())
        if key not in self.built:
            self.built[key] = _build(
                {self.keys[n]: self._read(self.keys[n], v) for n, v in given.items()}, self.calibrated
            )
        return self.built[key]

    def _read(self, name: str, value: Any) -> Any:
        """An input as the resolvers take it; each value is looked up once."""
        key = (name, _key(value))
        if key not in self.entries:
            if name in _OR_NONE:
                self.entries[key] = _entry(name, value)
            else:
                self.entries[key] = None if value is None else read_input("a serving space", name, INPUTS[name], value)
        return self.entries[key]

    def _numbers(self, given: dict[str, Any]) -> list[float]:
        built = self._of(given)
        kind = (id(built.described.model), id(built.described.draft), built.apart)
        if kind not in self._places:
            self._places[kind] = len(self.groups)
            self.groups.append(built)
        row = [float(built.status), float(self._places[kind])]
        found = built.replicas
        for replica in (None, None, None) if found is None else (found.reader, found.writer, found.draft):
            if replica is None:
                row += [np.nan] * len(self.numbers)
            else:
                row += [_number(replica, name) for name in _NUMBERS]
                row += [listed_rent(replica.chip, name) for name in self.commitments]
        return row


def _key(value: Any) -> Any:
    """Entries of a user's own are told apart by identity; the space keeps them alive."""
    return value if isinstance(value, (str, int, float, type(None))) else id(value)


def _number(replica: Replica, name: str) -> float:
    chip = replica.chip
    if name == "unit_cost":
        return np.nan if chip.unit_cost is None else to_si(chip.unit_cost, "USD")
    if name == "tdp":
        return np.nan if chip.tdp is None else to_si(chip.tdp, "kW")
    return float(getattr(replica.network if name in _OF_NETWORK else replica, name))


_OR_NONE = {"decode_hardware": Hardware, "draft_model": Models}


def _entry(name: str, value: Any) -> Any:
    if value is None or value == NONE:
        return None
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
