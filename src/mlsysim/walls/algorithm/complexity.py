"""Wall 11, complexity: how large a model does a compute budget pay for?

    C = 6 P D,   D* = 20 P*,   P* = sqrt(C / 120)                                          (Hoffmann et al. 2022)

Training P parameters on D tokens costs 6 operations for each pair. At the optimum there are about 20 tokens for each
parameter. A given ``target_model_size`` leaves D = C / (6 P).

The parametric law (:mod:`mlsysim.cases.losslaw`) predicts the loss L(P, D) = E + A / P^alpha + B / D^beta, and
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
from typing import Annotated, Any

from mlsysim.cases import losslaw
from mlsysim.errors import InputError, UnitError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.units.registry import DimensionalityError, Quantity, parse_quantity, to_si
from mlsysim.walls.base import Assumptions, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.result import Amount, Result, Work
from mlsysim.zoo.constants import constant

CARDS = """
11 Complexity: training compute by scaling laws
C = 6 P D;  P* = sqrt(C / 120) (Hoffmann et al. 2022)
How large a model, on how many tokens, does a compute budget pay for?
"""


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
    inputs = declared(f"""
        compute_budget | object | operations of training ('4e24 flop'), or accelerator time ('1000 day') with 'hardware' | 4e24 flop
        target_model_size? | [1, 1e18] count, plain | parameters of the model to train, instead of the optimum | 70 Bparam
        hardware?, efficiency, precision
        tokens_per_parameter = constant chinchilla_tokens_per_parameter | [0.01, 1e6] | tokens for each parameter at the optimum
        optimum = ratio | one of ratio, loss_law | where the optimum comes from: the fixed ratio, or the minimum of the loss law
        loss_law = besiroglu2024 | one of {", ".join(losslaw.LAWS)} | coefficients of the loss law
        inference_tokens? | [0, 1e24] count, plain | tokens that the model will serve in its life | 2 Ttoken
    """)
    equations = written(r"""
        compute_optimal_parameters if by_ratio: P* = sqrt(C / (c r))
            P^* = \sqrt{\frac{C}{c\,r}}
            C = compute_budget_flops in flop, c = cost in flop, r = ratio
        compute_optimal_parameters if by_law: P* = (alpha A / (beta B))^(1/(alpha+beta)) (C / c)^(beta/(alpha+beta))
            P^* = \left(\frac{\alpha A}{\beta B}\right)^{\frac{1}{\alpha+\beta}} \left(\frac{C}{c}\right)^{\frac{\beta}{\alpha+\beta}}
            C = compute_budget_flops in flop, c = cost in flop, A = parameter_coefficient, B = token_coefficient, alpha = parameter_exponent, beta = token_exponent
        optimal_tokens: D = C / (c P)
            D = \frac{C}{c\,P}
            C = compute_budget_flops in flop, c = cost in flop, P = optimal_parameters
        predicted_loss: L = E + A / P^alpha + B / D^beta
            L = E + \frac{A}{P^\alpha} + \frac{B}{D^\beta}
            E = irreducible, A = parameter_coefficient, P = optimal_parameters, alpha = parameter_exponent, B = token_coefficient, D = optimal_tokens, beta = token_exponent
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
        budget, law, by_law = _budget(x, assumed), losslaw.loss_law(x.loss_law), x.optimum == "loss_law"
        counted, ratios = constant("training_flops_per_parameter_token"), constant("chinchilla_tokens_per_parameter")
        cost = to_si(counted.quantity, "flop")
        if by_law:
            assumed.pop("tokens_per_parameter", None)
            best, best_tokens = law.optimum(budget / cost)
        else:
            best = losslaw.compute_optimal_parameters(budget, cost, x.tokens_per_parameter)
            best_tokens = losslaw.tokens_for_budget(budget, cost, best)
        parameters = best if x.target_model_size is None else x.target_model_size
        tokens = losslaw.tokens_for_budget(budget, cost, parameters)
        ratio, best_ratio = tokens / parameters, best_tokens / best
        outside = losslaw.extrapolations(budget, parameters, tokens)
        if outside:
            assumed["extrapolation"] = "; ".join(outside)
        relative = ratio / best_ratio
        near = 0.99 < relative < 1.01
        trained = f"{parameters / 1e9:.4g} B parameters on {tokens / 1e9:.4g} B tokens ({ratio:.3g} a parameter)"
        optimum = f"the compute optimum is {best / 1e9:.4g} B parameters at {best_ratio:.3g}"
        life = None
        if x.inference_tokens is not None:
            serving = to_si(constant("inference_flops_per_parameter_token").quantity, "flop")
            life = losslaw.lifetime_optimum(law, parameters, tokens, cost, serving, x.inference_tokens)
        return ScalingResult.of(
            assumed,
            law,
            life,
            binding=wall_says(11, relative, f": {budget:.3g} operations train {trained}; {optimum}."),
            optimal_parameters=parameters,
            optimal_tokens=tokens,
            compute_budget_flops=budget,
            tokens_per_parameter=ratio,
            compute_optimal_parameters=best,
            compute_optimal_tokens=best_tokens,
            regime="compute-optimal" if near else "over-trained" if relative > 1 else "under-trained",
            loss_law=x.loss_law,
            predicted_loss=law.loss(parameters, tokens),
            optimal_loss=law.loss(best, best_tokens),
            extrapolated=bool(outside),
            extrapolation=outside,
            shown={"cost": cost, "ratio": x.tokens_per_parameter, "by_ratio": not by_law, "by_law": by_law},
            cited={"operations": counted.source.title, "ratio": ratios.source.title, "loss law": law.source},
        )


def _budget(x: Any, assumed: Assumptions) -> float:
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
            words = "ScalingModel: a budget in accelerator time needs 'hardware' to become operations."
            raise InputError(words, field="hardware")
        peak, note = arithmetic_peak(x.hardware, x.precision)
        if note:
            assumed["arithmetic"] = note
        operations = float(to_si(value, "s") * peak * x.efficiency)
    else:
        if x.hardware is None:
            assumed.pop("efficiency", None)
            assumed.pop("precision", None)
        try:
            operations = float(to_si(value, "flop"))
        except DimensionalityError:
            raise UnitError(sentence, field="compute_budget") from None
    if not (math.isfinite(operations) and operations > 0):
        words = f"The 'compute_budget' input of ScalingModel must be above 0, got {str(given)[:60]}."
        raise InputError(words, field="compute_budget")
    return operations
