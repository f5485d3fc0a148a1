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
the GPU alone give 42,900 h, so the sum here is 15 % on the safe side); the higher failure rate of new fleets; stragglers and
silent corruption, which do not stop a run. First order overstates the waste: by 0.03 points where it is 3 %, by 3 points
where it is 30 %, and above 100 % (no progress) the exact form still has some.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

from mlsysim.units.kernel import Arg, kernel
from mlsysim.units.ops import exp, expm1, maximum, minimum, power, sqrt, where
from mlsysim.units.registry import conversion_factor, quantity, to_si
from mlsysim.walls.base import FLEET, Binding, Equation, Input, Resolver, Result, Time, Wall
from mlsysim.zoo.constants import constant

__all__ = [
    "CARDS",
    "ReliabilityModel",
    "ReliabilityResult",
    "checkpoint_waste",
    "cluster_mtbf",
    "daly_interval",
    "effective_rate",
    "exact_goodput",
    "expected_failures",
    "failure_probability",
    "node_mtbf",
    "stacked_availability",
    "young_interval",
]

CARDS = (
    Wall(
        15,
        "Fragility",
        FLEET,
        "ReliabilityModel",
        "MTBF of the fleet",
        "M = M_node / N;  tau = sqrt(2 delta M);  waste = delta / tau + tau / (2 M) + R / M",
        "Daly 2006",
        "How often does something break, and what do saving and redoing cost?",
    ),
)

_HOUR = conversion_factor("h", "s")

_HOURS = Arg("h", 1e3, 1e6)
_MTBF = Arg("s", 1e4, 1e7)
_WRITE = Arg("s", 1.0, 1e3)


@kernel(
    inputs={
        "accelerator_mtbf": _HOURS,
        "accelerators": Arg("", 1, 72, whole=True),
        "nic_mtbf": _HOURS,
        "nics": Arg("", 1, 16, whole=True),
        "psu_mtbf": _HOURS,
        "psus": Arg("", 1, 8, whole=True),
    },
    outputs={"mtbf": "h"},
)
def node_mtbf(accelerator_mtbf: Any, accelerators: Any, nic_mtbf: Any, nics: Any, psu_mtbf: Any, psus: Any) -> Any:
    """Mean time between failures of a node whose components fail independently: their rates add."""
    return 1 / (accelerators / accelerator_mtbf + nics / nic_mtbf + psus / psu_mtbf)


@kernel(inputs={"mtbf": _HOURS, "count": Arg("", 1, 1e5, whole=True)}, outputs={"fleet": "h"})
def cluster_mtbf(mtbf: Any, count: Any) -> Any:
    """Mean time between failures of ``count`` equal parts."""
    return mtbf / count


@kernel(inputs={"duration": Arg("h", 1, 1e4), "mtbf": Arg("h", 1, 1e5)}, outputs={"failures": ""})
def expected_failures(duration: Any, mtbf: Any) -> Any:
    """Failures to expect in a time."""
    return duration / mtbf


@kernel(inputs={"duration": Arg("h", 1, 1e3), "mtbf": Arg("h", 10, 1e5)}, outputs={"probability": ""})
def failure_probability(duration: Any, mtbf: Any) -> Any:
    """Probability of at least one failure in a time."""
    return -expm1(-(duration / mtbf))


@kernel(inputs={"write": _WRITE, "mtbf": _MTBF}, outputs={"interval": "s"})
def young_interval(write: Any, mtbf: Any) -> Any:
    """Time of computing between two checkpoints that wastes least, at first order."""
    return sqrt(2 * write * mtbf)


@kernel(inputs={"write": _WRITE, "mtbf": _MTBF}, outputs={"interval": "s"})
def daly_interval(write: Any, mtbf: Any) -> Any:
    """The same to higher order: the minimum of the exact form to better than a per cent."""
    ratio = write / (2 * mtbf)
    root = sqrt(ratio)
    expanded = sqrt(2 * write * mtbf) * (1 + root / 3 + ratio / 9) - write
    return where(write < 2 * mtbf, expanded, mtbf)


@kernel(
    inputs={"write": _WRITE, "interval": Arg("s", 1e2, 1e5), "mtbf": _MTBF, "recovery": Arg("s", 1.0, 1e4)},
    outputs={"writes": "", "rework": "", "restarts": ""},
)
def checkpoint_waste(write: Any, interval: Any, mtbf: Any, recovery: Any) -> Any:
    """Shares of the time that go to writing, to work done again, and to restarts, at first order."""
    return write / interval, interval / (2 * mtbf), recovery / mtbf


@kernel(
    inputs={"write": _WRITE, "interval": Arg("s", 1e2, 1e4), "mtbf": _MTBF, "recovery": Arg("s", 1.0, 1e3)},
    outputs={"goodput": ""},
)
def exact_goodput(write: Any, interval: Any, mtbf: Any, recovery: Any) -> Any:
    """Useful over wall-clock time for exponential failures that may also strike while writing and restarting.

    The exponents stop at 600, where the goodput is below 1e-250 and a float would overflow.
    """
    exposed = minimum((interval + write) / mtbf, 600.0)
    return interval / (mtbf * exp(minimum(recovery / mtbf, 600.0)) * expm1(exposed))


