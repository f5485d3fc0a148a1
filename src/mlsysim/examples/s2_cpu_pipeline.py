"""S2: do 64 processor workers keep eight GPUs busy, and does a larger batch overload them?

ResNet-50 on a DGX A100; each worker augments 850 images a second (1,200 without augmentation).
"""

from __future__ import annotations

from typing import Any

from mlsysim import Hardware, Models, SingleNodeModel, TransformationModel
from mlsysim.examples._beside import beside_paper, in_unit
from mlsysim.show import banner

GPUS, WORKERS = 8, 64
EFFICIENCY = 0.42
"""What the paper's step of 48 ms implies with the 8.2 GFLOP of an image (it counts 4.1 G multiply-adds as FLOP)."""


def step(batch: int, efficiency: float = EFFICIENCY) -> Any:
    """Training step of each GPU on its eighth of the batch."""
    return SingleNodeModel().solve(
        Models.ResNet50, Hardware.A100, batch_size=batch // GPUS, is_training=True, efficiency=efficiency
    )


def prepare(batch: int, worker: str = "850 sample/s", efficiency: float = EFFICIENCY) -> Any:
    took = step(batch, efficiency).latency
    return TransformationModel().solve(
        batch_size=batch, workers=WORKERS, worker_throughput=worker, accelerator_step_time=took
    )


def main() -> None:
    small, large, faster = prepare(2048), prepare(4096), prepare(2048, efficiency=0.55)
    raw = prepare(2048, "1200 sample/s")
    banner("S2: processors against accelerators")
    rate, twice = "{:,.0f}".format, "the step doubles with the batch: the rate stays"
    took = in_unit(small.accelerator_step_time, "ms", 1)
    beside_paper(
        ("step, batch 2,048 [ms]", "48", took, f"the same at eta {EFFICIENCY}"),
        ("demand, batch 2,048 [images/s]", "42,700", rate(small.demand_rate.magnitude), ""),
        ("decoding alone [images/s]", "76,800", rate(raw.cpu_throughput.magnitude), ""),
        ("with augmentation [images/s]", "54,400", rate(small.cpu_throughput.magnitude), ""),
        ("headroom, batch 2,048", "1.27", f"{small.headroom_ratio:.2f}", ""),
        ("demand, batch 4,096 [images/s]", "85,400", rate(large.demand_rate.magnitude), twice),
        ("stalled, batch 4,096", "True", str(large.is_bottleneck), "so wall 9 does not bind"),
        ("stalled at eta 0.55", "", str(faster.is_bottleneck), "faster kernels, not larger batches, bring wall 9"),
    )


if __name__ == "__main__":
    main()
