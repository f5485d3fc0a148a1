"""Post-training frameworks: what a plan's step is as settings of one, and back. verl and NeMo-RL have their own names for it (:mod:`verl`, :mod:`nemo_rl`).

Mean and spread of responses are what a model writes, which no setting gives; ``# response:`` notes the mean, so that a file that was written here has an
answer. A micro-batch is a budget of packed tokens, at least one of the longest sequences. Weights of a sleeping trainer go to the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.rl import OTHER, framework
from mlsysim.errors import InputError
from mlsysim.launch.flags import Parsed, put, table
from mlsysim.launch.model_names import checkpoint_of, model_named
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import check_offered, completed, header, not_expressed, reasons
from mlsysim.launch.settings import Details, Rows, Setting, kept, settings
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.plans.rl_steps import PIECE, asked_of
from mlsysim.plans.training_layout import check_launcher

FIELDS = (
    "workload.model", "workload.batch_size", "workload.precision", "workload.optimizer", "workload.seq_len",
    "parallelism.tp", "parallelism.pp", "parallelism.dp", "parallelism.cp", "parallelism.ep", "parallelism.virtual_stages", "parallelism.schedule",
    "parallelism.micro_batch", "parallelism.zero", "parallelism.recompute",
    "serving.prompt_tokens", "serving.engine", "serving.memory_fraction", "serving.max_num_seqs",
    *(f"rl.{name}" for name in ("algorithm", "prompts", "samples", "max_response", "split", "staleness", "partial", "framework", "logprob_passes")),
    *(f"rl.generator_{name}" for name in ("tp", "pp", "ep", "precision")),
)  # fmt: skip
_WRITES = {
    "rl.response": "what the model writes, noted above",
    "rl.response_cv": "what the model writes",
    "rl.environment_time": "the reward function's",
}


class Pools(NamedTuple):
    """Nodes and accelerators of each that train, and that generate; no others where both take turns."""

    trainers: tuple[int, int]
    generators: tuple[int, int] | None


class Step(NamedTuple):
    """A completed plan's step, as frameworks set it."""

    plan: Plan
    answer: Answer
    why: dict[str, str]
    model: str
    prompt: int
    longest: int
    prompts: int
    samples: int
    batch: int
    passes: float
    pools: Pools
    pack: int
    memory: float
    slots: int
    engine: str
    uneven: int | None

    @property
    def reference(self) -> bool:
        """Whether a reference model reads the samples: of the passes of an algorithm the one beside the policy's own."""
        return self.passes > 1

    @property
    def layout(self) -> dict[str, Any]:
        """Degrees of trainer and generator."""
        return dict(self.answer.layout)

    @property
    def staleness(self) -> float | None:
        """Steps that samples may be old; None where trainer and generator take turns."""
        return None if self.pools.generators is None else self.layout["staleness"]


