"""vLLM, SGLang and TensorRT-LLM: engines with groups of attention, quantised weights and draft models.

vLLM spreads experts over all TP x DP ranks: with expert parallelism, ``--data-parallel-size`` makes groups of attention that share the experts
of one replica, and further replicas are further servers. Without it, it makes replicas.

SGLang writes a replica whose experts span more ranks than its attention's tensor group with DP attention: ``--tp-size`` is then the number of all
ranks of the replica and ``--dp-size`` the number of attention groups. Otherwise ``--dp-size`` makes replicas.

TensorRT-LLM has a file of further options, which stands in the script as a here-document, so that one file has both; a setting without dashes is
one of them. A server is one replica. Attention split by requests (``enable_attention_dp``) makes every rank its own attention group:
it is written where the plan has TP 1 and experts over more ranks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from mlsysim.cases.deployment import Degrees
from mlsysim.errors import InputError
from mlsysim.importers.limits import load_json
from mlsysim.launch.flags import Parsed, parse_tables, put
from mlsysim.launch.grouped import Drafted, GroupedServer, Split, Switches
from mlsysim.launch.model_names import checkpoint_of
from mlsysim.launch.serving import degrees_of, one_server, traffic_of
from mlsysim.launch.settings import Rows, Setting, Why, kept, read_documents, write_yaml
from mlsysim.launch.shell import Script
from mlsysim.plans.plan import Plan
from mlsysim.units.registry import to_si

_OPTIONS = "extra_llm_api_options.yaml"
_SAME = {
    "tensor_parallel_size": "--tp_size", "pipeline_parallel_size": "--pp_size", "max_batch_size": "--max_batch_size",
    "moe_expert_parallel_size": "--ep_size", "max_num_tokens": "--max_num_tokens",
}  # fmt: skip
"""Keys of TensorRT-LLM's options that overwrite flags."""


class VLLM(GroupedServer):
    """``vllm serve``."""

    CHUNKS = "--enable-chunked-prefill"
    PREFIXES: ClassVar[Switches] = {
        True: ("--enable-prefix-caching", True),
        False: ("--no-enable-prefix-caching", True),
    }

    def fill(self, parsed: Parsed, document: dict[str, Any], name: str, warnings: list[str]) -> None:
        super().fill(parsed, document, name, warnings)
        size = parsed.text("--kv-offloading-size")
        if size is not None:
            each = float(size) / degrees_of(document["parallelism"]).devices
            document["serving"]["offload_memory"] = f"{each:g} GiB"

    def own(self, plan: Plan, why: Mapping[str, str], replicas: bool) -> Split:
        rows, gaps = super().own(plan, why, replicas)
        room = traffic_of(plan).offload_memory
        if room is not None:
            size = round(to_si(room, "byte") * degrees_of(plan.parallelism).devices / 2**30, 3)
            rows["--kv-offloading-size"] = (size, "serving.offload_memory")
            rows["--kv-offloading-backend"] = ("native", "")
        return rows, gaps

    def groups(self, parsed: Parsed, split: dict[str, Any], traffic: dict[str, Any]) -> int:
        groups = parsed.whole("--data-parallel-size") or 1
        if parsed.on("--enable-expert-parallel"):
            split |= {"ep": split["tp"] * groups} | ({"attention_dp": groups} if groups > 1 else {})
        else:
            traffic["replicas"] = groups
        return groups

    def ranks(self, plan: Plan) -> int:
        """Every rank of ``--data-parallel-size`` is an engine of its own, with a limit of its own."""
        split = degrees_of(plan.parallelism)
        return split.groups if split.experts > 1 else 1

    def drafted(self, parsed: Parsed) -> Drafted | None:
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
        return method, model if known else None, tokens if type(tokens) is int else None

    def split(self, plan: Plan, why: Mapping[str, str], replica: Degrees, replicas: int | None) -> Split:
        ep = replica.experts
        rows: Rows = {
            "--data-parallel-size": (replicas, "serving.replicas"),
            "--enable-expert-parallel": (ep > 1, "parallelism.ep"),
        }
        if ep == 1:
            return rows, []
        shared = f"groups of attention that share the experts: EP {ep} over TP {replica.tp}"
        rows["--data-parallel-size"] = (replica.groups, shared)
        gaps = []
        if ep != replica.width:
            gaps.append(f"parallelism.ep = {ep} (vLLM spreads experts over all {replica.width} TP x DP ranks)")
        return rows, gaps + (one_server(plan) if replicas else [])

    def draft(self, model: str | None, tokens: int | None) -> Rows:
        given: dict[str, Any] = {"method": "mtp"} if model is None else {"model": model, "method": "draft_model"}
        given |= {} if tokens is None else {"num_speculative_tokens": tokens}
        why = "serving.draft_tokens" if model is None else "serving.draft_model"
        return {"--speculative-config": (json.dumps(given), why)}


