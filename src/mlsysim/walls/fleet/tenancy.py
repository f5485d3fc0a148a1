"""Wall 16, multi-tenancy: how long jobs wait for a shared cluster.

    W = rho D / (2 (1 - rho)),  rho = lambda D                       M/D/1, exact (Pollaczek 1930, Khinchine 1932)
    L = lambda W                                                                                     (Little 1961)

Jobs arrive at random at rate lambda and each runs for about the same time D. Where a job takes the whole cluster there is
one server; where the cluster runs ``num_servers`` jobs side by side the wait is that of M/D/c, half of the M/M/c wait with
Cosmetatos' correction. Where durations vary, with coefficient of variation cv, the wait lies between constant and
exponential durations: W = cv^2 W(M/M/c) + (1 - cv^2) W(M/D/c) (Page 1972), which is exact for one server.

From 50 % to 90 % load the M/D/1 wait grows 9 times and the queue 16.2 times.

Assumed: every job takes the same share of the cluster, first come first served, a steady state. Left out: jobs of different
sizes (a wide job waits until enough slices are free at once, while those already free stand idle: waits are then longer than
here), priorities and preemption (they move waiting from one job to another and leave the total as it is), failures (wall 15).
"""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.physics.queueing import erlang_c, little_queue, load, load_for_wait, mean_wait, servers_for_wait
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.result import Result

CARDS = """
16 Multi-tenant: wait in the queue of a shared cluster
W = rho D / (2 (1 - rho)) (Little 1961)
How long does a job wait before it starts, and how full may the cluster be?
"""


class OrchestrationResult(Result):
    """Waits and queue of a shared cluster. Waits are None where the queue is unstable.

    ``cluster_utilization`` is the offered load rho and exceeds 1 where more work arrives than the cluster can do.
    """

    cluster_utilization: float
    avg_wait_time_days: float | None
    avg_queue_length: float | None
    is_stable: bool
    avg_turnaround_days: float | None
    wait_ratio: float | None
    wait_probability: float
    num_servers: int
    accelerators_per_job: float
    busy_accelerators: float
    backlog_jobs_per_day: float
    target_wait_days: float | None = None
    utilization_for_target: float | None = None
    arrival_rate_for_target: float | None = None
    servers_for_target: int | None = None


