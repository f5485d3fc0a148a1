"""Serving deployments on arrays give what the resolvers give for each, to 1e-12, and refuse what they refuse."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlsysim.errors import InputError, UnknownNameError
from mlsysim.hardware.registry import Hardware
from mlsysim.infra.registry import Grids
from mlsysim.physics.precision import bytes_per_element
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.search.deployments import canonical
from mlsysim.search.serving import OUTPUTS, evaluate
from mlsysim.search.space import Space
from mlsysim.search.sweep import sweep
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import to_si
from mlsysim.walls.node.batching import ContinuousBatchingModel
from mlsysim.walls.node.serving import ServingModel
from mlsysim.walls.node.serving_capacity import ServingCapacityModel
from mlsysim.walls.operations.capital import EconomicsModel
from mlsysim.walls.operations.sustainability import SustainabilityModel

TOLERANCE = 1e-12
SEED = 20240811
POINTS = 260

CASES: dict[str, dict[str, Any]] = {
    "dense": {
        "fixed": {"model": "Llama3_70B"},
        "axes": {
            "hardware": ["A100", "H100", "MI300X", "L40S"],
            "precision": ["fp16", "fp8", "int4"],
            "cache_precision": ["fp16", "fp8"],
            "tp": [1, 2, 4, 8, 16, 3],
            "pp": [1, 2, 5],
            "batch": {"range": [1, 300]},
            "isl": [1, 128, 2000, 8192],
            "osl": [1, 2, 3, 100, 777],
            "replicas": [1, 3],
            "efficiency": [0.3, 0.5, 1.0],
            "bandwidth_efficiency": [0.7, 1.0],
        },
    },
    "adapters": {
        "fixed": {"model": "Llama3_8B", "hardware": "H100", "isl": 512, "osl": 100},
        "axes": {
            "max_loras": [0, 1, 32, 700],
            "adapter_rank": [1, 16, 128],
            "tp": [1, 2, 8],
            "pp": [1, 2],
            "batch": {"range": [1, 300]},
        },
    },
    "chunks and prefixes": {
        "fixed": {"model": "Llama3_8B", "hardware": "H100"},
        "axes": {
            "batch_size": [1, 7, 64],
            "seq_len": {"range": [100, 20000], "step": 37},
            "output_len": [1, 64, 300],
            "chunk": [64, 512, 2048, 100000],
            "cached_prefix_len": [0, 100, 4096],
            "pp": [1, 2],
        },
    },
    "limits of power": {
        "fixed": {"model": "Llama3_8B", "precision": "fp8"},
        "axes": {
            "hardware": ["H100", "A100", "B200"],
            "decode_hardware": ["none", "H200"],
            "power_cap": ["180 W", "300 W", "450 W", "2 kW"],
            "tp": [1, 2],
            "pp": [1, 2],
            "batch": {"range": [1, 300]},
            "isl": [128, 2000],
            "osl": [1, 300],
            "efficiency": [0.3, 0.6],
        },
    },
    "windows": {
        "fixed": {"model": "Gemma2_27B", "precision": "bf16"},
        "axes": {
            "hardware": ["A100", "H200"],
            "tp": [1, 2, 8],
            "batch_size": [1, 2, 16, 100],
            "seq_len": {"range": [1000, 9000], "step": 250},
            "output_len": [10, 500, 4000],
            "chunk": [512, 3000],
        },
    },
    "mixture with latent attention": {
        "fixed": {"model": "DeepSeek_V3", "precision": "fp8", "fabric": "InfiniBand_NDR"},
        "axes": {
            "hardware": ["H200", "B200"],
            "tp": [1, 4, 8, 16],
            "ep": [1, 8, 32, 64],
            "pp": [1, 2],
            "batch_size": [1, 32, 500],
            "seq_len": [512, 4096],
            "output_len": [1, 200],
        },
    },
    "state space": {
        "fixed": {"model": "Jamba_v0_1", "hardware": "H100"},
        "axes": {
            "tp": [1, 2, 4],
            "ep": [1, 2, 8],
            "batch_size": [1, 20],
            "seq_len": [300, 5000],
            "chunk": [256, 4096],
            "output_len": [1, 64, 900],
        },
    },
    "draft models": {
        "fixed": {"model": "Llama3_70B", "precision": "fp8"},
        "axes": {
            "hardware": ["H100", "H200"],
            "draft_model": ["none", "Llama3_8B", "Llama3_2_1B"],
            "tp": [2, 4, 8],
            "pp": [1, 2],
            "batch_size": [1, 16, 200],
            "acceptance": [0.0, 0.6, 0.8, 1.0],
            "num_speculative_tokens": [1, 3, 7],
            "seq_len": [1024],
            "output_len": [1, 50, 600],
        },
    },
    "apart": {
        "fixed": {"model": "Llama3_70B", "precision": "fp8"},
        "axes": {
            "hardware": ["H100", "B200"],
            "decode_hardware": ["none", "H200", "A100"],
            "tp": [2, 4, 8],
            "batch_size": [1, 16, 200],
            "network_bandwidth": {"values": [25, 50], "unit": "GB/s"},
            "seq_len": [1024, 9000],
            "output_len": [1, 50, 600],
            "replicas": [1, 2],
        },
    },
}


def _first_order(case: dict[str, Any]) -> dict[str, Any]:
    return {} if "efficiency" in case["axes"] else {"efficiency": 0.5}


def space_of(case: dict[str, Any], **fixed: Any) -> Space:
    return Space.from_dict(
        {"kind": "serving", "axes": case["axes"], "fixed": {**_first_order(case), **case["fixed"], **fixed}}
    )


def some_points(space: Space, count: int, name: str = "") -> np.ndarray:
    rng = np.random.default_rng([SEED, *name.encode()])
    return rng.integers(0, space.size, count)


def inputs_of(space: Space, index: int) -> dict[str, Any]:
    """One point as ServingModel takes it."""
    given = {**space.fixed, **space.point(int(index))}
    found = {canonical(name): value for name, value in given.items()}
    for name in ("draft_model", "decode_hardware"):
        if found.get(name) == "none":
            del found[name]
    if "power_cap" in found:
        found["power_cap"] = f"{found['power_cap']} W"
    found.pop("cooling", None)
    if bytes_per_element(found.get("precision", "fp16")) < 2:
        found.setdefault("cache_precision", "bf16")
    if "decode_hardware" not in found:
        found.pop("network_bandwidth", None)
    elif "network_bandwidth" in found:
        found["network_bandwidth"] = f"{found['network_bandwidth']} byte/s"
    return found


def close(found: Any, expected: float) -> bool:
    return float(found) == pytest.approx(expected, rel=TOLERANCE, abs=0)


def compare(space: Space, indices: np.ndarray) -> int:
    """Compare points with solve(); the number of those that it answers."""
    found = evaluate(space, space.decode(indices))
    seen = 0
    for place, index in enumerate(indices):
        given = inputs_of(space, index)
        try:
            answer = ServingModel().solve(**given)
        except UnknownNameError:
            assert found["valid"][place] and not found["feasible"][place] and found["wall"][place] == 1
            continue
        except InputError as error:
            assert not found["feasible"][place]
            no_links = "no link" in str(error)
            assert bool(found["valid"][place]) is no_links, str(error)
            assert found["wall"][place] == (14 if no_links else 0)
            continue
        seen += 1
        assert found["valid"][place]
        assert bool(found["feasible"][place]) is answer.feasible, given
        assert found["wall"][place] == (0 if answer.feasible else 2)
        expected = {
            "ttft_s": to_si(answer.ttft, "s"),
            "itl_s": to_si(answer.itl, "s"),
            "tpot_s": to_si(answer.itl, "s"),
            "e2e_s": to_si(answer.request_latency, "s"),
            "longest_stall_s": to_si(answer.decode_stall_bound, "s"),
            "memory_bytes": to_si(answer.memory_per_device, "byte"),
            "devices": answer.devices,
        }
        for name, value in expected.items():
            assert close(found[name][place], value), (name, given)
    return seen


@pytest.mark.parametrize("case", CASES)
def test_points_are_what_solve_gives(case):
    space = space_of(CASES[case])
    assert compare(space, some_points(space, POINTS, case)) > POINTS / 4


CALIBRATED = {
    "dense": {"engine": "vLLM"},
    "chunks and prefixes": {"engine": "SGLang"},
    "windows": {},
    "mixture with latent attention": {"engine": "SGLang"},
    "state space": {},
    "draft models": {},
    "apart": {"engine": "TensorRT_LLM"},
    "limits of power": {},
}


@pytest.mark.parametrize("case", CALIBRATED)
def test_calibrated_points_are_what_solve_gives(case):
    axes = {name: axis for name, axis in CASES[case]["axes"].items() if "efficiency" not in name}
    space = space_of({**CASES[case], "axes": axes}, efficiency="calibrated", **CALIBRATED[case])
    assert compare(space, some_points(space, 120, case)) > 25


@pytest.mark.parametrize("engine", ["vLLM", "SGLang", "TensorRT_LLM"])
@pytest.mark.parametrize("apart", [False, True])
def test_clients_in_a_closed_loop_are_those_of_solve(engine, apart):
    axes: dict[str, Any] = {
        "hardware": ["H100", "H200"],
        "model": ["Llama3_70B", "Mixtral_8x7B"],
        "tp": [2, 8],
        "concurrency": {"range": [1, 900]},
        "seq_len": [100, 1000, 20000],
        "output_len": [2, 128, 1000],
        "replicas": [1, 2],
    }
    fixed: dict[str, Any] = {"precision": "fp8", "engine": engine, "efficiency": "calibrated"}
    if apart:
        fixed["decode_hardware"] = "B200"
        axes |= {"decode_replicas": [1, 3], "decode_tp": [2, 4]}
    else:
        axes["chunk"] = [512, 8192]
    space = Space.from_dict({"kind": "serving", "axes": axes, "fixed": fixed})
    indices = some_points(space, 150, engine)
    found = evaluate(space, space.decode(indices))
    for place, index in enumerate(indices):
        answer = ServingModel().solve(**inputs_of(space, index))
        assert found["valid"][place]
        expected = {
            "ttft_s": to_si(answer.ttft_at_concurrency, "s"),
            "tpot_s": to_si(answer.tpot, "s"),
            "tokens_per_second": to_si(answer.output_tokens_per_sec, "1/s"),
            "active_requests": answer.active_requests,
        }
        for name, value in expected.items():
            assert close(found[name][place], value), (name, inputs_of(space, index))


def test_rates_are_those_of_the_capacity_model():
    """Per replica B / (TTFT + n ITL); the answers' tokens follow."""
    space = space_of(CASES["dense"])
    indices = some_points(space, 400, "capacity")
    found = evaluate(space, space.decode(indices))
    seen = 0
    for place, index in enumerate(indices):
        if not found["feasible"][place]:
            continue
        seen += 1
        given = inputs_of(space, index)
        replicas = given.pop("num_replicas")
        answer = ServingCapacityModel().solve(qps=1.0, target_p99_latency_ms=1e7, **given)
        rate = replicas * to_si(answer.per_replica_qps_capacity, "1/s")
        assert close(found["requests_per_second"][place], rate)
        assert close(found["tokens_per_second"][place], rate * given["output_len"])
        assert close(found["tokens_per_second_per_device"][place], rate * given["output_len"] / found["devices"][place])
    assert seen > 50


