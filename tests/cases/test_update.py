"""The optimizer's own work: traffic of its state, and the products of Muon."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import DistributedModel
from mlsysim.cases.algebra import PLAIN, ledger_of
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Layout
from mlsysim.cases.update import orthogonalised, owned_parameters, update_bytes
from mlsysim.models.keeping import state_bytes
from mlsysim.models.registry import Models
from mlsysim.models.traffic import matrices, matrix_share
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.systems.registry import Clusters
from mlsysim.timing.network import datasheet_network

LLAMA = Models.get("Llama3_8B")
MIXTRAL = Models.get("Mixtral_8x7B")
NET = datasheet_network(Clusters.get("Research_256"))
JOB = Job(LLAMA, "bf16", 4096, updates=True)


def laid(**degrees: int) -> Layout:
    return Layout(**{"dp": 8, "tp": 1, "pp": 1, "ep": 1, "cp": 1, "micro_batches": 1, "local_batch": 8} | degrees)


def muon(layout: Layout, **changes: object) -> float:
    job = replace(JOB, optimizer="muon", **changes)
    return float(orthogonalised(PLAIN, job, layout, NET, layout.groups(NET), 1e15))


def test_adam_moves_28_bytes_of_each_parameter() -> None:
    """bf16: the gradient read (2), master weight and two moments read and written (24), the weight written (2)."""
    assert update_bytes(JOB, laid()) == pytest.approx(28 * LLAMA.parameter_count)
    assert update_bytes(replace(JOB, precision="fp32"), laid()) == pytest.approx(28 * LLAMA.parameter_count)
    assert update_bytes(replace(JOB, zero=1), laid()) == pytest.approx(28 * LLAMA.parameter_count / 8)
    assert update_bytes(replace(JOB, lora_rank=16), laid()) == 0


def test_the_papers_step_has_no_update_and_a_plan_has() -> None:
    plain = DistributedModel().solve("Llama3_8B", "Research_256", 256, "bf16", zero_stage=1)
    counted = DistributedModel().solve("Llama3_8B", "Research_256", 256, "bf16", zero_stage=1, update_step=True)
    ledger = counted.ledger
    assert "optimizer update" not in [part.name for part in plain.ledger.parts]
    update = next(part for part in ledger.parts if part.name == "optimizer update")
    assert update.wall == 2
    assert ledger.seconds - plain.ledger.seconds == pytest.approx(update.exposed, rel=1e-9)
    assert update.exposed == pytest.approx(28 * LLAMA.parameter_count / 256 / 3.35e12, rel=1e-6)


def test_a_batch_of_one_is_mostly_update() -> None:
    """One B300 and 512 tokens: the state of 8 billion parameters takes longer than the arithmetic of one sequence."""
    asked = {"workload": {"model": "Llama3_8B", "batch_size": 1, "seq_len": 512}, "task": "training"}
    answer = evaluate_plainly(Plan.model_validate({**asked, "hardware": {"on": "1xB300", "efficiency": 0.6}}))
    assert answer.ledger is not None
    parts = {part.name: part.exposed for part in answer.ledger.parts}
    assert parts["optimizer update"] == pytest.approx(28 * LLAMA.parameter_count / 8e12, rel=0.01)
    assert parts["optimizer update"] > parts["arithmetic"]


def test_muons_products_are_within_its_authors_bound() -> None:
    """Jordan et al.: at most k m / B of a step's operations, 0.7 % for a width of 768 and 524,288 tokens."""
    dense, experts = matrices(LLAMA)
    assert experts.number == 0
    tokens = 4e6
    step = 6 * dense.parameters * tokens
    assert 5 * dense.operations / step < 5 * LLAMA.hidden_dim / tokens
    assert 5 * dense.operations / step > 0.5 * 5 * LLAMA.hidden_dim / tokens


def test_matrices_are_all_but_tables_and_vectors() -> None:
    layers = LLAMA.parameter_count - 2 * LLAMA.vocab_size * LLAMA.hidden_dim
    assert matrices(LLAMA)[0].parameters == pytest.approx(layers, rel=1e-3)
    _, experts = matrices(MIXTRAL)
    assert experts.number == 32 * 8 * 2
    assert experts.parameters == pytest.approx(32 * 8 * 3 * 4096 * 14336)
    assert matrix_share(Models.get("ResNet50")) > 0.99


def test_muon_keeps_one_momentum_of_matrices_alone() -> None:
    share = matrix_share(LLAMA)
    assert state_bytes(LLAMA, "Muon", 2.0) == pytest.approx(8 * share + 12 * (1 - share))
    assert state_bytes(LLAMA, "adam", 2.0) == 12
    assert update_bytes(replace(JOB, optimizer="muon"), laid()) < update_bytes(JOB, laid())


@given(dp=st.sampled_from([1, 2, 8, 64, 512]), tp=st.sampled_from([1, 2, 8]), zero=st.sampled_from([0, 1, 2, 3]))
def test_more_ranks_never_work_longer(dp: int, tp: int, zero: int) -> None:
    def work(dp: int, tp: int) -> float:
        layout = laid(dp=dp, tp=tp)
        job = replace(JOB, optimizer="muon", zero=zero)
        ledger = ledger_of(lambda a: orthogonalised(a, job, layout, NET, layout.groups(NET), 1e15))
        return ledger.total("flop")

    whole = 5 * matrices(LLAMA)[0].operations
    assert work(dp, tp) <= work(1, tp) * (1 + 1e-12) <= whole * (1 + 1e-9)
    assert work(2 * dp, tp) <= work(dp, tp)
    assert work(dp, 2 * tp) <= work(dp, tp)
    assert work(1, 1) == pytest.approx(whole)
    # No rank has less than one matrix, and together they do not do less than all.
    ranks = tp * (dp if zero else 1)
    assert work(dp, tp) >= whole / max(ranks, 1) * (1 - 1e-9)


