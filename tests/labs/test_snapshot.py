"""The memory of a started Python: what is in it is left out of the other files, it is written once, and what cannot be written is told."""

from __future__ import annotations

import json
import re
import sys
from importlib.resources import files

import pytest

from mlsysim.errors import InputError
from mlsysim.labs import bridge, snapshot
from mlsysim.labs.bytecode import NEEDED, SITE, STANDARD
from mlsysim.labs.package import packed

RUNTIME = dict.fromkeys(NEEDED, b"1")
GIVEN = {
    SITE: {"core/core.so": b"linked", "a/early.pyc": b"1", "a/late.pyc": b"2"},
    STANDARD: {"json/__init__.pyc": b"3", "json/tool.pyc": b"5", "csv.pyc": b"4"},
}


def test_without_node_everything_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot.shutil, "which", lambda name: None)
    assert snapshot.with_memory(GIVEN, RUNTIME, tmp_path) == (GIVEN, {})


def test_what_is_in_the_memory_is_left_out_and_the_memory_is_kept(tmp_path, monkeypatch):
    asked = []

    def written(node, given, library, calls, wanted):
        asked.append(library)
        held = [f"{SITE}a/early.pyc", f"{SITE}core/core.so", f"{STANDARD}json/__init__.pyc"]
        return {"memory.bin": b"memory", "held.json": json.dumps(held).encode()}

    monkeypatch.setattr(snapshot.shutil, "which", lambda name: "/usr/bin/node")
    monkeypatch.setattr(snapshot, "_written", written)
    left, memory = snapshot.with_memory(GIVEN, RUNTIME, tmp_path)
    assert left == {SITE: {"a/late.pyc": b"2"}, STANDARD: {"json/tool.pyc": b"5", "csv.pyc": b"4"}}
    place, folder = SITE[1:], snapshot.BESIDE[1:]
    whole = {f"{place}a/early.pyc": b"1", f"{folder}json/__init__.pyc": b"3", f"{folder}json/tool.pyc": b"5"}
    assert memory == {"memory.bin": b"memory", "library.bin": b"linked", "ordinary.bin": packed(whole)}
    assert snapshot.with_memory(GIVEN, RUNTIME, tmp_path) == (left, memory) and asked == ["core/core.so"]
    snapshot.with_memory(GIVEN, RUNTIME | {"pyodide.js": b"2"}, tmp_path)
    assert len(asked) == 2, "another runtime has another memory"


def test_a_memory_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot.shutil, "which", lambda name: sys.executable)  # which cannot read the script
    with pytest.raises(InputError, match=r"Node\.js could not write the memory of the site"):
        snapshot.with_memory(GIVEN, RUNTIME, tmp_path)


def test_what_is_asked_before_it_is_written_has_answers():
    for name, given in snapshot.start():
        assert json.loads(bridge.call(name, json.dumps(given)))["ok"], name


def test_a_page_tells_python_what_the_build_told_it():
    labs = files("mlsysim.labs")
    told = [
        re.findall(r"const env = .*|thisProgram: .*", (labs / name).read_text())
        for name in ("snapshot.mjs", "site/worker.js")
    ]
    assert sorted(told[0]) == sorted(told[1]) and len(told[0]) == 2, "what is told lies in the memory, before all else"
