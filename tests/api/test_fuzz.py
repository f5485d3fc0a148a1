"""Requests drawn from the server's own description: every answer is documented, JSON, and no fault. More of them: benchmarks/api_fuzz.py."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from schema_driven import problems, requests

from mlsysim.api.limits import Limits
from mlsysim.api.openapi import openapi

LIMITS = Limits(workers=1, timeout=60, max_points=50_000)
DESCRIPTION = openapi(LIMITS)
GROWTH = 150 * 2**20
"""Bytes by which the worker may grow over the run once it is warm: caches of the zoo's entries fill up."""

_WARM = 100
_held: list[int] = []


@settings(
    max_examples=400, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(asked=requests(DESCRIPTION))
def test_every_answer_is_documented(client, asked):
    answer = client.request(asked.method, asked.url, content=asked.body, headers=asked.headers)
    found = problems(asked, answer.status_code, dict(answer.headers), answer.content, DESCRIPTION)
    assert not found, (found, asked, answer.text[:500])
    assert answer.status_code not in (503, 504), "within the limits of this test nothing should take so much"
    _watch_memory(client)


def _watch_memory(client):
    for worker in client.app.state.pool._free:
        try:
            pages = int(Path(f"/proc/{worker.process.pid}/statm").read_text().split()[1])
        except OSError:
            return
        _held.append(pages * 4096)
    if len(_held) > _WARM:
        assert _held[-1] - _held[_WARM] < GROWTH
