"""Wall 5, batching: how many requests share the weights, when their caches are handed out in pages.

    KV_paged = 2 L H_kv D ceil(S / p) p N b                                             (Kwon et al. 2023)
    N = floor( (memory - weights) / KV_paged(one request) )
    tokens/s = N / ITL(N),   ITL(N) = max( compute, (weights + N KV) / W ) + collectives + dispatch

Continuous batching lets requests join and leave at every step, so that N of them are always active; pages of p tokens
leave at most one partly empty page for each request. The static baseline reserves a contiguous block for the longest
sequence: of ``max_seq_len`` tokens where that is given, else so long that the fraction ``static_waste_fraction`` of it
stays empty (0.5, as the paper has it; Kwon et al. measured 0.62 to 0.80 in earlier systems).

Assumed: every active request holds ``seq_len`` tokens (prompt and what it has written so far); all memory that the
weights leave is for caches, unless ``memory_fraction`` keeps some back. TTFT is the prefill of one request alone. Left
out: the time that prefill takes from decode (with as many prompt as answer tokens often 10 to 30 %), requests that wait,
and the second loss of static batching, slots that idle until the longest answer ends (half of them, if lengths are
spread evenly up to the maximum), so the speed-up given here is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from mlsysim.cases.cache import DeviceMemory
from mlsysim.cases.deployment import language_model
from mlsysim.cases.machines import Engines, Replicated
from mlsysim.cases.phases import Decoder
from mlsysim.cases.serve import Served, serve
from mlsysim.cases.traffic import CLIENT_ROUNDS, Traffic
from mlsysim.errors import InputError
from mlsysim.timing.tags import untagged
from mlsysim.units.fields import Words
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import ceil
from mlsysim.walls.base import CALIBRATED, Assumptions, Binding, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.node.engine_inputs import deployment_of
from mlsysim.walls.result import Memory, Rate, Result, Time

CARDS = """
5 Batching: requests that share an accelerator
KV = 2 L H D ceil(S/p) p B b (Kwon et al. 2023)
How many requests fit at once, and how many tokens a second is that?
"""


@kernel("tokens, page whole [1, 256] -> held")
def paged_tokens(tokens: Any, page: Any) -> Any:
    """Tokens' worth of memory that a sequence holds in whole pages."""
    return ceil(tokens / page) * page


class BatchingResult(Result):
    """A replica under continuous batching. ``max_active_requests`` is what memory allows, whatever was asked for."""

    throughput_tokens_per_sec: Rate
    max_active_requests: int
    active_requests: int
    memory_fragmentation_pct: float
    paged_kv_cache_size: Memory
    kv_cache_per_request: Memory
    ttft: Time
    itl: Time
    speedup_vs_static: float | None
    static_active_requests: int
    static_throughput_tokens_per_sec: Rate
    static_waste_pct: float
    memory_for_cache: Memory
    bottleneck: str
    remedies: tuple[Words, ...] = ()
    tpot: Annotated[Time, "seen.tpot"] = None
    ttft_at_concurrency: Annotated[Time, "seen.ttft"] = None
    output_tokens_per_sec: Rate = None


