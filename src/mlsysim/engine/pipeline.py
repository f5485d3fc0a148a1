"""``Pipeline``: resolvers in a row, joined by what they require and produce.

What one resolver produces under a name feeds every later resolver that has an input of that name. The plan is checked
before anything runs: a required input that nobody gives is a gap, a produced value whose unit does not fit the input is
a mismatch; both raise :class:`CompositionError` with one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.units.records import dataclass
from mlsysim.units.registry import DimensionalityError, conversion_factor
from mlsysim.walls.base import Resolver
from mlsysim.walls.catalog import resolver as resolver_named
from mlsysim.walls.document import Document
from mlsysim.walls.result import Amount, Result, produced_by


class CompositionError(InputError):
    """Resolvers that cannot be joined."""


@dataclass(frozen=True)
class Stage:
    """One resolver of a plan and where its inputs come from."""

    resolver: Resolver[Any]
    sources: dict[str, str]

    @property
    def name(self) -> str:
        return type(self.resolver).__name__


@dataclass(frozen=True)
class PipelineResult(Document):
    """Results by resolver, and every produced value by name (the last one wins)."""

    results: dict[str, Result]

    @property
    def values(self) -> dict[str, Any]:
        return {name: getattr(each, name) for each in self.results.values() for name in produced_by(type(each))}

    def __getitem__(self, name: str) -> Any:
        if name in self.results:
            return self.results[name]
        if name in self.values:
            return self.values[name]
        raise unknown_name("result of this pipeline", name, [*self.results, *self.values])

    @property
    def feasible(self) -> bool:
        return all(result.feasible for result in self.results.values())

    def to_dict(self) -> dict[str, Any]:
        """Results by the name of their resolver."""
        return {name: result.to_dict() for name, result in self.results.items()}

    @classmethod
    def _fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"results": {name: resolver_named(name).result.from_dict(told) for name, told in document.items()}}


class Pipeline:
    """Resolvers in order. ``run(**inputs)`` hands each input to every resolver that has it."""

    def __init__(self, resolvers: Sequence[Any]) -> None:
        if not resolvers:
            raise CompositionError("A pipeline needs at least one resolver.")
        self._resolvers = [r() if isinstance(r, type) else r for r in resolvers]
        for resolver in self._resolvers:
            if not isinstance(resolver, Resolver):
                raise CompositionError(f"A pipeline is made of resolvers, got {type(resolver).__name__}.")
        self._callbacks: list[Callable[[str, Result], None]] = []

    def register_callback(self, callback: Callable[[str, Result], None]) -> None:
        """Call ``callback(resolver name, result)`` after each stage."""
        self._callbacks.append(callback)

    def plan(self, given: Sequence[str]) -> list[Stage]:
        """Where each resolver gets its inputs; raises on a gap or a mismatch."""
        known = {name for resolver in self._resolvers for name in type(resolver).inputs}
        for name in given:
            if name not in known:
                raise unknown_name("input of this pipeline", name, known)
        produced: dict[str, tuple[str, str | None]] = {}
        stages = []
        for resolver in self._resolvers:
            kind = type(resolver)
            sources: dict[str, str] = {}
            for name, spec in kind.inputs.items():
                if name in given:
                    sources[name] = "given"
                elif name in produced:
                    maker, unit = produced[name]
                    self._check_unit(kind.__name__, name, spec, maker, unit)
                    sources[name] = maker
                elif spec.required:
                    makers = [type(r).__name__ for r in self._resolvers if name in type(r).produces]
                    hint = f"; {makers[0]} produces it, put it earlier" if makers else f"; give {name}=..."
                    raise CompositionError(
                        f"{kind.__name__} needs {name!r} and nothing before it produces it{hint}.", gap=name
                    )
            stages.append(Stage(resolver, sources))
            for name in kind.produces:
                produced[name] = (kind.__name__, produced_unit(kind, name))
        return stages

    @staticmethod
    def _check_unit(taker: str, name: str, spec: Any, maker: str, unit: str | None) -> None:
        if spec.kind == "quantity" and unit is None and spec.plain_unit is None:
            raise CompositionError(
                f"{taker} takes {name!r} in {spec.unit}, but {maker} produces a plain number.", mismatch=name
            )
        if spec.kind in ("quantity", "number") and unit is not None:
            try:
                conversion_factor(unit, spec.unit)
            except DimensionalityError:
                raise CompositionError(
                    f"{taker} takes {name!r} in {spec.unit or 'counts'}, but {maker} produces it in {unit}.",
                    mismatch=name,
                ) from None

    def explain(self, *given: str) -> str:
        """The plan in words: for each resolver, what it takes from where and what it produces."""
        lines = []
        names = given or tuple({n for r in self._resolvers for n in type(r).requires if not self._made(n)})
        for number, stage in enumerate(self.plan(names), 1):
            kind = type(stage.resolver)
            walls = ", ".join(str(w) for w in kind.walls)
            taken = ", ".join(f"{name} ({source})" for name, source in stage.sources.items()) or "nothing"
            lines.append(f"{number}. {stage.name} (wall {walls}) takes {taken}; produces {', '.join(kind.produces)}")
        return "\n".join(lines)

    def _made(self, name: str) -> bool:
        return any(name in type(r).produces for r in self._resolvers)

    def run(self, **given: Any) -> PipelineResult:
        """Run all stages; nothing runs unless the whole plan holds."""
        stages = self.plan(tuple(given))
        results: dict[str, Result] = {}
        values: dict[str, Any] = {}
        for stage in stages:
            arguments = {
                name: given[name] if source == "given" else values[name] for name, source in stage.sources.items()
            }
            result = stage.resolver.solve(**{name: value for name, value in arguments.items() if value is not None})
            results[stage.name] = result
            values |= {name: getattr(result, name) for name in type(stage.resolver).produces}
            for callback in self._callbacks:
                callback(stage.name, result)
        return PipelineResult(results)


def produced_unit(resolver: type[Resolver[Any]], name: str) -> str | None:
    """The unit of a result field, or None for a plain value."""
    for note in resolver.result.model_fields[name].metadata:
        if isinstance(note, Amount):
            return note.unit
    return None
