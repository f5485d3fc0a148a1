"""How a case puts times together, on plain numbers or on a tape that finds the parts of the ledger.

Every time of a case is made by four operations: sums with dimensionless weights, the longer of two, the shorter of two
(inside an overlap), and a share that is not hidden. All are homogeneous of degree one in seconds, so by Euler

    T = sum_i t_i dT/dt_i

``t_i dT/dt_i`` is part i's time on the critical path. It adds up to T, lies between 0 and t_i, and over T it *is* the
elasticity of T with respect to that part: what a resource one per cent faster is worth. "Communication beyond computing"
is not that: with 1.00 s of computing over 1.05 s of gathers it says computing 1.00 and gathers 0.05, while a faster chip
gains nothing.

A case is written once against an algebra. :data:`PLAIN` gives numbers or arrays (sweeps); a :class:`Tape` runs the same
source on :class:`Seconds`, records some hundred nodes, and gives the parts in one backward sweep. Seconds without a name
cannot be added to a tape, which keeps the ledger complete. No branch of a case may depend on the algebra.

A *loss* (bubble, uneven stages, jitter, stalls, waiting) is time that is made of other parts' time. It is a part of its own in
``exposed``; in ``elastic`` its derivative passes through to what it is made of. Both columns add up to T.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from mlsysim.cases.ledger import Held, Ledger, Part
from mlsysim.physics.operators import soft_maximum
from mlsysim.timing.tags import clocked, untagged
from mlsysim.units import ops
from mlsysim.units.combined import Combined

HIDDEN_ROUNDING = 1e-12
"""Hidden seconds below this share of the gross ones are rounding."""


class Algebra(Protocol):
    """How a case puts times together. Kernels and ``ops.maximum`` do the rest on what ``tag`` gives."""

    def tag(
        self,
        name: str,
        wall: int,
        resource: str,
        equation: str,
        seconds: Any,
        *,
        flop: Any = ...,
        moved: Any = ...,
        sent: Any = ...,
    ) -> Any:
        """Seconds with a name, a leaf of the ledger; ``amounts`` are its flop, bytes moved and bytes sent.

        An amount that only the ledger needs may be a function, which plain numbers do not call.
        """

    def under(self, phase: str) -> Callable[..., Any]:
        """``tag`` for the parts of a phase, which are named after it."""

    def roofline(self, name: str, equation: str, arithmetic: Any, memory: Any, flop: Any, moved: Any) -> Any:
        """The longer of arithmetic (wall 1) and traffic (wall 2)."""

    def loss(self, name: str, wall: int, equation: str, seconds: Any) -> Any:
        """Time that is made of other parts' time, under a name of its own."""

    def grown(self, name: str, wall: int, equation: str, base: Any, whole: Any) -> Any:
        """``base`` made longer to ``whole`` by a loss."""

    def shown(self, seconds: Any, share: Any) -> Any:
        """What of a time is not hidden, as a share of it."""

    def beside(self, total: Any, hidden: Callable[[], Any]) -> Any:
        """``total``, with something wholly hidden behind it; a function, as plain numbers need not know it."""

    def longest(self, a: Any, b: Any) -> Any:
        """The longer of two alternatives: what another device does is not on this device's ledger."""

    def plain(self, seconds: Any) -> Any:
        """The number of seconds, which leaves no trace on a ledger."""

    def once(self, key: tuple[Any, ...], make: Callable[..., Any], *values: Any) -> Any:
        """What ``make`` gives of some values; where an algebra remembers, worked out once for all that ``key`` says it depends on."""


class Plain:
    """Times are numbers, arrays or quantities; names are dropped."""

    __slots__ = ()

    tag = staticmethod(untagged)

    def under(self, phase: str) -> Callable[..., Any]:
        return untagged

    def roofline(self, name: str, equation: str, arithmetic: Any, memory: Any, flop: Any, moved: Any) -> Any:
        return ops.maximum(arithmetic, memory)

    def loss(self, name: str, wall: int, equation: str, seconds: Any) -> Any:
        return seconds

    def grown(self, name: str, wall: int, equation: str, base: Any, whole: Any) -> Any:
        return whole

    def shown(self, seconds: Any, share: Any) -> Any:
        return share * seconds

    def beside(self, total: Any, hidden: Callable[[], Any]) -> Any:
        return total

    def longest(self, a: Any, b: Any) -> Any:
        return ops.maximum(a, b)

    def plain(self, seconds: Any) -> Any:
        return seconds

    once = staticmethod(ops.each_time)


PLAIN = Plain()


