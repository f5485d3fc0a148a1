"""``@kernel``: an equation with a declared signature, written once and run on floats, arrays and quantities.

A kernel is a pure function on plain numbers in declared units: no ``if`` on values, no in-place change, no literal
with a dimension. The decorator returns the function itself, so calling it costs nothing extra; the signature hangs on
it as ``function.signature`` and is collected in :data:`KERNELS`.

    @kernel("operations: flop, peak: flop/s [1e9, 1e16], efficiency [0.01, 1] -> time: s")
    def compute_time(operations, peak, efficiency):
        return operations / (peak * efficiency)

Each input has a name, a unit unless it is a count or a ratio, ``whole`` where it is a whole number, and the range in which the
kernel is meant to be used (1 to a million unless said); outputs have names and units.

:func:`prove` is the proof that the units bind. It evaluates the kernel on quantities and requires that what comes out
has the declared units and the same value as the plain-number call (so the declared units are coherent). Then it
multiplies each input by a foreign unit and requires an error or a changed output, so that no signature is vacuous.
:func:`evaluate` is the boundary for callers who hold quantities or strings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

from mlsysim.errors import UnitError, unknown_name
from mlsysim.units.records import dataclass
from mlsysim.units.registry import DimensionalityError, Quantity, to_si, ureg


@dataclass(frozen=True)
class Arg:
    """An input: its unit and the range in which the kernel is meant to be used (in that unit)."""

    unit: str
    low: float = 1.0
    high: float = 1e6
    whole: bool = False


@dataclass(frozen=True)
class Signature:
    """What a kernel takes and gives, in declared units."""

    name: str
    function: Callable[..., Any]
    declared: str

    @cached_property
    def inputs(self) -> Mapping[str, Arg]:
        found = {
            name: Arg(unit, float(low or Arg.low), float(high or Arg.high), bool(whole))
            for name, unit, whole, low, high in _DECLARED.findall(self.declared.partition(" -> ")[0])
        }
        parameters = self.function.__code__.co_varnames[: self.function.__code__.co_argcount]
        if (*found,) != parameters:
            raise TypeError(f"kernel {self.name}: declared inputs {[*found]} are not its parameters {[*parameters]}")
        return found

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        return {name: unit for name, unit, *_ in _DECLARED.findall(self.declared.partition(" -> ")[2])}

    @property
    def where(self) -> str:
        return f"{self.function.__module__}.{self.name}"

    def unpack(self, result: Any) -> dict[str, Any]:
        """Results by name; a kernel with several outputs returns them as a tuple in declared order."""
        values = result if len(self.outputs) > 1 else (result,)
        return dict(zip(self.outputs, values, strict=True))


KERNELS: dict[str, Signature] = {}

F = TypeVar("F", bound=Callable[..., Any])


class KernelProofError(AssertionError):
    """A kernel's declared units and its arithmetic disagree."""


_DECLARED = re.compile(r"(\w+)(?:: ([^\[,]+?))?( whole)?(?: \[(\S+), (\S+)\])?(?:,\s+|$)")


def kernel(declared: str) -> Callable[[F], F]:
    """Declare the units of a kernel's inputs and outputs."""

    def declare(function: F) -> F:
        signature = Signature(function.__name__, function, declared.strip())
        function.signature = signature  # type: ignore[attr-defined]
        KERNELS[signature.where] = signature
        return function

    return declare


def _sample(arg: Arg, position: int) -> float:
    """A value inside the range, different for each position so that swapped inputs show."""
    low, high = max(arg.low, 1e-12), max(arg.high, 1e-12)
    value = math.exp(math.log(low) + (math.log(high) - math.log(low)) * (0.37 + 0.07 * (position % 5)))
    return float(round(value)) if arg.whole else value


def prove(signature: Signature) -> None:
    """Raise :class:`KernelProofError` unless the units of the kernel bind. See the module's text."""
    numbers = {name: _sample(arg, i) for i, (name, arg) in enumerate(signature.inputs.items())}
    quantities = {name: Quantity(numbers[name], ureg.parse_units(arg.unit)) for name, arg in signature.inputs.items()}
    plain = signature.unpack(signature.function(**numbers))
    carried = signature.unpack(signature.function(**quantities))
    for name, unit in signature.outputs.items():
        value = carried[name]
        value = value if isinstance(value, Quantity) else Quantity(value)
        try:
            converted = value.to(unit).magnitude
        except DimensionalityError:
            raise KernelProofError(
                f"{signature.where}: output {name!r} is declared in {unit or 'counts'!r} but comes out as {value.units:~}"
            ) from None
        if not math.isclose(float(converted), float(plain[name]), rel_tol=1e-9, abs_tol=1e-300):
            raise KernelProofError(
                f"{signature.where}: {name!r} is {plain[name]} on numbers but {converted} on quantities; the declared units are not coherent"
            )
    for name in signature.inputs:
        foreign = dict(quantities, **{name: quantities[name] * ureg.kelvin})
        try:
            outcome = signature.unpack(signature.function(**foreign))
        except (DimensionalityError, UnitError, ValueError):
            # ValueError is pint's refusal to compare a quantity with a plain number.
            continue
        if all(_dimension(outcome[out]) == _dimension(carried[out]) for out in signature.outputs):
            raise KernelProofError(
                f"{signature.where}: a foreign unit on {name!r} goes unnoticed; the declaration is vacuous"
            )


def _dimension(value: Any) -> Any:
    return value.dimensionality if isinstance(value, Quantity) else Quantity(1.0).dimensionality


def evaluate(function: Callable[..., Any], **inputs: Any) -> dict[str, Any]:
    """Run a kernel on quantities or strings; the results come back as quantities in the declared units."""
    signature: Signature = function.signature  # type: ignore[attr-defined]
    for name in inputs:
        if name not in signature.inputs:
            raise unknown_name(f"input of {signature.name}", name, signature.inputs)
    numbers = {}
    for name, arg in signature.inputs.items():
        if name not in inputs:
            raise UnitError(f"{signature.name} needs {name!r} in {arg.unit or 'counts'}.")
        try:
            numbers[name] = to_si(inputs[name], arg.unit)
        except (DimensionalityError, UnitError):
            raise UnitError(
                f"{signature.name}: {name!r} must be in {arg.unit or 'counts'}, got {inputs[name]!r}.",
                field=name,
                expected=arg.unit,
            ) from None
    results = signature.unpack(function(**numbers))
    return {name: Quantity(value, ureg.parse_units(signature.outputs[name])) for name, value in results.items()}
