"""What to change first: what lowers the cost of the goal most.

The goal is a run of so many tokens, a service of a rate within its limits, or else a million tokens; each costs what the answer says
a token costs, for the rate or the tokens are the same. What cannot lower the cost may still be faster for the same money, and where
no price is known speed alone decides. Changes are tried in rounds: what the accelerators at hand allow (settings, formats, fewer of
them), what traffic may allow (prefixes in a cache), another network, other accelerators. The first round in which something helps by
2 % or more wins, and in it what helps most: that is the cheapest change. Others of that round follow it where they change other things,
so that each can be done beside the others. A plan that does not fit or misses a demand is put right as cheaply as one round can.

A change never breaks a demand that the plan keeps, and names what it makes worse: time, memory that is left, energy. It is the plan as it
was asked with one thing changed, so that what is promised is what that plan answers. Changes are ranked quickly: the layout stays, and of
requests or runs that are played few are. Those that are told are evaluated as their plans would be, with a layout chosen anew where
the first was chosen too; another one is named.
Numbers do not say what a narrower format does to accuracy, or a larger batch to convergence; a network has no price of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.change_candidates import (
    SUCCESSORS,
    WORTH_IT,
    Candidate,
    Holds,
    Rounds,
    degrees,
    fewest,
    narrower,
    spoken,
)
from mlsysim.plans.limits import demands
from mlsysim.plans.metrics import value_text
from mlsysim.plans.pieces import Change
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.plans.rl_part import RlPart
from mlsysim.units.registry import Quantity

LOWER_IS_BETTER = ("latency", "usd_per_mtoken")
_NOTED = 0.05
"""What is worse by enough to be said."""
_MOST = 3
"""Changes that are told."""

Evaluate = Callable[[Plan], Answer]


def settled(answer: Answer) -> Plan:
    """The plan with everything that was chosen for it written down: layout, batch, lengths."""
    plan, layout = answer.plan, answer.layout
    if answer.task == "training" and layout and "tp" in layout:
        split = _trained(layout) | {"dp": layout["dp"]}
        # Sequence parallelism and overlap stay as the plan has them.
        lengths: dict[str, Any] = {"batch_size": layout["batch_size"]}
        if plan.workload.seq_len is not None or "seq_len" in answer.assumptions:
            lengths["seq_len"] = layout["seq_len"]
        return plan.replacing(parallelism=split, workload=lengths, task="training")
    if answer.task == "serving" and layout and "tp" in layout:
        traffic: dict[str, Any] = {"replicas": layout["replicas"]}
        if "qps" in layout:
            traffic["qps"] = layout["qps"]
        else:
            traffic["concurrency"] = layout["concurrency"]
        split = {"mode": "given", **{name: layout[name] for name in ("tp", "pp", "ep")}}
        split |= {"attention_dp": layout["attention_dp"] if layout["attention_dp"] > 1 else None, "dp": None}
        traffic |= {name: layout[name] for name in ("decode_tp", "decode_replicas") if name in layout}
        return plan.replacing(parallelism=split, serving=traffic, task="serving")
    if answer.task == "rl" and layout:
        pools: dict[str, Any] = {name: layout[name] for name in layout if name in RlPart.model_fields}
        if "generator_tp" in layout:
            pools["split"] = str(layout["generators"] or "none")
        return plan.replacing(parallelism=_trained(layout), rl=pools, task="rl")
    return plan


def _trained(layout: dict[str, Any]) -> dict[str, Any]:
    """The layout of a trainer as a plan writes it down."""
    split = {name: layout[name] for name in ("tp", "pp", "cp", "ep", "virtual_stages", "zero", "recompute")}
    split |= {"schedule": layout["schedule"]} if layout.get("schedule") and layout["pp"] > 1 else {}
    split |= {"recomputed": layout["recomputed"]} if layout.get("recomputed") else {}
    micro = max(1, layout["batch_size"] // layout["dp"] // layout["micro_batches"])
    return split | {"mode": "given", "micro_batch": micro}


def ranked_changes(answer: Answer, evaluate: Evaluate, whole: Evaluate) -> tuple[Change, ...]:
    """What lowers the cost of the goal most, else what is faster for the same money; of a wrong plan what puts it right. Then what
    else helps and changes other things. They are ranked by ``evaluate``, and what is told is what ``whole`` says."""

    def holds(plan: Plan) -> bool:
        try:
            return _kept(answer, evaluate(plan))
        except InputError:
            return False

    base, quick = settled(answer), answer
    if answer.fidelity == "simulated" and answer.task == "training":
        # Changes are played with few seeds; so is what they are compared with.
        quick = evaluate(base).model_copy(update={"plan": answer.plan, "checks": answer.checks})
    for candidates in rounds_of(base, quick, holds):
        ranked = _sorted(_found(quick, candidate, evaluate) for candidate in candidates)
        found = _sorted(_checked(answer, base, ranked, whole))
        if found:
            return tuple(_ranked(answer, [each[1:] for each in found]))
    return ()


_Found = tuple[tuple[float, ...], Candidate, Answer]


def _sorted(found: Iterable[_Found | None]) -> list[_Found]:
    return sorted(filter(None, found), key=lambda each: each[0], reverse=True)


def _found(before: Answer, candidate: Candidate, evaluate: Evaluate) -> _Found | None:
    """What a change is worth, and its answer; None where it breaks a demand or is not worth it."""
    try:
        tried = evaluate(candidate.plan)
        gain = _gain(before, tried) if _kept(before, tried) else None
    except InputError:
        return None
    return None if gain is None else (gain, candidate, tried)


def _checked(before: Answer, base: Plan, ranked: list[_Found], whole: Evaluate) -> Iterator[_Found]:
    """Those of some changes that can be told, as the plan that was asked has them: the first that change other things, and one without a risk."""
    played, touched = before.fidelity == "simulated", set[str]()
    most, told, risky = 1 if played else _MOST, 0, False
    for gain, candidate, tried in ranked:
        asked = candidate._replace(plan=_as_asked(before, base, candidate.plan))
        own = _touched(before.plan, asked.plan)
        fresh = told < most and not touched & own
        if not (fresh or (risky and not candidate.risky)):
            continue
        # Without a choice to be made again it is what was ranked, to the bit.
        same = not played and asked.plan == candidate.plan
        found = (gain, asked, tried) if same else _found(before, asked, whole)
        if found is not None:
            risky = candidate.risky if not told else risky and candidate.risky
            told += fresh
            touched |= own
            yield found


_FOLLOW = ("replicas", "decode_tp", "decode_replicas")
"""What of a service follows from its split and its accelerators."""


def _as_asked(answer: Answer, base: Plan, plan: Plan) -> Plan:
    """The plan that was asked, with what a change of the settled one has another of. What was chosen is left to be chosen again, but for a batch
    that would be another with other accelerators: a change of two things is no comparison."""
    asked, was, now = answer.plan, base.document(), plan.document()
    changed: dict[str, Any] = {}
    for part in was.keys() | now.keys():
        one, other = was.get(part) or {}, now.get(part) or {}
        if one != other:
            keys = sorted(one.keys() | other.keys()) if isinstance(other, dict) else ()
            changed[part] = {key: other.get(key) for key in keys if one.get(key) != other.get(key)} if keys else other
    split, service = asked.parallelism, asked.serving
    others = changed.get("parallelism", {})
    itself = others.keys() == {"micro_batch"} or others.get("attention_dp") is not None
    if (split.automatic or (service is not None and split.tp is None)) and not itself:
        changed.pop("parallelism", None)
    for name in _FOLLOW:
        if service is None or getattr(service, name) is None:
            changed.get("serving", {}).pop(name, None)
    if answer.task == "training" and _accelerators(plan) != _accelerators(asked):
        changed["workload"] = {"batch_size": base.workload.batch_size} | changed.get("workload", {})
    return asked.replacing(**changed)


def _of_groups(plan: Plan, answer: Answer, holds: Holds) -> Rounds:
    """Of several kinds of accelerator: a narrower format, one kind left out; the next generation of one, or more of it."""
    texts, fleets = [piece.strip() for piece in (plan.hardware.on or "").split("+")], find_fleets(plan.hardware).fleets
    keys = [fleet.node.accelerator.metadata.key or "" for fleet in fleets]
    counts = [fleet.total_accelerators for fleet in fleets]

    def on(place: int, *instead: str) -> Plan:
        return plan.replacing(hardware={"on": " + ".join([*texts[:place], *instead, *texts[place + 1 :]])})

    def newer() -> Iterator[Candidate]:
        for place, key in enumerate(keys):
            for name in SUCCESSORS.get(key.split("_")[0], ()):
                if name not in keys:
                    yield Candidate(f"{name} instead of {spoken(key)}", on(place, f"{counts[place]}x{name}"))

    def more() -> Iterator[Candidate]:
        for place, (key, own) in enumerate(zip(keys, counts, strict=True)):
            tried = [own * 2**power for power in range(1, _DOUBLED)] if key else []
            enough = fewest(tried, lambda count, place=place, key=key: holds(on(place, f"{count}x{key}")))  # type: ignore[misc]
            if enough is not None:
                yield Candidate(f"{enough:,} x {spoken(key)} instead of {own:,}", on(place, f"{enough}x{key}"))

    what, formats = ("compute", ("fp8",)) if answer.task == "training" else ("weights and arithmetic", ("fp8", "int8"))
    without = [Candidate(f"{fleet.name} left out", on(place)) for place, fleet in enumerate(fleets)]
    yield [*narrower(plan, answer, what, formats), *without]
    yield list(newer())
    if not answer.passed:
        yield list(more())


_DOUBLED = 6
"""How often a group is doubled at most where more of it are tried, and one more."""


def rounds_of(plan: Plan, answer: Answer, holds: Holds) -> Rounds:
    """Rounds of candidates for a plan; those of a task are loaded where it is asked for."""
    if len(find_fleets(plan.hardware).fleets) > 1:
        return _of_groups(plan, answer, holds)
    if answer.task in ("training", "rl"):
        from mlsysim.plans.change_training import of_post_training, of_training

        return (of_training if answer.task == "training" else of_post_training)(plan, answer, holds)
    from mlsysim.plans.change_services import of_a_service, of_one_pass

    return (of_a_service if answer.task == "serving" else of_one_pass)(plan, answer, holds)


def _kept(before: Answer, tried: Answer) -> bool:
    """Whether a plan fits and keeps every demand; one that was certain to be kept stays so."""
    certain = {check.limit for check in before.checks if check.passed and check.certain}
    checks = demands(tried)
    return tried.feasible and all(each.passed and (each.certain or each.limit not in certain) for each in checks)


def _gain(before: Answer, tried: Answer) -> tuple[float, ...] | None:
    """What a change is worth, the larger the better: money first, then speed; None where it is not worth it."""
    faster = _faster(before, tried)
    if not before.passed:
        # What is asked is to be had for the least money; of a run that lasts as long whatever it learns, that is the price of its tokens.
        # Without a price, fewer accelerators cost less.
        lasting = tried.task == "training" and tried.plan.workload.tokens is None
        paid = (tried.held.get("usd_per_mtoken") if lasting else None) or tried.paid
        spent = paid and float(paid.value.magnitude)
        return (1 / spent,) if spent else (-_accelerators(tried.plan), faster)
    ratio = _ratio(before, tried)
    if "usd_per_mtoken" not in before.held or ratio is None:
        # Without a goal that costs something: speed, for which no larger factor is paid.
        return (faster,) if faster >= 1 + WORTH_IT and (ratio is None or ratio <= max(faster, 1.0)) else None
    saved, gained = ((gain if gain >= WORTH_IT else 0.0) for gain in (1 - ratio, faster - 1))
    return (saved, gained) if ratio < 1 + WORTH_IT / 2 and (saved or gained) else None


def _accelerators(plan: Plan) -> int:
    return sum(fleet.total_accelerators for fleet in find_fleets(plan.hardware).fleets)


def _faster(before: Answer, tried: Answer) -> float:
    base = score(before)
    return score(tried, before.main) / base if base > 0 and before.main in tried.held else 1.0


def _ratio(before: Answer, tried: Answer) -> float | None:
    cost, spent = _cost(before), _cost(tried)
    return spent / cost if spent is not None and cost else None


def score(answer: Answer, main: str = "") -> float:
    """A metric, the main one unless named, such that more is better."""
    name = main or answer.main
    value = answer.value(name)
    number = float(value.to_base_units().magnitude) if isinstance(value, Quantity) else float(value)
    return 1 / number if name in LOWER_IS_BETTER and number else number


def _cost(answer: Answer) -> float | None:
    held = answer.held
    named = ("usd_per_mtoken", "tco", "purchase")
    return next((float(held[name].value.magnitude) for name in named if name in held), None)


def _ranked(before: Answer, found: list[tuple[Candidate, Answer]]) -> Iterator[Change]:
    """The best of what was found, in its sentence the best without a risk beside one with; then others that change other things."""
    touched: set[str] = set()
    told = 0
    for candidate, tried in found:
        own = _touched(before.plan, candidate.plan)
        if told < _MOST and not touched & own:
            yield _change(before, candidate, tried, None if told else found[1:])
            touched |= own
            told += 1


def _touched(base: Plan, plan: Plan) -> set[str]:
    """What a plan has another of: a layout is one thing, as are accelerators and their number."""
    parts, others = base.model_dump(exclude_none=True), plan.model_dump(exclude_none=True)
    found = set()
    for name in parts.keys() | others.keys():
        was, now = parts.get(name) or {}, others.get(name) or {}
        if was != now:
            whole = name in ("parallelism", "hardware") or not isinstance(was, dict)
            keys = [""] if whole else [key for key in was.keys() | now.keys() if was.get(key) != now.get(key)]
            found |= {f"{name}.{key}" for key in keys}
    # Replicas go with the accelerators and their split; a layout that a change of something else forces is its own.
    found -= {"serving.replicas", "serving.concurrency", "serving.qps"}
    return found - {"parallelism."} or found


def _change(
    before: Answer, best: Candidate, tried: Answer, others: Sequence[tuple[Candidate, Answer]] | None
) -> Change:
    """A change; the cheapest has ``others`` beside it."""
    words, effects = _words(before, best, tried), _effects(before, tried)
    told = f"{'Another' if others is None else 'Cheapest'} change: {words}"
    if not before.feasible and not before.overloaded:
        effects = "then it fits and everything asked for holds" if before.checks else "then it fits"
        sentence = f"{told}; {effects}{_priced(tried)}."
    elif not before.passed:
        effects = f"then everything asked for holds{_taking(tried)}"
        sentence = f"{told}; {effects}."
    else:
        sentence = f"{told}: {effects}."
        safe = next((each for each in others or () if best.risky and not each[0].risky), None)
        if safe is not None:
            sentence += f" Without that risk, {_words(before, *safe)}: {_effects(before, safe[1])}."
    faster = _faster(before, tried)
    factor = 1 / faster if before.main in LOWER_IS_BETTER else faster
    ratio = _ratio(before, tried)
    named: dict[str, Any] = {"words": words, "effects": effects, "sentence": sentence, "metric": before.main}
    return Change(**named, factor=factor, cost_factor=ratio, plan=best.plan)


def _words(before: Answer, candidate: Candidate, tried: Answer) -> str:
    """What to do; a layout that is another for it is named, and a batch that would be."""
    was, now, words = before.layout, tried.layout, candidate.words
    if not isinstance(words, str):
        return words(tried)
    given, batch = before.plan.workload.batch_size, candidate.plan.workload.batch_size
    if given is None and batch is not None and batch == was.get("batch_size"):
        words += f" with the same batch of {batch:,}"
    splits = [degrees({**each, "dp": 1}) for each in (was, now) if "tp" in each]
    return words if len({*splits}) < 2 else f"{words}, as {splits[1]}"


def _priced(tried: Answer) -> str:
    """What tokens or samples cost where there was no price of them before: the cheapest change is that with the least."""
    found, fixed = tried.held.get("usd_per_mtoken"), workload_of(tried.plan.workload).fixed_shape
    return "" if found is None else f", at {found.text} for a million {'samples' if fixed else 'tokens'}"


def _taking(tried: Answer) -> str:
    """What a run that keeps what was asked takes."""
    paid, time = tried.paid, tried.held.get("run_time")
    return f" (the run takes {time.text} and {paid.text})" if paid is not None and time is not None else ""


_WORSE = {
    "ttft": "first token after",
    "tpot": "further tokens every",
    "run_time": "the run takes",
    "energy_per_token": "energy of a token",
    "energy": "energy of the run",
}


def _effects(before: Answer, tried: Answer) -> str:
    """What a change does to cost and speed, and what it makes worse."""
    told, was, now = [], before.held, tried.held
    ratio, faster = _ratio(before, tried), _faster(before, tried)
    run = "run_time" in was and "run_time" in now
    if ratio is not None and abs(ratio - 1) >= 0.01:
        told.append(f"{abs(ratio - 1):.0%} {'lower' if ratio < 1 else 'higher'} cost{_of_what(before, run)}")
    if faster >= 1.01 and before.main == "tokens_per_second":
        told.append(f"{faster - 1:.0%} more throughput" if faster < 2 else f"{faster:.2g} times the throughput")
    elif faster >= 1.01:
        of = "requests " if before.main == "latency" and before.task == "serving" else ""
        told.append(of + (f"{faster - 1:.0%} faster" if faster < 2 else f"{faster:.2g} times as fast"))
    if "goodput" in was and "goodput" in now and now["goodput"].value >= was["goodput"].value + WORTH_IT:
        told.append(f"goodput {now['goodput'].text} instead of {was['goodput'].text}")
    for name, words in _WORSE.items():
        if name in was and name in now and (run or name != "energy"):
            old, new = was[name], now[name]
            if float((new.value / old.value).to("").magnitude) >= 1 + _NOTED:
                told.append(f"{words} {new.text} instead of {old.text}")
    if "memory" in was and now["memory"].value > was["memory"].value:
        left = now["memory_capacity"].value - now["memory"].value
        if left < _NOTED * now["memory_capacity"].value:
            told.append(f"only {value_text('memory', left)} of memory left")
    return ", ".join(told)


def _of_what(before: Answer, run: bool) -> str:
    """What a cost is of, for a sentence: a run, a service over its time, or what is made."""
    if "usd_per_mtoken" not in before.held or run:
        return " of the run" if run else ""
    part = before.plan.serving
    if part is not None and part.qps is not None and part.backlog is None:
        return " per day" if before.period == "a day" else f" of {before.period}"
    return " per sample" if workload_of(before.plan.workload).fixed_shape else " per token"
