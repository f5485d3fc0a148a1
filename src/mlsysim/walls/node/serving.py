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
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

from mlsysim.cases.algebra import ledger_of
from mlsysim.cases.assumptions import INFERRED, Assumptions
from mlsysim.cases.cache import DeviceMemory, fullest, remedies, wider_groups
from mlsysim.cases.closed_loop import CLIENT_ROUNDS
from mlsysim.cases.deployment import Deployment, language_model
from mlsysim.cases.phases import MAX_CHUNKS, Decoder, prefill_parts
from mlsysim.cases.request import ANSWER, FIRST, of_phase
from mlsysim.cases.serve import Engines, Habits, Replicated, Served, Traffic, batch_times, serve
from mlsysim.errors import InputError
from mlsysim.timing.engines import table_bytes
from mlsysim.units.fields import Words
from mlsysim.units.registry import quantity
from mlsysim.units.text import bytes_text
from mlsysim.vocabulary import Setting, worded
from mlsysim.walls.base import Resolver
from mlsysim.walls.binding import NAMES, Binding, LazyBinding, binding_of, lead, too_full
from mlsysim.walls.explanation import written
from mlsysim.walls.inputs import CALIBRATED, CALIBRATED_EFFICIENCY, HARDWARE, MODEL, PRECISION, Input
from mlsysim.walls.node.engine_inputs import CONCURRENCY, ENGINE, LOAD, MEMORY_FRACTION
from mlsysim.walls.result import Memory, Rate, Result, Time
from mlsysim.zoo.constants import constant

CARDS = """
4 Serving: time to first token and between tokens
TTFT = 2 P S / (Peak eta);  ITL = (weights + KV) / BW (Pope et al. 2023)
How long until the first token, and how long between tokens?
"""

