"""Training layouts on arrays give what the resolvers give for each, to 1e-12, and refuse what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from mlsysim.cases.checkpoint import run_checkpoint
from mlsysim.cases.failures import Said, kept_of
from mlsysim.cases.run import run_power
from mlsysim.errors import InputError, MLSysError
from mlsysim.infra.registry import Grids
from mlsysim.models.registry import Models
from mlsysim.search.layouts import RECOMPUTE
from mlsysim.search.space import Space
from mlsysim.search.training import OUTPUTS, TrainingPoints, evaluate
from mlsysim.systems.registry import Clusters, Fabrics, Nodes
from mlsysim.systems.types import Fleet
from mlsysim.timing.power import waiting_power_of
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.fleet.fragility import ReliabilityModel
from mlsysim.walls.operations.capital import EconomicsModel
from mlsysim.walls.operations.sustainability import SustainabilityModel

TOLERANCE = 1e-12
SEED = 20240607


PLANNED = {"overlap_comm": True, "update_step": True}
"""What a first-order point of a space has, as a plan of it has."""


def solve(*args, **given):
    """What a space answers: calibrated where it does not say, 4,096 tokens in bf16."""
    usual = {"efficiency": "calibrated", "seq_len": 4096, "precision": "bf16", **given}
    return DistributedModel().solve(*args, **(usual if usual["efficiency"] == "calibrated" else PLANNED | usual))


def fleet(node: str, fabric: str, count: int) -> Fleet:
    return Fleet(name=node, node=Nodes[node], count=count, fabric=Fabrics[fabric])


A100 = fleet("DGX_A100", "InfiniBand_HDR", 64)
H100 = fleet("DGX_H100", "InfiniBand_NDR", 24)
RACK = fleet("GB200_NVL72", "InfiniBand_NDR", 8)
SMALL = fleet("DGX_A100", "Ethernet_100G", 1)
TRAINIUM = fleet("Trn2_48xlarge", "EFA_v3", 4)

CASES = {
    "dense": {"model": "GPT3_175B", "fleet": A100},
    "grouped queries, overlap": {"model": "Llama3_70B", "fleet": H100, "overlap_comm": True, "overlap_tp": 0.3},
    "mixture": {"model": "Mixtral_8x7B", "fleet": H100, "moe_routing_imbalance_factor": 1.3},
    "mixture with latent attention": {"model": "DeepSeek_V3", "fleet": RACK, "precision": "fp8", "unit_cost": 60_000},
    "windows": {"model": "Gemma2_27B", "fleet": SMALL, "sequence_parallel": False, "straggler_factor": 1.1},
    "adapters": {"model": "Llama3_8B", "fleet": SMALL, "is_lora": True, "gradient_accumulation_steps": 3},
    "encoder": {"model": "BERT_Large", "fleet": SMALL, "optimizer": "sgd"},
    "encoder and decoder": {"model": "T5_3B", "fleet": SMALL},
    "images": {"model": "ResNet50", "fleet": SMALL},
    "state space": {"model": "Jamba_v0_1", "fleet": H100},
    "interleaved": {"model": "Llama3_70B", "fleet": A100, "schedule": "interleaved"},
    "zero bubble": {"model": "Llama3_70B", "fleet": A100, "schedule": "zero_bubble"},
    "dualpipe": {"model": "Qwen3_235B_A22B", "fleet": H100, "schedule": "dualpipe", "congestion_factor": 2.0},
    "topology": {"model": "Llama3_8B", "fleet": H100, "topology_override": "torus_2d"},
    "no micro-batches given": {"model": "Llama3_8B", "fleet": H100},
    "state on the host": {"model": "Llama3_70B", "fleet": H100, "optimizer_offload": 0.75},
}
CASES = {name: {"efficiency": 0.5, **fixed} for name, fixed in CASES.items()}
POINTS = 520
SHORT = {
    "tp": "tp_size",
    "pp": "pp_size",
    "ep": "ep_size",
    "cp": "cp_size",
    "micro_batches": "microbatch_count",
    "recompute": "activation_recomputation",
}


def points(case: str, rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    """Random layouts, most of which divide."""
    accelerators = CASES[case]["fleet"].total_accelerators
    columns = {
        "tp": rng.choice([1, 1, 2, 4, 8, 16], size),
        "pp": rng.choice([1, 1, 2, 3, 4, 8], size),
        "ep": rng.choice([1, 1, 1, 2, 8], size),
        "cp": rng.choice([1, 1, 1, 2, 4], size),
        "v_stages": rng.choice([1, 1, 1, 2, 3], size),
        "micro_batches": rng.choice([1, 2, 4, 8, 12], size),
        "zero_stage": rng.integers(0, 4, size),
        "recompute": rng.choice(RECOMPUTE, size),
        "batch_size": accelerators * rng.choice([1, 2, 8, 24, 64], size),
        "seq_len": rng.choice([512, 2048, 4096, 8192], size),
    }
    if case == "no micro-batches given":
        del columns["micro_batches"]
    return columns


def inputs_of(columns: dict[str, np.ndarray], place: int) -> dict[str, object]:
    return {SHORT.get(name, name): column[place].item() for name, column in columns.items()}


@pytest.mark.parametrize("case", CASES)
def test_points_are_what_solve_gives(case):
    fixed = CASES[case]
    columns = points(case, np.random.default_rng([SEED, *case.encode()]), POINTS)
    found = evaluate(fixed, columns)
    own = {name: value for name, value in fixed.items() if name in DistributedModel.inputs}
    seen = 0
    for place in range(POINTS):
        try:
            answer = solve(**own, **inputs_of(columns, place))
        except InputError:
            assert not found["valid"][place] and not found["feasible"][place] and found["wall"][place] == 0
            continue
        seen += 1
        assert found["valid"][place]
        assert bool(found["feasible"][place]) is answer.feasible
        assert found["wall"][place] == (0 if answer.feasible else 2)
        expected = {
            "step_time_s": answer.step_latency_total.magnitude,
            "mfu": answer.mfu,
            "tokens_per_second": answer.tokens_per_second.magnitude,
            "memory_bytes": answer.memory_per_accelerator.magnitude,
            "scaling_efficiency": answer.scaling_efficiency,
        }
        for name, value in expected.items():
            assert found[name][place] == pytest.approx(value, rel=TOLERANCE, abs=0), name
    assert seen > POINTS / 20
    assert seen < POINTS


def test_stages_and_virtual_stages_need_layers():
    """BERT has 24 layers: 16 stages of two chunks leave some chunks short, 16 stages of three leave some empty."""
    pp, v = (column.ravel() for column in np.meshgrid([1, 2, 4, 8, 16, 32], np.arange(1, 30)))
    found = evaluate({"model": "BERT_Large", "fleet": A100, "batch_size": 512}, {"pp": pp, "v_stages": v})
    assert found["valid"].tolist() == ((pp <= 24) & (pp * (v - 1) < 24)).tolist()
    for stages, chunks in ((16, 2), (16, 3), (8, 3), (8, 4), (1, 24), (1, 25)):
        place = int(np.flatnonzero((pp == stages) & (v == chunks))[0])
        given = {"batch_size": 512, "pp_size": stages, "v_stages": chunks, "seq_len": 512}
        if found["valid"][place]:
            answer = solve("BERT_Large", A100, **given)
            assert found["step_time_s"][place] == pytest.approx(answer.step_latency_total.magnitude, rel=TOLERANCE)
        else:
            with pytest.raises(InputError):
                solve("BERT_Large", A100, **given)


def test_goodput_cost_energy_and_carbon_are_those_of_their_resolvers():
    rng = np.random.default_rng(SEED)
    size = 300
    columns = {
        "tp": rng.choice([1, 2, 4, 8], size),
        "pp": rng.choice([1, 2, 4], size),
        "micro_batches": rng.choice([4, 8], size),
        "nodes": rng.choice([8, 16, 64, 512], size),
        "batch_size": np.full(size, 4096 * 8),
        "grid": rng.choice(["Quebec", "Poland", "US_Avg"], size),
        "utilization": rng.choice([0.5, 1.0], size),
    }
    fixed = {"model": "Llama3_8B", "fleet": A100, "duration_days": 45, "kwh_price": "region", "checkpoint_time_s": 90}
    found = evaluate(fixed, columns)
    assert found["valid"].all()
    for place in range(size):
        here = A100.model_copy(update={"count": int(columns["nodes"][place])})
        layout = {SHORT.get(n, n): columns[n][place].item() for n in ("tp", "pp", "micro_batches", "batch_size")}
        step = solve(model="Llama3_8B", fleet=here, **layout)
        saved = run_checkpoint(Models["Llama3_8B"], here, here.total_accelerators, "bf16", "adam")
        kept = kept_of(here.node.accelerator, here.total_accelerators, saved, Said(write=90.0))
        given = {"avg_recovery_time_s": kept.saving.recovery, "checkpoint_interval": kept.interval}
        failing = here.model_copy(update={"mtbf_hours": kept.mtbf})
        goodput = ReliabilityModel().solve(failing, 45 * 24, checkpoint_time_s=90, **given).goodput_ratio_exact
        utilization = columns["utilization"][place].item()
        grid = Grids[columns["grid"][place].item()]
        useful = step.tokens_per_second.magnitude * goodput
        waiting = quantity(waiting_power_of(here.node.accelerator), "W")
        drawn = run_power(step.accelerator_power, waiting, kept.computing * utilization)
        cost = EconomicsModel().solve(
            fleet=here,
            duration_days=45,
            datacenter=grid,
            kwh_price="region",
            average_power=drawn,
            include_host=True,
            cost_scope="all",
            utilization=utilization,
            throughput=useful,
        )
        million = useful * 45 * 86400 * utilization / 1e6
        expected = {
            "goodput_ratio": goodput,
            "usd_per_mtoken": cost.cost_per_million_tokens_usd,
            "kwh_per_mtoken": to_si(cost.total_energy_kwh, "kWh") / million,
            "kgco2e_per_mtoken": cost.carbon_footprint_kg / million,
        }
        if utilization == 1:
            of = {"average_power": drawn, "include_host": True}
            green = SustainabilityModel().solve(fleet=here, duration_days=45, datacenter=grid, **of)
            assert green.carbon_footprint_kg == pytest.approx(cost.carbon_footprint_kg, rel=TOLERANCE)
        for name, value in expected.items():
            assert found[name][place] == pytest.approx(value, rel=TOLERANCE, abs=0), name


def test_a_fleet_that_only_fails_is_rejected_by_wall_15():
    fixed = {"model": "Llama3_8B", "fleet": H100, "accelerator_mtbf": "1 h", "batch_size": 192}
    found = evaluate(fixed, {"tp": np.array([2, 1]), "zero_stage": np.array([3, 0])})
    assert found["valid"].all() and not found["feasible"].any()
    assert found["wall"].tolist() == [15, 2]
    assert (found["goodput_ratio"] < 1e-6).all()


def test_columns_of_names_are_evaluated_in_groups():
    columns = {
        "precision": np.array(["fp16", "fp8", "fp16", "fp8"]),
        "model": np.array(["Llama3_8B", "Llama3_8B", "GPT3_13B", "GPT3_13B"]),
        "overlap_comm": np.array([True, False, True, True]),
        "tp": np.array([2, 4, 8, 3]),
    }
    found = evaluate({"fleet": H100, "batch_size": 192, "seq_len": 2048}, columns)
    assert found["valid"].tolist() == [True, True, True, False]
    for place in range(3):
        answer = solve(fleet=H100, batch_size=192, seq_len=2048, **inputs_of(columns, place))
        assert found["mfu"][place] == pytest.approx(answer.mfu, rel=TOLERANCE)
    alone = evaluate({"model": "Llama3_8B", "fleet": H100, "batch_size": 192}, {"precision": columns["precision"]})
    assert alone["mfu"][0] == alone["mfu"][2] != alone["mfu"][1]


def test_a_node_and_a_fabric_make_a_fleet():
    fixed = {"model": "Llama3_8B", "node": "DGX_A100", "fabric": "InfiniBand_HDR", "nodes": 64, "batch_size": 512}
    other = {"model": "Llama3_8B", "fleet": A100, "batch_size": 512}
    columns = {"tp": np.array([1, 2, 4])}
    np.testing.assert_array_equal(evaluate(fixed, columns)["mfu"], evaluate(other, columns)["mfu"])


def test_the_size_of_a_micro_batch_may_be_given_instead_of_their_number():
    fixed = {"model": "Llama3_8B", "fleet": A100, "batch_size": 4096, "pp": 4}
    sized = evaluate(fixed, {"micro_batch": np.array([1, 2, 3, 32])})
    counted = evaluate(fixed, {"micro_batches": np.array([32, 16, 5, 1])})
    assert sized["valid"].tolist() == [True, True, False, True]
    np.testing.assert_array_equal(sized["step_time_s"], counted["step_time_s"])


@pytest.mark.parametrize(
    ("node", "unknown"),
    [
        ("HGX_H20", {"usd", "kgco2e", "litres"}),
        ("Trn2_48xlarge", {"usd", "kwh", "kgco2e", "litres"}),
    ],
)
def test_what_is_not_known_has_no_column_and_a_reason(node, unknown):
    found = TrainingPoints({"model": "Llama3_8B", "fleet": fleet(node, "Ethernet_100G", 4), "batch_size": 128})
    outputs = found.evaluate({"tp": np.array([1, 2])})
    unknown = {f"{amount}_per_{what}" for amount in unknown for what in ("run", "mtoken")}
    assert set(OUTPUTS) - set(outputs) == unknown
    assert set(found.costs.unknown) == unknown
    assert all(reason.endswith(".") for reason in found.costs.unknown.values())


@pytest.mark.parametrize(
    ("fixed", "columns", "sentence"),
    [
        ({"model": "Llama3_8B"}, {"tp": [1]}, "needs 'fleet'"),
        ({"model": "Llama3_8B", "fleet": H100}, {"tpp": [1]}, "tp"),
        ({"model": "Llama3_8B", "fleet": H100}, {"recompute": ["some"]}, "some"),
        ({"model": "Llama3_8B", "fleet": H100}, {"tp": [1, 0]}, "'tp' input of 'space' must be"),
        ({"model": "Llama3_8B", "fleet": H100}, {"pp": [1.5]}, "whole"),
        ({"model": "Llama3_8B", "fleet": H100}, {"seq_len": [float("nan")]}, "must be"),
        ({"model": "Llama3_8B", "fleet": H100}, {"zero_stage": [0, 4]}, "must be"),
        ({"model": "Llama3_8B", "fleet": H100}, {"batch_size": ["many"]}, "must be a whole number"),
        ({"model": "Llama3_8B", "fleet": H100}, {"tp": [1], "tp_size": [2]}, "names of one input"),
        ({"model": "Llama3_8B", "fleet": H100, "node": "DGX_A100"}, {"tp": [1]}, "a fleet, or a node"),
        ({"model": "Llama3_8B", "node": "DGX_A100", "chip": "A100", "fabric": "EFA_v2"}, {"tp": [1]}, "a node"),
        ({"model": "Llama3_8B", "chip": "T4", "fabric": "EFA_v2"}, {"tp": [1]}, "no node of the zoo holds"),
        ({"model": "Llama3_8B", "fleet": H100, "nodes": 2, "accelerators": 16}, {"tp": [1]}, "not both"),
        ({"model": "Llama3_8B", "fleet": H100}, {"nodes": [2], "accelerators": [16]}, "not both"),
        ({"model": "Llama3_8B", "fleet": H100, "nodes": 2}, {"accelerators": [16]}, "not both"),
        ({"model": "Llama3_8B", "fleet": H100, "accelerators": 13}, {"tp": [1]}, "do not fill nodes of 8"),
        ({"model": "Llama3_8B", "fleet": H100, "tokens": 1e12, "duration_days": 3}, {"tp": [1]}, "not both"),
        ({"model": "Llama3_8B", "fleet": H100, "tokens": 1e12}, {"duration_days": [3.0]}, "not both"),
        ({"model": "Llama3_8B", "fleet": H100, "unit_cost": 1, "node_cost": 1}, {"tp": [1]}, "not both"),
        ({"model": "Llama3_8B", "fleet": H100}, {"offload": [0.5, 1.5]}, "'offload' input of 'space' must be"),
        ({"model": "Llama3_8B", "fleet": TRAINIUM}, {"offload": [0.0, 0.5]}, "no link to its host"),
        ({"model": "Llama3_8B", "fleet": TRAINIUM, "offload": 0.5}, {"tp": [1]}, "no link to its host"),
        ({"model": "Llama3_8B", "fleet": H100, "grid": "Iowa", "kwh_price": "cheap"}, {"tp": [1]}, "kwh_price"),
        ({"model": "Llama3_8B", "fleet": H100, "topology_override": "torus_2d"}, {"nodes": [4]}, "topology"),
    ],
)
def test_errors_are_sentences(fixed, columns, sentence):
    with pytest.raises(MLSysError, match=sentence):
        space = Space.from_dict({"kind": "training", "fixed": fixed, "axes": columns})
        evaluate(space, space.decode(np.arange(space.size)))


def test_a_space_gives_the_same_as_plain_columns():
    space = Space.from_dict(
        {
            "kind": "training",
            "fixed": {"model": "Llama3_8B", "fleet": "Research_256", "batch_size": 512, "average_power": "330 W"},
            "axes": {
                "grid": ["Quebec", "Poland"],
                "tp": [1, 2, 3, 4],
                "schedule": ["1f1b", "interleaved"],
                "pp": {"powers_of": 2, "to": 4},
                "v_stages": [1, 2],
                "recompute": ["full", "none", "selective"],
            },
        }
    )
    columns = space.decode(np.arange(space.size))
    found = evaluate(space, columns)
    plain = evaluate(space.fixed, dict(columns))
    assert found.keys() == plain.keys() >= {"valid", "feasible", "wall", *OUTPUTS}
    for name, values in found.items():
        np.testing.assert_array_equal(values, plain[name])
    dirty, clean = (found["kgco2e_per_mtoken"][columns["grid"] == grid] for grid in ("Poland", "Quebec"))
    assert np.nanmin(dirty / clean) > 5
    assert not found["valid"][columns["tp"] == 3].any()


def test_a_goal_that_is_not_known_is_refused_with_the_reason():
    table = {
        "kind": "training",
        "fixed": {"model": "Llama3_8B", "node": "HGX_H20", "fabric": "Ethernet_100G", "nodes": 4, "batch_size": 128},
        "axes": {"tp": [1, 2]},
        "minimize": "usd_per_mtoken",
    }
    space = Space.from_dict(table)
    with pytest.raises(InputError, match="unknown is not free"):
        evaluate(space, space.decode(np.arange(2)))


def test_clusters_of_the_zoo_by_name():
    found = evaluate({"model": "Llama3_70B", "fleet": "Frontier_8K", "batch_size": 8192}, {"tp": np.array([8])})
    answer = solve("Llama3_70B", Clusters["Frontier_8K"], 8192, tp_size=8)
    assert found["mfu"][0] == pytest.approx(answer.mfu, rel=TOLERANCE)
