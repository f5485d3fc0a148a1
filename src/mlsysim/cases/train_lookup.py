"""A training step of a recommender, calibrated: tables spread over all devices, layers copied on each (Naumov et al. 2019; Mudigere et al. 2022).

    T = [ m (t_device + 2 t_exchange) + gradients not hidden ] / s

t_device is a micro-batch by its operators (:mod:`mlsysim.timing.device_time`): look-ups, layers forward and backward, rows scattered back and their
states updated, and the update of the layers, with what one captured step takes beside them. Every device looks up rows of its share of the tables for
all samples, which on average is as much as all rows of its own samples, and a row that several samples look up once
(:meth:`~mlsysim.models.recommendation.RecommendationWorkload.distinct_share`). The pooled vectors go to the devices that have the samples, and their
gradients return. Gradients of the layers alone are summed; they hide behind the backward pass. s is what devices keep beside one another
(:mod:`mlsysim.cases.train_network`).

Assumed: look-ups are uniform over a table, as MLPerf draws them; where few rows are popular, fewer are distinct. Left out: tables of unequal load
(planners balance them to some 10 %), an exchange that overlaps with the bottom layers, caching of hot rows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from mlsysim.cases.algebra import PLAIN, Algebra
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Layout
from mlsysim.cases.offload import RESIDENT, HostTimes
from mlsysim.cases.replica_messages import sent
from mlsysim.cases.train import Step
from mlsysim.cases.train_network import replicated, summed_bytes
from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.keeping import TEXTBOOK, Keeping
from mlsysim.physics.precision import HALF, activation_element
from mlsysim.timing.collectives import Measured
from mlsysim.timing.device_time import DeviceTime, lookup_training_time
from mlsysim.timing.operator_times import STARTS
from mlsysim.timing.vision_time import constants
from mlsysim.units.ops import some, where
from mlsysim.units.records import dataclass
from mlsysim.zoo.intervals import Interval, interval

_REGIME = "recommender training"


@dataclass(frozen=True, slots=True)
class LookupSoftware:
    """The chip that a recommender is trained on, and the network between chips."""

    chip: HardwareNode
    network: Measured
    keeps: ClassVar[Keeping] = TEXTBOOK

    def congested(self, factor: Any) -> LookupSoftware:
        """The same with a slower fabric."""
        return replace(self, network=self.network.congested(factor))

    def band(self, job: Job, accelerators: int) -> tuple[Interval, str]:
        """The 90 % band of rates, and what it rests on."""
        runs, chip = constants()["measured"]["lookup_train"]["rates"], self.chip
        unseen = [] if chip.metadata.key in runs else ["chip"]
        # Another vendor's chips run other software.
        unseen += [] if chip.vendor == Hardware.get(runs[0]).vendor else ["software"]
        band = interval(_REGIME, *unseen)
        lacks = f"published runs of recommenders were on {', '.join(runs)}, none on this chip"
        return band, band.resting_on("published runs of recommenders", chip=lacks)

    def device(self, job: Job, batch: Any, devices: Any = 1) -> DeviceTime:
        """What one device of several does for a micro-batch."""
        how = job.precision, job.recompute, job.optimizer, job.frozen
        return lookup_training_time(job.model, self.chip, batch, *how, devices)

    def step(self, job: Job, layout: Layout, offload: HostTimes = RESIDENT, a: Algebra = PLAIN) -> Step:
        """One optimizer step on so many devices."""
        if some(layout.tp * layout.pp * layout.cp * layout.ep > 1):
            raise InputError(
                "A recommender spreads its tables by itself, and its layers are not split.", field="parallelism"
            )
        model, several, net, equation = job.model, layout.dp > 1, self.network, "T = sum of operators"
        timed = self.device(job, layout.micro_batch, layout.dp)
        memory = timed.device - timed.arithmetic
        alone = (
            a.tag("operators bound by arithmetic", 1, "peak", equation, timed.arithmetic, flop=timed.flops)
            + a.tag("operators bound by memory", 2, "bandwidth", equation, memory, moved=timed.moved)
            + a.tag(STARTS, 3, "start", equation, timed.waiting)
        )
        message = layout.micro_batch * model.pooled_elements * max(activation_element(job.precision), HALF)
        data = layout.groups(net).data
        there = where(several, net.exchange(message, 1, data, False), 0.0) if some(several) else 0.0
        carried = partial(sent, 2, message, layout.dp)
        exchanged = a.tag("table exchange", 14, data.resource, "exchange", 2 * there, sent=carried)
        sizes = summed_bytes(job) * (model.parameter_count - model.table_parameters), 0.0
        return replicated(a, replace(job, zero=0), layout, net, alone, sizes, exchanged=exchanged, offload=offload)
