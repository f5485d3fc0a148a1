"""Every chart over generated inputs: no two texts overlap, nothing leaves the page, same input same bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim import plot
from mlsysim.errors import InputError
from mlsysim.physics.pipeline import CHUNKED
from mlsysim.plot.orders import ORDERS
from mlsysim.plot.svg import clean

EXAMPLES = settings(max_examples=12)

WORDS = st.sampled_from(
    [
        "H100",
        "Llama-3.1-405B, decode, batch 16",
        "<b>&\"'",
        "メモリ帯域幅の制限",
        "é̂",
        "W" * 80,
        "a very long name " * 6,
        "الذاكرة",
        "🚀",
    ]
)
NAMES = st.one_of(WORDS, st.text(min_size=1, max_size=60).filter(lambda text: clean(text)))
AMOUNTS = st.one_of(st.just(0.0), st.floats(1e-12, 1e15), st.floats(0.1, 10.0))
POSITIVE = st.floats(-9, 18).map(lambda power: 10.0**power)


def several(item, most=20):
    return st.lists(item, min_size=1, max_size=most)


@EXAMPLES
@given(
    roofs=several(st.tuples(NAMES, POSITIVE.map("{} flop/s".format), POSITIVE.map("{} byte/s".format)), 4),
    points=several(st.tuples(NAMES, POSITIVE.map("{} flop/byte".format), POSITIVE.map("{} flop/s".format))),
)
def test_roofline(check, roofs, points):
    check(plot.roofline(roofs=roofs, points=points))


@EXAMPLES
@given(points=several(st.tuples(NAMES, POSITIVE.map("{} flop/byte".format), POSITIVE.map("{} flop/s".format))))
def test_distributed_roofline(check, points):
    check(plot.distributed_roofline("Meta_16K", points=points))


@EXAMPLES
@given(parts=several(st.tuples(NAMES, AMOUNTS, st.just("s"))), total=NAMES, subtitle=NAMES)
def test_waterfall(check, parts, total, subtitle):
    check(plot.waterfall(parts, total_label=total, subtitle=subtitle))


@EXAMPLES
@given(
    items=several(st.tuples(NAMES, st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))),
    base=st.floats(-1e9, 1e9),
    unit=st.sampled_from(["s", "byte", "%", "USD", ""]),
)
def test_tornado(check, items, base, unit):
    check(plot.tornado(items, base=base, unit=unit))


@EXAMPLES
@given(
    x=several(st.one_of(NAMES, st.floats(1e-6, 1e12), st.integers(1, 10**9)), 20),
    y=several(st.one_of(NAMES, st.integers(1, 10**9)), 20),
    data=st.data(),
)
def test_heat_map(check, x, y, data):
    cell = st.one_of(st.none(), AMOUNTS)
    values = data.draw(st.lists(st.lists(cell, min_size=len(x), max_size=len(x)), min_size=len(y), max_size=len(y)))
    values[0][0] = 1.0
    unit = data.draw(st.sampled_from(["s", "B", "", "tokens/s"]))
    check(plot.heat_map(x, y, values, x_title="Batch", y_title="Length", value_title="Time", unit=unit))


@EXAMPLES
@given(x=several(NAMES, 20), y=several(NAMES, 12), names=st.lists(NAMES, min_size=1, max_size=8), data=st.data())
def test_regime_map(check, x, y, names, data):
    cell = st.one_of(st.none(), st.sampled_from(names))
    cells = data.draw(st.lists(st.lists(cell, min_size=len(x), max_size=len(x)), min_size=len(y), max_size=len(y)))
    cells[-1][-1] = names[0]
    check(plot.regime_map(x, y, cells, x_title="Batch", y_title="Length"))


def test_a_long_name_under_the_first_column_stays_on_the_page(check):
    columns = ["Llama-3.1-405B, decode, batch 16", *["H100"] * 5]
    check(plot.regime_map(columns, ["y"], [["Compute", *[None] * 5]], x_title="Batch", y_title="Length"))


@EXAMPLES
@given(
    points=several(st.tuples(NAMES, AMOUNTS.map("{} s".format), st.floats(-1e9, 1e9)), 40),
    goals=st.tuples(st.sampled_from(["low", "high"]), st.sampled_from(["low", "high"])),
    everything=st.booleans(),
)
def test_pareto(check, points, goals, everything):
    chosen = [label for label, _, _ in points] if everything else None
    check(plot.pareto(points, x_title="Time", y_title="Cost (USD)", goals=goals, chosen=chosen))


@EXAMPLES
@given(
    series=several(st.tuples(NAMES, several(st.tuples(st.floats(-1e6, 1e6), AMOUNTS), 40)), 9),
    limit=st.none() | AMOUNTS,
)
def test_lines(check, series, limit):
    check(plot.lines(series, x_title="Replicas", y_title="Time", y_unit="s", limit=limit))


@EXAMPLES
@given(names=several(NAMES, 8), data=st.data())
def test_lines_over_names(check, names, data):
    points = [(k, data.draw(AMOUNTS)) for k in range(len(names))]
    check(plot.lines([("a", points)], names=names, x_title="Share of requests", y_title="Time", y_unit="s"))


@st.composite
def schedules(draw):
    name = draw(st.sampled_from(tuple(ORDERS)))
    stages, virtual = draw(st.integers(1, 12)), 1
    micro_batches = draw(st.integers(1, 40))
    if name in CHUNKED:
        virtual = draw(st.integers(1, 4))
    if name.startswith("dualpipe"):
        stages = 2 * ((stages + 1) // 2)
        micro_batches = 2 * stages + 2 * draw(st.integers(0, 6))
    return name, stages, micro_batches, virtual


@EXAMPLES
@given(schedule=schedules())
def test_timeline(check, schedule):
    check(plot.timeline(*schedule))


@EXAMPLES
@given(schedule=schedules(), activations=POSITIVE, state=AMOUNTS, capacity=st.one_of(st.none(), POSITIVE))
def test_memory_timeline(check, schedule, activations, state, capacity):
    limit = None if capacity is None else f"{capacity} byte"
    check(plot.memory_timeline(*schedule, activations=f"{activations} byte", state=f"{state} byte", capacity=limit))


@EXAMPLES
@given(
    bars=several(st.tuples(NAMES, several(st.tuples(NAMES, AMOUNTS, st.just("GB"))), POSITIVE.map("{} byte".format)), 6)
)
def test_memory_bar(check, bars):
    check(plot.memory_bar(bars))
    check(plot.memory_bar(bars[0][1], bars[0][2], name=bars[0][0]))


@EXAMPLES
@given(
    rows=st.dictionaries(st.integers(1, 22), st.tuples(st.one_of(st.none(), AMOUNTS), NAMES), min_size=1, max_size=22),
    binding=st.one_of(st.none(), st.integers(1, 22)),
    title=NAMES,
)
def test_scorecard(check, rows, binding, title):
    check(plot.scorecard([(wall, *row) for wall, row in rows.items()], binding=binding, title=title))


@EXAMPLES
@given(
    hours=st.floats(0.01, 1e6),
    pieces=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), NAMES, NAMES), max_size=12),
    start=st.sampled_from([None, "2026-12-01T05:30"]),
    remark=st.one_of(st.just(""), NAMES),
)
def test_gantt(check, hours, pieces, start, remark):
    stretches = [(min(a, b) * hours, max(a, b) * hours, state, cause) for a, b, state, cause in pieces]
    ticks = [begin for begin, *_ in stretches]
    figure = check(plot.gantt(stretches, hours, interruptions=ticks, start=start, remark=remark))
    assert figure.rows() <= 14 and figure.rows() * figure.row >= hours * 0.999
    assert figure.svg(1600)


@EXAMPLES
@given(parts=st.lists(st.tuples(NAMES, st.floats(1, 1e7), st.just("s")), min_size=1, max_size=9))
def test_share_bar(check, parts):
    check(plot.share_bar(parts, 1e8, title="What the run lost its time to"))


NAN, INFINITE = float("nan"), float("inf")
TITLES = {"x_title": "x", "y_title": "y"}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: plot.roofline(), "needs a chip"),
        (lambda: plot.roofline("H1000"), "H100"),
        (lambda: plot.roofline(3), "for a chip such as"),
        (lambda: plot.roofline("H100", [3.5]), "A workload is"),
        (lambda: plot.roofline(workloads=["Llama3_8B"], roofs=[("a", "1 flop/s", "1 byte/s")]), "placed on a chip"),
        (lambda: plot.roofline(roofs=[("a", "1 TB/s", "1 TB/s")]), "must be in FLOP/s"),
        (lambda: plot.roofline(roofs=[("a", "1 flop/s")]), "(label, peak, bandwidth)"),
        (lambda: plot.roofline(roofs=[("a", "0 flop/s", "1 byte/s")]), "greater than zero"),
        (lambda: plot.roofline("H100", points=[("a", "1 flop/byte")]), "(label, intensity, performance)"),
        (lambda: plot.roofline("H100", width=10), "300 to 2000"),
        (lambda: plot.distributed_roofline("H100"), "no cluster named 'H100'"),
        (lambda: plot.distributed_roofline(1), "for a fleet"),
        (lambda: plot.distributed_roofline("Meta_16K", [("Llama3_8B", 3)]), "A workload is"),
        (lambda: plot.waterfall([]), "at least one"),
        (lambda: plot.waterfall("compute"), "list of parts"),
        (lambda: plot.waterfall([("a", NAN, "s")]), "finite"),
        (lambda: plot.waterfall([("a", -1, "s")]), "negative"),
        (lambda: plot.waterfall([("a", 10**400, "s")]), "finite"),
        (lambda: plot.waterfall([("a", 1, "s"), ("b", 1, "byte")]), "is in B"),
        (lambda: plot.waterfall([("a", 1, "furlong")]), "no unit"),
        (lambda: plot.waterfall([("", 1, "s")]), "label"),
        (lambda: plot.waterfall([("a",)]), "(label, amount)"),
        (lambda: plot.waterfall([("a", "x", "s")]), "must be a number"),
        (lambda: plot.waterfall([("a", 1, "s")] * 201), "at most 200"),
        (lambda: plot.tornado([("a", 1, 2)]), "base"),
        (lambda: plot.tornado([("a", 1)], base=1), "(label, low, high)"),
        (lambda: plot.tornado([("a", "1 s", "2 s")], base="1 byte"), "another unit"),
        (lambda: plot.tornado([("a", 1, INFINITE)], base=1), "finite"),
        (lambda: plot.heat_map([1, 2], [1], [[1]], **TITLES, value_title="v"), "1 rows of 2"),
        (lambda: plot.heat_map([1], [1], [[None]], **TITLES, value_title="v"), "at least one cell"),
        (lambda: plot.heat_map([1], [1], [[NAN]], **TITLES, value_title="v"), "finite"),
        (lambda: plot.heat_map([], [1], [[1]], **TITLES, value_title="v"), "at least one"),
        (lambda: plot.regime_map(list(range(9)), [1], [list("abcdefghi")], **TITLES), "at most 8"),
        (lambda: plot.pareto([("a", 1)], **TITLES), "(label, x, y)"),
        (lambda: plot.pareto([("a", "1 s", 1), ("b", 1, 1)], **TITLES), "other units"),
        (lambda: plot.pareto([("a", 1, 1)], **TITLES, goals=("low", "best")), "'low' and 'high'"),
        (lambda: plot.pareto([("alpha", 1, 1)], **TITLES, chosen=["alhpa"]), "did you mean 'alpha'"),
        (lambda: plot.lines([("a", [])], **TITLES), "1 to 500 points"),
        (lambda: plot.lines([("a", [(1, NAN)])], **TITLES), "finite"),
        (lambda: plot.lines([("a", [(2, 1)])], names=["p50", "p99"], **TITLES), "one of 2 names"),
        (lambda: plot.timeline("1f1f", 4, 8), "did you mean '1f1b'"),
        (lambda: plot.timeline("1f1b", 0, 8), "at least 1"),
        (lambda: plot.timeline("1f1b", 4, 2.5), "whole number"),
        (lambda: plot.timeline("1f1b", 4, 8, 2), "Virtual stages"),
        (lambda: plot.timeline("zb_v", 4, 8, 2), "interleaved schedules, not to zb_v"),
        (lambda: plot.timeline("breadth_first", 4, 8, 2, 4), "interleaved schedule, not to breadth_first"),
        (lambda: plot.timeline("interleaved", 4, 5, 3, 4), "wait for themselves"),
        (lambda: plot.timeline("interleaved", 4, 8, 2, 0), "'group'"),
        (lambda: plot.timeline("dualpipe", 5, 20), "even number of stages"),
        (lambda: plot.timeline("dualpipe", 4, 6), "at least two per stage"),
        (lambda: plot.timeline("dualpipe_v", 4, 7), "at least two micro-batches per stage"),
        (lambda: plot.timeline("1f1b", 1000, 1000), "too many"),
        (lambda: plot.memory_timeline("1f1b", 4, 8, activations="1 s"), "in bytes"),
        (lambda: plot.memory_timeline("1f1b", 4, 8, activations="-1 GB"), "negative"),
        (lambda: plot.memory_bar([("weights", "1 GB")]), "must be in bytes|result with memory|capacity"),
        (lambda: plot.memory_bar([("weights", "1 s")], "80 GB"), "in bytes"),
        (lambda: plot.memory_bar([("weights", "1 GB")], "0 GB"), "greater than zero"),
        (lambda: plot.scorecard([(99, 0.1, "")]), "no wall 99"),
        (lambda: plot.scorecard([(1, 0.1, ""), (1, 0.1, "")]), "two rows"),
        (lambda: plot.scorecard([(1, NAN, "")]), "finite"),
        (lambda: plot.scorecard([(1, 0.5, "")], binding=0), "no wall 0"),
        (lambda: plot.plot_evaluation_scorecard(3), "Scenario.evaluate"),
        (lambda: plot.timeline("1f1b", 2, 2).svg(identity='"><script>'), "id of a figure"),
        (lambda: plot.timeline("1f1b", 2, 2).save("figure.png"), ".svg"),
    ],
)
def test_bad_input_is_one_sentence(call, said):
    with pytest.raises(InputError) as error:
        call()
    text = str(error.value)
    assert any(piece in text for piece in said.split("|")), text
    assert "\n" not in text and len(text) < 300
