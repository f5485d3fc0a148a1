"""What happens over time? Requests that come one after another, and replicas that answer them iteration by iteration.

    requests.py   one request, and what was measured of it
    traffic.py    a load that is drawn: rate, bursts, hours of the day, lengths, sessions, shared prefixes
    traces.py     a load that was recorded, and what a benchmark measured beside it; formats.py reads it, packed.py ships it
    draws.py      random numbers that are the same everywhere
    steps.py      iterations of an engine: the case's own step, taken apart
    room.py       caches as they fill and empty; prefixes.py: beginnings of prompts that are kept
    scheduling.py what is let in, and in which order
    replica.py    one replica over time; serving.py: all of a service; record.py: what requests saw

A case says how long an iteration takes; this room asks it and adds time: arrivals, queues, batches that change. Plain Python on
floats, so that it runs in the browser, and the same by seed on every platform.
"""
