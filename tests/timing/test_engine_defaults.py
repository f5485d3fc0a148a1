"""What engines are set to where nobody says is of the engine, so that every face has it."""

from __future__ import annotations

import mlsysim
from mlsysim.hardware.registry import Hardware
from mlsysim.launch.targets import export
from mlsysim.timing.engines import engine


def test_vllm_takes_less_on_small_devices_and_more_without_a_server():
    """get_batch_defaults of vLLM's arg_utils.py."""
    own = engine("vLLM")
    set_to = {
        (chip, offline): own.on(Hardware.get(chip), offline) for chip in ("H100", "A100", "L40S") for offline in (0, 1)
    }
    assert {key: (found.token_budget, found.max_num_seqs) for key, found in set_to.items()} == {
        ("H100", 0): (8192, 1024), ("H100", 1): (16384, 1024),
        ("A100", 0): (2048, 256), ("A100", 1): (8192, 256),
        ("L40S", 0): (2048, 256), ("L40S", 1): (8192, 256),
    }  # fmt: skip


def test_a_service_waits_for_its_engines_places():
    """600 clients of an A100 are the 256 that vLLM lets in, given or not."""
    asked = {"on": "A100", "concurrency": 600, "isl": 500, "osl": 100}
    silent, said = mlsysim.serve("Llama3_8B", **asked), mlsysim.serve("Llama3_8B", **asked, max_num_seqs=256)
    more = mlsysim.serve("Llama3_8B", **asked, max_num_seqs=600)
    assert silent.value("ttft") == said.value("ttft") > more.value("ttft")
    assert silent.assumptions["max_num_seqs"].startswith("256: ") and "max_num_seqs" not in said.assumptions


def test_a_launch_file_has_the_places_of_its_answer():
    for load in ({"concurrency": 600}, {"qps": 5}):
        answer = mlsysim.serve("Llama3_8B", on="A100", isl=500, osl=100, **load)
        assert "--max-num-seqs 256" in export("vllm", answer.plan)
