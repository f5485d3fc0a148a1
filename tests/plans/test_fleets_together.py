"""Mixed fleets, the least fleet, audits and comparisons."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from mlsysim.cli.plan_options import as_an_option
from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.audit import AUDITED, audit
from mlsysim.plans.compare import compare_answers, compare_plans
from mlsysim.plans.evaluate import evaluate, evaluate_plainly
from mlsysim.plans.least_fleet import least_fleet
from mlsysim.plans.limits import demands
from mlsysim.plans.plan import Plan
from mlsysim.units.registry import to_si


@cache
def trained(on: str, **parts: Any) -> Answer:
    work = {"model": "Llama3_8B", "batch_size": 512, "seq_len": 4096, **parts}
    return evaluate_plainly(Plan.model_validate({"task": "training", "workload": work, "hardware": {"on": on}}))


def rate(answer: Answer) -> float:
    return to_si(answer.value("tokens_per_second"), "1/s")


@pytest.mark.parametrize(
    "on", ["8xB200 + 8xH100", "8xH100 + 16xA100", "8xB200 + 8xH100 + 8xA100", "64xH100 + 8xRTX_4090"]
)
def test_shares_add_up_and_the_slowest_sets_the_step(on: str) -> None:
    answer = trained(on)
    assert sum(table["tokens"] for table in answer.layout.values()) == pytest.approx(512 * 4096, rel=1e-3)
    groups = [trained(piece.strip()) for piece in on.split("+")]
    assert rate(answer) >= max(rate(group) for group in groups) * 0.999
    step = to_si(answer.value("latency"), "s")
    if len(answer.layout) == len(groups):
        for piece, table in zip([p.strip() for p in on.split("+")], answer.layout.values(), strict=True):
            part = {"batch_size": table["batch_size"], "seq_len": table["seq_len"]}
            assert step >= to_si(trained(piece, **part).value("latency"), "s") * 0.999
    assert "slowest" in answer.headline


@pytest.mark.parametrize("batch", [16, 24, 40, 100])
def test_a_small_batch_is_split_by_tokens(batch: int) -> None:
    """Whole sequences for each accelerator left the slower group of 8 + 8 without work at 16 sequences."""
    answer = trained("8xB200 + 8xH100", batch_size=batch)
    assert len(answer.layout) == 2
    alone = trained("8xB200", batch_size=batch)
    assert rate(answer) > rate(alone)
    first, second = (to_si(part.value("latency"), "s") for part in _parts(answer))
    assert first == pytest.approx(second, rel=0.05)


def _parts(answer: Answer) -> list[Answer]:
    """The groups of an answer, each asked alone for what it takes."""
    given = [{"batch_size": table["batch_size"], "seq_len": table["seq_len"]} for table in answer.layout.values()]
    return [trained(on, **part) for on, part in zip(["8xB200", "8xH100"], given, strict=True)]


def test_equal_groups_are_one_fleet_but_for_the_last_sum() -> None:
    """Two halves of a fleet take half of the tokens each; without the sum between them they are as fast as one half with that half."""
    answer = trained("8xH100 + 8xH100", batch_size=64)
    half = trained("8xH100", batch_size=32)
    between = next(part.value for part in answer.time_parts if part.label == "sum between groups")
    assert to_si(answer.value("latency"), "s") == pytest.approx(to_si(half.value("latency"), "s") + between)
    assert between == pytest.approx(8.03e9 * 4 / (8 * 50e9), rel=0.01)


def test_what_groups_assume_is_one_list() -> None:
    """Words of a terminal and chips of the explorer have the same assumptions: those of all groups, not of the slowest alone."""
    answer = trained("64xH100+64xA100")
    assert [each.name for each in answer.assumed] == list(answer.assumptions)
    assert answer.assumptions == answer.to_dict()["assumptions"]
    assert "H100" in answer.assumptions["node"] and "A100" in answer.assumptions["node"]
    assert "groups" in answer.assumptions and len({*answer.assumptions}) == len(answer.assumed)


def test_equal_groups_are_told_apart() -> None:
    """Under one name a table of groups held one of the two, and sums showed a half of what they gave."""
    names = [f"8 x NVIDIA H100 SXM5 80GB (group {place})" for place in (1, 2)]
    served = evaluate({"task": "serving", "model": "Llama3_8B", "on": "8xH100 + 8xH100"}, change=False)
    for answer in (trained("8xH100 + 8xH100", batch_size=64), served):
        assert [*answer.layout] == names and [*answer.explain("power")[0].inputs] == names


def test_of_groups_that_do_not_all_fit_memory_binds() -> None:
    answer = evaluate({"task": "serving", "model": "DeepSeek_V3", "on": "8xA100 + 8xH200"}, change=False)
    assert not answer.feasible and answer.binding.wall == 2 and answer.binding.limit == "memory"
    assert [score.wall for score in answer.scorecard if score.status in ("binds", "fails")] == [2]


def test_the_slowest_group_is_named() -> None:
    answer = trained("8xB200 + 8xA100")
    assert any(f"the slowest group is {name}" in answer.headline for name in answer.layout)


def test_a_step_of_groups_has_an_interval_and_says_what_was_assumed_of_each() -> None:
    """Its ends are those of the slower group at either end, with the sum between groups behind it."""
    answer = trained("8xB200 + 8xH100")
    between = next(part.value for part in answer.time_parts if part.label == "sum between groups")
    step = answer.metric("latency")
    ends = [(to_si(m.low, "s"), to_si(m.high, "s")) for m in (part.metric("latency") for part in _parts(answer))]
    assert to_si(step.low, "s") == pytest.approx(max(low for low, _ in ends) + between)
    assert to_si(step.high, "s") == pytest.approx(max(high for _, high in ends) + between)
    assert step.wall == answer.binding.wall and step.interval in answer.headline
    fast = answer.metric("tokens_per_second")
    assert to_si(fast.high, "1/s") == pytest.approx(rate(answer) * to_si(step.value, "s") / to_si(step.low, "s"))
    table = {"task": "training", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xA100 + 8xH100"}}
    mixed = evaluate_plainly(Plan.model_validate(table))
    assert "sequences a step" in mixed.assumptions["batch_size"] and "tokens" in mixed.assumptions["seq_len"]
    for name in ("node", "stack", "mtbf"):
        assert all(chip in mixed.assumptions[name] for chip in ("A100", "H100")), name


def test_a_run_on_groups_takes_its_tokens_once() -> None:
    answer = trained("8xB200 + 8xH100", tokens=1e11)
    assert to_si(answer.value("run_time"), "s") == pytest.approx(1e11 / rate(answer) / answer.value("goodput"))
    longer = trained("8xB200 + 8xH100", tokens=2e11)
    assert to_si(longer.value("tco"), "USD") == pytest.approx(2 * to_si(answer.value("tco"), "USD"), rel=1e-6)


def test_groups_serve_the_sum_of_their_rates() -> None:
    parts: dict[str, Any] = {"task": "serving", "workload": {"model": "Llama3_8B"}, "serving": {"prompt_tokens": 500}}
    both = evaluate_plainly(Plan.model_validate({**parts, "hardware": {"on": "8xB200 + 8xH100"}}))
    alone = [evaluate_plainly(Plan.model_validate({**parts, "hardware": {"on": on}})) for on in ("8xB200", "8xH100")]
    assert rate(both) == pytest.approx(sum(rate(a) for a in alone))
    assert to_si(both.value("tpot"), "s") == pytest.approx(max(to_si(a.value("tpot"), "s") for a in alone))


def test_groups_are_overloaded_where_all_of_them_are() -> None:
    """Requests go to each in proportion to the most that it answers."""
    parts: dict[str, Any] = {"workload": {"model": "Llama3_70B"}, "hardware": {"on": "8xB200 + 8xA100"}}
    most = evaluate_plainly(Plan.model_validate({**parts, "serving": {"qps": 500}}))
    assert most.overloaded
    nearly = 0.95 * to_si(most.value("requests_per_second"), "1/s")
    assert evaluate_plainly(Plan.model_validate({**parts, "serving": {"qps": nearly}})).feasible


def test_changes_are_sought_on_groups_too() -> None:
    parts: dict[str, Any] = {"workload": {"model": "Llama3_70B"}, "serving": {"qps": 5}}
    idle = evaluate({**parts, "hardware": {"on": "8xB200 + 8xA100"}})
    assert idle.change is not None and "B200 SXM 180GB left out" in idle.change.words
    assert (
        idle.change.plan.hardware.on == "8xA100"
        and idle.change.cost_factor is not None
        and idle.change.cost_factor < 0.5
    )
    unfit = evaluate({**parts, "hardware": {"on": "8xB200 + 1xA100"}})
    assert not unfit.feasible and unfit.change is not None and evaluate_plainly(unfit.change.plan).feasible


def test_one_pass_on_groups_is_a_sentence() -> None:
    with pytest.raises(InputError, match="one accelerator"):
        evaluate({"task": "inference", "workload": {"model": "ResNet50"}, "hardware": {"on": "H100 + A100"}})


# --- least fleet --------------------------------------------------------------------------------------------------


def wanted(deadline: str, tokens: float = 2e11) -> Plan:
    return Plan.model_validate(
        {
            "task": "training",
            "workload": {"model": "Llama3_8B", "tokens": tokens, "seq_len": 4096},
            "hardware": {"on": "8xH100"},
            "ops": {"deadline": deadline},
        }
    )


def test_the_least_fleet_meets_the_deadline_and_the_next_smaller_one_does_not() -> None:
    (found,) = least_fleet(wanted("3 day"), ["H100"], evaluate_plainly)
    assert found.answer is not None and found.accelerators is not None
    assert to_si(found.answer.value("run_time"), "day") <= 3
    nodes = found.accelerators // 8
    power = 1 << (nodes - 1).bit_length()
    smaller = [power * e // 8 for e in (4, 5, 6, 7) if power * e % 8 == 0 and power * e // 8 < nodes]
    if smaller:
        plan = wanted("3 day").replacing(hardware={"on": f"{max(smaller) * 8}xH100"})
        assert to_si(evaluate_plainly(plan).value("run_time"), "day") > 3


def test_a_later_deadline_never_needs_more() -> None:
    counts = [
        least_fleet(wanted(f"{days} day"), ["H100"], evaluate_plainly)[0].accelerators or 0 for days in (1, 2, 4, 8)
    ]
    assert counts == sorted(counts, reverse=True)


def test_it_is_deterministic_and_the_cheapest_comes_first() -> None:
    first, second = (least_fleet(wanted("4 day"), ["A100", "H100", "B200"], evaluate_plainly) for _ in range(2))
    assert [(c.chip, c.accelerators) for c in first] == [(c.chip, c.accelerators) for c in second]
    costs = [to_si(c.answer.value("tco"), "USD") for c in first if c.answer is not None]
    assert costs == sorted(costs)


def test_where_no_number_does_the_fastest_is_named_and_no_time_that_is_not_a_fleets() -> None:
    (found,) = least_fleet(wanted("1 hour").replacing(workload={"tokens": 1e15}), ["H100"], evaluate_plainly)
    assert found.answer is None
    assert "the fastest" in found.reason or "no run ends" in found.reason
    assert "30 days" not in found.reason


def test_a_fleet_that_fails_faster_than_it_recovers_has_no_time_and_misses_its_deadline() -> None:
    answer = evaluate_plainly(wanted("10 day").replacing(hardware={"on": "64xH100"}, ops={"mtbf": "20 s"}))
    assert "run_time" not in answer.held
    assert any("No run of this kind ends" in check.sentence and not check.passed for check in demands(answer))


def test_it_needs_a_deadline_and_tokens() -> None:
    with pytest.raises(InputError, match="deadline"):
        least_fleet(wanted("1 day").replacing(ops={"deadline": None}), ["H100"], evaluate_plainly)
    with pytest.raises(InputError, match="tokens"):
        least_fleet(wanted("1 day").replacing(workload={"tokens": None}), ["H100"], evaluate_plainly)


# --- audit, compare -----------------------------------------------------------------------------------------------


def test_the_audit_has_six_domains_and_one_design() -> None:
    found = audit()
    assert {row.domain for row in found.rows} == {"Node", "Data", "Algorithm", "Fleet", "Operations", "Analysis"}
    assert found.calibrated is not None and found.first_order is not None
    layout, beside = found.first_order.layout, found.calibrated.layout
    assert (
        {k: layout[k] for k in ("tp", "pp", "dp")}
        == {k: beside[k] for k in ("tp", "pp", "dp")}
        == {"tp": 8, "pp": 1, "dp": 64}
    )
    assert any(row.status == "binds" for row in found.rows)
    rate_row = next(row for row in found.rows if row.domain == "Data")
    assert rate_row.metric == "Data at 8 MB/s" and rate_row.first_order == "0.1% of supply"
    assert found.to_dict()["rows"]


def test_an_audit_of_a_searched_layout_keeps_it_in_both_columns() -> None:
    found = audit(AUDITED.replacing(parallelism=None, hardware={"on": "64xH100"}, workload={"batch_size": 512}))
    assert found.calibrated is not None and found.first_order is not None
    assert {k: found.first_order.layout[k] for k in ("tp", "pp", "dp", "micro_batches")} == {
        k: found.calibrated.layout[k] for k in ("tp", "pp", "dp", "micro_batches")
    }


def test_an_audit_of_post_training_has_one_column() -> None:
    rollout = {"algorithm": "grpo", "prompts": 8, "samples": 4, "response": 200}
    plan = {"task": "rl", "workload": {"model": "Qwen3_8B"}, "hardware": {"on": "8xH100"}, "rl": rollout}
    found = audit(Plan.model_validate({**plan, "serving": {"prompt_tokens": 100}}))
    assert found.first_order is None and found.answer is found.calibrated
    assert any("No first-order column" in note for note in found.notes)
    assert any(row.status == "binds" and row.calibrated for row in found.rows)


def test_answers_of_one_subject_are_told_apart() -> None:
    wide, narrow = trained("8xH100", seq_len=2048), trained("8xH100", seq_len=8192)
    assert wide.subject == narrow.subject
    named = {compare_answers(*pair).sentences[0].split(" is ")[0] for pair in ((wide, narrow), (narrow, wide))}
    assert named == {"The first", "The second"}
    full = narrow.model_copy(update={"feasible": False})
    assert compare_answers(full, wide).sentences[0].startswith("Only the second fits. ")


def test_services_of_different_loads_are_said_to_be() -> None:
    asked = {"task": "serving", "workload": {"model": "Llama3_8B"}}
    one, node = (evaluate(asked | {"hardware": {"on": on}}, change=False) for on in ("1xH100", "8xH100"))
    loads = [answer.layout["concurrency"] for answer in (one, node)]
    assert loads[0] < loads[1]
    assert f"{loads[0]:,} and {loads[1]:,} requests in flight" in compare_answers(one, node).sentences[1]
    assert not any("loads differ" in line for line in compare_answers(node, node).sentences)


def test_comparison_factors_and_tasks() -> None:
    slow, fast = trained("8xH100"), trained("16xH100")
    found = compare_answers(slow, fast)
    factor = next(row.factor for row in found.rows if row.name == "performance.tokens_per_second")
    assert factor == pytest.approx(rate(fast) / rate(slow)) and "times as fast" in found.sentences[0]
    other = evaluate({"task": "inference", "workload": {"model": "ResNet50"}, "hardware": {"on": "H100"}}, change=False)
    with pytest.raises(InputError, match="one task"):
        compare_answers(slow, other)


def test_plans_that_say_no_traffic_are_compared_under_one_load() -> None:
    """More accelerators never answer more than in proportion where the same clients ask them."""
    plans = [Plan.model_validate({"task": "serving", "model": "Llama3_8B", "on": on}) for on in ("1xH100", "8xH100")]
    found = compare_plans(*plans)
    assert found.sentences[0] == "Neither plan says its traffic, so both have 64 requests in flight."
    assert found.first.layout["concurrency"] == found.second.layout["concurrency"] == 64
    rate = next(row for row in found.rows if row.name.endswith("tokens_per_second"))
    assert rate.factor is not None and 1 < rate.factor <= 8
    crowded = compare_plans(plans[0], plans[1].replacing(hardware={"on": "512xH100"}))
    room = crowded.first.value("max_batch")
    assert crowded.first.layout["concurrency"] == crowded.second.layout["concurrency"] == room
    asked = [plan.replacing(serving={"qps": 20.0}) for plan in plans]
    assert not any("traffic" in line or "loads differ" in line for line in compare_plans(*asked).sentences)


def test_what_does_not_fit_is_told_in_the_callers_words() -> None:
    """The change that helps is a setting, and stays one where several groups are put together."""
    split = {"tp": 1, "pp": 1, "micro_batch": 1, "zero": 0}
    work = {"model": "Llama3_8B", "batch_size": 16, "seq_len": 2048}
    plan = Plan(task="training", workload=work, hardware={"on": "8xH100 + 8xH200"}, parallelism=split)
    told = evaluate_plainly(plan).in_words(as_an_option).headline
    assert told.startswith("Does not fit on 8 x NVIDIA H100 SXM5 80GB: ") and told.endswith("; it fits with --zero 1.")
