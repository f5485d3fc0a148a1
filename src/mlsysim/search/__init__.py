"""Room 5, many points: optimizers and sweeps over the walls."""

OPTIMIZERS: dict[str, str] = {
    "ParallelismOptimizer": "mlsysim.search.parallelism",
    "BatchingOptimizer": "mlsysim.search.batching",
    "PlacementOptimizer": "mlsysim.search.placement",
}
"""The three optimizers and the module of each."""
