"""Charts of answers by name: which there are, two on one scale, what an answer has nothing for, and maps of regimes."""

from __future__ import annotations

import pytest

import mlsysim
from mlsysim.errors import InputError
from mlsysim.plot.kinds import KINDS

KEYS = {"concurrency": [4, 16, 256], "prompt_tokens": [500, 1000, 16000]}


@pytest.fixture(scope="module")
def served():
    return mlsysim.serve("Llama3_8B", on="1xH100", prompt_tokens=1000, output_tokens=200, concurrency=16)


@pytest.fixture(scope="module")
def trained():
    asked = {"tokens": "2T", "region": "Quebec", "tp": 4, "pp": 4, "batch_size": 256}
    return mlsysim.train("Llama3_70B", on="64xH100", **asked)


def test_what_an_answer_has_is_drawn(check, trained):
    drawn = []
    for kind in KINDS:
        try:
            figure = trained.plot(kind) if kind != "regimes" else None
        except InputError as error:
            assert f"nothing to draw as {kind!r}" in str(error)
            continue
        if figure is not None:
            drawn.append(kind)
            check(figure)
    assert {"time", "memory", "roofline", "scorecard", "sensitivity", "cost", "carbon", "schedule", "stages"} <= {
        *drawn
    }
    assert trained._repr_html_().count("<svg") == 2


def test_a_kind_that_is_not_there_names_the_nearest(trained):
    with pytest.raises(InputError, match="did you mean 'memory'"):
        trained.plot("memry")
    with pytest.raises(InputError, match="a service under traffic has it"):
        trained.plot("percentiles")
    with pytest.raises(InputError, match="drawn over two keys"):
        trained.plot("regimes")


def test_two_answers_are_on_one_scale(check, trained):
    other = mlsysim.train("Llama3_70B", on="64xB200", tokens="2T", tp=4, pp=4, batch_size=256)
    both = mlsysim.compare(trained, other)
    figure = check(both.plot("time"))
    rows = figure.rows()
    ends = [row.bars[0][1] for row in rows if row.bold and row.bars]
    assert ends == [pytest.approx(sum(p.value for p in a.time_parts)) for a in (trained, other)]
    # One axis, so one scale; a part has one colour in both.
    assert figure.svg().count(">Time (s)<") == 1
    colours = {}
    for row in rows:
        for bar in row.bars:
            assert colours.setdefault(row.label, bar[2]) == bar[2]
    assert len(check(both.plot("memory")).bars) == 2
    with pytest.raises(InputError, match="time, memory, roofline; cost is of one"):
        both.plot("cost")


def test_a_map_says_what_binds_at_each_place_and_where_the_plan_is(check, served):
    figure = check(served.plot("regimes", over=KEYS))
    assert "The plan is at 16, 1,000" in figure.alt
    for r, prompt in enumerate(KEYS["prompt_tokens"]):
        for c, users in enumerate(KEYS["concurrency"]):
            found = mlsysim.serve("Llama3_8B", on="1xH100", prompt_tokens=prompt, output_tokens=200, concurrency=users)
            assert figure.cells[r][c].whole == (found.binding.name if found.runs else "does not fit")
    svg = figure.svg()
    assert all(f">{name}</text>" in svg or f">{chr(65 + k)}</text>" in svg for k, name in enumerate(figure.names))


def test_a_map_needs_two_keys_of_the_plan(served):
    with pytest.raises(InputError, match="two keys of a plan, each at two values or more"):
        served.plot("regimes", over={"concurrency": [1, 2]})
    with pytest.raises(InputError, match="did you mean 'concurrency'"):
        served.plot("regimes", over={"concurency": [1, 2], "prompt_tokens": [1, 2]})
