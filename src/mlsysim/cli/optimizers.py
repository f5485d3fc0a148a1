"""``optimize`` and ``synthesize``: the best layout, batch or place, and the hardware that a target asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlsysim.cli.options import (
    AsJson,
    Batch,
    Efficiency,
    Output,
    Precision,
    SeqLen,
    chosen_form,
    efficiency_of,
    is_plan_file,
    number_of,
)
from mlsysim.cli.output import print_json, print_table, print_text
from mlsysim.errors import InputError

if TYPE_CHECKING:
    from mlsysim.plans.plan import Plan

__all__ = ["optimize", "synthesize"]

optimize = typer.Typer(name="optimize", help="The best layout, batch or place.", no_args_is_help=True)

Target = Annotated[str, typer.Argument(metavar="FILE|MODEL@FLEET", help="a plan file, or such as Llama3_70B@512xH100")]


def _plan(target: str, task: str) -> Plan:
    from mlsysim.plans.files import load_plan
    from mlsysim.plans.plan import Plan

    if is_plan_file(target):
        return load_plan(target)
    model, mark, fleet = target.partition("@")
    if not mark:
        raise InputError(
            f"{target[:60]!r} is neither a plan file nor MODEL@FLEET, such as Llama3_70B@512xH100.", field="target"
        )
    return Plan.model_validate({"task": task, "workload": {"model": model}, "hardware": {"on": fleet}})


def _show(result: Any, form: str, best: dict[str, Any], candidates: Any, sentence: str) -> None:
    if form == "json":
        print_json(result.to_dict())
        return
    if form == "text":
        print_text(sentence, "bold green" if result.feasible else "bold red")
        print_text(
            f"Searched {result.total_searched:,} of {result.search_space_size:,}; rejected: {_rejected(result.rejected)}."
        )
        if result.binding is not None:
            print_text(result.binding.sentence)
    rows = [dict(candidate) for candidate in candidates] or [best]
    headers = list(rows[0]) if rows else []
    print_table(form, headers, [[_cell(row.get(key)) for key in headers] for row in rows], right=range(len(headers)))
    if form == "text":
        for line in _sensitivity(result):
            print_text(line, "dim")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _rejected(found: Any) -> str:
    if isinstance(found, dict):
        return ", ".join(f"{count:,} by {wall}" for wall, count in found.items()) or "none"
    return f"{len(found)}" if found else "none"


def _sensitivity(result: Any) -> list[str]:
    held = getattr(result, "sensitivity", None)
    if not held:
        return []
    return [
        "At the optimum: "
        + "; ".join(
            f"{name} {_cell(value) if not isinstance(value, dict) else ', '.join(f'{k} {_cell(v)}' for k, v in value.items())}"
            for name, value in held.items()
        )
    ]


@optimize.command()
def parallelism(
    context: typer.Context,
    target: Target,
    batch_size: Batch = None,
    seq_len: SeqLen = None,
    precision: Precision = None,
    efficiency: Efficiency = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The layout with the highest utilisation that fits.

    mlsysim optimize parallelism Llama3_405B@Meta_16K -b 2048 -s 8192
    """
    from mlsysim.plans.resolve import find_fleets, find_model
    from mlsysim.plans.training import training_batch
    from mlsysim.search.parallelism import ParallelismOptimizer

    form = chosen_form(context, output, as_json)
    plan = _plan(target, "training")
    model, fleet = find_model(plan.workload.model), find_fleets(plan.hardware).one
    batch, length = training_batch(plan, fleet, model, {})
    result = ParallelismOptimizer().solve(
        model=model,
        fleet=fleet,
        batch_size=batch_size or batch,
        seq_len=seq_len or length,
        precision=precision or plan.workload.precision or "bf16",
        efficiency=efficiency_of(efficiency) or plan.hardware.efficiency or "calibrated",
    )
    best = result.best_config
    sentence = (
        f"Best: TP{best['tp']} PP{best['pp']} DP{best['dp']}, MFU {result.best_mfu:.1%}."
        if result.feasible
        else "No layout fits."
    )
    _show(result, form, best, result.top_candidates, sentence)
    if not result.feasible:
        raise typer.Exit(2)


