"""Caches of prefixes: beginnings of prompts (system prompts, documents, earlier turns) that were read before are found, not read again.

    K = (C - M(n)) / c                 tokens that fit beside n requests in flight, c bytes each
    found = h min(1, (K + K_host)/S)   of the prompts' tokens, S those of all prefixes that are asked for
    t_host = h_host I c / L            for what comes from the host: bytes of a device over its link

h is what a cache without limits finds. Prefixes that are asked for equally often are found as far as they are kept (least recently used, independent
references); of popular ones more is found than that, so that it is a lower bound. Engines evict prefixes before they refuse a request, so
that only what requests leave is for them. A request's own blocks are counted whole, also those that it shares with others (a
little less room than there is). Each replica, and each group of attention, keeps its own: requests are not routed by prefix.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from mlsysim.cases.cache import DeviceMemory
from mlsysim.cases.machines import Machine
from mlsysim.cases.serve import serve
from mlsysim.cases.traffic import Traffic
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum, minimum


@kernel("asked [0.01, 1], kept [1, 1e9], working [1, 1e9] -> share")
def share_found(asked: Any, kept: Any, working: Any) -> Any:
    """Share of the prompts' tokens that is found where so many of the tokens that are asked for are kept."""
    return asked * minimum(kept / working, 1.0)


class Found(NamedTuple):
    """What is found: of the prompts' tokens in all and with the host, seconds until that is there, and tokens that are kept on the device and in
    all."""

    share: Any
    from_host: Any
    recall: Any
    kept: Any
    held: Any


def found_prefixes(
    memory: DeviceMemory, requests: Any, token: Any, prompt: Any, asked: Any, working: Any, host: Any, link: Any
) -> Found:
    """What a cache finds beside so many ``requests`` on a device whose caches take so many bytes a ``token``; ``host`` bytes of the host's memory,
    over a ``link`` in bytes a second."""
    kept = maximum(memory.capacity - memory.used(requests), 0.0) / token
    held = kept + host / token
    near, share = (share_found(asked, room, working) for room in (kept, held))
    return Found(share, share - near, (share - near) * prompt * token / link, kept, held)


def found_beside(machine: Machine, t: Traffic, asked: Any, working: Any, host: Any, link: Any) -> tuple[Found, Any]:
    """What a machine's caches find beside the requests of a traffic, and how many of these a replica has at once."""
    memory = machine.memories(t)[-1]
    token = machine.memories(Traffic(t.prompt, 0))[-1].each / t.prompt
    flying = t.batch
    if machine.apart:
        # Readers of prompts that come at a rate have one each, at the least.
        flying = machine.prompts(replace(t, together=t.together or 1.0))
    elif t.concurrency is not None:
        flying = min(math.ceil(t.concurrency / t.replicas), memory.sequences)
    elif t.rate is not None:
        warm = replace(t, together=1.0, cached=round(asked * t.prompt))
        flying = math.ceil(serve(machine, warm).active / t.replicas)
    return found_prefixes(memory, flying, token, t.prompt, asked, working, host, link), flying
