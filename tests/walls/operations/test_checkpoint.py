from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import Hardware, InputError, Models, TransformerWorkload
from mlsysim.cases.checkpoint import checkpoint_size, storage_rate, write_time
from mlsysim.walls.operations.checkpoint import CheckpointModel


def seventy(**changes):
    model = TransformerWorkload(name="70B", parameters=70e9, layers=80, hidden_dim=8192, heads=64)
    return CheckpointModel().solve(**{"model": model, "hardware": "H100", **changes})


def test_seventy_billion_parameters_are_a_terabyte():
    result = seventy()
    assert result.checkpoint_size.to("TB").magnitude == pytest.approx(0.98)
    assert result.bytes_per_parameter == 14
    assert checkpoint_size(70e9, 2.0, 12.0) == pytest.approx(0.98e12)


@pytest.mark.parametrize(
    ("optimizer", "precision", "size"),
    [
        ("adam", "bf16", 14),  # 2 weight + 4 master + 4 + 4 moments
        ("adam", "fp8", 14),  # 8-bit training keeps 16-bit weights
        ("adam", "fp32", 12),  # the weight is its own master: 4 + 8
        ("sgd", "fp16", 6),  # 2 + 4 master
        ("sgd", "fp32", 4),
        ("adam_8bit", "bf16", 8),
        ("none", "fp16", 2),
        ("none", "int8", 1),
    ],
)
def test_bytes_by_optimizer_and_precision(optimizer, precision, size):
    assert seventy(optimizer=optimizer, precision=precision).bytes_per_parameter == size


def test_the_papers_penalty():
    # 0.98 TB at 7 GB/s = 140 s; 140 s / 4 h = 0.97 %
    result = seventy()
    assert result.write_time_seconds.to("s").magnitude == pytest.approx(140)
    assert result.mfu_penalty_pct == pytest.approx(100 * 140 / 14400)
    assert result.bottleneck == "Writers"
    assert not result.storage_bottleneck


def test_llama_3_at_full_scale():
    # 4.05 TB from 16,384 writers of 5 GB/s would take 0.049 s, not 50 s; a file system of 2 TB/s makes it 2.0 s
    given = {
        "model": Models.Llama3_405B,
        "hardware": "H100",
        "n_writers": 16384,
        "writer_bandwidth": "5 GB/s",
        "bytes_per_parameter": 4.05e12 / Models.Llama3_405B.parameter_count,
    }
    free = CheckpointModel().solve(**given, filesystem_limit_gbs=1e6)
    assert free.write_time_seconds.to("s").magnitude == pytest.approx(0.0494, abs=1e-4)
    assert not free.storage_bottleneck
    real = CheckpointModel().solve(**given, filesystem_limit_gbs="2 TB/s")
    assert real.write_time_seconds.to("s").magnitude == pytest.approx(2.025)
    assert real.storage_bottleneck
    assert real.max_bandwidth_required.to("TB/s").magnitude == pytest.approx(81.92)
    assert real.binding.margin == pytest.approx(81.92 / 2)
    whole = CheckpointModel().solve(Models.Llama3_405B, "H100", n_writers=16384, filesystem_limit_gbs="2 TB/s")
    assert 2 < whole.write_time_seconds.to("s").magnitude < 3


def test_more_writers_help_until_the_file_system_is_full():
    times = [seventy(n_writers=n).write_time_seconds.to("s").magnitude for n in (1, 64, 72, 512)]
    assert times[0] > times[1] > times[2] == times[3] == pytest.approx(0.98e12 / 500e9)


def test_an_asynchronous_checkpoint_stalls_for_the_copy_alone():
    both = {name: seventy(n_writers=8, asynchronous=name) for name in (False, True)}
    assert both[True].write_time_seconds == both[False].write_time_seconds
    assert both[True].stall_time.to("s").magnitude == pytest.approx(0.98e12 / (8 * 64e9))
    assert both[True].snapshot_time == both[True].stall_time
    assert both[False].snapshot_time is None
    assert both[False].stall_time == both[False].write_time_seconds
    assert both[True].mfu_penalty_pct < both[False].mfu_penalty_pct


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_write_longer_than_the_interval_is_infeasible(asynchronous):
    result = seventy(checkpoint_interval_hours="1 min", asynchronous=asynchronous)
    assert not result.feasible
    assert "save less often" in result.binding.sentence


def test_experts_are_all_saved():
    model = Models.Mixtral_8x7B
    size = CheckpointModel().solve(model, "H100").checkpoint_size.to("byte").magnitude
    assert size == pytest.approx(14 * model.parameter_count)


def test_limits():
    assert storage_rate(1, 5.0, float("inf")) == 5.0
    assert write_time(0.0, 5.0) == 0.0


def test_a_chip_without_storage_or_link_says_so():
    bare = Hardware.Cloud.H100.model_copy(update={"storage": None, "interconnect": None})
    with pytest.raises(InputError, match="writer_bandwidth"):
        seventy(hardware=bare)
    with pytest.raises(InputError, match="host link"):
        seventy(hardware=bare, writer_bandwidth=7, asynchronous=True)
    assert seventy(hardware=bare, writer_bandwidth=7).feasible


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"optimizer": "adaam"}, "adam"),
        ({"n_writers": 0}, "at least 1"),
        ({"n_writers": 1.5}, "whole"),
        ({"checkpoint_interval_hours": 0}, "above 0"),
        ({"filesystem_limit_gbs": "3 W"}, "filesystem_limit_gbs"),
    ],
)
def test_bad_input_is_one_sentence(changes, words):
    with pytest.raises(InputError, match=words):
        seventy(**changes)


@given(
    writers=st.integers(1, 100_000),
    limit=st.floats(1, 1e5),
    writer=st.floats(0.1, 100),
    hours=st.floats(0.1, 100),
)
def test_signs(writers, limit, writer, hours):
    def solve(**changes):
        given = {
            "n_writers": writers,
            "filesystem_limit_gbs": limit,
            "writer_bandwidth": writer,
            "checkpoint_interval_hours": hours,
        }
        return seventy(**given | changes)

    base = solve()
    assert solve(n_writers=writers * 2).write_time_seconds <= base.write_time_seconds
    assert solve(filesystem_limit_gbs=limit * 2).write_time_seconds <= base.write_time_seconds
    assert solve(writer_bandwidth=writer * 2).write_time_seconds <= base.write_time_seconds
    assert solve(checkpoint_interval_hours=hours * 2).mfu_penalty_pct < base.mfu_penalty_pct
    assert solve(asynchronous=True).write_time_seconds == base.write_time_seconds
