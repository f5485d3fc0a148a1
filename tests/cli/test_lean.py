"""pint as a command imports it: all of it works, its reader of definitions is imported once it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import mlsysim


def run(code: str, *folders: Path) -> list[str]:
    places = (*folders, Path(mlsysim.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    command = [sys.executable, "-c", "import sys\nfrom mlsysim.cli.lean import import_pint\nimport_pint()\n" + code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_command_imports_no_reader_of_definitions_and_no_arrays():
    code = """
from mlsysim.cli.main import main
sys.argv = ["mlsysim", "eval", "Llama3_8B", "H100", "--json"]
try:
    main()
finally:
    print([name for name in ("flexparser", "flexcache", "numpy", "mlsysim.cli.sweep", "email.parser", "statistics") if name in sys.modules])
"""
    assert run(code)[-1] == "[]"


def test_the_reader_comes_once_it_is_used():
    code = """
import pint
from mlsysim.units.registry import Q_, ureg
print("flexparser" in sys.modules, Q_("3 kB/s").to("B/s"))
ureg.define("handful = 5 * count")
print("flexparser" in sys.modules, Q_(2, "handful").to("count").magnitude)
print(pint.UnitRegistry()("3 inch").to("cm"), sys.modules["pint.delegates.txt_defparser"].DefParser.__module__)
"""
    assert run(code) == [
        "False 3000.0 byte / second",
        "True 10",
        "7.62 centimeter pint.delegates.txt_defparser.defparser",
    ]


def test_the_metadata_of_packages_comes_once_it_is_asked_for():
    code = """
import importlib.metadata
from importlib.metadata import version
print("email.parser" in sys.modules)
print(version("pint") == importlib.metadata.version("pint") != "", "email.parser" in sys.modules)
try:
    importlib.metadata.version("no-such-package")
except importlib.metadata.PackageNotFoundError:
    print("not found")
"""
    assert run(code) == ["False", "True True", "not found"]


def test_another_pint_is_imported_as_it_is(tmp_path):
    folder = tmp_path / "pint" / "delegates"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "base_defparser.py").write_text("class Base:\n    name = 'own'\n")
    (tmp_path / "pint" / "__init__.py").write_text(
        "from pint.delegates.base_defparser import Base\nclass Made(Base):\n    pass\n"
    )
    code = "import pint\nprint(pint.Made.name)\nprint('numpy' in sys.modules and sys.modules['numpy'] is None)"
    assert run(code, tmp_path) == ["own", "False"]
