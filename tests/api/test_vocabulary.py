"""Words that people use in documents as on the command line: several values at once, lists of plans, users."""

from __future__ import annotations

import pytest

from mlsysim.api.service import call

SERVED = {"model": "Llama3_8B", "task": "serving"}


@pytest.mark.parametrize(
    ("asked", "over"),
    [
        ({**SERVED, "on": ["1xH100", "1xH200"], "qps": 5}, {"on": ["1xH100", "1xH200"]}),
        ({"plan": {**SERVED, "on": ["1xH100", "1xH200"], "qps": 5}}, {"on": ["1xH100", "1xH200"]}),
        ({**SERVED, "on": "1xH100", "users": [1, 8]}, {"users": [1, 8]}),
    ],
)
def test_lists_are_what_a_sweep_varies(asked, over):
    found = call("sweep", asked).document
    assert found["over"] == over and len(found["points"]) == 2
    name = next(iter(over))
    plan = asked.get("plan", asked)
    explicit = {"plan": {**{k: v for k, v in plan.items() if k != name}, "on": plan["on"]}, "over": over}
    explicit["plan"]["on"] = "1xH100"
    assert call("sweep", explicit).document["points"] == found["points"]


def test_two_plans_of_a_list_are_compared():
    both = call("compare", {"plans": ["Llama3_8B@1xH100", "Llama3_8B@1xH200"]}).document
    assert both == call("compare", {"first": "Llama3_8B@1xH100", "second": "Llama3_8B@1xH200"}).document
    three = call("compare", {"plans": ["Llama3_8B@1xH100"] * 3}).document["error"]
    assert three["sentence"] == "'plans' has 3; compare takes two, and sweep any number."


def test_users_are_requests_at_a_time():
    users, same = (call("evaluate", {**SERVED, "on": "1xH100", name: 16}).document for name in ("users", "concurrency"))
    assert users["metrics"] == same["metrics"]


def test_an_answer_takes_one_fleet():
    said = call("evaluate", {**SERVED, "on": ["1xH100", "1xH200"]}).document["error"]["sentence"]
    assert said.endswith("expected text, once; a sweep takes several.")
