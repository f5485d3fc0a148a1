"""Declared inputs of resolvers: meaning, unit, range and default as data, and how values are read against them.

Quantities may be given as quantities, text with a unit or a mapping; models, chips, fleets, grids and fabrics as objects
or by their name in the zoo. What cannot be used is refused with one sentence that names the input.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pint

from mlsysim.errors import InputError, UnitError, UnknownNameError, unknown_name
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.infra.registry import Grids
from mlsysim.infra.types import Datacenter, GridProfile
from mlsysim.models.base import Workload
from mlsysim.models.registry import Models
from mlsysim.physics.precision import precision_name
from mlsysim.systems.fleet_text import fleet_of
from mlsysim.systems.registry import Fabrics
from mlsysim.systems.types import Fleet, NetworkFabric
from mlsysim.timing.engines import ENGINES, engine, is_engine
from mlsysim.units.fields import BEYOND, quantity_from
from mlsysim.units.records import dataclass
from mlsysim.units.registry import DimensionalityError, Quantity, number_from, to_si
from mlsysim.units.text import as_given
from mlsysim.vocabulary import VALUES
from mlsysim.zoo.constants import Constant, constant

REQUIRED: Any = object()
"""Default of an input that must be given."""

_INTERVAL = re.compile(r"(whole )?([\[(])(\S+), (\S+)[\])](?: ([^,]+))?(?:, plain(.*))?")


@dataclass(frozen=True)
class Input:
    """One declared input.

    ``kind`` is number, quantity, flag, choice, precision, efficiency, model, hardware, fleet, grid, fabric or object. Numbers and
    quantities have a range in ``unit``; ``low_open`` excludes the lower end. A default of None means "not given".
    """

    meaning: str
    kind: str = "number"
    unit: str = ""
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    whole: bool = False
    choices: tuple[str, ...] = ()
    default: Any = REQUIRED
    example: str = ""
    assumed: str | None = None
    plain_unit: str | None = None

    @classmethod
    def of(
        cls,
        meaning: str,
        of: str | tuple[str, ...],
        default: Any = REQUIRED,
        example: str = "",
        assumed: str | None = None,
    ) -> Input:
        """An input of this meaning and these values: choices, a kind, or an interval.

        Quantities have a unit after the interval, and "plain" where numbers without a unit are read too, in that unit or
        the one after it. A constant is the default of its value.

        >>> Input.of("what one writer sends", "(0, inf) byte/s, plain GB/s", None).range_text
        'a quantity in byte/s above 0 byte/s'
        >>> Input.of("replicas", "whole [1, 1e7]", 1).range_text
        'a whole number of at least 1 and at most 10,000,000'
        """
        found = _INTERVAL.fullmatch(of) if isinstance(of, str) else None
        if found is None:
            kind, _, unit = of.partition(" ") if isinstance(of, str) else ("choice", "", "")
            choices = () if isinstance(of, str) else of
            return cls(meaning, kind, unit, choices=choices, default=default, example=example, assumed=assumed)
        whole, end, low, high, unit, plain = found.groups()
        if isinstance(default, Constant):
            assumed = str(default.value) if unit else assumed
            default = to_si(default.quantity, unit) if unit else default.number
        least, most = None if low == "-inf" else float(low), None if high == "inf" else float(high)
        default = int(default) if whole and isinstance(default, float) else default
        plain = None if plain is None else plain.strip() or unit
        kind = "quantity" if unit else "number"
        return cls(
            meaning, kind, unit or "", least, most, end == "(", bool(whole), (), default, example, assumed, plain
        )

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def default_text(self) -> str:
        """The default as it is echoed in ``assumptions``."""
        if self.assumed is not None:
            return self.assumed
        if isinstance(self.default, bool):
            return "yes" if self.default else "no"
        if isinstance(self.default, (int, float)):
            return f"{self.default:g} {self.unit}".strip()
        return str(self.default)

    @property
    def range_text(self) -> str:
        """The permitted range in words."""
        what = "a whole number" if self.whole else "a number"
        if not self.whole and self.kind not in ("number", "efficiency"):
            what = f"a quantity in {self.unit}"
        parts = []
        if self.low is not None:
            parts.append(f"{'above' if self.low_open else 'of at least'} {as_given(self.low)}")
        if self.high is not None:
            parts.append(f"{'and' if parts else 'of'} at most {as_given(self.high)}")
        return " ".join([what, *parts]) + (f" {self.unit}" if parts and self.unit else "")


class Inputs:
    """Checked inputs of one solve as attributes: plain numbers in their declared units, entries of the zoo."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no input {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"inputs are not changed in place; use but({name}=...)")

    def but(self, **changed: Any) -> Inputs:
        """The same inputs with some of them changed."""
        return Inputs({**self.__dict__, **changed})


