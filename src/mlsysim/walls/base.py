"""What every wall shares: declared inputs, typed results, equations with values, the wall's card.

A resolver declares its inputs as data (:class:`Input`: meaning, unit, range, default). ``solve`` reads them, refuses
what is out of range with one sentence, notes every default that it used, and hands plain numbers in base units to
``_solve``. Results are frozen records with quantities; ``explain()`` puts the numbers into the declared equations.
Resolvers keep no state: the same input gives the same output.
"""

from __future__ import annotations

import html
import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, PrivateAttr
from pydantic_core import core_schema

from mlsysim.cases.assumptions import DEFAULT, Assumption, Assumptions
from mlsysim.cases.ledger import Ledger
from mlsysim.errors import InputError, unknown_name
from mlsysim.units.registry import Quantity, format_unit
from mlsysim.units.uncertain import Uncertain
from mlsysim.walls.inputs import (
    CALIBRATED,
    CALIBRATED_EFFICIENCY,
    EFFICIENCY,
    HARDWARE,
    MODEL,
    PRECISION,
    REQUIRED,
    Input,
    default_constant,
    input_schema,
    read_input,
)

__all__ = [
    "CALIBRATED",
    "CALIBRATED_EFFICIENCY",
    "EFFICIENCY",
    "HARDWARE",
    "MODEL",
    "PRECISION",
    "REQUIRED",
    "Amount",
    "Binding",
    "Domain",
    "Equation",
    "Input",
    "Resolver",
    "Result",
    "Wall",
    "default_constant",
]


@dataclass(frozen=True)
class Domain:
    """One of the six groups of walls."""

    name: str
    title: str


NODE = Domain("Node", "single-accelerator resources")
DATA = Domain("Data", "movement and pipelines")
ALGORITHM = Domain("Algorithm", "scaling and compression")
FLEET = Domain("Fleet", "multi-node coordination")
OPERATIONS = Domain("Operations", "economics, sustainability and safety")
ANALYSIS = Domain("Analysis", "cross-cutting diagnostics")


@dataclass(frozen=True)
class Wall:
    """The card of a wall."""

    number: int
    name: str
    domain: Domain
    resolver: str
    bounds: str
    equation: str
    reference: str
    question: str

    def __str__(self) -> str:
        return f"Wall {self.number}: {self.name}"


@dataclass(frozen=True)
class Equation:
    """One equation of a resolver: which result it gives, as text and LaTeX, and what the symbols are.

    ``symbols`` maps a symbol to the name under which ``_solve`` left its value, and the unit of that value. An equation
    with ``when`` is shown only where the value of that name is true.
    """

    gives: str
    text: str
    latex: str
    symbols: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    when: str | None = None


@dataclass(frozen=True)
class Binding:
    """What binds: the wall, by how much it leads over the next (a factor), and a sentence."""

    wall: int
    name: str
    margin: float | None
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        return {"wall": self.wall, "name": self.name, "margin": self.margin, "sentence": self.sentence}


class Amount:
    """Marks a result field that holds a quantity of this unit. Values are made by us and not checked again."""

    def __init__(self, unit: str) -> None:
        self.unit = unit

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


def as_plain(value: Any) -> Any:
    """A value as JSON has it: quantities become a magnitude and a unit."""
    if isinstance(value, Quantity):
        return {"magnitude": value.magnitude, "unit": format_unit(value.units)}
    if isinstance(value, (Binding, Result)):
        return value.to_dict()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain(item) for item in value]
    return value


