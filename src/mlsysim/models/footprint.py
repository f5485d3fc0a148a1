"""How much memory a model needs on one device.

Inference needs weights, the caches of all sequences and one layer's working set. Training needs weights, gradients,
optimizer state and the activations that wait for the backward pass (:mod:`mlsysim.physics.training_memory`).
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

from mlsysim.models.attention import Attention
from mlsysim.models.base import Workload
from mlsysim.models.ffn import MixtureOfExperts
from mlsysim.models.keeping import FULL, HALF, TEXTBOOK, Keeping, state_bytes
from mlsysim.models.recompute import NOTHING, Again, Formats
from mlsysim.models.recompute import again as recomputed
from mlsysim.models.stack import Stack
from mlsysim.models.stages import Stage, shared_parameters, stages_of
from mlsysim.models.storage import stored, tables, token_table
from mlsysim.models.traffic import stream
from mlsysim.physics.pipeline import held
from mlsysim.physics.precision import activation_element, bytes_per_element
from mlsysim.physics.stage_split import stage_layers
from mlsysim.physics.training_memory import activation_bytes_per_layer, sharded_state
from mlsysim.units.ops import maximum, minimum, where
from mlsysim.units.records import dataclass


class Saved(NamedTuple):
    """Activations that wait for the backward pass: layers (those of a stage, for every micro-batch in flight), bytes that each
    keeps, the full set of the layer that is computed again, the logits, and weights that were cast."""

    layers: Any
    each: Any
    again: Any = 0.0
    logits: Any = 0.0
    casts: Any = 0.0

    @property
    def total(self) -> Any:
        return self.layers * self.each + self.again + self.logits + self.casts


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Bytes on one device, and those that rest in the memory of its host: optimizer state, weights, activations."""

    weights: Any
    gradients: Any
    optimizer: Any
    saved: Saved
    buffers: Any = 0.0
    host: Any = 0.0
    host_weights: Any = 0.0
    host_activations: Any = 0.0

    @property
    def activations(self) -> Any:
        return self.saved.total

    @property
    def total(self) -> Any:
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers

    def fuller(self, other: TrainingState) -> TrainingState:
        """This or the other, whichever has more on the device."""
        more = other.total > self.total

        def pick(mine: Any, its: Any) -> Any:
            return where(more, 1.0 * its, 1.0 * mine)

        return TrainingState(
            pick(self.weights, other.weights),
            pick(self.gradients, other.gradients),
            pick(self.optimizer, other.optimizer),
            Saved(*map(pick, self.saved, other.saved)),
            pick(self.buffers, other.buffers),
            pick(self.host, other.host),
            pick(self.host_weights, other.host_weights),
            pick(self.host_activations, other.host_activations),
        )


def _stack_of(model: Workload) -> Stack | None:
    """The layers of a network of tokens, or None where there are none or their sizes are not known."""
    return model.stack if getattr(model, "has_dimensions", False) else None  # type: ignore[attr-defined]


def inference_bytes(
    model: Workload, batch: Any, length: Any, precision: str, cache_precision: str | None, phase: str = "decode"
) -> float:
    """Weights and caches, after a pass of a phase over so many tokens."""
    weights = model.parameter_count * stored(model, precision).mean
    stack = _stack_of(model)
    if stack is None or getattr(model, "structure", "decoder") == "encoder":
        return weights
    kept = bytes_per_element(cache_precision) if cache_precision else activation_element(precision)
    text, source = model.written(phase, length, 0)  # type: ignore[attr-defined]
    return float(weights + stack.cache_bytes(text, kept, source=source) * batch)


def _kept_bytes(
    model: Workload,
    stack: Stack,
    keeps: Keeping,
    f: Formats,
    again: Again,
    frozen: bool,
    tokens: Any,
    tp: Any,
    parallel: bool,
) -> tuple[Any, Any, Any]:
    """Bytes of the average layer, scores of attention apart: all, without what is computed again, and its input alone."""
    rotated = activated = heads = sublayers = 0.0
    for block in stack.blocks:
        sublayers += block.count * block.sublayers
        for mixer in block.mixers:
            if isinstance(mixer, Attention):
                rotated += block.count * (mixer.heads + mixer.kv_heads) * mixer.head_dim
                heads += block.count * mixer.heads
        ffn = block.ffn
        if ffn is not None and ffn.gated:
            wide = ffn.per_token * ffn.width + ffn.shared_width if isinstance(ffn, MixtureOfExperts) else ffn.width
            activated += block.count * wide
    if getattr(model, "position_embeddings", False):
        rotated = 0.0

    def held(whole: Any, split: Any) -> Any:
        own, shared = (0.0, whole + split) if parallel else (whole, split)
        return activation_bytes_per_layer(tokens, own, shared, tp, f.plain)

    def layer(again: Again) -> Any:
        whole, split = (stack.saved.frozen if frozen else stack.saved).bytes(f, again)
        extra = keeps.rotated * rotated + (0.0 if frozen else keeps.activated * activated * (1 - again.light))
        whole = whole + keeps.masks * stack.hidden * sublayers / stack.layers
        split = split + (extra * f.plain + keeps.log_sums * heads) / stack.layers
        return held(whole / f.plain, split / f.plain)

    working = layer(NOTHING)
    return working, working if again is NOTHING else layer(again), held(stack.hidden, 0.0)