@optimize.command()
def batching(
    context: typer.Context,
    target: Target,
    sla_ms: Annotated[
        float, typer.Option("--sla-ms", help="limit on the P99 of a request, in milliseconds")
    ] = 10_000.0,
    qps: Annotated[float, typer.Option(help="requests a second")] = 1.0,
    seq_len: SeqLen = None,
    precision: Precision = None,
    efficiency: Efficiency = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The batch with the highest throughput within a latency target.

    mlsysim optimize batching Llama3_8B@H100 --sla-ms 8000 --qps 4
    """
    from mlsysim.plans.resolve import find_fleets, find_model
    from mlsysim.search.batching import BatchingOptimizer

    form = chosen_form(context, output, as_json)
    plan = _plan(target, "serving")
    fleet = find_fleets(plan.hardware).one
    serving = plan.serving
    width = plan.parallelism.tp or 1
    result = BatchingOptimizer().solve(
        model=find_model(plan.workload.model),
        hardware=fleet.node.accelerator,
        seq_len=seq_len or (serving.prompt_tokens if serving else None) or plan.workload.seq_len or 1024,
        sla_latency_ms=sla_ms,
        arrival_rate_qps=qps,
        num_replicas=max(1, fleet.total_accelerators // width),
        tp_size=width,
        precision=precision or plan.workload.precision or "bf16",
        efficiency=efficiency_of(efficiency) or plan.hardware.efficiency or "calibrated",
    )
    sentence = (
        f"Best: batch {result.best_batch_size:,}, P99 {result.p99_latency.to('s').magnitude:.3g} s."
        if result.is_feasible
        else "No batch meets the target."
    )
    _show(result, form, result.best_config, result.top_candidates, sentence)
    if not result.is_feasible:
        raise typer.Exit(2)


@optimize.command()
def placement(
    context: typer.Context,
    target: Target,
    carbon_tax: Annotated[float, typer.Option("--carbon-tax", help="USD for a tonne of CO2e")] = 100.0,
    days: Annotated[float | None, typer.Option(help="days of the run")] = None,
    regions: Annotated[str, typer.Option(help="grids, such as Quebec,Poland; or all")] = "all",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The grid on which a run costs least, its carbon taxed.

    mlsysim optimize placement Llama3_70B@512xH100 --carbon-tax 100 --days 30
    """
    from mlsysim.plans.resolve import find_fleets
    from mlsysim.search.placement import PlacementOptimizer

    form = chosen_form(context, output, as_json)
    plan = _plan(target, "training")
    names: Any = "all" if regions.strip() == "all" else [name.strip() for name in regions.split(",")]
    result = PlacementOptimizer().solve(
        fleet=find_fleets(plan.hardware).one,
        duration_days=days or plan.ops.days or 30.0,
        regions=names,
        carbon_tax_per_ton=carbon_tax,
        mfu=0.4,
    )
    sentence = f"Best: {result.best_region_name}, ${result.lowest_tco.magnitude:,.0f} and {result.carbon_footprint.magnitude:,.0f} kg CO2e."
    _show(result, form, result.best_config, result.top_candidates[:10], sentence)


def synthesize(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL")],
    latency: Annotated[str | None, typer.Option(help="target time of a pass, such as '50 ms'")] = None,
    throughput: Annotated[str | None, typer.Option(help="samples a second instead, such as '100 1/s'")] = None,
    deadline: Annotated[str | None, typer.Option(help="time for all --tokens instead, such as '14 day'")] = None,
    tokens: Annotated[str | None, typer.Option(help="tokens to train on by the deadline")] = None,
    on: Annotated[str | None, typer.Option("--on", help="a chip to count")] = None,
    batch_size: Batch = None,
    seq_len: SeqLen = None,
    precision: Precision = None,
    efficiency: Annotated[float, typer.Option("-e", "--efficiency", help="fraction of peak")] = 0.5,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The hardware that a target asks for: bandwidth, FLOP/s, memory, and how many of a chip.

    mlsysim synthesize Llama3_70B --latency '50 ms' --on H100
    """
    from mlsysim.plans.resolve import find_model
    from mlsysim.units.text import format_value
    from mlsysim.walls.analysis.synthesis import SynthesisSolver

    form = chosen_form(context, output, as_json)
    given = {
        "target_latency": latency,
        "target_throughput": throughput,
        "deadline": deadline,
        "training_tokens": number_of(tokens, "tokens"),
        "hardware": on,
        "batch_size": batch_size,
        "seq_len": seq_len,
        "precision": precision,
        "efficiency": efficiency,
    }
    result = SynthesisSolver().solve(find_model(model), **{k: v for k, v in given.items() if v is not None})
    if form == "json":
        print_json(result.to_dict())
        return
    if form == "text":
        print_text(result.binding.sentence, "bold")
    rows = [
        ["bandwidth", format_value(result.required_bw.to("TB/s"))],
        ["arithmetic", format_value(result.required_flops.to("TFLOPs/s"))],
        ["memory", format_value(result.required_memory.to("GB"))],
    ]
    rows += [[f"{on} by {wall.replace('_', ' ')}", f"{count:,}"] for wall, count in result.accelerators_by_wall.items()]
    print_table(form, ["needed", "at least"], rows, right=(1,))
