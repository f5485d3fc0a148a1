from __future__ import annotations

import pytest

from mlsysim import Q_, Datacenter, Fleet, Grids, Hardware, InputError, NetworkFabric, Node, Systems, UnknownNameError
from mlsysim.core.constants import INFINIBAND_NDR_BW, NVLINK_H100_BW


def node(**fields):
    return Node(**{"name": "DGX H100", "accelerator": Hardware.Cloud.H100, "intra_node_bw": NVLINK_H100_BW, **fields})


def fabric(**fields):
    return NetworkFabric(**{"name": "IB NDR", "bandwidth": INFINIBAND_NDR_BW, **fields})


def fleet(**fields):
    return Fleet(**{"name": "mine", "node": node(), "count": 64, "fabric": fabric(), **fields})


def test_the_fleet_of_the_tutorial():
    mine = Fleet(
        name="512-GPU H100 Cluster",
        node=Node(
            name="DGX H100", accelerator=Hardware.Cloud.H100, accelerators_per_node=8, intra_node_bw=NVLINK_H100_BW
        ),
        count=64,
        fabric=NetworkFabric(name="InfiniBand NDR", bandwidth=INFINIBAND_NDR_BW),
        region=Grids.Quebec,
    )
    assert mine.total_accelerators == 512
    assert mine.effective_pue == 1.06
    assert mine.grid is mine.region


def test_defaults():
    assert (node().nics_per_node, node().psus_per_node) == (1, 2)
    for field in ("nic_bandwidth", "host_power", "max_power", "unit_cost", "cost_date"):
        assert getattr(node(), field) is None
    assert (fabric().topology, fabric().latency, fabric().oversubscription_ratio) == ("fat-tree", None, 1.0)
    assert (fleet().region, fleet().datacenter, fleet().mtbf_hours, fleet().grid) == (None, None, None, None)
    assert fleet().effective_pue == 1.0


def test_a_datacenter_decides_the_pue():
    site = Datacenter(name="site", grid=Grids.Quebec, pue_override=1.3)
    assert fleet(datacenter=site).effective_pue == 1.3
    assert fleet(datacenter=site).grid == Grids.Quebec
    assert fleet(datacenter=site, region=Grids.Quebec).effective_pue == 1.3


def test_a_region_that_contradicts_the_datacenter_is_refused():
    site = Datacenter(name="site", grid=Grids.Poland)
    sentence = r"Fleet 'mine' has region 'Quebec \(Hydro\)' and a datacenter on 'Poland \(Coal\)'; give one of them\.$"
    with pytest.raises(InputError, match=sentence):
        fleet(datacenter=site, region=Grids.Quebec)


def test_names_stand_for_entries():
    assert node(accelerator="H100").accelerator is Hardware.H100
    assert fleet(region="Quebec").region is Grids.Quebec
    with pytest.raises((UnknownNameError, InputError), match="There is no hardware named 'H1000'"):
        node(accelerator="H1000")


def test_adapters_left_open_give_each_accelerator_a_port():
    assert not node().nics_given
    assert fleet().bandwidth_per_accelerator == Q_("400 Gbps")


@pytest.mark.parametrize(("nics", "share"), [(1, 50), (4, 200), (8, 400), (16, 800)])
def test_stated_adapters_are_shared(nics, share):
    stated = node(nics_per_node=nics)
    assert stated.nics_given
    assert fleet(node=stated).bandwidth_per_accelerator.to("Gbps").magnitude == pytest.approx(share)


@pytest.mark.parametrize(
    ("build", "fields", "sentence"),
    [
        (
            node,
            {"intra_node_bw": 900},
            r"^Node: The 'intra_node_bw' field got 900, which has no unit; write its unit too, such as '3.35 TB/s'",
        ),
        (node, {"accelerators_per_node": 0}, r"^Node: the 'accelerators_per_node' field got 0; "),
        (node, {"nics": 8}, r"^Node has no field 'nics'; "),
        (
            fabric,
            {"bandwidth": "400 Gb"},
            r"^NetworkFabric: The 'bandwidth' field got 400 Gb, which is no bandwidth; expected a bandwidth such as '400 Gbps'",
        ),
        (fabric, {"oversubscription_ratio": 0.5}, r"^NetworkFabric: the 'oversubscription_ratio' field got 0.5; "),
        (fleet, {"count": 0}, r"^Fleet: the 'count' field got 0; "),
        (fleet, {"mtbf_hours": 0}, r"^Fleet: the 'mtbf_hours' field got 0; "),
    ],
)
def test_bad_fields_are_refused_in_one_sentence(build, fields, sentence):
    with pytest.raises(InputError, match=sentence):
        build(**fields)


@pytest.mark.parametrize("registry", [Systems.Nodes, Systems.Fabrics, Systems.Clusters], ids=lambda r: r._name)
def test_every_entry_survives_json(registry):
    for entry in registry:
        again = type(entry).model_validate_json(entry.model_dump_json())
        assert again == entry


@pytest.mark.parametrize("stated", [True, False])
def test_json_keeps_whether_adapters_were_stated(stated):
    mine = node(nics_per_node=1) if stated else node()
    assert Node.model_validate_json(mine.model_dump_json(exclude_unset=True)).nics_given is stated


def test_sites_have_the_same_number_of_nodes():
    with pytest.raises(InputError, match=r"^Fleet: 2 sites for 1 node need the same number at each\.$"):
        fleet(count=1, sites=2, wan_bandwidth="1 Gbps", wan_round_trip="1 ms")
