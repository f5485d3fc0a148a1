"""The generators of ``benchmarks/fuzz.py``, shared by the suites that feed them to the code."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"


@pytest.fixture(scope="session")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mlsysim_fuzz", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mlsysim_fuzz"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last answer of a test is not that of the user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
