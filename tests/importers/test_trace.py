"""Traces of profilers, written here: times by hand, kinds by name, efficiencies, what-ifs, and broken files."""

from __future__ import annotations

import copy
import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.importers.detect import read_any
from mlsysim.importers.trace import read_trace, union_length
from mlsysim.importers.trace_kinds import kind_of, work_of
from mlsysim.importers.trace_what_if import what_if


def complete(name, cat, start, length, pid=0, tid=7, **arguments):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": length, "args": arguments}


GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def events(steps=2):
    """Steps of 1,000 us: a product of 300 us, an addition of 100 us, a collective of 200 us half behind the addition."""
    found = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}]
    for i in range(steps):
        t, key = 1000.0 * i, 10 * i
        found += [
            complete(f"ProfilerStep#{i + 3}", "user_annotation", t, 1000, pid=1, tid=1),
            complete(
                "aten::mm",
                "cpu_op",
                t,
                20,
                pid=1,
                tid=1,
                **{
                    "External id": key + 1,
                    "Input Dims": [[4096, 4096], [4096, 4096]],
                    "Input type": ["c10::BFloat16", "c10::BFloat16"],
                },
            ),
            complete(
                "aten::add",
                "cpu_op",
                t + 30,
                20,
                pid=1,
                tid=1,
                **{
                    "External id": key + 2,
                    "Input Dims": [[4096, 4096], [4096, 4096], []],
                    "Input type": ["float", "float", "Scalar"],
                },
            ),
            complete(GEMM, "kernel", t + 100, 300, **{"External id": key + 1, "device": 0, "stream": 7}),
            complete(ADD, "kernel", t + 400, 100, **{"External id": key + 2, "device": 0, "stream": 7}),
            complete(REDUCE, "kernel", t + 400, 200, tid=20, **{"device": 0, "stream": 20}),
            complete("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", t + 700, 50, **{"device": 0, "bytes": 1000}),
        ]
    return found


def document(**changes):
    return {"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": events(), **changes}


@pytest.fixture
def write(tmp_path):
    def put(content, name="run.json"):
        path = tmp_path / name
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return put


@pytest.mark.parametrize("name", ["run.json", "run.pt.trace.json.gz"])
def test_times_by_hand(write, name):
    report = read_trace(write(document(), name))
    assert (report.chip, report.device_name, report.steps, report.devices) == ("H200", "NVIDIA H200", 2, 1)
    assert report.step == pytest.approx(1000e-6)
    assert report.busy == pytest.approx(550e-6) and report.idle == pytest.approx(450e-6)
    assert report.communication == pytest.approx(200e-6)
    assert report.exposed_communication == pytest.approx(100e-6)
    kinds = {k.kind: k for k in report.kinds}
    assert set(kinds) == {"gemm", "elementwise", "collective", "copy to or from host"}
    gemm, add = kinds["gemm"], kinds["elementwise"]
    assert gemm.time == pytest.approx(300e-6) and gemm.count == 2
    # 2 x 4096^3 operations in 300 us at a peak of 989 TFLOP/s
    assert gemm.eta == pytest.approx(2 * 4096**3 / 300e-6 / 989e12, rel=0.01) and gemm.of == "the bf16 peak"
    # two inputs and an output of 4 x 4096^2 bytes in 100 us at 4.8 TB/s
    assert add.eta == pytest.approx(3 * 4 * 4096**2 / 100e-6 / 4.8e12, rel=0.01)
    assert kinds["collective"].eta is None and report.precision == "bf16"
    assert "55" in report.text and json.loads(json.dumps(report.to_dict(), allow_nan=False))["type"] == "trace"


def test_a_chip_can_be_named_and_an_unknown_one_is_said(write):
    path = write(document(deviceProperties=[{"name": "Hyperdrive 3000"}]))
    silent = read_trace(path)
    assert silent.chip is None and all(k.eta is None for k in silent.kinds)
    assert any("Hyperdrive 3000" in warning for warning in silent.warnings)
    assert read_trace(path, chip="H100").kinds[0].eta is not None
    with pytest.raises(InputError):
        read_trace(path, chip="H1000000")
    with pytest.raises(InputError, match="which chip"):
        what_if(silent, "H100")


