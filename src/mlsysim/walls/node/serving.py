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
from typing import Annotated, Any

from mlsysim.cases.assumptions import INFERRED, SOFTWARE
from mlsysim.cases.cache import DeviceMemory
from mlsysim.cases.machines import Engines, Replicated
from mlsysim.cases.offload import host_link
from mlsysim.cases.prefix import found_beside
from mlsysim.cases.request import ANSWER, FIRST, of_phase
from mlsysim.cases.service import Service
from mlsysim.cases.traffic import Traffic
from mlsysim.timing.engines import default_engine
from mlsysim.units.fields import Words
from mlsysim.units.text import bytes_text
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, written
from mlsysim.walls.binding import NAMES, LazyBinding, lead, too_full
from mlsysim.walls.node.engine_inputs import LOAD, check_serving, chunks_of, deployment_of, traffic_of
from mlsysim.walls.result import Memory, Rate, Result, Time

CARDS = """
4 Serving: time to first token and between tokens
TTFT = 2 P S / (Peak eta);  ITL = (weights + KV) / BW (Pope et al. 2023)
How long until the first token, and how long between tokens?
"""


class ServingResult(Result):
    """How one replica, and all of them, serve a batch of prompts.

    Parts of prefill and decode are those of one pass of the model (of one group, where stages take turns), summed over
    the chunks of a chunked prefill. Memory is that of one device unless it says total. With efficiency="calibrated" the
    parts are bounds at the datasheet's rates and times are those of an engine; ``tpot``, ``ttft_at_concurrency``,
    ``active_requests`` and ``output_tokens_per_sec`` are what ``concurrency`` clients see, or requests at ``arrival_rate``; ``saturated``: more come
    than are answered, and ``output_tokens_per_sec`` is the most there is.
    """

    ttft: Annotated[Time, "served.ttft"]
    itl: Annotated[Time, "served.itl"]
    kv_cache_size: Memory
    model_weights_size: Annotated[Memory, "writer.weights"]
    total_memory_required: Memory
    memory_utilization: float
    prompt_cache_hit_ratio: float
    prefill_chunks: int
    prefill_chunk_time: Annotated[Time, "times.longest_pass"]
    decode_stall_bound: Annotated[Time, "served.stall"]
    prefill_compute: Annotated[Time, "reading.compute"]
    prefill_memory: Annotated[Time, "reading.memory"]
    prefill_communication: Annotated[Time, "reading.communication"]
    decode_compute: Annotated[Time, "writing.compute"]
    decode_memory: Annotated[Time, "writing.memory"]
    decode_weights: Annotated[Time, "writing.weight_memory"]
    decode_communication: Annotated[Time, "writing.communication"]
    prefill_bottleneck: Annotated[str, "reading.bound"]
    decode_bottleneck: Annotated[str, "writing.bound"]
    throughput_tokens_per_sec: Rate
    prefill_tokens_per_sec: Rate
    request_latency: Time = None
    kv_transfer_time: Time = None
    draft_time: Time = None
    tokens_per_cycle: Annotated[float, "decoder.tokens_per_cycle"] = 1.0
    devices: int = 1
    memory_per_device: Memory
    memory_available: Memory
    memory_breakdown: dict[str, Memory]
    memory_missing: Memory = None
    max_batch_size: Annotated[int | None, "first.most"] = None
    remedies: tuple[Words, ...] = ()
    itl_interval: tuple[Time, Time] | None = None
    ttft_interval: tuple[Time, Time] | None = None
    tpot: Annotated[Time, "looped.tpot"] = None
    itl_p50: Annotated[Time, "looped.middle"] = None
    ttft_at_concurrency: Time = None
    active_requests: Annotated[float | None, "looped.active"] = None
    output_tokens_per_sec: Rate = None
    saturated: bool = False

    @property
    def longest_context(self) -> int | None:
        """Tokens of the longest sequence that one replica holds; None where the size of a cache is not known."""
        return self.named("longest.longest_context")


