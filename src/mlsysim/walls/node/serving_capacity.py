"""Serving capacity: how many replicas a stream of requests needs, from the roofline of wall 4 and the queue of wall 7.

    S = TTFT(B) + (n_out - 1) ITL(B)            a request holds one of B slots of a replica for so long
    rho = lambda S / (R B),  P(T > target) <= 1 %                       M/G/c with c = R B slots (walls 4 and 7)

A replica works on B requests at a time. TTFT(B) is the prefill of B prompts: with continuous batching a request waits for the
prefills of the B - 1 others that start while it is served, with static batching for those that start with it; the sum is
the same. The smallest R for which the P99 of wait and service stays within the target is the answer. Without
``batch_size`` the batch that needs the fewest replicas is chosen among powers of two and the largest that fits.

Assumed: one queue for all replicas; all B slots are busy when a request is served (at low load batches are emptier and
requests faster: this errs on the safe side); answers vary as much as ``service_time_cv`` says, 1 (exponential) unless given.
Left out: bursts, uneven routing, failures of replicas (wall 15).
"""

from __future__ import annotations

from typing import Annotated, Any

from mlsysim.cases.serve import service_time
from mlsysim.physics.queueing import load
from mlsysim.physics.sojourn import Sojourn, replicas_for_percentile
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.node.serving import ServingModel, ServingResult
from mlsysim.walls.result import Rate, Result, Time

P99 = 0.99

_MOST_SLOTS = 4096

REPLICA_INPUTS = declared("""
    output_len = constant serving_output_tokens | whole [1, 1e8] | tokens of the answer
    service_time_cv, tp_size, pp_size, ep_size, cache_precision, bandwidth_efficiency, fabric
""")
"""Inputs of resolvers that serve requests on replicas."""

_PASSED_ON = ("precision", "efficiency", *(name for name in REPLICA_INPUTS if name != "service_time_cv"))


@dataclass(frozen=True, slots=True)
class ServedBatch:
    """A replica that works on ``size`` requests at a time; times in seconds."""

    size: int
    ttft: float
    itl: float
    service: float
    fits: bool
    detail: ServingResult

    @property
    def rate(self) -> float:
        """Requests per second of one replica whose slots are all busy."""
        return self.size / self.service


def serve_batch(x: Any, size: int) -> ServedBatch:
    """Wall 4 for a batch of ``size`` requests."""
    options = {name: getattr(x, name) for name in _PASSED_ON}
    served = ServingModel().solve(model=x.model, hardware=x.hardware, seq_len=x.seq_len, batch_size=size, **options)
    ttft, itl = to_si(served.ttft, "s"), to_si(served.itl, "s")
    return ServedBatch(size, ttft, itl, float(service_time(ttft, itl, x.output_len)), served.feasible, served)


def notes(served: ServedBatch) -> dict[str, str]:
    """What wall 4 had to assume beyond its inputs."""
    return {name: text for name, text in served.detail.assumptions.items() if name not in ServingModel.inputs}


class ServingCapacityResult(Result):
    """Replicas for a stream of requests. Without a number of replicas that is enough, ``required_replicas`` is None
    and ``estimated_p99_latency`` is that of the service alone.
    """

    required_replicas: int | None
    required_devices: int | None
    qps_target: Annotated[Rate, "qps"]
    qps_capacity: Rate
    per_replica_qps_capacity: Annotated[Rate, "rate"]
    utilization: float | None
    target_p99_latency: Time
    estimated_p99_latency: Time
    base_request_latency: Annotated[Time, "service"]
    queue_wait_p99: Time
    active_batch_size: Annotated[int, "size"]
    max_batch_size: Annotated[int | None, "detail.max_batch_size"]
    ttft: Time
    itl: Time
    bottleneck: str