_DECODE_LAYOUT = ("decode_tp_size", "decode_ep_size", "decode_replicas")
_BOTH_FIDELITIES = (*_DECODE_LAYOUT, "redundant_experts")
_DRAFT_ONLY = ("draft_acceptance_rate", "num_speculative_tokens")


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
    memory_breakdown: dict[str, Memory]
    memory_missing: Memory = None
    max_batch_size: int | None = None
    remedies: tuple[Words, ...] = ()
    itl_interval: tuple[Time, Time] | None = None
    ttft_interval: tuple[Time, Time] | None = None
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
        "seq_len": Input.of("tokens of the prompt", "whole [1, 1e8]", example="2048"),
        "batch_size": Input.of("sequences that a replica serves at once", "whole [1, 1e6]", 1),
        "precision": PRECISION,
        "efficiency": CALIBRATED_EFFICIENCY,
        "decode_hardware": Input.of("other devices that write the answer (disaggregation)", "hardware", None),
        "network_bandwidth": Input.of(
            "bandwidth between the prefill and the decode replica, one direction",
            "(0, inf) byte/s",
            None,
            example="400 Gbps",
        ),
        "draft_model": Input.of("small model that drafts tokens (speculative decoding)", "model", None),
        "draft_acceptance_rate": Input.of("probability that a draft token is accepted", "[0, 1]", 0.7),
        "cached_prefix_len": Input.of("tokens of the prompt found in the cache", "whole [0, 1e8]", 0),
        "prefill_chunk_tokens": Input.of(
            "tokens of each prompt that one pass of a chunked prefill reads", "whole [1, 1e8]", None
        ),
        "prefill_batch_size": Input.of(
            "prompts that one prefill reads together; all of a batch unless given", "whole [1, 1e6]", None
        ),
        "tp_size": Input.of("tensor-parallel devices of a replica", "whole [1, 10000]", 1),
        "pp_size": Input.of("pipeline stages of a replica", "whole [1, 10000]", 1),
        "ep_size": Input.of("devices that share the experts of a mixture", "whole [1, 10000]", 1),
        "num_replicas": Input.of("replicas, each with its own batch", "whole [1, 1e7]", 1),
        "cache_precision": Input.of("number format of the cache", "precision", None),
        "output_len": Input.of("tokens of the answer", "whole [1, 1e8]", None),
        "num_speculative_tokens": Input.of("tokens drafted before each verification", "whole [1, 64]", 4),
        "bandwidth_efficiency": Input.of("fraction of the memory bandwidth that is reached", "(0, 1]", 1.0),
        "fabric": Input.of("network between nodes, for groups wider than the chip's own links", "fabric", None),
        "engine": ENGINE,
        "concurrency": CONCURRENCY,
        "memory_fraction": MEMORY_FRACTION,
        **LOAD,
    }
    equations = written(r"""
        kv_cache_size: KV = B c
            |KV| = B\,c
            B = batch, c = cache_of_a_sequence in byte
        max_batch_size: B = g floor((C - M_fixed) / c_device), of the fullest device, g groups
            B = g\left\lfloor \frac{C - M_{\mathrm{fixed}}}{c_{\mathrm{device}}} \right\rfloor
            g = cache_groups, C = device_capacity in byte, M_fixed = device_fixed in byte, c_device = device_cache in byte
        prefill_compute: T_compute = F / (n P eta), with F = 2 P_active B S + attention
            T_{\mathrm{compute}} = \frac{F_{\mathrm{prefill}}}{n\,P\,\eta}
            F = prefill_flops in flop, n = width, P = peak in flop/s, eta = efficiency
        ttft if first_order: TTFT = max(T_compute, T_memory) + T_collectives + T_dispatch, for each pass (+ T_transfer)
            \mathrm{TTFT} = \max(T_{\mathrm{compute}}, T_{\mathrm{memory}}) + T_{\mathrm{coll}} + T_{\mathrm{dispatch}}
            T_compute = prefill_compute in s, T_memory = prefill_memory in s, T_collectives = prefill_communication in s, T_dispatch = prefill_dispatch in s, T_transfer = transfer in s
        itl if calibrated: ITL = sum over layers of t0 + |F / (ec P), B / (eb W)| + all-reduces, + engine's step
            \mathrm{ITL} = \sum_{\mathrm{layers}} t_0 + \left\| \frac{F}{e_c P}, \frac{B}{e_b W} \right\| + T_{\mathrm{engine}}
            ITL = itl_calibrated in s
        decode_memory: T_memory = (weights hit + KV) / (n W)
            T_{\mathrm{memory}} = \frac{|W_{\mathrm{hit}}| + |KV|}{n\,BW}
            (weights hit + KV) / n = decode_bytes in byte, W = bandwidth in byte/s
        itl if plain: ITL = max(T_compute, T_memory) + T_collectives + T_dispatch, mean over the answer
            \mathrm{ITL} = \max(T_{\mathrm{compute}}, T_{\mathrm{memory}}) + T_{\mathrm{coll}} + T_{\mathrm{dispatch}}
            T_compute = decode_compute in s, T_memory = decode_memory in s, T_collectives = decode_communication in s, T_dispatch = decode_dispatch in s
        itl if speculative: ITL = (K T_draft + T_verify) / ((1 - a^(K+1)) / (1 - a))
            \mathrm{ITL} = \frac{K\,T_{\mathrm{draft}} + T_{\mathrm{verify}}}{(1 - a^{K+1}) / (1 - a)}
            K = drafted, a = acceptance, T_draft = draft_step in s, T_verify = verify in s
    """)
    known_fallacies = (
        "A chip with twice the FLOP/s writes answers twice as fast: at small batches decode only feels bandwidth.",
        "Speculative decoding always helps: with a large batch the verification is compute-bound and drafts cost time.",
        "Tensor parallelism divides the cache: not beyond the number of key-value heads, and never a latent cache.",
        "Pipeline parallelism shortens latency: a token still passes through every stage.",
    )

    def _solve(self, x: SimpleNamespace, assumed: Any) -> ServingResult:
        """Serve a batch of prompts on replicas of one or more devices."""
        calibrated = x.efficiency == CALIBRATED
        deployment = deployment_of(x, "ServingModel")
        self._check(x, assumed, calibrated)
        machine = deployment.machine(assumed)
        # Calibrated, parts of passes are bounds at the datasheet's rates.
        bounds = machine if isinstance(machine, Replicated) else deployment.replicated({**assumed})
        traffic = self._traffic(x, assumed)
        memory = _Memory(deployment, machine, replace(traffic, answer=x.output_len or 0))
        clients = None
        if x.concurrency is not None:
            clients = replace(traffic, concurrency=x.concurrency).admitted(memory.writing)
            if "batch_size" not in assumed.given:
                traffic = replace(traffic, batch=int(clients.batch))
                assumed.pop("batch_size", None)
        batch = traffic.batch
        traffic = traffic.admitted(memory.writing)
        times = batch_times(machine, traffic)
        served = serve(machine, traffic, times=times)
        looped = None if clients is None else serve(machine, clients)

        reader, writer, draft = bounds.reader, bounds.writer, bounds.draft
        reading = prefill_parts(reader, traffic.together, traffic.new, x.seq_len - traffic.new, x.prefill_chunk_tokens)
        decoder = Decoder(writer, batch, draft, x.num_speculative_tokens, x.draft_acceptance_rate)
        writing = decoder.model_pass(x.seq_len)
        room, kept, chip = memory.fullest(batch, int((clients or traffic).together))
        needed, capacity = float(room.used(kept)), float(room.capacity)
        fits = needed <= capacity
        found = () if fits else memory.remedies(room, kept, chip)
        drafting = self._draft_step(machine, x.seq_len, batch)
        length = x.seq_len + (x.output_len or 0)
        cache = writer.cache(length) * batch
        extra = draft.weights + draft.cache(length) * batch if draft is not None else 0.0
        outcome = ServingResult.of(
            assumed,
            feasible=fits,
            ttft=served.ttft,
            itl=served.itl,
            kv_cache_size=cache if writer.model.has_dimensions else None,
            model_weights_size=writer.weights,
            total_memory_required=writer.weights + cache + extra,
            memory_utilization=needed / capacity,
            prompt_cache_hit_ratio=x.cached_prefix_len / x.seq_len,
            prefill_chunks=_chunks(x, traffic.new),
            prefill_chunk_time=times.longest_pass,
            decode_stall_bound=served.stall,
            prefill_compute=reading.compute,
            prefill_memory=reading.memory,
            prefill_communication=reading.communication,
            decode_compute=writing.compute,
            decode_memory=writing.memory,
            decode_weights=writing.weight_memory,
            decode_communication=writing.communication,
            prefill_bottleneck=reading.bound,
            decode_bottleneck=writing.bound,
            throughput_tokens_per_sec=batch * traffic.replicas / served.itl,
            prefill_tokens_per_sec=traffic.together * traffic.new * x.num_replicas / times.prefill,
            request_latency=None if x.output_len is None else served.e2e,
            kv_transfer_time=times.transfer if machine.apart else None,
            draft_time=None if draft is None else drafting * x.num_speculative_tokens,
            tokens_per_cycle=decoder.tokens_per_cycle,
            devices=reader.devices * x.num_replicas + (writer.devices * traffic.replicas if machine.apart else 0),
            memory_per_device=needed,
            memory_available=capacity,
            memory_missing=None if fits else needed - capacity,
            memory_breakdown={line.name: line.bytes for line in room.held(kept)},
            max_batch_size=memory.writing.most,
            remedies=found,
            **(_bands(machine, served, assumed) if isinstance(machine, Engines) else {}),
            **(_of_clients(looped, traffic.mean_answer) if looped is not None else {}),
            shown={
                "batch": batch,
                "fullest": chip,
                "cache_of_a_sequence": writer.cache(length),
                "cache_groups": memory.writing.groups,
                "device_capacity": memory.writing.capacity,
                "device_fixed": memory.writing.fixed,
                "device_cache": memory.writing.each,
                "first_order": not calibrated,
                "calibrated": calibrated,
                "itl_calibrated": served.itl if calibrated else None,
                "prefill_flops": reading.operations,
                "width": reader.width,
                "peak": reader.peak,
                "efficiency": reader.efficiency,
                "prefill_compute": reading.compute,
                "prefill_memory": reading.memory,
                "prefill_communication": reading.communication,
                "prefill_dispatch": reading.dispatch,
                "transfer": times.transfer if machine.apart else None,
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
                "draft_step": drafting,
                "verify": writing.total,
            },
            cited={"model": x.model, "hardware": x.hardware},
        )
        asked = traffic if clients is None else clients
        whole = x.output_len is not None
        outcome._facts.case = lambda: ledger_of(
            lambda a: _request(serve(machine, asked, a), whole), room.held(kept), room.capacity
        )
        object.__setattr__(
            outcome, "binding", LazyBinding(partial(_binding, outcome)) if fits else _full(x, room, kept, chip, found)
        )
        return outcome

    @staticmethod
    def _check(x: Any, assumed: dict[str, str], calibrated: bool) -> None:
        """Refuse what does not go together; forget what has no effect."""
        for name in _DECODE_LAYOUT:
            if x.decode_hardware is None and getattr(x, name) is not None:
                raise InputError(f"{name} is for disaggregated serving; give decode_hardware.", field=name)
        for name in () if calibrated else LOAD:
            if name not in _BOTH_FIDELITIES and getattr(x, name) is not None:
                raise InputError(f"{name} is for efficiency='calibrated'.", field=name)
        if x.mtp_tokens and x.draft_model is not None:
            raise InputError("mtp_tokens and draft_model cannot be given together.", field="mtp_tokens")
        if x.redundant_experts:
            assumed["redundant_experts"] = f"{x.redundant_experts} experts held twice; their memory is not counted"
        if x.cached_prefix_len > x.seq_len:
            raise InputError(
                worded(
                    Setting("cached_prefix_len", x.cached_prefix_len), f" exceeds the prompt of {x.seq_len} tokens."
                ),
                field="cached_prefix_len",
            )
        if x.cached_prefix_len == x.seq_len:
            assumed["prefill"] = "the last token of a wholly cached prompt is computed again, for its logits"
        chunks = _chunks(x, max(x.seq_len - x.cached_prefix_len, 1))
        if chunks > MAX_CHUNKS:
            raise InputError(
                worded(
                    Setting("prefill_chunk_tokens", x.prefill_chunk_tokens),
                    f" would cut the prompt into {chunks:,} passes; at most {MAX_CHUNKS:,} are evaluated, so use at least "
                    f"{math.ceil(x.seq_len / MAX_CHUNKS)}.",
                ),
                field="prefill_chunk_tokens",
            )
        if x.draft_model is None:
            for name in _DRAFT_ONLY:
                assumed.pop(name, None)
        if calibrated:
            assumed["parts"] = "compute, memory and communication are bounds at the datasheet's rates"
        else:
            assumed.pop("engine", None)
            if not x.model.has_dimensions:
                assumed["cache"] = f"left out: {x.model.name} states no layers, hidden_dim and heads"
        if x.output_len is None:
            assumed["output_len"] = "not given: ITL is that of the first token after the prompt"
        if x.concurrency is None:
            return
        if x.output_len is None:
            raise InputError("concurrency needs 'output_len': clients wait for whole answers.", field="output_len")
        if not x.model.has_dimensions:
            raise InputError(f"concurrency needs the size of the cache of {x.model.name}.", field="concurrency")
        if calibrated and x.prefill_batch_size is not None:
            raise InputError("concurrency and prefill_batch_size cannot be given together.", field="prefill_batch_size")
        if calibrated and x.draft_model is not None:
            raise InputError("concurrency and draft_model cannot be given together.", field="draft_model")

    @staticmethod
    def _traffic(x: Any, assumed: Any) -> Traffic:
        if x.decode_hardware is not None and x.network_bandwidth is None:
            rate = x.fabric.bandwidth if x.fabric is not None else constant("infiniband_ndr_bandwidth").quantity
            if x.efficiency == CALIBRATED:
                rate = quantity(table_bytes("cache_transfer", "bandwidth"), "byte/s").to("GB/s")
            assumed["network_bandwidth"] = f"{rate:g~P} between the prefill and the decode replica"
        return Traffic(
            prompt=x.seq_len,
            answer=x.output_len or 1,
            batch=x.batch_size,
            together=x.prefill_batch_size,
            cached=x.cached_prefix_len,
            chunk=x.prefill_chunk_tokens,
            drafted=x.num_speculative_tokens,
            acceptance=x.draft_acceptance_rate,
            replicas=x.decode_replicas or x.num_replicas,
            prefill_replicas=x.num_replicas,
            network=x.network_bandwidth,
            habits=_habits(x, assumed),
        )

    @staticmethod
    def _draft_step(machine: Replicated | Engines, context: int, batch: int) -> float:
        """One step of the draft model, which writes for one group of a pipeline at a time."""
        if machine.draft is None:
            return 0.0
        if isinstance(machine, Engines):
            return float(machine.draft.time(batch, context).total)
        return float(Decoder(machine.writer, batch, machine.draft).draft_step(context))


