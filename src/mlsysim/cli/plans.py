"""Commands that answer a plan: ``eval``, ``train``, ``serve``, ``plan``, ``audit``, ``compare``, ``sensitivity``, ``explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlsysim.cli.options import (
    AsJson,
    Batch,
    Efficiency,
    Output,
    Precision,
    Region,
    SeqLen,
    chosen_form,
    efficiency_of,
    is_plan_file,
    number_of,
)
from mlsysim.cli.output import busy, print_answer, print_json, print_sentences, print_table, print_text
from mlsysim.errors import InputError

if TYPE_CHECKING:
    from mlsysim.plans.answer import Answer
    from mlsysim.plans.plan import Plan

__all__ = ["audit", "compare", "evaluate", "explain", "named_plan", "plan", "sensitivity", "serve", "train"]

On = Annotated[str, typer.Option("--on", help="the fleet: 512xH100, 64xDGX_H100@NDR, 8xB200 + 8xH100, Meta_16K")]
Layout = Annotated[str | None, typer.Option("--layout", help="auto, or such as tp=8,pp=4,zero=1,recompute=selective")]
Tokens = Annotated[str | None, typer.Option("--tokens", help="tokens to train on: 15e12 or 15T")]
Duration = Annotated[str | None, typer.Option("--duration", help="such as '30 day'")]


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _build(**parts: Any) -> Plan:
    from mlsysim.plans.plan import Plan

    return Plan.model_validate({name: part for name, part in parts.items() if part not in (None, {})})


def _layout(text: str | None) -> Any:
    """The value of --layout as a plan's parallelism."""
    if text is None or text.strip() == "auto":
        return text and "auto"
    found: dict[str, Any] = {}
    for piece in text.split(","):
        name, mark, value = piece.partition("=")
        if not mark:
            raise InputError(f"--layout takes pairs such as tp=8,pp=4, got {piece.strip()[:40]!r}.", field="layout")
        value = value.strip()
        number = value.lstrip("-").isdigit()
        found[name.strip()] = int(value) if number else {"true": True, "false": False}.get(value, value)
    return found


def _finish(context: typer.Context, plan: Plan, form: str) -> None:
    """Evaluate, remember, print, and end with the answer's exit code."""
    from mlsysim.cli.last import remember
    from mlsysim.plans.evaluate import evaluate as answer_to

    with busy("evaluating ..."):
        answer = answer_to(plan)
    remember(plan)
    print_answer(answer, form)
    if answer.exit_code:
        raise typer.Exit(answer.exit_code)


def _load(path: str) -> Plan:
    from mlsysim.plans.files import load_plan

    return load_plan(path)


def evaluate(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="MODEL|FILE", help="a model of the zoo, a model file, or a plan file")
    ],
    hardware: Annotated[str | None, typer.Argument(help="a chip, such as H100")] = None,
    batch_size: Batch = None,
    seq_len: SeqLen = None,
    precision: Precision = None,
    efficiency: Efficiency = None,
    region: Region = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """One pass of a model on a chip, or a whole plan file.

    mlsysim eval ResNet50 A100
    mlsysim eval Llama3_8B H100 -b 8 -s 4096 -p fp8
    mlsysim eval examples/scenarios/llama3-70b-512-h100.toml
    """
    form = chosen_form(context, output, as_json)
    if hardware is None:
        if not is_plan_file(target):
            raise InputError(
                f"eval takes a model and a chip, or a plan file; give a chip after {target[:60]!r}, such as H100.",
                field="hardware",
            )
        plan = _load(target)
        changes = _given(batch_size=batch_size, seq_len=seq_len, precision=precision)
        parts: dict[str, Any] = {"workload": changes} if changes else {}
        if efficiency is not None:
            parts["hardware"] = {"efficiency": efficiency_of(efficiency)}
        if region is not None:
            parts["ops"] = {"region": region}
        _finish(context, plan.replacing(**parts), form)
        return
    plan = _build(
        workload=_given(model=target, batch_size=batch_size, seq_len=seq_len, precision=precision),
        hardware=_given(on=hardware, efficiency=efficiency_of(efficiency)),
        ops=_given(region=region),
    )
    _finish(context, plan, form)


