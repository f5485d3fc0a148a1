"""Changes of a plan on several kinds of accelerator, and the rounds of candidates for any plan."""

from __future__ import annotations

from collections.abc import Iterator

from mlsysim.plans.answer import Answer
from mlsysim.plans.change_candidates import SUCCESSORS, Candidate, Holds, Rounds, fewest, narrower
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets


def _of_groups(plan: Plan, answer: Answer, holds: Holds) -> Rounds:
    """Of several kinds of accelerator: a narrower format, one kind left out; the next generation of one, or more of it."""
    texts, fleets = [piece.strip() for piece in (plan.hardware.on or "").split("+")], find_fleets(plan.hardware).fleets
    keys = [fleet.node.accelerator.metadata.key or "" for fleet in fleets]
    counts = [fleet.total_accelerators for fleet in fleets]

    def on(place: int, *instead: str) -> Plan:
        return plan.replacing(hardware={"on": " + ".join([*texts[:place], *instead, *texts[place + 1 :]])})

    def newer() -> Iterator[Candidate]:
        for place, key in enumerate(keys):
            for name in SUCCESSORS.get(key.split("_")[0], ()):
                if name not in keys:
                    yield Candidate(f"{name} instead of {key}", on(place, f"{counts[place]}x{name}"))

    def more() -> Iterator[Candidate]:
        for place, (key, own) in enumerate(zip(keys, counts, strict=True)):
            tried = [own * 2**power for power in range(1, _DOUBLED)] if key else []
            enough = fewest(tried, lambda count, place=place, key=key: holds(on(place, f"{count}x{key}")))  # type: ignore[misc]
            if enough is not None:
                yield Candidate(f"{enough:,} x {key} instead of {own:,}", on(place, f"{enough}x{key}"))

    what, formats = ("compute", ("fp8",)) if answer.task == "training" else ("weights and arithmetic", ("fp8", "int8"))
    without = [Candidate(f"{fleet.name} left out", on(place)) for place, fleet in enumerate(fleets)]
    yield [*narrower(plan, answer, what, formats), *without]
    yield list(newer())
    if not answer.passed:
        yield list(more())


_DOUBLED = 6
"""How often a group is doubled at most where more of it are tried, and one more."""


def rounds_of(plan: Plan, answer: Answer, holds: Holds) -> Rounds:
    """Rounds of candidates for a plan; those of a task are loaded where it is asked for."""
    if len(find_fleets(plan.hardware).fleets) > 1:
        return _of_groups(plan, answer, holds)
    if answer.task in ("training", "rl"):
        from mlsysim.plans.change_training import of_post_training, of_training

        return (of_training if answer.task == "training" else of_post_training)(plan, answer, holds)
    from mlsysim.plans.change_services import of_a_service, of_one_pass

    return (of_a_service if answer.task == "serving" else of_one_pass)(plan, answer, holds)
