"""Pages of other origins: nothing by default, and those that were named, whole, where they were named."""

from __future__ import annotations

import pytest

from mlsysim.api.limits import Limits
from mlsysim.api.origins import origins
from mlsysim.errors import InputError

HOSTS = ("127.0.0.1",)
ALLOWED = ("http://localhost:3000", "https://plans.example")
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}


@pytest.fixture
def open_to(clients):
    return clients(Limits(workers=1), HOSTS, ALLOWED)


def crossing(answer):
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control")}


@pytest.mark.parametrize("origin", ALLOWED)
def test_a_page_that_was_named_may_ask_and_read(open_to, origin):
    asked = open_to.request("OPTIONS", "/v1/train", headers={"origin": origin, **PREFLIGHT})
    assert asked.status_code == 204 and not asked.content
    told = crossing(asked)
    assert told["access-control-allow-origin"] == origin
    assert "POST" in told["access-control-allow-methods"] and told["access-control-allow-headers"] == "content-type"
    assert "access-control-allow-private-network" not in told and "access-control-allow-credentials" not in told
    for answer in (
        open_to.post("walls", {"number": 1}, headers={"origin": origin}),
        open_to.post("train", {"modle": 1}, headers={"origin": origin}),
        open_to.get("/nothing", headers={"origin": origin}),
    ):
        assert crossing(answer)["access-control-allow-origin"] == origin and answer.headers["vary"] == "Origin"


def test_a_page_from_outside_may_cross_into_the_local_network(open_to):
    headers = {"origin": ALLOWED[1], **PREFLIGHT, "access-control-request-private-network": "true"}
    answer = open_to.request("OPTIONS", "/v1/train", headers=headers)
    assert answer.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize(
    "origin", ["http://localhost:3001", "https://localhost:3000", "http://plans.example", "https://plans.example.evil.example", "null", ""]
)  # fmt: skip
def test_other_origins_are_told_nothing(open_to, origin):
    assert open_to.request("OPTIONS", "/v1/train", headers={"origin": origin, **PREFLIGHT}).status_code == 405
    answer = open_to.get("/health", headers={"origin": origin})
    assert not crossing(answer) and answer.headers["vary"] == "Origin"


def test_the_host_is_checked_for_named_origins_too(open_to):
    answer = open_to.get("/health", headers={"origin": ALLOWED[0], "host": "evil.example"})
    assert answer.status_code == 421


@pytest.mark.parametrize(
    "text", ["*", "null", "localhost:3000", "http://", "http://a.example/path", "ftp://a.example", "http://*.example", "http://a b", "http://u@a.example", ""]
)  # fmt: skip
def test_what_is_no_origin_is_refused(text):
    with pytest.raises(InputError, match=r"--allow-origin takes .* such as http://localhost:3000"):
        origins([text])


def test_origins_are_as_browsers_write_them():
    given = ["http://LOCALHOST:80/", "https://a.example:443", "http://[::1]:5173", "http://localhost"]
    assert origins(given) == ("http://localhost", "https://a.example", "http://[::1]:5173")
