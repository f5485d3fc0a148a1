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
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from mlsysim.cases.algebra import Algebra, ledger_of
from mlsysim.cases.assumptions import INFERRED, SOFTWARE
from mlsysim.cases.cache import DeviceMemory, fullest, longest_of
from mlsysim.cases.ledger import Ledger
from mlsysim.cases.limited import Drawing, limited
from mlsysim.cases.machines import Engines, Machine, Replicated
from mlsysim.cases.offload import host_link
from mlsysim.cases.phases import prefill_parts
from mlsysim.cases.pools import pool_rates
from mlsysim.cases.prefix import found_beside
from mlsysim.cases.request import ANSWER, COMMUNICATION, FIRST, of_phase
from mlsysim.cases.serve import Served, batch_times, serve
from mlsysim.cases.traffic import Traffic
from mlsysim.timing.engines import default_engine
from mlsysim.units.fields import Words
from mlsysim.units.text import bytes_text
from mlsysim.walls.base import CALIBRATED, Assumptions, Binding, Inputs, Resolver, declared, written
from mlsysim.walls.binding import NAMES, LazyBinding, lead, too_full
from mlsysim.walls.node.engine_inputs import LOAD, check_serving, chunks_of, deployment_of, traffic_of
from mlsysim.walls.result import Memory, Rate, Result, Time
from mlsysim.zoo.intervals import interval

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
        holding = replace(traffic, answer=x.output_len or 0, concurrency=x.concurrency, rate=x.arrival_rate)
        memories = machine.memories(holding)
        first = memories[0]
        most = traffic.habits.slots
        if x.max_num_seqs is None and most is not None and first.sequences > most:
            chip = deployment.writing_chip
            words = f"{most}: the default of {x.engine or default_engine(chip)} on {chip.name}"
            assumed.say("max_num_seqs", most, SOFTWARE, words)
        traffic, clients, looped = _with_clients(x, machine, traffic, first, assumed)
        batch, traffic = traffic.batch, traffic.admitted(first)
        if x.power_cap is not None:
            reads, writes = (Drawing.of(chip, x.precision) for chip in (x.hardware, deployment.writing_chip))
            machine = limited(machine, traffic, reads, writes, x.power_cap)
            looped = None if clients is None else serve(machine, clients)
        # Calibrated, parts of passes are bounds at the datasheet's rates.
        bounds = machine if isinstance(machine, Replicated) else deployment.replicated(Assumptions())
        times = batch_times(machine, traffic)
        served = serve(machine, traffic, times=times)
        reader, writer, draft = bounds.reader, bounds.writer, bounds.draft
        chunk, cached = x.prefill_chunk_tokens, x.seq_len - traffic.new
        reading, longer = prefill_parts(reader, traffic.together, traffic.new, cached, chunk)
        decoder = bounds.decoder(replace(traffic, batch=batch))
        # The token in the middle of the answer, whose cache is the mean of those of all.
        middle = x.seq_len + (traffic.answer - 1) / 2
        writing = decoder.model_pass(middle)
        own = machine.draft if isinstance(machine, Engines) else None
        drafting = decoder.draft_step(middle) if own is None else own.time(batch, middle).total
        prompts = int(machine.prompts(clients or traffic))
        room, kept = fullest(list(zip(memories, (batch, prompts), strict=False)))
        place = memories.index(room)
        chip = x.hardware if place else deployment.writing_chip
        needed, capacity = float(room.used(kept)), float(room.capacity)
        fits = needed <= capacity
        found = () if fits else deployment.remedies(holding, place, kept)
        length = holding.kept(getattr(machine.writer, "engine", None))
        cache = writer.cache(length) * batch
        extra = draft.weights + draft.cache(length) * batch if draft is not None else 0.0

        def request(a: Algebra) -> Any:
            # The ledger is of a request, or of the first two tokens where the answer has no length.
            seen = serve(machine, clients or traffic, a)
            return seen.ttft + seen.itl if x.output_len is None else seen.e2e

        def case() -> Ledger:
            return ledger_of(request, room.held(kept), room.capacity)

        further = x.output_len != 1
        bands = _bands(machine, served, clients or traffic, further, assumed, case)
        chunks = chunks_of(x, traffic.new)
        outcome = ServingResult.of(
            assumed,
            feasible=fits,
            binding=None if fits else _full(x, room, kept, chip, found),
            case=case,
            noun="request",
            kv_cache_size=cache if writer.model.has_dimensions else None,
            total_memory_required=writer.weights + cache + extra,
            memory_utilization=needed / capacity,
            prompt_cache_hit_ratio=traffic.cached / x.seq_len,
            prefill_chunks=chunks,
            throughput_tokens_per_sec=batch * traffic.replicas / served.itl,
            prefill_tokens_per_sec=traffic.together * traffic.new * x.num_replicas / times.prefill,
            request_latency=None if x.output_len is None else served.e2e,
            kv_transfer_time=times.transfer if machine.apart else None,
            draft_time=None if not decoder.drafts else drafting * decoder.drafted,
            devices=reader.devices * x.num_replicas + (writer.devices * traffic.replicas if machine.apart else 0),
            memory_per_device=needed,
            memory_available=capacity,
            memory_missing=None if fits else needed - capacity,
            memory_breakdown={line.name: line.bytes for line in room.held(kept)},
            remedies=found,
            **bands,
            # Where more come than are answered the queue grows, and the first token has no time.
            ttft_at_concurrency=None if looped is None or looped.saturated else looped.ttft,
            saturated=looped is not None and bool(looped.saturated),
            output_tokens_per_sec=None if looped is None else looped.requests * traffic.mean_answer,
            shown={
                "machine": machine,
                "clients": clients,
                "traffic": traffic,
                "served": served,
                "looped": looped,
                "times": times,
                "longest": partial(
                    longest_of, lambda tokens: machine.memories(Traffic(tokens, 0))[0], deployment.model.max_context
                ),
                "pools": partial(pool_rates, machine, clients or traffic) if machine.apart else None,
                "batch": batch,
                "fullest": chip,
                "cache_of_a_sequence": writer.cache(length),
                "clocks": machine.reader.clocks,
                "draft_step": drafting,
                "longer": longer,
                "handed": times.transfer,
                "one_pass": x.efficiency != CALIBRATED and chunks == 1 and not machine.apart,
                "passes": x.efficiency != CALIBRATED and (chunks > 1 or machine.apart),
                **_counted(x.efficiency == CALIBRATED, first, bounds, decoder, reading, writing),
            },
            cited={"model": x.model, "hardware": x.hardware},
        )
        if fits and x.output_len is None:
            object.__setattr__(outcome, "binding", LazyBinding(partial(_two_phases, outcome)))
        return outcome


