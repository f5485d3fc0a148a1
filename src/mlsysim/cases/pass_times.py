"""Calibrated times of one pass: the sum of its operators on measured silicon, by the form that is scored for its kind.

    models that write tokens      an iteration of a serving engine, as a replica of one      :mod:`mlsysim.timing.engine_step`
    encoders, look-ups            operators of the lowered graph with the chip's profile     :mod:`mlsysim.timing.device_time`
    networks of fixed shape       classes of operators under a named runtime                 :mod:`mlsysim.timing.vision_time`
    denoisers                     products, attention and the rest at their own rates        :mod:`mlsysim.timing.diffusion_time`
    compiled engines              shares of the 8-bit peak by generation                     :mod:`mlsysim.timing.engine_rates`
    microcontrollers              cycles of a multiply-add                                   :mod:`mlsysim.timing.microcontroller`

No sum may beat the datasheet. What does not fit is streamed over the host link beside it. The band is that of the passes which
were measured for this form, and its words say whether this chip is among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from mlsysim.cases.algebra import Algebra, Clocked, ledger_of
from mlsysim.cases.assumptions import DEFAULT, INFERRED, SOFTWARE, Assumptions
from mlsysim.cases.joules import OF_A_PASS, Draw, activity_of, draw_of, energy_band, throttled, with_joules
from mlsysim.cases.ledger import STREAMED, Held, Ledger
from mlsysim.cases.one_pass import Device, Pass, Timed, Work, held_by, room
from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.inventory import inventory_of
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import bytes_per_element
from mlsysim.timing.device_time import check_known, inference_time, regime_of
from mlsysim.timing.diffusion_time import denoising_time, diffusion_activity, diffusion_time
from mlsysim.timing.engine_rates import engine_latency
from mlsysim.timing.engines import default_engine, engine, is_engine
from mlsysim.timing.kernels import Profile
from mlsysim.timing.microcontroller import Board, board_of_chip, microcontroller_pass
from mlsysim.timing.power import Activity, vector_share
from mlsysim.timing.profile import own_words, profile
from mlsysim.timing.runtimes import DENOISING, DIFFUSION, ENGINE, Runtime, band_of, has_inventory, runtime_for
from mlsysim.timing.stacks import software, software_names
from mlsysim.timing.vision_time import constants, inventory_time
from mlsysim.vocabulary import Setting, worded
from mlsysim.zoo.intervals import Interval, interval

ENERGY = "energy per image"
WAITING = "waiting for arrivals"
_ALONE = "One pass runs on one accelerator; only denoisers share their images' tokens (calibrated, phase generate, diffusers)."
_BASIS = {"measured": "measured on this chip", "generation": "of its generation", "family": "of its family"}
_ENGINE_BYTES = 1

Form = Callable[[Algebra], Any]
"""Seconds of a pass, in an algebra."""


def calibrated_pass(
    question: Pass, work: Work, device: Device, chip: HardwareNode, runtime: str | None, assumed: Assumptions
) -> Timed:
    """A forward pass, calibrated."""
    assumed.pop("bandwidth_efficiency", None)
    target = _board(question, chip)
    refuse_unasked(question, runtime, target is not None)
    if target is not None:
        return _on_board(question, work, device, chip, target, runtime, assumed)
    check_known(question.model, chip, question.precision)
    if _writes(question.model) and (runtime is None or is_engine(runtime)):
        return _by_engine(question, work, device, chip, runtime, assumed)
    operators = runtime in software_names() or (runtime is None and not has_inventory(question.model, chip))
    form, known, words = (_by_operators if operators else _by_runtime)(question, chip, runtime, assumed)
    held, _ = held_by(work, device)
    needed, capacity = room(work, device)
    spilled = _spilled(work, device, needed, capacity)
    band = _said(known, words, needed <= capacity, assumed)
    denoises = question.phase == "generate" and known.regime == DIFFUSION
    does = partial(_does, question, chip, runtime, denoises) if denoises or question.rate is not None else None
    launched = not operators and runtime_for(question.model, question.phase, runtime)[0].launched
    vector = "kernels" if operators else "eager" if launched else "fused"
    timed = timed_by(form, work, held, capacity, device, chip, band, spilled, does=does, vector=vector)
    kind, over = ENERGY if denoises else OF_A_PASS, None if question.rate is None else question.batch / question.rate
    return replace(timed, energy_band=energy_band(timed, chip, kind, device.cap, question.devices, over))


def _does(
    question: Pass, chip: HardwareNode, runtime: str | None, denoises: bool, ledger: Ledger, found: Activity
) -> tuple[Activity, float]:
    """What a device does in the time in which the pass was measured to happen, and how much that is of the ledger's device-time.
    Denoisers do what was measured of them."""
    over = ledger.seconds if question.rate is None else question.batch / question.rate
    model: Any = question.model
    if denoises:
        stack = runtime_for(model, question.phase, runtime)[1]
        done = diffusion_activity(model, chip, question.devices, question.batch, model.denoising_steps, over, stack)
        return replace(done, clock=found.clock), question.devices * over / ledger.seconds
    slower = ledger.seconds / over
    busy = min(1.0, found.busy * slower)
    return replace(found, operations=found.operations * slower, moved=found.moved * slower, busy=busy), 1 / slower


def _spilled(work: Work, device: Device, needed: float, capacity: float) -> float:
    """Bytes of a pass that are not in memory, where there is a link to stream them over."""
    linked = device.host_link == device.host_link
    return work.moved * (1 - capacity / needed) if needed > capacity and linked else 0.0


def _said(band: Interval, words: str, fits: bool, assumed: Assumptions) -> Interval | None:
    """The band, and what it rests on noted; none for a pass that does not fit, as none of those was measured."""
    if not fits:
        words = "no pass of a model that does not fit was measured"
    assumed.say("interval", band.key if fits else "none", INFERRED, words)
    return band if fits else None


def timed_by(
    form: Form,
    work: Work,
    held: Iterable[Held],
    capacity: float,
    device: Device,
    chip: HardwareNode,
    band: Interval | None,
    spilled: float = 0.0,
    bounded: bool = True,
    drawn: Callable[[], Draw | None] | None = None,
    does: Callable[[Ledger, Activity], tuple[Activity, float]] | None = None,
    vector: str = "kernels",
) -> Timed:
    """A calibrated answer, read off its ledger.

    A sum that is ``bounded`` may not beat the datasheet with the work that the model counts. Energy is of what is ``drawn``, else of what the
    device ``does``, which is what its ledger has; unknown where the chip's power limit is. ``vector`` says what kind of kernels run.
    """
    clock = None

    def case(a: Algebra) -> Any:
        a = a if clock is None else Clocked(a, clock.slower, clock.streaming)
        total = form(a)
        if bounded:
            least = a.tag("arithmetic at the peak", 1, "peak", "T >= F / P", work.hardware_flops / device.peak)
            total = a.longest(total, least)
        if not spilled:
            return total
        return total + a.tag(STREAMED, 2, "host link", "T = S / L", spilled / device.host_link, moved=spilled)

    def activity(ledger: Ledger) -> tuple[Activity, float]:
        done = work.hardware_flops if bounded or work.is_step else ledger.total("flop")
        found = activity_of(ledger, device.energy, vector_share(vector), clock=1.0 if clock is None else clock.clock)
        found = replace(found, operations=device.energy * done / ledger.seconds)
        return (found, 1.0) if does is None else does(ledger, found)

    held = tuple(held)
    ledger = ledger_of(case, held, capacity)
    if device.cap is not None:
        clock = throttled(chip, activity(ledger)[0], ledger, device.cap)
        ledger = ledger_of(case, held, capacity)
    walls, seconds = ledger.walls(), float(ledger.seconds)
    if drawn is not None:
        draw = drawn()
    else:
        done, weight = activity(ledger)
        draw = draw_of(chip, done, device.cap)
        draw = None if draw is None else replace(draw, watts=draw.watts * weight)
    return Timed(
        seconds=seconds,
        compute=walls.get(1, 0.0),
        memory=walls.get(2, 0.0),
        overhead=sum(time for wall, time in walls.items() if wall not in (1, 2)),
        needed=ledger.memory,
        capacity=capacity,
        binding_wall=next(iter(walls)),
        case=lambda: with_joules(ledger, draw),
        energy=None if draw is None else draw.watts * seconds,
        spilled=spilled,
        band=None
        if band is None
        else band.around(seconds, work.flops / device.peak if bounded or work.is_step else 0.0),
    )


# --- operators of a lowered graph -------------------------------------------------------------------------------------


def _by_operators(
    question: Pass, chip: HardwareNode, name: str | None, assumed: Assumptions
) -> tuple[Form, Interval, str]:
    shares, model = profile(chip), question.model
    chosen = software(name or ("torch_graph" if model.fixed_shape else "engine"))

    def seconds(a: Algebra) -> Any:
        return inference_time(
            model,
            chip,
            question.phase,
            question.batch,
            question.new,
            question.context,
            question.precision,
            question.cache_precision,
            software_name=chosen.name,
            shares=shares,
            tag=a.tag,
        ).total

    say_profile(shares, assumed)
    if name is None:
        assumed.say("software", chosen.name, SOFTWARE)
    return seconds, *profile_band(regime_of(model, question.phase, chosen), shares)


def say_profile(shares: Profile, assumed: Assumptions) -> None:
    """Note whose constants time the operators."""
    assumed["fidelity"] = f"calibrated: operator times with constants {_BASIS[shares.basis]}"
    assumed["profile"] = f"{shares.name} ({shares.basis})"
    if mine := own_words(shares):
        assumed["own_profile"] = mine


def profile_band(regime: str, shares: Profile) -> tuple[Interval, str]:
    """The band of a regime on a chip, and what it rests on, in words.

    Whole passes were measured on one chip. Another gets the band of that chip's passes when predicted with constants of other chips.
    """
    band = interval(regime, *() if shares.passes_measured else ("chip",))
    lacks = "no pass was measured on this chip (passes on another one, predicted with constants that are not its own, show what that adds)"
    return band, band.resting_on(f"measured passes ({regime})", chip=lacks)


# --- an iteration of a serving engine ---------------------------------------------------------------------------------


def _writes(model: Workload) -> bool:
    """Whether a model writes one token after another, as serving engines run it."""
    return isinstance(model, TransformerWorkload) and model.structure == "decoder"


def _by_engine(
    question: Pass, work: Work, device: Device, chip: HardwareNode, name: str | None, assumed: Assumptions
) -> Timed:
    """What a replica of one device does in one iteration, in the memory that its engine leaves room for."""
    from mlsysim.cases.deployment import Deployment
    from mlsysim.cases.machines import Engines
    from mlsysim.cases.traffic import Traffic

    model = question.model
    assert isinstance(model, TransformerWorkload)
    chosen = name or default_engine(chip)
    if name is None:
        assumed.say("runtime", chosen, DEFAULT, engine(chosen).spoken)
    machine = Deployment(model, chip, question.precision, question.cache_precision, engine=chosen).machine(assumed)
    assert isinstance(machine, Engines)
    decode, context, tokens = question.phase == "decode", question.context, question.new or 1
    traffic = Traffic(context + tokens, 0, question.batch, together=question.batch)
    memory = machine.memories(traffic)[0]
    needed, capacity = memory.used(question.batch), memory.capacity
    spilled = _spilled(work, device, needed, capacity)

    def form(a: Algebra) -> Any:
        time = machine.writing(traffic, a.tag) if decode else machine.reading(traffic, tokens, a.tag)
        return time(context)

    band = _said(*machine.band("tpot" if decode else "ttft", traffic), needed <= capacity, assumed)
    timed = timed_by(form, work, memory.held(question.batch), capacity, device, chip, band, spilled, bounded=False)
    # An engine looks for the next token after the last one of a prompt alone: less than the model's own count.
    ledger = timed.case()
    run = ledger.total("flop")
    joules = energy_band(timed, chip, "energy per token", device.cap)
    return replace(
        timed,
        energy_band=joules,
        work=replace(work, flops=run, hardware_flops=run, moved=ledger.total("moved") - spilled),
    )


# --- named runtimes ---------------------------------------------------------------------------------------------------


def _by_runtime(
    question: Pass, chip: HardwareNode, name: str | None, assumed: Assumptions
) -> tuple[Form, Interval, str]:
    model = question.model
    chosen, stack = runtime_for(model, question.phase, name)
    if not has_inventory(model, chip) and (stack != ENGINE or model.looks_up):
        refuse_runtime(model, chip, name, "calibrated")
    say_runtime(chosen, name, assumed)
    if question.devices > 1 and (stack not in DENOISING or question.phase != "generate"):
        raise InputError(_ALONE, field="hardware")
    band, words = band_of(stack, chip, question.batch, question.arrivals, question.precision)
    return _form(question, chip, stack), band, words


def say_runtime(chosen: Runtime, given: str | None, assumed: Assumptions) -> None:
    """Note the software, and that nobody asked for it where that is so."""
    assumed["fidelity"] = f"calibrated: classes of operators under {chosen.title}"
    if given is None:
        assumed.say("runtime", chosen.name, DEFAULT, f"{chosen.name}: {chosen.title}")


def _form(question: Pass, chip: HardwareNode, stack: str) -> Form:
    model: Any = question.model
    batch, precision = question.batch, question.precision
    if stack in DENOISING:
        if question.phase == "generate":
            ring = question.ring
            if question.devices % ring:
                raise InputError(f"A ring of {ring} does not divide {question.devices} accelerators.", field="ring")
            shared = question.devices // ring
            return lambda a: diffusion_time(model, chip, batch, None, shared, ring, precision, stack, a.tag)
        return lambda a: denoising_time(model, chip, batch, precision, stack, a.tag)
    inventory = inventory_of(model, None if model.fixed_shape else question.new)
    passes = model.passes_per_image if model.denoises and question.phase == "generate" else 1
    if stack == ENGINE:
        if bytes_per_element(precision) != _ENGINE_BYTES:
            raise InputError(
                f"TensorRT was measured with 8-bit arithmetic, not in {precision}; set the precision to int8 or fp8.",
                field="precision",
            )
        kept = constants()["mlperf"]["server_share"]

        def seconds(a: Algebra) -> Any:
            busy = engine_latency(inventory, chip, batch, passes, tag=a.tag)
            return a.grown(WAITING, 7, "T = T_busy / s", busy, busy / kept) if question.arrivals else busy

        return seconds
    return lambda a: passes * inventory_time(inventory, chip, batch, precision, stack, tag=a.tag)


# --- microcontrollers -------------------------------------------------------------------------------------------------


def _board(question: Pass, chip: HardwareNode) -> Board | None:
    """The board whose cycles time the pass; None where the chip is not known by them, or the network not by its layers."""
    layers = bool(getattr(question.model, "rows", ())) and question.phase == "inference"
    return board_of_chip(chip) if layers else None


def _on_board(
    question: Pass,
    work: Work,
    device: Device,
    chip: HardwareNode,
    target: Board,
    runtime: str | None,
    assumed: Assumptions,
) -> Timed:
    model: Any = question.model
    found = microcontroller_pass(model, chip, target, question.batch, question.precision, runtime)
    for name, text in found.assumptions.items():
        assumed.say(name, found.regime if name == "interval" else text, INFERRED, text)
    held, _ = held_by(work, device)
    needed, capacity = room(work, device)
    if needed > capacity:
        assumed["spill"] = "times are given as if the model fitted"

    def cycles(a: Algebra) -> Any:
        flop, moved = work.hardware_flops, work.moved
        return a.tag("multiply-adds", 1, "peak", "T = M / (r f)", found.time, flop=flop, moved=moved)

    draw = None if found.energy is None else Draw(found.energy / found.time, 0.0, 0.0)
    return replace(
        timed_by(cycles, work, held, capacity, device, chip, None, drawn=lambda: draw),
        spilled=work.moved * (1 - capacity / needed) if needed > capacity else 0.0,
        band=(found.low, found.high),
        energy_band=found.energy_band,
        cycles={"macs": found.macs, "per_cycle": found.per_cycle, "clock": found.clock},
        source=found.source,
    )


def refuse_unasked(question: Pass, runtime: str | None, on_board: bool) -> None:
    """What only some forms know."""
    fixed = question.model.fixed_shape and not on_board
    if question.devices > 1 and not fixed:
        raise InputError(_ALONE, field="hardware")
    if question.ring > 1 and question.devices == 1:
        raise InputError("A ring is of several accelerators that share an image.", field="ring")
    if question.arrivals and (on_board or runtime is None or runtime.strip().lower() != ENGINE):
        raise InputError("Random arrivals were measured with tensorrt; set the stack to it.", field="random_arrivals")
    if question.rate is not None and not fixed:
        raise InputError(
            "Energy at a measured rate is known of networks of fixed shape; a serving plan takes output_rate.",
            field="measured_rate",
        )


def refuse_runtime(model: Workload, chip: HardwareNode, runtime: str | None, efficiency: Any) -> None:
    """One sentence where a runtime is named that changes nothing: at first order, and in the sum of a graph's operators."""
    if runtime is not None:
        raise InputError(
            worded(
                f"The runtime {runtime!r} is known for calibrated passes of networks of fixed shape, which {model.name} on "
                f"{chip.name} with ",
                Setting("efficiency", efficiency),
                " is not; leave it out.",
            ),
            field="runtime",
        )
