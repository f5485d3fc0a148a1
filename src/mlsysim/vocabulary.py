"""One table of names. A concept has one key, that of a plan, and every face takes every name of it.

    parallelism.tp   `tp` in a plan file, `--tp` on the command line, `tp_size` in Python, `tp` on an axis of a sweep

The first name behind a key is what resolvers call it; the others are what people write. Keys that are not listed have the name
of their field alone. Meaning, unit and range of a key stand where it is declared: in :mod:`mlsysim.plans.plan_parts` and in the inputs
of the resolvers. Nothing is imported here, so that every room may ask.

Sentences that name settings keep them as data (:class:`Wording`): a resolver says that a job ``fits with zero_stage=3``, a plan
file calls that ``zero = 3`` and the command line ``--zero 3``, and each face writes the sentence in its own words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

NAMES: dict[str, tuple[str, ...]] = {
    "workload.batch_size": ("batch_size", "batch", "global_batch_size"),
    "workload.seq_len": ("seq_len", "seq", "seq_length", "sequence_length", "context_length"),
    "workload.tokens": ("tokens", "training_tokens"),
    "workload.lora_rank": ("lora_rank", "lora"),
    "workload.gradient_precision": ("gradient_precision", "grad_dtype"),
    "workload.exchange_precision": ("exchange_precision", "dispatch_dtype"),
    "workload.activation_precision": ("activation_precision", "activation_dtype"),
    "hardware.on": ("hardware", "on", "fleet", "chip"),
    "hardware.stack": ("stack", "runtime"),
    "hardware.launcher": ("launcher", "launch_target"),
    "hardware.congestion": ("congestion_factor",),
    "hardware.straggler": ("straggler_factor",),
    "hardware.oversubscription": ("oversubscription", "oversubscription_ratio"),
    "hardware.wan_round_trip": ("wan_round_trip", "wan_rtt"),
    "hardware.chip.peak_flops": ("peak",),
    "hardware.chip.memory_bandwidth": ("bandwidth",),
    "hardware.chip.memory_capacity": ("capacity",),
    "parallelism.tp": ("tp_size", "tensor_parallel", "tensor_parallel_size"),
    "parallelism.pp": ("pp_size", "pipeline_parallel", "pipeline_parallel_size"),
    "parallelism.dp": ("dp_size", "data_parallel", "data_parallel_size"),
    "parallelism.ep": ("ep_size", "expert_parallel", "expert_parallel_size"),
    "parallelism.cp": ("cp_size", "context_parallel", "context_parallel_size", "dcp", "decode_context_parallel_size"),
    "parallelism.virtual_stages": ("v_stages", "vpp", "interleave"),
    "parallelism.micro_batch": ("micro_batch", "micro_batch_size", "mbs"),
    "parallelism.micro_batches": ("microbatch_count", "num_microbatches"),
    "parallelism.micro_batch_group": ("microbatch_group_size",),
    "parallelism.zero": ("zero_stage",),
    "parallelism.zero_shard": ("zero_shard", "hsdp", "fsdp_shard_size", "shard_size", "shard", "dp_shard"),
    "parallelism.reshard": ("reshard", "reshard_after_forward"),
    "parallelism.recompute": ("activation_recomputation", "recomputation"),
    "parallelism.offload": ("optimizer_offload",),
    "parallelism.offload_weights": ("weights_offload", "offload_params"),
    "parallelism.offload_activations": ("activations_offload",),
    "parallelism.overlap": ("overlap_comm",),
    "serving.prompt_tokens": ("seq_len", "isl", "prompt", "prompt_len", "input_tokens", "input_len"),
    "serving.output_tokens": ("output_len", "osl", "max_tokens", "max_new_tokens"),
    "serving.concurrency": ("concurrency", "clients", "max_concurrency"),
    "serving.qps": ("qps", "rps", "request_rate", "arrival_rate_qps"),
    "serving.replicas": ("num_replicas",),
    "serving.cache_precision": ("cache_precision", "kv_precision", "kv_cache_dtype"),
    "serving.chunk_tokens": ("prefill_chunk_tokens", "chunk", "chunk_size"),
    "serving.cached_prefix": ("cached_prefix_len", "prefix_len"),
    "serving.prefix_hits": ("prefix_hit_rate", "prefix_cache_hit_rate", "prefix_cache"),
    "serving.offload_memory": ("offload_memory", "kv_offload", "cpu_offload"),
    "serving.length_cv": ("length_cv", "lengths"),
    "serving.burst": ("burst", "burstiness"),
    "serving.draft_model": ("draft_model", "draft"),
    "serving.draft_tokens": ("num_speculative_tokens",),
    "serving.acceptance": ("draft_acceptance_rate", "acceptance_rate"),
    "serving.decode_on": ("decode_hardware",),
    "serving.decode_tp": ("decode_tp_size",),
    "serving.decode_ep": ("decode_ep_size",),
    "serving.adapters": ("adapters", "max_loras", "max_loras_per_batch"),
    "serving.adapter_rank": ("adapter_rank", "max_lora_rank"),
    "serving.range_ratio": ("range_ratio", "random_range_ratio"),
    "serving.network": ("network_bandwidth",),
    "serving.memory_fraction": ("memory_fraction", "gpu_memory_utilization", "mem_fraction_static"),
    "rl.prompts": ("prompts", "num_prompts_per_step"),
    "rl.samples": ("samples", "num_generations", "num_generations_per_prompt", "samples_per_prompt"),
    "rl.response": ("response", "response_length", "mean_response"),
    "rl.max_response": ("max_response", "max_response_length"),
    "rl.split": ("split", "generators"),
    "rl.staleness": ("staleness", "max_trajectory_age_steps"),
    "rl.partial": ("partial", "partial_rollout"),
    "rl.environment_time": ("environment_time", "tool_time", "tool_latency", "reward_time"),
    "rl.generator_tp": ("generator_tp", "rollout_tp"),
    "ops.region": ("datacenter", "grid"),
    "ops.duration_days": ("duration_days", "days"),
    "ops.checkpoint_time": ("checkpoint_time_s",),
    "ops.restart_time": ("avg_recovery_time_s", "recovery_time"),
    "ops.price": ("cloud_price", "rent", "gpu_hour_price"),
    "hardware.chip.price": ("unit_cost",),
    "ops.electricity": ("kwh_price", "electricity_price"),
}
"""Names by key; the resolvers' own first."""

