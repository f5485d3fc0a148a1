"""Keys of a plan for what benchmarks and published recipes set: clients, engines, pools, dimensions, measured rates."""

from __future__ import annotations

from typing import Any

import pytest

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.timing.engines import engine

SERVING = {"prompt_tokens": 1024, "output_tokens": 256, "concurrency": 64, "engine": "SGLang", "replicas": 1}


def served(on: str = "4xH100", tp: int = 4, **serving: Any) -> Answer:
    plan = {"workload": {"model": "Llama3_70B", "precision": "fp8"}, "hardware": {"on": on}, "parallelism": {"tp": tp}}
    return evaluate_plainly(Plan.model_validate({**plan, "serving": {**SERVING, **serving}}))


def ms(answer: Answer, name: str) -> float:
    return float(answer.value(name).to("ms").magnitude)


def test_two_pools_of_one_layout_are_still_two_pools() -> None:
    """Equal pools are the same steps; that they are apart is said by the plan, not by whether the steps differ."""
    together, apart = served(), served(decode_on="4xH100", decode_tp=4, decode_replicas=1)
    assert apart.layout["replicas"] == 1
    assert ms(apart, "tpot") < ms(together, "tpot")  # no prompts of others beside the answers
    wider = served(decode_on="8xH100", decode_tp=4)
    assert ms(wider, "tpot") < ms(apart, "tpot")  # two replicas write, half of the answers each


def test_a_decode_pool_needs_a_layout_that_it_holds() -> None:
    """A pool of any size writes with as many replicas as it has room for; one that has room for none is refused."""
    assert ms(served(decode_on="8xH100"), "tpot") < ms(served(decode_on="4xH100"), "tpot")
    with pytest.raises(InputError, match="do not hold 1 replica"):
        served(decode_on="2xH100")


def test_a_server_and_a_cold_start_cost_time_to_the_first_token() -> None:
    usual, sglang = ms(served(), "ttft"), engine("SGLang")
    front = 1e3 * (sglang.front_end + 1024 * sglang.tokenise)
    # A client of a server takes its turn, after which it finds the engine within a step.
    assert usual - ms(served(offline=True), "ttft") > front
    lone = [ms(served(concurrency=1, offline=offline), "ttft") for offline in (None, True)]
    assert lone[0] - lone[1] == pytest.approx(front)
    cold = ms(served(warm_up=False), "ttft") - usual
    assert cold == pytest.approx(1e3 * sglang.cold_start / 10)  # the first of ten rounds pays it
    few = {"concurrency": sglang.token_budget // 1024}  # whose prompts are one step, for which nothing is compiled
    assert ms(served(warm_up=False, **few), "ttft") == ms(served(**few), "ttft")
    # A full step is one of the run's own budget.
    long = {"chunk_tokens": 2 * sglang.token_budget, "concurrency": 2 * sglang.token_budget // 1024}
    assert ms(served(warm_up=False, **long), "ttft") == ms(served(**long), "ttft")


def test_spread_lengths_are_shorter_on_average() -> None:
    answer = served(range_ratio=0.5)
    tokens, requests = (float(answer.value(name).magnitude) for name in ("tokens_per_second", "requests_per_second"))
    assert tokens / requests == pytest.approx(256 * 0.75)


def test_requests_beyond_the_engines_slots_wait() -> None:
    free, tight = served(), served(max_num_seqs=16)
    assert ms(tight, "tpot") < ms(free, "tpot") and ms(tight, "ttft") > 3 * ms(free, "ttft")


def test_own_heads_draft_tokens_without_a_draft_model() -> None:
    assert ms(served(draft_tokens=2), "tpot") < ms(served(), "tpot")
    sure, never = served(draft_tokens=2, acceptance=1.0), served(draft_tokens=2, acceptance=0.0)
    # Three tokens a step instead of one; the prompts of others, of which there are then three times as many a step, remain.
    assert ms(never, "tpot") / 3 < ms(sure, "tpot") < 0.7 * ms(never, "tpot")


def test_a_measured_rate_is_what_energy_is_of() -> None:
    answer = served(output_rate=1000.0)
    assert float(answer.value("tokens_per_second").magnitude) == pytest.approx(1000)
    low, high = served(output_rate=500.0), served(output_rate=2000.0)
    assert low.value("accelerator_power") < answer.value("accelerator_power") < high.value("accelerator_power")
    assert low.value("energy_per_token") > answer.value("energy_per_token") > high.value("energy_per_token")
    assert served(output_rate=1000.0, host_bound=True).value("accelerator_power") < answer.value("accelerator_power")


def trained(**parts: Any) -> Answer:
    plan = {
        "task": "training",
        "workload": {"model": "Llama3_8B", "batch_size": 64, "seq_len": 4096, "precision": "bf16"},
        "hardware": {"on": "8xH100", "efficiency": "calibrated"},
        "parallelism": {"tp": 2, "micro_batch": 1},
    }
    return evaluate_plainly(
        Plan.model_validate(
            {name: {**part, **parts.get(name, {})} if isinstance(part, dict) else part for name, part in plan.items()}
        )
    )


def test_dimensions_replace_the_zoos() -> None:
    usual = ms(trained(), "latency")
    assert ms(trained(workload={"dimensions": {"layers": 32}}), "latency") == usual
    assert ms(trained(workload={"dimensions": {"layers": 16}}), "latency") < 0.6 * usual
    own = {"layers": 32, "hidden_dim": 4096, "heads": 32, "kv_heads": 8, "ffn_dim": 14336, "vocab_size": 128256}
    built = trained(workload={"model": "of our own", "dimensions": {**own, "gated_ffn": True}})
    assert ms(built, "latency") == pytest.approx(usual, rel=0.01)
    with pytest.raises(InputError, match="not a transformer"):
        trained(workload={"model": "ResNet50", "dimensions": {"layers": 3}})


def test_parts_of_a_layer_may_be_said_at_once() -> None:
    """``recompute = "norm+up"`` is selective recomputation of these; what has a part already is not done twice."""
    once, apart = (
        trained(parallelism=keys)
        for keys in ({"recompute": "light"}, {"recompute": "selective", "recomputed": "light"})
    )
    assert once.value("latency") == apart.value("latency") and once.value("memory") == apart.value("memory")
    assert trained(parallelism={"recompute": "norm, light"}).value("latency") == once.value("latency")
    for said, meant in (("sync", "synchronous"), ("async", "asynchronous")):
        assert (
            Plan.model_validate(
                {
                    "task": "training",
                    "workload": {"model": "Llama3_8B"},
                    "hardware": {"on": "8xH100"},
                    "ops": {"checkpoint_mode": said},
                }
            ).ops.checkpoint_mode
            == meant
        )


def test_what_is_recomputed_selectively_is_said() -> None:
    times = [
        trained(parallelism={"recompute": "selective", "recomputed": part}).value("latency")
        for part in ("attention", "light", "attention+light")
    ]
    assert trained().value("latency") < min(times) and max(times) == times[2]


def test_racks_are_used_in_equal_parts() -> None:
    answer = trained(hardware={"on": "256xGB200"}, workload={"batch_size": 256})
    assert "64 of the 72" in answer.assumptions["node"]
