"""The kernel suite and the verification on this machine's CPU, at tiny sizes."""

from __future__ import annotations

import json

import pytest

from mlsysim.calibrate.device import Device
from mlsysim.calibrate.measure import GRIDS, measure
from mlsysim.calibrate.network import build
from mlsysim.calibrate.network_rows import Rows
from mlsysim.calibrate.samples import FEWEST, read_samples, with_layers, write_samples
from mlsysim.calibrate.suite import main
from mlsysim.calibrate.verify import Pass, _needed, verify
from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.models.sparse import SparseTransformerWorkload
from mlsysim.models.transformer import TransformerWorkload

torch = pytest.importorskip("torch", reason="measuring needs PyTorch, which is not installed")

CPU = "Xeon_8480_Plus"

GATED = TransformerWorkload(
    name="gated", layers=2, hidden_dim=64, heads=4, kv_heads=2, ffn_dim=96, vocab_size=256, qkv_bias=True
)
PLAIN = TransformerWorkload(
    name="plain",
    layers=2,
    hidden_dim=64,
    heads=4,
    ffn_dim=96,
    gated_ffn=False,
    vocab_size=256,
    norm="layernorm",
    bias=True,
    tied_embeddings=True,
    position_embeddings=32,
)

SIZES = {"layers": 2, "hidden_dim": 64, "heads": 4, "vocab_size": 256}
WINDOWED = TransformerWorkload(
    name="windowed", **SIZES, kv_heads=2, ffn_dim=96, window=3, global_every=2, norms_per_layer=4
)
EXPERTS = SparseTransformerWorkload(
    name="experts", **SIZES, kv_heads=2, ffn_dim=96, experts=4, active_experts_per_token=2, expert_ffn_dim=32, bias=True
)
LATENT = SparseTransformerWorkload(
    name="latent",
    **SIZES,
    ffn_dim=96,
    experts=4,
    active_experts_per_token=2,
    expert_ffn_dim=32,
    shared_experts=1,
    dense_layers=1,
    mla={"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16},
)
BUILT = [GATED, PLAIN, WINDOWED, EXPERTS, LATENT]


@pytest.fixture(autouse=True)
def one_thread():
    """Threads that wait for each other on a busy machine would cost more than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def device():
    return Device("cpu")


def test_the_suite_measures_every_kind_and_its_file_is_read(device, tmp_path):
    suite = measure(device, 600.0, "tiny")
    assert {row["op"] for row in suite.rows} == {
        "gemm", "attention", "decode_attention", "copy", "elementwise", "launch", "optimizer",
    }  # fmt: skip
    write_samples(suite.rows, tmp_path / "own.csv")
    samples = read_samples(tmp_path / "own.csv")
    assert len(samples) == len(suite.rows)
    assert all(0 < sample.seconds < 1 for sample in samples)


def test_the_suite_keeps_to_its_time_and_says_what_it_left_out(device):
    suite = measure(device, 1e-6, "tiny")
    assert len(suite.rows) == FEWEST, "a calibration can be made of them"
    assert any("left out after 1e-06 seconds" in note for note in suite.notes)
    with pytest.raises(InputError, match="must be above 0"):
        measure(device, 0)


def test_no_suite_has_more_rows_than_a_calibration_takes():
    for grid in GRIDS.values():
        products = sum(len(shapes) for shapes in grid.products.values())
        others = (grid.attention, grid.decode, grid.copies, grid.elementwise)
        assert 3 <= products + sum(map(len, others)) + 3 <= 50


@pytest.mark.parametrize("model", [*BUILT, with_layers(Models.get("ViT_Ti_16"), 2)], ids=lambda model: model.name)
def test_the_network_has_the_parameters_that_the_zoo_counts(device, model):
    network = build(model, device, torch.float32, 16)
    built = sum(p.numel() for p in network.parameters)
    # One final norm more or less.
    assert built == pytest.approx(model.derived_parameters, abs=2 * model.hidden_dim)


@pytest.mark.parametrize("model", BUILT, ids=lambda model: model.name)
def test_a_decode_step_continues_a_prefill(device, model):
    """The last logits of a prefill are those of a decode step on its cache."""
    torch.manual_seed(0)
    network = build(model, device, torch.float32, 8)
    tokens = torch.randint(model.vocab_size, (2, 8))
    with torch.no_grad():
        network.tune(2, 8, "prefill")
        whole = network.forward(tokens)
        network.tune(2, 8, "decode")
        caches = network.caches(2, 8)
        for position in range(8):
            # Keys not written yet must not be seen.
            seen = [tuple(part.narrow(-2, 0, min(position + 1, part.shape[-2])) for part in kept) for kept in caches]
            last = network.forward(tokens[:, position : position + 1], seen, position)
    assert torch.allclose(whole, last, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "phase", "sizes"),
    [
        ("GPT2", "prefill", {"seq_len": 8, "layers": 1}),
        ("GPT2", "decode", {"seq_len": 8, "layers": 1, "batch": 2}),
        (GATED, "prefill", {"seq_len": 8, "layers": 1}),
        (GATED, "train", {"seq_len": 8, "layers": 2}),
        (PLAIN, "train", {"seq_len": 8, "layers": 1}),
        ("ViT_Ti_16", "prefill", {"layers": 1}),
        ("ViT_Ti_16", "train", {"layers": 1}),
        ("BERT_Base", "prefill", {"seq_len": 8, "layers": 1}),
        ("ResNet8", "prefill", {}),
        (WINDOWED, "prefill", {"seq_len": 8, "layers": 2}),
        (WINDOWED, "decode", {"seq_len": 8, "layers": 2}),
        (EXPERTS, "prefill", {"seq_len": 8, "layers": 1}),
        (EXPERTS, "train", {"seq_len": 8, "layers": 1}),
        (LATENT, "prefill", {"seq_len": 8, "layers": 2}),
        (LATENT, "decode", {"seq_len": 8, "layers": 2, "batch": 2}),
        (GATED, "train", {"seq_len": 8, "layers": 2, "lora": 4}),
    ],
)
def test_verify_runs_and_predicts(device, name, phase, sizes):
    result = verify(name, phase, chip=CPU, device=device, seconds=0.01, **sizes)
    assert result.measured_s > 0 and result.predicted_s > 0
    assert result.low_s < result.predicted_s < result.high_s
    assert result.error_pct == pytest.approx(100 * (result.predicted_s / result.measured_s - 1))
    assert result.layers == sizes.get("layers")
    assert not result.graph
    assert sum(result.parts.values()) == pytest.approx(result.predicted_s)
    json.dumps(result.to_dict())


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("T5_11B", {}, "verify builds decoders, encoders"),
        ("DeepSeek_V3_2", {}, "verify builds grouped-query, windowed and latent attention"),
        ("GPT2", {"phase": "dance"}, "no phase named 'dance'"),
        ("GPT2", {"layers": 99}, "has 12 layers; take 1 to 12"),
        ("GPT2", {"precision": "fp8"}, "verify runs in bf16, fp16, fp32"),
        ("GPT2", {"batch": 0}, "at least 1"),
        ("ViT_Ti_16", {"phase": "decode"}, "does not decode"),
        ("ViT_Ti_16", {"seq_len": 5}, "takes no sequence length"),
        ("ResNet8", {"layers": 2}, "cannot be shortened"),
        ("ResNet8", {"phase": "train", "lora": 4}, "adapters have a rank"),
        ("BERT_Base", {"phase": "train"}, "no output head"),
        ("GPT9", {}, "There is no model"),
    ],
)
def test_what_cannot_be_verified_gets_one_sentence(device, name, arguments, sentence):
    with pytest.raises(InputError) as error:
        verify(name, chip=CPU, device=device, **arguments)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_step_of_adapters_updates_nothing_else(device):
    network = build(GATED, device, torch.float32, 8, rank=4)
    products = 4 * GATED.layers
    assert len(network.trained) == 2 * products
    assert {id(each) for each in network.trained} < {id(each) for each in network.parameters}
    assert len(build(GATED, device, torch.float32, 8).trained) == len(network.parameters) - 2 * products


def test_rows_run_every_occurrence_with_weights_of_its_own(device):
    model = Models.get("ResNet8")
    network = Rows(model, device, torch.float32, 2, training=True)
    assert len(network.forward()) == sum(layer.count for layer in model.network)
    matrices = sum(w.numel() for w in network.trained if w.dim() > 1)
    assert matrices == sum(layer.count * layer.matrix for layer in model.network)


def test_a_model_that_fits_is_built_whole():
    """A decode step of 64 sequences holds weights and caches, and activations of one token each: 28 + 21 GB of 141."""
    chip, model = Hardware.get("H200"), Models.get("Qwen3_14B")
    needed = _needed(Pass(model, "decode", 64, 2048, "bf16"), chip)
    held = 2 * model.parameter_count + model.get_kv_cache_size(2048, 64, "bf16").to("byte").magnitude
    assert held < needed < 1.05 * held
    assert _needed(Pass(model, "train", 1, 2048, "bf16"), chip) < 1.2 * 8 * model.parameter_count


@pytest.mark.parametrize(
    ("reported", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100_PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-PCIE-40GB", "A100_PCIe_40GB"),
        ("NVIDIA A100 80GB PCIe", "A100_PCIe_80GB"),
        ("NVIDIA GeForce RTX 4090", "RTX_4090"),
        ("Tesla V100-SXM2-16GB", "V100_16GB"),
        ("NVIDIA L4", "L4"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD EPYC 9654", "EPYC_9654"),
    ],
)
def test_chips_are_recognised_by_what_the_driver_calls_them(monkeypatch, reported, key):
    monkeypatch.setattr(Device, "name", property(lambda self: reported))
    assert Device("cpu").chip().metadata.key == key


def test_an_unknown_chip_is_asked_for(monkeypatch):
    monkeypatch.setattr(Device, "name", property(lambda self: "Abacus 3"))
    with pytest.raises(InputError, match="--chip"):
        Device("cpu").chip()
    assert Device("cpu").chip("H100") is Hardware.get("H100")
    with pytest.raises(InputError, match="cuda or cpu"):
        Device("abacus")


def test_the_suite_of_one_machine_writes_its_files(tmp_path, capsys):
    main(["--out", str(tmp_path), "--tiny", "--chip", CPU])
    assert {path.name for path in tmp_path.iterdir()} == {
        "kernels.csv", "profile.toml", "calibration.json", "verify.json",
    }  # fmt: skip
    results = json.loads((tmp_path / "verify.json").read_text())
    assert len(results) == 2
    assert all(result["measured_s"] > 0 and result["fitted_s"] > 0 for result in results)
    assert "done in" in capsys.readouterr().out