def train(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="a model of the zoo, or a path to a model file")],
    on: On,
    batch_size: Batch = None,
    seq_len: SeqLen = None,
    precision: Precision = None,
    layout: Layout = None,
    tokens: Tokens = None,
    duration: Duration = None,
    deadline: Annotated[str | None, typer.Option(help="such as '14 day'")] = None,
    budget: Annotated[str | None, typer.Option(help="such as '5 MUSD'")] = None,
    region: Region = None,
    lora: Annotated[int | None, typer.Option(help="train adapters of this rank")] = None,
    stack: Annotated[str | None, typer.Option(help="training software of the calibrated fidelity")] = None,
    efficiency: Efficiency = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Train a model on a fleet: fits, time, cost, carbon, what binds and what to change.

    mlsysim train Llama3_70B --on 512xH100 --tokens 15T --region Quebec
    mlsysim train Llama3_8B --on 8xH100 --layout tp=2,zero=1 -b 256 -s 8192
    """
    form = chosen_form(context, output, as_json)
    plan = _build(
        task="training",
        workload=_given(
            model=model,
            batch_size=batch_size,
            seq_len=seq_len,
            precision=precision,
            tokens=number_of(tokens, "tokens"),
            lora_rank=lora,
        ),
        hardware=_given(on=on, efficiency=efficiency_of(efficiency), stack=stack),
        parallelism=_layout(layout),
        ops=_given(region=region, duration=duration, deadline=deadline, budget=budget),
    )
    _finish(context, plan, form)


def serve(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="a model of the zoo, or a path to a model file")],
    hardware: Annotated[str | None, typer.Argument(help="a chip or fleet, as --on")] = None,
    on: Annotated[str | None, typer.Option("--on", help="the fleet, such as 8xH200")] = None,
    isl: Annotated[int | None, typer.Option("--isl", "-s", "--seq-len", help="tokens of a prompt")] = None,
    osl: Annotated[int | None, typer.Option("--osl", help="tokens of an answer")] = None,
    qps: Annotated[float | None, typer.Option(help="requests a second")] = None,
    concurrency: Annotated[int | None, typer.Option(help="requests in flight")] = None,
    slo: Annotated[str | None, typer.Option(help="limits: ttft=500ms,tpot=30ms,latency=10s")] = None,
    batch_size: Batch = None,
    precision: Precision = None,
    kv_precision: Annotated[str | None, typer.Option(help="number format of the caches")] = None,
    layout: Annotated[
        str | None, typer.Option("--layout", help="such as tp=4,replicas=2; chosen where left out")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="vLLM, SGLang, TRT-LLM ...")] = None,
    chunk: Annotated[int | None, typer.Option("--prefill-chunk-tokens", help="tokens of a prefill chunk")] = None,
    draft: Annotated[str | None, typer.Option(help="draft model for speculative decoding")] = None,
    acceptance: Annotated[float | None, typer.Option(help="share of draft tokens that are accepted")] = None,
    decode_on: Annotated[str | None, typer.Option(help="other chip for decode (disaggregation)")] = None,
    region: Region = None,
    efficiency: Efficiency = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Serve a language model: time to first token, time per token, throughput, cost of a million tokens.

    mlsysim serve Llama3_70B --on 8xH200 --isl 2000 --osl 300 --slo ttft=500ms,tpot=30ms -p fp8
    mlsysim serve Llama3_8B H100 -s 2048 -b 16
    """
    form = chosen_form(context, output, as_json)
    if (hardware is None) == (on is None):
        raise InputError("serve takes a chip after the model or --on with a fleet, one of them.", field="on")
    split = _layout(layout) or {}
    replicas = split.pop("replicas", None) if isinstance(split, dict) else None
    plan = _build(
        task="serving",
        workload=_given(model=model, batch_size=batch_size, precision=precision),
        hardware=_given(on=on or hardware, efficiency=efficiency_of(efficiency)),
        parallelism=split,
        serving=_given(
            prompt_tokens=isl,
            output_tokens=osl,
            qps=qps,
            concurrency=concurrency,
            replicas=replicas,
            engine=engine,
            cache_precision=kv_precision,
            chunk_tokens=chunk,
            draft_model=draft,
            acceptance=acceptance,
            decode_on=decode_on,
            **_limits(slo),
        )
        or {"prompt_tokens": 1024},
        ops=_given(region=region),
    )
    _finish(context, plan, form)


