"""JSON of every result reads back into an equal result, with quantities."""

from __future__ import annotations

import json
import math

import pytest
from examples_of_resolvers import CALLS, resolver
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mlsysim
from mlsysim import Scenarios
from mlsysim.engine.evaluation import SystemEvaluation
from mlsysim.errors import InputError, MLSysError
from mlsysim.units.registry import Quantity
from mlsysim.units.uncertain import Uncertain
from mlsysim.walls.binding import Binding
from mlsysim.walls.document import as_plain, finite, from_plain
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.node.tail import TailLatencyModel


@pytest.mark.parametrize("name", sorted(CALLS))
def test_every_result_reads_back(name, tmp_path):
    result = resolver(name).solve(**CALLS[name])
    kind, file = type(result), tmp_path / "result.json"
    file.write_text(result.to_json(indent=1), encoding="utf-8")
    again = kind.model_validate_json(file.read_text(encoding="utf-8"))
    assert again == kind.model_validate_json(result.json())
    assert again == result and again.to_json() == result.to_json()
    assert kind.from_dict(result.to_dict()) == result
    for field in kind.model_fields:
        value, read = getattr(result, field), getattr(again, field)
        assert type(read) is type(value) or (isinstance(read, Binding) and isinstance(value, Binding)), field
        if isinstance(value, Quantity):
            assert read.units == value.units


_SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=9)
_UNITS = st.sampled_from(["s", "byte", "TFLOPs/s", "USD/kWh", "gCO2e/kWh", "1/s", "GB/s", "L/kWh", "", "MWh", "Bparam"])
_QUANTITIES = st.builds(Quantity, st.floats(allow_nan=False), _UNITS)
_TABLES = st.recursive(
    _SCALARS.filter(lambda v: v not in ("Infinity", "-Infinity")) | _QUANTITIES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(_TABLES)
def test_what_is_written_plainly_is_read(value):
    written = json.dumps(finite(as_plain(value), named=True), allow_nan=False)
    assert from_plain(json.loads(written)) == value


def test_an_infinite_time_reads_back():
    result = TailLatencyModel().solve(arrival_rate_qps=300.0, service_latency_ms=100.0, num_replicas=10)
    endless = result.model_copy(update={"p99_latency": Quantity(math.inf, "s")})
    assert type(result).model_validate_json(endless.to_json()) == endless


def test_a_result_of_draws_reads_back():
    found = SingleNodeModel().solve("Llama3_8B", "H100", efficiency=Uncertain.uniform(0.3, 0.6), samples=20)
    again = type(found).model_validate_json(found.to_json())
    assert again == found and again.latency == found.latency
    with pytest.raises(InputError, match=r"^The draws behind this result were not written with it"):
        again.probability("latency", "1 s")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", r"^A PerformanceProfile is read from JSON, and this is none: "),
        ("[]", r"^A PerformanceProfile is read from a table of its fields, got list\.$"),
        ('{"latencies": 1}', r"^There is no field of PerformanceProfile named 'latencies'; did you mean 'latency'"),
        ("{}", r"^PerformanceProfile needs the '.*' field, which was not given\."),
    ],
)
def test_what_is_no_result_is_refused(text, sentence):
    with pytest.raises(InputError, match=sentence):
        SingleNodeModel.result.model_validate_json(text)


@pytest.mark.filterwarnings("ignore::mlsysim.errors.DataWarning")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(CALLS)), st.data())
def test_results_of_other_inputs_read_back(name, data):
    """Any number within its range: what a resolver answers, feasible or not, reads back."""
    solver = resolver(name)
    numeric = [k for k, v in CALLS[name].items() if isinstance(v, (int, float)) and not isinstance(v, bool)]
    changed = dict(CALLS[name])
    for key in numeric:
        factor = data.draw(st.sampled_from([0.25, 0.5, 1, 2, 8, 64]), label=key)
        value = changed[key] * factor
        changed[key] = max(1, round(value)) if isinstance(changed[key], int) else value
    try:
        result = solver.solve(**changed)
    except MLSysError:
        return
    again = type(result).model_validate_json(result.to_json())
    assert again == result and again.to_json() == result.to_json()


def test_pydantics_names_write_and_read_what_ours_do():
    answer = mlsysim.train("Llama3_8B", on="8xH100")
    assert answer.model_dump_json() == answer.to_json()
    assert type(answer).model_validate_json(answer.model_dump_json()).to_dict() == answer.to_dict()
    metric = answer.metric("latency")
    assert type(metric).model_validate_json(metric.model_dump_json()) == metric


@pytest.mark.parametrize(
    "bad", [math.nan, {"magnitude": math.nan, "unit": "s"}, {"magnitude": None, "unit": "s"}, None]
)
def test_a_metric_that_is_no_number_is_refused(bad):
    """It was read, and writing it ended in a StopIteration."""
    told = next(iter(Scenarios)).evaluate().to_dict()
    told["levels"][1]["metrics"]["latency"]["value"] = bad
    with pytest.raises(InputError, match="The 'value' of the metric 'latency' is not a number"):
        SystemEvaluation.from_dict(told)
