"""Walls 1 and 2, compute and memory: the roofline of one device.

    T = max( F / (P eta), B / W ) + dispatch                                   (Williams, Waterman, Patterson 2009)

F operations at a fraction eta of the dense peak P; B bytes (weights, caches, activations) at memory bandwidth W. Without
``seq_len`` or ``phase`` a language model is asked for one decode token per sequence with an empty cache; with
``seq_len`` for a prefill of that many tokens; with ``is_training`` for a training step.

With ``efficiency="calibrated"`` the time is the sum of the pass's operators on measured silicon instead
(:mod:`mlsysim.timing.device_time`): ``latency_compute`` and ``latency_memory`` are then the times of operators that
arithmetic and memory bind, ``latency_overhead`` waiting for launches, and ``interval`` the band in which 90 % of
measurements of that kind lay. Microcontrollers have cycles of a multiply-add instead
(:mod:`mlsysim.timing.microcontroller`), for the ``runtime`` that is named.

A chip with flash executes the weights of a network of fixed shape in place: they must fit into flash, and what flows into main
memory. A model that does not fit is infeasible, and the answer says what is needed, what there is, and the smallest changes
that would help. Its time is still given, as if the part that does not fit were streamed from the host: resident bytes at
memory bandwidth plus spilled bytes over the host link.

Assumed: compute and memory overlap perfectly; all of the peak bandwidth is reached (real kernels reach 0.7 to 0.9, so
memory-bound times are 10 to 40 % short; ``bandwidth_efficiency`` sets it). Left out: caches on the chip, kernel launches
beyond one dispatch per pass (small batches on small models are dominated by them), activations in decode (below 2 %).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

from mlsysim.cases.capacity import inference_bytes, remedies, training_remedies, training_state
from mlsysim.errors import InputError, OOMError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.models.base import Workload
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.models.vision import RowWorkload
from mlsysim.physics.power import proportional_power, utilised_power
from mlsysim.physics.precision import bytes_per_element
from mlsysim.physics.roofline import compute_time, memory_time
from mlsysim.units.kernel import Arg, kernel
from mlsysim.units.ops import maximum
from mlsysim.units.registry import quantity, to_si
from mlsysim.units.text import bytes_text
from mlsysim.walls.base import (
    CALIBRATED,
    CALIBRATED_EFFICIENCY,
    HARDWARE,
    MODEL,
    NODE,
    PRECISION,
    Binding,
    Energy,
    Equation,
    Input,
    Intensity,
    Memory,
    MemoryRate,
    Rate,
    Resolver,
    Result,
    Time,
    Wall,
    WorkRate,
)
from mlsysim.zoo.constants import constant
from mlsysim.zoo.intervals import interval as interval_of
from mlsysim.zoo.provenance import cite

__all__ = ["CARDS", "PerformanceProfile", "SingleNodeModel", "node_time", "spill_time", "weights_in_flash"]

CARDS = (
    Wall(
        1,
        "Compute",
        NODE,
        "SingleNodeModel",
        "peak FLOP/s",
        "T = F / (P eta)",
        "Williams et al. 2009",
        "How long does the arithmetic take?",
    ),
    Wall(
        2,
        "Memory",
        NODE,
        "SingleNodeModel",
        "memory bandwidth and capacity",
        "T = B / W;  bytes <= capacity",
        "Williams et al. 2009",
        "How long does it take to feed the arithmetic, and does it fit?",
    ),
)

_TRAINING_ONLY = (
    "zero_stage",
    "dp_size",
    "is_lora",
    "lora_rank",
    "activation_recomputation",
    "optimizer",
    "raise_errors",
)

_BYTES = Arg("byte", 1e3, 1e13)
_RATE = Arg("byte/s", 1e6, 1e14)


@kernel(
    inputs={"compute": Arg("s", 1e-6, 1e3), "memory": Arg("s", 1e-6, 1e3), "dispatch": Arg("s", 1e-6, 1e-2)},
    outputs={"time": "s"},
)
def node_time(compute: Any, memory: Any, dispatch: Any) -> Any:
    """The longer of compute and memory, after the dispatch."""
    return maximum(compute, memory) + dispatch


@kernel(inputs={"moved": _BYTES, "spilled": _BYTES, "bandwidth": _RATE, "host_bandwidth": _RATE}, outputs={"time": "s"})
def spill_time(moved: Any, spilled: Any, bandwidth: Any, host_bandwidth: Any) -> Any:
    """Bytes of a pass when some of them live with the host: the resident part at memory speed, the rest over the link."""
    resident = moved - spilled
    return resident / bandwidth + spilled / host_bandwidth


class PerformanceProfile(Result):
    """What one device makes of one pass."""

    latency: Time
    latency_compute: Time
    latency_memory: Time
    latency_overhead: Time
    throughput: Rate
    bottleneck: str
    arithmetic_intensity: Intensity
    energy: Energy
    memory_footprint: Memory
    memory_capacity: Memory
    peak_flops_actual: WorkRate
    peak_bw_actual: MemoryRate
    mfu: float
    hfu: float
    phase: str
    constraint_trace: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    offload_spill_bytes: Memory = None
    offload_effective_bw: MemoryRate = None
    interval: tuple[Any, Any] | None = None

    @property
    def energy_per_inference(self) -> Any:
        """Energy of one sample, or None where the chip's power is not known."""
        samples = self._context["samples"]
        return None if self.energy is None else self.energy / samples

    def summary(self) -> str:
        """One line."""
        fit = "fits" if self.feasible else "does not fit"
        return f"{self.bottleneck}-bound, {self.latency.to('ms'):.4g~P}, {self.throughput:.4g~P}, MFU {self.mfu:.1%}, {fit}"