def _limits(text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    found = {}
    for piece in text.split(","):
        name, mark, value = piece.partition("=")
        if not mark:
            raise InputError(f"--slo takes pairs such as ttft=500ms, got {piece.strip()[:40]!r}.", field="slo")
        found[name.strip()] = value.strip()
    known = ("ttft", "tpot", "latency")
    for name in found:
        if name not in known:
            raise InputError(f"--slo knows {', '.join(known)}, got {name[:40]!r}.", field="slo")
    return found


def plan(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="a model of the zoo, or a path to a model file")],
    deadline: Annotated[str, typer.Option(help="such as 14d or '30 day'")],
    tokens: Annotated[str | None, typer.Option(help="tokens to train on; 20 for each parameter where left out")] = None,
    budget: Annotated[str | None, typer.Option(help="such as '5 MUSD'")] = None,
    chips: Annotated[str | None, typer.Option("--on", help="chips to compare, such as H100,B200")] = None,
    batch_size: Batch = None,
    seq_len: SeqLen = None,
    precision: Precision = None,
    region: Region = None,
    efficiency: Efficiency = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The least fleet that trains a model by a deadline, for each chip.

    mlsysim plan Llama3_70B --deadline 14d --budget 5MUSD
    mlsysim plan Llama3_8B --deadline 3d --tokens 1T --on H100,B200 --region Sweden
    """
    from mlsysim.cli.last import remember
    from mlsysim.plans.evaluate import evaluate as answer_to
    from mlsysim.plans.evaluate import evaluate_plainly
    from mlsysim.plans.least_fleet import CHIPS, least_fleet
    from mlsysim.plans.resolve import find_model
    from mlsysim.plans.sheet import count_text

    form = chosen_form(context, output, as_json)
    count = number_of(tokens, "tokens")
    if count is None:
        workload = find_model(model)
        if workload.parameters is None:
            raise InputError(f"{model} states no parameters; give --tokens.", field="tokens")
        count = 20 * float(workload.parameters.to("param").magnitude)
    wanted = _build(
        task="training",
        workload=_given(model=model, tokens=count, batch_size=batch_size, seq_len=seq_len, precision=precision),
        hardware=_given(on="8xH100", efficiency=efficiency_of(efficiency)),
        ops=_given(region=region, deadline=deadline, budget=budget),
    )
    names = [chip.strip() for chip in chips.split(",")] if chips else list(CHIPS)
    with busy("searching fleets ...") as saying:

        def tried(candidate: Plan) -> Answer:
            saying(f"trying {candidate.hardware.on} ...")
            return evaluate_plainly(candidate)

        found = least_fleet(wanted, names, tried)
    best = next((candidate for candidate in found if candidate.answer is not None), None)
    rows = [
        [c.chip, f"{c.accelerators:,}", *_columns(c.answer)]
        if c.answer is not None
        else [c.chip, "none", "", "", "", ""]
        for c in found
    ]
    answer = None if best is None or best.answer is None else answer_to(best.answer.plan)
    amount = count_text(count)
    if form == "json":
        print_json(
            {
                "tokens": count,
                "best": None if answer is None else answer.to_dict(),
                "candidates": [
                    {
                        "chip": c.chip,
                        "accelerators": c.accelerators,
                        "reason": c.reason or None,
                        "answer": None if c.answer is None else c.answer.to_dict(),
                    }
                    for c in found
                ],
            }
        )
    else:
        if form == "text" and answer is not None and best is not None:
            print_text(
                f"{best.accelerators:,} x {best.chip} is the cheapest fleet that trains on {amount} tokens in time.",
                "bold green",
            )
        elif form == "text":
            print_text(f"No fleet of {', '.join(names)} trains on {amount} tokens in time.", "bold red")
        print_table(form, ["chip", "accelerators", "run", "cost", "MFU", "carbon"], rows, right=(1, 2, 3, 4, 5))
        if form == "text":
            for candidate in found:
                if candidate.answer is None:
                    print_text(f"{candidate.chip}: {candidate.reason}", "dim")
        if form == "text" and answer is not None:
            print_text("")
            print_answer(answer, form)
    if answer is None:
        raise typer.Exit(2)
    remember(answer.plan)
    if answer.exit_code:
        raise typer.Exit(answer.exit_code)


def _columns(answer: Answer) -> list[str]:
    held = {metric.name: metric.text for metric in answer.metrics}
    return [held.get(name, "not known") for name in ("run_time", "tco", "mfu", "carbon_footprint")]


def audit(
    context: typer.Context,
    scenario: Annotated[
        str | None, typer.Argument(metavar="SCENARIO", help="a plan file; Llama-70B on 512 H100 without one")
    ] = None,
    workload: Annotated[
        str | None, typer.Option("-w", "--workload", help="a model, on the chip of this machine, instead of a scenario")
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """A plan through all six domains of walls, first order beside calibrated.

    mlsysim audit
    mlsysim audit examples/scenarios/llama3-405b-16k-h100.toml
    mlsysim audit -w Llama3_8B
    """
    from mlsysim.cli.last import remember
    from mlsysim.plans.audit import AUDITED
    from mlsysim.plans.audit import audit as audited

    form = chosen_form(context, output, as_json)
    if scenario is not None and workload is not None:
        raise InputError("audit takes a scenario or -w with a model, one of them.", field="workload")
    wanted = AUDITED if scenario is None else _load(scenario)
    if workload is not None:
        wanted = _build(task="inference", workload={"model": workload}, hardware={"on": _chip_here()})
    with busy("evaluating ..."):
        found = audited(wanted)
    remember(wanted)
    if form == "json":
        print_json(found.to_dict())
    elif form == "text":
        print_sentences(found.answer)
        rows = [[r.domain, f"{r.wall} {r.name}", r.first_order, r.calibrated, r.status] for r in found.rows]
        print_text("")
        print_table(form, ["Domain", "Wall", "First order", "Calibrated", ""], rows)
        for note in found.notes:
            print_text(note, "dim")
    else:
        rows = [
            [r.domain, r.resolver, r.metric, r.first_order, r.calibrated, f"{r.wall} {r.name}", r.status]
            for r in found.rows
        ]
        print_table(form, ["Domain", "Solver", "Metric", "First order", "Calibrated", "Wall", "Status"], rows)
    if found.answer.exit_code:
        raise typer.Exit(found.answer.exit_code)


def _chip_here() -> str:
    from mlsysim.cli.doctor import chip_here

    found = chip_here()
    if found is None:
        raise InputError(
            "No chip of the zoo was found on this machine (mlsysim doctor says what was); give a scenario instead.",
            field="workload",
        )
    return found


def compare(
    context: typer.Context,
    first: Annotated[str, typer.Argument(metavar="A", help="a plan file, or MODEL@FLEET such as Llama3_70B@512xH100")],
    second: Annotated[str, typer.Argument(metavar="B")],
    task: Annotated[str | None, typer.Option(help="training, serving or inference, for MODEL@FLEET")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Two plans side by side: what changes, by what factor, and why.

    mlsysim compare Llama3_70B@512xH100 Llama3_70B@512xB200 --task training
    mlsysim compare Llama3_8B@H100 Llama3_8B@MI300X --task serving
    """
    from mlsysim.plans.compare import compare_answers
    from mlsysim.plans.evaluate import evaluate as answer_to

    form = chosen_form(context, output, as_json)
    with busy("evaluating ..."):
        answers = [answer_to(named_plan(text, task), change=False) for text in (first, second)]
    found = compare_answers(*answers)
    if form == "json":
        print_json(found.to_dict())
        return
    if form == "text":
        for line in found.sentences:
            print_text(line, "bold")
        for letter, answer in zip("AB", answers, strict=True):
            print_text(f"{letter}: {answer.subject}. {answer.headline}")
        print_text("")
    rows = [[row.label, row.first, row.second, row.factor_text] for row in found.rows]
    names = ["A", "B"] if form == "text" else [answer.subject for answer in answers]
    print_table(form, ["metric" if form == "csv" else "", *names, "B / A"], rows, right=(1, 2, 3))


