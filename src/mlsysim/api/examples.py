"""Requests that run, by operation: shown in the descriptions of both faces, and answered in the tests."""

from __future__ import annotations

from typing import Any

_TRAINING: dict[str, Any] = {
    "task": "training",
    "workload": {"model": "Llama3_70B", "batch_size": 1024, "seq_len": 8192, "tokens": 2e12},
    "hardware": {"on": "512xH100"},
    "ops": {"region": "Quebec"},
}
_SERVING: dict[str, Any] = {
    "task": "serving",
    "workload": {"model": "Llama3_70B", "precision": "fp8"},
    "hardware": {"on": "8xH200"},
    "serving": {"prompt_tokens": 2000, "output_tokens": 300, "concurrency": 64},
}
_SPACE: dict[str, Any] = {
    "kind": "node",
    "minimize": "usd_per_mtoken",
    "subject_to": ["latency_s <= 0.05"],
    "fixed": {
        "model": "Llama3_70B",
        "phase": "decode",
        "seq_len": 8192,
        "precision": "fp8",
        "peak": "1000 TFLOPs/s",
        "price": "30000 USD",
        "host_bandwidth": "64 GB/s",
    },
    "axes": {
        "bandwidth": {"range": [1, 8], "step": 1, "unit": "TB/s"},
        "capacity": {"range": [64, 256], "step": 64, "unit": "GB"},
        "batch_size": {"powers_of": 2, "to": 64},
    },
}

EXAMPLES: dict[str, dict[str, dict[str, Any]]] = {
    "evaluate": {
        "one pass on one chip": {"plan": {"workload": {"model": "ResNet50"}, "hardware": {"on": "A100"}}},
        "a training plan with a limit": {
            "plan": {**_TRAINING, "constraints": {"assert": [{"metric": "performance.mfu", "min": 0.3}]}},
            "change": False,
        },
    },
    "train": {
        "two trillion tokens in Quebec": {"model": "Llama3_70B", "on": "512xH100", "tokens": 2e12, "region": "Quebec"},
        "a given layout": {
            "model": "Llama3_8B",
            "on": "8xH100",
            "batch_size": 256,
            "seq_len": 8192,
            "layout": {"tp": 2, "zero": 1},
            "change": False,
        },
    },
    "serve": {
        "with latency limits": {
            "model": "Llama3_70B",
            "on": "8xH200",
            "prompt_tokens": 2000,
            "output_tokens": 300,
            "precision": "fp8",
            "ttft": "500 ms",
            "tpot": "30 ms",
        }
    },
    "optimize": {
        "layout": {"what": "parallelism", "plan": _TRAINING},
        "batch": {
            "what": "batching",
            "plan": {"task": "serving", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "H100"}},
            "sla": "8 s",
            "qps": 4,
        },
        "place": {"what": "placement", "plan": _TRAINING, "carbon_tax": 100, "regions": ["Quebec", "Poland", "US_Avg"]},
        "fleet": {"what": "fleet", "plan": {**_TRAINING, "ops": {"deadline": "30 day"}}, "chips": ["H100", "B200"]},
        "point of a space": {"what": "space", "space": _SPACE},
    },
    "sweep": {"decode on hypothetical chips": {"space": _SPACE}},
    "explain": {"model FLOP utilisation": {"plan": _TRAINING, "metric": "mfu"}},
    "compare": {"two chips": {"first": _SERVING, "second": {**_SERVING, "hardware": {"on": "8xH100"}}}},
    "export": {
        "Megatron-LM arguments": {"plan": _TRAINING, "to": "megatron"},
        "a manifest that serves with vLLM": {"plan": _SERVING, "to": "kubernetes", "command": "vllm"},
    },
    "zoo": {
        "accelerators by bandwidth": {
            "kind": "hardware",
            "filters": ["vendor=NVIDIA", "memory.capacity>=80GB"],
            "sort": "memory.bandwidth",
            "limit": 5,
        },
        "one model": {"kind": "models", "name": "Llama3_70B"},
    },
    "walls": {"communication": {"number": 14}},
    "schema": {"of a plan": {"type": "plan"}},
}
