"""Wall 20, safety: what privacy and fairness cost in computing and in data.

    slowdown = 1 + k / epsilon,  k = 2                                          the form of the MLSys·im paper
    between  s_low  and  s_high max(1, 1 / epsilon)                             the range that is published
    sigma = sqrt(2 ln(1.25 / delta)) / epsilon                                  one Gaussian release (Dwork and Roth 2014)
    data = 1 / p_min                                                            to draw one sample of the rarest group

DP-SGD (Abadi et al., CCS 2016) clips the gradient of each sample and adds noise. The cost of a step depends on the
implementation, not on epsilon: 2.6 to 8 times with per-sample gradients, about half of that with efficient clipping
(Rodriguez Beltran et al. 2024). Epsilon enters through the noise, which grows as 1 / epsilon; batches larger by as much keep
its share of the mean gradient. The low end of the range has the cheapest step and lets accuracy go, the high end has the
dearest step and enlarges the batch. This wall is a range more than a number: the point value is kept because the paper
quotes it, and it falls below the published range for epsilon above 7.

Assumed: epsilon is a hard limit; groups are drawn at their prevalence. Left out: the accountant (sigma of a training run
with sampling and many steps is another figure), lost accuracy, memory of per-sample gradients, and directed collection of
data, which needs far less than 1 / p_min.
"""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import log, maximum, sqrt
from mlsysim.walls.base import Assumptions, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.result import Result, Time
from mlsysim.zoo.constants import constant

CARDS = """
20 Safety: overhead of DP-SGD, data of rare groups
sigma ~ 1 / epsilon;  data ~ 1 / p_min (Abadi et al. 2016)
What do privacy and fairness cost in computing and data?
"""


@kernel("epsilon [0.01, 10], slope [1, 4] -> factor")
def private_slowdown(epsilon: Any, slope: Any) -> Any:
    """Time of private over plain training, as the paper puts it."""
    return 1 + slope / epsilon


@kernel("epsilon [0.01, 10], step [2, 10] -> factor")
def enlarged_slowdown(epsilon: Any, step: Any) -> Any:
    """Time of private over plain training when a step costs ``step`` times and batches grow with the noise."""
    return step * maximum(1.0, 1 / epsilon)


@kernel("epsilon [0.01, 1], delta [1e-9, 0.01] -> sigma")
def gaussian_noise(epsilon: Any, delta: Any) -> Any:
    """Noise over sensitivity that makes one Gaussian release (epsilon, delta)-private; proven for epsilon up to 1."""
    return sqrt(2 * log(1.25 / delta)) / epsilon


@kernel("prevalence [1e-4, 1] -> ratio")
def subgroup_data(prevalence: Any) -> Any:
    """Samples to draw for one sample of a group."""
    return 1 / prevalence


class ResponsibleEngineeringResult(Result):
    """What privacy and fairness multiply a run and its data by."""

    dp_slowdown_factor: float
    dp_slowdown_range: tuple[float, float]
    effective_training_time: Time
    effective_training_time_range: tuple[Time, Time]
    privacy_cost_ratio: float
    noise_multiplier: float | None
    additional_data_requirement: float
    fairness_data_ratio: float
    epsilon: float
    delta: float
    min_subgroup_prevalence: float


class ResponsibleEngineeringModel(Resolver[ResponsibleEngineeringResult]):
    """The extra computing that differential privacy costs, as a range, and the data that rare groups need."""

    walls = (20,)
    inputs = declared("""
        base_training_time | (0, inf) s | time of the run without privacy | 30 day
        epsilon = 1.0 | (0, 1000] | privacy budget; smaller is more private
        delta = 1e-05 | (0, 0.1] | probability that the guarantee fails
        min_subgroup_prevalence = 0.01 | (0, 1] | share of the smallest group in the data
    """)
    equations = written(r"""
        dp_slowdown_factor: slowdown = 1 + k / epsilon
            f(\epsilon) = 1 + \frac{k}{\epsilon}
            k = slope, epsilon = epsilon
        effective_training_time: T_private = T slowdown
            T_{\mathrm{DP}} = T\,f(\epsilon)
            T = base_training_time in s, slowdown = dp_slowdown_factor
        noise_multiplier: sigma = sqrt(2 ln(1.25 / delta)) / epsilon
            \sigma = \frac{\sqrt{2\,\ln(1.25/\delta)}}{\epsilon}
            delta = delta, epsilon = epsilon
        fairness_data_ratio: data = 1 / p_min
            D/D_{\mathrm{group}} = \frac{1}{p_{\min}}
            p_min = min_subgroup_prevalence
    """)
    known_fallacies = (
        "Privacy costs accuracy alone: clipping each sample's gradient makes every step slower as well.",
        "The slowdown of private training is one number: implementations of the same step differ six-fold.",
        "More data of the same kind serves a rare group: at a prevalence of 1 % it takes a hundred samples to find one.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> ResponsibleEngineeringResult:
        """Cost of privacy and fairness."""
        slope = constant("dp_sgd_slope")
        low_cost, high_cost = constant("dp_sgd_step_cost_low"), constant("dp_sgd_step_cost_high")
        factor, data = private_slowdown(x.epsilon, slope.number), subgroup_data(x.min_subgroup_prevalence)
        low, high = low_cost.number, enlarged_slowdown(x.epsilon, high_cost.number)
        published = f"published steps cost {low_cost.number:g} to {high_cost.number:g} times"
        assumed["slowdown"] = f"1 + {slope.number:g} / epsilon; {published}"
        if not low <= factor <= high:
            assumed["range"] = f"the point value {factor:.3g} lies outside the published range; trust the range"
        sigma = gaussian_noise(x.epsilon, x.delta) if x.epsilon <= 1 else None
        if sigma is None:
            assumed["noise_multiplier"] = "unknown: the bound is proven for epsilon up to 1"
        base = x.base_training_time
        longer = f"{low:.3g} to {high:.3g} times as long ({factor:.3g} by the paper's form)"
        rare = f"one sample of the smallest group takes {data:.4g} samples in all"
        return ResponsibleEngineeringResult.of(
            assumed,
            x,
            binding=wall_says(20, factor, f": privacy at epsilon {x.epsilon:g} takes {longer}; {rare}."),
            dp_slowdown_factor=factor,
            dp_slowdown_range=(low, high),
            effective_training_time=base * factor,
            effective_training_time_range=(base * low, base * high),
            privacy_cost_ratio=factor,
            noise_multiplier=sigma,
            additional_data_requirement=data - 1,
            fairness_data_ratio=data,
            shown={"slope": slope.number},
            cited={"slowdown": slope.source.title, "range": high_cost.source.title},
        )
