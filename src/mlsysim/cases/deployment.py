"""From inputs to checked machines that serve: degrees that divide, links between devices, arithmetic that a chip has, engines."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from mlsysim.cases.assumptions import INFERRED, SOFTWARE, Assumptions
from mlsysim.cases.cache import DeviceMemory, remedies, wider_groups
from mlsysim.cases.machines import Engines, Replicated
from mlsysim.cases.replica import Replica
from mlsysim.cases.traffic import Traffic
from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak, storage_formats
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import cache_format, is_narrow
from mlsysim.timing.device_time import check_known
from mlsysim.timing.engine_step import EngineStep, engine_step
from mlsysim.timing.engines import engine
from mlsysim.timing.network import chip_network, port_rate
from mlsysim.timing.profile import own_profile
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si
from mlsysim.vocabulary import Setting, listed, worded


class Degrees(NamedTuple):
    """How a replica is split: ``pp`` stages of groups of ``tp`` devices. Groups share the experts of a mixture, each with requests of
    its own (attention data parallelism): ``attention_dp`` of them, else as many as an expert-parallel degree beyond ``tp`` makes."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    attention_dp: int | None = None

    @property
    def groups(self) -> int:
        return self.attention_dp or max(1, self.ep // self.tp)

    @property
    def width(self) -> int:
        """Devices of a stage."""
        return self.tp * self.groups

    @property
    def experts(self) -> int:
        """Devices that experts are dealt out to: where it is not said, all of a stage with several groups."""
        return self.width if self.ep == 1 and self.groups > 1 else self.ep

    @property
    def devices(self) -> int:
        return self.width * self.pp


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on replicas: chips, formats and degrees. With an ``engine`` it is calibrated, else at first order with one
    ``efficiency``. ``decode_chip`` are devices of their own that write the answers, ``draft`` a model that drafts them.
    Requests choose among ``adapters`` of rank ``adapter_rank``; ``offline`` there is no server in front of an engine, and
    without ``prefixes`` it keeps none."""

    model: Any
    chip: HardwareNode
    precision: str = "fp16"
    cache_precision: str | None = None
    tp: int = 1
    pp: int = 1
    ep: int = 1
    decode_chip: HardwareNode | None = None
    draft: Any = None
    fabric: Any = None
    engine: str | None = None
    efficiency: Any = 1.0
    bandwidth_efficiency: Any = 1.0
    memory_fraction: float | None = None
    redundant: int = 0
    decode_tp: int | None = None
    decode_ep: int | None = None
    attention_dp: int | None = None
    adapters: int = 0
    adapter_rank: int = 0
    cp: int = 1
    offline: bool = False
    prefixes: bool = True

    @property
    def degrees(self) -> Degrees:
        return Degrees(self.tp, self.pp, self.ep, self.attention_dp)

    @property
    def cache_format(self) -> str:
        """Of the caches."""
        return cache_format(self.cache_precision, self.precision)

    @property
    def _cache_in_words(self) -> str:
        """The format of the caches as it is told: of the two of 16 bits the one that the model or the chip has."""
        without = self.precision == "fp16" or not self.chip.compute.supports("bf16")
        return "fp16" if self.cache_format == "bf16" and without else self.cache_format

    @property
    def writing_chip(self) -> HardwareNode:
        return self.chip if self.decode_chip is None else self.decode_chip

    @property
    def writing(self) -> Deployment:
        """The pool that writes answers: its own chip, and its own layout where it has one."""
        own = replace(self, chip=self.writing_chip)
        if self.decode_chip is None or (self.decode_tp is None and self.decode_ep is None):
            return own
        experts = self.decode_ep or (self.ep if self.decode_tp is None else 1)
        return replace(own, tp=self.decode_tp or self.tp, ep=experts, attention_dp=None)

    @property
    def drafting(self) -> Deployment:
        """The draft model on the tensor-parallel devices of a replica that divide its heads."""
        split = math.gcd(self.draft.heads or 1, self.tp)
        alone: dict[str, Any] = {"pp": 1, "ep": 1, "attention_dp": None, "redundant": 0, "adapters": 0, "cp": 1}
        return replace(self, model=self.draft, chip=self.writing_chip, tp=split, **alone)

    def machine(self, assumed: Assumptions) -> Replicated | Engines:
        """What reads and writes; what had to be assumed is noted in ``assumed``."""
        if self.cache_precision is None and (self.engine is not None or is_narrow(self.precision)):
            assumed.say("cache_precision", self.cache_format, INFERRED, self._cache_in_words)
        if self.engine is None:
            return self.replicated(assumed)
        reader = writer = self._engine(assumed)
        if self.decode_chip is not None:
            writer = self.writing._engine(assumed)
        draft = None if self.draft is None else self.drafting._engine(Assumptions())
        return Engines(reader, writer, draft, self.decode_chip is not None)

    def replicated(self, assumed: Assumptions) -> Replicated:
        """Replicas at first order; of a calibrated deployment those whose passes are bounds, at the datasheet's rates."""
        own = self
        if self.engine is not None:
            own = replace(self, engine=None, efficiency=1.0)
        reader = writer = own.replica(assumed)
        if self.decode_chip is not None:
            writer = own.writing.replica(assumed)
        if self.draft is None:
            return Replicated(reader, writer)
        drafts = own.drafting
        if drafts.tp != self.tp:
            assumed["draft_model"] = f"{self.draft.name} runs on {drafts.tp} of {self.tp} tensor-parallel devices"
        return Replicated(reader, writer, drafts.replica(assumed))

    def remedies(self, t: Traffic, place: int, held: int) -> tuple[str, ...]:
        """The smallest changes with which so many sequences fit the devices that write (0) or read (1)."""

        def memory(**changes: Any) -> DeviceMemory:
            return replace(self, **changes).machine(Assumptions()).memories(t)[place]

        chip, draft = self.chip if place else self.writing_chip, place == 0 and self.draft is not None
        wider = wider_groups(self.model, chip, self.tp, self.ep)
        found = remedies(memory, held, wider, storage_formats(chip), draft=draft, alone=chip.alone)
        without = memory(adapters=0)
        if self.adapters and without.fits(held):
            most = int(self.adapters * (without.capacity - without.used(held)) / memory().adapters)
            found = (worded("hold fewer adapters (", Setting("adapters", most), ")"), *found)
        return found

    def replica(self, assumed: Assumptions) -> Replica:
        """A checked replica. What had to be assumed of links and arithmetic is noted in ``assumed``."""
        model, chip, split = self.model, self.chip, self.degrees
        check_degrees(model, *split, redundant=self.redundant)
        check_context(model, self.tp, self.cp)
        peak, note = arithmetic_peak(chip, self.precision)
        if note:
            assumed["arithmetic"] = note
        if split.experts > self.ep:
            assumed["ep_size"] = f"{split.experts}: experts over all devices of the {split.groups} groups of attention"
        if split.devices > 1 and not model.hidden_dim:
            assumed["communication"] = f"none: {model.name} states no hidden_dim, so its messages have no size"
        return Replica(
            *(
                model,
                chip,
                self.precision,
                self.cache_format,
                self.tp,
                self.pp,
                split.experts,
                peak,
                self.efficiency,
            ),
            bandwidth=to_si(chip.memory.bandwidth, "byte/s") * self.bandwidth_efficiency,
            network=chip_network(chip, split.devices, self.fabric, assumed),
            memory_fraction=self.memory_fraction,
            redundant=self.redundant,
            attention_groups=split.groups,
            adapters=self.adapters,
            adapter_rank=self.adapter_rank,
            cp=self.cp,
        )

    def _engine(self, assumed: Assumptions) -> EngineStep:
        """The steps of the engine."""
        model, chip = self.model, self.chip
        if not model.has_dimensions:
            raise InputError(
                f"efficiency='calibrated' sums operators, and {model.name} states no layers, hidden_dim and heads.",
                field="model",
            )
        check_known(model, chip, self.precision)
        split = self.degrees
        check_degrees(model, *split, redundant=self.redundant)
        check_context(model, self.tp, self.cp)
        mixture = getattr(model, "experts", 1) > 1
        named, share = engine(self.engine or "").on(chip, self.offline, self.prefixes), self.memory_fraction
        if share is None and chip.family == "cpu":
            share, assumed["memory_fraction"] = 1.0, "1: what engines keep back is of a GPU's memory"
        step = engine_step(
            model,
            chip,
            named if share is None else named.model_copy(update={"memory_utilisation": share}),
            precision=self.precision,
            cache_precision=self.cache_format,
            tp=self.tp,
            attention_dp=split.groups,
            moe_tp=split.width // split.experts if mixture else 1,
            moe_ep=split.experts if mixture else 1,
            pp=self.pp,
            redundant=self.redundant,
            adapters=self.adapters,
            adapter_rank=self.adapter_rank,
            cp=self.cp,
            port=None if self.fabric is None else port_rate(self.fabric),
        )
        if note := arithmetic_peak(chip, self.precision)[1]:
            assumed["arithmetic"] = note
        if not named.windows and step.stack != model.stack:
            assumed["windows"] = f"none: {named.name} attends to whole texts unless it is told of the model's windows"
        if step.halves:
            how = "behind the other half of the batch where a step has enough tokens"
            flags = "--enable-two-batch-overlap of SGLang, --enable-dbo of vLLM"
            assumed.say("exchange", how, SOFTWARE, f"{how}: {flags}")
        basis = "of its class" if step.family != "other" else "of its profile and class defaults"
        seen, runs = named.seen(model, self.precision), "no measured run of this architecture"
        if seen is not None:
            other = "" if named.measured(model, self.precision) else " in other formats"
            runs = f"{seen.rows} measured runs of this architecture{other}"
        elif seen := named.others(self.precision):
            runs = f"{runs} among {seen.rows} of others"
        if seen is not None:
            runs += f": factors of {seen.prompts:.3g} on kernels of prompts, {seen.answers:.3g} on those of answers and {seen.launches:.3g} on the operators that the host launches"
        assumed["fidelity"] = f"calibrated: steps of {step.engine.spoken} ({step.engine.year}), kernels {basis}, {runs}"
        if mine := own_profile(chip):
            assumed["own_profile"] = mine
        assumed.pop("bandwidth_efficiency", None)
        return step


def language_model(model: Workload) -> TransformerWorkload:
    """The model, if it writes one token after another."""
    if isinstance(model, TransformerWorkload) and model.structure == "decoder":
        return model
    raise InputError(one_pass_only(model), field="model")


def one_pass_only(model: Workload) -> str:
    """What is said of a model that has no tokens to write one after another."""
    key = model.metadata.key or "MODEL"
    return f"{model.name} does not write token after token, as served models do; ask for one pass of it (inference): `mlsysim eval {key} CHIP`."


def most_context(model: TransformerWorkload, tp: int) -> int:
    """Devices among which a cache may be split by tokens: as many as a tensor-parallel group holds of every key.

    Heads of keys are dealt out first, so that tp devices hold tp / kv_heads copies (tp of a latent cache, which has one head); states of
    recurrent layers have no tokens. The rule is vLLM's, for --decode-context-parallel-size.
    """
    counts = [mixer.counts for block in model.stack.blocks for mixer in block.mixers] if model.has_dimensions else []
    if not counts or any(each.state for each in counts):
        return 1
    heads = max((each.heads for each in counts if each.cached), default=tp)
    return int(tp // heads) if tp % heads == 0 else 1


def check_context(model: TransformerWorkload, tp: int, cp: int) -> None:
    """Raise where so many devices do not hold copies of the keys."""
    most = most_context(model, tp)
    if cp == 1 or (cp <= most and most % cp == 0):
        return
    rest = f" splits copies of the keys by tokens, and {tp} tensor-parallel device{'s' * (tp > 1)} of {model.name} "
    if most == 1:
        words = worded(Setting("cp_size", cp), rest, "hold none.")
    else:
        words = worded(
            Setting("cp_size", cp), rest, f"hold {most}; use a divisor of it, or a wider ", Setting("tp_size"), "."
        )
    raise InputError(words, field="cp_size")


def check_degrees(
    model: TransformerWorkload, tp: int, pp: int, ep: int, attention_dp: int | None = None, redundant: int = 0
) -> None:
    """Raise where a degree does not divide what it splits, with the nearest that do; ``redundant`` experts are held twice."""
    if model.heads:
        _divides("tp_size", tp, model.heads, f"the {model.heads} attention heads of {model.name}")
    layers = model.layers
    if layers and pp > layers:
        raise InputError(
            worded(Setting("pp_size", pp), f" leaves stages of {model.name} without any of its {layers} layers."),
            field="pp_size",
        )
    if pp > 1 and not layers:
        words = worded(Setting("pp_size", pp), f" needs 'layers' of {model.name}, which are not stated.")
        raise InputError(words, field="pp_size")
    experts = getattr(model, "experts", 1)
    if redundant and experts <= 1:
        raise InputError(f"{model.name} has no experts to hold twice.", field="redundant_experts")
    groups, width = attention_dp or 1, tp * (attention_dp or 1)
    if groups > 1 and experts == 1:
        rest = f" makes groups of attention that share experts, and {model.name} has none; use "
        raise InputError(
            worded(Setting("attention_dp", groups), rest, Setting("num_replicas"), "."), field="attention_dp"
        )
    if attention_dp and ep > 1 and width % ep:
        both = listed((Setting("tp_size", tp), Setting("attention_dp", groups)), " and ")
        rest = f" does not divide the {width} devices that share the experts by "
        raise InputError(worded(Setting("ep_size", ep), rest, both, "."), field="ep_size")
    ep = Degrees(tp, pp, ep, attention_dp).experts
    if ep == 1:
        return
    if experts > 1 and redundant and (experts + redundant) % ep == 0:
        experts += redundant
    if experts == 1:
        others = listed((Setting("tp_size"), Setting("pp_size")), " or ")
        none = f" splits experts, and {model.name} has none; use "
        raise InputError(worded(Setting("ep_size", ep), none, others, "."), field="ep_size")
    # So many more, held twice, are shared equally.
    twice = () if redundant or ep > experts else (", or use ", Setting("redundant_experts", -experts % ep))
    _divides("ep_size", ep, experts, f"the {experts} experts of {model.name}", *twice)
    if groups == 1 and max(tp, ep) % min(tp, ep):
        both = listed((Setting("ep_size", ep), Setting("tp_size", tp)))
        raise InputError(worded(both, " must be multiples of each other."), field="ep_size")


def _divides(name: str, degree: int, total: int, what: str, *more: str | Setting) -> None:
    if total % degree == 0:
        return
    near = sorted((d for d in range(1, total + 1) if total % d == 0), key=lambda d: (abs(d - degree), d))[:2]
    rest = f" does not divide {what}; the nearest that do are {' and '.join(map(str, sorted(near)))}"
    raise InputError(worded(Setting(name, degree), rest, *more, "."), field=name)
