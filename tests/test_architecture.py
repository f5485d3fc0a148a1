"""The rooms: who may import whom, read off the source with ast."""

from __future__ import annotations

import ast
import re
from importlib.resources import files
from pathlib import Path

import pytest

from mlsysim.walls.catalog import RESOLVERS

PACKAGE = Path(str(files("mlsysim")))

_LAYERS = {"hardware", "models", "infra"}
_BASE = {"errors", "vocabulary", "units", "physics", "zoo"}

_CASES = _BASE | _LAYERS | {"systems", "timing", "cases"}
_WALLS = _CASES | {"walls"}
_SEARCH = _WALLS | {"simulate", "search", "importers"}

# Which rooms a room may import from, besides itself. None: anything.
ROOMS: dict[str, set[str] | None] = {
    "errors": set(),
    "vocabulary": {"zoo"},
    "units": {"errors"},
    "physics": {"errors", "units"},
    "zoo": {"errors", "units"},
    "hardware": _BASE,
    "models": _BASE,
    "infra": _BASE,
    "systems": _BASE | _LAYERS,
    "timing": _BASE | _LAYERS | {"systems"},
    "cases": _BASE | _LAYERS | {"systems", "timing"},
    "walls": _CASES,
    "simulate": _CASES,
    "search": _WALLS | {"simulate"},
    "importers": _WALLS,
    "plans": _SEARCH,
    "engine": _SEARCH | {"plans"},
    "calibrate": _SEARCH | {"plans"},
    "launch": _SEARCH | {"plans"},
    "plot": _SEARCH | {"plans", "engine"},
    "report": _SEARCH | {"plans", "launch", "plot"},
    "swept": _SEARCH | {"plans", "plot"},
    "ask": _SEARCH | {"plans", "engine", "plot", "swept"},
    "api": _SEARCH | {"plans", "launch", "plot", "report"},
    "labs": _SEARCH | {"plans", "launch", "plot", "report", "show"},
    "show": {"errors", "units"},
    "data": set(),
    "examples": None,
    "core": None,
    "cli": None,
    "__main__": None,
}

# Packages from outside that only some modules may import.
GUARDED = {
    "numpy": ("search/", "calibrate/", "units/ops.py"),
    "typer": ("cli/",),
    "rich": ("cli/",),
}


