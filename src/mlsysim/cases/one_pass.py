"""One pass of a model on one device: what it asks for, whether it fits, and how long it takes at first order.

    T = max( F / (P eta), (B - S) / W + S / L ) + dispatch                     (Williams, Waterman, Patterson 2009)

F operations at a fraction eta of the peak P (where that is of a narrow format, what is no product with weights at the 16-bit one); B bytes at memory bandwidth W. Of a model that does not fit, the share S that is
not in memory is streamed over the host link L on every pass: a part of wall 2 whose resource is the link. A chip without a host
link is timed as if the model fitted.

Memory holds weights, the caches of all sequences and, in encoders and networks of fixed shape, what flows through the widest operator
(:mod:`mlsysim.models.widths`). A chip with flash executes the weights of a network of fixed shape in place: they must fit into flash, and what flows into main memory.
Left out: working sets of language models (below 2 % of the weights in decode), allocator and libraries.

Numbers or arrays go in; :func:`roofline` is what a sweep broadcasts and :func:`first_order` what the ledger of a single answer
is taken of. Calibrated times are in :mod:`mlsysim.cases.pass_times`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mlsysim.cases.algebra import Algebra, ledger_of
from mlsysim.cases.assumptions import DEFAULT, INFERRED, Assumptions
from mlsysim.cases.joules import draw_of, throttled, with_joules
from mlsysim.cases.ledger import STREAMED, Held, Ledger
from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak, expansion_rate
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.footprint import inference_bytes
from mlsysim.models.storage import expanded_work, stored
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.models.widths import flowing
from mlsysim.physics.precision import INSTRUCTIONS, TILE_ROWS, expansion_time, format_of
from mlsysim.physics.roofline import compute_time, memory_time, node_time
from mlsysim.timing.power import Activity, ChipPower, Clock, equivalent, wide_peak
from mlsysim.units.ops import maximum, where
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si
from mlsysim.vocabulary import Setting, worded

UNKNOWN = math.nan
"""A figure that a chip does not state."""
_PROMPT = 2048
_SENTENCE = 512


@dataclass(frozen=True, slots=True)
class Pass:
    """The question: a forward pass of so many sequences or samples.

    ``new`` tokens a sequence follow ``context`` cached ones; a network of fixed shape has neither. ``devices`` share the tokens of
    an image, ``ring`` of them by passing keys and values around; ``arrivals`` says that samples come at random and may not wait
    long; ``rate`` is the measured number of samples a second, which energy is of.
    """

    model: Workload
    phase: str
    batch: int
    new: int | None = None
    context: int = 0
    precision: str = "fp16"
    cache_precision: str | None = None
    devices: int = 1
    ring: int = 1
    arrivals: bool = False
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What a pass asks for, in flop and bytes. ``in_place`` where its weights may be executed from flash.

    A training step (``is_step``) is timed as if it fitted, without the dispatch of a pass, as a fleet's is. Weights of a narrow
    format have ``expanded`` operations for a single row, and ``products`` for all; ``wide`` operations are in 16 bits where those are
    narrower.
    """

    flops: Any
    hardware_flops: Any
    moved: Any
    tokens: Any
    samples: Any
    weights: Any
    cache: Any
    working: Any
    in_place: Any = False
    reserve: Any = 0.0
    is_step: Any = False
    expanded: Any = 0.0
    products: Any = 0.0
    wide: Any = 0.0

    @property
    def total(self) -> Any:
        """Bytes that main memory holds where there is no flash."""
        return self.weights + self.cache + self.working + self.reserve


@dataclass(frozen=True, slots=True)
class Device:
    """Figures of a chip at a precision, in SI units; ``UNKNOWN`` where it states none.

    ``energy`` is that of an operation over one of 16 bits, whose peak is ``wide``, ``cap`` the limit of power, where it is lower than the chip's own.
    """

    peak: Any
    bandwidth: Any
    capacity: Any
    host_link: Any = UNKNOWN
    dispatch: Any = 0.0
    flash: Any = UNKNOWN
    expansion: Any = math.inf
    energy: Any = 1.0
    cap: Any = None
    wide: Any = math.inf


@dataclass(frozen=True, slots=True)
class Roofline:
    """Times of a pass before they are put together, and what does not fit."""

    compute: Any
    expanding: Any
    resident: Any
    streamed: Any
    dispatch: Any
    spilled: Any
    held: Any
    capacity: Any

    @property
    def computing(self) -> Any:
        """Matrix units multiply while vector units expand."""
        return maximum(self.compute, self.expanding)

    @property
    def memory(self) -> Any:
        """Bytes through memory and, where some are not in it, over the host link."""
        return self.resident + self.streamed

    @property
    def fits(self) -> Any:
        return self.held <= self.capacity

    @property
    def seconds(self) -> Any:
        return node_time(self.computing, self.memory, self.dispatch)

    def at(self, clock: Clock) -> Roofline:
        """The same under a lower clock."""
        slower, streaming = clock.slower, clock.streaming
        times = {"compute": slower * self.compute, "expanding": slower * self.expanding}
        return replace(self, **times, resident=streaming * self.resident)

    def activity(self, work: Work, device: Device, clock: Any = 1.0) -> Activity:
        """What the device does in the pass; it waits while bytes come over the host link, and for the dispatch."""
        computing = self.computing
        running = where(computing >= self.memory, computing, self.resident)
        time = self.seconds
        operations = work.wide + device.energy * (work.hardware_flops - work.wide)
        return Activity(operations / time, work.moved / time, running / time, 0.0, clock)


