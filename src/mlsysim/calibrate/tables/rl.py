"""Steps of post-training: seconds of a step, of its rollout and of its training, each asked as a plan of task rl.

Rules for what a row does not say (each use is listed in ``Prediction.inferred``):

    prompt             115 tokens: what NeMo-RL's rate counts beside the responses, for every model
    lengths            cv 1 of NeMo-RL; of verl's runs, which print no mean, the mean that times of training imply (:data:`_MEANS`), and cv 1.5
    log-probabilities  as many passes as the row has times for; of NeMo-RL two, policy and reference
    verl's layout      FSDP over all ranks, a generator on each accelerator; its mini-batch counts prompts, NeMo-RL's samples

A rollout that runs beside the training has no time of its own: what an asynchronous row prints is a wait. Left out: rows without samples, lengths or
pools, single weight transfers, MFU alone, and rows that contradict themselves (:data:`_ODD`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.calibrate.cells import cell, chip_of, key_of, model_of, number, whole, whole_or_none
from mlsysim.calibrate.questions import Excluded, Question, Skipped, whole_nodes
from mlsysim.plans.plan import Plan

COLUMNS = (
    "rollout_samples",
    "samples_per_prompt",
    "train_global_batch",
    "mean_seq",
    "staleness",
    "step_s",
    "gen_s",
    "train_s",
)
_PROMPT = 115
_MEANS = {28672: 900, 10240: 620}
"""Mean response of verl's runs of Qwen2.5-Math-7B by the most tokens: only its product with the rate of training is known."""
_ODD = {
    "RL0053": "its step is 1.6 times what its hours say",
    "RL0056": "its parts are longer than its step",
    "RL0067": "colocated by its label, split by its times",
}
_MEASURED = {"step_s": "latency", "gen_s": "rollout_time", "train_s": "training_time"}


def read(row: Mapping[str, str]) -> list[Question]:
    """What to ask for a row."""
    if cell(row, "id") in _ODD:
        raise Excluded(_ODD[cell(row, "id")])
    if not cell(row, "step_s"):
        raise Skipped("no time of a step")
    plan, inferred, apart = plan_of(row)
    asked = {name: metric for name, metric in _MEASURED.items() if cell(row, name)}
    if apart:
        asked.pop("gen_s", None)
    regime = f"post-training {cell(row, 'framework')}"
    return [
        Question(name, number(row, name), plan, metric, "s", 1.0, regime, True, tuple(inferred))
        for name, metric in asked.items()
    ]


def plan_of(row: Mapping[str, str]) -> tuple[Plan, list[str], bool]:
    """The plan of a row, what was inferred for it, and whether pools work side by side."""
    verl = cell(row, "framework") == "verl"
    prompts, each = whole(row, "prompts"), whole(row, "samples_per_prompt")
    trainers, generators = whole(row, "n_train"), whole(row, "n_gen")
    split = cell(row, "placement") == "split"
    inferred = [f"prompts of {_PROMPT} tokens", "lognormal lengths"]
    most = whole_or_none(row, "max_response") or whole(row, "max_seq") - _PROMPT
    mean = number(row, "mean_seq", 0.0) or number(row, "mean_response", 0.0)
    if not mean and verl and most in _MEANS:
        mean = _MEANS[most]
        inferred.append(f"responses of {mean} tokens, from times of training")
    if not mean:
        raise Skipped("the mean length is not given")
    tp, pp, cp, ep = (whole(row, f"train_{name}", 1) for name in ("tp", "pp", "cp", "ep"))
    rl: dict[str, Any] = {
        "algorithm": "grpo",
        "prompts": prompts,
        "samples": each,
        "response": round(mean),
        "max_response": most,
        "response_cv": 1.5 if verl else 1.0,
        "logprob_passes": int(number(row, "logprob_s", 0.0) > 0) if verl else 2,
        "framework": cell(row, "framework"),
        "generator_tp": whole(row, "gen_tp", 1),
        "generator_pp": whole(row, "gen_pp", 1),
        "split": str(generators) if split else "none",
        "staleness": number(row, "staleness", 0.0) if split else None,
        "partial": True if split and verl else None,
    }
    batch = whole(row, "train_global_batch") * (each if verl else 1)
    document = {
        "task": "rl",
        "workload": {"model": key_of(model_of(cell(row, "model"))), "precision": "bf16", "batch_size": batch},
        "hardware": {"on": whole_nodes(trainers + generators if split else trainers, key_of(chip_of(row["gpu"])))},
        "parallelism": {"tp": tp, "pp": pp, "cp": cp, "ep": ep},
        "serving": {"prompt_tokens": _PROMPT, "engine": "vLLM"},
        "rl": {name: value for name, value in rl.items() if value is not None},
    }
    return Plan.model_validate(document), inferred, split
