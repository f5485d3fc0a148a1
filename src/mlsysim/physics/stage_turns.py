"""Groups of requests that take turns on the stages of a pipeline: when one comes again, when the last is through, how busy the longest stage is."""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import where


@kernel("time: s [1e-6, 1e3], groups whole [1, 1e3], stage: s [1e-6, 1e3] -> period: s")
def pipelined_period(time: Any, groups: Any, stage: Any) -> Any:
    """Time between two tokens of a group when ``groups`` groups take turns on the stages.

    A group needs ``time`` for all stages; the longest one, which is busy with it for ``stage``, serves every group in turn. Both
    are of the same work, one or the other is on the critical path.
    """
    turns = groups * stage
    return where(time >= turns, time, turns)


@kernel("time: s [1e-6, 1e3], groups whole [1, 1e3], stage: s [1e-6, 1e3] -> last: s")
def pipelined_completion(time: Any, groups: Any, stage: Any) -> Any:
    """When the last of ``groups`` groups leaves the pipeline: one whole pass, and the longest stage for each group more."""
    return time + (groups - 1.0) * stage


@kernel("groups whole [1, 1e3], longest [1e-3, 1] -> share")
def pipelined_share(groups: Any, longest: Any) -> Any:
    """How much of the time of ``groups`` groups (:func:`pipelined_completion`) the longest stage is busy with them, of whose pass it is a
    share ``longest``: so much later the next ones are through. One without a pipeline."""
    return groups * longest / (1.0 + (groups - 1.0) * longest)
