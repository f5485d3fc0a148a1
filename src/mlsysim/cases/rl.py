"""A step of post-training as one ledger: rollout, its long tail, environment, forward passes, training, weights on their way, framework.

    colocated, or staleness 0     T = a_g G + E + a_t I (T_0 + p F) + c + W
    split pools, staleness k      T = (x^4 + y^4)^(1/4) + c + W,     x = max(a_g G_k, (a_g G + E)/(1 + k)),   y = a_t I (T_0 + p F)

G is the rollout of all samples at once (:mod:`mlsysim.simulate.rl`), E the time of tools and rewards of a response, T_0 the training case's step over all
samples, I the tokens of the fullest data-parallel rank over the mean, F a forward pass at the trainer's layout, p passes by the algorithm;
ranks wait for the fullest one in both (of verl's steps on 64 and 128 ranks passes take 0.53 and 0.47 of the training). With
staleness k there are 1 + k batches in flight: G_k is the samples over the steady rate of the serving case with so many requests, and what
one batch takes from its first token to its last, G, must pass within 1 + k steps unless responses go on over an update (partial rollouts).
At k = 0 both are the synchronous rollout. Pools that work side by side wait for the slower one; (x^4 + y^4)^(1/4) is at most 19 % above it, for steps
that differ, and at most x + y, so that asynchronous steps are never slower than synchronous ones under the same rules.

    F = (T_0 without recomputation, synchronisation and update) / 3                     forward, and twice as much backward
    W = w times the model's 16-bit weights over the port of one accelerator             tensors are sent whole, one after another

Of a colocated step only what the trainer's shards lack is sent, over links where they share a node; one shard sends nothing. With infinite
bandwidth W is nothing.

Constants belong to a framework, fitted on published steps: a_g and a_t (how much longer than the serving and the training case), c
colocated (sleeping, waking, moving the optimizer) and split, w, and, where times of it are published, how many times F a pass for
log-probabilities takes. Left out: idle time between micro-batches of different length (I has that of
ranks), failures, groups that are sampled again, a reward model's own memory; how c falls with a small model or few accelerators (the interval has it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from mlsysim.cases.ledger import Ledger, Part
from mlsysim.cases.request import ANSWER, COMMUNICATION, FIRST, SOFTWARE, TAIL, work_of
from mlsysim.errors import unknown_name
from mlsysim.timing.network import Hierarchical
from mlsysim.timing.profile import software_file
from mlsysim.zoo.intervals import Factors, independent

ROLLOUT, TRAINING, PASSES = "rollout", "training", "log-probabilities"
LONG_TAIL, ENVIRONMENT = f"{ROLLOUT}: long tail", "environment: tools and rewards"
TRANSFER, FIXED = "weight transfer", "framework: sleep, wake and data"
UNEVEN = f"{TRAINING}: uneven lengths"
COMPUTE, TRANSFORMATION = 1, 9
_SHARPNESS = 4
FORWARD = 3
"""Passes of a step without recomputation, each as long as the forward one."""
UPDATED = ("gradient synchronisation", "optimizer update")
"""Parts of a training step that a forward pass has not."""
DEFAULT = "NeMo-RL"
"""The framework whose constants stand in for those of others."""
OTHER = "other"
"""A framework that is not named."""


class Algorithm(NamedTuple):
    """What an algorithm does in a step."""

    passes: int
    trained: int = 1
    rollout: bool = True
    samples: int | None = None
    source: Any = None


@dataclass(frozen=True, slots=True)
class Framework:
    """Constants of a framework: see the module's text. ``interval`` are the factors within which 90 % of left-out steps lay, ``shortest`` the seconds of
    the shortest step that was fitted, colocated and split, ``moved`` how far constants moved when rows were left out, over their values; ``chips`` those of the steps, and
    ``foreign`` one that is asked for and is not among them; ``transfers`` the factor within which 90 % of weight transfers lay, of any framework that published some."""

    name: str
    generation: float
    training: float
    colocated: float
    split: float
    transfer: float
    interval: tuple[float, float]
    rows: int
    shortest: tuple[float, float]
    moved: Mapping[str, Factors]
    memory: tuple[float, float]
    slots: int
    zero: int
    transfers: float
    passes: float = 1.0
    known: bool = True
    chips: tuple[str, ...] = ()
    foreign: str = ""

    def on(self, *chips: str) -> Framework:
        """The same on some chips. Of one that no published step had nobody knows how far its software is from its serving and training cases: no further, it is
        assumed, than one framework from another."""
        new = [chip for chip in chips if chip not in self.chips]
        if not new or not self.known:
            return self
        return replace(self, foreign=new[0], interval=independent(self.interval, crossed()) or crossed())

    def fixed(self, staleness: float | None) -> float:
        """Seconds of a step, whatever it does."""
        return self.colocated if staleness is None else self.split

    def seen(self, staleness: float | None) -> float:
        """The largest share of a step that they had where they were fitted."""
        return self.fixed(staleness) / self.shortest[0 if staleness is None else 1]

    def band(self, seconds: float, staleness: float | None, rollout: bool) -> Factors:
        """The interval of a step of so many seconds. In one that is shorter than all that were fitted the constant may be as much less: what
        it consists of (state that is moved to the host and back, samples, calls to every rank) is less too, which no published row tells apart."""
        beyond = max(0.0, self.fixed(staleness) / seconds - self.seen(staleness)) if rollout else 0.0
        return self.interval[0] * (1 - beyond), self.interval[1]

    def part_band(self, constant: str) -> Factors:
        """The interval of a part: that of a step, and what its constant moved, which trades against the others."""
        alone = (1 / self.transfers, self.transfers) if constant == "transfer" else None
        return independent(self.interval, self.moved[constant], alone) or self.interval


def algorithms() -> dict[str, Any]:
    """Algorithms by name."""
    return dict(software_file("rl")["algorithm"])


def algorithm(name: str) -> Algorithm:
    """The algorithm of that name."""
    return Algorithm(**algorithms()[name])


def frameworks() -> tuple[str, ...]:
    """Frameworks whose steps were fitted."""
    return tuple(name for name in software_file("rl_constants") if name != OTHER)


def crossed() -> Factors:
    """The interval of a framework that nobody fitted: how far one framework's constants are off on another's steps."""
    low, high = software_file("rl_constants")[OTHER]["interval"]
    return low, high


def _plain(name: str) -> str:
    return "".join(each for each in name.lower() if each.isalnum())


@cache
def framework(name: str | None) -> Framework:
    """The framework of that name; of one without published steps, and of "other", the default's constants, with the interval that these have on others' steps."""
    held, fitted = software_file("rl")["framework"], software_file("rl_constants")
    named = {_plain(each): each for each in (*frameworks(), *software_file("rl")["unfitted"]["names"], OTHER)}
    if _plain(name or DEFAULT) not in named:
        raise unknown_name("framework", name or "", tuple(named.values()))
    asked = named[_plain(name or DEFAULT)]
    found = asked if asked in frameworks() else None
    key = found or DEFAULT
    row: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in (held[key] | fitted[key]).items()}
    spread = {k: v for k, v in row.items() if isinstance(v, dict) and "least" in v}
    row["moved"] = {k: (v["least"] / v["value"], v["most"] / v["value"]) for k, v in spread.items()}
    row = {k: v["value"] if isinstance(v, dict) and "value" in v else v for k, v in row.items()}
    row.setdefault("transfers", max(each.get("transfers", 1.0) for each in fitted.values()))
    kept: dict[str, Any] = {k: v for k, v in row.items() if k in Framework.__dataclass_fields__}
    if found is None:
        kept |= {"interval": crossed(), "known": False}
    return Framework(name=asked, **kept)


class Times(NamedTuple):
    """Seconds of a step before the framework: a rollout of all samples at once, the same of even lengths, reading of prompts within it; of a stream
    with more batches in flight (None where there is none); environment; training with what uneven lengths add, and one forward pass of the fullest rank."""

    rollout: float
    even: float
    reading: float
    stream: float | None
    environment: float
    uneven: float
    forward: float
    passes: float


def stale_rollout(rollout: Any, stream: Any, staleness: Any, partial: bool) -> Any:
    """The rollout with 1 + ``staleness`` batches in flight; never longer than with one."""
    bound = 0.0 * rollout if partial else rollout / (1 + staleness)
    return min(rollout, max(stream, bound))


def transfer_time(net: Hierarchical, missing: float, near: bool) -> tuple[float, float, str]:
    """Seconds, bytes and the resource of weights on their way to the generators, at the full rate of what they go over."""
    return float(net.send(missing, near)) if missing else 0.0, missing, "link" if near else "fabric"


class Step(NamedTuple):
    """A step, and seconds of its sides with the framework's share, whether they show or not."""

    ledger: Ledger
    rollout: float
    training: float
    passes: float
    transfer: float


