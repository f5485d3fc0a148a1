"""Quantity fields: what they accept, the sentence with which they refuse, and JSON."""

from __future__ import annotations

import json
import math
import pickle
from functools import cached_property

import pint
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.errors import InputError, UnitError
from mlsysim.units import fields
from mlsysim.units.fields import ByteRate, Bytes, Count, QuantityField, Record, Seconds, quantity_from
from mlsysim.units.registry import Q_, Quantity


class Chip(Record):
    capacity: Bytes
    bandwidth: ByteRate
    latency: Seconds | None = None
    parameters: Count | None = None


def chip(**changes) -> Chip:
    return Chip(**{"capacity": "80 GiB", "bandwidth": "3.35 TB/s", **changes})


ANNOTATED = {
    name: value.__metadata__[0]
    for name, value in vars(fields).items()
    if hasattr(value, "__metadata__") and isinstance(value.__metadata__[0], QuantityField)
}


@pytest.mark.parametrize(
    "value", [Q_("80 GiB"), "80 GiB", {"magnitude": 80, "unit": "GiB"}, {"magnitude": 80, "units": "GiB"}], ids=str
)
def test_accepts_quantity_string_and_mapping_and_keeps_the_unit(value):
    capacity = chip(capacity=value).capacity
    assert isinstance(capacity, Quantity)
    assert capacity.magnitude == 80
    assert f"{capacity.units:~P}" == "GiB"


@pytest.mark.parametrize("value", [80, 80.0, True, None, [], b"80 GiB", object])
def test_refuses_what_has_no_unit(value):
    with pytest.raises(InputError) as caught:
        chip(capacity=value)
    assert "Chip: The 'capacity' field got " in str(caught.value)
    said = (
        "write its unit too, such as '80"
        if isinstance(value, (int, float)) and value is not True
        else "expected a size such as '80 GiB"
    )
    assert f"which has no unit; {said}" in str(caught.value)
    assert caught.value.field == "capacity" and caught.value.record == "Chip"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("989 TFLOPs/s", "which is no size; expected a size such as '80 GiB'."),
        ("80", "got 80, which has no unit; write its unit too, such as '80 GiB'."),
        ("3", "got 3, which has no unit; write its unit too, such as '3 GiB'."),
        ("86000000", "which has no unit; write its unit too, such as '80 GiB'."),
        ("80 GiBs", "There is no unit 'GiBs'"),
        ("9**9**9", "expected a size such as '80 GiB'."),
        ("-80 GiB", "got -80 GiB, which is negative; expected a size such as '80 GiB'."),
        (Q_(math.inf, "GiB"), "got inf, which is not a finite number; expected a size such as '80 GiB'."),
        (Q_(math.nan, "GiB"), "got nan, which is not a finite number; expected a size such as '80 GiB'."),
        (pint.UnitRegistry(None).Quantity(1), "another pint registry; build it with mlsysim.Q_ instead."),
        ({"magnitude": 80}, "got a mapping that is not {'magnitude': number, 'unit': string}; expected"),
        ({"magnitude": "80", "unit": "GiB"}, "got a mapping that is not {'magnitude': number, 'unit': string}"),
        ({"magnitude": True, "unit": "GiB"}, "got a mapping that is not {'magnitude': number, 'unit': string}"),
        ({"magnitude": 8, "unit": "GiB", "x": 1}, "got a mapping that is not {'magnitude': number, 'unit': string}"),
        ({"magnitude": 80, "unit": "GiBs"}, "There is no unit 'GiBs'"),
        ({"magnitude": math.inf, "unit": "GiB"}, "got inf, which is not a finite number"),
    ],
    ids=str,
)
def test_refuses_with_a_sentence_that_names_field_and_reason(value, reason):
    with pytest.raises(InputError) as caught:
        chip(capacity=value)
    assert "'capacity' field" in str(caught.value)
    assert reason in str(caught.value)


def test_numpy_scalars_become_plain_numbers():
    numpy = pytest.importorskip("numpy")
    assert type(chip(capacity=Q_(numpy.int64(80), "GiB")).capacity.magnitude) is int
    assert type(chip(capacity=Q_(numpy.float32(80), "GiB")).capacity.magnitude) is float
    with pytest.raises(InputError, match="not a finite number"):
        chip(capacity=Q_(numpy.float32(math.nan), "GB"))


def test_every_element_of_an_array_is_checked():
    numpy = pytest.importorskip("numpy")
    assert chip(capacity=Q_(numpy.array([1, 2]), "GB")).capacity.magnitude.tolist() == [1, 2]
    for bad, reason in [(math.nan, "not a finite number"), (math.inf, "not a finite number"), (-1.0, "negative")]:
        with pytest.raises(InputError, match=f"The 'capacity' field got .*{reason}; expected a size such as '80 GiB'"):
            chip(capacity=Q_(numpy.array([1.0, bad]), "GB"))


def test_zero_is_allowed():
    assert chip(latency="0 s").latency.magnitude == 0


def test_counts_take_plain_numbers_too():
    assert chip(parameters=70_000_000_000).parameters.to("Bparam").magnitude == pytest.approx(70)
    assert chip(parameters="70.6 Bparam").parameters.to("").magnitude == pytest.approx(70.6e9)
    with pytest.raises(InputError, match="'parameters' field got True"):
        chip(parameters=True)
    with pytest.raises(InputError, match=r"which is no count; expected a count such as '70\.6 Bparam'"):
        chip(parameters="70 GB")


def test_first_of_several_problems_speaks_and_counts_the_rest():
    with pytest.raises(InputError, match=r"'capacity' field got 1.*\(1 more problem after this one\.\)"):
        Chip(capacity=1, bandwidth=2)


