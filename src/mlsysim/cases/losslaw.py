"""The loss of a language model by its size and its tokens, and what follows from it.

    L(N, D) = E + A / N^alpha + B / D^beta                                       (Hoffmann et al. 2022, approach 3)

Two sets of coefficients are offered. ``hoffmann2022`` are the published ones; they were rounded, stem from an optimizer
that stopped early, and give 93 tokens per parameter at Chinchilla's budget, against the paper's own 20.
``besiroglu2024`` are a refit to the same data that agrees with the other two approaches of that paper (Besiroglu et al.
2024), and is the default. Its standard errors: 0.03 in E, 0.02 in each exponent.

Minimising L under c N D = C gives N* = G (C/c)^(beta/(alpha+beta)), D* = (C/c) / N*, G = (alpha A/(beta B))^(1/(alpha+beta)).

At equal loss a smaller model needs more tokens, D(N) = (B / (L - E - A / N^alpha))^(1/beta). Training and serving cost
c N D(N) + c_inf N D_inf. In u = ln N this is a sum of exponentials of convex functions (-ln of a concave function is
convex), hence convex: it has one minimum, which golden-section search finds.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import power, sqrt
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si
from mlsysim.units.text import number, plainly
from mlsysim.zoo.constants import constant

LAWS = ("besiroglu2024", "hoffmann2022")

_LAW = "parameter_coefficient [100, 600], token_coefficient [100, 3000], parameter_exponent [0.3, 0.4], token_exponent [0.25, 0.4]"


@kernel(f"parameters [1e8, 1e13], tokens [1e8, 1e13], irreducible [1, 3], {_LAW} -> loss")
def predicted_loss(
    parameters: Any,
    tokens: Any,
    irreducible: Any,
    parameter_coefficient: Any,
    token_coefficient: Any,
    parameter_exponent: Any,
    token_exponent: Any,
) -> Any:
    """Loss in nats a token."""
    by_size = parameter_coefficient / power(parameters, parameter_exponent)
    return irreducible + by_size + token_coefficient / power(tokens, token_exponent)


@kernel(f"pairs [1e17, 1e26], {_LAW} -> parameters")
def law_optimal_parameters(
    pairs: Any, parameter_coefficient: Any, token_coefficient: Any, parameter_exponent: Any, token_exponent: Any
) -> Any:
    """The size of least loss for a product of parameters and tokens."""
    both = parameter_exponent + token_exponent
    balance = parameter_exponent * parameter_coefficient / (token_exponent * token_coefficient)
    return power(balance, 1 / both) * power(pairs, token_exponent / both)


@kernel(f"parameters [1e10, 1e13], excess_loss [0.9, 1.5], {_LAW} -> tokens")
def equal_loss_tokens(
    parameters: Any,
    excess_loss: Any,
    parameter_coefficient: Any,
    token_coefficient: Any,
    parameter_exponent: Any,
    token_exponent: Any,
) -> Any:
    """Tokens that bring a model of this size to a loss, given as its excess over the irreducible one."""
    left = excess_loss - parameter_coefficient / power(parameters, parameter_exponent)
    return power(token_coefficient / left, 1 / token_exponent)


@kernel("cost: flop [1, 10], parameters [1e6, 1e13], tokens [1e6, 1e13] -> operations: flop")
def training_flops(cost: Any, parameters: Any, tokens: Any) -> Any:
    """Operations of training: a cost for each parameter and token."""
    return cost * parameters * tokens


@kernel("budget: flop [1e18, 1e27], cost: flop [1, 10], parameters [1e6, 1e13] -> tokens")
def tokens_for_budget(budget: Any, cost: Any, parameters: Any) -> Any:
    """Tokens that a budget pays for at a model size."""
    return budget / (cost * parameters)


@kernel("budget: flop [1e18, 1e27], cost: flop [1, 10], ratio [1, 1e3] -> parameters")
def compute_optimal_parameters(budget: Any, cost: Any, ratio: Any) -> Any:
    """The model size at which a budget gives ``ratio`` tokens to each parameter."""
    return sqrt(budget / (cost * ratio))


@dataclass(frozen=True, slots=True)
class LossLaw:
    """Coefficients of one published fit."""

    irreducible: float
    parameter_coefficient: float
    token_coefficient: float
    parameter_exponent: float
    token_exponent: float
    source: str

    @property
    def _shape(self) -> tuple[float, float, float, float]:
        return self.parameter_coefficient, self.token_coefficient, self.parameter_exponent, self.token_exponent

    def loss(self, parameters: float, tokens: float) -> float:
        """Loss in nats a token."""
        return float(predicted_loss(parameters, tokens, self.irreducible, *self._shape))

    def optimum(self, pairs: float) -> tuple[float, float]:
        """Parameters and tokens of least loss whose product is ``pairs``."""
        parameters = float(law_optimal_parameters(pairs, *self._shape))
        return parameters, pairs / parameters

    def tokens_at(self, parameters: float, loss: float) -> float:
        """Tokens that bring a model of this size to a loss."""
        return float(equal_loss_tokens(parameters, loss - self.irreducible, *self._shape))

    def smallest(self, loss: float) -> float:
        """The size below which no number of tokens reaches the loss."""
        return (self.parameter_coefficient / (loss - self.irreducible)) ** (1 / self.parameter_exponent)


@cache
def loss_law(name: str) -> LossLaw:
    """The law of that name."""
    return LossLaw(
        irreducible=constant(f"{name}_irreducible_loss").number,
        parameter_coefficient=constant(f"{name}_parameter_coefficient").number,
        token_coefficient=constant(f"{name}_token_coefficient").number,
        parameter_exponent=constant(f"{name}_parameter_exponent").number,
        token_exponent=constant(f"{name}_token_exponent").number,
        source=constant(f"{name}_irreducible_loss").source.title,
    )


def equal_loss_optimum(
    law: LossLaw, loss: float, parameters: float, training_cost: float, serving_cost: float, served: float
) -> tuple[float, float]:
    """Parameters and tokens of the same loss that minimise training and serving operations together."""
    floor = law.smallest(loss)

    def cost(u: float) -> float:
        size = math.exp(u)
        if size <= floor:
            return math.inf
        return size * (training_cost * law.tokens_at(size, loss) + serving_cost * served)

    best = _golden(cost, math.log(floor), math.log(max(parameters, floor)) + math.log(1e3))
    size = math.exp(best)
    return size, law.tokens_at(size, loss)


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The model of equal loss that trains and serves with the fewest operations, and what it saves of them."""

    lifetime_parameters: float
    lifetime_tokens: float
    lifetime_compute: float
    lifetime_saving_fraction: float