@dataclass(frozen=True, slots=True)
class Timed:
    """The answer: seconds by what they go to, bytes needed and there, joules, 90 % bands, and how the ledger is taken.

    ``compute``, ``memory`` and ``overhead`` overlap at first order; calibrated, they are what each wall has of the critical path.
    ``energy`` is of all devices; ``slower`` and ``streaming`` are times of arithmetic and of traffic over those of the device's peak of the format and
    of its bandwidth, where other formats or a limit of power make them longer; ``cycles`` are the facts of a microcontroller; ``work`` is what was done, where software does not do
    all that the model counts.
    """

    seconds: float
    compute: float
    memory: float
    overhead: float
    needed: float
    capacity: float
    binding_wall: int
    case: Callable[[], Ledger]
    energy: float | None
    spilled: float = 0.0
    band: tuple[float, float] | None = None
    energy_band: tuple[float, float] | None = None
    cycles: dict[str, float] | None = None
    source: str | None = None
    work: Work | None = None
    slower: float = 1.0
    streaming: float = 1.0

    @property
    def fits(self) -> bool:
        return self.needed <= self.capacity


# --- the question -----------------------------------------------------------------------------------------------------


def asked_pass(
    model: Workload, phase: str | None, seq_len: int | None, training: bool, assumed: Assumptions
) -> tuple[str, int | None, int]:
    """Phase, new tokens and context of the pass that the inputs ask for."""
    if training:
        if phase not in (None, "training"):
            raise InputError(worded(Setting("is_training", True), " contradicts ", Setting("phase", phase), "."))
        phase = "training"
    if model.fixed_shape and not isinstance(model, TransformerWorkload):
        return _fixed(model, phase, seq_len), None, 0
    if phase == "generate":
        raise InputError(f"{model.name} generates tokens one by one; use phase='decode'.", field="phase")
    encoder = isinstance(model, TransformerWorkload) and model.structure == "encoder"
    if phase is None:
        phase = "decode" if seq_len is None and not encoder else "prefill"
        words = (
            "one decode token per sequence"
            if phase == "decode"
            else f"prefill of {f'{seq_len:,}' if seq_len else 'all'} tokens"
        )
        assumed.say("phase", phase, INFERRED, words)
    elif phase == "inference":
        phase = "prefill"
    if phase == "decode":
        if seq_len is None:
            assumed.say("context", 0, DEFAULT, "0 tokens (empty cache)")
        return phase, 1, seq_len or 0
    if seq_len is None:
        seq_len = (getattr(model, "max_context", None) if encoder else _PROMPT) or _SENTENCE
        assumed.say("seq_len", seq_len, DEFAULT, f"{seq_len} tokens")
    return phase, seq_len, 0


def _fixed(model: Workload, phase: str | None, seq_len: int | None) -> str:
    if seq_len is not None:
        raise InputError(f"{model.name} has a fixed shape and takes no 'seq_len'.", field="seq_len")
    phases = ("inference", "training", *(("generate",) if model.denoises else ()))
    if phase is not None and phase not in phases:
        raise InputError(
            worded(f"{model.name} has no {phase}; use ", Setting("phase", "inference"), "."), field="phase"
        )
    return phase or "inference"


def work_of(question: Pass) -> Work:
    """What a forward pass asks of each device."""
    model, precision, devices = question.model, question.precision, question.devices
    demand = model.demand(
        question.phase,
        batch_size=question.batch,
        seq_len=question.new,
        context=question.context,
        precision=precision,
        cache_precision=question.cache_precision,
    )
    weights = model.parameter_count * stored(model, precision).mean
    expanded, products, more = expanded_work(model, demand, precision)
    length = question.context + (question.new or 0)
    kept = inference_bytes(model, question.batch, length, precision, question.cache_precision, question.phase)
    return Work(
        flops=demand.flops / devices,
        hardware_flops=demand.hardware_flops / devices,
        moved=demand.weight_bytes + (demand.bytes - demand.weight_bytes) / devices + more,
        tokens=demand.tokens,
        samples=question.batch,
        weights=weights,
        cache=kept - weights,
        working=flowing(model, question.batch, question.new, precision) / devices,
        in_place=model.fixed_shape,
        expanded=expanded,
        products=products / devices,
        wide=maximum(demand.hardware_flops - products, 0.0) / devices if format_of(precision).multiplied else 0.0,
    )


