"""A fleet in one string."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.systems.fleet_text import parse_fleet


@pytest.mark.parametrize(
    ("text", "accelerators", "nodes", "fabric"),
    [
        ("512xH100", 512, 64, "InfiniBand NDR"),
        ("64xDGX_H100@NDR", 512, 64, "InfiniBand NDR"),
        ("H100", 1, 1, None),
        ("1,024 x h100", 1024, 128, None),
        ("Meta_16K", 16384, 2048, None),
        ("3xRTX_4090", 3, 1, None),
        ("16xTPU_v5p", 16, 4, None),
        ("16 nodes of H100", 128, 16, "InfiniBand NDR"),
        ("4 H100 nodes", 32, 4, None),
        ("2 nodes of RTX_4090", 8, 2, None),
        ("4 nodes of p5.48xlarge", 32, 4, None),
        ("2 nodes of 8xH100", 16, 2, None),
        ("8x2xA100_PCIe_80GB", 16, 8, None),
        ("4 servers with 2 x L40S@NDR", 8, 4, "InfiniBand NDR"),
        ("5x3xRTX_4090", 15, 5, None),
        ("8x4xGB200", 32, 1, None),
        ("2x16xH100", 32, 4, None),
    ],
)
def test_what_strings_mean(text: str, accelerators: int, nodes: int, fabric: str | None) -> None:
    fleet = parse_fleet(text).one
    assert (fleet.total_accelerators, fleet.count) == (accelerators, nodes)
    assert fabric is None or fleet.fabric.name == fabric


def test_groups_add_up_and_have_no_one() -> None:
    groups = parse_fleet("8xB200 + 16xH100@NDR + A100")
    assert groups.accelerators == 25 and len(groups.fleets) == 3
    with pytest.raises(InputError):
        _ = groups.one


def test_part_of_a_node_has_its_share() -> None:
    half, whole = parse_fleet("4xH100").one.node, parse_fleet("8xH100").one.node
    assert half.accelerators_per_node == 4 and half.nics_per_node * 2 == whole.nics_per_node
    assert half.host_power is None or half.host_power * 2 == whole.host_power


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "512xH100"),
        ("0xH100", "from 1"),
        ("10000000000xH100", "from 1"),
        ("9xH100", "use 8 or 16"),
        ("8xH1000", "did you mean"),
        ("8xH100@Infinband_NDR", "did you mean"),
        ("4xMeta_16K", "whole cluster"),
        ("+".join(["H100"] * 9), "at most 8"),
        ("8xH100 + @NDR", "not a group"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_fleet(text)
    assert said in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_fleet_or_a_sentence(text: str) -> None:
    try:
        assert parse_fleet(text).accelerators >= 1
    except InputError as error:
        assert "\n" not in str(error).strip()