def test_one_prompt_at_a_time_is_continuous_batching():
    """TTFT is the prefill of one prompt; the others of the batch are read while it is answered."""
    axes = {"batch_size": [1, 8, 64], "tp": [2, 4], "seq_len": [512, 4000], "output_len": [1, 100]}
    fixed = {"model": "Llama3_70B", "hardware": "H200", "precision": "fp8", "efficiency": 0.5}
    alone = Space.from_dict({"kind": "serving", "axes": axes, "fixed": {**fixed, "prefill_batch_size": 1}})
    every = np.arange(alone.size)
    found = evaluate(alone, alone.decode(every))
    together = evaluate(space_of({"axes": axes, "fixed": fixed}), alone.decode(every))
    for place in every:
        given = inputs_of(alone, place)
        batch, answer_length = given["batch_size"], given["output_len"]
        one = ContinuousBatchingModel().solve(
            "Llama3_70B", "H200", given["seq_len"], batch, precision="fp8", tp_size=given["tp_size"]
        )
        assert close(found["ttft_s"][place], to_si(one.ttft, "s"))
        assert found["itl_s"][place] == together["itl_s"][place]
        service = batch * found["ttft_s"][place] + (answer_length - 1) * found["itl_s"][place]
        assert close(found["requests_per_second"][place], batch / service)
        more = max(answer_length - 1, 1)
        stall = (batch - 1) * found["ttft_s"][place]
        assert close(found["tpot_s"][place], found["itl_s"][place] + stall / more)
        # A request of one token ends with it; the others of its batch are read after it has gone.
        assert close(found["e2e_s"][place], found["ttft_s"][place] + (answer_length - 1) * found["tpot_s"][place])


