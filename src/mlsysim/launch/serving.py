"""Serving engines: a table of ``flags.toml`` with ``engine`` and ``command`` is one, read and written by :class:`Server`.

    [lmdeploy]
    engine = "LMDeploy"                          # its entry of data/software/engines.toml
    command = "lmdeploy serve api_server"        # the model stands after it; also: other forms of the command
    image = "openmmlab/lmdeploy:latest"          # for Kubernetes
    [lmdeploy.flags]
    "--tp" = {takes = "int", field = "parallelism.tp", means = "tensor-parallel degree"}
    "--dtype" = {takes = "text", field = "workload.precision", values = {bf16 = "bfloat16"}, means = "format of weights"}

A flag with ``field`` is read into that field of a plan and written from it, ``values`` being the engine's words for the plan's. Such
a command serves one replica; ``serving.concurrency`` is then of that replica. Engines whose flags mean more together than alone
(groups of attention, quantisation, draft models) have a module of their own, a :class:`GroupedServer`, and in their table

    format_flags       flags of number format, quantisation and caches
    formats            their words for quantisation, and the number format of each; quantised, caches: the words to write
    names              fields that the module turns into flags itself, by the flag
    lengths            the flag of the longest request
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.launch.flags import Parsed, Table, data_table, parse, put, table
from mlsysim.launch.model_names import checkpoint_of, model_named, precision_in_name
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import completed, header, leaves, not_expressed, reasons
from mlsysim.launch.scripts import Setting, array, comment, details_of
from mlsysim.launch.shell import Script, read_script
from mlsysim.plans.answer import Answer
from mlsysim.plans.fleet_text import parse_fleet
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import ServingPart

_ALWAYS = ("workload.model", "serving.engine", "serving.replicas")
_NEUTRAL = {"parallelism.tp": 1, "parallelism.pp": 1, "parallelism.ep": 1, "workload.precision": "bf16"}
_NOTES = {
    "serving.prompt_tokens": "traffic, not a setting",
    "serving.output_tokens": "traffic, not a setting",
    "serving.ttft": "a limit on what comes out",
    "serving.tpot": "a limit on what comes out",
    "serving.latency": "a limit on what comes out",
    "serving.acceptance": "a property of the draft model",
    "serving.cached_prefix": "a property of the traffic; engines share prefixes by themselves",
    "serving.decode_on": "start prefill and decode servers with a connector of the engine",
    "serving.network": "a property of the cluster",
}
_DTYPES = {
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "half": "fp16", "fp16": "fp16", "float32": "fp32",
    "float": "fp32", "fp32": "fp32",
}  # fmt: skip
_DTYPE_OF = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def cap_of(plan: Plan) -> int | None:
    """Requests of a replica that run at once: the load over the replicas, rounded up."""
    traffic = plan.serving
    if traffic is None or traffic.concurrency is None:
        return None
    return -(-traffic.concurrency // (traffic.replicas or 1))


def one_server(plan: Plan) -> list[str]:
    """What a command that serves one replica cannot say of several."""
    traffic = plan.serving
    if traffic is None or (traffic.replicas or 1) == 1:
        return []
    out = [f"serving.replicas = {traffic.replicas} (start as many of these behind a load balancer)"]
    if traffic.concurrency is not None:
        out.append(f"serving.concurrency = {traffic.concurrency} ({cap_of(plan)} a server)")
    return out


class Server:
    """One engine, with the names that the modules of other targets have."""

    def __init__(self, name: str) -> None:
        self.NAME = name
        self.entry: Mapping[str, Any] = data_table(name)
        self.ENGINE, self.COMMAND, self.IMAGE = (str(self.entry[key]) for key in ("engine", "command", "image"))
        self.title = str(self.entry.get("title", self.ENGINE))

    @property
    def table(self) -> Table:
        """Its flags."""
        return table(self.NAME)

    @property
    def FIELDS(self) -> tuple[str, ...]:
        """Fields of a plan that the command expresses."""
        return (*_ALWAYS, *(flag.field for flag in self.table.flags.values() if flag.field), *self.table.names)

    # --- from a command to a plan -------------------------------------------------------------------------------------

    def after(self, words: list[str]) -> int | None:
        """Where the arguments begin, of the engine's command."""
        commands = [command.split() for command in (self.COMMAND, *self.entry.get("also", ()))]
        for i, word in enumerate(words):
            for first, *rest in sorted(commands, key=len, reverse=True):
                # A path before it, and behind an image its release.
                if words[i + 1 : i + 1 + len(rest)] == rest and re.fullmatch(
                    rf"(.*/)?{re.escape(first)}(:[^:/]*)?", word
                ):
                    return i + 1 + len(rest)
        return None

    def read(self, text: str, *, on: str | None = None, model: str | None = None) -> Reading:
        """What a command says."""
        script = read_script(text)
        for command in reversed(script.commands):
            start = self.after(command)
            if start is not None:
                return self.read_command(command[start:], script, on, model)
        where = "" if "model" in self.entry else " MODEL"
        raise InputError(f"The text has no command of {self.title}: no '{self.COMMAND}{where}'.")

    def read_command(
        self, words: list[str], script: Script, on: str | None = None, model: str | None = None
    ) -> Reading:
        """What the arguments of one command say."""
        parsed = parse(words, self.table)
        self.take_files(parsed, script)
        first = parsed.positional[0] if parsed.positional else None
        name = parsed.text(self.entry.get("model", "--model")) or first
        document = parsed.document()
        document["task"] = "serving"
        warnings = [*script.warnings, *parsed.warnings]
        put(document, "serving.engine", self.ENGINE)
        document["serving"]["replicas"] = 1
        split = document.setdefault("parallelism", {})
        split.setdefault("tp", 1)
        split.setdefault("pp", 1)
        self._model(document, name, script.notes.get("model"), warnings)
        self.fill(parsed, document, name or "", warnings)
        return self._reading(document, parsed, warnings, on or script.notes.get("fleet"), model)

    def take_files(self, parsed: Parsed, script: Script) -> None:
        """Enter what files of the script say beside the flags."""

    def fill(self, parsed: Parsed, document: dict[str, Any], name: str, warnings: list[str]) -> None:
        """Enter what flags mean together."""

    def _model(self, document: dict[str, Any], name: str | None, note: str | None, warnings: list[str]) -> None:
        document.setdefault("workload", {})
        if name is not None and note is None:
            try:
                note = model_named(name)
            except InputError as error:
                warnings.append(str(error))
        if note is not None:
            put(document, "workload.model", note)

    def _reading(
        self, document: dict[str, Any], parsed: Parsed, warnings: list[str], fleet: str | None, model: str | None
    ) -> Reading:
        split, traffic = document["parallelism"], document["serving"]
        tp = split["tp"] or 1
        served = tp * (split["pp"] or 1) * max(1, (split.get("ep") or 1) // tp) * (traffic.get("replicas") or 1)
        found = Reading.of(parsed, document, accelerators=served, warnings=tuple(warnings))
        placed = found.placed(fleet, model)
        if fleet is None:
            return placed
        count = parse_fleet(placed.document["hardware"]["on"]).accelerators
        if served >= count:
            return placed
        note = f"The command serves on {served:,} of the fleet's {count:,} accelerators."
        kept = (warning for warning in placed.warnings if "the fleet is used" not in warning)
        return placed.model_copy(update={"warnings": (*kept, note)})

    # --- from a plan to a command -------------------------------------------------------------------------------------

    def arguments(self, plan: Plan, answer: Answer, replicas: bool = True) -> tuple[list[Setting], list[str]]:
        """The arguments of a completed plan, and what they cannot say; without ``replicas``, of one replica."""
        why, values = reasons(plan, answer), _NEUTRAL | leaves(plan)
        values["serving.concurrency"] = cap_of(plan)
        out, gaps = [], one_server(plan) if replicas else []
        for flag in self.table.flags.values():
            value = values.get(flag.field or "")
            if value is None:
                continue
            word = flag.values.get(str(value)) if flag.values else str(value)
            if word is None:
                gaps.append(f"{flag.field} = {value} ({flag.name} has {', '.join(flag.values or ())})")
            else:
                out.append(Setting(flag.name, word, why.get(flag.field or "", "")))
        return out, gaps

    def lines(
        self, plan: Plan, answer: Answer, details: Mapping[str, Any] | None, replicas: bool = True, before: str = ""
    ) -> tuple[list[str], list[str]]:
        """Lines that serve (those replicas of the plan, or one), and what they cannot say.

        What a file said itself of a flag that no field has goes before what is derived.
        """
        settings, gaps = self.arguments(plan, answer, replicas)
        flags, said = self.table.flags, details or {}
        settings = [s for s in settings if not (flags[s.flag].is_detail and s.flag in said)]
        lines, settings = self.files(settings, said)
        every = [*settings, *details_of(details, (s.flag for s in settings))]
        model, known = checkpoint_of(plan.workload.model, plan.workload.precision)
        command = self.COMMAND if "model" in self.entry else f"{self.COMMAND} {shlex.quote(model)}"
        gaps = [*self._gaps(plan), *gaps]
        if not known:
            gaps.append(f"the path of the weights (put it in place of {model})")
        return [*lines, *array("ARGS", every), "", f'{before}{command} "${{ARGS[@]}}"'], gaps

    def files(self, settings: list[Setting], details: Mapping[str, Any]) -> tuple[list[str], list[Setting]]:
        """Lines that write files beside the command, and the settings that are flags."""
        return [], settings

    def write(self, plan: Plan, answer: Answer, details: Mapping[str, Any] | None = None) -> str:
        """A script that serves the plan."""
        if answer.task != "serving":
            raise InputError(
                f"This target serves, and the plan is one of {answer.task}; give it serving traffic.", field="task"
            )
        final = completed(plan, answer)
        lines, gaps = self.lines(final, answer, details)
        return "\n".join(["#!/bin/bash", *comment(header(final, answer, self.title, gaps)), "", *lines]) + "\n"

    def _gaps(self, plan: Plan) -> list[str]:
        """What a serving plan says that the command cannot."""
        out = not_expressed(plan, self.FIELDS, {**_NOTES, **self.table.notes})
        traffic, cap = plan.serving, cap_of(plan)
        if traffic is None:
            return out
        if traffic.engine is not None and traffic.engine != self.ENGINE:
            out.append(
                f"serving.engine = {traffic.engine} (the answer's times are that engine's, not those of {self.ENGINE})"
            )
        if cap is not None and cap * (traffic.replicas or 1) != traffic.concurrency:
            out.append(f"serving.concurrency = {traffic.concurrency} (rounded up to {cap} a replica)")
        return out


class GroupedServer(Server):
    """An engine with groups of attention, quantised weights and draft models."""

    FIRST: tuple[str, ...] = ("formats", "limits")
    """What is written first behind the split: the number formats or the limits."""
    QUANTISES: tuple[str, ...] = ("fp8",)
    """Formats that the engine makes of a checkpoint in 16 bits."""

    def fill(self, parsed: Parsed, document: dict[str, Any], name: str, warnings: list[str]) -> None:
        """Enter the split of a replica, the requests at once, number formats and the draft model."""
        split, traffic = document["parallelism"], document["serving"]
        copies = self.groups(parsed, split, traffic)
        cap = parsed.whole(self.table.names["serving.concurrency"])
        if cap is not None:
            traffic["concurrency"] = cap * copies
        dtype, quantisation, caches = (parsed.text(flag) for flag in self.entry["format_flags"])
        precision = self._weights(dtype, quantisation, name, document["workload"].get("model"), warnings)
        if precision is not None:
            put(document, "workload.precision", precision)
        cells = _cells(caches, warnings)
        if cells is not None:
            traffic["cache_precision"] = cells
        drafted = self.drafted(parsed)
        if drafted is None:
            return
        method, draft, tokens = drafted
        if draft is None:
            warnings.append(
                f"Speculative decoding by {str(method)[:40]} is not part of a plan; times are those without it."
            )
            return
        try:
            traffic["draft_model"] = model_named(draft)
        except InputError as error:
            warnings.append(str(error))
            return
        if tokens is not None:
            traffic["draft_tokens"] = tokens

    def groups(self, parsed: Parsed, split: dict[str, Any], traffic: dict[str, Any]) -> int:
        """Enter degrees and replicas; gives how often the requests of a server stand beside each other."""
        raise NotImplementedError

    def drafted(self, parsed: Parsed) -> tuple[str | None, str | None, int | None] | None:
        """How tokens are drafted, by which model (None: not by one), and how many; None where none are."""
        raise NotImplementedError

    def split(self, plan: Plan, why: Mapping[str, str], replicas: bool) -> tuple[list[Setting], list[str]]:
        """The settings of degrees and replicas, and what they cannot say."""
        raise NotImplementedError

    def draft(self, model: str, tokens: int | None, why: Mapping[str, str]) -> list[Setting]:
        """The settings of a draft model."""
        raise NotImplementedError

    def chunks(self, why: str) -> list[Setting]:
        """What switches prefill in chunks on, beside their size."""
        return []

    def arguments(self, plan: Plan, answer: Answer, replicas: bool = True) -> tuple[list[Setting], list[str]]:
        """The arguments of a completed plan, and what they cannot say; without ``replicas``, of one replica."""
        traffic, why = plan.serving, reasons(plan, answer)
        assert traffic is not None
        out, gaps = self.split(plan, why, replicas)
        parts = {"formats": self._formats(plan, why, gaps), "limits": self._limits(plan, traffic, why)}
        for part in self.FIRST:
            out += parts[part]
        if traffic.draft_model is not None:
            out += self.draft(checkpoint_of(traffic.draft_model)[0], traffic.draft_tokens, why)
        if traffic.prompt_tokens and traffic.output_tokens:
            longest = str(traffic.prompt_tokens + traffic.output_tokens)
            out.append(Setting(self.entry["lengths"], longest, why["lengths"]))
        return out, gaps

    def cap(self, plan: Plan) -> int | None:
        """Requests at once, as the flag counts them."""
        return cap_of(plan)

    def _limits(self, plan: Plan, traffic: ServingPart, why: Mapping[str, str]) -> list[Setting]:
        flags = {flag.field: flag.name for flag in self.table.flags.values() if flag.field} | dict(self.table.names)
        out = []
        for field, value in (
            ("serving.concurrency", self.cap(plan)),
            ("serving.chunk_tokens", traffic.chunk_tokens),
            ("serving.memory_fraction", traffic.memory_fraction),
        ):
            if value is not None and field in flags:
                out.append(Setting(flags[field], repr(value), why[field]))
                out += self.chunks(why[field]) if field == "serving.chunk_tokens" else []
        return out

    def _formats(self, plan: Plan, why: Mapping[str, str], gaps: list[str]) -> list[Setting]:
        out = []
        dtype, quantisation, caches = self.entry["format_flags"]
        precision, reason = plan.workload.precision or "bf16", why["workload.precision"]
        if precision in _DTYPE_OF:
            out.append(Setting(dtype, _DTYPE_OF[precision], reason))
        elif precision in self.entry["quantised"]:
            note = "" if precision in self.QUANTISES else "; the checkpoint must be quantised so"
            out.append(Setting(quantisation, self.entry["quantised"][precision], reason + note))
        else:
            gaps.append(f"workload.precision = {precision} (serve a checkpoint in it)")
        cells = plan.serving.cache_precision if plan.serving is not None else None
        if cells is not None and cells in self.entry["caches"]:
            out.append(Setting(caches, self.entry["caches"][cells], why["serving.cache_precision"]))
        elif cells is not None:
            gaps.append(f"serving.cache_precision = {cells} ({self.entry['caches_are']})")
        return out

    def _weights(
        self, dtype: str | None, quantisation: str | None, model: str, key: str | None, warnings: list[str]
    ) -> str | None:
        """The number format of weights and arithmetic that flags and the checkpoint's name give."""
        if quantisation is not None and quantisation.lower() not in ("none", "null"):
            found: str | None = self.entry["formats"].get(quantisation.lower().replace("-", "_"))
            if found is not None:
                return found
            warnings.append(
                f"The quantisation {quantisation[:40]!r} does not say its number format; it was taken from the model's name."
            )
        named = precision_in_name(model)
        if named is not None:
            return named
        if dtype is None or dtype == "auto":
            return data_table("native_formats").get(key or "")
        if dtype.lower() not in _DTYPES:
            raise InputError(
                f"The format of weights is one of {', '.join(_DTYPES)}, got {dtype[:40]!r}.", field="precision"
            )
        return _DTYPES[dtype.lower()]


def _cells(text: str | None, warnings: list[str]) -> str | None:
    """The number format of caches."""
    if text is None or text == "auto":
        return None
    plain = text.lower()
    if plain.startswith("fp8") or plain == "mxfp8":
        return "fp8"
    if plain in _DTYPES:
        return _DTYPES[plain]
    if plain in ("int8", "nvfp4", "mxfp4", "int4", "fp4"):
        return plain
    warnings.append(f"The format of caches {text[:40]!r} was not read.")
    return None