def imports(path: Path, package: Path, run: bool = False) -> list[tuple[int, str]]:
    """Line and dotted name of everything a module imports, wherever in it; relative imports made absolute.

    With ``run``, what only the type checker imports is left out.
    """
    here = (package.name, *path.relative_to(package).parts[:-1])
    found = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing = {id(node) for block in ast.walk(tree) if _is_for_types(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if run and id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                found.append((node.lineno, node.args[0].value))
    return found


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).removeprefix("typing.") == "TYPE_CHECKING"


def module_graph(package: Path) -> dict[str, set[str]]:
    """Modules, and the modules of the package that each imports when it runs, at the top or in a function."""
    files = {}
    for path in sorted(package.rglob("*.py")):
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        graph[module] = set()
        for _, name in imports(path, package, run=True):
            while name and name not in files:
                name = name.rpartition(".")[0]
            graph[module] |= {name} - {"", module}
    return graph


_OF_ANSWERS = {"physics", "timing", "cases", "walls"}


def circles(package: Path) -> list[set[str]]:
    """Groups of modules that import each other, at the top or in a function; what only types need does not count."""
    graph = module_graph(package)
    # What imports nothing that is left is in no circle, and neither is what nothing that is left imports.
    while True:
        reached = set().union(*graph.values()) if graph else set()
        kept = {m: to & graph.keys() for m, to in graph.items() if m in reached and to & graph.keys()}
        if kept == graph:
            break
        graph = kept
    found = []
    while graph:
        inside = _reached(graph, start := next(iter(graph))) & {m for m in graph if start in _reached(graph, m)}
        if inside:
            found.append(inside)
        graph = {m: to - inside - {start} for m, to in graph.items() if m not in inside | {start}}
    return found


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        module = ahead.pop()
        if module not in seen:
            seen.add(module)
            ahead += graph.get(module, ())
    return seen


def room_of(path: Path, package: Path) -> str:
    return path.relative_to(package).parts[0].removesuffix(".py")


def bad_arrows(package: Path) -> list[str]:
    """One sentence for each import that goes against the rooms."""
    problems = []
    for path in sorted(package.rglob("*.py")):
        room, where = room_of(path, package), path.relative_to(package).as_posix()
        if room == "__init__":
            continue
        if room not in ROOMS:
            problems.append(f"{where}: {room!r} is no room of the design")
            continue
        allowed = ROOMS[room]
        for line, name in imports(path, package):
            top, *rest = name.split(".")
            if top == package.name:
                target = rest[0] if rest else ""
                if allowed is not None and target not in {room, *allowed}:
                    problems.append(f"{where}:{line}: {room} may not import {name}")
            elif top in GUARDED and not where.startswith(GUARDED[top]):
                problems.append(f"{where}:{line}: {top} may be imported by {', '.join(GUARDED[top])} only")
    return problems


def test_no_arrow_goes_against_the_rooms():
    assert bad_arrows(PACKAGE) == []


def test_no_modules_import_each_other():
    assert circles(PACKAGE) == []


def test_the_graph_was_read():
    graph = {
        (room_of(path, PACKAGE), name.split(".")[1])
        for path in PACKAGE.rglob("*.py")
        for _, name in imports(path, PACKAGE)
        if name.startswith("mlsysim.")
    }
    assert {("units", "errors"), ("zoo", "units"), ("hardware", "physics"), ("systems", "hardware")} <= graph


def test_numpy_is_imported_lazily_where_the_core_may_import_it():
    tree = ast.parse((PACKAGE / "units" / "ops.py").read_text(encoding="utf-8"))
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [alias.name for node in top for alias in node.names]
    assert "numpy" not in names


def test_the_package_itself_imports_nothing_of_ours():
    assert [name for _, name in imports(PACKAGE / "__init__.py", PACKAGE) if name.startswith("mlsysim")] == []


def test_rooms_are_ordered():
    """The table of rooms has no cycle, so that left to right means something."""
    for room, allowed in ROOMS.items():
        for other in allowed or ():
            assert room not in (ROOMS[other] or ()), f"{room} and {other} may import each other"


# --- what is scored is what is asked ------------------------------------------------------------------------------

PHYSICS = ("physics", "timing", "cases", "walls")


def only_calibrated(package: Path) -> set[str]:
    """Modules of physics, timing, cases and walls that no module outside reaches but calibrate. Walls are asked by name."""
    paths = {path: ".".join(path.relative_to(package).with_suffix("").parts) for path in package.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for path, name in paths.items()}

    def known(name: str) -> str:
        """The module that an imported name is of."""
        found = name.partition(".")[2]
        while found and found not in modules:
            found = found.rpartition(".")[0]
        return found

    def reached(starts: list[str], without: str = "") -> set[str]:
        """Modules that these import, and what those import; nothing in the room ``without``."""
        todo, seen = list(starts), set(starts)
        while todo:
            for _, name in imports(modules[todo.pop()], package):
                target = known(name)
                room = target.partition(".")[0]
                if name.startswith(f"{package.name}.") and target not in seen and room not in ("", without):
                    seen.add(target)
                    todo.append(target)
        return seen

    named = [name.partition(".")[2] for name in RESOLVERS.values()]
    outside = [name for name in modules if name.partition(".")[0] not in (*PHYSICS, "calibrate")]
    asked = reached([*outside, *(name for name in named if name in modules)], "calibrate")
    scored = reached([name for name in modules if name.startswith("calibrate")])
    return {
        name
        for name in scored - asked
        if name.startswith(tuple(f"{room}." for room in PHYSICS)) and modules[name].name != "__init__.py"
    }


def test_no_form_is_scored_that_no_answer_uses():
    assert only_calibrated(PACKAGE) == set()


def test_a_form_of_calibrate_alone_is_caught(planted, tmp_path):
    planted("timing/used.py", "from mlsysim.units import ops\n")
    planted("timing/scored.py", "from mlsysim.units import ops\n")
    planted("plans/plan.py", "def f():\n    from mlsysim.timing.used import x\n")
    planted("calibrate/table.py", "from mlsysim.timing import scored\nfrom mlsysim.timing.used import x\n")
    assert only_calibrated(tmp_path / "mlsysim") == {"timing.scored"}


def test_the_page_says_how_long_the_longest_wall_is():
    page = PACKAGE.parents[1] / "docs" / "architecture.md"
    if not page.is_file():
        pytest.skip("there are no pages beside an installed package")
    said = re.search(r"90 to 220 lines \(the largest (\d+)\)", page.read_text(encoding="utf-8"))
    lengths = sorted(len(path.read_text(encoding="utf-8").splitlines()) for path in (PACKAGE / "walls").glob("*/*.py"))
    assert said is not None and int(said[1]) == lengths[-1]
    assert sum(90 <= length <= 220 for length in lengths) > len(lengths) / 2


# --- words are written, not read ----------------------------------------------------------------------------------

_CUTS = {"partition", "rpartition", "split", "rsplit", "startswith", "endswith", "removeprefix", "removesuffix"}
_SAID = {"assumptions", "assumed", "verdict", "warnings", "risks", "interval"}


def prose_parsed(package: Path) -> list[str]:
    """Where words of an answer are taken apart to learn something, rather than asked as data (``Assumption`` has value and origin)."""
    found = []
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            cut = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CUTS
            read = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)} if cut else set()
            if read & _SAID:
                found.append(f"{path.relative_to(package).as_posix()}: {ast.unparse(node)}")
    return found


_MEASURED = "calibrate/verify.py: str(result.assumptions.get('interval', '')).startswith('extrapolating')"
"""Whether a band extrapolates is no value of its assumption yet: its words begin so."""


def test_no_words_of_an_answer_are_taken_apart():
    assert prose_parsed(PACKAGE) == [_MEASURED]


