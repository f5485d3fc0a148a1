"""Wall 10: the worst cut through a network, and the mean distance in it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import InputError, NetworkFabric
from mlsysim.physics.topology import fat_tree_hops, ring_hops
from mlsysim.walls.data.locality import TopologyModel

NDR = "InfiniBand_NDR"
KINDS = ("fat_tree", "rail_optimized", "dragonfly", "dragonfly_plus", "torus_2d", "torus_3d", "switched", "full_mesh")


def solve(fabric=NDR, **inputs):
    return TopologyModel().solve(fabric, **inputs)


def share(topology, nodes, **inputs):
    return solve(topology=topology, num_nodes=nodes, **inputs).bisection_bw_fraction


def cut_links(shape):
    """Links of a torus between the halves of its longest dimension, counted one by one, in one direction."""
    axis = shape.index(max(shape))
    half = shape[axis] // 2
    cut = 0
    for node in itertools.product(*map(range, shape)):
        if node[axis] < half:
            for step in (1, -1):
                cut += (node[axis] + step) % shape[axis] >= half
    return cut


def mean_distance(shape):
    """Mean shortest distance in a torus from one node to all, itself included."""
    nodes = list(itertools.product(*map(range, shape)))
    distance = sum(min(x, k - x) for node in nodes for x, k in zip(node, shape, strict=True))
    return distance / len(nodes)


def test_a_torus_loses_its_share_as_it_grows():
    # The paper has 0.67 at any size. A cube of side k is cut at 2 k^2 links for k^3/2 nodes: 4/k = 4 N^(-1/3).
    for side in (4, 8, 16, 32):
        nodes = side**3
        assert share("torus_3d", nodes) == pytest.approx(4 * nodes ** (-1 / 3))
    assert share("torus_3d", 512) == pytest.approx(0.5)
    assert share("torus_3d", 8) == 1.0
    assert share("torus_2d", 4096) == pytest.approx(4 / 64)


@pytest.mark.parametrize("shape", [(4, 4), (6, 8), (8, 8), (4, 4, 4), (4, 6, 8), (2, 2, 8), (6, 6, 6)])
def test_the_torus_formula_counts_links(shape):
    nodes = len(list(itertools.product(*map(range, shape))))
    expected = min(1.0, cut_links(shape) / (nodes / 2))
    result = solve(topology=f"torus_{len(shape)}d", num_nodes=nodes, shape=shape)
    assert result.bisection_bw_fraction == pytest.approx(expected)
    assert result.hops_avg == pytest.approx(mean_distance(shape))


def test_the_distance_on_odd_rings():
    for length in (1, 3, 5, 7):
        assert ring_hops(float(length)) == pytest.approx(mean_distance((length,)))


def test_a_fat_tree_has_full_bisection_divided_by_its_oversubscription():
    assert share("fat-tree", 4096) == 1.0
    tapered = NetworkFabric(name="tapered", bandwidth="400 Gbps", oversubscription_ratio=4.0)
    result = solve(tapered)
    assert result.bisection_bw_fraction == pytest.approx(0.25)
    assert result.effective_bw.to("Gbps").magnitude == pytest.approx(100)
    assert solve(tapered, oversubscription=2.0).bisection_bw_fraction == pytest.approx(0.5)


def test_bisection_is_half_of_the_nodes_at_the_effective_bandwidth():
    result = solve(topology="torus_3d", num_nodes=512)
    assert result.effective_bw.to("Gbps").magnitude == pytest.approx(200)
    assert result.bisection_bw.to("GB/s").magnitude == pytest.approx(256 * 25)


def test_a_balanced_dragonfly_sends_half_of_its_global_links_to_the_other_half():
    # g groups of n nodes, one global link a node: (g/2) n (g/2)/(g-1) links cross, for g n / 2 nodes.
    assert share("dragonfly", 4096) == 0.5
    for groups, nodes in ((2, 4096), (9, 4096), (65, 4160)):
        crossing = (groups / 2) * (nodes / groups) * (groups / 2) / (groups - 1)
        assert share("dragonfly", nodes, groups=groups) == pytest.approx(min(1.0, crossing / (nodes / 2)))
    assert share("dragonfly+", 4096) == share("dragonfly_plus", 4096) == 0.5


def test_frontier_s_taper_leaves_58_per_cent_to_uniform_traffic():
    # Published: global bandwidth is 57 % of what the nodes inject (blocking factor 1.753), 74 groups.
    result = solve("Slingshot_11_Frontier", num_nodes=9408, groups=74)
    assert result.uniform_traffic_fraction == pytest.approx(1 / 1.753, rel=0.02)
    assert result.topology == "dragonfly"


def test_a_dragonfly_takes_three_hops():
    assert solve(topology="dragonfly").hops_avg == 3
    assert solve(topology="dragonfly+").hops_avg == 3


def test_hops_of_a_fat_tree_count_its_levels():
    # 64-port switches: 32 nodes under a leaf, 1,024 in a pod.
    assert solve(num_nodes=32).hops_avg == 0
    assert solve(num_nodes=1024).hops_avg == pytest.approx(2 * 992 / 1023)
    assert solve(num_nodes=4096).hops_avg == pytest.approx((2 * 992 + 4 * 3072) / 4095)
    assert fat_tree_hops(1e9, 32.0, 1024.0) == pytest.approx(4.0, rel=1e-5)


def test_rails_keep_more_nodes_under_one_leaf():
    tree = solve(topology="fat-tree", num_nodes=32, ports_per_node=8)
    rails = solve(topology="rail-optimised", num_nodes=32, ports_per_node=8)
    assert rails.hops_avg == 0 < tree.hops_avg
    assert rails.bisection_bw_fraction == tree.bisection_bw_fraction


def test_the_fabric_s_own_topology_is_used_and_echoed():
    result = solve("ICI_v4", num_nodes=4096)
    assert result.topology == "torus_3d"
    assert "3d-torus" in result.assumptions["topology"]
    assert solve(topology="fat_tree").topology == "fat_tree"


def test_nvlink_counts_one_direction():
    result = solve("NVLink_4", num_nodes=8)
    assert result.effective_bw.to("GB/s").magnitude == pytest.approx(450)
    assert "both directions" in result.assumptions["link"]


def test_spellings_of_a_topology_agree():
    for one, other in (
        ("fat-tree", "fat_tree"),
        ("3d-torus", "torus_3d"),
        ("Torus 2D", "torus_2d"),
        ("clos", "fat_tree"),
    ):
        assert solve(topology=one).topology == solve(topology=other).topology


def test_a_single_node_has_no_cut():
    for kind in KINDS:
        result = solve(topology=kind, num_nodes=1)
        assert result.bisection_bw_fraction == 1.0
        assert result.hops_avg == 0.0


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"topology": "hypercube"}, "use one of fat_tree"),
        ({"topology": 3}, "use one of fat_tree"),
        ({"fabric": "PCIe_Gen5_x16"}, "known bisection"),
        ({"num_nodes": 0}, "at least 1"),
        ({"topology": "dragonfly", "groups": 100}, "more than the 64 nodes"),
        ({"shape": (4, 4, 4)}, "shape of a torus"),
        ({"topology": "torus_3d", "shape": "4x4x5"}, "no torus of 3 dimensions and 64 nodes"),
        ({"topology": "torus_3d", "shape": "wide"}, "must be lengths"),
        ({"oversubscription": 0.5}, "at least 1"),
    ],
)
def test_errors_name_the_remedy(inputs, words):
    with pytest.raises(InputError, match=words):
        solve(**inputs)


@given(st.sampled_from(KINDS), st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_larger_machine_never_has_a_larger_share(kind, a, b):
    few, many = sorted((a, b))
    assert share(kind, many) <= share(kind, few) + 1e-9
    assert 0 < share(kind, many) <= 1


@given(st.sampled_from(KINDS), st.integers(1, 10**5), st.floats(1, 100), st.floats(1, 100))
def test_oversubscription_never_helps(kind, nodes, a, b):
    low, high = sorted((a, b))
    assert share(kind, nodes, oversubscription=high) <= share(kind, nodes, oversubscription=low)
