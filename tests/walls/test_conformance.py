"""One suite over every resolver: determinism, units, ranges, sentences, signs, limits, no NaN."""

from __future__ import annotations

import html.parser
import json
import math
import warnings
from importlib import import_module
from typing import Any

import pytest
from examples_of_resolvers import CALLS, HOMES, resolver
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlsysim.errors import DataWarning, InputError, MLSysError, fold
from mlsysim.hardware.registry import Hardware
from mlsysim.units.registry import Q_, Quantity, conversion_factor
from mlsysim.vocabulary import WALLS
from mlsysim.walls.base import Resolver
from mlsysim.walls.catalog import RESOLVERS, taxonomy, wall, walls, walls_for_resolver, walls_in_domain
from mlsysim.walls.inputs import Input
from mlsysim.walls.result import Amount, Result

NAMES = sorted(HOMES)


def solve(name: str, **changes: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return resolver(name).solve(**{**CALLS[name], **changes})


def numbers_in(value: Any) -> list[float]:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return []
    if isinstance(value, (int, float)):
        return [float(value)]
    if isinstance(value, dict):
        return [n for item in value.values() for n in numbers_in(item)]
    if isinstance(value, (list, tuple)):
        return [n for item in value for n in numbers_in(item)]
    return []


def one_sentence(error: Exception) -> None:
    text = str(error)
    assert text and "\n" not in text and text[-1] in ".?", text
    assert "Traceback" not in text and "nan" not in text.split(), text


def test_every_resolver_has_a_call() -> None:
    assert set(CALLS) == set(HOMES)
    assert len(RESOLVERS) >= 25 and len(HOMES) == len(RESOLVERS) + 3


@pytest.mark.parametrize("name", NAMES)
def test_same_input_same_output(name: str) -> None:
    assert solve(name).to_dict() == solve(name).to_dict()


@pytest.mark.parametrize("name", NAMES)
def test_result_is_typed_and_its_units_are_the_declared_ones(name: str) -> None:
    outcome = solve(name)
    kind = type(resolver(name))
    assert type(outcome) is kind.result and isinstance(outcome, Result)
    assert isinstance(outcome.feasible, bool)
    for field, info in kind.result.model_fields.items():
        value = getattr(outcome, field)
        for note in info.metadata:
            if isinstance(note, Amount) and value is not None:
                assert isinstance(value, Quantity), field
                conversion_factor(str(value.units), note.unit)


@pytest.mark.parametrize("name", NAMES)
def test_no_nan_and_json(name: str) -> None:
    outcome = solve(name)
    data = json.loads(outcome.to_json())
    assert all(math.isfinite(n) for n in numbers_in(outcome.to_dict()))
    assert set(data) == set(type(outcome).model_fields)


def another(spec: Input) -> Any:
    """A valid value other than the default."""
    if spec.kind in ("number", "efficiency"):
        low, high = spec.low if spec.low is not None else 0.0, spec.high if spec.high is not None else math.inf
        for candidate in (spec.default * 2, spec.default / 2, spec.default + 1, spec.default - 1):
            value = int(candidate) if spec.whole else candidate
            if low < value <= high and value != spec.default:
                return value
    if spec.kind == "choice":
        return next(c for c in spec.choices if c != spec.default)
    if spec.kind == "precision":
        return "fp32" if spec.default != "fp32" else "fp16"
    if spec.kind == "flag":
        return not spec.default
    return None


@pytest.mark.parametrize("name", NAMES)
def test_every_default_that_plays_a_part_is_echoed(name: str) -> None:
    """A default may be left out of the assumptions only where another value gives the same answer, or is refused here."""
    outcome = solve(name)
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in outcome.assumptions.items())
    inputs = type(resolver(name)).inputs
    silent = {
        n for n, spec in inputs.items() if n not in CALLS[name] and spec.default is not None and not spec.required
    }
    for field in silent - set(outcome.assumptions):
        value = another(inputs[field])
        if value is None:
            continue
        try:
            changed = solve(name, **{field: value}).to_dict()
        except InputError as error:
            assert getattr(error, "field", None) == field
            continue
        expected = outcome.to_dict()
        for answer in (changed, expected):
            answer.pop("assumptions")
        assert changed == expected, field


@pytest.mark.parametrize("name", NAMES)
def test_binding_names_a_wall(name: str) -> None:
    binding = solve(name).binding
    assert 1 <= binding.wall <= len(walls())
    assert binding.sentence and binding.sentence[-1] == "."
    assert binding.margin is None or math.isfinite(binding.margin)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("style", ["text", "markdown", "latex"])
def test_explains_itself(name: str, style: str) -> None:
    outcome = solve(name)
    text = outcome.explain(style)
    assert len(text) > 40
    if style == "text" and type(resolver(name)).equations:
        assert "=" in text


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(InputError, match="style"):
        solve("SingleNodeModel").explain("pdf")


