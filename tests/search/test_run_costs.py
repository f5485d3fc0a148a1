"""Days, dollars, kWh, kgCO2e and litres of a run are those of the resolvers; what is not known is not made up."""

from __future__ import annotations

import numpy as np
import pytest

from mlsysim.cases.failures import interruption_rate, joining_time
from mlsysim.cases.goodput import exact_interval
from mlsysim.errors import InputError
from mlsysim.infra.registry import Grids
from mlsysim.search.space import Space
from mlsysim.search.sweep import sweep
from mlsysim.search.training import evaluate
from mlsysim.systems.registry import Fabrics, Nodes
from mlsysim.systems.types import Fleet
from mlsysim.timing.power import waiting_power_of
from mlsysim.units.registry import Q_, to_si
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.fleet.fragility import ReliabilityModel
from mlsysim.walls.operations.capital import EconomicsModel
from mlsysim.walls.operations.checkpoint import CheckpointModel
from mlsysim.walls.operations.sustainability import SustainabilityModel

TOLERANCE = 1e-12
FLEET = Fleet(name="A100", node=Nodes["DGX_A100"], count=64, fabric=Fabrics["InfiniBand_HDR"])
BASE = {"model": "Llama3_8B", "fleet": FLEET, "batch_size": 4096, "tp": 2}
AMOUNTS = ("usd", "kwh", "kgco2e", "litres")


def solve(*args, **given):
    """What a space answers: calibrated where it does not say."""
    usual = {"efficiency": "calibrated", "seq_len": 4096, "precision": "bf16"}
    return DistributedModel().solve(*args, **{**usual, **given})


def step(**layout: object):
    return solve("Llama3_8B", FLEET, 4096, tp_size=2, **layout)


def goodput() -> float:
    return exact_goodput(FLEET, write_time(FLEET))


def mean_power(watts: float, used: float = 1.0) -> float:
    """Watts of an accelerator over a run: those of a step while it computes, those of waiting while it saves, restarts or is not in use."""
    write, count = to_si(write_time(FLEET), "s"), FLEET.total_accelerators
    mtbf = interruption_rate(FLEET.node.accelerator).hours / count * 3600
    writes = goodput() * write / exact_interval(write, mtbf)
    computing = used * (1 - writes + np.expm1(-(300 + write + joining_time() * count) / mtbf))
    return computing * watts + (1 - computing) * waiting_power_of(FLEET.node.accelerator)


def exact_goodput(fleet: Fleet, write: object) -> float:
    """What wall 15 says when it is told what faces assume: the all-cause rate, a restart by scale, the best interval."""
    seconds, count = to_si(write, "s"), fleet.total_accelerators
    mtbf = interruption_rate(fleet.node.accelerator).hours / count
    given = {
        "checkpoint_time_s": seconds,
        "avg_recovery_time_s": 300 + seconds + joining_time() * count,
        "checkpoint_interval": exact_interval(seconds, mtbf * 3600),
    }
    return ReliabilityModel().solve(fleet.model_copy(update={"mtbf_hours": mtbf}), 1.0, **given).goodput_ratio_exact


def write_time(fleet: Fleet) -> object:
    """A checkpoint of the state, written by every accelerator through its port."""
    port = fleet.bandwidth_per_accelerator
    chip, writers = fleet.node.accelerator, fleet.total_accelerators
    return CheckpointModel().solve("Llama3_8B", chip, n_writers=writers, writer_bandwidth=port).write_time_seconds


