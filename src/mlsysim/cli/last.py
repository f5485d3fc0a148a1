"""The answer to a plan, which is kept so that ``explain`` can be asked about it afterwards."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlsysim.cli.output import playing
from mlsysim.cli.terminal import busy
from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.files import load_plan
from mlsysim.plans.plan import Plan
from mlsysim.zoo.writing import write_whole

_OFTEN = 1.0
"""Seconds between two notes of how far a play is."""
_LOST = "nothing of it is kept, and the same command begins it again and gives what it would have given"


def _file() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "mlsysim" / "last.json"


def answered(plan: Plan, change: bool = True) -> Answer:
    """The answer to a plan, which is kept."""
    with busy("evaluating ...") as say, _noted(plan) as note, playing(say, note):
        answer = evaluate(plan, change=change)
    remember(plan)
    return answer


@contextmanager
def _noted(plan: Plan) -> Iterator[Callable[[int, int], None] | None]:
    """What notes how far the play of a recorded trace is, about once a second. A process that is killed cannot say what it lost, so the next one does."""
    trace = None if plan.serving is None else plan.serving.trace
    if not trace:
        yield None
        return
    own, last = _file().with_name(f"playing-{os.getpid()}.json"), time.monotonic()
    _say_what_was_lost(own)

    def note(done: int, expected: int) -> None:
        nonlocal last
        if time.monotonic() - last > _OFTEN:
            last = time.monotonic()
            with suppress(InputError):
                write_whole(own, json.dumps([str(trace), done, expected]), folders=True)

    try:
        yield note
    except KeyboardInterrupt as stop:
        # A play says itself how far it was; it is read before, and others follow it.
        if str(stop):
            raise
        raise KeyboardInterrupt(f"Stopped beside the plays of {trace}; {_LOST}.") from None
    finally:
        with suppress(OSError):
            own.unlink(missing_ok=True)


def _say_what_was_lost(own: Path) -> None:
    """Of plays whose process is no more."""
    for path in own.parent.glob("playing-*.json") if os.name == "posix" else ():
        with suppress(OSError, ValueError):
            trace, done, expected = json.loads(path.read_text())
            try:
                os.kill(int(path.stem.partition("-")[2]), 0)
            except ProcessLookupError:
                path.unlink()
                warnings.warn(
                    f"A play of {trace} was killed with {done:,} of about {expected:,} requests answered; {_LOST}.",
                    stacklevel=1,
                )


def remember(plan: Plan) -> None:
    """Keep a plan; a read-only home is no reason to fail."""
    with suppress(InputError):
        write_whole(_file(), json.dumps(plan.document()), folders=True)


def recall() -> Plan:
    """The plan of the last answer."""
    try:
        return load_plan(_file())
    except InputError:
        raise InputError(
            "There is no last answer to explain; ask one first, such as `mlsysim train Llama3_70B --on 512xH100`."
        ) from None
