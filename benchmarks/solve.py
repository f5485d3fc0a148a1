"""Solves per second of every resolver, and the ratio to a plain call of its kernel, in one run on one core.

    python benchmarks/solve.py [--seconds 0.4]

The reference is the roofline kernel on floats: how much slower is a checked, explained answer with units than the bare
arithmetic? The audit row is all resolvers of the full-stack audit, after import.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import runpy
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "walls"))

from examples_of_resolvers import CALLS, resolver  # noqa: E402

from mlsysim.hardware.registry import Hardware  # noqa: E402
from mlsysim.infra.registry import Grids  # noqa: E402
from mlsysim.models.registry import Models  # noqa: E402
from mlsysim.physics.roofline import roofline_time  # noqa: E402
from mlsysim.systems.registry import Clusters, Fabrics  # noqa: E402

TARGETS = {"SingleNodeModel": 10_000, "DistributedModel": 4_000}
REGISTRIES = {
    "model": Models,
    "hardware": Hardware,
    "fleet": Clusters,
    "fabric": Fabrics,
    "grid": Grids,
    "datacenter": Grids,
}


def rate(function: Callable[[], object], seconds: float) -> float:
    """Calls per second of CPU time, the best of three stretches."""
    function()
    best = 0.0
    for _ in range(3):
        calls, start = 0, time.process_time()
        while time.process_time() - start < seconds / 3:
            function()
            calls += 1
        best = max(best, calls / (time.process_time() - start))
    return best


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.4, help="CPU seconds for each resolver")
    seconds = parser.parse_args().seconds
    warnings.simplefilter("ignore")
    bare = rate(lambda: roofline_time(1.4e11, 1.6e10, 9.89e14, 3.35e12, 0.5), seconds)
    print(f"{'resolver':<30}{'solves/s':>12}{'kernel calls per solve':>26}")
    print(f"{'(roofline kernel on floats)':<30}{bare:>12,.0f}{1:>26}")
    for name, call in CALLS.items():
        solver = resolver(name)
        given = {k: REGISTRIES[k].get(v) if k in REGISTRIES and isinstance(v, str) else v for k, v in call.items()}
        speed = rate(lambda solver=solver, given=given: solver.solve(**given), seconds)
        target = TARGETS.get(name)
        mark = "" if target is None else f"   aim {target:,}: {'met' if speed >= target else 'missed'}"
        print(f"{name:<30}{speed:>12,.0f}{bare / speed:>26,.0f}{mark}")
    script = runpy.run_path(str(ROOT / "src" / "mlsysim" / "examples" / "full_stack_audit.py"))

    def audit() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            script["main"]()

    milliseconds = 1e3 / rate(audit, seconds)
    print(f"full-stack audit: {milliseconds:.1f} ms   aim 50 ms: {'met' if milliseconds <= 50 else 'missed'}")


if __name__ == "__main__":
    main()