def deployment_of(x: Any, resolver: str) -> Deployment:
    """The deployment that the inputs of a serving wall describe."""
    decode, draft = getattr(x, "decode_hardware", None), getattr(x, "draft_model", None)
    calibrated = x.efficiency == CALIBRATED
    return Deployment(
        language_model(x.model, resolver),
        x.hardware,
        x.precision,
        x.cache_precision,
        x.tp_size,
        x.pp_size,
        x.ep_size,
        decode,
        None if draft is None else language_model(draft, resolver),
        x.fabric,
        x.engine if calibrated else None,
        1.0 if calibrated else x.efficiency,
        x.bandwidth_efficiency,
        x.memory_fraction,
        getattr(x, "redundant_experts", None) or 0,
        getattr(x, "decode_tp_size", None),
        getattr(x, "decode_ep_size", None),
    )


def _habits(x: Any, assumed: Any) -> Habits:
    """How clients ask, as given or as benchmarks do."""
    if x.efficiency != CALIBRATED:
        return Habits()
    found = Habits(
        shortest=1.0 if x.range_ratio is None else float(x.range_ratio),
        rounds=CLIENT_ROUNDS if x.requests is None else max(1, round(x.requests / (x.concurrency or 1))),
        random=x.arrivals == "random",
        slots=x.max_num_seqs,
        poll_steps=float(x.poll_steps or 1),
        wait_steps=float(x.wait_steps or 0.0),
        drafted=x.mtp_tokens or 0,
        acceptance=float(x.draft_acceptance_rate) if "draft_acceptance_rate" in assumed.given else None,
        warm=x.warm_up is not False,
        server=not x.offline,
    )
    if x.concurrency is not None:
        short, rounds = found.shortest, found.rounds
        lengths = (
            "all of the stated length" if short == 1 else f"between {short:g} times the stated length and all of it"
        )
        how = "at random times" if found.random else f"{rounds} {'requests' if rounds > 1 else 'request'} each"
        assumed["clients"] = f"{how}, prompts and answers {lengths}"
    return found


