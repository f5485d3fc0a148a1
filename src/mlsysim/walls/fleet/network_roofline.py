"""Companion of wall 14: the roofline with the network as its slope.

A data-parallel step of F operations synchronises M bytes of gradient. Its network intensity is F/M operations a byte;
below P eta / B_ring the network binds, above it arithmetic. Perfect overlap of the two is assumed, as in the memory
roofline; :class:`DistributedModel` gives the step with everything else in it.
"""

from __future__ import annotations

from typing import Any

from mlsysim.cases.algebra import Algebra, ledger_of
from mlsysim.cases.one_pass import Timed, device_of
from mlsysim.cases.training_pass import TrainingStep, training_work
from mlsysim.physics.precision import bytes_per_element
from mlsysim.physics.roofline import compute_time, node_time
from mlsysim.timing.network import datasheet_network
from mlsysim.walls.base import Assumptions, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.node.performance import PerformanceProfile


class NetworkRooflineModel(Resolver[PerformanceProfile]):
    """Is a data-parallel step bound by arithmetic or by the network?"""

    walls = (14,)
    inputs = declared("""
        model
        fleet | fleet | the fleet: a Fleet or the name of a cluster in the zoo
        precision, efficiency
        batch_size = 1 | whole [1, 1e9] | samples of each accelerator
        seq_len = 2048 | whole [1, 1e8] | tokens per sequence
    """)
    equations = written(r"""
        latency: T = max(F / (P eta), 2 (N-1)/N M/B)
            T = \max\left(\frac{F}{P\eta}, \frac{2(N-1)}{N}\frac{M}{B}\right)
            F = flops in flop, P = device.peak in flop/s, eta = efficiency, M = bytes in byte, N = ranks
    """)
    known_fallacies = ("A faster GPU speeds up data parallelism: where the network binds it only waits longer.",)

    def _solve(self, x: Inputs, assumed: Assumptions) -> PerformanceProfile:
        """Compare arithmetic with gradient synchronisation."""
        model, fleet, ranks = x.model, x.fleet, x.fleet.total_accelerators
        seq_len = None if model.fixed_shape else x.seq_len
        work, held = training_work(TrainingStep(model, x.batch_size, seq_len, x.precision))
        device = device_of(fleet.node.accelerator, x.precision, 1.0, assumed)
        net = datasheet_network(fleet, assumed=assumed)
        gradient = model.parameter_count * max(bytes_per_element(x.precision), 2.0)
        arithmetic = compute_time(work.hardware_flops, device.peak, x.efficiency)
        network = net.all_reduce(gradient, net.group(ranks))
        latency = node_time(arithmetic, network, device.dispatch)
        bound, wall = ("Compute", 1) if arithmetic >= network else ("Network", 14)
        shorter, longer = sorted((arithmetic, network))
        margin = longer / shorter if shorter > 0 else None
        lead = f"{margin:.3g} times as long as the other" if margin is not None else "the only one"

        def case(a: Algebra) -> Any:
            return node_time(
                a.tag("arithmetic", 1, "peak", "T = F / (P eta)", arithmetic, flop=work.hardware_flops),
                a.tag("gradient synchronisation", 14, "fabric", "T = 2 (N-1)/N M/B", network, sent=gradient),
                a.tag("dispatch", 3, "host", "T = T_dispatch", device.dispatch),
            )

        times, room = (latency, arithmetic, network, device.dispatch), device.capacity
        timed = Timed(*times, work.total, room, wall, lambda: ledger_of(case, held, room), None)
        return PerformanceProfile.of(
            assumed,
            feasible=timed.fits,
            binding=wall_says(wall, margin, f" binds: it takes {lead}."),
            throughput=x.batch_size * ranks / latency,
            bottleneck=bound,
            arithmetic_intensity=work.flops / gradient,
            peak_flops_actual=device.peak * x.efficiency,
            peak_bw_actual=gradient / network if network > 0 else 0.0,
            mfu=work.flops / (latency * device.peak),
            hfu=work.hardware_flops / (latency * device.peak),
            phase="training",
            shown={
                "timed": timed,
                "device": device,
                "flops": work.hardware_flops,
                "bytes": gradient,
                "ranks": ranks,
                "samples": x.batch_size,
            },
            cited={"model": model, "hardware": fleet.node.accelerator},
            case=timed.case,
        )
