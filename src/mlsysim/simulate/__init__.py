"""What happens over time? Requests that come one after another, and replicas that answer them iteration by iteration.

    requests.py   one request, and what was measured of it
    traffic.py    a load that is drawn: rate, bursts, hours of the day, lengths, sessions, shared prefixes
    traces.py     a load that was recorded, and what a benchmark measured beside it; formats.py reads it, packed.py ships it
    draws.py      random numbers that are the same everywhere
    steps.py      iterations of an engine: the case's own step, taken apart
    room.py       caches as they fill and empty; prefixes.py: beginnings of prompts that are kept
    scheduling.py what is let in, and in which order; live.py: a request on its way
    replica.py    one replica over time: coming.py has what waits, answers.py what is written, filling.py and jobs.py what fills the rest,
                  host.py what goes to its host and back
    replicas.py   what replicas are made of; alone.py: each played by itself; record.py: what requests saw
    fleet.py      replicas that know of each other: routers.py chooses, pools.py hands caches over, changing.py has failures and growth
    series.py     state over time, and what requests lost to which cause
    serving.py    all of a service, as settings.py has it
    run/          a training run over its weeks: failures, repairs, checkpoints, restarts

A case says how long an iteration takes; this room asks it and adds time: arrivals, queues, batches that change. Plain Python on
floats, so that it runs in the browser, and the same by seed on every platform.
"""
