"""Groups of different accelerators: ``8xB200 + 8xH100``.

Training is data parallel between the groups. Each group takes the share of the batch that its speed is of the sum (whole
sequences), so that all end at nearly the same time; the step is that of the slowest, and the gradients of the groups then
meet once more over the slower network:

    T = max_i T_i(b_i) + 2 (G - 1) / G x M / B,     b_i ~ tokens/s of group i,   M the gradient bytes of one accelerator

Serving routes requests in proportion to speed; the rates add up and the slower group sets the latency that is promised.
A group that makes the step longer than another alone would is left out. Left out of the model: overlap of that last exchange
(it is paid in full), and pipelines with stages on different chips.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlsysim.cases.goodput import Goodput, Saving, expected_failures, goodput_of
from mlsysim.cases.ledger import Ledger
from mlsysim.cases.ledger import Part as Line
from mlsysim.cases.run import run_time
from mlsysim.cases.run_inputs import run_days
from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.plans.answer import Answer, Metric
from mlsysim.plans.equations import Together, equations_of
from mlsysim.plans.mixed_serving import serve_on_groups
from mlsysim.plans.mixed_sums import added, fullest, on_group, sums, together_of
from mlsysim.plans.parts import binding_of, next_wall, time_parts
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.plans.sheet import count_text, many
from mlsysim.plans.training import evaluate_training
from mlsysim.plans.training_layout import training_batch
from mlsysim.units.registry import quantity, to_si
from mlsysim.vocabulary import worded
from mlsysim.zoo.constants import constant

_ROUNDS = 4


def evaluate_mixed(plan: Plan) -> Answer:
    """The answer to a plan on several kinds of accelerator."""
    texts = [piece.strip() for piece in (plan.hardware.on or "").split("+")]
    if plan.kind == "inference":
        raise InputError("One pass runs on one accelerator; give one chip.", field="hardware")
    if plan.kind == "training":
        return _training(plan, texts)
    return serve_on_groups(plan, texts)


def _training(plan: Plan, texts: list[str]) -> Answer:
    groups = find_fleets(plan.hardware)
    model = workload_of(plan.workload)
    # A batch that each group alone would take; the sum of accelerators decides where none is given.
    total, seq_len = training_batch(plan, _joined(groups), model, {})
    length = {} if model.fixed_shape else {"seq_len": seq_len}
    free = {"tokens": None, "optimizer": plan.workload.optimizer}

    def evaluated(text: str, share: int, days: float | None = None) -> Answer:
        ops = {"duration": None, "duration_days": days} if days is not None else {}
        work = {"batch_size": share, **length, **free}
        return evaluate_training(on_group(plan, text, task="training", workload=work, ops=ops))

    joint = _balanced(groups, texts, total, evaluated)
    if joint.feasible:
        for index, text in enumerate(texts):
            try:
                alone = evaluated(text, total)
            except InputError:
                continue
            if alone.feasible and to_si(alone.value("latency"), "s") < joint.step:
                shares = [total if other == index else 0 for other in range(len(texts))]
                joint = _Joint(shares, [alone if share else None for share in shares], 0.0)
                break
    return _joint_training(
        plan, groups, joint, total * seq_len, lambda i, days: evaluated(texts[i], joint.shares[i], days)
    )


@dataclass
class _Joint:
    """Groups that make a step together: sequences of each, its answer (None where it is left out), the last exchange."""

    shares: list[int]
    answers: list[Answer | None]
    exchange: float

    @property
    def active(self) -> list[int]:
        return [index for index, answer in enumerate(self.answers) if answer is not None]

    def answer(self, index: int) -> Answer:
        found = self.answers[index]
        assert found is not None
        return found

    def time(self, index: int) -> float:
        return to_si(self.answer(index).value("latency"), "s")

    @property
    def slowest(self) -> int:
        return max(self.active, key=self.time)

    @property
    def step(self) -> float:
        return self.time(self.slowest) + self.exchange

    @property
    def feasible(self) -> bool:
        return all(self.answer(index).feasible for index in self.active)


def _balanced(groups: Any, texts: list[str], total: int, evaluated: Callable[[str, int], Answer]) -> _Joint:
    """Shares in proportion to speed; the quickest of a few rounds."""
    counts = [fleet.total_accelerators for fleet in groups.fleets]
    shares = _split(total, [float(count) for count in counts], counts)
    seen: list[list[int]] = []
    found: list[_Joint] = []
    refused: InputError | None = None
    for _ in range(_ROUNDS):
        seen.append(shares)
        try:
            answers = [evaluated(text, share) for text, share in zip(texts, shares, strict=True)]
        except InputError as error:
            refused = error
            break
        found.append(_Joint(shares, list(answers), _exchange(groups, answers)))
        shares = _split(total, [to_si(answer.value("tokens_per_second"), "1/s") for answer in answers], counts)
        if shares in seen:
            break
    if not found:
        raise refused if refused is not None else InputError("The groups share no batch.", field="batch_size")
    return min(found, key=lambda joint: (not joint.feasible, joint.step))


def _joined(groups: Any) -> Any:
    first = groups.fleets[0]
    nodes = max(1, round(groups.accelerators / first.node.accelerators_per_node))
    return first.model_copy(update={"count": nodes})


def _split(total: int, weights: list[float], counts: list[int]) -> list[int]:
    """Whole shares of a batch, multiples of each group's accelerators where the batch is large enough, that add up to it."""
    scale = sum(weights)
    shares = [
        max(count, round(total * weight / scale / count) * count) for weight, count in zip(weights, counts, strict=True)
    ]
    shares[-1] = total - sum(shares[:-1])
    if shares[-1] < 1 or (shares[-1] < counts[-1] and total >= sum(counts)):
        # Rounding took too much: give every group its least, and the rest by speed.
        left = total - sum(counts)
        shares = [
            count + int(left * weight / scale / count) * count for weight, count in zip(weights, counts, strict=True)
        ]
        shares[-1] = total - sum(shares[:-1])
    if shares[-1] < 1:
        raise InputError(
            f"A batch of {total:,} is too small for groups of {' + '.join(map(str, counts))} accelerators.",
            field="batch_size",
        )
    return shares


