"""The part of a plan that says what a step of post-training is asked for."""

import re
from typing import ClassVar, Literal

from pydantic import field_validator

from mlsysim.plans.plan_parts import _TEXT, Flag, Int, Real, Short, Text, _format, _open, _text, _within
from mlsysim.plans.schema import Part


class RlPart(Part):
    """A step of post-training. ``parallelism`` is the trainer's layout, ``serving`` says how the generator's engine is set."""

    part_of: ClassVar[tuple[str, str]] = ("A plan", "rl.")
    algorithm: Literal["grpo", "dapo", "ppo", "rloo", "distillation", "sft", "dpo"] | None = _open(
        "of the update; grpo"
    )
    prompts: Int = _within(1, 10**7, "prompts of a step")
    samples: Int = _within(1, 10**5, "samples of each prompt")
    response: Int = _within(1, 10**7, "mean tokens of a response")
    response_cv: Real = _within(0, 10, "variation (cv) of their lengths before the most; 1")
    max_response: Int = _within(1, 10**7, "most tokens of a response; 8 times the mean")
    split: Text = _text(20, "generators of their own: how many accelerators, or auto; none: colocated")
    generate_on: Text = _text(_TEXT, "a fleet that generates beside that which trains, such as 32xH200")
    staleness: Real = _within(0, 100, "steps that samples may be old; 1 where split")
    partial: Flag = _open("responses go on over an update")
    framework: Text = _text(40, "such as NeMo-RL or verl; other")
    environment_time: Short | None = _open("of tools and rewards of a response")
    logprob_passes: Int = _within(0, 16, "forward passes beside training; the algorithm's")
    teacher: Text = _text(_TEXT, "model of those passes; the trained one")
    generator_tp: Int = _within(1, 65536, "tp of a generator; the fastest")
    generator_pp: Int = _within(1, 4096, "pp of a generator")
    generator_ep: Int = _within(1, 65536, "ep of a generator")
    generator_precision: Text = _text(40, "format of a generator's weights, such as fp8; the trainer's")

    _known = field_validator("generator_precision")(_format)

    @field_validator("split")
    @classmethod
    def _pools(cls, value: str | None) -> str | None:
        if value is not None and value not in ("auto", "none") and not re.fullmatch(r"[1-9]\d{0,7}", value):
            raise ValueError(f"split is a number of accelerators that generate, 'auto' or 'none', got {value!r}")
        return value
