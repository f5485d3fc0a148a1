"""What the prompts of a trace ask for as work alone: never more than a play does."""

from __future__ import annotations

import pytest

from mlsysim.cases.deployment import Degrees
from mlsysim.plans.designs import ChipDesigns, Design
from mlsysim.plans.offered import breaks
from mlsysim.plans.plan import Plan
from mlsysim.plans.served import Layout


@pytest.mark.parametrize("slo", ["ttft_p99=2s", "ttft=300ms"])
@pytest.mark.parametrize("pool", [None, "L40S"])
def test_no_play_keeps_what_the_work_of_its_prompts_breaks(slo, pool):
    serving = {"trace": "azure-code", "slo": slo}
    plan = Plan.model_validate(
        {"task": "serving", "hardware": {"on": "L40S"}, "workload": {"model": "Llama3_8B"}, "serving": serving}
    )
    designs = ChipDesigns(plan, "L40S", lambda words: None)
    one, found = Degrees(1), []
    for replicas in (1, 2, 4):
        design = Design("L40S", Layout(one, replicas, *((one, 4) if pool else ())), pool)
        broken = breaks(designs._at(design), designs.pools.arrivals.trace, replicas)
        found.append(broken)
        if broken:
            assert not designs._play(design).kept
    # Twice as many break no more.
    assert found == sorted(found, reverse=True)


def test_the_work_of_prompts_says_something():
    serving = {"trace": "azure-code", "slo": "ttft_p99=2s"}
    plan = Plan.model_validate(
        {"task": "serving", "hardware": {"on": "L40S"}, "workload": {"model": "Llama3_8B"}, "serving": serving}
    )
    designs = ChipDesigns(plan, "L40S", lambda words: None)
    found = [
        breaks(designs._at(Design("L40S", Layout(Degrees(1), many))), designs.pools.arrivals.trace, many)
        for many in (1, 4, 8)
    ]
    assert found == [True, True, False]
