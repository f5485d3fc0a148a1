"""The optimizers asked with a plan: the traffic and the defaults of a service, and all that was assumed."""

from __future__ import annotations

import pytest

from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.optimizing import best_batching, best_placement
from mlsysim.plans.plan import Plan


def plan(**keys: object) -> Plan:
    return Plan.model_validate({"task": "serving", "model": "Llama3_8B", "on": "H100", **keys})


def test_a_batch_has_the_requests_of_a_service_that_says_nothing_of_them() -> None:
    """Answers had 128 tokens here and 256 in a service, and one exponential time each where a service has one length."""
    bare, service = best_batching(plan()), evaluate(plan(), change=False)
    lengths = {name: service.assumptions[name] for name in ("prompt_tokens", "output_tokens")}
    assert {name: bare.assumptions[name] for name in lengths} == lengths
    told = best_batching(plan(isl=1024, osl=256, length_cv=0, qps=1, slo="e2e_p99=10s"))
    assert told.best_config == bare.best_config
    assert not {*lengths, "length_cv", "e2e_p99", "qps"} & told.assumptions.keys()
    assert {"length_cv", "e2e_p99", "qps"} < bare.assumptions.keys()


def test_without_a_queue_requests_of_one_length_take_one_time() -> None:
    found = best_batching(plan(qps=0.01, slo="e2e_p99=6s"))
    assert found.p99_latency.to("s").magnitude == pytest.approx(found.request_latency.to("s").magnitude, rel=1e-3)
    spread, found = (best_batching(plan(qps=0.01, slo="e2e_p99=12s", length_cv=cv)) for cv in (1, 0))
    assert spread.best_batch_size < found.best_batch_size


def test_places_are_told_with_what_the_run_assumes_and_without_its_place() -> None:
    asked = Plan.model_validate({"task": "training", "model": "Llama3_8B", "on": "64xH100", "price": 2.5})
    found, run = best_placement(asked), evaluate(asked, change=False)
    for name in ("batch_size", "stack", "layout", "duration"):
        assert found.assumptions[name] == run.assumptions[name]
    assert found.assumptions["kwh_price"] == "that of each region" and "pue" not in found.assumptions
    assert "no effect" in found.assumptions["price"]
