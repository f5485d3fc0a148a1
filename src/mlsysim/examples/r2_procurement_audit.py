"""R2: should the next cluster for 70 B inference buy FLOP/s or bandwidth?

One token at batch 1 on an A100: elasticities (per cent of latency for a per cent of hardware), then the inverse question.
"""

from __future__ import annotations

from typing import Any

from mlsysim import Hardware, Models, SensitivitySolver, SynthesisSolver, TransformerWorkload
from mlsysim.examples._beside import beside_paper, in_unit
from mlsysim.show import banner, table


def sensitivity(precision: str) -> Any:
    return SensitivitySolver().solve(model=Models.Llama2_70B, hardware=Hardware.Cloud.A100, precision=precision)


def synthesis() -> Any:
    """The paper's round 70 B at 50 ms a token."""
    model = TransformerWorkload(name="70B", parameters="70 Bparam", layers=80, hidden_dim=8192, heads=64, kv_heads=8)
    return SynthesisSolver().solve(model=model, target_latency="50 ms", precision="fp16", hardware=Hardware.Cloud.A100)


def main() -> None:
    fp16, int4, needed = sensitivity("fp16"), sensitivity("int4"), synthesis()
    banner("R2: procurement for 70B inference")
    printed = {"peak_flops": "-0.06", "memory_bandwidth": "-0.88", "memory_capacity": "0.00"}
    rows = [
        [name, printed[name], f"{int4.sensitivities[name]:+.2f}", f"{fp16.sensitivities[name]:+.2f}"]
        for name in printed
    ]
    rows.append(["binding", "memory_bandwidth", int4.binding_constraint, fp16.binding_constraint])
    table(["elasticity of latency", "paper", "ours, 4 bit (fits)", "ours, 16 bit (138 GB on 80 GiB)"], rows)
    print(
        "Why: a roofline takes the longer of two times, so what binds has -1 and the other 0; what does not fit is capacity."
    )
    print()
    bandwidth = needed.required_bw.to("GB/s").magnitude
    have = Hardware.Cloud.A100.memory.bandwidth.to("GB/s").magnitude
    beside_paper(
        ("bandwidth [GB/s]", "2800", f"{bandwidth:.0f}", "140 GB / 50 ms"),
        ("over the A100's", "1.4", f"{bandwidth / have:.2f}", ""),
        ("memory [GB]", "", in_unit(needed.required_memory, "GB"), "needs two A100 in any case"),
        ("A100s", "", needed.accelerators, "asked for by bandwidth and capacity alike"),
        what="for 50 ms a token",
    )


if __name__ == "__main__":
    main()
