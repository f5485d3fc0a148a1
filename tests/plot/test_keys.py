"""A metric of a plan along one of its keys: the numbers drawn are those of the table, at every width without a label out of place."""

from __future__ import annotations

import pytest

import mlsysim
from mlsysim.errors import InputError
from mlsysim.plot.keys import chart_of_keys


@pytest.fixture(scope="module")
def found():
    return mlsysim.sweep(
        "Llama3_8B", over={"tp": [1, 2, 4], "concurrency": [16, 64]}, on="8xH100", task="serving", precision="fp8"
    )


def test_the_main_metric_is_drawn_along_the_longest_axis(found, find_problems):
    figure = found.plot()
    assert [label for label, _ in figure.series] == ["Concurrency 16", "Concurrency 64"]
    rates = {
        point.settings["tp"]: point.value("tokens_per_second")
        for point in found.points
        if point.settings["concurrency"] == 64
    }
    assert figure.series[1][1] == [(float(k), rates[tp]) for k, tp in enumerate((1, 2, 4))]
    assert figure.alt.startswith("Output tokens a second by tensor parallelism: Concurrency 16")
    assert [problem for width in (360, 720, 1600) for problem in find_problems(figure.svg(width))] == []


def test_shares_are_in_per_cent_and_what_does_not_fit_is_left_out():
    found = mlsysim.sweep("Llama3_70B", over={"tp": [1, 4, 8]}, on="512xH100", task="training")
    assert [point.feasible for point in found.points] == [False, False, True]
    ((_, ((at, share),)),) = found.plot("mfu").series
    assert at == 2.0 and share == pytest.approx(100 * found.points[2].value("mfu"))


def test_what_cannot_be_drawn_gets_a_sentence(found):
    with pytest.raises(InputError, match="no metric named 'mfuu'; did you mean 'mfu'"):
        found.plot("mfuu")
    with pytest.raises(InputError, match="No combination has 'run_time'"):
        found.plot("run_time")
    with pytest.raises(InputError, match="No combination fits"):
        chart_of_keys(mlsysim.sweep("Llama3_405B", over={"tp": [1, 2]}, on="8xH100", task="serving"))
