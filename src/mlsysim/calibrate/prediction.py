"""What a table's reader gives for a row: predictions to be scored, or the reason why there is none.

A reader is a module of ``mlsysim.calibrate.tables`` with ``COLUMNS``, the column names that identify its table, and
``read(row)``, which returns for each measured value of the row what to ask: runs are plans
(:mod:`mlsysim.calibrate.questions`); kernels, collectives and power have no plan and are scored through the functions of
``timing`` that the cases call. It raises :class:`Skipped` when
the row is a measurement that cannot be predicted (an unknown chip, a model without a public configuration, a missing
setting), and :class:`Excluded` when it is not a measurement to be scored (a duplicate, a row marked unusable).

The physics lives elsewhere; a reader only understands the row.
"""

from __future__ import annotations

from dataclasses import dataclass


class Skipped(Exception):
    """The row cannot be predicted; the message says why."""


class Excluded(Exception):
    """The row is not a measurement to be scored; the message says why."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One predicted value beside the measured one, in the row's own unit.

    ``regime`` names the kind of work whose residuals give the error bar (such as "training dense", "decode", "timm eager");
    ``chip_measured`` says whether the chip has a profile of its own; ``inferred`` lists settings that the row did not give.
    ``low`` and ``high`` are the answer's own interval and ``plan`` the TOML text whose answer it is, where there is one.
    """

    metric: str
    measured: float
    predicted: float
    regime: str
    chip_measured: bool
    inferred: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    plan: str = ""

    @property
    def error(self) -> float:
        """Signed relative error, predicted over measured minus one."""
        return self.predicted / self.measured - 1
