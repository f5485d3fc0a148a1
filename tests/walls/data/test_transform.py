"""Wall 9: preparing a batch against using it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import Q_, InputError, UnitError
from mlsysim.walls.data.transform import TransformationModel


def solve(**inputs):
    given = {"batch_size": 2048, "workers": 64, "worker_throughput": "850 sample/s", "accelerator_step_time": "48 ms"}
    given.update(inputs)
    return TransformationModel().solve(**{k: v for k, v in given.items() if v is not ...})


def test_the_paper_s_54400_images_a_second_and_its_headroom():
    result = solve()
    assert result.cpu_throughput.to("1/s").magnitude == pytest.approx(54_400)
    assert result.demand_rate.to("1/s").magnitude == pytest.approx(42_667, rel=1e-4)
    assert result.headroom_ratio == pytest.approx(1.27, abs=0.01)
    assert not result.is_bottleneck
    assert result.accelerator_utilization == 1.0
    assert result.slowdown_factor == 1.0


def test_doubling_the_batch_does_not_double_the_demand_when_the_step_computes():
    # S2 keeps 48 ms at twice the batch; a compute-bound step takes twice as long and asks for the same images a second.
    one, two = solve(), solve(batch_size=4096, accelerator_step_time="96 ms")
    assert two.demand_rate.magnitude == pytest.approx(one.demand_rate.magnitude)
    assert two.headroom_ratio == pytest.approx(one.headroom_ratio)
    assert not two.is_bottleneck


def test_doubling_the_batch_at_a_constant_step_does_move_the_wall():
    result = solve(batch_size=4096)
    assert result.is_bottleneck and not result.feasible
    assert result.demand_rate.magnitude == pytest.approx(85_333, rel=1e-4)
    assert result.slowdown_factor == pytest.approx(85_333 / 54_400, rel=1e-4)
    assert result.delivered_rate.magnitude == pytest.approx(54_400)
    assert result.workers_needed == 101
    assert "Wall 9" in result.binding.sentence


def test_the_contract_s_four_inputs_by_position():
    result = TransformationModel().solve(256, 150e3, "1.5 GB/s", Q_("20 ms"))
    # 1.5 GB/s of 150 kB samples are 10,000 samples/s: 25.6 ms for 256.
    assert result.transform_time.to("ms").magnitude == pytest.approx(25.6)
    assert result.accelerator_utilization == pytest.approx(20 / 25.6)
    assert result.workers_needed is None


def test_bytes_and_samples_agree():
    by_bytes = TransformationModel().solve(256, "150 kB", "1.5 GB/s", "20 ms")
    by_samples = TransformationModel().solve(256, None, "10000 sample/s", "20 ms")
    assert by_bytes.transform_time.magnitude == pytest.approx(by_samples.transform_time.magnitude)


def test_without_prefetch_the_times_add():
    result = solve(prefetch=False)
    assert result.step_time.magnitude == pytest.approx(2048 / 54_400 + 0.048)
    assert result.accelerator_utilization == pytest.approx(0.048 / (2048 / 54_400 + 0.048))
    assert "T_transform + T_accelerator" in result.explain()


def test_workers_beyond_the_cores_add_nothing():
    assert solve(cores=32).cpu_throughput.magnitude == pytest.approx(32 * 850)
    assert solve(cores=128).cpu_throughput.magnitude == pytest.approx(64 * 850)


def test_decoding_on_the_accelerator_frees_the_processors():
    half = solve(batch_size=4096, gpu_decode_fraction=0.5)
    assert half.transform_time.magnitude == pytest.approx(2048 / 54_400)
    assert not half.is_bottleneck
    assert "at no cost" in half.assumptions["gpu_decode_rate"]


def test_decoding_in_place_of_training_costs_its_time():
    result = solve(gpu_decode_fraction=0.5, gpu_decode_rate="102400 sample/s")
    assert result.accelerator_step_time.magnitude == pytest.approx(0.048 + 0.010)


def test_all_samples_on_the_accelerator():
    result = solve(gpu_decode_fraction=1.0)
    assert result.transform_time.magnitude == 0
    assert result.headroom_ratio is None
    assert result.workers_needed == 0
    assert not result.is_bottleneck


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"accelerator_step_time": ...}, "accelerator_step_time"),
        ({"worker_throughput": ...}, "either 'cpu_throughput'"),
        ({"cpu_throughput": "100 sample/s"}, "either 'cpu_throughput'"),
        ({"cpu_throughput": "100 sample/s", "worker_throughput": ...}, "'workers' goes with"),
        ({"workers": ...}, "needs 'workers'"),
        ({"worker_throughput": "120 MB/s"}, "needs 'sample_size_bytes'"),
        ({"worker_throughput": "0 sample/s"}, "above 0"),
        ({"batch_size": 0}, "at least 1"),
        ({"gpu_decode_fraction": 1.1}, "at most 1"),
    ],
)
def test_errors_say_what_is_missing(inputs, words):
    with pytest.raises(InputError, match=words):
        solve(**inputs)


@pytest.mark.parametrize("rate", [850, "850 GB", "fast", True, None.__class__])
def test_a_rate_without_its_unit_is_refused(rate):
    with pytest.raises(UnitError):
        solve(worker_throughput=rate)


@given(st.integers(1, 10**5), st.integers(1, 512), st.integers(1, 512), st.floats(1e-4, 10.0))
def test_more_workers_never_slow_a_step(batch, a, b, step):
    few, many = sorted((a, b))
    slow = solve(batch_size=batch, workers=few, accelerator_step_time=Q_(step, "s"))
    fast = solve(batch_size=batch, workers=many, accelerator_step_time=Q_(step, "s"))
    assert fast.step_time <= slow.step_time
    assert 0 < slow.accelerator_utilization <= 1
    assert slow.slowdown_factor >= 1


@given(st.integers(1, 10**5), st.floats(1e-4, 10.0))
def test_prefetching_never_slows_a_step(batch, step):
    time = Q_(step, "s")
    assert (
        solve(batch_size=batch, accelerator_step_time=time).step_time
        <= solve(batch_size=batch, accelerator_step_time=time, prefetch=False).step_time
    )
