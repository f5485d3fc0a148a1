"""A serving machine under a limit of power: the clocks at which it reads prompts and writes answers.

Reading computes, writing moves bytes: the limit binds them apart, and a mean over both would hide it (power is concave in what is done, where
it is limited). So each has a clock of its own (:func:`mlsysim.cases.joules.throttled`), from the ledger of a prefill and of a step at the
mean length of a cache. A step that does both has the clock of reading, which is the lower one where arithmetic binds. The power of a device that
does both has their mean clock, the cycles of a request over the time that they take:

    1 / s = (t_r + t_w) / (t_r s_r + t_w s_w)        t: seconds of reading and of writing one request without the limit, s: how much longer each takes

Left out: that the clock of a step changes with its batch while a queue fills and empties.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from mlsysim.cases.algebra import Algebra, ledger_of
from mlsysim.cases.joules import activity_of, throttled
from mlsysim.cases.machines import Engines, Replicated
from mlsysim.cases.traffic import Traffic
from mlsysim.hardware.types import HardwareNode
from mlsysim.timing.power import ChipPower, Clock, Clocks, chip_power, equivalent, vector_share


class Drawing(NamedTuple):
    """The power of a device, and the energy of an operation over one of 16 bits."""

    power: ChipPower
    energy: Any

    @classmethod
    def of(cls, chip: HardwareNode, precision: str) -> Drawing:
        return cls(chip_power(chip), equivalent(chip, precision))


def limited(
    machine: Replicated | Engines, t: Traffic, reading: Drawing, writing: Drawing, cap: Any
) -> Replicated | Engines:
    """The machine under a limit of power in watts, on devices that read prompts and that write answers; numbers or arrays."""

    def read(a: Algebra) -> Any:
        return machine.reading(t, t.new, a.tag)(t.prompt - t.new)

    def write(a: Algebra) -> Any:
        return machine.writing(t, a.tag)(t.prompt + t.answer / 2)

    def clock(drawing: Drawing, case: Any) -> tuple[Clock, Any]:
        ledger = ledger_of(case)
        activity = activity_of(ledger, drawing.energy, vector_share("serving"))
        return throttled(drawing.power, activity, ledger, cap), ledger.seconds

    (reads, once), (writes, step) = clock(reading, read), clock(writing, write)
    spent = once / (1.0 if t.together is None else t.together), step * t.mean_answer / t.batch
    mean = (
        sum(a * b for a, b in zip(pair, spent, strict=True)) / sum(spent) for pair in zip(reads, writes, strict=True)
    )
    clocks = Clocks(reads, writes, Clock(*mean))
    reader: Any = machine.reader.at(clocks)
    writer: Any = reader if machine.writer is machine.reader else machine.writer.at(clocks)
    return replace(machine, reader=reader, writer=writer)
