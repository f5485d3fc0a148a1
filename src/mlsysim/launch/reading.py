"""``Reading``: what a launch file says. A plan, what was not read, and what a plan has no field for.

A launch file seldom names the accelerator, and a DeepSpeed or FSDP file not even the model. A reading is complete once both
are known; until then asking it for its plan raises with what to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from pydantic import Field

from mlsysim.errors import InputError
from mlsysim.launch.flags import Parsed
from mlsysim.models.base import Workload
from mlsysim.models.registry import Models
from mlsysim.plans.plan import Plan
from mlsysim.plans.serving_load import OUTPUT, PROMPT
from mlsysim.systems.fleet_text import find_system, parse_fleet, parts_of
from mlsysim.units.fields import Record
from mlsysim.walls.document import Summary


class Reading(Summary, Record):
    """A launch file, read."""

    told: ClassVar = ("target", "command", "plan", "missing", "accelerators", "unread", "warnings", "details", "model")

    target: str
    document: dict[str, Any] = Field(description="the fields of a plan that the file gives")
    accelerators: int | None = Field(None, description="how many the file starts processes on")
    unread: tuple[str, ...] = Field((), description="flags and keys that nobody knows")
    warnings: tuple[str, ...] = ()
    details: dict[str, Any] = Field(default_factory=dict, description="flags that a plan has no field for")
    given: dict[str, Any] = Field(default_factory=dict, description="flags and keys as the file has them")
    flags: dict[str, str] = Field(default_factory=dict, description="the flag behind each field of the plan")
    workload: Workload | None = Field(
        None, description="a model that the file's dimensions describe and the zoo has not"
    )
    rank_batch: int | None = Field(
        None, description="sequences of a step of one data-parallel rank, where the batch follows from it"
    )
    steps: int | None = Field(None, description="steps to train for, where the tokens follow from them")
    cache_tokens: int | None = Field(
        None, description="tokens that the caches of a replica may hold, where a flag says so"
    )
    inner: str | None = Field(None, description="target of the command in a Slurm script or a manifest")

    @classmethod
    def of(cls, parsed: Parsed, document: dict[str, Any], warnings: Iterable[str], **more: Any) -> Reading:
        """What the parsed flags of a target say."""
        alone = {flag.field: flag.name for flag in parsed.table.flags.values() if flag.field}
        return cls(
            target=parsed.table.target,
            document=document,
            warnings=tuple(warnings),
            unread=tuple(parsed.unread),
            details=parsed.details(),
            given=dict(parsed.values),
            flags={**alone, **parsed.table.names, **more.pop("flags", {})},
            **more,
        )

    def placed(self, on: str | None = None, model: str | None = None, **parts: dict[str, Any]) -> Reading:
        """The reading with a fleet, a model, or other fields (``serving={"prompt_tokens": 2000}``) said by the user."""
        document = {part: dict(value) if isinstance(value, dict) else value for part, value in self.document.items()}
        warnings = list(self.warnings)
        if on is not None:
            fleet = self._fleet(on)
            document["hardware"] = {**document.get("hardware", {}), "on": fleet}
            count = parse_fleet(fleet).accelerators
            if self.accelerators is not None and count != self.accelerators:
                warnings.append(
                    f"The file starts {self.accelerators:,} process{'' if self.accelerators == 1 else 'es'} and the fleet has {count:,} accelerators; the fleet is used."
                )
        if model is not None:
            document["workload"] = {**document.get("workload", {}), "model": model}
        for part, fields in parts.items():
            given = {name: value for name, value in fields.items() if value is not None}
            if given:
                document[part] = {**document.get(part, {}), **given}
        return self.model_copy(update={"document": document, "warnings": tuple(warnings)})

    def _fleet(self, on: str) -> str:
        """A chip or node without a number takes the number of the file."""
        if "+" in on or self.accelerators is None:
            return on
        number, name, _ = parts_of(on)
        if number is not None:
            return on
        kind, entry = find_system(name)
        if kind == "chip":
            return f"{self.accelerators}x{on}"
        return f"{max(1, self.accelerators // entry.accelerators_per_node)}x{on}" if kind == "node" else on

    @property
    def missing(self) -> str | None:
        """What has to be said before there is a plan, in a sentence."""
        if not self.document.get("workload", {}).get("model"):
            return "The launch file does not name the model; say which, such as --model Llama3_70B."
        hardware = self.document.get("hardware", {})
        if not hardware.get("on") and not hardware.get("name"):
            count = self.accelerators or 64
            return f"The launch file does not name the accelerators; say which, such as --on {count}xH100."
        return None

    @property
    def plan(self) -> Plan:
        """The plan; raises where the file leaves out what :attr:`missing` says."""
        gap = self.missing
        if gap is not None:
            raise InputError(gap, field="on" if "accelerators" in gap else "model")
        if self.workload is not None:
            key = self.document["workload"]["model"]
            if key not in Models:
                Models.add(self.workload, key=key)
        document = {part: dict(value) if isinstance(value, dict) else value for part, value in self.document.items()}
        if document.get("task") == "training":
            self._data_parallel(document)
        plan = Plan.model_validate(document)
        return self._loaded(plan) if plan.kind == "serving" else plan

    def _loaded(self, plan: Plan) -> Plan:
        """A plan that serves with what its flags hold at once; where nobody says what comes, as many as they let in.

        A cache of T tokens holds T / (I + O / 2) requests, which are half through their answers on average.
        """
        part = plan.serving
        assert part is not None
        limits = [] if part.max_num_seqs is None else [part.max_num_seqs]
        if self.cache_tokens is not None:
            prompt, answer = (part.prompt_tokens or plan.workload.seq_len or PROMPT), part.output_tokens or OUTPUT
            limits.append(max(1, int(self.cache_tokens / (prompt + answer / 2))))
        if not limits:
            return plan
        update: dict[str, Any] = {"max_num_seqs": min(limits)}
        if part.qps is None and part.concurrency is None and part.trace is None:
            update["concurrency"] = min(limits) * (part.replicas or 1)
        return plan.replacing(serving=update)

    def _data_parallel(self, document: dict[str, Any]) -> None:
        split = document.setdefault("parallelism", {})
        count = parse_fleet(document["hardware"]["on"]).accelerators
        width = 1
        for name in ("tp", "pp", "cp"):
            width *= int(split.get(name) or 1)
        if count % width:
            degrees = " x ".join(f"{n.upper()} {split[n]}" for n in ("tp", "pp", "cp") if (split.get(n) or 1) > 1)
            raise InputError(f"{count:,} accelerators do not divide into groups of {degrees}.", field="on")
        split["dp"] = count // width
        split["mode"] = "given"
        work = document["workload"] = dict(document["workload"])
        if work.get("batch_size") is None and self.rank_batch is not None:
            work["batch_size"] = self.rank_batch * split["dp"]
        if work.get("tokens") is None and self.steps is not None and work.get("batch_size") and work.get("seq_len"):
            work["tokens"] = float(self.steps * work["batch_size"] * work["seq_len"])

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON."""
        return {
            "target": self.target,
            "command": self.inner,
            "plan": self.document,
            "missing": self.missing,
            "accelerators": self.accelerators,
            "unread": list(self.unread),
            "warnings": list(self.warnings),
            "details": dict(self.details),
            "model": None if self.workload is None else self.workload.name,
        }
