"""Every declared direction against the evaluator: the better end of an axis is no worse than any feasible point on it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mlsysim.search.kinds import kind_named
from mlsysim.search.monotone import MONOTONE, direction
from mlsysim.search.space import Space

ROUNDING = 1e-12
NODE = {
    "bandwidth": lambda r: r.uniform(0.2e12, 2e13),
    "peak": lambda r: 10 ** r.uniform(13, 16),
    "capacity": lambda r: r.uniform(4e9, 4e11),
    "host_bandwidth": lambda r: r.uniform(1e10, 1e12),
    "price": lambda r: r.uniform(0, 5e4),
    "tdp": lambda r: r.uniform(10, 1500),
    "dispatch_tax": lambda r: r.uniform(0, 1e-3),
    "efficiency": lambda r: r.uniform(0.05, 1),
    "bandwidth_efficiency": lambda r: r.uniform(0.05, 1),
    "amortization_years": lambda r: r.uniform(1, 10),
    "batch_size": lambda r: int(2 ** r.uniform(0, 10)),
    "seq_len": lambda r: int(2 ** r.uniform(0, 16)),
}
TRAINING = {
    "efficiency": lambda r: r.uniform(0.05, 1),
    **{f"overlap_{what}": (lambda r: r.uniform(0, 1)) for what in ("efficiency", "tp", "ep", "cp", "pp")},
    "congestion_factor": lambda r: r.uniform(1, 3),
    "straggler_factor": lambda r: r.uniform(1, 3),
    "moe_routing_imbalance_factor": lambda r: r.uniform(1, 3),
    "memory_headroom": lambda r: r.uniform(0, 1),
    "checkpoint_time_s": lambda r: r.uniform(1, 3000),
    "avg_recovery_time_s": lambda r: r.uniform(1, 20000),
    "kwh_price": lambda r: r.uniform(0, 1),
    "unit_cost": lambda r: r.uniform(0, 5e4),
    "infrastructure_multiplier": lambda r: r.uniform(1, 3),
    "maintenance_fraction": lambda r: r.uniform(0, 0.3),
    "amortization_years": lambda r: r.uniform(1, 10),
}
PRICES = ("kwh_price", "unit_cost", "infrastructure_multiplier", "maintenance_fraction", "amortization_years")
SERVING = {name: NODE[name] for name in ("efficiency", "bandwidth_efficiency")} | {n: TRAINING[n] for n in PRICES}
DRAWN = {"node": NODE, "serving": SERVING, "training": TRAINING}


def drawn(kind: str, r: random.Random) -> dict:
    """Fixed inputs of a random point."""
    if kind == "node":
        model = r.choice(["Llama3_8B", "Mixtral_8x7B", "ResNet50"])
        fixed = {"model": model, "precision": r.choice(["fp16", "fp8"])}
        if model != "ResNet50":
            fixed["phase"] = r.choice(["decode", "prefill", "training"])
        return fixed
    model = r.choice(["Llama3_8B", "Mixtral_8x7B"])
    if kind == "serving":
        return {
            "model": model,
            "hardware": r.choice(["H100", "A100"]),
            "tp": r.choice([1, 2, 4]),
            "batch": r.choice([1, 8, 64]),
            "isl": r.choice([64, 4096]),
            "osl": r.choice([16, 512]),
            "grid": "Quebec",
        }
    return {
        "model": model,
        "fleet": "Research_256",
        "batch_size": 512,
        "tp": r.choice([1, 2, 8]),
        "pp": r.choice([1, 2, 4]),
        "cp": r.choice([1, 2, 4]),
        "ep": r.choice([1, 2, 4]) if model == "Mixtral_8x7B" else 1,
        "accelerator_mtbf": r.choice(["200 hour", "50000 hour"]),
        "zero_stage": r.choice([0, 1, 3]),
        "overlap_comm": r.choice([True, False]),
        "grid": "Quebec",
    }


def measured(kind: str, name: str, value: float) -> float | str:
    """A value as a space file has it."""
    spec = kind_named(kind).inputs[name]
    return f"{value!r} {spec.unit}" if spec.kind == "quantity" and spec.plain_unit is None else value


@pytest.mark.parametrize("kind", MONOTONE)
def test_every_name_is_one_of_the_kind(kind: str) -> None:
    declared = kind_named(kind)
    for output, signs in MONOTONE[kind].items():
        assert output in (*declared.outputs, "feasible")
        assert set(signs) <= set(declared.inputs) & set(DRAWN[kind])


@pytest.mark.parametrize("kind", MONOTONE)
@np.errstate(invalid="ignore")
def test_the_better_end_is_no_worse_than_any_feasible_point(kind: str) -> None:
    r = random.Random(20)
    larger = {*kind_named(kind).larger, "feasible"}
    seen: dict[str, int] = dict.fromkeys(DRAWN[kind], 0)
    moved: set[tuple[str, str]] = set()
    for _ in range(40):
        base = drawn(kind, r)
        numbers = {name: draw(r) for name, draw in DRAWN[kind].items()}
        if base["model"] == "ResNet50":
            numbers.pop("seq_len")
        for name in numbers:
            values = sorted({numbers[name], *(DRAWN[kind][name](r) for _ in range(7))})
            fixed = base | {other: measured(kind, other, value) for other, value in numbers.items() if other != name}
            axis = [measured(kind, name, value) for value in values]
            space = Space.from_dict({"kind": kind, "axes": {name: axis}, "fixed": fixed})
            outputs = kind_named(kind).evaluate(space, space.decode(np.arange(len(values))))
            feasible = np.broadcast_to(outputs["feasible"], (len(values),))
            seen[name] += int(feasible.any())
            for output in MONOTONE[kind]:
                sign = direction(kind, output, name)
                if sign is None or output not in outputs:
                    continue
                found = np.broadcast_to(np.asarray(outputs[output], dtype=float), (len(values),))
                if sign == 0:
                    assert found == pytest.approx(np.full_like(found, found[0]), rel=ROUNDING, nan_ok=True)
                    continue
                if np.ptp(found) > 1e-9 * abs(found).max():
                    moved.add((output, name))
                gain = sign if output in larger else -sign
                end, slack = found[-1 if gain > 0 else 0], ROUNDING * abs(found)
                better = found > end + slack if output in larger else found < end - slack
                rows = feasible if output != "feasible" else np.ones(len(values), dtype=bool)
                assert not (better & rows).any(), (kind, output, name, values, found, fixed)
    assert all(count > 5 for count in seen.values()), seen
    # A direction that is declared and never seen would be a guess.
    still = {
        (output, name)
        for output, signs in MONOTONE[kind].items()
        for name, sign in signs.items()
        if sign and (output, name) not in moved
    }
    assert not still
