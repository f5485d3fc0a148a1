"""``Service``: a deployment under a traffic. What its devices hold, how it serves, and what stands in the equations of wall 4.

Clients, or requests at a rate, make the batch where none is given: as many as a replica holds, or is found with. Each part is worked out
once, when somebody asks. Many points at once are those of :mod:`mlsysim.search.serving`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from mlsysim.cases.algebra import Algebra, ledger_of
from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.cache import DeviceMemory, fullest, longest_of
from mlsysim.cases.deployment import Deployment
from mlsysim.cases.ledger import Ledger
from mlsysim.cases.limited import Drawing, limited
from mlsysim.cases.machines import Engines, Replicated
from mlsysim.cases.phases import Decoder, prefill_parts
from mlsysim.cases.pools import pool_rates
from mlsysim.cases.replica_pass import PassTime
from mlsysim.cases.request import ANSWER, COMMUNICATION, FIRST, of_phase
from mlsysim.cases.serve import Served, Times, batch_times, serve
from mlsysim.cases.traffic import Traffic
from mlsysim.zoo.intervals import Interval, interval


class Service:
    """``answer`` are the tokens of an answer, none where it has no length; ``given`` where the traffic's batch was asked for; ``cap`` in watts."""

    def __init__(
        self,
        deployment: Deployment,
        machine: Replicated | Engines,
        t: Traffic,
        answer: Any,
        concurrency: Any = None,
        rate: Any = None,
        given: bool = False,
        cap: Any = None,
    ) -> None:
        self.deployment, self.machine, self.endless = deployment, machine, not answer
        self.holding = replace(t, answer=answer, concurrency=concurrency, rate=rate)
        self.memories = machine.memories(self.holding)
        first, clients = self.memories[0], None
        if concurrency is not None:
            clients = replace(t, concurrency=concurrency).admitted(first)
            t = t if given else replace(t, batch=int(clients.batch))
        if rate is not None:
            clients = replace(t, rate=rate, together=1.0)
        self.clients, self.looped = clients, None if clients is None else serve(machine, clients)
        if rate is not None and self.looped is not None and not given:
            t = replace(t, batch=max(1, math.ceil(self.looped.active / t.replicas)))
        self.traffic = t.admitted(first)
        if cap is not None:
            chips = deployment.chip, deployment.writing_chip
            reads, writes = (Drawing.of(chip, deployment.precision) for chip in chips)
            self.machine = limited(machine, self.traffic, reads, writes, cap)
            self.looped = None if clients is None else serve(self.machine, clients)

    @property
    def asked(self) -> Traffic:
        """Clients, else the batch."""
        return self.clients or self.traffic

    # --- what is held -------------------------------------------------------------------------------------------------

    @cached_property
    def fullest(self) -> tuple[DeviceMemory, Any]:
        """The device that is fullest, and the sequences that it holds."""
        prompts = int(self.machine.prompts(self.asked))
        return fullest(list(zip(self.memories, (self.traffic.batch, prompts), strict=False)))

    @property
    def place(self) -> int:
        """Where that is: among those that write answers (0), or that read prompts alone."""
        return self.memories.index(self.fullest[0])

    @property
    def chip(self) -> Any:
        """Its chip."""
        return self.deployment.chip if self.place else self.deployment.writing_chip

    @property
    def kept(self) -> Any:
        """Tokens that a request keeps in the cache."""
        return self.holding.kept(getattr(self.machine.writer, "engine", None))

    @cached_property
    def cache(self) -> Any:
        """Bytes of the caches of a replica's batch."""
        return self.bounds.writer.cache(self.kept) * self.traffic.batch

    @property
    def memory(self) -> Any:
        """Bytes of a replica: weights, caches, and those of a draft model."""
        draft, found = self.bounds.draft, self.bounds.writer.weights + self.cache
        return found if draft is None else found + (draft.weights + draft.cache(self.kept) * self.traffic.batch)

    @property
    def devices(self) -> Any:
        """Devices of all replicas."""
        reading = self.bounds.reader.devices * self.traffic.prefills
        return reading + (self.bounds.writer.devices * self.traffic.replicas if self.machine.apart else 0)

    # --- time ---------------------------------------------------------------------------------------------------------

    @cached_property
    def times(self) -> Times:
        """Times of a batch that nobody disturbs."""
        return batch_times(self.machine, self.traffic)

    @cached_property
    def served(self) -> Served:
        """What requests of a batch see."""
        return serve(self.machine, self.traffic, times=self.times)

    @property
    def ledger(self) -> Ledger:
        """Parts of a request, or of the first two tokens where the answer has no length, and what the fullest device holds."""
        room, kept = self.fullest

        def request(a: Algebra) -> Any:
            seen = serve(self.machine, self.asked, a)
            return seen.ttft + seen.itl if self.endless else seen.e2e

        return ledger_of(request, room.held(kept), room.capacity)

    def bands(self, further: bool) -> tuple[Interval, Interval, str] | None:
        """Intervals of a token and of the first one of a batch, and what they rest on; None at first order. What a replica's nodes say to each other
        no measured run had."""
        if not isinstance(self.machine, Engines):
            return None
        (itl, words), (ttft, _) = (self.machine.band(of, self.asked, not further) for of in ("tpot", "ttft"))
        if self.machine.leaves_nodes:
            ledger, network = self.ledger, interval("collective network")
            phases = [of_phase(ledger, phase) for phase in (ANSWER, FIRST)]
            # An answer of one token has no further ones.
            shares = [phase.walls().get(COMMUNICATION, 0.0) / (phase.seconds or 1.0) for phase in phases]
            itl, ttft = (band.with_part(network, share) for band, share in zip((itl, ttft), shares, strict=True))
            words += f"; no such run was on several nodes, whose messages take {shares[not further]:.0%} of a token (90 % of measured ones were within {network.high:.1f} times)"
        return itl, ttft, words

    # --- what equations show ------------------------------------------------------------------------------------------

    @cached_property
    def bounds(self) -> Replicated:
        """Replicas at first order; calibrated, those whose passes are bounds at the datasheet's rates."""
        return self.machine if isinstance(self.machine, Replicated) else self.deployment.replicated(Assumptions())

    @cached_property
    def reading(self) -> tuple[PassTime, float]:
        """Parts of the prefill of a group, and the sum of the longer of compute and memory of its passes."""
        t = self.traffic
        return prefill_parts(self.bounds.reader, t.together, t.new, t.prompt - t.new, t.chunk)

    @cached_property
    def decoder(self) -> Decoder:
        return self.bounds.decoder(self.traffic)

    @property
    def middle(self) -> Any:
        """Context of the token in the middle of the answer, whose cache is the mean of those of all."""
        return self.traffic.prompt + (self.traffic.answer - 1) / 2

    @cached_property
    def draft_step(self) -> Any:
        """Seconds in which one token is drafted."""
        own = self.machine.draft if isinstance(self.machine, Engines) else None
        return self.decoder.draft_step(self.middle) if own is None else own.time(self.traffic.batch, self.middle).total

    def shown(self, chunks: int) -> dict[str, Any]:
        """What stands in the equations of a service whose prompts are read in so many chunks, by name."""
        machine, first, decoder = self.machine, self.memories[0], self.decoder
        (reading, longer), writing, calibrated = (
            self.reading,
            decoder.model_pass(self.middle),
            machine is not self.bounds,
        )
        reader, writer, whole = self.bounds.reader, self.bounds.writer, chunks == 1 and not machine.apart
        length = partial(
            longest_of, lambda tokens: machine.memories(Traffic(tokens, 0))[0], self.deployment.model.max_context
        )
        return {
            "machine": machine,
            "clients": self.clients,
            "traffic": self.traffic,
            "served": self.served,
            "looped": self.looped,
            "times": self.times,
            "longest": length,
            "pools": partial(pool_rates, machine, self.asked) if machine.apart else None,
            "batch": self.traffic.batch,
            "fullest": self.chip,
            "cache_of_a_sequence": writer.cache(self.kept),
            "clocks": machine.reader.clocks,
            "draft_step": self.draft_step,
            "longer": longer,
            "handed": self.times.transfer,
            "one_pass": whole and not calibrated,
            "passes": not whole and not calibrated,
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
