"""What the time of a request is called: the first token, then the answer, and what either waits for.

Parts of both are named by the phase that they belong to (``first token: products``, ``answer: caches``), so that the parts of
the time to the first token and those of a further token are read off one ledger, which adds up to the whole request.

Losses are made of other requests' steps: the step that runs when a prompt arrives, prompts ahead in the queue (wall 7), prompts
of others between two tokens (wall 4), and answers that must end before a cache has a place (wall 5).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlsysim.cases.algebra import Seconds
from mlsysim.cases.ledger import Ledger, Part, added

MEMORY, SOFTWARE, SERVING, BATCHING, TAIL, COMMUNICATION = 2, 3, 4, 5, 7, 14

FIRST, ANSWER = "first token", "answer"
FRONT_END, COLD_START, HAND_OVER = f"{FIRST}: front end", f"{FIRST}: cold start", f"{FIRST}: hand-over of the cache"
RECALL = f"{FIRST}: caches from the host"
RUNNING, QUEUE, PLACE = f"{FIRST}: the running step", f"{FIRST}: queue of prompts", f"{FIRST}: waiting for a place"
AHEAD = f"{FIRST}: prompts of others"
OTHERS, AGAIN = f"{ANSWER}: prompts of others", f"{ANSWER}: reading again what had no room"


def value_of(time: Any) -> Any:
    """A time as a number, for what is decided by it: loads, windows and batches are no parts of a time."""
    return time.value if isinstance(time, Seconds) else time


def of_phase(ledger: Ledger, phase: str) -> Ledger:
    """The parts of one phase by their own names, and what they add up to."""
    parts = tuple(part for part in ledger.parts if part.name.startswith(f"{phase}: "))
    return Ledger(added(part.exposed for part in parts), parts).renamed(lambda name: name.removeprefix(f"{phase}: "))


def work_of(base: Ledger, phase: str, seconds: float, *skip: str) -> list[Part]:
    """Parts of a phase that are work, in the case's proportions, together so many seconds."""
    begins = f"{phase}: "
    own = [p for p in base.parts if p.name.startswith(begins) and p.resource and p.name not in skip and p.exposed > 0]
    total = added(part.exposed for part in own)
    return scaled(own, seconds) if total > 0 and seconds > 0 else []


def scaled(parts: list[Part], seconds: float) -> list[Part]:
    """Parts in their proportions, together so many seconds."""
    total = added(part.exposed for part in parts)
    if not total > 0:
        return []
    by = seconds / total
    amounts = ("exposed", "hidden", "flop", "moved", "sent", "joules")
    return [replace(part, **{name: getattr(part, name) * by for name in amounts}) for part in parts]
