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
(groups of attention, quantisation, draft models) are a class of :mod:`mlsysim.launch.engines`, and in their table

    format_flags       flags of number format, quantisation and caches
    formats            their words for quantisation, and the number format of each; quantised, caches: the words to write
    names              fields that the class turns into flags itself, by the flag
    lengths            the flag of the longest request
    halves             flags that let the exchange of experts wait for the other half of a batch, and their values
    cache_tokens       the flag of the tokens that caches may hold, where there is one
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from mlsysim.cases.deployment import Degrees
from mlsysim.errors import InputError
from mlsysim.launch.flags import Parsed, Table, data_table, parse, put, table
from mlsysim.launch.model_names import checkpoint_of, model_named
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import completed, header, leaves, not_expressed, reasons
from mlsysim.launch.settings import Details, Rows, Setting, Written, array, comment, kept_flags, settings
from mlsysim.launch.shell import Script, read_script
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import ServingPart
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.timing.engines import engine as engine_named

_ALWAYS = ("workload.model", "serving.engine", "serving.replicas")
_NEUTRAL = {"parallelism.tp": 1, "parallelism.pp": 1, "parallelism.ep": 1, "workload.precision": "bf16"}


def degrees_of(split: Any) -> Degrees:
    """The degrees of a replica, of a plan's layout or of the table of one."""
    found = split if isinstance(split, Mapping) else split.model_dump()
    tp, pp, ep = (found.get(name) or 1 for name in ("tp", "pp", "ep"))
    return Degrees(tp, pp, ep, found.get("attention_dp"))


def traffic_of(plan: Plan) -> ServingPart:
    """The traffic of a completed plan that serves."""
    assert plan.serving is not None
    return plan.serving


