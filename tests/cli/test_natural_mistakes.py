"""What people write by mistake, and what the one sentence that they get must say: typos, forgotten units, wrong flags, degrees that do not divide."""

from __future__ import annotations

import gc
import re
import shlex
import sys
import warnings
from types import SimpleNamespace

import pytest

from mlsysim.cli.main import main

TRAIN = "train Llama3_70B --on 512xH100 "
SERVE = "serve Llama3_70B --on 8xH200 "

MISTAKES = {
    # Names that are nearly right.
    "train Llama3_70B --on 512xH1000": ["H1000", "'H100'"],
    "train Lama3_70B --on 512xH100": ["no model named 'Lama3_70B'", "'Llama3_70B'"],
    "train llama-3-70 --on 512xH100": ["'Llama3_70B'"],
    "train Llama3_70B --on 512xH100@NDRR": ["no fabric", "'NDR'"],
    "eval Llama3_8B H1OO": ["'H1OO'", "'H100'"],
    "serve meta-llama/Llama-4-70B --on 8xH200": ["no model named 'meta-llama/Llama-4-70B'"],
    TRAIN + "--region quebek": ["'Quebec'"],
    TRAIN + "--schedule gpipee": ["no schedule", "'gpipe'"],
    TRAIN + "--optimizer adamm": ["no optimizer", "'adam'"],
    TRAIN + "--stack megatronn": ["no stack", "megatron"],
    TRAIN + "--launcher fdsp": ["'fsdp'"],
    TRAIN + "-p fp7": ["no precision", "'fp8'"],
    TRAIN + "--assert 'mfuu >= 0.4'": ["'mfuu'", "'mfu'"],
    SERVE + "--engine vlm": ["no serving engine", "'vLLM'"],
    SERVE + "--kv-precision fp9": ["'fp9'", "'fp8'"],
    SERVE + "--draft Llama3_8BB --acceptance 0.7": ["'Llama3_8B'"],
    SERVE + "--decode-on H900": ["'H900'", "'H800'"],
    SERVE + "--trace azure": ["'azure-code'"],
    SERVE + "--trace missing.csv": ["no such file", "azure-code"],
    SERVE + "--slo tftt=500ms": ["'tftt' is not a time", "'ttft'"],
    "serve Llama3_8B --on 2xH100 --qps 5 --router random --requests 100": ["no router", "'round_robin'"],
    "serve Llama3_8B --on 2xH100 --qps 5 --scheduler fifo --requests 100": ["no scheduler", "'fifo'"],
    "eval scenario:chatbot": ["'chatbot-llama70b-h200'"],
    "eval scenario:llama3-70b-512": ["'llama3-70b-512-h100'"],
    "sweep space:chip-desing": ["'chip-design'"],
    "compare Llama3_8B@8xH100 Llama3_8B@8xB200 --task trainig": ["--task got 'trainig'", "'training'"],
    "walls memmory": ["'Memory'"],
    "walls 23": ["no wall 23", "1 to 22"],
    "zoo H101": ["'H100'"],
    "zoo hardware --filter vendr=AMD": ["'vendor'"],
    "labs show rooflin": ["'roofline'"],
    "export vlm Llama3_70B@8xH200": ["no launch target", "'vllm'"],
    "schema --type plane": ["'plan'"],
    "optimize parallelizm Llama3_8B@64xH100": ["'parallelism'"],
    "plan Llama3_70B --deadline 30d --on H100,B2000": ["'B2000'", "'B200'"],
    "compare Llama3_70B@512xH100 Llama3_70B@512xB2O0 --task training": ["'B2O0'", "'B200'"],
    "optimize placement Llama3_70B@512xH100 --regions Quebec,Swden --days 30": ["'Swden'", "'Sweden'"],
    "trian Llama3_8B --on 8xH100": ["'train'"],
    "evel Llama3_8B H100": ["'eval'"],
    "help": ["--help"],
    # Units that were forgotten, or are of something else.
    TRAIN + "--deadline 30": ["--deadline got 30", "'30 day'"],
    TRAIN + "--deadline soon": ["--deadline got 'soon'", "'30 day'"],
    TRAIN + "--deadline 30dd": ["no unit 'dd'", "'d'? Expected", "'30 day'"],
    TRAIN + "--deadline 5TB": ["--deadline got 5 TB", "'30 day'"],
    TRAIN + "--budget lots": ["--budget got 'lots'", "USD"],
    TRAIN + "--budget 5GB": ["--budget got 5 GB", "USD"],
    TRAIN + "--power-cap 300": ["--power-cap got 300", "'700 W'"],
    TRAIN + "--power-cap 30d": ["--power-cap", "'700 W'"],
    TRAIN + "--mtbf never": ["--mtbf got 'never'"],
    TRAIN + "--restart-time 5": ["--restart-time got 5", "such as"],
    TRAIN + "--storage-bandwidth 500": ["--storage-bandwidth got 500", "byte/s"],
    TRAIN + "--checkpoint-interval hourly": ["--checkpoint-interval got 'hourly'"],
    SERVE + "--slo ttft=500": ["ttft", "500ms, got '500'"],
    SERVE + "--slo ttft=fast": ["ttft", "got 'fast'"],
    SERVE + "--slo ttft=0ms": ["ttft", "above 0"],
    SERVE + "--slo 500ms": ["'ttft_p99=500ms', got '500ms'"],
    SERVE + "--slo ttft_p101=500ms": ["'p101' is not a percentile", "p99"],
    "plan Llama3_70B --deadline 30 --on H100": ["--deadline got 30", "'30 day'"],
    "plan Llama3_70B --qps 5 --slo ttft=fast --on H100": ["500ms, got 'fast'"],
    "synthesize Llama3_70B --latency 50 --on H100": ["--latency got 50", "ms"],
    "synthesize Llama3_70B --latency '50 GB' --on H100": ["--latency got 50 GB"],
    "synthesize Llama3_70B --on H100": ["--latency '50 ms'", "--throughput", "--deadline"],
    "zoo hardware --filter 'memory.capacity>=80'": ["GiB", "'80'"],
    "collectives --on 64xH100@NDR --op all_reduce --size big": ["64MB", "'big'"],
    "eval Llama3_8B H100 --memory-bandwidth 8": ["--memory-bandwidth got 8", "TB/s"],
    # Numbers that are none, or out of range.
    TRAIN + "--tp x": ["--tp got 'x'; expected a whole number"],
    TRAIN + "--tp 1.5": ["--tp got 1.5; expected a whole number"],
    TRAIN + "--tp 0": ["--tp got 0; expected at least 1"],
    TRAIN + "--zero 5": ["--zero got 5; expected at most 3"],
    TRAIN + "--zero three": ["--zero got 'three'; expected a whole number"],
    TRAIN + "--tokens 2TT": ["15T, got '2TT'"],
    TRAIN + "--tokens -5": ["--tokens got -5; expected more than 0"],
    TRAIN + "-b 0": ["--batch-size got 0; expected at least 1"],
    TRAIN + "-b many": ["--batch-size got 'many'; expected a whole number"],
    TRAIN + "-s 4k5": ["--seq-len got '4k5'; expected a whole number"],
    TRAIN + "-e 1.5": ["at most 1", "'calibrated'", "'1.5'"],
    TRAIN + "-e high": ["'calibrated'", "'high'"],
    TRAIN + "--lora big": ["--lora-rank got 'big'"],
    TRAIN + "--price cheap": ["'cheap'", "2.5"],
    TRAIN + "--price -2": ["at least 0", "-2"],
    TRAIN + "--recompute some": ["--recompute got 'some'; expected 'none', 'selective' or 'full'"],
    TRAIN + "--checkpoint-mode fast": ["--checkpoint-mode got 'fast'", "'sharded'"],
    TRAIN + "--assert mfu": ["'mfu >= 0.4', got 'mfu'"],
    SERVE + "--isl two": ["--prompt-tokens got 'two'; expected a whole number"],
    SERVE + "--osl 0": ["--output-tokens got 0; expected at least 1"],
    SERVE + "--qps ten": ["--qps got 'ten'; expected a number"],
    SERVE + "--qps 5/s": ["--qps got '5/s'; expected a number"],
    SERVE + "--qps 0": ["--qps got 0; expected more than 0"],
    SERVE + "--concurrency 0": ["--concurrency got 0; expected at least 1"],
    SERVE + "--qps 2 --autoscale 8:2": ["2:8", "'8:2'"],
    SERVE + "--qps 2 --burst lots": ["--burst got 'lots'; expected a number"],
    SERVE + "--draft Llama3_8B --acceptance 7": ["--acceptance got 7; expected at most 1"],
    SERVE + "--prefix-hit-rate 140%": ["got 1.4; expected at most 1"],
    SERVE + "--chunk-tokens 0": ["--chunk-tokens got 0"],
    SERVE + "--max-num-seqs none": ["--max-num-seqs got 'none'; expected a whole number"],
    "collectives --on 64xH100@NDR --op all_reduce --size 8GB:1MB": ["1MB:8GB", "'8GB:1MB'"],
    # Fleets that say too little.
    "train Llama3_70B --on 512": ["'512' does not say", "'512xH100'"],
    "train Llama3_70B --on -4xH100": ["whole number", "'512xH100'"],
    "train Llama3_70B --on 1.5xH100": ["whole number", "'512xH100'"],
    "train Llama3_70B --on 0xH100": ["'0xH100'", "from 1"],
    "train Llama3_70B": ["--on 512xH100"],
    "train Llama3_70B 512xH100": ["--on 512xH100"],
    "serve Llama3_70B": ["--on 8xH100"],
    "compare Llama3_70B 512xH100": ["Llama3_70B@512xH100"],
    "plan Llama3_70B --on H100": ["deadline", "qps"],
    "eval Llama3_8B": ["a chip after 'Llama3_8B'"],
    # Degrees that do not divide.
    TRAIN + "--tp 3": ["does not divide 512 accelerators", "TP may be 1, 2 or 4"],
    TRAIN + "--pp 7": ["does not divide 512 accelerators", "PP may be 2, 4 or 8"],
    TRAIN + "--cp 3": ["does not divide 512 accelerators", "CP may be 1, 2 or 4"],
    TRAIN + "--layout tp=8,pp=100": ["PP may be 16, 32 or 64"],
    TRAIN + "--tp 3 --pp 7": ["TP 3 x PP 7", "does not divide 512"],
    TRAIN + "--ep 8": ["has none", "leave EP out"],
    TRAIN + "--micro-batch 3": ["micro_batch 3", "3 do not divide the batch of 512"],
    "train Mixtral_8x7B --on 64xH100 --ep 3": ["8 experts", "EP 1, 2 or 4"],
    SERVE + "--tp 3": ["--tp 3 does not divide the 64 attention heads", "2 and 4"],
    SERVE + "--tp 16": ["8 accelerators do not hold", "TP16"],
    # Flags of other tools, things that contradict each other, things in the wrong place.
    TRAIN + "--token 2T": ["no option --token", "'--tokens'"],
    "train Llama3_70B --gpus 512": ["no option --gpus", "--on 512xH100"],
    "serve Llama3_70B --on 8xH200 --users 16": ["--concurrency 16"],
    "serve Llama3_70B --on 8xH200 --p99 500ms": ["--slo ttft_p99=500ms"],
    TRAIN + "--dtype fp8": ["-p fp8"],
    TRAIN + "--country Canada": ["--region"],
    TRAIN + "--verbose": ["explain"],
    TRAIN + "-o xml": ["text, json, markdown, csv"],
    TRAIN + "--layout tpp=8": ["'tpp'", "'tp'"],
    SERVE + "--qps 5 --concurrency 10": ["either concurrency or qps, not both"],
    SERVE + "--acceptance 0.7": ["without draft_model"],
    "eval H100 Llama3_8B": ["mlsysim eval Llama3_8B H100"],
    "eval Llama3_8B H100 extra": ["extra"],
    "serve ResNet50 --on 8xH200 --isl 2000 --osl 300": ["one pass", "inference"],
    "export megatron Llama3_70B@8xH200 --task serving": ["training plan", "--task"],
    "export vllm Llama3_70B": ["Llama3_70B@512xH100"],
    "eval missing.toml": ["'missing.toml' cannot be read"],
    "report scenario:chatbot-llama70b-h200 -o r.pdf": [".html or .md", "'r.pdf'"],
    "zoo hardware --filter vendor:AMD": ["vendor=NVIDIA", "'vendor:AMD'"],
    "collectives --on 64xH100@NDR --op sum": ["all_reduce"],
    "validate missing.csv": ["missing.csv"],
}

LEAKS = re.compile(
    r"Traceback|input should|unable to parse|^mlsysim: Plan\b|\b[A-Z]\w+(Part|Model|Solver|Optimizer|Error|Resolver)\b"
)
"""What no sentence may hold: words of libraries, names of classes."""


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_gets_its_sentence(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mlsysim.cli.main.atexit", SimpleNamespace(register=lambda _: None))
    monkeypatch.setattr(gc, "set_threshold", lambda _: None)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(sys, "argv", ["mlsysim", *shlex.split(command)])
    with pytest.raises(SystemExit) as end:
        main()
    out, said = capsys.readouterr()
    assert (end.value.code, out) == (1, "")
    assert said.startswith("mlsysim: ") and said.count("\n") == 1 and not LEAKS.search(said), said
    assert [words for words in MISTAKES[command] if words not in said] == [], said