def test_words_that_are_taken_apart_are_caught(planted, tmp_path):
    planted("report/a.py", "def f(answer):\n    return answer.assumptions.get('precision', '').partition(',')[0]\n")
    assert prose_parsed(tmp_path / "mlsysim") == ["report/a.py: answer.assumptions.get('precision', '').partition(',')"]


# --- the checker itself -------------------------------------------------------------------------------------------


@pytest.fixture
def planted(tmp_path):
    """A small package that obeys the rooms; the function adds a module to it and checks it."""
    package = tmp_path / "mlsysim"

    def plant(where: str, text: str) -> list[str]:
        path = package / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return bad_arrows(package)

    plant.package = package
    plant("__init__.py", "from mlsysim.engine import anything\n")
    plant("errors.py", "import json\n")
    plant("units/registry.py", "import pint\nfrom mlsysim.errors import UnitError\n")
    plant("units/ops.py", "def f():\n    import numpy\n")
    plant("search/sweep.py", "import numpy as np\nfrom mlsysim.walls.base import Resolver\n")
    plant("cli/main.py", "import typer\nfrom mlsysim.search import sweep\n")
    plant("core/solver.py", "from mlsysim.walls import anything\n")
    return plant


def test_an_obedient_package_passes(planted):
    assert planted("physics/roofline.py", "from mlsysim.units.kernel import kernel\n") == []


def test_a_planted_circle_is_caught(planted):
    planted("models/a.py", "from mlsysim.models import b\n")
    planted("models/b.py", "def f():\n    import mlsysim.models.c\n")
    planted("models/c.py", "if TYPE_CHECKING:\n    from mlsysim.models.a import A\n")
    assert circles(planted.package) == []
    planted("models/c.py", "from .a import A\n")
    planted("models/d.py", "from mlsysim.models import c\n")
    assert circles(planted.package) == [{"mlsysim.models.a", "mlsysim.models.b", "mlsysim.models.c"}]


@pytest.mark.parametrize(
    ("where", "text", "problem"),
    [
        ("errors.py", "from mlsysim.units.registry import Q_\n", "errors may not import mlsysim.units.registry.Q_"),
        ("units/text.py", "import mlsysim.physics.roofline\n", "units may not import mlsysim.physics.roofline"),
        ("units/a.py", "def f():\n    from mlsysim import zoo\n", "a.py:2: units may not import mlsysim.zoo"),
        ("units/a.py", "from ..physics import roofline\n", "units may not import mlsysim.physics.roofline"),
        ("units/sub/a.py", "from ... import walls\n", "units may not import mlsysim.walls"),
        ("units/a.py", "from mlsysim import Q_\n", "units may not import mlsysim.Q_"),
        ("units/a.py", "import mlsysim\n", "units may not import mlsysim"),
        ("physics/a.py", "from mlsysim.zoo.constants import constant\n", "physics may not import mlsysim.zoo"),
        ("zoo/a.py", "from mlsysim.physics import roofline\n", "zoo may not import mlsysim.physics"),
        ("hardware/a.py", "from mlsysim.models.types import Workload\n", "hardware may not import mlsysim.models"),
        ("models/a.py", "if True:\n    import mlsysim.infra\n", "models may not import mlsysim.infra"),
        ("systems/a.py", "from mlsysim.walls.base import Result\n", "systems may not import mlsysim.walls"),
        ("timing/a.py", "from mlsysim.cases import x\n", "timing may not import mlsysim.cases"),
        ("cases/a.py", "from mlsysim.walls import x\n", "cases may not import mlsysim.walls"),
        ("walls/node/a.py", "from mlsysim.engine import x\n", "walls may not import mlsysim.engine"),
        ("plans/a.py", "from mlsysim.engine import x\n", "plans may not import mlsysim.engine"),
        ("simulate/a.py", "from mlsysim.walls import x\n", "simulate may not import mlsysim.walls"),
        ("importers/a.py", "from mlsysim.simulate import x\n", "importers may not import mlsysim.simulate"),
        ("search/a.py", "from mlsysim.calibrate import fit\n", "search may not import mlsysim.calibrate"),
        ("show.py", "from mlsysim.hardware.registry import Hardware\n", "show may not import mlsysim.hardware"),
        ("engine/a.py", "from mlsysim.core.constants import Q_\n", "engine may not import mlsysim.core"),
        ("units/a.py", "import_module('mlsysim.walls.base')\n", "units may not import mlsysim.walls.base"),
        ("cellar/a.py", "", "'cellar' is no room of the design"),
        ("walls/a.py", "import numpy as np\n", "numpy may be imported by search/, calibrate/, units/ops.py only"),
        ("units/registry.py", "from numpy import array\n", "numpy may be imported by"),
        ("core/a.py", "from rich.table import Table\n", "rich may be imported by cli/ only"),
        ("show.py", "import typer\n", "typer may be imported by cli/ only"),
    ],
)
def test_a_planted_bad_arrow_is_caught(planted, where, text, problem):
    (found,) = planted(where, text)
    assert problem in found and found.startswith(where)