def test_without_steps_all_counts_as_one(write):
    listed = [e for e in events() if not e["name"].startswith("ProfilerStep")]
    report = read_trace(write(document(traceEvents=listed)))
    assert report.steps == 1 and any("marks no steps" in warning for warning in report.warnings)
    assert report.step == pytest.approx(1650e-6) and report.busy == pytest.approx(1100e-6)


def test_a_trace_of_the_host_gives_own_times(write):
    listed = [
        complete("aten::linear", "cpu_op", 0, 100, pid=1, tid=1),
        complete("aten::addmm", "cpu_op", 10, 80, pid=1, tid=1),
        complete("aten::relu", "cpu_op", 100, 50, pid=1, tid=1),
    ]
    report = read_trace(write(listed))
    times = {k.name: k.time for k in report.kernels}
    assert times == pytest.approx({"aten::linear": 20e-6, "aten::addmm": 80e-6, "aten::relu": 50e-6})
    assert report.on_host and report.step == pytest.approx(150e-6)


def test_devices_of_jax_are_found_by_their_processes(write):
    listed = [
        {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "/device:TPU:0"}},
        {"ph": "M", "name": "thread_name", "pid": 3, "tid": 1, "args": {"name": "XLA Ops"}},
        {"ph": "M", "name": "thread_name", "pid": 3, "tid": 2, "args": {"name": "XLA Modules"}},
        {"ph": "X", "name": "fusion.3", "pid": 3, "tid": 1, "ts": 0, "dur": 40},
        {"ph": "X", "name": "convolution.1", "pid": 3, "tid": 1, "ts": 50, "dur": 50},
        {"ph": "X", "name": "jit_step", "pid": 3, "tid": 2, "ts": 0, "dur": 100},
        {"ph": "X", "name": "python", "pid": 9, "tid": 1, "ts": 0, "dur": 900},
    ]
    report = read_trace(write({"traceEvents": listed}))
    assert report.busy == pytest.approx(90e-6) and not report.on_host
    assert {k.kind for k in report.kinds} == {"elementwise", "conv"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (GEMM, "gemm"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "gemm"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32", "gemm"),
        (ADD, "elementwise"),
        ("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}", "elementwise"),
        (REDUCE, "collective"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64", "attention"),
        ("sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32", "conv"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>", "norm"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>", "optimizer"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", "reduction"),
        ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>", "softmax"),
        ("Memcpy DtoH (Device -> Pinned)", "copy to or from host"),
        ("Memset (Device)", "copy"),
        ("zzz", "other"),
    ],
)  # fmt: skip
def test_kinds_by_name(name, kind):
    assert kind_of(name) == kind


def test_work_from_shapes():
    half = ["c10::Half"] * 4
    assert work_of("aten::addmm", [[64], [128, 32], [32, 64], []], half, []) == (
        2 * 128 * 32 * 64,
        2 * (64 + 128 * 32 + 32 * 64 + 128 * 64),
    )
    assert work_of("aten::bmm", [[4, 8, 16], [4, 16, 8]], half, [])[0] == 2 * 4 * 8 * 16 * 8
    forward = work_of("aten::_scaled_dot_product_flash_attention", [[2, 4, 128, 64]] * 3, half, [])[0]
    backward = work_of("aten::_scaled_dot_product_flash_attention_backward", [[2, 4, 128, 64]] * 4, half, [])[0]
    assert forward == 4 * 2 * 4 * 128 * 128 * 64 and backward == 2.5 * forward
    conv = work_of(
        "aten::convolution",
        [[2, 3, 224, 224], [64, 3, 7, 7], [], [], [], []],
        ["float", "float"],
        ["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"],
    )[0]
    assert conv == 2 * 2 * 64 * 112 * 112 * 3 * 49
    assert work_of("aten::mm", [[4, 5], [6, 7]], half, []) == (None, 2 * (20 + 42) + 2 * 42)
    assert work_of("aten::nothing", [], [], []) == (None, None)


def test_what_if_follows_the_roofline(write):
    report = read_trace(write(document()))
    same = what_if(report, "H200")
    assert same.busy == pytest.approx(report.busy) and same.step == pytest.approx(report.step)
    assert same.low <= same.step <= same.high
    other = what_if(report, "A100")
    # bf16 989 -> 312 TFLOP/s, 4.8 -> 2.039 TB/s
    assert other.kinds["gemm"]["predicted"] == pytest.approx(300e-6 * 989 / 312, rel=0.02)
    assert other.kinds["elementwise"]["predicted"] == pytest.approx(100e-6 * 4.8 / 2.039, rel=0.02)
    assert other.low < other.step < other.high and other.step > report.step * 0.99
    double = what_if(report, batch_scale=2)
    assert double.kinds["gemm"]["predicted"] == pytest.approx(600e-6)
    assert double.kinds["collective"]["predicted"] == pytest.approx(200e-6)
    assert "2 times the batch" in double.text and double.to_dict()["kinds"]["gemm"]["measured"] == pytest.approx(300e-6)


@given(st.floats(0.1, 50), st.floats(1.01, 4))
def test_a_larger_batch_never_takes_less_time(tmp_path_factory, batch, more):
    path = Path(tmp_path_factory.mktemp("trace")) / "run.json"
    path.write_text(json.dumps(document()))
    report = read_trace(path)
    small, large = what_if(report, "B200", batch), what_if(report, "B200", batch * more)
    assert small.busy <= large.busy and small.step <= large.step
    assert small.low <= small.step * (1 + 1e-9) and small.step <= small.high * (1 + 1e-9)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), True, "2"])
