"""mlsysim: will it fit, how fast, what does it cost, what does it emit, what binds, and how sure are we?

A first-principles planning engine for machine-learning systems. Public names are resolved when first used, so that
importing the package reads no data.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES: dict[str, tuple[str, ...]] = {
    "mlsysim.units.registry": ("DimensionalityError", "Q_", "Quantity", "ureg"),
    "mlsysim.units.uncertain": ("Uncertain", "uncertain"),
    "mlsysim.errors": (
        "DataWarning", "InputError", "MLSysError", "OOMError", "SLAViolation", "UnitError", "UnknownNameError", "ZooFileError",
    ),
    "mlsysim.hardware.registry": ("Hardware",),
    "mlsysim.hardware.types": ("ComputeCore", "HardwareNode", "IOInterconnect", "MemoryHierarchy", "StorageHierarchy"),
    "mlsysim.models.registry": ("Models",),
    "mlsysim.models.types": (
        "CNNWorkload", "ComputationGraph", "DiffusionWorkload", "HybridWorkload", "RecommendationWorkload", "SSMWorkload",
        "SparseTransformerWorkload", "SpeechWorkload", "TransformerWorkload", "VisionLanguageWorkload",
        "VisionTransformerWorkload", "Workload",
    ),
    "mlsysim.infra.registry": ("Grids", "Infra"),
    "mlsysim.infra.types": ("Datacenter", "Facility", "GridProfile"),
    "mlsysim.walls.base": ("Resolver",),
    "mlsysim.walls.result": ("Result",),
    "mlsysim.walls.uncertain_result": ("UncertainResult",),
    "mlsysim.walls.node.compute_memory": ("PerformanceProfile", "SingleNodeModel"),
    "mlsysim.walls.node.software": ("EfficiencyModel",),
    "mlsysim.walls.node.serving": ("ServingModel",),
    "mlsysim.walls.node.batching": ("ContinuousBatchingModel",),
    "mlsysim.walls.node.streaming": ("WeightStreamingModel",),
    "mlsysim.walls.node.tail": ("TailLatencyModel",),
    "mlsysim.walls.node.training_memory": ("TrainingMemoryModel",),
    "mlsysim.walls.node.serving_capacity": ("ServingCapacityModel",),
    "mlsysim.walls.data.ingestion": ("DataModel",),
    "mlsysim.walls.data.transform": ("TransformationModel",),
    "mlsysim.walls.data.locality": ("TopologyModel",),
    "mlsysim.walls.algorithm.complexity": ("ScalingModel",),
    "mlsysim.walls.algorithm.reasoning": ("InferenceScalingModel",),
    "mlsysim.walls.algorithm.fidelity": ("CompressionModel",),
    "mlsysim.walls.fleet.communication": ("DistributedModel",),
    "mlsysim.walls.fleet.moe_routing": ("MoERoutingModel",),
    "mlsysim.walls.fleet.network_roofline": ("NetworkRooflineModel",),
    "mlsysim.walls.fleet.fragility": ("ReliabilityModel",),
    "mlsysim.walls.fleet.tenancy": ("OrchestrationModel",),
    "mlsysim.walls.operations.capital": ("EconomicsModel",),
    "mlsysim.walls.operations.sustainability": ("SustainabilityModel",),
    "mlsysim.walls.operations.checkpoint": ("CheckpointModel",),
    "mlsysim.walls.operations.safety": ("ResponsibleEngineeringModel",),
    "mlsysim.walls.analysis.sensitivity": ("SensitivitySolver",),
    "mlsysim.walls.analysis.synthesis": ("SynthesisSolver",),
    "mlsysim.search.parallelism": ("ParallelismOptimizer",),
    "mlsysim.search.batching": ("BatchingOptimizer",),
    "mlsysim.search.placement": ("PlacementOptimizer",),
    "mlsysim.search.optimize": ("optimize", "pareto"),
    "mlsysim.engine.engine": ("Engine",),
    "mlsysim.calibrate.validate": ("validate",),
    "mlsysim.engine.scenario": ("Scenario", "Scenarios", "SystemEvaluation"),
    "mlsysim.engine.pipeline": ("CompositionError", "Pipeline"),
    "mlsysim.engine.explain": ("explain",),
    "mlsysim.ask": ("compare", "plan", "rl", "serve", "sweep", "train"),
    "mlsysim.importers.hf": ("import_config",),
    "mlsysim.importers.model": ("import_model", "read_model"),
    "mlsysim.importers.user_zoo": ("check_user_zoo", "save_model"),
    "mlsysim.systems.registry": ("Systems",),
    "mlsysim.systems.types": ("Fleet", "NetworkFabric", "Node"),
}  # fmt: skip

# Resolvers of walls beyond those above are found by the catalogue.
_CATALOGUE = "mlsysim.core.solver"

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted([*_HOME_OF, "__version__"])


_INSTEAD = dict.fromkeys(
    ("eval", "evaluate", "inference"),
    "; one pass is SingleNodeModel().solve('Llama3_8B', 'H100', efficiency='calibrated')",
)
"""What says here what a command is called."""


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None and name.endswith(("Model", "Solver", "Optimizer")):
        home = _CATALOGUE if name in import_module(_CATALOGUE).__all__ else None
    if home is None:
        raise AttributeError(f"module 'mlsysim' has no attribute {name!r}{_INSTEAD.get(name, '')}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
