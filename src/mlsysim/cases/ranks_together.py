"""Attention ranks that read prompts together, and what a prompt waits for.

A step lasts as long as that of its slowest rank, so that an engine may hold prompts back until **every rank has one**, or until G steps have passed since
the last look (TensorRT-LLM's ``attention_dp_config``: ``enable_balance``, ``timeout_iters``). Of R ranks one after another gets a prompt by chance, which takes

    R H_R = R (1 + 1/2 + ... + 1/R) arrivals        (coupon collector)

and R k where each rank has room for k prompts in a step and has left some behind, whichever is less. With l arrivals a step a look comes after

    g = min(G, R min(H_R, k)/l) steps

and a prompt waits for half of them. Of a rank's k places l g/R are taken, rho = l g/(R k). What is left behind, rho^sqrt(2 (k + 1))/(2 (1 - rho)) prompts (as
queues elsewhere in :mod:`mlsysim.cases.turns`; at k = 1 exactly for arrivals at random) and no more than its n/R requests have at a time in a closed loop,
sqrt(pi/32 n/R), waits for as many looks as bring it in, g/(rho k) steps each. Beside a simulation of the rule the wait is within 15 % with room for all, and
at rho < 0.5; between it is longer (up to twice at rho = 1 and k = 1), and about as long as was measured.
"""

from __future__ import annotations

import math
from typing import Any

from mlsysim.units.ops import maximum, minimum, sqrt

_BELOW, _FEWEST = 1 - 1e-9, 1e-12


def gathered(per_step: Any, n: Any, full: Any, ranks: int, most: int) -> tuple[Any, Any]:
    """Steps between two looks, of ``most`` at most, and steps that what found no room waits for further ones: with so many prompts that come a step, n
    requests, and ``full`` prompts of a step of all ranks."""
    each = maximum(full / ranks, 1.0)
    all_have = ranks * minimum(each, sum(1 / i for i in range(1, ranks + 1)))
    look = minimum(most, all_have / maximum(per_step, _FEWEST))
    load = maximum(minimum(per_step * look / (ranks * each), _BELOW), _FEWEST)
    behind = load ** sqrt(2 * (each + 1)) / (2 * (1 - load))
    return look, minimum(behind, sqrt(math.pi / 32 * n / ranks)) * look / (load * each)
