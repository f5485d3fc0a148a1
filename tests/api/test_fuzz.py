"""Requests drawn from the server's own description: every answer is documented, JSON, and no fault. More of them: benchmarks/api_fuzz.py.

Operations are computed in this process instead of a worker, so that no answer depends on how busy the machine is.
"""

from __future__ import annotations

import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from schema_driven import problems, requests

from mlsysim.api.limits import Limits
from mlsysim.api.openapi import openapi

LIMITS = Limits(max_points=50_000)
DESCRIPTION = openapi(LIMITS)
GROWTH = 150 * 2**20
"""Bytes by which the process may grow over the run once it is warm: caches of the zoo's entries fill up."""

_WARM = 30
_held: list[int] = []


@settings(
    max_examples=60, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(asked=requests(DESCRIPTION))
def test_every_answer_is_documented(computed_here, asked):
    began = time.process_time()
    told = computed_here(LIMITS).request(asked.method, asked.url, content=asked.body, headers=asked.headers)
    found = problems(asked, told.status_code, dict(told.headers), told.content, DESCRIPTION)
    assert not found, (found, asked, told.text[:500])
    assert time.process_time() - began < LIMITS.timeout, (
        "within these limits nothing should take so much of a processor"
    )
    _watch_memory()


def _watch_memory():
    try:
        _held.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096)
    except OSError:
        return
    if len(_held) > _WARM:
        assert _held[-1] - _held[_WARM] < GROWTH
