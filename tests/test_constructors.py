"""What cannot be is refused where it is made, with one sentence: rates of zero, unknown topologies, impossible experts, heads
that do not divide, and numbers that are none."""

from __future__ import annotations

import math
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlsysim.ask import train
from mlsysim.errors import DataWarning, InputError, MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.registry import build as build_chip
from mlsysim.hardware.types import ChipLink, ComputeCore, HardwareNode, MemoryHierarchy, Reliability
from mlsysim.infra.registry import Facilities, Grids
from mlsysim.infra.types import Facility, GridProfile, Rack
from mlsysim.models.attention import CSA, MLA
from mlsysim.models.recurrent import LinearAttention, Mamba
from mlsysim.models.registry import Models
from mlsysim.models.registry import build as build_model
from mlsysim.models.sparse import SparseTransformerWorkload
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.topology import INSIDE, SPELLINGS, TITLES
from mlsysim.plans.plan import Plan
from mlsysim.systems.registry import Clusters, Fabrics, Nodes
from mlsysim.systems.types import Fleet, NetworkFabric, Node
from mlsysim.units.registry import Q_

H100 = Hardware.get("H100")
SOURCE = {"title": "x", "url": "https://example.com", "checked": "2026-01-01", "kind": "user"}
BAD_RATES = st.one_of(
    st.just(0.0), st.floats(max_value=-1e-300, allow_infinity=True), st.just(math.inf), st.just(math.nan)
)


def one_sentence(make, *arguments, **fields):
    with pytest.raises(InputError) as caught:
        make(*arguments, **fields)
    text = str(caught.value)
    assert text.endswith((".", "?", "one.)")) and "\n" not in text and "Traceback" not in text and len(text) < 400
    return text


@given(BAD_RATES)
def test_rates_are_above_zero_and_finite(number):
    def rate(unit):
        return {"magnitude": number, "unit": unit}

    one_sentence(ComputeCore, peak_flops=rate("TFLOPs/s"))
    one_sentence(ComputeCore, peak_flops="1 TFLOPs/s", precision_flops={"fp8": rate("TFLOPs/s")})
    one_sentence(MemoryHierarchy, capacity="1 GB", bandwidth=rate("GB/s"))
    one_sentence(MemoryHierarchy, capacity=rate("GB"), bandwidth="1 GB/s")
    one_sentence(ChipLink, name="x", bandwidth_total=rate("GB/s"), bandwidth_per_direction=rate("GB/s"))
    one_sentence(HardwareNode, name="x", compute=H100.compute, memory=H100.memory, tdp=rate("W"))
    one_sentence(Reliability, mtbf=rate("h"))
    one_sentence(Node, name="x", accelerator=H100, intra_node_bw=rate("GB/s"))
    one_sentence(NetworkFabric, name="x", bandwidth=rate("Gbps"))
    one_sentence(Rack, name="x", power=rate("W"))
    one_sentence(TransformerWorkload, name="x", layers=2, parameters=number)
    for key in ("peak_flops", "memory_bandwidth", "memory_capacity", "link_bandwidth", "fabric_bandwidth", "tdp"):
        unit = {"peak_flops": "TFLOPs/s", "memory_capacity": "GB", "tdp": "W"}.get(key, "GB/s")
        one_sentence(
            Plan,
            task="inference",
            workload={"model": "Llama3_8B"},
            hardware={"on": "H100", "chip": {key: rate(unit)}},
        )


@given(st.sampled_from([math.nan, math.inf, -math.inf, -1.0]))
def test_plain_numbers_are_finite(number):
    fabric = NetworkFabric(name="x", bandwidth="1 Gbps")
    node = Node(name="x", accelerator=H100, intra_node_bw="1 GB/s")
    one_sentence(Facility, name="x", pue=number)
    one_sentence(GridProfile, name="x", carbon_intensity_g_kwh=number, pue=1.1)
    one_sentence(NetworkFabric, name="x", bandwidth="1 Gbps", oversubscription_ratio=number)
    one_sentence(Fleet, name="x", node=node, count=1, fabric=fabric, mtbf_hours=number)
    one_sentence(TransformerWorkload, name="x", layers=2, extra_parameters=number)
    one_sentence(SparseTransformerWorkload, name="x", layers=2, experts=4, routing_imbalance=number)
    one_sentence(Mamba, expand=number)


@given(st.text(max_size=20))
@settings(suppress_health_check=[HealthCheck.filter_too_much])
def test_topologies_are_known(name):
    known = {*TITLES, *SPELLINGS, *INSIDE}
    if name.lower().replace("-", "_").replace(" ", "_") not in known:
        assert "topology" in one_sentence(NetworkFabric, name="x", bandwidth="1 Gbps", topology=name)


@pytest.mark.parametrize("name", ["fat-tree", "3D torus", "Dragonfly+", "leaf-spine", "point-to-point"])
def test_known_topologies_are_taken_in_all_spellings(name):
    assert NetworkFabric(name="x", bandwidth="1 Gbps", topology=name).topology == name