def weights_in_flash(model: Workload, chip: Any, phase: str) -> bool:
    """Whether the weights of a pass are read in place from flash, so that main memory holds only what flows.

    Training changes the weights, so it holds them in memory.
    """
    return chip.memory.flash_capacity is not None and model.fixed_shape and phase != "training"


def choose_pass(model: Workload, x: Any, assumed: dict[str, str]) -> tuple[str, Any, Any]:
    """Phase, new tokens and context of the pass that the inputs ask for."""
    sequence = isinstance(model, TransformerWorkload) or not model.fixed_shape
    phase: str | None = x.phase
    if x.is_training:
        if phase not in (None, "training"):
            raise InputError(f"is_training=True contradicts phase={phase!r}.")
        phase = "training"
    if not sequence:
        if x.seq_len is not None:
            raise InputError(f"{model.name} has a fixed shape and takes no 'seq_len'.", field="seq_len")
        if phase not in (None, "inference", "training"):
            raise InputError(f"{model.name} has no {phase}; use phase='inference' or is_training=True.", field="phase")
        return phase or "inference", None, 0
    encoder = isinstance(model, TransformerWorkload) and model.structure == "encoder"
    if phase is None:
        phase = "decode" if x.seq_len is None and not encoder else "prefill"
        assumed["phase"] = (
            "one decode token per sequence" if phase == "decode" else f"prefill of {x.seq_len or 'all'} tokens"
        )
    elif phase == "inference":
        phase = "prefill"
    if phase == "decode":
        context = x.seq_len if x.seq_len is not None else 0
        if x.seq_len is None:
            assumed["context"] = "0 tokens (empty cache)"
        return phase, 1, context
    length = x.seq_len
    if length is None:
        length = getattr(model, "max_context", None) if encoder else 2048
        length = length or 512
        assumed["seq_len"] = f"{length} tokens"
    return phase, length, 0


