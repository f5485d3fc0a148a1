"""ParallelismOptimizer: the layout of a training job that uses the fleet best.

Every combination of tensor, pipeline, context and expert parallelism, virtual stages, micro-batches, ZeRO stage and
recomputation that divides the fleet, the heads and the batch is evaluated with the terms of wall 14 and the memory of
wall 2. What does not fit is rejected by name of the wall, never silently. Ties are broken towards less tensor
parallelism, fewer stages, lower ZeRO stage and less recomputation: the simplest of equals.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

from mlsysim.errors import InputError
from mlsysim.physics.pipeline import SCHEDULES
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.base import (
    CALIBRATED,
    CALIBRATED_EFFICIENCY,
    MODEL,
    PRECISION,
    Binding,
    Equation,
    Input,
    Rate,
    Resolver,
    Result,
    Time,
)
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.fleet.first_order_step import distributed_step, network
from mlsysim.walls.fleet.layout import Layout, divisors
from mlsysim.walls.fleet.memory import in_flight
from mlsysim.walls.fleet.step import Network
from mlsysim.walls.node.capacity import training_state
from mlsysim.walls.node.compute_memory import arithmetic_peak, cite
from mlsysim.zoo.constants import constant

__all__ = ["ParallelismOptimizer", "ParallelismResult"]

_KEPT = 10
_RECOMPUTE = ("none", "selective", "full")


class ParallelismResult(Result):
    """The best layout, what came next and what was rejected."""

    objective_value: float
    best_config: dict[str, Any]
    best_mfu: float
    best_throughput: Rate
    best_step_time: Time
    total_searched: int
    search_space_size: int
    rejected: dict[str, int]
    top_candidates: tuple[dict[str, Any], ...]
    runner_up: dict[str, Any] | None = None
    compared: dict[str, Any] | None = None


class ParallelismOptimizer(Resolver[ParallelismResult]):
    """Search layouts for the highest model FLOP utilisation that fits into memory."""

    tier = "optimizer"
    walls = (14,)
    result = ParallelismResult
    inputs: ClassVar[dict[str, Input]] = {
        "model": MODEL,
        "fleet": Input("the fleet: a Fleet or the name of a cluster in the zoo", kind="fleet"),
        "batch_size": Input("sequences (or samples) per step", low=1, high=1e9, whole=True),
        "precision": PRECISION,
        "efficiency": CALIBRATED_EFFICIENCY,
        "max_tp": Input(
            "largest tensor-parallel degree",
            low=1,
            high=65536,
            whole=True,
            default=None,
            assumed="the accelerators of a node",
        ),
        "max_pp": Input("largest number of stages", low=1, high=4096, whole=True, default=64),
        "max_cp": Input("largest context-parallel degree", low=1, high=4096, whole=True, default=1),
        "max_ep": Input("largest expert-parallel degree", low=1, high=65536, whole=True, default=64),
        "max_v_stages": Input("most virtual stages per device", low=1, high=128, whole=True, default=8),
        "max_zero_stage": Input("highest ZeRO stage", low=0, high=3, whole=True, default=3),
        "recompute": Input(
            "recomputation modes to try, such as ['none', 'selective']",
            kind="object",
            default=_RECOMPUTE,
            assumed="none, selective, full",
        ),
        "overlap_comm": Input("hide gradient synchronisation behind the backward pass", kind="flag", default=True),
        "overlap_efficiency": Input("fraction of it that can hide", low=0, high=1, default=0.85),
        "seq_len": Input("tokens per sequence", low=1, high=1e8, whole=True, default=2048),
        "schedule": Input(
            "pipeline schedule",
            kind="choice",
            choices=SCHEDULES,
            default=None,
            assumed="1f1b, interleaved with virtual stages",
        ),
        "optimizer": Input("optimizer", kind="object", default="adam"),
        "memory_headroom": Input(
            "memory that allocator and libraries take beyond what is counted, as a fraction of it",
            low=0,
            high=1,
            default=constant("allocator_overhead_fraction").number,
        ),
        "compare_to": Input(
            "a layout to rank among the others, such as {'tp': 8, 'pp': 16}", kind="object", default=None
        ),
    }
    equations = (
        Equation(
            "best_mfu",
            "max over layouts of MFU, memory <= capacity",
            r"\max_c \mathrm{MFU}(c)\ \text{s.t.}\ M(c) \le C",
        ),
    )
    known_fallacies = (
        "The layout with the least communication wins: it has to fit first.",
        "A published layout is optimal: it is near the best of many that differ by a few per cent.",
    )

    def _solve(self, x: SimpleNamespace, assumed: dict[str, str]) -> ParallelismResult:
        """Evaluate every layout that divides and keep the best that fit."""
        modes = recompute_modes(x.recompute)
        chip = x.fleet.node.accelerator
        capacity = to_si(chip.memory.capacity, "byte") / (1 + x.memory_headroom)
        peak, note = arithmetic_peak(chip, x.precision)
        if note:
            assumed["arithmetic"] = note
        net = network(x.fleet, None, assumed)
        rejected = {"Wall 2 (Memory)": 0}
        searched = 0
        found: list[tuple[tuple[float, ...], dict[str, Any]]] = []
        for layout, zero, mode in layouts(x, modes):
            searched += 1
            schedule = x.schedule or ("interleaved" if layout.virtual_stages > 1 else "1f1b")
            schedule = schedule if layout.pp > 1 else "1f1b"
            state = training_state(
                x.model,
                layout.micro_batch,
                x.seq_len,
                x.precision,
                optimizer=x.optimizer,
                recompute=mode,
                zero_stage=zero,
                dp=layout.dp,
                tp=layout.tp,
                pp=layout.pp,
                ep=layout.ep,
                cp=layout.cp,
                stages_in_flight=in_flight(schedule, layout),
            )
            if state.total > capacity:
                rejected["Wall 2 (Memory)"] += 1
                continue
            mfu, step = timed(x, layout, schedule, zero, mode, peak, net)
            simpler = (layout.tp, layout.pp, layout.ep, layout.cp, zero, _RECOMPUTE.index(mode), layout.virtual_stages)
            found.append(((-round(mfu, 9), *simpler), _describe(layout, zero, mode, mfu, step, state.total)))
        if not found:
            raise InputError(
                f"None of {searched} layouts of {x.model.name} on {x.fleet.total_accelerators} x {chip.name} fits: "
                "use more accelerators, a batch that divides, or allow ZeRO 3 and full recomputation."
            )
        found.sort(key=lambda pair: pair[0])
        return self._answer(x, assumed, [config for _, config in found], searched, rejected)

    @staticmethod
    def _answer(
        x: Any, assumed: dict[str, str], ranked: list[dict[str, Any]], searched: int, rejected: dict[str, int]
    ) -> ParallelismResult:
        best = ranked[0]
        others = [config for config in ranked if _split(config) != _split(best)]
        runner_up = others[0] if others else None
        gap = ""
        if runner_up is not None:
            behind = 1 - runner_up["mfu"] / best["mfu"]
            gap = f"; the next split, {_label(runner_up)}, is {behind:.1%} behind"
        sentence = (
            f"{_label(best)} is the best of {len(ranked)} layouts that fit{gap}; "
            f"memory rejected {rejected['Wall 2 (Memory)']}."
        )
        outcome = ParallelismResult(
            assumptions=assumed,
            binding=Binding(14, "Communication", None, sentence),
            objective_value=best["mfu"],
            best_config=best,
            best_mfu=best["mfu"],
            best_throughput=quantity(x.batch_size / best["step_time_s"], "1/second"),
            best_step_time=quantity(best["step_time_s"], "s"),
            total_searched=searched,
            search_space_size=searched,
            rejected=rejected,
            top_candidates=tuple(ranked[:_KEPT]),
            runner_up=runner_up,
            compared=_rank(ranked, x.compare_to) if x.compare_to else None,
        )
        outcome._sources = {"model": cite(x.model.metadata), "hardware": cite(x.fleet.node.accelerator.metadata)}
        return outcome


def recompute_modes(given: Any) -> tuple[str, ...]:
    """The recomputation modes to try, checked."""
    modes = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, (list, tuple)) else ()
    if not modes or any(mode not in _RECOMPUTE for mode in modes):
        raise InputError("'recompute' must list modes out of none, selective and full.", field="recompute")
    return modes


def layouts(x: Any, modes: tuple[str, ...]) -> Iterator[tuple[Layout, int, str]]:
    """Every layout in which everything divides."""
    model, accelerators = x.model, x.fleet.total_accelerators
    heads = getattr(model, "heads", None) or 1
    layers = getattr(model, "layers", None) or 1
    experts = getattr(model, "experts", 1)
    max_tp = x.max_tp or x.fleet.node.accelerators_per_node
    for tp in (t for t in divisors(heads) if t <= max_tp and accelerators % t == 0):
        for pp in (p for p in divisors(accelerators // tp) if p <= min(x.max_pp, layers)):
            for cp in (c for c in divisors(accelerators // tp // pp) if c <= x.max_cp and x.seq_len % c == 0):
                dp = accelerators // (tp * pp * cp)
                if x.batch_size % dp:
                    continue
                local = x.batch_size // dp
                ranks = dp * tp * cp
                eps = [e for e in divisors(experts) if e <= x.max_ep and ranks % e == 0]
                stages = [v for v in (1, 2, 3, 4, 6, 8, 12, 16) if v <= x.max_v_stages and pp * (v - 1) < layers]
                if pp == 1 or x.schedule not in (None, "interleaved"):
                    stages = [1]
                # A single replica has nothing to share its state with.
                zeros = range(x.max_zero_stage + 1) if dp * cp > 1 else range(1)
                for ep, v, m, zero, mode in product(eps, stages, divisors(local), zeros, modes):
                    if m < pp and m != local:
                        continue
                    yield Layout(dp, tp, pp, ep, cp, m, local, v), zero, mode


def timed(
    x: Any, layout: Layout, schedule: str, zero: int, mode: str, peak: float, net: Network
) -> tuple[float, float]:
    """MFU and step time of a layout, at the fidelity that was asked for."""
    if x.efficiency != CALIBRATED:
        terms, context = distributed_step(_step_inputs(x, zero, mode), layout, schedule, peak, net)
        return context["model_flops"] / (terms.step * x.fleet.total_accelerators * peak), terms.step
    answer = DistributedModel().solve(
        x.model,
        x.fleet,
        x.batch_size,
        x.precision,
        efficiency=CALIBRATED,
        tp_size=layout.tp,
        pp_size=layout.pp,
        ep_size=layout.ep,
        cp_size=layout.cp,
        v_stages=layout.virtual_stages,
        microbatch_count=layout.micro_batches,
        schedule=schedule,
        zero_stage=zero,
        activation_recomputation=mode,
        overlap_comm=x.overlap_comm,
        seq_len=x.seq_len,
        optimizer=x.optimizer,
    )
    return answer.mfu, answer.step_latency_total.magnitude


def _step_inputs(x: Any, zero: int, mode: str) -> SimpleNamespace:
    return SimpleNamespace(
        model=x.model,
        fleet=x.fleet,
        batch_size=x.batch_size,
        precision=x.precision,
        efficiency=x.efficiency,
        seq_len=x.seq_len,
        zero_stage=zero,
        activation_recomputation=mode,
        is_lora=False,
        sequence_parallel=True,
        overlap_comm=x.overlap_comm,
        overlap_efficiency=x.overlap_efficiency,
        overlap_tp=0.0,
        overlap_ep=0.0,
        overlap_cp=0.85,
        overlap_pp=0.85,
        congestion_factor=1.0,
        straggler_factor=1.0,
        moe_routing_imbalance_factor=1.0,
    )


def _describe(layout: Layout, zero: int, mode: str, mfu: float, step: float, memory: float) -> dict[str, Any]:
    return {
        "tp": layout.tp,
        "pp": layout.pp,
        "dp": layout.dp,
        "ep": layout.ep,
        "cp": layout.cp,
        "v_stages": layout.virtual_stages,
        "microbatch_count": layout.micro_batches,
        "zero_stage": zero,
        "recompute": mode,
        "mfu": mfu,
        "step_time_s": step,
        "memory_gb": memory / 1e9,
    }


def _split(config: dict[str, Any]) -> tuple[int, ...]:
    return (config["tp"], config["pp"], config["cp"], config["ep"])


def _label(config: dict[str, Any]) -> str:
    extra = "".join(f" {name.upper()}{config[name]}" for name in ("ep", "cp") if config[name] > 1)
    return f"TP{config['tp']} PP{config['pp']} DP{config['dp']}{extra}"


def _rank(ranked: list[dict[str, Any]], wanted: dict[str, Any]) -> dict[str, Any]:
    """Where the best layout with these degrees stands, among layouts and among splits."""
    splits = list(dict.fromkeys(_split(config) for config in ranked))
    for index, config in enumerate(ranked):
        if all(config.get(name) == value for name, value in wanted.items()):
            return {
                "config": config,
                "rank": index + 1,
                "of": len(ranked),
                "rank_of_split": splits.index(_split(config)) + 1,
                "splits": len(splits),
                "behind_best_fraction": 1 - config["mfu"] / ranked[0]["mfu"],
            }
    return {
        "config": dict(wanted),
        "rank": None,
        "of": len(ranked),
        "reason": "no layout with these degrees fits or divides",
    }
