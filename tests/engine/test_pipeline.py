"""Resolvers joined by name and unit; gaps and mismatches are found before anything runs."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from mlsysim import (
    CompositionError,
    DistributedModel,
    EconomicsModel,
    Models,
    Pipeline,
    ReliabilityModel,
    SingleNodeModel,
    SustainabilityModel,
)
from mlsysim.errors import InputError
from mlsysim.units.registry import quantity
from mlsysim.walls.base import Resolver
from mlsysim.walls.inputs import Input
from mlsysim.walls.result import Memory, Result

CALL: dict[str, Any] = {
    "model": Models.Llama3_70B,
    "fleet": "Research_256",
    "batch_size": 256,
    "tp_size": 8,
    "zero_stage": 1,
    "microbatch_count": 8,
    "duration_days": 30,
    "datacenter": "Quebec",
}


def test_what_one_produces_feeds_the_next() -> None:
    seen: list[str] = []
    pipeline = Pipeline([DistributedModel(), EconomicsModel, SustainabilityModel])
    pipeline.register_callback(lambda name, result: seen.append(name))
    outcome = pipeline.run(**CALL)
    assert seen == ["DistributedModel", "EconomicsModel", "SustainabilityModel"]
    mfu = outcome["DistributedModel"].mfu
    alone = SustainabilityModel().solve("Research_256", duration_days=30, datacenter="Quebec", mfu=mfu)
    assert outcome["SustainabilityModel"].carbon_footprint_kg == alone.carbon_footprint_kg
    assert outcome["mfu"] == mfu and outcome.feasible


def test_the_plan_in_words() -> None:
    text = Pipeline([DistributedModel, SustainabilityModel]).explain(*CALL)
    assert "1. DistributedModel (wall 14)" in text and "mfu (DistributedModel)" in text


def test_a_gap_is_named_before_anything_runs() -> None:
    ran: list[str] = []
    pipeline = Pipeline([ReliabilityModel])
    pipeline.register_callback(lambda name, result: ran.append(name))
    with pytest.raises(CompositionError, match="job_duration_hours"):
        pipeline.run(fleet="Research_256")
    assert not ran


def test_unknown_inputs_and_empty_pipelines() -> None:
    with pytest.raises(InputError, match="did you mean"):
        Pipeline([SingleNodeModel]).run(model="Llama3_8B", hardwear="H100")
    with pytest.raises(CompositionError, match="at least one"):
        Pipeline([])
    with pytest.raises(CompositionError, match="made of resolvers"):
        Pipeline([3])


class _Sized(Result):
    size: Memory


class _Maker(Resolver[_Sized]):
    result = _Sized
    inputs: ClassVar[dict[str, Input]] = {"x": Input.of("anything", "number", 1.0)}

    def _solve(self, x: Any, assumed: dict[str, str]) -> _Sized:
        return _Sized(size=quantity(1.0, "byte"))


class _Taker(Resolver[_Sized]):
    result = _Sized
    inputs: ClassVar[dict[str, Input]] = {"size": Input("a time", kind="quantity", unit="s")}

    def _solve(self, x: Any, assumed: dict[str, str]) -> _Sized:
        return _Sized(size=quantity(x.size, "byte"))


def test_a_unit_mismatch_is_found_before_it_runs() -> None:
    with pytest.raises(CompositionError, match="takes 'size' in s, but _Maker produces it in byte"):
        Pipeline([_Maker, _Taker]).run()
