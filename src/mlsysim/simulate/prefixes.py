"""Beginnings of prompts that a replica keeps: whole blocks by their hashes, the least recently used forgotten first, in tiers.

A request's prompt is a chain of blocks; what is found are the leading ones (RadixAttention, Zheng et al. 2024; vLLM's automatic prefix
caching). Blocks of requests that are being answered are held, and are in the room that those take; others stay in what is left of it, and are
taken from it without asking. What the device forgets goes to the host, then to disk, where there is room; found there it is brought back over a link,
while the step runs (``recall``). The last token of a prompt is always computed.

The device's blocks are a tree, in which blocks that were only ever asked for together are one run: what a request does to them takes as many operations as
the runs of its prompt, a few, not as its blocks, hundreds.

A session without hashes finds what its last turn left, prompt and answer. Left out: blocks of a prompt that is being read are found by others only
when it has been (as in vLLM), and shared blocks of requests that run at the same time are counted for each of them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

from mlsysim.simulate.requests import Request

_LISTED = 1024
"""Requests that have gone that may be listed before those without blocks are taken out."""


class Tier:
    """A place behind the device: so many blocks, and bytes a second back."""

    __slots__ = ("blocks", "kept", "rate")

    def __init__(self, blocks: float, rate: float) -> None:
        self.blocks, self.rate = blocks, rate
        self.kept: OrderedDict[Any, None] = OrderedDict()


class Run:
    """Blocks one after another, of which the first ``kept`` are on the device, and ``held`` requests hold them all."""

    __slots__ = ("after", "before", "blocks", "gone", "held", "kept")

    def __init__(self, blocks: tuple[Any, ...], before: Run | None) -> None:
        self.blocks, self.before = blocks, before
        self.after: dict[Any, Run] = {}
        """Runs that go on from here, by their first block."""
        self.kept = self.held = self.gone = 0
        """``gone`` is the number of the request that left it last."""

    def split(self, at: int) -> Run:
        """Its first blocks as a run of their own, which is returned; this one is the rest."""
        assert self.before is not None
        first = Run(self.blocks[:at], self.before)
        self.before.after[self.blocks[0]] = first
        first.after[self.blocks[at]] = self
        first.held, first.gone, first.kept = self.held, self.gone, min(self.kept, at)
        self.blocks, self.before, self.kept = self.blocks[at:], first, self.kept - first.kept
        return first


def _alike(one: tuple[Any, ...], other: tuple[Any, ...]) -> int:
    """How many of the first ones are the same."""
    if one[: len(other)] == other:
        return len(other)
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


class Prefixes:
    """What one replica keeps. ``block_tokens`` of a block, ``block_bytes`` of all of the replica's devices together."""

    def __init__(self, block_tokens: int, block_bytes: float, tiers: tuple[Tier, ...] = ()) -> None:
        self.block_tokens, self.block_bytes, self.tiers = block_tokens, block_bytes, tiers
        self._root = Run((), None)
        self._left: deque[tuple[int, Run]] = deque()
        """Requests that have gone, in their order, with the last run of each that may have blocks that it left last; those before it may have some too."""
        self._gone = self._idle = 0
        """Requests that have gone, and blocks that nobody holds."""
        self._most_listed = _LISTED
        self._recall = 0.0
        self.hits = [0] * (1 + len(tiers))
        """Tokens that were found on the device, and in each of the tiers."""

    def chain(self, request: Request, tokens: int) -> tuple[Any, ...]:
        """The whole blocks of so many tokens of a request; of a session without hashes by their number."""
        many, blocks = tokens // self.block_tokens, request[4]
        if blocks is not None:
            return blocks[:many]
        return () if request.session is None else tuple([(request.session, each) for each in range(many)])

    def find(self, request: Request, free: float) -> int:
        """Tokens of a prompt that are found, where ``free`` bytes are left for what nobody holds."""
        # States of one size keep what was read whatever its length.
        most = int(free / self.block_bytes) if self.block_bytes else self._idle
        if self._idle > most:
            self._shrink(most if most > 0 else 0)
        return self.known(request)

    def known(self, request: Request) -> int:
        """Tokens of a prompt that are kept somewhere."""
        blocks, many = request[4], request[1] // self.block_tokens
        if self.tiers:
            return len(self._levels(self.chain(request, request[1]))) * self.block_tokens
        if blocks is None:
            blocks = self.chain(request, request[1])
        if many > len(blocks):
            many = len(blocks)
        after, at = self._root.after, 0
        while at < many:
            run = after.get(blocks[at])
            if run is None:
                break
            kept, own, after = run.kept, run.blocks, run.after
            if blocks[at : at + kept] != own:
                at += _alike(blocks[at:], own[:kept])
                break
            at += kept
        return (at if at < many else many) * self.block_tokens

    def _levels(self, blocks: tuple[Any, ...]) -> list[int]:
        """Of each block that is found: 0 where it is on the device, or the number of its tier."""
        found: list[int] = []
        run: Run | None = self._root
        while len(found) < len(blocks):
            at, same, kept = len(found), 1, 0
            run = None if run is None else run.after.get(blocks[at])
            if run is not None:
                same, kept = _alike(blocks[at:], run.blocks), run.kept
            for number, block in enumerate(blocks[at : at + same]):
                level = next((level for level, tier in enumerate(self.tiers, 1) if block in tier.kept), -1)
                if number >= kept and level < 0:
                    return found
                found.append(0 if number < kept else level)
            if run is not None and same < len(run.blocks):
                run = None
        return found

    def _runs(self, blocks: tuple[Any, ...]) -> list[Run]:
        """The runs of some blocks, each on the device or not; those that are not there are made."""
        found: list[Run] = []
        run, at, many = self._root, 0, len(blocks)
        while at < many:
            after = run.after.get(blocks[at])
            if after is None:
                after = run.after[blocks[at]] = Run(blocks[at:] if at else blocks, run)
            else:
                own, kept = after.blocks, after.kept
                size = same = len(own)
                if blocks[at : at + size] != own:
                    same = _alike(blocks[at:], own)
                if 0 < kept < same:
                    same = kept
                if same < size:
                    after = after.split(same)
            found.append(after)
            run = after
            at += len(run.blocks)
        return found

    def hold(self, request: Request, found: int) -> None:
        """A request is let in: what was found is held, so many tokens, and brought from where it is."""
        if self.tiers:
            blocks, tokens = self.chain(request, request[1]), self.block_tokens
            for block, level in zip(blocks, self._levels(blocks), strict=False):
                self.hits[level] += tokens
                if level:
                    self.tiers[level - 1].kept.move_to_end(block)
                    self._recall += self.block_bytes / self.tiers[level - 1].rate
        else:
            self.hits[0] += found
        for run in self._runs(self.chain(request, found)) if found else ():
            if not run.held:
                self._idle -= run.kept
            run.kept = len(run.blocks)
            run.held += 1

    def recall(self) -> float:
        """Seconds until what was asked for from behind is there, once."""
        seconds, self._recall = self._recall, 0.0
        return seconds

    def keep(self, request: Request) -> None:
        """A prompt has been read: all of its whole blocks can be found."""
        for run in self._runs(self.chain(request, request[1])):
            if not run.held:
                self._idle -= run.kept
                run.kept, run.held = len(run.blocks), 1

    def leave(self, request: Request, tokens: int) -> None:
        """A request has gone, with so many of its tokens in the cache: what nobody else holds is kept as long as there is room."""
        self._gone += 1
        run = self._root
        for run in self._runs(self.chain(request, tokens)):
            if run.held > 1:
                run.held -= 1
                continue
            self._idle += len(run.blocks) - (0 if run.held else run.kept)
            run.kept, run.held, run.gone = len(run.blocks), 0, self._gone
        self._left.append((self._gone, run))
        if len(self._left) > self._most_listed:
            self._left = deque(each for each in self._left if self._has_some(*each))
            self._most_listed = 2 * len(self._left) + _LISTED

    def _has_some(self, gone: int, run: Run | None) -> bool:
        """Whether there are blocks that a request left last."""
        while run is not None:
            if run.gone == gone and run.kept and not run.held:
                return True
            run = run.before
        return False

    def forget(self) -> None:
        """All of it is lost."""
        self._idle = 0
        self._left.clear()
        self._root = Run((), None)
        for tier in self.tiers:
            tier.kept.clear()

    def _shrink(self, most: int) -> None:
        """Forget all but so many of the blocks that nobody holds."""
        while self._idle > most:
            gone, run = self._left[0]
            if run.before is None:
                self._left.popleft()
                continue
            if run.gone == gone and run.kept and not run.held:
                less = min(run.kept, self._idle - most)
                forgotten = run.blocks[run.kept - less : run.kept]
                run.kept -= less
                self._idle -= less
                for block in reversed(forgotten) if self.tiers else ():
                    self._demote(block, 0)
                if run.kept:
                    return
            self._left[0] = gone, run.before
            self._take_out(run)

    @staticmethod
    def _take_out(run: Run) -> None:
        """A run without blocks on the device is no more, unless others go on from it."""
        while run.before is not None and not (run.kept or run.held or run.after):
            if run.before.after.get(run.blocks[0]) is run:
                del run.before.after[run.blocks[0]]
            run = run.before

    def _demote(self, block: Any, level: int) -> None:
        if level < len(self.tiers):
            tier = self.tiers[level]
            tier.kept[block] = None
            tier.kept.move_to_end(block)
            while len(tier.kept) > tier.blocks:
                older, _ = tier.kept.popitem(last=False)
                self._demote(older, level + 1)


class Common(Prefixes):
    """So many tokens of every prompt are found, whatever it is: the constant share of the closed form."""

    def __init__(self, tokens: int) -> None:
        super().__init__(1, 1.0)
        self.tokens = tokens

    def known(self, request: Request) -> int:
        return min(self.tokens, request.prompt)

    def find(self, request: Request, free: float) -> int:
        return self.known(request)

    def hold(self, request: Request, found: int) -> None:
        self.hits[0] += found

    def keep(self, request: Request) -> None:
        pass

    def leave(self, request: Request, tokens: int) -> None:
        pass
