"""A serving machine under a limit of power: the clocks at which it reads prompts and writes answers.

Reading computes, writing moves bytes: the limit binds them apart, and a mean over both would hide it (power is concave in what is done, where
it is limited). So each has a clock of its own (:func:`mlsysim.cases.joules.throttled`), from the ledger of a prefill and of a step at the
mean length of a cache. A step that does both has the clock of reading, which is the lower one where arithmetic binds.

Left out: that the clock of a step changes with its batch while a queue fills and empties.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlsysim.cases.algebra import Algebra, ledger_of
from mlsysim.cases.joules import activity_of, throttled
from mlsysim.cases.serve import Engines, Replicated
from mlsysim.cases.traffic import Traffic
from mlsysim.hardware.types import HardwareNode
from mlsysim.timing.power import Clock, equivalent, vector_share


def limited(
    machine: Replicated | Engines, t: Traffic, reading: HardwareNode, writing: HardwareNode, precision: str, cap: Any
) -> Replicated | Engines:
    """The machine under a limit of power in watts, on chips that read prompts and that write answers."""

    def read(a: Algebra) -> Any:
        return machine.reading(t, t.new, a.tag)(t.prompt - t.new)

    def write(a: Algebra) -> Any:
        return machine.writing(t, a.tag)(t.prompt + t.answer / 2)

    def clock(chip: HardwareNode, case: Any) -> Clock:
        ledger = ledger_of(case)
        activity = activity_of(ledger, equivalent(chip, precision), vector_share("serving"))
        return throttled(chip, activity, ledger, cap)

    clocks = clock(reading, read), clock(writing, write)
    if isinstance(machine, Engines):
        reader = machine.reader.at(clocks)
        writer = reader if machine.writer is machine.reader else machine.writer.at(clocks)
        return replace(machine, reader=reader, writer=writer)
    first = replace(machine.reader, clocks=clocks)
    return replace(machine, reader=first, writer=replace(machine.writer, clocks=clocks) if machine.apart else first)
