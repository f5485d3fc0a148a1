"""``solve()`` with inputs that are not known exactly: percentiles of the outputs, and how often each wall binds.

    SingleNodeModel().solve("Llama3_8B", "H100", efficiency=uncertain("0.3..0.6"))
    EconomicsModel().solve(fleet, 30, grid="Quebec", uncertain={"grid.carbon_intensity_g_kwh": "20..40", "kwh_price": "0.05..0.12"})

Every draw is one ordinary solve, so that an uncertain answer follows the equations of the certain one, kinks included. Draws
are a Latin hypercube (:mod:`mlsysim.units.uncertain`): with n draws the error of a percentile falls about as 1/n for one
input and 1/sqrt(n) for many (Stein 1987). Inputs are independent unless one :class:`Uncertain` is used for several.

Percentiles are over all draws that give the output, infeasible ones included: their times are those of a system that does
not fit, as in any result; ``feasible_probability`` says how many do. A percentile between two draws is interpolated. A
range of one value gives exactly the certain answer.

Left out: correlations other than identity, and the error of the equations themselves, which the intervals of calibrated
results state.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mlsysim.errors import InputError, MLSysError, unknown_name
from mlsysim.units.registry import Quantity, conversion_factor
from mlsysim.units.text import format_value
from mlsysim.units.uncertain import Uncertain, latin_hypercube
from mlsysim.units.uncertain_text import uncertain as read_uncertain
from mlsysim.walls.binding import Binding
from mlsysim.walls.inputs import Input, read_input
from mlsysim.walls.result import Result
from mlsysim.walls.uncertain_result import PERCENTILES, Percentiles, UncertainResult
from mlsysim.walls.varied import field_spec, with_field

SAMPLES = 1000
"""Draws unless told otherwise."""
_MOST_SAMPLES = 1_000_000
_MOST_SHARES = 20
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

    @property
    def ends(self) -> tuple[float, float]:
        """The range of the input in the unit of the distribution."""
        spec, unit = self.spec, self.distribution.unit
        low, high = spec.low, spec.high
        if spec.kind not in _NUMERIC:
            return -math.inf, math.inf
        target = unit or spec.plain_unit or ""
        factor = 1.0 if target == spec.unit else conversion_factor(spec.unit, target)
        return (-math.inf if low is None else low * factor), (math.inf if high is None else high * factor)

    def draws(self, shares: list[float]) -> list[Any]:
        """Numbers, or names, at these shares of the distribution."""
        low, high = self.ends
        whole = self.spec.whole
        return [self.distribution.quantile(share, low, high, whole) for share in shares]


def read_variables(
    resolver: str,
    inputs: Mapping[str, Input],
    given: Mapping[str, Any],
    named: Any,
) -> tuple[dict[str, Any], list[Variable]]:
    """What is certain, with zoo names resolved where a field varies, and what is not."""
    if named is None:
        named = {}
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
            raise InputError(
                f"{variable.owner!r} and its field {variable.name!r} cannot both vary.", field=variable.name
            )
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


def solve_uncertain(resolver: Any, given: dict[str, Any]) -> Any:
    """Solve once for each draw; without anything uncertain, once."""
    given = dict(given)
    named = given.pop("uncertain", None)
    samples = _whole("samples", given.pop("samples", SAMPLES), 1, _MOST_SAMPLES)
    seed = _whole("seed", given.pop("seed", 0), 0, 2**63 - 1)
    kind = type(resolver)
    certain, variables = read_variables(kind.__name__, kind.inputs, given, named)
    if not variables:
        return resolver.solve(**certain)
    return propagate(kind.__name__, lambda inputs: resolver.solve(**inputs), certain, variables, samples, seed)


def propagate(
    name: str,
    solve: Callable[[dict[str, Any]], Result],
    certain: Mapping[str, Any],
    variables: list[Variable],
    samples: int,
    seed: int,
) -> UncertainResult:
    """Percentiles of what ``solve`` gives at the draws of some variables."""
    shares = latin_hypercube({v.name: v.distribution for v in variables}, samples, seed)
    inputs = {v.name: v.draws(shares[v.name]) for v in variables}
    table = _Table(samples)
    for place, numbers in enumerate(zip(*inputs.values(), strict=True)):
        try:
            table.add(place, solve(values_at(certain, variables, numbers)))
        except MLSysError as error:
            at = ", ".join(
                f"{v.name} = {format_value(v.distribution.value(number))}"
                for v, number in zip(variables, numbers, strict=True)
            )
            raise type(error)(f"At {at}: {error}", **error.details) from None
    return table.result(name, variables, inputs, seed)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    return int(read_input("solve", name, Input(name, low=low, high=high, whole=True), value))


class _Table:
    """Outputs of all draws, column by column."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.columns: dict[str, list[Any]] = {}
        self.units: dict[str, Any] = {}
        self.shares: dict[str, Counter[str]] = {}
        self.walls: Counter[str] = Counter()
        self.numbers: dict[str, int] = {}
        self.feasible = 0
        self.assumptions: dict[str, str] = {}

    def add(self, place: int, outcome: Result) -> None:
        if not place:
            self.assumptions = dict(outcome.assumptions)
        elif outcome.assumptions != self.assumptions:
            for name, text in outcome.assumptions.items():
                if self.assumptions.get(name) != text:
                    self.assumptions[name] = "varies with the draw"
        self.feasible += bool(outcome.feasible)
        binding = outcome.binding
        wall = "not known" if binding is None else binding.name
        self.walls[wall] += 1
        if binding is not None:
            self.numbers.setdefault(wall, binding.wall)
        for name, value in _outputs(outcome):
            if isinstance(value, (bool, str)):
                self.shares.setdefault(name, Counter())[_word(value)] += 1
                continue
            if isinstance(value, Quantity):
                units = self.units.get(name)
                if units is None:
                    units = self.units[name] = value.units
                value = value.magnitude if value._units == units._units else value.to(units).magnitude
            if not math.isnan(value):
                self.columns.setdefault(name, [None] * self.samples)[place] = value

    def result(
        self, resolver: str, variables: list[Variable], inputs: dict[str, list[Any]], seed: int
    ) -> UncertainResult:
        wall, count = self.walls.most_common(1)[0]
        share = f"{count / self.samples:.1%}"
        number = self.numbers.get(wall)
        sentence = f"Wall {number} ({wall}) binds in {share} of {self.samples:,} draws."
        texts = {v.name: str(v.distribution) for v in variables}
        found = UncertainResult(
            feasible=self.feasible == self.samples,
            assumptions=self.assumptions,
            binding=None if number is None else Binding(number, wall, None, sentence),
            resolver=resolver,
            samples=self.samples,
            seed=seed,
            distributions=texts,
            outputs={name: self._spread(name, values) for name, values in self.columns.items()},
            shares={
                name: {word: n / self.samples for word, n in counts.most_common()}
                for name, counts in self.shares.items()
                if len(counts) <= _MOST_SHARES
            },
            binding_probability={name: n / self.samples for name, n in self.walls.most_common()},
            feasible_probability=self.feasible / self.samples,
        )
        found.assumptions.update(texts)
        found._facts.resolver = resolver
        found._draws, found._inputs = self.columns, inputs
        return found

    def _spread(self, name: str, values: list[Any]) -> Percentiles:
        known = sorted(value for value in values if value is not None)
        numbers = [percentile(known, share) for share in PERCENTILES] + [_mean(known)]
        units = self.units.get(name)
        if units is not None:
            numbers = [Quantity(number, units) for number in numbers]
        return Percentiles(*[*numbers, len(known) / len(values)])


