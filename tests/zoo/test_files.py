"""Data files read entry by entry: the lazy way agrees with the parser, for every file that is shipped."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from mlsysim.errors import ZooFileError
from mlsysim.zoo.files import Slice, parse_slice, shipped, slices

PACKAGE = Path(str(files("mlsysim")))
BY_ENTRY = [
    *PACKAGE.glob("hardware/data/*.toml"),
    *PACKAGE.glob("models/data/*.toml"),
    *PACKAGE.glob("systems/data/*.toml"),
    *PACKAGE.glob("infra/data/*.toml"),
    *PACKAGE.glob("engine/data/*.toml"),
    *PACKAGE.glob("data/profiles/*.toml"),
    *(PACKAGE / "data" / f"{name}.toml" for name in ("constants", "intervals", "efficiency", "software/engines")),
]
"""Files that are read entry by entry; the others are small and parsed whole."""
SHIPPED = sorted(BY_ENTRY)


def names(paths):
    return [path.relative_to(PACKAGE).as_posix() for path in paths]


def test_files_were_found():
    assert {"data/constants.toml", "hardware/data/nvidia.toml", "models/data/llama.toml"} <= set(names(SHIPPED))


@pytest.mark.parametrize("path", SHIPPED, ids=names(SHIPPED))
def test_slices_agree_with_parsing_the_whole_file(path):
    text = path.read_text(encoding="utf-8")
    whole, pieces = tomllib.loads(text), list(slices(path.name, text))
    keys = [piece.key for piece in pieces]
    assert len(keys) == len(set(keys)), "the tables of an entry must stand together"
    assert {piece.key: parse_slice(piece) for piece in pieces} == whole
    assert keys == list(whole)
    for piece in pieces:
        assert piece.file == path.name
        assert piece.aliases == whole[piece.key].get("aliases", [])
        assert piece.said("namespace") == whole[piece.key].get("namespace")


SAMPLE = """# a comment with [Brackets]

[First]
name = "one"
namespace = "Cloud"
aliases = ["a", "b # not a comment", "c \\"quoted\\"",
  # "not an alias"
  "d",
] # trailing
numbers = [
  [1, 2],
]

[First.memory]
capacity = "1 GB"

[[First.tiers]]
name = "x"

[Second]
name = "two [Third]"
"""


def test_a_file_with_every_kind_of_table():
    first, second = slices("sample.toml", SAMPLE)
    assert (first.key, second.key) == ("First", "Second")
    assert first.said("namespace") == "Cloud" and second.said("namespace") is None
    assert second.aliases == []
    whole = tomllib.loads(SAMPLE)
    assert {p.key: parse_slice(p) for p in (first, second)} == whole
    assert first.aliases == whole["First"]["aliases"]


def test_no_entries():
    assert list(slices("empty.toml", "")) == []
    assert list(slices("top.toml", "a = 1\n# [X]\n")) == []


@pytest.mark.parametrize("text", ["[X]\na = ", "[X]\na = 1\na = 2", "[[X]", "[X]\na = " + "[" * 5_000])
def test_a_broken_entry_names_file_and_entry(text):
    with pytest.raises(ZooFileError, match=r"^broken\.toml, entry 'X': ") as caught:
        parse_slice(Slice("broken.toml", "X", text))
    assert (caught.value.file, caught.value.entry) == ("broken.toml", "X")
    assert caught.value.reason


def test_a_file_that_lies_parsed_beside_itself_is_read_so(tmp_path, monkeypatch):
    room = tmp_path / "a_room_of_tables"
    room.mkdir()
    (room / "__init__.py").touch()
    (room / "one.toml").write_text("a = 1\n")
    (room / "two.toml").write_text("a = 1\n")
    (room / "two.json").write_text('{"a": 2}')
    monkeypatch.syspath_prepend(tmp_path)
    assert [shipped("a_room_of_tables", f"{name}.toml") for name in ("one", "two")] == [{"a": 1}, {"a": 2}]