@pytest.mark.parametrize("length", ["tokens", "duration_days"])
def test_a_run_costs_what_the_resolvers_say(length):
    rng = np.random.default_rng(7)
    size = 200
    lengths = {"tokens": [2e11, 1e12, 9e12], "duration_days": [3.0, 45.0, 400.0]}
    columns = {
        "pp": rng.choice([1, 2, 4], size),
        "grid": rng.choice(["Quebec", "Iowa"], size),
        "utilization": rng.choice([0.6, 1.0], size),
        length: rng.choice(lengths[length], size),
    }
    found = evaluate(BASE, columns)
    useful = goodput()
    for place in range(size):
        here = {name: column[place].item() for name, column in columns.items()}
        answer = step(pp_size=here["pp"])
        rate = answer.tokens_per_second.magnitude * useful
        days = here.get("duration_days") or here["tokens"] / (rate * here["utilization"]) / 86400
        tokens = here.get("tokens") or rate * here["utilization"] * days * 86400
        used = here["utilization"]
        drawn = Q_(mean_power(to_si(answer.accelerator_power, "W"), used), "W")
        cost = EconomicsModel().solve(
            fleet=FLEET,
            duration_days=days,
            datacenter=Grids[here["grid"]],
            kwh_price="region",
            cost_scope="all",
            average_power=drawn,
            include_host=True,
            utilization=here["utilization"],
            tokens=tokens,
        )
        expected = {
            "run_days": days,
            "usd_per_run": cost.tco_usd,
            "kwh_per_run": to_si(cost.total_energy_kwh, "kWh"),
            "kgco2e_per_run": cost.carbon_footprint_kg,
            "litres_per_run": cost.water_usage_liters,
            "usd_per_mtoken": cost.cost_per_million_tokens_usd,
            "litres_per_mtoken": cost.water_usage_liters / (tokens / 1e6),
        }
        if here["utilization"] == 1:
            green = SustainabilityModel().solve(
                fleet=FLEET,
                duration_days=days,
                datacenter=Grids[here["grid"]],
                average_power=drawn,
                include_host=True,
            )
            expected |= {
                "kwh_per_run": to_si(green.total_energy_kwh, "kWh"),
                "kgco2e_per_run": green.carbon_footprint_kg,
                "litres_per_run": green.water_usage_liters,
            }
        for name, value in expected.items():
            assert found[name][place] == pytest.approx(value, rel=TOLERANCE, abs=0), name
    for amount in AMOUNTS:
        million = found["tokens_per_second"] * useful * columns["utilization"] * found["run_days"] * 86400 / 1e6
        np.testing.assert_allclose(found[f"{amount}_per_mtoken"] * million, found[f"{amount}_per_run"], rtol=1e-12)


def test_a_run_by_hand():
    """10^12 tokens at r useful tokens a second take 10^12 / r s; 512 A100 draw what each does on average, with fans, network and hosts."""
    found = evaluate({**BASE, "tokens": 1e12, "grid": "Iowa"}, {"pp": np.array([1])})
    rate = found["tokens_per_second"][0] * found["goodput_ratio"][0]
    hours = 1e12 / rate / 3600
    each = mean_power(to_si(step(pp_size=1).accelerator_power, "W")) / 1000
    network = 0.116 * to_si(FLEET.bandwidth_per_accelerator, "Gbit/s") / 400
    hosts = FLEET.count * 1.41 * to_si(FLEET.node.host_power, "kW") / 4.6
    energy = (512 * (1.21 * each + network) + hosts) * hours
    assert found["run_days"][0] == pytest.approx(hours / 24, rel=1e-12)
    assert found["kwh_per_run"][0] == pytest.approx(energy * 1.1, rel=1e-12)
    assert found["kgco2e_per_run"][0] == pytest.approx(energy * 1.1 * 0.680, rel=1e-12)
    assert found["litres_per_run"][0] == pytest.approx(energy * 1.8, rel=1e-12)


def test_twice_the_tokens_take_twice_of_everything():
    found = evaluate({**BASE, "grid": "Iowa"}, {"tokens": np.array([1e11, 2e11])})
    for name in ("run_days", *(f"{amount}_per_run" for amount in AMOUNTS)):
        assert found[name][1] == pytest.approx(2 * found[name][0], rel=1e-12)
    for amount in AMOUNTS:
        assert found[f"{amount}_per_mtoken"][1] == pytest.approx(found[f"{amount}_per_mtoken"][0], rel=1e-12)


def test_waiting_for_spares_is_that_of_each_run():
    """Two spares for 64 nodes: longer runs wait for a larger share of their time, tokens as long as the days that they take."""
    lasting = evaluate(BASE | {"spares": 2}, {"duration_days": np.array([3.0, 45.0, 400.0])})["goodput_ratio"]
    assert goodput() > lasting[0] > lasting[1] > lasting[2] > 0.5
    whole = evaluate(BASE | {"spares": 2}, {"tokens": np.array([1e12, 9e12])})
    again = evaluate(BASE | {"spares": 2}, {"duration_days": whole["run_days"]})
    assert again["goodput_ratio"] == pytest.approx(whole["goodput_ratio"], rel=1e-3)


