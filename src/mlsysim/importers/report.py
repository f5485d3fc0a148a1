"""What an import found: the workload, and everything about it that the user should know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from mlsysim.errors import unknown_name
from mlsysim.importers.quantisation import Quantisation
from mlsysim.models import types
from mlsysim.models.base import Workload
from mlsysim.models.multimodal import VisionLanguageWorkload
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.units.fields import Record
from mlsysim.walls.document import Document

_LONG = 1e9
"""A context far beyond every window and far below what counts as unbounded."""


def cache_slopes(workload: Workload) -> tuple[float, float]:
    """Cache bytes that one more token adds at 16 bits: beyond all windows, and while no window is full.

    Layers with full or latent attention keep every token, so both figures count them. A layer with a window of w tokens
    keeps the last w, so a token adds to it only until the window is full; recurrent layers have a state of fixed size and
    add nothing. At context n a sequence holds first x n + (second - first) x min(n, w) bytes and the states.
    """
    network = workload.language if isinstance(workload, VisionLanguageWorkload) else workload
    if not isinstance(network, TransformerWorkload) or network.structure == "encoder" or not network.has_dimensions:
        return 0.0, 0.0
    later = early = 0.0
    for block in network.stack.blocks:
        for mixer in block.mixers:
            if getattr(mixer, "cross", False):
                continue  # the encoder's keys do not grow with the text
            each = 2.0 * block.count * mixer.counts.cached
            later += each * (mixer.cache_tokens(2 * _LONG) - mixer.cache_tokens(_LONG)) / _LONG
            early += each * (mixer.cache_tokens(1) - mixer.cache_tokens(0))
    return later, early


class ImportReport(Document, Record):
    """A model as it was read. ``unread`` lists the keys that nobody used, ``warnings`` what deserves a look."""

    beside: ClassVar = ("type", "saved")

    name: str
    family: str
    workload: Workload
    parameters: float
    active_parameters: float
    kv_bytes_per_token: float
    kv_bytes_per_token_in_window: float
    context: int | None = None
    dtype: str | None = None
    quantisation: Quantisation | None = None
    checkpoint_parameters: dict[str, int] | None = None
    checkpoint_bytes: int | None = None
    unread: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    source: str = ""

    @classmethod
    def of(cls, workload: Workload, family: str, **details: Any) -> ImportReport:
        """The report on a workload, with the figures derived from it.

        ``kv_bytes_per_token`` is what each token adds in the layers that keep the whole context; where no layer does (a
        window in every layer), what it adds until the window is full.
        """
        later, early = cache_slopes(workload)
        notes = details.get("warnings", ())
        workload = workload.model_copy(update={"caveats": notes}) if notes else workload
        return cls(
            name=workload.name,
            family=family,
            workload=workload,
            parameters=workload.parameter_count,
            active_parameters=workload.active_parameter_count,
            kv_bytes_per_token=later or early,
            kv_bytes_per_token_in_window=early,
            context=getattr(workload, "max_context", None),
            **details,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and text, for JSON; the workload with what is not its default."""
        plain: dict[str, Any] = {"name": self.name, "family": self.family, "type": type(self.workload).__name__}
        plain |= self.model_dump(mode="json", exclude={"workload"})
        for key in ("parameters", "active_parameters", "kv_bytes_per_token", "kv_bytes_per_token_in_window"):
            # A compressed cache can add a fraction of a byte.
            plain[key] = int(plain[key]) if plain[key] == int(plain[key]) else plain[key]
        return plain | {"workload": self.workload.model_dump(mode="json", exclude_defaults=True)}

    @classmethod
    def _fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        kind = getattr(types, str(document.get("type")), None)
        if kind is None or not issubclass(kind, Workload):
            raise unknown_name("type of workload", str(document.get("type")), types.__all__)
        return {**document, "workload": kind.model_validate(document["workload"])}
