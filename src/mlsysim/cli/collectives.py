"""``collectives``: what a collective should take on a fleet by the size of its message, beside a log of nccl-tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option

from mlsysim.cli.options import AsJson, Output, chosen_form
from mlsysim.cli.output import Line, print_result, print_text
from mlsysim.errors import InputError

if TYPE_CHECKING:
    from mlsysim.plans.collectives import Collectives


def collectives(
    context: Context,
    log: Annotated[
        Path | None,
        Argument(metavar="[LOG]", help="output of nccl-tests to compare with; its sizes and ranks are used"),
    ] = None,
    on: Annotated[str | None, Option(help="the fleet, such as 64xH100@NDR (default: the log's)")] = None,
    op: Annotated[
        str | None,
        Option(help="all_reduce, all_gather, reduce_scatter, all_to_all or send (default: the log's)"),
    ] = None,
    size: Annotated[str | None, Option(help="a size, or a range that doubles, such as 1MB:8GB")] = None,
    group: Annotated[int | None, Option("--group", "--tp", help="ranks of a group (default: the whole fleet)")] = None,
    stride: Annotated[int, Option(help="a group has every n-th rank: 8 for replicas of eight accelerators")] = 1,
    plot: Annotated[Path | None, Option(help="write a chart of bus bandwidth by size to this .svg")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The time, algorithm and bus bandwidth to expect of a collective, by message size.

    mlsysim collectives --on 64xH100@NDR --op all_reduce --size 1MB:8GB
    mlsysim collectives --on 64xH100@NDR --op all_gather --group 8
    mlsysim collectives nccl.log --on 16xH100@NDR
    """
    from mlsysim.importers.nccl_tests import read_nccl_log
    from mlsysim.plans.collectives import OPS, asked, kind_of

    form = chosen_form(context, output, as_json)
    if log is not None and on is None and not log.exists() and re.match(r"\d+\s*x", str(log)):
        raise InputError(f"The fleet is an option: --on {str(log)[:60]}.", field="on")
    if log is not None and op is None and not log.exists() and (kind := kind_of(str(log))) in OPS:
        log, op = None, kind
    found = asked(on, op, size, group, stride, None if log is None else read_nccl_log(log))
    if plot is not None:
        _chart(found).save(plot)
    _print(found, form)
    if plot is not None and form == "text":
        print_text(f"Written to {plot}.")


def _print(found: Collectives, form: str) -> None:
    rows = []
    for row in found.rows:
        beside = []
        if row.measured is not None and row.measured_bus_bandwidth is not None and row.error is not None:
            beside = [_time(row.measured), f"{row.measured_bus_bandwidth / 1e9:.1f}", f"{row.error:+.0%}"]
        band = f"{_time(row.low)} to {_time(row.high)}"
        rates = [f"{rate / 1e9:.1f}" for rate in (row.algorithm_bandwidth, row.bus_bandwidth)]
        rows.append([_size(row.size), _time(row.time), band, *rates, row.algorithm, *(beside or ["", "", ""])])
    headers = ["size", "time", "90 % interval", "alg GB/s", "bus GB/s", "algorithm", "measured", "bus GB/s", "error"]
    most = max(found.rows, key=lambda row: row.bus_bandwidth)
    inside = (
        f"{found.ranks_in_a_node} in each of {found.nodes} link domains" if found.nodes > 1 else "in one link domain"
    )
    words: list[Line] = [
        (f"{found.op} over {found.ranks:,} ranks of {found.fleet}, {inside}", "bold"),
        f"Up to {most.bus_bandwidth / 1e9:.1f} GB/s of bus bandwidth, at {_size(most.size)}.",
    ]
    if found.median_error is not None:
        held, of = found.within
        words.append(
            f"Against the log: median error {found.median_error:.1%}; {held} of {of} times lie in the interval."
        )
    notes = [(f"How sure: {found.interval}", "dim")]
    notes += [(f"Assumed: {'; '.join(f'{k}: {v}' for k, v in found.assumptions.items())}", "dim")] * bool(
        found.assumptions
    )
    look: dict[str, Any] = {"right": (0, 1, 2, 3, 4, 6, 7, 8), "drop": (3, 5, 2), "whole": range(9)}
    print_result(form, found.to_dict, headers, rows, before=[*words, ""], after=["", *notes], **look)


def _size(size: float) -> str:
    from mlsysim.units.text import bytes_text

    return f"{size:,.0f} B" if size < 1e3 else bytes_text(size)


def _time(seconds: float) -> str:
    from mlsysim.units.registry import Q_
    from mlsysim.units.text import format_value, time_unit

    return format_value(Q_(seconds, "s").to(time_unit(seconds)))


def _chart(found: Collectives) -> Any:
    from mlsysim.plot.charts.lines import lines

    def series(label: str, values: list[float | None]) -> tuple[str, list[tuple[float, float]]]:
        return label, [(float(k), value / 1e9) for k, value in enumerate(values) if value is not None]

    wire = [row.bus_bandwidth * row.time for row in found.rows]
    made = [
        series("expected", [row.bus_bandwidth for row in found.rows]),
        series("90 % interval", [w / row.high for w, row in zip(wire, found.rows, strict=True)]),
        series("90 % interval, upper end", [w / row.low for w, row in zip(wire, found.rows, strict=True)]),
        series("measured", [row.measured_bus_bandwidth for row in found.rows]),
    ]
    return lines(
        [line for line in made if line[1]],
        x_title="Size of the message",
        y_title="Bus bandwidth",
        y_unit="GB/s",
        names=[_size(row.size) for row in found.rows],
        title=f"{found.op} over {found.ranks:,} ranks of {found.fleet}",
    )
