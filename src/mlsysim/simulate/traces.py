"""A load that was recorded: requests one by one from a file or by name, with what was measured of them.

    trace = read_trace("azure-code")                      # shipped, with its notice in trace.about
    trace = read_trace("results.json", context=8192)      # any format of formats.py, found by its content
    trace.summary.rate, trace.summary.burst               # after one pass
    trace.scaled(rate=20).part(start=600, stop=1200)      # further traces; nothing is read before somebody asks

A trace may be read as often as one likes; it holds a path, not requests, so that a day of millions needs no memory and a worker process
gets it by name (the first requests of one that was read are kept beside it). Times count from the first request of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cached_property
from importlib.resources import files
from itertools import islice
from math import floor, isfinite, sqrt
from pathlib import Path
from typing import Any, Protocol

from mlsysim.errors import InputError, nearest, refuse_address
from mlsysim.simulate.draws import Draws
from mlsysim.simulate.formats import lines_of
from mlsysim.simulate.lines import Line
from mlsysim.simulate.packed import block_size
from mlsysim.simulate.requests import Measured, Request
from mlsysim.units.records import dataclass
from mlsysim.zoo.files import shipped

__all__ = ["Summary", "Trace", "read_runs", "read_trace", "shipped_traces"]

Pair = tuple[Request, Measured]


@dataclass(frozen=True)
class Summary:
    """What one pass over a trace finds. Coefficients of variation are of the requests, not of their estimate."""

    count: int
    failed: int
    """Requests that the file says were not answered; they are left out of all else."""
    duration: float
    """Seconds from the first to the last arrival."""
    rate: float
    """Requests a second: one over the mean gap; infinite where all come at once."""
    burst: float
    """Coefficient of variation of the gaps."""
    prompt: float
    prompt_cv: float
    answer: float
    answer_cv: float
    longest: int
    """Most tokens of a prompt and its answer."""
    shared: float | None
    """Share of the prompts' tokens in leading blocks that came before, as a cache without limit finds them; None without blocks."""


class _Source(Protocol):
    def pairs(self, failed: list[int | str]) -> Iterator[Pair]: ...


