"""``doctor``: what is told is what the system says; what is unknown is said to be."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mlsysim.cli import doctor


def tool(folder: Path, name: str, output: str, code: int = 0) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'EOF'\n{output}\nEOF\nexit {code}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr("mlsysim.calibrate.device.cpu_name", lambda: "Some Unheard-of Processor")
    return folder


def told(fuzz: ModuleType) -> dict[str, object]:
    code, out, _ = fuzz.run_command(["doctor", "--json"])
    assert code == 0
    found: dict[str, object] = json.loads(out)
    return found


def test_an_nvidia_machine(tools: Path, fuzz: ModuleType) -> None:
    tool(tools, "nvidia-smi", "NVIDIA H100 80GB HBM3, 81559\nNVIDIA H100 80GB HBM3, 81559")
    found = told(fuzz)
    gpus = [device for device in found["devices"] if device["kind"] == "gpu"]  # type: ignore[attr-defined]
    assert len(gpus) == 2 and gpus[0]["memory"] == 81559 * 2**20
    assert found["runs_on"] == "H100" and any(run["model"] == "Llama3_8B" for run in found["runs"])  # type: ignore[attr-defined]
    code, out, _ = fuzz.run_command(["doctor"])
    assert code == 0 and "What would run on one H100" in out


def test_a_gpu_that_the_zoo_does_not_have(tools: Path, fuzz: ModuleType) -> None:
    tool(tools, "nvidia-smi", "NVIDIA Quantum Dream 9000, 4096")
    found = told(fuzz)
    assert found["runs_on"] is None and found["runs"] == []
    code, out, _ = fuzz.run_command(["doctor"])
    assert code == 0 and "not in the zoo" in out


@pytest.mark.parametrize("output", ["", "No devices were found", "garbage,,,", "a,b,c\n\x00"])
def test_a_broken_tool_is_no_gpu_of_ours(tools: Path, fuzz: ModuleType, output: str) -> None:
    tool(tools, "nvidia-smi", output, code=9 if not output else 0)
    assert told(fuzz)["runs_on"] is None


def test_a_machine_without_a_gpu(tools: Path, fuzz: ModuleType) -> None:
    found = told(fuzz)
    assert [device["kind"] for device in found["devices"]] == ["cpu"]  # type: ignore[attr-defined]
    code, _, err = fuzz.run_command(["audit", "-w", "ResNet50"])
    assert code == 1 and "No chip of the zoo was found" in err


def test_a_mac(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tools, "sysctl", "Apple M4 Max")
    monkeypatch.setattr(sys, "platform", "darwin")
    (gpu,) = [device for device in doctor._gpus() if device.kind == "gpu"]
    assert gpu.key == "Apple_M4_Max"


def test_audit_of_a_model_on_this_machine(tools: Path, fuzz: ModuleType) -> None:
    tool(tools, "nvidia-smi", "NVIDIA A100-SXM4-80GB, 81920")
    code, out, _ = fuzz.run_command(["audit", "-w", "ResNet50"])
    assert code == 0 and "A100" in out


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-SXM4-40GB", "A100_40GB"),
        ("NVIDIA A100 80GB PCIe", "A100_PCIe_80GB"),
        ("NVIDIA GeForce RTX 4090", "RTX_4090"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA B200", "B200"),
        ("Tesla V100-SXM2-16GB", "V100_16GB"),
        ("AMD Instinct MI300X", "MI300X"),
        ("Apple M1 Pro", "Apple_M1_Pro"),
        ("GeForce 99", None),
        ("", None),
    ],
)
def test_names_of_tools_and_keys_of_the_zoo(name: str, key: str | None) -> None:
    assert doctor._key(name) == key
