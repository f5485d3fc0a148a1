"""``optimize`` and ``synthesize``: the best layout, batch or place, and the hardware that a target asks for."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer
from typer import Argument, Context, Option

from mlsysim.cli.options import AsJson, Output, Target, chosen_form
from mlsysim.cli.output import Line, assumed_lines, end, print_result
from mlsysim.cli.plan_options import named_plan, plan_command, settings_of
from mlsysim.cli.terminal import busy
from mlsysim.errors import InputError, UnitError

optimize = typer.Typer(name="optimize", help="The best layout, batch or place.", no_args_is_help=True)

Columns = dict[str, tuple[str, str]]
"""Fields of a candidate that a terminal shows: the header and the format of each."""

_LAYOUTS: Columns = {
    "tp": ("TP", ""), "pp": ("PP", ""), "dp": ("DP", ""), "ep": ("EP", ""), "cp": ("CP", ""), "v_stages": ("VP", ""),
    "microbatch_count": ("MB", ","), "zero_stage": ("ZeRO", ""), "recompute": ("recompute", ""),
    "schedule": ("schedule", ""), "mfu": ("MFU", ".1%"), "step_time_s": ("step s", ".3g"), "memory_gb": ("GB", ".1f"),
}  # fmt: skip
_BATCHES: Columns = {
    "batch_size": ("batch", ","), "throughput_tokens_per_s": ("tokens/s", ",.0f"), "percentile_latency_s": ("P99 s", ".3g"),
    "ttft_s": ("TTFT s", ".3g"), "itl_s": ("ITL s", ".3g"), "violation_probability": ("late", ".1%"),
    "utilization": ("busy", ".0%"),
}  # fmt: skip
_PLACES: Columns = {
    "region": ("grid", ""), "total_usd": ("total", "$,.0f"), "tco_usd": ("cost", "$,.0f"), "carbon_tax_usd": ("tax", "$,.0f"),
    "carbon_footprint_kg": ("kg CO2e", ",.0f"), "pue": ("PUE", ".2f"), "kwh_price_usd": ("USD/kWh", ".3f"),
}  # fmt: skip


def _show(result: Any, form: str, candidates: Any, sentence: str, columns: Columns) -> None:
    rows = [dict(candidate) for candidate in candidates] or [dict(result.best_config)]
    if form != "text":
        # Files get every field as it is; a terminal gets what fits.
        headers = list(rows[0])
        cells = [[row.get(key) for key in headers] for row in rows]
        print_result(form, result.to_dict, headers, cells, right=range(len(headers)))
        return
    rejected = _rejected(result.rejected)
    words: list[Line] = [(sentence, "bold green" if result.feasible else "bold red")]
    words += [result.binding.sentence] if result.binding is not None else []
    words += [f"Searched {result.total_searched:,} of {result.search_space_size:,}; rejected: {rejected}.", ""]
    shown = {key: column for key, column in columns.items() if any(row.get(key) not in (None, "") for row in rows)}
    forms = {key: _same_digits([row.get(key) for row in rows], column[1]) for key, column in shown.items()}
    table = [[_cell(row.get(key), form) for key, form in forms.items()] for row in rows]
    right = [i for i, cells in enumerate(zip(*table, strict=True)) if not any(cell[:1].isalpha() for cell in cells)]
    after: list[Line] = [*((line, "dim") for line in _sensitivity(result)), *assumed_lines(result.assumed)]
    print_result(form, None, [header for header, _ in shown.values()], table, right=right, before=words, after=after)


def _same_digits(column: list[Any], form: str) -> str:
    """The format of a column; of significant digits, as many decimals as its smallest number needs for them."""
    if not form.endswith("g"):
        return form
    sizes = [abs(value) for value in column if value] or [1.0]
    return f".{max(0, int(form[1:-1]) - 1 - math.floor(math.log10(min(sizes))))}f"


def _cell(value: Any, form: str) -> str:
    if value is None:
        return ""
    if isinstance(value, (str, bool)):
        return str(value)
    return f"${value:{form[1:]}}" if form.startswith("$") else f"{value:{form}}"


def _rejected(found: Any) -> str:
    if isinstance(found, dict):
        return ", ".join(f"{count:,} by {wall}" for wall, count in found.items() if count) or "none"
    return f"{len(found)}" if found else "none"


_NAMES = {
    "tp": "TP", "pp": "PP", "ep": "EP", "cp": "CP", "v_stages": "virtual stages", "microbatch_count": "micro-batches",
    "zero_stage": "ZeRO stage", "overlap_comm": "overlap", "batch_size": "batch", "num_replicas": "replicas",
    "sla_latency_ms": "latency target in ms", "arrival_rate_qps": "requests a second",
}  # fmt: skip


def _sensitivity(result: Any) -> list[str]:
    """What a step away from the optimum is worth, in words."""
    lines = []
    for name, held in (getattr(result, "sensitivity", None) or {}).items():
        if not isinstance(held, dict):
            continue
        moves = []
        for side in ("down", "up"):
            move = held.get(side)
            if not isinstance(move, dict):
                continue
            worth, where = move.get("worth"), _short(move.get("to"))
            if worth is not None and abs(worth) >= 5e-4:
                moves.append(f"{where} instead {worth:+.1%}")
            elif worth is None and move.get("rejected_by"):
                moves.append(f"{where} is stopped by {move['rejected_by']}")
        if moves:
            lines.append(f"{_NAMES.get(name, name.replace('_', ' '))} {_short(held.get('at'))}: " + ", ".join(moves))
    return ["A step away from the best:", *(f"  {line}" for line in lines)] if lines else []


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


@optimize.command(cls=plan_command("training"))
def parallelism(context: Context, target: Target, output: Output = None, as_json: AsJson = False) -> None:
    """The layout with the highest utilisation that fits.

    mlsysim optimize parallelism Llama3_405B@Meta_16K -b 2048 -s 8192
    mlsysim optimize parallelism scenario:llama3-70b-512-h100
    """
    from mlsysim.plans.optimizing import best_parallelism, layout_found

    form = chosen_form(context, output, as_json)
    plan = named_plan(context, target, "training")
    with busy("searching layouts ..."):
        result = best_parallelism(plan)
    _show(result, form, result.top_candidates, layout_found(result), _LAYOUTS)
    end(0 if result.feasible else 2)


@optimize.command(cls=plan_command("serving"))
def batching(
    context: Context,
    target: Target,
    sla_ms: Annotated[
        float | None, Option(help="limit on the P99 of a request, in milliseconds (default 10,000)")
    ] = None,
    qps: Annotated[float | None, Option(help="requests a second (default 1)")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The batch with the highest throughput within a latency target.

    mlsysim optimize batching Llama3_8B@H100 --sla-ms 8000 --qps 4
    mlsysim optimize batching Llama3_8B@H100 --slo e2e_p99=8s --osl 500
    """
    from mlsysim.plans.optimizing import batch_found, best_batching

    form = chosen_form(context, output, as_json)
    plan = named_plan(context, target, "serving")
    with busy("searching batches ..."):
        result = best_batching(plan, sla_ms, qps)
    _show(result, form, result.top_candidates, batch_found(result), _BATCHES)
    does_not_fit = result.binding.wall == 2
    end(0 if result.is_feasible else 2 if does_not_fit else 3)