def _with_clients(
    x: Any, machine: Replicated | Engines, traffic: Traffic, first: DeviceMemory, assumed: Assumptions
) -> tuple[Traffic, Traffic | None, Served | None]:
    """The batch that clients make, where the question has none of its own; the clients, and what they see."""
    clients, given = None, "batch_size" in assumed.given
    if x.concurrency is not None:
        clients = replace(traffic, concurrency=x.concurrency).admitted(first)
        traffic = traffic if given else replace(traffic, batch=int(clients.batch))
    if x.arrival_rate is not None:
        clients = replace(traffic, rate=x.arrival_rate, together=1.0)
    if clients is None:
        return traffic, None, None
    looped = serve(machine, clients)
    if not given:
        assumed.pop("batch_size", None)
        if x.arrival_rate is not None:
            traffic = replace(traffic, batch=max(1, math.ceil(looped.active / traffic.replicas)))
    return traffic, clients, looped


def _counted(
    calibrated: bool, first: DeviceMemory, bounds: Replicated, decoder: Any, reading: Any, writing: Any
) -> dict[str, Any]:
    """What equations show of passes and of the device that holds most."""
    reader, writer = bounds.reader, bounds.writer
    return {
        "reading": reading,
        "writing": writing,
        "reader": reader,
        "writer": writer,
        "decoder": decoder,
        "first": first,
        "cache_groups": first.groups,
        "device_capacity": first.capacity,
        "device_fixed": first.fixed,
        "device_held": first.counted[0],
        "device_each": first.counted[1],
        "calibrated": calibrated,
        "prefill_flops": reading.operations,
        "prefill_peak": reading.operations / (reader.width * reader.efficiency * reading.compute),
        "prefill_dispatch": reading.dispatch,
        "decode_bytes": writing.memory * writer.bandwidth,
        "decode_dispatch": writing.dispatch,
        "verify": writing.total,
        "plain": not decoder.drafts and not calibrated,
        "speculative": decoder.drafts and not calibrated,
    }


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


def _bands(
    machine: Machine, served: Served, t: Traffic, further: bool, assumed: Assumptions, case: Callable[[], Ledger]
) -> dict[str, Any]:
    """Intervals of the times of a batch, and what they rest on. What a replica's nodes say to each other no measured run had."""
    if not isinstance(machine, Engines):
        return {}
    (itl, words), (ttft, _) = (machine.band(of, t, not further) for of in ("tpot", "ttft"))
    if machine.leaves_nodes:
        phases, network = [of_phase(case(), phase) for phase in (ANSWER, FIRST)], interval("collective network")
        # An answer of one token has no further ones.
        shares = [phase.walls().get(COMMUNICATION, 0.0) / (phase.seconds or 1.0) for phase in phases]
        itl, ttft = (band.with_part(network, share) for band, share in zip((itl, ttft), shares, strict=True))
        words += f"; no such run was on several nodes, whose messages take {shares[not further]:.0%} of a token (90 % of measured ones were within {network.high:.1f} times)"
    assumed.say("interval", itl.key, INFERRED, words)
    return {"itl_interval": itl.around(served.itl), "ttft_interval": ttft.around(served.ttft)}


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
