"""Serving plans over time: percentiles, traces, limits on them, and the least service that keeps them."""

from __future__ import annotations

import re
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from mlsysim.errors import InputError
from mlsysim.plans import designs
from mlsysim.plans.answer import Answer
from mlsysim.plans.arrivals import QUICK, SAMPLE, Arrivals
from mlsysim.plans.evaluate import evaluate, evaluate_plainly
from mlsysim.plans.least_service import least_services
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import ServingPart
from mlsysim.plans.targets import Target, parse_targets
from mlsysim.units.registry import to_si
from mlsysim.zoo.writing import without_files

BASE: dict[str, Any] = {
    "task": "serving",
    "workload": {"model": "Llama3_8B"},
    "hardware": {"on": "H100"},
    "parallelism": {"tp": 1},
    "serving": {
        "prompt_tokens": 500,
        "output_tokens": 100,
        "qps": 15.0,
        "slo": "ttft_p99=200ms,tpot=30ms",
        "requests": 2000,
    },
}


def _asked(**serving: Any) -> Answer:
    return evaluate(BASE | {"serving": BASE["serving"] | serving}, change=False)


@pytest.mark.parametrize("engine", ["vLLM", "SGLang"])
@pytest.mark.parametrize(
    "load",
    [
        {"prompt_tokens": 1024, "output_tokens": 256, "qps": 5.0},
        {"prompt_tokens": 1024, "output_tokens": 256, "qps": 20.0},
        {"prompt_tokens": 4000, "output_tokens": 200, "qps": 4.0},
        {"prompt_tokens": 1024, "output_tokens": 256, "qps": None, "concurrency": 256, "length_cv": 1.0},
    ],
)
def test_the_gap_in_the_middle_is_that_of_a_play(load: dict[str, Any], engine: str) -> None:
    """Of the gaps between two tokens half are shorter: a step without prompts while these are few, whatever the mean is."""
    given = {"slo": None, "requests": None, "engine": engine} | load
    closed, played = _asked(**given), _asked(**given | {"requests": 2000, "seed": 0})
    middle = to_si(closed.value("itl_p50"), "s")
    assert middle == pytest.approx(to_si(played.value("itl_p50"), "s"), rel=0.125)
    assert middle < to_si(closed.value("tpot"), "s")


def test_limits_are_read_as_people_write_them() -> None:
    assert parse_targets("ttft_p99=500ms, tpot=30ms,latency_p95<4s") == (
        Target("ttft", "p99", 0.5),
        Target("tpot", "mean", 0.03),
        Target("e2e", "p95", 4.0),
    )
    assert parse_targets(None) == ()
    assert [each.level for each in parse_targets("ttft_p99.9=1s,ttft_p999=1s,e2e_p75=1s,itl_p5=1s")] == [
        "p999",
        "p999",
        "p75",
        "p05",
    ]
    for text, said in (
        ("ttft_p100=1s", "p50, p99 or p99.9"),
        ("ttff=1s", "did you mean 'ttft'"),
        ("ttft_p99=5GB", "a time such as 500ms"),
        ("ttft_p99=-5ms", "above 0"),
        ("ttft_p99", "a limit looks like 'ttft_p99=500ms'"),
    ):
        with pytest.raises(ValueError, match=said):
            parse_targets(text)


def test_a_simulated_answer_says_percentiles_and_adds_up() -> None:
    answer = _asked()
    assert answer.fidelity == "simulated"
    for kind in ("ttft", "tpot", "itl", "e2e", "queue"):
        held = answer.percentiles[kind]
        assert held["p50"] <= held["p90"] <= held["p95"] <= held["p99"]
        assert to_si(answer.value(f"{kind}_p99"), "s") == pytest.approx(held["p99"], rel=1e-12)
    ledger = answer.ledger
    assert ledger is not None
    assert sum(part.exposed for part in ledger.parts) == pytest.approx(to_si(answer.value("latency"), "s"), rel=1e-9)
    first = sum(part.exposed for part in ledger.parts if part.name.startswith("first token: "))
    assert first == pytest.approx(to_si(answer.value("ttft"), "s"), rel=1e-9)
    for name in ("ttft_p99", "tpot", "itl", "queue", "latency"):
        assert answer.explain(name)[0].value == answer.metric(name).text
    parts = [part.exposed for part in ledger.parts if part.name.startswith("answer: ")]
    assert sum(parts) / 99 == pytest.approx(to_si(answer.value("itl"), "s"), rel=1e-9)
    assert Answer.from_dict(answer.to_dict()) == answer


