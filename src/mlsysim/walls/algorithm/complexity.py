"""Wall 11, complexity: how large a model does a compute budget pay for?

    C = 6 P D,   D* = 20 P*,   P* = sqrt(C / 120)                                          (Hoffmann et al. 2022)

Training P parameters on D tokens costs 6 operations for each pair. At the optimum there are about 20 tokens for each
parameter. A given ``target_model_size`` leaves D = C / (6 P).

The parametric law (:mod:`mlsysim.walls.algorithm.losslaw`) predicts the loss L(P, D) = E + A / P^alpha + B / D^beta, and
with ``optimum="loss_law"`` its own optimum replaces the ratio of 20. With ``inference_tokens`` the answer adds the model
of equal loss with the least 6 P D + 2 P D_inference: a smaller one, trained for longer (Sardana et al. 2024).

Assumed: dense transformers on one pass over fresh text; the parameters that compute (of a mixture of experts the active
ones). Left out: attention (6 layers h S more operations a token; at 8k context 4 % for 405 B parameters, 13 % for 8 B),
embeddings, repeated data, learning-rate schedules cut short. Outside the range of the fits (6e18 to 3e21 operations, 70 M to 16 B parameters, 5 to
500 B tokens) the answer is an extrapolation and says so: at 1e24 operations the two published fits give P* of 41 B and
96 B, while a factor of two in P around the optimum changes the loss by 0.2 % only.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from mlsysim.cases.assumptions import Assumptions
from mlsysim.errors import InputError, UnitError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import sqrt
from mlsysim.units.registry import DimensionalityError, Quantity, parse_quantity, to_si
from mlsysim.walls.algorithm.losslaw import LAWS, LossLaw, equal_loss_optimum, extrapolations, loss_law
from mlsysim.walls.base import Resolver
from mlsysim.walls.binding import Binding
from mlsysim.walls.explanation import written
from mlsysim.walls.inputs import EFFICIENCY, HARDWARE, PRECISION, Input, Inputs, default_constant
from mlsysim.walls.result import Amount, Result, Work
from mlsysim.zoo.constants import constant

__all__ = [
    "CARDS",
    "ScalingModel",
    "ScalingResult",
    "compute_optimal_parameters",
    "tokens_for_budget",
    "training_flops",
]

CARDS = """
11 Complexity: training compute by scaling laws
C = 6 P D;  P* = sqrt(C / 120) (Hoffmann et al. 2022)
How large a model, on how many tokens, does a compute budget pay for?
"""


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


class ScalingResult(Result):
    """A model size and a number of tokens for a budget, and what the loss law says of them."""

    optimal_parameters: Annotated[Any, Amount("param")]
    optimal_tokens: Annotated[Any, Amount("token")]
    compute_budget_flops: Work
    tokens_per_parameter: float
    compute_optimal_parameters: Annotated[Any, Amount("param")]
    compute_optimal_tokens: Annotated[Any, Amount("token")]
    regime: str
    loss_law: str
    predicted_loss: float
    optimal_loss: float
    extrapolated: bool
    extrapolation: tuple[str, ...]
    lifetime_parameters: Annotated[Any, Amount("param")] = None
    lifetime_tokens: Annotated[Any, Amount("token")] = None
    lifetime_compute: Work = None
    lifetime_saving_fraction: float | None = None


class ScalingModel(Resolver[ScalingResult]):
    """The compute-optimal model and its tokens, the loss to expect, and the trade against inference."""

    walls = (11,)
    result = ScalingResult
    inputs: ClassVar[dict[str, Input]] = {
        "compute_budget": Input.of(
            "operations of training ('4e24 flop'), or accelerator time ('1000 day') with 'hardware'",
            "object",
            example="4e24 flop",
        ),
        "target_model_size": Input.of(
            "parameters of the model to train, instead of the optimum",
            "[1, 1e18] count, plain",
            None,
            example="70 Bparam",
        ),
        "hardware": Input.of(HARDWARE.meaning, "hardware", None),
        "efficiency": EFFICIENCY,
        "precision": PRECISION,
        "tokens_per_parameter": Input.of(
            "tokens for each parameter at the optimum",
            "[0.01, 1e6]",
            default_constant("chinchilla_tokens_per_parameter"),
        ),
        "optimum": Input.of(
            "where the optimum comes from: the fixed ratio, or the minimum of the loss law",
            ("ratio", "loss_law"),
            "ratio",
        ),
        "loss_law": Input.of("coefficients of the loss law", tuple(LAWS), "besiroglu2024"),
        "inference_tokens": Input.of(
            "tokens that the model will serve in its life", "[0, 1e24] count, plain", None, example="2 Ttoken"
        ),
    }
    equations = written(r"""
        compute_optimal_parameters if by_ratio: P* = sqrt(C / (c r))
            P^* = \sqrt{\frac{C}{c\,r}}
            C = compute_budget_flops in flop, c = cost in flop, r = ratio
        compute_optimal_parameters if by_law: P* = (alpha A / (beta B))^(1/(alpha+beta)) (C / c)^(beta/(alpha+beta))
            P^* = \left(\frac{\alpha A}{\beta B}\right)^{\frac{1}{\alpha+\beta}} \left(\frac{C}{c}\right)^{\frac{\beta}{\alpha+\beta}}
            C = compute_budget_flops in flop, c = cost in flop, A = A, B = B, alpha = alpha, beta = beta
        optimal_tokens: D = C / (c P)
            D = \frac{C}{c\,P}
            C = compute_budget_flops in flop, c = cost in flop, P = optimal_parameters
        predicted_loss: L = E + A / P^alpha + B / D^beta
            L = E + \frac{A}{P^\alpha} + \frac{B}{D^\beta}
            E = E, A = A, P = optimal_parameters, alpha = alpha, B = B, D = optimal_tokens, beta = beta
        lifetime_compute if inference_tokens: C_life = c P D + c_inf P D_inf, at equal loss
            C_{\mathrm{life}} = c\,P\,D + c_{\mathrm{inf}}\,P\,D_{\mathrm{inf}}
            P = lifetime_parameters, D = lifetime_tokens, D_inf = inference_tokens
    """)
    known_fallacies = (
        "The largest model that a budget can train is the best one: at the optimum half of the growth goes into data.",
        "More than 20 tokens per parameter are a waste: they are the price of a smaller model that is cheaper to serve.",
        "C = 6 P D is a scaling law: it only counts operations; the optimum comes from the loss.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> ScalingResult:
        """Split a budget between parameters and tokens."""
        budget = self._budget(x, assumed)
        law = loss_law(x.loss_law)
        cost = to_si(constant("training_flops_per_parameter_token").quantity, "flop")
        best_parameters, best_tokens = self._optimum(x, assumed, law, budget, cost)
        parameters = best_parameters if x.target_model_size is None else x.target_model_size
        tokens = tokens_for_budget(budget, cost, parameters)
        ratio, best_ratio = tokens / parameters, best_tokens / best_parameters
        outside = extrapolations(budget, parameters, tokens)
        if outside:
            assumed["extrapolation"] = "; ".join(outside)
        relative = ratio / best_ratio
        near = 0.99 < relative < 1.01
        regime = "compute-optimal" if near else "over-trained" if relative > 1 else "under-trained"
        sentence = (
            f"Wall 11 (Complexity): {budget:.3g} operations train {parameters / 1e9:.4g} B parameters on "
            f"{tokens / 1e9:.4g} B tokens ({ratio:.3g} a parameter); the compute optimum is {best_parameters / 1e9:.4g} B "
            f"parameters at {best_ratio:.3g}."
        )
        loss = law.loss(parameters, tokens)
        life = self._lifetime(x, law, loss, parameters, tokens, cost)
        return ScalingResult.of(
            assumed,
            binding=Binding(11, "Complexity", relative, sentence),
            optimal_parameters=parameters,
            optimal_tokens=tokens,
            compute_budget_flops=budget,
            tokens_per_parameter=ratio,
            compute_optimal_parameters=best_parameters,
            compute_optimal_tokens=best_tokens,
            regime=regime,
            loss_law=x.loss_law,
            predicted_loss=loss,
            optimal_loss=law.loss(best_parameters, best_tokens),
            extrapolated=bool(outside),
            extrapolation=outside,
            **life,
            shown={
                "cost": cost,
                "ratio": x.tokens_per_parameter,
                "by_ratio": x.optimum == "ratio",
                "by_law": x.optimum == "loss_law",
                "E": law.irreducible,
                "A": law.parameter_coefficient,
                "B": law.token_coefficient,
                "alpha": law.parameter_exponent,
                "beta": law.token_exponent,
            },
            cited={
                "operations": constant("training_flops_per_parameter_token").source.title,
                "ratio": constant("chinchilla_tokens_per_parameter").source.title,
                "loss law": law.source,
            },
        )

    @staticmethod
    def _optimum(x: Any, assumed: dict[str, str], law: LossLaw, budget: float, cost: float) -> tuple[float, float]:
        if x.optimum == "loss_law":
            assumed.pop("tokens_per_parameter", None)
            return law.optimum(budget / cost)
        parameters = compute_optimal_parameters(budget, cost, x.tokens_per_parameter)
        return parameters, tokens_for_budget(budget, cost, parameters)

    @staticmethod
    def _lifetime(x: Any, law: LossLaw, loss: float, parameters: float, tokens: float, cost: float) -> dict[str, Any]:
        """The model of equal loss that trains and serves with the fewest operations."""
        if x.inference_tokens is None:
            return {}
        serving = to_si(constant("inference_flops_per_parameter_token").quantity, "flop")
        small, longer = equal_loss_optimum(law, loss, parameters, cost, serving, x.inference_tokens)
        spent = training_flops(cost, parameters, tokens) + training_flops(serving, parameters, x.inference_tokens)
        total = training_flops(cost, small, longer) + training_flops(serving, small, x.inference_tokens)
        return {
            "lifetime_parameters": small,
            "lifetime_tokens": longer,
            "lifetime_compute": total,
            "lifetime_saving_fraction": 1 - total / spent,
        }

    @staticmethod
    def _budget(x: Any, assumed: dict[str, str]) -> float:
        """Operations, from operations or from accelerator time."""
        given = x.compute_budget
        value = parse_quantity(given) if isinstance(given, str) else given
        sentence = (
            "The 'compute_budget' input of ScalingModel must be operations such as '4e24 flop', or accelerator time "
            f"such as '1000 day' with 'hardware', got {str(given)[:60]!r}."
        )
        if not isinstance(value, Quantity):
            raise UnitError(sentence, field="compute_budget")
        if value.check("[time]"):
            if x.hardware is None:
                raise InputError(
                    "ScalingModel: a budget in accelerator time needs 'hardware' to become operations.",
                    field="hardware",
                )
            peak, note = arithmetic_peak(x.hardware, x.precision)
            if note:
                assumed["arithmetic"] = note
            operations = to_si(value, "s") * peak * x.efficiency
        else:
            if x.hardware is None:
                assumed.pop("efficiency", None)
                assumed.pop("precision", None)
            try:
                operations = to_si(value, "flop")
            except DimensionalityError:
                raise UnitError(sentence, field="compute_budget") from None
        operations = float(operations)
        if not (math.isfinite(operations) and operations > 0):
            raise InputError(
                f"The 'compute_budget' input of ScalingModel must be above 0, got {str(given)[:60]}.",
                field="compute_budget",
            )
        return operations
