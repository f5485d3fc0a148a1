"""solve() with uncertain inputs: known answers, laws, every resolver, and sentences for what cannot vary."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
import warnings
from typing import Any

import pytest
from examples_of_resolvers import CALLS, HOMES, resolver
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim import (
    Q_,
    EconomicsModel,
    Grids,
    Hardware,
    InputError,
    ReliabilityModel,
    SingleNodeModel,
    Systems,
    TailLatencyModel,
    Uncertain,
    UncertainResult,
    uncertain,
)
from mlsysim.errors import DataWarning, UnknownNameError
from mlsysim.units.registry import Quantity
from mlsysim.walls.inputs import Input
from mlsysim.walls.uncertain_result import percentile

NAMES = sorted(HOMES)
PREFILL: dict[str, Any] = {
    "model": "Llama3_8B",
    "hardware": "H100",
    "batch_size": 8,
    "seq_len": 4096,
    "phase": "prefill",
}


def solve(name: str, **given: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return resolver(name).solve(**given)


# --- known answers --------------------------------------------------------------------------------------------


def test_uniform_efficiency_of_a_compute_bound_pass() -> None:
    """T = F / (P eta): the p-th percentile of T is at the (1-p)-th of eta, and E[T] = F/P ln(b/a) / (b - a)."""
    found = SingleNodeModel().solve(**PREFILL, efficiency=uncertain("0.3..0.6"), samples=1000)
    work = SingleNodeModel().solve(**PREFILL, efficiency=1.0).latency_compute.to("s").magnitude
    assert found.binding_probability == {"Compute": 1.0} and found.feasible_probability == 1.0
    for share in (5, 25, 50, 75, 95):
        expected = work / (0.6 - 0.3 * share / 100)
        assert getattr(found.latency_compute, f"p{share}").to("s").magnitude == pytest.approx(expected, rel=1e-3)
    mean = work * math.log(2) / 0.3
    assert found.latency_compute.mean.to("s").magnitude == pytest.approx(mean, rel=1e-4)


def test_the_share_of_draws_beyond_the_ridge() -> None:
    """Compute binds where eta < t_compute(1) / t_memory: with eta uniform on (0, 1] that share binds by compute."""
    call = {**PREFILL, "seq_len": 64, "batch_size": 1}
    one = SingleNodeModel().solve(**call, efficiency=1.0)
    ridge = float((one.latency_compute / one.latency_memory).to("").magnitude)
    assert 0.05 < ridge < 0.95
    found = SingleNodeModel().solve(**call, efficiency=Uncertain.uniform(1e-9, 1.0), samples=1000)
    assert found.binding_probability["Compute"] == pytest.approx(ridge, abs=3e-3)
    assert sum(found.binding_probability.values()) == pytest.approx(1)
    assert found.shares["bottleneck"] == found.binding_probability


def test_carbon_is_proportional_to_the_intensity() -> None:
    call = {"fleet": "Research_256", "duration_days": 30, "grid": "Quebec"}
    at_one = EconomicsModel().solve(**call).carbon_footprint_kg / Grids.Quebec.carbon_intensity_g_kwh
    found = EconomicsModel().solve(**call, uncertain={"grid.carbon_intensity_g_kwh": "20..40 gCO2e/kWh"})
    assert found.carbon_footprint_kg.p50 == pytest.approx(30 * at_one, rel=1e-3)
    assert found.carbon_footprint_kg.p5 == pytest.approx(21 * at_one, rel=1e-3)


def test_probability_that_memory_suffices() -> None:
    """A model that needs x bytes fits in the share of a uniform capacity that lies above x."""
    need = SingleNodeModel().solve("Llama3_70B", "H100").memory_footprint.to("GB").magnitude
    found = SingleNodeModel().solve("Llama3_70B", "H100", uncertain={"hardware.memory.capacity": "100..200 GB"})
    assert found.feasible_probability == pytest.approx((200 - need) / 100, abs=2e-3)
    assert not found.feasible and found.binding_probability["Memory"] == 1.0


def test_probability_of_a_limit_and_drivers() -> None:
    found = SingleNodeModel().solve(
        **PREFILL, efficiency=uncertain("0.3..0.6"), uncertain={"hardware.memory.bandwidth": "3.0..3.35 TB/s"}
    )
    assert found.probability("latency", found.latency.p95) == pytest.approx(0.95, abs=2e-3)
    assert found.probability("latency", "1 h") == 1 and found.probability("mfu", 0) == 0
    drivers = found.drivers("latency_compute")
    assert next(iter(drivers)) == "efficiency" and drivers["efficiency"] == pytest.approx(-1)
    assert abs(drivers["hardware.memory.bandwidth"]) < 0.1
    with pytest.raises(InputError, match="at_most"):
        found.probability("latency", "3 byte")
    with pytest.raises(UnknownNameError, match="latency"):
        found.drivers("latncy")


def test_one_object_twice_is_one_draw() -> None:
    """Traffic and service that rise together leave the ratio alone; drawn apart they do not."""
    call = {"fleet": "Research_256", "duration_days": 30, "grid": "Quebec"}
    same = Uncertain.uniform(0.3, 0.6)

    def spread(first: Any, second: Any) -> float:
        found = EconomicsModel().solve(**call, mfu=first, utilization=second)
        return float(found.total_energy_kwh.p95.magnitude - found.total_energy_kwh.p5.magnitude)

    assert spread(same, same) > 1.2 * spread(same, Uncertain.uniform(0.3, 0.6))


def test_the_peak_moves_all_precisions() -> None:
    for precision in ("fp16", "fp8"):
        base = SingleNodeModel().solve(**PREFILL, precision=precision)
        found = SingleNodeModel().solve(
            **PREFILL, precision=precision, uncertain={"hardware.compute.peak_flops": "1978..1978 TFLOPs/s"}, samples=1
        )
        assert (base.latency_compute / found.latency_compute.p50).to("").magnitude == pytest.approx(2)


def test_names_may_be_chosen() -> None:
    found = EconomicsModel().solve("Research_256", 30, grid=Uncertain.choice(["Quebec", "Poland"], [3, 1]), samples=400)
    assert found.shares["region_name"] == {"Quebec (Hydro)": 0.75, Grids.Poland.name: 0.25}


def test_whole_inputs_get_whole_draws() -> None:
    found = TailLatencyModel().solve(80.0, 100.0, num_replicas=uncertain("10..13"), samples=400)
    assert set(found._inputs["num_replicas"]) == {10, 11, 12, 13}
    bell = TailLatencyModel().solve(80.0, 100.0, num_replicas=uncertain("12.5 ± 1.5"), samples=200)
    assert all(isinstance(count, int) for count in bell._inputs["num_replicas"])


# --- laws -----------------------------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(st.floats(0.05, 0.4), st.floats(0.001, 0.1))
def test_a_wider_range_gives_a_wider_interval(middle: float, half: float) -> None:
    def width(reach: float) -> float:
        found = SingleNodeModel().solve(
            **PREFILL, efficiency=Uncertain.uniform(middle - reach, middle + reach), samples=50
        )
        return float((found.latency.p95 - found.latency.p5).magnitude)

    assert width(half * 0.4) < width(half * 0.45)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ParallelismOptimizer"])
def test_a_range_of_one_value_is_the_certain_answer(name: str) -> None:
    field, value = numeric_input(name)
    certain = solve(name, **{**CALLS[name], field: value})
    found = solve(name, **{**CALLS[name], field: Uncertain.uniform(value, value)}, samples=2)
    assert isinstance(found, UncertainResult)
    assert found.feasible == certain.feasible and found.binding_probability == {certain.binding.name: 1.0}
    assert found.outputs
    for output, spread in found.outputs.items():
        owner, _, key = output.partition(".")
        expected = getattr(certain, owner)
        expected = expected[key] if key else expected
        for answer in (spread.p5, spread.p50, spread.p95, spread.mean):
            assert answer == expected, output
            assert isinstance(answer, Quantity) == isinstance(expected, Quantity)


def numeric_input(name: str) -> tuple[str, Any]:
    """A number or quantity that the resolver takes, and a value for it."""
    inputs = type(resolver(name)).inputs
    defaults = {field: spec.default for field, spec in inputs.items() if spec.default is not None and not spec.required}
    # Degrees of parallelism and other whole numbers do not all divide.
    for whole in (False, True):
        for field, value in {**CALLS[name], **{f: v for f, v in defaults.items() if f not in CALLS[name]}}.items():
            if inputs[field].kind in ("number", "quantity", "efficiency") and inputs[field].whole == whole:
                return field, Q_(value) if isinstance(value, str) else value
    raise AssertionError(f"{name} takes no number")


@pytest.mark.parametrize("name", NAMES)
def test_every_resolver_takes_an_uncertain_number(name: str) -> None:
    field, value = numeric_input(name)
    spec: Input = type(resolver(name)).inputs[field]
    high = value * 2 if spec.whole else value * 1.01
    if spec.high is not None and not isinstance(value, Quantity) and high > spec.high:
        value, high = value * 0.9, value
    few = 2 if name in ("ParallelismOptimizer", "BatchingOptimizer") else 12
    found = solve(name, **{**CALLS[name], field: Uncertain.uniform(value, high)}, samples=few)
    assert isinstance(found, UncertainResult) and found.samples == few
    assert sum(found.binding_probability.values()) == pytest.approx(1)
    assert 0 <= found.feasible_probability <= 1
    assert found.assumptions[field] == found.distributions[field]
    for spread in found.outputs.values():
        assert spread.p5 <= spread.p25 <= spread.p50 <= spread.p75 <= spread.p95
    text = found.to_json()
    assert "NaN" not in text and json.loads(text)["outputs"]
    assert all(len(found.explain(style)) > 100 for style in ("text", "markdown", "latex"))
    assert found._repr_html_().count("<table>") == 1


def test_seed_and_samples() -> None:
    def answer(**more: Any) -> dict[str, Any]:
        found = SingleNodeModel().solve(**PREFILL, efficiency=uncertain("0.3..0.6"), **more)
        assert isinstance(found, UncertainResult)
        return found.to_dict()

    assert answer(samples=100, seed=3) == answer(samples=100, seed=3)
    assert answer(samples=100, seed=3)["outputs"] != answer(samples=100, seed=4)["outputs"]
    assert answer()["samples"] == 1000


def test_without_anything_uncertain_it_is_the_ordinary_answer() -> None:
    certain = SingleNodeModel().solve(**PREFILL)
    for more in ({"samples": 10}, {"seed": 1}, {"uncertain": {}}, {"uncertain": None}):
        assert SingleNodeModel().solve(**PREFILL, **more).to_dict() == certain.to_dict()


def test_inputs_by_place_and_by_name_give_the_same() -> None:
    eta = uncertain("0.3..0.6")
    by_name = SingleNodeModel().solve("Llama3_8B", "H100", efficiency=eta, samples=20)
    mapped = SingleNodeModel().solve("Llama3_8B", "H100", uncertain={"efficiency": "0.3..0.6"}, samples=20)
    by_place = SingleNodeModel().solve("Llama3_8B", "H100", 1, "fp16", eta, samples=20)
    assert by_name.to_dict()["outputs"] == mapped.to_dict()["outputs"] == by_place.to_dict()["outputs"]


def test_fields_of_objects_leave_the_zoo_alone() -> None:
    before = Hardware.H100.memory.bandwidth
    found = ReliabilityModel().solve(
        fleet=Systems.Clusters.Research_256, job_duration_hours=720, uncertain={"fleet.mtbf_hours": "20..80 h"}
    )
    assert found.fleet_mtbf.p50.to("h").magnitude == pytest.approx(50, rel=1e-2)
    SingleNodeModel().solve("Llama3_8B", "H100", uncertain={"hardware.memory.bandwidth": "1..2 TB/s"}, samples=5)
    assert Hardware.H100.memory.bandwidth == before


def test_two_fields_of_one_object() -> None:
    found = SingleNodeModel().solve(
        "Llama3_8B",
        "H100",
        uncertain={"hardware.memory.bandwidth": "1..2 TB/s", "hardware.dispatch_tax": "1..2 ms"},
        samples=200,
    )
    assert found.latency_overhead.p50.to("ms").magnitude == pytest.approx(1.5, rel=1e-2)
    assert found.peak_bw_actual.p50.to("TB/s").magnitude == pytest.approx(1.5, rel=1e-2)


def test_results_survive_pickling() -> None:
    found = SingleNodeModel().solve(**PREFILL, efficiency=uncertain("0.3..0.6"), samples=10)
    again = pickle.loads(pickle.dumps(found))
    assert again.to_dict() == found.to_dict() and again.latency == found.latency


# --- sentences ------------------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"efficiency": Uncertain.uniform(0.5, 1.6)}, "at most 1, got 1.6"),
    ({"efficiency": Uncertain.uniform(0.0, 0.5)}, "above 0"),
    ({"efficiency": Uncertain.normal(1.5, 0.1)}, "at most 1, got 1.5"),
    ({"efficiency": uncertain("1..2 TB/s")}, "efficiency"),
    ({"batch_size": Uncertain.uniform(1.5, 3)}, "whole number"),
    ({"uncertain": {"efficency": "0.3..0.6"}}, "did you mean 'efficiency'"),
    ({"uncertain": {"efficiency": "0.6..0.3"}}, "'efficiency' of 'uncertain'"),
    ({"uncertain": {"hardware.memory.bandwith": "1..2 TB/s"}}, "did you mean 'bandwidth'"),
    ({"uncertain": {"hardware.memory.bandwidth": "1..2"}}, "no unit"),
    ({"uncertain": {"hardware.memory.bandwidth": "1..2 TFLOPs/s"}}, "expected a bandwidth such as '3.35 TB/s'"),
    ({"uncertain": {"hardware.name": "1..2"}}, "not a number"),
    ({"uncertain": {"hardware.memory": "1..2"}}, "not a number"),
    ({"uncertain": {"hardware.battery.capacity": "1..2"}}, "no field of HardwareNode"),
    ({"uncertain": {"model.name.length": "1..2"}}, "no fields"),
    ({"uncertain": {"seq_len.value": "1..2"}}, "not given"),
    ({"uncertain": {"phase": "1..2"}}, "phase"),
    ({"uncertain": ["efficiency"]}, "must be a mapping"),
    ({"uncertain": {"batch_size": "1..2"}, "batch_size": 4}, "as an input and under 'uncertain'"),
    ({"efficiency": uncertain("0.3..0.6"), "samples": 0}, "'samples'"),
    ({"efficiency": uncertain("0.3..0.6"), "samples": 1.5}, "whole number"),
    ({"efficiency": uncertain("0.3..0.6"), "samples": 10**9}, "at most"),
    ({"efficiency": uncertain("0.3..0.6"), "seed": -1}, "'seed'"),
    ({"efficiency": uncertain("0.3..0.6"), "sample": 5}, "sample"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=lambda value: str(value)[:40])
def test_refuses_with_one_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        SingleNodeModel().solve("Llama3_8B", "H100", **given)
    text = str(caught.value)
    assert words in text and "\n" not in text and text[-1] in ".?", text


def test_an_object_and_its_field_cannot_both_vary() -> None:
    with pytest.raises(InputError, match=r"cannot both vary|not given"):
        SingleNodeModel().solve(
            "Llama3_8B",
            uncertain={"hardware": "choice(H100, A100)", "hardware.memory.bandwidth": "1..2 TB/s"},
        )


def test_a_draw_that_is_refused_says_where() -> None:
    with pytest.raises(InputError, match=r"At tp_size = \d+: .*divide"):
        solve("DistributedModel", **{**CALLS["DistributedModel"], "tp_size": uncertain("1..16")}, samples=40)


def test_an_output_that_is_not_there() -> None:
    found = SingleNodeModel().solve(**PREFILL, efficiency=uncertain("0.3..0.6"), samples=5)
    with pytest.raises(AttributeError, match="did you mean 'latency'"):
        _ = found.latenzy
    with pytest.raises(InputError, match="style"):
        found.explain("pdf")


@pytest.mark.parametrize("name", NAMES)
def test_no_resolver_has_an_input_of_these_names(name: str) -> None:
    assert not {"uncertain", "samples", "seed"} & set(type(resolver(name)).inputs)


def test_runs_without_numpy() -> None:
    script = (
        "import sys; sys.modules['numpy'] = None\n"
        "from mlsysim import SingleNodeModel\n"
        "call = {'uncertain': {'efficiency': '0.4 ± 0.1', 'hardware.memory.bandwidth': '3..3.3 TB/s'}, 'samples': 20}\n"
        "print(SingleNodeModel().solve('Llama3_8B', 'H100', **call).explain())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("SingleNodeModel, 20 draws (Latin hypercube, seed 0)")


# --- percentiles ----------------------------------------------------------------------------------------------


def test_percentiles_interpolate_and_keep_infinities() -> None:
    assert percentile([1, 2, 3, 4, 5], 50) == 3
    assert percentile([1.0, 2.0], 25) == 1.25
    assert percentile([1.0, math.inf], 50) == math.inf
    assert percentile([math.inf, math.inf], 50) == math.inf
    assert percentile([7], 95) == 7
