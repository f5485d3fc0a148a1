"""What an answer rules: whether what the plan asked for holds, does not, or is too close to call, and why.

The subject is what was asked: a deadline, a budget, limits on times, a rate, an assertion; where nothing was, that it fits. A limit that lies
inside of the 90 % interval is too close to call, whichever side the estimate is on. Where failures cost a run more than any
wall of its step, that comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from mlsysim.units.fields import Record
from mlsysim.units.text import listed

if TYPE_CHECKING:
    from mlsysim.plans.answer import Answer
    from mlsysim.plans.pieces import Checked

State = Literal["holds", "fails", "open"]
LOST = 0.05
"""Share of a run that failures and checkpoints must take to be told of first."""
_SHOWN = 3
_NAMED = 0.01
_LIMIT = re.compile(r", (and at (least|most) .+ asked for|within the (limit|deadline|budget) .+)\.$")
"""What a sentence on a limit that holds says of the limit itself, which the claim has said."""
_UNITS = ((60 * 86400.0, 86400.0, "days"), (36000.0, 3600.0, "hours"), (0.0, 60.0, "minutes"))


class Ruling(Record):
    """A state, what is claimed in a few words, the sentences behind it, and the odds that it holds where it is open."""

    state: State
    claim: str
    because: tuple[str, ...] = ()
    odds: float | None = None


_WORDS: dict[State, tuple[str, str]] = {
    "fails": ("does not hold", "do not hold"),
    "open": ("is too close to call", "are too close to call"),
    "holds": ("holds", "hold"),
}
"""States of one limit and of several, in words."""


def ruling_of(answer: Answer) -> Ruling:
    """The ruling of an answer."""
    claim, _, why = answer.headline.partition(": ")
    decides = _deciding(answer.checks)
    close = answer.overloaded and decides is not None and not decides.certain
    if not answer.feasible and not close:
        return Ruling(state="fails", claim=f"{claim}.", because=(_capital(why),))
    lost = tuple(_lost(answer))
    if decides is None:
        kept = [check.asked for check in answer.checks if check.asked][:_SHOWN]
        if not kept:
            return Ruling(state="holds", claim=_failures(answer).strip() or "Fits.", because=(*lost, _capital(why)))
        more = len(answer.checks) - len(kept)
        wanted = listed([*kept, f"{more} more"] if more else kept)
        told = tuple(_LIMIT.sub(".", check.sentence) for check in answer.checks[:_SHOWN])
        return Ruling(state="holds", claim=f"{_failures(answer)}Holds: {wanted}.", because=(*told, *lost))
    others = [check.state for check in answer.checks if check is not decides]
    why = decides.sentence if decides.certain else decides.sentence.replace("; too close to call: its", "; its")
    because = (why, *([_rest(others)] if others else []), *lost)
    if decides.certain:
        return Ruling(state="fails", claim=f"{_failures(answer)}Does not hold: {decides.asked}.", because=because)
    claim = f"{_failures(answer)}Too close to call: {decides.asked}, with odds of {decides.odds:.0%} that it holds."
    return Ruling(state="open", claim=claim, because=because, odds=decides.odds)


def _rest(states: list[State]) -> str:
    """What becomes of the other limits.

    >>> _rest(["holds"]), _rest(["open", "open"]), _rest(["holds", "fails", "holds"])
    ('The other limit holds.', 'The other 2 limits are too close to call.', 'Of the other 3 limits 1 does not hold and 2 hold.')
    """
    counted = {state: states.count(state) for state in _WORDS if state in states}
    told = [_WORDS[state][number > 1] for state, number in counted.items()]
    if len(counted) == 1:
        return f"The other {f'{len(states)} limits' if len(states) > 1 else 'limit'} {told[0]}."
    each = [f"{number} {words}" for number, words in zip(counted.values(), told, strict=True)]
    return f"Of the other {len(states)} limits {listed(each)}."


def _deciding(checks: tuple[Checked, ...]) -> Checked | None:
    """The demand that decides: one that surely is not kept, else the one with the lowest odds of those that are open."""
    sure = next((check for check in checks if not check.passed and check.certain), None)
    unsure = (check for check in checks if not check.certain)
    return sure or min(unsure, key=lambda check: check.odds or 0.0, default=None)


def _failures(answer: Answer) -> str:
    return "Failures decide, not the chips. " if answer.binding.limit == "goodput" else ""


def _lost(answer: Answer) -> Iterator[str]:
    """What of a run is work, and what the rest goes to, where that is much."""
    whole = sum(part.value for part in answer.run_parts)
    if not whole or answer.run_parts[0].value > (1 - LOST) * whole:
        return
    useful, *parts = answer.run_parts
    kinds: dict[str, float] = {}
    for part in parts:
        kind = part.label.rpartition(": ")[2]
        kinds[kind] = kinds.get(kind, 0.0) + part.value
    largest = sorted(kinds.items(), key=lambda each: -each[1])
    _, size, unit = next(each for each in _UNITS if whole >= each[0])
    taken = [f"{value / size:,.3g} to {kind}" for kind, value in largest if value >= _NAMED * whole]
    told = any(check.limit == "goodput" for check in answer.checks)
    share = "" if told else f" (goodput {answer.metric('goodput').text})"
    first, *others = taken
    goes = listed([first.replace(" to ", " go to ", 1), *others])
    yield f"Of {whole / size:,.4g} {unit} {useful.value / size:,.3g} are work{share}; {goes}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