def test_clients_take_the_places_that_memory_has():
    fixed = {"model": "Llama3_70B", "hardware": "H100", "precision": "fp8", "seq_len": 4096, "output_len": 512}
    fixed |= {"efficiency": 0.5}
    axes = {"concurrency": [1, 7, 40, 1000], "replicas": [1, 2], "tp": [1, 2, 4]}
    space = Space.from_dict({"kind": "serving", "axes": axes, "fixed": fixed})
    found = evaluate(space, space.decode(np.arange(space.size)))
    for place in range(space.size):
        given = inputs_of(space, place)
        clients, replicas = given.pop("concurrency"), given["num_replicas"]
        # Requests that come and go keep what they have got so far: more of them fit than of a batch that ends together.
        room = ServingModel().solve(**given, concurrency=clients).max_batch_size
        assert room >= ServingModel().solve(**given).max_batch_size
        batch = min(math.ceil(clients / replicas), room)
        answer = ServingModel().solve(**{**given, "batch_size": max(batch, 1)})
        assert close(found["itl_s"][place], to_si(answer.itl, "s"))
        assert bool(found["feasible"][place]) is (batch >= 1)
        if batch:
            assert found["active_requests"][place] == min(batch * replicas, clients)
            assert close(found["requests_per_second"][place] * found["e2e_s"][place], clients)


