"""TensorRT-LLM: ``trtllm-serve`` and its file of further options.

The options stand in the script as a here-document, so that one file has both; a setting without dashes is one of them. A server is one replica.
Attention split by requests (``enable_attention_dp``) makes every rank its own attention group: it is written where the plan has TP 1 and
experts over more ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.launch.flags import Parsed, parse_tables, put
from mlsysim.launch.scripts import KEPT, Setting
from mlsysim.launch.serving import GroupedServer, cap_of, one_server
from mlsysim.launch.shell import Script
from mlsysim.launch.yaml_text import Why, read_yaml, write_yaml
from mlsysim.plans.plan import Plan

_OPTIONS = "extra_llm_api_options.yaml"
_SAME = {
    "tensor_parallel_size": "--tp_size",
    "pipeline_parallel_size": "--pp_size",
    "moe_expert_parallel_size": "--ep_size",
    "max_batch_size": "--max_batch_size",
    "max_num_tokens": "--max_num_tokens",
}
"""Keys of the file that overwrite flags."""


class TensorRTLLM(GroupedServer):
    """The command, its flags and its options."""

    FIRST = ("limits", "formats")
    QUANTISES = ()

    def take_files(self, parsed: Parsed, script: Script) -> None:
        """Options of the script's here-document."""
        file = parsed.text("--config")
        if file is None:
            return
        body = script.files.get(file.rsplit("/", 1)[-1])
        if body is None:
            parsed.warnings.append(f"The options of {file[:80]!r} are not in the file and were not read.")
            return
        documents = read_yaml(body, "The file of further options")
        if not documents:
            return
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise InputError("The file of further options is one table of keys.")
        more = parse_tables(documents[0], self.table)
        parsed.values |= {_SAME.get(key, key): value for key, value in more.values.items()}
        parsed.unread += more.unread
        parsed.warnings += more.warnings

    def groups(self, parsed: Parsed, split: dict[str, Any], traffic: dict[str, Any]) -> int:
        """Enter degrees; with attention split by requests the limit is of a rank."""
        ranks = parsed.whole("--tp_size") or 1
        split["tp"] = ranks
        if not parsed.on("enable_attention_dp"):
            return 1
        split["tp"], split["ep"] = 1, max(ranks, split.get("ep") or 1)
        return ranks

    def drafted(self, parsed: Parsed) -> tuple[str | None, str | None, int | None] | None:
        """A draft model of its own is DraftTarget."""
        method = parsed.text("speculative_config.decoding_type")
        if method is None:
            return None
        model = parsed.text("speculative_config.speculative_model_dir")
        known = method.replace("_", "").lower() == "drafttarget"
        return method, model if known else None, parsed.whole("speculative_config.max_draft_len")

    def _ranks(self, plan: Plan) -> tuple[int, bool]:
        """Ranks of a replica, and whether its attention is split by requests."""
        tp, ep = plan.parallelism.tp or 1, plan.parallelism.ep or 1
        return (ep, True) if ep > tp == 1 else (tp, False)

    def split(self, plan: Plan, why: Mapping[str, str], replicas: bool) -> tuple[list[Setting], list[str]]:
        """Ranks, stages and experts."""
        degrees, (ranks, by_requests), gaps = plan.parallelism, self._ranks(plan), []
        tp, ep = degrees.tp or 1, degrees.ep or 1
        if ep > tp > 1:
            gaps.append(f"parallelism.ep = {ep} over TP {tp} (TensorRT-LLM has attention over all ranks or one)")
        out = [
            Setting("--tp_size", str(ranks), why["parallelism.tp"]),
            Setting("--pp_size", str(degrees.pp or 1), why["parallelism.pp"]),
        ]
        if by_requests:
            out.append(
                Setting("enable_attention_dp", True, f"attention of a replica split by requests over {ep} ranks")
            )
        if ep > 1:
            out.append(Setting("--ep_size", str(min(ep, ranks)), why["parallelism.ep"]))
        whole, each = cap_of(plan), self.cap(plan)
        if (
            whole is not None
            and each is not None
            and by_requests
            and each * ranks != whole
            and plan.serving is not None
        ):
            gaps.append(f"serving.concurrency = {plan.serving.concurrency} (rounded up to {each} a rank)")
        return out, [*gaps, *one_server(plan)]

    def cap(self, plan: Plan) -> int | None:
        """Requests at once of a replica, or of a rank where attention is split by requests."""
        cap, (ranks, by_requests) = cap_of(plan), self._ranks(plan)
        return -(-cap // ranks) if cap is not None and by_requests else cap

    def chunks(self, why: str) -> list[Setting]:
        """An option beside the tokens of a step."""
        return [Setting("enable_chunked_prefill", True, why)]

    def draft(self, model: str, tokens: int | None, why: Mapping[str, str]) -> list[Setting]:
        """Options."""
        out = [
            Setting("speculative_config.decoding_type", "DraftTarget", why["serving.draft_model"]),
            Setting("speculative_config.speculative_model_dir", model),
        ]
        return out if tokens is None else [*out, Setting("speculative_config.max_draft_len", tokens)]

    def files(self, settings: list[Setting], details: Mapping[str, Any]) -> tuple[list[str], list[Setting]]:
        """The here-document of options, those kept from a file behind the plan's, and the flags."""
        options = {s.flag: Why(s.value, s.reason) for s in settings if not s.flag.startswith("-")}
        flags = [s for s in settings if s.flag.startswith("-")]
        for path, value in details.items():
            if not path.startswith("-") and path in self.table.flags:
                options.setdefault(path, Why(value, KEPT))
        if not options:
            return [], flags
        document: dict[str, Any] = {}
        for path, value in options.items():
            put(document, path, value)
        lines = [f"cat > {_OPTIONS} <<'EOF'", *write_yaml(document), "EOF", ""]
        return lines, [*flags, Setting("--config", _OPTIONS)]
