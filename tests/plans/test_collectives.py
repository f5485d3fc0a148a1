"""Expected collectives: those that training steps ask for, beside published and logged measurements."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.api.service import call
from mlsysim.errors import InputError
from mlsysim.importers.nccl_tests import nccl_log
from mlsysim.plans.collectives import OPS, asked, collectives, sizes_of
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.timing.network import datasheet_network
from mlsysim.timing.training_chip import chip_in_fleet

LOG = """
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20
# Using devices
#  Rank  0 Group  0 Pid  4242 on  node01 device  0 [0x1b] NVIDIA H100 80GB HBM3
[1,0]<stdout>:#  Rank  1 Group  0 Pid  4242 on  node02 device  0 [0x43] NVIDIA H100 80GB HBM3
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0     float     sum      -1     0.20    0.00    0.00      0     0.19    0.00    0.00      0
[1,0]<stdout>:     2097152        524288     float     sum      -1    113.2   18.53   18.53      0    113.0   18.56   18.56      0
    33554432       8388608     float     sum      -1    812.3   41.31   41.31      0    811.9   41.33   41.33      0
# Avg bus bandwidth    : 27.5
"""


def test_they_are_what_a_training_step_asks_for() -> None:
    fleet = parse_fleet("64xH100@NDR").one
    net = chip_in_fleet(fleet, "bf16", datasheet_network(fleet).fabric).network
    for op, timed in (("all_reduce", net.all_reduce), ("all_gather", net.gather), ("reduce_scatter", net.gather)):
        for group in (8, 64):
            (row,) = collectives("64xH100@NDR", op, [1e8], group).rows
            assert row.time == pytest.approx(timed(1e8, net.group(group)), rel=1e-12)
    (row,) = collectives("64xH100@NDR", "all_to_all", [1e8]).rows
    assert row.time == pytest.approx(replace(net, dispatch=1.0).exchange(1e8, 1.0, net.group(64), False), rel=1e-12)


def test_bus_bandwidth_that_nvidia_calls_expected() -> None:
    """nccl-tests issues 212 and 290: 476 to 480 GB/s of eight H100 with reduction in the switch, 46 to 48 GB/s for each 400 Gbit/s adapter."""
    (row,) = collectives("8xH100", "all_reduce", [8e9]).rows
    assert row.bus_bandwidth == pytest.approx(478e9, rel=0.06) and row.algorithm == "in the switch"
    (row,) = collectives("64xH100@NDR", "all_gather", [8e9], 8, 8).rows
    assert 45e9 < row.bus_bandwidth < 48e9


@given(st.floats(4, 10), st.sampled_from(["8xH100", "64xH100@NDR", "16xA100@HDR", "72xGB200", "128xMI300X"]))
def test_rules(exponent: float, fleet: str) -> None:
    size = 10**exponent
    rows = {op: collectives(fleet, op, [size, 2 * size]).rows for op in OPS}
    for row, larger in rows.values():
        assert 0 < row.low < row.time < row.high and row.time < larger.time
        assert row.bus_bandwidth <= larger.bus_bandwidth * (1 + 1e-9)
    # A reduce-scatter and a gather are an all-reduce.
    gathers = rows["all_gather"][0].time + rows["reduce_scatter"][0].time
    assert rows["all_reduce"][0].time <= gathers * (1 + 1e-9) or fleet in ("8xH100", "72xGB200")


def test_a_log_stands_beside_what_is_expected() -> None:
    log = nccl_log(LOG)
    assert (log.op, log.ranks, log.hosts, log.chip) == ("all_reduce", 2, 2, "NVIDIA H100 80GB HBM3")
    assert log.seconds == pytest.approx({2097152: 113.2e-6, 33554432: 812.3e-6})
    found = collectives("16xH100@NDR", log=log, stride=8)
    assert (found.ranks, found.nodes, [row.size for row in found.rows]) == (2, 2, [2097152, 33554432])
    assert found.rows[1].measured_bus_bandwidth == pytest.approx(41.31e9, rel=1e-3)
    # nccl-tests issue 232: one rank a node and one adapter each.
    assert all(abs(row.error) < 0.35 for row in found.rows if row.error is not None) and found.within == (2, 2)
    assert found.to_dict()["rows"][0]["measured"] == {"magnitude": pytest.approx(113.2e-6), "unit": "s"}


def test_older_logs_name_no_reduction() -> None:
    text = "#  size  count  type  time  algbw  busbw  error\n 1024 256 float 9.1 0.11 0.10 N/A\n"
    assert nccl_log(text).seconds == pytest.approx({1024: 9.1e-6}) and nccl_log(text).op is None


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"op": "allreduc"}, "did you mean 'all_reduce'"),
        ({"group": 9}, "2 to 8 ranks"),
        ({"stride": 3}, "must divide"),
        ({"on": "H100"}, "2 ranks at least"),
        ({"on": "8xH100 + 8xB200"}, "one kind of accelerator"),
        ({"op": "send", "group": 4}, "a send has 2 ranks"),
        ({"log": SimpleNamespace(op="all_gather", ranks=8, seconds={})}, "the log is of all_gather"),
        ({"log": SimpleNamespace(op=None, ranks=4, seconds={}), "group": 8}, "the log is of 4"),
    ],
)
def test_one_sentence(asked: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said.replace("?", r"\?")):
        collectives(**{"on": "8xH100", "sizes": [1e6], **asked})  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "1kg", "0B", "8GB:1MB", "1MB:2MB:3MB", "1B:8PB", "x"])
def test_sizes_that_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--size"):
        sizes_of(text)


def test_what_is_no_log_is_said(tmp_path: Path) -> None:
    for text in ("", "hello", "# size count time algbw\n", "# size count type time algbw\n 8 2 float fast 1\n"):
        with pytest.raises(InputError, match="the log: "):
            nccl_log(text)


def test_a_request_is_answered_as_the_command_is():
    document = {"on": "16xH100@NDR", "op": "allreduce", "size": "64MB"}
    told = asked("16xH100@NDR", "all_reduce", "64MB", None, 1, None).to_dict()
    assert call("collectives", document).document == json.loads(json.dumps(told))
    said = call("collectives", {**document, "size": "big"}).document["error"]
    assert said["field"] == "size" and said["sentence"].startswith("'size' is a size of 1 byte or more")
    assert "such as 64xH100@NDR" in call("collectives", {}).document["error"]["sentence"]
