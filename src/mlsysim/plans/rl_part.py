"""The part of a plan that says what a step of post-training is asked for."""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, field_validator

from mlsysim.plans.plan_parts import _TEXT, Flag, Int, Real, Short, Text, _format, _open, _text, _within
from mlsysim.plans.schema import Part

COLOCATED, AUTO = "none", "auto"


def _written(value: Any) -> Any:
    return str(value) if type(value) is int else value


class RlPart(Part):
    """A step of post-training. ``parallelism`` is the trainer's layout, ``serving`` says how the generator's engine is set."""

    part_of: ClassVar[tuple[str, str]] = ("A plan", "rl.")
    algorithm: Literal["grpo", "dapo", "ppo", "rloo", "distillation", "sft", "dpo"] | None = _open(
        "algorithm of the update (default grpo)"
    )
    prompts: Int = _within(1, 10**7, "prompts of a step", 512)
    samples: Int = _within(1, 10**5, "samples of each prompt", 16)
    response: Int = _within(1, 10**7, "mean tokens of a response", 2000)
    response_cv: Real = _within(0, 10, "variation (cv) of response lengths before the cut-off (default 1)")
    max_response: Int = _within(1, 10**7, "longest response in tokens (default: 8 times the mean)", 16000)
    split: Annotated[Text, BeforeValidator(_written, json_schema_input_type=int | str | None)] = _text(
        20, "accelerators that only generate: a number or auto; none: take turns"
    )
    generate_on: Text = _text(_TEXT, "a second fleet that generates, such as 32xH200")
    staleness: Real = _within(0, 100, "how many steps old samples may be (default 1 when split)")
    partial: Flag = _open("responses continue across updates")
    framework: Text = _text(40, "NeMo-RL (default), verl or other")
    environment_time: Short | None = _open("time of tools and rewards for one response")
    logprob_passes: Int = _within(0, 16, "forward passes besides training (default: the algorithm's)")
    teacher: Text = _text(_TEXT, "model of those passes (default: the trained one)")
    generator_tp: Int = _within(1, 65536, "tp of a generator (default: the fastest)")
    generator_pp: Int = _within(1, 4096, "pp of a generator")
    generator_ep: Int = _within(1, 65536, "ep of a generator")
    generator_precision: Text = _text(40, "format of a generator's weights, such as fp8 (default: the trainer's)")

    _known = field_validator("generator_precision")(_format)

    @field_validator("split")
    @classmethod
    def _pools(cls, value: str | None) -> str | None:
        if value is not None and value not in (AUTO, COLOCATED) and not re.fullmatch(r"[1-9]\d{0,7}", value):
            raise ValueError(f"split is a number of accelerators that generate, 'auto' or 'none', got {value!r}")
        return value
