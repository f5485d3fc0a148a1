"""Wall 15, fragility: how often a fleet fails, how often to save, and what both cost.

    1 / M = nodes x sum over components of (count / MTBF)                       failure rates add
    P(at least one failure in T) = 1 - exp(-T / M)
    tau = sqrt(2 delta M)                                                       (Young 1974)
    tau' = tau (1 + 1/3 (delta / 2M)^1/2 + 1/9 (delta / 2M)) - delta            (Daly 2006, for delta < 2M; else M)
    waste = delta / tau + tau / (2 M) + R / M

A run of T hours on a fleet of MTBF M saves every tau (of computing) in delta seconds and needs R to be back after a
failure. The three terms are checkpoint writes, the work done again (half an interval on average) and restarts. Young's
interval makes the first two equal; their sum is then sqrt(2 delta / M). The exact form for exponential failures, also
during writes and restarts (Daly 2006, eq. 13), is ``goodput_ratio_exact`` = tau / (M e^(R/M) (e^((tau+delta)/M) - 1)).

Assumed: failures are independent, exponentially distributed, and each stops the run. Left out: switches, cables, hosts and
software (Llama 3 counts everything that stopped it and gets 50,700 h per GPU; adapters and supplies on top of 50,000 h for
the GPU alone give 42,900 h, so the sum here is 15 % on the safe side; plans, sweeps and scenarios use one all-cause rate and the exact form,
:mod:`mlsysim.cases.failures`); the higher failure rate of new fleets; stragglers and
silent corruption, which do not stop a run. First order overstates the waste: by 0.03 points where it is 3 %, by 3 points
where it is 30 %, and above 100 % (no progress) the exact form still has some.
"""

from __future__ import annotations

from typing import Annotated, Any

from mlsysim.cases import goodput
from mlsysim.cases.assumptions import INFERRED
from mlsysim.cases.run_inputs import node_parts
from mlsysim.units.registry import conversion_factor
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.result import Amount, Result, Time

CARDS = """
15 Fragility: MTBF of the fleet
M = M_node / N;  tau = sqrt(2 delta M);  waste = delta / tau + tau / (2 M) + R / M (Daly 2006)
How often does something break, and what do saving and redoing cost?
"""

_HOUR = conversion_factor("h", "s")


Hours = Annotated[Any, Amount("h")]


class ReliabilityResult(Result):
    """How often a fleet fails and what that costs a run."""

    fleet_mtbf: Annotated[Hours, "mtbf"]
    node_mtbf: Hours
    failure_probability: float
    expected_failures: float
    optimal_checkpoint_interval: Annotated[Time, "best_interval"]
    daly_checkpoint_interval: Time
    checkpoint_interval: Annotated[Time, "interval"]
    checkpoint_overhead_fraction: Annotated[float, "writes"]
    rework_overhead_fraction: Annotated[float, "rework"]
    restart_overhead_fraction: Annotated[float, "restarts"]
    total_overhead_fraction: Annotated[float, "waste"]
    goodput_ratio: Annotated[float, "ratio"]
    goodput_ratio_exact: float
    expected_lost_time: Hours


