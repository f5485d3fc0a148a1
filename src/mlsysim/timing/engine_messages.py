"""What the devices of one deployment of an inference engine say to each other in a step.

Sums of tensor groups, tokens between attention ranks and experts, activations between stages, and partial results of contexts that several
devices share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mlsysim.models.template import Core
from mlsysim.timing.engine_block import DECODE
from mlsysim.timing.engine_device import EngineDevice
from mlsysim.timing.engines import serving_table
from mlsysim.timing.tags import Tag
from mlsysim.units.ops import minimum

_TENSORS, _EXCHANGE, _STAGES = "tensor parallelism", "expert exchange", "pipeline parallelism"
_CONTEXTS, _WEIGHT_BYTES, _COMMUNICATION = "context parallelism", 4, 14


class EngineMessages(EngineDevice):
    """Messages of a step, on the engine's network."""

    def _communication(
        self, tokens: Any, everywhere: Any, once_each: bool, tag: Tag, halves: Any = 1.0
    ) -> tuple[Any, Any]:
        """Sums of tensor groups, and exchanges with experts."""
        d, net = self.deployment, self.network
        sums: Any = 0.0
        exchanged: Any = 0.0
        token = self.hidden * self.element
        if d.tp > 1:
            reductions = self.blocks.reductions - (self.blocks.routed if d.attention_dp > 1 else 0.0)
            leg = partial(tag, _TENSORS, _COMMUNICATION)
            sums = reductions * halves * net.all_reduce(tokens / halves * token, net.group(d.tp), leg)
        if d.attention_dp > 1 and self.blocks.experts:
            leg = partial(tag, _EXCHANGE, _COMMUNICATION)
            gathers = self.engine.gathers and d.moe_ep <= net.hosted
            if d.moe_ep > 1 and not gathers:
                once = halves * self._exchange(tokens / halves, once_each, leg)
            else:
                # Tokens of all ranks are gathered for the experts, and the sums scattered: one all-reduce; two where prompts make ranks uneven.
                sums_of_all = net.all_reduce(everywhere * token, net.group(d.devices), leg)
                once = sums_of_all * (2 if gathers and once_each else 1)
            exchanged = self.blocks.routed * once
        return sums, exchanged

    def _sends(self, tokens: Any, tag: Tag) -> Any:
        """Activations of a step from each stage to the next."""
        d, net, hops = self.deployment, self.network, self.deployment.pp - 1
        near = d.devices <= net.domain
        rate, start = (net.link, net.link_latency) if near else (net.fabric, net.fabric_latency)
        size, leg = tokens * self.hidden * self.element, partial(tag, _STAGES, _COMMUNICATION)
        moving = leg("link" if near else "fabric", "t = (p-1) M / W", hops * (size / rate), sent=hops * size)
        return moving + leg("start", "t = (p-1) a", hops * start)

    def _exchange(self, tokens: Any, once_each: bool, leg: Callable[..., Any]) -> Any:
        """Dispatch (8-bit or narrower activations) and combine (16 bit) of a rank's tokens, sent ``once_each`` to a domain or to every expert.

        Copies that go straight to experts on other nodes arrive at the port of the busiest device; of copies for a node all its ports take a share.
        """
        d, routed = self.deployment, self.blocks.experts[0][1]
        group, copies = self.network.group(d.moe_ep), minimum(routed.per_token, d.moe_ep)
        sent = tokens * routed.inner / d.tp
        sizes = sent * (self.byte if self.quantises else self.element), sent * self.element
        limit = d.model.routing_limit
        busiest = 1.0 if once_each else serving_table("exchange")["imbalance"]
        return sum(self.network.exchange(size, copies, group, once_each, limit, busiest, leg) for size in sizes)

    def _put_together(self, tokens: Any, tag: Tag) -> Any:
        """What c devices that have a c-th of every context each say to each other (decode context parallelism, as vLLM does it).

        They gather their queries, M_q = tokens c heads/tp d_qk, so that each attends with all of them to its own keys; gather the
        weights of the partial sums (the logarithm of their denominators, a number of 4 bytes a head); and scatter their weighted sums, M_o = tokens
        c heads/tp d_v. Gathering and scattering take (c-1)/c (M_q + M_o)/W, what an all-reduce of (M_q + M_o)/2 takes. Nothing for c = 1.
        Left out: later chunks of a prompt gather the keys of the earlier ones, about 2 % of their time.
        """
        d, net, total = self.deployment, self.network, 0.0
        leg, group = partial(tag, _CONTEXTS, _COMMUNICATION), self.network.group(d.cp)
        for count, kind in self.blocks.mixing[DECODE]:
            if isinstance(kind, Core):
                each = (kind.qk + kind.v) / 2 * self.element + _WEIGHT_BYTES / 2
                message = tokens * (d.cp * kind.heads / (d.tp if kind.divided else 1)) * each
                total = total + count * (
                    net.all_reduce(message, group, leg) + net.all_reduce(0.0 * message, group, leg) / 2
                )
        return total
