"""One request after another."""

from __future__ import annotations

import pytest

from mlsysim.errors import InputError
from mlsysim.simulate.requests import Request, in_order


def test_requests_are_handed_on_one_by_one():
    endless = (Request(float(i), 10, 5) for i in iter(int, 1))
    assert next(in_order(endless)) == [Request(0.0, 10, 5)]


def test_equal_times_are_in_order():
    requests = [Request(1.0, 10, 5), Request(1.0, 20, 1)]
    assert [each for block in in_order(requests) for each in block] == requests


def test_an_error_is_told_of_the_request_that_has_it():
    requests = [Request(float(i), 10, 5) for i in range(3000)]
    requests[2500] = Request(7.0, 10, 5)
    with pytest.raises(InputError, match=r"Request 2501 comes at 7 s and the one before it at 2499 s"):
        list(in_order(requests))


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (Request(0.5, 10, 5), "Request 2 comes at 0.5 s and the one before it at 1 s"),
        (Request(float("nan"), 10, 5), "Request 2 comes at nan s"),
        (Request(float("inf"), 10, 5), "Request 2 comes at inf s"),
        (Request(2.0, 0, 5), "Request 2 has a prompt of 0 and an answer of 5 tokens; each must be 1 or more."),
        (Request(2.0, 10, 0), "Request 2 has a prompt of 10 and an answer of 0 tokens"),
    ],
)
def test_what_cannot_be_played_is_refused(second, sentence):
    with pytest.raises(InputError, match=sentence):
        list(in_order([Request(1.0, 10, 5), second]))