def test_a_fleet_that_only_fails_never_ends_its_run():
    fixed = {**BASE, "tokens": 1e12, "accelerator_mtbf": "1 h", "grid": "Iowa", "zero_stage": 3}
    found = evaluate(fixed, {"micro_batch": np.array([1])})
    assert found["wall"][0] == 15
    assert found["goodput_ratio"][0] < 1e-6 and found["run_days"][0] > 1e6 * 365


def test_places_that_publish_less_are_unknown_there_alone():
    """Poland has no WUE and Norway no price: litres and dollars are unknown there, energy and carbon are not."""
    columns = {"grid": np.array(["Poland", "Iowa", "Norway", "Quebec"])}
    found = evaluate({**BASE, "kwh_price": "region"}, columns)
    assert np.isnan(found["litres_per_run"]).tolist() == [True, False, True, False]
    assert np.isnan(found["usd_per_run"]).tolist() == [False, False, True, False]
    assert found["litres_per_run"][3] == 0
    assert np.isfinite(found["kgco2e_per_mtoken"]).all()


def test_points_in_places_without_a_price_are_counted_and_not_ranked():
    space = Space.from_dict(
        {
            "kind": "training",
            "fixed": {
                "model": "Llama3_8B",
                "fleet": "Research_256",
                "batch_size": 512,
                "kwh_price": "region",
                "seq_len": 2048,
            },
            "axes": {"grid": {"zoo": "Grids"}, "zero_stage": [1, 2]},
            "minimize": "usd_per_run",
            "pareto": ["usd_per_run", "kgco2e_per_run"],
        }
    )
    result = sweep(space)
    priced = sum(Grids[name].electricity_price is not None for name in Grids.keys())  # noqa: SIM118
    assert result.points == result.feasible == 2 * len(Grids.keys())
    assert result.unranked == 2 * (len(Grids.keys()) - priced)
    assert result.best[0]["inputs"]["grid"] == "Quebec"
    assert all(entry["outputs"]["usd_per_run"] is not None for entry in result.pareto)


@pytest.mark.parametrize(
    ("fixed", "axes", "goal", "sentence"),
    [
        ({"grid": "Poland"}, {}, "litres_per_run", "no WUE is published for"),
        ({}, {"grid": ["Poland", "Norway"]}, "litres_per_mtoken", "no WUE is published for"),
        ({"grid": "Norway", "kwh_price": "region"}, {}, "usd_per_run", "no electricity price"),
        ({"kwh_price": "region"}, {"grid": ["Norway", "Spain"]}, "usd_per_run", "no electricity price"),
        ({}, {}, "litres_per_run", "no grid, datacenter or region"),
        ({}, {}, "kgco2e_per_run", "no grid, datacenter or region"),
    ],
)
def test_a_goal_that_nothing_can_answer_is_refused(fixed, axes, goal, sentence):
    space = Space.from_dict(
        {
            "kind": "training",
            "fixed": {"model": "Llama3_8B", "node": "DGX_A100", "fabric": "EFA_v2", "nodes": 2, **fixed},
            "axes": {"batch_size": [16, 32], **axes},
            "minimize": goal,
        }
    )
    with pytest.raises(InputError, match=f"{goal} is not known for these points: .*{sentence}"):
        evaluate(space, space.decode(np.arange(space.size)))


def test_a_limit_on_what_is_not_known_is_refused():
    space = Space.from_dict(
        {
            "kind": "training",
            "fixed": {"model": "Llama3_8B", "node": "HGX_H20", "fabric": "EFA_v3", "nodes": 2, "batch_size": 16},
            "axes": {"tp": [1, 2]},
            "subject_to": ["usd_per_run <= 1e6"],
        }
    )
    with pytest.raises(InputError, match=r"usd_per_run is not known .* unknown is not free"):
        evaluate(space, space.decode(np.arange(2)))
