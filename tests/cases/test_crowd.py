"""The wait for room: its limits, and the closed form beside the play of each request near saturation."""

import math
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.algebra import PLAIN
from mlsysim.cases.crowd import Crowd
from mlsysim.cases.traffic import Habits, Traffic
from mlsysim.cases.turns import Turns
from mlsysim.physics.queueing import mean_wait, mmc_wait
from mlsysim.plans.resolve import find_model
from mlsysim.simulate.serving import simulate
from mlsysim.simulate.settings import Settings
from mlsysim.simulate.traffic import Fixed, Load, Spread
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.walls.node.serving import ServingModel

LONG = 1e9


def slots(places, cv, prompt=1.0, answer=100.0):
    """Slots, each of which is held for an answer, and steps of the same length whatever their number is."""
    return Crowd(Traffic(prompt, answer, rate=1.0, habits=Habits(length_cv=cv)), places, True, False, 1.0)


def wait_of(crowd, n, rate, fastest, read=0.0):
    return crowd.waiting(crowd.waits(n, read), rate, fastest, 1.0, PLAIN)


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("load", [0.1, 0.5, 0.9])
def test_one_place_is_a_server_as_pollaczek_and_khinchine_have_it(load, cv):
    assert wait_of(slots(1.0, cv), load, load, 1.0) == pytest.approx(mean_wait(load, 1.0, 1, cv))


@pytest.mark.parametrize("places", [2, 10, 100])
@pytest.mark.parametrize("load", [0.5, 0.9])
def test_slots_for_lengths_that_vary_as_exponential_ones_are_erlangs(places, load):
    offered = load * places
    assert wait_of(slots(float(places), 1.0), offered, offered, float(places)) == pytest.approx(
        mmc_wait(offered, 1.0, places)
    )


@settings(max_examples=100, deadline=None)
@given(
    st.floats(2, 500), st.floats(0.05, 0.98), st.floats(0, 1), st.floats(0, 0.9), st.floats(0, 0.9), st.floats(1, 1.9)
)
def test_more_wait_where_more_are_there_lengths_vary_or_prompts_take_more(places, load, cv, read, more, grows):
    def caches(cv):
        t = Traffic(2000.0, 300.0, rate=1.0, habits=Habits(length_cv=cv))
        return Crowd(t, places, False, False, grows, read)

    waits, few = caches(cv).waits(load * places, read), 0.9 * load
    assert 0 <= caches(cv).waits(few * places, read) <= waits <= 1
    assert waits <= caches(cv).waits(load * places, max(read, more)) * (1 + 1e-9)
    assert 1 - 1e-9 <= caches(cv).squares <= caches(cv + 0.2).squares
    assert wait_of(caches(cv), few * places, few, 1.0, read) <= wait_of(caches(cv), load * places, load, 1.0, read)


def asked(model, on, prompt, answer, rate, cv, **more):
    fleet = parse_fleet(on).one
    given = {"seq_len": prompt, "output_len": answer, "tp_size": fleet.total_accelerators, "arrival_rate": rate, **more}
    given |= {} if cv is None else {"length_cv": cv}
    return ServingModel().solve(find_model(model), fleet.node.accelerator, efficiency="calibrated", **given)


@pytest.mark.parametrize(
    ("model", "on", "prompt", "answer", "more", "cv"),
    [
        ("Llama3_70B", "4xH100", 8000, 200, {}, None),
        ("Llama3_70B", "4xH100", 8000, 200, {}, 1.0),
        ("Llama3_70B", "4xH100", 2000, 300, {}, 1.0),
        ("Llama3_8B", "1xH100", 2000, 300, {"chunk_tokens": 512}, 1.0),
        ("Llama3_8B", "1xH100", 1000, 100, {"max_num_seqs": 32}, 1.0),
        ("Llama3_8B", "1xH100", 20000, 100, {}, None),
    ],
)
def test_first_tokens_beside_the_play_of_each_request(model, on, prompt, answer, more, cv):
    """At 60 and 90 % of what is answered: without what fills caches by chance, or long prompts' attention, they were 1.2 to 7 times short."""
    most = float(asked(model, on, prompt, answer, LONG, cv, **more).named("looped").most)
    lengths = [Fixed(n) if cv is None else Spread(float(n), cv) for n in (prompt, answer)]
    for load, within in ((0.6, 1.25), (0.9, 1.6)):
        result, count = asked(model, on, prompt, answer, load * most, cv, **more), 8000
        requests = Load(load * most, *lengths, 1.0, count=count).requests(1)
        skipped = Settings(seed=1, skip=0.1 * count / (load * most))
        played = simulate(result.named("machine"), result.named("clients"), requests, count, skipped)
        looped = result.named("looped")
        off = math.log(float(looped.ttft) / played.percentiles["ttft"].mean)
        assert abs(off) < math.log(within), f"{load}: {math.exp(off):.2f} times"
        # A mean over requests weighs short answers, which meet a burst of prompts or none, as much as long ones.
        assert float(looped.tpot) == pytest.approx(played.percentiles["tpot"].mean, rel=0.1 if cv is None else 0.3)


@pytest.mark.parametrize(("prompt", "within"), [(5000, 1.2), (8000, 1.2), (12000, 1.2), (20000, 1.35)])
def test_attention_makes_long_prompts_wait_longer_than_their_lengths_do(prompt, within):
    """cv 1 at 80 % of what is answered. By lengths alone, without that a prompt's attention goes as its square, they were 0.58 to 0.89 of what is played."""
    most = float(asked("Llama3_8B", "1xH100", prompt, 100, LONG, 1.0).named("looped").most)
    result, count = asked("Llama3_8B", "1xH100", prompt, 100, 0.8 * most, 1.0), 20_000
    requests = Load(0.8 * most, Spread(float(prompt), 1.0), Spread(100.0, 1.0), 1.0, count=count).requests(1)
    played = simulate(result.named("machine"), result.named("clients"), requests, count, Settings(seed=1))
    assert abs(math.log(float(result.named("looped").ttft) / played.percentiles["ttft"].mean)) < math.log(within)


@pytest.mark.parametrize("cv", [0.3, 0.6, 1.0])
@pytest.mark.parametrize("prompt", [500, 8000, 30000])
def test_times_of_prompts_vary_as_those_of_each_of_them(prompt, cv):
    """Beside an integral over lognormal lengths, of which each token takes a full step's share, longer by what is before it."""
    served = asked("Llama3_8B", "1xH100", prompt, 100, 0.1, cv)
    turns, full, far = Turns(served.named("machine").writer, served.named("clients"), 1.0), 8192.0, 50_000.0
    near, late = (turns.step.time(0.0, 0.0, 1.0, full, before).total for before in (0.0, far))
    longer, sigma = (late - near) / far, math.sqrt(math.log1p(cv**2))
    found = [0.0, 0.0, 0.0]
    for k in range(-800, 1200):
        tokens = prompt * math.exp(sigma * k / 100 - sigma**2 / 2)
        time = tokens * (near - longer * full / 2) + longer * tokens**2 / 2
        found = [each + time**power * NormalDist().pdf(k / 100) for power, each in enumerate(found)]
    assert turns.varied(0.0) == pytest.approx(found[0] * found[2] / found[1] ** 2 - 1, rel=0.1)
