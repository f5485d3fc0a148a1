"""Wall 4, serving: a prompt is read at the speed of arithmetic, an answer is written at the speed of memory.

    TTFT = max( F_prefill / (n P eta), B_prefill / W ) + collectives + dispatch (+ KV transfer)
    ITL  = max( F_decode / (n P eta), (weights hit + KV) / (n W) ) + collectives + dispatch        (Pope et al. 2023)

Prefill reads S prompt tokens of each sequence at once, attention included; decode writes one token per sequence and has
to read the weights (of a mixture, the experts hit) and every cache for it. How a pass is split over devices is in
:mod:`mlsysim.cases.replica`, the phases are in :mod:`mlsysim.cases.phases`.

    prefix caching         the first tokens of the prompt are found in the cache and only attended to (Zheng et al. 2024)
    chunked prefill        ceil(S / chunk) passes; decode waits at most for one of them (Agrawal et al. 2024)
    speculative decoding   K draft steps and one pass of K + 1 tokens give (1 - a^(K+1)) / (1 - a) tokens on average, if
                           each draft token is accepted with probability a (Leviathan et al. 2023)
    disaggregation         prefill and decode on different devices; the cache crosses the network (Patel et al. 2024)

Without ``output_len`` ITL is that of the first token after the prompt; with it, the mean over the answer, whose cache
grows token by token (summed exactly).

Assumed: compute and memory overlap perfectly, collectives with nothing; the whole batch arrives together; each replica
reads and writes with all its devices. Left out: scheduling and tokenisation (1 to 5 ms a step in common engines), kernel
launches beyond one dispatch for each stage, the draft model's own prefill (its share of the parameters, often 1 to 10 % of
TTFT; it delays the second token), memory for activations (1 to 5 % of a device). Sustained bandwidth is 0.7 to 0.9 of the
peak, so decode is 10 to 40 % longer than this bound unless ``bandwidth_efficiency`` says so.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, ClassVar

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.cache import DeviceMemory, engine_memory, fullest, remedies, replica_memory, wider_groups
from mlsysim.cases.calibrated_serving import Calibrated, serve, serving_step
from mlsysim.cases.deployment import build_replica, language_model
from mlsysim.cases.phases import Decoder, prefill
from mlsysim.cases.replica import PassTime, Replica
from mlsysim.errors import InputError
from mlsysim.units.kernel import Arg, kernel
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.base import (
    CALIBRATED,
    CALIBRATED_EFFICIENCY,
    HARDWARE,
    MODEL,
    NODE,
    PRECISION,
    Binding,
    Equation,
    Input,
    Memory,
    Rate,
    Resolver,
    Result,
    Time,
    Wall,
)
from mlsysim.walls.node.engine_inputs import CONCURRENCY, ENGINE, LOAD, MEMORY_FRACTION
from mlsysim.zoo.constants import constant
from mlsysim.zoo.provenance import cite

__all__ = ["CARDS", "ServingModel", "ServingResult", "transfer_time"]

CARDS = (
    Wall(
        4,
        "Serving",
        NODE,
        "ServingModel",
        "time to first token and between tokens",
        "TTFT = 2 P S / (Peak eta);  ITL = (weights + KV) / BW",
        "Pope et al. 2023",
        "How long until the first token, and how long between tokens?",
    ),
)

_DECODE_LAYOUT = ("decode_tp_size", "decode_ep_size", "decode_replicas")
_BOTH_FIDELITIES = (*_DECODE_LAYOUT, "redundant_experts")
_DRAFT_ONLY = ("draft_acceptance_rate", "num_speculative_tokens")
_WALL_OF = {"Compute": 1, "Memory": 2, "Communication": 14}


@kernel(inputs={"size": Arg("byte", 1e3, 1e13), "bandwidth": Arg("byte/s", 1e6, 1e14)}, outputs={"time": "s"})
def transfer_time(size: Any, bandwidth: Any) -> Any:
    """Time to hand a cache from the devices that read the prompt to those that write the answer."""
    return size / bandwidth


def _decode_pool(x: Any) -> SimpleNamespace:
    """The inputs as the decode pool sees them: its own layout, which is that of prefill where it has none."""
    if x.decode_hardware is None:
        return SimpleNamespace(**vars(x))
    own = {
        "tp_size": x.decode_tp_size or x.tp_size,
        "ep_size": x.decode_ep_size or (x.ep_size if x.decode_tp_size is None else 1),
        "num_replicas": x.decode_replicas or x.num_replicas,
    }
    return SimpleNamespace(**{**vars(x), **own})


class ServingResult(Result):
    """How one replica, and all of them, serve a batch of prompts.

    Parts of prefill and decode are those of one pass of the model (of one group, where stages take turns), summed over
    the chunks of a chunked prefill. Memory is that of one device unless it says total. With efficiency="calibrated" the
    parts are bounds at the datasheet's rates and times are those of an engine; ``tpot``, ``ttft_at_concurrency``,
    ``active_requests`` and ``output_tokens_per_sec`` are what ``concurrency`` clients see.
    """

    ttft: Time
    itl: Time
    kv_cache_size: Memory
    model_weights_size: Memory
    total_memory_required: Memory
    memory_utilization: float
    prompt_cache_hit_ratio: float
    prefill_chunks: int
    prefill_chunk_time: Time
    decode_stall_bound: Time
    prefill_compute: Time
    prefill_memory: Time
    prefill_communication: Time
    decode_compute: Time
    decode_memory: Time
    decode_weights: Time
    decode_communication: Time
    prefill_bottleneck: str
    decode_bottleneck: str
    throughput_tokens_per_sec: Rate
    prefill_tokens_per_sec: Rate
    request_latency: Time = None
    kv_transfer_time: Time = None
    draft_time: Time = None
    tokens_per_cycle: float = 1.0
    devices: int = 1
    memory_per_device: Memory
    memory_available: Memory
    memory_breakdown: dict[str, Any]
    memory_missing: Memory = None
    max_batch_size: int | None = None
    remedies: tuple[str, ...] = ()
    itl_interval: Any = None
    ttft_interval: Any = None
    tpot: Time = None
    ttft_at_concurrency: Time = None
    active_requests: float | None = None
    output_tokens_per_sec: Rate = None


class ServingModel(Resolver[ServingResult]):
    """Time to first token and between tokens of a language model on one or more devices."""

    walls = (4,)
    result = ServingResult
    inputs: ClassVar[dict[str, Input]] = {
        "model": MODEL,
        "hardware": HARDWARE,
        "seq_len": Input("tokens of the prompt", low=1, high=1e8, whole=True, example="2048"),
        "batch_size": Input("sequences that a replica serves at once", low=1, high=1e6, whole=True, default=1),
        "precision": PRECISION,
        "efficiency": CALIBRATED_EFFICIENCY,
        "decode_hardware": Input("other devices that write the answer (disaggregation)", kind="hardware", default=None),
        "network_bandwidth": Input(
            "bandwidth between the prefill and the decode replica, one direction",
            kind="quantity",
            unit="byte/s",
            low=0,
            low_open=True,
            default=None,
            example="400 Gbps",
        ),
        "draft_model": Input("small model that drafts tokens (speculative decoding)", kind="model", default=None),
        "draft_acceptance_rate": Input("probability that a draft token is accepted", low=0, high=1, default=0.7),
        "cached_prefix_len": Input("tokens of the prompt found in the cache", low=0, high=1e8, whole=True, default=0),
        "prefill_chunk_tokens": Input(
            "tokens of each prompt that one pass of a chunked prefill reads", low=1, high=1e8, whole=True, default=None
        ),
        "tp_size": Input("tensor-parallel devices of a replica", low=1, high=1e4, whole=True, default=1),
        "pp_size": Input("pipeline stages of a replica", low=1, high=1e4, whole=True, default=1),
        "ep_size": Input("devices that share the experts of a mixture", low=1, high=1e4, whole=True, default=1),
        "num_replicas": Input("replicas, each with its own batch", low=1, high=1e7, whole=True, default=1),
        "cache_precision": Input("number format of the cache", kind="precision", default=None),
        "output_len": Input("tokens of the answer", low=1, high=1e8, whole=True, default=None),
        "num_speculative_tokens": Input(
            "tokens drafted before each verification", low=1, high=64, whole=True, default=4
        ),
        "bandwidth_efficiency": Input(
            "fraction of the memory bandwidth that is reached", low=0, low_open=True, high=1, default=1.0
        ),
        "fabric": Input(
            "network between nodes, for groups wider than the chip's own links", kind="fabric", default=None
        ),
        "engine": ENGINE,
        "concurrency": CONCURRENCY,
        "memory_fraction": MEMORY_FRACTION,
        **LOAD,
    }
    equations = (
        Equation(
            "prefill_compute",
            "T_compute = F / (n P eta), with F = 2 P_active B S + attention",
            r"T_{\mathrm{compute}} = \frac{F_{\mathrm{prefill}}}{n\,P\,\eta}",
            {"F": ("prefill_flops", "flop"), "n": ("width", ""), "P": ("peak", "flop/s"), "eta": ("efficiency", "")},
        ),
        Equation(
            "ttft",
            "TTFT = max(T_compute, T_memory) + T_collectives + T_dispatch, for each pass (+ T_transfer)",
            r"\mathrm{TTFT} = \max(T_{\mathrm{compute}}, T_{\mathrm{memory}}) + T_{\mathrm{coll}} + T_{\mathrm{dispatch}}",
            {
                "T_compute": ("prefill_compute", "s"),
                "T_memory": ("prefill_memory", "s"),
                "T_collectives": ("prefill_communication", "s"),
                "T_dispatch": ("prefill_dispatch", "s"),
                "T_transfer": ("transfer", "s"),
            },
            when="first_order",
        ),
        Equation(
            "itl",
            "ITL = sum over layers of t0 + |F / (ec P), B / (eb W)| + all-reduces, + engine's step",
            r"\mathrm{ITL} = \sum_{\mathrm{layers}} t_0 + \left\| \frac{F}{e_c P}, \frac{B}{e_b W} \right\| + T_{\mathrm{engine}}",
            {"ITL": ("itl_calibrated", "s")},
            when="calibrated",
        ),
        Equation(
            "decode_memory",
            "T_memory = (weights hit + KV) / (n W)",
            r"T_{\mathrm{memory}} = \frac{|W_{\mathrm{hit}}| + |KV|}{n\,BW}",
            {"(weights hit + KV) / n": ("decode_bytes", "byte"), "W": ("bandwidth", "byte/s")},
        ),
        Equation(
            "itl",
            "ITL = max(T_compute, T_memory) + T_collectives + T_dispatch, mean over the answer",
            r"\mathrm{ITL} = \max(T_{\mathrm{compute}}, T_{\mathrm{memory}}) + T_{\mathrm{coll}} + T_{\mathrm{dispatch}}",
            {
                "T_compute": ("decode_compute", "s"),
                "T_memory": ("decode_memory", "s"),
                "T_collectives": ("decode_communication", "s"),
                "T_dispatch": ("decode_dispatch", "s"),
            },
            when="plain",
        ),
        Equation(
            "itl",
            "ITL = (K T_draft + T_verify) / ((1 - a^(K+1)) / (1 - a))",
            r"\mathrm{ITL} = \frac{K\,T_{\mathrm{draft}} + T_{\mathrm{verify}}}{(1 - a^{K+1}) / (1 - a)}",
            {
                "K": ("drafted", ""),
                "a": ("acceptance", ""),
                "T_draft": ("draft_step", "s"),
                "T_verify": ("verify", "s"),
            },
            when="speculative",
        ),
    )
    known_fallacies = (
        "A chip with twice the FLOP/s writes answers twice as fast: at small batches decode only feels bandwidth.",
        "Speculative decoding always helps: with a large batch the verification is compute-bound and drafts cost time.",
        "Tensor parallelism divides the cache: not beyond the number of key-value heads, and never a latent cache.",
        "Pipeline parallelism shortens latency: a token still passes through every stage.",
    )

    def _solve(self, x: SimpleNamespace, assumed: Any) -> ServingResult:
        """Serve a batch of prompts on replicas of one or more devices."""
        calibrated = x.efficiency == CALIBRATED
        self._decode_pool_only(x)
        memory = _Memory(x)
        self._batch(x, assumed, memory)
        timed = None
        if calibrated:
            x, timed = self._calibrated(x, assumed)
        else:
            self._first_order_only(x, assumed)
        reader, writer, draft = self._replicas(x, assumed)
        new = self._new_tokens(x, assumed)
        disaggregated = x.decode_hardware is not None
        reading = prefill(reader, x.batch_size, new, x.seq_len - new, x.prefill_chunk_tokens)
        transfer = 0.0
        if disaggregated:
            transfer = float(transfer_time(writer.cache(x.seq_len) * x.batch_size, self._network(x, assumed)))
        ttft = reading.time + transfer

        if x.output_len is None:
            assumed["output_len"] = "not given: ITL is that of the first token after the prompt"
        answer = x.output_len or 1
        decoder = Decoder(writer, x.batch_size, draft, x.num_speculative_tokens, x.draft_acceptance_rate)
        itl = decoder.time(x.seq_len, answer) / answer
        writing, draft_step = decoder.model_pass(x.seq_len), decoder.draft_step(x.seq_len)

        length = x.seq_len + (x.output_len or 0)
        room, chip = memory.fullest(x.batch_size)
        needed, capacity = float(room.used(x.batch_size)), float(room.capacity)
        fits = needed <= capacity
        found = () if fits else memory.remedies(x.batch_size, chip)
        cache = writer.cache(length) * x.batch_size
        extra = draft.weights + draft.cache(length) * x.batch_size if draft is not None else 0.0
        outcome = ServingResult(
            feasible=fits,
            assumptions=assumed,
            binding=self._binding(x, room, chip, reading.parts, writing, found),
            ttft=quantity(ttft, "s"),
            itl=quantity(itl, "s"),
            kv_cache_size=quantity(cache, "byte") if writer.model.has_dimensions else None,
            model_weights_size=quantity(writer.weights, "byte"),
            total_memory_required=quantity(writer.weights + cache + extra, "byte"),
            memory_utilization=needed / capacity,
            prompt_cache_hit_ratio=x.cached_prefix_len / x.seq_len,
            prefill_chunks=reading.chunks,
            prefill_chunk_time=quantity(reading.longest_chunk, "s"),
            decode_stall_bound=quantity(0.0 if disaggregated else reading.longest_chunk, "s"),
            prefill_compute=quantity(reading.parts.compute, "s"),
            prefill_memory=quantity(reading.parts.memory, "s"),
            prefill_communication=quantity(reading.parts.communication, "s"),
            decode_compute=quantity(writing.compute, "s"),
            decode_memory=quantity(writing.memory, "s"),
            decode_weights=quantity(writing.weight_memory, "s"),
            decode_communication=quantity(writing.communication, "s"),
            prefill_bottleneck=reading.parts.bound,
            decode_bottleneck=writing.bound,
            throughput_tokens_per_sec=quantity(x.batch_size * x.num_replicas / itl, "1/second"),
            prefill_tokens_per_sec=quantity(x.batch_size * new * x.num_replicas / reading.time, "1/second"),
            request_latency=None if x.output_len is None else quantity(ttft + (answer - 1) * itl, "s"),
            kv_transfer_time=quantity(transfer, "s") if disaggregated else None,
            draft_time=None if draft is None else quantity(draft_step * x.num_speculative_tokens, "s"),
            tokens_per_cycle=decoder.tokens_per_cycle,
            devices=reader.devices * x.num_replicas
            + (writer.devices * _decode_pool(x).num_replicas if disaggregated else 0),
            memory_per_device=quantity(needed, "byte"),
            memory_available=quantity(capacity, "byte"),
            memory_missing=None if fits else quantity(needed - capacity, "byte"),
            memory_breakdown={line.name: quantity(line.bytes, "byte") for line in room.held(x.batch_size)},
            max_batch_size=memory.writing().most,
            remedies=found,
        )
        if timed is not None:
            outcome = outcome.model_copy(update=self._engine_times(x, timed, transfer, new))
        outcome._context = {
            "first_order": not calibrated,
            "calibrated": calibrated,
            "itl_calibrated": timed.itl if timed is not None else None,
            "prefill_flops": reading.parts.operations,
            "width": reader.width,
            "peak": reader.peak,
            "efficiency": x.efficiency,
            "prefill_compute": reading.parts.compute,
            "prefill_memory": reading.parts.memory,
            "prefill_communication": reading.parts.communication,
            "prefill_dispatch": reading.parts.dispatch,
            "transfer": transfer if disaggregated else None,
            "decode_bytes": writing.memory * writer.bandwidth,
            "bandwidth": writer.bandwidth,
            "decode_flops": writing.operations,
            "decode_compute": writing.compute,
            "decode_memory": writing.memory,
            "decode_communication": writing.communication,
            "decode_dispatch": writing.dispatch,
            "plain": draft is None and not calibrated,
            "speculative": draft is not None and not calibrated,
            "drafted": x.num_speculative_tokens,
            "acceptance": x.draft_acceptance_rate,
            "draft_step": draft_step,
            "verify": writing.total,
        }
        outcome._sources = {"model": cite(x.model.metadata), "hardware": cite(x.hardware.metadata)}
        return outcome

    @staticmethod
    def _decode_pool_only(x: Any) -> None:
        """Refuse a layout of a decode pool where there is none."""
        for name in _DECODE_LAYOUT:
            if x.decode_hardware is None and getattr(x, name) is not None:
                raise InputError(f"{name} is for disaggregated serving; give decode_hardware.", field=name)

    @staticmethod
    def _first_order_only(x: Any, assumed: dict[str, str]) -> None:
        """Refuse what only calibrated answers use."""
        assumed.pop("engine", None)
        for name in ("concurrency", *(name for name in LOAD if name not in _BOTH_FIDELITIES)):
            if getattr(x, name) is not None:
                raise InputError(f"{name} is for efficiency='calibrated'.", field=name)

    def _calibrated(self, x: Any, assumed: dict[str, str]) -> tuple[Any, Calibrated]:
        """Times of the engine, and inputs whose first-order parts are bounds at the datasheet's rates."""
        model = language_model(x.model, "ServingModel")
        reader = writer = serving_step(model, x.hardware, x, assumed)
        if x.decode_hardware is not None:
            writer = serving_step(model, x.decode_hardware, _decode_pool(x), assumed)
        draft = None
        if x.draft_model is not None:
            drafter = language_model(x.draft_model, "ServingModel")
            alone = SimpleNamespace(**{**vars(x), "tp_size": math.gcd(drafter.heads or 1, x.tp_size), "ep_size": 1})
            draft = serving_step(drafter, writer.deployment.chip, alone, {})
        timed = serve(reader, writer, draft, x, self._new_tokens(x, {}), assumed)
        assumed["parts"] = "compute, memory and communication are bounds at the datasheet's rates"
        cache = x.cache_precision or "bf16"
        return SimpleNamespace(**{**vars(x), "efficiency": 1.0, "cache_precision": cache}), timed

    @staticmethod
    def _engine_times(x: Any, timed: Calibrated, transfer: float, new: int) -> dict[str, Any]:
        """Fields that the engine's steps give."""
        ttft, itl = timed.prefill + transfer, timed.itl
        found: dict[str, Any] = {
            "ttft": quantity(ttft, "s"),
            "itl": quantity(itl, "s"),
            "prefill_chunk_time": quantity(timed.longest_chunk, "s"),
            "decode_stall_bound": quantity(0.0 if x.decode_hardware is not None else timed.longest_chunk, "s"),
            "throughput_tokens_per_sec": quantity(x.batch_size * x.num_replicas / itl, "1/second"),
            "prefill_tokens_per_sec": quantity(x.batch_size * new * x.num_replicas / timed.prefill, "1/second"),
            "itl_interval": tuple(quantity(v, "s") for v in timed.itl_band.around(itl)),
            "ttft_interval": tuple(quantity(v, "s") for v in timed.ttft_band.around(ttft)),
        }
        if x.output_len is not None:
            found["request_latency"] = quantity(ttft + (x.output_len - 1) * itl, "s")
        if x.draft_model is not None:
            found["draft_time"] = quantity(timed.draft_step * x.num_speculative_tokens, "s")
        if timed.loop is not None:
            copies = 1 if x.decode_hardware is not None else x.num_replicas
            found |= {
                "tpot": quantity(timed.loop.tpot, "s"),
                "ttft_at_concurrency": quantity(timed.loop.ttft, "s"),
                "active_requests": timed.loop.active * copies,
                "output_tokens_per_sec": quantity(timed.loop.output_rate * copies, "1/second"),
            }
        return found

    @staticmethod
    def _replicas(x: Any, assumed: dict[str, str]) -> tuple[Replica, Replica, Replica | None]:
        """The replica that reads prompts, the one that writes answers (often the same), and the draft model's."""
        model = language_model(x.model, "ServingModel")
        if not model.has_dimensions:
            assumed["cache"] = f"left out: {model.name} states no layers, hidden_dim and heads"
        options: dict[str, Any] = {
            "precision": x.precision,
            "cache_precision": x.cache_precision,
            "efficiency": x.efficiency,
            "bandwidth_efficiency": x.bandwidth_efficiency,
            "fabric": x.fabric,
            "redundant": x.redundant_experts or 0,
        }
        if x.redundant_experts:
            assumed["redundant_experts"] = f"{x.redundant_experts} experts held twice; their memory is not counted"
        degrees = {"tp": x.tp_size, "pp": x.pp_size, "ep": x.ep_size}
        reader = writer = build_replica(model, x.hardware, assumed, **options, **degrees)
        if x.decode_hardware is not None:
            pool = _decode_pool(x)
            degrees |= {"tp": pool.tp_size, "ep": pool.ep_size}
            writer = build_replica(model, x.decode_hardware, assumed, **options, **degrees)
        if x.draft_model is None:
            for name in _DRAFT_ONLY:
                assumed.pop(name, None)
            return reader, writer, None
        drafter = language_model(x.draft_model, "ServingModel")
        split = math.gcd(drafter.heads or 1, x.tp_size)
        if split != x.tp_size:
            assumed["draft_model"] = f"{drafter.name} runs on {split} of {x.tp_size} tensor-parallel devices"
        return reader, writer, build_replica(drafter, writer.chip, assumed, **options, tp=split)

    @staticmethod
    def _new_tokens(x: Any, assumed: dict[str, str]) -> int:
        """Prompt tokens that are not found in the cache."""
        if x.cached_prefix_len > x.seq_len:
            raise InputError(
                f"cached_prefix_len={x.cached_prefix_len} exceeds the prompt of {x.seq_len} tokens.",
                field="cached_prefix_len",
            )
        if x.cached_prefix_len == x.seq_len:
            assumed["prefill"] = "the last token of a wholly cached prompt is computed again, for its logits"
        return int(max(x.seq_len - x.cached_prefix_len, 1))

    @staticmethod
    def _network(x: Any, assumed: dict[str, str]) -> float:
        if x.network_bandwidth is not None:
            return float(x.network_bandwidth)
        rate = x.fabric.bandwidth if x.fabric is not None else constant("infiniband_ndr_bandwidth").quantity
        assumed["network_bandwidth"] = f"{rate:g~P} between the prefill and the decode replica"
        return to_si(rate, "byte/s")

    @staticmethod
    def _batch(x: Any, assumed: Assumptions, memory: _Memory) -> None:
        """The batch of clients in a closed loop is as many of them as a replica holds; the others wait."""
        if x.concurrency is None or "batch_size" in assumed.given:
            return
        each, most = math.ceil(x.concurrency / _decode_pool(x).num_replicas), memory.writing().most
        each = each if x.max_num_seqs is None else min(each, x.max_num_seqs)
        x.batch_size = each if most is None else max(1, min(each, most))
        assumed.pop("batch_size", None)

    @staticmethod
    def _binding(
        x: Any, room: DeviceMemory, chip: Any, reading: PassTime, writing: PassTime, found: tuple[str, ...]
    ) -> Binding:
        needed, capacity = room.used(x.batch_size), room.capacity
        if needed > capacity:
            kept = f", {room.reserve / 1e9:.1f} GB of it kept back by the engine," if room.reserve > 0 else ""
            sentence = (
                f"Wall 2 (Memory): {x.model.name} needs {needed / 1e9:.1f} GB{kept} on each {chip.name}, which has "
                f"{capacity / 1e9:.1f} GB ({(needed - capacity) / 1e9:.1f} GB are missing); {found[0]}."
            )
            return Binding(2, "Memory", needed / capacity, sentence)
        bound = writing.bound
        _, second, longest = sorted((writing.compute, writing.memory, writing.communication))
        sentence = (
            f"Wall {_WALL_OF[bound]} ({bound}) binds decode: it takes {longest / second:.3g} times as long as the next; "
            f"prefill is bound by {reading.bound.lower()} (wall {_WALL_OF[reading.bound]})."
        )
        return Binding(_WALL_OF[bound], bound, longest / second, sentence)


