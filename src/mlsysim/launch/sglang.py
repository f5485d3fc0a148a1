"""SGLang: ``python -m sglang.launch_server``.

A replica whose experts span more ranks than its attention's tensor group is written with DP attention: ``--tp-size`` is then the number of all
ranks of the replica and ``--dp-size`` the number of attention groups. Otherwise ``--dp-size`` makes replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.launch.flags import Parsed
from mlsysim.launch.model_names import checkpoint_of
from mlsysim.launch.scripts import Setting
from mlsysim.launch.serving import GroupedServer, one_server
from mlsysim.plans.plan import Plan


class SGLang(GroupedServer):
    """The command and its flags."""

    def groups(self, parsed: Parsed, split: dict[str, Any], traffic: dict[str, Any]) -> int:
        """Enter degrees and replicas; a chunk of -1 switches chunks off."""
        if (traffic.get("chunk_tokens") or 0) < 0:
            del traffic["chunk_tokens"]
        ranks, groups = parsed.whole("--tp-size") or 1, parsed.whole("--dp-size") or 1
        split["tp"] = ranks
        if not parsed.on("--enable-dp-attention"):
            traffic["replicas"] = groups
            return groups
        if ranks % groups:
            raise InputError(
                f"With DP attention --tp-size {ranks} must be a multiple of --dp-size {groups}.", field="tp"
            )
        split["tp"], split["ep"] = ranks // groups, max(split.get("ep") or 1, ranks)
        return 1

    def drafted(self, parsed: Parsed) -> tuple[str | None, str | None, int | None] | None:
        """A draft model of its own is STANDALONE."""
        method, model = parsed.text("--speculative-algorithm"), parsed.text("--speculative-draft-model-path")
        if method is None and model is None:
            return None
        return method, model if method == "STANDALONE" else None, parsed.whole("--speculative-num-steps")

    def split(self, plan: Plan, why: Mapping[str, str], replicas: bool) -> tuple[list[Setting], list[str]]:
        """The model, ranks, then groups or replicas, stages and experts."""
        degrees, copies = plan.parallelism, (plan.serving.replicas if plan.serving is not None else None) or 1
        tp, ep, gaps = degrees.tp or 1, degrees.ep or 1, []
        model, _ = checkpoint_of(plan.workload.model, plan.workload.precision)
        out = [Setting("--model-path", model, why["workload.model"])]
        if ep > tp:
            groups = max(1, ep // tp)
            out.append(Setting("--tp-size", str(groups * tp), f"all ranks of a replica; {why['parallelism.tp']}"))
            out.append(Setting("--dp-size", str(groups), f"groups of attention of TP {tp}"))
            out.append(Setting("--enable-dp-attention"))
            if ep % tp:
                gaps.append(f"parallelism.ep = {ep} (with DP attention it is a multiple of TP {tp})")
            gaps += one_server(plan) if replicas else []
        else:
            out.append(Setting("--tp-size", str(tp), why["parallelism.tp"]))
            if replicas:
                out.append(Setting("--dp-size", str(copies), why["serving.replicas"]))
        out.append(Setting("--pp-size", str(degrees.pp or 1), why["parallelism.pp"]))
        if ep > 1:
            out.append(Setting("--ep-size", str(ep), why["parallelism.ep"]))
        return out, gaps

    def draft(self, model: str, tokens: int | None, why: Mapping[str, str]) -> list[Setting]:
        """The model, and a single branch of its tokens."""
        out = [
            Setting("--speculative-algorithm", "STANDALONE", why["serving.draft_model"]),
            Setting("--speculative-draft-model-path", model),
        ]
        if tokens is not None:
            out.append(Setting("--speculative-num-steps", str(tokens), why["serving.draft_tokens"]))
            out.append(Setting("--speculative-eagle-topk", "1"))
            out.append(Setting("--speculative-num-draft-tokens", str(tokens + 1)))
        return out
