"""What a training software keeps of weights, gradients, moments and activations, and what it reserves."""

from __future__ import annotations

from mlsysim.models.base import Workload
from mlsysim.models.recompute import Formats
from mlsysim.models.traffic import matrix_share
from mlsysim.physics.precision import bytes_per_element
from mlsysim.physics.training_memory import MUON, optimizer_bytes, optimizer_key
from mlsysim.units.records import dataclass

HALF, FULL = 2.0, 4.0
"""Bytes of a number in 16 bit and in fp32."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """What a training software keeps on a device during a step; the plain case is that of the textbook.

    ``state`` says where the fp32 numbers are: ``apart`` (weights in 16 bit, a copy in fp32 and moments with the optimizer),
    ``cast`` (weights are fp32, and what a pass casts to 16 bit it keeps until its backward pass), ``none`` (everything has the
    format of the weights). ``gradient`` are bytes of a gradient, held and sent alike, those of a weight where None; ``moments`` those of
    each of the optimizer's moments, ``main_gradient`` those of a copy of the gradient that the optimizer has for itself. Gradients that are ``buffered``
    have a place of their own all the time; others come in the backward pass while activations go, so that the most is held
    either when the forward pass ends, with its logits, or when the backward pass does.

    Beside what every backward pass needs (:mod:`mlsysim.models.recompute`) a layer keeps ``rotated`` copies of queries
    and keys, ``activated`` gates, ``masks`` of dropout (bytes for each element of a sublayer's output), ``log_sums`` of
    attention (bytes for each head) and, where attention is not fused, ``scores`` (bytes for each pair of tokens and head:
    probabilities and what dropout leaves of them in 16 bit, and a mask are 5; Korthikanti et al. 2022). Selective
    recomputation is to spare scores. ``norms``: bytes that each norm keeps of an element beside its input in 16 bit, 2 where it reads it in fp32,
    and as many again of what it makes before its weights, where these are trained; ``fused`` norms keep what they read as it is.
    ``logits`` are bytes for each token and vocabulary entry: fp32 and their gradient are 8; ``shared_logits`` where tensor parallelism shares the entries
    (None: as many). ``whole_inputs``: what is gathered of split sequences for a sublayer and the head waits whole for the gradient of their weights.
    ``adapter``: bytes of an adapter's weight, gradient and moments where these are wider than arithmetic; each then has a copy of its product's input
    in 16 bit for itself, that of queries, keys, values and output, of gate and up. ``widened``: beside frozen weights that are expanded in memory
    (bitsandbytes) tables of tokens, norms and so the residual stream are in fp32, and the head is cast for its product and kept until the backward pass.
    ``placed``: the table of tokens is with the first stage and the head with the last, where the textbook splits all
    parameters as it splits layers.
    ``passed_on``: a stage of a pipeline frees what the stage before handed to it, since its first norm keeps what it makes of that instead.
    ``quantised``: what narrow products read is kept as they read it. ``activation`` is the format in which activations are kept.
    ``gathered``: what ZeRO 2 or 3 shards is whole during a step of a pipeline. ``prefetched`` layers are gathered ahead where it is not,
    and at ``ends`` the table of tokens and the head stay whole from their forward pass to their backward pass;
    ``copied``: gradients of a layer are copied into the message that shares them before they are freed;
    ``compiled``: it is so many matrices instead, the largest of a layer, as a compiler gathers and sends each where it is used; no cast
    is kept, and a buffer takes the place of one that is dead: of logits and the layer that is computed again the larger counts.
    ``reserve`` is what the allocator takes beyond what it hands out, as a share of it (the usual one where None), or ``cached``, a share of the bytes
    of logits, where that is more: an array of them that was freed and split serves no other. ``held_back`` are bytes that
    context and libraries have, ``communicator`` the buffers of each group that sends, ``exchange`` those of one in which every pair does.
    """

    state: str = "apart"
    gradient: float | None = None
    moments: float = 4.0
    main_gradient: float = 0.0
    buffered: bool = True
    rotated: float = 0.0
    activated: float = 0.0
    masks: float = 0.0
    log_sums: float = 0.0
    scores: float = 0.0
    norms: float = 0.0
    fused: bool = False
    logits: float = 8.0
    shared_logits: float | None = None
    whole_inputs: bool = False
    adapter: float = 0.0
    widened: bool = False
    placed: bool = False
    passed_on: bool = False
    quantised: bool = False
    activation: str | None = None
    gathered: bool = False
    prefetched: float = 0.0
    ends: bool = False
    copied: bool = False
    compiled: bool = False
    reserve: float | None = None
    cached: float = 0.0
    held_back: float = 0.0
    communicator: float = 0.0
    exchange: float = 0.0

    def bytes_each(self, optimizer: str, weight: float, model: Workload) -> tuple[float, float, float]:
        """Bytes of weight, gradient and optimizer state for each trained parameter whose arithmetic has ``weight`` bytes."""
        held = max(weight, FULL) if self.state == "cast" else weight
        states = state_bytes(model, optimizer, held if self.state != "none" else FULL)
        if self.state == "none":
            states = states * weight / FULL
        elif self.moments != FULL:
            master = 0.0 if held >= FULL else FULL
            states = master + (states - master) * self.moments / FULL
        return held, max(self.gradient or 0.0, held), states + self.main_gradient

    def formats(self, weight: float, plain: float) -> Formats:
        """Bytes of kept activations where arithmetic has ``weight`` bytes an element and other activations ``plain`` ones."""
        if self.activation is not None:
            narrow = min(bytes_per_element(self.activation), plain)
            return Formats(plain, narrow, narrow)
        return Formats(plain, min(weight, plain) if self.quantised else plain, plain)


TEXTBOOK = Keeping()


def state_bytes(model: Workload, optimizer: str, weight: float) -> float:
    """Optimizer bytes per parameter of a model, on average: Muon has one momentum of matrices, and leaves the rest to AdamW."""
    found = optimizer_bytes(optimizer, weight)
    if optimizer_key(optimizer) != MUON:
        return found
    share = matrix_share(model)
    return share * found + (1 - share) * optimizer_bytes("adamw", weight)