MODEL = Input("the model: an entry of Models, its name, or a workload of your own", kind="model", example="Llama3_70B")
HARDWARE = Input("the chip: an entry of Hardware, its name, or a HardwareNode", kind="hardware", example="H100")
PRECISION = Input("number format of weights and arithmetic", kind="precision", default="fp16")
_SUSTAINED = "fraction of the peak arithmetic rate that is sustained"
EFFICIENCY = Input(_SUSTAINED, kind="efficiency", low=0.0, high=1.0, low_open=True, default=0.5)

CALIBRATED = "calibrated"
"""Value of an efficiency input that asks for the sum of measured operators instead of one number."""
CALIBRATED_EFFICIENCY = replace(
    EFFICIENCY, meaning=f"{_SUSTAINED}, or 'calibrated' for the sum of measured operators", choices=(CALIBRATED,)
)


def declared(text: str) -> dict[str, Input]:
    '''Inputs of a text, a line each: name, values (see :meth:`Input.of`), meaning, example, default as it is echoed.

    A name has its default behind it, ``?`` where it need not be given, nothing where it must. A line of names alone has
    inputs that several walls share.

    >>> found = declared("""
    ...     model, hardware?
    ...     replicas = 1 | whole [1, 1e7] | replicas that share the queue
    ...     writer? | (0, inf) byte/s, plain GB/s | what one writer sends | 7 GB/s
    ...     mode = all | one of all, none | what is kept
    ... """)
    >>> list(found), found["replicas"].default, found["writer"].example, found["mode"].choices
    (['model', 'hardware', 'replicas', 'writer', 'mode'], 1, '7 GB/s', ('all', 'none'))
    '''
    inputs: dict[str, Input] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        head, *columns = (" ".join(column.split()) for column in line.split("|"))
        if not columns:
            for name in head.split(", "):
                shared = _SHARED[name.rstrip("?")]
                inputs[name.split()[0].rstrip("?")] = replace(shared, default=None) if name.endswith("?") else shared
            continue
        name, equals, default = head.partition(" = ")
        values, meaning, example, assumed = (*columns, "", "")[:4]
        of = tuple(values[7:].split(", ")) if values.startswith("one of ") else values
        found = _default(default, values) if equals else None if name.endswith("?") else REQUIRED
        inputs[name.rstrip("?")] = Input.of(meaning, of, found, example, assumed or None)
    return inputs


def _default(text: str, values: str) -> Any:
    if text.startswith("constant "):
        return constant(text.removeprefix("constant "))
    if values == "flag":
        return text == "yes"
    if _INTERVAL.fullmatch(values) is None:
        return text
    return int(text) if text.isdigit() else float(text)