def _request(served: Served, whole: bool) -> Any:
    """The time that the ledger is of: a request, or the first two tokens where the answer has no length."""
    return served.e2e if whole else served.ttft + served.itl


def _chunks(x: Any, new: int) -> int:
    return math.ceil(new / min(x.prefill_chunk_tokens or new, new))


def _bands(machine: Engines, served: Served, assumed: Assumptions) -> dict[str, Any]:
    """Intervals of the times of a batch, and what they rest on."""
    (itl, words), (ttft, _) = machine.band("tpot"), machine.band("ttft")
    assumed.say("interval", itl.regime, INFERRED, words)
    return {"itl_interval": itl.around(served.itl), "ttft_interval": ttft.around(served.ttft)}


def _of_clients(looped: Served, answer: float) -> dict[str, Any]:
    """Fields of what clients see."""
    return {
        "tpot": looped.tpot,
        "ttft_at_concurrency": looped.ttft,
        "active_requests": float(looped.active),
        "output_tokens_per_sec": looped.requests * answer,
    }


def _binding(outcome: ServingResult) -> Binding:
    """The wall with most of a request; without a length of the answer, those of the first token and of a further one."""
    ledger = outcome.ledger
    assert ledger is not None
    if outcome.request_latency is not None:
        return binding_of(ledger, "request")
    said = []
    for phase in (FIRST, ANSWER):
        own = of_phase(ledger, phase)
        wall = own.binding_wall
        most = own.largest(wall).name
        share = own.walls()[wall] / own.seconds
        said.append(f"wall {wall} ({NAMES[wall]}) has {share:.0%} of {_WORDS[phase]}, most of it {most}")
    wall, _, margin = lead(ledger)
    return Binding(wall, NAMES[wall], margin, f"W{said[0][1:]}; {said[1]}.")


