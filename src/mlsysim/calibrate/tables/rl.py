"""Steps of post-training: seconds of a step, of its rollout and of its training, each asked as a plan of task rl.

Rules for what a row does not say (each use is listed in ``Prediction.inferred``):

    prompt             115 tokens: what NeMo-RL's rate counts beside the responses, for every model
    group              16 samples of a prompt where a row gives only their number in all
    lengths            cv 1 of NeMo-RL; of verl's runs, which print no mean, the mean that times of training imply (:data:`_MEANS`), and cv 1.5
    log-probabilities  as many passes as verl's row has times for; of NeMo-RL two, policy and reference; else the algorithm's
    other frameworks   the constants of NeMo-RL with a wide interval; a layout that is not given is searched, ZeRO 3 where the software shards
    verl's layout      FSDP over all ranks, a generator on each accelerator; its mini-batch counts prompts, NeMo-RL's samples

    what is missing    half of the accelerators generate, which counts as a guess; where a weight transfer or the MFU of training alone was measured, which
                       samples and their lengths do not change, 1,024 of 1,024 tokens, and layouts are searched

A rollout that runs beside the training has no time of its own: what an asynchronous row prints is a wait. Weights of accelerators that take turns are handed
over among the framework's own seconds, which no constant tells apart. Left out: steps without the number of
samples or their lengths, which their time is proportional to, and rows that contradict themselves (:data:`_ODD`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlsysim.calibrate.cells import cell, chip_of, format_of, key_of, model_of, number, whole, whole_or_none
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.questions import Excluded, Question, Skipped, whole_nodes
from mlsysim.cases import rl as case
from mlsysim.plans.plan import Plan
from mlsysim.timing.engines import is_engine

COLUMNS = (
    *("rollout_samples", "samples_per_prompt", "train_global_batch", "mean_seq", "staleness", "step_s"),
    *("gen_s", "train_s"),
)
_PROMPT = 115
_GROUP = 16
_RELEASES: dict[str, list[str]] = settings("rows")["rl"]["releases"]
_HALF: list[str] = settings("rows")["training"]["half"]
"""Samples of a prompt where neither they nor the prompts are given: what recipes of GRPO take; they only share the prompt's pass."""
_MEANS = {28672: 900, 10240: 620}
"""Mean response of verl's runs of Qwen2.5-Math-7B by the most tokens: only its product with the rate of training is known."""
_ODD = {
    "RL0053": "its step is 1.6 times what its hours say",
    "RL0056": "its parts are longer than its step",
    "RL0067": "colocated by its label, split by its times",
}
_MEASURED = {
    "step_s": ("latency", "s"),
    "gen_s": ("rollout_time", "s"),
    "train_s": ("training_time", "s"),
    "logprob_s": ("logprob_time", "s"),
    "weight_sync_s": ("transfer_time", "s"),
    "train_mfu": ("training_mfu", ""),
}
_RESPONSE = _SAMPLES = 1024
"""Where a row does not say them."""
GUESSED = "guessed: "


def read(row: Mapping[str, str]) -> list[Question]:
    """What to ask for a row."""
    if cell(row, "id") in _ODD:
        raise Excluded(_ODD[cell(row, "id")])
    asked = {name: metric for name, metric in _MEASURED.items() if number(row, name, 0.0)}
    if not asked:
        raise Excluded("nothing of a step was measured")
    plan, inferred, apart = plan_of(row, whole_step=not {"step_s", "gen_s", "train_s"}.isdisjoint(asked))
    asked.pop("gen_s" if apart else "weight_sync_s", None)
    assert plan.rl is not None
    regime, guessed = f"post-training {plan.rl.framework}", sum(text.startswith(GUESSED) for text in inferred)
    return [
        Question(name, number(row, name), plan, metric, unit, 1.0, regime, True, tuple(inferred), guessed)
        for name, (metric, unit) in asked.items()
    ]


