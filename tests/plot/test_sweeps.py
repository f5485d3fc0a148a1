"""Charts of sweeps: axes in words and units, labels that say what sets a design apart, fronts of any size."""

import pytest

from mlsysim.ask import sweep
from mlsysim.plot import lines
from mlsysim.plot.keys import title_of_key, title_of_output
from mlsysim.search.kinds import KINDS

SPACE = {
    "kind": "node",
    "axes": {"hardware": ["H100", "A100"], "batch_size": [1, 2, 4, 8]},
    "fixed": {"model": "Llama3_8B", "precision": "bf16", "phase": "decode", "seq_len": 2048},
}


def test_a_chart_of_the_best_has_the_names_of_the_metrics():
    svg = sweep({**SPACE, "minimize": "latency_s"}).plot().svg()
    assert "Time of a pass (ms)" in svg and ">Batch size<" in svg and "Least time of a pass" in svg
    assert "latency_s" not in svg and "batch_size" not in svg


def test_a_front_labels_what_sets_designs_apart():
    figure = sweep({**SPACE, "pareto": ["latency_s", "tokens_per_second"]}).plot()
    assert ": batch size 1 (" in figure.alt and "H100" not in figure.alt
    assert "Tokens a second" in figure.svg() and "tokens_per_second" not in figure.svg() and "bf16" not in figure.alt


def test_a_share_is_in_per_cent():
    assert "Model FLOP utilisation (%)" in sweep({**SPACE, "maximize": "mfu"}).plot().svg()


def test_a_front_of_more_designs_than_a_chart_holds():
    axes = {"hardware": ["H100"], "batch_size": list(range(1, 301))}
    result = sweep({**SPACE, "axes": axes, "pareto": ["latency_s", "tokens_per_second"]})
    assert len(result.pareto) > 200
    assert f"of {len(result.pareto)} designs" in result.plot().svg()


@pytest.mark.parametrize("kind", KINDS)
def test_every_output_has_words(kind):
    for name in KINDS[kind].outputs:
        if name not in ("feasible", "wall"):
            title, unit = title_of_output(kind, name)
            assert "_" not in title and title[0].isupper(), name
            assert bool(unit) == ((name.rpartition("_")[2] in ("s", "bytes", "j", "usd", "days", "mtoken", "run")
                                  and "_per_s" not in name and "_per_usd" not in name)
                                  or name in ("mfu", "hfu", "scaling_efficiency", "goodput_ratio")), name  # fmt: skip


def test_keys_in_words():
    assert [title_of_key(name) for name in ("tp", "tp_size", "batch_size", "qps")] == [
        "Tensor parallelism",
        "Tensor parallelism",
        "Batch size",
        "Requests a second",
    ]


def test_lines_are_named_at_their_ends_where_there_is_room():
    wide = lines([("first", [(0, 1.0), (1, 2.0)]), ("second", [(0, 3.0), (1, 8.0)])], x_title="X", y_title="Y")
    assert 'class="l0"' in wide.svg()
    svg, narrow = wide.svg(), lines([("a" * 60, [(0, 1.0), (1, 2.0)])], x_title="X", y_title="Y", width=360).svg()
    assert _left(svg, "first") > 600 and _left(svg, "second") > 600
    assert _left(narrow, "a" * 40) < 100
    close = lines([(f"n{k}", [(0, 1.0), (1, 2.0 + k / 1000)]) for k in range(4)], x_title="X", y_title="Y").svg()
    assert _left(close, "n0") < 100


def _left(svg: str, text: str) -> float:
    """Where a text begins."""
    before = svg[: svg.index(f">{text}")]
    return float(before.rpartition('x="')[2].partition('"')[0])