@pytest.mark.parametrize("name", NAMES)
def test_html_is_well_formed(name: str) -> None:
    open_tags: list[str] = []

    class Checker(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Checker().feed(solve(name)._repr_html_())
    assert not open_tags


@pytest.mark.parametrize("name", NAMES)
def test_schema_requires_produces(name: str) -> None:
    kind = type(resolver(name))
    schema = json.loads(json.dumps(kind.schema()))
    assert set(schema["inputs"]["properties"]) == set(kind.inputs)
    assert tuple(schema["inputs"]["required"]) == kind.requires
    assert kind.produces and set(kind.produces) <= set(kind.result.model_fields)
    assert kind.resolver_type() in ("model", "solver", "optimizer")
    assert kind.fallacies() and all(text.endswith(".") for text in kind.fallacies())
    assert kind.solve.__signature__.parameters.keys() - {"self"} == kind.inputs.keys()


@pytest.mark.parametrize("name", NAMES)
def test_missing_and_unknown_inputs_are_named(name: str) -> None:
    kind = type(resolver(name))
    with pytest.raises(InputError, match="no_such_input") as caught:
        solve(name, no_such_input=1)
    one_sentence(caught.value)
    for required in kind.requires:
        call = {k: v for k, v in CALLS[name].items() if k != required}
        with pytest.raises(InputError, match=required) as caught:
            resolver(name).solve(**call)
        one_sentence(caught.value)


def bad_values(spec: Input) -> list[Any]:
    if spec.kind == "quantity":
        other = "1 s" if Q_(1, spec.unit).is_compatible_with("kelvin") else "1 kelvin"
        bad: list[Any] = [other, "many", Q_(other), [], float("nan")]
        return bad if spec.plain_unit is not None else [*bad, 3]
    if spec.kind in ("number", "efficiency"):
        bad = [float("nan"), float("inf"), "many", [], Q_("3 kelvin")]
        if spec.low is not None:
            bad.append(spec.low - 1)
        if spec.high is not None:
            bad.append(spec.high * 2 + 1)
        if spec.low_open and spec.low is not None:
            bad.append(spec.low)
        return bad if not spec.whole else [*bad, (spec.low or 0) + 0.5]
    if spec.kind == "flag":
        return ["yes", 2]
    if spec.kind == "choice":
        return ["no such choice", 3]
    if spec.kind in ("precision", "model", "hardware", "fleet", "grid", "fabric"):
        return ["no such name at all", 3.5, []]
    return []


@pytest.mark.parametrize("name", NAMES)
def test_bad_input_gets_one_sentence_that_names_it(name: str) -> None:
    for field, spec in type(resolver(name)).inputs.items():
        for value in bad_values(spec):
            with pytest.raises(MLSysError) as caught:
                solve(name, **{field: value})
            one_sentence(caught.value)
            # A choice is named in words, as a plan's sentence has it: 'There is no cost scope named ...'.
            named = field.replace("_", " ") if spec.kind == "choice" else field
            known = named in str(caught.value) or "no such" in str(caught.value) or spec.kind in str(caught.value)
            assert known, (field, value, str(caught.value))


# --- signs: a little more of this never makes that worse -------------------------------------------------------


def faster(chip: str, **factors: float) -> Any:
    from mlsysim.walls.analysis.sensitivity import scaled

    return scaled(Hardware.get(chip), factors)


SIGNS = [
    ("SingleNodeModel", "latency", {"hardware": "H100"}, {"hardware": ("H100", {"memory_bandwidth": 2.0})}),
    ("SingleNodeModel", "latency", {"hardware": "H100"}, {"hardware": ("H100", {"peak_flops": 2.0})}),
    ("SingleNodeModel", "latency", {"efficiency": 0.3}, {"efficiency": 0.6}),
    ("ServingModel", "itl", {"hardware": "H100"}, {"hardware": ("H100", {"memory_bandwidth": 2.0})}),
    ("ServingModel", "ttft", {"hardware": "H100"}, {"hardware": ("H100", {"peak_flops": 2.0})}),
    ("ServingModel", "ttft", {"efficiency": 0.3}, {"efficiency": 0.6}),
    ("TailLatencyModel", "p99_latency", {"num_replicas": 10}, {"num_replicas": 20}),
    ("DistributedModel", "step_latency_total", {"efficiency": 0.3}, {"efficiency": 0.6}),
    ("DistributedModel", "step_latency_total", {"overlap_comm": False}, {"overlap_comm": True}),
    ("DistributedModel", "step_latency_total", {"congestion_factor": 4.0}, {"congestion_factor": 1.0}),
    ("DistributedModel", "step_latency_total", {"straggler_factor": 1.5}, {"straggler_factor": 1.0}),
    ("ReliabilityModel", "expected_failures", {"job_duration_hours": 720}, {"job_duration_hours": 360}),
    ("EconomicsModel", "tco_usd", {"duration_days": 30}, {"duration_days": 15}),
    ("EconomicsModel", "tco_usd", {"amortization_years": 3}, {"amortization_years": 5}),
    ("SustainabilityModel", "carbon_footprint_kg", {"datacenter": "Poland"}, {"datacenter": "Quebec"}),
    ("SustainabilityModel", "carbon_footprint_kg", {"mfu": 1.0}, {"mfu": 0.4}),
    ("CheckpointModel", "write_time_seconds", {"n_writers": 1}, {"n_writers": 8}),
    ("SynthesisSolver", "required_bw", {"target_latency": "50 ms"}, {"target_latency": "100 ms"}),
    ("TrainingMemoryModel", "total_memory", {"zero_stage": 0, "dp_size": 8}, {"zero_stage": 3, "dp_size": 8}),
    (
        "TrainingMemoryModel",
        "total_memory",
        {"activation_checkpointing": "none"},
        {"activation_checkpointing": "full"},
    ),
    (
        "OrchestrationModel",
        "avg_wait_time_days",
        {"arrival_rate_jobs_per_day": 0.4},
        {"arrival_rate_jobs_per_day": 0.2},
    ),
]


@pytest.mark.parametrize(("name", "output", "worse", "better"), SIGNS)
def test_signs(name: str, output: str, worse: dict[str, Any], better: dict[str, Any]) -> None:
    def value(changes: dict[str, Any]) -> float:
        given = {k: faster(v[0], **v[1]) if isinstance(v, tuple) else v for k, v in changes.items()}
        got = getattr(solve(name, **given), output)
        return float(got.to_base_units().magnitude) if isinstance(got, Quantity) else float(got)

    assert value(better) <= value(worse) * (1 + 1e-12)


# --- any valid numbers: an answer without NaN, or one sentence -------------------------------------------------


def valid(spec: Input) -> st.SearchStrategy[Any] | None:
    if spec.kind in ("number", "efficiency"):
        low = (spec.low if spec.low is not None else 0.0) + (1e-6 if spec.low_open else 0.0)
        high = min(spec.high if spec.high is not None else 1e6, max(low, 1.0) * 1e4)
        if spec.whole:
            return st.integers(math.ceil(low), math.floor(high))
        return st.floats(low, high, allow_nan=False, allow_infinity=False)
    if spec.kind == "flag":
        return st.booleans()
    if spec.kind == "choice":
        return st.sampled_from(spec.choices)
    if spec.kind == "precision":
        return st.sampled_from(["fp32", "fp16", "bf16", "fp8", "int8", "int4"])
    return None


@pytest.mark.parametrize("name", [n for n in NAMES if not n.endswith("Optimizer")])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(data=st.data())
def test_any_valid_numbers_give_an_answer_or_a_sentence(name: str, data: st.DataObject) -> None:
    strategies = {f: s for f, spec in type(resolver(name)).inputs.items() if (s := valid(spec)) is not None}
    chosen = data.draw(st.lists(st.sampled_from(sorted(strategies)), max_size=4, unique=True)) if strategies else []
    changes = {field: data.draw(strategies[field], label=field) for field in chosen}
    try:
        outcome = solve(name, **changes)
    except MLSysError as error:
        one_sentence(error)
        return
    assert all(not math.isnan(n) for n in numbers_in(outcome.to_dict()))
    mfu = getattr(outcome, "mfu", None)
    assert mfu is None or 0 <= mfu <= 1 + 1e-9


# --- the catalogue ---------------------------------------------------------------------------------------------


def test_the_walls_of_the_paper_and_those_after_them() -> None:
    assert [card.number for card in walls()] == list(range(1, len(walls()) + 1))
    assert {d: [c.number for c in cards if c.number <= 22] for d, cards in taxonomy().items()} == {
        "Node": [1, 2, 3, 4, 5, 6, 7],
        "Data": [8, 9, 10],
        "Algorithm": [11, 12, 13],
        "Fleet": [14, 15, 16],
        "Operations": [17, 18, 19, 20],
        "Analysis": [21, 22],
    }
    for card in walls():
        assert card.resolver in RESOLVERS and card.equation and card.reference and card.question.endswith("?")
        assert card.number in type(resolver(card.resolver)).walls
    assert wall(14).name == "Communication"
    assert [c.number for c in walls_for_resolver("SingleNodeModel")] == [1, 2]
    assert [c.number for c in walls_in_domain("fleet")][:3] == [14, 15, 16]
    with pytest.raises(InputError, match=f"1 to {len(walls())}"):
        wall(len(walls()) + 1)


def test_cards_read_off_the_source_are_those_of_the_modules() -> None:
    modules = {import_module(home) for home in RESOLVERS.values()}
    assert sum(getattr(module, "CARDS", "").count("?\n") for module in modules) == len(walls())
    declared = {
        name: module.__name__
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Resolver) and value.__module__ == module.__name__
    }
    assert declared == RESOLVERS


def test_walls_are_found_by_what_people_call_them() -> None:
    """Every word means one wall, and none hides a wall's own name."""
    names = {fold(card.name) for card in walls()}
    assert not names & set(WALLS)
    assert all(wall(word).number == number for word, number in WALLS.items())
    assert wall("KV cache").name == "Batching" and wall("scaling laws").name == "Complexity"
