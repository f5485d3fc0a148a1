"""A play that was killed: what it lost is said by the next one."""

import os
import subprocess
import sys

import pytest

from mlsysim.cli import last
from mlsysim.plans.plan import Plan


@pytest.mark.skipif(os.name != "posix", reason="processes are looked for by their numbers")
def test_what_a_killed_play_lost_is_said_by_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(last, "_OFTEN", -1.0)
    plan = Plan.model_validate({"model": "Llama3_8B", "hardware": {"on": "1xH100"}, "serving": {"trace": "azure-code"}})
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with last._noted(plan) as note:
        note(5000, 8819)
        (own,) = tmp_path.glob("mlsysim/playing-*.json")
        killed = own.rename(own.with_name(f"playing-{gone.pid}.json"))
        note(6000, 8819)
    assert [*tmp_path.glob("mlsysim/playing-*.json")] == [killed]
    said = "azure-code was killed with 5,000 of about 8,819 requests answered"
    with pytest.warns(UserWarning, match=said), last._noted(plan):
        pass
    assert not [*tmp_path.glob("mlsysim/playing-*.json")]


def test_nothing_is_noted_of_plans_without_a_trace():
    plan = Plan.model_validate({"task": "training", "model": "Llama3_8B", "hardware": {"on": "8xH100"}})
    with last._noted(plan) as note:
        assert note is None
