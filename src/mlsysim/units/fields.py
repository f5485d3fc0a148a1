"""Quantity fields for Pydantic: ``Bytes``, ``ByteRate``, ``FlopRate`` ... and :class:`Record`, the base of every type.

A quantity field accepts a quantity of our registry, a string with a unit (``"80 GiB"``) or ``{"magnitude": 80,
"unit": "GiB"}``. It refuses bare numbers and wrong dimensions with a sentence that names the field, the expected unit
and an example, keeps the unit that the user wrote, round-trips through JSON and describes itself in JSON Schema.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin

import pint
from annotated_types import Ge, Gt
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, SkipValidation, ValidationError
from pydantic_core import PydanticCustomError, core_schema

from mlsysim.errors import InputError, UnitError, did_you_mean, nearest
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Quantity, number_from, parse_quantity, to_si, two_meanings, ureg
from mlsysim.units.text import as_given

_KINDS = {
    "s": "a time",
    "byte": "a size",
    "byte/s": "a bandwidth",
    "flop": "a number of operations",
    "flop/s": "a rate of operations",
    "W": "a power",
    "J": "an energy",
    "USD": "an amount of money",
}
"""What a quantity in a unit is called."""


BEYOND = 1e40
"""No physical number is larger, in any unit, and no rate or capacity smaller than one over it; products of such leave the range of floats."""


@dataclass(frozen=True)
class QuantityField:
    """The constraint behind an annotated quantity: expected unit, an example, the permitted sign, whether it may be zero
    (a rate or a capacity of zero is one that is not known, and that is left out), and what no such value is above."""

    unit: str
    example: str
    positive: bool = True
    plain_number: bool = False
    zero: bool = True
    most: float = math.inf

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def validate(value: Any, info: core_schema.ValidationInfo) -> Any:
            try:
                return self.read(value, info.field_name or "this field")
            except UnitError as error:
                raise PydanticCustomError("quantity", "{sentence}", {"sentence": str(error)}) from None

        return core_schema.with_info_plain_validator_function(
            validate, serialization=core_schema.plain_serializer_function_ser_schema(_written)
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        forms: list[dict[str, Any]] = [
            {"type": "string", "examples": [self.example]},
            {
                "type": "object",
                "properties": {"magnitude": {"type": "number"}, "unit": {"type": "string"}},
                "required": ["magnitude", "unit"],
                "additionalProperties": False,
            },
        ]
        if self.plain_number:
            forms.append({"type": "number"})
        return {
            "anyOf": forms,
            "x-unit": self.unit,
            "description": f"a quantity in {self.unit or 'counts'}, such as {self.example!r}",
        }

    def read(self, value: Any, field: str) -> Any:
        """The quantity behind ``value``, or a UnitError with one sentence."""
        kind = _KINDS.get(self.unit, "")
        expected = (
            f"; expected {kind or f'a quantity in {self.unit}' if self.unit else 'a count'} such as {self.example!r}."
        )

        def refusal(words: str, end: str = expected) -> UnitError:
            sentence = f"The {field!r} field{words}{end}"
            return UnitError(sentence, field=field, expected=self.unit, example=self.example)

        if self.unit.startswith("USD"):  # one currency, so that a plain number says all
            if isinstance(value, str) and (words := two_meanings(re.sub(r"[^\d.].*", "", value.strip(" $")))):
                raise refusal(f": {words}", ".")
            paid = number_from(value.strip().removeprefix("$")) if isinstance(value, str) else value
            if isinstance(paid, (int, float)) and not isinstance(paid, bool):
                value = Quantity(paid, self.unit)
        try:
            if isinstance(value, str):
                quantity = parse_quantity(value)
            elif isinstance(value, Quantity):
                quantity = value
            elif isinstance(value, pint.Quantity):
                raise refusal(" got a quantity of another pint registry; build it with mlsysim.Q_ instead.", "")
            elif isinstance(value, dict):
                if not _is_written(value):
                    raise refusal(" got a mapping that is not {'magnitude': number, 'unit': string}")
                quantity = Quantity(value["magnitude"], ureg.parse_units(value["unit" if "unit" in value else "units"]))
            elif self.plain_number and isinstance(value, (int, float)) and not isinstance(value, bool):
                quantity = Quantity(value)
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                raise refusal(f" got {value}, which has no unit", self._with_unit(value))
            else:
                raise refusal(f" got {repr(value)[:60]}, which has no unit")
        except UnitError as error:
            if "field" in error.details:
                raise
            if isinstance(value, str) and (not any(map(str.isdigit, value)) or re.search(r"\d[-:]\d", value)):
                raise refusal(f" got {value[:60]!r}") from None
            asked = str(error).endswith("?")
            raise refusal(f": {str(error).rstrip('.')}", f" E{expected[3:]}" if asked else expected) from None
        if not quantity.is_compatible_with(ureg.parse_units(self.unit)):
            if isinstance(value, str) and value.strip().endswith("%"):
                raise refusal(f" got {value.strip()[:20]!r}")
            if not quantity.dimensionality and math.isfinite(quantity.magnitude):
                raise refusal(f" got {quantity:~P}, which has no unit", self._with_unit(quantity.magnitude))
            told = f"no {kind.partition(' ')[2]}" if kind else f"not in {self.unit}" if self.unit else "no count"
            raise refusal(f" got {quantity:~P}, which is {told}")
        magnitude = quantity.magnitude
        if getattr(magnitude, "shape", None) == ():
            magnitude = magnitude.item()
            quantity = Quantity(magnitude, quantity.units)
        if isinstance(magnitude, (int, float)):
            finite, negative, zero = abs(magnitude) <= sys.float_info.max, magnitude < 0, magnitude == 0
        else:
            finite, negative = bool((abs(magnitude) < math.inf).all()), bool((magnitude < 0).any())
            zero = bool((magnitude == 0).any())
        if not finite:
            shown = as_given(magnitude) if isinstance(magnitude, int) else magnitude
            raise refusal(f" got {shown}, which is not a finite number")
        if self.positive and negative:
            raise refusal(f" got {quantity:~P}, which is negative")
        if zero and not self.zero:
            raise refusal(f" got {quantity:~P}, which is zero")
        if not self.zero and isinstance(magnitude, (int, float)) and to_si(quantity, self.unit) < 1 / BEYOND:
            raise refusal(f" got {quantity:~P}, which is as good as zero")
        if self.most < math.inf and quantity.to(self.unit).magnitude > self.most:
            raise refusal(f" got {quantity:~P}, which is above {self.most:g} {self.unit}")
        return quantity

    def _with_unit(self, number: float) -> str:
        """The end of a sentence about a number without a unit: the same number with one, where that is as likely as the example."""
        usual = re.fullmatch(r"([\d.]+)(\D.*)", self.example)
        likely = f"{number}{usual[2]}" if usual and 0.01 <= number / float(usual[1]) <= 100 else self.example
        return f"; write its unit too, such as {likely!r}."


def _written(quantity: Any) -> Any:
    """A quantity in its JSON form."""
    if quantity is None:
        return None
    unit = f"{quantity.units:~}" if quantity.units != ureg.dimensionless else ""
    return {"magnitude": quantity.magnitude, "unit": unit}


def _is_written(value: dict[Any, Any]) -> bool:
    """Whether a mapping is the JSON form of a quantity."""
    magnitude, unit = value.get("magnitude"), value.get("unit", value.get("units"))
    number = isinstance(magnitude, (int, float)) and not isinstance(magnitude, bool)
    return number and isinstance(unit, str) and not set(value) - {"magnitude", "unit", "units"}


def quantity_from(value: Any, unit: str, example: str, field: str) -> Any:
    """Read one quantity outside a Pydantic model, with the same sentences."""
    return QuantityField(unit, example).read(value, field)


Bytes = Annotated[Any, QuantityField("byte", "80 GiB")]
Capacity = Annotated[Any, QuantityField("byte", "80 GiB", zero=False)]
ByteRate = Annotated[Any, QuantityField("byte/s", "3.35 TB/s", zero=False)]
LinkRate = Annotated[Any, QuantityField("byte/s", "900 GB/s", zero=False)]
Bandwidth = Annotated[Any, QuantityField("byte/s", "400 Gbps", zero=False)]
FlopRate = Annotated[Any, QuantityField("flop/s", "989 TFLOPs/s", zero=False)]
Flops = Annotated[Any, QuantityField("flop", "8.2 GFLOP")]
Seconds = Annotated[Any, QuantityField("s", "10 us")]
Watts = Annotated[Any, QuantityField("W", "700 W", zero=False)]
Joules = Annotated[Any, QuantityField("J", "12.7 Wh")]
Dollars = Annotated[Any, QuantityField("USD", "30000 USD")]
HourlyPrice = Annotated[Any, QuantityField("USD/h", "98.32 USD/h")]
EnergyPrice = Annotated[Any, QuantityField("USD/kWh", "0.12 USD/kWh")]
WaterIntensity = Annotated[Any, QuantityField("L/kWh", "1.8 L/kWh")]
Count = Annotated[Any, QuantityField("", "70.6 Bparam", plain_number=True, zero=False)]


_NAMED = re.compile(r"[A-Z]\w+: ")


Positive = Annotated[int, Gt(0)]
Whole = Annotated[int, Ge(0)]


Words = SkipValidation[str]
"""A sentence, kept as it is: one that names settings has them as data (:mod:`mlsysim.vocabulary`)."""


@cache
def _numbers(kind: type[BaseModel]) -> frozenset[str]:
    """Fields that are numbers, or may be left out and are, or lists of them. Python takes true and false for numbers."""
    found = set()
    for name, field in kind.model_fields.items():
        choices = get_args(field.annotation)
        parts = (field.annotation, *choices, *(each for part in choices for each in get_args(part)))
        if any(part in (int, float) for part in parts) and bool not in parts:
            found.add(name)
    return frozenset(found)


COPIED = {"copied": True}
"""What rules across fields are told when a copy is checked: it refuses as a record that is made does, and does not warn again."""


class Record(BaseModel):
    """A typed, frozen record. Bad input raises :class:`InputError` with one sentence instead of a validation report."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        validate_default=False,
        defer_build=True,
        allow_inf_nan=False,
    )

    reads_booleans: ClassVar[bool] = False
    """Whether a kind of record has words of its own for a boolean where a number belongs."""

    def __init__(self, **data: Any) -> None:
        for name in () if self.reads_booleans else data.keys() & _numbers(type(self)):
            if isinstance(data[name], bool):
                raise InputError(f"{name!r} must be a number, got {data[name]}.", field=name)
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise sentence_for(type(self), error) from None
        except TypeError:
            _refuse_other_keys(data)
            raise

    @classmethod
    def model_rebuild(cls, *, _parent_namespace_depth: int = 2, **options: Any) -> bool | None:
        """Build the class. The records in its fields come first: what is built of them here need not be built again there."""
        if not cls.__pydantic_complete__:
            for field in cls.model_fields.values():
                for part in (field.annotation, *get_args(field.annotation)):
                    if isinstance(part, type) and issubclass(part, Record):
                        part.model_rebuild()
        return super().model_rebuild(_parent_namespace_depth=_parent_namespace_depth + 1, **options)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed, quantities and numbers read, and rules across fields checked, as they are when a record is made, but for arrays;
        what was derived from the old ones is derived anew."""
        known, quantities, numbers = type(self).model_fields, _quantities(type(self)), _numbers(type(self))
        for name in (update or {}).keys() - known:
            close = nearest(name, known)
            hint = did_you_mean(close) if close else f"its fields are {', '.join(known)}."
            raise InputError(f"{type(self).__name__} has no field {name[:200]!r}; {hint}", field=name)
        read = {k: quantities[k].read(v, k) for k, v in (update or {}).items() if k in quantities and v is not None}
        alone = {k: v for k, v in (update or {}).items() if k in numbers and not hasattr(v, "dtype")}
        read |= {k: getattr(_alone(type(self), k)(**{k: v}), k) for k, v in alone.items()}
        copy = super().model_copy(update={**(update or {}), **read}, deep=deep)
        for name in copy.__dict__.keys() - type(self).model_fields:
            del copy.__dict__[name]
        if update and not any(hasattr(value, "dtype") for value in update.values()):
            copy._check()
        return copy

    def _check(self) -> None:
        """Rules across fields, as they are checked when a record is made."""
        self.model_post_init(COPIED)
        rules = type(self).__pydantic_decorators__.model_validators.values()
        try:
            for rule in (each for each in rules if each.info.mode == "after"):
                rule.func(self)
        except ValueError as error:
            raise error if isinstance(error, InputError) else InputError(f"{str(error).rstrip('.')}.") from None

    @classmethod
    def model_validate(cls, obj: Any, **kwargs: Any) -> Self:
        try:
            return super().model_validate(obj, **kwargs)
        except ValidationError as error:
            raise sentence_for(cls, error) from None
        except TypeError:
            _refuse_other_keys(obj)
            raise

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **kwargs: Any) -> Self:
        try:
            return super().model_validate_json(json_data, **kwargs)
        except ValidationError as error:
            raise sentence_for(cls, error) from None


def _refuse_other_keys(data: Any) -> None:
    """Refuses a table of which a key is no text, as YAML and Python write them: no field is called so."""
    for name, value in data.items() if isinstance(data, dict) else ():
        if not isinstance(name, str):
            raise InputError(f"Keys of a table are text, got {name!r:.60}.", field=str(name)[:60])
        _refuse_other_keys(value)


@cache
def _alone(kind: type[Record], name: str) -> type[Record]:
    """A record of this one field, which reads it as the whole does."""
    field = kind.model_fields[name]
    return type(kind.__name__, (Record,), {"__annotations__": {name: field.annotation}, name: field})


@cache
def _quantities(kind: type[Record]) -> dict[str, QuantityField]:
    """The fields of a record that are quantities, or may be left out and are."""
    found: dict[str, QuantityField] = {}
    for name, field in kind.model_fields.items():
        choices = get_args(field.annotation) if get_origin(field.annotation) in (Union, UnionType) else ()
        parts = (*field.metadata, *(each for part in choices for each in get_args(part)))
        found.update((name, part) for part in parts if isinstance(part, QuantityField))
    return found


_WHOLE = "a whole number"
_EXPECTED = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), f"{_WHOLE} such as 2"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number such as 0.5"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    "string_type": "text",
    "string_too_short": "a text that is not empty",
    "too_short": "a list that is not empty",
    "finite_number": "a number, and a finite one",
    **dict.fromkeys(("model_type", "dict_type"), "a table of keys and values"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    "literal_error": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
"""What a field expects, by the kind of Pydantic's complaint."""


