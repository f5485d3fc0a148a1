"""PyTorch modules and exported programs; operations against PyTorch's own counter."""

from __future__ import annotations

import copy
import json
import random
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.importers.model import read_model
from mlsysim.importers.torch_graph import import_module, read_pt2


def tensor(*sizes):
    return {"dtype": 7, "sizes": [{"as_int": s} if isinstance(s, int) else s for s in sizes]}


def named(name):
    return {"as_tensor": {"name": name}}


def call(target, output, **arguments):
    return {
        "target": f"torch.ops.aten.{target}",
        "inputs": [{"name": key, "arg": value} for key, value in arguments.items()],
        "outputs": [named(output)],
    }


def program():
    """Linear, relu, attention with itself, as torch.export.save writes them."""
    open_size = {"as_expr": {"expr_str": "s0", "hint": {"as_int": 2}}}
    return {
        "graph_module": {
            "graph": {
                "nodes": [
                    call("linear.default", "y", input=named("x"), weight=named("p_w"), bias=named("p_b")),
                    call("relu.default", "z", self=named("y")),
                    call("view.default", "q", self=named("z"), size={"as_ints": [2, 4, 8, 8]}),
                    call(
                        "scaled_dot_product_attention.default",
                        "a",
                        query=named("q"),
                        key=named("q"),
                        value=named("q"),
                        is_causal={"as_bool": True},
                    ),
                ],
                "tensor_values": {
                    "x": tensor(open_size, 8, 16),
                    "p_w": tensor(32, 16),
                    "p_b": tensor(32),
                    "y": tensor(open_size, 8, 32),
                    "z": tensor(open_size, 8, 32),
                    "q": tensor(open_size, 4, 8, 8),
                    "a": tensor(open_size, 4, 8, 8),
                },
            },
            "signature": {
                "input_specs": [
                    {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}},
                    {"parameter": {"arg": {"name": "p_b"}, "parameter_name": "b"}},
                    {"user_input": {"arg": named("x")}},
                ]
            },
        }
    }


@pytest.fixture
def save(tmp_path):
    def put(document, member="m/models/model.json", name="net.pt2", more=()):
        path = tmp_path / name
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(member, document if isinstance(document, (str, bytes)) else json.dumps(document))
            for extra in more:
                archive.writestr(extra, b"\x80\x02pickle")
        return path

    return put


@pytest.mark.parametrize("member", ["m/models/model.json", "serialized_exported_program.json"])
def test_a_program_by_hand_without_pytorch(save, member):
    report = read_pt2(save(program(), member, more=["m/data/sample_inputs/model.pt"]))
    by_kind = {op.kind: op for op in report.workload.operators}
    assert set(by_kind) == {"gemm", "elementwise", "attention"}
    gemm, attention = by_kind["gemm"], by_kind["attention"]
    assert gemm.flops == 2 * 8 * 16 * 32 and gemm.m == 8 and gemm.weights == gemm.parameters == 32 * 16 + 32
    # 4 heads, 8 queries, the unmasked 36 of 64 pairs, 8 for q k and 8 for p v
    assert attention.flops == 4 * 36 * 2 * (8 + 8) and attention.groups == 4
    assert report.parameters == 544 and report.name == "net" and "x 2x8x16" in report.workload.sample
    assert read_model(save(program())).parameters == 544


def test_an_archive_without_a_graph_is_not_unpickled(save):
    with pytest.raises(InputError, match="pickles are not read"):
        read_pt2(save("{}", member="archive/data.pkl"))
    with pytest.raises(InputError, match="2 programs"):
        read_pt2(save(program(), more=["m/models/other.json"]))


def test_unknown_operators_are_listed(save):
    document = program()
    document["graph_module"]["graph"]["nodes"][1]["target"] = "torch.ops.acme.frobnicate.default"
    report = read_pt2(save(document))
    assert report.unread == ("acme.frobnicate",) and "acme.frobnicate" in report.warnings[0]


def test_an_operator_without_tensors_only_moves(save):
    document = program()
    node = document["graph_module"]["graph"]["nodes"][1]
    for target in ("embedding", "einsum", "lstm"):
        node |= {"target": f"torch.ops.aten.{target}.default", "inputs": [{"name": "x", "arg": {"as_int": 1}}]}
        kinds = {op.name: op.kind for op in read_pt2(save(document)).workload.operators}
        assert kinds[target] == "elementwise"


