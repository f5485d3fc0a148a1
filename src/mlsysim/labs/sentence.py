"""The plan as one sentence whose words are handles: pieces of text, each with the control that it opens where it has one.

    Training [Llama-3.1-70B] in [bf16] on [512] x [H100], [2,048] sequences of [2,048] tokens a step, for [30 days] in [Quebec].

The words are read off the answer's plan and what was chosen for it; the page decides which controls there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mlsysim.infra.registry import Grids
from mlsysim.plans.answer import Answer
from mlsysim.plans.resolve import workload_of
from mlsysim.plans.targets import TIMES, Target, parse_targets, percent
from mlsysim.units.registry import to_si
from mlsysim.units.text import compact_time, count_text, money_text, number

Piece = dict[str, str]
"""A text, and the path of the control that it is a handle of."""


def sentence(answer: Answer, chosen: dict[str, Any]) -> list[Piece]:
    """The pieces of the sentence, in order; ``chosen`` is what was taken for fields that the plan leaves open, by path."""
    told = {"training": _training, "serving": _serving, "inference": _inference, "rl": _post_training}[answer.task]
    pieces = [piece if isinstance(piece, dict) else {"text": piece} for piece in told(answer, chosen)]
    return [*pieces, {"text": "."}]


def _handle(control: str, text: Any) -> Piece:
    return {"text": text if isinstance(text, str) else number(text), "control": control}


def _what(verb: str, answer: Answer, chosen: dict[str, Any]) -> Iterator[str | Piece]:
    yield f"{verb} "
    yield _handle("workload.model", workload_of(answer.plan.workload).name)
    if precision := chosen.get("workload.precision"):
        yield " in "
        yield _handle("workload.precision", precision)
    yield " on "
    yield from _fleet(answer, chosen)


def _fleet(answer: Answer, chosen: dict[str, Any]) -> Iterator[str | Piece]:
    kind, count = chosen["system_kind"], chosen["accelerators"]
    if kind in ("chip", "node") and (count > 1 or answer.task != "inference"):
        yield _handle("accelerators", count)
        yield " x " if kind == "chip" else " accelerators in "
    name = str(chosen["system"]).replace("_", " ")
    yield _handle("hardware.on", name if kind != "several" else re.sub(r"(\d) *x *(?=\w)", r"\1 x ", name))
    if kind == "cluster":
        yield f" ({number(count)} accelerators)"


def _place(answer: Answer) -> Iterator[str | Piece]:
    if region := answer.plan.ops.region:
        yield " in "
        yield _handle("ops.region", getattr(Grids.get(region, None), "name", region))


def _training(answer: Answer, chosen: dict[str, Any]) -> Iterator[str | Piece]:
    plan = answer.plan
    yield from _what("Training", answer, chosen)
    yield ", "
    batch, length = chosen.get("workload.batch_size"), chosen.get("workload.seq_len")
    length = length if length != 1 or plan.workload.seq_len else None  # a network that counts samples
    if batch:
        yield _handle("workload.batch_size", batch)
        yield " samples a step" if not length else " sequences of "
    if length:
        yield _handle("workload.seq_len", length)
        yield " tokens a step"
    yield " for "
    if plan.workload.tokens is not None:
        yield _handle("workload.tokens", f"{count_text(float(plan.workload.tokens))} tokens")
    else:
        yield _handle("ops.days", answer.period)
    yield from _place(answer)
    if plan.ops.deadline is not None:
        yield ", within "
        yield _handle("ops.deadline", compact_time(to_si(plan.ops.deadline, "s")))
    yield from _budget(answer)


def _budget(answer: Answer) -> Iterator[str | Piece]:
    if answer.plan.ops.budget is not None:
        yield ", for at most "
        yield _handle("ops.budget", money_text(to_si(answer.plan.ops.budget, "USD")))


_LIMITS = {"ttft": "the first token within ", "tpot": "each further one within ", "latency": "the whole within "}


def _limit(target: Target) -> str:
    """A limit on requests in words."""
    kind, within = TIMES[target.kind], f"within {compact_time(target.seconds)}"
    if target.level == "mean":
        return f"the mean {kind} {within}"
    return f"{percent(target.level):g} % of {kind}s {within}"


def _serving(answer: Answer, chosen: dict[str, Any]) -> Iterator[str | Piece]:
    part = answer.plan.serving
    yield from _what("Serving", answer, chosen)
    if part is not None and part.decode_on is not None:
        yield " for prompts and "
        yield _handle("serving.decode_on", str(part.decode_on).replace("_", " "))
        yield " for answers,"
    yield " for "
    if part is not None and part.qps is not None:
        yield _handle("serving.qps", part.qps)
        yield " requests a second"
    elif part is not None and part.concurrency is not None:
        yield _handle("serving.concurrency", part.concurrency)
        yield " requests at a time" if part.concurrency > 1 else " request at a time"
    else:
        yield _handle("serving.load", "as many requests as its limits allow")
    prompt, output = (
        getattr(part, f"{name}_tokens", None) or chosen.get(f"serving.{name}_tokens") for name in ("prompt", "output")
    )
    if prompt and output:
        yield ", "
        yield _handle("serving.prompt_tokens", prompt)
        yield " tokens in and "
        yield _handle("serving.output_tokens", output)
        yield " out each"
    for name, words in _LIMITS.items():
        if part is not None and getattr(part, name) is not None:
            yield f", {words}"
            yield _handle(f"serving.{name}", compact_time(to_si(getattr(part, name), "s")))
    if part is not None and part.slo:
        yield ", "
        yield _handle("serving.slo", " and ".join(map(_limit, parse_targets(part.slo))))
    yield from _place(answer)
    yield from _budget(answer)


def _inference(answer: Answer, chosen: dict[str, Any]) -> Iterator[str | Piece]:
    yield from _what("One pass of", answer, chosen)
    batch = chosen["workload.batch_size"]
    yield ", "
    yield _handle("workload.batch_size", batch)
    yield " samples at a time" if batch > 1 else " sample at a time"
    if answer.plan.workload.seq_len:
        yield " of "
        yield _handle("workload.seq_len", answer.plan.workload.seq_len)
        yield " tokens"
    yield from _place(answer)


def _post_training(answer: Answer, chosen: dict[str, Any]) -> Iterator[str | Piece]:
    part, serving = answer.plan.rl, answer.plan.serving
    yield from _what("Post-training", answer, chosen)
    if part is not None and part.algorithm:
        yield " with "
        yield _handle("rl.algorithm", part.algorithm.upper())
    counted = (
        (", ", "rl.prompts", part and part.prompts, " prompts a step"),
        (" of ", "serving.prompt_tokens", serving and serving.prompt_tokens, " tokens"),
        (", ", "rl.samples", part and part.samples, " responses to each"),
        (" of ", "rl.response", part and part.response, " tokens on average"),
    )
    for before, control, count, after in counted:
        if count:
            yield from (before, _handle(control, count), after)
    yield from _place(answer)
