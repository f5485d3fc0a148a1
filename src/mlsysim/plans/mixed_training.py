"""Training on groups of different accelerators: data parallel between the groups, a step's tokens split by speed.

Each group takes the share of a step's tokens that its speed is of the sum, so that all
end at nearly the same time; the step is that of the slowest. Between scattering gradients inside a group and gathering weights
there, each accelerator adds its shard to that of the other groups, all ports at once:

    T = max_i T_i(x_i) + 2 (G - 1) / G x M / min_i (n_i B_i),     x_i ~ tokens/s of group i,   M bytes of all gradients (fp32)

Tokens are packed: a group's accelerators have as many sequences as whole sequences would need, rounded up, each as much shorter, so that
any share can be given, down to parts of a sequence for each accelerator. (Attention then reaches over the shorter ones, which is
less work: nothing at large batches, at most half of the attention of a group with one sequence for each.) Samples of a network of
fixed shape stay whole.

A group that makes the step longer than another alone would is left out. Left out of the model: overlap of that last exchange
(it is paid in full), and pipelines with stages on different chips.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from mlsysim.cases.assumptions import DEFAULT, INFERRED, Assumptions
from mlsysim.cases.failures import Length, with_spares
from mlsysim.cases.goodput import Goodput, Saving, exact_goodput_of, expected_failures
from mlsysim.cases.layout import divisors
from mlsysim.cases.ledger import Ledger
from mlsysim.cases.ledger import Part as Line
from mlsysim.cases.run import run_time
from mlsysim.cases.run_inputs import run_days
from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.models.adapters import ATTENTION, adapter_parameters
from mlsysim.physics.precision import bytes_per_element
from mlsysim.plans.answer import Answer
from mlsysim.plans.equations import Together, equations_of
from mlsysim.plans.metrics import metric
from mlsysim.plans.mixed import assumed_of_all, fullest, groups_of, joined, on_group, seconds_of, sums
from mlsysim.plans.parts import binding_of, memory_facts, next_wall, time_parts
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.plans.spending import TAKEN
from mlsysim.plans.training import evaluate_training
from mlsysim.plans.training_layout import training_batch
from mlsysim.plans.training_time import said_of
from mlsysim.systems.fleet_text import Groups
from mlsysim.units.registry import quantity, to_si
from mlsysim.units.text import count_text

_ROUNDS = 4
_OF_A_SHARE = ("duration", "batch_size", "seq_len")


class _Share(NamedTuple):
    """What a group takes of a step: sequences and the tokens of each (None: samples of a fixed shape)."""

    sequences: int
    length: int | None

    @property
    def tokens(self) -> int:
        return self.sequences * (self.length or 1)


class _Joint(NamedTuple):
    """Groups that make a step together: place, share and answer of each, and the last exchange between them."""

    groups: list[tuple[int, _Share, Answer]]
    exchange: float

    @property
    def slowest(self) -> tuple[int, Answer]:
        return max(((place, answer) for place, _, answer in self.groups), key=lambda each: seconds_of(each[1]))

    @property
    def step(self) -> float:
        return seconds_of(self.slowest[1]) + self.exchange

    @property
    def band(self) -> tuple[float, float] | None:
        """Both ends of the step: of software that they share all groups are slow, or fast, together."""
        ends = [answer.metric("latency") for _, _, answer in self.groups]
        if any(each.low is None or each.high is None for each in ends):
            return None
        low, high = (max(to_si(getattr(each, end), "s") for each in ends) + self.exchange for end in ("low", "high"))
        return low, high

    @property
    def feasible(self) -> bool:
        return all(answer.feasible for _, _, answer in self.groups)


def evaluate_mixed_training(plan: Plan) -> Answer:
    """A step that the groups of a plan make together."""
    groups, texts = find_fleets(plan.hardware), groups_of(plan)
    if plan.ops.start is not None:
        words = "Hours are counted for one kind of accelerator; leave start out, or give one group."
        raise InputError(words, field="start")
    model = workload_of(plan.workload)
    # A batch that each group alone would take; the sum of accelerators decides where none is given.
    first = groups.fleets[0]
    nodes = max(1, round(groups.accelerators / first.node.accelerators_per_node))
    assumed = Assumptions()
    total, seq_len = training_batch(plan, first.model_copy(update={"count": nodes}), model, assumed)
    length = None if model.fixed_shape else seq_len

    def evaluated(place: int, share: _Share, **ops: Any) -> Answer:
        work = {"batch_size": share.sequences, "tokens": None}
        work |= {} if share.length is None else {"seq_len": share.length}
        return evaluate_training(on_group(plan, texts[place], task="training", workload=work, ops=ops))

    joint = _balanced(plan, groups, total, length, evaluated)
    if joint.feasible:
        for place in range(len(texts)):
            whole = _Share(total, length)
            try:
                alone = evaluated(place, whole)
            except InputError:
                continue
            if alone.feasible and seconds_of(alone) < joint.step:
                joint = _Joint([(place, whole, alone)], 0.0)
                break
    return _joint_training(plan, groups, joint, total * (length or 1), evaluated, assumed)


def _balanced(
    plan: Plan, groups: Groups, total: int, length: int | None, evaluated: Callable[[int, _Share], Answer]
) -> _Joint:
    """Shares in proportion to speed; the quickest of a few rounds."""
    weights = [float(fleet.total_accelerators) for fleet in groups.fleets]
    units = [_unit(plan, fleet.total_accelerators) for fleet in groups.fleets]
    found: list[_Joint] = []
    for _ in range(_ROUNDS):
        parts = [total * weight / sum(weights) for weight in weights]
        shares = [_cut(part, unit, length) for part, unit in zip(parts, units, strict=True)]
        try:
            answers = [evaluated(place, share) for place, share in enumerate(shares)]
        except InputError:
            if not found:
                raise
            break
        found.append(_Joint(list(zip(range(len(shares)), shares, answers, strict=True)), _exchange(plan, groups)))
        if plan.parallelism.automatic and not found[-1].feasible:
            break  # no layout fits, whatever its share
        weights = [to_si(answer.value("tokens_per_second"), "1/s") for answer in answers]
    return min(found, key=lambda joint: (not joint.feasible, joint.step))


def _unit(plan: Plan, count: int) -> int:
    """Sequences of which a group takes a multiple: one for each accelerator, or for each micro-batch of a layout that is given."""
    split = plan.parallelism
    if split.automatic:
        return count
    replicas = max(1, count // ((split.tp or 1) * (split.pp or 1) * (split.cp or 1)))
    return replicas * (split.micro_batch or split.micro_batches or 1)


def _cut(part: float, unit: int, length: int | None) -> _Share:
    """A part of a batch, in sequences, as the next whole number of sequences that divides, each as much shorter."""
    if part < unit:
        unit = max(each for each in divisors(unit) if each <= max(part, 1.0))
    sequences = max(1, math.ceil(part / unit - 1e-9)) * unit
    return _Share(sequences, None if length is None else max(1, math.ceil(part * length / sequences - 1e-9)))


def _exchange(plan: Plan, groups: Groups) -> float:
    """The last sum of gradients between groups, in single precision, through all ports of the group that has least."""
    model, count = workload_of(plan.workload), len(groups.fleets)
    trained = model.parameter_count
    if plan.workload.lora_rank is not None:
        trained = adapter_parameters(model, plan.workload.lora_rank, plan.workload.lora_targets or ATTENTION)
    rates = (to_si(f.bandwidth_per_accelerator, "byte/s") * f.total_accelerators for f in groups.fleets)
    return 2 * (count - 1) / count * trained * bytes_per_element("fp32") / min(rates)


def _joint_training(
    plan: Plan, groups: Groups, joint: _Joint, tokens: int, evaluated: Callable[..., Answer], assumed: Assumptions
) -> Answer:
    fleets = [fleet.name for fleet in groups.fleets]
    named = [(fleets[place], answer) for place, _, answer in joint.groups]
    active = [answer for _, answer in named]
    slowest, slow = joint.slowest
    rate = tokens / joint.step
    kept = _joint_goodput(plan, groups, active, joint.step, rate)
    goodput = float(kept.ratio)
    days, wanted = plan.ops.days, plan.workload.tokens
    if wanted is not None and kept.lasting:
        days = run_time(wanted, rate, goodput, 1.0) / 86400.0
    days = days if days is not None else run_days()
    # Each group works and stands with all others.
    stops = {
        "mtbf": (kept.mtbf, "h"),
        "checkpoint_time": (kept.saving.write, "s"),
        "restart_time": (kept.saving.recovery, "s"),
    }
    run = {name: quantity(*value) for name, value in (stops | {"checkpoint_interval": (kept.interval, "s")}).items()}
    run |= {"duration": None, "duration_days": days}
    costs = [evaluated(place, share, **run) for place, share, _ in joint.groups]
    spent, together = sums([(name, cost) for (name, _), cost in zip(named, costs, strict=True)], TAKEN, wanted is None)
    full, (useful, possible) = fullest(active), _joint_work(groups, joint)
    values = {
        "latency": joint.step,
        "mfu": min(1.0, useful / possible),
        "tokens_per_second": rate,
        **({"run_time": days} if wanted is not None and kept.lasting else {}),
        "mtbf": kept.mtbf,
        "expected_failures": float(expected_failures(days * 24.0, kept.mtbf)),
        "goodput": goodput,
        "checkpoint_time": kept.saving.write,
        "checkpoint_interval": kept.interval,
        "restart_time": kept.saving.recovery,
    }
    task = "samples" if workload_of(plan.workload).fixed_shape else "training"
    ledger, unfit = _joint_ledger(slow, joint.exchange), [answer for answer in active if not answer.feasible]
    binding = fullest(unfit).binding if unfit else binding_of(ledger, "step", kept)
    ends = [] if joint.band is None else [end / joint.step for end in joint.band]
    bands = {"latency": ends, "run_time": ends} | dict.fromkeys(
        ("mfu", "tokens_per_second"), tuple(1 / end for end in reversed(ends))
    )
    made = {
        name: metric(name, value, task, [value * end for end in bands.get(name, ())] or None, binding=binding.wall)
        for name, value in values.items()
    }
    likely = f" ({made['latency'].interval})" if ends else ""
    metrics = [full.metric("memory"), full.metric("memory_capacity"), *made.values(), *spent]
    parts = time_parts(ledger)
    noun = "samples" if task == "samples" else "tokens"
    verdict = [_shared(joint, fleets, noun)]
    if wanted is not None and kept.lasting:
        verdict.append(f"{count_text(wanted)} {noun} take {made['run_time'].text} (goodput {made['goodput'].text}).")
    fuller = groups.fleets[joint.groups[active.index(full)][0]].node.accelerator
    assert full.memory is not None  # it runs
    facts = {
        **memory_facts(fuller, full.memory.capacity),
        "peak_of_all_groups": quantity(possible / joint.step, "flop/s"),
        "model_operations": quantity(useful, "flop"),
        "work_of_a_step": tokens,
        "work_of_the_run": wanted,
        "duration": quantity(days, "day"),
        "checkpoint_lag": quantity(kept.saving.lag, "s"),
        "share_with_all_nodes": 1.0 - kept.waiting,
        "checkpoint_interval_given": plan.ops.checkpoint_interval,
        "mtbf_given": plan.ops.mtbf,
    }
    together |= _stops_together(plan, named)
    if wanted is None and plan.ops.days is None:
        assumed.say("duration", run_days(), DEFAULT, f"{run_days():g} days")
    assumed.say("groups", None, INFERRED, "data parallel between groups, a step's tokens split by speed")
    of_all = (each for each in assumed_of_all(named) if each.name not in _OF_A_SHARE)
    answer = joined(
        plan,
        slow,
        named,
        costs,
        f"Fits: a step takes {made['latency'].text}{likely}; the slowest group is {fleets[slowest]}.",
        verdict=tuple(verdict),
        metrics=tuple(metrics),
        binding=binding,
        next_wall=next_wall(ledger, binding, "step"),
        time_parts=parts,
        equations=equations_of(metrics, (), facts, parts, full.memory, together),
        layout={fleets[place]: {**answer.layout, "tokens": share.tokens} for place, share, answer in joint.groups},
        assumed=(*assumed.records, *of_all),
    )
    return answer.read_off(ledger)


def _stops_together(plan: Plan, named: list[tuple[str, Answer]]) -> dict[str, Together]:
    """How what stops the groups is put together."""
    found = {}
    for name, how in (("checkpoint_time", "least"), ("restart_time", "most")):
        texts = {group: answer.metric(name).text for group, answer in named}
        found[name] = Together(f"the {how} of the groups", rf"\mathrm{{{how}}}_i\, x_i", texts)
    if plan.ops.mtbf is None:
        each = {name: answer.metric("mtbf").text for name, answer in named}
        found["mtbf"] = Together("1 / M = sum of 1 / M_i", r"\frac{1}{M} = \sum_i \frac{1}{M_i}", each)
    return found


def _shared(joint: _Joint, fleets: list[str], noun: str) -> str:
    """Who takes how much of a step, or who is left out of it."""
    working = [place for place, _, _ in joint.groups]
    if idle := " and ".join(name for place, name in enumerate(fleets) if place not in working):
        return f"{idle} would slow the others down, so nothing is given to it; its cost is not counted."
    given = sum(share.tokens for _, share, _ in joint.groups)
    parts = (
        f"{fleets[place]} takes {share.tokens / given:.1%} of the {noun} in {answer.metric('latency').text}"
        for place, share, answer in joint.groups
    )
    return f"Load is balanced by speed: {', '.join(parts)}."


def _joint_ledger(slow: Answer, last: float) -> Ledger:
    """The step of the slowest group, and the sum of gradients between groups after it."""
    assert slow.ledger is not None
    line = Line("sum between groups", 14, "fabric", "ring", exposed=last, elastic=last)
    return slow.ledger + Ledger(last, (line,)) if last else slow.ledger


def _joint_goodput(plan: Plan, groups: Groups, answers: list[Answer], step: float, rate: float) -> Goodput:
    """A failure of any group stops all, so that their rates add up, and all are back with the slowest; the group that writes fastest
    saves, for all have the state. Each group has spares of its own kind."""
    said, wanted = said_of(plan, groups.fleets[0]), plan.workload.tokens
    each = [to_si(answer.value("mtbf"), "h") for answer in answers]
    mtbf = 1.0 / sum(1.0 / hours for hours in each) if plan.ops.mtbf is None else to_si(plan.ops.mtbf, "h")
    fastest = min(answers, key=lambda answer: to_si(answer.value("checkpoint_time"), "s"))
    lag = to_si(fastest.value("checkpoint_lag"), "s") if "checkpoint_lag" in fastest.held else 0.0
    restart = max(to_si(answer.value("restart_time"), "s") for answer in answers)
    saving = Saving(to_si(fastest.value("checkpoint_time"), "s"), restart, said.interval, lag, step)
    lasts = (plan.ops.days or run_days()) * 86400.0
    length = Length(lasts=lasts) if wanted is None else Length(wanted / rate)
    return with_spares(exact_goodput_of(mtbf, saving), each, said, length)


def _joint_work(groups: Groups, joint: _Joint) -> tuple[float, float]:
    """Useful operations of all groups, and what their accelerators could do in the step."""
    precision = joint.slowest[1].precision
    active = {place: answer for place, _, answer in joint.groups}
    useful = possible = 0.0
    for place, fleet in enumerate(groups.fleets):
        ability = arithmetic_peak(fleet.node.accelerator, precision)[0] * fleet.total_accelerators
        possible += ability * joint.step
        if place in active:
            useful += active[place].value("mfu") * ability * seconds_of(active[place])
    return useful, possible