def test_any_percentile_is_answered() -> None:
    answer = _asked(slo="ttft_p99.9=1ms,e2e_p75=9s")
    held = answer.percentiles["ttft"]
    assert [*held] == ["mean", "p50", "p75", "p90", "p95", "p99", "p999", "error"]
    assert held["p50"] < held["p75"] < held["p90"] and held["p99"] < held["p999"]
    assert "first token at its 99.9th percentile" in answer.binding.sentence and answer.binding.limit == "ttft_p999"
    sentences = [check.sentence for check in answer.checks]
    assert any("Time of a request, 75th percentile" in each for each in sentences)
    assert answer.explain("ttft_p999")[0].value == answer.metric("ttft_p999").text
    assert Answer.from_dict(answer.to_dict()) == answer


def test_the_same_seed_gives_the_same_answer_and_another_seed_another() -> None:
    one, two, other = _asked(), _asked(), _asked(seed=3)
    assert one.to_dict() == two.to_dict()
    assert one.percentiles["ttft"]["p99"] != other.percentiles["ttft"]["p99"]


def test_means_of_a_simulation_are_near_the_closed_form() -> None:
    steady, played = _asked(slo=None, requests=None), _asked(requests=6000)
    assert steady.fidelity == "calibrated"
    for name, near in (("ttft", 0.15), ("tpot", 0.05), ("latency", 0.05)):
        assert to_si(played.value(name), "s") == pytest.approx(to_si(steady.value(name), "s"), rel=near)


def test_bursts_and_spread_lengths_are_seen_in_percentiles_more_than_in_means() -> None:
    plain, bursty, spread = _asked(), _asked(burst=4.0), _asked(length_cv=1.0)
    for worse in (bursty, spread):
        tail, mean = (worse.percentiles["ttft"][key] / plain.percentiles["ttft"][key] for key in ("p99", "mean"))
        assert tail > 1.2 and tail > mean


def test_a_limit_inside_the_interval_is_neither_kept_nor_missed() -> None:
    middle = _asked().percentiles["ttft"]["p99"]
    checks = {
        factor: next(c for c in _asked(slo=f"ttft_p99={middle * factor}s").checks if c.limit == "ttft_p99")
        for factor in (0.2, 1.01, 20.0)
    }
    assert not checks[0.2].passed and checks[0.2].certain
    assert not checks[1.01].certain and "too close to call" in checks[1.01].sentence
    assert checks[20.0].passed and checks[20.0].certain


def test_a_router_that_looks_is_played_on_some_of_many_replicas_with_their_share_of_the_rate() -> None:
    arrivals = Arrivals(ServingPart(qps=1600.0, router="least_work"), 512, 128)
    drawn = arrivals.drawing(1600.0, True, 4.0, 64, 0, looked=True)
    assert drawn.dealt == (16, 64) and drawn.looked
    requests = list(arrivals.requests(1600.0, drawn))
    assert len(requests) / requests[-1].arrival == pytest.approx(400.0, rel=0.05)
    assert arrivals.drawing(1600.0, True, 4.0, 8, 0, looked=True).dealt == (8, 8)


def test_a_missed_percentile_is_what_stopped_the_plan() -> None:
    answer = _asked(slo="ttft_p99=1ms")
    assert answer.binding.limit == "ttft_p99" and "99th percentile" in answer.binding.sentence
    assert answer.exit_code == 3


def test_a_trace_is_played_at_its_own_lengths_and_scaled_with_its_bursts() -> None:
    serving = {"trace": "azure-code", "requests": 1500}
    own = evaluate(BASE | {"serving": serving}, change=False)
    fast = evaluate(BASE | {"serving": serving | {"qps": 8.0}}, change=False)
    assert own.percentiles["queue"]["p99"] < fast.percentiles["queue"]["p99"]
    with pytest.raises(InputError, match="trace"):
        evaluate(BASE | {"serving": serving | {"prompt_tokens": 10}})


def test_a_server_opens_no_file_for_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("arrival_s,input_tokens,output_tokens\n0,10,10\n1,10,10\n")
    plan = BASE | {"serving": {"trace": str(file)}}
    assert evaluate(plan, change=False).feasible
    with without_files(), pytest.raises(InputError, match="shipped trace"):
        evaluate(plan, change=False)