class Result(BaseModel):
    """What a resolver answers. ``assumptions`` has every default that was used; ``binding`` says which wall binds."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    feasible: bool = True
    assumptions: dict[str, str] = {}
    binding: Any = None

    _context: dict[str, Any] = PrivateAttr(default_factory=dict)
    _equations: tuple[Equation, ...] = PrivateAttr(default=())
    _resolver: str = PrivateAttr(default="")
    _sources: dict[str, str] = PrivateAttr(default_factory=dict)
    _assumed: Assumptions = PrivateAttr(default_factory=Assumptions)
    _case: Callable[[], Ledger] | None = PrivateAttr(default=None)
    _ledger: Ledger | None = PrivateAttr(default=None)

    @property
    def ledger(self) -> Ledger | None:
        """Parts of the time and bytes held that this result is read off; None where a wall has neither."""
        if self._ledger is None and self._case is not None:
            self._ledger = self._case()
        return self._ledger

    @property
    def assumed(self) -> tuple[Assumption, ...]:
        """Every value that nobody gave, with its origin."""
        return self._assumed.records

    def to_dict(self) -> dict[str, Any]:
        """All fields; quantities as {"magnitude", "unit"}."""
        return {name: as_plain(getattr(self, name)) for name in type(self).model_fields}

    def to_json(self, indent: int | None = None) -> str:
        """The same as JSON. Raises nothing: results hold no infinities that are not meant, and those become null."""
        return json.dumps(_finite(self.to_dict()), indent=indent, ensure_ascii=False)

    def explain(self, style: str = "text") -> str:
        """The equations with the numbers put in, as ``text``, ``markdown`` or ``latex``."""
        from mlsysim.walls.explanation import render

        return render(self, style)

    def _repr_html_(self) -> str:
        rows = []
        for name in type(self).model_fields:
            value = getattr(self, name)
            shown = _shown(value.sentence if isinstance(value, Binding) else value)
            rows.append(f"<tr><th>{html.escape(name)}</th><td>{html.escape(shown)}</td></tr>")
        return f"<table><caption>{html.escape(self._resolver or type(self).__name__)}</caption>{''.join(rows)}</table>"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


def _shown(value: Any) -> str:
    if isinstance(value, Quantity):
        return f"{value.magnitude:,.6g} {format_unit(value.units)}".strip()
    if isinstance(value, float):
        return f"{value:,.6g}"
    return str(value)


R = TypeVar("R", bound=Result)

_OF_UNCERTAINTY = frozenset(("uncertain", "samples", "seed"))
"""What ``solve`` takes beside the declared inputs; see :mod:`mlsysim.walls.uncertainty`."""


class Resolver(Generic[R]):
    """Base of models, solvers and optimizers.

    A subclass declares ``walls``, ``inputs``, ``result``, ``equations`` and ``_solve``; the signature of ``solve``
    follows from ``inputs``.
    """

    tier: ClassVar[str] = "model"
    walls: ClassVar[tuple[int, ...]] = ()
    inputs: ClassVar[dict[str, Input]] = {}
    result: ClassVar[type[Result]] = Result
    equations: ClassVar[tuple[Equation, ...]] = ()
    known_fallacies: ClassVar[tuple[str, ...]] = ()

    requires: ClassVar[tuple[str, ...]] = ()
    produces: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, tuple[Any, str]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "inputs" not in cls.__dict__:
            return
        cls.requires = tuple(name for name, spec in cls.inputs.items() if spec.required)
        cls.produces = tuple(n for n in cls.result.model_fields if n not in Result.model_fields)
        cls._defaults = {
            name: (spec.default, spec.default_text) for name, spec in cls.inputs.items() if not spec.required
        }
        parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        for name, spec in cls.inputs.items():
            default = inspect.Parameter.empty if spec.required else spec.default
            parameters.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))

        def solve(self: Any, *args: Any, **given: Any) -> Any:
            return self._run(args, given)

        solve.__doc__ = cls._solve.__doc__
        solve.__signature__ = inspect.Signature(parameters, return_annotation=cls.result)  # type: ignore[attr-defined]
        cls.solve = solve  # type: ignore[method-assign]

    def solve(self, *args: Any, **given: Any) -> R:
        """Resolve the wall. See ``inputs`` for what each argument means.

        A number may be an :class:`Uncertain`, and ``uncertain={"grid.carbon_intensity_g_kwh": "20..40"}`` varies fields of
        what is given; then ``samples`` draws from ``seed`` give an :class:`UncertainResult`.
        """
        raise NotImplementedError

    def _solve(self, x: SimpleNamespace, assumed: dict[str, str]) -> R:
        """Resolve the wall with checked inputs."""
        raise InputError(f"{type(self).__name__} does not say how to solve; implement _solve().")

    def _run(self, args: tuple[Any, ...], given: dict[str, Any]) -> R:
        cls = type(self)
        if args:
            names = list(cls.inputs)
            if len(args) > len(names):
                raise InputError(f"{cls.__name__}.solve takes {len(names)} inputs, got {len(args)}.")
            for name, value in zip(names, args, strict=False):
                if name in given:
                    raise InputError(f"{cls.__name__}.solve got {name!r} twice.", field=name)
                given[name] = value
        inputs = cls.inputs
        if Uncertain in map(type, given.values()) or not _OF_UNCERTAINTY.isdisjoint(given):
            from mlsysim.walls.uncertainty import solve_uncertain

            return solve_uncertain(self, given)
        x = SimpleNamespace()
        assumed = Assumptions(given=given)
        values = x.__dict__
        for name, value in given.items():
            spec = inputs.get(name)
            if spec is None:
                raise unknown_name(f"input of {cls.__name__}.solve", name, inputs)
            if value is None and not spec.required and spec.default is None:
                values[name] = None
            else:
                values[name] = read_input(cls.__name__, name, spec, value)
        for name, (default, text) in cls._defaults.items():
            if name not in values:
                values[name] = default
                if default is not None:
                    assumed.say(name, default, DEFAULT, text)
        for name in cls.requires:
            if name not in values:
                spec = inputs[name]
                raise InputError(f"{cls.__name__}.solve needs {name!r}: {spec.meaning}.", field=name)
        outcome = self._solve(x, assumed)
        outcome._equations = cls.equations
        outcome._resolver = cls.__name__
        outcome._assumed = assumed
        return outcome

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """JSON Schema of the inputs and of the result."""
        return {
            "resolver": cls.__name__,
            "type": cls.resolver_type(),
            "walls": list(cls.walls),
            "inputs": {
                "type": "object",
                "properties": {name: input_schema(spec) for name, spec in cls.inputs.items()},
                "required": list(cls.requires),
                "additionalProperties": False,
            },
            "result": cls.result.model_json_schema(mode="serialization"),
        }

    @classmethod
    def resolver_type(cls) -> str:
        """``model``, ``solver`` or ``optimizer``."""
        return cls.tier

    @classmethod
    def fallacies(cls) -> list[str]:
        """Mistakes that this wall is good at exposing."""
        return list(cls.known_fallacies)