class _Memory:
    """The memory that the inputs describe, and what it would be with others."""

    def __init__(self, x: Any) -> None:
        self.x = x
        self.given = dict(vars(x))

    def writing(self, **changes: Any) -> DeviceMemory:
        """The fullest device that writes answers."""
        x = _decode_pool(SimpleNamespace(**{**self.given, **changes}))
        chip = x.hardware if x.decode_hardware is None else x.decode_hardware
        return self._device(x, chip, x.seq_len + (x.output_len or 0), x.draft_model)

    def reading(self, **changes: Any) -> DeviceMemory:
        """The fullest device that reads prompts, where others write the answers."""
        x = SimpleNamespace(**{**self.given, **changes})
        return self._device(x, x.hardware, x.seq_len, None)

    def fullest(self, batch: int) -> tuple[DeviceMemory, Any]:
        """The device that is fullest with so many sequences, and its chip."""
        x = self.x
        if x.decode_hardware is None:
            return self.writing(), x.hardware
        reading, writing = self.reading(), self.writing()
        room, _ = fullest(((writing, batch), (reading, batch)))
        return room, x.decode_hardware if room is writing else x.hardware

    def remedies(self, batch: int, chip: Any) -> tuple[str, ...]:
        """What would make the fullest device fit."""
        x = self.x
        writes = x.decode_hardware is None or chip is x.decode_hardware
        wider = wider_groups(x.model, chip, x.tp_size, x.ep_size)
        devices = max(x.tp_size, x.ep_size) * x.pp_size
        memory = self.writing if writes else self.reading
        return remedies(memory, batch, wider, devices, draft=writes and x.draft_model is not None)

    @staticmethod
    def _device(x: Any, chip: Any, length: int, drafter: Any) -> DeviceMemory:
        model = language_model(x.model, "ServingModel")
        split = 1 if drafter is None else math.gcd(drafter.heads or 1, x.tp_size)
        if x.efficiency == CALIBRATED:
            alone = SimpleNamespace(**{**vars(x), "tp_size": split, "ep_size": 1})
            written = None if drafter is None else serving_step(drafter, chip, alone, {})
            return engine_memory(serving_step(model, chip, x, {}), length, written)
        options = {name: getattr(x, name) for name in ("precision", "cache_precision", "fabric", "memory_fraction")}
        options["redundant"] = x.redundant_experts or 0
        replica = build_replica(model, chip, {}, **options, tp=x.tp_size, pp=x.pp_size, ep=x.ep_size)
        small = None if drafter is None else build_replica(drafter, chip, {}, **options, tp=split)
        return replica_memory(replica, length, small)
