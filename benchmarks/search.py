"""How fast sweeps are, as ratios that are measured in one run.

    python benchmarks/search.py [rates] [workers] [dask] [linear] [gpt3] [--seconds 4] [--repeat 3]

rates    points per second of processor time of a training search, first order and calibrated, full stack (memory, step
         time, MFU, goodput, dollars, energy, carbon), beside solving the same points one by one
workers  wall time of one process against two, beside two programs that know nothing of each other: what the machine gives
dask     wall time of a Dask cluster of two processes against a pool of two, both started beforehand, on 10^8 points
linear   10^8 points against ten times 10^7, and the largest memory of the process after each
gpt3     the exhaustive search of GPT3-175B on 4,096 A100 that is shipped with the examples

Without names all are run. Times of a ratio are taken in turns and their medians compared, because a shared machine
changes its speed from one second to the next.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

from mlsysim.errors import InputError  # noqa: E402
from mlsysim.search.answers import answer, explanation  # noqa: E402
from mlsysim.search.executors import local_cluster  # noqa: E402
from mlsysim.search.kinds import kind_named  # noqa: E402
from mlsysim.search.reduce import Reduction  # noqa: E402
from mlsysim.search.space import Space  # noqa: E402
from mlsysim.search.sweep import sweep  # noqa: E402
from mlsysim.search.tiles import tiles  # noqa: E402
from mlsysim.walls.fleet.fragility import ReliabilityModel  # noqa: E402
from mlsysim.walls.operations.capital import EconomicsModel  # noqa: E402

FIRST_ORDER_AIM, CALIBRATED_AIM = 1_500_000, 1_000_000
WORKERS_AIM, DASK_AIM, LINEAR_AIM, MEMORY_AIM_MB, GPT3_AIM_S = 1.7, 1.25, 1.2, 500, 60
GPT3 = Path(__file__).parent.parent / "src" / "mlsysim" / "examples" / "sweeps" / "gpt3-175b-4096-a100.toml"


def layouts(fidelity: str) -> Space:
    """GPT3-175B on 4,096 A100, with the constraints that leave only layouts that divide."""
    return Space.from_dict(
        {
            "kind": "training",
            "maximize": "mfu",
            "constraints": [
                "(batch_size * tp * pp) % 4096 == 0",
                "pp * (v_stages - 1) < 96",
                "(batch_size * tp * pp / 4096) % micro_batches == 0",
            ],
            "fixed": {
                "model": "GPT3_175B",
                "node": "DGX_A100",
                "fabric": "InfiniBand_HDR",
                "nodes": 512,
                "grid": "Quebec",
                "overlap_comm": True,
                "efficiency": "calibrated" if fidelity == "calibrated" else 0.5,
            },
            "axes": {
                "batch_size": {"powers_of": 2, "from": 256, "to": 16384},
                "overlap_tp": {"range": [0, 0.9], "count": 80},
                "tp": {"powers_of": 2, "to": 32},
                "pp": {"powers_of": 2, "to": 64},
                "v_stages": {"range": [1, 12]},
                "micro_batches": {"powers_of": 2, "to": 4096},
                "zero_stage": {"range": [0, 3]},
                "recompute": ["none", "selective", "full"],
            },
        },
        name=f"gpt3-175b {fidelity}",
    )


def chips(points: int) -> Space:
    """Hypothetical chips, ten million or a multiple."""
    return Space.from_dict(
        {
            "kind": "node",
            "minimize": "usd_per_mtoken",
            "pareto": ["latency_s", "price_usd"],
            "fixed": {"model": "Llama3_70B", "precision": "fp8", "phase": "decode", "seq_len": 2048},
            "axes": {
                "batch_size": {"powers_of": 2, "to": 512},
                "price": {"range": [10_000, 30_000], "count": points // 10**6, "unit": "USD"},
                "peak": {"range": [100, 2000], "count": 100, "unit": "TFLOP/s"},
                "bandwidth": {"range": [1, 6], "count": 50, "unit": "TB/s"},
                "capacity": {"range": [80, 240], "count": 20, "unit": "GB"},
            },
        },
        name=f"{points:.0e} chips",
    )


def memory_mb() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def verdict(name: str, reached: float, aim: float, unit: str, *, least: bool) -> None:
    """One line: what was reached, what was wanted."""
    met = reached >= aim if least else reached <= aim
    sign = ">=" if least else "<="
    print(f"{name:<44}{reached:>14,.4g} {unit:<10} aim {sign} {aim:,g}: {'met' if met else 'MISSED'}", flush=True)


# --- points per second ------------------------------------------------------------------------------------------------


def sampled(space: Space, count: int) -> Iterator[Any]:
    """Full tiles at random places of a space, so that no corner of it decides the rate."""
    random = np.random.default_rng(0)
    for start in random.integers(0, space.size, count).tolist():
        tile = next(tiles(space.admitted(start, space.size)), None)
        if tile is not None:
            yield tile


def rate(space: Space, seconds: float, repeat: int) -> float:
    """Designs per second of processor time, decoded, evaluated and reduced; the median of several turns."""
    evaluate = kind_named(space.kind).evaluate
    chosen = list(sampled(space, 24))
    found = []
    for turn in range(repeat + 1):
        reduction = Reduction(space)
        start = time.process_time()
        while time.process_time() - start < seconds / repeat:
            for tile in chosen:
                columns = space.decode(tile)
                reduction.add(tile, columns, evaluate(space, columns))
        # The first turn fills tables.
        if turn:
            found.append(reduction.points / (time.process_time() - start))
    return statistics.median(found)


def one_by_one(space: Space, count: int) -> float:
    """Designs per second of processor time through the resolvers: step, goodput and cost."""
    evaluate = kind_named(space.kind).evaluate
    indices = np.concatenate(list(sampled(space, 24)))
    indices = indices[evaluate(space, space.decode(indices))["valid"]]
    points = [space.point(index) for index in np.random.default_rng(1).choice(indices, count).tolist()]
    fragility, capital = ReliabilityModel(), EconomicsModel()
    fleet: Any = None
    start = time.process_time()
    for point in points:
        step: Any = answer(space, point)
        fleet = fleet or _fleet(space)
        goodput = fragility.solve(fleet=fleet, job_duration_hours=720.0).goodput_ratio
        useful = step.tokens_per_second.magnitude * goodput
        capital.solve(fleet=fleet, duration_days=30.0, grid=space.fixed["grid"], mfu=step.mfu, throughput=useful)
    return count / (time.process_time() - start)


def _fleet(space: Space) -> Any:
    from mlsysim.systems.registry import Fabrics, Nodes
    from mlsysim.systems.types import Fleet

    fixed = space.fixed
    return Fleet(name="A100", node=Nodes[fixed["node"]], count=fixed["nodes"], fabric=Fabrics[fixed["fabric"]])


def rates(seconds: float, repeat: int) -> None:
    """First order and calibrated, beside single answers."""
    for fidelity, aim, count in (("first order", FIRST_ORDER_AIM, 200), ("calibrated", CALIBRATED_AIM, 20)):
        try:
            space = layouts(fidelity)
        except InputError as error:
            print(f"{fidelity}: not measured: {error}")
            continue
        reached, single = rate(space, seconds, repeat), one_by_one(space, count)
        verdict(f"{fidelity}, full stack, one core", reached, aim, "points/s", least=True)
        print(f"{'  one by one, and how many times faster':<44}{single:>14,.4g} points/s   {reached / single:,.0f}")


# --- wall times -------------------------------------------------------------------------------------------------------


def in_turns(repeat: int, *runs: Callable[[], Any]) -> list[float]:
    """Median wall seconds of each, measured in turns."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(repeat):
        for run, found in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            found.append(time.perf_counter() - start)
    return [statistics.median(found) for found in times]