def device_of(chip: HardwareNode, precision: str, bandwidth_efficiency: float, assumed: Assumptions) -> Device:
    """A chip's figures at a precision."""
    peak, note = arithmetic_peak(chip, precision)
    if note:
        assumed["arithmetic"] = note
    memory = chip.memory
    return Device(
        peak=peak,
        bandwidth=to_si(memory.bandwidth, "byte/s") * bandwidth_efficiency,
        capacity=to_si(memory.capacity, "byte"),
        host_link=UNKNOWN if chip.interconnect is None else to_si(chip.interconnect.bandwidth, "byte/s"),
        dispatch=to_si(chip.dispatch_tax, "s"),
        flash=UNKNOWN if memory.flash_capacity is None else to_si(memory.flash_capacity, "byte"),
        expansion=expansion_rate(chip, precision),
        energy=equivalent(chip, precision),
        wide=min(peak, wide_peak(chip)),
    )


# --- does it fit ------------------------------------------------------------------------------------------------------


def room(work: Work, device: Device) -> tuple[Any, Any]:
    """Bytes held and there, of the memory that decides: flash where the weights do not fit into it, else main memory."""
    placed = work.in_place & (device.flash == device.flash)
    heavy = placed & (work.weights > device.flash)
    held = where(heavy, work.weights, where(placed, work.working, work.total))
    return held, where(heavy, device.flash, device.capacity)


def held_by(work: Work, device: Device) -> tuple[tuple[Held, ...], str]:
    """What is held, by name, and the word for the memory that decides on a chip with flash."""
    cached = (Held("cache", work.cache),) if work.cache else ()
    if not work.in_place or device.flash != device.flash:
        flowing = (Held("activations", work.working),) if work.working else ()
        return (Held("weights", work.weights), *cached, *flowing), ""
    if work.weights > device.flash:
        return (Held("weights", work.weights), Held("activations", work.working, "RAM")), "flash"
    return (Held("weights", work.weights, "flash"), Held("activations", work.working)), "RAM"


# --- first order ------------------------------------------------------------------------------------------------------


def roofline(work: Work, device: Device, efficiency: Any) -> Roofline:
    """Times of a pass with one efficiency, and what is streamed of a model that does not fit."""
    held, capacity = room(work, device)
    linked = (device.host_link == device.host_link) & (work.is_step <= 0)
    spilled = where((held > capacity) & linked, work.moved * (1 - capacity / held), 0.0)
    return Roofline(
        compute=compute_time(work.hardware_flops - work.wide, device.peak, efficiency)
        + compute_time(work.wide, device.wide, efficiency),
        expanding=expansion_time(work.expanded, work.products, INSTRUCTIONS, TILE_ROWS, device.expansion),
        resident=memory_time(work.moved - spilled, device.bandwidth),
        streamed=memory_time(spilled, where(linked, device.host_link, math.inf)),
        dispatch=where(work.is_step > 0, 0.0, device.dispatch),
        spilled=spilled,
        held=held,
        capacity=capacity,
    )


def first_order(a: Algebra, work: Work, times: Roofline) -> Any:
    """The pass as one operator: arithmetic beside memory traffic, after the dispatch."""
    traffic = a.tag(
        "memory traffic", 2, "bandwidth", "T = B / W", times.resident, moved=work.moved - times.spilled
    ) + a.tag(STREAMED, 2, "host link", "T = S / L", times.streamed, moved=times.spilled)
    compute = a.tag("arithmetic", 1, "peak", "T = F / (P eta)", times.compute, flop=work.hardware_flops)
    expanding = a.tag("expansion of weights", 1, "vector", "T = i max(F_1, F / R) / V", times.expanding)
    return node_time(
        maximum(compute, expanding), traffic, a.tag("dispatch", 3, "host", "T = T_dispatch", times.dispatch)
    )


def first_order_pass(
    work: Work, device: Device, efficiency: float, chip: HardwareNode, held: tuple[Held, ...] | None = None
) -> Timed:
    """A pass at first order; ``held`` where it is not what a forward pass holds."""
    times, clock = under_limit(work, device, roofline(work, device, efficiency), chip)
    seconds = times.seconds
    draw = draw_of(chip, times.activity(work, device, clock), device.cap)

    def case() -> Ledger:
        kept = held_by(work, device)[0] if held is None else held
        return with_joules(ledger_of(lambda a: first_order(a, work, times), kept, times.capacity), draw)

    computing, usual = times.computing, compute_time(work.hardware_flops, device.peak, efficiency)
    longer = 1 if computing >= times.memory else 2
    return Timed(
        seconds=seconds,
        compute=computing,
        memory=times.memory,
        overhead=times.dispatch,
        needed=times.held,
        capacity=times.capacity,
        binding_wall=3 if times.dispatch > max(computing, times.memory) else longer,
        case=case,
        energy=None if draw is None else draw.watts * seconds,
        spilled=times.spilled,
        slower=1.0 if math.isclose(computing, usual) else computing / usual,
        streaming=times.resident / memory_time(work.moved - times.spilled, device.bandwidth),
    )


def under_limit(work: Work, device: Device, times: Roofline, chip: HardwareNode | ChipPower) -> tuple[Roofline, Any]:
    """Times of a pass under the device's limit of power, and its clock over the highest."""
    if device.cap is None:
        return times, 1.0
    clock = throttled(chip, times.activity(work, device), ledger_of(lambda a: first_order(a, work, times)), device.cap)
    return times.at(clock), clock.clock