def sound(path):
    try:
        report = read_pt2(path)
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 1500
        return False
    assert 0 < report.parameters < 1e30 and 0 <= report.workload.flops_per_sample < 1e40
    return True


JUNK = [None, True, 0, -1, 10**20, 1.5, "x", [], {}, [[]], {"as_int": -3}, {"name": "x"}, {"as_tensor": {}}, "a.b.c.d"]


def places(value, found):
    if isinstance(value, dict):
        for key in value:
            found.append((value, key))
            places(value[key], found)
    elif isinstance(value, list):
        for index in range(len(value)):
            found.append((value, index))
            places(value[index], found)
    return found


@settings(max_examples=50)
@given(st.integers(0, 2**32))
def test_mangled_programs(tmp_path_factory, seed):
    chance = random.Random(seed)
    path = Path(tmp_path_factory.mktemp("pt2")) / "net.pt2"
    for _ in range(10):
        document = copy.deepcopy(program())
        for _ in range(chance.choice([1, 1, 3])):
            table, key = chance.choice(places(document, []))
            table[key] = copy.deepcopy(chance.choice(JUNK))
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("serialized_exported_program.json", json.dumps(document))
        sound(path)


def test_broken_archives(save):
    path = save(program())
    whole = path.read_bytes()
    chance = random.Random(7)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(3):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(bytes(data[: chance.choice([len(data), chance.randrange(len(data))])]))
        sound(path)


# --- with PyTorch -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def bottleneck_network(torch):
    """ResNet-50 (He et al. 2016), from its table of layers."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
            )  # fmt: skip
            same = inputs == 4 * width and stride == 1
            self.skip = (
                nn.Identity()
                if same
                else nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
            )

        def forward(self, x):
            return (self.body(x) + self.skip(x)).relu()

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Block(channels, width, stride if i == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def small_transformer(torch):
    nn = torch.nn
    layers = [nn.TransformerEncoderLayer(64, 4, 256, batch_first=True, dropout=0.0) for _ in range(3)]
    return nn.Sequential(nn.Embedding(1000, 64), *layers, nn.Linear(64, 1000))


def torch_count(torch, module, *inputs):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        module(*inputs)
    return counter.get_total_flops()


@pytest.mark.oracle
@pytest.mark.parametrize("make", [bottleneck_network, small_transformer])
def test_operations_and_parameters_are_those_of_pytorch(torch, make):
    with torch.device("meta"):
        module = make(torch)
        x = torch.empty(2, 3, 224, 224) if make is bottleneck_network else torch.zeros(2, 32, dtype=torch.long)
    report = import_module(module.eval(), (x,), "mine")
    assert 2 * report.workload.flops_per_sample == pytest.approx(torch_count(torch, module.train(), x), rel=0.01)
    assert report.parameters == sum(p.numel() for p in module.parameters())
    assert report.warnings == () and report.name == "mine"
    if make is bottleneck_network:
        assert report.parameters == 25_557_032  # as published
        assert report.workload.architecture == "cnn"


@pytest.mark.oracle
def test_a_file_a_program_and_a_module_say_the_same(torch, tmp_path):
    nn = torch.nn

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.Parameter(torch.randn(4, 8, 16))
            self.wide = nn.ConvTranspose2d(4, 6, 3, groups=2)
            self.deep = nn.Conv2d(6, 6, 3, groups=6)
            self.unused = nn.Linear(3, 3)

        def forward(self, x):
            y = torch.einsum("bsd,hdk->bhsk", x, self.heads)
            with torch.no_grad():
                scale = y.mean()
            return self.deep(self.wide(y)) * scale

    module, x = Mixed().eval(), torch.randn(2, 16, 8)
    report = import_module(module, (x,))
    assert 2 * report.workload.flops_per_sample == pytest.approx(torch_count(torch, module, x), rel=0.01)
    assert report.warnings == ("12 parameters are not used by the graph and were not counted.",)
    exported = torch.export.export(module, (x,))
    path = tmp_path / "mixed.pt2"
    torch.export.save(exported, path)
    assert import_module(exported).workload.operators == report.workload.operators
    assert read_pt2(path).workload.operators == report.workload.operators


@pytest.mark.oracle
def test_a_module_that_cannot_be_followed_is_one_sentence(torch):
    class Odd(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("boom")

    with pytest.raises(InputError, match=r"Odd \(RuntimeError: boom"):
        import_module(Odd(), (torch.zeros(1),))
    with pytest.raises(InputError, match=r"nn\.Module"):
        import_module("model.pt")