_SHARED = {
    "model": MODEL,
    "hardware": HARDWARE,
    "precision": PRECISION,
    "efficiency": EFFICIENCY,
    "efficiency or calibrated": CALIBRATED_EFFICIENCY,
}
_SHARED |= declared(f"""
    tp_size = 1 | whole [1, 10000] | tensor-parallel devices of a replica
    pp_size = 1 | whole [1, 10000] | pipeline stages of a replica
    ep_size = 1 | whole [1, 10000] | devices that share the experts of a mixture
    attention_dp? | whole [1, 10000] | tensor-parallel groups of a replica that share its experts, each with requests of its own \
        (attention data parallelism); as many as ep_size / tp_size unless given | 8
    cp_size = 1 | whole [1, 10000] | devices of a tensor-parallel group that split copies of the keys by tokens while answers are written \
        (decode context parallelism)
    cache_precision? | precision | number format of the cache
    bandwidth_efficiency = 1.0 | (0, 1] | fraction of the memory bandwidth that is reached
    fabric? | fabric | network between nodes, for groups wider than the chip's own links
    engine? | one of {", ".join(ENGINES)} | serving engine, for efficiency='calibrated'; vLLM unless it is given, or llama_cpp on laptops and phones | vLLM
    concurrency? | whole [1, 1e9] | clients in a closed loop, for efficiency='calibrated' | 64
    memory_fraction? | (0, 1] | fraction of the memory for weights and caches: all of it, or what the engine takes with \
        efficiency='calibrated' | 0.9
    service_time_cv = 1.0 | [0, 10] | standard deviation of the service time over its mean: 0 constant, 1 exponential
    fleet | fleet | the fleet: an entry of Systems.Clusters, its name, text such as 512xH100, or a Fleet | Frontier_8K
    duration_days | (0, inf) day, plain | length of the run | 30 day
    datacenter? | grid | where it runs: a grid, its name, or a Datacenter; the fleet's own place where none is given | Quebec
    mfu = 1.0 | [0, 1] | model FLOPs over peak FLOPs while it runs
    include_host = no | flag | count what stands around the accelerators: hosts, fans and conversion as measured of air- or liquid-cooled \
        nodes, the network, and a stated PUE where there is no place
    cooling? | one of air, liquid | of the nodes, for include_host; liquid for racks that are sold so | liquid
    power_cap? | (0, 100000] W | power limit of each accelerator, kept by lowering the clock | 500 W
    average_power? | (0, inf) kW, plain W | measured average power of one accelerator, instead of TDP and MFU | 330 W
""")


def input_schema(spec: Input) -> dict[str, Any]:
    """JSON Schema of one input."""
    schema: dict[str, Any] = {"description": spec.meaning}
    if spec.kind in ("number", "efficiency"):
        schema["type"] = "integer" if spec.whole else "number"
        if spec.low is not None:
            schema["exclusiveMinimum" if spec.low_open else "minimum"] = spec.low
        if spec.high is not None:
            schema["maximum"] = spec.high
        if spec.choices:
            number = {key: schema.pop(key) for key in list(schema) if key != "description"}
            schema["anyOf"] = [number, {"enum": list(spec.choices)}]
    elif spec.kind == "quantity":
        forms = ["string", "object"] if spec.plain_unit is None else ["string", "object", "number"]
        schema |= {"type": forms, "x-unit": spec.unit}
    elif spec.kind == "flag":
        schema["type"] = "boolean"
    elif spec.kind == "choice":
        schema["enum"] = list(spec.choices)
    elif spec.kind != "object":
        schema |= {"type": ["string", "object"], "x-kind": spec.kind}
    if not spec.required and isinstance(spec.default, (int, float, str, bool, type(None))):
        schema["default"] = spec.default
    return schema


def read_input(resolver: str, name: str, spec: Input, value: Any) -> Any:
    """One checked input: numbers in the declared unit, zoo names resolved."""
    if spec.kind == "number":
        plain = type(value) is int or type(value) is float
        return _in_range(resolver, name, spec, value if plain else _number(resolver, name, spec, value))
    if spec.kind == "quantity":
        return _in_range(resolver, name, spec, _magnitude(resolver, name, spec, value))
    return _READERS[spec.kind](resolver, name, spec, value)


def _refused(resolver: str, name: str, wanted: str, got: str) -> InputError:
    return InputError(f"The {name!r} input of {resolver} must be {wanted}, got {got}.", field=name)


def _in_range(resolver: str, name: str, spec: Input, number: float) -> float:
    low, high = spec.low, spec.high
    if (high is None and BEYOND < abs(number) < math.inf) or (spec.low_open and 0 < abs(number) < 1 / BEYOND):
        raise InputError(
            f"The {name!r} input of {resolver} is {as_given(number)}, beyond anything physical.", field=name
        )
    above = low is None or number > low or (number == low and not spec.low_open)
    below = -math.inf < number < math.inf and (high is None or number <= high)
    if above and below and (not spec.whole or number == int(number)):
        return int(number) if spec.whole else number
    raise _refused(resolver, name, spec.range_text, as_given(number))


