"""Questions in Python: what the commands answer, with the keys of a plan as keywords.

    answer = mlsysim.train("Llama3_70B", on="512xH100", tokens="15T", region="Quebec")
    print(answer)
    answer.value("mfu"), answer.explain("mfu"), answer.plan, answer.to_dict()
    mlsysim.serve(Models.Llama3_8B, on=Hardware.H100, qps=20, isl=500, osl=100, slo="ttft_p99=200ms")
    mlsysim.plan("Llama3_8B", on="H100,L40S", qps=50, isl=1000, osl=200, slo="ttft_p99=500ms")
    mlsysim.compare(answer, mlsysim.train("Llama3_70B", on="512xB200", tokens="15T"))
    mlsysim.sweep("space.toml").best[0]
    mlsysim.sweep(answer, over={"power_cap": ["700 W", "500 W"]}).points

A keyword is a key of a plan under any of its names (``tp=8``, ``tensor_parallel=8``, ``isl=500``, ``prompt_tokens=500``). Models, chips and clusters
may be names, paths or objects; an object that is not of the zoo is found under its name for as long as the program runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, overload

from mlsysim.engine.explain import Difference
from mlsysim.engine.explain import compare as compare_results
from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.types import Workload
from mlsysim.plans.answer import Answer
from mlsysim.plans.compare import Comparison, compare_answers, compare_plans
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.files import ENDINGS, load_plan
from mlsysim.plans.objects import name_of
from mlsysim.plans.plan import Plan
from mlsysim.plans.planned import Planned, planned, task_for
from mlsysim.plans.schema import Leaf
from mlsysim.plans.varied import Varied, varied
from mlsysim.systems.types import Fleet, Node
from mlsysim.walls.result import Result

if TYPE_CHECKING:
    from mlsysim.plot.figure import Figure
    from mlsysim.search.space import Space
    from mlsysim.swept import Swept

Model = str | PathLike[str] | Workload
Machines = str | HardwareNode | Node | Fleet


def train(model: Model, on: Machines | None = None, **settings: Any) -> Answer:
    """What it takes to train a model on a fleet: does it fit, how long, what it costs and emits, what binds, how sure."""
    return _answered("training", model, on, settings)


def serve(model: Model, on: Machines | None = None, **settings: Any) -> Answer:
    """What a service sees: time to the first token and of each further one, rate, cost of a million tokens, percentiles."""
    return _answered("serving", model, on, settings)


def rl(model: Model, on: Machines | None = None, **settings: Any) -> Answer:
    """What a step of post-training takes: rollout and its long tail, training and weight transfer; the best split, and the cost of a thousand steps."""
    return _answered("rl", model, on, settings)


def plan(model: Model, on: Machines | Iterable[Machines] = (), **settings: Any) -> Planned:
    """The smallest fleet of each chip in ``on`` (by default the usual ones) that trains a model by a ``deadline``, or that answers ``qps`` requests a second,
    a ``trace``, or so many ``users`` at once, within its limits."""
    if isinstance(on, str):
        chips = [chip.strip() for chip in on.split(",") if chip.strip()]
    else:
        several: Any = [on] if isinstance(on, HardwareNode | Node | Fleet) or not isinstance(on, Iterable) else on
        chips = [*map(fleet_name, several)]
    first = chips[0] if chips else "H100"
    wanted = {"task": task_for(settings), "model": model_name(model), "on": first, **settings}
    found = planned(Plan.model_validate(wanted), chips).in_words(_keyword)
    return found if found.best is None else replace(found, best=found.best.drawn_by(_chart))


def compare(a: Any, b: Any = None, **settings: Any) -> Comparison | Difference:
    """What changes from one answer to another, by what factor, and which wall binds in each. Takes two answers to plans, two results of one resolver, or
    two plans (``"Llama3_8B@8xH100"``, a file, a table, a Plan), to both of which the settings beside them apply."""
    if isinstance(a, Answer) and isinstance(b, Answer) and not settings:
        return compare_answers(a, b)
    if isinstance(a, Result) and isinstance(b, Result) and not settings:
        return compare_results(a, b)
    if all(
        isinstance(each, Plan | Answer | Mapping) or (isinstance(each, str) and _tells_a_plan(each)) for each in (a, b)
    ):
        found = compare_plans(_plan_of(a, settings), _plan_of(b, settings))
        first, second = (each.in_words(_keyword).drawn_by(_chart) for each in (found.first, found.second))
        return replace(found, first=first, second=second)
    got = "one" if b is None else f"{type(a).__name__} and {type(b).__name__}"
    raise InputError(
        f"compare() takes two plans such as 'Llama3_8B@8xH100', two answers to plans, or two results of a resolver, got {got}; "
        "for one model on two chips, compare('Llama3_8B@H100', 'Llama3_8B@H200')."
    )


class SweptPlan(Varied):
    """What :func:`sweep` found of a plan with some of its keys at several values."""

    def plot(self, metric: str | None = None) -> Figure:
        """A metric, the main one where none is named, along the key with most values."""
        from mlsysim.plot.keys import chart_of_keys

        return chart_of_keys(self, metric)


@overload
def sweep(space: str | PathLike[str] | Mapping[str, Any] | Space, **options: Any) -> Swept: ...


@overload
def sweep(
    space: Model | Mapping[str, Any] | Plan | Answer, over: Mapping[str, Iterable[Any]], **options: Any
) -> SweptPlan: ...


def sweep(space: Any, over: Mapping[str, Iterable[Any]] | None = None, **options: Any) -> Swept | SweptPlan:
    """Every point of a space (a file, a table with its keys, or a Space): the best, the Pareto front, what stopped the others.

    Options are those of :func:`mlsysim.search.sweep.sweep`: ``workers``, ``points``, ``checkpoint`` ... With keys to go ``over``, every answer to a plan (a
    file, a table, a Plan, or the plan of an answer, or a model with ``on`` and other keys) at their values:
    ``sweep(answer, over={"spares": [0, 16, 64]})``. A plan takes ``axes`` as another word for ``over``."""
    planned = isinstance(space, Plan | Answer) or (isinstance(space, Mapping) and not {"axes", "kind"} & {*space})
    if over is None and (planned or "axes" in options):
        over = options.pop("axes", {})
    if over is not None:
        axes = {key: [fleet_name(v) if key == "on" else v for v in values] for key, values in _keys(over).items()}
        return SweptPlan(*varied(_swept_plan(space, options, axes.get("on")), axes).in_words(_keyword))
    from mlsysim.search.space import Space
    from mlsysim.search.sweep import sweep as evaluated
    from mlsysim.swept import Swept

    if isinstance(space, str) and Models.has(space):
        given = next(((key, list(values)) for key, values in options.items() if isinstance(values, list | tuple)), None)
        key, values = given or ("batch_size", [64, 128])
        raise InputError(
            f"{space!r} is a model: say over which values of which keys to go, as in "
            f"sweep({space!r}, on='8xH100', over={{{key!r}: {values}}}).",
            field="over",
        )
    if isinstance(space, Mapping):
        space = Space.from_dict(space)
    elif not isinstance(space, Space):
        space = Space.from_toml(_path(space))
    return Swept.of(evaluated(space, **options), space)


def _path(of: Any) -> str:
    if not isinstance(of, str | PathLike):
        told = "a space (a file, a table or a Space), or a plan, an answer or a model with keys to go over"
        raise InputError(f"sweep() takes {told}; got {type(of).__name__}.", field="space")
    return fspath(of)


def _keys(over: Any) -> dict[str, list[Any]]:
    """Keys of a plan with several values each."""
    told = "such as over={'tp': [1, 2, 4]}"
    if not isinstance(over, Mapping) or not over:
        raise InputError(f"Say over which values of which keys to go, {told}.", field="over")
    for key, values in over.items():
        if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
            raise InputError(f"over needs several values of {key} in a list, {told}; got {values!r}.", field="over")
    return {key: [*values] for key, values in over.items()}


def _tells_a_plan(text: str) -> bool:
    return "@" in text or text.startswith("scenario:") or text.lower().endswith(ENDINGS)


def _swept_plan(of: Any, settings: dict[str, Any], fleets: list[str] | None) -> Plan:
    """The plan of a sweep, with what is given beside it; a model that goes over fleets is on the first of them."""
    named = isinstance(of, Workload) or (isinstance(of, str) and not _tells_a_plan(of))
    if named and fleets:
        settings.setdefault("on", fleets[0])
    if named and "on" not in settings:
        said = model_name(of)
        raise InputError(f"A model is swept with its fleet beside it: sweep({said!r}, over, on='8xH100').", field="on")
    if named:
        return Plan.model_validate({"model": model_name(of), **settings, "on": fleet_name(settings["on"])})
    return _plan_of(of, settings)


def _plan_of(of: Any, settings: Mapping[str, Any]) -> Plan:
    """A plan however it is told: as one, by its answer, as a table, a file or MODEL@FLEET; with what is given beside it."""
    if isinstance(of, str) and "@" in of and not of.lower().endswith(ENDINGS):
        model, _, on = of.rpartition("@")
        return Plan.model_validate({"model": model, "on": on, **settings})
    plan = of.plan if isinstance(of, Answer) else Plan.model_validate(dict(of)) if isinstance(of, Mapping) else of
    return (plan if isinstance(plan, Plan) else load_plan(_path(plan))).with_settings(dict(settings))


def _answered(task: str, model: Model, on: Machines | None, settings: Mapping[str, Any]) -> Answer:
    given = dict(settings)
    if on is None and not isinstance(given.get("hardware"), Mapping):
        # Hardware has other names too, and objects stand under any of them.
        on = next((given.pop(name) for name in Plan.leaves()["hardware.on"].names if name in given), None)
        if on is None:
            raise InputError("On which hardware? Give on, such as on='8xH100'.", field="on")
    placed = {} if on is None else {"on": fleet_name(on)}
    plan = Plan.model_validate({"task": task, "model": model_name(model), **placed, **given})
    return evaluate(plan).in_words(_keyword).drawn_by(_chart)


def model_name(model: Model) -> str:
    """What a plan calls a model."""
    return _named(model, "model", "A model is a name of the zoo, a file or a Workload")


def fleet_name(on: Machines) -> str:
    """What a plan calls chips, nodes or a fleet."""
    return _named(on, "on", "'on' is a fleet such as '8xH100', a chip, a node or a cluster of the zoo")


def _named(value: Any, field: str, expected: str) -> str:
    found = name_of(value)
    if not isinstance(found, str):
        raise InputError(f"{expected}, got {type(value).__name__}.", field=field)
    return found


def _keyword(leaf: Leaf, value: Any) -> str:
    """A setting as a keyword: ``zero=3``."""
    return f"{leaf.flat}=..." if value is None else f"{leaf.flat}={value!r}"


def _chart(answer: Answer, kind: str, **asked: Any) -> Figure:
    """A chart of an answer, by its name."""
    from mlsysim.plot.kinds import charted

    return charted(answer, kind, **asked)