def lifetime_optimum(
    law: LossLaw, parameters: float, tokens: float, training_cost: float, serving_cost: float, served: float
) -> Lifetime:
    """The same against a model of given parameters and tokens."""
    loss = law.loss(parameters, tokens)
    small, longer = equal_loss_optimum(law, loss, parameters, training_cost, serving_cost, served)
    spent, total = (
        training_flops(training_cost, size, data) + training_flops(serving_cost, size, served)
        for size, data in ((parameters, tokens), (small, longer))
    )
    return Lifetime(small, longer, total, 1 - total / spent)


def _golden(function: Any, low: float, high: float) -> float:
    """The minimum of a convex function of one variable."""
    shrink = (math.sqrt(5) - 1) / 2
    left, right = high - shrink * (high - low), low + shrink * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > 1e-10 * max(1.0, abs(high)):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - shrink * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + shrink * (high - low)
            at_right = function(right)
    return (low + high) / 2


def extrapolations(budget: float, parameters: float, tokens: float) -> tuple[str, ...]:
    """What lies outside the runs that the laws were fitted to, in words."""
    found = []
    for what, value, unit in (("compute", budget, "flop"), ("parameters", parameters, ""), ("tokens", tokens, "")):
        low = to_si(constant(f"scaling_fit_{what}_low").quantity, unit)
        high = to_si(constant(f"scaling_fit_{what}_high").quantity, unit)
        if not low <= value <= high:
            far = plainly(value / high if value > high else low / value, 3)
            side = f"{far} times {'above' if value > high else 'below'} the fitted range"
            own, least, most = (number(each, unit) for each in (value, low, high))
            found.append(f"{what} {own}, {side} of {least} to {most}")
    return tuple(found)