def test_a_layout_that_a_request_has_no_room_on_is_not_taken() -> None:
    """FP8 weights of 70B leave one H100 next to no caches: the search goes on to wider replicas."""
    plan = {
        "task": "serving",
        "workload": {"model": "Llama3_70B", "precision": "fp8"},
        "hardware": {"on": "4xH100"},
        "serving": {"trace": "azure-code", "requests": 200},
    }
    assert evaluate(plan, change=False).layout["tp"] > 1


def test_a_service_that_grows_costs_what_is_there() -> None:
    base = BASE | {"hardware": {"on": "4xH100"}, "ops": {"region": "Quebec", "cloud_price": "2 USD/h"}}
    few = base | {"serving": BASE["serving"] | {"requests": 8000, "autoscale": "1:4", "qps": 8.0}}
    part, whole = (
        evaluate(each, change=False) for each in (few, few | {"serving": few["serving"] | {"autoscale": "4:4"}})
    )
    up = part.value("replicas_up")
    assert up < 3 and whole.value("replicas_up") == pytest.approx(4.0)
    assert part.value("rent").to("USD").magnitude == pytest.approx(up * 2 * 24, rel=1e-9)
    for name in ("tco", "energy", "carbon_footprint", "usd_per_mtoken", "energy_per_token", "carbon_per_mtoken"):
        assert part.value(name) < whole.value(name)
    assert part.value("purchase") == whole.value("purchase")
    for name in ("energy", "tco", "energy_per_token"):
        assert part.explain(name)[0].value == part.metric(name).text


@pytest.mark.parametrize(
    ("on", "serving", "cause"),
    [
        ("L4", {"prompt_tokens": 12000, "output_tokens": 500, "qps": 0.05, "requests": 200}, "room in the caches"),
        ("H100", {"max_num_seqs": 8, "requests": 1000}, "waiting for a slot"),
        ("8xH100", {"prompt_tokens": 2000, "qps": 100.0, "length_cv": 2.0}, "longer queue than others have (router)"),
    ],
    ids=["caches", "slots", "router"],
)
def test_what_requests_wait_for_is_named(on: str, serving: dict[str, Any], cause: str) -> None:
    plan = BASE | {"hardware": {"on": on}, "serving": BASE["serving"] | {"slo": "ttft_p99=20ms"} | serving}
    answer = evaluate(plan, change=False)
    assert cause in answer.binding.sentence
    assert any(cause in line and line.startswith("A request takes ") for line in answer.verdict)
    parts = {part.label: part.value for part in answer.time_parts}
    assert sum(parts.values()) == pytest.approx(to_si(answer.value("latency"), "s"), rel=1e-9)


def test_more_requests_than_are_answered_are_not_said_to_be_answered_as_fast_as_they_come() -> None:
    answer = _asked(qps=200.0)
    assert answer.checks[-1].limit == "qps" and not answer.checks[-1].passed
    assert _asked(qps=15.0, length_cv=2.0).checks[-1].passed


def test_replicas_fail_and_spares_are_asked_for_where_none_did() -> None:
    plan = BASE | {"hardware": {"on": "2xH100"}, "serving": BASE["serving"] | {"failures": True}}
    calm = evaluate(plan, change=False)
    assert "0 failures" in calm.assumptions["failures"] and any("spare" in line for line in calm.verdict)
    spared = plan | {"hardware": {"on": "3xH100"}, "serving": plan["serving"] | {"spare": 1, "replicas": 2}}
    assert not any("asked with" in line for line in evaluate(spared, change=False).verdict)
    often = evaluate(plan | {"ops": {"mtbf": "20 s", "restart_time": "10 s"}}, change=False)
    assert "fails every 40 s and is back 10 s later" in often.assumptions["failures"]
    assert often.percentiles["e2e"]["p99"] > 1.3 * calm.percentiles["e2e"]["p99"]


def test_a_backlog_fills_what_is_free_and_slows_others() -> None:
    alone, beside, few = _asked(), _asked(backlog="500+100"), _asked(backlog="4x500+100")
    rates = [to_si(each.value("backlog_tokens_per_second"), "1/s") for each in (few, beside)]
    assert 100 < rates[0] < rates[1]
    slower = [to_si(each.value("tpot"), "s") for each in (alone, few, beside)]
    assert slower == sorted(slower)
    assert beside.value("usd_per_mtoken") < few.value("usd_per_mtoken") < alone.value("usd_per_mtoken")