def _exchange(groups: Any, answers: list[Answer]) -> float:
    """The last sum of gradients between groups, over the slower port."""
    gradients = [next((p.value for p in a.memory.parts if p.label == "gradients"), 0.0) for a in answers if a.memory]
    rate = min(to_si(fleet.fabric.bandwidth, "byte/s") for fleet in groups.fleets)
    many = len(groups.fleets)
    return 2 * (many - 1) / many * max(gradients, default=0.0) / rate


def _joint_training(
    plan: Plan, groups: Any, joint: _Joint, tokens: int, paid: Callable[[int, float], Answer]
) -> Answer:
    names = [fleet.name for fleet in groups.fleets]
    slow = joint.answer(joint.slowest)
    rate = tokens / joint.step
    active = [joint.answer(index) for index in joint.active]
    written = min(to_si(answer.value("checkpoint_time"), "s") for answer in active)
    kept = _joint_goodput(plan, active, written)
    goodput = float(kept.ratio)
    days, wanted = plan.ops.days, plan.workload.tokens
    if wanted is not None and goodput > 0:
        days = run_time(wanted, rate, goodput, 1.0) / 86400.0
    days = days if days is not None else run_days()
    # A group that is left out is paid for as the rest.
    costs = [paid(index, days) for index in joint.active]
    samples = workload_of(plan.workload).fixed_shape
    full = fullest(active)
    useful, possible = _joint_work(groups, joint, plan)
    metrics = [
        full.metric("memory"),
        full.metric("memory_capacity"),
        _metric("latency", "Time of a step", quantity(joint.step, "s"), 14),
        _metric("mfu", "Model FLOP utilisation", min(1.0, useful / possible), 3),
        _metric("tokens_per_second", "Samples a second" if samples else "Tokens a second", quantity(rate, "1/s"), 14),
        *([_metric("run_time", "Time of the run", quantity(days, "day"), 15)] if wanted is not None else []),
        _metric("mtbf", "Time between failures", quantity(kept.mtbf, "h"), 15),
        _metric("expected_failures", "Failures to expect", float(expected_failures(days * 24.0, kept.mtbf)), 15),
        _metric("goodput", "Goodput", goodput, 15),
        _metric("checkpoint_interval", "Checkpoint every", quantity(kept.best_interval, "s").to("min"), 19),
        *sums(costs),
    ]
    ledger = _joint_ledger(joint)
    wait = ", ".join(
        f"{names[i]} takes {many(joint.shares[i], 'sequence')} in {joint.answer(i).metric('latency').text}"
        for i in joint.active
    )
    idle = [name for index, name in enumerate(names) if index not in joint.active]
    verdict = [f"Load is balanced by speed: {wait}."]
    if idle:
        verdict = [
            f"{' and '.join(idle)} would slow the others down, so nothing is given to it; its cost is not counted."
        ]
    if wanted is not None and goodput > 0:
        verdict.append(
            f"{count_text(wanted)} tokens take {_text(metrics, 'run_time')} (goodput {_text(metrics, 'goodput')})."
        )
    unfit = next((i for i in joint.active if not joint.answer(i).feasible), None)
    headline = (
        f"Fits: a step takes {_text(metrics, 'latency')}; the slowest stage is {names[joint.slowest]}."
        if unfit is None
        else worded(f"Does not fit on {names[unfit]}: ", joint.answer(unfit).headline.removeprefix("Does not fit: "))
    )
    parts = time_parts(ledger)
    binding = binding_of(ledger, "step", kept) if unfit is None else joint.answer(unfit).binding
    facts = {
        "memory_stated": groups.fleets[joint.active[active.index(full)]].node.accelerator.memory.capacity,
        "peak_of_all_groups": quantity(possible / joint.step, "flop/s"),
        "model_operations": quantity(useful, "flop"),
        "work_of_a_step": tokens,
        "work_of_the_run": wanted,
        "duration": quantity(days, "day"),
        "checkpoint_written": quantity(written, "s"),
        "recovery": constant("recovery_time").quantity,
        "mtbf_given": plan.ops.mtbf,
    }
    together = together_of(costs, [names[index] for index in joint.active])
    if plan.ops.mtbf is None:
        each = {names[i]: joint.answer(i).metric("mtbf").text for i in joint.active}
        together["mtbf"] = Together("1 / M = sum of 1 / M_i", r"\frac{1}{M} = \sum_i \frac{1}{M_i}", each)
    answer = slow.model_copy(
        update={
            "name": plan.name,
            "plan": plan,
            "feasible": joint.feasible,
            "subject": f"training {workload_of(plan.workload).name} on {' + '.join(names)}",
            "headline": headline,
            "verdict": tuple(verdict) if unfit is None else (),
            "metrics": tuple(metrics),
            "binding": binding,
            "next_wall": next_wall(ledger, binding, "step"),
            "time_parts": parts,
            "equations": equations_of(metrics, (), facts, parts, full.memory, together),
            "cost_parts": added(each.cost_parts for each in costs),
            "carbon_parts": added(each.carbon_parts for each in costs),
            "memory": full.memory,
            "layout": {names[i]: {**joint.answer(i).layout, "sequences": joint.shares[i]} for i in joint.active},
            "assumptions": {
                **{name: text for name, text in slow.assumptions.items() if name not in ("duration", "batch_size")},
                "groups": "data parallel between groups",
                **({} if wanted is not None or plan.ops.days is not None else {"duration": f"{run_days():g} days"}),
            },
        }
    )
    return answer.read_off(ledger)