def step(
    own: Framework,
    times: Times,
    serving: Ledger | None,
    training: Ledger,
    transfer: tuple[float, float, str],
    *,
    staleness: float | None,
    partial: bool = False,
) -> Step:
    """The step; ``staleness`` None where trainer and generator take turns on the same accelerators."""
    writes = _rollout(own, times, serving, staleness, partial) if serving is not None else []
    trains = _training(own, times, training)
    x, y = (sum(part.exposed for part in side) for side in (writes, trains))
    parts = [*writes, *trains]
    if staleness:
        whole = (x**_SHARPNESS + y**_SHARPNESS) ** (1 / _SHARPNESS)
        # Exposed as t dT/dt: the longer side has nearly all of it.
        shares = ((each / whole) ** (_SHARPNESS - 1) for each in (x, y))
        parts = [part for side, share in zip((writes, trains), shares, strict=True) for part in _hidden(side, share)]
    seconds, sent, over = transfer
    moved = own.transfer * seconds
    if serving is not None:
        fixed = own.fixed(staleness)
        parts += [Part(TRANSFER, COMMUNICATION, over, "t = w W / B", moved, elastic=moved, sent=sent)] if moved else []
        parts.append(Part(FIXED, SOFTWARE, "host", "t = c", fixed, elastic=fixed))
    ledger = Ledger(sum(part.exposed for part in parts), tuple(parts), training.held, training.capacity)
    read = own.training * own.passes * times.passes * times.forward
    return Step(ledger, x, y - read, read, moved)


