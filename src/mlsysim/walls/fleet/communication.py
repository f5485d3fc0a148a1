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
stack (:mod:`mlsysim.cases.train_layers`). Optimizer state may rest on the host
(:mod:`mlsysim.cases.offload`). The optimizer's own work (:mod:`mlsysim.cases.update`) is 1 % of a large step, and half of one with a batch of one; the
paper's first-order step has none, ``update_step`` adds it. Left out of the first order: stragglers and congestion beyond the two factors given, memory fragmentation (2 to 10 %), and communication that slows the computing it hides behind.
"""

from __future__ import annotations

from typing import Annotated

from mlsysim.cases import joules, one_pass, schedule, training_memory
from mlsysim.cases.assumptions import INFERRED
from mlsysim.cases.layout import plan_layout
from mlsysim.cases.training import Training
from mlsysim.errors import InputError
from mlsysim.physics.pipeline import SCHEDULES
from mlsysim.timing.runtimes import training_runtimes
from mlsysim.timing.stacks import ALONE, stack_names
from mlsysim.units.fields import Words
from mlsysim.units.registry import to_si
from mlsysim.units.text import bytes_text
from mlsysim.vocabulary import Setting, listed, worded
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, written
from mlsysim.walls.binding import AS_IF, too_full
from mlsysim.walls.fleet.step_inputs import job_of, say_idle_inputs, say_sharing, say_split, schedule_given, trainer_of
from mlsysim.walls.node.performance import PerformanceProfile
from mlsysim.walls.result import Memory, Power, Rate, Result, Time

CARDS = """
14 Communication: collective bandwidth
T = 2 (N-1)/N M/B + 2 (N-1) alpha (Shoeybi et al. 2019)
What does the fleet lose to its own coordination?
"""


class DistributedResult(Result):
    """One optimizer step on a fleet."""

    step_latency_total: Annotated[Time, "seconds"]
    compute_latency: Annotated[Time, "compute"]
    dp_communication_latency: Annotated[Time, "data"]
    dp_exposed_latency: Annotated[Time, "exposed_data"]
    tp_communication_latency: Annotated[Time, "tensor"]
    ep_communication_latency: Annotated[Time, "expert"]
    cp_communication_latency: Annotated[Time, "context"]
    pp_communication_latency: Annotated[Time, "pipeline"]
    communication_latency: Time
    pipeline_bubble_latency: Annotated[Time, "bubble"]
    offload_latency: Annotated[Time, "offload"]
    bubble_fraction: float
    scaling_efficiency: float
    effective_throughput: Rate
    tokens_per_second: Rate
    mfu: float
    hfu: float
    accelerator_power: Power | None
    parallelism: dict[str, int]
    microbatch_count: Annotated[int, "micro_batches"]
    memory_per_accelerator: Memory
    memory_breakdown: dict[str, Memory]
    memory_capacity: Annotated[Memory, "capacity"]
    step_interval: tuple[Time, Time] | None = None
    constraint_trace: tuple[str, ...] = ()
    remedies: tuple[Words, ...] = ()

    @property
    def node_profile(self) -> PerformanceProfile:
        """What one device computes in a step, without communication."""
        ledger, c = self.ledger, self._facts.context
        assert ledger is not None
        compute, parts = to_si(self.compute_latency, "s"), [part for part in ledger.parts if part.resource]
        arithmetic, memory, launches = (
            sum(part.exposed + part.hidden for part in parts if part.wall == wall) for wall in (1, 2, 3)
        )
        held = to_si(self.memory_per_accelerator, "byte"), to_si(self.memory_capacity, "byte")
        times = compute, arithmetic, memory, launches
        timed = one_pass.Timed(*times, *held, ledger.binding_wall, lambda: ledger, None)
        moved, flops = ledger.total("moved") or c["device_bytes"], c["device_flops"]
        return PerformanceProfile.of(
            self._facts.assumed,
            feasible=self.feasible,
            binding=self.binding,
            throughput=c["local_batch"] / compute,
            bottleneck="Compute" if self.feasible and arithmetic >= memory else "Memory",
            arithmetic_intensity=flops * c["amounts"].balance / moved,
            peak_flops_actual=flops / compute,
            peak_bw_actual=c["bandwidth"],
            mfu=c["model_flops"] / self.accelerators / (compute * c["peak"]),
            hfu=flops / (compute * c["peak"]),
            phase="training",
            shown={"timed": timed, "samples": c["local_batch"]},
        )

    @property
    def accelerators(self) -> int:
        """How many take part."""
        degrees = self.parallelism
        return degrees["dp"] * degrees["tp"] * degrees["pp"] * degrees["cp"]


_EQUATIONS = r"""
    tp_communication_latency if first_order: T_tp = m L_stage s x ring(TP, tokens x h x bytes)
        T_{\mathrm{tp}} = m\,L_{\mathrm{stage}}\,s\left(\frac{2(T-1)}{T}\frac{M}{B} + 2(T-1)\alpha\right)
        m = micro_batches, L_stage = amounts.stage_layers, s = amounts.tensor_sums, M = amounts.tensor_message in byte, B = intra_bandwidth in byte/s, T = tp
    dp_communication_latency if one_ring: T_dp = ((n-1)/n/B_n + (k-1)/(k n)/B) V + c ((n-1) a_n + (k-1) alpha) + T_sites, rings of n in a node, then of k nodes
        T_{\mathrm{dp}} = \left(\frac{n-1}{n\,B_n} + \frac{k-1}{k\,n\,B}\right) V + c\left((n-1)\,\alpha_n + (k-1)\,\alpha\right) + T_{\mathrm{sites}}
        n = ring_inside, k = ring_nodes, V = ring_bytes in byte, c = ring_times, B_n = intra_bandwidth in byte/s, a_n = intra_latency in s, B = inter_bandwidth in byte/s, alpha = inter_latency in s, T_sites = ring_sites in s
    dp_communication_latency if two_rings: T_dp = ((n-1)/n/B_n + (k-1)/(k n)/B) V + c ((n-1) a_n + (k-1) alpha) + 2 [((p-1)/p/B_n + (q-1)/(q p)/B) U + (p-1) a_n + (q-1) alpha] + T_sites: rings of a shard, then of its copies, p in a node and q nodes
        T_{\mathrm{dp}} = \left(\frac{n-1}{n\,B_n} + \frac{k-1}{k\,n\,B}\right) V + c\left((n-1)\,\alpha_n + (k-1)\,\alpha\right) + 2\left[\left(\frac{p-1}{p\,B_n} + \frac{q-1}{q\,p\,B}\right) U + (p-1)\,\alpha_n + (q-1)\,\alpha\right] + T_{\mathrm{sites}}
        n = ring_inside, k = ring_nodes, V = ring_bytes in byte, c = ring_times, p = copies_inside, q = copies_nodes, U = copies_bytes in byte, B_n = intra_bandwidth in byte/s, a_n = intra_latency in s, B = inter_bandwidth in byte/s, alpha = inter_latency in s, T_sites = ring_sites in s
    dp_communication_latency if other_rings: T_dp = T_layers + T_copies + T_experts: over the ranks that share layers, over copies of a shard (HSDP), over those that share experts; each a ring inside nodes and between them, or a tree where that is faster
        T_{\mathrm{dp}} = T_{\mathrm{layers}} + T_{\mathrm{copies}} + T_{\mathrm{experts}}
        T_layers = ring_layers in s, T_copies = ring_copies in s, T_experts = ring_experts in s
    bubble_fraction if first_order: phi / (m + phi)
        \frac{\varphi}{m + \varphi}
        phi = idle, m = micro_batches
    step_latency_total if without_host: T = (m + phi) (T_compute + T_comm) / m + waited T_pp + exposed T_dp + T_update
        T = \frac{m+\varphi}{m}\,(T_{\mathrm{compute}} + T_{\mathrm{comm}}) + T_{\mathrm{pp}}^{\mathrm{waited}} + T_{\mathrm{dp}}^{\mathrm{exposed}} + T_{\mathrm{update}}
        T_compute = compute_latency in s, T_comm = inside in s, waited T_pp = sends_waited in s, exposed T_dp = dp_exposed_latency in s, T_update = update in s, phi = idle, m = micro_batches
    step_latency_total if beside_host: T = (m + phi) (T_compute + T_comm) / m + waited T_pp + exposed T_dp + T_update + T_host
        T = \frac{m+\varphi}{m}\,(T_{\mathrm{compute}} + T_{\mathrm{comm}}) + T_{\mathrm{pp}}^{\mathrm{waited}} + T_{\mathrm{dp}}^{\mathrm{exposed}} + T_{\mathrm{update}} + T_{\mathrm{host}}
        T_compute = compute_latency in s, T_comm = inside in s, waited T_pp = sends_waited in s, exposed T_dp = dp_exposed_latency in s, T_update = update in s, T_host = offload_latency in s, phi = idle, m = micro_batches
    step_latency_total if calibrated: T = sum of the parts on the critical path
        T = \sum_i t_i\,\frac{\partial T}{\partial t_i}
    offload_latency if host_state: T_host = f S / L, in and out at once
        T_{\mathrm{host}} = \frac{f\,S}{L}
        f S = host_state in byte, L = host_link in byte/s
    offload_latency if host_updated: T_host = max((2 f S + 4 P) / (k M), 2 P / L): the host reads gradients, reads and writes state, writes weights
        T_{\mathrm{host}} = \max\left(\frac{2 f S + 4 P}{k M}, \frac{2 P}{L}\right)
        f S = host_updated in byte, P = host_parameters, k M = host_memory in byte/s, L = host_link in byte/s
    scaling_efficiency: eta_scale = T_ideal / T, with T_ideal the work of evenly split layers and of the update
        \eta_{\mathrm{scale}} = T_{\mathrm{ideal}} / T
        T_ideal = ideal in s, T = step in s
