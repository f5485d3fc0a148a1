"""BatchingOptimizer: the batch with the highest throughput whose P99 stays within a latency target.

    max over B of  R B n_out / S(B),   S(B) = TTFT(B) + n_out ITL(B)
    subject to     caches fit (wall 2),  lambda S(B) < R B (wall 7, stable),  P(T > SLA) <= 1 - p (wall 7)

Every batch from 1 to ``max_search_batch`` is evaluated with walls 4 and 7, as :mod:`mlsysim.walls.node.serving_capacity`
describes them, and each rejected batch is counted under the wall that rejected it. Larger batches read the weights once for
more requests, so throughput grows with the batch; so does the time of each request. Too small a batch cannot carry the
load at all: the feasible batches lie between the two.

The sensitivity says what the next batch is worth or which wall forbids it, and what the best would be worth, with the batch
free to follow, with one replica more or less and with a tenth more or less time or load.
"""

from __future__ import annotations

from typing import Annotated, Any

from mlsysim.cases.assumptions import Assumptions
from mlsysim.physics.queueing import load
from mlsysim.physics.sojourn import Sojourn
from mlsysim.search.steps import step
from mlsysim.walls.base import Resolver
from mlsysim.walls.binding import Binding
from mlsysim.walls.explanation import written
from mlsysim.walls.inputs import Inputs, declared
from mlsysim.walls.node.serving import ServingModel
from mlsysim.walls.node.serving_capacity import REPLICA_INPUTS, ServedBatch, notes, serve_batch
from mlsysim.walls.node.tail import TailLatencyModel
from mlsysim.walls.result import Rate, Result, Time

_KEPT = 5
_TENTH = 0.1
_MEMORY, _LOAD, _LATENCY = "Wall 2 (Memory)", "Wall 7 (unstable queue)", "Wall 7 (latency target)"


_KNOWN = ServingModel.inputs | TailLatencyModel.inputs | REPLICA_INPUTS
_KNOWN |= declared("""
    sla_latency_ms | (0, 1e12] ms, plain | latency of a whole request that the percentile must not exceed, in milliseconds | 5 s
    max_search_batch = 256 | whole [1, 65536] | largest batch to try
""")
_ASKED = (
    *("model", "hardware", "seq_len", "sla_latency_ms", "arrival_rate_qps", "num_replicas", "precision", "efficiency"),
    *("max_search_batch", "percentile", *REPLICA_INPUTS),
)
_INPUTS = {name: _KNOWN[name] for name in _ASKED}


class BatchingResult(Result):
    """The best batch, what came next and what rejected the others.

    ``max_throughput`` is in output tokens per second with all slots busy, over all replicas; ``offered_throughput`` is what
    the arriving requests ask for. Without a batch that meets the target, the fields of the best are None and ``closest`` is
    the stable batch that violates it least.
    """

    is_feasible: bool
    objective_value: Annotated[float | None, "throughput_tokens_per_s"] = None
    best_batch_size: Annotated[int | None, "batch_size"] = None
    best_config: dict[str, Any]
    max_throughput: Annotated[Rate, "throughput_tokens_per_s"] = None
    offered_throughput: Rate
    p99_latency: Time
    slo_violation_probability: Annotated[float | None, "violation_probability"] = None
    request_latency: Annotated[Time, "request_latency_s"] = None
    ttft: Annotated[Time, "ttft_s"] = None
    itl: Annotated[Time, "itl_s"] = None
    utilization: float | None = None
    smallest_feasible_batch: int | None
    largest_fitting_batch: int | None
    rejected: dict[str, int]
    top_candidates: tuple[dict[str, Any], ...]
    ties: int
    runner_up: dict[str, Any] | None
    runner_up_behind_fraction: float | None
    sensitivity: dict[str, Any]
    closest: dict[str, Any] | None
    total_searched: int
    search_space_size: int


