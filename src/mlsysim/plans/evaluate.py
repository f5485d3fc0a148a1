"""``evaluate(plan)``: the answer, its assertions checked, what each figure of the hardware is worth, and the cheapest change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import ranked_changes
from mlsysim.plans.equations import numbers_alone
from mlsysim.plans.limits import demands, stopped
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.plans.risks import risks_of
from mlsysim.plans.schema import as_in_a_plan, spoken
from mlsysim.plans.sensitivities import sensitivities
from mlsysim.units.registry import to_si
from mlsysim.units.text import count_text, given_money

_CLASSES = re.compile(r"^(?:\w+Workload|Fleet): |^The ('\w+') input of \w+(?= must )")
"""What a sentence says of classes, which a plan has none of."""


def evaluate_plainly(plan: Plan, quick: bool = False) -> Answer:
    """The answer alone, without assertions, change and sensitivities; what stopped the plan is what binds. ``quick`` is for plans
    that are only compared: it plays fewer requests or runs where it is simulated, and tells no equations."""
    with numbers_alone() if quick else nullcontext():
        return finished(plan, lambda asked: _evaluator(_kind(asked), quick)(asked))


def _kind(plan: Plan) -> str:
    """What answers a plan: several kinds of accelerator are put together, but for post-training, which takes one."""
    several = plan.kind != "rl" and "+" in (plan.hardware.on or "")
    mixed = several and len(find_fleets(plan.hardware).fleets) > 1
    return "mixed" if mixed else plan.kind


def finished(plan: Plan, evaluator: Callable[[Plan], Answer]) -> Answer:
    """What an evaluator answers, in words of a plan."""
    try:
        answer = evaluator(plan)
    except InputError as error:
        # Resolvers speak of their inputs and of themselves, a plan of its keys.
        sentence = spoken(error.message, as_in_a_plan, Plan.leaves())
        if _CLASSES.match(sentence):
            sentence = _CLASSES.sub(r"\1", sentence)
        raise type(error)(sentence, **{**error.details, "of_a_plan": True}) from None
    notes = *workload_of(plan.workload).caveats, *_unheeded(plan), *_unchecked(answer), *_short(answer)
    return stopped(answer.model_copy(update={"warnings": notes}).in_words(as_in_a_plan))


def _unheeded(plan: Plan) -> Iterator[str]:
    """What a plan says that is beyond what its chips and its model have."""
    model, cap, part = workload_of(plan.workload), plan.hardware.power_cap, plan.serving
    if cap is not None:
        for fleet in find_fleets(plan.hardware).fleets:
            chip = fleet.node.accelerator
            if chip.tdp is not None and cap > chip.tdp:
                yield f"A power limit of {cap:~P} is above the {chip.tdp:~P} of {chip.name}: it changes nothing."
    longest, tokens = getattr(model, "max_context", None), plan.workload.seq_len or 0
    if part is not None:
        tokens = (part.prompt_tokens or tokens) + (part.output_tokens or 0)
    if part is not None and part.engine is not None:
        yield from _elsewhere(plan, part.engine)
    if longest is not None and tokens > longest:
        yield f"{model.name} is made for {longest:,} tokens at most; it is asked for {tokens:,}."


def _elsewhere(plan: Plan, name: str) -> Iterator[str]:
    """An engine on accelerators that it is not made for."""
    from mlsysim.timing.engines import engine

    own = engine(name)
    for fleet in find_fleets(plan.hardware).fleets:
        chip = fleet.node.accelerator
        if own.vendors and chip.vendor not in own.vendors:
            yield f"{own.name} runs on accelerators of {' and '.join(own.vendors)} alone: on {chip.name} its times are what its steps would take there."


def _unchecked(answer: Answer) -> Iterator[str]:
    """A limit on money where nobody knows what is paid."""
    budget = answer.plan.ops.budget
    if budget is not None and answer.paid is None and answer.feasible:
        limit = given_money(to_si(budget, "USD"))
        yield f"{answer.priceless} the budget of {limit} is not checked; give a price."


_MUCH = 1e9
"""Tokens of a step beyond which sequences were likely meant to be tokens."""


def _short(answer: Answer) -> Iterator[str]:
    """A run that ends within its first step, and a batch of tokens where one of sequences is asked."""
    tokens, step = answer.plan.workload.tokens, answer.held.get("latency")
    rate = answer.held.get("tokens_per_second")
    if answer.task == "training" and step is not None and rate is not None:
        each = to_si(step.value, "s") * to_si(rate.value, "1/s")
        if each > _MUCH:
            yield f"A step reads {count_text(each)} tokens: a batch counts sequences, not tokens."
        if tokens is not None and tokens < each * (1 - 1e-9):
            what = f"{count_text(tokens)} {'token is' if tokens == 1 else 'tokens are'} less than one step"
            hint = "a smaller batch has shorter steps"
            if tokens < 1000:
                hint = f"{tokens:g}B and {tokens:g}T are billions and trillions, and tokens of an answer are a matter of serving"
            yield f"{what} of {count_text(each)}, which runs whole; {hint}."


def _evaluator(kind: str, quick: bool) -> Callable[[Plan], Answer]:
    """What answers plans of a kind, imported when it is asked: a pass on a chip needs no search of layouts."""
    if kind == "mixed":
        from mlsysim.plans.mixed import evaluate_mixed_serving
        from mlsysim.plans.mixed_training import evaluate_mixed_training
        from mlsysim.plans.training_run import refuse

        def on_groups(plan: Plan) -> Answer:
            refuse(plan, "A run on several kinds of accelerator is not simulated")
            return (evaluate_mixed_training if plan.kind == "training" else evaluate_mixed_serving)(plan)

        return on_groups
    if kind == "training":
        from mlsysim.plans.training import evaluate_training

        return partial(evaluate_training, quick=quick)
    if kind == "serving":
        from mlsysim.plans.serving import evaluate_serving

        return partial(evaluate_serving, quick=quick)
    if kind == "rl":
        from mlsysim.plans.rl import evaluate_rl

        return evaluate_rl
    from mlsysim.plans.inference import evaluate_inference

    return evaluate_inference


def evaluate(plan: Plan | dict[str, Any], *, change: bool = True) -> Answer:
    """The answer to a plan; what does not fit has no rates and no costs. ``change`` looks for changes, and for what would change the answer."""
    if not isinstance(plan, Plan):
        plan = Plan.model_validate(plan)
    return completed(evaluate_plainly(plan), change)


def completed(answer: Answer, change: bool = True) -> Answer:
    """An answer with its demands, sensitivities and changes."""
    told = {"checks": demands(answer.of_what_runs()), "sensitivities": sensitivities(answer)}
    answer = answer.model_copy(update=told)
    if change:
        with numbers_alone():
            found = ranked_changes(answer, partial(evaluate_plainly, quick=True), evaluate_plainly)
        answer = answer.model_copy(update={"changes": found, "risks": risks_of(answer)})
    return answer.of_what_runs()
