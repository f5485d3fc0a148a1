"""Notebooks run: cell by cell, as Jupyter does, without it; the last expression of a cell has a rich display or a text."""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "src" / "mlsysim" / "examples" / "notebooks").glob("*.ipynb"))


def run_cell(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """What a cell prints, and the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    return printed.getvalue(), value


def code_cells(path: Path) -> list[str]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4 and len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert all(not cell.get("outputs") for cell in notebook["cells"]), "notebooks are kept without outputs"
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_is_a_quickstart() -> None:
    assert "quickstart.ipynb" in [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_every_cell_runs_and_shows_something(path: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    rich = 0
    for source in code_cells(path):
        printed, value = run_cell(source, names)
        assert printed.strip() or value is not None, source
        if hasattr(value, "_repr_html_"):
            assert value._repr_html_().lstrip().startswith("<")
            rich += 1
        elif hasattr(value, "_repr_svg_"):
            assert "<svg" in value._repr_svg_()
            rich += 1
    assert rich >= 3, "results and charts display themselves"


def test_the_quickstart_says_what_it_should() -> None:
    quickstart = next(path for path in NOTEBOOKS if path.name == "quickstart.ipynb")
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = "".join(run_cell(source, names)[0] for source in code_cells(quickstart))
    assert "Wall 2 (Memory) binds" in printed
    assert "got 10 TFLOPs/s, which is no bandwidth; expected a bandwidth such as '400 Gbps'." in printed
    assert "Right: the engine says 7.103 ms." in printed
    assert names["answer"].feasible
