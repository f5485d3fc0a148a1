"""``Figure``: a chart that knows its title and its text for those who do not see it, and draws itself when asked."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plot.frame import heading
from mlsysim.plot.svg import Drawing
from mlsysim.units.records import dataclass
from mlsysim.zoo.writing import write_whole

NARROWEST, WIDEST = 300, 2000
WIDE, PHONE = 720, 360
BELOW = 8


@dataclass(frozen=True, repr=False)
class Figure:
    """A chart. In a notebook it shows itself.

    ``svg()`` gives the same bytes for the same input. A chart is laid out for a width: text keeps its size, so that a
    narrow one is readable on a phone, while scaling a wide one down would not be. ``html()`` holds both.

    Each kind of chart has its data as fields, and says ``alt``, ``_body`` and ``_axes``.
    """

    title: str
    subtitle: str
    width: int

    def __post_init__(self) -> None:
        _check_width(self.width)

    def __repr__(self) -> str:
        return f"Figure(title={self.title!r}, alt={self.alt!r}, width={self.width!r})"

    @property
    def alt(self) -> str:
        """The chart in words."""
        raise NotImplementedError

    def _body(self, d: Drawing, y: float) -> float:
        """Draw what is below the heading, from y on; returns where it ends."""
        raise NotImplementedError

    def _axes(self, ax: Any) -> None:
        """Draw the same data on Matplotlib axes."""
        raise NotImplementedError

    def _paint(self, width: float) -> Drawing:
        d = Drawing(width)
        d.height = round(self._body(d, heading(d, self.title, self.subtitle)) + BELOW)
        return d

    @property
    def height(self) -> float:
        """Height at this width."""
        return self._paint(self.width).height

    def svg(self, width: int | None = None, identity: str | None = None) -> str:
        """The chart as SVG text, laid out for ``width``. Ids begin with ``identity`` (by default made of the content)."""
        wanted = self.width if width is None else width
        _check_width(wanted)
        return self._paint(wanted).document(self.title, self.alt, identity)

    def _repr_svg_(self) -> str:
        return self.svg()

    def html(self) -> str:
        """The chart for a page, in two layouts of which a style shows one: wide, and for screens below 600 pixels."""
        style = (
            ".mlp-figure{margin:0}.mlp-phone{display:none}"
            "@media (max-width:599px){.mlp-wide{display:none}.mlp-phone{display:block}}"
            "@media print{.mlp-wide{display:block}.mlp-phone{display:none}}"
        )
        return (
            f'<figure class="mlp-figure"><style>{style}</style>'
            f'<div class="mlp-wide">{self.svg()}</div><div class="mlp-phone">{self.svg(PHONE)}</div></figure>'
        )

    def save(self, path: str | Path) -> Path:
        """Write the SVG; other formats come from ``matplotlib().savefig(...)``."""
        target = Path(path)
        if target.suffix.lower() != ".svg":
            raise InputError(f"A figure is saved as .svg, got {target.name!r}; use matplotlib().savefig() for others.")
        return write_whole(target, self.svg())

    def matplotlib(self) -> Any:
        """The same data as a Matplotlib figure with axes to go on with; needs the extra ``plot``."""
        try:
            module = import_module("matplotlib.figure")
        except ImportError:
            raise InputError("Matplotlib is not installed; pip install matplotlib brings it.") from None
        figure = module.Figure(figsize=(self.width / 96, max(self.height, 200.0) / 96), dpi=96, layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(self.title, loc="left", wrap=True)
        self._axes(axes)
        return figure


def _check_width(width: object) -> None:
    if isinstance(width, bool) or not isinstance(width, (int, float)) or not NARROWEST <= width <= WIDEST:
        raise InputError(f"A figure is {NARROWEST} to {WIDEST} pixels wide, got {width!r}.", field="width")
