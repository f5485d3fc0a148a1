"""What a lab computes for one student: names are looked up when they are first asked for, and kept.

The parameters that are lists get one value each from a hash of the student's id, the lab and the parameter: the same
on every machine, different between students. A page may put other values in their place (the controls); right
answers are always those of the student's own parameters.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.labs.expression import formula
from mlsysim.labs.lab import Compute, Lab
from mlsysim.labs.quoting import PLACEHOLDER, quote
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.metrics import value_text
from mlsysim.plans.plan import Plan
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.units.registry import DimensionalityError, Quantity
from mlsysim.units.text import format_value
from mlsysim.walls.catalog import resolver

_DEEPEST = 40


def student_name(text: str) -> str:
    """A student's id without what people type differently: spaces around it, capitals, forms of accents."""
    return unicodedata.normalize("NFKC", text).strip().casefold()


def parameters_of(lab: Lab, student: str = "") -> dict[str, Any]:
    """The parameters of a student; without an id the first of each list, which is for practice."""
    name = student_name(student)
    chosen = {}
    for key, values in _choices(lab).items():
        digest = hashlib.sha256(f"{lab.id}/{key}/{name}".encode()).digest()
        chosen[key] = values[int.from_bytes(digest[:4], "big") % len(values) if name else 0]
    return chosen


def all_variants(lab: Lab) -> Iterator[dict[str, Any]]:
    """Every combination of parameters that a student may get."""
    for combination in itertools.product(*_choices(lab).values()):
        yield dict(zip(lab.parameters, combination, strict=True))


def _choices(lab: Lab) -> dict[str, list[Any]]:
    return {key: value if isinstance(value, list) else [value] for key, value in lab.parameters.items()}


class Scope:
    """Names of a lab with their values, for one set of parameters."""

    def __init__(self, lab: Lab, parameters: Mapping[str, Any], depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise InputError(f"The lab {lab.id!r} computes something from itself; look for a circle among its names.")
        self.lab = lab
        self.parameters = dict(parameters)
        self._depth = depth
        self._known: dict[str, Any] = {}
        self._open: list[str] = []

    @classmethod
    def of_student(cls, lab: Lab, student: str = "", moved: Mapping[str, Any] | None = None) -> Scope:
        """The scope of a student's own parameters, or of those with some moved by the controls."""
        parameters = parameters_of(lab, student)
        allowed = {control.parameter: control for control in lab.controls}
        for name, value in (moved or {}).items():
            if name not in allowed:
                raise unknown_name(f"control of the lab {lab.id!r}", name, allowed)
            if value not in allowed[name].values:
                raise InputError(f"The control {allowed[name].label!r} has no value {value!r}.", field=name)
            parameters[name] = value
        return cls(lab, parameters)

    def changed(self, parameters: Mapping[str, Any]) -> Scope:
        """A scope in which some parameters differ."""
        return Scope(self.lab, {**self.parameters, **parameters}, self._depth + 1)

    def __getitem__(self, name: str) -> Any:
        if name in self.parameters:
            return self.parameters[name]
        if name not in self._known:
            if name in self._open:
                raise InputError(f"The lab {self.lab.id!r} computes {name!r} from itself.")
            self._open.append(name)
            try:
                self._known[name] = self._computed(name)
            finally:
                self._open.pop()
        return self._known[name]

    def evaluate(self, text: str, changed: Mapping[str, str] | None = None) -> Any:
        """The value of an expression, with some parameters changed."""
        if changed:
            return self.changed({name: self.evaluate(of) for name, of in changed.items()}).evaluate(text)
        return formula(text).value(self.__getitem__)

    def text(self, text: str) -> str:
        """A text with the values of its placeholders."""
        return quote(text, self.shown)

    def shown(self, name: str) -> str:
        """A value as it is printed; of what is no value of the lab, such as a field of one, the plain number."""
        if name in self.lab.values:
            return shown(self[name], self.lab.values[name].unit)
        return shown(self.evaluate(name), "")

    def _computed(self, name: str) -> Any:
        value = self.lab.values.get(name)
        if value is not None:
            return self.evaluate(value.of, value.changed)
        computed = self.lab.compute.get(name)
        if computed is None:
            known = [*self.parameters, *self.lab.compute, *self.lab.values]
            raise unknown_name(f"name of the lab {self.lab.id!r}", name, known)
        if computed.copy_of is not None:
            return self.evaluate(computed.copy_of, computed.changed)
        if computed.plan is not None:
            return _answered(json.dumps(self._filled(computed.plan), sort_keys=True))
        if computed.resolver is None:
            return self._least(computed) if computed.least is not None else self._best(computed)
        kind = resolver(computed.resolver)
        inputs = self._filled(computed.inputs)
        for name, value in inputs.items():
            if isinstance(value, str) and name in kind.inputs and kind.inputs[name].kind == "fleet":
                inputs[name] = parse_fleet(value).one
        return kind().solve(**inputs)

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._filled(item) for item in value]
        if not isinstance(value, str):
            return value
        if value.startswith("="):
            return self.evaluate(value[1:])
        return PLACEHOLDER.sub(lambda found: str(self.evaluate(found[1])), value)

    def _least(self, computed: Compute) -> int:
        """By halving, since what holds stays true: the least whole number for which it does."""
        assert computed.least is not None and computed.holds is not None
        name, holds, numbers = computed.least, computed.holds, range(computed.start, computed.stop + 1)

        def held(number: int) -> bool:
            return bool(self.changed({name: number}).evaluate(holds))

        if not held(computed.stop):
            raise InputError(f"{holds!r} holds for no {name} up to {computed.stop}.")
        return computed.start + bisect_left(numbers, True, hi=len(numbers) - 1, key=held)

    def _best(self, computed: Compute) -> Any:
        """Of equal ones the first."""
        pick, text = (min, computed.lowest) if computed.lowest is not None else (max, computed.highest or "")
        return pick(computed.among, key=lambda item: self.changed({str(computed.best): item}).evaluate(text))


