"""The table of flags: sources, fields that exist, and that nothing is written which is not in it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from mlsysim.errors import InputError
from mlsysim.launch.flags import data_table, parse, parse_tables, table
from mlsysim.launch.model_names import checkpoint_of
from mlsysim.launch.settings import read_documents
from mlsysim.launch.shell import read_script
from mlsysim.launch.targets import TARGETS
from mlsysim.models.registry import Models
from mlsysim.plans.plan_parts import ParallelismPart, ServingPart, WorkloadPart
from mlsysim.plans.rl_part import RlPart

PARTS: dict[str, Any] = {"parallelism": ParallelismPart, "serving": ServingPart, "workload": WorkloadPart, "rl": RlPart}
WRITTEN = Path(__file__).parent / "golden" / "written"
NAMES = [module.NAME for module in TARGETS.values()]


@pytest.mark.parametrize("name", [*NAMES, "torchrun"])
def test_every_table_has_a_source_and_meanings(name: str) -> None:
    flags = table(name)
    assert flags.url.startswith("https://") and flags.source and re.fullmatch(r"\d{4}-\d\d-\d\d", flags.checked)
    for flag in flags.flags.values():
        assert flag.means and flag.takes in ("switch", "int", "float", "text", "many")
        assert not (flag.own and flag.field)
        if flag.field is not None:
            part, _, field = flag.field.partition(".")
            assert field in PARTS[part].model_fields, flag.field
            assert flag.field in next(m for m in TARGETS.values() if name == m.NAME).FIELDS


@pytest.mark.parametrize("module", TARGETS.values(), ids=lambda module: module.NAME)
def test_fields_of_targets_are_fields_of_plans(module: Any) -> None:
    for path in module.FIELDS:
        part, _, field = path.partition(".")
        assert field in PARTS[part].model_fields, path


def test_models_of_the_tables_are_in_the_zoo() -> None:
    for key in data_table("torchtitan_models").values():
        assert Models.key_of(key) == key


SCRIPTS = {"megatron.sh": "megatron", "vllm.sh": "vllm", "sglang.sh": "sglang", "trtllm.sh": "tensorrt_llm"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_flag_of_a_script_is_in_the_table(name: str) -> None:
    script = read_script((WRITTEN / name).read_text(encoding="utf-8"))
    for array, words in script.arrays.items():
        flags = table("torchrun" if array == "LAUNCH_ARGS" else SCRIPTS[name])
        parsed = parse(words, flags)
        assert parsed.unread == [] and parsed.values


def test_every_key_of_a_file_is_in_the_table() -> None:
    import json
    import tomllib

    files = {
        "torchtitan": tomllib.loads((WRITTEN / "torchtitan.toml").read_text(encoding="utf-8")),
        "deepspeed": json.loads((WRITTEN / "deepspeed.json").read_text(encoding="utf-8")),
        "fsdp": read_documents((WRITTEN / "fsdp.yaml").read_text(encoding="utf-8"), "it")[0],
        "nemo_rl": read_documents((WRITTEN / "nemo_rl.yaml").read_text(encoding="utf-8"), "it")[0],
    }
    for name, document in files.items():
        assert parse_tables(document, table(name), ("_comments",)).unread == []
    slurm = read_script((WRITTEN / "slurm_training.sbatch").read_text(encoding="utf-8"))
    assert parse([w for line in slurm.directives for w in line.split()], table("slurm")).unread == []


def test_every_value_has_its_reason() -> None:
    """Flags that set a field of the plan stand under a comment."""
    for name, target in SCRIPTS.items():
        lines = (WRITTEN / name).read_text(encoding="utf-8").splitlines()
        for before, line in itertools.pairwise(lines):
            flag = table(target).find(line.strip().split(" ")[0]) if line.startswith("    -") else None
            if flag is not None and flag.field is not None:
                assert before.strip().startswith("#"), line


def test_values_that_are_no_numbers_are_refused() -> None:
    parsed = parse(["--tensor-parallel-size", "many"], table("vllm"))
    with pytest.raises(InputError, match="--tensor-parallel-size takes a whole number, got"):
        parsed.document()
    with pytest.raises(InputError, match="without a value"):
        parse(["--tensor-parallel-size"], table("vllm"))


def test_forms_of_a_flag() -> None:
    parsed = parse(
        ["MODEL", "-tp", "4", "--pipeline_parallel_size=2", "--wat", "1", "2", "--async-scheduling", "--seed", "-1"],
        table("vllm"),
    )
    assert parsed.positional == ["MODEL"]
    assert parsed.document() == {"parallelism": {"tp": 4, "pp": 2}}
    assert parsed.unread == ["--wat 1 2"]
    assert parsed.details() == {"--async-scheduling": True, "--seed": "-1"}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("Qwen3_32B", "Qwen/Qwen3-32B"),
        ("Qwen3_235B_A22B", "Qwen/Qwen3-235B-A22B"),
        ("Llama2_13B", "meta-llama/Llama-2-13b-hf"),
    ],
)
def test_a_checkpoint_is_that_of_the_model_and_not_of_one_made_from_it(key: str, name: str) -> None:
    assert checkpoint_of(key) == (name, True)
