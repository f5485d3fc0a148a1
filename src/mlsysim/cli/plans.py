"""Commands that answer a plan: ``eval``, ``train``, ``serve``."""

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
from mlsysim.cli.output import busy, print_answer
from mlsysim.cli.plan_inputs import given, layout_of, limits_of, load, plan_of
from mlsysim.errors import InputError

if TYPE_CHECKING:
    from mlsysim.plans.plan import Plan

__all__ = ["evaluate", "serve", "train"]

On = Annotated[str, typer.Option("--on", help="the fleet: 512xH100, 64xDGX_H100@NDR, 8xB200 + 8xH100, Meta_16K")]
Layout = Annotated[str | None, typer.Option("--layout", help="auto, or such as tp=8,pp=4,zero=1,recompute=selective")]
Tokens = Annotated[str | None, typer.Option("--tokens", help="tokens to train on: 15e12 or 15T")]
Duration = Annotated[str | None, typer.Option("--duration", help="such as '30 day'")]


def _finish(plan: Plan, form: str) -> None:
    """Evaluate, remember, print, and end with the answer's exit code."""
    from mlsysim.cli.last import remember
    from mlsysim.plans.evaluate import evaluate as answer_to

    with busy("evaluating ..."):
        answer = answer_to(plan)
    remember(plan)
    print_answer(answer, form)
    if answer.exit_code:
        raise typer.Exit(answer.exit_code)


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
        plan = load(target)
        changes = given(batch_size=batch_size, seq_len=seq_len, precision=precision)
        parts: dict[str, Any] = {"workload": changes} if changes else {}
        if efficiency is not None:
            parts["hardware"] = {"efficiency": efficiency_of(efficiency)}
        if region is not None:
            parts["ops"] = {"region": region}
        _finish(plan.replacing(**parts), form)
        return
    plan = plan_of(
        workload=given(model=target, batch_size=batch_size, seq_len=seq_len, precision=precision),
        hardware=given(on=hardware, efficiency=efficiency_of(efficiency)),
        ops=given(region=region),
    )
    _finish(plan, form)


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
    plan = plan_of(
        task="training",
        workload=given(
            model=model,
            batch_size=batch_size,
            seq_len=seq_len,
            precision=precision,
            tokens=number_of(tokens, "tokens"),
            lora_rank=lora,
        ),
        hardware=given(on=on, efficiency=efficiency_of(efficiency), stack=stack),
        parallelism=layout_of(layout),
        ops=given(region=region, duration=duration, deadline=deadline, budget=budget),
    )
    _finish(plan, form)


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
    split = layout_of(layout) or {}
    replicas = split.pop("replicas", None) if isinstance(split, dict) else None
    plan = plan_of(
        task="serving",
        workload=given(model=model, batch_size=batch_size, precision=precision),
        hardware=given(on=on or hardware, efficiency=efficiency_of(efficiency)),
        parallelism=split,
        serving=given(
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
            **limits_of(slo),
        )
        or {"prompt_tokens": 1024},
        ops=given(region=region),
    )
    _finish(plan, form)