class BatchingOptimizer(Resolver[BatchingResult]):
    """Search batch sizes for the highest throughput under a latency target."""

    tier = "optimizer"
    walls = (4, 7)
    result = BatchingResult
    inputs = _INPUTS
    equations = written(r"""
        max_throughput: X = R B n_out / (TTFT + (n_out - 1) ITL)
            X = \frac{R\,B\,n_{\mathrm{out}}}{\mathrm{TTFT} + (n_{\mathrm{out}} - 1)\,\mathrm{ITL}}
            R = num_replicas, B = best_batch_size, n_out = output_len, TTFT = ttft in s, ITL = itl in s
        p99_latency: P(T > t) = 0.01 for R B slots at load rho
            P(T > t) = 0.01,\quad c = R\,B
            rho = utilization, R = num_replicas, B = best_batch_size, cv = service_time_cv
    """)
    known_fallacies = (
        "The largest batch that fits is best: the latency target is usually reached before the memory is full.",
        "Small batches are the safe choice: below a certain size they cannot carry the load, and the queue never ends.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> BatchingResult:
        """Evaluate every batch size and keep the one with the highest throughput within the target."""
        rejected = {_MEMORY: 0, _LOAD: 0, _LATENCY: 0}
        allowed: list[tuple[ServedBatch, Sojourn]] = []
        late: list[tuple[float, ServedBatch, Sojourn]] = []
        batches: list[ServedBatch] = []
        why: dict[int, str] = {}
        for size in range(1, x.max_search_batch + 1):
            served = serve_batch(x, size)
            if size == 1:
                assumed.update(notes(served))
            if not served.fits:
                # Caches only grow with the batch: none of the larger ones fits either.
                rejected[_MEMORY] += x.max_search_batch + 1 - size
                why[size] = _MEMORY
                break
            batches.append(served)
            queue = _queue(x, served)
            if queue is None:
                why[size] = _LOAD
            elif (violation := _violation(x, served, queue)) > 1 - x.percentile / 100:
                why[size] = _LATENCY
                late.append((violation, served, queue))
            else:
                allowed.append((served, queue))
                continue
            rejected[why[size]] += 1
        smallest = allowed[0][0].size if allowed else None
        allowed.sort(key=lambda pair: (-pair[0].rate, -pair[0].size))
        candidates = tuple(_describe(x, *pair) for pair in allowed[:_KEPT])
        best: dict[str, Any] = candidates[0] if candidates else {}
        second = candidates[1] if len(candidates) > 1 else None
        closest = None if allowed or not late else _describe(x, *min(late, key=lambda entry: entry[0])[1:])
        return BatchingResult.of(
            assumed,
            best,
            feasible=bool(best),
            binding=_binding(x, best, closest, rejected, len(batches)),
            is_feasible=bool(best),
            best_config=best,
            offered_throughput=x.arrival_rate_qps * x.output_len,
            p99_latency=allowed[0][0].service * allowed[0][1].percentile(0.99) if best else None,
            smallest_feasible_batch=smallest,
            largest_fitting_batch=len(batches) or None,
            rejected=rejected,
            top_candidates=candidates,
            ties=sum(served.rate == allowed[0][0].rate for served, _ in allowed),
            runner_up=second,
            runner_up_behind_fraction=None
            if second is None
            else 1 - second["throughput_tokens_per_s"] / best["throughput_tokens_per_s"],
            sensitivity=_sensitivity(x, batches, allowed[0][0], why) if best else {},
            closest=closest,
            total_searched=x.max_search_batch,
            search_space_size=x.max_search_batch,
            cited={"model": x.model, "hardware": x.hardware},
        )


def _queue(x: Any, served: ServedBatch) -> Sojourn | None:
    """The queue in front of a batch; None where it only grows."""
    slots = x.num_replicas * served.size
    rho = load(x.arrival_rate_qps, served.service, slots)
    return None if rho >= 1 else Sojourn(slots, rho, x.service_time_cv)


def _violation(x: Any, served: ServedBatch, queue: Sojourn) -> float:
    """How likely a request takes longer than the target."""
    return queue.tail(x.sla_latency_ms / (served.service * 1e3))


def _sensitivity(x: Any, batches: list[ServedBatch], best: ServedBatch, why: dict[int, str]) -> dict[str, Any]:
    """What the next batch, one replica, and a tenth of the target or of the load are worth."""
    value = x.num_replicas * best.rate
    found: dict[str, Any] = {"batch_size": {"at": best.size}}
    for direction, size in (("up", best.size + 1), ("down", best.size - 1)):
        if size in why or 1 <= size <= len(batches):
            allowed = None if size in why else x.num_replicas * batches[size - 1].rate
            found["batch_size"][direction] = step(size, allowed, value, larger=True, rejected_by=why.get(size))
    more, less = 1 + _TENTH, 1 - _TENTH
    others = {
        "num_replicas": (x.num_replicas + 1, x.num_replicas - 1),
        "sla_latency_ms": (x.sla_latency_ms * more, x.sla_latency_ms * less),
        "arrival_rate_qps": (x.arrival_rate_qps * more, x.arrival_rate_qps * less),
    }
    for name, changed in others.items():
        found[name] = {"at": getattr(x, name)}
        for direction, to in zip(("up", "down"), changed, strict=True):
            if to > 0:
                rate = _best_rate(x.but(**{name: to}), batches)
                found[name][direction] = step(to, rate, value, larger=True, rejected_by="Wall 7")
    return found


def _best_rate(x: Any, batches: list[ServedBatch]) -> float | None:
    """Requests a second of the best batch within the target; None where no batch is."""
    for served in sorted(batches, key=lambda batch: -batch.rate):
        queue = _queue(x, served)
        if queue is not None and _violation(x, served, queue) <= 1 - x.percentile / 100:
            return float(x.num_replicas * served.rate)
    return None


def _describe(x: Any, served: ServedBatch, queue: Sojourn) -> dict[str, Any]:
    return {
        "batch_size": served.size,
        "throughput_tokens_per_s": x.num_replicas * served.rate * x.output_len,
        "percentile_latency_s": served.service * queue.percentile(x.percentile / 100),
        "violation_probability": _violation(x, served, queue),
        "violation_without_queue": queue.service_tail(x.sla_latency_ms / (served.service * 1e3)),
        "request_latency_s": served.service,
        "ttft_s": served.ttft,
        "itl_s": served.itl,
        "utilization": load(x.arrival_rate_qps, served.service, x.num_replicas * served.size),
    }


def _binding(
    x: Any, best: dict[str, Any], closest: dict[str, Any] | None, rejected: dict[str, int], fits: int
) -> Binding:
    sla, name = x.sla_latency_ms / 1e3, f"P{x.percentile:g}"
    counts = ", ".join(f"{wall} {count}" for wall, count in rejected.items() if count)
    if best:
        said = f"batch {best['batch_size']} gives {best['throughput_tokens_per_s']:,.4g} tokens/s at {name} "
        said += f"{best['percentile_latency_s']:.4g} s (target {sla:.4g} s)"
        said += f"; rejected by {counts}." if counts else "; no batch was rejected, so try a larger 'max_search_batch'."
        larger = best["batch_size"] < fits
        wall, title = (7, "Tail Latency") if larger or not rejected[_MEMORY] else (2, "Memory")
        return Binding(wall, title, best["percentile_latency_s"] / sla, f"Wall {wall} ({title}): {said}")
    if not fits:
        sentence = f"{x.model.name} does not fit on a replica at any batch; use more devices (tp_size)."
        return Binding(2, "Memory", None, f"Wall 2 (Memory): {sentence}")
    if closest is None:
        sentence = (
            f"no batch up to {x.max_search_batch} carries {x.arrival_rate_qps:.4g} requests/s on {x.num_replicas} replicas "
            f"({counts}); use more replicas."
        )
        return Binding(7, "Tail Latency", None, f"Wall 7 (Tail Latency): {sentence}")
    slow = closest["violation_without_queue"] > 1 - x.percentile / 100
    remedy = "even without a queue; use faster replicas or shorter answers" if slow else "use more replicas"
    sentence = (
        f"Wall 7 (Tail Latency): no batch keeps {name} within {sla:.4g} s ({counts}); the closest, batch "
        f"{closest['batch_size']}, has {closest['percentile_latency_s']:.4g} s: {remedy}."
    )
    return Binding(7, "Tail Latency", closest["percentile_latency_s"] / sla, sentence)