SIZES = {"name": "x", "layers": 4, "hidden_dim": 64, "heads": 4, "ffn_dim": 128, "vocab_size": 100}


@given(experts=st.integers(1, 64), more=st.integers(1, 64))
def test_no_more_experts_serve_a_token_than_there_are(experts, more):
    fields = {**SIZES, "experts": experts, "active_experts_per_token": experts + more}
    assert "is impossible" in one_sentence(SparseTransformerWorkload, **fields)
    assert "is impossible" in one_sentence(build_model, "x", {"kind": "moe", "source": SOURCE, **fields})
    SparseTransformerWorkload(**{**fields, "active_experts_per_token": experts})


@given(st.floats(0.01, 99.0).filter(lambda x: x != int(x)))
def test_experts_and_layers_are_whole(number):
    one_sentence(SparseTransformerWorkload, **{**SIZES, "experts": number})
    one_sentence(SparseTransformerWorkload, **{**SIZES, "experts": 8, "active_experts_per_token": number})
    one_sentence(TransformerWorkload, **{**SIZES, "layers": number})


@given(heads=st.integers(1, 64), kv_heads=st.integers(1, 64), hidden=st.integers(1, 512))
def test_heads_divide(heads, kv_heads, hidden):
    fields = {**SIZES, "heads": heads, "kv_heads": kv_heads, "hidden_dim": hidden}
    if heads % kv_heads or hidden % heads:
        assert "divide" in one_sentence(TransformerWorkload, **fields)
        assert "divide" in one_sentence(build_model, "x", {"kind": "transformer", "source": SOURCE, **fields})
    else:
        TransformerWorkload(**fields)


@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (SparseTransformerWorkload, {**SIZES, "experts": 4, "dense_layers": 5}),
        (SparseTransformerWorkload, {"name": "x", "experts": 4, "parameters": 1e9, "active_parameters": 2e9}),
        (SparseTransformerWorkload, {**SIZES, "experts": 4, "active_parameters": 1e15}),
        (TransformerWorkload, {**SIZES, "norms_per_layer": -1}),
        (TransformerWorkload, {**SIZES, "layers": True}),
        (MLA, {"kv_lora_rank": 0, "qk_nope_head_dim": 1, "qk_rope_head_dim": 1, "v_head_dim": 1}),
        (LinearAttention, {"key_heads": 3, "value_heads": 4, "key_head_dim": 8, "value_head_dim": 8}),
        (Mamba, {"state_size": 0}),
        (ChipLink, {"name": "x", "bandwidth_total": "900 GB/s", "bandwidth_per_direction": "900 GB/s"}),
    ],
)
def test_what_is_impossible(make, fields):
    one_sentence(make, **fields)


def test_compression_ratios_have_their_counts():
    ranks = dict.fromkeys(
        ("q_lora_rank", "o_lora_rank", "o_groups", "window", "topk", "index_heads", "index_head_dim"), 1
    )
    one_sentence(CSA, **ranks, compress_ratios=(4, 128), compress_counts=(1,))
    csa = CSA(**ranks, compress_ratios=(4, 128), compress_counts=(1, 9))
    assert "add up to 10" in one_sentence(TransformerWorkload, **SIZES, csa=csa)


@pytest.mark.parametrize("field", ["peak", "bandwidth"])
def test_a_table_of_a_file_is_refused_alike(field):
    rates = {"peak": "100 TFLOPs/s", "bandwidth": "1 TB/s"} | {field: "0 " + {"peak": "TFLOPs/s"}.get(field, "TB/s")}
    compute = {"fp16": rates["peak"], "headline": "fp16"}
    memory = {"capacity": "8 GB", "bandwidth": rates["bandwidth"]}
    assert "which is zero" in one_sentence(
        build_chip, "x", {"name": "x", "compute": compute, "memory": memory, "source": SOURCE}
    )


JUNK = st.sampled_from(
    [0, -1, 3, 0.5, math.nan, math.inf, 1e308, 10**30, "", "abc", "0 GB", "5 GB/s", "1e400 GB", [], {}, None, True, b"x", ["a"],
     {"magnitude": math.nan, "unit": "GB"}, {"magnitude": 1, "unit": "furlong"}, "fat-tree", 65536, object()]
)  # fmt: skip
NETWORKS = (
    "Llama3_8B",
    "DeepSeek_V3",
    "Gemma4_E2B",
    "Jamba_v0_1",
    "T5_Base",
    "Whisper_Small",
    "ViT_B_16",
    "DLRM_MLPerf",
)
MADE = [Models.get(name) for name in NETWORKS]
MADE += [
    H100,
    H100.compute,
    H100.memory,
    H100.link,
    *(next(iter(zoo)) for zoo in (Nodes, Fabrics, Clusters, Facilities, Grids)),
]