def cap_of(plan: Plan) -> int | None:
    """Requests of a replica that run at once: the plan's limit, else the load over the replicas, rounded up."""
    traffic = traffic_of(plan)
    if traffic.max_num_seqs is not None:
        return traffic.max_num_seqs
    return None if traffic.concurrency is None else -(-traffic.concurrency // (traffic.replicas or 1))


def rounded(plan: Plan, cap: int | None, parts: int, part: str) -> list[str]:
    """What the requests at once of a replica, a rank or a node do not say of the load: they are rounded up, or a limit of its own."""
    traffic = traffic_of(plan)
    load = traffic.concurrency
    if cap is None or load is None or cap * parts == load:
        return []
    why = f"rounded up to {cap} a {part}" if traffic.max_num_seqs is None else "traffic; the flag has max_num_seqs"
    return [f"serving.concurrency = {load} ({why})"]


def one_server(plan: Plan) -> list[str]:
    """What a command that serves one replica cannot say of several."""
    traffic = traffic_of(plan)
    if (traffic.replicas or 1) == 1:
        return []
    out = [f"serving.replicas = {traffic.replicas} (start as many of these behind a load balancer)"]
    load = f"serving.concurrency = {traffic.concurrency} ({cap_of(plan)} a server)"
    return out if traffic.concurrency is None or traffic.max_num_seqs is not None else [*out, load]


def named(name: str, warnings: list[str]) -> str | None:
    """The zoo's key for a checkpoint's name; else a warning."""
    try:
        return model_named(name)
    except InputError as error:
        warnings.append(str(error))
        return None


class Server:
    """One engine, with the names that the modules of other targets have."""

    def __init__(self, name: str) -> None:
        self.NAME = name
        self.entry: Mapping[str, Any] = data_table(name)
        self.ENGINE, self.COMMAND, self.IMAGE = (str(self.entry[key]) for key in ("engine", "command", "image"))
        self.title = str(self.entry.get("title", self.ENGINE))
        # Flags that make another engine of it, together or alone.
        self.settings: Mapping[str, str] = self.entry.get("engines", {})

    @property
    def table(self) -> Table:
        return table(self.NAME)

    @property
    def FIELDS(self) -> tuple[str, ...]:
        """Fields of a plan that the command expresses."""
        return (*_ALWAYS, *(flag.field for flag in self.table.flags.values() if flag.field), *self.table.names)

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
        name, note = parsed.text(self.entry.get("model", "--model")) or first, script.notes.get("model")
        document = parsed.document(task="serving")
        warnings = [*script.warnings, *parsed.warnings]
        runner = next(
            (name for flags, name in self.settings.items() if all(map(parsed.on, flags.split()))), self.ENGINE
        )
        put(document, "serving.engine", runner)
        split, traffic = document.setdefault("parallelism", {}), document["serving"]
        traffic["replicas"] = 1
        split.setdefault("tp", 1)
        split.setdefault("pp", 1)
        document.setdefault("workload", {})
        if name is not None and note is None:
            note = named(name, warnings)
        if note is not None:
            put(document, "workload.model", note)
        self.fill(parsed, document, name or "", warnings)
        served = degrees_of(split).devices * (traffic.get("replicas") or 1)
        fleet = on or script.notes.get("fleet")
        room = parsed.whole(self.entry["cache_tokens"]) if "cache_tokens" in self.entry else None
        tokens = None if room is None else room * (split.get("attention_dp") or 1)
        read = Reading.of(parsed, document, warnings, accelerators=served, cache_tokens=tokens)
        placed = read.placed(fleet, model)
        if fleet is None:
            return placed
        count = parse_fleet(placed.document["hardware"]["on"]).accelerators
        if served >= count:
            return placed
        less = f"The command serves on {served:,} of the fleet's {count:,} accelerators."
        kept = (warning for warning in placed.warnings if "the fleet is used" not in warning)
        return placed.model_copy(update={"warnings": (*kept, less)})

    def take_files(self, parsed: Parsed, script: Script) -> None:
        """Enter what files of the script say beside the flags."""

    def fill(self, parsed: Parsed, document: dict[str, Any], name: str, warnings: list[str]) -> None:
        """Enter what flags mean together."""

    def own(self, plan: Plan, why: Mapping[str, str], replicas: bool) -> tuple[Rows, list[str]]:
        """Settings of flags that are no field as it stands, and what they cannot say; without ``replicas``, of one replica."""
        return {}, one_server(plan) if replicas else []

    def arguments(self, plan: Plan, answer: Answer, replicas: bool) -> tuple[list[Setting], list[str]]:
        """The arguments of a completed plan in the order of the table, and what they cannot say."""
        why, values = reasons(plan, answer), self._values(plan)
        rows, gaps = self.own(plan, why, replicas)
        runner = traffic_of(plan).engine
        flags = next((flags.split() for flags, name in self.settings.items() if name == runner), ())
        rows |= {flag: (True, self.table.flags[flag].means) for flag in flags}
        for flag in self.table.flags.values():
            value = values.get(flag.field or "")
            if value is None or flag.name in rows:
                continue
            rows[flag.name] = (flag.values.get(str(value)) if flag.values else value, flag.field or "")
        gaps += self.wordless(plan)
        return settings({flag: rows[flag] for flag in self.table.flags if flag in rows}, why), gaps

    def _values(self, plan: Plan) -> dict[str, Any]:
        """What flags say of a completed plan, by its fields."""
        return _NEUTRAL | leaves(plan) | dict.fromkeys(("serving.concurrency", "serving.max_num_seqs"), cap_of(plan))

    def wordless(self, plan: Plan) -> list[str]:
        """Values of a completed plan that its flags have no word for."""
        values = self._values(plan)
        return [
            f"{flag.field} = {value} ({flag.name} has {', '.join(flag.values)})"
            for flag in self.table.flags.values()
            if flag.values and (value := values.get(flag.field or "")) is not None and str(value) not in flag.values
        ]

    def lines(self, plan: Plan, answer: Answer, details: Details, replicas: bool = True, before: str = "") -> Written:
        """Lines that serve (those replicas of the plan, or one), and what they cannot say.

        What a file said itself of a flag that no field has goes before what is derived.
        """
        made, gaps = self.arguments(plan, answer, replicas)
        flags, said = self.table.flags, details or {}
        made = [setting for setting in made if not (flags[setting.flag].is_detail and setting.flag in said)]
        lines, made = self.files(made, said)
        every = [*made, *kept_flags(details, made)]
        model, known = checkpoint_of(plan.workload.model, plan.workload.precision)
        command = self.COMMAND if "model" in self.entry else f"{self.COMMAND} {shlex.quote(model)}"
        gaps = [*self._gaps(plan), *gaps]
        if not known:
            gaps.append(f"the path of the weights (put it in place of {model})")
        return [*lines, *array("ARGS", every), "", f'{before}{command} "${{ARGS[@]}}"'], gaps

    def files(self, made: list[Setting], details: Mapping[str, Any]) -> tuple[list[str], list[Setting]]:
        """Lines that write files beside the command, and the settings that are flags."""
        return [], made

    def write(self, plan: Plan, answer: Answer, details: Details = None) -> str:
        """A script that serves the plan."""
        final = completed(plan, answer)
        lines, gaps = self.lines(final, answer, details)
        return "\n".join(["#!/bin/bash", *comment(header(final, answer, self.title, gaps)), "", *lines]) + "\n"

    def _gaps(self, plan: Plan) -> list[str]:
        """What a serving plan says that the command cannot."""
        out = not_expressed(plan, self.FIELDS, {**data_table("serving_notes"), **self.table.notes})
        traffic = traffic_of(plan)
        engine = traffic.engine and engine_named(traffic.engine).name
        if engine and engine not in (self.ENGINE, *self.settings.values()):
            out.append(f"serving.engine = {engine} (the answer's times are that engine's, not those of {self.ENGINE})")
        return [*out, *rounded(plan, cap_of(plan), traffic.replicas or 1, "replica")]
