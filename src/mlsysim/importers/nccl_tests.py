"""What NVIDIA's nccl-tests (and AMD's rccl-tests) print: sizes and times of one collective, with the ranks and devices that took part.

Out-of-place times are taken; lines may have a launcher's prefix, such as ``[1,0]<stdout>:``. Nothing is executed.
"""

from __future__ import annotations

import re
from pathlib import Path

from mlsysim.errors import InputError
from mlsysim.importers.limits import read_text
from mlsysim.units.records import dataclass

_LARGEST = 10_000_000
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s+.*?\bon\s+(\S+)\s+device\s+\d+\s*(?:\[[^\]]*\])?\s*(.*)$")
_OPS = {"alltoall": "all_to_all", "sendrecv": "send"}
_TEST = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|alltoall|sendrecv)_perf\b")
_BEGINS = re.compile(r"^\s*(?:\[[^\]]*\](?:<\w+>)?:?)?\s*(?=#|\d)")


@dataclass(frozen=True)
class NcclLog:
    """Seconds by bytes of a message; the collective, ranks, hosts and chip where the log names them."""

    seconds: dict[int, float]
    op: str | None = None
    ranks: int | None = None
    hosts: int | None = None
    chip: str | None = None


def read_nccl_log(path: str | Path) -> NcclLog:
    """The measurements in a file of nccl-tests' output."""
    return nccl_log(read_text(path, _LARGEST), Path(path).name)


def nccl_log(text: str, name: str = "the log") -> NcclLog:
    """The measurements in nccl-tests' output."""
    lines = [_BEGINS.sub("", line).strip() for line in text.splitlines()]
    header = next((line.lstrip("# ").split() for line in lines if line.startswith("#") and "algbw" in line), None)
    if header is None or header[0] != "size" or "time" not in header:
        raise InputError(
            f"{name}: no table of nccl-tests was found; expected a line '# size count type ... time algbw busbw'."
        )
    place, seconds = header.index("time"), {}
    for line in lines:
        cells = line.split()
        if len(cells) > place and cells[0].isdigit():
            try:
                size, time = int(cells[0]), float(cells[place]) * 1e-6
            except ValueError:
                raise InputError(f"{name}: the line {line[:60]!r} has no time in its column {place + 1}.") from None
            if size > 0 and time > 0:
                seconds[size] = time
    if not seconds:
        raise InputError(f"{name}: the table of nccl-tests has no line with a size and a time.")
    ranks = [found for line in lines if (found := _RANK.match(line))]
    test = _TEST.search(text)
    return NcclLog(
        seconds,
        _OPS.get(test[1], test[1]) if test else None,
        len({found[1] for found in ranks}) or None,
        len({found[2] for found in ranks}) or None,
        next((found[3].strip() for found in ranks if found[3].strip()), None),
    )
