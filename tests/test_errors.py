"""The error tree: its shape, its drawing, pickling and nearest names."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import errors
from mlsysim.errors import (
    InputError,
    MLSysError,
    OOMError,
    SLAViolation,
    UnitError,
    UnknownNameError,
    ZooFileError,
    fold,
    nearest,
    unknown_name,
)

OURS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if kind.__module__ == errors.__name__ and issubclass(kind, Exception)
]


@pytest.mark.parametrize(
    ("kind", "bases"),
    [
        (InputError, (MLSysError, ValueError)),
        (UnitError, (InputError,)),
        (UnknownNameError, (InputError, AttributeError, KeyError)),
        (ZooFileError, (InputError,)),
        (OOMError, (MLSysError,)),
        (SLAViolation, (MLSysError,)),
        (errors.DataWarning, (UserWarning,)),
        (errors.ThermalThrottleWarning, (UserWarning,)),
    ],
)
def test_tree(kind, bases):
    assert kind.__bases__ == bases


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_the_drawing_at_the_top_names_every_error(kind):
    assert kind.__name__ in (errors.__doc__ or "")
    assert kind.__name__ in errors.__all__


def test_running_out_of_memory_is_not_the_callers_mistake():
    assert not issubclass(OOMError, ValueError)


@pytest.mark.parametrize("kind", [k for k in OURS if issubclass(k, MLSysError)], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("duplicate", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_errors_travel_whole(kind, duplicate):
    error = kind("It does not fit.", needed=2, available=[1])
    twin = duplicate(error)
    assert type(twin) is kind
    assert str(twin) == "It does not fit."
    assert (twin.needed, twin.available) == (2, [1])
    with pytest.raises(AttributeError):
        twin.no_such_detail


def test_message_is_printed_plainly():
    assert str(UnknownNameError("There is no chip.")) == "There is no chip."


@pytest.mark.parametrize(
    ("name", "valid", "best"),
    [
        ("h-100", ["A100", "H100", "TPU_v4"], "H100"),
        ("llama3.1-70b", ["Llama3_70B", "Llama-3.1-70B", "GPT3"], "Llama-3.1-70B"),
        ("bandwith", ["bandwidth", "capacity"], "bandwidth"),
        ("cerebras", ["Cloud_Cerebras_WaferScale_Engine_CS3"], "Cloud_Cerebras_WaferScale_Engine_CS3"),
    ],
)
def test_nearest(name, valid, best):
    assert nearest(name, valid)[0] == best


@given(st.text(max_size=300), st.lists(st.text(max_size=20), max_size=20), st.integers(min_value=1, max_value=5))
def test_nearest_gives_valid_names_only(name, valid, limit):
    found = nearest(name, valid, limit)
    assert len(found) <= limit
    assert set(found) <= set(valid)


@given(st.lists(st.from_regex(r"[A-Z][a-z0-9]{2,8}", fullmatch=True), min_size=1, max_size=8, unique_by=str.lower))
def test_a_name_is_nearest_to_itself_whatever_its_case(valid):
    assert nearest(valid[0].upper(), valid)[0] == valid[0]


def test_fold():
    assert fold("Llama-3.1-70B") == "llama3170b"


def test_unknown_name_says_kind_name_and_nearest():
    error = unknown_name("hardware", "H10O", ["H100", "A100"])
    assert str(error).startswith("There is no hardware named 'H10O'; did you mean 'H100'")
    assert (error.kind, error.name, error.suggestions[0]) == ("hardware", "H10O", "H100")
    assert str(unknown_name("grid", "zz", ["Quebec"], remedy="see list(Grids).")) == (
        "There is no grid named 'zz'; see list(Grids)."
    )
    assert str(unknown_name("grid", "zz", [])) == "There is no grid named 'zz'."
    assert len(str(unknown_name("grid", "z" * 10_000, ["Quebec"]))) < 200
