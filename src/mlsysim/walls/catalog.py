"""The 22 walls, collected from their modules, and the resolvers that answer them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.walls.base import ALGORITHM, ANALYSIS, DATA, FLEET, NODE, OPERATIONS, Domain, Wall

__all__ = [
    "DOMAINS",
    "MODULES",
    "RESOLVERS",
    "TITLES",
    "resolver",
    "taxonomy",
    "wall",
    "walls",
    "walls_for_resolver",
    "walls_in_domain",
]

DOMAINS: tuple[Domain, ...] = (NODE, DATA, ALGORITHM, FLEET, OPERATIONS, ANALYSIS)

MODULES = (
    "node.compute_memory",
    "node.software",
    "node.serving",
    "node.batching",
    "node.streaming",
    "node.tail",
    "data.ingestion",
    "data.transform",
    "data.locality",
    "algorithm.complexity",
    "algorithm.reasoning",
    "algorithm.fidelity",
    "fleet.communication",
    "fleet.fragility",
    "fleet.tenancy",
    "operations.capital",
    "operations.sustainability",
    "operations.checkpoint",
    "operations.safety",
    "analysis.sensitivity",
    "analysis.synthesis",
)

TITLES: dict[int, tuple[str, str]] = {
    1: ("Compute", "Node"),
    2: ("Memory", "Node"),
    3: ("Software", "Node"),
    4: ("Serving", "Node"),
    5: ("Batching", "Node"),
    6: ("Streaming", "Node"),
    7: ("Tail Latency", "Node"),
    8: ("Ingestion", "Data"),
    9: ("Transformation", "Data"),
    10: ("Locality", "Data"),
    11: ("Complexity", "Algorithm"),
    12: ("Reasoning", "Algorithm"),
    13: ("Fidelity", "Algorithm"),
    14: ("Communication", "Fleet"),
    15: ("Fragility", "Fleet"),
    16: ("Multi-tenant", "Fleet"),
    17: ("Capital", "Operations"),
    18: ("Sustainability", "Operations"),
    19: ("Checkpoint", "Operations"),
    20: ("Safety", "Operations"),
    21: ("Sensitivity", "Analysis"),
    22: ("Synthesis", "Analysis"),
}
"""Name and domain of each wall, for those who need no more of a card: its module is then not imported."""

RESOLVERS: dict[str, str] = {
    "SingleNodeModel": "mlsysim.walls.node.compute_memory",
    "EfficiencyModel": "mlsysim.walls.node.software",
    "ServingModel": "mlsysim.walls.node.serving",
    "ContinuousBatchingModel": "mlsysim.walls.node.batching",
    "WeightStreamingModel": "mlsysim.walls.node.streaming",
    "TailLatencyModel": "mlsysim.walls.node.tail",
    "DataModel": "mlsysim.walls.data.ingestion",
    "TransformationModel": "mlsysim.walls.data.transform",
    "TopologyModel": "mlsysim.walls.data.locality",
    "ScalingModel": "mlsysim.walls.algorithm.complexity",
    "InferenceScalingModel": "mlsysim.walls.algorithm.reasoning",
    "CompressionModel": "mlsysim.walls.algorithm.fidelity",
    "DistributedModel": "mlsysim.walls.fleet.communication",
    "ReliabilityModel": "mlsysim.walls.fleet.fragility",
    "OrchestrationModel": "mlsysim.walls.fleet.tenancy",
    "EconomicsModel": "mlsysim.walls.operations.capital",
    "SustainabilityModel": "mlsysim.walls.operations.sustainability",
    "CheckpointModel": "mlsysim.walls.operations.checkpoint",
    "ResponsibleEngineeringModel": "mlsysim.walls.operations.safety",
    "SensitivitySolver": "mlsysim.walls.analysis.sensitivity",
    "SynthesisSolver": "mlsysim.walls.analysis.synthesis",
    "TrainingMemoryModel": "mlsysim.walls.node.training_memory",
    "ServingCapacityModel": "mlsysim.walls.node.serving_capacity",
    "MoERoutingModel": "mlsysim.walls.fleet.moe_routing",
    "NetworkRooflineModel": "mlsysim.walls.fleet.network_roofline",
}
"""Models, solvers and companions, and the module of each. The three optimizers live in ``mlsysim.search``."""


def walls() -> tuple[Wall, ...]:
    """The cards of all walls, by number."""
    cards = [card for module in MODULES for card in import_module(f"mlsysim.walls.{module}").CARDS]
    return tuple(sorted(cards, key=lambda card: card.number))


def wall(number: int) -> Wall:
    """The card of one wall."""
    for card in walls():
        if card.number == number:
            return card
    raise InputError(f"There is no wall {number!r}; they are numbered 1 to 22.")


def walls_for_resolver(name: str) -> tuple[Wall, ...]:
    """The walls that a resolver answers."""
    if name not in RESOLVERS:
        raise unknown_name("resolver", name, RESOLVERS)
    return tuple(card for card in walls() if card.resolver == name)


def walls_in_domain(domain: Domain | str) -> tuple[Wall, ...]:
    """The walls of one domain."""
    name = domain.name if isinstance(domain, Domain) else domain
    names = {d.name.lower(): d for d in DOMAINS}
    if str(name).lower() not in names:
        raise unknown_name("domain", name, [d.name for d in DOMAINS])
    return tuple(card for card in walls() if card.domain is names[str(name).lower()])


def taxonomy() -> dict[str, list[Wall]]:
    """The walls by domain."""
    return {domain.name: list(walls_in_domain(domain)) for domain in DOMAINS}


def resolver(name: str) -> Any:
    """The class of a resolver."""
    if name not in RESOLVERS:
        raise unknown_name("resolver", name, RESOLVERS)
    return getattr(import_module(RESOLVERS[name]), name)
