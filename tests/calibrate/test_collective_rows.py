"""Rows of collectives: rates and times by size, and rates of messages that are large."""

from __future__ import annotations

import pytest

from mlsysim.calibrate.questions import Skipped
from mlsysim.calibrate.tables import TABLES

ROW = {
    "id": "x", "source": "Azure AI-benchmarking-guide", "collective": "all_reduce", "gpu": "NVIDIA H200 141GB", "n_gpus": "8", "n_nodes": "1",
    "interconnect": "NVLink4/NVSwitch", "dtype": "float", "message_bytes": "1073741824", "metric": "busbw", "value": "467.58", "unit": "GB/s", "notes": "",
}  # fmt: skip


def _value(**changed: str) -> float:
    return TABLES["collectives"].predict(ROW | changed)[0].predicted


def test_a_rate_is_that_of_its_message():
    """52.96 GB/s of a MiB, 467.58 of a GiB on eight H200 (Azure, NCCL 2.20.5)."""
    seconds = _value(metric="latency") / 1e6
    assert _value() == pytest.approx(2 * 7 / 8 * 2**30 / seconds / 1e9)
    assert _value(metric="algbw") == pytest.approx(_value() / (2 * 7 / 8))
    assert _value(message_bytes="1048576") < 0.2 * _value() < _value(message_bytes="large")


def test_a_time_is_a_latency_and_needs_a_size():
    assert _value(metric="time") == _value(metric="latency")
    with pytest.raises(Skipped, match="no size"):
        _value(metric="time", message_bytes="")


def test_a_rate_between_nodes_is_that_of_the_network():
    wide = _value(n_gpus="32", n_nodes="4", interconnect="8x NDR 400G", message_bytes="17179869184", gpu="H100")
    assert wide == pytest.approx(365.84, rel=0.1)  # NVIDIA/nccl-tests issue 309