@dataclass(frozen=True)
class Trace:
    """Requests that were recorded."""

    name: str
    source: _Source = field(repr=False)
    block_tokens: int = 16
    about: str = ""
    """Where it is from and under which licence, for those that are shipped."""

    def __iter__(self) -> Iterator[Request]:
        return (request for request, _ in self.source.pairs([]))

    def requests(self, seed: int = 0) -> Iterator[Request]:
        """As a load has it; what was recorded does not depend on a seed."""
        return iter(self)

    def measured(self) -> Iterator[Pair]:
        """Requests with what was measured of each."""
        return self.source.pairs([])

    def scaled(self, rate: float | None = None, factor: float | None = None) -> Trace:
        """The same requests ``factor`` times as often, or at a ``rate``: all times are divided.

        Gaps keep their coefficient of variation and their order, so a burst of forty requests stays one. Counts in a window of w
        seconds are those that were in w x factor seconds: variance over mean of the counts of a minute becomes what it was for a longer
        window, which in real traffic is more. Thinning (each request with probability p) is no way to a lower rate: variance over mean
        of counts goes from I to 1 + p (I - 1), so that what is left looks ever more like Poisson traffic and needs too few replicas.
        """
        if (rate is None) == (factor is None):
            raise InputError("A trace is scaled by a rate or by a factor: give one of them.")
        by = factor if factor is not None else rate / self.summary.rate  # type: ignore[operator]
        if not 0 < by < float("inf"):
            raise InputError(
                f"A trace is scaled by a number above 0, got {by:g} (its own rate is {self.summary.rate:g} a second)."
            )
        return self._with(_Scaled(self.source, by))

    def part(self, start: float = 0.0, stop: float = float("inf"), skip: int = 0, requests: int | None = None) -> Trace:
        """From ``start`` up to ``stop`` seconds, without the first ``skip`` of these, at most so many ``requests``.

        Times count from ``start``, and from the first request that is left where some are skipped.
        """
        if not 0 <= start < stop or skip < 0 or (requests is not None and requests < 1):
            raise InputError(
                f"A part has 0 <= start < stop, skip >= 0 and 1 request or more, got {start:g}, {stop:g}, {skip} and {requests}."
            )
        return self._with(_Part(self.source, start, stop, skip, requests))

    def spread(self, tick: float, seed: int = 0) -> Trace:
        """For stamps that were rounded to multiples of ``tick`` seconds: each request comes at a random moment of its tick.

        Taken literally, rounded stamps are batches that nobody sent. A stamp belongs to the nearest multiple.
        """
        if not tick > 0:
            raise InputError(f"A tick is above 0 s, got {tick:g}.")
        return self._with(_Spread(self.source, tick, seed))

    def _with(self, source: _Source) -> Trace:
        return Trace(self.name, source, self.block_tokens, self.about)

    @cached_property
    def summary(self) -> Summary:
        """Counts, rate, bursts, lengths and what prompts share; one pass over the file."""
        failed: list[int | str] = []
        count = prompts = answers = prompts2 = answers2 = longest = found = 0
        first = last = gaps2 = 0.0
        known: set[int] | None = None
        for request, _ in self.source.pairs(failed):
            gap = request.arrival - last if count else 0.0
            first = first if count else request.arrival
            last, count, gaps2 = request.arrival, count + 1, gaps2 + gap * gap
            prompts, prompts2 = prompts + request.prompt, prompts2 + request.prompt**2
            answers, answers2 = answers + request.answer, answers2 + request.answer**2
            longest = max(longest, request.prompt + request.answer)
            if request.blocks is not None:
                known = known if known is not None else set()
                shared = next((i for i, block in enumerate(request.blocks) if block not in known), len(request.blocks))
                found += shared * self.block_tokens
                known.update(request.blocks[shared:])
        if not count:
            raise InputError(
                f"The trace {self.name} has no requests{f' that were answered, of {len(failed)}' if failed else ''}."
            )
        duration, number = last - first, max(1, count - 1)
        return Summary(
            count, len(failed), duration, number / duration if duration else float("inf"),
            _cv(duration, gaps2, number), prompts / count, _cv(prompts, prompts2, count), answers / count,
            _cv(answers, answers2, count), longest, None if known is None else found / prompts,
        )  # fmt: skip


def _cv(total: float, squares: float, count: int) -> float:
    mean = total / count
    return sqrt(max(0.0, squares / count - mean * mean)) / mean if mean else 0.0


# --- what a trace is made of: plain data, so that it travels to other processes ----------------------------------------------


_SHORT, _FEW = 20_000, 2
"""Requests of a trace that are kept, its first ones, and traces."""
_KNOWN: dict[Any, list[Pair]] = {}