class Remembering(Plain):
    """Numbers of one job in many layouts, most of which share most of what they are made of."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[tuple[Any, ...], Any] = {}

    def once(self, key: tuple[Any, ...], make: Callable[..., Any], *values: Any) -> Any:
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = make(*values)
        return found


class Combining(Plain):
    """Arrays of one job in many layouts, whose combinations of few columns are far fewer."""

    __slots__ = ("once",)

    def __init__(self) -> None:
        self.once = Combined().once


class Clocked:
    """Another algebra on a device with a lower clock."""

    __slots__ = ("of", "slower", "streaming", "tag")

    def __init__(self, of: Algebra, slower: Any, streaming: Any) -> None:
        self.of, self.slower, self.streaming = of, slower, streaming
        self.tag = clocked(of.tag, slower, streaming)

    def under(self, phase: str) -> Callable[..., Any]:
        return clocked(self.of.under(phase), self.slower, self.streaming)

    def roofline(self, name: str, equation: str, arithmetic: Any, memory: Any, flop: Any, moved: Any) -> Any:
        return self.of.roofline(name, equation, self.slower * arithmetic, self.streaming * memory, flop, moved)

    once = staticmethod(ops.each_time)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)


_NOTHING = 0.0
"""What a line has of an amount that nobody gives it."""

Line = tuple[tuple[str, int, str, str], Any, Any, Any]
"""A line of a ledger: its key (name, wall, resource, equation), and its flop, bytes moved and bytes sent."""


class Seconds:
    """A time on a tape. ``pulls`` are (earlier node, d exposed, d gross)."""

    __slots__ = ("exposed", "gross", "line", "pulls", "tape", "through", "value")
    exposed: Any
    gross: Any
    through: Any
    # An array times a taped time is a taped array, not an array of taped times.
    __array_ufunc__ = None

    def __init__(
        self,
        tape: list[Seconds],
        value: Any,
        pulls: tuple[tuple[Seconds, Any, Any], ...] = (),
        line: Line | None = None,
    ) -> None:
        self.tape, self.value, self.pulls, self.line = tape, value, pulls, line
        tape.append(self)

    def __add__(self, other: Any) -> Seconds:
        if isinstance(other, Seconds):
            return Seconds(self.tape, self.value + other.value, ((self, 1.0, 1.0), (other, 1.0, 1.0)))
        if not ops.some(other != 0):
            return self
        raise TypeError("seconds without a name cannot be added to a ledger")

    __radd__ = __add__

    def __sub__(self, other: Any) -> Seconds:
        # What is taken away is time that is hidden: it was counted where it came from.
        if isinstance(other, Seconds):
            return Seconds(self.tape, self.value - other.value, ((self, 1.0, 1.0), (other, -1.0, 0.0)))
        raise TypeError("seconds without a name cannot be taken from a ledger")

    def __mul__(self, other: Any) -> Seconds:
        if isinstance(other, Seconds):
            raise TypeError("seconds times seconds is no time")
        return Seconds(self.tape, self.value * other, ((self, other, other),))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Seconds):
            return self.value / other.value
        inverse = 1.0 / other
        return Seconds(self.tape, self.value / other, ((self, inverse, inverse),))

    def __ge__(self, other: Any) -> Any:
        return self.value >= _value(other)

    @classmethod
    def __maximum__(cls, a: Any, b: Any) -> Seconds:
        """The longer of two activities that both take place: the shorter is hidden."""
        return cls._pair(a, b, _value(a) >= _value(b), 1.0)

    @classmethod
    def __minimum__(cls, a: Any, b: Any) -> Seconds:
        """The shorter of two, as an overlap has it: a bound on what is hidden, not an activity of its own."""
        # Of two that are as long, the longer is the first and the shorter the second, so that their sum has both.
        return cls._pair(a, b, _value(a) < _value(b), 0.0)

    @classmethod
    def __where__(cls, condition: Any, a: Any, b: Any) -> Seconds:
        """One or the other takes place."""
        return cls._pair(a, b, condition, None)

    @classmethod
    def __norm__(cls, a: Any, b: Any, corner: Any) -> Seconds:
        """Two activities side by side with a soft corner: |a, b|_c = (a^c + b^c)^(1/c).

        Of degree one, so that a part is a (a / |a, b|)^(c - 1): at c = 1 all of it, for large c the longer one alone.
        """
        if not isinstance(a, Seconds) or not isinstance(b, Seconds):
            return cls.__maximum__(a, b)
        filled = (a.value > 0) | (b.value > 0)
        if filled is True:
            total = soft_maximum(a.value, b.value, corner)
            one, other = (a.value / total) ** (corner - 1), (b.value / total) ** (corner - 1)
        else:
            # Nothing on one side, or on some places of arrays: a norm of zeros is zero.
            total = ops.where(filled, soft_maximum(ops.where(filled, a.value, 1.0), b.value, corner), 0.0)
            size = ops.where(filled, total, 1.0)
            one, other = ((side.value / size) ** (corner - 1) for side in (a, b))
        return cls(a.tape, total, ((a, one, 1.0), (b, other, 1.0)))

    @classmethod
    def _pair(cls, a: Any, b: Any, first: Any, gross: float | None) -> Seconds:
        tape = a.tape if isinstance(a, Seconds) else b.tape
        chosen = first * 1.0
        pulls = []
        for side, share in ((a, chosen), (b, 1.0 - chosen)):
            if isinstance(side, Seconds):
                pulls.append((side, share, share if gross is None else gross))
            elif not (isinstance(side, (int, float)) and side == 0):
                raise TypeError("seconds without a name cannot be compared on a ledger")
        return cls(tape, ops.where(first, _value(a), _value(b)), tuple(pulls))


def _value(time: Any) -> Any:
    return time.value if isinstance(time, Seconds) else time


class Tape:
    """Times are :class:`Seconds`, and what was done with them is remembered."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        self.nodes: list[Seconds] = []

    def tag(
        self,
        name: str,
        wall: int,
        resource: str,
        equation: str,
        seconds: Any,
        *,
        flop: Any = _NOTHING,
        moved: Any = _NOTHING,
        sent: Any = _NOTHING,
    ) -> Seconds:
        return Seconds(self.nodes, seconds, (), ((name, wall, resource, equation), flop, moved, sent))

    def under(self, phase: str) -> Callable[..., Any]:
        return lambda name, *rest, **amounts: self.tag(f"{phase}: {name}", *rest, **amounts)

    def roofline(self, name: str, equation: str, arithmetic: Any, memory: Any, flop: Any, moved: Any) -> Seconds:
        return Seconds.__maximum__(
            self.tag(name, 1, "peak", equation, arithmetic, flop=flop),
            self.tag(name, 2, "bandwidth", equation, memory, moved=moved),
        )

    def loss(self, name: str, wall: int, equation: str, seconds: Any) -> Any:
        if not isinstance(seconds, Seconds):
            return 0.0
        line = ((name, wall, "", equation), _NOTHING, _NOTHING, _NOTHING)
        return Seconds(self.nodes, seconds.value, ((seconds, 1.0, 0.0),), line)

    def grown(self, name: str, wall: int, equation: str, base: Any, whole: Any) -> Any:
        return base + self.loss(name, wall, equation, whole - base)

    def shown(self, seconds: Any, share: Any) -> Any:
        if not isinstance(seconds, Seconds):
            return share * seconds
        return Seconds(self.nodes, share * seconds.value, ((seconds, share, 1.0),))

    def beside(self, total: Any, hidden: Callable[[], Any]) -> Seconds:
        other = hidden()
        pulls = ((total, 1.0, 1.0), (other, 0.0, 1.0)) if isinstance(other, Seconds) else ((total, 1.0, 1.0),)
        return Seconds(self.nodes, total.value, pulls)

    def longest(self, a: Any, b: Any) -> Any:
        return ops.where(_value(a) >= _value(b), a, b)

    def plain(self, seconds: Any) -> Any:
        return _value(seconds)

    once = staticmethod(ops.each_time)

    def ledger(self, total: Seconds, held: Iterable[Held] = (), capacity: Any = None) -> Ledger:
        """Parts by name, in the order in which they first occurred."""
        for node in self.nodes:
            node.exposed = node.gross = node.through = 0.0
        total.exposed = total.gross = total.through = 1.0
        found: dict[tuple[str, int, str, str], list[Any]] = {}
        for node in reversed(self.nodes):
            e, g, t, line = node.exposed, node.gross, node.through, node.line
            if line is not None:
                key, *amounts = line
                sums = found.get(key)
                if sums is None:
                    sums = found[key] = [0.0] * 6
                sums[0] = sums[0] + e * node.value
                if not key[2]:
                    # A loss has no time of its own: it is exposed, and its elasticity belongs to what it is made of.
                    sums[1] = sums[1] + e * node.value
                    for child, weight, _ in node.pulls:
                        child.through = child.through + t * weight
                    continue
                sums[1] = sums[1] + g * node.value
                sums[2] = sums[2] + t * node.value
                for place, amount in enumerate(amounts, 3):
                    if amount is not _NOTHING:
                        sums[place] = sums[place] + g * (amount() if callable(amount) else amount)
            for child, weight, beside in node.pulls:
                child.exposed = child.exposed + e * weight
                child.through = child.through + t * weight
                child.gross = child.gross + g * beside
        parts = []
        for (name, wall, resource, equation), (exposed, gross, elastic, flop, moved, sent) in reversed(found.items()):
            parts.append(
                Part(name, wall, resource, equation, exposed, _hidden(gross, exposed), elastic, flop, moved, sent)
            )
        return Ledger(total.value, tuple(parts), tuple(held), capacity)


def _hidden(gross: Any, exposed: Any) -> Any:
    rest = gross - exposed
    if isinstance(rest, float):
        return 0.0 if abs(rest) <= HIDDEN_ROUNDING * abs(gross) else rest
    return rest


def ledger_of(case: Callable[[Algebra], Any], held: Iterable[Held] = (), capacity: Any = None) -> Ledger:
    """The ledger of a case: ``case(algebra)`` gives its seconds.

    >>> ledger = ledger_of(lambda a: a.roofline("pass", "roofline", 1.0, 3.0, flop=1e12, moved=3e12) + a.tag(
    ...     "dispatch", 3, "host", "dispatch", 0.5))
    >>> ledger.seconds, ledger.binding_wall, [(part.name, part.exposed, part.hidden) for part in ledger.parts]
    (3.5, 2, [('pass', 0.0, 1.0), ('pass', 3.0, 0.0), ('dispatch', 0.5, 0.0)])
    """
    tape = Tape()
    return tape.ledger(case(tape), held, capacity)
