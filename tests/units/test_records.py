"""Records behave as the standard library's frozen dataclasses do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import field, replace

import pytest

from mlsysim.units.records import dataclass


@dataclass(frozen=True, slots=True)
class Slotted:
    a: float
    b: tuple[int, ...] = ()
    c: dict = field(default_factory=dict, compare=False)
    d: int = field(default=3, init=False)


@dataclass(frozen=True)
class Derived(Slotted):
    e: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        if self.e < 0:
            raise ValueError("negative")


@dataclass(frozen=True)
class One:
    a: object


def _standard(made: type) -> type:
    body = {"__annotations__": dict(made.__annotations__), "__qualname__": made.__qualname__}
    fields = [(f.name, f.type, field(default=f.default, default_factory=f.default_factory, init=f.init, compare=f.compare, kw_only=f.kw_only)) for f in dataclasses.fields(made)]  # fmt: skip
    return dataclasses.make_dataclass(
        made.__name__, fields, frozen=True, namespace={"__qualname__": body["__qualname__"]}
    )


@pytest.mark.parametrize("made", [Slotted, Derived, One])
def test_a_record_is_what_the_standard_one_is(made):
    standard = _standard(made)
    ours, theirs = made(2.0), standard(2.0)
    assert repr(ours) == repr(theirs) and dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert ours == made(2.0) != made(3.0) and ours != theirs and hash(ours) == hash(made(2.0))
    assert list(inspect.signature(made).parameters) == list(inspect.signature(standard).parameters)
    for wrong in ((), (1, 2, 3, 4, 5)):
        with pytest.raises(TypeError) as said:
            made(*wrong)
        with pytest.raises(TypeError) as expected:
            standard(*wrong)
        assert str(said.value).split("__init__", 1)[1] == str(expected.value).split("__init__", 1)[1]
    for there_and_back in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        assert there_and_back(ours) == ours
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
        ours.a = 3
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
        del ours.a
    assert replace(ours, a=4.0).a == 4.0


def test_what_a_record_leaves_out_of_comparing_and_what_it_refuses():
    assert Slotted(1.0, c={"x": 1}) == Slotted(1.0) and hash(Slotted(1.0, c={"x": 1})) == hash(Slotted(1.0))
    assert Slotted(1.0).c is not Slotted(1.0).c and Slotted(1.0).d == 3
    with pytest.raises(ValueError, match="negative"):
        Derived(1.0, e=-1)
    nan = float("nan")
    assert One(nan) == One(nan)
