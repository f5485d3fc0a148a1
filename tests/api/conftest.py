"""One application with two workers for all tests of a process; starting workers takes seconds."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")


@pytest.fixture(scope="session", autouse=True)
def patience():
    """A worker that starts slowly on a busy machine is no defect."""
    from mlsysim.api import workers

    workers._START_S = 600.0


class Client:
    """Asks an application in this process, from code that is not async."""

    def __init__(self, app: Any) -> None:
        import httpx

        self.app = app
        self.loop = asyncio.new_event_loop()
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", timeout=1200)

    def request(self, method: str, url: str, **options: Any) -> Any:
        return self.loop.run_until_complete(self.http.request(method, url, **options))

    def get(self, url: str, **options: Any) -> Any:
        return self.request("GET", url, **options)

    def post(self, operation: str, document: Any, **options: Any) -> Any:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        headers = {"content-type": "application/json", **options.pop("headers", {})}
        return self.request("POST", f"/v1/{operation}", content=body, headers=headers, **options)

    def close(self) -> None:
        self.app.state.pool.close()
        self.loop.run_until_complete(self.http.aclose())
        self.loop.close()


@pytest.fixture(scope="session")
def client():
    from mlsysim.api.http_server import create_app
    from mlsysim.api.limits import Limits

    made = Client(create_app(Limits(workers=1, timeout=600, max_points=50_000)))
    yield made
    made.close()


@pytest.fixture
def clients():
    """Applications with limits of their own."""
    from mlsysim.api.http_server import create_app

    made = []

    def make(*arguments: Any) -> Client:
        made.append(Client(create_app(*arguments)))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def computed_here():
    """Applications that compute in this process, so that no answer depends on how busy the machine is; one for the same limits."""
    from functools import cache

    from mlsysim.api.http_server import create_app
    from mlsysim.api.service import answer
    from mlsysim.api.workers import Told

    @cache
    def make(limits: Any) -> Client:
        async def call(name: str, document: Any) -> Told:
            return Told(*answer(name, document, limits))

        client = Client(create_app(limits))
        client.app.state.pool.call = call
        return client

    return make
