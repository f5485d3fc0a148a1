"""Figures: the document, its ids, saving, Matplotlib, and what runs where there is nothing but Python."""

from __future__ import annotations

import builtins
import importlib
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from mlsysim import plot
from mlsysim.errors import InputError

FIGURES = {
    "roofline": lambda: plot.roofline("H100", ["Llama3_8B"]),
    "distributed_roofline": lambda: plot.distributed_roofline("Meta_16K", ["Llama3_8B"]),
    "waterfall": lambda: plot.waterfall([("compute", "5 s"), ("bubble", "1 s")]),
    "tornado": lambda: plot.tornado([("bandwidth", 9, 12)], base=10, unit="ms"),
    "heat_map": lambda: plot.heat_map([1, 2], [3], [[4, None]], x_title="x", y_title="y", value_title="v"),
    "regime_map": lambda: plot.regime_map([1, 2], [3], [["Compute", None]], x_title="x", y_title="y"),
    "pareto": lambda: plot.pareto([("a", "1 s", 2), ("b", "2 s", 1)], x_title="Time", y_title="Cost"),
    "lines": lambda: plot.lines([("p99", [(1, 7.4), (2, 1.0)])], x_title="Replicas", y_title="First token", y_unit="s"),
    "timeline": lambda: plot.timeline("zero_bubble", 3, 4),
    "memory_timeline": lambda: plot.memory_timeline("1f1b", 3, 4, activations="1 GB", state="2 GB", capacity="8 GB"),
    "memory_bar": lambda: plot.memory_bar([("weights", "30 GB"), ("KV cache", "60 GB")], "80 GB"),
    "scorecard": lambda: plot.scorecard([(1, 0.4, "MFU 40 %"), (2, 1.3, "does not fit")], binding=2),
}


@pytest.fixture(params=FIGURES, scope="module")
def figure(request):
    return FIGURES[request.param]()


def test_a_figure_is_good(check, figure):
    check(figure)


def test_the_document_names_itself(figure):
    root = ET.fromstring(figure.svg())
    texts = {node.get("id"): node.text for node in root.iter() if node.get("id")}
    title, description = root.get("aria-labelledby").split()
    assert texts[title] == figure.title and texts[description] == figure.alt
    assert root.get("width") == "100%" and root.get("viewBox") == f"0 0 {figure.width} {figure.height:g}"
    assert "http" not in figure.svg().replace("http://www.w3.org/2000/svg", "")
    assert figure._repr_svg_() == figure.svg()


def test_both_layouts_stand_on_one_page_with_ids_of_their_own(figure):
    page = figure.html() + figure.svg(identity="again")
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert page.count("<svg") == 3


def test_saving_writes_what_svg_gives(figure, tmp_path):
    path = figure.save(tmp_path / "chart.svg")
    assert path.read_bytes() == figure.svg().encode("utf-8")


def test_different_content_has_different_ids():
    one, other = plot.timeline("1f1b", 2, 2).svg(), plot.timeline("1f1b", 2, 3).svg()
    assert re.search(r'id="([^"]+)"', one)[1] != re.search(r'id="([^"]+)"', other)[1]


def test_matplotlib_has_the_same_title_and_axes(figure):
    pytest.importorskip("matplotlib")
    drawn = figure.matplotlib()
    axes = drawn.axes[0]
    assert axes.get_title(loc="left") == figure.title
    assert axes.get_xlabel()
    assert axes.lines or axes.patches or axes.images


def test_matplotlib_has_the_same_numbers():
    pytest.importorskip("matplotlib")
    bars = plot.waterfall([("compute", "5 s"), ("bubble", "1 s")]).matplotlib().axes[0].patches
    assert [(bar.get_x(), bar.get_width()) for bar in bars] == [(0, 5), (5, 1), (0, 6)]
    line = plot.roofline(roofs=[("chip", "100 flop/s", "10 byte/s")]).matplotlib().axes[0].lines[0]
    assert (line.get_xdata()[1], line.get_ydata()[1]) == (10, 100)


def test_without_matplotlib_one_sentence_says_what_to_install(monkeypatch):
    def refuse(name, *args):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return importlib.__import__(name, *args)

    monkeypatch.setattr("mlsysim.plot.figure.import_module", refuse)
    with pytest.raises(InputError, match="pip install matplotlib"):
        plot.timeline("1f1b", 2, 2).matplotlib()
    assert builtins.__import__ is not refuse


SCRIPT = """
import importlib.abc, json, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numpy", "matplotlib", "pandas", "torch", "scipy"):
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocked())
from mlsysim import DistributedModel, Scenarios, SensitivitySolver, plot
step = DistributedModel().solve("Llama3_8B", "Meta_16K", 16384, "bf16")
made = [plot.roofline("H100", ["Llama3_8B"]), plot.distributed_roofline("Meta_16K", ["Llama3_8B"]), plot.waterfall(step),
        plot.memory_bar(step), plot.tornado(SensitivitySolver().solve("Llama3_8B", "H100")),
        plot.plot_evaluation_scorecard(Scenarios.SmartDoorbell.evaluate()), plot.timeline("dualpipe", 4, 8)]
print(json.dumps([figure.svg()[:4] for figure in made]))
"""


def test_charts_are_drawn_without_numpy_and_matplotlib():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["<svg"] * 7


def test_every_public_name_resolves_to_something_callable():
    assert all(callable(getattr(plot, name)) for name in plot.__all__)
    importlib.import_module("mlsysim.plot.charts.roofline")
    assert plot.roofline is plot.charts.roofline.roofline
    with pytest.raises(AttributeError, match="nonsense"):
        plot.nonsense
