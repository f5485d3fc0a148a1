"""Wall 14, communication: what a fleet loses to its own coordination.

    T_ring = 2 (N - 1) / N x M / B + 2 (N - 1) alpha                           (Patarasuk and Yuan 2009; Shoeybi et al. 2019)
    T_step = (m + phi) (T_compute + T_tensor + T_expert + T_pipeline) + exposed T_data

One optimizer step of a model split over tensors (TP), stages (PP), experts (EP), the sequence (CP) and data (DP). DP is
what is left: N / (TP PP CP); experts live on the TP and DP ranks of a stage and take no accelerators of their own.
Scaling efficiency is the time that N accelerators would need if they only computed, over the time of the step.

Placement follows the hardware: a ring inside a node has one direction of the link (half of the 900 GB/s that NVLink is
sold with); between nodes each accelerator has the fabric's bandwidth to itself, or its share of the node's adapters
where their number is stated. Layers may split unevenly; the longest stage sets the pace.

A layout that does not fit into memory still gets its times, marked infeasible, with the smallest change that would make
it fit. With ``efficiency="calibrated"`` the step is the sum of its operators on measured silicon, under a named software
stack (:mod:`mlsysim.cases.calibrated_step`). Optimizer state may rest on the host
(:mod:`mlsysim.cases.offload`). Left out of the first order: the optimizer's own update (about 1 % of a large step), stragglers and congestion beyond the two factors
given, memory fragmentation (2 to 10 %), and communication that slows the computing it hides behind.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

from mlsysim.cases.calibrated_distributed import adopt_stack, calibrated_terms
from mlsysim.cases.calibrated_step import CalibratedStep
from mlsysim.cases.capacity import TrainingState, training_state
from mlsysim.cases.first_order_step import distributed_step, network
from mlsysim.cases.layout import Layout, plan_layout
from mlsysim.cases.memory import fitting_change, in_flight
from mlsysim.cases.offload import host_link, host_round_trip
from mlsysim.cases.step import StepTerms
from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.models.training_shape import training_regime, training_shape
from mlsysim.physics.pipeline import SCHEDULES, bubble_fraction
from mlsysim.timing.stacks import DEFAULT_STACK, Stack, stack_names
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.base import (
    CALIBRATED,
    CALIBRATED_EFFICIENCY,
    FLEET,
    MODEL,
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
from mlsysim.walls.data.locality import topology_share
from mlsysim.walls.node.compute_memory import PerformanceProfile
from mlsysim.zoo.constants import constant
from mlsysim.zoo.intervals import Interval, interval
from mlsysim.zoo.provenance import cite

__all__ = ["CARDS", "DistributedModel", "DistributedResult"]

CARDS = (
    Wall(
        14,
        "Communication",
        FLEET,
        "DistributedModel",
        "collective bandwidth",
        "T = 2 (N-1)/N M/B + 2 (N-1) alpha",
        "Shoeybi et al. 2019",
        "What does the fleet lose to its own coordination?",
    ),
)


class DistributedResult(Result):
    """One optimizer step on a fleet."""

    step_latency_total: Time
    compute_latency: Time
    dp_communication_latency: Time
    dp_exposed_latency: Time
    tp_communication_latency: Time
    ep_communication_latency: Time
    cp_communication_latency: Time
    pp_communication_latency: Time
    communication_latency: Time
    pipeline_bubble_latency: Time
    offload_latency: Time
    bubble_fraction: float
    scaling_efficiency: float
    effective_throughput: Rate
    tokens_per_second: Rate
    mfu: float
    hfu: float
    parallelism: dict[str, int]
    microbatch_count: int
    memory_per_accelerator: Memory
    memory_breakdown: dict[str, Any]
    memory_capacity: Memory
    step_interval: Any = None
    constraint_trace: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    @property
    def node_profile(self) -> PerformanceProfile:
        """What one device computes in a step, without communication."""
        c = self._context
        parts, latency = c["micro_batches"], c["compute"]
        flops = c["device_flops"] * parts
        bound = "Compute" if self.feasible and c["compute_micro"] >= c["memory_micro"] else "Memory"
        profile = PerformanceProfile(
            feasible=self.feasible,
            assumptions=self.assumptions,
            binding=self.binding,
            latency=quantity(latency, "s"),
            latency_compute=quantity(c["compute_micro"] * parts, "s"),
            latency_memory=quantity(c["memory_micro"] * parts, "s"),
            latency_overhead=quantity(c["dispatch"], "s"),
            throughput=quantity(c["local_batch"] / latency, "1/second"),
            bottleneck=bound,
            arithmetic_intensity=quantity(c["device_flops"] / c["device_bytes"], "flop/byte"),
            energy=None,
            memory_footprint=self.memory_per_accelerator,
            memory_capacity=self.memory_capacity,
            peak_flops_actual=quantity(c["peak"] * c["efficiency"], "flop/s"),
            peak_bw_actual=quantity(c["bandwidth"], "byte/s"),
            mfu=c["model_flops"] / c["accelerators"] / (latency * c["peak"]),
            hfu=flops / (latency * c["peak"]),
            phase="training",
        )
        profile._context = {"samples": c["local_batch"]}
        return profile


class DistributedModel(Resolver[DistributedResult]):
    """A training step under tensor, pipeline, expert, context and data parallelism."""

    walls = (14,)
    result = DistributedResult
    inputs: ClassVar[dict[str, Input]] = {
        "model": MODEL,
        "fleet": Input("the fleet: a Fleet or the name of a cluster in the zoo", kind="fleet", example="Frontier_8K"),
        "batch_size": Input(
            "sequences (or samples) per micro-step, over the whole fleet", low=1, high=1e9, whole=True, default=1
        ),
        "precision": PRECISION,
        "efficiency": CALIBRATED_EFFICIENCY,
        "tp_size": Input("tensor-parallel degree", low=1, high=65536, whole=True, default=1),
        "pp_size": Input("pipeline stages", low=1, high=4096, whole=True, default=1),
        "ep_size": Input("expert-parallel degree", low=1, high=65536, whole=True, default=1),
        "cp_size": Input("context-parallel degree", low=1, high=4096, whole=True, default=1),
        "v_stages": Input("virtual stages per device", low=1, high=128, whole=True, default=1),
        "microbatch_count": Input("micro-batches of each replica", low=1, high=1e7, whole=True, default=None),
        "schedule": Input(
            "pipeline schedule",
            kind="choice",
            choices=SCHEDULES,
            default=None,
            assumed="1f1b, interleaved with v_stages",
        ),
        "topology_override": Input("topology to assume instead of the fabric's", kind="object", default=None),
        "zero_stage": Input("ZeRO stage", low=0, high=3, whole=True, default=0),
        "is_lora": Input("train low-rank adapters on frozen weights", kind="flag", default=False),
        "lora_rank": Input("rank of the adapters", low=1, high=4096, whole=True, default=16),
        "activation_recomputation": Input(
            "activations that are recomputed", kind="choice", choices=("none", "selective", "full"), default="none"
        ),
        "sequence_parallel": Input("split norms and dropouts over the tensor group", kind="flag", default=True),
        "optimizer": Input("optimizer", kind="object", default="adam"),
        "optimizer_offload": Input(
            "fraction of the optimizer state that rests in host memory", low=0, high=1, default=0.0
        ),
        "overlap_comm": Input("hide gradient synchronisation behind the backward pass", kind="flag", default=False),
        "overlap_efficiency": Input("fraction of it that can hide", low=0, high=1, default=0.85),
        "overlap_tp": Input("fraction of tensor-parallel communication that hides", low=0, high=1, default=0.0),
        "overlap_ep": Input("fraction of expert communication that hides", low=0, high=1, default=0.0),
        "overlap_cp": Input("fraction of context-parallel communication that hides", low=0, high=1, default=0.85),
        "overlap_pp": Input("fraction of pipeline sends that hides", low=0, high=1, default=0.85),
        "congestion_factor": Input("slow-down of the fabric", low=1, high=1000, default=1.0),
        "straggler_factor": Input("slow-down of the slowest device", low=1, high=1000, default=1.0),
        "moe_routing_imbalance_factor": Input(
            "load of the busiest expert device over the mean", low=1, high=1000, default=1.0
        ),
        "gradient_accumulation_steps": Input(
            "micro-steps of batch_size before one synchronisation", low=1, high=1e6, whole=True, default=1
        ),
        "seq_len": Input("tokens per sequence", low=1, high=1e8, whole=True, default=2048),
        "stack": Input(
            "software, for efficiency='calibrated'",
            kind="choice",
            choices=stack_names(),
            default=DEFAULT_STACK,
        ),
        "power_cap": Input(
            "power limit of each accelerator, for efficiency='calibrated'",
            kind="quantity",
            unit="W",
            low=0,
            low_open=True,
            high=1e5,
            default=None,
            example="500 W",
        ),
        "memory_headroom": Input(
            "memory that allocator and libraries take beyond what is counted, as a fraction of it",
            low=0,
            high=1,
            default=constant("allocator_overhead_fraction").number,
        ),
    }
    equations = (
        Equation(
            "tp_communication_latency",
            "T_tp = m L_stage s x ring(TP, tokens x h x bytes)",
            r"T_{\mathrm{tp}} = m\,L_{\mathrm{stage}}\,s\left(\frac{2(T-1)}{T}\frac{M}{B} + 2(T-1)\alpha\right)",
            {
                "m": ("micro_batches", ""),
                "L_stage": ("stage_layers", ""),
                "s": ("tensor_sums", ""),
                "M": ("tensor_message", "byte"),
                "B": ("intra_bandwidth", "byte/s"),
                "T": ("tp", ""),
            },
            when="first_order",
        ),
        Equation(
            "dp_communication_latency",
            "T_dp = 2 (D-1)/D M/B + 2 (D-1) alpha",
            r"T_{\mathrm{dp}} = \frac{2(D-1)}{D}\frac{M}{B} + 2(D-1)\alpha",
            {
                "D": ("dp", ""),
                "M": ("gradient_bytes", "byte"),
                "B": ("inter_bandwidth", "byte/s"),
                "alpha": ("inter_latency", "s"),
            },
            when="first_order",
        ),
        Equation(
            "bubble_fraction",
            "phi / (m + phi)",
            r"\frac{\varphi}{m + \varphi}",
            {"phi": ("idle", ""), "m": ("micro_batches", "")},
            when="first_order",
        ),
        Equation(
            "step_latency_total",
            "T = (m + phi) (T_compute + T_comm) / m + exposed T_dp",
            r"T = \frac{m+\varphi}{m}\,(T_{\mathrm{compute}} + T_{\mathrm{comm}}) + T_{\mathrm{dp}}^{\mathrm{exposed}}",
            {
                "T_compute": ("compute", "s"),
                "T_comm": ("inside", "s"),
                "exposed T_dp": ("exposed_data", "s"),
                "phi": ("idle", ""),
                "m": ("micro_batches", ""),
            },
            when="first_order",
        ),
        Equation(
            "step_latency_total",
            "T = s (T_stage + T_bubble + exposed T_dp + T_optimizer) + T_fixed",
            r"T = s\left(T_{\mathrm{stage}} + T_{\mathrm{bubble}} + T_{\mathrm{dp}}^{\mathrm{exposed}} + T_{\mathrm{opt}}\right) + T_0",
            {
                "s": ("scale", ""),
                "T_stage": ("busy", "s"),
                "T_bubble": ("bubble_time", "s"),
                "exposed T_dp": ("exposed_calibrated", "s"),
                "T_optimizer": ("optimizer_time", "s"),
                "T_fixed": ("fixed", "s"),
            },
            when="calibrated",
        ),
        Equation(
            "offload_latency",
            "T_host = f S / L, in and out at once; the step has it beside the terms above",
            r"T_{\mathrm{host}} = \frac{f\,S}{L}",
            {"f S": ("host_state", "byte"), "L": ("host_link", "byte/s")},
            when="host_state",
        ),
        Equation(
            "scaling_efficiency",
            "eta_scale = T_ideal / T, with T_ideal the compute of evenly split layers",
            r"\eta_{\mathrm{scale}} = T_{\mathrm{ideal}} / T",
            {"T_ideal": ("ideal", "s"), "T": ("step", "s")},
        ),
    )
    known_fallacies = (
        "Tensor parallelism moves weights: it moves activations, four times a layer and micro-batch.",
        "NVLink's 900 GB/s is what a ring gets: it is the sum of both directions, a ring gets half.",
        "More GPUs at the same batch keep efficiency: communication stays while the work of each shrinks.",
        "A pipeline bubble is paid once: it is paid in micro-batch times, communication included.",
    )

    def _solve(self, x: SimpleNamespace, assumed: dict[str, str]) -> DistributedResult:
        """Evaluate one optimizer step."""
        model, fleet = x.model, x.fleet
        chip = fleet.node.accelerator
        sequence = not model.fixed_shape
        if not sequence and "seq_len" in assumed:
            del assumed["seq_len"]
        layout = plan_layout(
            model,
            fleet.total_accelerators,
            x.batch_size,
            x.seq_len if sequence else 1,
            tp=x.tp_size,
            pp=x.pp_size,
            ep=x.ep_size,
            cp=x.cp_size,
            virtual_stages=x.v_stages,
            micro_batches=x.microbatch_count,
            assumed=assumed,
        )
        schedule = x.schedule or ("interleaved" if x.v_stages > 1 else "1f1b")
        if schedule == "dualpipe" and layout.pp % 2:
            raise InputError(f"DualPipe needs an even number of stages, got PP {layout.pp}.", field="schedule")
        if schedule != "interleaved" and x.v_stages > 1:
            raise InputError(f"Virtual stages belong to the interleaved schedule, not to {schedule}.", field="v_stages")
        if layout.pp == 1:
            schedule = "1f1b"
        assumed.setdefault("schedule", schedule)
        peak, note = arithmetic_peak(chip, x.precision)
        if note:
            assumed["arithmetic"] = note
        net = network(fleet, topology_share(fleet, x.topology_override, assumed), assumed)
        calibrated = x.efficiency == CALIBRATED
        if not calibrated:
            assumed.pop("stack", None)
        software = adopt_stack(x, assumed) if calibrated else None
        # Stacks that join ZeRO 3 and a pipeline gather a stage once a step and keep it.
        x.weights_gathered = calibrated and layout.pp > 1
        if x.weights_gathered and x.zero_stage == 3:
            assumed["weights"] = "gathered for the whole step, as ZeRO 3 in a pipeline is run"
        terms, context = distributed_step(x, layout, schedule, peak, net)
        context |= {"first_order": not calibrated, "calibrated": calibrated}
        if software is not None:
            share = net.inter_bandwidth / to_si(fleet.bandwidth_per_accelerator, "byte/s")
            terms, timed = calibrated_terms(x, layout, software, share, x.moe_routing_imbalance_factor, assumed)
            x.efficiency = calibrated_context(context, timed, layout, peak, software)
            band = interval(training_regime(training_shape(x.model), x.is_lora), "extrapolating" not in assumed)
            context["band"] = band
            if band.extrapolating:
                assumed["interval"] = "extrapolating: no measurement of this kind is near"
        state = self._state(x, layout, schedule)
        outcome = self._answer(x, assumed, layout, schedule, peak, terms, context, state)
        if calibrated and outcome.mfu > 1:
            raise InputError(
                f"The calibrated step of {model.name} in {x.precision} would be faster than the chip's peak allows: its form "
                "does not hold for such a model or format; give efficiency as a number.",
                field="efficiency",
            )
        return outcome

    @staticmethod
    def _state(x: Any, layout: Layout, schedule: str) -> TrainingState:
        return training_state(
            x.model,
            layout.micro_batch,
            x.seq_len,
            x.precision,
            optimizer=x.optimizer,
            recompute=x.activation_recomputation,
            zero_stage=x.zero_stage,
            dp=layout.dp,
            tp=layout.tp,
            pp=layout.pp,
            ep=layout.ep,
            cp=layout.cp,
            lora_rank=x.lora_rank if x.is_lora else None,
            sequence_parallel=x.sequence_parallel,
            stages_in_flight=in_flight(schedule, layout),
            optimizer_offload=x.optimizer_offload,
            weights_gathered=x.weights_gathered,
        )

    def _answer(
        self,
        x: Any,
        assumed: dict[str, str],
        layout: Layout,
        schedule: str,
        peak: float,
        terms: StepTerms,
        context: dict[str, Any],
        state: TrainingState,
    ) -> DistributedResult:
        chip = x.fleet.node.accelerator
        capacity = to_si(chip.memory.capacity, "byte")
        steps = x.gradient_accumulation_steps
        # Micro-steps repeat everything but the synchronisation.
        pipeline_time = terms.step - terms.exposed_data
        link = host_link(chip) if x.optimizer_offload else None
        offload = 0.0 if link is None else host_round_trip(state.host, link)
        step = steps * pipeline_time + terms.exposed_data + offload
        compute = steps * terms.compute
        ideal = compute * context["balance"] / x.straggler_factor
        fits = state.total * (1 + x.memory_headroom) <= capacity
        accelerators = x.fleet.total_accelerators
        model_flops = context["model_flops"] * steps
        mfu = model_flops / (step * accelerators * peak)
        hfu = context["hardware_flops"] * steps / (step * accelerators * peak)
        binding, trace, remedies = self._binding(
            x, layout, schedule, terms, step, compute, offload, state, capacity, fits
        )
        outcome = DistributedResult(
            feasible=fits,
            assumptions=assumed,
            binding=binding,
            step_latency_total=quantity(step, "s"),
            compute_latency=quantity(compute, "s"),
            dp_communication_latency=quantity(terms.data, "s"),
            dp_exposed_latency=quantity(terms.exposed_data, "s"),
            tp_communication_latency=quantity(steps * terms.tensor, "s"),
            ep_communication_latency=quantity(steps * terms.expert, "s"),
            cp_communication_latency=quantity(steps * terms.context, "s"),
            pp_communication_latency=quantity(steps * terms.pipeline, "s"),
            communication_latency=quantity(
                terms.data + steps * (terms.tensor + terms.expert + terms.context + terms.pipeline), "s"
            ),
            pipeline_bubble_latency=quantity(steps * terms.bubble, "s"),
            offload_latency=quantity(offload, "s"),
            bubble_fraction=float(bubble_fraction(context["idle"], layout.micro_batches))
            if context["first_order"]
            else steps * terms.bubble / step,
            scaling_efficiency=ideal / step,
            effective_throughput=quantity(x.batch_size * steps / step, "1/second"),
            tokens_per_second=quantity(context["tokens"] * steps / step, "1/second"),
            mfu=mfu,
            hfu=hfu,
            parallelism={"dp": layout.dp, "tp": layout.tp, "pp": layout.pp, "ep": layout.ep, "cp": layout.cp},
            microbatch_count=layout.micro_batches,
            memory_per_accelerator=quantity(state.total, "byte"),
            memory_breakdown={
                "weights": quantity(state.weights, "byte"),
                "gradients": quantity(state.gradients, "byte"),
                "optimizer_state": quantity(state.optimizer, "byte"),
                "activations": quantity(state.activations, "byte"),
                "buffers": quantity(state.buffers, "byte"),
            },
            memory_capacity=quantity(capacity, "byte"),
            step_interval=time_band(context.get("band"), step),
            constraint_trace=trace,
            remedies=remedies,
        )
        inside = step - offload - terms.exposed_data - steps * terms.bubble - compute
        outcome._context = {
            **context,
            "step": step,
            "compute": compute,
            "ideal": ideal,
            "inside": inside,
            "exposed_data": terms.exposed_data,
            "host_state": state.host,
            "host_link": link,
            "local_batch": layout.local_batch * steps,
            "accelerators": accelerators,
            "peak": peak,
            "efficiency": x.efficiency,
            "dispatch": to_si(chip.dispatch_tax, "s"),
        }
        outcome._sources = {"model": cite(x.model.metadata), "hardware": cite(chip.metadata)}
        return outcome

    @staticmethod
    def _binding(
        x: Any,
        layout: Layout,
        schedule: str,
        terms: StepTerms,
        step: float,
        compute: float,
        offload: float,
        state: TrainingState,
        capacity: float,
        fits: bool,
    ) -> tuple[Binding, tuple[str, ...], tuple[str, ...]]:
        if not fits:
            change = fitting_change(x, layout, schedule, capacity / (1 + x.memory_headroom))
            sentence = (
                f"Wall 2 (Memory): each accelerator needs {state.total * (1 + x.memory_headroom) / 1e9:.1f} GB and has {capacity / 1e9:.1f} GB; "
                f"{change or 'no smaller change than more accelerators or a smaller batch helps'}. Times are given as if it fitted."
            )
            return Binding(2, "Memory", state.total / capacity, sentence), (sentence,), (change,) if change else ()
        steps = x.gradient_accumulation_steps
        lost = {
            "tensor parallelism": steps * (1 - x.overlap_tp) * terms.tensor,
            "expert parallelism": steps * (1 - x.overlap_ep) * terms.expert,
            "context parallelism": steps * terms.exposed_context,
            "pipeline sends": steps * (1 - x.overlap_pp) * terms.pipeline,
            "the pipeline bubble": steps * terms.bubble,
            "gradient synchronisation": terms.exposed_data,
            "optimizer state over the host link": offload,
        }
        cause = max(lost, key=lambda name: lost[name])
        total = sum(lost.values())
        if total > compute:
            sentence = f"Wall 14 (Communication) binds: {total / step:.1%} of the step, most of it {cause}."
            return Binding(14, "Communication", total / compute, sentence), (sentence,), ()
        share = (
            f"; the next wall is 14 (Communication): {total / step:.1%} of the step, most of it {cause}"
            if total
            else ""
        )
        sentence = f"Wall 1 (Compute) binds: {compute / step:.1%} of the step{share}."
        return Binding(1, "Compute", compute / total if total else None, sentence), (sentence,), ()


def time_band(band: Interval | None, seconds: float) -> tuple[Any, Any] | None:
    """90 % interval of a step; the bands are of rates, so a time is divided by them."""
    if band is None:
        return None
    return quantity(seconds / band.high, "s"), quantity(seconds / band.low, "s")


def calibrated_context(
    context: dict[str, Any], timed: CalibratedStep, layout: Layout, peak: float, software: Stack
) -> float:
    """Puts a calibrated step's numbers into the context; gives the efficiency that it amounts to."""
    context |= {
        "balance": 1.0,
        "bubble_time": timed.bubble,
        "optimizer_time": timed.optimizer,
        "scale": timed.scale,
        "fixed": software.step_overhead,
        "busy": (timed.step - software.step_overhead) / timed.scale
        - timed.bubble
        - timed.optimizer
        - timed.exposed_data,
        "exposed_calibrated": timed.exposed_data,
    }
    reached = context["device_flops"] * layout.micro_batches / (timed.compute * peak)
    context["compute_micro"] = timed.compute / layout.micro_batches
    return min(float(reached), 1.0)
