"""Every model and chip of the published measurement tables answers to the name that the tables use.

The names below are those of the public rows. Where the environment variable ``MLSYSIM_TRUTH`` names a folder with the
tables, the names are read from there too.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from mlsysim import Hardware, Models

MODELS = """
    bert-4b chinchilla-70b deepseek-ai/DeepSeek-R1 deepseek-ai/DeepSeek-V3 deepseek-r1 deepseek-v3 deepseek-v3.1
    deepseekv4flash falcon-180b gemma-3-12b-it gemma-3-27b-it gopher-280b gpt-1.7B gpt-1008B gpt-145.6B gpt-175B
    gpt-175b gpt-18.4B gpt-1T gpt-20b gpt-22B gpt-3.6B gpt-310.1B gpt-39.1B gpt-529.6B gpt-530B gpt-530b gpt-5b
    gpt-7.5B gpt-76.1B gpt-j-6b gpt-oss-120b gpt3-175b gpt3-5b gptj-6b kimi-k2 llama-3.1-405b-instruct
    llama-3.1-405b-instruct-fp8 llama-3.1-70b-instruct llama-3.1-8b-instruct llama-3.3-70b-instruct
    llama-4-maverick-17b-128e-instruct-fp8 llama-4-scout-17b-16e-instruct llama-65b llama2-70b llama2-7b
    llama3-70b llama3-8b llama3.1-405b llama3.1-70b llama3.1-8b llama3.3-70b llama4-maverick llama70b llama7b
    meta-llama/Llama-3.1-70B MiniMaxAI/MiniMax-M2.5 mistral-7b mixtral-8x22b mixtral-8x7b mpt-125m mpt-13b
    mpt-1b mpt-30b mpt-350m mpt-3b mpt-70b mpt-760m mpt-7b mt5-3b nemotron35lightning nemotron3nano
    nemotron3super nemotron3ultra nvidia-nemotron-nano-12b-v2 nvidia-nemotron-nano-9b-v2
    nvidia/DeepSeek-R1-NVFP4 nvidia/DeepSeek-V3.1-NVFP4 palm-540b pythia-1.4b pythia-12b pythia-160m pythia-1b
    pythia-2.8b pythia-410m pythia-6.9b pythia-70m Qwen/Qwen3.5-397B-A17B qwen3-14b qwen3-235b-a22b
    qwen3-235b-a22b-instruct-2507 qwen3-235b-a22b-instruct-2507-fp8 qwen3-30b-a3b qwen3-30b-a3b-instruct-2507
    qwen3-32b qwen3-8b qwen3-coder-30b-a3b-instruct qwen3-coder-480b-a35b-instruct
    qwen3-coder-480b-a35b-instruct-fp8 t5-3b zhipuai/GLM-5
