"""What a plan could run on: of each chip the least number that does what was asked, with the answer to that plan.

A run by a deadline and a service for a rate are sized as ``plan`` sizes them (:mod:`mlsysim.plans.least_fleet`,
:mod:`mlsysim.plans.least_service`). Any other service that has limits gets the least power of two of a chip that keeps them. What has no such
goal gets as many as it has now, or more where those do not do. One pass runs on one chip. Splits are searched anew, since that of
one chip is seldom the best of another, and figures that were edited stay with the chip they were edited for.

Left out are chips of which too little is published for the task, and fleets of several chips.
"""

from __future__ import annotations

from mlsysim.errors import InputError, MLSysError, UnknownNameError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate, evaluate_plainly
from mlsysim.plans.least_fleet import CHIPS as TRAINERS
from mlsysim.plans.least_fleet import least_fleet
from mlsysim.plans.least_service import CHIPS as SERVERS
from mlsysim.plans.least_service import least_services
from mlsysim.plans.metrics import Metric
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets
from mlsysim.plans.training_layout import BESIDE
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si

_MORE = 8
"""How many times as many as there are now may be needed of another chip."""
_NEAR = 64.0
"""A chip whose memory is within this factor of the plan's own is of its kind: one does not look for a datacentre in a doorbell."""


@dataclass(frozen=True)
class Machine:
    """So many of a chip, and the answer; without one, why there is none."""

    chip: str
    name: str
    count: int = 0
    answer: Answer | None = None
    reason: str = ""

    def metric(self, what: str) -> Metric | None:
        """Its speed (a time), price, carbon or room as a metric of the answer; None where that is not known."""
        if self.answer is None:
            return None
        held, run = self.answer.held, self.answer.plan.workload.tokens is not None
        found = {
            "time": held.get("run_time") if run else held.get("latency"),
            "price": self.answer.paid
            if run
            else held.get("usd_per_mtoken") or self.answer.paid or held.get("purchase"),
            "carbon": held.get("carbon_footprint") or held.get("carbon_per_million"),
        }
        return found[what]

    @property
    def spare(self) -> float | None:
        """Share of an accelerator's memory that is left."""
        memory = None if self.answer is None else self.answer.memory
        return None if memory is None else 1 - sum(part.value for part in memory.parts) / memory.capacity

    @property
    def state(self) -> str:
        """As a ruling has it: holds, open (too close to call), fails; none where there is no answer."""
        return "none" if self.answer is None else self.answer.ruling.state


def chips_for(plan: Plan) -> tuple[str, ...]:
    """Chips worth asking for, the plan's own first: those that ``plan`` tries, and for one pass all that are of its kind."""
    own = [fleet.node.accelerator for fleet in find_fleets(plan.hardware).fleets]
    if plan.kind == "inference":
        near = [chip for chip in Hardware if any(_alike(chip, mine) for mine in own)]
        return tuple(dict.fromkeys(_key(chip) for chip in (*own, *near)))
    usual = SERVERS if plan.kind == "serving" else TRAINERS
    return tuple(dict.fromkeys((*(_key(chip) for chip in own), *usual)))


def machine_for(plan: Plan, chip: str) -> Machine:
    """The least of a chip that would do, or why none does."""
    name = Hardware.get(chip).name
    try:
        found = _least(_on(plan, chip), chip, find_fleets(plan.hardware).accelerators)
        if isinstance(found, str):
            return Machine(chip, name, reason=found)
        answer = evaluate(found, change=False)
    except MLSysError as error:
        return Machine(chip, name, reason=str(error))
    return Machine(chip, name, find_fleets(answer.plan.hardware).accelerators, answer)


_OF_A_CHIP = ("on", "name", "nodes", "accelerators", "chip", "fabric", "stack")
_OF_A_FLEET = ("replicas", "decode_on", "decode_replicas")


def _on(plan: Plan, chip: str) -> Plan:
    """The plan on one of a chip, without what belongs to the chips that it is on: their number, split and edited figures."""
    document = plan.document()
    around = {name: value for name, value in document.get("hardware", {}).items() if name not in _OF_A_CHIP}
    parts = {
        "hardware": around | {"on": f"1x{chip}"},
        "parallelism": {name: value for name, value in document.get("parallelism", {}).items() if name in BESIDE},
        "serving": {name: value for name, value in document.get("serving", {}).items() if name not in _OF_A_FLEET},
    }
    return Plan.model_validate(
        {**{k: v for k, v in document.items() if k not in parts}, "task": plan.kind}
        | {k: v for k, v in parts.items() if v}
    )


def _least(plan: Plan, chip: str, now: int) -> Plan | str:
    if plan.kind == "training" and plan.ops.deadline is not None and plan.workload.tokens is not None:
        (fleet,) = least_fleet(plan, [chip], evaluate_plainly)
        return fleet.reason if fleet.answer is None else fleet.answer.plan
    part = plan.serving
    if plan.kind == "serving" and part is not None and (part.qps is not None or part.trace is not None):
        service = least_services(plan, [chip])[0]
        return service.reason if service.answer is None else service.answer.plan
    return plan if plan.kind == "inference" else _tried(plan, chip, now)


def _tried(plan: Plan, chip: str, now: int) -> Plan | str:
    """The first number that fits and keeps every limit, from as many as there are now on, or from one on where a service has limits; where none
    keeps them, the most that fit of at most as many as there are now."""
    node = parse_fleet(f"64x{chip}").one.node.accelerators_per_node
    count = now if now < node else -(-now // node) * node
    most = max(count, node) * _MORE
    reason, fits, limited = "", None, False
    while count <= most:
        tried = plan.replacing(hardware={"on": f"{count}x{chip}"})
        try:
            answer = evaluate(tried, change=False)
        except UnknownNameError as error:
            return str(error)  # a figure that the plan limits, such as its price, is not known of it
        except InputError as error:
            reason = reason or str(error)
        else:
            if plan.kind == "serving" and answer.checks and not limited:
                limited, count = True, 1
                continue
            if answer.feasible and answer.ruling.state != "fails":
                return tried
            reason = reason if answer.feasible else answer.headline
            fits = tried if answer.feasible and (fits is None or count <= now) else fits
        count *= 2
    return fits or reason


def _alike(chip: HardwareNode, mine: HardwareNode) -> bool:
    memory, own = to_si(chip.memory.capacity, "byte"), to_si(mine.memory.capacity, "byte")
    return own / _NEAR <= memory <= own * _NEAR


def _key(chip: HardwareNode) -> str:
    return str(chip.metadata.key)
