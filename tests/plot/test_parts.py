"""Scales, ticks, amounts, text widths, labels: what the charts are made of."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.plot.amounts import read_amount, read_parts
from mlsysim.plot.charts.bars import waterfall
from mlsysim.plot.labels import Placer
from mlsysim.plot.scale import Linear, Log, amount, axis_unit, linear_ticks, log_ticks, number, tick_texts
from mlsysim.plot.svg import Box, Drawing, clean, fit, measure, wrap
from mlsysim.units.registry import Q_

SIZES = st.floats(-30, 30).map(lambda power: 10.0**power)


@given(low=SIZES, span=SIZES, most=st.integers(2, 12))
def test_linear_ticks_are_few_evenly_apart_and_inside(low, span, most):
    high = low + span
    if high <= low * (1 + 1e-9):
        return
    ticks = linear_ticks(low, high, most)
    assert 1 <= len(ticks) <= most
    if len(ticks) > 1:
        step = ticks[1] - ticks[0]
        assert all(low - step * 1e-6 <= tick <= high + step * 1e-6 for tick in ticks)
        digits = f"{step:.6e}".split("e")[0].rstrip("0").rstrip(".")
        assert digits in ("1", "2", "2.5", "5") or low / step > 1e8


@given(low=SIZES, factor=st.floats(1, 30).map(lambda power: 10.0**power), most=st.integers(2, 12))
def test_log_ticks_are_few_and_inside(low, factor, most):
    ticks = log_ticks(low, low * factor, most)
    assert 1 <= len(ticks) <= most
    assert all(low * 0.999 <= tick <= low * factor * 1.001 for tick in ticks)


@given(st.floats(-1e30, 1e30))
def test_a_number_as_text_is_within_its_three_digits(value):
    text = number(value).replace("−", "-")
    power = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "Z": 21, "Y": 24}
    mantissa, _, prefix = text.partition(" ")
    assert float(mantissa) * 10.0 ** power[prefix] == pytest.approx(value, rel=6e-3)


def test_known_amounts():
    assert amount(85.899e9, "B") == "85.90 GB"
    assert amount(999.6e9, "B") == "999.6 GB"
    assert amount(6.919, "s") == "6.92 s"
    assert amount(3.2e-5, "s") == "32 µs"
    assert amount(1200, "s") == "20 min"
    assert amount(7200, "s") == "2 h"
    assert amount(30 * 86400, "s") == "30 d"
    assert amount(-0.25, "%") == "−0.25 %"
    assert axis_unit(74e9, "B") == (1e-9, "GB")
    assert tick_texts([0, 2.5, 5]) == ["0", "2.5", "5.0"]


def test_scales_at_their_ends_and_in_the_middle():
    assert [Linear(0, 10, 100, 200)(v) for v in (0, 5, 10)] == [100, 150, 200]
    assert [Log(1, 100, 0, 10)(v) for v in (1, 10, 100)] == [0, 5, 10]


def test_amounts_are_read_into_one_unit():
    assert read_amount(Q_("80 GiB"), "x") == (80 * 2**30, "B")
    assert read_amount(3, "x", "ms") == (pytest.approx(0.003), "s")
    assert read_parts({"a": "1 hour", "b": Q_("30 min")}) == ([("a", 3600), ("b", 1800)], "s")
    prices, _ = read_parts([("a", 1, "USD/hour"), ("b", 1, "USD/s")])
    assert prices == [("a", 1), ("b", pytest.approx(3600))]


@given(st.text(max_size=80), st.floats(20, 400), st.booleans())
def test_a_shortened_text_fits(text, room, bold):
    assert measure(fit(clean(text), 11, room, bold), 11, bold) <= room
    lines = wrap(clean(text), 11, room, 3, bold)
    assert len(lines) <= 3 and all(measure(line, 11, bold) <= room for line in lines)


def test_shortening_keeps_both_ends_and_whole_words():
    assert fit("Llama-3.1-405B, decode, batch 16", 11, 180) == "Llama-3.1-405B, decode, … 16"
    assert fit("Llama-3.1-405B, decode, batch 16", 11, 120) == "Llama-3.1-405B, …"
    assert fit("Llama-3.1-405B", 11, 60).startswith("Lla")
    assert fit("H100", 11, 100) == "H100"


def test_bold_and_wide_letters_take_more_room():
    assert measure("memory", 11, True) > measure("memory", 11)
    assert measure("メモリ", 10) >= 30
    assert measure("é", 10) == measure("e", 10)
    assert clean("a\n\x00b\u202ec") == "a b c"


@given(
    st.lists(
        st.tuples(st.floats(0, 400), st.floats(0, 300), st.from_regex(r"[a-h ]{0,20}[a-h]", fullmatch=True)),
        max_size=30,
    )
)
def test_placed_labels_stay_on_the_page_and_apart(points):
    page = Box(0, 0, 400, 300)
    placer, d = Placer(page), Drawing(400)
    said = [placer.label(d, x, y, text, 11) for x, y, text in points]
    assert len(placer.texts) == sum(said)
    assert all(box.inside(page) for box in placer.texts)
    assert not any(a.meets(b) for k, a in enumerate(placer.texts) for b in placer.texts[:k])


def test_a_label_lies_on_no_line():
    placer = Placer(Box(0, 0, 400, 300))
    placer.block_path([(0, 150), (400, 150)])
    assert placer.label(Drawing(400), 200, 150, "label", 11)
    (box,) = placer.texts
    assert not box.top <= 150 <= box.bottom
    assert math.hypot(box.left - 200, box.bottom - 150) < 60
    for y in range(0, 301, 8):
        placer.block_path([(0, y), (400, y)])
    assert not placer.label(Drawing(400), 100, 150, "label", 11)


def test_a_long_label_is_broken_before_it_lies_on_something():
    placer = Placer(Box(0, 0, 120, 300))
    assert placer.label(Drawing(400), 60, 150, "training step of one device", 11, room=110)
    (box,) = placer.texts
    assert box.bottom - box.top > 2 * 11 and box.right - box.left < 110


def test_the_checker_sees_overlap_and_overflow(find_problems):
    head = '<svg xmlns="http://www.w3.org/2000/svg" class="mlp" id="a" viewBox="0 0 100 50" role="img" aria-labelledby="a-t a-d"><title id="a-t">t</title><desc id="a-d">d</desc>'
    good = (
        head
        + '<text x="5" y="20" font-size="10" class="ink">ab</text><text x="50" y="20" font-size="10" class="ink">cd</text></svg>'
    )
    assert find_problems(good) == []
    assert "overlap" in find_problems(good.replace('x="50"', 'x="10"'))[0]
    assert "leaves" in find_problems(good.replace('x="50"', 'x="95"'))[0]
    line = '<line x1="0" y1="16" x2="90" y2="16" class="axis"/></svg>'
    assert "lies on a line" in find_problems(good.replace("</svg>", line))[0]
    assert find_problems(good.replace("</svg>", line.replace("axis", "grid"))) == []
    bar = '<rect x="8" y="10" width="20" height="10" class="f0"/></svg>'
    assert "half on a bar" in find_problems(good.replace("</svg>", bar))[0]
    assert "cut within a word" in find_problems(good.replace(">ab<", ">a…<"))[0]
    assert "theme" in find_problems(good.replace('class="ink">ab', 'class="nope">ab'))[0]
    assert "twice" in find_problems(good.replace('id="a-d"', 'id="a-t"'))[0]


def test_a_part_has_the_colour_of_its_place_by_size():
    """A bar of shares has the largest part first, so that both draw a part alike."""
    figure = waterfall([("small", "1 s"), ("large", "5 s"), ("middle", "3 s")])
    assert [row.bars[0][2] for row in figure.rows()] == [2, 0, 1, 7]