@lru_cache(maxsize=256)
def _answered(plan: str) -> Answer:
    """The answer of a plan; designs and rows of tables ask for the same ones again and again."""
    return evaluate_plainly(Plan.model_validate(json.loads(plan)))


def as_unit(value: Any, unit: str) -> Any:
    """A number or a quantity in a unit; a number without one counts as dimensionless."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Quantity)):
        return value
    made = value if isinstance(value, Quantity) else Quantity(value, "")
    try:
        return made.to(unit)
    except DimensionalityError:
        raise InputError(f"{format_value(made)} cannot be shown in {unit or 'a plain number'}.") from None


_SYMBOLS = {
    "percent": "%", "flop/byte": "FLOP/B", "token/s": "tokens/s", "sample/s": "samples/s", "GPU": "GPUs",
    "day": "days", "Bparam": "billion", "Ttoken": "trillion", "TFLOPs/s": "TFLOP/s", "1/s": "/s",
}  # fmt: skip


def shown(value: Any, unit: str) -> str:
    """A value in a unit, with four digits that count; money, counts and words as people write them.

    >>> shown(Quantity(0.0123456, "s"), "ms"), shown(0.5, "percent"), shown(Quantity(1234.5, "USD"), "USD")
    ('12.35 ms', '50 %', '$1,234')
    """
    if isinstance(value, (bool, str)):
        return value_text("", value)
    made = as_unit(value, unit)
    if unit == "USD":
        return value_text("", made)
    if not isinstance(made, Quantity):
        return str(made)
    number = float(made.magnitude)
    whole = number == round(number) or abs(number) >= 1e4
    form = ".4g" if abs(number) >= 1e9 else ",.0f" if whole else ",.4g"
    return f"{number:{form}} {_SYMBOLS.get(unit, unit)}".strip()
