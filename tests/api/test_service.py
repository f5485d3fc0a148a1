"""The operations without a transport: they answer as the engine does, deterministically, with one sentence where they do not."""

from __future__ import annotations

import json

import pytest
from examples_answered import answered
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.api.documents import Malformed, dump, parse
from mlsysim.api.limits import Limits
from mlsysim.api.service import OPERATIONS, call
from mlsysim.errors import InputError
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import ServingPart
from mlsysim.plans.schema import SAID
from mlsysim.units.registry import Q_
from mlsysim.walls.catalog import TITLES

EXAMPLES = [(op.name, words) for op in OPERATIONS.values() for words in op.examples]


def error(name, document, **limits):
    reply = call(name, document, Limits(**limits))
    assert reply.kind is not None, reply.document
    return reply.document["error"]


@pytest.mark.parametrize(("name", "words"), EXAMPLES)
def test_every_example_is_answered(name, words):
    reply = answered(name, words)
    assert reply.kind is None, reply.document
    json.loads(dump(reply.document), parse_constant=pytest.fail)


def test_evaluate_says_what_the_engine_says():
    document = OPERATIONS["evaluate"].examples["a training plan with a limit"]["plan"]
    answer = evaluate(document, change=False)
    told = call("evaluate", {"plan": document, "change": False}).document
    assert told["headline"] == answer.headline
    assert told["metrics"]["performance.mfu"]["value"] == answer.value("mfu")
    assert told["checks"][0]["passed"] == answer.checks[0].passed
    assert told["plan"] == answer.plan.document()


def test_train_and_serve_are_plans_written_flat():
    flat = {"model": "Llama3_8B", "on": "8xH100", "batch_size": 256, "seq_len": 8192, "layout": {"tp": 2, "zero": 1}}
    plan = {
        "task": "training",
        "workload": {"model": "Llama3_8B", "batch_size": 256, "seq_len": 8192},
        "hardware": {"on": "8xH100"},
        "parallelism": {"tp": 2, "zero": 1},
    }
    assert call("train", flat).document == call("evaluate", {"plan": plan}).document
    served = {"model": "Llama3_8B", "on": "H100", "prompt_tokens": 512, "concurrency": 4, "tp": 1, "ttft": "1 s"}
    plan = {
        "task": "serving",
        "workload": {"model": "Llama3_8B"},
        "hardware": {"on": "H100"},
        "parallelism": {"tp": 1},
        "serving": {"prompt_tokens": 512, "concurrency": 4, "ttft": "1 s"},
    }
    assert call("serve", served).document == call("evaluate", {"plan": plan}).document


def test_a_summary_is_a_part_of_the_whole():
    asked = {"model": "Llama3_8B", "on": "8xH100", "change": False}
    whole, part = (call("train", {**asked, "detail": detail}).document for detail in ("full", "summary"))
    assert part.items() <= whole.items()
    assert "equations" in whole and "equations" not in part and part["metrics"]


def test_explain_gives_the_equations_of_the_metric():
    told = call("explain", OPERATIONS["explain"].examples["model FLOP utilisation"]).document
    assert told["metric"]["name"] == "mfu" and told["equations"]
    assert told["equations"][0]["text"] == "MFU = F / (N T P)" and set(told["sources"]) == {"model", "hardware"}


def test_compare_gives_the_factor():
    told = call("compare", OPERATIONS["compare"].examples["two chips"]).document
    change = told["changes"]["performance.tokens_per_second"]
    first, second = (
        told[side]["metrics"]["performance.tokens_per_second"]["value"]["magnitude"] for side in ("first", "second")
    )
    assert change["factor"] == pytest.approx(second / first)


def test_a_sweep_says_by_what_its_best_is_best():
    plan = {"model": "Llama3_8B", "on": "8xH100", "tokens": "1B"}
    places = call("sweep", {**plan, "over": {"region": ["Poland", "Quebec"]}})
    assert (places.document["best"], places.document["best_by"]) == (None, "tokens a second")
    assert "All alike in tokens a second." in places.words and "carbon of electricity" in places.words
    formats = call("sweep", {**plan, "over": {"precision": ["bf16", "fp8"]}})
    assert (
        formats.document["best"] == {"precision": "fp8"} and "Best by tokens a second: precision fp8." in formats.words
    )
    one = call("sweep", {"model": "Llama3_70B", "on": "H100", "task": "serving", "over": {"tp": [1]}})
    assert one.document["best"] is None and one.words.startswith("1 combination of tp, 0 fit. None of them fits.")