@pytest.mark.parametrize("calibrated", [False, True])
def test_apart_the_slower_pool_decides(calibrated):
    fixed = {"model": "Llama3_70B", "hardware": "H100", "decode_hardware": "H200", "precision": "fp8", "tp": 4}
    fixed |= {"seq_len": 4096, "output_len": 256, "prefill_batch_size": 1}
    if not calibrated:
        fixed["efficiency"] = 0.5
    axes = {"replicas": [1, 2, 8, 64], "decode_replicas": [1, 2, 8], "batch_size": [16, 64]}
    space = Space.from_dict({"kind": "serving", "axes": axes, "fixed": fixed})
    columns = space.decode(np.arange(space.size))
    found = evaluate(space, columns)
    reading = columns["replicas"] / found["ttft_s"]
    writing = columns["decode_replicas"] * columns["batch_size"] / (256 * found["itl_s"])
    rate = found["requests_per_second"]
    # TTFT includes the hand-over, which goes on while the next prompt is read.
    assert (rate <= writing * (1 + 1e-12)).all() and (rate >= np.minimum(reading, writing) * (1 - 1e-12)).all()
    assert (rate < writing * 0.99).any() and np.isclose(rate, writing, rtol=1e-12).any()
    assert (found["devices"] == 4 * (columns["replicas"] + columns["decode_replicas"])).all()
    assert (found["longest_stall_s"] == 0).all() and np.isfinite(found["kwh_per_mtoken"]).all()


def fleet_named(text: str) -> Fleet:
    """The fleet that a plan makes of such a text."""
    return parse_fleet(text).one