class SingleNodeModel(Resolver[PerformanceProfile]):
    """Roofline of one device: is it compute or memory that binds, and does the model fit?"""

    walls = (1, 2)
    result = PerformanceProfile
    inputs: ClassVar[dict[str, Input]] = {
        "model": MODEL,
        "hardware": HARDWARE,
        "batch_size": Input("sequences or samples in the pass", low=1, high=1e9, whole=True, default=1),
        "precision": PRECISION,
        "efficiency": CALIBRATED_EFFICIENCY,
        "raise_errors": Input("raise OOMError where the model does not fit", kind="flag", default=False),
        "is_training": Input("a training step instead of inference", kind="flag", default=False),
        "seq_len": Input("new tokens per sequence; the context in decode", low=0, high=1e8, whole=True, default=None),
        "phase": Input(
            "prefill, decode, training or inference",
            kind="choice",
            choices=("prefill", "decode", "training", "inference"),
            default=None,
        ),
        "zero_stage": Input("ZeRO stage of training", low=0, high=3, whole=True, default=0),
        "dp_size": Input("data-parallel group that shares the state", low=1, high=1e6, whole=True, default=1),
        "is_lora": Input("train low-rank adapters on frozen weights", kind="flag", default=False),
        "lora_rank": Input("rank of the adapters", low=1, high=4096, whole=True, default=16),
        "activation_recomputation": Input(
            "activations that training recomputes",
            kind="choice",
            choices=("none", "selective", "full"),
            default="none",
        ),
        "optimizer": Input("optimizer of training", kind="object", default="adam"),
        "cache_precision": Input("number format of the cache", kind="precision", default=None),
        "bandwidth_efficiency": Input(
            "fraction of the memory bandwidth that is reached", low=0, low_open=True, high=1, default=1.0
        ),
        "runtime": Input(
            "inference runtime of a microcontroller, for calibrated times",
            kind="object",
            default=None,
            example="STM32Cube.AI 9",
        ),
    }
    equations = (
        Equation(
            "latency_compute",
            "T_compute = F / (P eta)",
            r"T_{\mathrm{compute}} = \frac{F}{P\,\eta}",
            {"F": ("flops", "flop"), "P": ("peak", "flop/s"), "eta": ("efficiency", "")},
            when="first_order",
        ),
        Equation(
            "latency_memory",
            "T_memory = B / W",
            r"T_{\mathrm{memory}} = \frac{B}{W}",
            {"B": ("bytes", "byte"), "W": ("bandwidth", "byte/s")},
            when="fits",
        ),
        Equation(
            "latency_memory",
            "T_memory = (B - S) / W + S / L, with S spilled to the host",
            r"T_{\mathrm{memory}} = \frac{B - S}{W} + \frac{S}{L}",
            {
                "B": ("bytes", "byte"),
                "S": ("spilled", "byte"),
                "W": ("bandwidth", "byte/s"),
                "L": ("host_link", "byte/s"),
            },
            when="spilled",
        ),
        Equation(
            "latency",
            "T = max(T_compute, T_memory) + T_dispatch",
            r"T = \max(T_{\mathrm{compute}}, T_{\mathrm{memory}}) + T_{\mathrm{dispatch}}",
            {
                "T_compute": ("compute_time", "s"),
                "T_memory": ("memory_time", "s"),
                "T_dispatch": ("dispatch", "s"),
            },
            when="first_order",
        ),
        Equation(
            "latency",
            "T = sum over operators of t0 + |F / R, B / (e W)|, arithmetic-bound + memory-bound + waiting + spilled",
            r"T = \sum_{\mathrm{operators}} t_0 + \left\| \frac{F}{R}, \frac{B}{e\,W} \right\|",
            {
                "arithmetic-bound": ("compute_time", "s"),
                "memory-bound": ("memory_time", "s"),
                "waiting": ("dispatch", "s"),
            },
            when="calibrated",
        ),
        Equation(
            "latency",
            "T = M / (r f), with M multiply-adds at r a cycle (core, kind of network and runtime)",
            r"T = \frac{M}{r\,f}",
            {"M": ("macs", ""), "r": ("per_cycle", ""), "f": ("clock", "1/s")},
            when="microcontroller",
        ),
    )
    known_fallacies = (
        "More FLOP/s make decode faster: below the ridge point only bandwidth, batching or fewer bytes do.",
        "Peak FLOP/s rank chips: a workload left of the ridge point ranks them by bandwidth.",
        "A model that almost fits runs almost as fast: what spills moves at the speed of the host link.",
    )

    def _solve(self, x: SimpleNamespace, assumed: dict[str, str]) -> PerformanceProfile:
        """Evaluate one pass on one device."""
        model, chip = x.model, x.hardware
        phase, new, context = choose_pass(model, x, assumed)
        training = phase == "training"
        if not training:
            for name in _TRAINING_ONLY:
                assumed.pop(name, None)
        demand = model.demand(
            phase,
            batch_size=x.batch_size,
            seq_len=new,
            context=context,
            precision=x.precision,
            cache_precision=x.cache_precision,
            recompute=x.activation_recomputation if training else "none",
            frozen=x.is_lora,
        )
        peak, note = arithmetic_peak(chip, x.precision)
        if note:
            assumed["arithmetic"] = note
        bandwidth = to_si(chip.memory.bandwidth, "byte/s") * x.bandwidth_efficiency
        dispatch = to_si(chip.dispatch_tax, "s")
        if training:
            state = training_state(
                model,
                x.batch_size,
                new,
                x.precision,
                optimizer=x.optimizer,
                recompute=x.activation_recomputation,
                zero_stage=x.zero_stage,
                dp=x.dp_size,
                lora_rank=x.lora_rank if x.is_lora else None,
            )
            footprint = state.total
        else:
            footprint = inference_bytes(
                model, x.batch_size, (context or 0) + (new or 0), x.precision, x.cache_precision
            )
        footprint, capacity, place = self._room(x, phase, footprint, assumed)
        moved = demand.bytes
        fits = footprint <= capacity
        spilled = 0.0 if fits else moved * (1 - capacity / footprint)
        calibrated = x.efficiency == CALIBRATED
        interval = None
        tiny = self._microcontroller(x, phase, assumed)
        if tiny is not None:
            t_compute, t_memory, dispatch = max(tiny.time, demand.hardware_flops / peak), 0.0, 0.0
            latency = t_compute
            interval = quantity(tiny.low, "s"), quantity(tiny.high, "s")
            if not fits:
                assumed["spill"] = "times are given as if the model fitted"
        elif calibrated:
            timed = self._calibrated(x, phase, new, context, assumed)
            t_compute, t_memory, dispatch = timed.arithmetic, timed.memory, timed.waiting
            if not fits and chip.interconnect is not None:
                t_memory += spilled / to_si(chip.interconnect.bandwidth, "byte/s")
            # No calibrated sum may beat the datasheet.
            latency = max(t_compute + t_memory + dispatch, demand.hardware_flops / peak)
            interval = self._interval(timed, latency, assumed)
        else:
            t_compute = compute_time(demand.hardware_flops, peak, x.efficiency)
            if fits:
                t_memory = memory_time(moved, bandwidth)
            else:
                t_memory = self._with_spill(chip, moved, spilled, bandwidth, assumed)
            latency = node_time(t_compute, t_memory, dispatch)
        mfu = demand.flops / (latency * peak)
        hfu = demand.hardware_flops / (latency * peak)
        idle = constant("idle_power_fraction").number
        energy = None
        if tiny is not None:
            energy = tiny.energy
        elif chip.tdp is not None and calibrated:
            p = timed.profile.power
            utilised = min(timed.moved / (latency * bandwidth), 1.0)
            watts = utilised_power(to_si(chip.tdp, "W"), p.idle, p.arithmetic, p.memory, p.cap, min(hfu, 1.0), utilised)
            energy = watts * latency
        elif chip.tdp is not None:
            energy = proportional_power(to_si(chip.tdp, "W"), idle, min(hfu, 1.0)) * latency
        bound = "Compute" if fits and t_compute >= t_memory else "Memory"
        binding, trace, help_text = self._binding(
            x, fits, bound, t_compute, t_memory, footprint, capacity, place, new if training else None
        )
        if not fits and x.raise_errors:
            raise OOMError(binding.sentence, needed=footprint, available=capacity)
        outcome = PerformanceProfile(
            feasible=fits,
            assumptions=assumed,
            binding=binding,
            latency=quantity(latency, "s"),
            latency_compute=quantity(t_compute, "s"),
            latency_memory=quantity(t_memory, "s"),
            latency_overhead=quantity(dispatch, "s"),
            throughput=quantity(x.batch_size / latency, "1/second"),
            bottleneck=bound,
            arithmetic_intensity=quantity(demand.flops / moved, "flop/byte"),
            energy=None if energy is None else quantity(energy, "J"),
            memory_footprint=quantity(footprint, "byte"),
            memory_capacity=quantity(capacity, "byte"),
            peak_flops_actual=quantity(
                demand.hardware_flops / latency if calibrated else peak * x.efficiency, "flop/s"
            ),
            peak_bw_actual=quantity(moved / (latency if calibrated else t_memory), "byte/s"),
            mfu=mfu,
            hfu=hfu,
            phase=phase,
            constraint_trace=trace,
            remedies=help_text,
            offload_spill_bytes=None if fits else quantity(spilled, "byte"),
            offload_effective_bw=None if fits or not t_memory else quantity(moved / t_memory, "byte/s"),
            interval=interval,
        )
        outcome._context = {
            "flops": demand.hardware_flops,
            "bytes": moved,
            "peak": peak,
            "bandwidth": bandwidth,
            "efficiency": x.efficiency,
            "compute_time": t_compute,
            "memory_time": t_memory,
            "dispatch": dispatch,
            "samples": x.batch_size,
            "fits": fits and not calibrated,
            "first_order": not calibrated,
            "calibrated": calibrated and tiny is None,
            "microcontroller": tiny is not None,
            **({} if tiny is None else {"macs": tiny.macs, "per_cycle": tiny.per_cycle, "clock": tiny.clock}),
            "spilled": spilled if chip.interconnect and not calibrated else 0.0,
            "host_link": to_si(chip.interconnect.bandwidth, "byte/s") if spilled and chip.interconnect else None,
        }
        outcome._sources = {"model": cite(model.metadata), "hardware": cite(chip.metadata)}
        if tiny is not None:
            outcome._sources["cycles"] = tiny.source
        return outcome

    @staticmethod
    def _microcontroller(x: Any, phase: str, assumed: dict[str, str]) -> Any:
        """Cycles of a pass, where a calibrated one is asked for on a chip whose core is known by them; else None."""
        from mlsysim.timing.microcontroller import board_of_chip, microcontroller_pass

        layers = isinstance(x.model, RowWorkload) and bool(x.model.rows) and phase == "inference"
        if x.runtime is not None and not isinstance(x.runtime, str):
            raise InputError(f"The 'runtime' of SingleNodeModel is a name, not {x.runtime!r:.80}.", field="runtime")
        target = board_of_chip(x.hardware) if x.efficiency == CALIBRATED and layers else None
        if target is None:
            if x.runtime is not None:
                raise InputError(
                    f"The runtime {x.runtime!r} is known for calibrated inference of networks of layers on microcontrollers, which "
                    f"{x.model.name} on {x.hardware.name} with efficiency={x.efficiency!r} is not; leave it out.",
                    field="runtime",
                )
            return None
        assumed.pop("bandwidth_efficiency", None)
        timed = microcontroller_pass(x.model, x.hardware, target, x.batch_size, x.precision, x.runtime)
        assumed.update(timed.assumptions)
        return timed

    @staticmethod
    def _calibrated(x: Any, phase: str, new: Any, context: Any, assumed: dict[str, str]) -> Any:
        """The sum of measured operators."""
        from mlsysim.timing.device_time import check_known, inference_time, training_time

        check_known(x.model, x.hardware, x.precision)
        assumed.pop("bandwidth_efficiency", None)
        if phase == "training":
            narrow = bytes_per_element(x.precision) > 2
            timed = training_time(
                x.model,
                x.hardware,
                x.batch_size,
                new,
                x.precision,
                x.activation_recomputation,
                x.optimizer,
                frozen=x.is_lora,
                software_name="torch" if narrow else "torch_amp",
            )
        else:
            timed = inference_time(
                x.model,
                x.hardware,
                phase,
                x.batch_size,
                new,
                context,
                x.precision,
                x.cache_precision,
                software_name="torch_graph" if x.model.fixed_shape else "engine",
            )
        basis = {"measured": "measured on this chip", "generation": "of its generation", "family": "of its family"}
        assumed["fidelity"] = f"calibrated: operator times with constants {basis[timed.profile.basis]}"
        assumed["profile"] = f"{timed.profile.name} ({timed.profile.basis})"
        assumed["software"] = timed.software
        return timed

    @staticmethod
    def _interval(timed: Any, latency: float, assumed: dict[str, str]) -> Any:
        """Low and high latency between which 90 % of measurements of this kind lay.

        Whole passes were measured on one chip. Another chip with measured kernels gets the band of that chip's passes when
        predicted with constants of other chips; a chip known by its class was validated on nothing.
        """
        shares = timed.profile
        band = interval_of(timed.regime if shares.measured else "unvalidated", shares.passes_measured)
        low, high = band.around(latency)
        if band.extrapolating:
            assumed["interval"] = f"extrapolating: {timed.regime} was not validated on such a chip"
        elif shares.passes_measured:
            assumed["interval"] = f"90 % of {band.rows} passes measured on this chip ({band.regime})"
        else:
            assumed["interval"] = (
                f"90 % of {band.rows} passes of another chip, predicted with constants that are not its own ({band.regime})"
            )
        return quantity(low, "s"), quantity(high, "s")

    @staticmethod
    def _with_spill(chip: Any, moved: float, spilled: float, bandwidth: float, assumed: dict[str, str]) -> float:
        if chip.interconnect is None:
            assumed["spill"] = f"{chip.name} has no host link to stream over: times are given as if the model fitted"
            return float(memory_time(moved, bandwidth))
        link = to_si(chip.interconnect.bandwidth, "byte/s")
        return float(spill_time(moved, spilled, bandwidth, link))

    @staticmethod
    def _room(x: Any, phase: str, footprint: float, assumed: dict[str, str]) -> tuple[float, float, str]:
        """Bytes needed and available, and where. A microcontroller leaves weights in flash and needs RAM for what flows."""
        memory = x.hardware.memory
        capacity = to_si(memory.capacity, "byte")
        if not weights_in_flash(x.model, x.hardware, phase):
            return footprint, capacity, ""
        flash = to_si(memory.flash_capacity, "byte")
        weights = x.model.parameter_count * bytes_per_element(x.precision)
        working = x.model.working_bytes(x.batch_size, x.precision)
        assumed["weights"] = f"{bytes_text(weights)} executed in place from {bytes_text(flash)} of flash, none in RAM"
        if weights > flash:
            return weights, flash, "flash"
        return working, capacity, "RAM"

    @staticmethod
    def _binding(
        x: Any,
        fits: bool,
        bound: str,
        compute: float,
        memory: float,
        needed: float,
        available: float,
        place: str,
        length: Any,
    ) -> tuple[Binding, tuple[str, ...], tuple[str, ...]]:
        if not fits:
            found = (
                training_remedies(
                    x.model,
                    x.batch_size,
                    length or 1,
                    x.precision,
                    available,
                    optimizer=x.optimizer,
                    recompute=x.activation_recomputation,
                    zero_stage=x.zero_stage,
                    dp=x.dp_size,
                    lora_rank=x.lora_rank if x.is_lora else None,
                )
                if x.is_training or x.phase == "training"
                else remedies(needed, available, x.precision, place)
            )
            sentence = (
                f"Wall 2 (Memory): {x.model.name} needs {bytes_text(needed)}{place and f' of {place}'} and {x.hardware.name} has "
                f"{bytes_text(available)}; {found[0]}."
            )
            return Binding(2, "Memory", needed / available, sentence), (sentence,), tuple(found)
        longer, shorter = max(compute, memory), min(compute, memory)
        margin = longer / shorter if shorter > 0 else None
        number = 1 if bound == "Compute" else 2
        other = "memory" if bound == "Compute" else "compute"
        lead = (
            f"it takes {margin:.3g} times as long as {other}"
            if margin is not None
            else f"no time is counted for {other} alone"
        )
        sentence = f"Wall {number} ({bound}) binds: {lead}."
        return Binding(number, bound, margin, sentence), (sentence,), ()