class OrchestrationModel(Resolver[OrchestrationResult]):
    """Wait, queue and utilisation of a cluster that many jobs share, and the load that a wait target allows."""

    walls = (16,)
    inputs = declared("""
        fleet | fleet | the cluster: an entry of Systems.Clusters, its name, or a Fleet
        arrival_rate_jobs_per_day | (0, 1e9] 1/day, plain | jobs submitted per day
        avg_job_duration_days | (0, 100000] day, plain | time that a job runs once it has started, in days | 2 day
        num_servers? | whole [1, 1e6] | jobs that run side by side
        accelerators_per_job? | whole [1, 1e9] | accelerators of one job, instead of 'num_servers'
        job_duration_cv = 0.0 | [0, 10] | standard deviation of the duration over its mean: 0 constant, 1 exponential
        target_wait_days? | (0, 1e6] day, plain | mean wait that is acceptable, in days | 4 h
    """)
    equations = written(r"""
        cluster_utilization: rho = lambda D / c
            \rho = \frac{\lambda D}{c}
            lambda = arrival_rate_jobs_per_day in 1/day, D = avg_job_duration_days in day, c = num_servers
        avg_wait_time_days if one_server: W = rho D / (2 (1 - rho)) x (1 + cv^2)
            W = \frac{\rho D}{2(1-\rho)}\,(1 + c_v^2)
            rho = cluster_utilization, D = avg_job_duration_days in day, cv = job_duration_cv
        avg_wait_time_days if many_servers: W = cv^2 W(M/M/c) + (1 - cv^2) W(M/D/c), W(M/M/c) = C D / (c (1 - rho))
            W = c_v^2 W_{M/M/c} + (1 - c_v^2) W_{M/D/c},\quad W_{M/M/c} = \frac{C\,D}{c\,(1-\rho)}
            C = wait_probability, D = avg_job_duration_days in day, c = num_servers, rho = cluster_utilization, cv = job_duration_cv
        avg_queue_length: L = lambda W
            L = \lambda W
            lambda = arrival_rate_jobs_per_day in 1/day, W = avg_wait_time_days in day
    """)
    known_fallacies = (
        "An idle cluster is a wasted cluster: from 50 % to 90 % load the wait grows 9 times and the queue 16 times.",
        "Two small clusters serve as well as one large: pooling the same load shortens the wait.",
        "More users at the same load wait as long: the wait follows the load and the job's length, not their number.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> OrchestrationResult:
        """Mean wait and queue of jobs on a shared cluster."""
        rate, duration, cv = x.arrival_rate_jobs_per_day, x.avg_job_duration_days, x.job_duration_cv
        accelerators, target = x.fleet.total_accelerators, x.target_wait_days
        servers = _servers(x, accelerators, assumed)
        rho = load(rate, duration, servers)
        wait = mean_wait(rate, duration, servers, cv) if rho < 1 else None
        allowed = None if target is None else load_for_wait(target, duration, servers, cv)
        enough = None if target is None else servers_for_wait(rate, target, duration, cv)
        each = x.accelerators_per_job or accelerators / servers
        return OrchestrationResult.of(
            assumed,
            x,
            feasible=wait is not None and (target is None or wait <= target),
            binding=_binding(x, rho, servers, wait, allowed, enough),
            cluster_utilization=rho,
            avg_wait_time_days=wait,
            avg_queue_length=None if wait is None else float(little_queue(rate, wait)),
            is_stable=rho < 1,
            avg_turnaround_days=None if wait is None else wait + duration,
            wait_ratio=None if wait is None else wait / duration,
            wait_probability=float(erlang_c(servers, rho)) if rho < 1 and servers > 1 else min(rho, 1.0),
            num_servers=servers,
            accelerators_per_job=each,
            busy_accelerators=min(rho, 1.0) * servers * each,
            backlog_jobs_per_day=max(0.0, rate - servers / duration),
            utilization_for_target=allowed,
            arrival_rate_for_target=None if allowed is None else allowed * servers / duration,
            servers_for_target=enough,
            shown={"one_server": servers == 1, "many_servers": servers > 1},
        )


def _servers(x: Any, accelerators: int, assumed: dict[str, str]) -> int:
    if x.accelerators_per_job is not None:
        if x.num_servers is not None:
            raise InputError("OrchestrationModel takes 'num_servers' or 'accelerators_per_job', not both.")
        if x.accelerators_per_job > accelerators:
            words = (
                f"{x.accelerators_per_job:,} accelerators does not fit on {x.fleet.name}, which has {accelerators:,}"
            )
            raise InputError(f"A job of {words}; use at most that many.", field="accelerators_per_job")
        return int(accelerators // x.accelerators_per_job)
    if x.num_servers is None:
        assumed["num_servers"] = "1: each job takes the whole cluster"
        return 1
    if x.num_servers > accelerators:
        words = f"cannot run {x.num_servers:,} jobs side by side; use at most {accelerators:,}"
        raise InputError(f"{x.fleet.name} has {accelerators:,} accelerators and {words}.", field="num_servers")
    return int(x.num_servers)


def _binding(
    x: Any, rho: float, servers: int, wait: float | None, allowed: float | None, enough: int | None
) -> Binding:
    duration, target = x.avg_job_duration_days, x.target_wait_days
    if wait is None:
        asked = (
            f"{x.arrival_rate_jobs_per_day:.4g} jobs a day of {duration:.4g} days ask for more than {servers} at a time"
        )
        remedy = f"accept fewer than {servers / duration:.4g} jobs a day, shorten them, or enlarge the cluster"
        return wall_says(16, rho, f": the queue is unstable at a load of {rho:.4g}: {asked}; {remedy}.")
    ratio = wait / duration
    said = f": at a load of {rho:.3g} a job waits {wait:.4g} days, {ratio:.3g} times its own length"
    if target is None:
        return wall_says(16, ratio, f"{said}.")
    rest = f"a wait of {target:.4g} days allows a load of {allowed:.3g}."
    if wait > target:
        rest = f"for {target:.4g} days keep the load at {allowed:.3g} or run {enough} jobs side by side."
    return wall_says(16, wait / target, f"{said}; {rest}")
