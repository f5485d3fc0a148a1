"""Money as people pay it: rents by number and by cloud, what owning consists of, and what budgets and tokens are priced by."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import EconomicsModel
from mlsysim.cases.rent import price_text, rent_of
from mlsysim.errors import InputError
from mlsysim.infra.registry import Grids, Prices
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.optimizing import best_placement
from mlsysim.plans.plan import Plan
from mlsysim.search.space import Space
from mlsysim.search.training import evaluate
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.systems.registry import Clusters
from mlsysim.units.registry import to_si

RUN = {
    "task": "training", "model": "Llama3_8B", "on": "16xH100", "batch_size": 256, "seq_len": 4096, "tp": 1, "zero": 3,
    "micro_batch": 1, "recompute": "full", "duration": "10 day", "efficiency": 0.5,
}  # fmt: skip
SERVICE = {"task": "serving", "model": "Llama3_8B", "on": "8xH100", "concurrency": 64, "efficiency": 0.5}


def test_machines_of_a_cloud_are_rented_at_its_price():
    """Unless another price is given, what is bought is said, or nobody lists a machine of that size."""
    for on, price in (
        ("2xp5.48xlarge", "AWS on-demand"),
        ("a3-highgpu-8g", "Google Cloud on-demand"),
        ("g6.xlarge", None),
    ):
        assert Plan.model_validate({**RUN, "on": on}).ops.price == price
    named = {**RUN, "on": "2xp5.48xlarge"}
    assert answered(named).headline.count("AWS on demand") <= 1 and answered(named).value("rent") > 0
    assert answered(named).value("rent") == answered(RUN, price="aws").value("rent")
    assert Plan.model_validate({**named, "price": 2.5}).ops.price == "2.5 USD/h"
    assert Plan.model_validate({**named, "cost_scope": "all"}).ops.price is None


def answered(plan, **more):
    return evaluate_plainly(Plan.model_validate({**plan, **more}))


def usd(answer, name):
    return to_si(answer.value(name), "USD")


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (2.5, "2.5 USD/h"),
        ("2.5", "2.5 USD/h"),
        ("$2.50", "2.5 USD/h"),
        ("2.5 USD/h", "2.5 USD/h"),
        ("$2.50/GPU-hr", "2.5 USD/h"),
        ("2.50 per GPU hour", "2.5 USD/h"),
        ("60 USD/day", "2.5 USD/h"),
        ("aws", "AWS"),
        ("AWS Spot", "AWS spot"),
        ("gcp", "Google Cloud"),
        ("amazon on-demand", "AWS on-demand"),
        ("preemptible", "spot"),
        ("AWS_p5_48xlarge", "AWS_p5_48xlarge"),
    ],
)
def test_a_price_is_read_as_people_write_it(written, kept):
    assert price_text(written) == kept == price_text(kept)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("awz", "aws"),
        ("30000 USD", "unit_cost"),
        (-1, "at least 0"),
        ("2.5 EUR", "USD/h"),
        ("weekly", "on-demand, spot, reserved"),
        ("", "quantity|cloud"),
    ],
)
def test_what_is_no_price_gets_a_sentence(written, words):
    with pytest.raises(InputError, match=words):
        price_text(written)
        rent_of(written, "H100")


def test_a_listed_price_is_the_latest_and_the_lowest_that_was_asked_for():
    listed = [entry for entry in Prices if entry.accelerator == "H100"]
    aws = next(entry for entry in listed if entry.metadata.key == "AWS_p5_48xlarge")
    assert rent_of("aws", "H100").price == pytest.approx(to_si(aws.price_per_accelerator, "USD/h"))
    for way in ("on-demand", "spot"):
        found = rent_of(way, "H100")
        assert found.entry is not None and found.entry.commitment == way
        kinds = [to_si(e.price_per_accelerator, "USD/h") for e in listed if e.commitment == way]
        assert found.price == pytest.approx(min(kinds))
    assert "reserved" in rent_of("reserved", "H100").words or "block" in rent_of("reserved", "H100").words
    with pytest.raises(InputError, match=r"Lambda on demand.*number will do"):
        rent_of("lambda spot", "H100", "H100")
    with pytest.raises(InputError, match="no cloud's price of it is"):
        rent_of("aws", "CerebrasCS3", "CS-3")


@given(st.floats(0.01, 900))
def test_a_number_is_itself(price):
    assert rent_of(price_text(price), "H100").price == pytest.approx(price, rel=1e-12)


def test_the_parts_add_up_to_what_is_paid():
    for plan, more in ((RUN, {}), (SERVICE, {}), (RUN, {"spares": 1}), (RUN, {"cost_scope": "accelerators"})):
        answer = answered(plan, **more)
        assert sum(part.value for part in answer.cost_parts) == pytest.approx(usd(answer, "tco"))
        assert answer.paid.name == "tco"
    rented = answered(RUN, price=2.5)
    assert sum(part.value for part in rented.cost_parts) == pytest.approx(usd(rented, "rent")) == 16 * 240 * 2.5
    assert rented.paid.name == "rent"


def test_owning_counts_what_stands_around_accelerators_unless_they_are_asked_for_alone():
    """Servers at 1.64 x their accelerators, 19 % of a cluster its network: 1.64 / 0.81; a node alone has no network."""
    whole, alone = answered(RUN), answered(RUN, cost_scope="accelerators")
    assert usd(alone, "purchase") == 16 * 30_000
    assert usd(whole, "purchase") == pytest.approx(16 * 30_000 * 1.64 / 0.81)
    assert {part.label for part in whole.cost_parts} >= {"Accelerators", "Hosts", "Network between nodes", "Building"}
    one = answered(RUN, on="8xH100")
    assert usd(one, "purchase") == pytest.approx(8 * 30_000 * 1.64)
    assert usd(whole, "electricity") == usd(alone, "electricity")
    # The resolver by itself has the scope of the documents.
    found = EconomicsModel().solve(parse_fleet("16xH100").one, duration_days=10)
    assert found.purchase_price_usd == 16 * 30_000 and found.building_price_usd == 0


def test_sentences_say_period_scope_and_price():
    said = " ".join(answered(RUN).verdict)
    assert "to own for 10 days (servers over 3 years, the building over 15: accelerators $" in said
    assert "accelerators only over 3 years" in " ".join(answered(RUN, cost_scope="accelerators").verdict)
    rented = answered(RUN, price="aws")
    assert "to rent for 10 days, at $6.88 a GPU-hour (AWS on demand); to own the same would cost $" in " ".join(
        rented.verdict
    )
    assert any("p5.48xlarge" in name for name in rented.sources)
    assert "to own for a day" in " ".join(answered(SERVICE).verdict)
    assert answered(SERVICE).questions["macro"] == "What it costs in a day"
    assert answered(RUN).questions["macro"] == "What it costs in 10 days"


def test_budget_and_price_of_a_token_are_those_of_what_is_asked():
    from mlsysim.plans.limits import demands

    owned, rented = answered(RUN), answered(RUN, price=5, budget="15000 USD")
    tokens = usd(owned, "tco") / usd(owned, "usd_per_mtoken")
    assert usd(rented, "usd_per_mtoken") == pytest.approx(usd(rented, "rent") / tokens)
    assert usd(rented, "tco") < 15_000 < usd(rented, "rent")
    (check,) = demands(rented)
    assert not check.passed and "Cost of renting" in check.sentence
    served = answered(SERVICE, price="lambda")
    made = to_si(served.value("tokens_per_second"), "1/s") * 86400 / 1e6
    assert usd(served, "usd_per_mtoken") == pytest.approx(8 * 24 * 3.99 / made)


@pytest.mark.parametrize(
    "more", [{}, {"price": 2.5}, {"price": "spot"}, {"cost_scope": "accelerators"}, {"oversubscription": 8, "rails": 4}]
)
def test_a_sweep_pays_what_the_plan_pays(more):
    answer = answered(RUN, **more)
    names = ("model", "batch_size", "seq_len", "tp", "zero", "micro_batch", "recompute", "efficiency")
    fixed = {name: RUN[name] for name in names} | {"fleet": "16xH100", "duration_days": 10} | more
    space = Space.from_dict(
        {"kind": "training", "axes": {"tp": [1]}, "fixed": {k: v for k, v in fixed.items() if k != "tp"}}
    )
    found = evaluate(space, space.decode(np.arange(1)))
    assert float(found["usd_per_run"][0]) == pytest.approx(to_si(answer.paid.value, "USD"))


@pytest.mark.parametrize("region", ["Quebec", "Poland", "Germany"])
def test_a_region_has_one_price_of_electricity_for_all_faces(region):
    price = to_si(Grids.get(region).electricity_price, "USD/kWh")
    answer = answered(RUN, region=region)
    assert usd(answer, "electricity") / to_si(answer.value("energy"), "kWh") == pytest.approx(price)
    placed = best_placement(Plan.model_validate({**RUN, "region": region}), regions=[region])
    assert placed.top_candidates[0]["kwh_price_usd"] == pytest.approx(price)
    assert placed.top_candidates[0]["tco_usd"] == pytest.approx(usd(answer, "tco"))


@pytest.mark.parametrize(
    ("region", "told"), [("us-east-1", "us-east-1 is on the grid of Virginia (US)"), ("quebec", None)]
)
def test_a_place_says_which_grid_it_is_on(region, told):
    plan = Plan.model_validate({"task": "training", "model": "GPT2", "on": "8xH100", "tokens": 1e9, "region": region})
    answer = evaluate_plainly(plan)
    assert answer.assumptions.get("region") == told and answer.value("carbon_footprint").magnitude > 0


def _network(**more: object) -> float:
    return sum(part.value for part in answered(RUN, **more).cost_parts if part.label == "Network between nodes")


def test_a_network_is_paid_by_the_ports_that_are_built():
    """Of a full fabric of two stages a port of a node has three of switches, of one that is thinned eight times 1 + 2/8; one adapter of eight has an
    eighth of them. What a thinner network saves is never more than the network."""
    whole = _network()
    assert whole == pytest.approx(16 * 30_000 * 1.64 * 0.19 / 0.81 * 10 / (3 * 365.25), rel=1e-3)
    assert _network(oversubscription=8) == pytest.approx(whole * (1 + 2 / 8) / 3)
    assert _network(rails=1) == pytest.approx(whole / 8) and _network(rails=16) == pytest.approx(2 * whole)
    assert _network(rails=2, oversubscription=4) == pytest.approx(whole / 4 * (1 + 2 / 4) / 3)
    thinned = [_network(oversubscription=over) for over in (1, 2, 4, 8, 1000)]
    assert thinned == sorted(thinned, reverse=True) and thinned[0] == whole and thinned[-1] > whole / 3
    assert "42% of what it costs" in answered(RUN, oversubscription=8).assumptions["network_price"]
    # Meta's pods are sold seven times thinned above them.
    meta = EconomicsModel().solve(Clusters.get("Meta_16K"), duration_days=10, cost_scope="all")
    assert meta.capex_parts_usd["network"] / meta.capex_parts_usd["accelerators"] == pytest.approx(1.64 * 0.19 / 0.81)


def test_two_pools_stand_on_one_network():
    """A node that writes what another reads has a network, as two nodes of one pool have it."""
    one, two = answered(SERVICE, on="16xH100"), answered(SERVICE, decode_on="8xH100")
    assert to_si(two.value("purchase"), "USD") == pytest.approx(to_si(one.value("purchase"), "USD"))
    assert any(part.label == "Network between nodes" for part in two.cost_parts)


def test_pools_on_two_nodes_pay_for_the_network_between_them() -> None:
    """Prompts on one node and answers on another need the network that two nodes of replicas have; parts of one node need none."""

    def network(**asked: object) -> float:
        parts = answered(SERVICE | {"model": "Llama3_70B", "concurrency": 16}, **asked).cost_parts
        return sum(part.value for part in parts if part.label == "Network between nodes")

    apart, together = network(on="8xH100", decode_on="8xH100"), network(on="16xH100", tp=8)
    assert apart == pytest.approx(together) and apart > 0
    assert network(on="4xH100", decode_on="4xH100") == 0


def test_what_cannot_be_bought_is_told_with_a_rent_that_can_be_asked_for():
    """Nobody sells a TPU: the sentence names the cloud that rents it, and its price, which the plan then takes."""
    plan = SERVICE | {"model": "Llama3_8B", "on": "8xTPU_v5e", "concurrency": 8}
    told = next(line for line in answered(plan).verdict if "unknown is not free" in line)
    assert told.endswith('price = "Google Cloud" ($1.20 a chip-hour on demand).')
    rented = answered(plan, price="Google Cloud")
    assert any("at $1.20 a chip-hour (Google Cloud on demand)" in line for line in rented.verdict)


def test_what_is_rented_need_not_be_priced():
    """EfficientNet on 40 GB A100: nobody sells them any more, and the rent is known."""
    plan = {"task": "training", "model": "EfficientNet_B0", "on": "16xA100_40GB", "batch_size": 64, "efficiency": 0.5}
    assert any("unknown is not free; give what you pay" in line for line in answered(plan).verdict)
    rented = answered(plan, price="aws spot")
    assert rented.paid is not None and not any("not known, and unknown" in line for line in rented.verdict)
