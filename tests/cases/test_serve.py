"""Serving as one case: parts add up at either fidelity, arrays are numbers, and a chip that does more is never slower."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from mlsysim.cases import replica
from mlsysim.cases.algebra import ledger_of
from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.deployment import Deployment
from mlsysim.cases.machines import Engines, Replicated
from mlsysim.cases.request import ANSWER, FIRST, OTHERS, PLACE, of_phase
from mlsysim.cases.serve import serve
from mlsysim.cases.traffic import Habits, Traffic
from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.search.series import sums_over_steps
from mlsysim.timing.power import wide_peak
from mlsysim.units.registry import to_si
from mlsysim.walls.node.serving import ServingModel

MODELS = ("Llama3_8B", "Llama3_70B", "DeepSeek_V3", "Mixtral_8x7B", "Gemma3_27B", "Qwen3_Next_80B_A3B")
CHIPS = ("H100", "H200", "B200", "A100", "MI300X", "L40S")


def case(seed: int) -> tuple[Replicated | Engines, Traffic]:
    """A random deployment under random traffic."""
    rng = random.Random(seed)
    while True:
        engine = rng.choice([None, None, "vLLM", "SGLang", "TensorRT_LLM"])
        draft = rng.random() < 0.2
        described = Deployment(
            Models.get(rng.choice(MODELS)),
            Hardware.get(rng.choice(CHIPS)),
            rng.choice(["bf16", "fp8", "int4"]),
            tp=rng.choice([1, 2, 8]),
            pp=rng.choice([1, 1, 3]),
            ep=rng.choice([1, 1, 8, 16]),
            decode_chip=Hardware.get(rng.choice(CHIPS)) if rng.random() < 0.3 else None,
            draft=Models.get("Llama3_8B") if draft else None,
            engine=engine,
            efficiency=0.5,
        )
        habits = Habits(
            shortest=rng.choice([1.0, 0.8]),
            server=rng.random() < 0.8,
            warm=rng.random() < 0.8,
        )
        traffic = Traffic(
            prompt=rng.choice([100, 2000, 20000]),
            answer=rng.choice([1, 2, 200, 3000]),
            batch=rng.choice([1, 7, 64]),
            concurrency=None if draft or rng.random() < 0.4 else rng.choice([1, 30, 1000]),
            cached=rng.choice([0, 0, 50]),
            chunk=rng.choice([None, 512]),
            drafted=4,
            acceptance=0.7,
            replicas=rng.choice([1, 2]),
            network=50e9 if described.decode_chip is not None else None,
            habits=habits if engine is not None else Habits(),
        )
        try:
            machine = described.machine(Assumptions())
        except InputError:
            continue
        return machine, traffic.admitted(machine.memories(traffic)[0])


@pytest.mark.parametrize("seed", range(60))
def test_parts_add_up_to_the_request_its_first_token_and_its_answer(seed: int) -> None:
    machine, traffic = case(seed)
    plain = serve(machine, traffic)
    ledger = ledger_of(lambda a: serve(machine, traffic, a).e2e)
    assert ledger.seconds == pytest.approx(plain.e2e, rel=1e-12)
    assert ledger.total("exposed") == pytest.approx(plain.e2e, rel=1e-12)
    assert ledger.total("elastic") == pytest.approx(plain.e2e, rel=1e-9)
    assert all(part.exposed >= -1e-12 * plain.e2e for part in ledger.parts)
    assert of_phase(ledger, FIRST).seconds == pytest.approx(plain.ttft, rel=1e-9)
    answer = traffic.answer if traffic.concurrency is None else traffic.mean_answer
    assert of_phase(ledger, ANSWER).seconds == pytest.approx((answer - 1) * plain.tpot, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(100, 120))
def test_a_resource_one_per_cent_faster_gains_what_its_parts_say(seed: int) -> None:
    """At first order the longer of two decides; the elastic column is the derivative, where no loop decides a batch."""
    machine, traffic = case(seed)
    if isinstance(machine, Engines):
        pytest.skip("rates of engines are constants of their kernels")
    traffic = replace(traffic, concurrency=None)
    ledger = ledger_of(lambda a: serve(machine, traffic, a).e2e)
    for resource in ("peak", "bandwidth"):
        sides = [machine.reader, machine.writer, machine.draft]
        faster = [None if r is None else replace(r, **{resource: getattr(r, resource) * 1.0001}) for r in sides]
        if not machine.apart:
            faster[0] = faster[1]
        gained = serve(machine, traffic).e2e
        # Scores run at the peak of 16 bits, which is one resource with that of narrow products.
        with patch.object(
            replica, "wide_peak", lambda chip, more=1.0001 if resource == "peak" else 1.0: more * wide_peak(chip)
        ):
            gained -= serve(Replicated(*faster), traffic).e2e
        assert gained == pytest.approx(
            ledger.resources().get(resource, 0.0) * 1e-4, rel=0.02, abs=1e-9 * ledger.seconds
        )
        assert gained >= 0


@pytest.mark.parametrize("fidelity", [None, "vLLM"])
@pytest.mark.parametrize("changed", ["bandwidth", "capacity"])
def test_more_of_a_chip_is_never_slower(fidelity: str | None, changed: str) -> None:
    chip = Hardware.get("H100")
    more = chip.model_copy(
        update={"memory": chip.memory.model_copy(update={changed: getattr(chip.memory, changed) * 1.3})}
    )
    for clients in (1, 40, 4000):
        seen = []
        for one in (chip, more):
            machine = Deployment(Models.get("Llama3_8B"), one, "bf16", engine=fidelity, efficiency=0.5).machine(
                Assumptions()
            )
            traffic = Traffic(2000, 300, concurrency=clients)
            seen.append(serve(machine, traffic.admitted(machine.memories(traffic)[0])))
        assert seen[1].requests >= seen[0].requests * (1 - 1e-12)
        if changed == "bandwidth":
            assert seen[1].e2e <= seen[0].e2e * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(200, 230))
def test_arrays_are_the_numbers(seed: int) -> None:
    """Traffic at many points on one engine is what it is at each."""
    machine, traffic = case(seed)
    if isinstance(machine, Replicated):
        pytest.skip("replicas at many points have numbers of their own, which a space makes")
    if traffic.concurrency is not None:
        traffic = replace(traffic, cached=0)
    batches = np.array([1.0, 3.0, 20.0])
    name = "batch" if traffic.concurrency is None else "concurrency"
    memory = machine.memories(traffic)[0]

    def at(value: Any) -> Traffic:
        return replace(traffic, **{name: value, "together": None}).admitted(memory)

    together = serve(machine, at(batches), total=sums_over_steps(3))
    for place, value in enumerate(batches.tolist()):
        alone = serve(machine, at(value))
        for field in ("ttft", "tpot", "e2e", "requests"):
            assert np.broadcast_to(getattr(together, field), (3,))[place] == pytest.approx(
                getattr(alone, field), rel=1e-9
            )


def test_prompts_of_others_bind_under_load() -> None:
    """70B with 8,000 + 200 tokens: most of a token's time are other requests' prompts, and that is the wall that binds."""
    found = ServingModel().solve(
        "Llama3_70B", "H100", 8000, output_len=200, tp_size=4, precision="fp8", efficiency="calibrated", concurrency=30
    )
    ledger = found.ledger
    assert ledger is not None
    tokens = of_phase(ledger, ANSWER)
    assert ledger.exposed(OTHERS) > 0.6 * tokens.seconds
    assert found.binding.wall == ledger.binding_wall == 4
    assert "prompts of others while it answers (set by arithmetic)" in found.binding.sentence


def test_those_who_find_no_place_wait_for_it() -> None:
    found = ServingModel().solve("Llama3_8B", "H100", 4000, output_len=200, efficiency="calibrated", concurrency=2000)
    assert found.feasible and found.max_batch_size is not None and found.max_batch_size < 2000
    assert found.ledger is not None and found.ledger.exposed(PLACE) > 0.5 * found.ledger.seconds
    assert found.binding.wall == 5


@pytest.mark.parametrize("fidelity", [0.5, "calibrated"])
def test_the_ledger_of_a_result_is_its_latency_and_its_memory(fidelity: Any) -> None:
    for concurrency in (None, 8):
        found = ServingModel().solve(
            "Mixtral_8x7B", "H100", 1000, output_len=100, tp_size=4, efficiency=fidelity, concurrency=concurrency
        )
        ledger = found.ledger
        assert ledger is not None
        latency = to_si(found.request_latency, "s")
        if concurrency is not None:
            latency = to_si(found.ttft_at_concurrency, "s") + 99 * to_si(found.tpot, "s")
        assert ledger.seconds == pytest.approx(latency, rel=1e-12)
        assert ledger.memory == to_si(found.memory_per_device, "byte")
        assert ledger.fits is found.feasible
        assert found.binding.wall == ledger.binding_wall


def test_a_pool_of_the_same_chip_is_a_pool() -> None:
    """Prompts on devices of their own do not disturb answers, whichever chip they are on."""
    given = {"output_len": 200, "tp_size": 4, "efficiency": "calibrated", "concurrency": 30, "precision": "fp8"}
    one = ServingModel().solve("Llama3_70B", "H100", 8000, **given)
    two = ServingModel().solve("Llama3_70B", "H100", 8000, decode_hardware="H100", **given)
    assert two.devices == 2 * one.devices
    assert to_si(two.tpot, "s") < 0.5 * to_si(one.tpot, "s")
    assert two.ledger is not None and two.ledger.exposed(OTHERS) == 0.0