def _rollout(own: Framework, t: Times, serving: Ledger, staleness: float | None, partial: bool) -> list[Part]:
    """What a rollout consists of: work of the serving case, its tail, the framework's share, and the environment."""
    even, whole, late = t.even, t.rollout, t.environment
    if staleness and t.stream is not None:
        whole = stale_rollout(t.rollout, t.stream, staleness, partial)
        even, made = min(even, whole), own.generation * whole
        late = 0.0 if partial else max((own.generation * t.rollout + late) / (1 + staleness) - made, 0.0)
    made, reading, found = own.generation * whole, min(t.reading, even), Ledger(0.0, ())
    for part in (*work_of(serving, FIRST, reading), *work_of(serving, ANSWER, even - reading)):
        found = found + Ledger(part.exposed, (replace(part, name=f"{ROLLOUT}: {part.name.rpartition(': ')[2]}"),))
    less, more = _apart(own.generation)
    parts = [replace(p, exposed=less * p.exposed, elastic=p.exposed / even * made) for p in found.parts]
    lost = [
        Part(LONG_TAIL, TAIL, "", "t = a (G(cv) - G(0))", own.generation * (whole - even)),
        Part(f"{ROLLOUT}: framework", SOFTWARE, "", "t = (a - 1) G(0)", more * even),
        Part(ENVIRONMENT, TRANSFORMATION, "environment", "t = E", late, elastic=late),
    ]
    return [*parts, *(part for part in lost if part.exposed)]


def _training(own: Framework, t: Times, training: Ledger) -> list[Part]:
    """Training, what uneven lengths add, and forward passes."""
    trained, read = training.seconds, t.passes * own.passes * t.forward
    grown, (less, more) = own.training * (1 + t.uneven / trained), _apart(own.training)
    parts = [
        replace(p, name=f"{TRAINING}: {p.name}", exposed=less * p.exposed, elastic=p.elastic * grown)
        for p in training.parts
    ]
    a = "a " if less < 1 else ""
    lost = [
        Part(PASSES, COMPUTE, "peak", f"t = {a}p F", less * read, elastic=own.training * read),
        Part(UNEVEN, TAIL, "", f"t = {a}(I - 1) T", less * t.uneven),
        Part(f"{TRAINING}: framework", SOFTWARE, "", "t = (a - 1) I T", more * (trained + t.uneven)),
        Part(f"{PASSES}: framework", SOFTWARE, "", "t = (a - 1) p F", more * read),
    ]
    return [*parts, *(part for part in lost if part.exposed)]


def _apart(factor: float) -> tuple[float, float]:
    """What a framework's factor makes of the parts, and what it adds to them: above 1 time of its own, below 1 parts that are shorter; none is negative."""
    return min(factor, 1.0), max(factor - 1, 0.0)


def _hidden(parts: Iterable[Part], share: float) -> Iterable[Part]:
    """The same with a share of it on the critical path, the rest beside the other pool's work."""
    for part in parts:
        beside = part.hidden + (1 - share) * part.exposed
        yield replace(part, exposed=share * part.exposed, hidden=beside, elastic=share * part.elastic)
