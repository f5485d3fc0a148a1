"""How a training job is laid out on a fleet: degrees of parallelism, what divides what, who sits where.

Ranks are numbered with tensor parallelism innermost, then context, data and pipeline parallelism outermost, so that the
chattiest group shares a node. Experts are spread over the tensor and data ranks of a stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.errors import InputError
from mlsysim.models.base import Workload
from mlsysim.timing.network import Group, Network
from mlsysim.units.ops import maximum

__all__ = ["Groups", "Layout", "choose_micro_batches", "divisors", "plan_layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of parallelism and how the batch is cut."""

    dp: int
    tp: int
    pp: int
    ep: int
    cp: int
    micro_batches: int
    local_batch: int
    virtual_stages: int = 1

    @property
    def micro_batch(self) -> float:
        return self.local_batch / self.micro_batches

    def groups(self, net: Network) -> Groups:
        """Where the ranks of each group sit."""
        same = self.dp * self.cp
        experts = maximum(same * self.tp / self.ep, 1.0)
        return Groups(
            tensor=net.group(self.tp),
            expert=net.group(self.ep),
            data=net.group(same, self.tp),
            expert_data=net.group(experts, self.ep),
            context_near=self.tp * self.cp <= net.domain,
            stage_near=self.tp * self.cp * self.dp * self.pp <= net.domain,
        )


@dataclass(frozen=True, slots=True)
class Groups:
    """Who talks to whom: ranks of each group, and whether neighbours in a ring of contexts or stages share a domain.

    ``data`` are the ranks that hold the same weights (of all data and context ranks), ``expert_data`` the same experts.
    """

    tensor: Group
    expert: Group
    data: Group
    expert_data: Group
    context_near: Any
    stage_near: Any


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _near(number: int, wanted: int) -> str:
    options = sorted(sorted(divisors(number), key=lambda d: abs(d - wanted))[:3])
    return " or ".join(str(d) for d in options)


def choose_micro_batches(local_batch: int, pp: int) -> int:
    """One without a pipeline, else the largest divisor of the local batch up to four per stage."""
    if pp == 1:
        return 1
    return max(d for d in divisors(local_batch) if d <= 4 * pp)


def plan_layout(
    model: Workload,
    accelerators: int,
    batch: int,
    seq_len: int,
    *,
    tp: int,
    pp: int,
    ep: int,
    cp: int,
    virtual_stages: int,
    micro_batches: int | None,
    assumed: dict[str, str],
) -> Layout:
    """A layout in which everything divides; one sentence with the nearest degrees where it does not."""
    if accelerators % (tp * pp * cp):
        whole = accelerators // (pp * cp) if accelerators % (pp * cp) == 0 else accelerators
        raise InputError(
            f"TP {tp} x PP {pp} x CP {cp} = {tp * pp * cp} does not divide {accelerators} accelerators; "
            f"with these PP and CP, TP may be {_near(whole, tp)}.",
            field="tp_size",
        )
    dp = accelerators // (tp * pp * cp)
    heads = getattr(model, "heads", None)
    if heads and heads % tp:
        raise InputError(
            f"{heads} attention heads of {model.name} do not divide over TP {tp}; use {_near(heads, tp)}.",
            field="tp_size",
        )
    layers = getattr(model, "layers", None)
    if layers and (pp > layers or pp * (virtual_stages - 1) >= layers):
        raise InputError(
            f"{model.name} has {layers} layers, too few for PP {pp} x {virtual_stages} virtual stages; use fewer stages.",
            field="pp_size",
        )
    experts = getattr(model, "experts", 1)
    if ep > 1:
        if experts % ep:
            raise InputError(
                f"{experts} experts of {model.name} do not divide over EP {ep}; use {_near(experts, ep)}.",
                field="ep_size",
            )
        if (dp * tp * cp) % ep:
            raise InputError(
                f"EP {ep} does not divide the {dp * tp * cp} ranks of a stage (DP {dp} x TP {tp} x CP {cp}); "
                f"use {_near(dp * tp * cp, ep)}.",
                field="ep_size",
            )
    if seq_len % cp:
        raise InputError(f"{seq_len} tokens do not divide over CP {cp}; use {_near(seq_len, cp)}.", field="cp_size")
    if batch % dp:
        lower, upper = batch // dp * dp, (batch // dp + 1) * dp
        options = f"{lower} or {upper}" if lower else str(upper)
        raise InputError(f"A batch of {batch} does not divide over DP {dp}; use {options}.", field="batch_size")
    local = batch // dp
    if micro_batches is None:
        micro_batches = choose_micro_batches(local, pp)
        assumed["microbatch_count"] = f"{micro_batches} micro-batches of {local // micro_batches}"
    if micro_batches > local:
        raise InputError(
            f"{micro_batches} micro-batches are more than the {local} samples of each replica (batch {batch} / DP {dp}).",
            field="microbatch_count",
        )
    if local % micro_batches:
        raise InputError(
            f"{local} samples of each replica do not divide into {micro_batches} micro-batches; use {_near(local, micro_batches)}.",
            field="microbatch_count",
        )
    return Layout(dp, tp, pp, ep, cp, micro_batches, local, virtual_stages)