@optimize.command(cls=plan_command("training"))
def placement(
    context: Context,
    target: Target,
    carbon_tax: Annotated[float, Option(help="USD for a tonne of CO2e")] = 100.0,
    regions: Annotated[str, Option(help="grids, such as Quebec,Poland; or all")] = "all",
    objective: Annotated[str, Option(help="what to make least: cost, or carbon")] = "cost",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The grid on which a run costs least, its carbon taxed, or emits least.

    mlsysim optimize placement Llama3_70B@512xH100 --carbon-tax 100 --days 30
    mlsysim optimize placement Llama3_70B@512xH100 --objective carbon
    """
    from mlsysim.plans.optimizing import best_placement, place_found

    form = chosen_form(context, output, as_json)
    plan = named_plan(context, target, "training")
    names: Any = "all" if regions.strip() == "all" else [name.strip() for name in regions.split(",")]
    with busy("searching places ..."):
        result = best_placement(plan, carbon_tax, names, objective)
    _show(result, form, result.top_candidates[:10], place_found(result), _PLACES)


def synthesize(
    context: Context,
    model: Annotated[str, Argument(metavar="MODEL")],
    latency: Annotated[str | None, Option(help="target time of a pass, such as '50 ms'")] = None,
    throughput: Annotated[str | None, Option(help="samples a second instead, such as '100/s'")] = None,
    deadline: Annotated[str | None, Option(help="time for all --tokens instead, such as '14 day'")] = None,
    on: Annotated[str | None, Option(help="a chip to count")] = None,
    efficiency: Annotated[float, Option("-e", "--efficiency", help="fraction of peak")] = 0.5,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The hardware that a target needs: bandwidth, FLOP/s, memory, and how many of a chip.

    mlsysim synthesize Llama3_70B --latency '50 ms' --on H100
    """
    from mlsysim.plans.resolve import find_model
    from mlsysim.units.text import format_value
    from mlsysim.walls.analysis.synthesis import SynthesisSolver

    form = chosen_form(context, output, as_json)
    given = settings_of(context, target_latency=latency, target_throughput=throughput, deadline=deadline, hardware=on)
    if "tokens" in given:
        given["training_tokens"] = given.pop("tokens")
    if sum(target is not None for target in (latency, throughput, deadline)) != 1:
        raise InputError("synthesize takes one target: --latency '50 ms', --throughput '100/s' or --deadline '14 day'.")
    try:
        result = SynthesisSolver().solve(find_model(model), efficiency=efficiency, **given)
    except UnitError as error:
        field = str(error.details.get("field", ""))
        option = "--" + field.removeprefix("target_").replace("_", "-")
        raise UnitError(str(error).replace(f"SynthesisSolver: The {field!r} field", option), **error.details) from None
    rows = [
        ["bandwidth", format_value(result.required_bw.to("TB/s"))],
        ["arithmetic", format_value(result.required_flops.to("TFLOPs/s"))],
        ["memory", format_value(result.required_memory.to("GB"))],
    ]
    rows += [[f"{on} by {wall.replace('_', ' ')}", f"{count:,}"] for wall, count in result.accelerators_by_wall.items()]
    words = [(result.binding.sentence, "bold")]
    print_result(form, result.to_dict, ["needed", "at least"], rows, right=(1,), before=words)