"""


class DistributedModel(Resolver[DistributedResult]):
    """A training step under tensor, pipeline, expert, context and data parallelism."""

    walls = (14,)
    inputs = declared(f"""
        model
        fleet | fleet | the fleet: a Fleet or the name of a cluster in the zoo | Frontier_8K
        batch_size = 1 | whole [1, 1e9] | sequences (or samples) per micro-step, over the whole fleet
        precision, efficiency or calibrated
        tp_size = 1 | whole [1, 65536] | tensor-parallel degree
        pp_size = 1 | whole [1, 4096] | pipeline stages
        ep_size = 1 | whole [1, 65536] | expert-parallel degree
        cp_size = 1 | whole [1, 4096] | context-parallel degree
        v_stages = 1 | whole [1, 128] | virtual stages per device
        microbatch_count? | whole [1, 1e7] | micro-batches of each replica
        microbatch_group_size? | whole [1, 1e7] | micro-batches that an interleaved schedule takes through one chunk before the \
            next | | as equal as possible, one for each stage at least
        schedule? | one of {", ".join(SCHEDULES)} | pipeline schedule | | 1f1b, interleaved with v_stages
        topology_override? | object | topology to assume instead of the fabric's
        zero_stage = 0 | whole [0, 3] | ZeRO stage
        zero_shard? | whole [1, 1e8] | ranks that share what ZeRO shards (HSDP) | | all that hold the same weights
        reshard? | flag | ZeRO 2 and 3 gather and scatter for every micro-batch, else they hold all of it and send once | | yes; no in a \
            pipeline with efficiency='calibrated'
        is_lora = no | flag | train low-rank adapters on frozen weights
        lora_rank = 16 | whole [1, 4096] | rank of the adapters
        lora_targets = attention | one of attention, all | products that adapters stand beside
        activation_recomputation = none | one of none, selective, full | activations that are recomputed
        recomputed? | object | what 'selective' computes again: attention, norm, light (norms and activations), up (latent \
            projections), mlp (dense feed-forward layers), shared (shared experts), moe (routed experts), moe_act (their activation), half of \
            the products, or several joined by + | norm+up | the stack's habit
        sequence_parallel = yes | flag | split norms and dropouts over the tensor group
        optimizer = adam | object | optimizer
        update_step = no | flag | count the optimizer's own work in a first-order step; a calibrated one always has it
        gradient_precision? | object | format in which gradients are kept and sent | fp32 | the stack's; that of the weights
        activation_precision? | object | format in which what products and activation functions read is kept | fp8 | the stack's; 16 bit
        exchange_precision? | precision | format in which tokens are sent to experts; what comes back has 16 bits | | the recipe's
        wide_layers? | [0, 1e5] | layers that stay in 16 bits where products are narrower | | the recipe's
        optimizer_offload = 0.0 | [0, 1] | fraction of the optimizer state that rests in host memory
        host_update = no | flag | the host computes the update of what rests there (ZeRO-Offload), else it comes to the device and returns
        weights_offload = 0.0 | [0, 1] | fraction of the weights that rests there
        activations_offload = 0.0 | [0, 1] | fraction of the activations that waits there
        overlap_comm = no | flag | hide gradient synchronisation behind the backward pass
        overlap_efficiency = 0.85 | [0, 1] | fraction of it that can hide
        overlap_tp = 0.0 | [0, 1] | fraction of tensor-parallel communication that hides
        overlap_ep = 0.0 | [0, 1] | fraction of expert communication that hides
        overlap_cp = 0.85 | [0, 1] | fraction of context-parallel communication that hides
        overlap_pp = 0.85 | [0, 1] | fraction of a pipeline send that hides beyond what the schedule hides
        congestion_factor = 1.0 | [1, 1000] | slow-down of the fabric
        straggler_factor = 1.0 | [1, 1000] | slow-down of the slowest device
        moe_routing_imbalance_factor = 1.0 | [1, 1000] | load of the busiest expert device over the mean
        gradient_accumulation_steps = 1 | whole [1, 1e6] | micro-steps of batch_size before one synchronisation
        seq_len = 2048 | whole [1, 1e8] | tokens per sequence
        stack? | one of {", ".join([*stack_names(), *training_runtimes()])} | software, for efficiency='calibrated' | | {ALONE} on one \
            accelerator, on more that of the chip's time; of networks of fixed shape a runtime
        power_cap
        fp8_attention = no | flag | attention in fp8, for efficiency='calibrated'
        deduplicated_exchange? | flag | send a token once to each node that has experts for it | | no
        predicted_tokens = 0 | whole [0, 16] | tokens beyond the next that modules predict, for efficiency='calibrated'
        target_share = 1.0 | (0, 1000] | tokens of the decoder over those of the encoder, for efficiency='calibrated'
        memory_headroom = constant allocator_overhead_fraction | [0, 1] | memory that allocator and libraries take beyond what \
            is counted, as a fraction of it
    """)
    equations = written(_EQUATIONS)
    known_fallacies = (
        "Tensor parallelism moves weights: it moves activations, four times a layer and micro-batch.",
        "NVLink's 900 GB/s is what a ring gets: it is the sum of both directions, a ring gets half.",
        "More GPUs at the same batch keep efficiency: communication stays while the work of each shrinks.",
        "A pipeline bubble is paid once: it is paid in micro-batch times, communication included.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> DistributedResult:
        """Evaluate one optimizer step."""
        model, fleet = x.model, x.fleet
        if model.fixed_shape:
            assumed.pop("seq_len", None)
        length = 1 if model.fixed_shape else x.seq_len
        degrees = {"tp": x.tp_size, "pp": x.pp_size, "ep": x.ep_size, "cp": x.cp_size, "virtual_stages": x.v_stages}
        cut = {"micro_batches": x.microbatch_count, "schedule": schedule_given(x), "group": x.microbatch_group_size}
        cut |= {"shard": x.zero_shard, "sites": fleet.sites}
        layout = plan_layout(model, fleet.total_accelerators, x.batch_size, length, assumed=assumed, **degrees, **cut)
        trainer = trainer_of(x, assumed).congested(x.congestion_factor)
        if x.schedule is None:
            assumed.say("schedule", schedule.schedule_of(layout), INFERRED)
        job = job_of(x, trainer, assumed)
        say_idle_inputs(x, layout, trainer, assumed)
        say_sharing(job, layout, assumed)
        say_split(model, layout, assumed, first_order=trainer.software is None)
        asked, band = Training(trainer, job, layout), None
        step = asked.step
        if trainer.software is not None:
            if not asked.holds:
                raise InputError(
                    f"The calibrated step of {job.model.name} in {job.precision} would be faster than the chip's peak allows: its "
                    "form does not hold for such a model or format; give efficiency as a number.",
                    field="efficiency",
                )
            band, words = trainer.software.band(job, fleet.total_accelerators)
            assumed.say("interval", band.key, INFERRED, words)
        fits, stopped = bool(asked.fits), None
        remedies: tuple[str, ...] = ()
        if not fits:
            stopped, remedies = _does_not_fit(asked)
        return DistributedResult.of(
            assumed,
            step,
            layout,
            trainer,
            feasible=fits,
            binding=stopped,
            communication_latency=step.communication,
            bubble_fraction=float(step.bubble / (step.seconds if trainer.software else step.paced)),
            scaling_efficiency=step.ideal / step.seconds,
            effective_throughput=asked.samples_per_second,
            tokens_per_second=asked.tokens_per_second,
            mfu=asked.mfu,
            hfu=asked.hfu,
            parallelism={name: getattr(layout, name) for name in ("dp", "tp", "pp", "ep", "cp")},
            memory_per_accelerator=asked.memory,
            memory_breakdown={each.name.replace(" ", "_"): each.bytes for each in asked.held if each.where == "device"},
            # None is shorter than the model's operations at the peak.
            step_interval=None if band is None else band.around(step.seconds, step.seconds * asked.mfu),
            constraint_trace=() if stopped is None else (stopped.sentence,),
            remedies=remedies,
            shown=asked.shown,
            cited={"model": x.model, "hardware": fleet.node.accelerator},
            accelerator_power=asked.watts,
            case=lambda: joules.with_joules(asked.ledger, asked.draw),
            noun="step",
        )


def _does_not_fit(asked: Training) -> tuple[Binding, tuple[str, ...]]:
    """What stops a layout, and the smallest change that would help."""
    memory, capacity = asked.memory, asked.trainer.capacity
    change = training_memory.fitting_change(asked.job, asked.layout, capacity)
    remedy = training_memory.NOTHING_HELPS
    if change is not None:
        remedy = worded("it fits with ", listed(Setting(*pair) for pair in change.items()))
    needs = f"each accelerator needs {bytes_text(memory)} and has {bytes_text(capacity)}"
    binding = too_full(needs, memory, capacity, remedy, AS_IF)
    return binding, () if change is None else (remedy,)
