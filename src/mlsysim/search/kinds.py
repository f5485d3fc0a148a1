"""Kinds of design space. A kind is a module with ``evaluate(space, columns)`` and what it declares, imported when used.

``evaluate`` gives arrays by name: ``feasible`` (bool), ``wall`` (0 where the point fits, else the number of the wall that
rejects it) and the outputs. The module may declare ``INPUTS`` (names, units and ranges of what a space may set),
``OUTPUTS``, ``LARGER`` (outputs of which more is better), ``OBJECTIVE`` (what is ranked unless a space says otherwise),
``binding(space, columns)`` (the wall that binds where none rejects), ``answer(given)`` (what the resolver says of one point),
``known_numbers(space, columns)`` (numbers of a point that the zoo gives) and ``is_calibrated(names, models)`` (whether a space that
gives these inputs is calibrated without saying so).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Q_
from mlsysim.walls.inputs import Input

Evaluate = Callable[[Any, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Kind:
    """One kind of space."""

    name: str

    def declared(self, name: str, default: Any = None) -> Any:
        """What the kind's module says under a name."""
        return getattr(import_module(f"mlsysim.search.{self.name}"), name, default)

    @property
    def evaluate(self) -> Evaluate:
        """Outputs of some points; of a space with uncertain inputs, percentiles over its draws."""
        function: Evaluate = self.declared("evaluate")

        def evaluate(space: Any, columns: Any) -> dict[str, Any]:
            if getattr(space, "uncertain", None) is None:
                return function(space, columns)
            from mlsysim.search.uncertainty import at_draws

            return at_draws(self, space, columns)

        return evaluate

    def is_calibrated(self, names: Collection[str], models: Iterable[Any]) -> bool:
        """Whether the ``efficiency`` of a space that gives inputs of these names is "calibrated"."""
        rule: Callable[..., bool] | None = self.declared("is_calibrated")
        return rule is not None and rule(names, models)

    @property
    def inputs(self) -> Mapping[str, Input]:
        """What a space may set; empty where the kind does not say."""
        return self.declared("INPUTS", {})

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs; empty where the kind does not say."""
        return tuple(self.declared("OUTPUTS", ()))

    @property
    def larger(self) -> frozenset[str]:
        """Outputs of which more is better."""
        return frozenset(self.declared("LARGER"))

    @property
    def objective(self) -> str:
        """What is ranked unless a space says otherwise."""
        name = str(self.declared("OBJECTIVE"))
        if not name:
            raise InputError(f"A space of kind {self.name} has to say what to minimize or maximize.", field="minimize")
        return name


KINDS: dict[str, Kind] = {name: Kind(name) for name in ("compression", "kernel", "node", "serving", "training")}
"""The kinds by name."""


def kind_named(name: Any) -> Kind:
    """The kind of that name, or an error with the nearest."""
    if not isinstance(name, str) or name not in KINDS:
        words = "a plan of any task is swept by its keys, without a space: mlsysim sweep PLAN KEY=VALUE,VALUE"
        raise unknown_name("kind of space", name, KINDS, f"use one of {', '.join(KINDS)}; {words}.")
    return KINDS[name]


def asked_of(resolver: Any, declared: Mapping[str, Input], given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a point that a resolver takes; a space holds quantities as numbers in their declared unit."""
    return {
        name: Q_(value, declared[name].unit)
        if declared[name].kind == "quantity" and isinstance(value, (int, float))
        else value
        for name, value in given.items()
        if name in resolver.inputs
    }
