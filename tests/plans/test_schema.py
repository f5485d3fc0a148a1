"""Keys of a plan as data: every name of every key is taken, in its part and beside the others."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from mlsysim.cli.plan_options import as_an_option
from mlsysim.errors import InputError
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.plans.schema import Leaf, as_in_a_plan, spoken
from mlsysim.vocabulary import Setting, listed, worded

BASE: dict[str, Any] = {"workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xH100"}}
VALUES = {
    "workload.precision": "fp8",
    "workload.gradient_precision": "fp32",
    "workload.activation_precision": "fp8",
    "workload.exchange_precision": "fp8",
    "parallelism.recomputed": "norm+up",
    "workload.tokens": "2T",
    "hardware.efficiency": 0.5,
    **dict.fromkeys(("hardware.oversubscription", "hardware.congestion", "hardware.straggler"), 1.5),
    "serving.cache_precision": "fp8",
    "rl.generator_precision": "fp8",
    "serving.slo": "ttft_p99=500ms",
    "ops.start": "2026-12-01",
    "ops.pause_above": "300g",
    "ops.demand_response": "25% for 3h",
    "serving.autoscale": "1:4",
    "rl.split": "8",
    "serving.backlog": "500+100",
    "ops.price": "2.5",
    "ops.maintenance": "4h/30day",
    "ops.slow_nodes": "1.3x2h/3day",
    "constraints.assert": [{"metric": "mfu", "min": 0.1}],
}


def value_of(leaf: Leaf) -> Any:
    """A value that a key takes."""
    if leaf.key in VALUES:
        return VALUES[leaf.key]
    if leaf.quantity is not None:
        return leaf.quantity.example
    if leaf.choices:
        return leaf.choices[0]
    return {int: 1, float: 0.5, bool: True, str: "some"}[leaf.type or str]


def held(plan: Plan, key: str) -> Any:
    found: Any = plan.document()
    for step in key.split("."):
        found = found[step]
    return found


KEYS = [key for key in Plan.leaves() if key not in ("hardware.name", "hardware.nodes", "hardware.accelerators")]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_taken_by_all_its_names_in_its_part_and_flat(key: str) -> None:
    leaf = Plan.leaves()[key]
    task = {} if key == "task" else {"task": leaf.tasks[0]}
    value = value_of(leaf)
    for name in leaf.names:
        part, _, own = key.rpartition(".")
        written = name if name != leaf.flat else own
        flat = Plan.model_validate({**BASE, **task, name: value} if name not in BASE else {**BASE, **task, key: value})
        inside: dict[str, Any] = {written: value}
        for step in reversed(part.split(".") if part else ()):
            inside = {step: inside}
        needed = {step: {**BASE[step], **fields} for step, fields in inside.items() if step in BASE}
        if part == "workload" and own == "model":
            needed = {"workload": inside["workload"]}
        if part == "hardware" and own == "on":
            needed = {"hardware": {own: value}}
        assert Plan.model_validate({**BASE, **task, **inside, **needed}) == flat
        assert held(flat, key)


def test_the_task_decides_what_a_length_is() -> None:
    served = Plan.model_validate({**BASE, "task": "serving", "seq_len": 100})
    trained = Plan.model_validate({**BASE, "task": "training", "seq_len": 100})
    assert served.serving is not None and served.serving.prompt_tokens == 100 and served.workload.seq_len is None
    assert trained.workload.seq_len == 100


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tpp": 2}, "did you mean 'tp'"),
        ({"parallelism": {"zero_stag": 1}}, "'parallelism.zero_stag' is not a key of a plan; did you mean 'zero_shard' or 'zero'"),
        ({"parallelism": {"tp": 2, "tp_size": 4}}, "'parallelism.tp' is given twice"),
        ({"serving": 3, "concurrency": 2}, "cannot stand beside serving = 3"),
        ({"micro_batch": 2, "micro_batches": 2}, "not both"),
        ({"ops": {"deadline": 5}}, "The 'ops.deadline' field got 5, which has no unit; write its unit too, such as '5 d'"),
        ({"zero": 7}, "The 'parallelism.zero' field got 7"),
        ({"tokens": "many"}, "got 'many'; expected a positive number such as 15e12 or 15T"),
        ({"efficiency": "fast"}, "or 'calibrated', got 'fast'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_by_its_path(more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        Plan.model_validate({**BASE, "task": "training", **more})
    assert said in str(caught.value)


def test_settings_replace_by_any_name_and_what_may_not_stand_beside_them() -> None:
    plan = Plan.model_validate(
        {**BASE, "task": "training", "tp": 2, "micro_batch": 4, "hardware": {"name": "H100", "nodes": 2}}
    )
    other = plan.with_settings({"tp_size": 4, "microbatch_count": 8, "on": "16xB200", "hardware.chip.tdp": "500 W"})
    assert other.parallelism.tp == 4 and other.parallelism.micro_batch is None and other.parallelism.micro_batches == 8
    assert other.hardware.on == "16xB200" and other.hardware.name is None and other.hardware.nodes is None
    assert other.with_settings({"tp": None}).parallelism.tp is None


def test_micro_batches_of_a_plan_are_those_of_the_step() -> None:
    plan = {**BASE, "task": "training", "batch_size": 64, "seq_len": 2048, "tp": 2, "zero": 1, "recompute": "full"}
    by_size = evaluate_plainly(Plan.model_validate({**plan, "micro_batch": 4}))
    by_count = evaluate_plainly(Plan.model_validate({**plan, "micro_batches": 4}))
    assert by_size.layout["micro_batches"] == by_count.layout["micro_batches"] == 4
    assert by_size.headline == by_count.headline


@pytest.mark.parametrize(
    ("sentence", "in_plan", "in_options"),
    [
        (worded("it fits with ", listed((Setting("zero_stage", 3), Setting("activation_recomputation", "full")))),
         'it fits with zero = 3 and recompute = "full"', "it fits with --zero 3 and --recompute full"),
        (worded("keep the cache in fp8 (", Setting("cache_precision", "fp8"), ")"),
         'keep the cache in fp8 (cache_precision = "fp8")', "keep the cache in fp8 (--cache-precision fp8)"),
        (worded("use ", Setting("optimizer_offload", 0.5), "."), "use offload = 0.5.", "use --offload 0.5."),
        (worded(Setting("overlap_comm", False)), "overlap = false", "--no-overlap"),
        (worded("use 4 devices (", listed((Setting("tp_size"), Setting("pp_size")), ", "), ")"),
         "use 4 devices (tp, pp)", "use 4 devices (--tp, --pp)"),
        ("2 tokens in 3 ms on H100; zero_stage=3 in prose is left alone", None, None),
        (worded(Setting("speed", 3), " is none of ours"), None, None),
    ],
)  # fmt: skip
def test_settings_in_a_sentence_are_written_as_the_face_writes_them(
    sentence: str, in_plan: str | None, in_options: str | None
) -> None:
    written = spoken(sentence, as_in_a_plan, Plan.leaves())
    assert written == (in_plan or sentence)
    # What a plan says can be said again, in options; and a sentence that a process hands back too.
    again = pickle.loads(pickle.dumps(written))
    for each in (sentence, written, again):
        assert spoken(each, as_an_option, Plan.leaves()) == (in_options or sentence)


def test_a_remedy_is_in_the_words_of_who_asks_and_works_as_it_is_written() -> None:
    plan = {
        "task": "training",
        "model": "Llama3_8B",
        "on": "8xH100",
        "batch": 64,
        "seq_len": 4096,
        "zero": 0,
        "pp": 1,
        "tp": 1,
        "micro_batch": 1,
    }
    answer = evaluate_plainly(Plan.model_validate(plan))
    assert not answer.feasible
    remedies = re.search(r"it fits with (.*?)\.$", answer.headline)
    assert remedies is not None and "zero_stage" not in answer.headline
    settings = dict(part.replace('"', "").split(" = ") for part in remedies[1].split(" and "))
    assert evaluate_plainly(answer.plan.with_settings(settings)).feasible
    options = answer.in_words(as_an_option).headline
    assert all(f"--{name.replace('_', '-')} {value}" in options for name, value in settings.items())


def test_an_input_that_a_resolver_refuses_is_named_as_the_plan_names_it() -> None:
    with pytest.raises(InputError) as caught:
        evaluate_plainly(
            Plan.model_validate({"task": "serving", "model": "Mixtral_8x7B", "on": "8xH100", "tp": 2, "ep": 3})
        )
    assert "ep_size" not in str(caught.value)