@kernel(
    inputs={
        "peak": Arg("flop/s", 1e12, 1e16),
        "efficiency": Arg("", 0.1, 1.0),
        "scaling": Arg("", 0.1, 1.0),
        "goodput": Arg("", 0.1, 1.0),
    },
    outputs={"rate": "flop/s"},
)
def effective_rate(peak: Any, efficiency: Any, scaling: Any, goodput: Any) -> Any:
    """Useful arithmetic of a fleet. ``efficiency`` is that of the kernels: a published MFU contains ``scaling`` already."""
    return peak * efficiency * scaling * goodput


@kernel(
    inputs={"availability": Arg("", 0.5, 0.999), "replicas": Arg("", 1, 10, whole=True)}, outputs={"availability": ""}
)
def stacked_availability(availability: Any, replicas: Any) -> Any:
    """Probability that at least one of several independent replicas is up."""
    return 1 - power(1 - availability, replicas)


class ReliabilityResult(Result):
    """How often a fleet fails and what that costs a run."""

    fleet_mtbf: Time
    node_mtbf: Time
    failure_probability: float
    expected_failures: float
    optimal_checkpoint_interval: Time
    daly_checkpoint_interval: Time
    checkpoint_interval: Time
    checkpoint_overhead_fraction: float
    rework_overhead_fraction: float
    restart_overhead_fraction: float
    total_overhead_fraction: float
    goodput_ratio: float
    goodput_ratio_exact: float
    expected_lost_time: Time


