"""The plan as one sentence whose words are handles: pieces of text, each with the control that it opens where it has one.

    Training [Llama-3.1-70B] in [bf16] on [512] x [H100], [2,048] sequences of [2,048] tokens a step, for [30 days] in [Quebec].

The words are read off the answer's plan and what was chosen for it; the page decides which controls there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from mlsysim.infra.registry import Grids
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan_parts import ServingPart
from mlsysim.plans.resolve import workload_of
from mlsysim.plans.targets import TIMES, Target, parse_targets, percent
from mlsysim.units.registry import to_si
from mlsysim.units.text import compact_time, count_text, given_money, number

Piece = dict[str, str]
"""A text, and the path of the control that it is a handle of."""


def sentence(answer: Answer, chosen: dict[str, Any]) -> list[Piece]:
    """The pieces of the sentence, in order; ``chosen`` is what was taken for fields that the plan leaves open, by path."""
    told = {"training": _training, "serving": _serving, "inference": _inference, "rl": _post_training}[answer.task]
    return [*told(answer, chosen), {"text": "."}]


def _clause(words: str, *values: Any) -> Iterator[Piece]:
    """Words with the values in place of [controls], in their order; nothing where one is not known."""
    shown = iter(values)
    for place, part in enumerate(re.split(r"\[([\w.]+)\]", words) if all(values) else ()):
        if place % 2:
            value = next(shown)
            yield {"text": value if isinstance(value, str) else number(value), "control": part}
        elif part:
            yield {"text": part}


def _what(verb: str, answer: Answer, chosen: dict[str, Any]) -> Iterator[Piece]:
    kind, count = chosen["system_kind"], chosen["accelerators"]
    yield from _clause(f"{verb} [workload.model]", workload_of(answer.plan.workload).name)
    yield from _clause(" in [workload.precision]", chosen.get("workload.precision"))
    yield from _clause(" on ")
    if kind in ("chip", "node") and (count > 1 or answer.task != "inference"):
        yield from _clause("[accelerators] x " if kind == "chip" else "[accelerators] accelerators in ", count)
    name = str(chosen["system"]).replace("_", " ")
    yield from _clause("[hardware.on]", name if kind != "several" else re.sub(r"(\d) *x *(?=\w)", r"\1 x ", name))
    if kind == "cluster":
        yield from _clause(f" ({number(count)} accelerators)")


def _place(answer: Answer) -> Iterator[Piece]:
    region = answer.plan.ops.region
    yield from _clause(" in [ops.region]", region and getattr(Grids.get(region, None), "name", region))


def _training(answer: Answer, chosen: dict[str, Any]) -> Iterator[Piece]:
    work, deadline = answer.plan.workload, answer.plan.ops.deadline
    batch, length = chosen.get("workload.batch_size"), chosen.get("workload.seq_len")
    length = length if length != 1 or work.seq_len else None  # a network that counts samples
    yield from _what("Training", answer, chosen)
    yield from _clause(", ")
    yield from _clause("[workload.batch_size]" + (" sequences of " if length else " samples a step"), batch)
    yield from _clause("[workload.seq_len] tokens a step", length)
    if work.tokens is not None:
        yield from _clause(" for [workload.tokens]", f"{count_text(float(work.tokens))} tokens")
    else:
        yield from _clause(" for [ops.days]", answer.period)
    yield from _place(answer)
    yield from _clause(", within [ops.deadline]", deadline is not None and compact_time(to_si(deadline, "s")))
    yield from _budget(answer)


def _budget(answer: Answer) -> Iterator[Piece]:
    budget = answer.plan.ops.budget
    yield from _clause(", for at most [ops.budget]", budget is not None and given_money(to_si(budget, "USD")))


_LIMITS = {"ttft": "the first token within ", "tpot": "each further one within ", "latency": "the whole within "}


def _limit(target: Target) -> str:
    """A limit on requests in words."""
    kind, within = TIMES[target.kind], f"within {compact_time(target.seconds)}"
    if target.level == "mean":
        return f"the mean {kind} {within}"
    return f"{percent(target.level):g} % of {kind}s {within}"


def _at_a_time(clients: int) -> str:
    return f"{'requests' if clients > 1 else 'request'} at a time"


def _serving(answer: Answer, chosen: dict[str, Any]) -> Iterator[Piece]:
    part = answer.plan.serving or ServingPart()
    yield from _what("Serving", answer, chosen)
    pool = part.decode_on and str(part.decode_on).replace("_", " ")
    yield from _clause(" for prompts and [serving.decode_on] for answers,", pool)
    if part.qps is not None:
        yield from _clause(" for [serving.qps] requests a second", part.qps)
    elif part.concurrency is not None:
        yield from _clause(f" for [serving.concurrency] {_at_a_time(part.concurrency)}", part.concurrency)
    elif part.trace is not None:
        yield from _clause(" for the requests of [serving.trace]", PurePath(part.trace).name)
    elif part.slo or any(getattr(part, name) is not None for name in _LIMITS):
        yield from _clause(" for as many requests as [serving.load] allow", "its limits")
    else:
        taken = chosen.get("serving.concurrency")
        yield from _clause(" for [serving.load]", taken and f"{number(taken)} {_at_a_time(taken)}")
    both = ("prompt_tokens", "output_tokens")
    lengths = (getattr(part, name) or chosen.get(f"serving.{name}") for name in both)
    yield from _clause(", [serving.prompt_tokens] tokens in and [serving.output_tokens] out each", *lengths)
    for name, words in _LIMITS.items():
        limit = getattr(part, name)
        yield from _clause(f", {words}[serving.{name}]", limit is not None and compact_time(to_si(limit, "s")))
    yield from _clause(", [serving.slo]", part.slo and " and ".join(map(_limit, parse_targets(part.slo))))
    yield from _place(answer)
    yield from _budget(answer)


def _inference(answer: Answer, chosen: dict[str, Any]) -> Iterator[Piece]:
    batch = chosen["workload.batch_size"]
    yield from _what("One pass of", answer, chosen)
    yield from _clause(f", [workload.batch_size] {'samples' if batch > 1 else 'sample'} at a time", batch)
    yield from _clause(" of [workload.seq_len] tokens", answer.plan.workload.seq_len)
    yield from _place(answer)


def _post_training(answer: Answer, chosen: dict[str, Any]) -> Iterator[Piece]:
    part, serving = answer.plan.rl, answer.plan.serving
    yield from _what("Post-training", answer, chosen)
    yield from _clause(" with [rl.algorithm]", part and part.algorithm and part.algorithm.upper())
    yield from _clause(", [rl.prompts] prompts a step", part and part.prompts)
    yield from _clause(" of [serving.prompt_tokens] tokens", serving and serving.prompt_tokens)
    yield from _clause(", [rl.samples] responses to each", part and part.samples)
    yield from _clause(" of [rl.response] tokens on average", part and part.response)
    yield from _place(answer)