def test_plans_of_a_comparison_may_be_text():
    beside = call("compare", {"task": "serving", "model": "Llama3_8B", "first": "H100", "second": "H200"}).document
    whole = call("compare", {"task": "serving", "first": "Llama3_8B@H100", "second": "Llama3_8B@H200"}).document
    plans = {"first": {"on": "H100"}, "second": {"on": "H200"}}
    assert beside == whole == call("compare", {"task": "serving", "model": "Llama3_8B", **plans}).document


@pytest.mark.parametrize("metric", ["ttft", "Time to the first token", "time to first token"])
def test_a_metric_is_asked_for_by_its_label_too(metric):
    asked = {"model": "Llama3_8B", "on": "1xH100", "task": "serving"}
    assert call("explain", asked | {"metric": metric}).document == call("explain", asked | {"metric": "ttft"}).document


def test_a_metric_of_another_task_is_said_to_be_one():
    asked = {"task": "inference", "model": "Llama3_8B", "on": "H100", "metric": "ttft"}
    sentence = call("explain", asked).document["error"]["sentence"]
    assert "its task is inference, which gives memory," in sentence


def test_sweep_finds_what_a_full_search_finds():
    """112 points: the least cost among those within 50 ms, by hand over what a sweep without a limit lists."""
    space = OPERATIONS["sweep"].examples["decode on hypothetical chips"]["space"]
    told = call("sweep", {"space": space}).document
    every = call("sweep", {"space": {**space, "subject_to": [], "top": 1000}}).document
    assert told["size"] == 8 * 2 * 7 == every["size"]
    allowed = [point["outputs"]["usd_per_mtoken"] for point in every["best"] if point["outputs"]["latency_s"] <= 0.05]
    assert told["best"][0]["outputs"]["usd_per_mtoken"] == min(allowed)
    assert told["feasible"] == len(allowed)
    best = call("optimize", {"what": "space", "space": space}).document
    assert best["value"] == min(allowed)
    assert not {"seconds", "points_per_second"} & set(told)


def test_the_least_fleet_of_a_serving_plan_is_a_plan_that_serve_repeats():
    plan = {"model": "Llama3_8B", "qps": 5.0, "prompt_tokens": 500, "output_tokens": 100, "slo": "tpot=20ms"}
    found = call("plan", {**plan, "on": ["H100", "L40S"]}).document
    first = found["candidates"][0]
    assert first["chip"] == "H100" and first["accelerators"] == 1 and first["headroom"] > 1
    assert found["best"]["plan"] == first["plan"] and "answer" not in first
    again = evaluate(Plan.model_validate(first["plan"]), change=False)
    assert again.passed and again.headline == first["headline"]


def test_zoo_filters_sorts_and_pages():
    asked = {"kind": "hardware", "filter": ["vendor=NVIDIA", "memory.capacity>=80GB"], "sort": "memory.bandwidth"}
    told = call("zoo", asked).document
    rates = [float(Q_(entry["bandwidth"].replace(",", "")).to("TB/s").magnitude) for entry in told["entries"]]
    assert rates == sorted(rates, reverse=True) and len(rates) == told["total"] > 5
    assert (
        call("zoo", asked | {"filter": "vendor=NVIDIA"}).document
        == call("zoo", asked | {"filter": ["vendor=NVIDIA"]}).document
    )
    page = call("zoo", {**asked, "offset": 2, "limit": 3}).document
    assert page["entries"] == told["entries"][2:5] and page["total"] == told["total"]
    entry = call("zoo", {"kind": "hardware", "name": told["entries"][0]["key"]}).document["entry"]
    alike = call("zoo", {"name": "mixtral"}).document
    assert {each["key"] for each in alike["entries"]} == {"Mixtral_8x7B", "Mixtral_8x22B"} and alike["total"] == 2
    assert entry["name"] == told["entries"][0]["name"] and entry["metadata"]["sources"]


