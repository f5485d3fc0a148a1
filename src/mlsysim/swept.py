"""A sweep as Python and notebooks hold it: its designs as rows, a table, a data frame, a chart."""

from __future__ import annotations

from dataclasses import fields
from html import escape
from os import PathLike
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.rows import csv_of, frame_of
from mlsysim.plot.figure import Figure
from mlsysim.plot.sweeps import chart_of
from mlsysim.search.space import Space
from mlsysim.search.sweep import SweepResult
from mlsysim.search.tabled import title_of
from mlsysim.units.text import html_of

_SHOWN = 20


class Swept(SweepResult):
    """What :func:`mlsysim.sweep` found. ``best`` are the designs that it kept, best first, ``pareto`` the front."""

    _of: Space | None = None

    @classmethod
    def of(cls, result: SweepResult, space: Space) -> Swept:
        """A result, with the space that it is of."""
        made = cls(**{field.name: getattr(result, field.name) for field in fields(result)})
        object.__setattr__(made, "_of", space)
        return made

    @property
    def space(self) -> Space:
        """The space that was swept, which a document does not carry."""
        if self._of is None:
            raise InputError(
                "A sweep that was read back has no units of its axes; give them with Swept.of(sweep, space)."
            )
        return self._of

    def rows(self, pareto: bool = False) -> list[dict[str, Any]]:
        """Inputs and outputs of the best designs, or of the front, with units in their names."""
        found = self.pareto if pareto else self.best
        return [
            {title_of(self.space, name): value for part in ("inputs", "outputs") for name, value in point[part].items()}
            for point in found
        ]

    def to_dataframe(self, pareto: bool = False) -> Any:
        """The same as a data frame of pandas, or of polars where pandas is not installed."""
        return frame_of(self.rows(pareto))

    def to_csv(self, path: str | PathLike[str] | None = None, pareto: bool = False) -> str:
        """The same as CSV, written to a file where one is given. Every point of a space is written by ``mlsysim sweep -o points.csv``."""
        return csv_of(self.rows(pareto), path)

    def plot(self) -> Figure:
        """The Pareto front, or the best that each value of the longest axis allows."""
        return chart_of(self.space, self)

    def _repr_html_(self) -> str:
        """The best designs, as a notebook shows them."""
        rows = self.rows()[:_SHOWN]
        table = html_of([*rows[0]] if rows else (), [[*map(str, row.values())] for row in rows])
        words = (
            f"{escape(self.name)}: {self.feasible:,} of {self.points:,} designs fit; {self.direction} {self.objective}"
        )
        return f"<p>{words}</p>{table}"
