"""What every wall answers with: a result that knows its units, what binds, and what its equations show.

A field of a result says its unit (``Time``, ``Memory``, ``Amount("GB/s")``), so that a resolver hands plain numbers in base
units to :meth:`Result.of` and writes no unit again, and it may say where it is read: ``Annotated[Time, "served.ttft"]`` is the
``ttft`` of what the resolver shows, or found, as ``served``. ``explain()`` puts numbers into the declared equations; a symbol is
looked up in the same way in what the resolver shows, then among the fields, the inputs and what the resolver found.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache, partial, reduce
from typing import Annotated, Any, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, PrivateAttr
from pydantic_core import core_schema

from mlsysim.cases.assumptions import Assumption, Assumptions
from mlsysim.cases.ledger import Ledger
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Quantity, conversion_factor, format_unit, quantity, to_si
from mlsysim.walls.binding import Binding, LazyBinding, binding_of
from mlsysim.walls.document import Document, as_plain
from mlsysim.walls.explanation import Equation, render
from mlsysim.walls.inputs import Input, Inputs
from mlsysim.zoo.provenance import cite


class Amount:
    """Marks a result field that holds a quantity of this unit. Values are made by us and not checked again.

    ``plain`` is the unit of the plain numbers that a resolver gives for it: the same unless said otherwise.
    """

    def __init__(self, unit: str, plain: str | None = None) -> None:
        self.unit = unit
        self._divisor = 1.0 if plain is None else conversion_factor(unit, plain)

    def packed(self, value: Any) -> Any:
        """The quantity of a plain number; what is not a plain number stays as it is."""
        if value is None or isinstance(value, Quantity):
            return value
        return quantity(value if self._divisor == 1.0 else value / self._divisor, self.unit)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.any_schema(serialization=core_schema.plain_serializer_function_ser_schema(as_plain))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {
            "type": ["object", "null"],
            "properties": {"magnitude": {"type": "number"}, "unit": {"type": "string"}},
            "x-unit": self.unit,
        }


Time = Annotated[Any, Amount("s")]
Rate = Annotated[Any, Amount("1/s")]
Memory = Annotated[Any, Amount("byte")]
MemoryRate = Annotated[Any, Amount("byte/s")]
Work = Annotated[Any, Amount("flop")]
WorkRate = Annotated[Any, Amount("flop/s")]
Intensity = Annotated[Any, Amount("flop/byte")]
Energy = Annotated[Any, Amount("J")]
Power = Annotated[Any, Amount("W")]
Number = Annotated[Any, Amount("")]

Packer = Callable[[Any], Any]


def _packer(annotation: Any, marks: Any = ()) -> Packer | None:
    """How a plain value becomes what the annotation of a field says; None where it already is."""
    for mark in (*marks, *getattr(annotation, "__metadata__", ())):
        if isinstance(mark, Amount):
            return mark.packed
    inner = [_packer(part) for part in get_args(annotation)]
    pack = next((found for found in inner if found is not None), None)
    if pack is None:
        return None
    kind = get_origin(annotation)
    if kind is dict:
        return lambda table: {name: pack(value) for name, value in table.items()}
    if kind in (tuple, list):
        return lambda row: None if row is None else kind(pack(value) for value in row)
    return pack


@lru_cache(maxsize=256)
def _fields(kind: type[Result]) -> tuple[dict[str, Packer], dict[str, list[str]]]:
    """The packers of the fields that need one, and the names, one after the other, under which fields are read."""
    found = {name: _packer(info.annotation, info.metadata) for name, info in kind.model_fields.items()}
    read = {n: next((m for m in i.metadata if isinstance(m, str)), n) for n, i in kind.model_fields.items()}
    packers = {name: pack for name, pack in found.items() if pack is not None}
    return packers, {name: path.split(".") for name, path in read.items()}


_MISSING: Any = object()


def _read(sources: Sequence[Any], path: list[str]) -> Any:
    """What stands in the first record or table that has it, under names one after the other."""
    for source in sources:
        value = source.get(path[0], _MISSING) if isinstance(source, dict) else getattr(source, path[0], _MISSING)
        if value is not _MISSING:
            if isinstance(value, partial):
                value = source[path[0]] = value()
            return value if value is None else reduce(getattr, path[1:], value)
    return _MISSING


@dataclass(slots=True)
class Facts:
    """What a result knows beside its fields: what equations show, inputs, sources, assumptions, and the case behind it."""

    shown: Any = ()
    found: tuple[Any, ...] = ()
    equations: tuple[Equation, ...] = ()
    resolver: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    inputs_declared: Mapping[str, Input] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    assumed: Assumptions = field(default_factory=Assumptions)
    case: Callable[[], Ledger] | None = None
    ledger: Ledger | None = None

    @property
    def context(self) -> Mapping[str, Any]:
        """What equations show beside fields, inputs and what was found; worked out when somebody asks."""
        if not isinstance(self.shown, dict):
            self.shown = dict(self.shown() if callable(self.shown) else self.shown)
        return self.shown


class Result(Document, BaseModel):
    """What a resolver answers. ``assumptions`` has every default that was used; ``binding`` says which wall binds."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    feasible: bool = True
    assumptions: dict[str, str] = {}
    binding: Any = None

    _facts: Facts = PrivateAttr(default_factory=Facts)

    @classmethod
    def written_as(cls) -> dict[str, Any]:
        """What a document has in another form than the fields."""
        return {"binding": Binding | None}

    @classmethod
    def of(
        cls,
        assumed: dict[str, str],
        *found: Any,
        shown: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
        cited: Mapping[str, Any] | None = None,
        case: Callable[[], Ledger] | None = None,
        noun: str = "time",
        **values: Any,
    ) -> Self:
        """The result of plain numbers: each is packed in the unit that its field declares.

        Fields that are not given are read off what was ``found`` (what a case answers, the inputs), and so are the symbols of
        equations. ``shown`` has (or gives, when somebody asks) what equations show beside these, in the unit that the symbol
        says, or records that fields and symbols name (those of a ``partial`` when somebody asks); ``cited`` the entries of the zoo, or titles, that speak for the numbers beside
        those among the inputs. ``case`` gives the ledger, from which what binds is read when somebody asks, as a share of
        the ``noun``; a limit that stopped it is given as ``binding``.
        """
        packers, read = _fields(cls)
        records = tuple(vars(each) if isinstance(each, Inputs) else each for each in found)
        sources = (shown, *records) if isinstance(shown, dict) else records
        for name, path in read.items():
            if name not in values:
                value = _read(records if path == [name] else sources, path)
                if value is not _MISSING:
                    values[name] = value
        for name, pack in packers.items():
            if name in values:
                values[name] = pack(values[name])
        outcome = cls(assumptions=assumed, **values)
        facts = outcome._facts
        facts.found = records
        if shown is not None:
            facts.shown = shown
        inputs = next((vars(each) for each in found if isinstance(each, Inputs)), {})
        entries = {name: entry for name, entry in inputs.items() if hasattr(entry, "metadata")} | dict(cited or {})
        for name, entry in entries.items():
            facts.sources[name] = entry if isinstance(entry, str) else cite(entry.metadata)
        if case is not None:
            facts.case = case
            if outcome.binding is None:
                object.__setattr__(outcome, "binding", LazyBinding(partial(_read_binding, outcome, noun)))
        return outcome

    def named(self, name: str, unit: str = "") -> Any:
        """The value behind a symbol of an equation, in its unit; None where there is none.

        It is what the resolver shows under that name, else the field of that name, else the input, else what the resolver
        found, else the exposed seconds of the part of the ledger.
        """
        path = name.split(".")
        shown = _read((self._facts.context,), path)
        if shown is not _MISSING:
            return shown
        if name in type(self).model_fields:
            value = getattr(self, name)
            return to_si(value, unit) if isinstance(value, Quantity) else value
        if name in self._facts.given:
            value, spec = self._facts.given[name], self._facts.inputs_declared[name]
            return value if value is None or spec.kind != "quantity" else value * conversion_factor(spec.unit, unit)
        value = _read(self._facts.found, path)
        if value is not _MISSING:
            return value
        ledger = self.ledger
        return None if ledger is None else ledger.exposed(name) or None

    @property
    def ledger(self) -> Ledger | None:
        """Parts of the time and bytes held that this result is read off; None where a wall has neither."""
        if self._facts.ledger is None and self._facts.case is not None:
            self._facts.ledger = self._facts.case()
        return self._facts.ledger

    @property
    def assumed(self) -> tuple[Assumption, ...]:
        """Every value that nobody gave, with its origin."""
        return self._facts.assumed.records

    def assuming(self, first: Iterable[Assumption]) -> Self:
        """The same, with what the plan that asked for it left open, or gave to no effect, said first."""
        assumed = Assumptions(self._facts.assumed.given)
        assumed.learn(first)
        assumed.learn(self.assumed)
        found = self.model_copy(update={"assumptions": dict(assumed)})
        found._facts = replace(self._facts, assumed=assumed)
        return found

    def __eq__(self, other: object) -> bool:
        """Equal in what they say: all fields."""
        return type(self) is type(other) and all(getattr(self, n) == getattr(other, n) for n in type(self).model_fields)

    json = Document.to_json  # type: ignore[assignment]

    @classmethod
    def model_validate(cls, obj: Any, **kwargs: Any) -> Self:
        return obj if isinstance(obj, cls) else cls.from_dict(obj)

    def explain(self, style: str = "text") -> str:
        """The equations with the numbers put in, as ``text``, ``markdown`` or ``latex``."""
        return render(self, style)

    def _repr_html_(self) -> str:
        cells = ((html.escape(name), html.escape(_shown(getattr(self, name)))) for name in type(self).model_fields)
        rows = "".join(f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in cells)
        return f"<table><caption>{html.escape(self._facts.resolver or type(self).__name__)}</caption>{rows}</table>"


def produced_by(kind: type[Result]) -> tuple[str, ...]:
    """The fields that a kind of result has beside those of all."""
    return tuple(name for name in kind.model_fields if name not in Result.model_fields)


def _read_binding(outcome: Result, noun: str) -> Binding:
    assert outcome.ledger is not None
    return binding_of(outcome.ledger, noun)


def _shown(value: Any) -> str:
    if isinstance(value, Quantity):
        return f"{value.magnitude:,.6g} {format_unit(value.units)}".strip()
    if isinstance(value, Binding):
        return value.sentence
    return f"{value:,.6g}" if isinstance(value, float) else str(value)