def named_plan(text: str, task: str | None) -> Plan:
    """The plan that a target means: a plan file, or MODEL@FLEET with a task."""
    if is_plan_file(text):
        return _load(text)
    model, mark, fleet = text.partition("@")
    if not mark:
        raise InputError(f"{text[:60]!r} is neither a plan file nor MODEL@FLEET, such as Llama3_70B@512xH100.")
    return _build(task=task, workload={"model": model}, hardware={"on": fleet})


def sensitivity(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="FILE|MODEL@FLEET", help="a plan file, or such as Llama3_70B@512xH100")
    ],
    task: Annotated[str | None, typer.Option(help="training, serving or inference, for MODEL@FLEET")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """How much each figure of the hardware is worth: 10 % less and 10 % more of it.

    mlsysim sensitivity Llama3_70B@512xH100 --task training
    mlsysim sensitivity examples/scenarios/chatbot-llama70b-h200.toml
    """
    from mlsysim.cli.last import remember
    from mlsysim.plans.evaluate import evaluate as answer_to

    form = chosen_form(context, output, as_json)
    wanted = named_plan(target, task)
    with busy("evaluating ..."):
        answer = answer_to(wanted, change=False, sensitivity=True)
    remember(wanted)
    if form == "json":
        print_json(
            {
                "main": answer.main,
                "value": answer.metric(answer.main).to_dict(),
                "sensitivities": {k: list(v) for k, v in answer.sensitivities.items()},
                "binding": answer.binding.model_dump(),
            }
        )
        return
    rows = [
        [name.replace("_", " "), *("does not fit" if side is None else f"{side:+.1%}" for side in sides)]
        for name, sides in answer.sensitivities.items()
    ]
    if form == "text":
        print_text(
            f"{answer.subject}: {answer.metric(answer.main).label.lower()} is {answer.metric(answer.main).text}", "bold"
        )
        print_text(answer.binding.sentence)
        print_text("")
    print_table(form, ["figure of the hardware", "10 % less", "10 % more"], rows, right=(1, 2))


def explain(
    context: typer.Context,
    metric: Annotated[str | None, typer.Argument(help="a metric of the last answer; all without one")] = None,
    scenario: Annotated[str | None, typer.Option("--of", help="a plan file instead of the last answer")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Where a number of the last answer comes from: equations with values, assumptions, sources.

    mlsysim explain mfu
    mlsysim explain tco --of examples/scenarios/llama3-70b-512-h100.toml
    """
    from mlsysim.cli.last import recall
    from mlsysim.plans.evaluate import evaluate as answer_to

    form = chosen_form(context, output, as_json)
    answer = answer_to(_load(scenario) if scenario is not None else recall(), change=False)
    found = answer.equations if metric is None else answer.explain(metric)
    if form == "json":
        print_json(
            {
                "subject": answer.subject,
                "metric": None if metric is None else answer.metric(metric).to_dict(),
                "equations": [equation.model_dump() for equation in found],
                "assumptions": dict(answer.assumptions),
                "sources": dict(answer.sources),
            }
        )
        return
    if form == "csv":
        print_table(
            "csv",
            ["gives", "equation", "inputs", "value"],
            [[e.gives, e.text, "; ".join(f"{k} = {v}" for k, v in e.inputs.items()), e.value] for e in found],
        )
        return
    if metric is not None:
        held = answer.metric(metric)
        print_text(f"{held.label}: {held.text}" + (f" ({held.interval_text})" if held.interval_text else ""), "bold")
    for equation in found:
        print_text(f"{equation.gives} ({equation.resolver}): {equation.text}")
        print_text("    " + ", ".join(f"{symbol} = {value}" for symbol, value in equation.inputs.items()))
        print_text(f"    = {equation.value}")
    if not found and metric is None:
        print_text("This answer keeps no equations of its own.")
    elif not found:
        print_text("It is a sum or a share of other numbers of the answer, or a datum of the zoo; see the sources.")
    print_text("Sources: " + "; ".join(f"{name}: {source}" for name, source in answer.sources.items()), "dim")
    print_text("Assumed: " + "; ".join(f"{name} = {text}" for name, text in answer.assumptions.items()), "dim")
