"""TOML and YAML: what is written reads back, and what others wrote is read in bounds."""

import datetime
import tomllib

import pytest

from mlsysim.errors import InputError
from mlsysim.importers.markup import plain, read_toml, read_yaml, table_lines, toml
from mlsysim.units.registry import Q_

FIELDS = {
    "name": 'quotes " and \\ and DEL \x7f and é and \U0001f600',
    "rows": [1, 2.5, True, "three"],
    "day": datetime.date(2024, 5, 1),
    "a key": {"bf16/bf16": {"share": 0.1}, "empty": {}},
    "assert": [{"metric": "latency", "max": 1.0}, {"metric": "cost"}],
}


@pytest.mark.parametrize("apart", [False, True])
def test_what_is_written_reads_back(apart: bool) -> None:
    lines = table_lines("own", FIELDS, apart=apart)
    assert tomllib.loads("\n".join(lines)) == {"own": FIELDS}
    assert ("[[own.assert]]" in lines) is apart
    assert tomllib.loads(f"own = {toml(FIELDS)}") == {"own": FIELDS}


def test_what_is_none_is_left_out_and_what_has_no_form_refused() -> None:
    assert table_lines("a", {"b": None, "c": 1}) == ["", "[a]", "c = 1"]
    with pytest.raises(InputError, match=r"^complex has no form in TOML\.$"):
        toml(1j)


def test_quantities_and_floats_are_written_as_asked() -> None:
    found = plain({"times": (Q_("2 ms"),), "share": 0.5}, lambda q: f"{q.to('us').magnitude:g} us")
    assert toml(found, "{:.2f}".format) == '{times = ["2000 us"], share = 0.50}'


def test_texts_that_are_no_toml_are_one_sentence() -> None:
    with pytest.raises(InputError, match=r"^It is not valid TOML: .*\.$"):
        read_toml("a = ", "It")


def test_yaml_is_read_without_aliases_and_not_deep() -> None:
    pytest.importorskip("yaml")
    assert read_yaml("a: R&D *\n---\n---\nb: &x [1]\n", "It") == [{"a": "R&D *"}, {"b": [1]}]
    with pytest.raises(InputError, match=r"^It: YAML anchors and aliases are not read; write the values out\.$"):
        read_yaml("a: &x [1]\nb: *x", "It")
    with pytest.raises(InputError, match=r"^It is not valid YAML: "):
        read_yaml("a: [", "It")
    for deep in ("[" * 500_000, "\n".join(" " * i + "a:" for i in range(40))):
        with pytest.raises(InputError, match=r"^'It' is nested more than 32 deep\.$"):
            read_yaml(deep, "It")
