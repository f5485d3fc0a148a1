"""What vLLM, SGLang and TensorRT-LLM have in common: requests at once, number formats, drafts and adapters of a replica."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from mlsysim.cases.deployment import Degrees
from mlsysim.errors import InputError
from mlsysim.launch.flags import Parsed, put
from mlsysim.launch.model_names import checkpoint_of
from mlsysim.launch.serving import Server, cap_of, degrees_of, named, traffic_of
from mlsysim.launch.settings import Rows
from mlsysim.models.registry import Models
from mlsysim.physics.precision import is_narrow
from mlsysim.plans.plan import Plan
from mlsysim.zoo.checkpoints import format_named

_DTYPES = {
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "half": "fp16", "fp16": "fp16", "float32": "fp32",
    "float": "fp32", "fp32": "fp32",
}  # fmt: skip
_DTYPE_OF = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
Split = tuple[Rows, list[str]]
Switches = Mapping[bool, tuple[str, bool]]
Drafted = tuple[str | None, str | None, int | None]
"""How tokens are drafted, by which model (None: not by one), and how many."""
_HEADS = ("mtp", "nextn")
"""How methods end that draft with heads of the model's own."""


class GroupedServer(Server):
    """What the three have in common: limits, number formats, the draft model."""

    QUANTISES: tuple[str, ...] = ("fp8",)
    """Formats that the engine makes of a checkpoint in 16 bits."""
    CHUNKS: str | None = None
    """The switch of prefill in chunks, beside their size."""
    PREFIXES: ClassVar[Switches] = {}
    """The switches, and their values, that let prompts with a common beginning share its cache or not, where there are any; all of the engines
    share unless they are told otherwise."""

    @abstractmethod
    def groups(self, parsed: Parsed, split: dict[str, Any], traffic: dict[str, Any]) -> int:
        """Enter degrees and replicas; gives how often the limit on requests at once holds in a server."""

    @abstractmethod
    def drafted(self, parsed: Parsed) -> Drafted | None:
        """How tokens are drafted; None where none are."""

    @abstractmethod
    def split(self, plan: Plan, why: Mapping[str, str], replica: Degrees, replicas: int | None) -> Split:
        """The settings of degrees and of replicas, where those are its own, and what they cannot say."""

    @abstractmethod
    def draft(self, model: str | None, tokens: int | None) -> Rows:
        """The settings of a draft model, or of heads of the model's own."""

    def ranks(self, plan: Plan) -> int:
        """Attention groups of a replica for each of which the limit on requests at once holds; 1 where it holds for all of them."""
        return 1

    def cap(self, plan: Plan) -> int | None:
        """Requests at once, as the flag counts them: rounded up for each of its ranks."""
        cap = cap_of(plan)
        return None if cap is None else -(-cap // self.ranks(plan))

    def fill(self, parsed: Parsed, document: dict[str, Any], name: str, warnings: list[str]) -> None:
        """Enter the split of a replica, the requests at once, number formats and the draft model."""
        split, traffic = document["parallelism"], document["serving"]
        copies = self.groups(parsed, split, traffic)
        cap = parsed.whole(self.table.names["serving.max_num_seqs"])
        dtype, quantisation, caches = (parsed.text(flag) for flag in self.entry["format_flags"])
        precision = self._weights(dtype, quantisation, name, document["workload"].get("model"), warnings)
        if precision is not None:
            put(document, "workload.precision", precision)
        traffic |= {} if cap is None else {"max_num_seqs": cap * copies // (traffic.get("replicas") or 1)}
        cells = _cells(caches, warnings)
        traffic |= {} if cells is None else {"cache_precision": cells}
        for flag in ("--disaggregation-mode", "--kv-transfer-config"):
            if flag in self.table.flags and parsed.text(flag) not in (None, "null"):
                half = "is one half of a service in two pools, and was read as a whole one; give decode_on for the other half"
                warnings.append(f"A server with {flag} {half}.")
        if parsed.on("--enable-lora") or "--lora-paths" in parsed.values:
            traffic.setdefault("adapters", self.entry["adapters"])
        else:
            for key in ("adapters", "adapter_rank"):
                traffic.pop(key, None)
        off, value = self.PREFIXES[False]
        if parsed.values.get(off) is value:
            traffic["prefix_hits"] = 0.0
        drafted = self.drafted(parsed)
        if drafted is None:
            return
        method, draft, tokens = drafted
        if draft is None and str(method).lower().endswith(_HEADS) and tokens:
            traffic |= {"draft_tokens": tokens}
        elif draft is None:
            warnings.append(
                f"Speculative decoding by {str(method)[:40]} is not part of a plan; times are those without it."
            )
        elif (model := named(draft, warnings)) is not None:
            traffic |= {"draft_model": model} if tokens is None else {"draft_model": model, "draft_tokens": tokens}

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
        precision = format_named(model)
        if precision is not None or dtype is None or dtype == "auto":
            return precision or _native(key)
        if dtype.lower() not in _DTYPES:
            raise InputError(
                f"The format of weights is one of {', '.join(_DTYPES)}, got {dtype[:40]!r}.", field="precision"
            )
        return _DTYPES[dtype.lower()]

    def own(self, plan: Plan, why: Mapping[str, str], replicas: bool) -> Split:
        """Degrees and replicas, number formats, requests at once, the draft model and the longest request."""
        traffic = traffic_of(plan)
        rows, gaps = self.split(plan, why, degrees_of(plan.parallelism), (traffic.replicas or 1) if replicas else None)
        each, whole = self.cap(plan), cap_of(plan)
        if each is not None and each * self.ranks(plan) != whole:
            name = "concurrency" if traffic.max_num_seqs is None else "max_num_seqs"
            gaps.append(f"serving.{name} = {getattr(traffic, name)} (rounded up to {each} a rank)")
        rows |= self._formats(plan, why, gaps)
        rows[self.table.names["serving.concurrency"]] = (self.cap(plan), "serving.concurrency")
        if self.CHUNKS is not None and traffic.chunk_tokens is not None:
            rows[self.CHUNKS] = (True, "" if self.CHUNKS.startswith("-") else "serving.chunk_tokens")
        if traffic.draft_model is not None:
            rows |= self.draft(checkpoint_of(traffic.draft_model)[0], traffic.draft_tokens)
        elif traffic.draft_tokens is not None:
            rows |= self.draft(None, traffic.draft_tokens)
        found = [each for each in (traffic.prefix_hits, traffic.cached_prefix) if each is not None]
        if found and any(found) in self.PREFIXES:
            switch, value = self.PREFIXES[any(found)]
            rows[switch] = (value, "prefixes")
        rows["--enable-lora"] = (bool(traffic.adapters) or None, "")
        if not traffic.adapters:
            rows |= dict.fromkeys(("--max-loras", "--max-loras-per-batch", "--max-lora-rank"), (None, ""))
        if "halves" in why:
            rows |= {flag: (value, "halves") for flag, value in self.entry.get("halves", {}).items()}
        if traffic.prompt_tokens and traffic.output_tokens:
            rows[self.entry["lengths"]] = (traffic.prompt_tokens + traffic.output_tokens, "lengths")
        return rows, gaps

    def _formats(self, plan: Plan, why: Mapping[str, str], gaps: list[str]) -> Rows:
        rows: Rows = {}
        dtype, quantisation, caches = self.entry["format_flags"]
        precision, cells = plan.workload.precision or "bf16", traffic_of(plan).cache_precision
        own = _native(plan.workload.model) or "bf16"
        if is_narrow(own) and plan.workload.precision in (None, own):
            pass  # the checkpoint says so itself
        elif precision in _DTYPE_OF:
            rows[dtype] = (_DTYPE_OF[precision], "workload.precision")
        elif precision in self.entry["quantised"]:
            note = "" if precision in self.QUANTISES else "; the checkpoint must be quantised so"
            rows[quantisation] = (self.entry["quantised"][precision], why["workload.precision"] + note)
        else:
            gaps.append(f"workload.precision = {precision} (serve a checkpoint in it)")
        if cells is not None and cells not in self.entry["caches"]:
            gaps.append(f"serving.cache_precision = {cells} ({self.entry['caches_are']})")
        rows[caches] = (self.entry["caches"].get(cells), "serving.cache_precision")
        return rows


def _native(key: str | None) -> str | None:
    """The format that a model's checkpoint is published in."""
    return Models.get(key).native_format if key is not None and key in Models else None


def _cells(text: str | None, warnings: list[str]) -> str | None:
    """The number format of caches."""
    if text is None or text == "auto":
        return None
    plain = text.lower()
    if plain.startswith("fp8") or plain == "mxfp8":
        return "fp8"
    if plain in (*_DTYPES, "int8", "nvfp4", "mxfp4", "int4", "fp4"):
        return _DTYPES.get(plain, plain)
    warnings.append(f"The format of caches {text[:40]!r} was not read.")
    return None
