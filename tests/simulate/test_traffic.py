"""Loads that are drawn: what was asked for is what comes, within sampling error."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import chain, islice, pairwise
from math import sqrt

import pytest

from mlsysim.errors import InputError
from mlsysim.simulate.requests import in_order
from mlsysim.simulate.traffic import Even, Fixed, Load, Observed, Spread, Tenant, profiles

LENGTHS = (Fixed(500), Fixed(100))


def moments(values):
    """Mean, its sampling error, and coefficient of variation."""
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / len(values)
    return mean, sqrt(variance / len(values)), sqrt(variance) / mean


@pytest.mark.parametrize("burst", [0.0, 0.5, 1.0, 3.0])
def test_rate_and_bursts(burst):
    """cv of the gaps within 5 %: its own sampling error is below 2 % here."""
    requests = list(chain.from_iterable(in_order(Load(5.0, *LENGTHS, burst=burst, count=40_000).requests(1))))
    mean, error, cv = moments([b.arrival - a.arrival for a, b in pairwise(requests)])
    assert len(requests) == 40_000
    assert abs(mean - 0.2) <= 4 * error + 1e-9
    assert cv == pytest.approx(burst, rel=0.05, abs=1e-6)


def test_bursts_do_not_bring_more_requests():
    """A stationary process has rate x duration requests on average; one that starts with a gap has (cv^2 - 1) / 2 = 7.5 more."""
    load = Load(1.0, *LENGTHS, burst=4.0, duration=100.0)
    counts = [sum(1 for _ in load.requests(seed)) for seed in range(1500)]
    mean, error, _ = moments(counts)
    assert abs(mean - 100) < 3 * error < 4


@pytest.mark.parametrize(
    ("lengths", "mean", "cv"),
    [
        (Fixed(7), 7, 0),
        (Spread(1000, 1.0), 1000, 1.0),
        (Spread(3, 0.8), 3, 0.8),
        (Spread(2.5, 0.0), 2.5, 0.2),
        (Even(1000, 0.5), 750, 0.1926),
        (Observed((10, 10, 40)), 20, sqrt(0.5)),
    ],
)
def test_lengths(lengths, mean, cv):
    requests = list(Load(5.0, lengths, lengths, count=30_000).requests(2))
    for values in ([r.prompt for r in requests], [r.answer for r in requests]):
        found, error, spread = moments(values)
        assert min(values) >= 1
        assert abs(found - mean) <= 4 * error
        assert spread == pytest.approx(cv, rel=0.05)
    assert lengths.mean == pytest.approx(mean)


def test_hours_of_the_day():
    """Requests of an hour are as its factor says, a factor of zero brings none, and the mean rate stays."""
    hours = (0.0, 1.0, 3.0)
    requests = list(chain.from_iterable(in_order(Load(2.0, *LENGTHS, hours=hours, duration=24 * 3600).requests(3))))
    assert len(requests) == pytest.approx(2.0 * 86_400, abs=4 * sqrt(2.0 * 86_400))
    found = Counter(int(r.arrival // 3600) % 3 for r in requests)
    assert found[0] == 0
    assert found[2] / found[1] == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize("name", ["servegen-large", "servegen-small", "servegen-reasoning"])
def test_profiles_are_days(name):
    assert len(profiles(name)) == 24
    assert sum(profiles(name)) / 24 == pytest.approx(1, abs=0.002)
    with pytest.raises(InputError, match="no profile of a day named 'servegen-huge'; did you mean"):
        profiles("servegen-huge")


def test_a_conversation_repeats_what_was_said():
    load = Load(5.0, Spread(200, 0.5), Spread(100, 0.5), turns=4, think=30.0, duration=4000.0)
    requests = list(chain.from_iterable(in_order(load.requests(4))))
    said = {}
    for r in requests:
        if r.session in said:
            before = said[r.session]
            assert r.prompt > before.prompt + before.answer
            assert r.blocks[: len(before.blocks)] == before.blocks
        assert len(r.blocks) == (r.prompt + r.answer) // 16
        said[r.session] = r
    # As many from the first minute on: conversations have been going on before.
    assert sum(r.arrival < 1000 for r in requests) == pytest.approx(5000, abs=4 * sqrt(5000 * 4))
    mean, _, _ = moments([r.prompt for r in requests])
    assert mean == pytest.approx(load.mean_prompt, rel=0.05)
    own = {block for r in requests for block in r.blocks}
    assert len(own) == sum(len(r.blocks) for r in said.values())


def test_shared_prefixes():
    load = Load(5.0, Spread(1000, 0.5), Fixed(10), prefixes=3, prefix_share=0.5, count=3000)
    requests = list(load.requests(5))
    groups = Counter(r.blocks[0] for r in requests if r.blocks)
    assert len(groups) == 3 and min(groups.values()) > 850
    for r in requests:
        assert len(r.blocks) == int(r.prompt * 0.5) // 16
        assert r.blocks == tuple(range(r.blocks[0], r.blocks[0] + len(r.blocks))) if r.blocks else True
    talk = Load(5.0, Fixed(100), Fixed(28), turns=2, think=9.0, prefixes=1, prefix_share=0.5, count=50)
    both = [r for r in talk.requests(1) if r.prompt > 200]
    assert len({r.blocks[:3] for r in both}) == 1 and len({r.blocks[3] for r in both}) == len(both)


def test_tenants():
    tenants = (Tenant("chat", 3.0, priority=1), Tenant("batch", 1.0, adapter="law"))
    found = Counter(
        (r.tenant, r.priority, r.adapter) for r in Load(5.0, *LENGTHS, tenants=tenants, count=8000).requests()
    )
    assert found.keys() == {("chat", 1, None), ("batch", 0, "law")}
    assert found["chat", 1, None] == pytest.approx(6000, abs=4 * sqrt(1500))


def test_what_does_not_fit_is_cut():
    requests = list(Load(5.0, Spread(500, 2.0), Spread(500, 2.0), context=1000, count=3000).requests())
    assert max(r.prompt + r.answer for r in requests) == 1000
    assert min(min(r.prompt, r.answer) for r in requests) >= 1


def test_requests_are_drawn_when_they_are_asked_for():
    assert len(list(islice(Load(5.0, *LENGTHS).requests(), 10))) == 10


def test_other_lengths_do_not_change_arrivals():
    one, two = (Load(5.0, prompt, Fixed(1), count=50) for prompt in (Fixed(7), Spread(900, 1.5)))
    assert [r.arrival for r in one.requests(3)] == [r.arrival for r in two.requests(3)]


def test_the_same_seed_gives_the_same_bytes():
    """The hash is the same on every platform and in the browser; a change here changes everybody's answers."""
    load = Load(
        7.0, Spread(800, 1.2), Even(200, 0.3), burst=2.5, hours=profiles("servegen-small"), turns=3, think=20.0,
        prefixes=5, prefix_share=0.2, tenants=(Tenant("a", 1.0), Tenant("b", 2.0)), context=4000, count=5000,
    )  # fmt: skip
    assert list(load.requests(1)) == list(load.requests(1)) != list(load.requests(2))
    digest = hashlib.sha256(repr([tuple(r) for r in load.requests(1)]).encode()).hexdigest()
    assert digest == "37ac7e734d1f3c4c54dc851ac1a429f34bfb0a3107b36d4ba47ac0f158b488fd"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: Load(0.0, *LENGTHS), "rate is above 0 requests a second, got 0.0"),
        (lambda: Load(1.0, *LENGTHS, burst=-1.0), "the cv of the gaps, lies between 0 and 100"),
        (lambda: Load(1.0, *LENGTHS, hours=(0.0, 0.0)), "one of them is above 0"),
        (lambda: Load(1.0, *LENGTHS, count=0), "1 request or more"),
        (lambda: Load(1.0, *LENGTHS, duration=0.0), "duration is above 0 s"),
        (lambda: Load(1.0, *LENGTHS, turns=0), "1 turn or more"),
        (lambda: Load(1.0, *LENGTHS, turns=2), "Turns need think"),
        (lambda: Load(1.0, *LENGTHS, prefix_share=2.0), "between 0 and 1"),
        (lambda: Load(1.0, *LENGTHS, prefixes=2), "given by both"),
        (lambda: Load(1.0, *LENGTHS, tenants=(Tenant("a", 0.0),)), "share of each tenant"),
        (lambda: Load(1.0, *LENGTHS, context=1), "room for 2 tokens"),
        (lambda: Load(1.0, *LENGTHS, block_tokens=0), "A block has 1 token or more"),
        (lambda: Fixed(0), "whole number from 1, got 0"),
        (lambda: Spread(0.5, 1.0), "1 token or more, got 0.5"),
        (lambda: Spread(5, -1.0), "between 0 and 20"),
        (lambda: Even(0, 0.5), "1 token or more, got 0"),
        (lambda: Even(10, 1.5), "range_ratio lies between 0 and 1"),
        (lambda: Observed(()), "a list of whole numbers from 1"),
    ],
)
def test_what_makes_no_load_gets_a_sentence(wrong, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        wrong()
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("burst", (0.0, 0.5, 1.0, 3.0))
def test_requests_of_some_replicas_come_as_those_of_all_do(burst):
    """Two of every seven: as often, and the times from one round to the next spread as seven gaps do."""
    some = [each.arrival for each in Load(7.0, Fixed(10), Fixed(10), burst, count=40_000, dealt=(2, 7)).requests(3)]
    assert len(some) / some[-1] == pytest.approx(2.0, rel=0.03)
    rounds = [after - before for before, after in zip(some[::2], some[2::2], strict=False)]
    mean = sum(rounds) / len(rounds)
    spread = sum((each - mean) ** 2 for each in rounds) / len(rounds)
    assert spread == pytest.approx(7 * (burst / 7.0) ** 2, rel=0.1, abs=1e-12)


def test_one_turn_of_a_conversation_is_not_dealt_away():
    with pytest.raises(InputError, match="single turns"):
        Load(1.0, Fixed(10), Fixed(10), turns=3, think=1.0, dealt=(1, 4))


def test_lengths_of_one_token_on_average_are_one() -> None:
    drawn = list(Load(3.0, Spread(1.0, 1.0), Spread(90.0, 0.5), count=200).requests(1))
    assert {request.prompt for request in drawn} == {1} and len({request.answer for request in drawn}) > 20