class ReliabilityModel(Resolver[ReliabilityResult]):
    """Failure rate of a fleet, the interval at which to save, and the goodput that is left."""

    walls = (15,)
    result = ReliabilityResult
    inputs: ClassVar[dict[str, Input]] = {
        "fleet": Input(
            "the fleet: an entry of Systems.Clusters, its name, or a Fleet", kind="fleet", example="Frontier_8K"
        ),
        "job_duration_hours": Input(
            "length of the run", kind="quantity", unit="h", plain_unit="h", low=0, low_open=True, example="720 h"
        ),
        "checkpoint_time_s": Input(
            "time that one checkpoint stops the run",
            kind="quantity",
            unit="s",
            plain_unit="s",
            low=0,
            low_open=True,
            default=to_si(constant("checkpoint_time").quantity, "s"),
            example="120 s",
        ),
        "avg_recovery_time_s": Input(
            "time from a failure to training again, without the lost work",
            kind="quantity",
            unit="s",
            plain_unit="s",
            low=0,
            default=to_si(constant("recovery_time").quantity, "s"),
            example="300 s",
        ),
        "checkpoint_interval": Input(
            "time of computing between two checkpoints; Young's optimum where none is given",
            kind="quantity",
            unit="s",
            plain_unit="s",
            low=0,
            low_open=True,
            default=None,
            example="30 min",
        ),
        "accelerator_mtbf": Input(
            "mean time between failures of one accelerator",
            kind="quantity",
            unit="h",
            plain_unit="h",
            low=0,
            low_open=True,
            default=None,
            example="50000 h",
        ),
        "nic_mtbf": Input(
            "mean time between failures of one network adapter",
            kind="quantity",
            unit="h",
            plain_unit="h",
            low=0,
            low_open=True,
            default=None,
            example="150000 h",
        ),
        "psu_mtbf": Input(
            "mean time between failures of one power supply",
            kind="quantity",
            unit="h",
            plain_unit="h",
            low=0,
            low_open=True,
            default=None,
            example="100000 h",
        ),
    }
    equations = (
        Equation(
            "node_mtbf",
            "M_node = 1 / (n_acc / M_acc + n_nic / M_nic + n_psu / M_psu)",
            r"M_{\mathrm{node}} = \left(\frac{n_a}{M_a} + \frac{n_n}{M_n} + \frac{n_p}{M_p}\right)^{-1}",
            {
                "n_acc": ("accelerators", ""),
                "M_acc": ("accelerator_mtbf", "h"),
                "n_nic": ("nics", ""),
                "M_nic": ("nic_mtbf", "h"),
                "n_psu": ("psus", ""),
                "M_psu": ("psu_mtbf", "h"),
            },
            when="from_components",
        ),
        Equation(
            "fleet_mtbf",
            "M = M_node / N",
            r"M = \frac{M_{\mathrm{node}}}{N}",
            {"M_node": ("node_mtbf", "h"), "N": ("nodes", "")},
        ),
        Equation(
            "failure_probability",
            "P = 1 - exp(-T / M)",
            r"P = 1 - e^{-T/M}",
            {"T": ("duration", "h"), "M": ("mtbf", "h")},
        ),
        Equation(
            "optimal_checkpoint_interval",
            "tau = sqrt(2 delta M)",
            r"\tau = \sqrt{2\,\delta\,M}",
            {"delta": ("write", "s"), "M": ("mtbf", "h")},
        ),
        Equation(
            "goodput_ratio",
            "goodput = 1 - (delta / tau + tau / (2 M) + R / M)",
            r"G = 1 - \left(\frac{\delta}{\tau} + \frac{\tau}{2M} + \frac{R}{M}\right)",
            {"delta": ("write", "s"), "tau": ("interval", "s"), "M": ("mtbf", "h"), "R": ("recovery", "s")},
        ),
    )
    known_fallacies = (
        "Reliable parts make a reliable fleet: 512 GPUs of 50,000 h each fail every four days.",
        "Saving more often is safer: below Young's interval the writes cost more than the work they protect.",
        "A published MFU times scaling times goodput gives the useful rate: the MFU contains the scaling already.",
    )

    def _solve(self, x: SimpleNamespace, assumed: dict[str, str]) -> ReliabilityResult:
        """Failure rate, checkpoint interval and goodput of a run on a fleet."""
        fleet, node = x.fleet, x.fleet.node
        context: dict[str, Any] = {"nodes": fleet.count, "from_components": fleet.mtbf_hours is None}
        sources: dict[str, str] = {}
        if fleet.mtbf_hours is not None:
            mtbf = float(fleet.mtbf_hours)
            per_node = mtbf * fleet.count
            sources["fleet MTBF"] = "stated by the fleet"
        else:
            own = node.accelerator.reliability
            parts = {
                "accelerator_mtbf": (x.accelerator_mtbf, None if own is None else to_si(own.mtbf, "h"), "gpu_mtbf"),
                "nic_mtbf": (x.nic_mtbf, None, "nic_mtbf"),
                "psu_mtbf": (x.psu_mtbf, None, "psu_mtbf"),
            }
            for name, (given, stated, fallback) in parts.items():
                context[name] = _first(given, stated)
                if context[name] is None:
                    entry = constant(fallback)
                    context[name] = to_si(entry.quantity, "h")
                    assumed[name] = f"{context[name]:g} h"
                    sources[name] = entry.source.title
            counts = {
                "accelerators": node.accelerators_per_node,
                "nics": node.nics_per_node,
                "psus": node.psus_per_node,
            }
            context |= counts
            if not node.nics_given:
                assumed["nics_per_node"] = f"{node.nics_per_node} (the node does not say)"
            per_node = node_mtbf(
                context["accelerator_mtbf"],
                counts["accelerators"],
                context["nic_mtbf"],
                counts["nics"],
                context["psu_mtbf"],
                counts["psus"],
            )
            mtbf = cluster_mtbf(per_node, fleet.count)
        seconds = mtbf * _HOUR
        write, recovery = x.checkpoint_time_s, x.avg_recovery_time_s
        best = young_interval(write, seconds)
        interval = x.checkpoint_interval
        if interval is None:
            interval = best
            assumed["checkpoint_interval"] = "Young's optimum"
        writes, rework, restarts = checkpoint_waste(write, interval, seconds, recovery)
        waste = writes + rework + restarts
        goodput = maximum(0.0, 1 - waste)
        failures = expected_failures(x.job_duration_hours, mtbf)
        outcome = ReliabilityResult(
            feasible=waste < 1,
            assumptions=assumed,
            binding=_binding(failures, x.job_duration_hours, writes, rework, restarts, goodput),
            fleet_mtbf=quantity(mtbf, "h"),
            node_mtbf=quantity(per_node, "h"),
            failure_probability=failure_probability(x.job_duration_hours, mtbf),
            expected_failures=failures,
            optimal_checkpoint_interval=quantity(best, "s"),
            daly_checkpoint_interval=quantity(daly_interval(write, seconds), "s"),
            checkpoint_interval=quantity(interval, "s"),
            checkpoint_overhead_fraction=writes,
            rework_overhead_fraction=rework,
            restart_overhead_fraction=restarts,
            total_overhead_fraction=waste,
            goodput_ratio=goodput,
            goodput_ratio_exact=exact_goodput(write, interval, seconds, recovery),
            expected_lost_time=quantity(x.job_duration_hours * (1 - goodput), "h"),
        )
        outcome._context = context | {
            "node_mtbf": per_node,
            "mtbf": mtbf,
            "duration": x.job_duration_hours,
            "write": write,
            "interval": interval,
            "recovery": recovery,
        }
        outcome._sources = sources
        return outcome


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _binding(failures: float, hours: float, writes: float, rework: float, restarts: float, goodput: float) -> Binding:
    costs = {"checkpoint writes": writes, "work done again": rework, "restarts": restarts}
    ranked = sorted(costs.items(), key=lambda item: item[1], reverse=True)
    shares = ", ".join(f"{name} {share:.1%}" for name, share in costs.items())
    if goodput <= 0:
        sentence = (
            f"Wall 15 (Fragility) binds: {shares} of the time leave nothing for the run; make checkpoints shorter, "
            "restart faster, or use fewer or more reliable parts."
        )
    else:
        sentence = f"Wall 15 (Fragility): {failures:.3g} failures expected in {hours:g} h cost {shares}; goodput {goodput:.1%}."
    margin = ranked[0][1] / ranked[1][1] if ranked[1][1] > 0 else None
    return Binding(15, "Fragility", margin, sentence)
