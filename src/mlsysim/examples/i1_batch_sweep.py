"""I1: at which batch does decoding stop waiting for memory?

One token for each of B sequences, 7 B parameters in 16 bit on one H100, kernels at 63 % of the peak.
"""

from __future__ import annotations

from typing import Any

from mlsysim import Hardware, SingleNodeModel, TransformerWorkload
from mlsysim.show import banner, info, table

BATCHES = (1, 8, 32, 128, 256)
EFFICIENCY = 0.63
PAPER = {
    1: ("Memory", 1.1, 0.02),
    8: ("Memory", 8.6, 0.14),
    32: ("Memory", 34.3, 0.42),
    128: ("Compute", 137, 0.61),
    256: ("Compute", 274, 0.63),
}


def decode(batch: int) -> Any:
    model = TransformerWorkload(name="7B", parameters="7 Bparam", layers=32, hidden_dim=4096, heads=32)
    return SingleNodeModel().solve(model, Hardware.H100, batch_size=batch, efficiency=EFFICIENCY)


def crossover() -> int:
    """The smallest batch that is bound by compute."""
    low, high = 1, 1024
    while low < high:
        middle = (low + high) // 2
        if decode(middle).bottleneck == "Compute":
            high = middle
        else:
            low = middle + 1
    return low


def main() -> None:
    banner("I1: batch sweep, 7B on one H100")
    rows = []
    for batch in BATCHES:
        ours = decode(batch)
        bound, intensity, mfu = PAPER[batch]
        ours_and_paper = [intensity, ours.arithmetic_intensity.magnitude, f"{mfu:.2f}", f"{ours.mfu:.4f}"]
        rows.append([batch, bound, ours.bottleneck, *ours_and_paper])
    table(["batch", "paper", "ours", "AI, paper", "AI, ours", "MFU, paper", "MFU, ours"], rows, "><<>>>>")
    print()
    ridge = Hardware.H100.ridge_point().to("flop/byte")
    info(Ridge_point=ridge, Times_efficiency=ridge * EFFICIENCY, Crossover=f"batch {crossover()} (paper: near 64)")
    print(
        "Why: MFU = min(B / 295, eta). Intensity equals the batch, and MFU cannot exceed intensity over the ridge point."
    )


if __name__ == "__main__":
    main()
