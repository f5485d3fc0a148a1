"""Networks of fleets as keys of a plan: parts of racks, oversubscription, congestion, rails, stragglers, and sites with a wide-area link."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.search.training import evaluate as points
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.systems.registry import Clusters
from mlsysim.timing.collectives import measured_network
from mlsysim.timing.network import Group, Hierarchical
from mlsysim.timing.training_chip import chip_in_fleet
from mlsysim.units.registry import to_si

FIDELITIES = pytest.mark.parametrize("efficiency", [0.5, "calibrated"], ids=str)
LAYOUT = {"tp": 4, "pp": 2, "micro_batch": 1, "zero": 1}


def trained(efficiency, on="64xH100", split=LAYOUT, batch=128, **hardware):
    work = {"model": "Llama3_8B", "batch_size": batch, "seq_len": 4096, "precision": "bf16"}
    document = {"task": "training", "workload": work, "parallelism": split}
    return evaluate_plainly(
        Plan.model_validate({**document, "hardware": {"on": on, "efficiency": efficiency, **hardware}})
    )


def step(efficiency, **hardware) -> float:
    return to_si(trained(efficiency, **hardware).value("latency"), "s")


@FIDELITIES
@pytest.mark.parametrize("key", ["oversubscription", "congestion", "straggler"])
def test_more_of_it_is_never_faster(efficiency, key):
    times = [step(efficiency, **{key: value}) for value in (1, 1.5, 4, 50)]
    assert times[0] == step(efficiency) and times == sorted(times) and times[-1] > times[0]


@FIDELITIES
def test_fewer_rails_are_never_faster(efficiency):
    times = [step(efficiency, rails=rails) for rails in (8, 4, 1)]
    assert times[0] == step(efficiency) and times == sorted(times) and times[-1] > times[0]


@FIDELITIES
@pytest.mark.parametrize("rails", [1, 2, 4])
def test_a_node_has_as_much_of_upper_stages_as_of_fewer_rails(efficiency, rails):
    """Eight ports over stages that carry 1/o of them are 8/o ports, whoever sends."""
    assert step(efficiency, oversubscription=8 // rails) == pytest.approx(step(efficiency, rails=rails), rel=1e-12)


@FIDELITIES
def test_an_oversubscribed_fabric_is_a_congested_one(efficiency):
    assert step(efficiency, oversubscription=3) == pytest.approx(step(efficiency, congestion=3), rel=1e-12)


@FIDELITIES
def test_sites_with_a_perfect_link_are_one(efficiency):
    perfect = {"sites": 2, "wan_bandwidth": "1e9 Tbps", "wan_round_trip": "0 s"}
    assert step(efficiency, **perfect) == pytest.approx(step(efficiency), rel=1e-12)


@FIDELITIES
def test_a_narrower_or_longer_link_is_never_faster(efficiency):
    def at(bandwidth: str, trip: str) -> float:
        return step(efficiency, sites=2, wan_bandwidth=bandwidth, wan_round_trip=trip)

    widths = [at(f"{width} Gbps", "30 ms") for width in (1e6, 1e3, 100, 10)]
    trips = [at("1 Tbps", f"{trip} ms") for trip in (0, 30, 3000)]
    assert widths == sorted(widths) and widths[-1] > widths[0] and trips == sorted(trips) and trips[-1] > trips[0]


def test_what_crosses_sites_by_hand():
    """Gradients of M bytes on n ranks: of each site's M, half crosses to the other for a gather and twice for a sum."""
    ranks, message, rate = 16, 1e9, 1e8
    alone = Hierarchical(450e9, 0.0, 50e9, 0.0, 8)
    apart = Hierarchical(450e9, 0.0, 50e9, 0.0, 8, sites=2, wan=rate, wan_latency=0.015)
    group = Group(ranks, 8, 2)
    more = message / ranks * (1 / rate - 1 / 50e9) + 0.015
    assert apart.gather(message, group) - alone.gather(message, Group(ranks, 8)) == pytest.approx(more)
    assert apart.all_reduce(message, group) - alone.all_reduce(message, Group(ranks, 8)) == pytest.approx(2 * more)


@settings(max_examples=40)
@given(st.integers(2, 64), st.floats(1e6, 1e12), st.floats(0, 1), st.floats(1e3, 1e11))
def test_sites_never_help(ranks, wan, latency, message):
    from mlsysim.hardware.registry import Hardware

    alone = measured_network(Hardware["H100"], 8, fabric=5e10, hop=1e-5)
    apart = measured_network(Hardware["H100"], 8, fabric=5e10, hop=1e-5, sites=2, wan=wan, wan_latency=latency)
    near, far = Group(ranks, min(ranks, 8)), Group(ranks, min(ranks, 8), 2)
    assert apart.gather(message, far) >= alone.gather(message, near)


def test_a_search_keeps_replicas_at_their_site():
    found = trained("calibrated", split={}, sites=2, wan_bandwidth="400 Gbps", wan_round_trip="20 ms")
    assert found.layout["dp"] % 2 == 0 and "gradients" in found.assumptions["sites"]


