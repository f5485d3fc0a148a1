"""Beginnings of prompts that a replica keeps: whole blocks by their hashes, the least recently used forgotten first, in tiers.

A request's prompt is a chain of blocks; what is found are the leading ones (RadixAttention, Zheng et al. 2024; vLLM's automatic prefix
caching). Blocks of requests that are being answered are held, and are in the room that those take; others stay in what is left of it, and are
taken from it without asking. What the device forgets goes to the host, then to disk, where there is room; found there it is brought back over a link,
while the step runs (``recall``). The last token of a prompt is always computed.

The device's blocks are a tree, in which blocks that were only ever asked for together are one run: what a request does to them takes as many operations as
the runs of its prompt, a few, not as its blocks, hundreds.

A session without hashes finds what its last turn left, prompt and answer. Left out: blocks of a prompt that is being read are found by others only
when it has been (as in vLLM), and shared blocks of requests that run at the same time take room for each of them.
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
    """Blocks of a chain, from where the run ``before`` ends to ``end``: the first ``kept`` are on the device, and ``held`` requests hold them all.

    ``blocks`` is the chain of a request that has them, whole, so that nothing is copied."""

    __slots__ = ("after", "before", "blocks", "end", "gone", "held", "kept")

    def __init__(self, blocks: tuple[Any, ...], end: int, before: Run | None) -> None:
        self.blocks, self.end, self.before = blocks, end, before
        self.after = _NOWHERE
        """Runs that go on from here, by their first block."""
        self.kept = self.held = self.gone = 0
        """``gone`` is the number of the request that left it last."""

    def split(self, at: int) -> Run:
        """Its blocks up to there as a run of their own, which is returned; this one is the rest."""
        assert self.before is not None
        begin = self.before.end
        first = self.before.after[self.blocks[begin]] = Run(self.blocks, at, self.before)
        first.after = {self.blocks[at]: self}
        first.held, first.gone, first.kept = self.held, self.gone, min(self.kept, at - begin)
        self.before, self.kept = first, self.kept - first.kept
        return first


_NOWHERE: dict[Any, Run] = {}
"""What goes on from most runs; it stays empty."""


def _root() -> Run:
    root = Run((), 0, None)
    root.after = {}
    return root


def _alike(one: tuple[Any, ...], other: tuple[Any, ...], begin: int, end: int) -> int:
    """Where two chains that are the same up to ``begin``, and at it, part, at ``end`` at the latest."""
    if end == begin + 1 or one is other or one[begin:end] == other[begin:end]:
        return min(end, len(one))
    end = min(end, len(one))
    return next((at for at in range(begin + 1, end) if one[at] != other[at]), end)


class Prefixes:
    """What one replica keeps. ``block_tokens`` of a block, ``block_bytes`` of all of the replica's devices together."""

    def __init__(self, block_tokens: int, block_bytes: float, tiers: tuple[Tier, ...] = ()) -> None:
        self.block_tokens, self.block_bytes, self.tiers = block_tokens, block_bytes, tiers
        self._root = _root()
        self._ends: dict[int, Run] = {}
        """Where the blocks end that a request holds, by its number."""
        self._left: deque[tuple[int, Run]] = deque()
        """Requests that have gone, in their order, with the last run of each that may have blocks that it left last; those before it may have some too."""
        self._gone = self._idle = 0
        """Requests that have gone, and blocks that nobody holds."""
        self._most_listed = _LISTED
        self._recall = 0.0
        self.hits = [0] * (1 + len(tiers))
        """Tokens that were found on the device, and in each of the tiers."""

    def chain(self, request: Request, tokens: int) -> tuple[tuple[Any, ...], int]:
        """The blocks of a request, of a session without hashes by their number, and how many of them so many tokens fill."""
        many = tokens // self.block_tokens
        blocks: tuple[Any, ...] | None = request[4]
        if blocks is None:
            session = request.session
            blocks = () if session is None else tuple([(session, each) for each in range(many)])
        there = len(blocks)
        return blocks, many if many < there else there

    def find(self, request: Request, free: float) -> int:
        """Tokens of a prompt that are found, where ``free`` bytes are left for what nobody holds."""
        # States of one size keep what was read whatever its length.
        most = int(free / self.block_bytes) if self.block_bytes else self._idle
        if self._idle > most:
            self._shrink(most if most > 0 else 0)
        return self.kept(*self.chain(request, request[1]))

    def kept(self, blocks: tuple[Any, ...], many: int) -> int:
        """Tokens of the first of so many blocks that are."""
        if self.tiers:
            return len(self._levels(blocks, many)) * self.block_tokens
        after, at = self._root.after, 0
        while at < many:
            run = after.get(blocks[at])
            if run is None:
                break
            kept = run.kept
            if kept == 1:
                at += 1
            elif kept:
                at = _alike(blocks, run.blocks, at, at + kept)
            if at < run.end:
                break
            after = run.after
        return (at if at < many else many) * self.block_tokens

    def _levels(self, blocks: tuple[Any, ...], many: int) -> list[int]:
        """Of each block that is found: 0 where it is on the device, or the number of its tier."""
        found: list[int] = []
        tiers = [tier.kept for tier in self.tiers]
        run: Run | None = self._root
        at = 0
        while at < many:
            run = None if run is None else run.after.get(blocks[at])
            stay, end = at, many
            if run is not None:
                end = min(_alike(blocks, run.blocks, at, run.end), many)
                stay = min(at + run.kept, end)
                found.extend([0] * (stay - at))
            for block in blocks[stay:end]:
                for level, kept in enumerate(tiers, 1):
                    if block in kept:
                        found.append(level)
                        break
                else:
                    return found
            if run is not None and end < run.end:
                run = None
            at = end
        return found

    def _runs(self, blocks: tuple[Any, ...], many: int, run: Run) -> list[Run]:
        """The runs of some blocks behind one of them, each on the device or not; those that are not there are made."""
        found: list[Run] = []
        at = run.end
        while at < many:
            block, further = blocks[at], run.after
            after = further.get(block)
            if after is None:
                after = Run(blocks, many, run)
                if further is _NOWHERE:
                    run.after = {block: after}
                else:
                    further[block] = after
            else:
                end, kept = after.end, after.kept
                same = _alike(blocks, after.blocks, at, end)
                if same > many:
                    same = many
                if 0 < kept < same - at:
                    same = at + kept
                if same < end:
                    after = after.split(same)
            found.append(after)
            run, at = after, after.end
        return found

    def _hold(self, number: int, request: Request, tokens: int) -> None:
        """A request holds its blocks up to so many tokens."""
        begin = run = self._ends.get(number, self._root)
        at = begin.end
        for run in self._runs(*self.chain(request, tokens), begin):
            if not run.held:
                self._idle -= run.kept
                run.kept = run.end - at
            run.held += 1
            at = run.end
        self._ends[number] = run

    def hold(self, number: int, request: Request, found: int) -> None:
        """A request of that number is let in: what was found is held, so many tokens, and brought from where it is."""
        if self.tiers:
            blocks, many = self.chain(request, request[1])
            for block, level in zip(blocks, self._levels(blocks, many), strict=False):
                self.hits[level] += self.block_tokens
                if level:
                    self.tiers[level - 1].kept.move_to_end(block)
                    self._recall += self.block_bytes / self.tiers[level - 1].rate
        else:
            self.hits[0] += found
        if found:
            self._hold(number, request, found)

    def recall(self) -> float:
        """Seconds until what was asked for from behind is there, once."""
        seconds, self._recall = self._recall, 0.0
        return seconds

    def keep(self, number: int, request: Request) -> None:
        """A prompt has been read: all of its whole blocks can be found."""
        self._hold(number, request, request[1])

    def leave(self, number: int, request: Request, tokens: int) -> None:
        """A request has gone, with so many of its tokens in the cache: what nobody else holds is kept as long as there is room."""
        self._gone = gone = self._gone + 1
        last = run = self._ends.pop(number, self._root)
        while run.before is not None:
            run.held -= 1
            if not run.held:
                self._idle += run.kept
                run.gone = gone
            run = run.before
        blocks, many = self.chain(request, tokens)
        if last.end < many and last.gone == gone and not last.after:
            # Nobody else has what goes on with its answer.
            more = many - last.end
            last.blocks, last.end, last.kept = blocks, many, last.kept + more
            self._idle += more
        begin, at = last, last.end
        for last in self._runs(blocks, many, begin):
            if not last.held:
                self._idle += last.end - at - last.kept
                last.kept, last.gone = last.end - at, gone
            at = last.end
        self._left.append((gone, last))
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
        self._ends.clear()
        self._root = _root()
        for tier in self.tiers:
            tier.kept.clear()

    def _shrink(self, most: int) -> None:
        """Forget all but so many of the blocks that nobody holds."""
        left, idle = self._left, self._idle
        while idle > most:
            gone, run = left[0]
            while (before := run.before) is not None and idle > most:
                kept = run.kept
                if run.gone == gone and kept and not run.held:
                    stay = kept - (idle - most)
                    if stay < 0:
                        stay = 0
                    for block in reversed(run.blocks[before.end + stay : before.end + kept]) if self.tiers else ():
                        self._demote(block)
                    idle -= kept - stay
                    run.kept = kept = stay
                    if kept:
                        break
                if not (kept or run.held or run.after) and before.after.get(first := run.blocks[before.end]) is run:
                    del before.after[first]
                run = before
            if run.before is None:
                left.popleft()
            else:
                left[0] = gone, run
        self._idle = idle

    def _demote(self, block: Any) -> None:
        """A block goes to the host; what has no room there any more goes on to the disk."""
        for tier in self.tiers:
            kept = tier.kept
            kept[block] = None
            kept.move_to_end(block)
            if len(kept) <= tier.blocks:
                return
            block, _ = kept.popitem(last=False)


class Common(Prefixes):
    """So many tokens of every prompt are found, whatever it is: the constant share of the closed form."""

    def __init__(self, tokens: int) -> None:
        super().__init__(1, 1.0)
        self.tokens = tokens

    def find(self, request: Request, free: float) -> int:
        return min(self.tokens, request.prompt)

    def hold(self, number: int, request: Request, found: int) -> None:
        self.hits[0] += found

    def keep(self, number: int, request: Request) -> None:
        pass

    def leave(self, number: int, request: Request, tokens: int) -> None:
        pass
