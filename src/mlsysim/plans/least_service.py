"""The least service: how few accelerators answer a traffic within its limits, for each chip.

The closed form ranks designs (:mod:`mlsysim.plans.designs`): it knows the fewest replicas that keep up and whose means lie within the limits, and no higher
percentile is below them. The simulation decides: the cheapest is played with more and more replicas until it keeps every limit, and is taken where
nothing that is left could be cheaper. Where limits are on means alone, the closed form decides.

Each service that is found is a plan that ``serve`` repeats.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from mlsysim.errors import InputError, UnknownNameError
from mlsysim.plans.answer import Answer
from mlsysim.plans.designs import ChipDesigns, Design, Tell, price
from mlsysim.plans.least_fleet import outline
from mlsysim.plans.plan import Plan
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.units.records import dataclass
from mlsysim.walls.document import Summary
from mlsysim.walls.inputs import CALIBRATED

_SURE = 0.9
"""Odds of a service that one can count on."""
CHIPS = ("A100", "L40S", "H100", "H200", "B200", "MI300X")
_SHOWN, _DEARER, _MORE = 5, 2.0, 8
"""Services that are shown (and one of each chip), how many times as much as the cheapest they cost, and replicas that the last may be given."""


@dataclass(frozen=True)
class Service(Summary):
    """The least service of a chip and a layout of its replicas, or why there is none."""

    told: ClassVar = (
        *("chip", "accelerators", "layout", "replicas", "price_a_day", "headroom", "headroom_qps"),
        *("odds", "reason", "headline", "metrics", "plan", "answer"),
    )

    chip: str
    design: Design | None = None
    answer: Answer | None = None
    reason: str = ""
    headroom: float | None = None
    """How many times the rate that is asked for first misses a limit."""

    @property
    def replicas(self) -> int:
        return int(self.answer.layout["replicas"]) if self.answer is not None else 0

    @property
    def accelerators(self) -> int:
        if self.answer is None or self.answer.plan.serving is None:
            return 0
        on = (self.answer.plan.hardware.on, self.answer.plan.serving.decode_on)
        return sum(parse_fleet(text).accelerators for text in on if text is not None)

    @property
    def price(self) -> float:
        """What a day costs."""
        return math.inf if self.answer is None else price(self.answer)

    @property
    def odds(self) -> float | None:
        """The probability that every limit is kept, where errors of times go together."""
        checks = () if self.answer is None else self.answer.checks
        return min((check.odds for check in checks if check.odds is not None and check.limit != "budget"), default=None)

    @property
    def too_dear(self) -> str:
        """By how much it costs more than the budget, in words."""
        checks = () if self.answer is None else self.answer.checks
        return next((check.sentence for check in checks if check.limit == "budget" and not check.passed), "")

    def to_dict(self) -> dict[str, Any]:
        return self.outline() | {"answer": None if self.answer is None else self.answer.to_dict()}

    def outline(self) -> dict[str, Any]:
        """What it is, what it is for, and the plan that ``serve`` repeats, as JSON."""
        asked = None if self.answer is None else self.answer.layout.get("qps")
        return {
            "chip": self.chip,
            "accelerators": self.accelerators or None,
            "layout": None if self.design is None else self.design.text,
            "replicas": self.replicas or None,
            "price_a_day": self.price if self.price < math.inf else None,
            "headroom": self.headroom,
            "headroom_qps": None if self.headroom is None or asked is None else self.headroom * asked,
            "odds": self.odds,
            "reason": self.reason or None,
            **outline(self.answer),
        }


def least_services(plan: Plan, chips: Sequence[str], tell: Tell = lambda words: None) -> list[Service]:
    """The services that keep the plan's limits, cheapest first and at least one of each chip that has one, then those chips that have none.

    The first has the whole answer to its plan; others are simulated with fewer requests.
    """
    part = plan.serving
    if part is None or (part.qps is None and part.trace is None):
        raise InputError("A least service needs the requests that come: qps, or a trace.", field="qps")
    if plan.hardware.efficiency not in (None, CALIBRATED):
        raise InputError(
            "At first order nothing queues, so no service is least; leave the efficiency out.", field="efficiency"
        )
    streams = {chip: ChipDesigns(plan, chip, tell) for chip in dict.fromkeys(chips)}
    found, none, heads = list[Design](), list[Service](), list[tuple[tuple[float, int], int, str, Design]]()
    lines = {chip: stream.designs() for chip, stream in streams.items()}

    def advance(chip: str) -> bool:
        design = next(lines[chip], None)
        if design is not None:
            heapq.heappush(heads, (streams[chip].cost(design), len(heads) + len(found), chip, design))
        return design is not None

    for chip, stream in streams.items():
        if not advance(chip):
            none.append(Service(chip, reason=stream.reason))
    most = _DEARER * min((head[0][0] for head in heads), default=0.0)
    while heads and len(found) < _SHOWN and heads[0][0][0] <= most:
        *_, chip, design = heapq.heappop(heads)
        found.append(design)
        if len(found) < _SHOWN:
            advance(chip)
    have = {design.chip for design in found}
    for *_, chip, design in sorted(heads, key=lambda head: head[:2]):
        if chip not in have:
            have.add(chip)
            found.append(design)
    services = []
    for design in found:
        stream = streams[design.chip]
        try:
            services.append(Service(design.chip, design, stream.answer(design), "", stream.headroom(design)))
        except UnknownNameError as error:
            # A figure that the plan limits, such as its cost, is not known of the chip.
            none += [Service(design.chip, reason=str(error))] if design.chip not in {each.chip for each in none} else []
    services.sort(key=lambda each: (*_rounded(each.price), each.accelerators, -(each.headroom or 0)))
    if any(not each.too_dear for each in services):
        kept = [each for each in services if not each.too_dear]
        have = {each.chip for each in kept}
        dear = {each.chip: each for each in reversed(services) if each.chip not in have}
        none += [
            Service(each.chip, reason=f"{each.design.text}: {each.too_dear}") for each in dear.values() if each.design
        ]
        services = kept
    return [*_first_whole(services, streams), *none]


def _rounded(price: float) -> tuple[bool, float]:
    """Prices that differ by what little energy a layout saves are the same."""
    return price == math.inf, 0.0 if price == math.inf else round(price, 1 - int(math.log10(max(price, 1.0))))


def _first_whole(services: list[Service], streams: dict[str, ChipDesigns]) -> list[Service]:
    """The services with the whole answer of the first that keeps its limits for many requests too; those before it drop out."""
    for place, service in enumerate(services):
        design = service.design
        for _ in range(_MORE if place == len(services) - 1 else 1):
            assert design is not None
            stream = streams[service.chip]
            if (answer := stream.whole(design)) is not None:
                return [replace(service, design=design, answer=answer), *services[place + 1 :]]
            design = design.more("", 1).filled(stream.spare)
    return services


def described(found: Sequence[Service], names: Sequence[str], limited: bool) -> tuple[str, bool]:
    """The outcome in a sentence, and whether something keeps every limit, where there are any, and the budget."""
    does = "keeps every limit" if limited else "carries the traffic"
    best = next((each for each in found if each.answer is not None), None)
    if best is None or best.answer is None or best.design is None:
        return f"No service on {', '.join(names)} {does}.", False
    of_all = "cheapest" if best.price < math.inf else "smallest"
    what = f"{best.accelerators:,} x {best.chip} ({best.design.text}) is the {of_all} service"
    missed = next((check.sentence for check in best.answer.checks if not check.passed), None)
    if missed is not None:
        return f"{what} that {does}{' on times' * limited}. {missed}", False
    # Odds that round to what is sure are below it.
    odds = f"{min(best.odds or 0.0, _SURE - 0.01 if (best.odds or 0.0) < _SURE else 1.0):.0%}"
    least = min((each for each in found if each.answer is not None), key=lambda each: each.accelerators)
    fewer = "" if least.accelerators == best.accelerators else f" The fewest are {least.accelerators:,} x {least.chip}."
    sure = next((each for each in found if each.design and each.odds is not None and each.odds >= _SURE), None)
    safer = ""
    if sure is not None and sure.design is not None and best.odds is not None and best.odds < _SURE:
        safer = f" Its odds are {odds}; the {of_all} of {_SURE:.0%} or more is {sure.accelerators:,} x {sure.chip} ({sure.design.text})."
    elif sure is None and best.odds is not None:
        safer = f" Its odds are {odds}, and none of those tried has {_SURE:.0%}."
    return f"{what} that {does}.{safer}{fewer}", True