def test_missing_field_is_named():
    with pytest.raises(InputError, match="Chip needs the 'bandwidth' field, which was not given"):
        Chip(capacity="80 GiB")


def test_unknown_field_suggests_the_nearest():
    with pytest.raises(InputError, match="Chip has no field 'bandwith'; did you mean 'bandwidth'") as caught:
        chip(bandwith="1 TB/s")
    assert caught.value.field == "bandwith"
    with pytest.raises(InputError, match="its fields are capacity, bandwidth, latency, parameters"):
        chip(zzzqqq=1)


def test_ordinary_fields_are_explained_too():
    class Server(Record):
        count: int

    with pytest.raises(InputError, match=r"Server: the 'count' field got 'many'; expected a whole number such as 2"):
        Server(count="many")


def test_records_are_frozen_and_hold_their_values():
    record = chip()
    with pytest.raises(ValueError, match="frozen"):
        record.capacity = Q_("1 GB")
    assert record.capacity == Q_("80 GiB")


@pytest.mark.parametrize(
    "record",
    [
        chip(),
        chip(bandwidth="400 Gbps", latency="5 us", parameters="70.6 Bparam"),
        chip(parameters=7),
        chip(latency=None),
    ],
)
def test_json_round_trip_keeps_value_and_unit(record):
    twin = Chip.model_validate_json(record.model_dump_json())
    assert twin == record
    for name in Chip.model_fields:
        ours, theirs = getattr(record, name), getattr(twin, name)
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert (ours.magnitude, ours.units) == (theirs.magnitude, theirs.units)
    assert Chip.model_validate(record.model_dump()) == record
    assert pickle.loads(pickle.dumps(record)) == record


@given(
    st.floats(min_value=0, max_value=1e30, allow_subnormal=False),
    st.sampled_from(["GB", "GiB", "byte", "MB", "bit", "TiB", "Gb"]),
)
def test_any_capacity_round_trips_through_json(number, unit):
    record = chip(capacity=Q_(number, unit))
    capacity = Chip.model_validate_json(record.model_dump_json()).capacity
    assert (capacity.magnitude, capacity.units) == (record.capacity.magnitude, record.capacity.units)


def test_dumped_json_is_plain():
    assert json.loads(chip().model_dump_json(exclude_none=True)) == {
        "capacity": {"magnitude": 80, "unit": "GiB"},
        "bandwidth": {"magnitude": 3.35, "unit": "TB / s"},
    }


def test_bad_json_is_a_sentence():
    with pytest.raises(InputError, match="Chip: The 'capacity' field got 80, which has no unit"):
        Chip.model_validate_json('{"capacity": 80, "bandwidth": "1 TB/s"}')
    with pytest.raises(InputError, match="Chip"):
        Chip.model_validate_json("{")


def test_json_schema_names_unit_and_forms():
    schema = Chip.model_json_schema()
    capacity = schema["properties"]["capacity"]
    assert capacity["x-unit"] == "byte"
    assert "80 GiB" in capacity["description"]
    assert [form["type"] for form in capacity["anyOf"]] == ["string", "object"]
    assert capacity["anyOf"][1]["required"] == ["magnitude", "unit"]
    assert schema["required"] == ["capacity", "bandwidth"]
    assert schema["additionalProperties"] is False
    assert {"type": "number"} in QuantityField("", "7", plain_number=True).__get_pydantic_json_schema__({}, None)[
        "anyOf"
    ]


@pytest.mark.parametrize("name", ANNOTATED)
def test_every_field_accepts_its_own_example(name):
    field = ANNOTATED[name]
    quantity = field.read(field.example, "x")
    assert quantity.is_compatible_with(Q_(1, field.unit))


def test_there_is_a_field_for_each_kind_of_quantity():
    assert {"Bytes", "ByteRate", "FlopRate", "Seconds", "Watts", "Dollars", "Joules", "Count"} <= set(ANNOTATED)


def test_quantity_from_speaks_the_same_sentences():
    assert quantity_from("700 W", "W", "700 W", "tdp") == Q_("700 W")
    with pytest.raises(
        UnitError, match=r"The 'tdp' field got 700, which has no unit; write its unit too, such as '700 W'"
    ) as e:
        quantity_from(700, "W", "700 W", "tdp")
    assert (e.value.field, e.value.expected, e.value.example) == ("tdp", "W", "700 W")


def test_a_copy_derives_anew_what_was_derived():
    class Rod(Record):
        length: float

        @cached_property
        def double(self) -> float:
            return 2 * self.length

    rod = Rod(length=1.0)
    assert (rod.double, rod.model_copy(update={"length": 3.0}).double) == (2.0, 6.0)


def test_parts_of_a_record_are_built_with_it_and_once():
    class Inner(Record):
        size: Bytes

    class Other(Record):
        inner: Inner | None = None

    class Outer(Record):
        inner: Inner
        others: tuple[Other, ...] = ()

    assert not Inner.__pydantic_complete__ and not Other.__pydantic_complete__
    made = Outer(inner={"size": "1 GB"}, others=({"inner": {"size": "2 GB"}},))
    assert Inner.__pydantic_complete__
    first = Inner.__pydantic_validator__
    assert made.others[0].inner.size == Q_("2 GB") and Inner(size="1 GB") == made.inner
    assert Inner.__pydantic_validator__ is first


@pytest.mark.parametrize("document", [{1: 2}, {"chip": {1: 2}}, {"chip": {"capacity": {(1, 2): 3}, 4: 5}}])
def test_keys_that_are_no_text_are_refused(document):
    class Board(Record):
        chip: Chip

    with pytest.raises(InputError, match=r"Keys of a table are text, got (1|4|\(1, 2\))\.$"):
        Board.model_validate(document)