def _outputs(outcome: Result) -> Iterator[tuple[str, Any]]:
    """Numbers, quantities, flags and words of a result; those of a table as ``table.name``."""
    for name in type(outcome).model_fields:
        if name in Result.model_fields:
            continue
        value = getattr(outcome, name)
        if isinstance(value, (bool, int, float, str, Quantity)):
            yield name, value
        elif isinstance(value, Mapping):
            for key, item in value.items():
                if isinstance(item, (int, float, Quantity)) and not isinstance(item, bool):
                    yield f"{name}.{key}", item


def _word(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def percentile(ordered: list[Any], share: float) -> Any:
    """The percentile of sorted numbers, interpolated between neighbours."""
    place = (len(ordered) - 1) * share / 100
    first = math.floor(place)
    low, high = ordered[first], ordered[min(first + 1, len(ordered) - 1)]
    part = place - first
    # Equal neighbours come back as they are, and infinite ones do not become NaN.
    if low == high or part == 0:
        return low
    return high if math.isinf(high) or math.isinf(low) else low + (high - low) * part


def _mean(values: list[Any]) -> Any:
    if values[0] == values[-1]:
        return values[0]
    return (
        math.inf if math.isinf(values[-1]) else -math.inf if math.isinf(values[0]) else math.fsum(values) / len(values)
    )