_WORDS = {FIRST: "the first token", ANSWER: "each further one"}


def _full(x: Any, room: DeviceMemory, batch: int, chip: Any, found: tuple[str, ...]) -> Binding:
    needed, capacity = room.used(batch), room.capacity
    kept = f", {bytes_text(room.reserve)} of it kept back by the engine," if room.reserve > 0 else ""
    words = (
        f"{x.model.name} needs {bytes_text(needed)}{kept} on each {chip.name}, which has "
        f"{bytes_text(capacity)} ({bytes_text(needed - capacity)} are missing)"
    )
    return too_full(words, needed, capacity, found[0])


class _Memory:
    """The memory of a deployment under its traffic, and what it would be with other inputs."""

    def __init__(self, deployment: Deployment, machine: Replicated | Engines, traffic: Traffic) -> None:
        self.deployment, self.traffic = deployment, traffic
        self.devices = machine.memories(traffic)

    @property
    def writing(self) -> DeviceMemory:
        """The fullest device that writes answers."""
        return self.devices[0]

    def fullest(self, batch: int, together: int) -> tuple[DeviceMemory, int, Any]:
        """The fullest device, the sequences that it holds, and its chip: answers of a batch, or prompts that are read together."""
        room, kept = fullest(zip(self.devices, (batch, together), strict=False))
        return room, kept, self.deployment.writing_chip if room is self.writing else self.deployment.chip

    def remedies(self, room: DeviceMemory, kept: int, chip: Any) -> tuple[str, ...]:
        """What would make the fullest device fit."""
        d = self.deployment
        place = 0 if room is self.writing else 1

        def memory(**changes: Any) -> DeviceMemory:
            return replace(d, **changes).machine({}).memories(self.traffic)[place]

        wider = wider_groups(d.model, chip, d.tp, d.ep)
        return remedies(memory, kept, wider, max(d.tp, d.ep) * d.pp, draft=place == 0 and d.draft is not None)