class ServingCapacityModel(Resolver[ServingCapacityResult]):
    """Replicas that a request rate and a P99 target need."""

    walls = (4, 7)
    inputs = declared("""
        model, hardware
        qps | (0, 1e9] 1/s, plain | requests per second
        target_p99_latency_ms | (0, 1e12] ms, plain | latency of a whole request that 99 % must not exceed, in milliseconds | 5 s
        seq_len = 2048 | whole [1, 1e8] | tokens of the prompt
        batch_size? | whole [1, 1e6] | requests that a replica works on at once
        precision, efficiency or calibrated
        output_len = constant serving_output_tokens | whole [1, 1e8] | tokens of the answer
        service_time_cv, tp_size, pp_size, ep_size, cache_precision, bandwidth_efficiency, fabric
    """)
    equations = written(r"""
        base_request_latency: S = TTFT + (n_out - 1) ITL
            S = \mathrm{TTFT} + (n_{\mathrm{out}} - 1)\,\mathrm{ITL}
            TTFT = ttft in s, n_out = output_len, ITL = itl in s
        per_replica_qps_capacity: q = B / S
            q = B / S
            B = active_batch_size, S = base_request_latency in s
        utilization: rho = lambda S / (R B)
            \rho = \frac{\lambda S}{R\,B}
            lambda = qps in 1/s, S = base_request_latency in s, R = required_replicas, B = active_batch_size
        estimated_p99_latency: P(T > t) = 0.01 for c = R B slots
            P(T > t) = 0.01,\quad c = R\,B
            rho = utilization, R = required_replicas, B = active_batch_size, cv = service_time_cv
    """)
    known_fallacies = (
        "Replicas = rate x latency: at full load the queue grows without end, and P99 needs room to spare.",
        "A larger batch is free throughput: it lengthens every request that shares it.",
        "More replicas fix a latency target: they remove the wait, never the service time.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> ServingCapacityResult:
        """The fewest replicas that keep the P99 of requests within a target."""
        target = x.target_p99_latency_ms / 1e3
        served, replicas = self._choose(x, target, assumed)
        assumed.update(notes(served))
        least = int(x.qps * served.service // served.size) + 1
        queue = rho = None
        if replicas is not None:
            rho = load(x.qps, served.service, replicas * served.size)
            queue = Sojourn(replicas * served.size, rho, x.service_time_cv)
        p99 = served.service * (queue or Sojourn(_MOST_SLOTS, 1e-6, x.service_time_cv)).percentile(P99)
        bound = "Service" if replicas is None else "Throughput" if replicas == least else "Queueing"
        bound = bound if served.fits else "Memory"
        return ServingCapacityResult.of(
            assumed,
            served,
            x,
            feasible=served.fits and replicas is not None,
            binding=_binding(x, bound, served, replicas, least, p99, target),
            required_replicas=replicas,
            required_devices=None if replicas is None else replicas * served.detail.devices,
            qps_capacity=None if replicas is None else replicas * served.rate,
            utilization=rho,
            target_p99_latency=target,
            estimated_p99_latency=p99,
            queue_wait_p99=None if queue is None else served.service * queue.wait_percentile(P99),
            bottleneck=bound,
        )

    @staticmethod
    def _choose(x: Any, target: float, assumed: dict[str, str]) -> tuple[ServedBatch, int | None]:
        """The batch and the replicas: as given, or the batch that needs the fewest."""

        def needed(served: ServedBatch) -> int | None:
            return replicas_for_percentile(x.qps, served.service, x.service_time_cv, target, P99, served.size)

        if x.batch_size is not None:
            served = serve_batch(x, x.batch_size)
            return served, needed(served)
        best = serve_batch(x, 1)
        fewest = needed(best)
        most = min(best.detail.max_batch_size or 1, _MOST_SLOTS)
        sizes = sorted({most, *(2**i for i in range(1, most.bit_length()))})
        for size in sizes if most > 1 else ():
            served = serve_batch(x, size)
            count = needed(served)
            if count is None:
                break
            if fewest is None or count < fewest:
                best, fewest = served, count
        assumed["batch_size"] = f"{best.size}: it needs the fewest replicas"
        return best, fewest


def _binding(
    x: Any, bound: str, served: ServedBatch, replicas: int | None, least: int, p99: float, target: float
) -> Binding:
    if bound == "Memory":
        return Binding(2, "Memory", served.detail.memory_utilization, served.detail.binding.sentence)
    if replicas is None:
        takes = f"a request takes {served.service:.4g} s at batch {served.size} and 1 % of them {p99:.4g} s or more"
        remedy = "use smaller batches, faster or more devices per replica, or shorter answers"
        why = f"without any queue, so no number of replicas meets {target:.4g} s: {remedy}"
        return wall_says(4, p99 / target, f": {takes} {why}.")
    why = f"{least} would carry the load, the tail needs more"
    if bound == "Throughput":
        why = "as many as the load itself needs"
    hold = f"{replicas} replicas of {served.size} requests at a time hold P99 at {p99:.4g} s (target {target:.4g} s)"
    return wall_says(7, p99 / target, f": {hold}; {why}.")
