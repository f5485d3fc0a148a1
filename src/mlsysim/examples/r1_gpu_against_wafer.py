"""R1: does a wafer that streams its weights beat GPUs at serving 180 B parameters?

Five H100 hold the weights and read them for every token. A CS-3 receives them over 1.2 TB/s, once for a whole batch.
"""

from __future__ import annotations

from typing import Any

from mlsysim import Hardware, ServingModel, TransformerWorkload, WeightStreamingModel
from mlsysim.examples._beside import beside_paper, in_unit
from mlsysim.show import banner

CONTEXT, EFFICIENCY = 2048, 0.4


def model() -> TransformerWorkload:
    """180 B parameters with a cache of 160 KiB a token, as Falcon-180B has; 240 heads, so that five GPUs divide them."""
    return TransformerWorkload(name="180B", parameters="180 Bparam", layers=80, hidden_dim=15360, heads=240, kv_heads=8)


def gpus(batch: int = 1) -> Any:
    return ServingModel().solve(
        model(), Hardware.H100, seq_len=CONTEXT, batch_size=batch, tp_size=5, efficiency=EFFICIENCY
    )


def wafer(batch: int = 1) -> Any:
    return WeightStreamingModel().solve(
        model(), Hardware.CerebrasCS3, seq_len=CONTEXT, batch_size=batch, efficiency=EFFICIENCY
    )


def rate(result: Any) -> str:
    return f"{result.throughput_tokens_per_sec.magnitude:,.0f}"


def main() -> None:
    one_gpu_batch, one_wafer_batch = gpus(), wafer()
    best = wafer(one_wafer_batch.optimal_batch_size)
    full_gpus, full_wafer = gpus(one_gpu_batch.max_batch_size), wafer(one_wafer_batch.max_batch_size)
    banner("R1: 5 H100 against one CS-3, 180B")
    weights, token, streamed = one_gpu_batch.decode_weights, one_gpu_batch.itl, one_wafer_batch.pass_time
    most, caches = f"5 H100 at batch {one_gpu_batch.max_batch_size} [tokens/s]", in_unit(best.cache_size, "TB", 1)
    beside_paper(
        ("5 H100, batch 1: weights [ms]", "21.5", in_unit(weights, "ms", 1), "360 GB / (5 x 3.35 TB/s)"),
        ("5 H100, batch 1: a token [ms]", "21.5", in_unit(token, "ms", 1), "with cache and all-reduces"),
        ("5 H100, batch 1 [tokens/s]", "47 per GPU", rate(one_gpu_batch), "of all five together"),
        ("CS-3, batch 1: a token [ms]", "300", in_unit(streamed, "ms"), "360 GB / 1.2 TB/s"),
        ("B*", "41,700", f"{one_wafer_batch.optimal_batch_size:,}", "b P eta / (2 BW)"),
        ("CS-3 at B* [tokens/s]", "139,000", rate(best), "attention makes a pass 2.7 % longer, if it fitted"),
        ("caches at B* [TB]", "under 0.044", caches, "160 KiB a token x 2,048 x 41,667: it does not fit"),
        ("largest batch on the CS-3", "", one_wafer_batch.max_batch_size, "39.6 of 44 GB for caches"),
        ("CS-3 at that batch [tokens/s]", "", rate(full_wafer), "still bound by injection"),
        (most, "", rate(full_gpus), "each at the batch that it can hold"),
    )
    print()
    print(best.binding.sentence)


if __name__ == "__main__":
    main()
