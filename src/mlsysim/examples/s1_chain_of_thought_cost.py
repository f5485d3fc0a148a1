"""S1: what does it cost to let a model think in eight steps?

A query of 2,048 tokens to a transformer of 1.8 T parameters on 48 H100 (TP 8, PP 6); each step writes 128 tokens.
"""

from __future__ import annotations

import math
from typing import Any

from mlsysim import EconomicsModel, Hardware, InferenceScalingModel, Models, Systems, TransformerWorkload
from mlsysim.examples._beside import beside_paper
from mlsysim.show import banner, info

STEPS, TOKENS, QUERIES = 8, 128, 100


def dense() -> TransformerWorkload:
    """The paper's transformer of 1.8 T parameters; it states no dimensions, these are ours."""
    return TransformerWorkload(
        name="dense 1.8T", parameters="1.8 Tparam", layers=120, hidden_dim=34816, heads=272, kv_heads=8
    )


def think(model: Any, steps: int, *, tp: int = 8, pp: int = 6, batch: int = 1) -> Any:
    asked = {"reasoning_steps": steps, "tokens_per_step": TOKENS, "context_length": 2048, "queries_per_second": QUERIES}
    return InferenceScalingModel().solve(model, Hardware.H100, tp_size=tp, pp_size=pp, batch_size=batch, **asked)


def annual_cost(result: Any) -> Any:
    """A year of the fleet that answers the load: its share of the purchase, maintenance and electricity."""
    own = {"name": "serving", "count": math.ceil(result.accelerators_needed / 8)}
    fleet = Systems.Clusters.Frontier_8K.model_copy(update=own)
    return EconomicsModel().solve(fleet, duration_days=365, mfu=result.mfu)


def main() -> None:
    one, eight = think(dense(), 1), think(dense(), STEPS)
    mixture = think(Models.GPT4, STEPS, tp=6, pp=8)
    together = think(dense(), STEPS, batch=64)
    banner("S1: chain of thought, K = 8")
    info(
        "One query, dense 1.8T on 48 H100",
        Time_to_first_token=one.ttft.to("s"),
        Time_between_tokens=eight.itl.to("ms"),
        One_step=one.total_reasoning_time,
        Eight_steps=eight.total_reasoning_time,
        Energy=eight.energy_per_query.to("kWh"),
    )
    print()
    ratio = annual_cost(eight).tco_usd / annual_cost(one).tco_usd
    dense_alone, mixed, busy = (f"{each.latency_multiplier:.2f}" for each in (eight, mixture, together))
    work = f"{eight.compute_multiplier:.2f}"
    beside_paper(
        ("latency multiplier", "7.6", dense_alone, "the prompt is read once: (TTFT + 8 t) / (TTFT + t)"),
        ("the same, GPT-4 as a mixture", "", mixed, "prompt and tokens are quicker alike"),
        ("the same, 64 queries together", "", busy, "64 prompts are read before the first token"),
        ("operations multiplier", "8", work, "2,048 tokens of prompt against 128 for each step"),
        (
            "cost of a year, K = 8 over K = 1",
            "7.6",
            f"{ratio:.2f}",
            "follows latency; the paper's dollars state no fleet",
        ),
    )


if __name__ == "__main__":
    main()