def _joint_ledger(joint: _Joint) -> Ledger:
    """The step of the slowest group, and the sum of gradients between groups after it."""
    slow = joint.answer(joint.slowest).ledger
    assert slow is not None
    last = joint.exchange
    line = Line("sum between groups", 14, "fabric", "ring", exposed=last, elastic=last)
    return slow + Ledger(last, (line,)) if last else slow


def _joint_goodput(plan: Plan, answers: list[Answer], write: float) -> Goodput:
    """A failure of any group stops all, so that their rates add up; the group that writes fastest saves, for all have the state."""
    if plan.ops.mtbf is not None:
        mtbf = to_si(plan.ops.mtbf, "h")
    else:
        mtbf = 1.0 / sum(1.0 / to_si(answer.value("mtbf"), "h") for answer in answers)
    return goodput_of(mtbf, Saving(write, to_si(constant("recovery_time").quantity, "s")))


def _metric(name: str, label: str, value: Any, wall: int) -> Metric:
    return Metric(name=name, label=label, level="performance", value=value, wall=wall)


def _text(metrics: list[Metric], name: str) -> str:
    return next(metric.text for metric in metrics if metric.name == name)


def _joint_work(groups: Any, joint: _Joint, plan: Plan) -> tuple[float, float]:
    """Useful operations of all groups, and what their accelerators could do in the step."""
    useful = possible = 0.0
    for index, fleet in enumerate(groups.fleets):
        chip = fleet.node.accelerator
        held = joint.answer(joint.slowest).assumptions
        peak, _ = arithmetic_peak(chip, plan.workload.precision or held.get("precision", "bf16"))
        ability = peak * fleet.total_accelerators
        possible += ability * joint.step
        if index in joint.active:
            useful += joint.answer(index).value("mfu") * ability * joint.time(index)
    return useful, possible