def plan_of(row: Mapping[str, str], whole_step: bool) -> tuple[Plan, list[str], bool]:
    """The plan of a row, what was inferred for it, and whether pools work side by side; ``whole_step`` where times depend on how much is sampled."""
    named, chip = cell(row, "framework"), chip_of(row["gpu"])
    framework = next((each for each in case.frameworks() if _bare(each) == _bare(named)), "other")
    verl, fitted = framework == "verl", framework != "other" and whole_step
    inferred = [f"prompts of {_PROMPT} tokens", "lognormal lengths"]
    version, known = re.match(r"v?(\d+\.\d+)", cell(row, "version")), _RELEASES.get(framework)
    if version and known and version[1] not in known:
        inferred.append(f"{GUESSED}what release {version[1]} changed; constants are of {', '.join(known)}")
    if framework == "other":
        inferred.append(f"stands in for {named or 'a framework that is not named'}: {case.DEFAULT}")
    each, sampled = whole_or_none(row, "samples_per_prompt"), whole_or_none(row, "rollout_samples")
    if sampled is None and each and (wanted := whole_or_none(row, "prompts")):
        sampled = wanted * each
    if sampled is None:
        if whole_step:
            raise Excluded("how much is sampled is not given, and a step's time is proportional to it")
        sampled = _SAMPLES
        inferred.append(f"{sampled} samples of a step, which do not change what was measured")
    if each is None:
        wanted = whole_or_none(row, "prompts")
        each = max(1, round(sampled / wanted)) if wanted else _GROUP
        inferred.append(f"{each} samples of a prompt")
    if not cell(row, "prompts") and "dynamic sampling" in cell(row, "notes"):
        raise Skipped("how many prompts are sampled again is not given")
    prompts = whole_or_none(row, "prompts") or max(1, sampled // each)
    split, trainers, generators = _pools(row, inferred)
    most = whole_or_none(row, "max_response")
    if most is None and (longest := whole_or_none(row, "max_seq")):
        most = longest - _PROMPT
    mean = number(row, "mean_seq", 0.0) or number(row, "mean_response", 0.0)
    if not mean and verl and most in _MEANS:
        mean = _MEANS[most]
        inferred.append(f"responses of {mean} tokens, from times of training")
    if not mean:
        if whole_step:
            raise Excluded("how long responses are is not given, and a step's time is proportional to it")
        mean = _RESPONSE
        inferred.append(f"responses of {mean} tokens, which do not change what was measured")
    if not any(cell(row, f"train_{name}") for name in ("tp", "pp", "cp", "ep")) and not verl:
        inferred.append(f"{GUESSED}the trainer's layout")
    algorithm = cell(row, "algorithm").lower()
    if algorithm not in case.algorithms():
        algorithm = "grpo"
        inferred.append("algorithm grpo")
    passes: int | None = int(number(row, "logprob_s", 0.0) > 0) if verl and whole_step else None
    if framework == case.DEFAULT and algorithm != "ppo":
        passes = 2
    trained = _format(row, "train_precision", "bf16")
    written = _format(row, "gen_precision", trained)
    engine = cell(row, "gen_engine")
    rl: dict[str, Any] = {
        "algorithm": algorithm,
        "prompts": prompts,
        "samples": each,
        "response": round(mean),
        "max_response": most,
        "response_cv": 1.5 if verl else 1.0 if fitted else None,
        "logprob_passes": passes,
        "framework": framework,
        "generator_tp": whole(row, "gen_tp", 1) if verl and fitted else whole_or_none(row, "gen_tp"),
        "generator_pp": whole(row, "gen_pp", 1) if fitted and cell(row, "gen_tp") else whole_or_none(row, "gen_pp"),
        "generator_precision": written if written != trained else None,
        "split": str(generators) if split else "none",
        "staleness": number(row, "staleness", float(_asynchronous(row))) if split else None,
        "partial": True if split and verl else None,
    }
    batch = (whole_or_none(row, "train_global_batch") or prompts * (1 if verl else each)) * (each if verl else 1)
    work = {"model": key_of(model_of(row["model"])), "precision": trained, "batch_size": batch}
    document = {
        "task": "rl",
        "workload": work,
        "hardware": {"on": whole_nodes(trainers + generators if split else trainers, key_of(chip))},
        "parallelism": _layout(row, verl and fitted),
        "serving": {"prompt_tokens": _PROMPT, "engine": engine if is_engine(engine) else "vLLM"},
        "rl": {name: value for name, value in rl.items() if value is not None},
    }
    return Plan.model_validate(document), inferred, split


def _asynchronous(row: Mapping[str, str]) -> bool:
    return re.match("async|off", cell(row, "mode"), re.IGNORECASE) is not None


def _bare(name: str) -> str:
    """A framework's name by its letters: NeMo-RL, NeMo RL, nemo_rl."""
    return re.sub("[^a-z]", "", name.lower())


def _format(row: Mapping[str, str], column: str, default: str) -> str:
    text = cell(row, column).lower()
    return default if text in _HALF else format_of(text or default, row["model"])


def _pools(row: Mapping[str, str], inferred: list[str]) -> tuple[bool, int, int]:
    """Whether accelerators generate alone, how many train, and how many generate; half of them where that is not said."""
    trainers, generators, total = (whole_or_none(row, name) for name in ("n_train", "n_gen", "n_gpus"))
    placed, apart = cell(row, "placement"), bool(trainers and generators and total and trainers + generators == total)
    if not (placed.startswith(("split", "disagg", "separate")) or (not placed and (apart or _asynchronous(row)))):
        found = trainers or generators or total
        if not found:
            raise Skipped("the number of accelerators is not given")
        return False, found, found
    if total:
        trainers, generators = trainers or total - (generators or total), generators or total - (trainers or total)
    if not trainers or not generators:
        if not total:
            raise Skipped("the number of accelerators is not given")
        trainers = generators = max(1, total // 2)
        inferred.append(f"{GUESSED}half of the accelerators generate")
    return True, trainers, generators


def _layout(row: Mapping[str, str], verl: bool) -> dict[str, int]:
    """The trainer's degrees: what the row says of them, sharded where its software shards, else the search's; verl's ranks share all."""
    degrees = {name: whole_or_none(row, f"train_{name}") for name in ("tp", "pp", "cp", "ep")}
    sharded = re.search(r"fsdp|zero|deepspeed|dtensor|automodel", cell(row, "train_engine"), re.IGNORECASE) is not None
    if not (verl or sharded or any(degrees.values())):
        return {}
    return {name: degree or 1 for name, degree in degrees.items()} | ({"zero": 3} if sharded and not verl else {})
