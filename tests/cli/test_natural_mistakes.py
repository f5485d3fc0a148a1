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
    TRAIN + "--micro-batch 3": ["micro-batches of 3", "3 do not divide the batch of 512"],
    "train Mixtral_8x7B --on 64xH100 --ep 3": ["8 experts", "EP 1, 2 or 4"],
    SERVE + "--tp 3": ["--tp 3 does not divide the 64 attention heads", "2 and 4"],
    SERVE + "--tp 16": ["8 accelerators do not hold", "TP16"],
    "serve Llama3_8B --on 1xH100 --tp 2": ["1 accelerator does not hold 1 replica of TP2"],
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
    # More of each, as they were written by people who tried.
    "train Llama3-70B --on 512xH1OO": ["no chip, node or cluster named 'H1OO'", "'H100'"],
    "train GPT5 --on 512xH100": ["no model named 'GPT5'", "'gpt-5b'"],
    "train Mixtral --on 64xH100": ["no model named 'Mixtral'", "'Mixtral_8x7B'"],
    "train deepseek --on 64xH100": ["no model named 'deepseek'", "'DeepSeek_V3'"],
    "train Qwen --on 64xH100": ["no model named 'Qwen'", "'Qwen3_8B'"],
    "train Llama3_70B --on 512xH200s": ["no chip, node or cluster named 'H200s'", "'H200'"],
    "train Llama3_70B --on 512xA1000": ["no chip, node or cluster named 'A1000'", "'A100'"],
    "train Llama3_70B --on 64xDGX_H10": ["no chip, node or cluster named 'DGX_H10'", "'DGX_H100'"],
    "train Llama3_70B --on 512xH100@infinband": ["no fabric named 'infinband'", "'InfiniBand'"],
    "train Llama3_70B --on 512xH100@400": ["no fabric named '400'", "'400GbE'"],
    "train Llama3_70B --on 512xMI350": ["no chip, node or cluster named 'MI350'", "'MI350X'"],
    "train Llama3_70B --on 512xGH100": ["no chip, node or cluster named 'GH100'", "'H100'"],
    "train Llama3_70B --on 512xRTX5090Ti": ["no chip, node or cluster named 'RTX5090Ti'", "'RTX_5090'"],
    "train Llama3_70B --on ''": ["A fleet is written as a number and a chip or node, such as '512xH100'"],
    TRAIN + "--region Quebeck": ["no grid named 'Quebeck'", "'Quebec'"],
    TRAIN + "--region Californa": ["no grid named 'Californa'", "'California'"],
    TRAIN + "--fabric NRD": ["no fabric named 'NRD'", "'NDR'"],
    TRAIN + "--fabric 400G": ["no fabric named '400G'", "'400GbE'"],
    TRAIN + "--optimizer adamw8": ["no optimizer named 'adamw8'", "'adamw'"],
    TRAIN + "--schedule 1f1bb": ["no schedule named '1f1bb'", "'1f1b'"],
    TRAIN + "--schedule zerobubbles": ["no schedule named 'zerobubbles'", "'zero_bubble'"],
    TRAIN + "--recompute selectiv": ["--recompute got 'selectiv'", "expected 'none', 'selective' or 'full'"],
    TRAIN + "--recompute true": ["--recompute got 'true'", "expected 'none', 'selective' or 'full'"],
    TRAIN + "--checkpoint-mode async": [
        "--checkpoint-mode got 'async'",
        "expected 'sharded', 'synchronous', 'asynchronous', 'in_memory' or 'obj",
    ],
    TRAIN + "-p bfloat15": ["no precision named 'bfloat15'", "'bf16'"],
    TRAIN + "-p 8": ["no precision named '8'", "'q8_0'"],
    TRAIN + "-p int3": [
        "int3 stores weights and trains none; train adapters on them (--lora-rank 16), or use bf16, fp8, mxfp8 or nvfp4"
    ],
    TRAIN + "--gradient-precision fp33": ["no precision named 'fp33'", "'fp32'"],
    TRAIN + "--cooling water": ["--cooling got 'water'", "expected 'air' or 'liquid'"],
    TRAIN + "--launcher megatro": ["no launcher named 'megatro'", "'megatron'"],
    TRAIN + "--launcher mpirun": [
        "There is no launcher named 'mpirun'; use one of megatron, torchtitan, deepspeed, fsdp"
    ],
    TRAIN + "--stack pytorchh": ["no stack named 'pytorchh'", "'dle_pytorch'"],
    TRAIN + "--price awss": ["no cloud or price named 'awss'", "'aws'"],
    TRAIN + "--price 'aws reservd'": ["no cloud or price named 'aws reservd'", "'reserved'"],
    TRAIN + "--price 2.5EUR": [
        "--price: There is no unit 'EUR' (in 'EUR'); did you mean 'year', 'hour' or 'metre'? Expected a quantity in USD"
    ],
    TRAIN + "--price 2,5": ["Price got '2,5'; write a decimal point, as in 2.5"],
    TRAIN + "--cost-scope gpus": ["--cost-scope got 'gpus'", "expected 'all' or 'accelerators'"],
    TRAIN + "--electricity free": ["--electricity got 'free'", "expected a quantity in USD/kWh such as '0.12 USD/kWh'"],
    TRAIN + "--electricity 12GB": ["--electricity got 12 GB", "expected a quantity in USD/kWh such as '0.12 USD/kWh'"],
    TRAIN + "--budget -5M": ["--budget got -5000000 USD", "expected a quantity in USD such as '30000 USD'"],
    TRAIN + "--duration 30": ["--duration got 30", "expected a quantity in s such as '30 day'"],
    TRAIN + "--duration month": ["--duration got 'month'", "expected a quantity in s such as '30 day'"],
    TRAIN + "--deadline -3d": ["--deadline got -3 d", "expected a quantity in s such as '30 day'"],
    TRAIN + "--deadline 2026-12-01": [
        "--deadline",
        "expected unit names joined by * and / with small whole exponents, such",
    ],
    TRAIN + "--mtbf 5": ["--mtbf got 5", "expected a quantity in s such as '30 day'"],
    TRAIN + "--checkpoint-time 30": ["--checkpoint-time got 30", "expected a quantity in s such as '500 ms'"],
    TRAIN + "--checkpoint-time 30GB": ["--checkpoint-time got 30 GB", "expected a quantity in s such as '500 ms'"],
    TRAIN + "--wan-bandwidth 400": ["--wan-bandwidth got 400", "expected a quantity in byte/s such as '400 Gbps'"],
    TRAIN + "--wan-round-trip 20": ["--wan-round-trip got 20", "expected a quantity in s such as '500 ms'"],
    TRAIN + "--sites 3": ["mlsysim: 3 sites for 64 nodes need wan_bandwidth and wan_round_trip"],
    TRAIN + "--sites 0": ["--sites got 0", "expected at least 1"],
    TRAIN + "--sites two": ["--sites got 'two'", "expected a whole number such as 2"],
    TRAIN + "--oversubscription 0.5": ["--oversubscription got 0.5", "expected at least 1"],
    TRAIN + "--oversubscription 2:1x": ["--oversubscription got '2:1x'", "expected a number such as 0.5"],
    TRAIN + "--congestion 0": ["--congestion got 0", "expected at least 1"],
    TRAIN + "--straggler fast": ["--straggler got 'fast'", "expected a number such as 0.5"],
    TRAIN + "--rails many": ["--rails got 'many'", "expected a whole number such as 2"],
    TRAIN + "--power-cap 700kW": ["'power_cap' must be a quantity in W above 0 and at most 100000 W, got 700000"],
    TRAIN + "--power-cap 10W": ["a power cap must be above 78 W, which an accelerator draws without a program"],
    TRAIN + "--memory-capacity 80": ["--memory-capacity got 80", "expected a quantity in byte such as '80 GiB'"],
    TRAIN + "--peak-flops 989": ["--peak-flops got 989", "expected a quantity in flop/s such as '989 TFLOPs/s'"],
    TRAIN + "--peak-flops 989TB": ["--peak-flops got 989 TB", "expected a quantity in flop/s such as '989 TFLOPs/s'"],
    TRAIN + "--link-bandwidth 900": ["--link-bandwidth got 900", "expected a quantity in byte/s such as '3.35 TB/s'"],
    TRAIN + "--tdp 700": ["--tdp got 700", "expected a quantity in W such as '700 W'"],
    TRAIN + "--tdp 0W": ["--tdp got 0 W", "expected a quantity in W such as '700 W'"],
    TRAIN + "--tokens 15trillions": ["Expected a positive number such as 15e12 or 15T, got '15trillions'"],
    TRAIN + "--tokens lots": ["Expected a positive number such as 15e12 or 15T, got 'lots'"],
    TRAIN + "--tokens 0": ["--tokens got 0", "expected more than 0"],
    TRAIN + "-b -1": ["--batch-size got -1", "expected at least 1"],
    TRAIN + "-b 1.5": ["--batch-size got 1.5", "expected a whole number such as 2"],
    TRAIN + "-b 8kk": ["--batch-size got '8kk'", "expected a whole number such as 2"],
    TRAIN + "-s 0": ["--seq-len got 0", "expected at least 1"],
    TRAIN + "-s -1": ["--seq-len got -1", "expected at least 1"],
    TRAIN + "-s 8192.5": ["--seq-len got 8192.5", "expected a whole number such as 2"],
    TRAIN + "-s long": ["--seq-len got 'long'", "expected a whole number such as 2"],
    TRAIN + "-e 0": ["Efficiency is above 0 and at most 1, or 'calibrated', got '0'"],
    TRAIN + "-e -1": ["Efficiency is above 0 and at most 1, or 'calibrated', got '-1'"],
    TRAIN + "-e 150%": ["Efficiency is above 0 and at most 1, or 'calibrated', got '150%'"],
    TRAIN + "--lora-rank 0": ["--lora-rank got 0", "expected at least 1"],
    TRAIN + "--lora-rank -4": ["--lora-rank got -4", "expected at least 1"],
    TRAIN + "--lora-rank 3.5": ["--lora-rank got 3.5", "expected a whole number such as 2"],
    TRAIN + "--dp 3": ["TP x PP x CP x DP is 3, but the fleet has 512 accelerators"],
    TRAIN + "--dp 512 --tp 8": ["TP x PP x CP x DP is 4,096, but the fleet has 512 accelerators"],
    TRAIN + "--tp 16 --pp 3": [
        "TP 16 x PP 3 x CP 1 = 48 does not divide 512 accelerators; with the others as they are, PP may be 1, 2 or 4"
    ],
    TRAIN + "--tp 128": ["64 attention heads of Llama-3.1-70B do not divide over TP 128; use 16, 32 or 64"],
    TRAIN + "--pp 80": [
        "TP 1 x PP 80 x CP 1 = 80 does not divide 512 accelerators; with the others as they are, PP may be 32, 64 or 12"
    ],
    TRAIN + "--pp 3 --tp 8": [
        "TP 8 x PP 3 x CP 1 = 24 does not divide 512 accelerators; with the others as they are, PP may be 1, 2 or 4"
    ],
    TRAIN + "--cp 5 --tp 8": [
        "TP 8 x PP 1 x CP 5 = 40 does not divide 512 accelerators; with the others as they are, CP may be 2, 4 or 8"
    ],
    TRAIN + "--virtual-stages 0": ["--virtual-stages got 0", "expected at least 1"],
    TRAIN + "--micro-batch 0": ["--micro-batch got 0", "expected at least 1"],
    TRAIN + "--micro-batch two": ["--micro-batch got 'two'", "expected a whole number such as 2"],
    TRAIN + "--zero -1": ["--zero got -1", "expected at least 0"],
    TRAIN + "--zero 1.5": ["--zero got 1.5", "expected a whole number such as 2"],
    TRAIN + "--tp eight": ["--tp got 'eight'", "expected a whole number such as 2"],
    TRAIN + "--tp 8 --tp 4x": ["--tp got '4x'", "expected a whole number such as 2"],
    TRAIN + "--layout tp=": ["--tp got ''", "expected a whole number such as 2"],
    TRAIN + "--layout tp=8;pp=4": ["--tp got '8;pp=4'", "expected a whole number such as 2"],
    TRAIN + "--layout 'tp=8 pp=4'": ["--tp got '8 pp=4'", "expected a whole number such as 2"],
    TRAIN + "--layout TPX8": ["--layout takes pairs such as tp=8,pp=4, got 'TPX8'"],
    TRAIN + "--layout auto,tp=8": ["--layout takes pairs such as tp=8,pp=4, got 'auto'"],
    TRAIN + "--overlap-tp 2": ["--overlap-tp got 2", "expected at most 1"],
    TRAIN + "--overlap-tp most": ["--overlap-tp got 'most'", "expected a number such as 0.5"],
    TRAIN + "--offload 120%": ["--offload got 1.2", "expected at most 1"],
    TRAIN + "--offload all": ["--offload got 'all'", "expected a number such as 0.5"],
    TRAIN + "--layers 0": ["--layers got 0", "expected at least 1"],
    TRAIN + "--heads 63": ["Llama-3.1-70B: 63 heads do not divide into 8 key-value heads"],
    TRAIN + "--kv-heads 7": ["Llama-3.1-70B: 64 heads do not divide into 7 key-value heads"],
    TRAIN + "--hidden-dim 8191": [
        "Llama-3.1-70B: a width of 8191 does not divide into 64 heads; give 'head_dim' where it need not"
    ],
    TRAIN + "--vocab-size big": ["--vocab-size got 'big'", "expected a whole number such as 2"],
    TRAIN + "--parameters 70BB": ["--parameters got '70BB'", "expected a number such as 0.5"],
    TRAIN + "--assert 'mfu > high'": ["An assertion is such as 'mfu >= 0.4', got 'mfu > high'"],
    TRAIN + "--assert 'mfu => 0.4'": ["An assertion is such as 'mfu >= 0.4', got 'mfu => 0.4'"],
    TRAIN + "--assert 'mfu >= 40 GB'": [
        "The metric 'performance.mfu' is a plain number, so its limit '40 GB' must have no unit"
    ],
    TRAIN + "--assert ''": ["An assertion is such as 'mfu >= 0.4', got ''"],
    TRAIN + "--tensor-parallel 8x": ["--tp got '8x'", "expected a whole number such as 2"],
    TRAIN + "--epochs 3": ["no option --epochs", "write --tokens 2T, all that the run reads"],
    TRAIN + "--nodes 64": ["no option --nodes", "write --on 64xDGX_H100, or --on 512xH100"],
    TRAIN + "--nnodes 64": ["no option --nnodes", "write --on 64xDGX_H100, or --on 512xH100"],
    TRAIN + "--gpu H100": ["no option --gpu", "write --on 512xH100"],
    TRAIN + "--carbon": ["no option --carbon", "write --region Quebec, which says what its electricity emits"],
    TRAIN + "--spares x": ["--spares got 'x'", "expected a whole number such as 2"],
    TRAIN + "--seeds 0": ["--seeds got 0", "expected at least 1"],
    TRAIN + "--start tomorrow": [
        "A start is a date such as 2026-12-01, or with a time in UTC 2026-12-01T06:00, got 'tomorrow'"
    ],
    TRAIN + "--maintenance often": ["Expected how long and how often, such as 4h/30day or 1.3x2h/3day, got 'often'"],
    TRAIN + "--json json": ["Got unexpected extra argument(s) (json)"],
    "train Llama3_70B --on": ["--on needs a value after it, such as --on 512xH100"],
    "train --on 512xH100": ["Missing argument 'MODEL'"],
    "train Llama3_70B Llama3_8B --on 512xH100": ["Got unexpected extra argument(s) (Llama3_8B)"],
    "train Mixtral_8x7B --on 64xH100 --ep 16": [
        "The 8 experts of Mixtral-8x7B-v0.1 do not divide over EP 16; use EP 2, 4 or 8"
    ],
    "train Mixtral_8x7B --on 64xH100 --ep 8 --tp 3": [
        "TP 3 x PP 1 x CP 1 = 3 does not divide 64 accelerators; with the others as they are, TP may be 1, 2 or 4"
    ],
    SERVE + "--isl 2000 --osl x": ["--output-tokens got 'x'", "expected a whole number such as 2"],
    SERVE + "--isl -5": ["--prompt-tokens got -5", "expected at least 1"],
    SERVE + "--isl 0": ["--prompt-tokens got 0", "expected at least 1"],
    SERVE + "--osl 1.5": ["--output-tokens got 1.5", "expected a whole number such as 2"],
    SERVE + "--qps -1": ["--qps got -1", "expected more than 0"],
    SERVE + "--qps 5qps": ["--qps got '5qps'", "expected a number such as 0.5"],
    SERVE + "--qps": ["--qps needs a value after it, such as --qps 5"],
    SERVE + "--rate 5": ["no option --rate", "write --qps 5"],
    SERVE + "--load 5": ["no option --load", "write --qps 5"],
    SERVE + "--concurrency many": ["--concurrency got 'many'", "expected a whole number such as 2"],
    SERVE + "--concurrency 1.5": ["--concurrency got 1.5", "expected a whole number such as 2"],
    SERVE + "--engine vllm2": ["no serving engine named 'vllm2'", "'vLLM'"],
    SERVE + "--engine tgi": [
        "There is no serving engine named 'tgi'; use one of gpt_fast, llama_cpp, SGLang, TensorRT_LLM, TensorRT_LLM_202"
    ],
    SERVE + "--kv-cache-dtype fp9": ["no precision named 'fp9'", "'fp8'"],
    SERVE + "--tp 5": [
        "--tp 5 does not divide the 64 attention heads of Llama-3.1-70B; the nearest that do are 2 and 4"
    ],
    SERVE + "--tp 0": ["--tp got 0", "expected at least 1"],
    SERVE + "--ep 2": ["--ep 2 splits experts, and Llama-3.1-70B has none; use --tp or --pp"],
    SERVE + "--dcp 3": [
        "--cp 3 splits copies of the keys by tokens, and 8 tensor-parallel devices of Llama-3.1-70B hold none"
    ],
    SERVE + "--attention-dp 3": [
        "--attention-dp 3 makes groups of attention that share experts, and Llama-3.1-70B has none; use --replicas"
    ],
    SERVE + "--replicas 0": ["--replicas got 0", "expected at least 1"],
    SERVE + "--memory-fraction 90": ["--memory-fraction got 90", "expected at most 1"],
    SERVE + "--memory-fraction 0": ["--memory-fraction got 0", "expected more than 0"],
    SERVE + "--gpu-memory-utilization 95": ["--memory-fraction got 95", "expected at most 1"],
    SERVE + "--slo p99=500ms": ["'p99' is not a time of a request; use ttft, tpot, itl, e2e or queue"],
    SERVE + "--slo ttft": ["A limit looks like 'ttft_p99=500ms', got 'ttft'"],
    SERVE + "--slo ttft=500ms;tpot=30ms": ["The limit on ttft is a time such as 500ms, got '500ms;tpot=30ms'"],
    SERVE + "--slo ttft=-5ms": ["The limit on ttft is a time above 0, got '-5ms'"],
    SERVE + "--slo ttft=500GB": ["The limit on ttft is a time such as 500ms, got '500gb'"],
    SERVE + "--slo tpot_p0=30ms": ["'p0' is not a percentile; use p50, p99 or p99.9, say, or none for the mean"],
    SERVE + "--ttft 500": ["--ttft got 500", "expected a quantity in s such as '500 ms'"],
    SERVE + "--tpot fast": ["--tpot got 'fast'", "expected a quantity in s such as '500 ms'"],
    SERVE + "--draft Llama3_8B --acceptance -1": ["--acceptance got -1", "expected at least 0"],
    SERVE + "--draft Llama3_8B --draft-tokens 0 --acceptance 0.7": ["--draft-tokens got 0", "expected at least 1"],
    SERVE + "--prefix-hit-rate high": ["--prefix-hits got 'high'", "expected a number such as 0.5"],
    SERVE + "--prefix-hit-rate -0.1": ["--prefix-hits got -0.1", "expected at least 0"],
    SERVE + "--chunk-tokens lots": ["--chunk-tokens got 'lots'", "expected a whole number such as 2"],
    SERVE + "--chunked-prefill 8k9": ["no option --chunked-prefill", "write --chunk-tokens 2048"],
    SERVE + "--adapters -1": ["--adapters got -1", "expected at least 0"],
    SERVE + "--adapter-rank 16x": ["--adapter-rank got '16x'", "expected a whole number such as 2"],
    SERVE + "--offload-memory 100": ["--offload-memory got 100", "expected a quantity in byte such as '80 GiB'"],
    SERVE + "--offload-disk big": ["--offload-disk got 'big'", "expected a quantity in byte such as '80 GiB'"],
    SERVE + "--qps 5 --router roundrobin": ["no router named 'roundrobin'", "'round_robin'"],
    SERVE + "--qps 5 --scheduler prioritty": ["no scheduler named 'prioritty'", "'priority'"],
    SERVE + "--qps 5 --burst -2": ["--burst got -2", "expected at least 0"],
    SERVE + "--qps 5 --requests 0": ["--requests got 0", "expected at least 1"],
    SERVE + "--qps 5 --seed x": ["--seed got 'x'", "expected a whole number such as 2"],
    SERVE + "--qps 5 --spare -1": ["--spare got -1", "expected at least 0"],
    SERVE + "--qps 5 --autoscale 4": ["Autoscale is least and most replicas such as 2:8, got '4'"],
    SERVE + "--qps 5 --autoscale a:b": ["Autoscale is least and most replicas such as 2:8, got 'a:b'"],
    SERVE + "--qps 5 --autoscale 0:4": ["Autoscale is least and most replicas such as 2:8, got '0:4'"],
    SERVE + "--qps 5 --turns 0": ["--turns got 0", "expected at least 1"],
    SERVE + "--qps 5 --think-time 5": ["--think-time got 5", "expected a quantity in s such as '500 ms'"],
    SERVE + "--max-tokens x": ["--output-tokens got 'x'", "expected a whole number such as 2"],
    SERVE + "--host 0.0.0.0": ["no option --host", "write `mlsysim export vllm` for something to launch"],
    SERVE + "--port 8000": ["no option --port", "write `mlsysim export vllm` for something to launch"],
    "serve Llama3_70B --on 8xH200 4xH100": [
        "serve needs a chip after the model, or a fleet with --on, such as --on 8xH100; not both"
    ],
    "serve Llama3_70B --on 8xH200+4xH10O": ["no chip, node or cluster named 'H10O'", "'H100'"],
    "serve Llama3_70B --in 8xH200": ["no option --in", "did you mean '--region'"],
    "eval Llama3_8B H100 -b 0": ["--batch-size got 0", "expected at least 1"],
    "eval Llama3_8B H100 -s x": ["--seq-len got 'x'", "expected a whole number such as 2"],
    "eval Llama3_8B H100 -p fp12": ["no precision named 'fp12'", "'fp32'"],
    "eval Llama3_8B H100 --phase predfill": [
        "--phase got 'predfill'",
        "expected 'prefill', 'decode', 'inference' or 'generate'",
    ],
    "eval Llama3_8B H100 --runtime trt": ["no runtime named 'trt'", "'tensorrt'"],
    "eval Llama3_8B H100 -e 2": ["Efficiency is above 0 and at most 1, or 'calibrated', got '2'"],
    "eval Llama3_8B H100 --image-size 224": ["Llama-3.1-8B is known for its own images; leave image_size out"],
    "eval ResNet50 H100 -s 2048": ["ResNet-50 has a fixed shape and takes no 'seq_len'"],
    "eval ResNet50 H100 --image-size big": ["--image-size got 'big'", "expected a whole number such as 2"],
    "eval ResNet500 H100": ["no model named 'ResNet500'", "'ResNet50'"],
    "eval ResNet50 iPhone": ["no chip, node or cluster named 'iPhone'", "'iPhone_16_Pro'"],
    "eval ResNet50 TPU": ["no chip, node or cluster named 'TPU'", "'TPU_v7'"],
    "eval Llama3_8B GTX1080": ["no chip, node or cluster named 'GTX1080'", "'RTX_4080'"],
    "eval": ["Missing argument 'MODEL|FILE'"],
    "plan Llama3_70B": [
        "A least fleet needs a deadline for a training run, or a rate (qps) or a trace for a service; give one of them"
    ],
    "plan Llama3_70B --deadline 30d --on H1000": ["no chip, node or cluster named 'H1000'", "'H100'"],
    "plan Llama3_70B --deadline 30d --tokens 0 --on H100": ["--tokens got 0", "expected more than 0"],
    "compare Llama3_8B@8xH100": ["Missing argument 'B', as in `mlsysim compare "],
    "compare Llama3_8B@8xH100 Llama3_8B@8xH200": ["8 are given", "task serving or training"],
    "compare Llama3_8B@8xH100 Llama3_8B@8xH1000 --task training": ["no chip, node or cluster named 'H1000'", "'H100'"],
    "compare Llama3_8B@8xH100 Llama3_9B@8xH100 --task training": ["no model named 'Llama3_9B'", "'Llama3_8B'"],
    "compare Llama3_8B 8xH100 --task training": [
        "'Llama3_8B' is neither a plan file nor MODEL@FLEET, such as Llama3_70B@512xH100"
    ],
    "sensitivity Llama3_70B": ["'Llama3_70B' is neither a plan file nor MODEL@FLEET, such as Llama3_70B@512xH100"],
    "sensitivity Llama3_70B@512xH100 --task trainning": [
        "--task got 'trainning'",
        "expected 'training', 'serving', 'inference' or 'rl'",
    ],
    "report nothere.toml": ["'nothere.toml' cannot be read: no such file or directory"],
    "report Llama3_70B": ["'Llama3_70B' is neither a plan file nor MODEL@FLEET, such as Llama3_70B@512xH100"],
    "audit nothere.toml": ["'nothere.toml' cannot be read: no such file or directory"],
    "audit scenario:nope": ["There is no scenario named 'nope'; `mlsysim scenarios` lists them"],
    "scenarios nope": ["Got unexpected extra argument(s) (nope)"],
    "zoo hardwares": ["no part or entry of the zoo named 'hardwares'", "'hardware'"],
    "zoo Llama3_70BB": ["no part or entry of the zoo named 'Llama3_70BB'", "'Llama3_70B'"],
    "zoo hardware --sort memory.bandwith": ["no field of the zoo's entries named 'bandwith'", "'bandwidth'"],
    "zoo hardware --filter memory.capacity": [
        "--filter takes a field, a comparison and a value, such as vendor=NVIDIA, got 'memory.capacity'"
    ],
    "zoo hardware --filter 'memory.capacity>=80GBs'": [
        "There is no unit 'GBs' (in 'GBs'); did you mean 'Gbps', 'GB' or 'GiB'?"
    ],
    "zoo hardware --filter 'price>=cheap'": [
        "There is no field of the zoo's entries named 'price'; the fields are name, release_year, compute, memory, stor"
    ],
    "walls 0": ["There is no wall 0; they are numbered 1 to 22"],
    "train Llama3_8B --on 8xH100 --steps 1000": ["There is no option --steps; write --tokens 2T"],
    "eval Llama3_8B --on H100 --qps 4 --task inference": ["One pass has no use for qps: it belongs to serving."],
    "walls wall": ["There is no wall named 'wall'; they are 1 to 22, from Compute to Synthesis."],
    "walls 3.5": ["There is no wall named '3.5'; they are 1 to 22"],
    "schema --type Plan2": ["no type with a schema named 'Plan2'", "'plan'"],
    "optimize placement Llama3_70B@512xH100 --carbon-tax x": [
        "--carbon-tax takes a number, and what was given is none"
    ],
    "sweep nothere.toml": ["The space file 'nothere.toml' cannot be read: No such file or directory"],
    "sweep space:node-decodee": ["There is no space named 'node-decodee'; `mlsysim scenarios` lists them"],
    "sweep": ["Missing argument 'SPACE.toml|PLAN KEY=VALUES'"],
    "sweep Llama3_8B tp=1,2": ["'Llama3_8B' needs a fleet to run on: --on, such as --on 8xH100."],
    "sweep Llama3_8B@8xH100 spars=1,2": ["'spars' is not a key of a plan"],
    "sweep space:chip-design --tp 2": ["Options of a plan are given", "such as spares=0,16,64"],
    "sweep Llama3_8B@8xH100 tp=1,2 --plot x.svg": ["--plot belongs to a space file"],
    "sweep Llama3_8B@8xH100 tp=1,2 -o x.xlsx": ["-o writes the combinations of a plan's keys to a .csv, got 'x.xlsx'"],
    "collectives --on 64xH100@NDR --op allredce": ["no collective named 'allredce'", "'all_reduce'"],
    "collectives --on 64xH1000@NDR": ["no chip, node or cluster named 'H1000'", "'H100'"],
    "collectives --on 64xH100@NDR --group 3 --stride 3": ["--stride must divide the fleet's 64 accelerators, got 3"],
    "collectives --on 64xH100@NDR --group 128": [
        "a collective takes 2 to 64 ranks of this fleet, got 128; give a larger --on or another --group"
    ],
    "collectives --on 64xH100@NDR --size 0": ["--size is a size of 1 byte or more, such as 64MB, got '0'"],
    "collectives --on 64xH100@NDR --size 1XB": ["--size is a size of 1 byte or more, such as 64MB, got '1XB'"],
    "collectives --on 64xH100@NDR --stride 7": ["--stride must divide the fleet's 64 accelerators, got 7"],
    "collectives nothere.log": ["'nothere.log' cannot be read: no such file or directory"],
    "collectives": ["collectives needs a fleet such as 64xH100@NDR (--on)"],
    "export": ["Missing argument 'TARGET'"],
    "export megatron": ["Missing argument 'PLAN|MODEL@FLEET'"],
    "export megatron nothere.toml": ["'nothere.toml' cannot be read: no such file or directory"],
    "export megatronn Llama3_70B@512xH100": ["no launch target named 'megatronn'", "'megatron'"],
    "export deepspeed Llama3_70B@8xH200 --task serving": [
        "deepspeed takes a training plan, and this is one of serving; say --task, or choose another target"
    ],
    "review nothere.sh": ["'nothere.sh' cannot be read: no such file or directory"],
    "import nothere.json": ["'nothere.json' cannot be read: no such file or directory"],
    "import": ["Missing argument 'FILE'"],
    "validate": ["Missing argument 'files'"],
    "doctor --fix": ["There is no option --fix; --help lists them"],
    "api --port x": ["--port takes a whole number, and what was given is none"],
    "mcp --port 8000": ["no option --port", "write `mlsysim export vllm` for something to launch"],
    TRAIN + "--hours 5": ["no option --hours", "write --deadline 5h"],
    TRAIN + "--qps 5": ["no option --qps here: it belongs to serving (`mlsysim serve`)"],
    TRAIN + "--isl 500": ["no option --isl here: it belongs to serving and post-training"],
    SERVE + "--tokens 2T": ["no option --tokens here: it belongs to training (`mlsysim train`)"],
    TRAIN + "--concurrency 3": ["no option --concurrency here: it belongs to serving (`mlsysim serve`)"],
    SERVE + "--stack vllm": ["no option --stack here", "write --engine"],
    TRAIN + "--engine vllm": ["no option --engine here", "write --stack"],
    TRAIN + "--micro-batches 7": ["7 micro-batches do not divide a replica's share of"],
    "eval Llama3_8B H100 --tp 2": ["one pass is of one accelerator. Ask train or serve"],
    "train ResNet50 --on 8xH100 --tp 2": [
        "Networks of fixed shape are calibrated under data parallelism alone; a vision transformer is split by a traini"
    ],
    SERVE + "--engine triton": [
        "There is no serving engine named 'triton'; use one of gpt_fast, llama_cpp, SGLang, TensorRT_LLM, TensorRT_LLM_"
    ],
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