class ServingModel(Resolver[ServingResult]):
    """Time to first token and between tokens of a language model on one or more devices."""

    walls = (4,)
    inputs = declared(f"""
        model, hardware
        seq_len | whole [1, 1e8] | tokens of the prompt | 2048
        batch_size = 1 | whole [1, 1e6] | sequences that a replica serves at once
        precision, efficiency or calibrated
        decode_hardware? | hardware | other devices that write the answer (disaggregation)
        network_bandwidth? | (0, inf) byte/s | bandwidth between the prefill and the decode replica, one direction | 400 Gbps
        draft_model? | model | small model that drafts tokens (speculative decoding)
        draft_acceptance_rate = 0.7 | [0, 1] | probability that a draft token is accepted
        cached_prefix_len = 0 | whole [0, 1e8] | tokens of the prompt found in the cache
        prefix_hit_rate? | [0, 1] | share of the prompts' tokens that a cache of prefixes finds if it keeps them all
        prefix_tokens? | [1, 1e15] | tokens of all prefixes that are asked for, kept as far as there is room; unlimited unless given
        offload_memory? | (0, inf) byte | memory of the host, for each device, that keeps caches of prefixes
        prefill_chunk_tokens? | whole [1, 1e8] | tokens of each prompt that one pass of a chunked prefill reads
        prefill_batch_size? | whole [1, 1e6] | prompts that one prefill reads together; all of a batch unless given
        num_replicas = 1 | whole [1, 1e7] | replicas, each with its own batch
        output_len? | whole [1, 1e8] | tokens of the answer
        num_speculative_tokens = 4 | whole [1, 64] | tokens drafted before each verification
        tp_size, pp_size, ep_size, attention_dp, cp_size, cache_precision, bandwidth_efficiency, fabric, engine, concurrency, memory_fraction
        power_cap
        adapters? | whole [0, 100000] | low-rank adapters (LoRA) that a replica holds and its requests choose among
        adapter_rank? | whole [1, 4096] | rank of the adapters
        {LOAD}
    """)
    equations = written(r"""
        kv_cache_size: KV = B c
            |KV| = B\,c
            B = batch, c = cache_of_a_sequence in byte
        max_batch_size: B = g max(0, floor((C - M_fixed) / c_device)), of the fullest device, g groups
            B = g\max\left(0, \left\lfloor \frac{C - M_{\mathrm{fixed}}}{c_{\mathrm{device}}} \right\rfloor\right)
            g = cache_groups, C = device_capacity in byte, M_fixed = device_held in byte, c_device = device_each in byte
        longest_context: S = max(0, min(S_model, floor((C - M_fixed - c_0) / c_1))), with caches of c_0 + c_1 S on the fullest device
            S = \min\left(S_{\mathrm{model}}, \left\lfloor \frac{C - M_{\mathrm{fixed}} - c_0}{c_1} \right\rfloor\right)
            S_model = longest.context_of_the_model, C = device_capacity in byte, M_fixed = longest.held_beside in byte, c_0 = longest.cache_without_tokens in byte, c_1 = longest.cache_of_a_token in byte
        prefill_compute: T_compute = F / (n P eta), with F = 2 P_active B S + attention, P the mean peak of the formats that they are in
            T_{\mathrm{compute}} = \frac{F_{\mathrm{prefill}}}{n\,P\,\eta}
            F = prefill_flops in flop, n = reader.width, P = prefill_peak in flop/s, eta = reader.efficiency
        ttft if one_pass: TTFT = max(T_compute, T_memory) + T_collectives + T_dispatch
            \mathrm{TTFT} = \max(T_{\mathrm{compute}}, T_{\mathrm{memory}}) + T_{\mathrm{coll}} + T_{\mathrm{dispatch}}
            T_compute = prefill_compute in s, T_memory = prefill_memory in s, T_collectives = prefill_communication in s, T_dispatch = prefill_dispatch in s
        ttft if passes: TTFT = T_passes + T_collectives + T_dispatch + T_transfer, with the longer of T_compute and T_memory of each pass
            \mathrm{TTFT} = \sum_{\mathrm{passes}} \max(T_{\mathrm{compute}}, T_{\mathrm{memory}}) + T_{\mathrm{coll}} + T_{\mathrm{dispatch}} + T_{\mathrm{transfer}}
            T_passes = longer in s, T_collectives = prefill_communication in s, T_dispatch = prefill_dispatch in s, T_transfer = handed in s
        itl if calibrated: ITL = sum over layers of t0 + |F / (ec P), B / (eb W)| + all-reduces, + engine's step
            \mathrm{ITL} = \sum_{\mathrm{layers}} t_0 + \left\| \frac{F}{e_c P}, \frac{B}{e_b W} \right\| + T_{\mathrm{engine}}
            ITL = itl in s
        decode_memory: T_memory = (weights hit + KV) / (n W)
            T_{\mathrm{memory}} = \frac{|W_{\mathrm{hit}}| + |KV|}{n\,BW}
            (weights hit + KV) / n = decode_bytes in byte, W = writer.bandwidth in byte/s
        itl if plain: ITL = max(T_compute, T_memory) + T_collectives + T_dispatch, mean over the answer
            \mathrm{ITL} = \max(T_{\mathrm{compute}}, T_{\mathrm{memory}}) + T_{\mathrm{coll}} + T_{\mathrm{dispatch}}
            T_compute = decode_compute in s, T_memory = decode_memory in s, T_collectives = decode_communication in s, T_dispatch = decode_dispatch in s
        itl if speculative: ITL = (K T_draft + T_verify) / ((1 - a^(K+1)) / (1 - a))
            \mathrm{ITL} = \frac{K\,T_{\mathrm{draft}} + T_{\mathrm{verify}}}{(1 - a^{K+1}) / (1 - a)}
            K = decoder.drafted, a = decoder.acceptance, T_draft = draft_step in s, T_verify = verify in s
    """)
    known_fallacies = (
        "A chip with twice the FLOP/s writes answers twice as fast: at small batches decode only feels bandwidth.",
        "Speculative decoding always helps: with a large batch the verification is compute-bound and drafts cost time.",
        "Tensor parallelism divides the cache: not beyond the number of key-value heads, and never a latent cache.",
        "Pipeline parallelism shortens latency: a token still passes through every stage.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> ServingResult:
        """Serve a batch of prompts on replicas of one or more devices."""
        deployment = deployment_of(x, assumed)
        check_serving(x, assumed)
        machine = deployment.machine(assumed)
        traffic = machine.asked(traffic_of(x, assumed))
        if x.prefix_hit_rate is not None:
            traffic = _with_prefixes(x, machine, traffic, assumed)
        given, asked = "batch_size" in assumed.given, (x.output_len or 0, x.concurrency, x.arrival_rate)
        service = Service(deployment, machine, traffic, *asked, given, x.power_cap)
        most, looped, times, t = traffic.habits.slots, service.looped, service.times, service.traffic
        if x.max_num_seqs is None and most is not None and service.memories[0].sequences > most:
            chip = deployment.writing_chip
            words = f"{most}: the default of {x.engine or default_engine(chip)} on {chip.name}"
            assumed.say("max_num_seqs", most, SOFTWARE, words)
        if service.clients is not None and not given:
            assumed.pop("batch_size", None)
        room, kept = service.fullest
        needed, capacity = float(room.used(kept)), float(room.capacity)
        fits = needed <= capacity
        found = () if fits else deployment.remedies(service.holding, service.place, kept)
        bands, chunks = service.bands(x.output_len != 1), chunks_of(x, t.new)
        if bands is not None:
            assumed.say("interval", bands[0].key, INFERRED, bands[2])
        outcome = ServingResult.of(
            assumed,
            feasible=fits,
            binding=None if fits else _full(x, room, kept, service.chip, found),
            case=lambda: service.ledger,
            noun="request",
            kv_cache_size=service.cache if deployment.model.has_dimensions else None,
            total_memory_required=service.memory,
            memory_utilization=needed / capacity,
            prompt_cache_hit_ratio=t.cached / x.seq_len,
            prefill_chunks=chunks,
            throughput_tokens_per_sec=t.batch * t.replicas / service.served.itl,
            prefill_tokens_per_sec=t.together * t.new * x.num_replicas / times.prefill,
            request_latency=None if x.output_len is None else service.served.e2e,
            kv_transfer_time=times.transfer if machine.apart else None,
            draft_time=service.draft_step * service.decoder.drafted if service.decoder.drafts else None,
            devices=service.devices,
            memory_per_device=needed,
            memory_available=capacity,
            memory_missing=None if fits else needed - capacity,
            memory_breakdown={line.name: line.bytes for line in room.held(kept)},
            remedies=found,
            itl_interval=None if bands is None else bands[0].around(service.served.itl),
            ttft_interval=None if bands is None else bands[1].around(service.served.ttft),
            # Where more come than are answered the queue grows, and the first token has no time.
            ttft_at_concurrency=None if looped is None or looped.saturated else looped.ttft,
            saturated=looped is not None and bool(looped.saturated),
            output_tokens_per_sec=None if looped is None else looped.requests * t.mean_answer,
            shown=service.shown(chunks),
            cited={"model": x.model, "hardware": x.hardware},
        )
        if fits and x.output_len is None:
            object.__setattr__(outcome, "binding", LazyBinding(partial(_two_phases, outcome)))
        return outcome


def _with_prefixes(x: Any, machine: Replicated | Engines, t: Traffic, assumed: Assumptions) -> Traffic:
    """The traffic with what a cache of prefixes finds beside the requests in flight."""
    asked = replace(t, answer=x.output_len or 0, concurrency=x.concurrency, rate=x.arrival_rate)
    host = x.offload_memory or 0.0
    link = host_link(x.hardware, "offload_memory") if host else math.inf
    working = 1.0 if x.prefix_tokens is None else x.prefix_tokens
    found, flying = found_beside(machine, asked, x.prefix_hit_rate, working, host, link)
    room = f"{found.kept:,.0f} tokens of prefixes fit beside {flying:,.0f} requests"
    room += f", {found.held - found.kept:,.0f} with the host" if host else ""
    limited = "" if x.prefix_tokens is None else f", {x.prefix_tokens:,.0f} are asked for"
    assumed["prefixes"] = f"{found.share:.3g} of the prompts' tokens are found: {room}{limited}"
    return replace(t, cached=round(found.share * x.seq_len), recall=found.recall)


def _two_phases(outcome: ServingResult) -> Binding:
    """The walls with most of the first token and of a further one."""
    ledger = outcome.ledger
    assert ledger is not None
    said = []
    for phase, words in ((FIRST, "the first token"), (ANSWER, "each further one")):
        own = of_phase(ledger, phase)
        wall = own.binding_wall
        share = f"{own.walls()[wall] / own.seconds:.0%} of {words}"
        said.append(f"wall {wall} ({NAMES[wall]}) has {share}, {own.led(wall)}")
    wall, _, margin = lead(ledger)
    return Binding(wall, NAMES[wall], margin, f"W{said[0][1:]}; {said[1]}.")


def _full(x: Any, room: DeviceMemory, batch: int, chip: Any, found: tuple[str, ...]) -> Binding:
    needed, capacity = room.used(batch), room.capacity
    kept = f", {bytes_text(room.reserve)} of it kept back by the engine," if room.reserve > 0 else ""
    there = f"{bytes_text(capacity)} ({bytes_text(needed - capacity)} are missing)"
    words = f"{x.model.name} needs {bytes_text(needed)}{kept} on each {chip.name}, which has {there}"
    return too_full(words, needed, capacity, found[0])