def test_conversations_repeat_what_was_said() -> None:
    single, talk = _asked(prompt_tokens=1000), _asked(prompt_tokens=1000, turns=5)
    assert talk.percentiles["ttft"]["p50"] < single.percentiles["ttft"]["p50"]
    assert "conversations of 5 turns (267 tokens added" in talk.assumptions["simulated"]
    assert "on the device" in talk.assumptions["prefixes"]
    with pytest.raises(InputError, match="or more; prompt_tokens are 100"):
        _asked(prompt_tokens=100, turns=9)


def test_adapters_that_are_not_there_are_waited_for() -> None:
    all_there, few = (_asked(adapters=16, resident_adapters=many) for many in (16, 1))
    assert few.percentiles["ttft"]["mean"] > 2 * all_there.percentiles["ttft"]["mean"]
    assert any("its adapter" in part.label for part in few.time_parts)


def test_clients_in_a_loop_have_percentiles_too() -> None:
    answer = _asked(qps=None, requests=None, concurrency=16)
    closed = _asked(qps=None, requests=None, concurrency=16, slo=None)
    assert to_si(answer.value("tpot"), "s") == pytest.approx(to_si(closed.value("tpot"), "s"), rel=0.1)
    assert answer.layout["concurrency"] == 16


@pytest.mark.parametrize(("replicas", "times"), [(1, 15), (4, 4)])
def test_clients_send_as_many_requests_as_in_the_closed_form(replicas: int, times: int) -> None:
    """The first of their requests come together: of 39 each first tokens took half as long as of the 10 that the closed form has."""
    load = {"concurrency": 64 * replicas, "prompt_tokens": 1024, "output_tokens": 256, "length_cv": 0.06}
    plan = {"task": "serving", "model": "Llama3_8B", "on": f"{replicas}xH100", "tp": 1, "serving": load}
    closed = evaluate(plan, change=False)
    seen = evaluate(plan | {"serving": load | {"slo": "ttft_p99=9s"}}, change=False)
    for name, within in (("ttft", 0.08), ("tpot", 0.02), ("requests_per_second", 0.02)):
        assert (seen.value(name) / closed.value(name)).to("").magnitude == pytest.approx(1.0, abs=within), name
    assert f"{64 * replicas:,} clients, {times} times from the beginning" in seen.assumptions["simulated"]
    assert None not in seen.percentiles["ttft"]["error"]


def test_the_least_service_is_the_least_and_serve_repeats_it() -> None:
    wanted = Plan.model_validate(
        BASE | {"parallelism": {}, "serving": BASE["serving"] | {"qps": 60.0, "requests": None}}
    )
    found = least_services(wanted, ["H100"])
    best = found[0]
    assert best.answer is not None and best.design is not None
    assert best.price <= min(each.price for each in found if each.answer is not None) * 1.01
    again = evaluate(best.answer.plan, change=False)
    assert again.passed and again.percentiles == best.answer.percentiles
    assert best.odds is not None and 0 < best.odds <= 1 and best.headroom is not None and best.headroom >= 1
    if best.replicas > 1:
        fewer = best.answer.plan.replacing(
            hardware={"on": f"{best.design.layout.split.tp * (best.replicas - 1)}xH100"},
            serving={"replicas": best.replicas - 1},
        )
        assert not evaluate(fewer, change=False).passed


def test_a_service_that_grows_has_room_for_what_it_grows_to() -> None:
    """A plan for it had room for no more than is always busy, and was refused; so was a fleet of several kinds, as if they grew together."""
    wanted = Plan.model_validate(BASE | {"serving": BASE["serving"] | {"autoscale": "1:4"}})
    best = least_services(wanted, ["H100"])[0]
    assert best.answer is not None and best.accelerators == 4 and best.answer.passed
    with pytest.raises(InputError, match="4 replicas has no place on 1 x NVIDIA L40S, which has room for 1 replica"):
        evaluate(wanted.replacing(hardware={"on": "4xH100+L40S"}), change=False)