def workers(repeat: int) -> None:
    """Two processes against one."""
    space, half = chips(10**8), chips(5 * 10**7)

    def apart() -> None:
        programs = [get_context("spawn").Process(target=sweep, args=(half,)) for _ in range(2)]
        for program in programs:
            program.start()
        for program in programs:
            program.join()

    one, two, separate = in_turns(repeat, lambda: sweep(space), lambda: sweep(space, workers=2), apart)
    print(f"{space.name}: one process {one:.2f} s, two {two:.2f} s with their start")
    print(
        f"two programs of half the size, each for itself: {separate:.2f} s; this machine gives {one / separate:.2f} times"
    )
    verdict("two processes against one", one / two, WORKERS_AIM, "times", least=True)


def dask(repeat: int) -> None:
    """A Dask cluster against a pool, two processes each, both started and warm."""
    space = chips(10**8)
    try:
        with local_cluster(2) as address, ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:

            def on_pool() -> None:
                sweep(space, workers=2, executor=pool)

            def on_dask() -> None:
                sweep(space, dask=address)

            in_turns(1, on_pool, on_dask)
            processes, cluster = in_turns(repeat, on_pool, on_dask)
    except InputError as error:
        print(f"dask: not measured: {error}")
        return
    print(f"{space.name}: pool {processes:.2f} s, Dask {cluster:.2f} s")
    verdict("Dask against the pool", cluster / processes, DASK_AIM, "times", least=False)


def linear(repeat: int) -> None:
    """10^8 points against ten times 10^7, at flat memory."""
    small, large = chips(10**7), chips(10**8)
    before = memory_mb()
    (short,) = in_turns(repeat, lambda: sweep(small))
    middle = memory_mb()
    (long,) = in_turns(1, lambda: sweep(large))
    (again,) = in_turns(repeat, lambda: sweep(small))
    print(f"10^7 points {(short + again) / 2:.2f} s, 10^8 points {long:.2f} s")
    verdict("10^8 points against 10 x 10^7", long / (5 * (short + again)), LINEAR_AIM, "times", least=False)
    print(f"memory: {before:.0f} MB before, {middle:.0f} MB after 10^7, {memory_mb():.0f} MB after 10^8")
    verdict("memory at 10^8 points", memory_mb(), MEMORY_AIM_MB, "MB", least=False)


def gpt3() -> None:
    """The exhaustive search of the examples on one core."""
    space = Space.from_toml(GPT3)
    found = sweep(space)
    print(f"{space.name}: {found.points:,} designs of {found.size:,}, {found.points_per_second:,.0f} a second")
    verdict("GPT3-175B on 4,096 A100, wall time", found.seconds, GPT3_AIM_S, "s", least=False)
    print(f"best: MFU {found.best[0]['outputs']['mfu']:.4f} with {found.best[0]['inputs']}")
    for sentence in explanation(space, found.best[0]["inputs"])["sentences"]:
        print(f"  {sentence}")


def main() -> None:
    """Print the figures that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="rates, workers, dask, linear, gpt3")
    parser.add_argument("--seconds", type=float, default=4.0, help="processor seconds for a rate")
    parser.add_argument("--repeat", type=int, default=3, help="turns whose median counts")
    given = parser.parse_args()
    parts: dict[str, Callable[[], None]] = {
        "rates": lambda: rates(given.seconds, given.repeat),
        "workers": lambda: workers(given.repeat),
        "dask": lambda: dask(given.repeat),
        "linear": lambda: linear(given.repeat),
        "gpt3": gpt3,
    }
    for name in given.names or parts:
        if name not in parts:
            parser.error(f"{name!r} is none of {', '.join(parts)}")
        parts[name]()


if __name__ == "__main__":
    main()
