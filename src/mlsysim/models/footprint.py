"""How much memory a model needs on one device.

Inference needs weights, the caches of all sequences and one layer's working set. Training needs weights, gradients,
optimizer state and the activations that wait for the backward pass (:mod:`mlsysim.physics.training_memory`).
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property, reduce
from typing import Any, NamedTuple

from mlsysim.models.adapters import ATTENTION, adapter_parameters
from mlsysim.models.attention import Attention
from mlsysim.models.base import Workload
from mlsysim.models.ffn import MixtureOfExperts
from mlsysim.models.keeping import FULL, HALF, TEXTBOOK, Keeping, state_bytes
from mlsysim.models.recompute import NOTHING, Again, Formats
from mlsysim.models.recompute import again as recomputed
from mlsysim.models.stack import Stack, stack_of
from mlsysim.models.stages import Stage, shared_parameters, stages_of
from mlsysim.models.storage import stored, tables, token_table
from mlsysim.models.traffic import stream
from mlsysim.models.training_state import Saved, TrainingState
from mlsysim.physics.pipeline import held
from mlsysim.physics.precision import bytes_per_element, cache_format, format_of
from mlsysim.physics.stage_split import stage_layers
from mlsysim.physics.training_memory import activation_bytes_per_layer, sharded_state
from mlsysim.units.ops import Once, each_time, maximum, minimum, where
from mlsysim.units.records import dataclass


def inference_bytes(
    model: Workload, batch: Any, length: Any, precision: str, cache_precision: str | None, phase: str = "decode"
) -> float:
    """Weights and caches, after a pass of a phase over so many tokens."""
    weights = model.parameter_count * stored(model, precision).mean
    stack = stack_of(model)
    if stack is None or getattr(model, "structure", "decoder") == "encoder":
        return weights
    kept = bytes_per_element(cache_format(cache_precision, precision))
    text, source = model.written(phase, length, 0)  # type: ignore[attr-defined]
    return float(weights + stack.cache_bytes(text, kept, source=source) * batch)


class Kept(NamedTuple):
    """What waits for the backward pass of a micro-batch: bytes that the average layer keeps and all that it makes, what exists beside while one
    is computed again, the logits, and the number of layers where it is known."""

    each: Any
    working: Any = 0.0
    again: Any = 0.0
    logits: Any = 0.0
    layers: Any = None


@dataclass(frozen=True)
class Training:
    """A training step as its devices hold it; shares of state and activations may be with the host.

    Degrees and sizes may be arrays, and ``recompute`` anything that compares with its names element by element; ``again`` is the same as
    numbers. State is shared by ``shard`` of the ranks that hold the same parameters, by all of them where None: DP x CP ranks, of routed
    experts DP x CP x TP / EP. Of what ZeRO 2 and 3 share, ``whole_weights`` and ``whole_gradients`` (shares of it) are whole nevertheless,
    because they are not sent before the step is over. ``several``
    micro-batches before an update keep the gradients of the first through the others' forward passes. A schedule that runs from both
    ends holds two ``copies`` of what it computes with, and one optimizer state between the pair of devices that share them. A device has
    ``chunks`` of layers, to each of which a micro-batch is handed; of ``micro_batches`` (as many as stages where None) the ``schedule`` says how many
    wait. The fullest device is at the first stage, between or at the last (:func:`mlsysim.models.stages.stages_of`).

    Reference: 34 steps on an H200 (1.2 to 8 B parameters, eager, compiled and 16-bit), median error below 1 %; tables of
    Korthikanti et al. (2022). Left out: what the allocator reserves beyond what it hands out, which is the reserve.
    """

    model: Workload
    micro_batch: Any
    seq_len: Any
    precision: str
    keeps: Keeping = TEXTBOOK
    optimizer: str = "adam"
    recompute: Any = "none"
    again: Again | None = None
    zero_stage: Any = 0
    shard: Any = None
    whole_weights: Any = 0.0
    whole_gradients: Any = 0.0
    dp: Any = 1
    tp: Any = 1
    pp: Any = 1
    ep: Any = 1
    cp: Any = 1
    lora_rank: int | None = None
    lora_targets: str = ATTENTION
    sequence_parallel: bool = True
    schedule: str = "1f1b"
    micro_batches: Any = None
    group: Any = None
    chunks: Any = 1
    several: Any = False
    copies: Any = 1.0
    buffer_fraction: float = 0.0
    trainable_fraction: float = 1.0
    optimizer_offload: Any = 0.0
    weights_offload: Any = 0.0
    activations_offload: Any = 0.0
    once: Once = field(default=each_time, compare=False)

    @property
    def fullest(self) -> TrainingState:
        """Bytes on the fullest device, when it holds most."""
        split = (self.pp, self.chunks, self.schedule, self._waiting, self.group, self._kept.layers, self.keeps.placed)
        stages = self.once(("stages", *split), stages_of, self.model, *split)
        first, *rest = (self._on(stage, place) for place, stage in enumerate(stages))
        return reduce(TrainingState.fuller, rest, first)

    @property
    def _adapters(self) -> bool:
        return self.lora_rank is not None

    @property
    def _waiting(self) -> Any:
        return self.pp if self.micro_batches is None else self.micro_batches

    @cached_property
    def _stack(self) -> Stack | None:
        return stack_of(self.model)

    @cached_property
    def _element(self) -> float:
        """Bytes of a number that arithmetic makes."""
        weight = bytes_per_element(self.precision)
        return weight if weight >= HALF else HALF

    @cached_property
    def _each(self) -> tuple[float, float, float]:
        """Bytes of weight, gradient and optimizer state of a trained parameter."""
        wide = self.keeps.adapter if self._adapters else 0.0
        return self.keeps.bytes_each(self.optimizer, max(self._element, wide), self.model)

    @cached_property
    def _widened(self) -> bool:
        """Whether what is not stored in the format of frozen weights is in fp32."""
        return self._adapters and self.keeps.widened and format_of(self.precision).expanded == "memory"

    @cached_property
    def _again(self) -> Again:
        return recomputed(self.recompute) if self.again is None else self.again

    @cached_property
    def _table(self) -> Any:
        """Parameters of the table of tokens where it stands with the head."""
        return token_table(self.model) / self.tp * where(self.pp == 1, 1.0, 0.0)

    @cached_property
    def _units(self) -> list[Any]:
        """Parameters of a layer: of what is shared, the layers at work are whole, their weights and the gradients of one."""
        model, whole = self.model, Stage(1.0, tables(self.model), 1.0)
        layers = maximum((getattr(model, "layers", None) or 1) * 1.0, self.pp)
        return [local / layers for local, _ in shared_parameters(model, self.dp, self.tp, self.ep, self.cp, whole)]

    @cached_property
    def _kept(self) -> Kept:
        of = (self.tp, self.pp, self.cp, self.chunks, self.micro_batch)
        # How often parts run again follows from the mode.
        return self.once(("kept", *of, self.recompute), Training._keep, self)

    def _keep(self) -> Kept:
        model, stack, keeps, again = self.model, self._stack, self.keeps, self._again
        full = again.full
        if stack is None:
            # Each sample of a network of fixed shape is a layer of its own here, of which every stage has its share.
            wide = keeps.norms if self._element < FULL else 0.0
            each, block = _sample_bytes(model, self.precision, self._element, full, wide, keeps.fused)
            return Kept(each, self.micro_batch / (self.tp * self.pp) * block)
        tokens = self.micro_batch * self.seq_len / self.cp
        f, count = keeps.formats(bytes_per_element(self.precision), self._element), stack.layers
        working, one, inputs = self._layer(stack, f, tokens)
        # While one layer is recomputed its full set exists beside what all keep; without buffers the logits are gone by then.
        anew = full * working + (1 - full) * (working - one) if keeps.buffered else 0.0
        if keeps.scores:
            scores = keeps.scores * (getattr(model, "heads", None) or 0) * self.seq_len * tokens / self.tp
            one = one + scores * (1 - again.attention)
        if (encoder := getattr(model, "encoder_stack", None)) is not None:
            # Layers of either kind, on average.
            heard = self.micro_batch * getattr(model, "encoder_positions", self.seq_len) / self.cp
            others = self._layer(encoder, f, heard)
            count = stack.layers + encoder.layers
            working, one, inputs = (
                (stack.layers * own + encoder.layers * other) / count
                for own, other in zip((working, one, inputs), others, strict=True)
            )
        if keeps.passed_on and f.read == f.plain:
            # A norm goes back from what it made as well as from what it read; recomputation needs the latter.
            handed = minimum(self.chunks / stage_layers(count, self.pp, self.chunks).most, 1.0)
            spared = (1 - again.norm) * (1 - again.light) * (1 - again.half) * handed
            one = one - where(self.pp > 1, spared * inputs, 0.0)
        one = full * inputs + (1 - full) * one
        entry = keeps.logits if keeps.shared_logits is None else where(self.tp > 1, keeps.shared_logits, keeps.logits)
        ending = tokens * stack.vocab / self.tp * entry + f.plain * tokens * stack.hidden * self._regathered
        return Kept(one, working, anew, ending, count)

    @property
    def _regathered(self) -> Any:
        """The share of what a column-parallel product reads that is kept though other devices have it."""
        return 1 - 1 / self.tp if self.keeps.whole_inputs and self.sequence_parallel else 0.0

    def _layer(self, stack: Stack, f: Formats, tokens: Any) -> tuple[Any, Any, Any]:
        """Bytes of the average layer, scores of attention apart: all, without what is computed again, and its input alone."""
        keeps = self.keeps
        rotated = heads = sublayers = reads = made = 0.0
        dense = shared = routed = 0.0
        own, every = self._adapters and keeps.adapter > 0, self.lora_targets != ATTENTION
        for block in stack.blocks:
            sublayers += block.count * block.sublayers
            for mixer in block.mixers:
                if isinstance(mixer, Attention):
                    rotated += block.count * (mixer.heads + mixer.kv_heads) * mixer.head_dim
                    heads += block.count * mixer.heads
                    # Adapters of queries, keys and values read one input, which is kept for one of them already.
                    reads += own * block.count * 2 * stack.hidden
                    made += own * block.count * mixer.heads * mixer.head_dim
            ffn = block.ffn
            if ffn is not None and ffn.gated:
                if isinstance(ffn, MixtureOfExperts):
                    shared += block.count * ffn.shared_width
                    routed += block.count * ffn.per_token * ffn.width
                else:
                    dense += block.count * ffn.width
                reads += (own and every) * block.count * stack.hidden
        if getattr(self.model, "position_embeddings", False):
            rotated = 0.0

        def held(whole: Any, split: Any) -> Any:
            each, shared = (0.0, whole + split) if self.sequence_parallel else (whole, split)
            return activation_bytes_per_layer(tokens, each, shared, self.tp, f.plain)

        def layer(again: Again) -> Any:
            # An adapter beside a product reads its input, which is kept for it as for the product's own gradient.
            frozen = self._adapters and self.lora_targets == ATTENTION
            whole, split = (stack.saved.frozen if frozen else stack.saved).bytes(f, again)
            kept = (
                dense * (1 - again.mlp) + shared * (1 - again.shared) + routed * (1 - again.moe) * (1 - again.moe_act)
            )
            extra = keeps.rotated * rotated + keeps.activated * kept * (1 - again.light) + made
            normed = keeps.norms * (1 if self._adapters else 2) * (1 - again.norm) * (1 - again.light)
            whole = whole + ((keeps.masks + normed) * stack.hidden * sublayers + f.plain * reads) / stack.layers
            split = split + (extra * f.plain + keeps.log_sums * heads) / stack.layers
            # What is gathered for a product is gathered anew where its norm is computed again.
            gathered = (1 - again.norm) * (1 - again.light) * (1 - again.half) * self._regathered
            others = f.plain * tokens * stack.hidden * sublayers / stack.layers * gathered
            return held(whole / f.plain, split / f.plain) + others

        working = layer(NOTHING)
        again = self._again
        return working, working if again is NOTHING else layer(again), held((1 + self._widened) * stack.hidden, 0.0)

    def _state(self, stage: Stage) -> tuple[Any, Any, Any, Any]:
        """Weights, gradients and optimizer state of a stage in bytes, and the parameters that it trains."""
        model, keeps, each = self.model, self.keeps, self._each
        resting, zero = stored(model, self.precision).mean, self.zero_stage
        weights: Any = 0.0
        gradients: Any = 0.0
        states: Any = 0.0
        trained: Any = 0.0
        for place, (local, group) in enumerate(shared_parameters(model, self.dp, self.tp, self.ep, self.cp, stage)):
            ranks = group if self.shard is None else minimum(group, self.shard)
            own, frozen = local * self.trainable_fraction, local - local * self.trainable_fraction
            if self._adapters:
                adapters = adapter_parameters(model, self.lora_rank, self.lora_targets) / (self.tp * self.pp)
                own, frozen = (0.0 if place else adapters), local
            part = [1 / (whole + (1 - whole) / ranks) for whole in (self.whole_weights, self.whole_gradients)]
            shards = [where(zero >= least, split, 1) for least, split in zip((3, 2), part, strict=True)]
            owners = where(zero >= 1, ranks, 1)
            parts = sharded_state(own, *each, shards[0], shards[1], owners)
            rest = self.copies * parts[0] + frozen * resting / shards[0]
            if self._widened and not place:
                rest = rest + (FULL - HALF) * stage.tables * token_table(model) / (self.tp * shards[0])
            if keeps.prefetched:
                layer = self._units[place] * (_largest_matrix(model) if keeps.compiled else 1.0)
                # What is frozen is sent in the format that it rests in.
                sent, summed = (resting, 0.0) if self._adapters else (self._element, each[1])
                ahead = layer * (keeps.prefetched * sent + summed)
                if keeps.ends and not place:
                    ahead = ahead + self._element * stage.tables * token_table(model) / self.tp
                rest = rest + where((zero >= 3) & (ranks > 1), (1 - self.whole_weights) * ahead, 0.0)
            own_gradients = self.copies * parts[1]
            if keeps.copied and not self._adapters:
                own_gradients = own_gradients + where((zero >= 2) & (ranks > 1), each[1] * self._units[place], 0.0)
            weights, gradients, states = weights + rest, gradients + own_gradients, states + parts[2]
            trained = trained + own
        if model.table_parameters:
            # Rows of tables are on one device each, in single precision, with their states and no gradients but those of a batch.
            rows = model.table_parameters / (self.dp * self.cp * self.tp * self.pp)
            own_states = 0.0 if self._adapters else state_bytes(model, self.optimizer, FULL)
            weights, states = weights + FULL * rows, states + own_states * rows
        return weights, gradients, states, trained

    def _saved(self, stage: Stage, trained: Any) -> Saved:
        """Activations of a stage when its forward pass ends, and the weights that were cast."""
        model, keeps, kept, full = self.model, self.keeps, self._kept, self._again.full
        if self._stack is None:
            samples = self.micro_batch / (self.tp * self.pp)
            saved = Saved(samples * held(self.schedule, self.pp, self._waiting, self.chunks, self.group), kept.each)
        else:
            ending = stage.head * kept.logits
            again = maximum(kept.again - ending, 0.0) if keeps.compiled else kept.again
            saved = Saved(stage.held, kept.each, again, ending)
        if self._each[0] > self._element and not keeps.compiled:
            # Products cast their weights; a table that is no head is looked up, and layers that are recomputed keep none.
            used = 1.0 if self._tied or self._adapters else 1 - token_table(model) / model.parameter_count
            head = 0.0 if self._adapters else full * self._table
            if self._widened:
                head = stage.head * token_table(model) / self.tp
            saved = saved._replace(casts=self._element * (head + (1 - full) * (used * trained)))
        return saved

    @property
    def _tied(self) -> bool:
        return getattr(self.model, "tied_embeddings", False)

    def _on(self, stage: Stage, place: int) -> TrainingState:
        """What a device of a stage, the first one or another, holds."""
        # What is whole follows from these, as do the stage's layers.
        own = ("state", place, self.tp, self.pp, self.cp, self.dp, self.ep, self.chunks, self.zero_stage, self.schedule)
        weights, gradients, states, trained = self.once(own, Training._state, self, stage)
        saved = self._saved(stage, trained)
        if not self.keeps.buffered:
            # A tied table has two gradients, one of which is added to the other.
            both = self._tied and not self._adapters
            complete = gradients + (2 * self._each[1] * self._table if both else 0.0)
            late = where(self.several, 0.0, complete + 2 * self._kept.working) > saved.total
            gradients = where(self.several, gradients, where(late, complete, 0.0 * complete))
            end = Saved(2.0, self._kept.working, 0.0, 0.0, 0.0)
            saved = Saved(*(where(late, 1.0 * last, 1.0 * first) for last, first in zip(end, saved, strict=True)))
        away = self.activations_offload * saved.layers * saved.each
        saved = saved._replace(layers=saved.layers * (1 - self.activations_offload))
        # The layer at work and the next are on the device.
        at_work = minimum(2.0 * self.pp / (getattr(self.model, "layers", None) or 1), 1.0)
        host, parked = self.optimizer_offload * states, self.weights_offload * weights * (1 - at_work)
        buffers = self.buffer_fraction * (weights + gradients)
        return TrainingState(weights - parked, gradients, states - host, saved, buffers, host, parked, away)


def _sample_bytes(
    model: Workload, precision: str, kept: float, full: Any, norms: float, fused: bool
) -> tuple[Any, float]:
    """What one sample of a network of fixed shape keeps, and of it the insides of a block: what its gradients need, with so many bytes more of each
    element that a norm reads (``fused``: that is in single precision), or with full recomputation what goes from block to block and the insides of one."""
    if not model.fixed_shape:
        return 0.0, 0.0
    whole = model.saved_bytes(1, precision) + norms * model.normed_elements(1, fused)
    between = stream(model, 1)
    blocks = max(between.halves / 2, 1.0)
    if isinstance(full, float) and full == 0:
        return whole, whole / blocks
    again = minimum(kept * between.elements * blocks + whole / blocks, whole)
    return where(full > 0, again, whole), whole / blocks


def _largest_matrix(model: Workload) -> float:
    """The largest array of a layer over all of it: one of two or three of its feed-forward network, those of all experts together."""
    stack = stack_of(model)
    ffns = [] if stack is None else [(block.count, block.ffn) for block in stack.blocks if block.ffn is not None]
    largest = sum(count * ffn.parameters / (3 if ffn.gated else 2) for count, ffn in ffns)
    return largest / (model.parameter_count - token_table(model)) if largest else 1.0
