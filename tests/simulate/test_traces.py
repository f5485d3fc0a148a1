"""Loads that were recorded."""

from __future__ import annotations

import pickle
from itertools import islice, pairwise
from pathlib import Path

import pytest

from mlsysim.errors import InputError
from mlsysim.simulate import traces
from mlsysim.simulate.requests import Request, in_order
from mlsysim.simulate.traces import read_trace, shipped_traces

HEAD = "arrival_s,input_tokens,output_tokens\n"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(HEAD + "3,10,5\n4,20,6\n8,30,7\n8,40,8\n")
    return read_trace(path)


# Statistics of the sources' own files, computed apart: rate, cv of gaps, mean and share of prompts' tokens that came before.
@pytest.mark.parametrize(
    ("name", "count", "rate", "burst", "shared"),
    [
        ("azure-code", 8819, 2.57, 13.2, None),
        ("azure-conversation", 19366, 5.53, 1.09, None),
        ("mooncake-conversation", 12031, 3.40, 1.0, 0.3734),
    ],
)
def test_shipped_traces(name, count, rate, burst, shared):
    trace = read_trace(name)
    found = trace.summary
    assert (found.count, round(found.rate, 2)) == (count, rate)
    assert found.burst == pytest.approx(burst, rel=0.02)
    assert found.shared == (shared if shared is None else pytest.approx(shared, abs=5e-5))
    assert sum(map(len, in_order(trace))) == count
    for word in ("github.com", "CC-BY-4.0" if "azure" in name else "Apache-2.0"):
        assert word in trace.about


def test_notices_travel_with_the_traces():
    folder = Path(str(read_trace("azure-code").source.path)).parent
    notice = (folder / "NOTICE.md").read_text()
    assert all(f"{name}.trace" in notice for name in shipped_traces())
    assert "Apache License" in (folder / "APACHE-2.0.txt").read_text()


def test_a_summary(trace):
    found = trace.summary
    assert (found.count, found.failed, found.duration, found.longest) == (4, 0, 5.0, 48)
    assert (found.rate, found.prompt, found.answer) == (0.6, 25.0, 6.5)
    assert found.burst == pytest.approx(1.0198, abs=1e-4)


def test_a_trace_is_read_as_often_as_one_likes(trace):
    assert list(trace) == list(trace) == list(trace.requests(seed=3))
    assert list(pickle.loads(pickle.dumps(trace))) == list(trace)


def test_scaled_times_are_divided(trace):
    double = trace.scaled(factor=2)
    assert [r.arrival for r in double] == [0.0, 0.5, 2.5, 2.5]
    assert double.summary.burst == pytest.approx(trace.summary.burst)
    assert trace.scaled(rate=3.0).summary.rate == pytest.approx(3.0)
    assert [r[1:] for r in double] == [r[1:] for r in trace]
    for wrong in ({}, {"rate": 1.0, "factor": 1.0}):
        with pytest.raises(InputError, match="by a rate or by a factor: give one"):
            trace.scaled(**wrong)
    with pytest.raises(InputError, match="by a number above 0, got -1"):
        trace.scaled(factor=-1)


def test_a_burst_stays_a_burst():
    """Azure's code trace at another rate; a tenth of it by chance would have a cv of about 4 instead of 13."""
    code = read_trace("azure-code")
    assert code.scaled(rate=0.25).summary.burst == pytest.approx(code.summary.burst, rel=1e-6)


def test_parts(trace):
    assert [(r.arrival, r.prompt) for r in trace.part(start=1, stop=5)] == [(0.0, 20)]
    assert [(r.arrival, r.prompt) for r in trace.part(start=0.5, requests=2)] == [(0.5, 20), (4.5, 30)]
    assert [(r.arrival, r.prompt) for r in trace.part(skip=1, requests=2)] == [(0.0, 20), (4.0, 30)]
    assert [r.arrival for r in trace.scaled(factor=2).part(skip=1)] == [0.0, 2.0, 2.0]
    with pytest.raises(InputError, match="A part has 0 <= start < stop"):
        trace.part(start=5, stop=5)
    with pytest.raises(InputError, match="has no requests"):
        assert trace.part(start=100).summary


def test_rounded_stamps_are_spread_over_their_tick(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(HEAD + "".join(f"{t},5,5\n" for t in (0, 0, 0, 2.999, 3.001, 9)))
    spread = [r.arrival for block in in_order(read_trace(path).spread(3.0)) for r in block]
    assert [int(t // 3) for t in spread] == [0, 0, 0, 1, 1, 3]
    assert len(set(spread)) == 6
    with pytest.raises(InputError, match="A tick is above 0 s"):
        read_trace(path).spread(0.0)


def test_sorting(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(HEAD + "5,1,1\n3,2,2\n4,3,3\n")
    assert [(r.arrival, r.prompt) for r in read_trace(path, sort=True)] == [(0.0, 2), (1.0, 3), (2.0, 1)]


def test_cutting(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("arrival_s,input_tokens,output_tokens,prefix_blocks\n0,100,20,0+6\n")
    assert list(read_trace(path, context=60, cut=True)) == [Request(0.0, 40, 20, None, (0, 1))]


def test_requests_are_read_when_they_are_asked_for(tmp_path):
    """A fault in a later line does not stop those before it."""
    path = tmp_path / "a.csv"
    path.write_text(HEAD + "0,1,1\n1,1,1\nbroken\n")
    assert [b.arrival - a.arrival for a, b in pairwise(islice(read_trace(path), 2))] == [1.0]


def test_no_such_trace(tmp_path):
    with pytest.raises(InputError, match="no trace named 'azure-cod' and no such file; did you mean 'azure-code'"):
        read_trace("azure-cod")
    with pytest.raises(InputError, match="has no run 'b'; it has ''"):
        path = tmp_path / "a.csv"
        path.write_text(HEAD + "0,1,1\n")
        read_trace(path, run="b")


def test_a_short_trace_that_was_read_is_at_hand_until_its_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "few.csv"
    file.write_text("arrival_s,input_tokens,output_tokens\n0,100,10\n1,200,20\n")
    trace = read_trace(file)
    first = list(trace)
    assert list(trace) == list(read_trace(file)) == first and trace.summary.count == 2
    assert [request.prompt for request in trace.part(requests=1)] == [100]
    file.write_text("arrival_s,input_tokens,output_tokens\n0,100,10\n1,200,20\n2,300,30\n")
    assert [request.prompt for request in trace] == [100, 200, 300]


def test_a_part_is_not_parsed_again(tmp_path, monkeypatch):
    """The first requests of a file are at hand, for parts and beyond what is kept; a wrong line is told when it is come to."""
    monkeypatch.setattr(traces, "_SHORT", 5)
    path, parsed = tmp_path / "long.csv", []
    read = traces.lines_of
    monkeypatch.setattr(traces, "lines_of", lambda *given: (parsed.append(line) or line for line in read(*given)))
    path.write_text(HEAD + "".join(f"{at},{10 + at},3\n" for at in range(9)))
    trace = read_trace(path)
    for _ in range(3):
        assert [request.prompt for request in trace.part(requests=3)] == [10, 11, 12]
    assert len(parsed) <= 7
    for _ in range(2):
        assert [request.prompt for request in trace] == list(range(10, 19))
    path.write_text(path.read_text() + "9,0,3\n")
    assert len(list(read_trace(path).part(requests=9))) == 9
    with pytest.raises(InputError, match="line 11"):
        list(read_trace(path))