class ContinuousBatchingModel(Resolver[BatchingResult]):
    """Throughput of decode with paged caches, beside a static baseline."""

    walls = (5,)
    inputs = declared("""
        model, hardware
        seq_len | whole [1, 1e8] | tokens that each active request holds | 2048
        max_batch_size = 1 | whole [1, 1e6] | requests that want to be served at once
        page_size = 16 | whole [1, 1e6] | tokens of a page of cache
        precision, efficiency or calibrated
        max_seq_len? | whole [1, 1e8] | tokens that static batching reserves for each request
        static_waste_fraction = 0.5 | [0, 0.99] | part of a static reservation that stays empty, where max_seq_len is not given
        memory_fraction, tp_size, pp_size, ep_size, attention_dp, cp_size, cache_precision, bandwidth_efficiency, fabric, engine
        concurrency
        output_len? | whole [1, 1e8] | tokens of an answer, for efficiency='calibrated': each answer brings a prompt of seq_len tokens
    """)
    equations = written(r"""
        max_active_requests: N = floor((memory - weights - reserve) / KV of one request), on the fullest device
            N = \left\lfloor \frac{M - |W| - R}{KV_{\mathrm{paged}}} \right\rfloor
            memory = room.capacity in byte, weights = room.weights in byte, reserve = reserve in byte, KV of one request = request in byte
        memory_fragmentation_pct: fragmentation = 1 - S / (ceil(S / p) p)
            f = 1 - \frac{S}{\lceil S / p \rceil\, p}
            S = tokens, p = page
        throughput_tokens_per_sec: tokens/s = N / ITL(N)
            \mathrm{tokens/s} = \frac{N}{\mathrm{ITL}(N)}
            N = active, ITL = itl in s
        speedup_vs_static: speed-up = (tokens/s) / (tokens/s of N_static requests)
            s = \frac{\mathrm{tokens/s}(N)}{\mathrm{tokens/s}(N_{\mathrm{static}})}
            N = active, N_static = static
    """)
    known_fallacies = (
        "A larger batch makes every request slower in proportion: until caches outweigh weights, ITL hardly moves.",
        "Throughput grows with the batch for ever: each request adds its cache to every step, and compute binds in the end.",
        "Smaller pages are always better: beyond a few tokens per page the last page is already a rounding error.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> BatchingResult:
        """Fill the memory beside the weights with paged caches and decode with as many requests."""
        model = language_model(x.model)
        if not model.has_dimensions:
            words = f"needs the size of the cache, and {model.name} states no layers, hidden_dim and heads"
            raise InputError(f"ContinuousBatchingModel {words}.", field="model")
        if x.efficiency != CALIBRATED:
            assumed.pop("engine", None)
            if x.concurrency is not None or x.output_len is not None:
                raise InputError("concurrency and output_len are for efficiency='calibrated'.", field="concurrency")
        deployment = deployment_of(x, assumed)
        machine = deployment.machine(assumed)
        replica = machine.writer if isinstance(machine, Replicated) else deployment.replicated(Assumptions()).writer

        def memory(tokens: Any) -> DeviceMemory:
            return machine.memories(Traffic(tokens, 0))[0]

        def token(sequences: int) -> float:
            return float(machine.writing(Traffic(x.seq_len, 1, sequences), untagged)(x.seq_len))

        held = paged_tokens(x.seq_len, x.page_size)
        room = memory(held)
        limit = int(room.sequences)
        reserved, waste = self._static_request(x, lambda tokens: memory(tokens).each, assumed)
        static_limit = int(replace(room, each=reserved).sequences)
        active, static = min(x.max_batch_size, limit), min(x.max_batch_size, static_limit)
        fits = limit >= 1
        if not fits:
            assumed["active_requests"] = "times are those of one request, if it fitted"
        parts = Decoder(replica, max(active, 1)).model_pass(x.seq_len)
        itl = token(max(active, 1))
        throughput, static_throughput = max(active, 1) / itl, static / token(static) if static else 0.0
        found = () if fits else deployment.remedies(Traffic(held, 0), 0, 1)
        exact, paged = replica.cache(x.seq_len), replica.cache(held)
        seen = _loop(machine, x, assumed)
        return BatchingResult.of(
            assumed,
            feasible=fits,
            binding=self._binding(x, room, limit, parts, found),
            throughput_tokens_per_sec=throughput,
            max_active_requests=limit,
            active_requests=active,
            memory_fragmentation_pct=100 * (1 - exact / paged) if exact else 0.0,
            paged_kv_cache_size=active * paged,
            kv_cache_per_request=paged,
            ttft=float(machine.reading(Traffic(x.seq_len, 1, together=1), x.seq_len, untagged)(0)),
            itl=itl,
            speedup_vs_static=throughput / static_throughput if fits and static else None,
            static_active_requests=static,
            static_throughput_tokens_per_sec=static_throughput,
            static_waste_pct=100 * waste,
            memory_for_cache=max(room.capacity - room.fixed, 0.0) * replica.devices,
            bottleneck=parts.bound,
            remedies=found,
            output_tokens_per_sec=None if seen is None else seen.requests * x.output_len,
            shown={
                "seen": seen,
                "room": room,
                "reserve": room.reserve + room.workspace,
                "request": room.each,
                "tokens": x.seq_len,
                "page": x.page_size,
                "active": active,
                "static": static,
            },
            cited={"model": x.model, "hardware": x.hardware},
        )

    @staticmethod
    def _static_request(x: Any, each: Callable[[Any], Any], assumed: dict[str, str]) -> tuple[float, float]:
        """Bytes that a static reservation takes on the fullest device, and the fraction of it that stays empty."""
        used = each(x.seq_len)
        if x.max_seq_len is None:
            return used / (1 - x.static_waste_fraction), x.static_waste_fraction
        if x.max_seq_len < x.seq_len:
            words = f"is shorter than the {x.seq_len} tokens that a request holds"
            raise InputError(f"max_seq_len={x.max_seq_len} {words}.", field="max_seq_len")
        assumed.pop("static_waste_fraction", None)
        reserved = each(x.max_seq_len)
        return reserved, 1 - used / reserved

    @staticmethod
    def _binding(x: Any, memory: DeviceMemory, limit: int, parts: Any, found: tuple[str, ...]) -> Binding:
        if limit < 1:
            needed, asked = memory.used(1), f"{x.model.name} with one request of {x.seq_len} tokens needs"
            there = f"{needed / 1e9:.1f} GB on each {x.hardware.name}, which has {memory.capacity / 1e9:.1f} GB"
            return wall_says(2, needed / memory.capacity, f": {asked} {there}; {found[0]}.")
        if limit < x.max_batch_size:
            said = f" binds: caches leave room for {limit} of {x.max_batch_size} requests."
            return wall_says(5, x.max_batch_size / limit, said)
        number = {"Compute": 1, "Memory": 2, "Communication": 14}[parts.bound]
        _, second, longest = sorted((parts.compute, parts.memory, parts.communication))
        more = f"memory would hold {limit / x.max_batch_size:.3g} times as many requests"
        said = f" binds decode: it takes {longest / second:.3g} times as long as the next; {more}."
        return wall_says(number, longest / second, said)


def _loop(machine: Replicated | Engines, x: Any, assumed: dict[str, str]) -> Served | None:
    """What clients in a closed loop see, where they were asked for."""
    if x.concurrency is None:
        return None
    if x.output_len is None:
        raise InputError("concurrency needs 'output_len': clients wait for whole answers.", field="output_len")
    assumed["clients"] = f"{CLIENT_ROUNDS} requests each, prompts of seq_len tokens"
    asked = Traffic(float(x.seq_len), float(x.output_len), concurrency=float(x.concurrency))
    return serve(machine, machine.asked(asked))
