"""The command ``plan``: the least fleet that trains a model in time, or that serves a traffic within its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Context, Option

from mlsysim.cli.options import AsJson, Output, chosen_form
from mlsysim.cli.output import busy, end, print_answer, print_result, print_text
from mlsysim.cli.plan_options import plan_of, settings_of
from mlsysim.cli.plans import Model
from mlsysim.errors import InputError

if TYPE_CHECKING:
    from mlsysim.plans.answer import Answer
    from mlsysim.plans.least_service import Service
    from mlsysim.plans.plan import Plan


def plan(
    context: Context,
    model: Model,
    deadline: Annotated[str | None, Option(help="of a training run, such as 14d or '30 day'")] = None,
    chips: Annotated[str | None, Option("--on", help="chips to compare, such as H100,B200")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The least fleet for each chip: that trains a model by a deadline (on 20 tokens a parameter unless --tokens says more), or that
    answers requests within limits.

    mlsysim plan Llama3_70B --deadline 14d --budget 5MUSD
    mlsysim plan Llama3_8B --deadline 3d --tokens 1T --on H100,B200 --region Sweden
    mlsysim plan Llama3_8B --qps 50 --isl 1000 --osl 200 --slo ttft_p99=500ms,tpot=30ms --on H100,L40S
    mlsysim plan Llama3_70B --trace azure-conversation --slo ttft_p99=2s --on H100,H200 -p fp8
    """
    form, given = chosen_form(context, output, as_json), settings_of(context)
    served = "qps" in given or "trace" in given
    if served == (deadline is not None):
        words = "plan takes --deadline for a training run, or --qps or --trace for a service; give one of them"
        raise InputError(f"{words}.", field="deadline")
    names = [chip.strip() for chip in chips.split(",") if chip.strip()] if chips else []
    (_serve if served else _train)(context, model, deadline, names, form)


def _train(context: Context, model: str, deadline: str | None, names: list[str], form: str) -> None:
    from mlsysim.plans.evaluate import evaluate as answer_to
    from mlsysim.plans.evaluate import evaluate_plainly
    from mlsysim.plans.least_fleet import CHIPS, least_fleet
    from mlsysim.plans.resolve import find_model
    from mlsysim.units.text import count_text

    wanted = plan_of(context, task="training", model=model, on="8xH100", deadline=deadline)
    if wanted.workload.tokens is None:
        workload = find_model(model)
        if workload.parameters is None:
            raise InputError(f"{model} states no parameters; give --tokens.", field="tokens")
        wanted = wanted.with_settings({"tokens": 20 * float(workload.parameters.to("param").magnitude)})
    count = wanted.workload.tokens or 0.0
    names = names or list(CHIPS)
    with busy("searching fleets ...") as saying:

        def tried(candidate: Plan) -> Answer:
            saying(f"trying {candidate.hardware.on} ...")
            return evaluate_plainly(candidate)

        found = least_fleet(wanted, names, tried)
    best = next((candidate for candidate in found if candidate.answer is not None), None)
    answer = None if best is None or best.answer is None else answer_to(best.answer.plan)
    if answer is None or best is None:
        verdict = (f"No fleet of {', '.join(names)} trains on {count_text(count)} tokens in time.", "bold red")
    else:
        words = f"{best.accelerators:,} x {best.chip} is the cheapest fleet that trains on {count_text(count)} tokens in time."
        verdict = (words, "bold green")
    candidates = [
        {
            "chip": c.chip,
            "accelerators": c.accelerators,
            "reason": c.reason or None,
            "answer": None if c.answer is None else c.answer.to_dict(),
        }
        for c in found
    ]
    document = {"tokens": count, "best": None if answer is None else answer.to_dict(), "candidates": candidates}
    rows = [[c.chip, "none" if c.answer is None else f"{c.accelerators:,}", *_columns(c.answer)] for c in found]
    headers = ["chip", "accelerators", "run", "cost", "MFU", "carbon"]
    reasons = [(f"{c.chip}: {c.reason}", "dim") for c in found if c.answer is None]
    print_result(form, document, headers, rows, right=(1, 2, 3, 4, 5), before=[verdict], after=reasons)
    _end_with(answer, form)


def _serve(context: Context, model: str, deadline: str | None, names: list[str], form: str) -> None:
    from mlsysim.plans.least_service import CHIPS, described, least_services

    names = names or list(CHIPS)
    wanted = plan_of(context, task="serving", model=model, on=names[0])
    with busy("searching services ...") as saying:
        found = least_services(wanted, names, saying)
    able = [each for each in found if each.answer is not None]
    answer = able[0].answer if able else None
    words, good = described(found, names)
    document = {"best": None if answer is None else answer.to_dict(), "candidates": [each.to_dict() for each in found]}
    headers = ["chip", "number", "replicas", "USD a day", "first token p99", "token", "headroom", "odds"]
    after = [(f"{each.chip}: {each.reason}", "dim") for each in found if each.answer is None]
    if able:
        part = wanted.serving
        drawn = able[0].answer is not None and able[0].answer.fidelity == "simulated" and part is not None
        drawn = drawn and part is not None and part.trace is None and part.requests is None
        fewer = " Rows after the first are of fewer simulated requests." if drawn and len(able) > 1 else ""
        after.insert(0, (_COLUMNS + fewer, "dim"))
    rows = [_row(each) for each in able]
    before = [(words, "bold green" if good else "bold red")]
    print_result(form, document, headers, rows, right=(1, 3, 4, 5, 6, 7), before=before, after=after)
    _end_with(answer, form)


_COLUMNS = (
    "Headroom: how many times as many requests may come until a limit is missed. Odds: that every limit is kept. "
    "Replicas after a + write what those before it read. Each row is a plan that serve repeats."
)


def _row(each: Service) -> list[str]:
    assert each.answer is not None and each.design is not None
    held = each.answer.held
    first = held.get("ttft_p99") or held["ttft"]
    price, odds, room = each.price, each.odds, each.headroom
    return [
        each.chip,
        f"{each.accelerators:,}",
        each.design.text,
        f"{price:,.0f}" if price < float("inf") else "not known",
        first.text if "ttft_p99" in held else f"mean {first.text}",
        held["tpot"].text,
        "" if room is None else f"{room:.2f}",
        "" if odds is None else f"{odds:.0%}",
    ]


def _end_with(answer: Answer | None, form: str) -> None:
    from mlsysim.cli.last import remember

    if answer is None:
        end(2)
        return
    if form == "text":
        print_text("")
        print_answer(answer, form)
    remember(answer.plan)
    end(answer.exit_code)


def _columns(answer: Answer | None) -> list[str]:
    names = ["run_time", "tco", "mfu", "carbon_footprint"]
    if answer is None:
        return [""] * len(names)
    names[1] = "tco" if answer.paid is None else answer.paid.name
    held = {metric.name: metric.text for metric in answer.metrics}
    return [held.get(name, "not known") for name in names]
