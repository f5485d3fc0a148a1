"""Beginnings of prompts that a replica keeps: whole blocks by their hashes, the least recently used forgotten first, in tiers.

A request's prompt is a chain of blocks; what is found are the leading ones (RadixAttention, Zheng et al. 2024; vLLM's automatic prefix
caching). Blocks of requests that are being answered are held, and are in the room that those take; others stay in what is left of it, and are
taken from it without asking. What the device forgets goes to the host, then to disk, where there is room; found there it is brought back over a link,
while the step runs (``recall``). The last token of a prompt is always computed.

A session without hashes finds what its last turn left, prompt and answer. Left out: blocks of a prompt that is being read are found by others only
when it has been (as in vLLM), and shared blocks of requests that run at the same time are counted for each of them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

from mlsysim.simulate.requests import Request

_LISTED = 1024
"""Blocks that may be listed more than once before they are tidied."""


class Tier:
    """A place behind the device: so many blocks, and bytes a second back."""

    __slots__ = ("blocks", "kept", "rate")

    def __init__(self, blocks: float, rate: float) -> None:
        self.blocks, self.rate = blocks, rate
        self.kept: OrderedDict[Any, None] = OrderedDict()


class Prefixes:
    """What one replica keeps. ``block_tokens`` of a block, ``block_bytes`` of all of the replica's devices together."""

    def __init__(self, block_tokens: int, block_bytes: float, tiers: tuple[Tier, ...] = ()) -> None:
        self.block_tokens, self.block_bytes, self.tiers = block_tokens, block_bytes, tiers
        self.there: dict[Any, int] = {}
        """How many hold a block of the device; where nobody does, minus the number of the request that left it last."""
        self._left: deque[tuple[int, list[Any]]] = deque()
        """Blocks of requests that have gone, in their order, those to be forgotten first at the end of each; some may have been taken up again."""
        self._gone = self._idle = self._listed = 0
        """Requests that have gone, blocks that nobody holds, and entries of the list of them."""
        self._recall = 0.0
        self.hits = [0] * (1 + len(tiers))
        """Tokens that were found on the device, and in each of the tiers."""

    def chain(self, request: Request, tokens: int) -> Sequence[Any]:
        """The whole blocks of so many tokens of a request; of a session without hashes by their number."""
        many = tokens // self.block_tokens
        if request.blocks is not None:
            return request.blocks[:many]
        return () if request.session is None else [(request.session, each) for each in range(many)]

    def find(self, request: Request, free: float) -> int:
        """Tokens of a prompt that are found, where ``free`` bytes are left for what nobody holds."""
        self._shrink(max(int(free / self.block_bytes), 0))
        return self.known(request)

    def known(self, request: Request) -> int:
        """Tokens of a prompt that are kept somewhere."""
        there, tiers, found = self.there, self.tiers, 0
        for block in self.chain(request, request.prompt):
            if block not in there and not (tiers and any(block in tier.kept for tier in tiers)):
                break
            found += 1
        return found * self.block_tokens

    def hold(self, request: Request) -> None:
        """A request is let in: what it found is held, and brought from where it is."""
        hits, tokens, there = self.hits, self.block_tokens, self.there
        for block in self.chain(request, request.prompt):
            many = there.get(block, 0)
            if many:
                there[block] = max(many, 0) + 1
                self._idle -= many < 0
                hits[0] += tokens
                continue
            level = next((level for level, tier in enumerate(self.tiers, 1) if block in tier.kept), 0)
            if not level:
                break
            tier = self.tiers[level - 1]
            tier.kept.move_to_end(block)
            self._recall += self.block_bytes / tier.rate
            there[block] = 1
            hits[level] += tokens

    def recall(self) -> float:
        """Seconds until what was asked for from behind is there, once."""
        seconds, self._recall = self._recall, 0.0
        return seconds

    def keep(self, request: Request) -> None:
        """A prompt has been read: all of its whole blocks can be found."""
        there = self.there
        for block in self.chain(request, request.prompt):
            if block not in there:
                there[block] = 1
            elif there[block] < 0:
                there[block] = 1
                self._idle -= 1

    def leave(self, request: Request, tokens: int) -> None:
        """A request has gone, with so many of its tokens in the cache: what nobody else holds is kept as long as there is room."""
        there, blocks = self.there, list(self.chain(request, tokens))
        self._gone += 1
        gone, idle = -self._gone, 0
        for block in blocks:
            many = there.get(block, 0)
            if many > 1:
                there[block] = many - 1
            else:
                there[block] = gone
                idle += many >= 0
        self._idle += idle
        self._left.append((gone, blocks))
        self._listed += len(blocks)
        if self._listed > 2 * self._idle + _LISTED:
            self._tidy()

    def _tidy(self) -> None:
        """List what nobody holds once."""
        there = self.there
        listed = ((gone, [block for block in blocks if there.get(block) == gone]) for gone, blocks in self._left)
        self._left = deque(each for each in listed if each[1])
        self._listed = sum(len(blocks) for _, blocks in self._left)

    def forget(self) -> None:
        """All of it is lost."""
        self._idle = self._listed = 0
        self._left.clear()
        self.there.clear()
        for tier in self.tiers:
            tier.kept.clear()

    def _shrink(self, most: int) -> None:
        """Forget all but so many of the blocks that nobody holds."""
        there = self.there
        while self._idle > most:
            gone, blocks = self._left[0]
            last = blocks[most - self._idle :]
            del blocks[most - self._idle :]
            forgotten = [block for block in reversed(last) if there.get(block) == gone]
            for block in forgotten:
                del there[block]
                if self.tiers:
                    self._demote(block, 0)
            self._listed -= len(last)
            self._idle -= len(forgotten)
            if not blocks:
                self._left.popleft()

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

    def hold(self, request: Request) -> None:
        self.hits[0] += self.known(request)

    def keep(self, request: Request) -> None:
        pass

    def leave(self, request: Request, tokens: int) -> None:
        pass
