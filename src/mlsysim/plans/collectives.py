"""What a collective should take on a fleet, by the size of its message: what training steps ask the same network for.

    algorithm bandwidth    bytes of the message over its time
    bus bandwidth          that, times how often the message crosses a link: 2 (n - 1) / n of an all-reduce, (n - 1) / n of a gather, scatter
                           or all-to-all, 1 of a send (as nccl-tests has it, so that it compares with the line rate)

A message is what nccl-tests calls its size: the whole of what is summed, gathered, scattered or sent to all by one rank. All groups of a fleet
talk at once. The band is that of measured collectives (:mod:`mlsysim.zoo.intervals`), inside a link domain or across nodes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar

from mlsysim.errors import InputError, unknown_name
from mlsysim.importers.nccl_tests import NcclLog
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.timing.collectives import Measured, collective_constants, wire_and_steps
from mlsysim.timing.network import Group, datasheet_network
from mlsysim.timing.training_chip import chip_in_fleet
from mlsysim.units.fields import Record
from mlsysim.units.registry import parse_quantity, to_si
from mlsysim.walls.data.locality import topology_share
from mlsysim.walls.document import Summary
from mlsysim.zoo.intervals import Interval, interval

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
SIZES = "1MB:8GB"
_MOST = 64


class Timed(Record):
    """One size: seconds with their band, the algorithm, bytes a second; what was measured where a log is given."""

    size: float
    time: float
    low: float
    high: float
    algorithm: str
    algorithm_bandwidth: float
    bus_bandwidth: float
    measured: float | None = None
    measured_bus_bandwidth: float | None = None
    error: float | None = None
    """Predicted over measured time, less 1."""


class Collectives(Summary, Record):
    """A collective on a group of a fleet by the size of its message. Bytes, seconds, bytes a second."""

    told: ClassVar = (
        *("op", "fleet", "ranks", "nodes", "ranks_in_a_node", "rows"),
        *("interval", "assumptions", "median_error", "within_interval"),
    )

    op: str
    fleet: str
    ranks: int
    nodes: int
    ranks_in_a_node: int
    rows: tuple[Timed, ...]
    interval: str
    assumptions: dict[str, str]

    @property
    def median_error(self) -> float | None:
        """The median of absolute errors, where a log is given."""
        errors = sorted(abs(row.error) for row in self.rows if row.error is not None)
        return errors[len(errors) // 2] if errors else None

    @property
    def within(self) -> tuple[int, int]:
        """How many of the measured times lie in the interval, and how many there are."""
        known = [row.low <= row.measured <= row.high for row in self.rows if row.measured is not None]
        return sum(known), len(known)

    def to_dict(self) -> dict[str, Any]:
        rows = [
            {name: _quantity(name, value) for name, value in row.model_dump().items() if value is not None}
            for row in self.rows
        ]
        more = {"median_error": self.median_error, "within_interval": self.within}
        return self.model_dump(mode="json") | {"rows": rows} | more


_UNITS = {
    "size": "byte",
    "algorithm_bandwidth": "byte/s",
    "bus_bandwidth": "byte/s",
    "measured_bus_bandwidth": "byte/s",
}
_UNITS |= dict.fromkeys(("time", "low", "high", "measured"), "s")


def _quantity(name: str, value: Any) -> Any:
    return {"magnitude": value, "unit": _UNITS[name]} if name in _UNITS else value


def sizes_of(text: str) -> list[float]:
    """Bytes of messages: one size, several with commas, or a range that doubles; K, M and G alone are 2^10, 2^20, 2^30 as in nccl-tests.

    >>> sizes_of("1MB:3MB"), sizes_of("64K")
    ([1000000.0, 2000000.0, 3000000.0], [65536.0])
    """
    found: list[float] = []
    for piece in text.split(","):
        ends = [_size(end) for end in piece.split(":")]
        if len(ends) > 2 or ends[-1] < ends[0]:
            raise InputError(f"--size is a size, or a range such as 1MB:8GB, got {piece.strip()[:40]!r}.", field="size")
        size = ends[0]
        while size < ends[-1] * (1 - 1e-9) and len(found) <= _MOST:
            found.append(size)
            size *= 2
        found.append(ends[-1])
    if len(found) > _MOST:
        raise InputError(f"--size gives more than {_MOST} sizes; give a shorter range.", field="size")
    return found


def _size(text: str) -> float:
    written = re.sub(r"(?i)^\s*([\d.]+)\s*([kmg])\s*$", lambda m: f"{m[1]} {m[2].upper()}iB", text)
    try:
        size = to_si(parse_quantity(written), "byte")
    except Exception:  # units speak of many faults; all of them mean that this is no size
        size = 0.0
    if not 1 <= size <= 1e15:
        given = text.strip()[:40]
        hint = f" A range is {given.replace('-', ':')}." if "-" in given[1:] else ""
        raise InputError(f"--size is a size of 1 byte or more, such as 64MB, got {given!r}.{hint}", field="size")
    return float(size)


def asked(
    on: str | None, op: str | None, size: str | None, group: int | None, stride: int, log: NcclLog | None
) -> Collectives:
    """What a command or a request asks for: fleet, operation and sizes are those of the log where they are not said."""
    if log is not None:
        op = op or log.op
        if on is None and log.chip and log.ranks:
            on = f"{log.ranks}x{log.chip}"
    if on is None:
        raise InputError("collectives needs a fleet such as 64xH100@NDR (--on).", field="on")
    return collectives(
        on, op or "all_reduce", None if log and size is None else sizes_of(size or SIZES), group, stride, log
    )


def kind_of(op: str) -> str:
    """An operation as people write it, as we call it."""
    kind = op.strip().lower().replace("-", "_").replace("alltoall", "all_to_all").replace("allreduce", "all_reduce")
    short = {"allgather": "all_gather", "reducescatter": "reduce_scatter", "sendrecv": "send", "send_recv": "send"}
    return short.get(kind, kind)


def collectives(
    on: str, op: str = "all_reduce", sizes: list[float] | None = None, group: int | None = None, stride: int = 1, log: NcclLog | None = None
) -> Collectives:  # fmt: skip
    """A collective over ``group`` ranks of a fleet (all without it), every ``stride``-th; beside a log of nccl-tests where one is given."""
    kind = kind_of(op)
    if kind not in OPS:
        raise unknown_name("collective", op, OPS, "use one of " + ", ".join(OPS) + ".")
    if log is not None:
        for name, asked, logged in (("--op", kind, log.op), ("--group", group, log.ranks)):
            if None not in (asked, logged) and asked != logged:
                raise InputError(
                    f"{name} is {asked}, and the log is of {logged}; leave it out, or give another log.", field="log"
                )
        group = group or log.ranks
    groups = parse_fleet(on)
    fleet = groups.one
    assumed = dict(groups.assumed)
    ranks = _ranks(fleet.total_accelerators, kind, group, stride)
    chip = fleet.node.accelerator
    port = datasheet_network(fleet, topology_share(fleet, None, assumed), assumed).fabric
    # Routed tokens reach a share of what a plain exchange does.
    net = replace(chip_in_fleet(fleet, "bf16", port).network, dispatch=1.0)
    g = net.group(ranks, stride)
    band = _band(chip, g)
    measured = {} if log is None else {float(size): time for size, time in log.seconds.items()}
    rows = tuple(
        _row(net, kind, size, g, band, measured.get(size)) for size in (sorted(measured) if sizes is None else sizes)
    )
    where = "inside link domains" if g.domains == 1 else "across nodes"
    return Collectives(
        op=kind,
        fleet=on,
        ranks=ranks,
        nodes=int(g.domains),
        ranks_in_a_node=int(g.inside),
        rows=rows,
        interval=band.resting_on(f"measured collectives {where}", chip=f"none was on {chip.name}"),
        assumptions=assumed,
    )


def _ranks(total: int, kind: str, group: int | None, stride: int) -> int:
    if stride < 1 or total % stride:
        raise InputError(f"--stride must divide the fleet's {total:,} accelerators, got {stride}.", field="stride")
    ranks = 2 if kind == "send" and group is None else group or total // stride
    if ranks < 2 or ranks * stride > total:
        most = total // stride
        said = f"of every {stride}th " if stride > 1 else ""
        raise InputError(
            f"a collective takes 2 to {most:,} ranks {said}of this fleet, got {ranks:,}; give a larger --on or another --group."
            if most >= 2
            else f"a collective takes 2 ranks at least, and this fleet has {most}; give a larger --on.",
            field="group",
        )
    if kind == "send" and ranks != 2:
        raise InputError(f"a send has 2 ranks, got --group {ranks:,}.", field="group")
    return ranks


def _band(chip: Any, g: Group) -> Interval:
    unseen = () if chip.metadata.key in collective_constants()["start"] else ("chip",)
    if g.domains > 1:
        return interval("collective network", *unseen)
    return interval("collective link domain" if chip.link is not None else "collective host bus", *unseen)


def _row(net: Measured, kind: str, size: float, g: Group, band: Interval, measured: float | None) -> Timed:
    seconds, algorithm = net.ways(kind, size, g)
    seconds = float(seconds)
    wire = 1.0 if kind == "send" else float(wire_and_steps(kind, g.ranks)[0])
    low, high = band.around(seconds)
    beside = {}
    if measured is not None:
        beside = {
            "measured": measured,
            "measured_bus_bandwidth": wire * size / measured,
            "error": seconds / measured - 1,
        }
    return Timed(
        size=size,
        time=seconds,
        low=low,
        high=high,
        algorithm=algorithm,
        algorithm_bandwidth=size / seconds,
        bus_bandwidth=wire * size / seconds,
        **beside,
    )
