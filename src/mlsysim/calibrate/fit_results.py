"""``calibrate --serving``: constants of an engine from what a benchmark or a log measured of its requests.

A file (a result of vLLM's, SGLang's, inference-perf's or GuideLLM's benchmark, or a table of requests) says when requests came, how long they were
and what each waited. They are played again (:mod:`mlsysim.simulate`) with candidates of the few constants that such a file can tell apart: the front end,
a step's own time and that of its sequences, what operators of prompts wait for, and two factors on steps of the model, with prompts and without. Priors
are the engine's constants, with the spreads of its own fit (``data/fits.toml``); what the file does not tell stays near them.

Fitted are means, medians and 90th percentiles of the first token and of each further one, run by run. Where a file has several runs, each is
predicted without it too, and the engine is written only where that is better than before; of a single run the first half of its requests is told apart
from the second in the same way.

A fit plays all of it a few hundred times, so that of long files the first requests of each run are taken, ``MOST`` together: a run begins with an
empty server however long it is, and what was measured of the same requests is beside what is played of them.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from copy import copy
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mlsysim.calibrate.fitting import table_of
from mlsysim.calibrate.posterior import Posterior, Prior, Row, posterior
from mlsysim.cases.machines import Engines
from mlsysim.cases.traffic import Traffic
from mlsysim.errors import InputError
from mlsysim.importers.markup import table_lines
from mlsysim.plans.plan import Plan
from mlsysim.plans.serving import best_served
from mlsysim.simulate.bags import ranked
from mlsysim.simulate.live import Ended
from mlsysim.simulate.replicas import Kind, kind_of
from mlsysim.simulate.requests import Measured, Request
from mlsysim.simulate.settings import Settings
from mlsysim.simulate.traces import read_runs
from mlsysim.timing.engines import Engine, seen_as
from mlsysim.units.records import dataclass
from mlsysim.walls.document import Summary
from mlsysim.zoo.writing import write_whole

FEWEST, MOST, _SPREAD, _FOLDS, _LEVELS = 20, 1000, 0.02, 4, (50.0, 90.0)
_CONSTANTS = ("front_end", "step", "per_sequence", "waited_operator")
_FACTORS = {"prompts": 0.25, "answers": 0.1}
"""Spreads of a model's factors on steps with prompts and without."""


@dataclass(frozen=True)
class Played:
    """Some requests of a run: all are played, those from ``first`` to ``last`` are looked at."""

    run: str
    requests: tuple[Request, ...]
    measured: tuple[Measured, ...]
    first: int
    last: int

    def statistics(self, ttfts: Sequence[float | None], tpots: Sequence[float | None]) -> list[float]:
        """Mean and percentiles of each kind of time that was measured of these requests."""
        found = []
        for values in (ttfts, tpots):
            times = sorted(each for each in values[self.first : self.last] if each is not None and each > 0)
            if times:
                found += [sum(times) / len(times), *ranked(times, _LEVELS)]
        return found

    @property
    def values(self) -> list[float]:
        return self.statistics([m.ttft for m in self.measured], [m.tpot for m in self.measured])


