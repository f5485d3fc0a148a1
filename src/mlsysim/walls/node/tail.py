"""Wall 7, tail latency: what the slowest requests see once requests queue for replicas.

    rho = lambda S / c
    P(T > t) = e^(-mu t) + C mu t e^(-min(mu, theta) t) phi(|theta - mu| t)        (Erlang C; Dean and Barroso 2013)

c replicas with mean service time S = 1/mu serve requests that arrive at random at rate lambda. A request waits with
probability C(c, rho); its wait is then exponential with rate theta = c mu - lambda, and its service is exponential too.
phi(y) = (1 - e^-y) / y. Percentiles of the sum are exact for M/M/c. They are not the percentile of the wait plus the mean
service: for ten replicas P99 is 4.95 service times at rho = 0.8 and already 4.61 at rho = 0.5, where nobody waits.

With a coefficient of variation other than 1 the service is gamma distributed and the wait is scaled by (1 + cv^2) / 2
(Allen and Cunneen); cv = 0 is constant service.

Assumed: one queue for all replicas, first come first served, Poisson arrivals, a steady state. Left out: bursts (a peak hour
at twice the mean rate needs its own solve), one queue per replica (random routing makes each replica an M/M/1 queue:
P99 at rho = 0.8 is 23 service times instead of 4.95), timeouts and retries, slow replicas. All of them lengthen the tail.
"""

from __future__ import annotations

import math
from typing import Any

from mlsysim.physics.queueing import little_queue, load
from mlsysim.physics.sojourn import Sojourn, replicas_for_percentile
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.result import Result, Time

CARDS = """
7 Tail Latency: latency percentiles under load
P(T > t) of M/M/c (Erlang C) (Dean and Barroso 2013)
How long do the slowest requests take when others queue before them?
"""


class TailLatencyResult(Result):
    """Percentiles of wait and service together. Times are None where the queue is unstable.

    ``queue_utilization`` is the offered load rho and exceeds 1 where more arrives than can be served.
    ``slo_headroom_ratio`` is the SLO over the latency at ``percentile``: above 1 it is met.
    """

    p50_latency: Time
    p95_latency: Time
    p99_latency: Time
    percentile: float
    percentile_latency: Time
    mean_latency: Time
    mean_wait: Time
    wait_probability: float
    mean_queue_length: float | None
    queue_utilization: float
    is_stable: bool
    replicas_for_stability: int
    slo_latency: Time = None
    slo_headroom_ratio: float | None = None
    slo_violation_probability: float | None = None
    replicas_for_slo: int | None = None


class TailLatencyModel(Resolver[TailLatencyResult]):
    """Latency percentiles of requests that share replicas, and the replicas that an SLO needs."""

    walls = (7,)
    inputs = declared("""
        arrival_rate_qps | (0, 1e9] 1/s, plain | requests per second
        service_latency_ms | (0, 1e9] ms, plain | mean time to serve one request without waiting, in milliseconds | 50 ms
        num_replicas = 1 | whole [1, 1e7] | replicas that share the queue
        service_time_cv
        slo_latency_ms? | (0, 1e12] ms, plain | latency that the percentile must not exceed, in milliseconds | 200 ms
        percentile = 99.0 | (0, 99.999999] | percentile that the SLO is about | | 99
    """)
    equations = written(r"""
        queue_utilization: rho = lambda S / c
            \rho = \frac{\lambda S}{c}
            lambda = arrival_rate_qps in 1/s, S = service_latency_ms in s, c = num_replicas
        wait_probability if is_stable: C = Erlang C(c, rho)
            C = \frac{(c\rho)^c/c!\,(1-\rho)^{-1}}{\sum_{k<c}(c\rho)^k/k! + (c\rho)^c/c!\,(1-\rho)^{-1}}
            c = num_replicas, rho = queue_utilization
        percentile_latency: P(T > t) = 1 - p, T = wait (0, or with probability C exponential at rate theta) + service
            P(T > t) = e^{-\mu t} + C\,\frac{\mu\,(e^{-\mu t} - e^{-\theta t})}{\theta - \mu} = 1 - p
            p = fraction, C = wait_probability, theta = theta in 1/s, mu = service_rate in 1/s, cv = service_time_cv
    """)
    known_fallacies = (
        "P99 is a little more than the mean: exponential service alone puts it at 4.6 service times.",
        "A queue at 95 % load is nearly as fast as at 80 %: the tail of ten replicas doubles.",
        "Twice the replicas halve the latency: they shorten the wait, never the service.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> TailLatencyResult:
        """Percentiles of the latency of requests that queue for replicas."""
        rate, service, cv = x.arrival_rate_qps, x.service_latency_ms / 1e3, x.service_time_cv
        fraction, slo = x.percentile / 100, None if x.slo_latency_ms is None else x.slo_latency_ms / 1e3
        rho, least = load(rate, service, x.num_replicas), math.floor(rate * service) + 1
        if cv not in (0, 1):
            assumed["service_distribution"] = f"gamma with coefficient of variation {cv:g}"
        queue = Sojourn(x.num_replicas, rho, cv) if rho < 1 else None
        enough = None if slo is None else replicas_for_percentile(rate, service, cv, slo, fraction)
        p50, p95, p99, latency = (
            None if queue is None else service * queue.percentile(each) for each in (0.5, 0.95, 0.99, fraction)
        )
        wait, theta = (None, None) if queue is None else (service * queue.mean_wait, queue.drain / service)
        violation = headroom = None
        if slo is not None:
            violation = 1.0 if queue is None else queue.tail(slo / service)
            headroom = 0.0 if latency is None else slo / latency
        return TailLatencyResult.of(
            assumed,
            x,
            feasible=rho < 1 and (headroom is None or headroom >= 1),
            binding=_binding(x, rho, least, latency, slo, enough),
            p50_latency=p50,
            p95_latency=p95,
            p99_latency=p99,
            percentile_latency=latency,
            mean_latency=None if queue is None else service * (1 + queue.mean_wait),
            mean_wait=wait,
            wait_probability=1.0 if queue is None else queue.wait_probability,
            mean_queue_length=None if wait is None else little_queue(rate, wait),
            queue_utilization=rho,
            is_stable=rho < 1,
            replicas_for_stability=least,
            slo_latency=slo,
            slo_headroom_ratio=headroom,
            slo_violation_probability=violation,
            replicas_for_slo=enough,
            shown={"service_rate": 1 / service, "fraction": fraction, "theta": theta},
        )


def _binding(x: Any, rho: float, least: int, latency: float | None, slo: float | None, enough: int | None) -> Binding:
    if latency is None:
        asked = f"{x.arrival_rate_qps:.4g} requests/s ask for more than {x.num_replicas} replicas can serve"
        said = f": the queue is unstable at a load of {rho:.4g}: {asked}; at least {least} are needed."
        return wall_says(7, rho, said)
    times = latency * 1e3 / x.service_latency_ms
    said = f": P{x.percentile:g} is {latency * 1e3:.4g} ms, {times:.3g} service times, at a load of {rho:.3g}"
    if slo is None:
        return wall_says(7, times, f"{said}.")
    limit = f"{slo * 1e3:.4g} ms"
    why = "because the service alone takes longer at this percentile: make the service faster or steadier"
    rest = f"no number of replicas meets {limit}, {why}"
    if latency <= slo:
        rest = f"the SLO of {limit} holds with {enough} replicas or more"
    elif enough is not None:
        rest = f"the SLO of {limit} needs {enough} replicas"
    return wall_says(7, latency / slo, f"{said}; {rest}.")
