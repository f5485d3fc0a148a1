"""Slow, half-open and rude clients on a real port: they are cut off, and others are answered meanwhile."""

from __future__ import annotations

import json
import select
import socket
import threading
import time

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from mlsysim.api.connections import Connection, server
from mlsysim.api.http_server import create_app
from mlsysim.api.limits import Limits

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/train HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PATIENCE = 2.0
MOST = 8
LARGE = 20_000_000


@pytest.fixture(scope="module")
def running():
    """A server that computes nothing, keeps 8 connections, and has two seconds of patience."""
    app = create_app(Limits(workers=1, waiting=0))
    large = Starlette(routes=[Route("/large", lambda request: Response(b"x" * LARGE))])
    app.mount("/more", large)
    served = server(app, Limits(workers=1, waiting=0), "127.0.0.1", 0)
    served.config.lifespan = "off"
    kept, Connection.patience = Connection.patience, PATIENCE
    thread = threading.Thread(target=served.run, daemon=True)
    thread.start()
    assert until(lambda: served.started)
    yield served
    served.should_exit = True
    thread.join(20)
    Connection.patience = kept


def until(holds, seconds=120):
    """Wait for something on a machine that may be busy; whether it came."""
    late = time.monotonic() + seconds
    while not holds() and time.monotonic() < late:
        time.sleep(0.02)
    return holds()


@pytest.fixture
def opened(running):
    """Connections with something sent on them."""
    made, port = [], running.servers[0].sockets[0].getsockname()[1]

    def make(sent=b""):
        one = socket.create_connection(("127.0.0.1", port), timeout=600)
        one.sendall(sent)
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def rest(one):
    """All that comes until the server closes; a reset is an end as well."""
    found = b""
    try:
        while piece := one.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def healthy(opened):
    one = opened(HEALTH)
    return one.recv(65536).startswith(b"HTTP/1.1 200")


def said(text):
    head, _, body = text.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def test_unfinished_headers_have_a_deadline(opened):
    slow, silent = opened(HEALTH[:-2]), opened()
    again = opened(HEALTH)
    again.recv(65536)
    again.sendall(HEALTH[:9])
    dripping = opened(HEALTH[:9])
    while not select.select([dripping], [], [], 0.1)[0]:  # a byte now and then does not prolong it
        dripping.sendall(b"x")
    for one in (slow, again, dripping):
        assert said(rest(one)) == (408, {"sentence": "The headers did not arrive within 2 s.", "kind": "slow"})
    assert rest(silent) == b""
    assert healthy(opened)


@pytest.mark.parametrize(
    "sent",
    [b"", HEALTH[:-2], POST + b"Content-Length: 100\r\n\r\n{", POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"],
    ids=["nothing", "headers", "body", "chunk"],
)
@pytest.mark.parametrize("half", [False, True], ids=["open", "half-open"])
def test_a_crowd_that_finishes_nothing_does_not_keep_others_out(opened, sent, half):
    for _ in range(3 * MOST):
        one = opened(sent)
        if half:
            one.shutdown(socket.SHUT_WR)
    assert healthy(opened)


def test_a_client_that_does_not_read_is_cut_off(opened, running, monkeypatch):
    def all_cut_off():
        return not running.server_state.connections

    assert until(all_cut_off), "those of other tests are gone"
    monkeypatch.setattr(Connection, "patience", PATIENCE / 10)
    deaf = opened(HEALTH.replace(b"/health", b"/more/large"))
    assert until(lambda: not all_cut_off()) and until(all_cut_off)
    assert len(rest(deaf)) < LARGE
    monkeypatch.setattr(Connection, "patience", PATIENCE)
    reading = opened(HEALTH.replace(b"/health", b"/more/large").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert len(rest(reading)) > LARGE
    assert until(all_cut_off)
    monkeypatch.setattr(Connection, "patience", PATIENCE / 10)
    pipelining = opened(HEALTH.replace(b"/health", b"/more/large") * 4)
    assert until(lambda: not all_cut_off()) and until(all_cut_off)
    assert len(rest(pipelining)) < LARGE
    assert healthy(opened)


def test_two_ways_to_say_where_a_body_ends(opened):
    both = POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HEALTH
    text = rest(opened(both))
    assert said(text) == (
        400,
        {"sentence": "A request has Content-Length or Transfer-Encoding, not both.", "kind": "malformed"},
    )
    assert text.count(b"HTTP/1.1") == 1, "what follows could be part of that body, and is not answered"


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x00\xa5", b"hello\r\n\r\n", POST + b"Content-Length: x\r\n\r\n"])
def test_what_is_no_http_gets_an_error_like_every_other(opened, sent):
    if sent.startswith(b"\x16"):
        sent += b"\r\n\r\n"
    assert said(rest(opened(sent))) == (
        400,
        {"sentence": "This is no HTTP request that can be read.", "kind": "malformed"},
    )
