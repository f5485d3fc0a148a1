"""One table of names: every name is that of one concept, and every concept is a key of a plan."""

from __future__ import annotations

from collections import defaultdict

import pytest

import mlsysim
from mlsysim import vocabulary
from mlsysim.errors import InputError
from mlsysim.plans.plan import Plan


def test_every_key_is_one_of_a_plan() -> None:
    assert set(vocabulary.NAMES) <= set(Plan.leaves())


def test_no_name_means_two_things() -> None:
    keys = defaultdict(set)
    for key in Plan.leaves():
        for name in vocabulary.names_of(key):
            keys[name].add(key)
    two = {name: held for name, held in keys.items() if len(held) > 1}
    # `seq_len` is what resolvers call the prompt, and the plan's own `name` is nearer to the root than a chip's, as is the
    # `price` of an hour than that of a chip in its table.
    assert two == {
        "seq_len": {"workload.seq_len", "serving.prompt_tokens"},
        "name": {"name", "hardware.name"},
        "price": {"ops.price", "hardware.chip.price"},
    }


@pytest.mark.parametrize(
    ("name", "valid", "meant"),
    [
        ("--tp-size", ("tp", "pp"), "tp"),
        ("Zero_Stage", ("zero",), "zero"),
        ("kv_cache_dtype", ("cache_precision",), "cache_precision"),
        ("seq_len", ("seq_len", "prompt_tokens"), "seq_len"),
        ("micro_batches", ("micro_batch", "microbatch_count"), "microbatch_count"),
        ("model", ("tp",), None),
        ("seq", ("seq_len",), "seq_len"),
        ("--seq-length", ("seq_len",), "seq_len"),
        ("rps", ("arrival_rate_qps",), "arrival_rate_qps"),
    ],
)
def test_names_stand_for_each_other(name: str, valid: tuple[str, ...], meant: str | None) -> None:
    assert vocabulary.same_as(name, valid) == meant


@pytest.mark.parametrize("task", ["training", "serving"])
def test_the_command_line_takes_every_name(task: str) -> None:
    from mlsysim.cli import plan_options

    hints = plan_options._offered(task, (), frozenset())
    for key, leaf in Plan.leaves().items():
        if f"plan_{leaf.flat}" in hints:
            for name in leaf.names:
                written = [f"--{name.replace('_', '-')}=1"]
                assert plan_options._in_our_words(written, [], hints, task) == [f"{plan_options.option(key)}=1"], name


@pytest.mark.parametrize("axes", [{"batch": [8, 16]}, {"batch_size": [8], "global_batch_size": [16]}])
@pytest.mark.parametrize(("kind", "on"), [("training", {"fleet": "8xH100"}), ("serving", {"hardware": "H100"})])
def test_a_space_takes_one_name_of_an_input(kind: str, on: dict[str, str], axes: dict[str, list[int]]) -> None:
    from mlsysim.search.space import Space

    fixed = {"model": "Llama3_8B", **on, **({} if "batch_size" in axes else {"batch_size": 64})}
    with pytest.raises(InputError, match=r"'batch\w*' and '\w*batch_size' of 'space' are names of one input"):
        Space.from_dict({"kind": kind, "axes": axes, "fixed": fixed})
    one = Space.from_dict({"kind": kind, "axes": {"batch": [8, 16]}, "fixed": {"model": "Llama3_8B", **on}})
    assert one.size == 2


@pytest.mark.parametrize(
    ("said", "meant"),
    [("ZB-H1", "zero_bubble"), ("zero-bubble-h2", "zb_h2"), ("Zero-Bubble-V", "zb_v"), ("DualPipeV", "dualpipe_v"), ("BFS", "breadth_first")],
)  # fmt: skip
def test_schedules_by_the_names_of_their_papers(said: str, meant: str) -> None:
    asked = {"on": "16xH100", "tp": 2, "pp": 4, "batch_size": 16, "offload": "optimizer"}
    one, other = (mlsysim.train("Llama3_8B", schedule=schedule, **asked) for schedule in (said, meant))
    assert one.metric("step_time").value == other.metric("step_time").value
    assert one.plan.parallelism.offload == 1.0
