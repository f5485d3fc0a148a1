"""How requests of a job (:mod:`mlsysim.simulate.jobs`) are let into a replica, and who is put back: for others, or for want of room."""

from __future__ import annotations

from abc import abstractmethod
from heapq import heapify
from operator import itemgetter

from mlsysim.simulate.coming import Coming
from mlsysim.simulate.jobs import JOB
from mlsysim.simulate.live import MANY, Live

_NUMBER = itemgetter(1)


class Filling(Coming):
    """A replica whose free room may be filled."""

    @abstractmethod
    def _budget(self, n: int) -> int: ...

    @abstractmethod
    def _bring(self, live: Live) -> None: ...

    @abstractmethod
    def _join(self, live: Live) -> None: ...

    def _fills(self) -> bool:
        """Whether a job has something to do."""
        return self.jobs is not None and bool(self.jobs.left or self.jobs.back)

    def _fill(self) -> tuple[str, int]:
        """Let requests of jobs in where nobody else waits: what :meth:`_admit` says then."""
        jobs, room = self.jobs, self.room.bytes
        if jobs is None or self.scheduling.prompts in ("last", "static"):
            return "", MANY
        budget = self._budget(self.n if self.scheduling.prompts == "mixed" else 0)
        budget -= sum(each.unread for each in self.reading)
        while budget > 0 and self.n + len(self.reading) < self.scheduling.slots:
            live = jobs.next(self.turns)
            if live is None or self.held + self.room.contexts.at(live.prompt + live.left)[0] > room:
                break
            jobs.back.pop()
            self._bring(live)
            if live.handed:
                live.handed = False
                self._join(live)
                continue
            live.unread, live.held = live.prompt, self._needed(live)
            self.held += live.held
            self.reading.append(live)
            jobs.reading += 1
            budget -= live.unread
        return "", MANY

    def _yields(self) -> bool:
        """Whether a request of a job was put back for another."""
        jobs = self.jobs
        if jobs is None or not jobs.reading + jobs.running:
            return False
        if not jobs.reading:
            self._put_back(max(each for each in self.running if each[2].ends and each[1] >= JOB))
            heapify(self.running)
            return True
        live = self.reading.pop()
        self.held -= live.held
        jobs.reading -= 1
        jobs.back.append(live)
        return True

    def _outgrown(self) -> None:
        """Caches have no room left: the last ones that were let in are put back, and read again later, or brought from the host."""
        while self.held > self.room.bytes and self.n > 1:
            last = max(self.running, key=_NUMBER)
            if not last[2].ends:  # the place of one that has ended is kept for its batch
                last = max((each for each in self.running if each[2].ends), key=_NUMBER)
            self._put_back(last)
        heapify(self.running)

    def _put_back(self, entry: tuple[int, int, Live]) -> None:
        live = entry[2]
        written = int(self._written(live))
        self._lighten(live)
        self.n -= 1
        live.ends = 0
        if self._late and not written and live.number < JOB:
            when, those = self._late.pop()
            self._late += [(when, those - 1)] if those > 1 else []
        self.running.remove(entry)  # whoever asks makes a heap of them again
        if self.prefixes is not None and not (self.host is not None and self.host.swaps):
            self.prefixes.leave(live.number, live.request, live.prompt + written)
        live.prompt += written
        live.left -= written
        self._wrote(live, written)
        live.written += written
        if self.host is not None:
            self.host.leaves(live.request.adapter)
            if self.host.swaps:
                live.away = self.room.contexts.at(live.prompt)[0]
                live.handed = True
                self._moving += self.host.seconds(live.away)
        live.ready = self.turns
        if live.number >= JOB:
            jobs = self._of_jobs(live)
            jobs.running -= 1
            jobs.back.append(live)
        else:
            self.spent.preempted += 1
            self.waiting.give_back(live)
