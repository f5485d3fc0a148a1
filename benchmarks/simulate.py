"""How fast a service is simulated, in requests a second of processor time, on one core, and how fast training runs are.

    python benchmarks/simulate.py [short] [long] [week] [memory] [runs] [--count 200000]

short    500 + 100 tokens at random at 70 % of what a replica answers
long     Mooncake's conversations of 12,000 tokens on average, whose beginnings are kept (prefix cache), on replicas that take turns; then by a router
         that looks at every replica's caches
week     a week at the mean rate of Azure's conversation trace, with hours of the day, on the replicas that it needs
memory   the largest memory of the process after a trace and after one ten times as long, when only percentiles are asked
runs     a training run of 90 days on 16,384 GPUs with a thousand seeds (a tenth of them are played), spares, repairs and nodes that break again

Without names all are run; short and long are the best of three plays. A plain Python loop of the same number of heap operations is timed beside it, since machines differ.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import islice

from mlsysim.cases.goodput import Saving, exact_goodput_of
from mlsysim.cases.machines import Engines
from mlsysim.cases.serve import serve
from mlsysim.cases.traffic import Traffic
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.simulate.requests import Request
from mlsysim.simulate.run import causes
from mlsysim.simulate.run.run import Setting, play_all
from mlsysim.simulate.serving import Settings, Simulated, simulate
from mlsysim.simulate.traces import read_trace
from mlsysim.simulate.traffic import Fixed, Load, Spread, profiles
from mlsysim.timing.engine_step import engine_step
from mlsysim.timing.engines import engine

SHORT_AIM, LONG_AIM, WEEK_AIM_S, MEMORY_AIM, RUNS_AIM_S = 100_000, 20_000, 30.0, 1.1, 60.0
AZURE_RATE = 5.53


def machine() -> Engines:
    """An 8B model on one H100."""
    step = engine_step(Models.get("Llama3_8B"), Hardware.get("H100"), engine("vLLM"))
    return Engines(step, step)


def highest(one: Engines, prompt: int, answer: int) -> float:
    """Requests a second that a replica answers at most."""
    return float(serve(one, Traffic(prompt, answer, rate=1e6, together=1.0)).requests)


def heaps(count: int) -> float:
    """Seconds in which plain Python puts as many numbers on a heap and takes them off."""
    start, heap = time.process_time(), list[tuple[int, int]]()
    for number in range(count):
        heappush(heap, (number * 7919 % 104729, number))
        if len(heap) > 100:
            heappop(heap)
    return time.process_time() - start


def played(
    one: Engines, t: Traffic, requests: Iterable[Request], count: int, settings: Settings, times: int = 1
) -> tuple[Simulated, float]:
    """What was seen, and the least seconds of processor time of so many plays."""
    found = []
    for _ in range(times):
        start = time.process_time()
        seen = simulate(one, t, requests, count, settings)
        found.append(time.process_time() - start)
    return seen, min(found)


def say(name: str, count: int, seconds: float, aim: str) -> None:
    """A rate beside its aim and beside plain Python."""
    beside = min(heaps(count) for _ in range(3)) / seconds
    print(
        f"{name:7s} {count / seconds:11,.0f} requests a CPU second ({seconds:.1f} s; a heap alone is {1 / beside:.0f} times as fast); aim {aim}"
    )


def short(count: int) -> None:
    """Requests of 500 + 100 tokens."""
    one = machine()
    rate = 0.7 * highest(one, 500, 100)
    drawn = list(Load(rate, Fixed(500), Fixed(100), count=count).requests(1))
    _, seconds = played(one, Traffic(500, 100, rate=rate, together=1.0), drawn, count, Settings(), 3)
    say("short", count, seconds, f">= {SHORT_AIM:,}")


def long(count: int) -> None:
    """Mooncake's conversations, of 12,000 tokens on average, whose beginnings are kept."""
    one, trace = machine(), read_trace("mooncake-conversation")
    drawn = list(islice(trace, count))
    mean = round(sum(request.prompt for request in drawn) / len(drawn))
    t = Traffic(mean, 300, rate=1.0, together=1.0, replicas=4)
    for name, router in (("long", "round_robin"), ("routed", "prefix")):
        seen, seconds = played(one, t, drawn, len(drawn), Settings(block_tokens=trace.block_tokens, router=router), 3)
        say(name, len(drawn), seconds, f">= {LONG_AIM:,}; prompts of {mean:,} tokens, {sum(seen.found):.0%} found")


def week(count: int) -> None:
    """A week of requests at Azure's rate."""
    one = machine()
    hours = profiles("servegen-large")
    load = Load(AZURE_RATE, Spread(1155.0, 1.0), Spread(211.0, 0.8), hours=hours, duration=7 * 86400.0)
    t = Traffic(1155, 211, rate=AZURE_RATE, together=1.0)
    seen, seconds = played(one, t, load.requests(1), round(7 * 86400 * AZURE_RATE), Settings())
    print(f"week    {seen.requests:,} requests in {seconds:.1f} s of CPU, drawing included; aim < {WEEK_AIM_S:g} s")


def memory(count: int) -> None:
    """Ten times as many requests in the same memory."""
    one = machine()
    t = Traffic(500, 100, rate=20.0, together=1.0)
    used = []
    for many in (count // 4, 10 * (count // 4)):
        simulate(one, t, Load(20.0, Fixed(500), Fixed(100), count=many).requests(1), many, Settings())
        used.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    print(
        f"memory  {used[1] / used[0]:.2f} times as much for ten times the requests ({used[0] / 1e3:.0f} MB); aim <= {MEMORY_AIM}"
    )


def runs(count: int) -> None:
    """A thousand runs of 90 days."""
    mtbf, nodes, write, restart = 3.09, 2048, 11.4, 356.0
    interval = float(exact_goodput_of(mtbf, Saving(write, restart)).interval)
    parts = causes.causes_of(mtbf, nodes)
    run = Setting(80 * 86400.0, parts, interval, write, restart, 56.0, nodes, spares=64, again=causes.again())
    start = time.process_time()
    found = play_all(run, 100)
    seconds = 10 * (time.process_time() - start)
    events = 10 * sum(sum(each.interruptions.values()) for each in found.runs)
    ratio = seconds / heaps(events)
    days = found.seconds.levels["p50"] / 86400
    print(
        f"runs    1,000 runs of {days:.0f} days with {events:,} failures in {seconds:.1f} s of CPU, {ratio:.0f} times as many heap operations; "
        f"aim < {RUNS_AIM_S:g} s"
    )


def main() -> None:
    """Run what is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], "short", "long", "week", "memory", "runs"])
    parser.add_argument("--count", type=int, default=200_000)
    given = parser.parse_args()
    for name in given.names or ("short", "long", "week", "memory", "runs"):
        {"short": short, "long": long, "week": week, "memory": memory, "runs": runs}[name](given.count)


if __name__ == "__main__":
    main()