class SGLang(GroupedServer):
    """``python -m sglang.launch_server``."""

    PREFIXES: ClassVar[Switches] = {False: ("--disable-radix-cache", True)}

    def groups(self, parsed: Parsed, split: dict[str, Any], traffic: dict[str, Any]) -> int:
        if (traffic.get("chunk_tokens") or 0) < 0:
            # A chunk of -1 switches chunks off.
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
        split |= {"tp": ranks // groups, "ep": split.get("ep") or ranks, "attention_dp": groups}
        return 1

    def drafted(self, parsed: Parsed) -> Drafted | None:
        """A draft model of its own is STANDALONE."""
        method, model = parsed.text("--speculative-algorithm"), parsed.text("--speculative-draft-model-path")
        if method is None and model is None:
            return None
        # EAGLE without a model of its own is the model's own head.
        named = "NEXTN" if method == "EAGLE" and model is None else method
        return named, model if method == "STANDALONE" else None, parsed.whole("--speculative-num-steps")

    def split(self, plan: Plan, why: Mapping[str, str], replica: Degrees, replicas: int | None) -> Split:
        model, _ = checkpoint_of(plan.workload.model, plan.workload.precision)
        tp, ep = replica.tp, replica.experts
        rows: Rows = {"--model-path": (model, "workload.model"), "--tp-size": (tp, "parallelism.tp")}
        rows["--dp-size"] = (replicas, "serving.replicas")
        gaps = []
        if replica.groups > 1:
            rows["--tp-size"] = (replica.width, f"all ranks of a replica; {why['parallelism.tp']}")
            rows["--dp-size"] = (replica.groups, f"groups of attention of TP {tp}")
            rows["--enable-dp-attention"] = (True, "")
            gaps += one_server(plan) if replicas else []
        rows["--ep-size"] = (ep if ep > 1 else None, "parallelism.ep")
        return rows, gaps

    def draft(self, model: str | None, tokens: int | None) -> Rows:
        """The model, or the model's own head, and a single branch of its tokens."""
        own = ("NEXTN", "serving.draft_tokens") if model is None else ("STANDALONE", "serving.draft_model")
        return {
            "--speculative-algorithm": own,
            "--speculative-draft-model-path": (model, ""),
            "--speculative-num-steps": (tokens, "serving.draft_tokens"),
            "--speculative-eagle-topk": (tokens and 1, ""),
            "--speculative-num-draft-tokens": (tokens and tokens + 1, ""),
        }


class TensorRTLLM(GroupedServer):
    """``trtllm-serve`` and its file of further options."""

    QUANTISES, CHUNKS = (), "enable_chunked_prefill"
    PREFIXES: ClassVar[Switches] = {shared: ("kv_cache_config.enable_block_reuse", shared) for shared in (True, False)}

    def take_files(self, parsed: Parsed, script: Script) -> None:
        """Options of the script's here-document."""
        file = parsed.text("--config")
        if file is None:
            return
        body = script.files.get(file.rsplit("/", 1)[-1])
        if body is None:
            parsed.warnings.append(f"The options of {file[:80]!r} are not in the file and were not read.")
            return
        documents = read_documents(body, "The file of further options") or [{}]
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise InputError("The file of further options is one table of keys.")
        more = parse_tables(documents[0], self.table)
        parsed.values |= {_SAME.get(key, key): value for key, value in more.values.items()}
        parsed.unread += more.unread
        parsed.warnings += more.warnings

    def groups(self, parsed: Parsed, split: dict[str, Any], traffic: dict[str, Any]) -> int:
        """With attention split by requests the limit is of a rank."""
        ranks = split["tp"] = parsed.whole("--tp_size") or 1
        if not parsed.on("enable_attention_dp"):
            return 1
        split |= {"tp": 1, "ep": split.get("ep") or ranks, "attention_dp": ranks}
        return ranks

    def drafted(self, parsed: Parsed) -> Drafted | None:
        """A draft model of its own is DraftTarget."""
        method = parsed.text("speculative_config.decoding_type")
        if method is None:
            return None
        model = parsed.text("speculative_config.speculative_model_dir")
        known = method.replace("_", "").lower() == "drafttarget"
        heads = parsed.whole("speculative_config.num_nextn_predict_layers")
        return method, model if known else None, heads or parsed.whole("speculative_config.max_draft_len")

    def ranks(self, plan: Plan) -> int:
        split = degrees_of(plan.parallelism)
        return split.groups if split.tp == 1 else 1

    def split(self, plan: Plan, why: Mapping[str, str], replica: Degrees, replicas: int | None) -> Split:
        apart, tp, ep = self.ranks(plan), replica.tp, replica.experts
        ranks = max(tp, apart)
        gaps = []
        if replica.groups > 1 and tp > 1:
            names = (("attention_dp", replica.groups), ("ep", ep))
            words = f"over TP {tp} (TensorRT-LLM has attention over all ranks or one)"
            gaps += [f"parallelism.{name} = {degree} {words}" for name, degree in names]
        rows: Rows = {
            "--tp_size": (ranks, "parallelism.tp"),
            "enable_attention_dp": (
                True if apart > 1 else None,
                f"attention of a replica split by requests over {ranks} ranks",
            ),
            "--ep_size": (min(ep, ranks) if ep > 1 else None, "parallelism.ep"),
        }
        return rows, [*gaps, *one_server(plan)]

    def draft(self, model: str | None, tokens: int | None) -> Rows:
        if model is None:
            return {
                "speculative_config.decoding_type": ("MTP", "serving.draft_tokens"),
                "speculative_config.num_nextn_predict_layers": (tokens, ""),
            }
        return {
            "speculative_config.decoding_type": ("DraftTarget", "serving.draft_model"),
            "speculative_config.speculative_model_dir": (model, ""),
            "speculative_config.max_draft_len": (tokens, ""),
        }

    def files(self, made: list[Setting], details: Mapping[str, Any]) -> tuple[list[str], list[Setting]]:
        """The here-document of options, those kept from a file behind the plan's, and the flags."""
        flags = [setting for setting in made if setting.flag.startswith("-")]
        options = [setting for setting in made if not setting.flag.startswith("-")]
        options += kept(details, options, [flag for flag in self.table.flags if not flag.startswith("-")])
        document: dict[str, Any] = {}
        for flag, value, reason in options:
            put(document, flag, Why(value, reason))
        lines = [f"cat > {_OPTIONS} <<'EOF'", *write_yaml(document), "EOF", ""]
        return (lines, [*flags, Setting("--config", _OPTIONS)]) if options else ([], flags)
