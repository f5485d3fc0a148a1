"""Routers: which replica of a pool gets a request.

    round_robin     one after the other
    session         by a hash of the session; requests without one take turns
    least_work      the least work outstanding, in seconds: what is left of a step that reads prompts, those that are not read yet, and a step of
                    the answers that are written
    two_choices     the one with less of that among two drawn at random (Mitzenmacher 2001: nearly as even as the best of all)
    prefix          the one that finds most of the prompt in its cache, unless it is overloaded; the least work among equals

The first two look at no replica, so that each can be played by itself. A prefix decides as in SGLang's and vLLM's routers (policy
"cache_aware"; https://docs.sglang.io/advanced_features/router.html): where the share of the prompt that is found is above ``CACHED``, and the replica has no more than ``overload`` times the
requests of the idlest one and ``SLACK`` more than it. Those keep a picture of caches, which may be old; here it is the caches themselves.

Work is counted in seconds, so that replicas of other chips have what they can do. Tokens of prompts and of contexts are not alike, as a step reads
a context hundreds of times faster than a prompt: a router that adds their numbers (as Dynamo's adds blocks of both,
https://docs.nvidia.com/dynamo/design-docs/router-design) sends bursts of prompts to one replica for the sake of even contexts, and waits
longer than one that takes turns where lengths are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from zlib import crc32

from mlsysim.errors import InputError, unknown_name
from mlsysim.simulate.draws import Draws
from mlsysim.simulate.live import NEVER
from mlsysim.simulate.replica import Replica
from mlsysim.simulate.requests import Request
from mlsysim.simulate.settings import Settings

CACHED, SLACK = 0.3, 64
"""Share of a prompt that must be found, and requests more than the idlest replica has that are no overload: the routers' defaults."""


class RoundRobin:
    """One after the other."""

    looks = False
    """Whether it looks at replicas, which must be as far as the request then."""

    def __init__(self, settings: Settings, replicas: Sequence[Replica]) -> None:
        self.replicas, self.given = replicas, 0

    def choose(self, request: Request, up: Sequence[int], at: float) -> int:
        """The number of the replica, of those that are up, at a time."""
        self.given += 1
        return up[(self.given - 1) % len(up)]


class BySession(RoundRobin):
    """All turns of a conversation to one replica; of one that is down to the next."""

    def choose(self, request: Request, up: Sequence[int], at: float) -> int:
        if request.session is None:
            return super().choose(request, up, at)
        own = crc32(request.session.encode()) % len(self.replicas)
        return next((each for each in up if each >= own), up[0])


class LeastWork(RoundRobin):
    """The one with the least to do."""

    looks = True

    def least(self, among: Iterable[int], at: float) -> int:
        """The replica with the least work outstanding; of equal ones that which is free first."""

        found, least, free = -1, NEVER, NEVER
        for each in among:
            replica = self.replicas[each]
            own = replica.work(at, least)
            if own <= least:
                when = replica.time if replica.time > at else at
                if own < least or when < free:
                    found, least, free = each, own, when
        return found

    def _looked_at(self, among: Sequence[int], at: float) -> Sequence[Replica]:
        """Some replicas, as far as a router must know."""
        found = self.replicas if len(among) == len(self.replicas) else [self.replicas[each] for each in among]
        for replica in found:
            if replica.sure < at:
                replica.advance(at)
        return found

    def choose(self, request: Request, up: Sequence[int], at: float) -> int:
        self._looked_at(up, at)
        return self.least(up, at)


class TwoChoices(LeastWork):
    """The one with less to do, of two drawn at random."""

    def __init__(self, settings: Settings, replicas: Sequence[Replica]) -> None:
        super().__init__(settings, replicas)
        self.uniform = Draws(settings.seed, "router").uniform

    def choose(self, request: Request, up: Sequence[int], at: float) -> int:
        if len(up) < 2:
            return up[0]
        one = int(self.uniform() * len(up))
        other = int(self.uniform() * (len(up) - 1))
        two = up[one], up[other + (other >= one)]
        self._looked_at(two, at)
        return self.least(two, at)


class ByPrefix(LeastWork):
    """The one that has read most of the prompt, unless it has too much to do."""

    def __init__(self, settings: Settings, replicas: Sequence[Replica]) -> None:
        super().__init__(settings, replicas)
        self.overload = settings.overload
        if settings.block_tokens is None:
            raise InputError(
                "A router by prefix needs requests that share beginnings: those of several turns, with tokens of a prefix, or of a trace that names its blocks."
            )

    def choose(self, request: Request, up: Sequence[int], at: float) -> int:
        replicas = self._looked_at(up, at)
        longest, those, most, asked = CACHED * request[1], up, NEVER, None
        for each, replica in zip(up, replicas, strict=True):
            prefixes = replica.prefixes
            if prefixes is None:
                continue
            if asked is None:
                asked = prefixes.chain(request, request[1])
            known = prefixes.kept(*asked)
            if known < longest or (known == longest and those is up):
                continue
            if most == NEVER:
                fewest = min([other.outstanding for other in replicas])
                most = max(self.overload * fewest, fewest + SLACK)
            if replica.outstanding <= most:
                longest, those = known, [each] if known > longest else [*those, each]
        return those[0] if len(those) == 1 else self.least(those, at)


ROUTERS: dict[str, type[RoundRobin]] = {
    "round_robin": RoundRobin,
    "session": BySession,
    "least_work": LeastWork,
    "two_choices": TwoChoices,
    "prefix": ByPrefix,
}


def router_class(name: str) -> type[RoundRobin]:
    """The router of that name."""
    key = name.lower().replace("-", "_")
    if key not in ROUTERS:
        raise unknown_name("router", name, ROUTERS, f"known are {', '.join(ROUTERS)}.")
    return ROUTERS[key]


def router(settings: Settings) -> Callable[[Sequence[Replica]], RoundRobin]:
    """The router of these settings."""
    chosen = router_class(settings.router)
    return lambda replicas: chosen(settings, replicas)