def test_a_bad_batch_scale_is_refused(write, bad):
    with pytest.raises(InputError):
        what_if(read_trace(write(document())), batch_scale=bad)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=20))
def test_the_union_is_what_counting_gives(pairs):
    covered = {i for start, length in pairs for i in range(start, start + length)}
    assert union_length((a, a + n) for a, n in pairs) == len(covered)


def sound(path):
    try:
        report = read_any(path)
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 1500
        return False
    json.dumps(report.to_dict(), allow_nan=False)
    return True


JUNK = [
    None,
    True,
    -1,
    0,
    1e308,
    10**30,
    float("nan"),
    float("inf"),
    "x",
    [],
    {},
    [[1, -2]],
    {"name": 3},
    "kernel",
    "X",
]


@settings(max_examples=50)
@given(st.integers(0, 2**32))
def test_mangled_traces(tmp_path_factory, seed):
    chance = random.Random(seed)
    path = Path(tmp_path_factory.mktemp("trace")) / "run.json"
    read = 0
    for _ in range(10):
        mangled = copy.deepcopy(document())
        for _ in range(chance.choice([1, 3, 10])):
            event = chance.choice(mangled["traceEvents"])
            table = event["args"] if chance.random() < 0.4 and isinstance(event.get("args"), dict) else event
            if table:
                table[chance.choice(sorted(table))] = copy.deepcopy(chance.choice(JUNK))
        if chance.random() < 0.2:
            mangled[chance.choice(sorted(mangled))] = chance.choice(JUNK)
        path.write_text(json.dumps(mangled))
        read += sound(path)
    assert read


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"", "a.json.gz"),
        (b"{", "a.json"),
        (b'{"traceEvents": []}', "a.json"),
        (b'{"traceEvents": 3}', "a.json"),
        (b"[]", "a.json"),
        (b"[1, 2]", "a.json"),
        (b"\x1f\x8b\x08junk", "a.json"),
        (b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 0, "dur": 0}]}', "a.json"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(content)
    assert not sound(path)


def test_a_gzip_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("mlsysim.importers.trace_file.LARGEST_TRACE", 1_000_000)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 2_000_000))
    with pytest.raises(InputError, match="unpacks to more"):
        read_trace(path)