def _number(resolver: str, name: str, spec: Input, value: Any) -> float:
    if isinstance(value, Quantity):
        try:
            return float(value.to("").magnitude)
        except DimensionalityError:
            words = f"The {name!r} input of {resolver} must be {spec.range_text}, got {value:~P}."
            raise UnitError(words, field=name) from None
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()
    number = number_from(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise _refused(resolver, name, spec.range_text, repr(str(value)[:60]))
    return number


def _magnitude(resolver: str, name: str, spec: Input, value: Any) -> float:
    if type(value) is Quantity:
        try:
            return to_si(value, spec.unit)
        except DimensionalityError:
            pass
    elif spec.plain_unit is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
        return to_si(Quantity(value, spec.plain_unit), spec.unit)
    elif isinstance(value, pint.Quantity) and not isinstance(value, Quantity):
        words = "is a quantity of another pint registry; build it with mlsysim.Q_"
        raise UnitError(f"The {name!r} input of {resolver} {words}.", field=name)
    try:
        return to_si(quantity_from(value, spec.unit, spec.example or f"1 {spec.unit}", name), spec.unit)
    except UnitError as error:
        raise UnitError(f"{resolver}: {error}", field=name, expected=spec.unit) from None


def _flag(resolver: str, name: str, spec: Input, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _refused(resolver, name, "True or False", repr(str(value)[:60]))


def _choice(resolver: str, name: str, spec: Input, value: Any) -> str:
    if isinstance(value, str):
        folded = value.lower().replace("-", "_").replace(" ", "_")
        folded = VALUES.get(folded, folded)
        for choice in spec.choices:
            if folded == choice.lower().replace("-", "_"):
                return choice
        if name == "engine" and is_engine(value):
            return engine(value).name  # the user's own
        if name == "stack":
            from mlsysim.timing.launchers import refuse_as_stack

            refuse_as_stack(folded)
    remedy = "use one of " + ", ".join(spec.choices) + "."
    raise unknown_name(name.replace("_", " "), value, spec.choices, remedy)


def _efficiency(resolver: str, name: str, spec: Input, value: Any) -> Any:
    if isinstance(value, str) and number_from(value) is None:
        if spec.choices and value.strip().lower() in spec.choices:
            return value.strip().lower()
        words = f" or {spec.choices[0]!r}" if spec.choices else ""
        raise _refused(resolver, name, f"a number above 0 and at most 1{words}", repr(value[:40]))
    return _in_range(resolver, name, spec, _number(resolver, name, spec, value))


def _entry(find: Any, kinds: tuple[type, ...], wanted: str) -> Any:
    def read(resolver: str, name: str, spec: Input, value: Any) -> Any:
        if isinstance(value, kinds):
            return value
        if isinstance(value, str):
            return find(value)
        raise _refused(resolver, name, wanted, type(value).__name__)

    return read


def _precision(resolver: str, name: str, spec: Input, value: Any) -> str:
    try:
        return precision_name(value)
    except UnknownNameError as error:
        raise UnknownNameError(f"{resolver}: {error}", field=name, suggestions=error.suggestions) from None


def _object(resolver: str, name: str, spec: Input, value: Any) -> Any:
    """Anything; text that says a quantity of the input's unit is its number, other words stay."""
    if not spec.unit or not isinstance(value, str) or not any(letter.isdigit() for letter in value):
        return value
    try:
        return to_si(quantity_from(value, spec.unit, spec.example, name), spec.unit)
    except UnitError:
        return value


_READERS: dict[str, Any] = {
    "flag": _flag,
    "choice": _choice,
    "precision": _precision,
    "efficiency": _efficiency,
    "model": _entry(Models.get, (Workload,), "a workload or its name in the zoo"),
    "hardware": _entry(Hardware.get, (HardwareNode,), "a HardwareNode or its name in the zoo"),
    "fleet": _entry(fleet_of, (Fleet,), "a Fleet, its name in the zoo, or text such as '512xH100'"),
    "fabric": _entry(Fabrics.get, (NetworkFabric,), "a NetworkFabric or its name in the zoo"),
    "grid": _entry(Grids.get, (GridProfile, Datacenter), "a GridProfile, a Datacenter or the name of a grid"),
    "object": _object,
}
