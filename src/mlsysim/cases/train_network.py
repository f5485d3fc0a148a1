"""A training step of a network of fixed shape, calibrated: data parallelism over the step of one device under a runtime.

    T = [ m t_device + gradients not hidden + T_update ] / s

t_device is a micro-batch, forward, backward and updated with a momentum, as the runtime's training stack was fitted to it
(:mod:`mlsysim.timing.vision_time`), and for a denoiser as much longer as its forward pass is, of which many were measured
(:mod:`mlsysim.timing.diffusion_time`): heads and norms over thousands of tokens wait where those of image networks do not; T_update is what another optimizer does beyond that. Gradients are summed in the format that they are kept in, single precision
under autocast where a plan has no other, over the ring of measured training runs, beside the backward pass. s is what several devices keep of their speed beside one another (``data_parallel`` in ``data/software/runtimes.toml``: they
wait for the slowest, and for their images).

The fitted stack updates all weights in each pass, a device that accumulates micro-batches once. Recomputing all activations adds a forward pass; frozen
weights save what their gradients take. Left out: with ZeRO a device updates its share, while submissions of Flux.1 on 16 to 1,152 accelerators, which shard, take as
long as with all of it. Tensor, pipeline and context parallelism of such networks were not measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mlsysim.cases.algebra import PLAIN, Algebra
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Groups, Layout
from mlsysim.cases.offload import RESIDENT, HostTimes
from mlsysim.cases.replica_messages import Shared, messages
from mlsysim.cases.schedule import Pipelined
from mlsysim.cases.train import Phase, Step, trained
from mlsysim.cases.update import orthogonalised, owned_parameters
from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.inventory import Inventory, inventory_of
from mlsysim.models.keeping import Keeping, state_bytes
from mlsysim.models.vision import DiffusionWorkload
from mlsysim.physics.precision import HALF, activation_element, bytes_per_element, compute_precision
from mlsysim.physics.training_memory import optimizer_bytes
from mlsysim.timing.collectives import Measured
from mlsysim.timing.diffusion_time import EAGER, denoising_time
from mlsysim.timing.runtimes import Runtime, band_of, runtime_for
from mlsysim.timing.tags import scaled
from mlsysim.timing.training_chip import TrainingChip
from mlsysim.timing.vision_time import UNFUSED, constants, inventory_time
from mlsysim.units.ops import maximum, some, where
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si
from mlsysim.zoo.intervals import Interval


@dataclass(frozen=True, slots=True)
class NetworkSoftware:
    """A network by its operators, the chip and the runtime that trains it, and the ring between chips."""

    inventory: Inventory
    chip: HardwareNode
    runtime: Runtime
    network: Measured
    rate: float
    """Of large products."""

    @classmethod
    def of(cls, model: Any, chip: HardwareNode, name: str | None, found: TrainingChip) -> NetworkSoftware:
        """The software of a name, or the usual one."""
        return cls(inventory_of(model), chip, runtime_for(model, "training", name)[0], found.network, found.half_rate)

    @property
    def stack(self) -> str:
        """The fitted stack of a training step."""
        assert self.runtime.training is not None
        return self.runtime.training

    @property
    def forward(self) -> str:
        """The fitted stack of a forward pass."""
        return self.runtime.inference or self.stack.removesuffix("_train")

    def _denoising(self, job: Job, batch: Any) -> Any:
        """How much longer than networks of images of the same operators a denoiser takes: its own measured pass over that of its inventory. Those
        had weights in 16 bits and cast none, so that a shorter one says nothing of training."""
        own = self.runtime.denoising or (EAGER if self.runtime.launched and not self.stack.endswith(UNFUSED) else None)
        if own is None or not (isinstance(job.model, DiffusionWorkload) and job.model.rows):
            return 1.0
        arithmetic = compute_precision(job.precision)
        plain = inventory_time(self.inventory, self.chip, batch, arithmetic, self.forward)
        return maximum(denoising_time(job.model, self.chip, batch, arithmetic, own) / plain, 1.0)

    @property
    def keeps(self) -> Keeping:
        """What it holds in memory."""
        return self.runtime.keeps

    def congested(self, factor: Any) -> NetworkSoftware:
        """The same with a slower fabric."""
        return replace(self, network=self.network.congested(factor))

    def band(self, job: Job, accelerators: int) -> tuple[Interval, str]:
        """The 90 % band of rates, of steps on one device, and what it rests on."""
        return band_of(self.stack, self.chip, 1)

    def step(self, job: Job, layout: Layout, offload: HostTimes = RESIDENT, a: Algebra = PLAIN) -> Step:
        """One optimizer step on so many devices."""
        if some(layout.tp * layout.pp * layout.cp * layout.ep > 1):
            raise InputError(
                "Networks of fixed shape are calibrated under data parallelism alone; a vision transformer is split by a training stack, "
                "such as bridge.",
                field="parallelism",
            )
        # ZeRO scatters gradients and gathers weights, in 16 bits or a wider format.
        element, held = max(activation_element(job.precision), HALF), self.inventory.parameters
        alone, sizes = self._alone(job, layout, a), (summed_bytes(job) * held, element * held)
        return replicated(
            a, job, layout, self.network, alone, sizes, lambda: network_update(self, job, layout, a), offload=offload
        )

    def _alone(self, job: Job, layout: Layout, a: Algebra) -> Any:
        """Seconds of a micro-batch on one device."""
        updates = 1 / (layout.micro_batches * job.accumulation)
        tag = scaled(a.tag, self._denoising(job, layout.micro_batch))

        def seconds(stack: str) -> Any:
            how = job.precision, stack, tag, updates, job.frozen
            return inventory_time(self.inventory, self.chip, layout.micro_batch, *how)

        total, again = seconds(self.stack), job.recompute == "full"
        if again is False:
            return total
        forward = seconds(self.forward)
        return total + (forward if again is True else where(again, forward, 0.0))


def replicated(
    a: Algebra,
    job: Job,
    layout: Layout,
    net: Measured,
    alone: Any,
    sizes: tuple[Any, Any],
    update: Callable[[], Any] = float,
    exchanged: Any = 0.0,
    *,
    offload: HostTimes,
) -> Step:
    """A step of devices with a whole network each, which is a phase without stages: ``alone`` is a micro-batch of one of them, ``sizes`` are the bytes
    of gradients and weights, ``exchanged`` what devices say to each other in a micro-batch."""
    m, g = layout.micro_batches * job.accumulation, layout.groups(net)
    device = a.grown("stragglers", 14, "stragglers", alone, job.straggler * alone)
    busy = m * device + m * exchanged
    kept = where(layout.dp > 1, constants()["data_parallel"]["share"], 1.0)

    def groups(g: Groups) -> list[Shared]:
        return [Shared(*sizes, g.data, g.shard, g.copies)]

    phase = Phase(
        pipeline=Pipelined(busy, busy, 0.0 * busy, lambda: 0.0 * busy),
        share=m,
        compute=device,
        alone=alone,
        expert=exchanged,
        data=messages(a, job, layout, net, g, groups, "ring").after,
        window=lambda busy: job.overlap.data_room * busy,
        update=update(),
        jitter=1 / kept,
    )
    return trained(a, job, layout, net, g, phase, offload)


def summed_bytes(job: Job) -> float:
    """Bytes of a gradient that replicas sum: as autocast keeps them, unless a plan says otherwise."""
    return job.gradient_bytes(0.0 if job.keeps.gradient else bytes_per_element("fp32"))


def network_update(s: NetworkSoftware, job: Job, layout: Layout, a: Algebra) -> Any:
    """What an optimizer moves beyond the momentum that the fitted stacks update, and the products of Muon."""
    more = state_bytes(job.model, job.optimizer, bytes_per_element("fp32")) - optimizer_bytes(
        "momentum", bytes_per_element("fp32")
    )
    moved = 2 * max(more, 0.0) * owned_parameters(job, layout)
    written = moved / to_si(s.chip.memory.bandwidth, "byte/s")
    update = a.tag("optimizer update", 2, "bandwidth", "update", written, moved=moved)
    return update + orthogonalised(a, job, layout, s.network, layout.groups(s.network), s.rate)