def test_costs_are_those_of_their_resolvers():
    axes = {
        "hardware": ["H100", "H200", "A100"],
        "tp": [4, 8],
        "batch_size": [4, 32],
        "grid": ["Quebec", "Poland", "US_Avg"],
        "utilization": [0.4, 1.0],
        "amortization_years": [3, 5],
        "kwh_price": [0.05, 0.2],
        "replicas": [1, 2],
    }
    fixed = {"model": "Llama3_70B", "seq_len": 1000, "output_len": 200, "infrastructure_multiplier": 1.4}
    fixed |= {"efficiency": 0.5, "average_power": "450 W"}
    space = Space.from_dict({"kind": "serving", "axes": axes, "fixed": fixed})
    indices = some_points(space, 120, "costs")
    found = evaluate(space, space.decode(indices))
    for place, index in enumerate(indices):
        point = space.point(int(index))
        devices = int(found["devices"][place])
        assert devices == point["tp"] * point["replicas"]
        fleet = fleet_named(f"{devices}x{point['hardware']}")
        cost = EconomicsModel().solve(
            fleet=fleet,
            duration_days=10,
            average_power="450 W",
            include_host=True,
            throughput=float(found["tokens_per_second"][place]),
            infrastructure_multiplier=1.4,
            cost_scope="all",
            utilization=point["utilization"],
            amortization_years=point["amortization_years"],
            kwh_price=point["kwh_price"],
            datacenter=Grids[point["grid"]],
        )
        assert close(found["usd_per_mtoken"][place], cost.cost_per_million_tokens_usd)
        green = SustainabilityModel().solve(
            fleet=fleet,
            duration_days=10,
            average_power="450 W",
            include_host=True,
            datacenter=Grids[point["grid"]],
        )
        million = float(found["tokens_per_second"][place]) * 864000 * point["utilization"] / 1e6
        assert close(found["kwh_per_mtoken"][place], to_si(green.total_energy_kwh, "kWh") / million)
        assert close(found["kgco2e_per_mtoken"][place], green.carbon_footprint_kg / million)
        if green.water_usage_liters is None:
            assert np.isnan(found["litres_per_mtoken"][place])
        else:
            assert close(found["litres_per_mtoken"][place], green.water_usage_liters / million)


def test_the_price_of_the_grid_and_rent():
    fixed = {
        "model": "Llama3_8B",
        "hardware": "H100",
        "seq_len": 1000,
        "output_len": 200,
        "batch": 8,
        "efficiency": 0.5,
        "average_power": "450 W",
    }
    axes = {"grid": ["Quebec", "Poland"]}
    own = Space.from_dict({"kind": "serving", "axes": axes, "fixed": {**fixed, "kwh_price": "region"}})
    found = evaluate(own, own.decode(np.arange(2)))
    for place, grid in enumerate(axes["grid"]):
        cost = EconomicsModel().solve(
            fleet=fleet_named("1xH100"),
            duration_days=1,
            average_power="450 W",
            include_host=True,
            throughput=float(found["tokens_per_second"][place]),
            kwh_price="region",
            cost_scope="all",
            datacenter=Grids[grid],
        )
        assert close(found["usd_per_mtoken"][place], cost.cost_per_million_tokens_usd)
    rented = Space.from_dict({"kind": "serving", "axes": {"cloud_price": [2.0, 4.0]}, "fixed": fixed})
    found = evaluate(rented, rented.decode(np.arange(2)))
    assert close(found["usd_per_mtoken"][0], 2.0 / (found["tokens_per_second"][0] * 3600 / 1e6))
    assert close(found["usd_per_mtoken"][1], 2 * found["usd_per_mtoken"][0])
    listed = Space.from_dict(
        {
            "kind": "serving",
            "axes": {"hardware": ["H100", "H200", "MI250X"], "cloud_price": ["on-demand", "spot"]},
            "fixed": {name: value for name, value in fixed.items() if name != "hardware"},
        }
    )
    found = evaluate(listed, listed.decode(np.arange(6)))
    dollars = (found["usd_per_mtoken"] * found["tokens_per_second"] * 3600 / 1e6).tolist()
    assert dollars[:4] == pytest.approx([2.69, 2.15, 3.99, 2.45])
    assert np.isnan(dollars[4:]).all()


