"""Calibrated training layouts on arrays give what DistributedModel gives for each, to 1e-12, and refuse what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from mlsysim.cases.checkpoint import run_checkpoint
from mlsysim.cases.failures import Said, kept_of
from mlsysim.cases.run import run_power
from mlsysim.errors import InputError
from mlsysim.models.registry import Models
from mlsysim.search.layouts import RECOMPUTE
from mlsysim.search.space import Space
from mlsysim.search.sweep import sweep
from mlsysim.search.training import OUTPUTS, TrainingPoints, binding, evaluate
from mlsysim.systems.registry import Fabrics, Nodes
from mlsysim.systems.types import Fleet
from mlsysim.timing.power import waiting_power_of
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.operations.capital import EconomicsModel

TOLERANCE = 1e-12
SEED = 20250317


def fleet(node: str, fabric: str, count: int) -> Fleet:
    return Fleet(name=node, node=Nodes[node], count=count, fabric=Fabrics[fabric])


A100 = fleet("DGX_A100", "InfiniBand_HDR", 64)
H100 = fleet("DGX_H100", "InfiniBand_NDR", 24)
RACK = fleet("GB200_NVL72", "InfiniBand_NDR", 8)
SMALL = fleet("DGX_A100", "Ethernet_100G", 1)

CASES = {
    "dense, default stack": {"model": "Llama3_70B", "fleet": H100},
    "unfused attention": {"model": "GPT3_175B", "fleet": A100, "stack": "megatron21"},
    "half of the products again": {"model": "Llama3_405B", "fleet": H100, "stack": "meta24", "precision": "bf16"},
    "sharded": {"model": "Llama3_8B", "fleet": H100, "stack": "titan", "power_cap": 500},
    "fp8": {"model": "Llama3_70B", "fleet": H100, "precision": "fp8", "sequence_parallel": False},
    "mixture": {"model": "Mixtral_8x7B", "fleet": H100, "moe_routing_imbalance_factor": 1.3},
    "mixture with latent attention, rack": {"model": "DeepSeek_V3", "fleet": RACK, "precision": "fp8"},
    "state space": {"model": "Jamba_v0_1", "fleet": H100},
    "windows": {"model": "Gemma2_27B", "fleet": SMALL, "straggler_factor": 1.1},
    "adapters": {"model": "Llama3_8B", "fleet": SMALL, "is_lora": True},
    "dualpipe": {"model": "Qwen3_235B_A22B", "fleet": H100, "schedule": "dualpipe"},
    "a chip of its class": {"model": "Llama3_8B", "fleet": fleet("Gaudi3_8", "Ethernet_200G", 8), "precision": "bf16"},
    "topology": {"model": "Llama3_8B", "fleet": H100, "topology_override": "torus_2d", "optimizer_offload": 0.5},
    "micro-batches chosen": {"model": "Llama3_8B", "fleet": H100, "overlap_tp": 0.2},
}
POINTS = 400
SHORT = {
    "tp": "tp_size",
    "pp": "pp_size",
    "ep": "ep_size",
    "cp": "cp_size",
    "micro_batches": "microbatch_count",
    "recompute": "activation_recomputation",
    "offload": "optimizer_offload",
}


def points(case: str, rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    """Random layouts, many of which divide, with random slow-downs."""
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
        "congestion_factor": rng.choice([1.0, 1.7], size),
        "straggler_factor": rng.choice([1.0, 1.05], size),
        "gradient_accumulation_steps": rng.choice([1, 1, 3], size),
        "overlap_ep": rng.choice([0.0, 0.6], size),
        "offload": rng.choice([0.0, 0.0, 0.25, 1.0], size),
    }
    if case == "micro-batches chosen":
        del columns["micro_batches"], columns["zero_stage"], columns["overlap_ep"]
    for name in CASES[case]:
        columns.pop(next((short for short, full in SHORT.items() if full == name), name), None)
    return columns


@pytest.mark.parametrize("case", CASES)
def test_calibrated_points_are_what_solve_gives(case):
    fixed = {**CASES[case], "efficiency": "calibrated"}
    columns = points(case, np.random.default_rng([SEED, *case.encode()]), POINTS)
    found = evaluate(fixed, columns)
    own = {**fixed, **({"power_cap": "500 W"} if "power_cap" in fixed else {})}
    seen = fitting = 0
    for place in range(POINTS):
        inputs = {SHORT.get(name, name): column[place].item() for name, column in columns.items()}
        try:
            answer = DistributedModel().solve(**own, **inputs)
        except InputError:
            assert not found["valid"][place] and not found["feasible"][place] and found["wall"][place] == 0
            assert np.isnan(found["mfu"][place])
            continue
        seen += 1
        fitting += answer.feasible
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
    assert POINTS / 20 < seen < POINTS
    if "405B" not in fixed["model"] and "GPT3" not in fixed["model"]:
        assert fitting


def test_nodes_stacks_and_flags_as_columns():
    rng = np.random.default_rng(SEED)
    size = 200
    columns = {
        "nodes": rng.choice([4, 8, 16], size),
        "stack": rng.choice(["bridge", "nemo23", "titan"], size),
        "sequence_parallel": rng.choice([True, False], size),
        "precision": rng.choice(["bf16", "fp8"], size),
        "power_cap": rng.choice([400.0, 700.0], size),
        "tp": rng.choice([1, 2, 4, 8], size),
    }
    found = evaluate(
        {"model": "Llama3_8B", "fleet": H100, "efficiency": "calibrated", "batch_size": 512, "seq_len": 2048}, columns
    )
    assert found["valid"].all()
    for place in range(size):
        here = {SHORT.get(name, name): column[place].item() for name, column in columns.items()}
        count, cap = here.pop("nodes"), here.pop("power_cap")
        answer = DistributedModel().solve(
            "Llama3_8B",
            H100.model_copy(update={"count": count}),
            512,
            efficiency="calibrated",
            power_cap=f"{cap} W",
            **here,
        )
        assert found["step_time_s"][place] == pytest.approx(answer.step_latency_total.magnitude, rel=TOLERANCE, abs=0)
        assert bool(found["feasible"][place]) is answer.feasible


def test_settings_of_the_stack_hold_where_a_space_leaves_them_out():
    """Left out, ZeRO is the stack's; stated, even at the resolver's default, it is what was stated."""
    base = {"model": "Llama3_8B", "fleet": H100, "efficiency": "calibrated", "batch_size": 192, "stack": "titan"}
    columns = {"tp": np.array([1])}
    adopted, stated = evaluate(base, columns), evaluate({**base, "zero_stage": 0}, columns)
    column = evaluate(base, {"zero_stage": np.array([0, 3])})
    assert adopted["memory_bytes"][0] < stated["memory_bytes"][0]
    assert column["memory_bytes"].tolist() == [stated["memory_bytes"][0], adopted["memory_bytes"][0]]


def test_full_stack_of_a_calibrated_run():
    """Goodput, dollars, energy, carbon and days follow from the calibrated MFU and rate; a run is owned with hosts, network and building,
    which the resolver alone counts where it is asked to."""
    fixed = {"model": "Llama3_70B", "fleet": H100, "efficiency": "calibrated", "batch_size": 768, "grid": "Iowa"}
    found = evaluate({**fixed, "tokens": 1e12}, {"tp": np.array([8]), "pp": np.array([2]), "zero_stage": np.array([1])})
    step = DistributedModel().solve(
        "Llama3_70B", H100, 768, "bf16", "calibrated", tp_size=8, pp_size=2, zero_stage=1, seq_len=4096
    )
    saved = run_checkpoint(Models["Llama3_70B"], H100, H100.total_accelerators, "bf16", "adam")
    kept = kept_of(H100.node.accelerator, H100.total_accelerators, saved, Said(H100.mtbf_hours))
    goodput, waiting = kept.ratio, quantity(waiting_power_of(H100.node.accelerator), "W")
    drawn = run_power(step.accelerator_power, waiting, kept.computing)
    days = 1e12 / (step.tokens_per_second.magnitude * goodput) / 86400
    bill = {"grid": "Iowa", "kwh_price": "region", "average_power": drawn, "tokens": 1e12}
    cost = EconomicsModel().solve(fleet=H100, duration_days=days, include_host=True, cost_scope="all", **bill)
    expected = {
        "run_days": days,
        "usd_per_run": cost.tco_usd,
        "usd_per_mtoken": cost.cost_per_million_tokens_usd,
        "kwh_per_run": to_si(cost.total_energy_kwh, "kWh"),
        "kgco2e_per_run": cost.carbon_footprint_kg,
        "litres_per_run": cost.water_usage_liters,
    }
    for name, value in expected.items():
        assert found[name][0] == pytest.approx(value, rel=TOLERANCE, abs=0), name
    assert set(OUTPUTS) <= set(found)


@pytest.mark.parametrize("start", [1, 4])
def test_each_size_of_a_fleet_has_its_own_default_stack(start):
    """PyTorch as it comes on one accelerator, Megatron-Bridge on more, whatever size the fixed fleet has."""
    node = Nodes.get("DGX_H100").model_copy(update={"accelerators_per_node": 1})
    fleet = Fleet(name="single", node=node, count=start, fabric=Fabrics.get("InfiniBand_NDR"))
    job = {"model": "Qwen3_0_6B", "batch_size": 8, "seq_len": 2048, "precision": "bf16"}
    columns = {"nodes": np.array([1, 2, 4, 8, 1]), "pp": np.array([1, 1, 1, 2, 1])}
    fixed = {**job, "fleet": fleet}
    found, binds = evaluate(fixed, columns), binding(fixed, columns)
    for i, (nodes, stages) in enumerate(zip(*(column.tolist() for column in columns.values()), strict=True)):
        sized = fleet.model_copy(update={"count": nodes})
        one = DistributedModel().solve(fleet=sized, pp_size=stages, efficiency="calibrated", **job)
        assert one.assumptions["stack"].startswith("plain" if nodes == 1 else "bridge")
        assert found["step_time_s"][i] == pytest.approx(to_si(one.step_latency_total, "s"), rel=TOLERANCE)
        assert found["memory_bytes"][i] == pytest.approx(to_si(one.memory_per_accelerator, "byte"), rel=TOLERANCE)
        assert binds[i] == one.ledger.binding_wall


@pytest.mark.parametrize(
    ("fixed", "columns", "sentence"),
    [
        ({"model": "LLaVA_1_5_7B"}, {"batch_size": [192]}, "no layers with dimensions"),
        ({"model": "Llama3_8B", "precision": "w4a4"}, {"tp": [1]}, "not w4a4"),
        ({"model": "Llama3_8B", "precision": "nvfp4"}, {"tp": [1]}, "no fp4 arithmetic"),
        ({"model": "Llama3_8B", "stack": "megatron20"}, {"tp": [1]}, "megatron21"),
        ({"model": "Llama3_8B"}, {"efficiency": [0.4]}, "an axis of efficiencies is first order"),
        ({"model": "Llama3_8B", "power_cap": -1}, {"tp": [1]}, "power_cap"),
    ],
)
def test_what_cannot_be_calibrated_is_refused_with_a_sentence(fixed, columns, sentence):
    with pytest.raises(InputError, match=sentence):
        evaluate(
            {"fleet": H100, "efficiency": "calibrated", **fixed},
            {name: np.array(values) for name, values in columns.items()},
        )


def test_a_chip_without_a_format_is_no_design_among_others():
    """A100 has no FP8 products: its points are invalid, those of H100 are not."""
    space = Space.from_dict(
        {
            "kind": "training",
            "fixed": {
                "model": "Llama3_8B",
                "fabric": "InfiniBand_NDR",
                "nodes": 4,
                "batch_size": 64,
                "zero_stage": 1,
                "efficiency": "calibrated",
            },
            "axes": {"node": ["DGX_A100", "DGX_H100"], "precision": ["fp8", "bf16"], "tp": [1, 2]},
            "maximize": "tokens_per_second",
        }
    )
    columns = space.decode(np.arange(space.size))
    found = evaluate(space, columns)
    refused = (columns["node"] == "DGX_A100") & (columns["precision"] == "fp8")
    assert (found["valid"] == ~refused).all()
    alone = evaluate(space, space.decode(np.flatnonzero(refused)))
    assert not alone["valid"].any() and set(alone) == set(found)
    result = sweep(space)
    assert (result.points, result.invalid) == (6, 2)
    assert result.best[0]["inputs"]["node"] == "DGX_H100"


def test_a_calibrated_sweep_ranks_what_solve_ranks():
    space = Space.from_dict(
        {
            "kind": "training",
            "fixed": {"model": "Llama3_70B", "fleet": "Research_256", "batch_size": 512, "efficiency": "calibrated"},
            "axes": {
                "tp": [1, 2, 4, 8],
                "pp": [1, 2, 4],
                "micro_batches": [1, 2, 4, 8, 16],
                "zero_stage": [0, 1, 2, 3],
                "recompute": ["full", "none", "selective"],
            },
            "maximize": "mfu",
        }
    )
    result = sweep(space)
    best = result.best[0]
    inputs = {SHORT.get(name, name): value for name, value in best["inputs"].items()}
    answer = DistributedModel().solve("Llama3_70B", "Research_256", 512, "bf16", "calibrated", seq_len=4096, **inputs)
    assert answer.feasible
    assert best["outputs"]["mfu"] == pytest.approx(answer.mfu, rel=TOLERANCE, abs=0)
    assert 0.3 < answer.mfu < 0.6


def test_a_form_that_would_beat_the_peak_is_no_answer():
    """solve() refuses it in a sentence, a sweep rejects it; neither gives an MFU above 1 as feasible."""
    # Operations of a model are counted with the decoder's full length, and the form is told that it is a thousandth.
    given = {"model": "Whisper_Tiny", "fleet": "Research_256", "batch_size": 2**12, "seq_len": 8192}
    given |= {"target_share": 0.001}
    with pytest.raises(InputError, match="faster than the chip's peak"):
        DistributedModel().solve(**given, precision="bf16", efficiency="calibrated")
    points = TrainingPoints({**given, "precision": "bf16", "efficiency": "calibrated"})
    found = points.evaluate({"tp_size": np.array([1.0, 1.0])})
    assert (found["mfu"] > 1).all() and not found["feasible"].any() and (found["wall"] == 1).all()


@pytest.mark.parametrize("efficiency", ["calibrated", 0.5])
@pytest.mark.parametrize("case", ["dense, default stack", "mixture", "sharded", "dualpipe", "adapters"])
def test_what_is_combined_is_what_each_point_gives(case, efficiency, monkeypatch):
    """All columns of which parts of a step are worked out once for each combination, to the last digit."""
    fixed = {**CASES[case], "efficiency": efficiency, "optimizer_offload": 0.0}
    fixed.pop("power_cap", None)
    dice, total = np.random.default_rng(3), CASES[case]["fleet"].total_accelerators
    choices = {
        **{"tp_size": [1.0, 2.0], "pp_size": [1.0, 4.0], "cp_size": [1.0, 2.0], "ep_size": [1.0, 2.0]},
        **{"v_stages": [1.0] if case == "dualpipe" else [1.0, 2.0], "zero_stage": [0.0, 1.0, 2.0, 3.0]},
        **{"microbatch_count": [8.0, 16.0], "batch_size": [16.0 * total, 32.0 * total]},
        **{"overlap_tp": [0.0, 0.5], "activation_recomputation": ["none", "selective", "full"]},
    }
    columns = {name: dice.choice(values, 9000) for name, values in choices.items()}
    found = evaluate(fixed, columns)
    assert found["valid"].sum() > 3000
    monkeypatch.setattr("mlsysim.search.training._COMBINED", set())
    for name, values in evaluate(fixed, columns).items():
        np.testing.assert_array_equal(found[name], values, name)