@dataclass(frozen=True)
class _File:
    path: Path
    run: str
    block_tokens: int
    sort: bool
    context: int | None
    cut: bool

    def pairs(self, failed: list[int | str]) -> Iterator[Pair]:
        """All of it; the first requests are at hand when it is asked for again, as long as its file is the same and all were answered."""
        about = self.path.stat()
        key = self, about.st_mtime_ns, about.st_size
        if key not in _KNOWN:
            lost: list[int | str] = []
            try:
                kept = list(islice(self._read(lost), _SHORT))
            except InputError:
                lost.append("a line that nobody may come to")
            if lost:
                yield from self._read(failed)
                return
            while len(_KNOWN) >= _FEW:
                del _KNOWN[next(iter(_KNOWN))]
            _KNOWN[key] = kept
        kept = _KNOWN[key]
        yield from kept
        if len(kept) == _SHORT:
            yield from islice(self._read(failed), _SHORT, None)

    def _read(self, failed: list[int | str]) -> Iterator[Pair]:
        lines = lines_of(self.path, self.block_tokens, self.run)
        begin: float | None = None
        last: float = 0.0
        before: int | str = 0
        checked, made = self.context is not None, tuple.__new__
        for line in sorted(lines, key=_arrival) if self.sort else lines:
            if line.request is None:
                failed.append(line.where)
                continue
            came, prompt, answer, session, blocks, *others = request = line.request
            if checked or prompt < 1 or answer < 1:
                came, prompt, answer, session, blocks, *others = request = self._checked(line.where, request)
            if not isfinite(came):
                raise InputError(f"{self.path}, {_at(line.where)} comes at {came:g} s, which is no time.")
            if begin is None:
                begin = came
            arrival = floor((came - begin) * 1e9 + 0.5) / 1e9
            if arrival < last:
                raise InputError(
                    f"{self.path}, {_at(line.where)} comes at {request.arrival:.9g} s, before {_at(before)} at {last + begin:.9g} s; times must not run "
                    "backwards: sort the lines by their times."
                )
            last, before = arrival, line.where
            if blocks is not None:
                blocks = blocks[: prompt // self.block_tokens]
            yield made(Request, (arrival, prompt, answer, session, blocks, *others)), line.measured

    def _checked(self, where: int | str, request: Request) -> Request:
        if request.prompt < 1 or request.answer < 1:
            raise InputError(
                f"{self.path}, {_at(where)} has {request.prompt} input and {request.answer} output tokens; expected 1 or more of each."
            )
        if self.context is None or request.prompt + request.answer <= self.context:
            return request
        left = self.context - request.answer
        if not self.cut or left < 1:
            raise InputError(
                f"{self.path}, {_at(where)} has {request.prompt:,} input and {request.answer:,} output tokens, more than the context of "
                f"{self.context:,}; leave it out" + (f", or cut its prompt to {left:,}." if left > 0 else ".")
            )
        return request._replace(prompt=left, blocks=request.blocks and request.blocks[: left // self.block_tokens])


def _at(where: int | str) -> str:
    return f"line {where}" if isinstance(where, int) else where


def _arrival(line: Line) -> float:
    return line.request.arrival if line.request else float("-inf")


@dataclass(frozen=True)
class _Scaled:
    of: _Source
    factor: float

    def pairs(self, failed: list[int | str]) -> Iterator[Pair]:
        for request, measured in self.of.pairs(failed):
            yield Request(request.arrival / self.factor, *request[1:]), measured


@dataclass(frozen=True)
class _Part:
    of: _Source
    start: float
    stop: float
    skip: int
    count: int | None

    def pairs(self, failed: list[int | str]) -> Iterator[Pair]:
        begin = None if self.skip else self.start
        inside = (pair for pair in self.of.pairs(failed) if pair[0].arrival >= self.start)
        for request, measured in islice(inside, self.skip, None if self.count is None else self.skip + self.count):
            if request.arrival >= self.stop:
                return
            if begin is None:
                begin = request.arrival
            yield Request(request.arrival - begin, *request[1:]), measured


@dataclass(frozen=True)
class _Spread:
    of: _Source
    tick: float
    seed: int

    def pairs(self, failed: list[int | str]) -> Iterator[Pair]:
        uniform = Draws(self.seed, "ticks").uniform
        here: list[Pair] = []
        now = 0

        def moments() -> Iterator[Pair]:
            times = sorted(uniform() for _ in here)
            for (request, measured), time in zip(here, times, strict=True):
                yield Request(floor((now + time) * self.tick * 1e9 + 0.5) / 1e9, *request[1:]), measured

        for pair in self.of.pairs(failed):
            tick = floor(pair[0].arrival / self.tick + 0.5)
            if tick != now:
                yield from moments()
                here.clear()
                now = tick
            here.append(pair)
        yield from moments()


# --- reading -------------------------------------------------------------------------------------------------------------


def shipped_traces() -> dict[str, dict[str, Any]]:
    """The traces that come with the package, with their facts."""
    return shipped(__package__, "data/traces.toml")


def read_trace(
    path: str | Path, run: str | None = None, *, sort: bool = False, context: int | None = None, cut: bool = False,
    block_tokens: int | None = None,
) -> Trace:  # fmt: skip
    """A shipped trace by name, or a file in any format of ``formats.py``.

    ``run`` chooses one of several in a file, as does ``FILE#RUN`` where text is all there is. Results of benchmarks and logs with measured
    times may stand in the order of their ends and are sorted; for other files ``sort`` does it. With ``context``, a longer request is an error, or its prompt is ``cut``. ``block_tokens`` is found from the numbers of
    blocks and tokens where it is not given; for prefixes that are given by name it is 16.
    """
    facts = shipped_traces().get(str(path))
    if facts is not None:
        where = Path(str(files(__package__))) / "data" / f"{path}.trace"
        size = block_size(where.read_bytes()) or 16
        trace = Trace(
            str(path), _File(where, "", size, sort, context, cut), size,
            f"{facts['what']}; {facts['source']['title']}, {facts['source']['url']}; {facts['licence']}; {facts['changes']}",
        )  # fmt: skip
        return trace.spread(facts["tick"]) if "tick" in facts else trace
    where = Path(path)
    if run is None and not where.exists():
        file, _, named = str(path).rpartition("#")
        where, run = (Path(file), named) if file and Path(file).exists() else (where, None)
    if not where.exists():
        refuse_address(path)
        close = nearest(str(path), shipped_traces(), 1)
        hint = f"did you mean {close[0]!r}?" if close else f"shipped traces are {', '.join(shipped_traces())}."
        raise InputError(f"There is no trace named {str(path)[:200]!r} and no such file; {hint}")
    runs = read_runs(where, run, sort=sort, context=context, cut=cut, block_tokens=block_tokens)
    if len(runs) == 1:
        return next(iter(runs.values()))
    names = ", ".join(map(repr, runs or read_runs(where)))[:300]
    raise InputError(
        f"The trace {path} has {f'no run {run!r}; it has' if run else f'{len(runs)} runs; say which:'} {names}."
    )


def read_runs(
    path: str | Path,
    run: str | None = None,
    *,
    sort: bool = False,
    context: int | None = None,
    cut: bool = False,
    block_tokens: int | None = None,
) -> dict[str, Trace]:
    """Every run of a file, or the one that is named; a file without runs is one whose name is empty."""
    where = Path(path)
    names: dict[str, None] = {}
    seen: list[Request] = []
    results = False
    for line in lines_of(where, block_tokens or 16, run):
        names.setdefault(line.run)
        results = results or isinstance(line.where, str) or line.measured != Measured()
        blocks = line.request.blocks if line.request is not None else None
        if line.request is not None and blocks and len(seen) < 1000:
            seen.append(line.request)
        if (run is not None or (not line.run and not isinstance(line.where, str))) and (
            block_tokens or not blocks or len(seen) == 1000
        ):
            break
    size = block_tokens or _block_tokens(where, seen)
    return {
        name: Trace(f"{where.name} {name}".strip(), _File(where, name, size, sort or results, context, cut), size)
        for name in names or ({"": None} if run is None else ())
    }


def _block_tokens(path: Path, requests: list[Request]) -> int:
    """The power of two that turns tokens into so many blocks, the last one whole or not; 16 where several do, or none is needed."""
    counted = [(r.prompt, len(r.blocks)) for r in requests if r.blocks and r.blocks[0] >= 0]
    sizes = [2**k for k in range(13) if all(p // 2**k <= n <= -(-p // 2**k) for p, n in counted)]
    if not sizes:
        raise InputError(
            f"The blocks of {path} do not tell how many tokens one has: no power of two up to 4,096 turns the tokens of each prompt into so many, such as "
            f"{counted[0][0]:,} into {counted[0][1]:,}. Leave the blocks out, or give block_tokens to read_trace in Python."
        )
    return 16 if 16 in sizes else sizes[0]