def test_calibrated_power_is_that_of_running_kernels():
    """Between waiting and the limit with what stands around, at either fidelity; a device in use for less of the time draws less."""
    axes = {"batch_size": [1, 8, 64], "utilization": [0.2, 1.0]}
    fixed = {"model": "Llama3_70B", "hardware": "H100", "tp": 4, "precision": "fp8", "seq_len": 500, "output_len": 500}
    watts = {}
    for efficiency in (0.5, "calibrated"):
        space = Space.from_dict({"kind": "serving", "axes": axes, "fixed": {**fixed, "efficiency": efficiency}})
        columns = space.decode(np.arange(space.size))
        found = evaluate(space, columns)
        seconds = 1e6 / (found["tokens_per_second"] * columns["utilization"])
        watts[efficiency] = found["kwh_per_mtoken"] * 3.6e6 / seconds / 4
        # Without a place: PUE 1.1; four of the eight accelerators of a node.
        watts[efficiency] = (watts[efficiency] / 1.1 - 1410 / 8) / 1.21
    for each in watts.values():
        assert (each > 0.17 * 700).all() and (each <= 0.985 * 700).all()
    assert watts["calibrated"][0] < watts["calibrated"][1]


def test_a_space_may_say_its_fidelity():
    table = {
        "kind": "serving",
        "fixed": {"model": "Llama3_8B", "hardware": "H100", "isl": 500, "osl": 100},
        "axes": {"batch": [1, 32]},
    }
    said = Space.from_dict({**table, "fidelity": "calibrated"})
    fixed = Space.from_dict({**table, "fixed": {**table["fixed"], "efficiency": "calibrated"}})
    assert said.document() == fixed.document()
    answer = ServingModel().solve("Llama3_8B", "H100", 500, 32, output_len=100, efficiency="calibrated")
    assert close(evaluate(said, said.decode(np.arange(2)))["itl_s"][1], to_si(answer.itl, "s"))
    for changes in ({"fixed": {**table["fixed"], "efficiency": 0.4}}, {"axes": {"efficiency": [0.4, 0.5]}}):
        with pytest.raises(InputError, match="takes no efficiency"):
            Space.from_dict({**table, "fidelity": "calibrated", **changes})


def test_percentiles_over_what_is_uncertain():
    """Acceptance moves the time between tokens between its values at both ends, and nothing else."""
    table = {
        "kind": "serving",
        "minimize": "itl_s",
        "fixed": {"model": "Llama3_70B", "precision": "fp8", "draft_model": "Llama3_2_1B", "isl": 1024, "osl": 256},
        "axes": {"tp": [4], "batch": [8]},
    }
    fixed = {**table["fixed"], "hardware": "H100", "efficiency": 0.5}
    ends = [
        sweep(Space.from_dict({**table, "fixed": {**fixed, "acceptance": a}})).best[0]["outputs"] for a in (0.5, 0.9)
    ]
    varied = {**table, "fixed": fixed, "uncertain": {"acceptance": "0.5..0.9"}, "samples": 64}
    found = sweep(Space.from_dict(varied)).best[0]["percentiles"]
    assert ends[1]["itl_s"] < found["itl_s"]["p5"] < found["itl_s"]["p95"] < ends[0]["itl_s"]
    assert found["ttft_s"]["p5"] == found["ttft_s"]["p95"] == ends[0]["ttft_s"]
    chip = {**table, "fixed": fixed, "uncertain": {"hardware.memory.bandwidth": "2..3 TB/s"}, "samples": 16}
    spread = sweep(Space.from_dict(chip)).best[0]["percentiles"]["itl_s"]
    assert spread["p95"] > 1.2 * spread["p5"]


def test_all_cloud_chips_as_an_axis():
    table = {
        "kind": "serving",
        "minimize": "itl_s",
        "fixed": {"model": "Llama3_8B", "precision": "fp16", "seq_len": 1000, "output_len": 100},
        "axes": {"hardware": {"zoo": "Hardware.Cloud"}, "tp": [1, 2, 4], "batch": [1, 16]},
    }
    result = sweep(Space.from_dict(table))
    assert result.points == result.size == len(Hardware.Cloud.keys()) * 6
    assert {"1", "2", "14"} <= result.infeasible_by_wall.keys()
    assert result.feasible + sum(result.infeasible_by_wall.values()) == result.points
    cheap = sweep(Space.from_dict({**table, "minimize": "usd_per_mtoken"}))
    assert cheap.unranked and cheap.unranked < cheap.feasible


