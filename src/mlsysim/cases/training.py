"""``Training``: a job under a trainer in one layout, or in an array of them. What is held, done, timed and drawn in a step of it.

Every face asks it: walls 2 and 14, points of a sweep, searches over layouts, fits. Each part is worked out once, when somebody asks.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cached_property
from typing import Any

from mlsysim.cases.algebra import PLAIN, Algebra, Clocked, ledger_of
from mlsysim.cases.job import Job
from mlsysim.cases.joules import Draw, parts_of, throttled
from mlsysim.cases.layout import Layout
from mlsysim.cases.ledger import Held, Ledger
from mlsysim.cases.offload import HostTimes, beside_computing, host_round_trip, updated_by_host
from mlsysim.cases.replica_messages import Shared, rings
from mlsysim.cases.train import Step
from mlsysim.cases.train_whole import (
    Amounts,
    first_order,
    first_order_amounts,
    narrow_share,
    repeated_share,
    weights_read,
)
from mlsysim.cases.trainer import Software, Trainer
from mlsysim.cases.training_memory import MODES, on_device, training_held, training_state_of, with_host
from mlsysim.models.demand import Demand
from mlsysim.models.keeping import HALF
from mlsysim.models.recompute import parts_of as recomputed_parts
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.timing.power import Activity, ChipPower, Clock, chip_power, equivalent, power_of, vector_share
from mlsysim.units.ops import some, where


class Training:
    """Numbers of the job and the layout may be arrays."""

    def __init__(self, trainer: Trainer, job: Job, layout: Layout, a: Algebra = PLAIN) -> None:
        self.trainer, self.job, self.layout, self.plain = trainer, job, layout, a

    def under(self, software: Software, job: Job) -> Training:
        """The same bytes and operations with other times: under other constants, and what hides otherwise."""
        found = Training(replace(self.trainer, software=software), job, self.layout)
        found.__dict__ |= {"held": self.held, "micro": self.micro}
        return found

    # --- what is held and done ----------------------------------------------------------------------------------------

    @cached_property
    def held(self) -> tuple[Held, ...]:
        """What is held, with the host too."""
        return training_held(self.job, self.layout, self.plain.once)

    @cached_property
    def memory(self) -> Any:
        """Bytes on each accelerator."""
        return on_device(self.held)

    @property
    def fits(self) -> Any:
        """Whether they are at most its capacity."""
        return self.memory <= self.trainer.capacity

    @cached_property
    def micro(self) -> Demand:
        """Operations, bytes and tokens of one micro-batch of a replica, counted as models are; what is recomputed counts for the hardware."""
        of = self.layout.micro_batch, self.job.recompute
        return self.plain.once(("micro", *of), _micro, self.job, *of)

    @property
    def micro_batches(self) -> Any:
        """Those of a replica in a step, each with the demand of a micro-batch."""
        return self.layout.micro_batches * self.job.accumulation

    # --- time ---------------------------------------------------------------------------------------------------------

    @cached_property
    def step(self) -> Step:
        """One optimizer step."""
        return self.timed(self.plain)

    def timed(self, a: Algebra) -> Step:
        """The same with an algebra, at the clock that keeps the limit of power."""
        return self._timed(a if self.clock is None else Clocked(a, self.clock.slower, self.clock.streaming))

    @cached_property
    def clock(self) -> Clock | None:
        """What keeps the limit of power, where there is one: of the step without it, so much follows the clock."""
        trainer = self.trainer
        if trainer.cap is None or trainer.chip is None:
            return None
        ledger = ledger_of(lambda tape: self._timed(tape).seconds)
        return throttled(trainer.chip, self._activity(self._timed(PLAIN), 1.0), ledger, trainer.cap)

    @property
    def ledger(self) -> Ledger:
        """Parts of a step and bytes held."""
        return ledger_of(lambda a: self.timed(a).seconds, self.held, self.trainer.capacity)

    @property
    def possible(self) -> Any:
        """Operations that all accelerators could do in a step."""
        layout = self.layout
        ranks = layout.dp * layout.tp * layout.pp * layout.cp
        return self.step.seconds * ranks * self.trainer.device.peak

    @cached_property
    def mfu(self) -> Any:
        """Operations of the model over those that were possible."""
        return self.micro.flops * self.layout.dp * self.micro_batches / self.possible

    @property
    def hfu(self) -> Any:
        """The same with what is computed again."""
        return self.micro.hardware_flops * self.layout.dp * self.micro_batches / self.possible

    @property
    def holds(self) -> Any:
        """Whether the form does: a calibrated one that would beat the peak is of other models or formats."""
        return self.mfu <= 1 if self.trainer.software is not None else True

    @property
    def tokens_per_second(self) -> Any:
        """Tokens of all replicas."""
        return self.micro.tokens * self.layout.dp * self.micro_batches / self.step.seconds

    @property
    def samples_per_second(self) -> Any:
        """Sequences or samples of all replicas."""
        return self.layout.dp * self.layout.local_batch * self.job.accumulation / self.step.seconds

    def _timed(self, a: Algebra) -> Step:
        trainer, job, layout = self.trainer, self.job, self.layout
        offload, s = HostTimes(), trainer.software
        if trainer.host_link is not None:
            host, link = with_host(job, layout, self.held), trainer.host_link
            moves = not (_nothing(job.weights_offload) and _nothing(job.activations_offload))
            beside = beside_computing(host.weights, host.activations, link) if moves else None
            state = host_round_trip(host.optimizer, link)
            if trainer.host_memory is not None:
                each = job.keeps.bytes_each(job.optimizer, HALF, job.model)[2]
                gradients = HALF / each * host.optimizer
                state = updated_by_host(host.optimizer, gradients, link, trainer.host_memory)
                beside = 2 * gradients / link + (0.0 if beside is None else beside)
            offload = HostTimes(state, beside)
        if s is None:
            amounts = first_order_amounts(job, layout, self.micro)
            return first_order(job, layout, amounts, trainer.device, trainer.net, offload, a)
        return s.step(job, layout, offload, a)

    # --- power --------------------------------------------------------------------------------------------------------

    def _activity(self, step: Step, clock: Any) -> Activity:
        """What a device does in a step: operations and bytes as the model counts them, busy but for what others make it wait."""
        job, layout, micro, chip = self.job, self.layout, self.micro, self.trainer.chip
        assert chip is not None
        shards = layout.tp * layout.pp * layout.cp
        often = self.micro_batches / step.seconds
        share = equivalent(chip, job.precision)
        if share != 1.0 and not job.fp8_attention:
            # What the recipe leaves in 16 bits counts in full.
            share = 1 - (1 - share) * narrow_share(job, micro)
        moved = micro.weight_bytes * weights_read(job.model, layout) + micro.activation_bytes / shards
        rate, busy = share * often * micro.hardware_flops / shards, step.ideal / step.seconds
        return Activity(rate, often * moved, busy, vector_share("training"), clock)

    @cached_property
    def powered(self) -> tuple[ChipPower, Activity, Any] | None:
        """What the power of an accelerator follows from; None where it states no TDP."""
        chip = self.trainer.chip
        if chip is None or chip.tdp is None:
            return None
        clock = 1.0 if self.clock is None else self.clock.clock
        return chip_power(chip), self._activity(self.step, clock), self.trainer.cap

    @cached_property
    def watts(self) -> Any:
        """Mean watts of an accelerator; None where it states no TDP."""
        return None if self.powered is None else power_of(*self.powered)

    @property
    def draw(self) -> Draw | None:
        """What they are made of."""
        return None if self.powered is None else parts_of(*self.powered[:2], self.watts)

    # --- what equations show ------------------------------------------------------------------------------------------

    def shown(self) -> dict[str, Any]:
        """What stands in the equations of a step, by name."""
        trainer, job, layout, micro, step = self.trainer, self.job, self.layout, self.micro, self.step
        m, first, net = self.micro_batches, trainer.software is None, trainer.net
        amounts = first_order_amounts(job, layout, micro)
        return {
            **self._rings(amounts, first),
            **self._host(),
            "asked": self,
            "first_order": first,
            "without_host": first and not step.offload,
            "beside_host": first and step.offload > 0,
            "calibrated": not first,
            "amounts": amounts,
            "micro_batches": m,
            "device_flops": amounts.flops * m,
            "device_bytes": amounts.moved * m,
            "model_flops": micro.flops * layout.dp * m,
            "hardware_flops": micro.hardware_flops * layout.dp * m,
            "work": micro.tokens * layout.dp * m,
            "saved": training_state_of(job, layout).saved,
            "bandwidth": trainer.device.bandwidth,
            "peak": trainer.device.peak,
            "intra_bandwidth": net.link,
            "intra_latency": net.link_latency,
            "inter_bandwidth": net.fabric,
            "inter_latency": net.fabric_latency,
            "step": step.seconds,
            "idle": m * step.bubble / step.busy,
            "stages": step.stages,
            "inside": step.busy - step.compute,
            "sends_waited": step.seconds - step.paced - step.exposed_data - step.offload - step.update,
            "update": step.update,
            "local_batch": layout.local_batch * job.accumulation,
            "powered": self.powered,
        }

    def _host(self) -> dict[str, Any]:
        """State with the host: what goes there and back, or what it updates itself."""
        state, memory = with_host(self.job, self.layout, self.held).optimizer, self.trainer.host_memory
        if memory is None:
            return {"host_state": state}
        each = self.job.keeps.bytes_each(self.job.optimizer, HALF, self.job.model)[2]
        return {"host_state": 0.0, "host_updated": state, "host_parameters": state / each, "host_memory": memory}

    def _rings(self, x: Amounts, first_order: bool) -> dict[str, Any]:
        """Messages of replicas: rings, where all of them are; else the time of each group."""
        g, data = self.layout.groups(self.trainer.net), self.step.data
        of = Shared(x.gradient_bytes, x.weight_bytes, g.data, g.shard, g.copies)
        shown = rings(self.job, self.layout, of, self.trainer.net)
        alone = first_order and abs(shown["ring_seconds"] - data) <= 1e-9 * data
        shown |= {"one_ring": alone and "copies_bytes" not in shown, "two_rings": alone and "copies_bytes" in shown}
        shown["ring_experts"] = data - shown["ring_layers"] - shown["ring_copies"]
        return shown | {"other_rings": first_order and not alone}


def _nothing(share: Any) -> bool:
    return isinstance(share, (int, float)) and share == 0


def _micro(job: Job, micro_batch: Any, mode: Any) -> Demand:
    """The demand of a micro-batch in a mode of recomputation, or in an array of modes."""
    if isinstance(mode, str) or (
        isinstance(job.model, TransformerWorkload) and job.model.structure != "encoder-decoder"
    ):
        return _demand(job, micro_batch, mode)
    # A model without a closed form for many modes at once is asked mode by mode.
    found, *others = (_demand(job, micro_batch, each) for each in MODES)
    for name, other in zip(MODES[1:], others, strict=True):
        both = ((getattr(other, field.name), getattr(found, field.name)) for field in fields(Demand))
        found = Demand(*(where(mode == name, new, old) for new, old in both))
    return found


def _demand(job: Job, micro_batch: Any, mode: Any) -> Demand:
    def counted(recompute: Any) -> Demand:
        found: Demand = job.model.demand(
            "training",
            batch_size=micro_batch,
            seq_len=None if job.model.fixed_shape else job.seq_len,
            precision=job.precision,
            recompute=recompute,
            frozen=job.frozen,
        )
        return found

    found, parts, chosen = counted(mode), recomputed_parts(job.selective), mode == "selective"
    if parts == ("attention",) or job.model.fixed_shape or not some(chosen):
        return found
    plain, core = counted("none"), counted("selective") if "attention" in parts else None
    again = plain.forward * repeated_share(job.model, parts)
    again = again + (plain.hardware_flops if core is None else core.hardware_flops)
    return replace(found, hardware_flops=where(chosen, again, found.hardware_flops))