_MORE = re.compile(r" \(\d+ more problems? after this one\.\)")


def sentence_for(kind: type[BaseModel], error: ValidationError) -> InputError:
    """The first problem of a Pydantic report as one sentence."""
    found = error.errors(include_url=False)
    # A key that is written wrong is also one that is missing; the first says more.
    first = next((problem for problem in found if problem["type"] == "extra_forbidden"), found[0])
    path = ".".join(str(part) for part in first["loc"])
    # A part of a larger record speaks in the name of the whole, and of its fields by their path in it.
    name, within = getattr(kind, "part_of", (kind.__name__, ""))
    # What people write as a file or a request is not known to them by the name of a class.
    lead = "" if " " in name else f"{name}: "
    others = error.error_count() - 1
    more = f" ({others} more {'problem' if others == 1 else 'problems'} after this one.)" if others else ""
    inner = first.get("ctx", {}).get("error")
    if isinstance(inner, InputError) and "record" in inner.details:
        # A record inside this one, or this one itself, has its sentence already.
        text = _MORE.sub("", str(inner)) if more else str(inner)
        path = ".".join(part for part in (path, str(inner.details.get("field", ""))) if part)
    elif first["type"] == "missing":
        text = f"{name} needs the {within + path!r} field, which was not given."
    elif first["type"] == "extra_forbidden":
        close = nearest(str(first["loc"][-1]), kind.model_fields)
        fields = f"its fields are {', '.join(kind.model_fields)}."
        hint = did_you_mean(close) if close else fields
        text = f"{name} has no field {path[:200]!r}; {hint}"
    elif first["type"] in ("quantity", "value_error"):
        message = first["msg"].removeprefix("Value error, ")
        message = message.replace(f"The {path!r} field", f"The {within + path!r} field")
        # A record inside this one has put its own name before its sentence.
        text = message if _NAMED.match(message) else lead + message
    else:
        given = first.get("input")
        large = isinstance(given, (int, float)) and abs(given) >= 1e12
        shown = (
            as_given(given) if large else f"{given!r}"[:60] if isinstance(given, str | list | dict) else f"{given}"[:60]
        )
        limits = {k: as_given(v) if isinstance(v, (int, float)) else v for k, v in first.get("ctx", {}).items()}
        plain = _EXPECTED.get(first["type"])
        field = kind.model_fields.get(path)
        if plain == _EXPECTED["int_parsing"] and field is not None and field.examples:
            plain = f"{_WHOLE} such as {field.examples[0]}"
        why = f"expected {plain.format(**limits)}" if plain else first["msg"][0].lower() + first["msg"][1:]
        if limits.get("le") == "1" and isinstance(given, int | float) and 2 <= given <= 100:
            why += f"; {given:g} per cent is '{given:g}%'"
        if (
            plain is not None
            and plain.startswith(_WHOLE)
            and isinstance(given, str)
            and re.fullmatch(r"\d+(,\d+)+", given)
        ):
            why += f"; `mlsysim sweep` takes several, as {path.rpartition('.')[2]}={given[:40]}"
        if within and isinstance(given, list) and plain not in (None, "a list"):
            why += ", once; a sweep takes several"
        text = f"{lead}{'the' if lead else 'The'} {within + path!r} field got {shown}; {why}."
    if not lead:
        text = text[:1].upper() + text[1:]
    return InputError(text + ("" if text.endswith((".", "?", ".)")) else ".") + more, record=name, field=path)
