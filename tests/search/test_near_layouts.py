"""The best of many predictions is predicted too well: what cannot be told from it is said, with the simplest."""

from __future__ import annotations

import re

from mlsysim import Systems
from mlsysim.search import layouts
from mlsysim.search.layouts import SCATTER, RankedLayouts
from mlsysim.search.parallelism import ParallelismOptimizer


def ranked(*rows: tuple[float, int, int, int, str]) -> RankedLayouts:
    names = ("mfu", "tp", "pp", "v_stages", "recompute")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    return RankedLayouts(columns | {name: (1,) * len(rows) for name in ("ep", "cp")} | {"optimizer_offload": (0.0,) * len(rows)})  # fmt: skip


def test_the_simplest_of_those_within_the_scatter():
    best, near, far = 0.5, 0.5 * (1 - 0.9 * SCATTER), 0.5 * (1 - 1.1 * SCATTER)
    table = ranked(
        (best, 4, 8, 4, "selective"), (near, 4, 8, 1, "selective"), (near, 8, 1, 1, "none"), (far, 1, 1, 1, "none")
    )
    count, simplest = table.near()
    assert count == 3 and simplest["tp"] == 8 and simplest["pp"] == 1
    alone, same = ranked((best, 4, 8, 4, "none"), (far, 1, 1, 1, "none")).near()
    assert alone == 1 and same["v_stages"] == 4


def test_a_search_says_them():
    found = ParallelismOptimizer().solve(
        model="Llama3_8B", fleet=Systems.Clusters.Research_256, batch_size=512, seq_len=8192, efficiency="calibrated"
    )
    assert 1 <= found.near <= found.total_searched
    assert found.simplest["mfu"] >= found.best_mfu * (1 - layouts.SCATTER)
    assert (found.undecided() == "") == (found.near == 1)


def test_the_simplest_is_told_from_the_best():
    found = ParallelismOptimizer().solve(
        model="Llama3_70B", fleet="64xH100", batch_size=128, seq_len=8192, efficiency="calibrated"
    )
    assert found.simplest is not None and found.best_config != found.simplest
    degrees = ("tp", "pp", "dp", "cp", "ep")
    if all(found.simplest[name] == found.best_config[name] for name in degrees):
        assert re.search(r"the simplest of them TP\d+ PP\d+ DP\d+[^(]* with ", found.undecided())
