"""vLLM: ``vllm serve``.

Expert parallelism spans all TP x DP ranks: with it, ``--data-parallel-size`` makes groups of attention that share the experts of one replica, and
further replicas are further servers. Without it, it makes replicas.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.limits import load_json
from mlsysim.launch.flags import Parsed
from mlsysim.launch.scripts import Setting
from mlsysim.launch.serving import GroupedServer, one_server
from mlsysim.plans.plan import Plan


class VLLM(GroupedServer):
    """The command and its flags."""

    def groups(self, parsed: Parsed, split: dict[str, Any], traffic: dict[str, Any]) -> int:
        """Enter degrees and replicas."""
        groups = parsed.whole("--data-parallel-size") or 1
        if parsed.on("--enable-expert-parallel"):
            split["ep"] = split["tp"] * groups
            return 1
        traffic["replicas"] = groups
        return groups

    def drafted(self, parsed: Parsed) -> tuple[str | None, str | None, int | None] | None:
        """A draft model as the JSON of ``--speculative-config`` names it."""
        text = parsed.text("--speculative-config")
        if text is None:
            return None
        given = load_json(text, 8, name="--speculative-config")
        if not isinstance(given, dict):
            raise InputError(
                '--speculative-config is a JSON object, such as {"model": ..., "num_speculative_tokens": 3}.'
            )
        method, model, tokens = given.get("method"), given.get("model"), given.get("num_speculative_tokens")
        known = isinstance(model, str) and method in (None, "draft_model")
        whole = isinstance(tokens, int) and not isinstance(tokens, bool)
        return method, model if known else None, tokens if whole else None

    def split(self, plan: Plan, why: Mapping[str, str], replicas: bool) -> tuple[list[Setting], list[str]]:
        """Degrees of a replica, then groups or replicas."""
        degrees, copies = plan.parallelism, (plan.serving.replicas if plan.serving is not None else None) or 1
        tp, ep, gaps = degrees.tp or 1, degrees.ep or 1, []
        out = [
            Setting("--tensor-parallel-size", str(tp), why["parallelism.tp"]),
            Setting("--pipeline-parallel-size", str(degrees.pp or 1), why["parallelism.pp"]),
        ]
        if ep > 1:
            if ep % tp:
                gaps.append(f"parallelism.ep = {ep} (vLLM spreads experts over all TP x DP ranks)")
            shared = f"groups of attention that share the experts: EP {ep} over TP {tp}"
            out.append(Setting("--data-parallel-size", str(max(1, ep // tp)), shared))
            out.append(Setting("--enable-expert-parallel", None, why["parallelism.ep"]))
            gaps += one_server(plan) if replicas else []
        elif replicas:
            out.append(Setting("--data-parallel-size", str(copies), why["serving.replicas"]))
        return out, gaps

    def chunks(self, why: str) -> list[Setting]:
        """A switch beside the tokens of a step."""
        return [Setting("--enable-chunked-prefill")]

    def draft(self, model: str, tokens: int | None, why: Mapping[str, str]) -> list[Setting]:
        """One flag of JSON."""
        given: dict[str, Any] = {"model": model, "method": "draft_model"}
        if tokens is not None:
            given["num_speculative_tokens"] = tokens
        return [Setting("--speculative-config", json.dumps(given), why["serving.draft_model"])]
