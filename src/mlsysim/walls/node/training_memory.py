"""Companion of wall 2: what a training step keeps in the memory of one device, item by item.

Mixed precision with Adam keeps 2 + 2 + 12 bytes a parameter; see :mod:`mlsysim.physics.training_memory` for the
derivation of state and activations, and :mod:`mlsysim.walls.fleet.communication` for the same inside a layout. Left out:
allocator fragmentation (2 to 10 %) and the framework's own context (about 1 GB).
"""

from __future__ import annotations

from typing import Annotated

from mlsysim.cases.job import Job
from mlsysim.cases.layout import Layout
from mlsysim.cases.ledger import Held, Ledger
from mlsysim.cases.training_memory import training_remedies
from mlsysim.models.footprint import Training
from mlsysim.units.registry import to_si
from mlsysim.units.text import bytes_text
from mlsysim.walls.base import Assumptions, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.result import Memory, Result


class TrainingMemoryResult(Result):
    """Bytes on the fullest device."""

    total_memory: Annotated[Memory, "total"]
    available_memory: Memory
    memory_utilization: float
    weights: Memory
    gradients: Memory
    optimizer_state: Annotated[Memory, "optimizer"]
    activations: Memory
    communication_buffers: Annotated[Memory, "buffers"]
    precision: str
    optimizer: str
    activation_checkpointing: str
    parallelism: dict[str, int]


class TrainingMemoryModel(Resolver[TrainingMemoryResult]):
    """Does a training step fit, and what fills the memory?"""

    walls = (2,)
    inputs = declared("""
        model, hardware
        batch_size = 1 | whole [1, 1e9] | samples of one micro-batch
        seq_len = 2048 | whole [1, 1e8] | tokens per sequence
        precision
        optimizer = adam | object | optimizer
        activation_checkpointing = none | one of none, selective, full | activations that are recomputed
        tp_size = 1 | whole [1, 1e6] | degree of parallelism
        pp_size = 1 | whole [1, 1e6] | degree of parallelism
        dp_size = 1 | whole [1, 1e6] | degree of parallelism
        ep_size = 1 | whole [1, 1e6] | degree of parallelism
        zero_stage = 0 | whole [0, 3] | ZeRO stage
        gradient_accumulation_steps = 1 | whole [1, 1e6] | micro-batches before an update; each keeps its activations only while it runs
        trainable_fraction = 1.0 | (0, 1] | share of the parameters that is trained
        communication_buffer_fraction = 0.0 | [0, 1] | buffers over weights and gradients
    """)
    equations = written(r"""
        total_memory: M = weights + gradients + optimizer + activations + buffers
            M = M_w + M_g + M_o + M_a + M_b
            weights = weights in byte, gradients = gradients in byte, optimizer = optimizer_state in byte, activations = activations in byte, buffers = communication_buffers in byte
    """)
    known_fallacies = (
        "A model that fits for inference fits for training: Adam keeps eight times the 16-bit weights.",
        "ZeRO shards activations: it shards state; activations need recomputation, tensor parallelism or smaller micro-batches.",
    )

    @staticmethod
    def _remedy(x: Inputs, capacity: float) -> str:
        recompute, pp = x.activation_checkpointing, x.pp_size
        job = Job(x.model, x.precision, x.seq_len, recompute, zero=x.zero_stage, optimizer=x.optimizer)
        # As many micro-batches as fill the stages.
        layout = Layout(x.dp_size, x.tp_size, pp, x.ep_size, 1, micro_batches=pp, local_batch=pp * x.batch_size)
        return training_remedies(job, layout, capacity)[0]

    def _solve(self, x: Inputs, assumed: Assumptions) -> TrainingMemoryResult:
        """Add up what one device keeps."""
        degrees = {"tp": x.tp_size, "pp": x.pp_size, "dp": x.dp_size, "ep": x.ep_size}
        rules = {"optimizer": x.optimizer, "recompute": x.activation_checkpointing, "zero_stage": x.zero_stage}
        buffers, trained = x.communication_buffer_fraction, x.trainable_fraction
        shares = {"buffer_fraction": buffers, "trainable_fraction": trained}
        asked = {**degrees, **rules, **shares}
        state = Training(x.model, x.batch_size, x.seq_len, x.precision, **asked).fullest
        capacity = to_si(x.hardware.memory.capacity, "byte")
        fits = state.total <= capacity
        items = {
            "weights": state.weights,
            "gradients": state.gradients,
            "optimizer state": state.optimizer,
            "activations": state.activations,
            "communication buffers": state.buffers,
        }
        largest = max(items, key=lambda name: items[name])
        remedy = "" if fits else f"; {self._remedy(x, capacity)}"
        words = f": {bytes_text(state.total)} of {bytes_text(capacity)}, most of it {largest}{remedy}."
        return TrainingMemoryResult.of(
            assumed,
            state,
            x,
            feasible=fits,
            binding=wall_says(2, state.total / capacity, words),
            available_memory=capacity,
            memory_utilization=state.total / capacity,
            optimizer=str(x.optimizer),
            parallelism=degrees,
            case=lambda: Ledger(0.0, (), tuple(Held(name, size) for name, size in items.items()), capacity),
        )
