"""Error bars: how far predictions of each kind were from measurements that their constants had not seen.

``data/intervals.toml`` holds for each regime (a kind of work) the factor either way within which 90 % of left-out measurements lay, by what the
constants had not seen of them: only the run itself (``part``), its architecture (``model``), its ``chip``, any kernel of the chip's generation
(``kernels``), any processor that is no accelerator (``cpu``), its ``software``, that software in its ``format``, or a setting that had to be inferred (``settings``). ``interval(regime, "model", "chip")`` is the band of a question that shares neither with the data. Half-widths w, in
logarithms, add in squares, since what each lacks is independent of the others:

    w^2 = w_part^2 + sum over k of max(w_k^2 - w_part^2, 0)

What others ran, whose settings are told in part, scatters more: ``data/others.toml`` has by how much runs of houses whose rows no constant saw
(``elsewhere``), and those of software without fitted runs (``unfitted``), lay outside of such bands. Their squares are added whole.

A regime is a path of words. A key with few rows is not in the file; the path without its last word has it, in the end ``any``. Where no whole run on a
chip without measured kernels is in the regime or above it, what that adds is what it adds to measured kernels.
"""

import math
import re
from functools import cache
from typing import Any

from mlsysim.units.fields import Record
from mlsysim.zoo.files import entries, parse_slice, shipped

ALL = "any"
STRANGE = ("chip", "kernels", "cpu")
"""What of a chip constants may not have seen: runs on it, kernels of its generation, anything that is no accelerator."""
OTHERS = ELSEWHERE, UNFITTED = "elsewhere", "unfitted"
PROMPTS = "prompts of unfitted"
"""Software without fitted runs where a request ends with its first token: what others found of first tokens tells of prompts, the rest of answers."""
COLD = "cold"
"""A word of regimes: first tokens of an engine that compiles kernels when the first full step comes, and was not warmed up."""
UNSEEN = ("model", *STRANGE, "software", "format", "settings", *OTHERS)
"""What constants may not have seen."""
LEFT_OUT = ("serving ", "training ")
"""Regimes whose fits leave parts of the rows out in turn. Others have few constants for their rows: what was left out of them is a model or a chip,
and ``part`` is as answered, by constants that may have seen the row."""


class Interval(Record):
    """Factors on a prediction between which 90 % of measurements lay; ``wider`` is the half-width over that of a question
    whose model, chip, software and settings are all known; ``extrapolating`` where nothing of the regime was measured, or nothing on the chip."""

    low: float
    high: float
    rows: int
    regime: str
    unseen: tuple[str, ...] = ()
    wider: float = 1.0
    extrapolating: bool = False

    def around(self, predicted: float, least: float = 0.0) -> tuple[float, float]:
        """The band around a predicted value, which cannot be below the ``least`` unless the prediction is."""
        return max(predicted * self.low, min(least, predicted)), predicted * self.high

    def with_part(self, part: "Interval", share: float) -> "Interval":
        """The same where a share of what is predicted errs by itself too, to first order."""
        low, high = independent(self.factors, to_power(part.factors, share)) or self.factors
        return self.model_copy(
            update={"low": low, "high": high, "wider": self.wider * math.log(high) / math.log(self.high)}
        )

    @property
    def factors(self) -> "Factors":
        return self.low, self.high

    @property
    def key(self) -> str:
        """The regime, and what of the question was not seen."""
        return f"{self.regime}, not seen: {', '.join(self.unseen)}" if self.unseen else self.regime

    def resting_on(self, of: str, **why: str) -> str:
        """What the band rests on, in words: 90 % of measurements, and by how much what was not seen widens it."""
        said = "; ".join(why[kind] for kind in self.unseen if kind in why)
        wider = self.wider >= 1.05 and f"{self.wider:.1f} times as wide"
        if self.extrapolating:
            said = (
                f"{said}; the interval is {f'{wider} as' if wider else 'no wider than'} that of"
                if said
                else "nothing of this kind was left out; the interval is that of"
            )
            return f"extrapolating: {said} {self.rows:,} {of if self.unseen else 'measurements of other kinds'}"
        without = ", each left out of the fit," if self.regime.startswith(LEFT_OUT) else ""
        known = f"90 % of {self.rows:,} {of}{without} fell within the interval"
        return f"{known}; {said}, {f'so it is {wider}' if wider else 'but it is no wider'}" if said else known