DEGREES = {"pp": st.sampled_from([1, 2, 4, 8]), "tp": st.sampled_from([1, 2, 8]), "dp": st.sampled_from([8, 64])}


@given(**DEGREES, zero=st.sampled_from([0, 1, 3]), shard=st.sampled_from([None, 1, 8]))
def test_muon_under_pipelines_and_shards(pp: int, tp: int, dp: int, zero: int, shard: int | None) -> None:
    """Ranks that keep different shares work on different matrices; copies of a shard repeat its work, and of that alone."""
    layout = laid(pp=pp, tp=tp, dp=dp, shard=shard)
    job = replace(JOB, optimizer="muon", zero=zero)
    ledger = ledger_of(lambda a: orthogonalised(a, job, layout, NET, layout.groups(NET), 1e15))
    shares = tp * ((shard or dp) if zero else 1)
    dense, _ = matrices(LLAMA)
    work = ledger.total("flop")
    assert work * pp * shares >= 5 * dense.operations * (1 - 1e-9)
    assert work <= 5 * dense.operations * (1 / (pp * shares) + 1 / dense.number) * (1 + 1e-9)
    if shard == 1:
        assert work == pytest.approx(ledger_of(lambda a: _unshared(a, layout)).total("flop"))


def _unshared(a: object, layout: Layout) -> object:
    job = replace(JOB, optimizer="muon", zero=0)
    return orthogonalised(a, job, layout, NET, layout.groups(NET), 1e15)  # type: ignore[arg-type]


@given(**DEGREES, zero=st.sampled_from([0, 1, 2, 3]), shard=st.sampled_from([None, 1, 8]), lora=st.booleans())
def test_each_parameter_is_updated_once_for_each_copy_of_its_state(
    pp: int, tp: int, dp: int, zero: int, shard: int | None, lora: bool
) -> None:
    layout = laid(pp=pp, tp=tp, dp=dp, shard=shard)
    job = replace(JOB, zero=zero, lora_rank=16 if lora else None)
    copies = dp / (shard or dp) if zero else dp
    devices = dp * tp * pp
    counted = devices * owned_parameters(job, layout)
    # Stages are those of the fullest device, which has a table beside its layers; norms are on every rank of a tensor group.
    assert counted >= (0 if lora else copies * LLAMA.parameter_count * (1 - 1e-9))
    assert counted <= (0 if lora else copies * (LLAMA.parameter_count + devices * LLAMA.vocab_size * LLAMA.hidden_dim))


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
@pytest.mark.parametrize(("model", "tokens"), [("Llama3_8B", 2048), ("BERT_Large", 512), ("ViT_L_16", 197)])
def test_tensor_parallelism_sums_the_tokens_of_its_samples(model: str, tokens: int, efficiency: object) -> None:
    """Bytes of a device: all tokens times the width, for each layer of its stage; ZeRO and frozen weights change none of it."""
    length = {} if model == "ViT_L_16" else {"seq_len": tokens}
    stack = {"stack": "bridge"} if efficiency == "calibrated" else {}

    def sent(batch: int = 256, **split: object) -> float:
        how = {"tp_size": 4, "efficiency": efficiency, "microbatch_count": 4} | length | stack | split
        found = DistributedModel().solve(model, "Research_256", batch, "bf16", **how)
        return float(sum(part.sent for part in found.ledger.parts if part.name == "tensor parallelism"))

    one = sent()
    width, layers = Models.get(model).hidden_dim, Models.get(model).layers
    local = 256 / (256 / 4)
    message = 2 * local * tokens * width * 3 / 4
    assert 8 * layers * message * (1 - 1e-6) <= one <= 10 * layers * message * (1 + 1e-6)
    assert sent(batch=512) == pytest.approx(2 * one)
    # Twice the stages: half the layers, and twice the samples of a device.
    assert sent(pp_size=2) == pytest.approx(one)
    for zero in (0, 1, 2, 3):
        assert sent(zero_stage=zero) == pytest.approx(one)
    if model != "ViT_L_16":
        assert sent(is_lora=True, lora_rank=16) == pytest.approx(one)


def test_another_optimizer_and_frozen_weights_have_no_such_products() -> None:
    assert orthogonalised(PLAIN, JOB, laid(), NET, laid().groups(NET), 1e15) == 0
    assert muon(laid(), lora_rank=8) == 0
    assert muon(laid(), zero=1) < muon(laid())
    assert owned_parameters(replace(JOB, lora_rank=8), laid()) == 0


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
def test_muon_makes_a_step_longer_at_both_fidelities(efficiency: object) -> None:
    split = {"tp_size": 2, "zero_stage": 1, "update_step": True, "efficiency": efficiency}
    adam = DistributedModel().solve("Llama3_8B", "Research_256", 256, "bf16", **split)
    found = DistributedModel().solve("Llama3_8B", "Research_256", 256, "bf16", optimizer="muon", **split)
    parts = {part.name: part.exposed for part in found.ledger.parts}
    assert parts["Newton-Schulz products"] > 0 < parts["momenta gathered"]
    assert found.step_latency_total > adam.step_latency_total
    assert found.memory_per_accelerator < adam.memory_per_accelerator
