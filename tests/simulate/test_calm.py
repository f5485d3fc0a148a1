"""Stretches in which there is room for all are booked as the whole loop books them, to the last bit."""

from __future__ import annotations

import pytest

from mlsysim.cases.machines import Engines
from mlsysim.cases.traffic import Habits, Traffic
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.simulate.replica import Replica
from mlsysim.simulate.serving import Settings, simulate
from mlsysim.simulate.traffic import Fixed, Load, Spread
from mlsysim.timing.engine_step import engine_step
from mlsysim.timing.engines import engine

CASES = {
    "one at a time": (Load(5.5, Spread(1155.0, 1.0), Spread(211.0, 0.8), count=1500), {}, {}),
    "many in a step": (Load(60.0, Fixed(500), Fixed(100), count=2500), {}, {}),
    "bursts": (Load(5.0, Spread(1155.0, 1.0), Spread(211.0, 0.8), burst=4.0, count=1500), {}, {}),
    "no answers to write beside": (Load(0.2, Spread(1155.0, 1.0), Spread(20.0, 0.8), count=400), {}, {}),
    "single tokens among them": (Load(20.0, Spread(300.0, 1.0), Spread(3.0, 1.0), count=1500), {}, {}),
    "prompts in parts": (Load(3.0, Spread(3000.0, 1.5), Spread(211.0, 0.8), count=600), {}, {"chunk": 1024}),
    "few places": (Load(6.0, Spread(1155.0, 1.0), Spread(211.0, 0.8), count=800), {}, {"habits": Habits(slots=12)}),
    "caches that fill": (Load(2.0, Spread(9000.0, 1.0), Spread(1500.0, 0.5), count=400, context=60000), {}, {}),
    "warm-up": (Load(5.5, Fixed(1155), Fixed(211), count=1000), {"skip": 20.0, "limits": {"ttft": 0.06}}, {}),
    "who asks again": (Load(1.0, Spread(800.0, 1.0), Spread(100.0, 0.8), count=800), {"clients": 12}, {}),
    "a router that looks": (Load(12.0, Spread(1155.0, 1.0), Spread(211.0, 0.8), count=900), {"router": "least_work"}, {"replicas": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_calm_stretches_are_the_loops_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load, given, asked = CASES[name]
    step = engine_step(Models.get("Llama3_8B"), Hardware.get("H100"), engine("vLLM"))
    t = Traffic(round(load.prompt.mean), round(load.answer.mean), rate=load.rate, together=1.0, **asked)
    played = [simulate(Engines(step, step), t, load.requests(7), load.count or 1, Settings(**given))]
    entered, whole = [], Replica._calm

    def none(self: Replica) -> None:
        entered.append(whole(self) is not None)

    monkeypatch.setattr(Replica, "_calm", none)
    played.append(simulate(Engines(step, step), t, load.requests(7), load.count or 1, Settings(**given)))
    assert any(entered)
    assert repr(played[0]) == repr(played[1])
