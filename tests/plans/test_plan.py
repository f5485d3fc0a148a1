"""Plans as data: what is refused and how, documents and files that come back equal, the original's plan files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.files import load_plan, plan_from_text, plan_schema, plan_to_toml
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_model
from mlsysim.zoo.writing import without_files

BASE = {"workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xH100"}}

names = st.text(min_size=1, max_size=30).filter(lambda text: text.strip() == text)
seconds = st.floats(1e-6, 1e9).map(lambda value: f"{value!r} s")


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    def some(**fields: st.SearchStrategy[object]) -> dict[str, object]:
        return {name: draw(values) for name, values in fields.items() if draw(st.booleans())}

    document: dict[str, object] = {
        "workload": {"model": draw(names)}
        | some(
            batch_size=st.integers(1, 10**6),
            precision=st.sampled_from(["bf16", "fp8", "int4"]),
            tokens=st.floats(1, 1e15),
        ),
        "hardware": {"on": draw(names)}
        | some(efficiency=st.floats(0.01, 1), chip=st.just({"price": "12 USD", "memory_bandwidth": "3.5 TB/s"})),
    } | some(
        name=names,
        description=st.text(max_size=80),
        parallelism=st.sampled_from(["auto", {"tp": 2, "overlap": False}, {"zero": 0}]),
    )
    if draw(st.booleans()):
        document["serving"] = some(
            prompt_tokens=st.integers(1, 10**6), qps=st.floats(0.01, 1e6), ttft=seconds, engine=names
        )
    if draw(st.booleans()):
        document["ops"] = some(
            region=names, deadline=seconds, budget=st.just("5 MUSD"), duration_days=st.floats(0.1, 1000)
        )
    if draw(st.booleans()):
        limit = draw(st.one_of(st.floats(-1e9, 1e9), st.just("3 ms"), st.just({"magnitude": 3, "unit": "ms"})))
        document["constraints"] = {"assert": [{"metric": draw(names), "max": limit}]}
    return Plan.model_validate(document)


@settings(max_examples=60)
@given(plans())
def test_documents_and_toml_come_back_equal(plan: Plan) -> None:
    assert Plan.model_validate(plan.document()) == plan
    assert Plan.model_validate(json.loads(json.dumps(plan.document()))) == plan
    assert plan_from_text(plan_to_toml(plan)) == plan


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[workload]\nmodell = "x"\n[hardware]\non = "H100"', "did you mean 'model'"),
        ('[workload]\nmodel = "x"\n[hardwar]\non = "H100"', "did you mean 'hardware'"),
        ('[workload]\nmodel = "x"\n[hardware]\non = "H100"\n[hardware.chip]\nprise = "1 USD"', "'hardware.chip.prise'"),
        ('[workload]\nmodel = "x"\n[hardware]\non = "H100"\n[ops]\ndeadlin = "1 day"', "did you mean 'deadline'"),
        (
            '[workload]\nmodel = "x"\n[hardware]\non = "H100"\n[[constraints.assert]]\nmetrik = "mfu"\nmax = 1',
            "'metric'",
        ),
        ('[workload]\nmodel = "x"\n[hardware]\nname = "H100"\non = "H100"', "not both"),
        ('[workload]\nmodel = "x"\n[hardware]\non = "H100"\nefficiency = 3.0', "at most 1"),
        ('[workload]\nmodel = "x"\nbatch_size = 0\n[hardware]\non = "H100"', "batch_size"),
        ('[workload]\nmodel = "x"\n[hardware]\non = "H100"\n[ops]\ndeadline = "3 GB"', "expected a time such as"),
        ("[workload", "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_what_was_meant(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        plan_from_text(text, "toml", "my.toml")
    sentence = str(caught.value)
    assert sentence.startswith("my.toml") and said in sentence and "\n" not in sentence


def test_the_originals_plan_file_loads_and_is_first_order(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "plan.yaml"
    path.write_text(
        "version: '1.0'\nname: original\nworkload:\n  name: Llama3_8B\n  batch_size: 32\n  seq_len: 2048\n"
        "hardware:\n  name: H100\n  nodes: 8\n  precision: fp16\n  efficiency: 0.4\n"
        "ops:\n  region: Quebec\n  duration_days: 14\n"
        "constraints:\n  assert:\n    - metric: performance.latency\n      max: 100000\n    - metric: macro.carbon_footprint\n      max: 1.0\n",
        encoding="utf-8",
    )
    plan = load_plan(path)
    assert plan.workload.model == "Llama3_8B" and plan.workload.precision == "fp16" and plan.kind == "training"
    answer = evaluate(plan, change=False)
    assert answer.fidelity == "first order" and answer.exit_code == 3
    assert [check.passed for check in answer.checks] == [True, False]


def test_yaml_anchors_are_not_expanded() -> None:
    pytest.importorskip("yaml")
    with pytest.raises(InputError, match="anchors"):
        plan_from_text("a: &x [1]\nb: *x", "yaml")


def test_plain_numbers_of_assertions_have_a_fixed_unit() -> None:
    slow = evaluate(
        {
            **BASE,
            "task": "inference",
            "hardware": {"on": "H100"},
            "constraints": {"assert": [{"metric": "latency", "max": 1e-3}]},
        }
    )
    fast = evaluate(
        {
            **BASE,
            "task": "inference",
            "hardware": {"on": "H100"},
            "constraints": {"assert": [{"metric": "latency", "max": 1e3}]},
        }
    )
    assert slow.exit_code == 3 and fast.exit_code == 0


@pytest.mark.parametrize(
    ("metric", "limit", "code"),
    [
        ("performance.mfu", 0.01, 0),
        ("mfu", 0.99, 3),
        ("performance.latency", "1 h", 3),
        ("macro.tco", {"magnitude": 1, "unit": "USD"}, 0),
        ("tokens_per_second", "1 1/s", 0),
        ("feasibility.memory", "1 kB", 0),
    ],
)
def test_assertions_on_any_metric_with_its_unit(metric: str, limit: object, code: int) -> None:
    plan = {**BASE, "task": "training", "workload": {"model": "Llama3_8B", "batch_size": 64, "seq_len": 2048}}
    answer = evaluate({**plan, "constraints": {"assert": [{"metric": metric, "min": limit}]}}, change=False)
    assert answer.exit_code == code


@pytest.mark.parametrize("limit", ["3 GB", "fast", float("inf"), float("nan"), ""])
def test_a_limit_of_another_kind_is_refused(limit: object) -> None:
    with pytest.raises(InputError):
        evaluate(
            {**BASE, "task": "training", "constraints": {"assert": [{"metric": "latency", "max": limit}]}}, change=False
        )


def test_unknown_metrics_are_answered_with_near_ones() -> None:
    with pytest.raises(InputError, match="mfu"):
        evaluate(
            {**BASE, "task": "training", "constraints": {"assert": [{"metric": "performance.mfuu", "max": 1}]}},
            change=False,
        )


def test_models_are_names_paths_or_a_sentence(tmp_path: Path) -> None:
    assert find_model("Llama3_8B").name == "Llama-3.1-8B"
    with pytest.raises(InputError, match=r"config\.json"):
        find_model("hf://meta-llama/Llama-9.1-8B")
    with pytest.raises(InputError, match="did you mean"):
        find_model("Lama3_8B")
    with pytest.raises(InputError):
        find_model(str(tmp_path / "gone" / "config.json"))
    with without_files(), pytest.raises(InputError, match="not read here"):
        find_model(str(tmp_path / "config.json"))


@pytest.mark.parametrize(
    ("written", "meant"), [("GRPO", "grpo"), ("REINFORCE", "rloo"), ("reinforce++", "rloo"), ("Ppo", "ppo")]
)
def test_words_in_any_case_and_by_other_names(written: str, meant: str) -> None:
    plan = Plan.model_validate({"task": "rl", "model": "Qwen3_8B", "on": "8xH100", "algorithm": written})
    assert plan.rl is not None and plan.rl.algorithm == meant


def test_replacing_leaves_out_and_refuses_unknown_parts() -> None:
    plan = Plan.model_validate({**BASE, "ops": {"region": "Quebec", "deadline": "3 day"}})
    other = plan.replacing(ops={"region": None}, workload={"precision": "fp8"})
    assert other.ops.region is None and other.ops.deadline == plan.ops.deadline and other.workload.precision == "fp8"
    with pytest.raises(InputError):
        plan.replacing(hardwear={})


def test_the_schema_names_every_key_of_a_plan() -> None:
    text = json.dumps(plan_schema())
    for part in Plan.model_fields.values():
        kinds = [part.annotation, *getattr(part.annotation, "__args__", ())]
        for kind in kinds:
            for name, field in getattr(kind, "model_fields", {}).items():
                assert f'"{field.alias or name}"' in text


def test_auto_is_what_stands_where_no_format_is_given() -> None:
    """As engines have it: the checkpoint's own, and a cache of the activations' format."""
    said = Plan.model_validate(
        {
            "workload": {"model": "DeepSeek_V3", "precision": "auto"},
            "hardware": {"on": "8xH200"},
            "serving": {"cache_precision": "Auto"},
        }
    )
    assert said.workload.precision is None and said.serving.cache_precision is None


def test_what_is_offloaded_may_be_named() -> None:
    """By one name or several, as DeepSpeed has them apart; a share that is said beside its name is one of two answers."""
    keys = ("offload", "offload_weights", "offload_activations")
    named = {
        **{"optimizer": (1, None, None), "parameters": (None, 1, None), "activations": (None, None, 1)},
        **{"optimizer+weights": (1, 1, None), "0.5": (0.5, None, None)},
    }
    for text, shares in named.items():
        part = Plan.model_validate({"task": "training", **BASE, "parallelism": {"offload": text}}).parallelism
        assert tuple(getattr(part, key) for key in keys) == shares
    with pytest.raises(InputError, match="expected a number such as"):
        twice = {"offload": "weights", "offload_weights": 0.5}
        Plan.model_validate({"task": "training", **BASE, "parallelism": twice})


@pytest.mark.parametrize(("said", "meant"), [("train", "training"), ("serve", "serving")])
def test_a_task_may_be_named_as_its_command(said, meant):
    assert Plan.model_validate({"task": said, "model": "Llama3_8B", "on": "H100"}).task == meant


def test_the_schema_takes_a_split_as_a_number_or_as_text():
    split = Plan.model_json_schema()["$defs"]["RlPart"]["properties"]["split"]
    assert {"integer", "string"} <= {each["type"] for each in split["anyOf"]}


def test_a_table_within_a_part_stands_beside_other_keys():
    flat = {"model": "Llama3_8B", "on": "8xH100", "memory_bandwidth": "6 TB/s", "tdp": "500 W", "layers": 40}
    within = {"model": "Llama3_8B", "on": "8xH100", "chip": {"bandwidth": "6 TB/s"}, "tdp": "500 W"}
    asked = Plan.model_validate(flat)
    assert Plan.model_validate({**within, "dimensions": {"layers": 40}}) == asked
    assert Plan.model_validate({**within, "hardware.chip": {"tdp": "500 W"}, "layers": 40, "tdp": "500 W"}) == asked
    with pytest.raises(InputError, match=r"'hardware.chip.bandwith' is not a key of a plan; did you mean"):
        Plan.model_validate({**within, "chip": {"bandwith": "6 TB/s"}})
