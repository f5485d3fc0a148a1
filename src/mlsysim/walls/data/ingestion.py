"""Wall 8, ingestion: can storage feed the accelerator?

    rho = BW_demand / BW_supply,   BW_supply = min( storage / (n a (1 - h)), network / (n (1 - h)), host link )
                                                                                               (Mohan et al. 2021)

The demand is what one accelerator reads. A cache in front of storage answers a fraction h of it; the rest reaches
storage, which reads a bytes for each byte that is asked for (read amplification) and serves n accelerators. What comes
over the network is shared in the same way. All bytes, cached or not, cross the accelerator's own host link.
Above rho = 1 the accelerator waits, and every step takes rho times as long as the step without waiting.

Assumed: steady streaming with enough requests in flight, so that bandwidth and not latency limits; the shares of the
accelerators are equal. Left out: small random reads (a device may lose a factor of 10 and more on reads of a few kB; put
that in ``read_amplification`` or give a measured ``storage_bandwidth``), and a cache that is still cold (the first
epoch has h = 0).
"""

from __future__ import annotations

from typing import Annotated, Any

from mlsysim.cases.feeding import Path, pipeline_utilization
from mlsysim.units.registry import to_si
from mlsysim.walls.base import Assumptions, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.result import Amount, Result

CARDS = """
8 Ingestion: storage and input bandwidth
rho = BW_demand / BW_supply (Mohan et al. 2021)
Can storage deliver the training data as fast as the accelerator consumes it?
"""

_GB = 1e9


class DataResult(Result):
    """Demand and supply of training data. What is not known of the supply is None."""

    demand_bw: Annotated[Any, Amount("GB/s", "byte/s")]
    supply_bw: Annotated[Any, Amount("GB/s", "byte/s")]
    utilization: float | None
    is_stalled: bool | None
    bottleneck: str
    margin: Annotated[Any, Amount("GB/s", "byte/s")]
    slowdown_factor: float | None
    limits: dict[str, Annotated[Any, Amount("GB/s", "byte/s")]]


class DataModel(Resolver[DataResult]):
    """Demand for training data against what storage, network and host link deliver."""

    walls = (8,)
    inputs = declared("""
        workload_data_rate | [0, inf) byte/s | bytes that one accelerator reads per second | 8 MB/s
        hardware
        storage_bandwidth? | (0, inf) byte/s | read bandwidth of the storage, instead of the chip's own entry | 7 GB/s
        nic_bandwidth? | (0, inf) byte/s | network bandwidth to remote storage; local storage needs none | 400 Gbps
        cache_hit_ratio = 0.0 | [0, 1] | fraction of reads that a cache answers
        read_amplification = 1.0 | [1, 10000] | bytes that storage reads for each byte asked for
        accelerators = 1 | whole [1, 1e6] | accelerators that share the storage and the network adapter
    """)
    equations = written(r"""
        supply_bw: BW_supply = BW_path / (n a (1 - h)) of the narrowest path
            BW_{\mathrm{supply}} = \frac{BW_{\mathrm{path}}}{n\,a\,(1 - h)}
            BW_path = path_bandwidth in byte/s, n = sharers, a = amplification, 1 - h = miss_fraction
        utilization: rho = BW_demand / BW_supply
            \rho = \frac{BW_{\mathrm{demand}}}{BW_{\mathrm{supply}}}
            BW_demand = demand_bw in byte/s, BW_supply = supply_bw in byte/s
    """)
    known_fallacies = (
        "A faster accelerator trains faster: when storage binds it only waits for a larger part of the step.",
        "Language models need fast storage for their text: tokenised text is a few MB/s; checkpoints are what storage feels.",
        "A cache with 90 % hits removes the storage problem: the first epoch has no hits.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> DataResult:
        """Compare the demand for data with the narrowest path that it takes."""
        demand = x.workload_data_rate
        paths = _paths(x, assumed)
        if not paths:
            return _unknown(x, assumed)
        limits = {name: path.supply for name, path in paths.items()}
        bottleneck = min(limits, key=lambda name: limits[name])
        supply = limits[bottleneck]
        rho = pipeline_utilization(demand, supply)
        stalled, verdict, asked = rho > 1, "does not bind", f"the demand of {demand / _GB:.3g} GB/s"
        told = f"{1 / rho:.3g} times {asked}" if demand else "and nothing is asked for"
        if stalled:
            verdict, told = "binds", f"{asked} is {rho:.3g} times that, and the accelerator waits"
        return DataResult.of(
            assumed,
            paths[bottleneck],
            x,
            feasible=not stalled,
            binding=wall_says(8, rho, f" {verdict}: {bottleneck.lower()} delivers {supply / _GB:.3g} GB/s, {told}."),
            demand_bw=demand,
            supply_bw=supply,
            utilization=rho,
            is_stalled=stalled,
            bottleneck=bottleneck,
            margin=supply - demand,
            slowdown_factor=max(1.0, rho),
            limits=limits,
        )


def _paths(x: Any, assumed: Assumptions) -> dict[str, Path]:
    """Paths that are known and that some of the reads take, by name."""
    chip, miss, paths = x.hardware, 1.0 - x.cache_hit_ratio, {}
    storage = x.storage_bandwidth
    if storage is None and chip.storage is not None:
        storage = to_si(chip.storage.bandwidth, "byte/s")
        assumed["storage_bandwidth"] = f"{storage / _GB:.4g} GB/s, of {chip.name}"
    if storage is not None and miss > 0:
        paths["Storage"] = Path(storage, x.accelerators, x.read_amplification, miss)
    if x.nic_bandwidth is not None and miss > 0:
        paths["Network"] = Path(x.nic_bandwidth, x.accelerators, 1.0, miss)
    if chip.interconnect is not None:
        paths["Interconnect"] = Path(to_si(chip.interconnect.bandwidth, "byte/s"), 1, 1.0, 1.0)
    return paths


def _unknown(x: Any, assumed: Assumptions) -> DataResult:
    """Nothing is known of the supply: neither a verdict nor a number is made up."""
    reason = f"{x.hardware.name} states neither storage nor host link"
    if x.cache_hit_ratio == 1:
        reason = f"all reads hit the cache and {x.hardware.name} states no host link"
    assumed["supply"] = "not known"
    unknown: dict[str, Any] = dict.fromkeys(("supply_bw", "utilization", "is_stalled", "margin", "slowdown_factor"))
    return DataResult.of(
        assumed,
        binding=wall_says(8, None, f" cannot be judged: {reason}; give 'storage_bandwidth'."),
        demand_bw=x.workload_data_rate,
        bottleneck="Unknown",
        limits={},
        **unknown,
    )
