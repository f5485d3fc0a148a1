"""Calls by name: JSON in, JSON out, and never an exception."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.labs import bridge, rpc


@pytest.fixture
def functions(monkeypatch):
    monkeypatch.setattr(rpc, "_FUNCTIONS", {})
    monkeypatch.setattr(rpc, "_LATER", {})

    @rpc.offer
    def add(a, b=1):
        return a + b

    @rpc.offer
    def divide(a, b):
        if b == 0:
            raise InputError("A divisor\n  is not zero.")
        return a / b

    @rpc.offer
    def endless():
        return float("inf")


def answer(name, /, **args):
    return json.loads(rpc.call(name, json.dumps(args)))


def test_a_function_is_called_by_its_name(functions):
    assert answer("add", a=2, b=3) == {"ok": True, "value": 5}
    assert answer("add", a=2) == {"ok": True, "value": 3}
    assert rpc.offered() == ["add", "divide", "endless"]


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "sentence"),
    [
        ("ad", "{}", "input", "There is no function named 'ad'; did you mean 'add'?"),
        ("add", "{", "input", "The arguments of add are no JSON"),
        ("add", "[1]", "input", "The arguments of add must be a JSON object, not list."),
        ("add", '{"c": 1}', "input", "add: missing a required argument: 'a'; its arguments are (a, b=1)."),
        ("add", '{"a": 1, "c": 1}', "input", "add: got an unexpected keyword argument 'c'"),
        ("divide", '{"a": 1, "b": 0}', "input", "A divisor is not zero."),
        ("divide", '{"a": "x", "b": 2}', "internal", "divide failed: TypeError"),
        ("endless", "{}", "internal", "endless failed: ValueError: Out of range float values are not JSON compliant"),
    ],
)
def test_what_goes_wrong_is_one_sentence(functions, name, arguments, kind, sentence):
    told = json.loads(rpc.call(name, arguments))
    assert told["ok"] is False and told["kind"] == kind
    assert told["error"].startswith(sentence) and "\n" not in told["error"]


def test_a_name_belongs_to_one_module(functions):
    def add():
        """From elsewhere."""

    add.__module__ = "elsewhere"
    with pytest.raises(ValueError, match="offered by"):
        rpc.offer(add)


@given(
    name=st.text() | st.sampled_from(["about", "evaluate"]),
    arguments=st.text()
    | st.builds(
        json.dumps,
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda part: (
                st.lists(part)
                | st.dictionaries(st.text() | st.sampled_from(["plan", "workload", "model", "hardware", "on"]), part)
            ),
            max_leaves=5,
        ),
    ),
)
def test_no_call_raises(name, arguments):
    told = json.loads(bridge.call(name, arguments))
    assert told["ok"] or (told["kind"] == "input" and told["error"])


def test_the_bridge_tells_about_itself():
    about = answer("about")["value"]
    assert about["functions"] == rpc.offered() and {"about", "evaluate"} <= set(about["functions"])


def test_modules_that_come_later_offer_what_is_said_of_them():
    for module, names in bridge.LATER.items():
        import_module(f"mlsysim.labs.{module}")
        theirs = [name for name, made in rpc._FUNCTIONS.items() if made.__module__ == f"mlsysim.labs.{module}"]
        assert sorted(theirs) == sorted(names), module


def test_the_first_answer_does_not_wait_for_charts_launch_files_and_labs():
    script = """
import json, sys
from mlsysim.labs import bridge
plan = {"workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xH100"}, "task": "training"}
assert bridge.call("at_once", json.dumps({"plan": plan})).startswith('{"ok": true')
comes_later = ("mlsysim.launch", "mlsysim.labs.further", "mlsysim.labs.runner", "mlsysim.plot.charts", "mlsysim.simulate.traces")
late = [name for name in sys.modules if name.startswith((*comes_later, "mlsysim.plans.audit", "mlsysim.walls.analysis"))]
assert not late, late
assert '"ok": true' in bridge.call("list_labs") and "mlsysim.labs.runner" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