@given(made=st.sampled_from(MADE), data=st.data())
@settings(max_examples=400, deadline=None)
def test_a_constructor_makes_what_is_finite_or_says_one_sentence(made, data):
    """Whatever a field is given: an entry with finite counts, caches and operations, or the documented error."""
    kind = type(made)
    fields = {name: getattr(made, name) for name in kind.model_fields}
    for name in data.draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=3)):
        fields[name] = data.draw(JUNK)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            again = kind(**fields)
            if isinstance(again, TransformerWorkload) and again.has_dimensions:
                work = again.lower("prefill", seq_len=16)
                found = [again.get_kv_cache_size(100).magnitude, sum(op.flops * op.count for op in work.operators)]
                assert all(math.isfinite(number) and number >= 0 for number in (*found, again.parameter_count))
    except MLSysError as error:
        assert "\n" not in str(error) and str(error)[-1] in ".?)"


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ({"bandwidth": "0 TB/s"}, "The 'bandwidth' field got 0 TB/s, which is zero"),
        ({"bandwidth": 6}, "The 'bandwidth' field got 6, which has no unit"),
        ({"flash_bandwidth": "-1 GB/s"}, "The 'flash_bandwidth' field got -1 GB/s, which is negative"),
        ({"bandwith": "6 TB/s"}, "MemoryHierarchy has no field 'bandwith'; did you mean 'bandwidth'"),
    ],
)
def test_a_changed_copy_is_read_as_a_record_is(update, words):
    assert one_sentence(H100.memory.model_copy, update=update).startswith(words)


@pytest.mark.parametrize(
    ("made", "field", "given", "words"),
    [
        (Models.Llama3_8B, "layers", -1, "TransformerWorkload: the 'layers' field got -1; expected more than 0"),
        (Models.Llama3_8B, "vocab_size", 0, "TransformerWorkload: the 'vocab_size' field got 0; expected more than 0"),
        (Models.Llama3_8B, "layers", True, "'layers' must be a number, got True"),
        (Models.DeepSeek_V3.mla, "q_lora_rank", 0, "MLA: the 'q_lora_rank' field got 0; expected more than 0"),
        (Models.DLRM_MLPerf, "embedding_rows", (5, 0), "RecommendationWorkload: the 'embedding_rows.1' field got 0"),
        (Nodes.DGX_H100, "nics_per_node", math.nan, "Node: the 'nics_per_node' field got nan; expected a number"),
    ],
)
def test_numbers_of_a_changed_copy_are_read_as_those_of_a_record(made, field, given, words):
    assert one_sentence(made.model_copy, update={field: given}).startswith(words)


@pytest.mark.parametrize(
    ("made", "update", "words"),
    [
        (Models.Llama3_8B, {"kv_heads": 7}, "Llama-3.1-8B: 32 heads do not divide into 7 key-value heads"),
        (Models.Mixtral_8x7B, {"experts": 1}, "Mixtral-8x7B-v0.1: 2 active experts of 1 is impossible"),
        (Clusters.Meta_16K, {"sites": 2}, "2 sites for 2,048 nodes need the bandwidth and the round trip"),
        (
            LinearAttention(key_heads=4, value_heads=8, key_head_dim=64, value_head_dim=64),
            {"key_heads": 3},
            "8 value heads do not divide into 3 key heads.",
        ),
    ],
)
def test_rules_across_fields_hold_of_a_changed_copy(made, update, words):
    assert one_sentence(made.model_copy, update=update).startswith(words)


@pytest.mark.parametrize("number", [1e41, 10**400])
def test_what_is_beyond_floats_is_beyond_anything_physical(number):
    assert "beyond anything physical" in one_sentence(TransformerWorkload, **{**SIZES, "norms_per_layer": number})
    assert "beyond anything physical" in one_sentence(TransformerWorkload, name="x", layers=2, parameters=number)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"chip": {"memory_bandwidth": "1e-320 B/s"}}, "memory_bandwidth' field got 1×10⁻³²⁰ B/s, which is as good as zero"),
        ({"tokens": 1e-320}, "tokens' field got '1e-320'; expected a positive number"),
        ({"efficiency": 1e-300}, "'efficiency' input of ParallelismOptimizer is 1e-300, beyond anything physical"),
    ],
)  # fmt: skip
def test_what_is_as_good_as_zero_is_refused(keys, words):
    assert words in one_sentence(train, "Llama3_8B", on="16xH100", **keys)


def test_a_whole_number_beyond_floats_is_not_finite():
    written = {"magnitude": 10**400, "unit": "GB"}
    assert "got 1e400, which is not a finite number" in one_sentence(
        MemoryHierarchy, capacity=written, bandwidth="1 GB/s"
    )


@pytest.mark.parametrize("field", ["bottom_mlp", "top_mlp", "embedding_rows"])
def test_a_recommender_has_layers_and_rows(field):
    made = Models.DLRM_MLPerf
    fields = {name: getattr(made, name) for name in made.model_fields_set}
    assert "a list that is not empty" in one_sentence(type(made), **{**fields, field: ()})
    one_sentence(type(made), **{**fields, field: (0, *getattr(made, field)[1:])})


def test_a_changed_copy_reads_words():
    assert H100.memory.model_copy(update={"bandwidth": "6 TB/s"}).bandwidth == Q_("6 TB/s")
    assert H100.model_copy(update={"tdp": None}).tdp is None
