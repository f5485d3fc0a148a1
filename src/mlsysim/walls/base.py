"""What every wall shares: declared inputs in, a typed result out.

A resolver declares its inputs as data (:class:`Input`: meaning, unit, range, default). ``solve`` reads them, refuses
what is out of range with one sentence, notes every default that it used, and hands plain numbers in the declared units to
``_solve``, which answers with ``Result.of``. Resolvers keep no state: the same input gives the same output.

What a wall is written with is imported from here, its result and units from :mod:`mlsysim.walls.result`.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Generic, TypeVar, get_args

from mlsysim.cases.assumptions import DEFAULT, Assumption, Assumptions
from mlsysim.errors import InputError, unknown_name
from mlsysim.units.uncertain import Uncertain
from mlsysim.vocabulary import same_as
from mlsysim.walls.binding import Binding, wall_says
from mlsysim.walls.explanation import Equation, written
from mlsysim.walls.inputs import CALIBRATED, Input, Inputs, declared, input_schema, read_input
from mlsysim.walls.result import Result, produced_by

__all__ = ["CALIBRATED", "Assumptions", "Binding", "Inputs", "Resolver", "declared", "wall_says", "written"]

R = TypeVar("R", bound=Result)

CAVEATS = "caveats"
"""The assumption that says what was not understood of an imported model's files."""

_EMPTY: Any = inspect.Parameter.empty
_OF_UNCERTAINTY = frozenset(("uncertain", "samples", "seed"))
"""What ``solve`` takes beside the declared inputs; see :mod:`mlsysim.walls.uncertainty`."""


def _by_their_names(resolver: str, given: dict[str, Any], inputs: dict[str, Input]) -> dict[str, Any]:
    """Inputs that may be given by any name of the vocabulary, by their own."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        own = same_as(name, inputs) or name
        if own in found:
            raise InputError(f"{resolver}.solve got {own!r} twice, as {name!r} too.", field=own)
        found[own] = value
    return found


class Resolver(Generic[R]):
    """Base of models, solvers and optimizers.

    A subclass declares ``walls``, ``inputs``, ``equations`` and ``_solve``; its result is that of ``Resolver[...]``, and the
    signature of ``solve`` follows from ``inputs``.
    """

    tier: ClassVar[str] = "model"
    walls: ClassVar[tuple[int, ...]] = ()
    inputs: ClassVar[dict[str, Input]] = {}
    result: ClassVar[type[Result]] = Result
    equations: ClassVar[tuple[Equation, ...]] = ()
    known_fallacies: ClassVar[tuple[str, ...]] = ()

    requires: ClassVar[tuple[str, ...]] = ()
    produces: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Assumption]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "inputs" not in cls.__dict__:
            return
        if "result" not in cls.__dict__:
            (cls.result,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]
        cls.requires = tuple(name for name, spec in cls.inputs.items() if spec.required)
        cls.produces = produced_by(cls.result)
        cls._defaults = {
            name: Assumption(name, spec.default, DEFAULT, spec.default_text if spec.default is not None else "")
            for name, spec in cls.inputs.items()
            if not spec.required
        }
        defaults = {name: _EMPTY if spec.required else spec.default for name, spec in cls.inputs.items()}
        named = {"self": _EMPTY, **defaults}.items()
        parameters = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=d) for n, d in named]

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

    def _solve(self, x: Any, assumed: Any) -> R:
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
        if not given.keys() <= inputs.keys():
            given = _by_their_names(cls.__name__, given, inputs)
        if Uncertain in map(type, given.values()) or not _OF_UNCERTAINTY.isdisjoint(given):
            from mlsysim.walls.uncertainty import solve_uncertain

            return solve_uncertain(self, given)
        assumed = Assumptions(given=given)
        values: dict[str, Any] = {}
        for name, value in given.items():
            spec = inputs.get(name)
            if spec is None:
                raise unknown_name(f"input of {cls.__name__}.solve", name, inputs)
            absent = value is None and spec.default is None
            values[name] = None if absent else read_input(cls.__name__, name, spec, value)
        for name, default in cls._defaults.items():
            if name not in values:
                values[name] = default.value
                if default.value is not None:
                    assumed.take(default)
        for name in cls.requires:
            if name not in values:
                raise InputError(f"{cls.__name__}.solve needs {name!r}: {inputs[name].meaning}.", field=name)
        caveats = getattr(values.get("model"), "caveats", None)
        if caveats:
            assumed[CAVEATS] = " ".join(caveats)
        outcome = self._solve(Inputs(values), assumed)
        facts = outcome._facts
        facts.equations, facts.resolver, facts.assumed = cls.equations, cls.__name__, assumed
        facts.given, facts.inputs_declared = values, inputs
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