MEANT = {
    **dict.fromkeys(("gpus", "gpu", "num_gpus", "n_gpus", "accelerators", "hardware", "chip", "cluster", "fleet"), ("on", "512xH100")),
    **dict.fromkeys(("nodes", "nnodes", "num_nodes"), ("on", "64xDGX_H100")),
    **dict.fromkeys(("rate", "requests_per_second", "load"), ("qps", "5")),
    **dict.fromkeys(("users", "clients"), ("concurrency", "16")),
    **dict.fromkeys(("latency", "sla", "p99"), ("slo", "ttft_p99=500ms,tpot=30ms")),
    **dict.fromkeys(("country", "location", "grid"), ("region", "Quebec")),
    **dict.fromkeys(("days", "time"), ("deadline", "30d")),
    **dict.fromkeys(("format", "dtype", "quantization"), ("precision", "fp8")),
    **dict.fromkeys(("chunked_prefill", "chunk"), ("chunk_tokens", "2048")),
    **dict.fromkeys(("context", "max_model_len", "max_seq_len", "context_len", "ctx"), ("seq_len", "32k")),
    "hours": ("deadline", "5h"),
    **dict.fromkeys(("mfu", "utilization", "utilisation"), ("efficiency", "40%")),
}  # fmt: skip
"""Words that are no names of a key, and the key that was meant, with an example; looked up where nothing has the name."""

RUNS = {"training": "stack", "inference": "stack", "serving": "engine", "rl": "framework"}
"""The key that names the software which runs a task."""

_SOFTWARE = (*RUNS.values(), "runtime", "backend")

VALUES = {
    **dict.fromkeys(("zb_h1", "zbh1", "zb", "zb_1p", "zerobubble", "zero_bubble_h1"), "zero_bubble"),
    **dict.fromkeys(("zbh2", "zb_2p", "zero_bubble_h2"), "zb_h2"),
    **dict.fromkeys(("zbv", "zero_bubble_v"), "zb_v"),
    **{
        "bfs": "breadth_first",
        "looped_bfs": "breadth_first",
        "dualpipev": "dualpipe_v",
        "interleaved_1f1b": "interleaved",
    },
    **dict.fromkeys(("reinforce", "reinforce++", "reinforce_plus_plus", "reinforce_pp"), "rloo"),
    **{"sync": "synchronous", "async": "asynchronous", "memory": "in_memory", "inmemory": "in_memory"},
    **{"gspo": "grpo", "on_policy_distillation": "distillation"},
}
"""Other names of values that are words."""

PARTS = {"layout": "parallelism"}
"""Other names of the parts of a plan."""

WALLS = {
    **dict.fromkeys(("flops", "arithmetic"), 1),
    **dict.fromkeys(("bandwidth", "capacity"), 2),
    **dict.fromkeys(("mfu", "efficiency", "overhead"), 3),
    **dict.fromkeys(("ttft", "tpot", "inference"), 4),
    **dict.fromkeys(("kvcache", "cache", "batch"), 5),
    **dict.fromkeys(("latency", "queue", "tail", "p99"), 7),
    **dict.fromkeys(("storage", "io", "data"), 8),
    "preprocessing": 9,
    "scalinglaws": 11,
    **dict.fromkeys(("quantization", "quantisation", "compression", "accuracy"), 13),
    **dict.fromkeys(("network", "collectives", "interconnect"), 14),
    **dict.fromkeys(("failures", "reliability", "goodput", "mtbf"), 15),
    **dict.fromkeys(("cost", "money", "price", "tco"), 17),
    **dict.fromkeys(("power", "energy", "carbon", "water"), 18),
    **dict.fromkeys(("checkpoints", "checkpointing"), 19),
    "privacy": 20,
}
"""What people call the walls, beside their names, in small letters and in one word."""


