"""What comes with the package is found by name, from wherever a command runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlsysim.errors import InputError, UnknownNameError
from mlsysim.plans.files import load_plan
from mlsysim.search.space import Space
from mlsysim.zoo.files import example, examples, shipped_files


def test_scenarios_and_spaces_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, path in shipped_files("scenario").items():
        assert load_plan(f"scenario:{name}") == load_plan(path)
    for name, path in shipped_files("space").items():
        found, held = Space.from_toml(f"space:{name}"), Space.from_toml(path)
        assert (found.name, found.size) == (held.name, held.size)
    assert len(examples("scenario")) == 17 and all(table["description"] for table in examples("space").values())


def test_a_file_that_is_missing_here_is_found_in_the_package(tmp_path: Path) -> None:
    own = tmp_path / "chip-design.toml"
    with pytest.raises(InputError, match="space:chip-design comes with mlsysim"):
        example(own, "space")
    own.write_text("")
    assert example(own, "space") == own
    with pytest.raises(UnknownNameError, match="did you mean 'frontier-100k-gpus'"):
        example("scenario:frontier", "scenario")
