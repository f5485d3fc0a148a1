"""Constants: every one parses and says where it comes from."""

from __future__ import annotations

import datetime

import pytest

from mlsysim.core import constants as documented
from mlsysim.errors import InputError, UnknownNameError
from mlsysim.units.registry import Q_, DimensionalityError
from mlsysim.zoo.constants import Constant, constant, constant_names
from mlsysim.zoo.provenance import KINDS, Metadata, Source


@pytest.mark.parametrize("name", constant_names())
def test_constant_parses_and_has_a_source(name):
    one = constant(name)
    assert one.name == name
    assert one.quantity.magnitude == one.quantity.magnitude
    assert one.meaning.strip() and one.source.title.strip()
    assert one.source.url.startswith("https://")
    assert one.source.kind in KINDS
    datetime.date.fromisoformat(one.source.checked)


def test_known_constants():
    assert constant("nvlink_h100_bandwidth").quantity == Q_("900 GB/s")
    assert constant("default_efficiency").number == 0.5
    with pytest.raises(DimensionalityError):
        constant("dispatch_tax").number


def test_unknown_constant_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="There is no constant named 'dispatch_tx'; did you mean 'dispatch_tax'"):
        constant("dispatch_tx")


def test_a_number_is_not_parsed_as_text():
    source = {"title": "t", "url": "https://x", "checked": "2026-01-01", "kind": "paper"}
    assert Constant(name="n", value=3, meaning="m", source=source).number == 3.0


def test_names_of_the_documents():
    assert f"{documented.NVLINK_H100_BW.to('GB/s'):.0f~}" == "900 GB / s"
    assert f"{documented.INFINIBAND_NDR_BW.to('Gbps'):.0f~}" == "400 Gbps"
    assert Q_("3.35 TB/s") == documented.H100_MEM_BW
    assert 80 * documented.GiB == Q_("80 GiB")
    assert [name for name in dir(documented) if getattr(documented, name, None) is None] == []
    with pytest.raises(UnknownNameError, match="There is no constant named 'NVLINK_H10_BW'; did you mean 'NVLINK_H100"):
        documented.NVLINK_H10_BW


# --- provenance ---------------------------------------------------------------------------------------------------

PAPER = {"title": "A paper", "url": "https://example.org/a", "checked": "2026-02-01", "kind": "paper"}


def test_an_estimate_says_of_what():
    with pytest.raises(InputError, match="the estimate 'A paper' must say what it is an estimate of in 'note'"):
        Source(**{**PAPER, "kind": "estimate"})
    assert Source(**{**PAPER, "kind": "estimate", "note": "of the price"}).note


@pytest.mark.parametrize("change", [{"kind": "rumour"}, {"checked": "yesterday"}, {"checked": "1.2.2026"}])
def test_bad_sources_are_refused(change):
    with pytest.raises(InputError, match=f"'{next(iter(change))}'"):
        Source(**{**PAPER, **change})


def test_the_first_source_speaks_and_the_oldest_check_counts():
    older = Source(**{**PAPER, "title": "B", "checked": "2025-12-31", "kind": "datasheet", "fields": ("tdp",)})
    metadata = Metadata.of("X", (Source(**PAPER), older))
    assert (metadata.source_url, metadata.last_verified, metadata.kind) == (PAPER["url"], "2025-12-31", "paper")
    assert metadata.source_of("tdp").title == "B"
    assert metadata.source_of("memory").title == "A paper"
    assert Metadata().source_of("tdp") is None