def test_limits_on_outputs_are_counted_by_name():
    table = {
        "kind": "serving",
        "minimize": "usd_per_mtoken",
        "subject_to": ["ttft_s <= 0.5", "tpot_s <= 0.02"],
        "fixed": {"model": "Llama3_70B", "hardware": "H100", "precision": "fp8", "isl": 1024, "osl": 256},
        "axes": {"tp": [1, 2, 4, 8], "batch": [1, 2, 4, 8, 16, 32, 64, 128]},
    }
    result = sweep(Space.from_dict(table))
    assert set(result.infeasible_by_wall) == {"2", "ttft_s <= 0.5", "tpot_s <= 0.02"}
    for best in result.best:
        assert best["outputs"]["ttft_s"] <= 0.5 and best["outputs"]["tpot_s"] <= 0.02
    loose = sweep(Space.from_dict({**table, "subject_to": []}))
    assert loose.best[0]["outputs"]["usd_per_mtoken"] < result.best[0]["outputs"]["usd_per_mtoken"]


def test_tiles_do_not_change_a_point():
    space = space_of(CASES["draft models"])
    indices = np.arange(0, space.size, 7)
    whole = evaluate(space, space.decode(indices))
    for part in np.array_split(np.arange(indices.size), 5):
        some = evaluate(space_of(CASES["draft models"]), space.decode(indices[part]))
        for name in ("valid", "feasible", "wall", *OUTPUTS):
            np.testing.assert_array_equal(some[name], whole[name][part], err_msg=name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fixed": {"seq_len": None}}, "needs 'seq_len'"),
        ({"fixed": {"hardware": None}}, "needs 'hardware'"),
        ({"fixed": {"concurrency": 4}}, "'batch_size' or 'concurrency'"),
        ({"fixed": {"decode_replicas": 2}}, "without 'decode_hardware'"),
        ({"fixed": {"cloud_price": "weekly"}}, "on-demand"),
        ({"fixed": {"kwh_price": "reigon"}}, "region"),
        ({"fixed": {"cloud_price": 3.0, "unit_cost": "20000 USD"}}, "not both"),
        ({"fixed": {"draft_model": "Llama3_9B"}}, "Llama3_8B"),
        ({"fixed": {"model": "ResNet50"}}, "does not write token after token"),
        ({"minimize": "kgco2e_per_mtoken"}, "give a 'grid'"),
        ({"fixed": {"tp": 2, "tp_size": 2}}, "one of them"),
        ({"fixed": {"efficiency": "calibrated", "bandwidth_efficiency": 0.8}}, "first order"),
        ({"fixed": {"hardware": "TPU_v5e", "power_cap": "200 W"}}, "TPU v5e has no published TDP"),
    ],
)
def test_what_is_refused(changes, words):
    fixed = {"model": "Llama3_8B", "hardware": "H100", "seq_len": 100, "output_len": 10, **changes.pop("fixed", {})}
    fixed = {name: value for name, value in fixed.items() if value is not None}
    table = {"kind": "serving", "axes": {"batch_size": [1, 2]}, "fixed": fixed, **changes}
    with pytest.raises(InputError, match=words):
        sweep(Space.from_dict(table))


def test_the_example_answers_within_its_limits():
    example = Path(__file__).parents[2] / "src" / "mlsysim" / "examples" / "sweeps" / "llama70b-serving-slo.toml"
    space = Space.from_toml(example)
    result = sweep(space)
    assert result.points == space.size and result.feasible > 1000
    best = result.best[0]["outputs"]
    assert best["ttft_s"] <= 0.5 and best["tpot_s"] <= 0.05 and best["longest_stall_s"] <= 0.1
    assert min(point["outputs"]["usd_per_mtoken"] for point in result.pareto) == best["usd_per_mtoken"]
    rejected = result.infeasible_by_wall
    assert {"2", *(expression.text for expression in space.subject_to)} == set(rejected)
    # A draft model shortens the time between tokens of the few and adds work for the many.
    quickest = min(result.pareto, key=lambda point: point["outputs"]["tpot_s"])
    assert quickest["inputs"]["draft_model"] != "none"
    given = {name: value for name, value in quickest["inputs"].items() if name not in ("draft_model", "batch")}
    axes = {"draft_model": ["none", "Llama3_2_1B"], "batch": [4, 512]}
    fixed = {"model": "Llama3_3_70B", "isl": 1024, "osl": 512, "prefill_batch_size": 1, "engine": "vLLM", **given}
    both = Space.from_dict({"kind": "serving", "axes": axes, "fixed": {"efficiency": "calibrated", **fixed}})
    few, many, fewer, more = evaluate(both, both.decode(np.arange(4)))["tokens_per_second"]
    assert fewer > few and more < many