def parts_of(path: Path) -> list[Played]:
    """What a file says, by run; a single run in halves."""
    found = []
    for name, trace in read_runs(path).items():
        pairs = list(trace.measured())
        requests, measured = tuple(r for r, _ in pairs), tuple(m for _, m in pairs)
        if not any(m.ttft or m.tpot for m in measured):
            raise InputError(f"{path} says when requests came, not how long they took; give a result with times.")
        found.append(Played(name, requests, measured, 0, len(pairs)))
    count = sum(len(each.requests) for each in found)
    if count < FEWEST:
        raise InputError(f"{path} has fewer than {FEWEST} answered requests, too few to fit an engine on.")
    if count > MOST:
        many = [max(FEWEST, len(each.requests) * MOST // count) for each in found]
        found = [
            Played(each.run, each.requests[:own], each.measured[:own], 0, min(own, each.last))
            for each, own in zip(found, many, strict=True)
        ]
    if len(found) > 1:
        return found
    whole = found[0]
    half = len(whole.requests) // 2
    return [Played(whole.run, whole.requests, whole.measured, *ends) for ends in ((0, half), (half, 2 * half))]


@dataclass(frozen=True)
class Service:
    """The service that was measured: its machine, how it is asked and scheduled."""

    machine: Engines
    traffic: Traffic
    scheduler: str | None = None

    def moved(self, constants: Mapping[str, float]) -> Engines:
        """The same with other constants and factors."""
        own = {key: value for key, value in constants.items() if key not in _FACTORS}
        step = copy(self.machine.writer)
        step.engine = step.engine.model_copy(update=own)
        step.factors = (constants["prompts"], constants["answers"], _known(step)[2])
        return Engines(step, step, self.machine.draft, self.machine.apart)

    def kind(self, constants: Mapping[str, float]) -> Kind:
        """What its replicas are made of with other constants and factors."""
        settings = Settings(scheduler=self.scheduler)
        found = kind_of(self.moved(constants), self.traffic, settings)
        found.steps.know(kind_of(self.machine, self.traffic, settings).steps)
        return found

    @staticmethod
    def play(part: Played, kind: Kind) -> list[float]:
        """What was looked at of the requests, simulated."""
        ttfts: list[float | None] = [None] * len(part.requests)
        tpots = list(ttfts)
        order = {id(request): number for number, request in enumerate(part.requests)}

        def done(ended: Ended) -> None:
            request, _, first, finish = ended
            number, answer = order[id(request)], request.answer
            ttfts[number] = first - request.arrival
            tpots[number] = (finish - first) / (answer - 1) if answer > 1 else None

        replicas = [kind.replica(done) for _ in range(kind.many)]
        for number, request in enumerate(part.requests):
            replicas[number % len(replicas)].push(request)
        for replica in replicas:
            replica.finish()
        seen = part.measured
        return part.statistics(
            [t if m.ttft else None for t, m in zip(ttfts, seen, strict=True)],
            [t if m.tpot else None for t, m in zip(tpots, seen, strict=True)],
        )


_OF_THE_LOAD = (
    *("prompt_tokens", "output_tokens", "length_cv", "range_ratio", "burst", "concurrency", "qps", "requests", "slo"),
    *("output_rate", "ttft", "tpot", "latency"),
)
"""Keys of a plan that say what a file says itself, or that do not matter to what was measured."""


def service_of(plan: Plan, path: Path) -> Service:
    """The service that a plan describes, under the load of a file."""
    run = next(iter(read_runs(path)))
    if plan.task != "serving" or plan.serving is None:
        raise InputError("the plan of a service has the task serving and says its engine.")
    load = dict.fromkeys(_OF_THE_LOAD) | {"trace": f"{path}#{run}" if run else str(path)}
    asked = plan.model_copy(
        update={
            "serving": plan.serving.model_copy(update=load),
            "hardware": plan.hardware.model_copy(update={"efficiency": "calibrated"}),
        }
    )
    result = best_served(asked)[1].result
    return Service(result.named("machine"), result.named("clients"), plan.serving.scheduler)


@dataclass(frozen=True)
class FittedEngine(Summary):
    """An engine's constants from a file, and how well they predict what they have not seen."""

    told: ClassVar = ("engine", "requests", "constants", "before", "after_left_out")

    engine: Engine
    model: str
    requests: int
    found: Posterior
    prior: dict[str, float]
    before: tuple[float, ...]
    after: tuple[float, ...]
    launches: float = 1.0

    @property
    def constants(self) -> dict[str, float]:
        return dict(zip(self.found.names, np.exp(self.found.constants[0]).tolist(), strict=True))

    @property
    def improves(self) -> bool:
        return bool(_size(self.after) < _size(self.before))

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; errors are medians in per cent, each run (or half of one) predicted from the others."""
        table = self.found.table()
        return {
            "engine": self.engine.name,
            "requests": self.requests,
            "constants": {
                key: {"before": self.prior[key], "after": each["value"], "standard_error": each["error"]}
                for key, each in table.items()
            },
            "before": {"median_ape": _size(self.before)},
            "after_left_out": {"median_ape": _size(self.after)},
        }


def _known(step: Any) -> tuple[float, float, float]:
    """Factors of the model on the engine before: on steps with prompts, on others, and on what the host launches, which stays."""
    return step.factors or (1.0, 1.0, 1.0)


def _size(errors: Sequence[float]) -> float:
    return float(np.median(np.abs(np.expm1(errors)))) * 100


def fit_results(path: Path, service: Service) -> FittedEngine:
    """Fit the engine of a service to the requests of a file."""
    if service.machine.apart:
        raise InputError("an engine is fitted where one pool reads prompts and writes answers.")
    step, parts = service.machine.writer, parts_of(path)
    spreads = table_of("engine_priors")["every"]
    factors = dict(zip(_FACTORS, _known(step), strict=False))
    known = {key: getattr(step.engine, key) for key in _CONSTANTS} | factors
    # What an engine does not have at all is not looked for.
    priors = {key: Prior(value, _FACTORS.get(key) or spreads[key][1]) for key, value in known.items() if value > 0}

    @lru_cache(maxsize=2 * (_FOLDS + 1) * (len(priors) + 1))
    def kind(*constants: float) -> Kind:
        return service.kind(dict(zip(priors, constants, strict=True)))

    def row(part: Played) -> Row:
        def predict(constants: Mapping[str, Any], _: Sequence[Any]) -> list[Any]:
            asked = list(zip(*(values.tolist() for values in constants.values()), strict=True))
            played = {one: service.play(part, kind(*one)) for one in dict.fromkeys(asked)}
            return list(np.array([played[one] for one in asked]).T)

        values = part.values
        return Row(part.run, tuple(values), (_SPREAD,) * len(values), predict)

    rows = [row(part) for part in parts]
    # Runs are left out one by one, or in turn where they are many.
    folds = np.arange(len(parts)) % min(len(parts), _FOLDS)
    masks = [folds == fold for fold in range(folds.max() + 1)]
    found = posterior(rows, priors, (), masks, smooth=False)
    before = [
        math.log(predicted / measured)
        for part in parts
        for predicted, measured in zip(service.play(part, service.kind(known)), part.values, strict=True)
    ]
    after = found.errors[np.arange(len(found.owner)), folds[found.owner] + 1]
    count = sum(part.last - part.first for part in parts)
    name = seen_as(step.deployment.model, step.deployment.precision)
    launches = (step.factors or (1.0, 1.0, 1.0))[2]
    return FittedEngine(step.engine, name, count, found, known, tuple(before), tuple(after.tolist()), launches)


def write_engine(fitted: FittedEngine, name: str, folder: Path, origin: str, checked: str | None = None) -> Path:
    """Write the engine to the user's zoo: ``FOLDER/engines/NAME.toml``."""
    if not name.isidentifier():
        raise InputError(f"the name {name!r} must be a Python identifier, such as My_{fitted.engine.name}.")
    constants = fitted.constants
    day = checked or datetime.date.today().isoformat()
    own = {key: f"{value * 1e6:.5g} us" for key, value in constants.items() if key not in _FACTORS}
    factors = {key: float(f"{constants.get(key, 1.0):.5g}") for key in _FACTORS}
    factors["launches"] = fitted.launches
    like = fitted.engine.like or fitted.engine.name
    lines = table_lines(name, {"like": like, **own, "fit_error_pct": round(_size(fitted.after), 2)})[1:]
    source = {"title": f"{fitted.requests} requests: {origin}", "url": "", "checked": day, "kind": "measured"}
    # Tables inside a line stay there: only those of models stand apart.
    shown = ", ".join(f'{key} = "{value}"' for key, value in source.items())
    lines += [
        f"source = {{{shown}}}",
        *table_lines(f'{name}.models."{fitted.model}"', factors | {"rows": fitted.requests}),
    ]
    text = "\n".join(["# Fitted by mlsysim calibrate --serving.", *lines]) + "\n"
    return write_whole(folder / "engines" / f"{name}.toml", text, folders=True)