def training_state(
    model: Workload,
    micro_batch: Any,
    seq_len: Any,
    precision: str,
    *,
    keeps: Keeping = TEXTBOOK,
    optimizer: str = "adam",
    recompute: Any = "none",
    again: Again | None = None,
    zero_stage: Any = 0,
    shard: Any = None,
    whole_weights: Any = 0.0,
    whole_gradients: Any = 0.0,
    dp: Any = 1,
    tp: Any = 1,
    pp: Any = 1,
    ep: Any = 1,
    cp: Any = 1,
    lora_rank: int | None = None,
    sequence_parallel: bool = True,
    schedule: str = "1f1b",
    micro_batches: Any = None,
    group: Any = None,
    chunks: Any = 1,
    several: Any = False,
    copies: Any = 1.0,
    buffer_fraction: float = 0.0,
    trainable_fraction: float = 1.0,
    optimizer_offload: Any = 0.0,
    weights_offload: Any = 0.0,
    activations_offload: Any = 0.0,
) -> TrainingState:
    """Bytes of a training step on the fullest device, when it holds most; shares of state and activations may be with the host.

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
    weight, resting = bytes_per_element(precision), stored(model, precision).mean
    kept = weight if weight >= HALF else HALF
    again = recomputed(recompute) if again is None else again
    each = keeps.bytes_each(optimizer, kept, model)
    stack, full, tied = _stack_of(model), again.full, getattr(model, "tied_embeddings", False)
    m, count = pp if micro_batches is None else micro_batches, None
    one: Any = 0.0
    working: Any = 0.0
    anew: Any = 0.0
    logits: Any = 0.0
    if stack is None:
        # Each sample of a network of fixed shape is a layer of its own here, of which every stage has its share.
        one, samples = _sample_bytes(model, precision, kept, full), micro_batch / (tp * pp)
    else:
        tokens = micro_batch * seq_len / cp
        f, count, encoder = keeps.formats(weight, kept), stack.layers, getattr(model, "encoder_stack", None)
        degrees = (tp, sequence_parallel)
        working, one, inputs = _kept_bytes(model, stack, keeps, f, again, lora_rank is not None, tokens, *degrees)
        # While one layer is recomputed its full set exists beside what all keep; without buffers the logits are gone by then.
        anew = full * working + (1 - full) * (working - one) if keeps.buffered else 0.0
        if keeps.scores:
            scores = keeps.scores * (getattr(model, "heads", None) or 0) * seq_len * tokens / tp
            one = one + scores * (1 - again.attention)
        if encoder is not None:
            # Layers of either kind, on average.
            heard = micro_batch * getattr(model, "encoder_positions", seq_len) / cp
            others = _kept_bytes(model, encoder, keeps, f, again, lora_rank is not None, heard, *degrees)
            count = stack.layers + encoder.layers
            working, one, inputs = (
                (stack.layers * own + encoder.layers * other) / count
                for own, other in zip((working, one, inputs), others, strict=True)
            )
        if keeps.passed_on and f.read == f.plain:
            # A norm goes back from what it made as well as from what it read; recomputation needs the latter.
            spared = (
                (1 - again.norm)
                * (1 - again.light)
                * (1 - again.half)
                * minimum(chunks / stage_layers(count, pp, chunks).most, 1.0)
            )
            one = one - where(pp > 1, spared * inputs, 0.0)
        one = full * inputs + (1 - full) * one
        logits = tokens * stack.vocab / tp * keeps.logits
    table = token_table(model) / tp * where(pp == 1, 1.0, 0.0)
    # Of what is shared, the layers at work are whole: their weights, and the gradients of one.
    layers = maximum((getattr(model, "layers", None) or 1) * 1.0, pp)
    units = [local / layers for local, _ in shared_parameters(model, dp, tp, ep, cp, Stage(1.0, tables(model), 1.0))]

    def on(stage: Stage) -> TrainingState:
        weights: Any = 0.0
        gradients: Any = 0.0
        optimizer_state: Any = 0.0
        trained: Any = 0.0
        for place, (local, group) in enumerate(shared_parameters(model, dp, tp, ep, cp, stage)):
            ranks = group if shard is None else minimum(group, shard)
            own, frozen = local * trainable_fraction, local - local * trainable_fraction
            if lora_rank is not None:
                own, frozen = (0.0 if place else adapter_parameters(model, lora_rank) / (tp * pp)), local
            part = [1 / (whole + (1 - whole) / ranks) for whole in (whole_weights, whole_gradients)]
            shards = [where(zero_stage >= least, split, 1) for least, split in zip((3, 2), part, strict=True)]
            owners = where(zero_stage >= 1, ranks, 1)
            parts = sharded_state(own, each[0], each[1], each[2], shards[0], shards[1], owners)
            rest = copies * parts[0] + frozen * resting / shards[0]
            if keeps.prefetched:
                layer = units[place] * (_largest_matrix(model) if keeps.compiled else 1.0)
                ahead = layer * (keeps.prefetched * kept + (0.0 if lora_rank is not None else each[1]))
                if keeps.ends and not place:
                    ahead = ahead + kept * stage.tables * token_table(model) / tp
                rest = rest + where((zero_stage >= 3) & (ranks > 1), (1 - whole_weights) * ahead, 0.0)
            own_gradients = copies * parts[1]
            if keeps.copied and lora_rank is None:
                own_gradients = own_gradients + where((zero_stage >= 2) & (ranks > 1), each[1] * units[place], 0.0)
            weights, gradients, optimizer_state = weights + rest, gradients + own_gradients, optimizer_state + parts[2]
            trained = trained + own
        if model.table_parameters:
            # Rows of tables are on one device each, in single precision, with their states and no gradients but those of a batch.
            rows = model.table_parameters / (dp * cp * tp * pp)
            states = 0.0 if lora_rank is not None else state_bytes(model, optimizer, FULL)
            weights, optimizer_state = weights + FULL * rows, optimizer_state + states * rows
        ending = stage.head * logits
        again_here = maximum(anew - ending, 0.0) if keeps.compiled else anew
        saved = (
            Saved(samples * held(schedule, pp, m, chunks, group), one)
            if stack is None
            else Saved(stage.held, one, again_here, ending)
        )
        if each[0] > kept and not keeps.compiled:
            # Products cast their weights; a table that is no head is looked up, and layers that are recomputed keep none.
            used = 1.0 if tied else 1 - token_table(model) / model.parameter_count
            saved = saved._replace(casts=kept * (full * table + (1 - full) * (used * trained)))
        if not keeps.buffered:
            # A tied table has two gradients, one of which is added to the other.
            complete = gradients + (2 * each[1] * table if tied else 0.0)
            late = where(several, 0.0, complete + 2 * working) > saved.total
            gradients = where(several, gradients, where(late, complete, 0.0 * complete))
            end = Saved(2.0, working, 0.0, 0.0, 0.0)
            saved = Saved(*(where(late, 1.0 * last, 1.0 * first) for last, first in zip(end, saved, strict=True)))
        away = activations_offload * saved.layers * saved.each
        saved = saved._replace(layers=saved.layers * (1 - activations_offload))
        # The layer at work and the next are on the device.
        at_work = minimum(2.0 * pp / (getattr(model, "layers", None) or 1), 1.0)
        host, parked = optimizer_offload * optimizer_state, weights_offload * weights * (1 - at_work)
        buffers = buffer_fraction * (weights + gradients)
        return TrainingState(weights - parked, gradients, optimizer_state - host, saved, buffers, host, parked, away)

    first, *rest = (on(stage) for stage in stages_of(model, pp, chunks, schedule, m, group, count, keeps.placed))
    return reduce(TrainingState.fuller, rest, first)


def _sample_bytes(model: Workload, precision: str, kept: float, full: Any) -> Any:
    """What one sample of a network of fixed shape keeps: all that its operators write, or with full recomputation what goes from block to
    block and the insides of one."""
    if not model.fixed_shape:
        return 0.0
    whole = model.saved_bytes(1, precision)
    if isinstance(full, float) and full == 0:
        return whole
    between = stream(model, 1)
    blocks = max(between.halves / 2, 1.0)
    return where(full > 0, minimum(kept * between.elements * blocks + whole / blocks, whole), whole)


def _largest_matrix(model: Workload) -> float:
    """The largest array of a layer over all of it: one of two or three of its feed-forward network, those of all experts together."""
    stack = _stack_of(model)
    ffns = [] if stack is None else [(block.count, block.ffn) for block in stack.blocks if block.ffn is not None]
    largest = sum(count * ffn.parameters / (3 if ffn.gated else 2) for count, ffn in ffns)
    return largest / (model.parameter_count - token_table(model)) if largest else 1.0


def adapted_matrices(model: Workload) -> tuple[float, float]:
    """Matrices that adapters stand beside, the attention projections, and the side of one, taken as square; none where not known."""
    layers, hidden = getattr(model, "layers", None), getattr(model, "hidden_dim", None)
    return (4.0 * layers, float(hidden)) if layers and hidden else (0.0, 0.0)


def adapter_parameters(model: Workload, rank: Any) -> Any:
    """Parameters of rank-r adapters on the attention projections: 2 r h for each square-ish matrix."""
    matrices, side = adapted_matrices(model)
    return matrices * 2 * rank * side if matrices else 0.01 * model.parameter_count
