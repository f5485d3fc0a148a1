"""Curves: hypothesis draws what engines answer, and the checker reads the picture."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan
from mlsysim.plot import curve
from mlsysim.plot.along import along
from mlsysim.plot.readings import bound_of, figure_of

PLAN = {
    "task": "training",
    "workload": {"model": "Llama3_8B", "batch_size": 64, "seq_len": 2048, "precision": "bf16"},
    "hardware": {"on": "8xH100"},
    "parallelism": {"tp": 1, "zero": 1, "micro_batch": 1},
    "constraints": {"assert": [{"metric": "mfu", "min": 0.3}]},
}

values = st.floats(1e-9, 1e12) | st.none()
words = st.sampled_from(["", "Compute", "Memory", "Communication of a long name that wraps", "does not fit"])


@st.composite
def stops(draw):
    xs = sorted(draw(st.sets(st.floats(1e-3, 1e6), min_size=1, max_size=20)))
    found = []
    for x in xs:
        y, binds = draw(values), draw(words)
        reason = "It needs 90 GB; a smaller batch helps." if binds == "does not fit" else ""
        band = (None, None) if y is None else (0.9 * y, draw(st.sampled_from([1.3 * y, None])))
        found.append((x, y, *band, binds, draw(st.integers(0, 9)), reason))
    return found


@settings(max_examples=25)
@given(stops=stops(), limit=st.floats(1e-9, 1e12) | st.none(), least=st.booleans(), data=st.data())
def test_curve(check, stops, limit, least, data):
    here = data.draw(st.integers(0, len(stops) - 1) | st.none())
    ghost = [(x, y) for x, y, *_ in stops] if data.draw(st.booleans()) else ()
    axes = {"x_title": "Fleet", "x_unit": "accelerators", "y_title": "Time", "y_unit": "s"}
    figure = curve(stops, **axes, limit=limit, least=least, here=here, ghost=ghost)
    check(figure)
    svg, places, plot = figure.drawn()
    assert svg == figure.svg()
    assert len(places) == len(stops)
    # The dot of the design lies over no label of an axis, wherever the design is.
    assert all(plot.left + 7 <= x <= plot.right - 7 and plot.top <= y <= plot.bottom + 1 for x, y in places)
    assert [x for x, _ in places] == sorted(x for x, _ in places)


def test_an_interval_without_an_upper_end_goes_on_to_the_top_of_the_plot():
    axes = {"x_title": "Rate", "y_title": "Time", "y_unit": "s"}
    ended, endless = (curve([(1, 2.0, 1.8, 2.2), (2, 3.0, 2.0, high)], **axes) for high in (4.0, None))
    top = endless.drawn()[2].top
    assert f",{top:g} " not in ended.svg() and f",{top:g} " in endless.svg()


def answer(**hardware) -> Answer:
    return evaluate(Plan.model_validate(PLAN | {"hardware": hardware}), change=False)


def test_points_are_those_of_the_answers_and_gaps_say_why(check):
    found = [(8.0, answer(on="8xH100")), (16.0, answer(on="16xH100")), (32.0, "It was refused."), (64.0, None)]
    figure = along(found, "performance.mfu", x_title="Fleet", here=0)
    check(figure)
    first = found[0][1].metric("mfu")
    assert figure.stops[0].y == pytest.approx(100 * first.value)
    assert figure.stops[0].low == pytest.approx(100 * first.low) and figure.limit == pytest.approx(30) and figure.least
    assert [stop.y is None for stop in figure.stops] == [False, False, True, True]
    assert "32: It was refused." in figure.alt and figure.stops[0].binds == found[0][1].binding.name
    assert "the limit is at least 30 %" in figure.alt


def test_a_plan_that_does_not_fit_is_a_gap():
    small = answer(on="1xH100")
    assert not small.feasible
    figure = along([(1.0, small), (16.0, answer(on="16xH100"))], "performance.latency", x_title="Fleet", here=0)
    assert figure.stops[0].y is None and figure.stops[0].binds == "does not fit"
    assert small.headline in figure.alt and figure.stops[1].y == pytest.approx(
        figure_of(answer(on="16xH100").metric("latency"), "s")[0]
    )


def test_values_in_other_units_come_into_one():
    short, long = answer(on="64xH100"), answer(on="8xH100")
    figure = along([(8.0, long), (64.0, short)], "performance.latency", x_title="Fleet", here=0)
    assert figure.stops[0].y / figure.stops[1].y == pytest.approx(
        (long.value("latency") / short.value("latency")).to("").magnitude
    )
    assert bound_of(long, "performance.latency") == (None, False)


@pytest.mark.parametrize(
    ("stops", "more", "said"),
    [
        ([], {}, "at least one"),
        ([(2, 1.0), (1, 1.0)], {}, "from the least setting"),
        ([(1, 1.0)], {"here": 3}, "one of 1 stops"),
        ([(1, -1.0)], {}, "negative"),
        ([(1, 1.0)], {"limit": float("nan")}, "finite"),
    ],
)
def test_bad_input_is_one_sentence(stops, more, said):
    with pytest.raises(InputError, match=said):
        curve(stops, x_title="Fleet", y_title="Time", **more)


def test_an_axis_shows_whole_numbers_where_enough_stops_are():
    axes = {"x_title": "Rate", "y_title": "Time", "y_unit": "s"}
    texts = [
        curve([(2 ** (k / 2), 1.0) for k in range(8)], **axes).svg(),
        curve([(k / 4, 1.0) for k in range(3)], **axes).svg(),
    ]
    assert ">2.83<" not in texts[0] and ">4<" in texts[0]
    assert ">0.25<" in texts[1]


def test_times_on_a_logarithmic_axis_are_in_the_unit_of_the_longest():
    axes = {"x_title": "Fleet", "y_title": "Time of the run", "y_unit": "s"}
    days = curve([(2**k, 6e6 / 2**k) for k in range(7)], **axes).svg()
    assert "Time of the run (d)" in days and ">10<" in days and " k<" not in days
    spread = curve([(1, 0.01), (2, 2e3)], **axes).svg()
    assert "Time of the run (s)" in spread, "milliseconds are not told in hours"


def test_memory_has_its_capacity_as_limit():
    full = answer(on="1xH100")
    bound, least = bound_of(full, full.metric("memory").path)
    assert bound == pytest.approx(full.memory.capacity / 1e9) and not least
    assert figure_of(full.metric("memory"))[0] > bound