Factors = tuple[float, float]
"""Ends of an interval over the value."""


def independent(*bands: Factors | None) -> Factors | None:
    """The interval of a product of values whose errors are independent: logarithms add in squares. A band that is None is not
    known, and adds nothing; all of them None give None."""
    known = [band for band in bands if band is not None]
    low, high = (math.hypot(*(math.log(band[side]) for band in known)) for side in (0, 1))
    return (math.exp(-low), math.exp(high)) if known else None


def to_power(band: Factors | None, share: float) -> Factors | None:
    """The interval of a sum of which a share has this one, to first order."""
    return band and (band[0] ** share, band[1] ** share)


def entry_name(regime: str) -> str:
    """What a regime is called in the file."""
    return re.sub(r"\W+", "_", regime)


def paths(regime: str) -> list[str]:
    """A regime and the wider ones that it belongs to."""
    words = regime.split(" ")
    return [" ".join(words[:n]) for n in range(len(words), 0, -1)] + [ALL]


@cache
def _keys(regime: str) -> dict[str, Any]:
    found = entries("mlsysim.data", "intervals.toml").get(entry_name(regime))
    return {} if found is None else parse_slice(found)


def measured(regime: str) -> bool:
    """Whether a regime has a band of its own."""
    return "part" in _keys(regime)


def known(regime: str, what: str) -> frozenset[str]:
    """``models`` that were measured, or ``formats`` of software, of a regime that lists them."""
    return frozenset(_keys(regime).get(what, ()))


def of_others() -> dict[str, Any]:
    """The table of what others ran: ``houses`` whose rows are among those of the fits, and bands by regime."""
    return shipped("mlsysim.data", "others.toml")


def houses() -> frozenset[str]:
    """Who published rows that constants were fitted on."""
    return frozenset(of_others().get("houses", ()))


def widening(regime: str, kind: str) -> Factors:
    """What it adds to an interval that others ran something."""
    half = math.sqrt(_widened(regime, kind)[0])
    return math.exp(-half), math.exp(half)


def _widened(regime: str, kind: str) -> tuple[float, int]:
    """What not having seen something adds to the square of a half-width, and the rows that say so."""
    if kind == PROMPTS:
        return _widened("serving ttft", UNFITTED)
    if kind in OTHERS:
        found = (of_others().get(entry_name(path), {}).get(kind) for path in paths(regime))
        factor, rows = next(filter(None, found), (1.0, 0))[:2]
        return math.log(factor) ** 2, rows
    for path in paths(regime):
        own = _keys(path)
        if path == ALL and kind == "kernels":
            return _widened("kernel", "chip")[0], 0
        if kind in own and "part" in own:
            factor, rows = own[kind][:2]
            if kind == "cpu":
                # Rates on processors are few, and of one kind: all of their error is added to the regime's own.
                return math.log(factor) ** 2, 0
            return max(math.log(factor) ** 2 - math.log(own["part"][0]) ** 2, 0.0), rows
    return 0.0, 0


@cache
def interval(regime: str, *unseen: str) -> Interval:
    """The band of a regime, of a question that shares these things with no measurement."""
    nearest = next(path for path in paths(regime) if measured(path))
    far = not set(STRANGE).isdisjoint(unseen) or (nearest != regime and " " not in nearest)
    factor, rows = _keys(nearest)["part"][:2]
    known = math.log(factor)
    added = [_widened(regime, kind) for kind in unseen]
    half = math.sqrt(known**2 + sum(square for square, _ in added))
    ends = {"low": math.exp(-half), "high": math.exp(half), "rows": min([rows, *(n for _, n in added if n)])}
    return Interval(**ends, regime=regime, unseen=unseen, wider=half / known, extrapolating=far)