_LAYOUTS = {"tp": [2, 4, 8], "replicas": [1, 2]}
_CAPPED = {"tp": [2, 8], "replicas": [1], "power_cap": ["350 W", "550 W", "900 W"], "cooling": ["air", "liquid"]}


@pytest.mark.parametrize("efficiency", [0.5, None])
@pytest.mark.parametrize("layouts", [_LAYOUTS, _CAPPED], ids=["layouts", "limits of power"])
def test_a_point_is_what_the_plan_answers(efficiency, layouts):
    """The same clients on the same replicas: sweep, solve() and plan say one thing, calibrated unless somebody says otherwise."""
    fixed = {
        "model": "Llama3_70B",
        "precision": "fp8",
        "isl": 2000,
        "osl": 300,
        "hardware": "H100",
    }
    fixed |= {} if efficiency is None else {"efficiency": efficiency}
    axes = {"concurrency": [1, 16, 3000], **layouts}
    space = Space.from_dict({"kind": "serving", "axes": axes, "fixed": fixed})
    found = evaluate(space, space.decode(np.arange(space.size)))
    for place in range(space.size):
        point = space.point(place)
        document = {
            "task": "serving",
            "workload": {"model": "Llama3_70B", "precision": "fp8"},
            "hardware": {"on": f"{point['tp'] * point['replicas']}xH100"}
            | ({"efficiency": efficiency} if efficiency else {})
            | ({"power_cap": f"{point['power_cap']} W", "cooling": point["cooling"]} if "power_cap" in axes else {}),
            "parallelism": {"tp": point["tp"]},
            "serving": {
                "prompt_tokens": 2000,
                "output_tokens": 300,
                "concurrency": point["concurrency"],
                "replicas": point["replicas"],
            },
        }
        plan = evaluate_plainly(Plan.model_validate(document))
        asked = inputs_of(space, place)
        solved = ServingModel().solve(**asked)
        assert plan.feasible is solved.feasible is bool(found["feasible"][place])
        for metric, field, output in (
            ("ttft", "ttft_at_concurrency", "ttft_s"),
            ("tpot", "tpot", "tpot_s"),
            ("memory", "memory_per_device", "memory_bytes"),
        ):
            unit = "byte" if metric == "memory" else "s"
            value = to_si(plan.value(metric), unit)
            assert value == pytest.approx(to_si(getattr(solved, field), unit), rel=1e-12)
            assert found[output][place] == pytest.approx(value, rel=1e-9)
        assert found["requests_per_second"][place] == pytest.approx(to_si(plan.value("requests_per_second"), "1/s"))
        if plan.feasible:
            joules = to_si(plan.value("energy_per_token"), "J") * 1e6
            assert found["kwh_per_mtoken"][place] * 3.6e6 == pytest.approx(joules, rel=1e-9)
            assert found["usd_per_mtoken"][place] == pytest.approx(to_si(plan.value("usd_per_mtoken"), "USD"), rel=1e-9)
        assert plan.binding.wall == solved.binding.wall
        latency = to_si(plan.value("latency"), "s")
        assert sum(part.value for part in plan.time_parts) == pytest.approx(latency, rel=1e-9)
        assert plan.memory is not None and plan.memory.used == pytest.approx(
            to_si(plan.value("memory"), "byte"), rel=1e-14
        )


def test_a_space_says_its_fidelity():
    table = {
        "kind": "serving",
        "axes": {"batch": [1, 8]},
        "fixed": {"model": "Llama3_8B", "hardware": "H100", "isl": 500, "osl": 9},
    }
    plain, said, first = (
        Space.from_dict({**table, **more}) for more in ({}, {"fidelity": "calibrated"}, {"fidelity": "first order"})
    )
    found = [evaluate(space, space.decode(np.arange(2)))["itl_s"] for space in (plain, said, first)]
    assert (found[0] == found[1]).all() and (found[2] < found[0]).all()
