"""The kernel suite and the verifications of one machine, in one run.

    python -m mlsysim.calibrate.suite --out DIR [--chip H200] [--tiny] [--limit SECONDS]

Writes ``kernels.csv`` (the rows of ``calibrate --measure``), ``profile.toml`` and ``calibration.json`` (their fit), and
``verify.json`` (prediction beside measurement for each model and phase, with the shipped profile and with the fitted one).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlsysim.calibrate.device import Device
from mlsysim.calibrate.measure import measure
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.samples import read_samples, with_layers, write_samples
from mlsysim.calibrate.user import calibrate, user_profile
from mlsysim.calibrate.verify import predict, verify
from mlsysim.calibrate.write import profile_toml
from mlsysim.models.registry import Models

CASES: dict[str, list[dict[str, Any]]] = settings("suite")["cases"]


def run(out: Path, chip: str | None = None, tiny: bool = False, limit: float = 330.0) -> list[dict[str, Any]]:
    """Measure, fit, verify; write as results come in, so that an end by the clock loses nothing."""
    start = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    device = Device()
    node = device.chip(chip)
    suite = measure(device, 2.0 if tiny else 60.0, "tiny" if tiny else None)
    write_samples(suite.rows, out / "kernels.csv")
    print(f"{device.name}: {len(suite.rows)} kernels in {suite.seconds:.0f} s", *suite.notes, sep="\n  ", flush=True)
    fitted = calibrate(read_samples(out / "kernels.csv"), node)
    (out / "profile.toml").write_text(profile_toml(fitted.profile), encoding="utf-8")
    document = {**fitted.to_dict(), "device": suite.device, "torch": str(device.torch.__version__)}
    (out / "calibration.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    print(
        f"kernels: median error {fitted.before_pct:.1f} % as shipped, {fitted.after_pct:.1f} % fitted (left out)",
        flush=True,
    )
    results: list[dict[str, Any]] = []
    for result in _cases(CASES["tiny" if tiny else "full"], device, chip, fitted.profile, start, limit):
        results.append(result)
        (out / "verify.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(f"done in {time.perf_counter() - start:.0f} s", flush=True)
    return results


def _cases(
    cases: list[dict[str, Any]], device: Device, chip: str | None, fitted: Any, start: float, limit: float
) -> Iterator[dict[str, Any]]:
    for case in cases:
        label = " ".join(str(value) for value in case.values())
        if time.perf_counter() - start > limit:
            print(f"{label}: left out, the time is over", flush=True)
            yield {**case, "skipped": "the time is over"}
            continue
        try:
            result = verify(**case, chip=chip, device=device)
        except Exception as error:
            # One pass that does not run here must not cost the others.
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            print(f"{label}: {reason}", flush=True)
            yield {**case, "skipped": reason}
            continue
        model, node, fuse = Models.get(case["model"]), device.chip(chip), case.get("fuse", False)
        model = with_layers(model, result.layers) if result.layers and not hasattr(model, "rows") else model
        asked = (model, result.phase, result.batch, result.seq_len or 0, result.precision, node, result.graph, fuse)
        with user_profile(profile_toml(fitted.model_copy(update={"name": node.metadata.key}))):
            refitted = predict(*asked)
        seconds = refitted["predicted_s"]
        answer = {
            **result.to_dict(),
            "fused": fuse,
            "fitted_s": seconds,
            "fitted_error_pct": 100 * (seconds / result.measured_s - 1),
            "fitted_parts": refitted["parts"],
        }
        print(
            f"{label}: measured {1e3 * result.measured_s:.4g} ms, predicted {1e3 * result.predicted_s:.4g} ms "
            f"({result.error_pct:+.1f} %), fitted {1e3 * seconds:.4g} ms ({answer['fitted_error_pct']:+.1f} %), "
            f"{'graph' if result.graph else 'eager'}, {result.attention}",
            flush=True,
        )
        yield answer


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