def test_no_service_is_played_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas are added one by one, nodes are bought whole: until the next node it is the same service."""
    asked, play = list[Plan](), designs.best_served

    def told(plan: Plan, quick: bool = False) -> Any:
        asked.append(plan)
        return play(plan, quick)

    monkeypatch.setattr(designs, "best_served", told)
    stream = designs.ChipDesigns(Plan.model_validate(BASE), "H100", lambda words: None)
    one = designs.Degrees(1)
    first = designs.Design("H100", designs.Layout(one, 9))
    seen = [stream._play(first.more("", more)) for more in range(9)]
    assert seen[0] == seen[7] and [plan.hardware.on for plan in asked] == ["16xH100", "24xH100"]


def test_a_service_that_no_number_makes_fast_enough_says_why() -> None:
    wanted = Plan.model_validate(BASE | {"serving": BASE["serving"] | {"slo": "tpot=1us"}})
    (none,) = least_services(wanted, ["H100"])
    assert none.answer is None and "limit" in none.reason


def test_a_large_service_is_played_until_it_is_full() -> None:
    """As many requests a second of a replica: a token takes what it takes however many replicas there are, and more even turns wait less."""
    sizes = 8, 160, 1600
    found = [
        evaluate(
            BASE
            | {"hardware": {"on": f"{many}xH100"}}
            | {"serving": BASE["serving"] | {"qps": 30.0 * many, "requests": None, "replicas": many}},
            change=False,
        )
        for many in sizes
    ]
    times = [answer.percentiles for answer in found]
    tokens = [each["tpot"]["mean"] for each in times]
    assert max(tokens) < 1.03 * min(tokens)
    assert times[2]["ttft"]["p99"] < 1.02 * times[1]["ttft"]["p99"] < times[0]["ttft"]["p99"]
    assert any("of 1,600 replicas, all of which are alike" in str(each) for each in found[2].assumed)
    assert found[2].over_time["up"][-1] == 1600
    for answer, many in zip(found, sizes, strict=True):
        assert float(answer.value("requests_per_second").m) == pytest.approx(30.0 * many, rel=1e-3)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize(
    ("rate", "replicas", "writers"), [(1e5, 1104, 792), (1e5, 1283, 869), (1e5, 1, 0), (300.0, 9, 0)]
)
def test_what_is_drawn_of_a_service_has_a_most_and_fills_it(
    rate: float, replicas: int, writers: int, quick: bool
) -> None:
    """A play of some of its replicas lasts four times of a request or more, has the share of writers of all, and skips the first of these times."""
    part = ServingPart.model_validate({"prompt_tokens": 512, "output_tokens": 128, "qps": rate})
    latency, count = 3.2, QUICK if quick else SAMPLE
    drawn = Arrivals(part, 512, 128).drawing(rate, quick, latency, replicas, writers)
    seconds = drawn.requests / (rate * drawn.share)
    assert count <= drawn.requests <= 100_000 and drawn.skip <= seconds / 2
    if replicas > 1:
        assert seconds >= 4 * latency * (1 - 1e-3) and drawn.skip == pytest.approx(
            max(latency, 0.05 * seconds), rel=1e-3
        )
        assert drawn.share * writers == pytest.approx(round(drawn.share * writers), rel=0.005)
    if quick:
        assert drawn.requests <= max(10 * QUICK, 4.01 * latency * rate * drawn.share)


def test_the_gap_of_answers_of_one_or_two_tokens_is_within_its_interval() -> None:
    """The mean over all gaps: of requests with one token there is none."""
    played = {"model": "Qwen2_5_7B", "on": "H100", "isl": 1000, "osl": 2, "concurrency": 200, "slo": "e2e_p95=10s"}
    answer = evaluate_plainly(Plan.model_validate({"task": "serving", "range_ratio": 0.3, **played}))
    gap = answer.metric("itl")
    assert gap.low < gap.value < gap.high
    mean = answer.percentiles["itl"]["mean"]
    assert gap.value.to("s").magnitude == pytest.approx(mean, rel=1e-3)


@pytest.mark.parametrize("scheduler", ["prefill_first", "chunked"])
def test_gaps_of_short_answers_add_up_to_what_requests_take_after_their_first_tokens(scheduler: str) -> None:
    """The mean of all gaps is the one that requests say (twice as long with prompts first), and what is faster makes all of a request shorter."""
    serving = {"output_tokens": 2, "concurrency": 256, "range_ratio": 0.0, "scheduler": scheduler}
    answer = evaluate_plainly(
        Plan.model_validate({"task": "serving", "model": "Gemma3_27B", "on": "2xH100", **serving})
    )
    gap, seen = answer.metric("itl"), answer.percentiles["itl"]["mean"]
    assert to_si(gap.value, "s") == pytest.approx(seen, rel=1e-9) and gap.low <= gap.value <= gap.high
    assert answer.ledger is not None
    assert answer.ledger.total("elastic") == pytest.approx(answer.ledger.seconds, rel=1e-9)


def test_gaps_between_drafted_tokens_are_those_of_steps() -> None:
    """Several come at once: the gap between them is longer than what a token takes, and all that is said of it is of the same gaps."""
    answer = _asked(qps=2.0, slo="itl_p99=1s", draft_tokens=3, acceptance=0.7, draft_model="Llama3_2_1B")
    gap, seen = answer.metric("itl"), answer.percentiles["itl"]
    assert to_si(gap.value, "s") == pytest.approx(seen["mean"]) and gap.low < gap.value < gap.high
    assert gap.value > 1.5 * answer.value("tpot") and any(told.gives == "itl" for told in answer.equations)


def test_answers_of_one_token_that_others_write_have_no_gap() -> None:
    answer = _asked(output_tokens=1, qps=3.0, slo="ttft_p99=1s", decode_on="H100")
    assert answer.feasible and "itl" not in answer.percentiles and all(found.name != "itl" for found in answer.metrics)


def test_a_decode_pool_whose_caches_fill_answers_less_and_is_near_its_most_without_a_queue() -> None:
    """What outgrows the caches is read again by the workers that write: a full pool answers less than one that has room."""
    asked: dict[str, Any] = {"prompt_tokens": 1000, "output_tokens": 1300, "decode_on": "A100", "slo": None}
    asked |= {"requests": None, "max_num_seqs": 1024}
    full = _asked(**asked, qps=100.0)
    most = to_si(full.value("most_requests_per_second"), "1/s")
    assert to_si(full.value("requests_per_second"), "1/s") < 0.95 * most
    near = _asked(**asked, qps=0.95 * most, seed=0)
    assert near.feasible and near.percentiles["ttft"]["mean"] < 1.0
    beyond = _asked(**asked | {"qps": 1.1 * most, "requests": 4000, "seed": 0})
    assert to_si(beyond.value("requests_per_second"), "1/s") < most


@pytest.mark.parametrize("played", [{}, {"seed": 0}])
def test_what_comes_at_random_makes_a_benchmark_longer_or_shorter_by_its_gaps(played: dict[str, Any]) -> None:
    """n requests have n - 1 gaps: one request lasts as long as it does, and a metronome as long as its answers let it."""
    asked = {"slo": None, "qps": 0.1} | played

    def wide(**more: Any) -> float:
        seconds = _asked(**asked | more).metric("until_last_answer")
        return float(seconds.high / seconds.low)

    alone = _asked(**asked, requests=1).metric("latency")
    assert wide(requests=1) == pytest.approx(float(alone.high / alone.low), rel=0.05)
    even, random, bursts = (wide(requests=100, seed=0, burst=cv) for cv in (0.0, 1.0, 3.0))
    assert even < 1.02 < 1.3 < random < bursts


@pytest.mark.parametrize("quick", [False, True])
def test_a_fleet_that_is_hardly_asked_answers_some_of_what_is_played(quick: bool) -> None:
    """A request every 36 s for each of 100,000 replicas: the play lasts some turns of all, so that it counts requests behind the first."""
    part = ServingPart.model_validate({"prompt_tokens": 512, "output_tokens": 128, "slo": "ttft_p99=1s"})
    rate, replicas = 2800.0, 100_000
    drawn = Arrivals(part, 512, 128).drawing(rate, quick, 1.33, replicas)
    assert drawn.requests > 10 * drawn.dealt[0] and drawn.skip < 2 * replicas / rate
    assert drawn.requests <= 100_000


@pytest.mark.parametrize(
    ("model", "on", "prompt", "answer", "requests"),
    (
        ("Llama3_8B", "1xH100", 512, 256, 2500),
        ("Llama3_70B", "4xH100", 2000, 300, 2500),
        ("Llama3_70B", "4xH100", 500, 4000, 2500),
        ("Llama3_70B", "4xH100", 8000, 200, 80_000),
    ),
)
def test_the_first_token_at_95_per_cent_of_what_is_answered_is_the_closed_forms(
    model: str, on: str, prompt: int, answer: int, requests: int
) -> None:
    """At fixed lengths. Where requests wait for room, long waits are rare and come together: 12,000 of them see 3.1 s, 80,000 see 4.5, the closed form 5.1."""

    def asked(**more: Any) -> Answer:
        design = {"task": "serving", "workload": {"model": model}, "hardware": {"on": on}}
        lengths = {"prompt_tokens": prompt, "output_tokens": answer}
        return evaluate_plainly(
            Plan(**design, parallelism={"tp": int(on[0])}, serving=lengths | more),
            quick=True,
        )

    rate = 0.95 * float(asked(qps=0.01).value("most_requests_per_second").m)
    played = asked(qps=rate, requests=requests, slo="ttft_p99=1s").percentiles["ttft"]["mean"]
    assert to_si(asked(qps=rate).value("ttft"), "s") == pytest.approx(played, rel=0.2)


@pytest.mark.parametrize("router", ("round_robin", "session"))
def test_conversations_are_answered_as_fast_as_caches_find_them(router: str) -> None:
    """What is said from a turn to the next does not fit: at most 167 a second, were all of it found, and beyond 102 the play is overloaded."""
    serving = {"prompt_tokens": 1000, "output_tokens": 200, "turns": 4, "replicas": 4, "router": router}
    plan = Plan(
        task="serving",
        workload={"model": "Llama3_8B"},
        hardware={"on": "4xH100"},
        parallelism={"tp": 1, "pp": 1},
        serving=serving | {"qps": 40.0},
    )
    answer = evaluate_plainly(plan, quick=True)
    asked = plan.replacing(serving=serving | {"qps": 140.0})
    most = float(answer.value("most_requests_per_second").m)
    assert most == pytest.approx(float(evaluate_plainly(asked, quick=True).value("requests_per_second").m), rel=0.1)


@pytest.mark.parametrize("scheduler", ["fair", "priority"])
def test_a_scheduler_says_that_no_request_is_told_apart(scheduler: str, tmp_path: Path) -> None:
    says = {"fair": "tenant"}.get(scheduler, scheduler)
    lines = [f"{n / 10},500,20,{1 + n % 2}" for n in range(40)]
    path = tmp_path / "trace.csv"
    path.write_text(f"arrival_s,input_tokens,output_tokens,{says}\n" + "\n".join(lines) + "\n")
    plain, bare = {"requests": 40}, dict.fromkeys(("prompt_tokens", "output_tokens", "qps", "requests"))
    told = [
        f"No request says its {says}" in str(_asked(scheduler=scheduler, slo=None, **load))
        for load in (plain, bare | {"trace": str(path)})
    ]
    assert told == [True, False]


def test_a_trace_of_one_request_is_played_and_no_service_is_sized_by_it(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0.5,1000,100\n")
    alone = dict.fromkeys(("prompt_tokens", "output_tokens", "qps", "requests")) | {"trace": str(path)}
    assert "1 request is too few" in str(_asked(**alone))
    with pytest.raises(InputError, match="all at once"):
        least_services(Plan.model_validate(BASE | {"serving": BASE["serving"] | alone}), ["H100"])


def test_host_memory_in_which_prefixes_are_found_is_not_said_to_have_no_effect(tmp_path: Path) -> None:
    # Eight texts of 100,000 tokens in turn: caches hold some, the host the others.
    rows = [f'{{"timestamp": {4000 * n}, "input_length": 99840, "output_length": 2, "hash_ids": {[1000 * (n % 8) + k for k in range(195)]}}}' for n in range(24)]  # fmt: skip
    path = tmp_path / "turns.jsonl"
    path.write_text("\n".join(rows) + "\n")
    load = dict.fromkeys(("prompt_tokens", "output_tokens", "qps", "requests", "slo")) | {"trace": str(path)}
    told = _asked(offload_memory="200 GB", **load).assumptions
    assert "with the host" in told["prefixes"] and "no effect" not in str(told.get("offload_memory"))


def test_percentiles_without_a_rate_take_the_layout_that_answers_most_within_them():
    asked = {"task": "serving", "model": "Llama3_8B", "on": "2xH100", "slo": "ttft_p99=500ms"}
    found, wide = (evaluate(asked | more, change=False) for more in ({}, {"tp": 2}))
    assert found.layout["replicas"] == 2 and found.value("requests_per_second") > wide.value("requests_per_second")
    assert all(check.passed for answer in (found, wide) for check in answer.checks)


def test_a_service_that_grows_too_late_where_steps_are_longer_says_so() -> None:
    """A replica is added for every so many requests a second, more than it answers where steps are as long as their interval lets them be."""
    on = {"hardware": {"on": "8xL40S"}, "parallelism": {}}
    asked = {"prompt_tokens": 500, "output_tokens": 150, "qps": 24.0, "autoscale": "2:8"}
    words = " ".join(evaluate({"model": "Llama3_8B", **on, "serving": asked}, change=False).verdict)
    (line,) = re.findall(r"added for every (\S+) requests a second, and would answer (\S+)\.", words)
    aims, answers = map(float, line)
    assert answers < 24 / 2 < aims


def test_a_service_that_grows_tells_its_replicas_by_hour(tmp_path) -> None:
    """Three hours: few requests, many, few; a replica more starts for the second."""
    gaps = [*[40.0] * 90, *[0.4] * 9000, *[40.0] * 95]
    times = accumulate(gaps, initial=0.0)
    path = tmp_path / "day.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{each:g},2000,200\n" for each in times))
    asked = {"model": "Llama3_70B", "hardware": {"on": "16xA100"}, "parallelism": {"tp": 4}}
    serving = {"trace": str(path), "autoscale": "1:4"}
    answer = evaluate(asked | {"serving": serving}, change=False)
    (line,) = [each for each in answer.verdict if "replicas run" in each]
    hours = [float(each) for each in line.rpartition(": ")[2].rstrip(".").split(", ")]
    quiet, busy, last = hours[:3]
    assert quiet == 1.0 and busy > 1.5 and quiet < last < busy
    assert line.startswith(f"1 to {max(answer.over_time['up']):.0f} replicas run; by hour")
    seconds = answer.held["until_last_answer"].value.to("s").magnitude
    assert sum(hours) * 3600 == pytest.approx(float(answer.value("replicas_up")) * seconds, rel=0.05)


@pytest.mark.parametrize("grows", [{}, {"autoscale": "4:4"}])
def test_groups_of_a_pipeline_are_one_replica_over_time(grows) -> None:
    asked = {"model": "Llama3_70B", "hardware": {"on": "16xH100"}, "parallelism": {"pp": 2, "tp": 2}}
    serving = {"prompt_tokens": 1000, "output_tokens": 200, "qps": 1.5, "requests": 100, "seed": 0} | grows
    assert set(evaluate(asked | {"serving": serving}, change=False).over_time["up"]) == {4}


def test_no_more_are_answered_than_can_be(tmp_path) -> None:
    """10,000 requests within a second: the last of them have the server for themselves."""
    path = tmp_path / "second.csv"
    rows = "".join(f"{k / 10000:.4f},500,50\n" for k in range(10_000))
    path.write_text(f"arrival_s,input_tokens,output_tokens\n{rows}")
    asked = {"model": "Llama3_8B", "hardware": {"on": "H100"}, "serving": {"trace": str(path)}}
    answer = evaluate(asked, change=False)
    assert answer.value("requests_per_second") <= answer.value("most_requests_per_second")


@pytest.mark.parametrize("grows", [{"autoscale": "1:1"}, {"failures": True}, {"backlog": "100+10"}])
def test_a_trace_whose_requests_come_at_once_is_played_like_others(tmp_path, grows) -> None:
    """It was played as clients in a loop, which have no jobs beside them and no replicas that change."""
    path = tmp_path / "once.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n" + 20 * "5,500,50\n")
    asked = {"model": "Llama3_8B", "hardware": {"on": "H100"}}
    alone, found = (evaluate(asked | {"serving": {"trace": str(path)} | more}, change=False) for more in ({}, grows))
    assert alone.over_time["batch"] and found.feasible
    if "backlog" not in grows:
        assert found.percentiles == alone.percentiles
    with pytest.raises(InputError, match="come at the same time, which no other rate changes; leave qps out"):
        evaluate(asked | {"serving": {"trace": str(path), "qps": 5.0}}, change=False)