def names_of(key: str) -> tuple[str, ...]:
    """Every name of a key, the field's own first.

    >>> names_of("parallelism.zero"), names_of("ops.budget")
    (('zero', 'zero_stage'), ('budget',))
    """
    return tuple(dict.fromkeys((key.rpartition(".")[2], *NAMES.get(key, ()))))


def python_name(key: str) -> str:
    """What resolvers call a key.

    >>> python_name("parallelism.virtual_stages"), python_name("parallelism.schedule")
    ('v_stages', 'schedule')
    """
    return NAMES.get(key, (key.rpartition(".")[2],))[0]


def meant_for(name: str, task: str) -> str | None:
    """The key of a task that says what another task's key says there; None where there is none.

    >>> meant_for("--stack", "serving"), meant_for("runtime", "training"), meant_for("tp", "serving")
    ('engine', 'stack', None)
    """
    return RUNS.get(task) if plain(name) in _SOFTWARE and plain(name) != RUNS.get(task) else None


def valued(example: str, given: object) -> str:
    """An example with the value that somebody gave, where it is of the same kind: a number for a number, or something that has one.

    >>> valued("16", 200), valued("512xH100", "64"), valued("30d", "12h"), valued("32k", "128000"), valued("Quebec", "3")
    ('200', '64xH100', '12h', '128000', 'Quebec')
    """
    found, text = re.fullmatch(r"\d+([dhk]|x\w+)?", example), str(given)[:40]
    if found is None or not text or not (text.isdigit() or found[1]):
        return example
    return text + found[1] if text.isdigit() and found[1] not in (None, "k") else text


def plain(name: str) -> str:
    """A name as the table writes it: ``--TP-size`` becomes ``tp_size``."""
    return name.strip().lstrip("-").replace("-", "_").lower()


def same_as(name: str, valid: Collection[str]) -> str | None:
    """The one of some valid names that a name stands for, None where there is none.

    >>> same_as("tp", ["tp_size", "seq_len"]), same_as("isl", ["tp_size", "seq_len"]), same_as("speed", ["tp_size"])
    ('tp_size', 'seq_len', None)
    """
    if name in valid:
        return name
    wanted = plain(name)
    for key in NAMES:
        names = names_of(key)
        if wanted in names:
            found = next((other for other in names if other in valid), None)
            if found is not None:
                return found
    return wanted if wanted in valid else None


def with_aliases(valid: Iterable[str]) -> dict[str, str]:
    """Further names of some valid ones: each with the valid name that it stands for.

    >>> with_aliases(["zero_stage", "model"])
    {'zero': 'zero_stage'}
    """
    held = tuple(valid)
    found: dict[str, str] = {}
    for key in NAMES:
        for name in names_of(key):
            meant = None if name in held else same_as(name, held)
            if meant is not None:
                found.setdefault(name, meant)
    return found


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting by the name that resolvers know, and its value; without one the name alone."""

    name: str
    value: Any = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value!r}"


class Wording(str):
    """A text and the pieces that it is put together from."""

    pieces: tuple[str | Setting, ...]

    def __new__(cls, text: str, pieces: Iterable[str | Setting] = ()) -> Wording:
        made = super().__new__(cls, text)
        made.pieces = tuple(pieces) or (text,)
        return made

    def __getnewargs__(self) -> tuple[str, tuple[str | Setting, ...]]:  # type: ignore[override]
        return str(self), self.pieces

    def written(self, write: Callable[[Setting], str]) -> Wording:
        """The same with its settings in other words.

        >>> said = worded("it fits with ", Setting("zero_stage", 3), ".")
        >>> str(said), str(said.written(lambda setting: f"--{setting.name} {setting.value}"))
        ('it fits with zero_stage=3.', 'it fits with --zero_stage 3.')
        """
        return Wording(
            "".join(write(piece) if isinstance(piece, Setting) else piece for piece in self.pieces), self.pieces
        )

    def removeprefix(self, prefix: str, /) -> Wording:
        """The same without its first words."""
        first, *rest = self.pieces
        return worded(first.removeprefix(prefix) if isinstance(first, str) else first, *rest)

    def removesuffix(self, suffix: str, /) -> Wording:
        """The same without its last words."""
        *rest, last = self.pieces
        return worded(*rest, last.removesuffix(suffix) if isinstance(last, str) else last)


def worded(*pieces: str | Setting) -> Wording:
    """The sentence that pieces make: texts, settings, and other such sentences."""
    flat = [inner for piece in pieces for inner in (piece.pieces if isinstance(piece, Wording) else (piece,))]
    return Wording("".join(map(str, flat)), flat)


def listed(settings: Iterable[Setting], between: str = " and ") -> Wording:
    """Settings one after the other."""
    first, *rest = settings
    return worded(first, *(piece for each in rest for piece in (between, each)))
