"""``doctor``: what this machine is, which chip of the zoo that is, and what would run on it. Unknown is said, never guessed."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer import Context

from mlsysim.cli.options import AsJson, Output, chosen_form
from mlsysim.cli.output import print_json, print_table, print_text
from mlsysim.errors import InputError
from mlsysim.units.records import dataclass

_SECONDS = 10.0
_PROBES = ("Llama3_8B", "Llama3_70B", "Mixtral_8x7B", "StableDiffusion_XL", "ResNet50", "Whisper_Large_V3")


@dataclass(frozen=True)
class Found:
    """A device as the system names it, its memory in bytes where told, and the zoo's key for it where there is one."""

    kind: str
    name: str
    memory: float | None
    key: str | None


def doctor(context: Context, output: Output = None, as_json: AsJson = False) -> None:
    """What is this machine, which chip of the zoo is it, and what would run on it?

    mlsysim doctor
    mlsysim doctor --json
    """
    form = chosen_form(context, output, as_json)
    devices = [*_gpus(), _cpu()]
    best, packages = _best(devices), _packages()
    runs = [] if best is None or best.key is None else _runs(best.key)
    if form == "json":
        system = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
        told = [device.__dict__ for device in devices]
        chosen = None if best is None else best.key
        print_json({**system, "devices": told, "packages": packages, "runs_on": chosen, "runs": runs})
        return
    rows = [
        [d.kind, d.name, "not told" if d.memory is None else f"{d.memory / 1e9:.1f} GB", d.key or "not in the zoo"]
        for d in devices
    ]
    print_table(form, ["device", "name", "memory", "in the zoo"], rows, right=(2,))
    if form == "text" and best is None:
        print_text(
            "None of the devices here is in the zoo. Add yours (docs/howto/add-a-chip.md; `mlsysim zoo check` checks the entry), or plan for another chip with --on."
        )
    elif form == "text" and best is not None:
        print_text(f"What would run on one {best.key} (first order):", "bold")
    if runs:
        headers = ["model", "precision", "fits", "time of a pass", "binds"]
        print_table(form, headers, [list(run.values()) for run in runs])
    if form == "text":
        missing = [name for name, version in packages.items() if version is None]
        print_text("Optional packages that are not installed: " + (", ".join(missing) or "none") + ".", "dim")


def _best(devices: list[Found]) -> Found | None:
    """The device to plan for: a GPU of the zoo, else a processor of it."""
    known = [device for device in devices if device.key is not None]
    return next((device for device in known if device.kind == "gpu"), known[0] if known else None)


def chip_here() -> str:
    """The zoo's key for the device of this machine."""
    best = _best([*_gpus(), _cpu()])
    if best is None or best.key is None:
        raise InputError(
            "No chip of the zoo was found on this machine (mlsysim doctor says what was); give a scenario instead.",
            field="workload",
        )
    return best.key


def _gpus() -> list[Found]:
    """GPUs as the vendors' own tools name them."""
    found = []
    text = _run("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
    for line in (text or "").splitlines():
        name, _, memory = line.partition(",")
        size = float(memory) * 2**20 if re.fullmatch(r"\s*\d+\s*", memory) else None
        found.append(Found("gpu", name.strip(), size, _key(name)))
    if not found and (text := _run("rocm-smi", "--showproductname", "--csv")):
        for line in text.splitlines()[1:]:
            cells = line.split(",")
            if len(cells) > 1:
                found.append(Found("gpu", cells[1].strip(), None, _key(cells[1])))
    if sys.platform == "darwin" and (name := _run("sysctl", "-n", "machdep.cpu.brand_string")):
        found.append(Found("gpu", name.strip(), None, _key(name)))
    return found


def _run(*command: str) -> str | None:
    """What a tool prints, or None where it is absent, fails or takes too long."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout


def _cpu() -> Found:
    from mlsysim.calibrate.device import cpu_name

    memory = None
    try:
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
        memory = float(re.findall(r"MemTotal:\s+(\d+) kB", text)[0]) * 1024
    except (OSError, IndexError):
        pass
    name = cpu_name()
    return Found("cpu", name, memory, _key(name))


def _key(name: str) -> str | None:
    from mlsysim.importers.boards import board_key

    return board_key(name)


def _runs(key: str) -> list[dict[str, Any]]:
    from mlsysim.plans.evaluate import evaluate_plainly
    from mlsysim.plans.plan import Plan

    found = []
    for model in _PROBES:
        for precision in ("fp16", "int4"):
            try:
                work = {"model": model, "precision": precision}
                answer = evaluate_plainly(Plan.model_validate({"task": "inference", "workload": work, "on": key}))
            except InputError:
                continue
            fits = answer.feasible
            latency = answer.metric("latency").text if fits else ""
            work |= {"fits": "yes" if fits else "no", "latency": latency, "binds": answer.binding.name}
            found.append(work)
            if fits:
                break
    return found


def _packages() -> dict[str, str | None]:
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {}
    for name in ("numpy", "torch", "onnx", "matplotlib", "duckdb", "distributed", "pyyaml", "starlette", "mcp"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found