@pytest.mark.parametrize(
    "text", ["__class__=x", "memory.__init__.__globals__=x", "model_dump=x", "metadata.sources.0=x", "vendor"]
)
def test_filters_reach_declared_fields_alone(text):
    assert error("zoo", {"kind": "hardware", "filter": [text]})["kind"] in ("unknown_name", "input")


def test_walls_and_schema():
    assert [wall["number"] for wall in call("walls", {}).document["walls"]] == list(TITLES)
    assert call("walls", {"number": 14}).document["name"]
    assert "workload" in call("schema", {"type": "plan"}).document["properties"]
    assert call("schema", {"type": "space.node"}).document["properties"]["kind"] == {"const": "node"}


@pytest.mark.parametrize(
    ("name", "document", "kind", "field", "words"),
    [
        ("train", {"modell": "x", "on": "H100"}, "input", "modell", "did you mean 'model'"),
        ("train", {"model": "Llama3_70"}, "input", "on", "needs the 'on' field"),
        ("train", {"model": "Llama3_70", "on": "8xH100"}, "unknown_name", None, "Llama3_70B"),
        ("train", {"model": "Llama3_8B", "on": "8xH100", "duration": "5 GB"}, "input", "duration", "expected a time such as"),
        ("train", {"model": "Llama3_8B", "on": "8xH100", "batch_size": 0}, "input", "batch_size", "expected at least 1"),
        ("evaluate", {"plan": {"workload": {"modl": "x"}}}, "input", "plan.workload.modl", "did you mean 'model'"),
        ("evaluate", [], "malformed", None, "takes a JSON object, got an array"),
        ("evalute", {}, "unknown_name", None, "did you mean 'evaluate'"),
        ("explain", {"plan": {"workload": {"model": "ResNet50"}, "hardware": {"on": "A100"}}, "metric": "mfuu"}, "unknown_name", None, "mfu"),
        ("zoo", {"sort": "tdp"}, "input", "kind", "hardware, models, systems or grids"),
        ("zoo", {"kind": "hardware", "sort": "memory"}, "input", "sort", "no number or text"),
        ("optimize", {"what": "placement"}, "input", "plan", "give 'plan'"),
        ("optimize", {"what": "space", "space": {}, "qps": 1}, "input", "qps", "has no meaning for 'space'"),
        ("schema", {"type": "plane"}, "unknown_name", None, "did you mean 'plan'"),
        ("sweep", {"space": {"kind": "node", "axes": {"hardware": {"zoo": "Hardware._store"}}}}, "unknown_name", None, "_store"),
        ("sweep", {"space": {"kind": "node", "axes": {"hardware": {"zoo": "Hardware", "where": {"where": 1}}}}}, "unknown_name", None, "where"),
        ("sweep", {"space": {"kind": "node", "fixed": {"model": "ResNet50", "hardware": "H100"}, "axes": {"batch_size": [1, 2]}, "constraints": ["'a' * 9999999999 == 'b'"]}}, "input", None, "'a' * 9999999999"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence(name, document, kind, field, words):
    told = error(name, document)
    assert told["kind"] == kind
    assert told.get("field") == field
    assert words in told["sentence"]
    assert "\n" not in told["sentence"]


@pytest.mark.parametrize(
    ("axes", "size"),
    [
        ({"batch_size": {"range": [1, 1e9]}}, 10**9),
        ({"batch_size": {"range": [1, 2000]}, "seq_len": {"range": [1, 2000]}}, 4_000_000),
        ({"bandwidth": {"range": [1, 8], "count": 10**9, "unit": "TB/s"}}, 10**9),
        ({"batch_size": list(range(1, 1102))}, 1101),
        ({"batch_size": {"divisors_of": 735_134_400}}, 1344),
    ],
)
def test_a_space_over_the_limit_is_refused_before_it_is_made(axes, size):
    told = error(
        "sweep",
        {"space": {"kind": "node", "axes": axes, "fixed": {"model": "Llama3_8B", "hardware": "H100"}}},
        max_points=1000,
    )
    assert told["kind"] == "limit" and f"{size:,}" in told["sentence"] and "at most 1,000" in told["sentence"]


def test_draws_count_as_points():
    space = {
        **OPERATIONS["sweep"].examples["decode on hypothetical chips"]["space"],
        "uncertain": {"efficiency": "0.3..0.6"},
    }
    assert call("sweep", {"space": {**space, "samples": 8}}, Limits(max_points=1000)).kind is None
    told = error("sweep", {"space": {**space, "samples": 9}}, max_points=1000)
    assert told["kind"] == "limit" and "1,008 points times 9 draws" in told["sentence"]


def test_limits_are_checked():
    for bad in ({"timeout": 0}, {"workers": 0}, {"max_body": -1}, {"max_points": float("nan")}, {"waiting": True}):
        with pytest.raises(InputError, match=next(iter(bad))):
            Limits(**bad)


# --- documents ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": 1e999}', "too large for a double"),
        (b'{"a": 1, "a": 2}', "'a' twice"),
        (b"[" * 40 + b"]" * 40, "more than 32 levels"),
        (b"[" * 100_000, "more than 32 levels"),
        (b'"\\ud800"', "surrogate"),
        (b"1" * 5000, "too many digits"),
        (b"1" * 40, "10^30"),
    ],
)
def test_json_that_cannot_be_used_is_refused(text, words):
    with pytest.raises(Malformed, match=words.replace("^", r"\^")):
        parse(text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**29), 10**29) | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=4),
)  # fmt: skip


