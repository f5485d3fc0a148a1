"""Caches and adapters between a replica and its host, and tiers of prefixes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.serve import serve
from mlsysim.cases.traffic import Traffic
from mlsysim.simulate.host import Host
from mlsysim.simulate.prefixes import Prefixes, Tier
from mlsysim.simulate.record import Record
from mlsysim.simulate.replica import Replica
from mlsysim.simulate.requests import Request
from mlsysim.simulate.scheduling import ENDLESS, Scheduling
from mlsysim.simulate.serving import Settings, simulate
from tests.simulate.test_replica import PlantedRoom, PlantedSteps, _engines, _poisson


def _played(
    requests: list[Request], host: Host | None = None, room: float = 1e9, prefixes: Prefixes | None = None
) -> tuple[Record, Replica]:
    record, steps, planted = Record(len(requests)), PlantedSteps(1e-4, 0.01, 1e-6), PlantedRoom(room)
    plan = Scheduling("mixed", "arrival", 512, ENDLESS, True)
    replica = Replica(steps, planted, plan, record.teller(), prefixes, None, host)  # type: ignore[arg-type]
    for request in requests:
        replica.push(request)
    replica.finish()
    record.settle()
    return record, replica


@given(
    st.lists(
        st.tuples(st.floats(0, 0.2), st.integers(1, 400), st.integers(1, 60), st.sampled_from([None, "a", "b", "c"])),
        min_size=1,
        max_size=60,
    ),
    st.booleans(),
    st.integers(600, 3000),
    st.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_requests_tokens_and_time_are_conserved(drawn: Any, swaps: bool, room: int, places: int) -> None:
    at, requests = 0.0, []
    for gap, prompt, answer, adapter in drawn:
        at += gap
        requests.append(Request(at, prompt, answer, adapter=adapter))
    host = Host(1e6, swaps, places, 1e4)
    record, replica = _played(requests, host, room)
    spent = replica.spent
    assert record.count == len(requests) == spent.ended and spent.wrote == sum(r.answer for r in requests)
    assert spent.read == sum(r.prompt for r in requests) + spent.repeated
    assert spent.of_requests == pytest.approx(record.all["e2e"].total, rel=1e-9, abs=1e-9)
    assert replica.held == pytest.approx(0.0, abs=1e-6) and len(host.resident) <= places
    assert not any(host.resident.values())
    if swaps:
        assert spent.repeated == 0
    assert host.loaded >= len({r.adapter for r in requests} - {None}) or places < 3


def test_a_cache_that_is_swapped_goes_over_the_link_twice() -> None:
    requests = [Request(0.0, 100, 200) for _ in range(10)]
    read, swapped = (_played(requests, Host(1e7, swaps), 1200)[1].spent for swaps in (False, True))
    assert read.repeated > 0 and not swapped.repeated and swapped.preempted > 0
    least = 2 * swapped.preempted * 100 / 1e7
    assert least < swapped.moving < 3 * least


def test_adapters_that_are_resident_cost_nothing_and_others_their_bytes() -> None:
    names = ["a", "b", "c", "a", "b", "c"]
    requests = [Request(100.0 * each, 100, 10, adapter=name) for each, name in enumerate(names)]
    few, many = (_played(requests, Host(1e6, False, places, 5e4))[1] for places in (2, 3))
    assert few.spent.moving == pytest.approx(6 * 0.05) and many.spent.moving == pytest.approx(3 * 0.05)


def test_who_waits_for_an_adapter_does_not_hold_up_those_whose_adapters_are_there() -> None:
    """Two places, both in use: the third adapter waits for one of them, and a further request of the first does not."""
    names = ["a", "b", "c", "a"]
    requests = [Request(0.001 * each, 100, 400 if each < 2 else 10, adapter=name) for each, name in enumerate(names)]
    record, replica = _played(requests, Host(1e9, False, 2, 5e4))
    own, _ = _played([requests[0], requests[1], requests[3]], Host(1e9, False, 2, 5e4))
    # The third adapter waits for the two long answers; the last request comes as soon as if it were not there.
    alone = own.all["ttft"].total
    assert alone < 0.2 < 3.5 < record.all["ttft"].total - alone < 4.5
    assert replica.spent.waits["adapters"] == pytest.approx(
        record.all["queue"].total - own.all["queue"].total, rel=0.02
    )


def test_what_the_device_forgets_is_found_with_the_host_and_then_on_disk() -> None:
    """Three texts of 1,600 tokens in turns, room for one: the host has one, the disk the third."""
    texts = [tuple(range(1000 * each, 1000 * each + 100)) for each in range(3)]
    requests = [Request(10.0 * each, 1601, 2, None, texts[each % 3]) for each in range(30)]
    found = []
    for tiers in ((), (Tier(100, 1e6),), (Tier(100, 1e6), Tier(100, 1e5)), (Tier(1e9, 1e6),)):
        prefixes = Prefixes(16, 16.0, tiers)
        _, replica = _played(requests, None, 1610, prefixes)
        hits = prefixes.hits
        assert sum(hits) == replica.spent.found
        found.append(hits)
    assert found[0] == [0] and found[1][1] == 0
    assert found[2][2] == 27 * 1600
    assert found[3] == [0, 27 * 1600]


def test_a_constant_share_is_that_of_the_closed_form() -> None:
    machine = _engines()
    t = Traffic(2000, 100, rate=2.0, together=1.0, cached=1500, recall=0.004)
    closed = serve(machine, t)
    requests = (r._replace(prompt=2000, answer=100) for r in _poisson(2.0, 2000, lambda d: 1))
    seen = simulate(machine, t, requests, 2000)
    assert seen.found == pytest.approx((0.75,)) and seen.spent.read == 2000 * 500
    assert seen.percentiles["ttft"].mean == pytest.approx(float(closed.ttft), rel=0.08)


def test_hosts_and_disks_of_a_machine() -> None:
    machine, t = _engines(), Traffic(1000, 10, rate=1.0, together=1.0)
    texts = [tuple(range(100_000 * each, 100_000 * each + 600)) for each in range(3)]
    requests = [Request(5.0 * each, 9601, 10, None, texts[each % 3]) for each in range(12)]
    near = simulate(machine, t, requests, 12, Settings(block_tokens=16))
    far = simulate(machine, t, requests, 12, Settings(block_tokens=16, host_memory=1e12, preempts="swap"))
    assert near.found[0] > 0.7 and far.found == pytest.approx((near.found[0], 0.0))
    with pytest.raises(ValueError, match="disk_rate"):
        simulate(machine, t, requests, 12, Settings(block_tokens=16, disk=1e12))
    with pytest.raises(ValueError, match="recompute"):
        simulate(machine, t, requests, 12, Settings(preempts="recomput"))
    named = [request._replace(adapter=str(number % 8)) for number, request in enumerate(requests)]
    some = (_engines(adapters=many, adapter_rank=64) for many in (2, 8))
    few, all_there = (simulate(lora, t, named, 12).spent.moving for lora in some)
    assert few == pytest.approx(1.5 * all_there) and all_there > 0


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.booleans()), max_size=60), st.integers(1, 4))
def test_a_place_is_free_where_fewer_are_there_or_one_is_not_used(moves, places):
    """Counted as it goes, and from all that are there."""
    host, users = Host(1e9, places=places, adapter_bytes=1e6), []
    for adapter, comes in moves:
        free = len(host.resident) < places or not all(host.resident.values())
        assert host.has_place(adapter) == (adapter in host.resident or free)
        before = host.changes
        if comes and host.has_place(adapter):
            host.enters(adapter, 0.0)
            users.append(adapter)
        elif not comes and users:
            host.leaves(users.pop(0))
        if host.changes == before:
            # Those that had no place have none now.
            others = set("abcde") - host.resident.keys()
            assert free or not any(host.has_place(other) for other in others)
    assert len(host.resident) <= places and host.idle == sum(not count for count in host.resident.values())
