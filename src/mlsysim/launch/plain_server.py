"""Serving engines whose command is a table of flags and no more: a table of ``flags.toml`` with ``engine`` and ``command``.

    [lmdeploy]
    engine = "LMDeploy"                          # its entry of data/engines.toml
    command = "lmdeploy serve api_server"        # the model stands after it
    image = "openmmlab/lmdeploy:latest"          # for Kubernetes
    [lmdeploy.flags]
    "--tp" = {takes = "int", field = "parallelism.tp", means = "tensor-parallel degree"}
    "--dtype" = {takes = "text", field = "workload.precision", values = {bf16 = "bfloat16"}, means = "format of weights"}

A flag with ``field`` is read into that field of a plan and written from it, ``values`` being the engine's words for the plan's.
Such a command serves one replica; ``serving.concurrency`` is then of that replica.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from mlsysim.launch import serving
from mlsysim.launch.flags import Table, parse, table, tables_with
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import leaves, reasons
from mlsysim.launch.scripts import Setting
from mlsysim.launch.shell import Script
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan

_ALWAYS = ("workload.model", "serving.engine", "serving.replicas")
_NEUTRAL = {"parallelism.tp": 1, "parallelism.pp": 1, "parallelism.ep": 1, "workload.precision": "bf16"}


@dataclass(frozen=True)
class Server:
    """One engine, with the names that the modules of other targets have."""

    NAME: str
    ENGINE: str
    COMMAND: str
    IMAGE: str

    @cached_property
    def _table(self) -> Table:
        return table(self.NAME)

    @property
    def FIELDS(self) -> tuple[str, ...]:
        """Fields of a plan that the command expresses."""
        return (*_ALWAYS, *(flag.field for flag in self._table.flags.values() if flag.field))

    def after(self, words: list[str]) -> int | None:
        """Where the arguments begin, of the engine's command."""
        command = self.COMMAND.split()
        for i in range(len(words)):
            if [words[i].rsplit("/", 1)[-1], *words[i + 1 : i + len(command)]] == command:
                return i + len(command)
        return None

    def read(self, text: str, *, on: str | None = None, model: str | None = None) -> Reading:
        """What a command says."""
        words, script = serving.find_command(text, self.after, f"{self.ENGINE}: no '{self.COMMAND} MODEL'")
        return self.read_command(words, script, on, model)

    def read_command(
        self, words: list[str], script: Script, on: str | None = None, model: str | None = None
    ) -> Reading:
        """What the arguments of one command say."""
        parsed = parse(words, self._table)
        name = parsed.positional[0] if parsed.positional else None
        document, warnings = serving.begin(parsed, name, self.ENGINE, script)
        for degree in ("tp", "pp"):
            document["parallelism"].setdefault(degree, 1)
        document["serving"]["replicas"] = 1
        return serving.finish(self.NAME, document, parsed, warnings, script, {}, on, model)

    def arguments(self, plan: Plan, answer: Answer, replicas: bool = True) -> tuple[list[Setting], list[str]]:
        """The arguments of a completed plan after the model, and what they cannot say."""
        why, values = reasons(plan, answer), _NEUTRAL | leaves(plan)
        values["serving.concurrency"] = serving.cap_of(plan)
        out, gaps = [], serving.one_server(plan) if replicas else []
        for flag in self._table.flags.values():
            value = values.get(flag.field or "")
            if value is None:
                continue
            word = flag.values.get(str(value)) if flag.values else str(value)
            if word is None:
                gaps.append(f"{flag.field} = {value} ({flag.name} has {', '.join(flag.values or ())})")
            else:
                out.append(Setting(flag.name, word, why.get(flag.field or "", "")))
        return out, gaps

    def write(self, plan: Plan, answer: Answer, details: Mapping[str, Any] | None = None) -> str:
        """A script that serves the plan."""
        final = serving.final_plan(plan, answer)
        name, unknown = serving.checkpoint(final)
        settings, gaps = self.arguments(final, answer)
        settings = serving.without_details(self.NAME, settings, details)
        gaps = [*serving.gaps_of(final, self.ENGINE, None, self.FIELDS), *gaps, *unknown]
        command = f"{self.COMMAND} {shlex.quote(name)}"
        return serving.script_of(final, answer, self.ENGINE, command, settings, gaps, details)


@cache
def servers() -> dict[str, Server]:
    """The engines of the table, by target."""
    return {
        name: Server(name, entry["engine"], entry["command"], entry["image"])
        for name, entry in tables_with("command").items()
    }
