"""``solve()`` with inputs that are not known exactly: percentiles of the outputs, and how often each wall binds.

    SingleNodeModel().solve("Llama3_8B", "H100", efficiency=uncertain("0.3..0.6"))
    EconomicsModel().solve(fleet, 30, grid="Quebec", uncertain={"grid.carbon_intensity_g_kwh": "20..40", "kwh_price": "0.05..0.12"})

Every draw is one ordinary solve, so that an uncertain answer follows the equations of the certain one, kinks included.

Draws are a Latin hypercube (McKay, Beckman, Conover 1979): the unit interval is cut into as many strata as there are
draws, each stratum is met once, in an order of its own for each name. Only ``random.Random(text).random()`` is used, whose
sequence Python guarantees for a seed, so that draws are the same on every platform. The stream depends on the seed and the
name alone: a name has the same draws whatever else is uncertain beside it. With n draws the error of a percentile falls about
as 1/n for one input and 1/sqrt(n) for many (Stein 1987). Inputs are independent unless one :class:`Uncertain` is used for several.

Percentiles are over all draws that give the output, infeasible ones included: their times are those of a system that does
not fit, as in any result; ``feasible_probability`` says how many do. A percentile between two draws is interpolated. A
range of one value gives exactly the certain answer.

Left out: correlations other than identity, and the error of the equations themselves, which the intervals of calibrated
results state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mlsysim.errors import InputError, MLSysError, unknown_name
from mlsysim.units.records import dataclass
from mlsysim.units.registry import conversion_factor
from mlsysim.units.text import format_value
from mlsysim.units.uncertain import ABOVE_ZERO, BELOW_ONE, Uncertain
from mlsysim.units.uncertain import uncertain as read_uncertain
from mlsysim.walls.inputs import Input, read_input
from mlsysim.walls.result import Result
from mlsysim.walls.uncertain_result import UncertainResult
from mlsysim.walls.varied import field_spec, with_field

SAMPLES = 1000
"""Draws unless told otherwise."""
_MOST_SAMPLES = 1_000_000
_NUMERIC = ("number", "efficiency", "quantity")


@dataclass(frozen=True)
class Variable:
    """A name that varies: an input, or a field behind one (``path``), and what is known of its unit and range."""

    name: str
    distribution: Uncertain
    spec: Input
    owner: str
    path: tuple[str, ...] = ()

    def check(self, resolver: str) -> None:
        """Refuse what lies outside of the range of the input, with its sentence."""
        bell = self.distribution.distribution in ("normal", "lognormal")
        for number in self.distribution.limits:
            # The centre of a bell curve may lie between whole numbers; its draws do not.
            spec = replace(self.spec, whole=False) if bell else self.spec
            read_input(resolver, self.name, spec, self.distribution.value(number))

    def draws(self, shares: list[float]) -> list[Any]:
        """Numbers, or names, at these shares of the distribution, within the range of the input."""
        spec, low, high = self.spec, -math.inf, math.inf
        if spec.kind in _NUMERIC:
            target = self.distribution.unit or spec.plain_unit or ""
            factor = 1.0 if target == spec.unit else conversion_factor(spec.unit, target)
            low = low if spec.low is None else spec.low * factor
            high = high if spec.high is None else spec.high * factor
        return [self.distribution.quantile(share, low, high, spec.whole) for share in shares]


def read_variables(
    resolver: str, inputs: Mapping[str, Input], given: Mapping[str, Any], named: Any
) -> tuple[dict[str, Any], list[Variable]]:
    """What is certain, with zoo names resolved where a field varies, and what is not."""
    named = {} if named is None else named
    if not isinstance(named, Mapping):
        raise InputError("'uncertain' must be a mapping such as {'efficiency': '0.3..0.6'}.", field="uncertain")
    certain = {name: value for name, value in given.items() if not isinstance(value, Uncertain)}
    wanted = {name: value for name, value in given.items() if isinstance(value, Uncertain)}
    for name, text in named.items():
        if name in wanted:
            raise InputError(f"{resolver}.solve got {name!r} as an input and under 'uncertain'.", field=str(name))
        try:
            wanted[str(name)] = read_uncertain(text)
        except InputError as error:
            raise type(error)(f"The {name!r} of 'uncertain': {error}", **error.details) from None
    found = []
    for name, distribution in wanted.items():
        owner, *path = name.split(".")
        spec = inputs.get(owner)
        if spec is None:
            raise unknown_name(f"input of {resolver}.solve", owner, inputs)
        if path:
            certain[owner] = _entry(resolver, owner, spec, certain, name)
            variable = Variable(name, distribution, field_spec(certain[owner], tuple(path), name), owner, tuple(path))
        else:
            if owner in certain:
                raise InputError(f"{resolver}.solve got {owner!r} as an input and under 'uncertain'.", field=owner)
            variable = Variable(name, distribution, spec, owner)
        variable.check(resolver)
        found.append(variable)
    for variable in found:
        if variable.path and any(other.name == variable.owner for other in found):
            both = f"{variable.owner!r} and its field {variable.name!r}"
            raise InputError(f"{both} cannot both vary.", field=variable.name)
    return certain, found


def _entry(resolver: str, owner: str, spec: Input, certain: Mapping[str, Any], name: str) -> Any:
    value = certain.get(owner, None if spec.required else spec.default)
    if value is None:
        raise InputError(f"{name!r} cannot vary in {resolver}.solve: {owner!r} is not given.", field=name)
    return read_input(resolver, owner, spec, value)


def values_at(certain: Mapping[str, Any], variables: list[Variable], numbers: tuple[Any, ...]) -> dict[str, Any]:
    """The inputs of one draw."""
    inputs = dict(certain)
    for variable, number in zip(variables, numbers, strict=True):
        value = variable.distribution.value(number)
        if variable.path:
            value = with_field(inputs[variable.owner], variable.path, value, variable.spec, variable.name)
        inputs[variable.owner] = value
    return inputs


def latin_hypercube(names: Mapping[str, Uncertain], samples: int, seed: int) -> dict[str, list[float]]:
    """For each name, ``samples`` shares between 0 and 1, one in each stratum; one object has one sequence."""
    from random import Random

    by_object: dict[int, list[float]] = {}
    for name, distribution in names.items():
        if id(distribution) in by_object:
            continue
        stream = Random(f"{seed}:{name}")
        keys = [stream.random() for _ in range(samples)]
        shares = [0.0] * samples
        for place, stratum in enumerate(sorted(range(samples), key=keys.__getitem__)):
            shares[place] = min(max((stratum + stream.random()) / samples, ABOVE_ZERO), BELOW_ONE)
        by_object[id(distribution)] = shares
    return {name: by_object[id(distribution)] for name, distribution in names.items()}


def solve_uncertain(resolver: Any, given: dict[str, Any]) -> Any:
    """Solve once for each draw; without anything uncertain, once."""
    named, samples, seed = given.pop("uncertain", None), given.pop("samples", SAMPLES), given.pop("seed", 0)
    samples, seed = _whole("samples", samples, 1, _MOST_SAMPLES), _whole("seed", seed, 0, 2**63 - 1)
    name = type(resolver).__name__
    certain, variables = read_variables(name, resolver.inputs, given, named)
    if not variables:
        return resolver.solve(**certain)
    shares = latin_hypercube({v.name: v.distribution for v in variables}, samples, seed)
    inputs = {v.name: v.draws(shares[v.name]) for v in variables}
    outcomes = (_at(resolver, certain, variables, numbers) for numbers in zip(*inputs.values(), strict=True))
    texts = {v.name: str(v.distribution) for v in variables}
    return UncertainResult.of_draws(outcomes, samples, inputs, resolver=name, seed=seed, distributions=texts)


def _at(resolver: Any, certain: Mapping[str, Any], variables: list[Variable], numbers: tuple[Any, ...]) -> Result:
    try:
        return resolver.solve(**values_at(certain, variables, numbers))
    except MLSysError as error:
        drawn = ((v.name, v.distribution.value(number)) for v, number in zip(variables, numbers, strict=True))
        at = ", ".join(f"{name} = {format_value(value)}" for name, value in drawn)
        raise type(error)(f"At {at}: {error}", **error.details) from None


def _whole(name: str, value: Any, low: int, high: int) -> int:
    return int(read_input("solve", name, Input(name, low=low, high=high, whole=True), value))