def test_a_sweep_answers_as_a_plan():
    given = {"model": "Llama3_8B", "fleet": Clusters["Research_256"], "batch_size": 512, "seq_len": 4096, "tp": 8}
    wide = {"oversubscription": 2, "sites": 2, "wan_bandwidth": "100 Gbps", "wan_round_trip": "30 ms"}
    found = points({**given, **wide, "precision": "bf16"}, {"zero_stage": np.array([1])})
    work = {"model": "Llama3_8B", "batch_size": 512, "seq_len": 4096, "precision": "bf16"}
    plan = {
        "task": "training",
        "workload": work,
        "hardware": {"on": "Research_256", **wide},
        "parallelism": {"tp": 8, "zero": 1},
    }
    mine = evaluate_plainly(Plan.model_validate(plan))
    if mine.layout["micro_batches"] == 1:
        assert to_si(mine.value("latency"), "s") == pytest.approx(found["step_time_s"][0], rel=1e-9)
    plain = points({**given, "precision": "bf16"}, {"zero_stage": np.array([1])})
    assert found["step_time_s"][0] > plain["step_time_s"][0]


@pytest.mark.parametrize(
    ("hardware", "words"),
    [
        ({"sites": 2}, "wan_bandwidth, wan_round_trip"),
        (
            {"sites": 3, "wan_bandwidth": "1 Tbps", "wan_round_trip": "1 ms"},
            "3 sites for 8 nodes need the same number at each",
        ),
        ({"wan_bandwidth": "1 Tbps"}, "sites of at least 2"),
    ],
)
def test_half_a_site_is_a_sentence(hardware, words):
    with pytest.raises(InputError, match=words):
        trained(0.5, **hardware)


def test_a_replica_stays_at_one_site():
    with pytest.raises(InputError, match="a replica stays at one"):
        trained(0.5, split={"tp": 8, "pp": 8}, sites=2, wan_bandwidth="1 Tbps", wan_round_trip="1 ms")


@pytest.mark.parametrize("count", [512, 2560, 5120])
def test_parts_of_racks(count):
    """64 of the 72 accelerators of each rack: the NVLink domain is what is used of it."""
    found = trained("calibrated", on=f"{count}xGB200", batch=2 * count, split={"tp": 8})
    assert "64 of the 72" in found.assumptions["node"] and found.layout["dp"] == count // 8


def test_parts_that_fill_whole_nodes():
    """Twelve H100 are a node and a half: a replica of four stays in one, and a pool may have any such size."""
    pools = {"workload": {"model": "Llama3_70B"}, "parallelism": {"tp": 4}, "hardware": {"on": "12xH100"}}
    traffic = {"qps": 2, "prompt_tokens": 3000, "output_tokens": 300, "decode_on": "20xH100"}
    found = evaluate_plainly(Plan.model_validate({"task": "serving", **pools, "serving": traffic}))
    assert "4 of the 8" in found.assumptions["node"] and "3 replicas of TP4" in found.headline
    assert trained(0.5, on="12xH100", batch=24, split={"tp": 2}).layout["dp"] == 6
    whole, halves = (parse_fleet(f"{count}xH100").one for count in (24, 12))
    assert (halves.count, halves.total_accelerators) == (3, 12)
    assert halves.node.host_power * halves.count * 2 == whole.node.host_power * whole.count
    with pytest.raises(InputError, match=r"13 x .* use 8 or 16"):
        parse_fleet("13xH100")


def test_the_rest_of_a_rack_is_no_part_of_its_link_domain():
    fleet = parse_fleet("512xGB200").one
    assert (fleet.count, fleet.node.accelerators_per_node, fleet.node.accelerator.link.domain) == (8, 64, 64)
    assert chip_in_fleet(fleet, "bf16", 1e11).network.domain == 64
    assert parse_fleet("144xGB200").one.node.accelerator.link.domain == 72


def test_a_batch_that_nothing_divides_says_why():
    with pytest.raises(
        InputError, match=r"degrees of 250 and more.* a batch of 16,250 or 16,500, or 98,304 accelerators"
    ):
        work = {"model": "Llama3_405B", "batch_size": 16384, "seq_len": 8192}
        evaluate_plainly(Plan.model_validate({"task": "training", "workload": work, "hardware": {"on": "Mega_100K"}}))


@pytest.mark.parametrize("task", ["serving", "inference"])
def test_other_tasks_refuse_what_they_do_not_read(task):
    document = {"task": task, "workload": {"model": "Llama3_8B"}, "hardware": {"on": "H100", "congestion": 2}}
    with pytest.raises(InputError, match="congestion belongs to training"):
        evaluate_plainly(Plan.model_validate(document))


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
def test_the_link_between_sites_is_a_part_of_its_own(efficiency):
    """What two sites add is one part, of wall 14, over the link between them; with a perfect link it is nothing."""
    wide = {"sites": 2, "wan_bandwidth": "100 Gbps", "wan_round_trip": "30 ms"}
    one, two = trained(efficiency), trained(efficiency, **wide)
    (part,) = (part for part in two.ledger.parts if part.name == "wide-area link")
    assert (part.wall, part.resource) == (14, "wide area") and part.exposed > 0
    assert not any(each.name == "wide-area link" for each in one.ledger.parts)
    near = {part.name: part.exposed + part.hidden for part in one.ledger.parts if part.resource == "fabric"}
    assert near == pytest.approx(
        {part.name: part.exposed + part.hidden for part in two.ledger.parts if part.resource == "fabric"}, rel=1e-9
    )
    assert two.ledger.total("exposed") == pytest.approx(two.ledger.seconds, rel=1e-9)
