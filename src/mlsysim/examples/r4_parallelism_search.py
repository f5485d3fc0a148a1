"""R4: how should 175 B parameters be laid out on 2,048 H100?

Without ZeRO a GPU holds 16 bytes x 175e9 / (TP PP); 72 GB and TP 8 need PP of at least 4.86, so 8. The search says the rest.
"""

from __future__ import annotations

from typing import Any

from mlsysim import Fleet, Models, ParallelismOptimizer, Systems
from mlsysim.show import banner, table

BATCH = 2048
PUBLISHED = {"tp": 8, "pp": 8}


def fleet() -> Fleet:
    return Systems.Clusters.Frontier_8K.model_copy(update={"name": "2,048 H100", "count": 256})


def search(**limits: Any) -> Any:
    return ParallelismOptimizer().solve(
        Models.GPT3, fleet(), batch_size=BATCH, seq_len=2048, compare_to=PUBLISHED, **limits
    )


def least_stages(capacity: float = 72e9, tp: int = 8) -> float:
    """Stages that the state alone needs."""
    return 16 * 175e9 / (tp * capacity)


def _row(name: str, found: Any) -> list[Any]:
    best, asked = found.best_config, found.compared
    split = [
        f"TP{best['tp']} PP{best['pp']} DP{best['dp']}",
        best["v_stages"],
        best["zero_stage"],
        f"{best['mfu']:.1%}",
    ]
    rank = [f"{asked['rank_of_split']} of {asked['splits']}", f"{asked['behind_best_fraction']:.1%}"]
    return [name, *split, *rank, found.total_searched, found.rejected["Wall 2 (Memory)"]]


def main() -> None:
    banner("R4: 175B on 2,048 H100")
    papers = search(max_zero_stage=0, max_v_stages=1)
    table(
        ["allowed", "best", "virtual stages", "ZeRO", "MFU", "TP8 PP8 DP32 ranks", "behind", "searched", "do not fit"],
        [
            _row("the paper's: 1F1B, no ZeRO", papers),
            _row("interleaved, no ZeRO", search(max_zero_stage=0)),
            _row("everything", search()),
        ],
        "<<>>>>>>>",
    )
    print()
    print(
        f"Paper: TP8 PP8 DP32, since without ZeRO a PP of at least {least_stages():.2f} rounds up to 8. More stages have fewer "
        f"gradients left to sum after the last micro-batch, which is worth {papers.compared['behind_best_fraction']:.1%}."
    )
    print(
        "Virtual stages shrink the bubble, so TP4 PP16 can halve the layers on a GPU, and with them the sums of activations."
    )


if __name__ == "__main__":
    main()
