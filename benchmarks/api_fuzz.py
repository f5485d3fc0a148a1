"""Ask the HTTP API at random, by its own description, and say what came back.

    python benchmarks/api_fuzz.py                     10,000 requests in process, 1,000 to a server on a loopback port
                                                      that many slow and half-open connections crowd
    python benchmarks/api_fuzz.py --requests 500 --served 100 --seed 7

Prints requests a second, answers by status and operation, the slowest answers, the memory of the server and its workers at
the start and at the end, and every problem. Ends with 1 where there was one.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "api"))

import httpx
from hypothesis import HealthCheck, Phase, given, seed, settings
from schema_driven import problems, requests

from mlsysim.api.connections import server
from mlsysim.api.http_server import create_app
from mlsysim.api.limits import Limits
from mlsysim.api.openapi import openapi


class Run:
    """Sends requests and keeps count."""

    def __init__(self, limits: Limits, client: httpx.AsyncClient, loop: asyncio.AbstractEventLoop) -> None:
        self.client, self.loop = client, loop
        self.description = openapi(limits)
        self.by_status: Counter[int] = Counter()
        self.kinds: Counter[str] = Counter()
        self.slowest: list[tuple[float, str]] = []
        self.problems: dict[str, tuple[Any, bytes]] = {}

    def ask(self, asked: Any) -> None:
        began = time.perf_counter()
        answer = self.loop.run_until_complete(
            self.client.request(asked.method, asked.url, content=asked.body, headers=asked.headers)
        )
        took = time.perf_counter() - began
        self.by_status[answer.status_code] += 1
        if answer.status_code != 200:
            error = answer.json().get("error", {})
            self.kinds[error.get("kind", "?")] += 1
            if error.get("kind") in ("range", "memory", "timeout", "overloaded"):
                self.problems.setdefault(f"({asked.operation}) {error['sentence']}", (asked, b""))
        self.slowest = sorted([*self.slowest, (took, asked.operation)], reverse=True)[:5]
        for problem in problems(asked, answer.status_code, dict(answer.headers), answer.content, self.description):
            sentence = answer.json().get("error", {}).get("sentence", "") if answer.status_code >= 400 else ""
            self.problems.setdefault(f"{asked.operation}: {problem} {sentence}"[:300], (asked, answer.content[:300]))

    def many(self, count: int, start: int) -> float:
        began = time.perf_counter()

        @seed(start)
        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(requests(self.description))
        def every(asked: Any) -> None:
            self.ask(asked)

        every()
        return time.perf_counter() - began


def memory(processes: list[int]) -> float:
    """MiB that processes hold, as Linux tells it."""
    total = 0
    for process in processes:
        try:
            pages = Path(f"/proc/{process}/statm").read_text().split()[1]
        except OSError:
            continue
        total += int(pages) * 4096
    return total / 2**20


def workers_of(pool: Any) -> list[int]:
    """The processes of a pool."""
    return [worker.process.pid for worker in [*pool._free, *pool._busy]]


async def crowd(port: int, count: int) -> None:
    """Open more connections than the server keeps, each with a part of a request, and finish none; half of them close their side."""
    for number in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((b"", b"G", b"GET /health HTTP/1.1\r\nHost: ", b"POST /v1/train HTTP/1.1\r\nHost: localhost\r\n"
                      b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")[number % 4])  # fmt: skip
        if number % 8 > 3:
            writer.write_eof()
        _CROWD.append(writer)


_CROWD: list[asyncio.StreamWriter] = []
"""Connections that stay open while the others ask."""


def report(title: str, run: Run, seconds: float, count: int) -> None:
    """Print what a run saw."""
    print(f"{title}: {count:,} requests in {seconds:.1f} s, {count / seconds:.0f} a second")
    print("  by status:", ", ".join(f"{status}: {n:,}" for status, n in sorted(run.by_status.items())))
    print("  errors by kind:", ", ".join(f"{kind}: {n:,}" for kind, n in run.kinds.most_common()))
    print("  slowest:", ", ".join(f"{name} {took:.2f} s" for took, name in run.slowest))
    for problem, (asked, text) in run.problems.items():
        print(f"  ! {problem}\n      {asked.method} {asked.url} {(asked.body or b'')[:600]!r}\n      {text!r}")


def bad(run: Run) -> bool:
    """Whether anything went wrong; answers about a limit are listed and are not wrong."""
    return any(not problem.startswith("(") for problem in run.problems)


def main() -> None:
    """Run both parts."""
    import os

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--served", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    given_ = parser.parse_args()
    limits = Limits(workers=2, timeout=20, max_points=100_000)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLSYSIM_ZOO"] = ""
        os.chdir(folder)
        loop = asyncio.new_event_loop()
        if given_.requests:
            app = create_app(limits)
            client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", timeout=120)
            run = Run(limits, client, loop)
            warm = min(500, given_.requests // 5)
            seconds = run.many(warm, given_.seed)
            pids = [os.getpid(), *workers_of(app.state.pool)]
            before = memory(pids)
            seconds += run.many(given_.requests - warm, given_.seed + 1)
            pids = [os.getpid(), *workers_of(app.state.pool)]
            report("in process", run, seconds, sum(run.by_status.values()))
            print(
                f"  memory of server, client and workers: {before:.0f} MiB after {warm}, {memory(pids):.0f} MiB at the end"
            )
            print(f"  workers started: {app.state.pool.started}")
            app.state.pool.close()
            failed |= bad(run)
        if given_.served:
            app = create_app(limits)
            served = server(app, limits, "127.0.0.1", 0)
            task = loop.create_task(served.serve())
            while not served.started:
                loop.run_until_complete(asyncio.sleep(0.05))
            port = served.servers[0].sockets[0].getsockname()[1]
            client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120)
            run = Run(limits, client, loop)
            loop.run_until_complete(crowd(port, 8 * (limits.workers + limits.waiting) + 50))
            seconds = run.many(given_.served, given_.seed + 2)
            report("on a loopback port", run, seconds, sum(run.by_status.values()))
            served.should_exit = True
            loop.run_until_complete(client.aclose())
            loop.run_until_complete(task)
            failed |= bad(run)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
