"""ONNX files: written here byte by byte, by the ``onnx`` package and by PyTorch; counted operators against hand and torch."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim import SingleNodeModel
from mlsysim.errors import InputError
from mlsysim.importers import onnx as reader
from mlsysim.importers.detect import read_any
from mlsysim.importers.model import import_model, read_model
from mlsysim.importers.onnx import read_onnx
from mlsysim.importers.onnx_wire import Source, read_onnx_file

# --- a writer of the wire format --------------------------------------------------------------------------------------


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def tensor(name, dims, data=b"", dtype=1, external=None):
    out = b"".join(number(1, d) for d in dims) + number(2, dtype) + block(8, name)
    if external is not None:
        return out + block(13, block(1, "location") + block(2, external)) + number(14, 1)
    return out + block(9, data)


def floats(name, dims):
    count = 1
    for d in dims:
        count *= d
    return tensor(name, dims, bytes(4 * count))


def integers(name, values):
    return tensor(name, [len(values)], struct.pack(f"<{len(values)}q", *values), dtype=7)


def attribute(name, value):
    if isinstance(value, int):
        return block(1, name) + number(3, value)
    if isinstance(value, str):
        return block(1, name) + block(4, value)
    return block(1, name) + b"".join(number(8, v) for v in value)


def node(op, inputs, outputs, domain="", **attributes):
    return (
        b"".join(block(1, i) for i in inputs)
        + b"".join(block(2, o) for o in outputs)
        + block(4, op)
        + b"".join(block(5, attribute(k, v)) for k, v in attributes.items())
        + (block(7, domain) if domain else b"")
    )


def value(name, dims, dtype=1):
    shape = b"".join(block(1, block(2, d) if isinstance(d, str) else b"" if d is None else number(1, d)) for d in dims)
    return block(1, name) + block(2, block(1, number(1, dtype) + block(2, shape)))


def model(nodes, constants=(), inputs=(), outputs=(), values=(), name="net", functions=()):
    graph = b"".join(block(1, n) for n in nodes) + block(2, name)
    for field, items in ((5, constants), (11, inputs), (12, outputs), (13, values)):
        graph += b"".join(block(field, item) for item in items)
    return (
        number(1, 8)
        + block(2, "hand")
        + block(7, graph)
        + block(8, block(1, "") + number(2, 17))
        + b"".join(block(25, f) for f in functions)
    )


@pytest.fixture
def write(tmp_path):
    def put(*parts, name="net.onnx", **named):
        path = tmp_path / name
        path.write_bytes(model(*parts, **named))
        return path

    return put


def only(report, kind):
    (found,) = [op for op in report.workload.operators if op.kind == kind]
    return found


# --- known answers ----------------------------------------------------------------------------------------------------


def test_a_convolution_by_hand(write):
    path = write(
        [
            node("Conv", ["x", "w", "b"], ["y"], strides=[2, 2], pads=[3, 3, 3, 3], kernel_shape=[7, 7]),
            node("Relu", ["y"], ["z"]),
        ],
        [floats("w", [64, 3, 7, 7]), floats("b", [64])],
        [value("x", ["N", 3, 224, 224])],
        [value("z", ["N", 64, 112, 112])],
    )
    report = read_onnx(path)
    conv, relu = only(report, "conv"), only(report, "elementwise")
    assert conv.flops == 2 * 7 * 7 * 3 * 64 * 112 * 112
    assert (conv.m, conv.n, conv.k) == (112 * 112, 64, 147)
    assert conv.weights == conv.parameters == 64 * 3 * 49 + 64
    assert conv.inputs == 3 * 224 * 224 and conv.outputs == relu.inputs == relu.outputs == 64 * 112 * 112
    assert report.parameters == 9472 and report.dtype == "float32" and report.warnings == ()
    assert report.family == "ONNX graph of hand" and report.workload.architecture == "cnn"


@pytest.mark.parametrize("batch", [1, 3])
def test_figures_are_of_one_sample_whatever_the_batch(write, batch):
    path = write(
        [node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
        [floats("w", [10, 32]), floats("b", [10])],
        [value("x", [batch, 32])],
    )
    gemm = only(read_onnx(path), "gemm")
    assert (gemm.m, gemm.n, gemm.k, gemm.flops, gemm.inputs, gemm.outputs) == (1, 10, 32, 640, 32, 10)
    assert gemm.parameters == 330


def test_depthwise_grouped_and_transposed_convolutions(write):
    path = write(
        [
            node("Conv", ["x", "d"], ["a"], group=8, pads=[1, 1, 1, 1]),
            node("Conv", ["a", "g"], ["b"], group=2),
            node("ConvTranspose", ["b", "t"], ["c"], strides=[2, 2]),
        ],
        [floats("d", [8, 1, 3, 3]), floats("g", [16, 4, 1, 1]), floats("t", [16, 4, 2, 2])],
        [value("x", [1, 8, 10, 10])],
    )
    ops = {op.parameters: op for op in read_onnx(path).workload.operators}
    depthwise, grouped, transposed = ops[72], ops[64], ops[256]
    assert depthwise.kind == "depthwise_conv" and depthwise.flops == 2 * 9 * 8 * 100
    assert grouped.groups == 2 and grouped.flops == 2 * 4 * 16 * 100
    assert transposed.flops == 2 * 16 * 4 * 4 * 100 and transposed.outputs == 4 * 20 * 20


def attention_nodes(heads=2, width=8):
    """q, k, v by reshape and transpose, a scaled and masked softmax, the product with v."""
    return [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["s0"], axis=0),
        node("Gather", ["s", "one"], ["s1"], axis=0),
        node("Concat", ["s0", "s1", "split"], ["to"], axis=0),
        *(
            n
            for name in "qkv"
            for n in (
                node("MatMul", ["x", f"w{name}"], [f"{name}0"]),
                node("Reshape", [f"{name}0", "to"], [f"{name}1"]),
                node("Transpose", [f"{name}1"], [name], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]),
            )
        ),
        node("MatMul", ["q", "k"], ["scores"]),
        node("Div", ["scores", "root"], ["scaled"]),
        node("Add", ["scaled", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["y"]),
    ]


def attention_constants():
    return [
        *(floats(f"w{name}", [16, 16]) for name in "qkv"),
        integers("zero", [0]),
        integers("one", [1]),
        integers("split", [2, 8]),
        floats("root", []),
    ]


def test_attention_is_found_in_its_parts_and_sizes_are_taken(write):
    path = write(
        attention_nodes(),
        attention_constants(),
        [value("x", ["batch", "sequence", 16]), value("mask", ["batch", 1, 1, "sequence"])],
    )
    report = read_onnx(path, sizes={"sequence": 32}, batch=4)
    fused = only(report, "attention")
    assert (fused.m, fused.n, fused.k, fused.groups, fused.kv_heads) == (32, 32, 8, 2, 2)
    assert fused.flops == 4 * 2 * 32 * 32 * 8 and fused.cache == 2 * 32 * 16
    assert not any("Softmax" in op.name for op in report.workload.operators)
    assert sum(op.count for op in report.workload.operators if op.kind == "gemm") == 3
    assert report.warnings == ()
    (warning,) = read_onnx(path).warnings
    assert "'sequence'" in warning and "128" in warning


def test_a_quantised_weight_is_a_parameter_and_a_running_mean_is_not(write):
    path = write(
        [
            node("DequantizeLinear", ["q", "scale"], ["w"]),
            node("MatMul", ["x", "w"], ["y"]),
            node("BatchNormalization", ["y", "g", "b", "mean", "var"], ["z"]),
        ],
        [
            tensor("q", [16, 8], bytes(128), dtype=3),
            floats("scale", []),
            *(floats(n, [8]) for n in ("g", "b", "mean", "var")),
        ],
        [value("x", [1, 16])],
    )
    report = read_onnx(path)
    assert report.parameters == 128 + 1 + 16
    assert only(report, "gemm").flops == 2 * 16 * 8


def test_a_tied_table_is_held_once(write):
    path = write(
        [
            node("Gather", ["table", "ids"], ["x"]),
            node("Transpose", ["table"], ["head"], perm=[1, 0]),
            node("MatMul", ["x", "head"], ["y"]),
        ],
        [floats("table", [100, 8])],
        [value("ids", [1, 5], 7)],
    )
    report = read_onnx(path)
    assert report.parameters == 800
    assert only(report, "gemm").weights == 800 and only(report, "gemm").parameters == 0
    assert only(report, "embedding").inputs == 40


def test_functions_of_the_file_are_opened(write):
    function = (
        block(1, "Linear")
        + block(4, "a")
        + block(4, "b")
        + block(5, "c")
        + block(7, node("MatMul", ["a", "b"], ["m"]))
        + block(7, node("Relu", ["m"], ["c"]))
        + block(10, "mine")
    )
    path = write(
        [node("Linear", ["x", "w"], ["y"], domain="mine"), node("Linear", ["y", "w"], ["z"], domain="mine")],
        [floats("w", [8, 8])],
        [value("x", [1, 8])],
        functions=[function],
    )
    report = read_onnx(path)
    assert sum(op.count for op in report.workload.operators if op.kind == "gemm") == 2
    assert report.parameters == 64 and report.unread == ()


def test_a_function_that_calls_itself_is_refused(write):
    function = (
        block(1, "F") + block(4, "a") + block(5, "c") + block(7, node("F", ["a"], ["c"], domain="m")) + block(10, "m")
    )
    path = write([node("F", ["x"], ["y"], domain="m")], [], [value("x", [1, 8])], functions=[function])
    with pytest.raises(InputError, match="deep"):
        read_onnx(path)


def test_unknown_operators_are_listed_and_counted_with_nothing(write):
    path = write(
        [
            node("MatMul", ["x", "w"], ["y"]),
            node("Frobnicate", ["y"], ["z"], domain="acme"),
            node("NonZero", ["z"], ["u"]),
        ],
        [floats("w", [8, 8])],
        [value("x", [1, 8])],
        values=[value("z", [1, 8])],
    )
    report = read_onnx(path)
    assert report.unread == ("NonZero", "acme.Frobnicate")
    assert any("acme.Frobnicate" in warning for warning in report.warnings)
    assert any("NonZero" in warning and "shapes" in warning for warning in report.warnings)
    assert report.workload.flops_per_sample == 128


def test_external_data_is_measured_in_its_folder_and_never_followed_out_of_it(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(100))
    (tmp_path / "inside" / "w.bin").write_bytes(bytes(256))
    for location, known in (("w.bin", True), ("../outside.bin", False), ("/etc/hostname", False), ("no.bin", False)):
        path = tmp_path / "inside" / "net.onnx"
        path.write_bytes(
            model(
                [node("MatMul", ["x", "w"], ["y"])],
                [tensor("w", [8, 8], external=location)],
                [value("x", [1, 8])],
            )
        )
        report = read_onnx(path)
        assert report.parameters == 64
        assert report.checkpoint_bytes == (path.stat().st_size + 256 if known else None)
        assert bool(report.warnings) is not known


def test_a_large_weight_is_stepped_over(tmp_path, monkeypatch):
    """Of 64 MB of weights next to nothing is read."""
    path = tmp_path / "net.onnx"
    path.write_bytes(model([node("MatMul", ["x", "w"], ["y"])], [floats("w", [4096, 4096])], [value("x", [1, 4096])]))
    read = []
    whole = Source.read
    monkeypatch.setattr(
        Source,
        "read",
        lambda self, start, count: (read.append(count), whole(self, start, count))[1],
    )
    assert read_onnx(path).parameters == 4096**2
    assert sum(read) < 10_000


def test_it_runs_through_the_walls_and_the_commands_take_its_path(write):
    path = write(
        [node("Conv", ["x", "w"], ["y"]), node("Flatten", ["y"], ["f"]), node("Gemm", ["f", "h"], ["z"])],
        [floats("w", [16, 3, 3, 3]), floats("h", [16 * 30 * 30, 10])],
        [value("x", [1, 3, 32, 32])],
    )
    workload = import_model(path)
    flops = 2 * 27 * 16 * 900 + 2 * 14400 * 10
    assert workload.lower(batch_size=4).flops == 4 * flops
    assert workload.lower("training", batch_size=4).flops == 12 * flops
    for efficiency in (0.5, "calibrated"):
        result = SingleNodeModel().solve(workload, "H100", batch_size=4, efficiency=efficiency)
        assert result.feasible and result.latency.magnitude > 0
    assert read_any(path).parameters == read_model(path).parameters == 432 + 144000
    with pytest.raises(InputError, match="fixed shape"):
        workload.lower(seq_len=3)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_sizes_that_are_none_are_refused(write):
    path = write([node("MatMul", ["x", "w"], ["y"])], [floats("w", [8, 8])], [value("x", ["rows", 8])])
    with pytest.raises(InputError, match="rows"):
        read_onnx(path, sizes={"row": 2})
    for bad in (0, -1, True, 1.5, 10**12):
        with pytest.raises(InputError):
            read_onnx(path, sizes={"rows": bad})


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([node("MatMul", ["x", "w"], ["y"])], [floats("w", [9, 8])]),
        ([node("Conv", ["x", "w"], ["y"])], [floats("w", [4, 3, 9, 9])]),
        ([node("Reshape", ["x", "s"], ["y"]), node("MatMul", ["y", "w"], ["z"])], [integers("s", [3, 3]), floats("w", [3, 3])]),
        ([node("Transpose", ["x"], ["y"], perm=[0, 0])], [floats("w", [3])]),
        ([node("Relu", ["x"], ["y"])], []),
    ],
)  # fmt: skip
def test_graphs_that_cannot_be_are_refused_with_a_sentence(write, nodes, constants):
    path = write(nodes, constants, [value("x", [1, 8])])
    with pytest.raises(InputError) as caught:
        read_onnx(path)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def sound(path):
    """A report with finite numbers, or one sentence."""
    try:
        report = read_onnx(path)
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 1500
        return False
    assert 0 < report.parameters < 1e30 and 0 <= report.workload.flops_per_sample < 1e40
    return True


WHOLE = model(
    attention_nodes(),
    attention_constants(),
    [value("x", ["batch", "sequence", 16]), value("mask", ["batch", 1, 1, "sequence"])],
)


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_mangled_files(tmp_path_factory, seed):
    chance = random.Random(seed)
    path = Path(tmp_path_factory.mktemp("onnx")) / "net.onnx"
    for _ in range(10):
        data = bytearray(WHOLE)
        for _ in range(chance.choice([1, 2, 8, 40])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        path.write_bytes(bytes(data))
        sound(path)


@given(st.binary(max_size=200))
def test_random_bytes(tmp_path_factory, data):
    path = Path(tmp_path_factory.mktemp("onnx")) / "net.onnx"
    path.write_bytes(data)
    assert not sound(path)


def test_a_length_beyond_the_file_is_refused(tmp_path):
    path = tmp_path / "net.onnx"
    for length in (100, 2**62, 2**64 - 1):
        path.write_bytes(varint(7 << 3 | 2) + varint(length) + b"x")
        assert not sound(path)


def test_a_folder_and_nothing_are_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing.onnx"):
        with pytest.raises(InputError):
            read_onnx(path)


# --- oracles ----------------------------------------------------------------------------------------------------------


def test_shapes_agree_with_those_of_the_onnx_package(tmp_path):
    """A residual block and an attention, built by ``onnx.helper``; every shape that its own inference finds is ours."""
    onnx = pytest.importorskip("onnx")
    helper, TensorProto = onnx.helper, onnx.TensorProto
    constants = {
        "w1": [8, 3, 3, 3],
        "w2": [8, 8, 3, 3],
        "ws": [8, 3, 1, 1],
        "wq": [64, 32],
        "wk": [64, 32],
        "wv": [64, 32],
        "wo": [32, 10],
    }
    shape = helper.make_tensor("to", TensorProto.INT64, [3], [1, 8, -1])
    half = helper.make_tensor("half", TensorProto.INT64, [2], [16, 16])
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], auto_pad="SAME_UPPER"),
        helper.make_node("Conv", ["x", "ws"], ["s"], strides=[2, 2]),
        helper.make_node("Add", ["c", "s"], ["d"]),
        helper.make_node("MaxPool", ["d"], ["e"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, pads=[0, 0, 1, 1]),
        helper.make_node("Reshape", ["e", "to"], ["f"]),
        helper.make_node("MatMul", ["f", "wq"], ["q"]),
        helper.make_node("MatMul", ["f", "wk"], ["k"]),
        helper.make_node("MatMul", ["f", "wv"], ["v"]),
        helper.make_node("Split", ["v", "half"], ["v1", "v2"], axis=2),
        helper.make_node("Concat", ["v2", "v1"], ["vv"], axis=-1),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["qk"]),
        helper.make_node("Softmax", ["qk"], ["p"]),
        helper.make_node("MatMul", ["p", "vv"], ["o"]),
        helper.make_node("MatMul", ["o", "wo"], ["y"]),
        helper.make_node("ReduceMean", ["y", "axes"], ["z"], keepdims=0),
        helper.make_node("Unsqueeze", ["z", "axes"], ["u"]),
        helper.make_node("ArgMax", ["u"], ["best"], axis=2),
    ]
    graph = helper.make_graph(
        nodes,
        "block",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("best", TensorProto.INT64, [1, 1, 1])],
        [
            *(
                helper.make_tensor(key, TensorProto.FLOAT, dims, bytes(4 * _count(dims)), raw=True)
                for key, dims in constants.items()
            ),
            shape,
            half,
            axes,
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    onnx.checker.check_model(made)
    path = tmp_path / "block.onnx"
    onnx.save(made, path)
    compare_shapes(onnx, path)
    report = read_onnx(path)
    assert report.name == "block" and report.warnings == ()
    assert report.parameters == sum(_count(dims) for dims in constants.values())
    fused = only(report, "attention")
    assert (fused.m, fused.n, fused.k) == (8, 8, 32)


def _count(dims):
    total = 1
    for d in dims:
        total *= d
    return total


def compare_shapes(onnx, path):
    """Every shape that the ``onnx`` package infers, beside ours."""
    inferred = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True, data_prop=True).graph
    stated = {
        v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
        for v in (*inferred.value_info, *inferred.output)
        if v.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in v.type.tensor_type.shape.dim)
    }
    parsed = read_onnx_file(path)
    parsed.graph.values.clear()  # nothing is taken from the file's own statements
    ours = {}
    step = reader._step
    try:
        reader._step = lambda n, r, g, c: (step(n, r, parsed.graph, c), ours.update(r.shapes))[0]
        read_onnx(path)
    finally:
        reader._step = step
    differing = {k: (ours.get(k), v) for k, v in stated.items() if ours.get(k) != v}
    assert len(stated) >= 8 and differing == {}


@pytest.mark.oracle
def test_exports_of_pytorch_agree_with_its_own_count(tmp_path):
    torch = pytest.importorskip("torch")
    onnx = pytest.importorskip("onnx")
    from torch import nn
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    torch.manual_seed(0)
    cnn = nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(16, 32, 3, groups=4),
        nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    layers = [nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0) for _ in range(2)]
    transformer = nn.Sequential(nn.Embedding(50, 32), *layers, nn.Linear(32, 50))
    for parameter in (*cnn.parameters(), *transformer.parameters()):
        nn.init.normal_(parameter)  # exporters merge weights that are equal
    cases = (("cnn", cnn, torch.randn(2, 3, 64, 64)), ("transformer", transformer, torch.randint(0, 50, (2, 12))))
    for name, module, x in cases:
        path = tmp_path / f"{name}.onnx"
        with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            module.train()(x)
        torch.onnx.export(module.eval(), (x,), str(path), dynamo=False)
        compare_shapes(onnx, path)
        report = read_onnx(path)
        assert report.warnings == ()
        assert 2 * report.workload.flops_per_sample == pytest.approx(counter.get_total_flops(), rel=0.01)
        count = sum(p.numel() for p in module.parameters())
        assert report.parameters == pytest.approx(count, rel=0.03)  # norms are folded into convolutions
        if name == "transformer":
            assert sum(op.count for op in report.workload.operators if op.kind == "attention") == 2