def _nodes(count: int, per_node: int) -> tuple[int, int]:
    """Accelerators as nodes and accelerators of each; part of a node where there is one."""
    return (1, count) if count < per_node else (count // per_node, per_node)


def step_of(plan: Plan, answer: Answer, engines: Mapping[str, str], algorithms: Mapping[str, str], title: str) -> Step:
    """The step of a completed plan; refused where the framework called ``title`` has no word for it."""
    part, layout = plan.rl, answer.layout
    assert part is not None
    name = part.algorithm or "grpo"
    if name not in algorithms:
        known = ", ".join(algorithms)
        raise InputError(f"Launch files of {title} are written for {known}, not for {name}.", field="algorithm")
    if part.generate_on is not None:
        words = "trainers and generators are of one kind of accelerator in a launch file; give split"
        raise InputError(f"{title}: {words}.", field="generate_on")
    if part.teacher is not None:
        raise InputError(f"A launch file of {title} names no teacher; leave it out.", field="teacher")
    if plan.workload.lora_rank is not None:
        raise InputError(f"Launch files of {title} are written for training of all weights.", field="lora_rank")
    words = f"{title} trains in bf16; there is no key"
    check_offered(plan.workload, ("bf16",), ("adam", "adamw"), words, f"{title}'s optimizer is Adam")
    if part.generator_precision not in (None, "bf16", "fp8", "fp8_block"):
        raise InputError(
            f"Generators of {title} write in bf16 or fp8, not in {part.generator_precision}.",
            field="generator_precision",
        )
    asked = asked_of(plan, Assumptions())
    given = plan.serving
    engine = (given and given.engine) or "vLLM"
    if engine.lower() not in engines:
        raise InputError(f"Generators of {title} run {', '.join(engines.values())}, not {engine[:40]}.", field="engine")
    per_node = find_fleets(plan.hardware).one.node.accelerators_per_node
    generators = layout["generators"]
    pools = Pools(_nodes(layout["trainers"], per_node), _nodes(generators, per_node) if generators else None)
    longest = asked.samples.prompt + round(asked.samples.lengths.most)
    micro = max(1, layout["batch_size"] // layout["dp"] // layout["micro_batches"])
    layers, pp = getattr(workload_of(plan.workload), "layers", 0), layout["pp"]
    last = layers - -(-layers // pp) * (pp - 1)
    if layers % pp and (last < 1 or layout["virtual_stages"] > 1):
        raise InputError(f"{layers} layers do not divide into {pp} stages; give another pp.", field="pp")
    return Step(
        plan, answer, reasons(plan, answer), checkpoint_of(plan.workload.model, "bf16")[0],
        asked.samples.prompt, round(asked.samples.lengths.most), asked.samples.prompts, asked.samples.each, asked.batch, asked.passes,
        pools, max(longest, micro * layout["seq_len"]),
        (given and given.memory_fraction) or asked.framework.memory[0 if pools.generators is None else 1],
        (given and given.max_num_seqs) or asked.framework.slots, engines[engine.lower()], last if layers % pp else None,
    )  # fmt: skip


class PostTrainer:
    """A framework by its table of keys: its subclasses say what keys a step has, and what a step is in keys."""

    NAME = ""
    TITLE = ""
    FIELDS = FIELDS
    ENGINES: ClassVar[Mapping[str, str]] = {}
    ALGORITHMS: ClassVar[Mapping[str, str]] = {}

    def rows(self, step: Step) -> Rows:
        """The keys of a step with their reasons."""
        raise NotImplementedError

    def gaps(self, step: Step) -> list[str]:
        """What the keys cannot say of a step."""
        gaps = not_expressed(step.plan, FIELDS, _WRITES)
        if (step.plan.rl and step.plan.rl.algorithm) == "dapo":
            gaps.append("groups that are sampled again, which the plan does not count")
        return gaps

    def step(self, plan: Plan, answer: Answer) -> Step:
        """The step of a completed plan that the framework runs."""
        named = plan.rl.framework if plan.rl else None
        if named is not None and framework(named).name not in (self.TITLE, OTHER):
            raise InputError(
                f"The plan's framework is {named}, and the launch file is for {self.TITLE}.", field="framework"
            )
        check_launcher(self.NAME, answer.layout)
        return step_of(plan, answer, self.ENGINES, self.ALGORITHMS, self.TITLE)

    def arguments(self, plan: Plan, answer: Answer, **_: Any) -> list[Setting]:
        """The keys of a completed plan."""
        step = self.step(plan, answer)
        return settings(self.rows(step), step.why)

    def made(self, plan: Plan, answer: Answer, details: Details, how: str) -> tuple[Step, list[Setting], list[str]]:
        """The step, its keys, and the lines above them."""
        final = completed(plan, answer)
        step = self.step(final, answer)
        found = settings(self.rows(step), step.why)
        found += kept(details, found, table(self.NAME).flags)
        top = header(final, answer, f"{self.TITLE} configuration", self.gaps(step), how)
        assert final.rl is not None
        return step, found, [*top, f"response: {final.rl.response}"]

    def packed(self, document: dict[str, Any], tokens: int | None, notes: Mapping[str, str]) -> None:
        """Sequences of mean length in a budget of tokens that is more than the longest has."""
        prompt = document.get("serving", {}).get("prompt_tokens") or 0
        mean, most = int(notes.get("response", "0")), document["rl"].get("max_response") or 0
        if tokens and mean and prompt and tokens > prompt + most:
            document["parallelism"]["micro_batch"] = max(1, tokens // (-(-(prompt + mean) // PIECE) * PIECE))

    def reading(
        self, parsed: Parsed, document: dict[str, Any], notes: Mapping[str, str], warnings: list[str]
    ) -> Reading:
        """The reading of keys; ``document`` is what was made of them."""
        document |= {"task": "rl"}
        part = document.setdefault("rl", {})
        part["framework"] = self.TITLE
        if "response" in notes:
            part["response"] = int(notes["response"])
        else:
            warnings.append("How long a response is on average no launch file says; give response.")
        document.setdefault("parallelism", {})["mode"] = "given"
        return Reading.of(parsed, document, warnings)


def enter_model(document: dict[str, Any], named: str | None, notes: Mapping[str, str], model: str | None) -> None:
    """The model of a checkpoint's name, or the one that is said or noted."""
    said = model or notes.get("model")
    if said is not None or named is not None:
        put(document, "workload.model", said or model_named(named or ""))
