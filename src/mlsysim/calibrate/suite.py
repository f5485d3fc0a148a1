"""The kernel suite and the verifications of one machine, in one run.

    python -m mlsysim.calibrate.suite --out DIR [--chip H200] [--tiny] [--limit SECONDS]

Writes ``kernels.csv`` (the rows of ``calibrate --measure``), ``profile.toml`` and ``calibration.json`` (their fit), and
``verify.json`` (prediction beside measurement for each model and phase, with the shipped profile and with the fitted one).
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

from mlsysim.calibrate.device import Device
from mlsysim.calibrate.measure import measure
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.samples import read_samples, with_layers, write_samples
from mlsysim.calibrate.user import calibrate, user_profile
from mlsysim.calibrate.verify import Pass, predict, verify
from mlsysim.calibrate.write import profile_toml
from mlsysim.models.registry import Models

CASES: dict[str, list[dict[str, Any]]] = settings("suite")["cases"]


say = partial(print, flush=True)
"""A line at once, so that an end by the clock loses nothing."""


def run(out: Path, chip: str | None = None, tiny: bool = False, limit: float = 330.0) -> list[dict[str, Any]]:
    """Measure, fit, verify; write as results come in."""
    start = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    device = Device()
    suite = measure(device, 2.0 if tiny else 60.0, "tiny" if tiny else None)
    write_samples(suite.rows, out / "kernels.csv")
    say("\n  ".join([f"{device.name}: {len(suite.rows)} kernels in {suite.seconds:.0f} s", *suite.notes]))
    fitted = calibrate(read_samples(out / "kernels.csv"), device.chip(chip))
    (out / "profile.toml").write_text(profile_toml(fitted.profile), encoding="utf-8")
    document = {**fitted.to_dict(), "device": suite.device, "torch": str(device.torch.__version__)}
    (out / "calibration.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    say(f"kernels: median error {fitted.before_pct:.1f} % as shipped, {fitted.after_pct:.1f} % fitted (left out)")
    results: list[dict[str, Any]] = []
    for case in CASES["tiny" if tiny else "full"]:
        label, reason = " ".join(str(value) for value in case.values()), "the time is over"
        try:
            late = time.perf_counter() - start > limit
            found = None if late else _verified(case, device, chip, fitted.profile, label)
        except Exception as error:
            # One pass that does not run here must not cost the others.
            found, reason = None, f"{type(error).__name__}: {error}".splitlines()[0][:200]
        if found is None:
            say(f"{label}: {'left out, ' if late else ''}{reason}")
        results.append(found or {**case, "skipped": reason})
        (out / "verify.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    say(f"done in {time.perf_counter() - start:.0f} s")
    return results


def _verified(case: dict[str, Any], device: Device, chip: str | None, fitted: Any, label: str) -> dict[str, Any]:
    """A pass that is run, predicted as shipped, and predicted with the fitted profile."""
    result = verify(**case, chip=chip, device=device)
    model, node = Models.get(case["model"]), device.chip(chip)
    model = with_layers(model, result.layers) if result.layers and not hasattr(model, "rows") else model
    sizes = result.batch, result.seq_len or 0, result.precision
    work = Pass(model, result.phase, *sizes, result.compiled, result.adapters)
    with user_profile(profile_toml(fitted.model_copy(update={"name": node.metadata.key}))):
        refitted = predict(work, node, result.graph)
    seconds = refitted["predicted_s"]
    error = 100 * (seconds / result.measured_s - 1)
    say(
        f"{label}: measured {1e3 * result.measured_s:.4g} ms, predicted {1e3 * result.predicted_s:.4g} ms "
        f"({result.error_pct:+.1f} %), fitted {1e3 * seconds:.4g} ms ({error:+.1f} %), "
        f"{'graph' if result.graph else 'eager'}, {result.layers} of {result.of_layers} layers, {result.attention}"
    )
    more = {"fitted_s": seconds, "fitted_error_pct": error, "fitted_parts": refitted["parts"]}
    return {**result.to_dict(), **more}


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m mlsysim.calibrate.suite", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--chip")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--limit", type=float, default=330.0, help="seconds after which no further pass is started")
    given = parser.parse_args(arguments)
    run(given.out, given.chip, given.tiny, given.limit)


if __name__ == "__main__":
    main()
