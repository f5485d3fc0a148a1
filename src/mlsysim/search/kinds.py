"""Kinds of design space. A kind is a module with ``evaluate(space, columns)`` and what it declares, imported when used.

``evaluate`` gives arrays by name: ``feasible`` (bool), ``wall`` (0 where the point fits, else the number of the wall that
rejects it) and the outputs. The module may declare ``INPUTS`` (names, units and ranges of what a space may set),
``OUTPUTS``, ``LARGER`` (outputs of which more is better), ``OBJECTIVE`` (what is ranked unless a space says otherwise) and
``binding(space, columns)`` (the wall that binds where none rejects) and ``is_calibrated(names, models)`` (whether a space that
gives these inputs is calibrated without saying so).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.walls.inputs import Input

Evaluate = Callable[[Any, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Kind:
    """One kind of space and the module that evaluates it."""

    name: str
    module: str

    def _declared(self, name: str, default: Any) -> Any:
        try:
            module = import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name != self.module:
                raise
            raise InputError(f"Spaces of kind {self.name!r} cannot be evaluated by this version.") from None
        return getattr(module, name, default)

    @property
    def evaluate(self) -> Evaluate:
        """Outputs of some points; of a space with uncertain inputs, percentiles over its draws."""
        function: Evaluate = self._declared("evaluate", None)

        def evaluate(space: Any, columns: dict[str, Any]) -> dict[str, Any]:
            if getattr(space, "uncertain", None) is None:
                return function(space, columns)
            from mlsysim.search.uncertainty import at_draws

            return at_draws(function, self.inputs, space, columns)  # type: ignore[arg-type]

        return evaluate

    def describe(self, space: Any, columns: Any) -> list[dict[str, Any]]:
        """For each point of a space with uncertain inputs its percentiles and how often it is feasible."""
        from mlsysim.search.uncertainty import describe

        binding = self._declared("binding", None)
        return describe(self._declared("evaluate", None), self.inputs, binding, space, columns)

    def is_calibrated(self, names: Collection[str], models: Iterable[Any]) -> bool:
        """Whether the ``efficiency`` of a space that gives inputs of these names is "calibrated"."""
        rule: Callable[..., bool] | None = self._declared("is_calibrated", None)
        return rule is not None and rule(names, models)

    @property
    def inputs(self) -> Mapping[str, Input]:
        """What a space may set; empty where the kind does not say."""
        found: Mapping[str, Input] = self._declared("INPUTS", {})
        return found

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs; empty where the kind does not say."""
        return tuple(self._declared("OUTPUTS", ()))

    @property
    def larger(self) -> frozenset[str]:
        """Outputs of which more is better."""
        return frozenset(self._declared("LARGER", _LARGER))

    @property
    def objective(self) -> str:
        """What is ranked unless a space says otherwise."""
        name = str(self._declared("OBJECTIVE", "step_time_s"))
        if not name:
            raise InputError(f"A space of kind {self.name} has to say what to minimize or maximize.", field="minimize")
        return name


_LARGER = frozenset({"mfu", "hfu", "tokens_per_second", "scaling_efficiency", "goodput_ratio"})

KINDS: dict[str, Kind] = {
    "compression": Kind("compression", "mlsysim.search.compression"),
    "kernel": Kind("kernel", "mlsysim.search.kernel"),
    "node": Kind("node", "mlsysim.search.node"),
    "serving": Kind("serving", "mlsysim.search.serving"),
    "training": Kind("training", "mlsysim.search.training"),
}
"""The kinds by name."""


def kind_named(name: Any) -> Kind:
    """The kind of that name, or an error with the nearest."""
    if not isinstance(name, str) or name not in KINDS:
        raise unknown_name("kind of space", name, KINDS, "use one of " + ", ".join(KINDS) + ".")
    return KINDS[name]