class ReliabilityModel(Resolver[ReliabilityResult]):
    """Failure rate of a fleet, the interval at which to save, and the goodput that is left."""

    walls = (15,)
    inputs = declared("""
        fleet
        job_duration_hours | (0, inf) h, plain | length of the run | 720 h
        checkpoint_time_s = constant checkpoint_time | (0, inf) s, plain | time that one checkpoint stops the run | 120 s
        avg_recovery_time_s = constant recovery_time | [0, inf) s, plain | time from a failure to training again, without the \
            lost work | 300 s
        checkpoint_interval? | (0, inf) s, plain | time of computing between two checkpoints; Young's optimum where none is \
            given | 30 min
        accelerator_mtbf? | (0, inf) h, plain | mean time between failures of one accelerator | 50000 h
        nic_mtbf? | (0, inf) h, plain | mean time between failures of one network adapter | 150000 h
        psu_mtbf? | (0, inf) h, plain | mean time between failures of one power supply | 100000 h
    """)
    equations = written(r"""
        node_mtbf if parts: M_node = 1 / (n_acc / M_acc + n_nic / M_nic + n_psu / M_psu)
            M_{\mathrm{node}} = \left(\frac{n_a}{M_a} + \frac{n_n}{M_n} + \frac{n_p}{M_p}\right)^{-1}
            n_acc = parts.accelerators, M_acc = parts.accelerator_mtbf in h, n_nic = parts.nics, M_nic = parts.nic_mtbf in h, n_psu = parts.psus, M_psu = parts.psu_mtbf in h
        fleet_mtbf: M = M_node / N
            M = \frac{M_{\mathrm{node}}}{N}
            M_node = node_mtbf in h, N = nodes
        failure_probability: P = 1 - exp(-T / M)
            P = 1 - e^{-T/M}
            T = job_duration_hours in h, M = fleet_mtbf in h
        optimal_checkpoint_interval: tau = sqrt(2 delta M)
            \tau = \sqrt{2\,\delta\,M}
            delta = checkpoint_time_s in s, M = fleet_mtbf in h
        goodput_ratio: goodput = 1 - (delta / tau + tau / (2 M) + R / M)
            G = 1 - \left(\frac{\delta}{\tau} + \frac{\tau}{2M} + \frac{R}{M}\right)
            delta = checkpoint_time_s in s, tau = checkpoint_interval in s, M = fleet_mtbf in h, R = avg_recovery_time_s in s
    """)
    known_fallacies = (
        "Reliable parts make a reliable fleet: 512 GPUs that each last 50,000 h fail every four days.",
        "Saving more often is safer: below Young's interval the writes cost more than the work they protect.",
        "A published MFU times scaling times goodput gives the useful rate: the MFU contains the scaling already.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> ReliabilityResult:
        """Failure rate, checkpoint interval and goodput of a run on a fleet."""
        fleet, hours, parts = x.fleet, x.job_duration_hours, None
        if fleet.mtbf_hours is not None:
            mtbf, cited = float(fleet.mtbf_hours), {"fleet MTBF": "stated by the fleet"}
            per_node = mtbf * fleet.count
        else:
            given = {"accelerator": x.accelerator_mtbf, "nic": x.nic_mtbf, "psu": x.psu_mtbf}
            parts, cited = node_parts(fleet.node, assumed, **given)
            per_node = parts.mtbf
            mtbf = goodput.cluster_mtbf(per_node, fleet.count)
        if x.checkpoint_interval is None:
            assumed.say("checkpoint_interval", None, INFERRED, "Young's optimum")
        write, recovery = x.checkpoint_time_s, x.avg_recovery_time_s
        found = goodput.goodput_of(mtbf, goodput.Saving(write, recovery, x.checkpoint_interval))
        seconds, failures = mtbf * _HOUR, goodput.expected_failures(hours, mtbf)
        return ReliabilityResult.of(
            assumed,
            found,
            feasible=found.lasting,
            binding=_binding(failures, hours, found),
            node_mtbf=per_node,
            failure_probability=goodput.failure_probability(hours, mtbf),
            expected_failures=failures,
            daly_checkpoint_interval=goodput.daly_interval(write, seconds),
            goodput_ratio_exact=goodput.exact_goodput(write, found.interval, seconds, recovery),
            expected_lost_time=hours * (1 - found.ratio),
            shown={"nodes": fleet.count, "parts": parts},
            cited=cited,
        )


def _binding(failures: float, hours: float, found: goodput.Goodput) -> Binding:
    costs = {"checkpoint writes": found.writes, "work done again": found.rework, "restarts": found.restarts}
    _, second, largest = sorted(costs.values())
    margin = largest / second if second > 0 else None
    shares = ", ".join(f"{name} {share:.1%}" for name, share in costs.items())
    if found.ratio > 0:
        said = f"{failures:.3g} failures expected in {hours:g} h cost {shares}; goodput {found.ratio:.1%}."
        return wall_says(15, margin, f": {said}")
    remedy = "make checkpoints shorter, restart faster, or use fewer or more reliable parts"
    return wall_says(15, margin, f" binds: {shares} of the time leave nothing for the run; {remedy}.")
