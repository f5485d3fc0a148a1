from __future__ import annotations

import pytest

from mlsysim import Q_, Fleet, Hardware, NetworkFabric, Node, Systems
from mlsysim.systems import checks
from mlsysim.systems.registry import Clusters, Fabrics, Nodes
from mlsysim.zoo.registry import has_sources, run_checks

REQUIRED = {
    "Nodes": "DGX_A100 DGX_H100 DGX_H200 DGX_B200 HGX_H100 HGX_H200 HGX_B200 GB200_NVL72 GB300_NVL72 MI300X_8 Trn2_48xlarge",
    "Fabrics": """
        Ethernet_10G Ethernet_25G Ethernet_100G Ethernet_200G Ethernet_400G Ethernet_800G
        InfiniBand_HDR InfiniBand_NDR InfiniBand_XDR NVLink_2 NVLink_3 NVLink_4 NVLink_5 ICI_v4 ICI_v5p
    """,
    "Clusters": """
        Research_256 Production_2K Frontier_8K Mega_100K Meta_16K Meta_24K_RoCE Meta_24K_IB Meta_RSC Selene Eos
        TPU_v4_Pod TPU_v5p_Pod
    """,
}


def test_there_are_enough():
    assert len(Systems.Nodes) + len(Systems.Clusters) >= 25
    assert len(Systems.Nodes) + len(Systems.Fabrics) + len(Systems.Clusters) >= 25


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, names in REQUIRED.items() for n in names.split()])
def test_required_systems_are_there(kind, name):
    entry = getattr(getattr(Systems, kind), name)
    assert entry.metadata.key == name


@pytest.mark.parametrize(
    ("name", "accelerators", "chip"),
    [
        ("Research_256", 256, "H100"),
        ("Production_2K", 2048, "H100"),
        ("Frontier_8K", 8192, "H100"),
        ("Mega_100K", 100_000, "H100"),
        ("Meta_16K", 16_384, "H100"),
        ("Meta_24K_RoCE", 24_576, "H100"),
        ("Meta_RSC", 16_000, "A100"),
        ("Selene", 4480, "A100"),
        ("Eos", 4608, "H100"),
        ("TPU_v4_Pod", 4096, "TPU_v4"),
    ],
)
def test_sizes_of_clusters(name, accelerators, chip):
    cluster = getattr(Systems.Clusters, name)
    assert cluster.total_accelerators == accelerators
    assert cluster.node.accelerator is Hardware[chip]


@pytest.mark.parametrize(
    ("name", "gbps"),
    [
        ("InfiniBand_HDR", 200),
        ("InfiniBand_NDR", 400),
        ("InfiniBand_XDR", 800),
        ("Ethernet_10G", 10),
        ("Ethernet_800G", 800),
    ],
)
def test_port_rates(name, gbps):
    assert getattr(Systems.Fabrics, name).bandwidth.to("Gbps").magnitude == gbps


def test_nvl72_is_180_petaflops_of_dense_bf16():
    rack = Systems.Nodes.GB200_NVL72
    assert rack.accelerators_per_node == 72
    total = rack.accelerators_per_node * rack.accelerator.compute.peak("bf16")
    assert total.to("PFLOPs/s").magnitude == 180


def test_dgx_h100_has_an_adapter_for_each_gpu():
    dgx = Systems.Nodes.DGX_H100
    assert (dgx.accelerators_per_node, dgx.nics_per_node, dgx.nics_given) == (8, 8, True)
    assert dgx.intra_node_bw == Q_("900 GB/s")
    assert dgx.max_power == Q_("10.2 kW")


@pytest.mark.parametrize(
    ("registry", "rules"),
    [
        (Systems.Nodes, checks.NODE_CHECKS),
        (Systems.Fabrics, checks.FABRIC_CHECKS),
        (Systems.Clusters, checks.CLUSTER_CHECKS),
    ],
    ids=lambda x: getattr(x, "_name", ""),
)
def test_nothing_is_wrong_with_any_entry(registry, rules):
    assert [str(problem) for problem in run_checks(registry, rules)] == []


def node(**fields):
    return Node(**{"name": "x", "accelerator": "H100", "intra_node_bw": "900 GB/s", **fields})


FABRIC = NetworkFabric(name="x", bandwidth="400 Gbps")


@pytest.mark.parametrize(
    ("check", "entry", "sentence"),
    [
        (has_sources, node(), "has no source"),
        (
            checks.host_power_is_what_is_left,
            node(host_power="6 kW", max_power="10.2 kW"),
            "host and accelerators draw 11.6 kW, more than the rated 10.2 kW",
        ),
        (checks.adapters_match_the_fabric, node(nic_bandwidth="0.4 Gbps"), "adapters of 0.4 Gbps are not credible"),
        (checks.adapters_match_the_fabric, node(nic_bandwidth="400 TB/s"), "adapters of 3.2e+06 Gbps are not credible"),
        (checks.fabric_rate_is_credible, NetworkFabric(name="x", bandwidth="0.05 Gbps"), "0.05 Gbps is not credible"),
        (checks.fabric_rate_is_credible, NetworkFabric(name="x", bandwidth="10 TB/s"), "8e+04 Gbps is not credible"),
        (
            checks.cluster_size_is_credible,
            Fleet(name="x", node=node(), count=1_000_000, fabric=FABRIC),
            "8000000 accelerators are not credible",
        ),
    ],
)
def test_each_check_catches_a_planted_mistake(check, entry, sentence):
    assert check(entry) == sentence


def test_every_check_has_a_planted_mistake():
    marks = test_each_check_catches_a_planted_mistake.pytestmark
    cases = {case[0] for mark in marks for case in mark.args[1]}
    assert cases == {*checks.NODE_CHECKS, *checks.FABRIC_CHECKS, *checks.CLUSTER_CHECKS}


def test_files_name_other_entries_by_their_keys() -> None:
    """So that the entries which hold another are found without building all of them."""
    for zoo, field, other in (
        (Nodes, "accelerator", Hardware), (Clusters, "node", Nodes), (Clusters, "fabric", Fabrics),
    ):  # fmt: skip
        for key in zoo.keys():  # noqa: SIM118
            assert zoo._store.shipped[key].said(field) in other.keys(), (key, field)  # noqa: SIM118
    assert [n.name for n in Nodes.of("accelerator", "H100")] == [
        n.name for n in Nodes if n.accelerator is Hardware.H100
    ]
    assert [c.name for c in Clusters.of("node", "DGX_H100")] == [c.name for c in Clusters if c.node is Nodes.DGX_H100]