@given(_JSON)
def test_documents_go_round(document):
    assert parse(dump(document)) == document


def test_what_is_not_finite_is_null():
    assert json.loads(dump({"a": float("inf"), "b": [float("nan"), Q_("3 GB")]})) == {
        "a": None,
        "b": [None, {"magnitude": 3, "unit": "GB"}],
    }


@pytest.mark.parametrize("name", ["train", "serve"])
def test_a_flat_request_takes_every_name_of_every_key(name):
    request = OPERATIONS[name].request
    schema = request.model_json_schema(by_alias=True)
    for leaf in Plan.leaves().values():
        if request.task not in leaf.tasks or leaf.key in SAID:
            continue
        assert schema["properties"][leaf.flat]["description"], leaf.key
        for alias in (*leaf.names, leaf.key):
            with pytest.raises(InputError) as caught:
                # No key takes a list of lists, so that each says its own name.
                request.model_validate({"model": "Llama3_8B", "on": "8xH100", alias: [[]]})
            assert caught.value.details["field"].startswith((leaf.flat, leaf.key)), (alias, str(caught.value))


def test_a_limit_means_the_same_everywhere():
    meaning = ServingPart.model_fields["latency"].description
    assert OPERATIONS["serve"].request.model_json_schema()["properties"]["latency"]["description"] == meaning
    assert "mean" in meaning
    served = {"model": "Llama3_8B", "on": "8xH100", "isl": 1000, "osl": 100, "concurrency": 8, "change": False}
    answer = call("serve", served).document
    took = answer["metrics"]["performance.latency"]["value"]
    checked = call("serve", {**served, "latency": f"{took['magnitude'] * 1.001} {took['unit']}"}).document
    assert checked["checks"][0]["passed"]
    assert not call("serve", {**served, "latency": f"{took['magnitude'] * 0.999} {took['unit']}"}).document["checks"][
        0
    ]["passed"]


def test_flat_and_in_parts_are_one_request():
    flat = call(
        "train", {"model": "Llama3_8B", "fleet": "8xH100", "tp_size": 2, "zero_stage": 1, "batch": 64, "change": False}
    )
    parts = {"model": "Llama3_8B", "on": "8xH100", "layout": {"tp": 2, "zero": 1}, "batch_size": 64, "change": False}
    assert flat.kind is None and flat.document == call("train", parts).document
    assert error("train", {**parts, "task": "serving"})["field"] == "task"
