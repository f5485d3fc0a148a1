"""Calibrated fidelity of serving: what an engine gives at saturation, under an offered rate and within latency limits.

    static batch     B answers of O tokens in  t_p(B) + sum over the answer of t_d(B)
    saturated        n/(t_d(n) + n/O prompts),  n as many caches as fit
    offered rate     requests come at random at a rate; the batch is what Little's law asks for, N = rate x time of an answer
    limited          the largest batch whose time per token and to the first token stay within limits

In closed form, on steps of :class:`mlsysim.timing.engine_step.EngineStep`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlsysim.cases.cache import engine_memory
from mlsysim.timing.engine_step import EngineStep

__all__ = ["Offered", "limited_rate", "offered_rate", "saturated", "static_batch", "step_with_prompts"]

_MOST_SEQUENCES = 2048.0
_BISECTIONS = 24


@dataclass(frozen=True, slots=True)
class Offered:
    """What clients see under an offered rate; seconds and requests (tokens) a second."""

    ttft: float
    tpot: float
    request_rate: float
    output_rate: float
    active: float


def step_with_prompts(step: EngineStep, n: float, prompt: float, answer: float, budget: float | None = None) -> float:
    """Mean time of a step that n sequences share, each answer of ``answer`` tokens bringing one prompt."""
    ranks = step.deployment.attention_dp
    room = float(budget or step.engine.token_budget)
    context = prompt + answer / 2
    decode = float(step.time(n / ranks, context).total)
    arrivals = n / answer / ranks
    size = min(prompt, room)
    together = max(1.0, min(math.floor(room / size), arrivals))
    mixed = float(step.time(n / ranks, context, together, size, (prompt - size) / 2).total)
    steps = arrivals * (prompt / size) / together
    if steps <= 1:
        return decode + steps * (mixed - decode)
    # More steps with prompts than decode steps: decode waits for the others.
    alone = float(step.time(0.0, 0.0, together, size, (prompt - size) / 2).total)
    return mixed + (steps - 1) * alone


def saturated(
    step: EngineStep,
    prompt: float,
    answer: float,
    most: float = _MOST_SEQUENCES,
    budget: float | None = None,
    requests: float = math.inf,
) -> tuple[float, float]:
    """Output tokens a second when requests wait in a queue, and how many share a step; caches are reserved whole.

    Of a finite number of ``requests`` with answers of one length, full batches follow each other and the last one is what
    is left.
    """
    fits = float(engine_memory(step, prompt + answer).sequences)
    n = max(min(fits, most * step.deployment.attention_dp, requests), 1.0)
    full = step_with_prompts(step, n, prompt, answer, budget)
    if not math.isfinite(requests):
        return n / full, n
    waves = math.floor(requests / n)
    left = requests - waves * n
    span = waves * full + (step_with_prompts(step, left, prompt, answer, budget) if left >= 1 else 0.0)
    return requests / span, n


def static_batch(step: EngineStep, batch: float, prompt: float, answer: float) -> tuple[float, float]:
    """Time to the first token and of the whole answer, when a batch begins and ends together."""
    each = batch / step.deployment.attention_dp
    room = max(step.engine.token_budget, prompt)
    together = max(1.0, min(each, math.floor(room / prompt)))
    first = float(step.time(0.0, 0.0, together, prompt).total) * each / together
    # Decode is affine in the context but for windows: three points of Simpson's rule are exact then.
    points = [float(step.time(each, prompt + share * answer).total) for share in (0.0, 0.5, 1.0)]
    mean = (points[0] + 4 * points[1] + points[2]) / 6
    return first, first + max(answer - 1, 0.0) * mean


def offered_rate(
    step: EngineStep, rate: float, prompt: float, answer: float, requests: float, most: float = _MOST_SEQUENCES
) -> Offered:
    """``requests`` requests that come at ``rate`` a second (infinite: all at once)."""
    top, most_active = saturated(step, prompt, answer, most)
    capacity = top / answer
    alone = float(step.time(0.0, 0.0, 1.0, prompt).total)
    if rate >= capacity:
        active = min(most_active, requests)
        token = step_with_prompts(step, active, prompt, answer)
        served = active / token / answer
        span = requests / served + answer * token / 2
        wait = requests / 2 * max(1 / served - (1 / rate if math.isfinite(rate) else 0.0), 0.0)
        wait = max(wait - answer * token * active / requests / 2, 0.0)
        reading = float(step.time(0.0, 0.0, min(active, 8.0), prompt).total) * max(active / 8.0, 1.0) / 2
        first = wait + (reading if not math.isfinite(rate) else alone)
        finished = requests / span
        return Offered(first + step.engine.front_end, token, finished, finished * answer, active)
    active = 1.0
    token = step_with_prompts(step, active, prompt, answer)
    for _ in range(_BISECTIONS):
        active = min(max(rate * answer * token, 0.05), most_active)
        token = 0.5 * token + 0.5 * step_with_prompts(step, max(active, 1.0), prompt, answer)
    busy = min(rate * alone, 0.95)
    queue = alone * busy / (2 * (1 - busy))
    first = alone + token / 2 + queue + step.engine.front_end
    span = requests / rate + answer * token
    return Offered(first, token, requests / span, requests / span * answer, active)


def limited_rate(
    step: EngineStep,
    prompt: float,
    answer: float,
    first_limit: float,
    token_limit: float,
    most: float = _MOST_SEQUENCES,
) -> tuple[float, float]:
    """Output tokens a second within limits on the time to the first token and per token, and the batch; 0 if impossible."""
    high = max(min(float(engine_memory(step, prompt + answer).sequences), most * step.deployment.attention_dp), 1.0)
    alone = float(step.time(0.0, 0.0, 1.0, prompt).total)

    def within(n: float) -> bool:
        token = step_with_prompts(step, n, prompt, answer)
        busy = min(n / (answer * token) * alone, 0.99)
        first = alone + token + alone * busy / (2 * (1 - busy)) * math.log(100)
        return token <= token_limit and first <= first_limit

    if within(high):
        n = high
    elif not within(1.0):
        return 0.0, 0.0
    else:
        low = 1.0
        for _ in range(_BISECTIONS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if within(middle) else (low, middle)
        n = low
    return n / step_with_prompts(step, n, prompt, answer), n