"""

CHIPS = [
    "[MAXSUN] MS-Intel Arc Pro B60 Dual 48G Turbo",
    "A100",
    "A100-40GB",
    "A100-80GB",
    "A100-80GB-330W",
    "A100-PCIe-80GB",
    "A100_SXM",
    "AMD Instinct MI300X 192GB HBM3",
    "AMD Instinct MI325X 256GB HBM3e",
    "B200",
    "b200_sxm",
    "B200_SXM",
    "B300",
    "b300_sxm",
    "GB200",
    "gb200",
    "GB300",
    "gb300",
    "GH200-120GB",
    "GH200-480GB",
    "GH200-96GB",
    "H100",
    "H100-80GB",
    "H100-96GB-HBM2e-500W",
    "H100-PCIe",
    "H100_SXM",
    "h100_sxm",
    "H200-141GB",
    "h200_sxm",
    "H800",
    "INTEL(R) XEON(R) 6787P",
    "INTEL(R) XEON(R) 6980P",
    "L40S",
    "NVIDIA B200-SXM-180GB",
    "NVIDIA GB200",
    "NVIDIA GB300",
    "NVIDIA H100-SXM-80GB",
    "NVIDIA H200-NVL-141GB",
    "NVIDIA H200-SXM-141GB",
    "NVIDIA L40S",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "RTX2080Ti",
    "TPUv2",
    "TPUv3",
    "TPUv4",
    "V100",
    "Virtualized NVIDIA H200-SXM-141GB",
]

WITHOUT_PUBLIC_CONFIG: dict[str, str] = {}
"""Names that cannot be in the zoo, each with the reason."""

MODEL_COLUMNS = {"training.csv": "model", "inference.csv": "model", "serving_runs.csv": "model"}
CHIP_COLUMNS = {
    "training.csv": "gpu",
    "inference.csv": "gpu",
    "serving_runs.csv": "gpu",
    "energy.csv": "hardware",
    "collectives.csv": "gpu",
    "operators.csv": "gpu",
}


def names_in_tables(columns: dict[str, str]) -> list[str]:
    folder = os.environ.get("MLSYSIM_TRUTH")
    if not folder:
        return []
    found: set[str] = set()
    for table, column in columns.items():
        with (Path(folder) / table).open(encoding="utf-8", newline="") as file:
            found |= {row[column] for row in csv.DictReader(file)}
    return sorted(found)


def is_compound(chip: str) -> bool:
    """A fleet of several kinds of chip, written as one name: "A (x32), B (x16)"."""
    return "(x" in chip and ", " in chip


@pytest.mark.parametrize(
    "name", sorted({*MODELS.split(), *names_in_tables(MODEL_COLUMNS)} - {*WITHOUT_PUBLIC_CONFIG, ""})
)
def test_model_resolves(name: str) -> None:
    assert Models[name].parameter_count > 0


@pytest.mark.parametrize(
    "name", sorted(c for c in {*CHIPS, *names_in_tables(CHIP_COLUMNS)} if c and not is_compound(c))
)
def test_chip_resolves(name: str) -> None:
    assert Hardware[name].memory.bandwidth.magnitude > 0


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("gpt-1.7B", 1.7),
        ("gpt-1008B", 1008),
        ("gpt-530b", 530),
        ("llama7b", 6.74),
        ("llama-65b", 65.2),
        ("mixtral-8x7b", 46.7),
        ("mt5-3b", 3.23),
        ("qwen3-235b-a22b-instruct-2507-fp8", 235),
        ("kimi-k2", 1027),
    ],
)
def test_names_mean_the_right_size(name: str, billions: float) -> None:
    assert Models[name].parameter_count / 1e9 == pytest.approx(billions, rel=0.05)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("A100", "A100"),
        ("A100-40GB", "A100_40GB"),
        ("GH200-480GB", "GH200_96GB"),
        ("V100", "V100_16GB"),
        ("TPUv4", "TPU_v4"),
    ],
)
def test_names_mean_the_right_chip(name: str, key: str) -> None:
    assert Hardware.key_of(name) == key


def test_reasons_are_given_for_what_is_missing() -> None:
    assert all(reason for reason in WITHOUT_PUBLIC_CONFIG.values())
    assert not [name for name in WITHOUT_PUBLIC_CONFIG if name in Models]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        # Published under this very name.
        ("llama-7b", "Llama1_7B"),
        ("llama7b", "Llama1_7B"),
        ("qwen-7b", "Qwen_7B"),
        ("gemma-7b", "Gemma_7B"),
        # The newest of the family that has the size.
        ("llama-70b", "Llama3_3_70B"),
        ("llama70b", "Llama3_3_70B"),
        ("llama:70b", "Llama3_3_70B"),
        ("llama-70b-instruct", "Llama3_3_70B"),
        ("llama-8b", "Llama3_8B"),
        ("llama-405b", "Llama3_405B"),
        ("qwen-32b", "Qwen3_32B"),
        ("qwen-8b", "Qwen3_8B"),
        ("gemma-27b", "Gemma3_27B"),
        ("exaone 32b", "EXAONE_4_32B"),
    ],
)
def test_a_family_and_a_size_are_the_published_name_or_the_newest_generation(name: str, key: str) -> None:
    assert Models.get(name).metadata.key == key


@pytest.mark.parametrize("name", ["llama-71b", "qwen-33b", "llama-", "gemma-70b"])
def test_a_size_that_no_generation_has_is_no_name(name: str) -> None:
    assert name not in Models
