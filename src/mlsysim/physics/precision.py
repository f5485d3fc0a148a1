"""Number formats: bytes of a stored weight, what products with it compute in, and the names people use.

``data/formats.toml`` is the one table of them. A format that chips do not multiply in (int4, AWQ, GPTQ, NF4, GGUF) is *weight-only*:
weights are stored in it and expanded to 16 bits before the product, which costs vector work in place of bytes,

    t = i max(F_1, F / R) / V        F operations with the weights that a pass reads, F_1 those of a single row, R rows of a tile,
                                     i instructions a weight, V the fp32 peak of the vector units (two operations an instruction)

because every tile of R rows expands the weights that it multiplies; fewer rows expand them once. Vector units expand the next piece of a
tile while matrix units multiply the last, as they do while its bytes come, so that of arithmetic, expansion and memory the longest counts.
A decode waits for bytes: 2 i/V is below b/W (bytes of a weight over bandwidth) for 4 bits and more on GPUs. A prompt computes: the
expansion takes i P / (R V) of its arithmetic, 9 % on an A10, 38 % on an A100, 35 % on an H100, and is hidden (an A100 multiplies int8
weights at 1,024 rows and more at 0.995 of its 16-bit rate) unless V is small beside P. What is left out: kernels that reach a smaller share
of the matrix units than those of 16 bits do (MARLIN 0.9 on an A10), or are made for few rows alone. Formats that are expanded through
memory (bitsandbytes) write whole matrices in 16 bits and read them again, unless a single row is multiplied: 4 bytes a weight.

An unknown precision raises; there is no default.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from mlsysim.errors import unknown_name
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum, where
from mlsysim.units.records import dataclass
from mlsysim.units.tables import shipped

HALF = 2.0
"""Bytes of the 16-bit formats, which weights are expanded to."""


@dataclass(frozen=True, slots=True)
class Format:
    """One entry of the table; its fields are explained there."""

    name: str
    bits: float
    arithmetic: tuple[str, ...] = ()
    kept: str = "all"
    rest: float = 16
    head: float = 16
    expanded: str = "kernel"
    unpacked: float = 0.0
    kernels: str = ""
    needs: str = ""
    whole: bool = False

    @property
    def bytes(self) -> float:
        return self.bits / 8

    @property
    def weight_only(self) -> bool:
        """Whether no chip multiplies in it."""
        return not self.arithmetic

    @property
    def expansion(self) -> float:
        """Bytes of expanding a weight in memory: read as it is stored, written in 16 bits for the product to read, and more where operators of a framework do it."""
        return self.unpacked or self.bytes + HALF

    @property
    def narrow(self) -> bool:
        """Whether it has fewer than 16 bits."""
        return self.bytes < HALF

    @property
    def wide(self) -> bool:
        """Whether it has more than 16 bits: activations, caches and messages have them too."""
        return self.bytes > HALF

    @property
    def multiplied(self) -> bool:
        """Whether chips multiply in it and it is narrow, so that what is no product with weights is in another."""
        return self.narrow and not self.weight_only

    def scaled_by(self, core: Any) -> bool:
        """Whether the arithmetic of a chip applies its scales."""
        return not self.needs or bool(core.supports(self.needs))

    @property
    def measured(self) -> str:
        """The format whose measured kernels apply."""
        return self.kernels or self.name


PARTS = ("attention", "ffn", "moe", "mixer", "experts")
"""Parts of a layer that have products with weights."""
PASSES = ("forward", "inputs", "weights")
_PASSED = {"forward": "forward", "inputs": "gradients of inputs", "weights": "gradients of weights"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a training step has in a narrow format; its fields are explained in the table. The plain one is that of a wide format."""

    name: str
    formats: tuple[str, ...]
    stack: str = ""
    products: tuple[str, ...] = PARTS
    passes: tuple[str, ...] = PASSES
    scaled: str = ""
    conversion: str = "plain"
    wide_layers: float = 0.0
    dispatched: str = "bf16"
    moments: str | None = None
    activations: str | None = None
    source: str = ""

    @property
    def narrow(self) -> bool:
        return bool(self.source)

    def narrows(self, part: str, step: str = "forward") -> bool:
        """Whether the product of a part in one of the passes is in the format."""
        return part in self.products and step in self.passes

    def says(self, wide_layers: float) -> str:
        """What it computes in, keeps and sends."""
        passes, narrow = ", ".join(_PASSED[each] for each in self.passes), compute_precision(self.formats[0])
        words = f"products of {', '.join(self.products)} ({passes}) in {narrow}, {self.scaled}"
        wide = f"{wide_layers:.3g} layers, " if wide_layers else ""
        kept = {"moments": self.moments, "waiting activations": self.activations}
        kept["tokens to experts"] = None if self.dispatched == "bf16" else self.dispatched
        said = "".join(f"; {what} in {name}" for what, name in kept.items() if name)
        return f"{words}{said}; {wide}scores, head, embeddings, norms and what else is sent in 16 bits"


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")


_USUAL = ("fp32", "bf16", "fp16", "fp8", "int8", "int4", "nvfp4", "awq", "gptq")
_OWN = ("bits", "kept", "rest", "head", "expanded", "unpacked", "kernels", "needs")


@cache
def _table() -> dict[str, Any]:
    return shipped("mlsysim.data", "formats.toml")


@cache
def _formats() -> dict[str, Format]:
    whole = _table()["files"]["formats"]
    return {
        name: Format(
            name,
            arithmetic=tuple(entry.get("arithmetic", ())),
            whole=name in whole,
            **{k: entry[k] for k in _OWN if k in entry},
        )
        for name, entry in _table()["format"].items()
    }


@cache
def _aliases() -> dict[str, str]:
    entries = _table()["format"].items()
    return {_plain(alias): name for name, entry in entries for alias in (name, *entry.get("aliases", ()))}


@cache
def arithmetic_formats() -> frozenset[str]:
    """Formats that some chip multiplies in."""
    return frozenset(name for each in _formats().values() for name in each.arithmetic)


_READ: dict[str, Callable[[], Any]] = {
    "FORMATS": _formats,
    "BYTES_PER_ELEMENT": cache(lambda: {name: each.bytes for name, each in _formats().items()}),
    "INSTRUCTIONS": lambda: _table()["expansion"]["instructions"],
    "TILE_ROWS": lambda: _table()["expansion"]["tile_rows"],
}
"""Formats by name, their bytes, vector instructions of expanding a weight, and rows of a tile."""


def __getattr__(name: str) -> Any:
    """The table is not opened before somebody asks for it."""
    if name in _READ:
        return _READ[name]()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_OF_BITS = re.compile(r"(?:exl[23])?(\d(?:\.\d+)?)bpw")
"""Checkpoints of ExLlama state bits a weight themselves."""


@cache
def _of_bits(name: str) -> Format | None:
    """The weight-only format of a stated number of bits, such as 4.65bpw; embeddings and head are not counted among them."""
    found = _OF_BITS.fullmatch(name)
    bits = float(found[1]) if found else 0.0
    return Format(f"{bits:g}bpw", bits, kept="layers", kernels="int4") if 1 <= bits <= HALF * 8 else None


def _named(text: str) -> str | None:
    """The format of a name or alias, with words beside it that leave it what it is, or of bits a weight."""
    if own := _of_bits(_plain(text)):
        return own.name
    ignored = _table()["words"]["ignored"]
    cut = re.sub(r"\b(?:torch|bnb)\.|(?<=[a-z]\d)kv\d+\b", "", text.lower())
    cut = re.sub(r"(?<=_k)\s+-?\s*([sml])(?:mall|edium|arge)\b", r"_\1", cut)
    told = "".join(dict.fromkeys(word for word in re.findall(r"[a-z0-9.]+", cut) if word not in ignored))
    return _aliases().get(_plain(text)) or _aliases().get(told)


def _mixed(text: str) -> str | None:
    """The narrower of two formats of mixed precision, of which one has 16 bits or more; a cache's is not the weights'."""
    pieces = [
        piece
        for piece in re.split(r"[+/&]|\bauto-?cast\b", text, flags=re.IGNORECASE)
        if not re.search(r"kv|cache", piece.lower())
    ]
    found = {_formats()[key] for piece in pieces if (key := _named(piece)) is not None}
    if not 0 < len(pieces) <= 2 or len(found) != len(pieces) or sum(each.narrow for each in found) > 1:
        return None
    least = sorted(found, key=lambda each: each.bits)
    return least[0].name if len(least) == 1 or least[0].bits < least[1].bits else None


def _explained(text: str) -> str | None:
    """A format with another name of it, or words about it, in brackets: that of weights alone where it is one with as many bits."""
    found = re.fullmatch(r"([^()\[\]]+)[(\[]([^()\[\]]+)[)\]]\s*", text)
    if found is None or (own := _named(found[1])) is None:
        return None
    inner = _named(found[2])
    said = inner is not None and _formats()[inner].weight_only and _formats()[inner].bits == _formats()[own].bits
    return inner if said else own


def precision_name(name: str) -> str:
    """The canonical name of a precision; raises with the nearest valid one.

    >>> precision_name("BFloat16"), precision_name("awq_marlin"), precision_name("Q4_K_M"), precision_name("amp_bf16"), precision_name("FP16/FP32")
    ('bf16', 'awq', 'q4_k_m', 'bf16', 'fp16')
    >>> precision_name("exl2 4.65 bpw"), format_of("4.65bpw").bits
    ('4.65bpw', 4.65)
    """
    if isinstance(name, str):
        if name in _formats():
            return name
        if len(name) <= 40 and (key := _named(name) or _mixed(name) or _explained(name)) is not None:
            return key
    raise unknown_name(
        "precision", name, _formats(), f"use such as {', '.join(_USUAL)}, or a format of GGUF such as q4_k_m."
    )


def format_of(name: str | Format) -> Format:
    """The entry of a format, by any of its names; one that is made for the purpose is its own."""
    if isinstance(name, Format):
        return name
    found = _formats().get(name) or _of_bits(name) if isinstance(name, str) else None
    return found or _formats()[precision_name(name)]


def bytes_per_element(name: str) -> float:
    """Bytes of one element, scales included.

    >>> bytes_per_element("bf16"), bytes_per_element("int4")
    (2.0, 0.5)
    """
    return format_of(name).bytes


def activation_element(name: str) -> float:
    """Bytes of an activation beside weights in a format: as many, but 16 bits of a weight-only one or one below a byte.

    >>> activation_element("fp8"), activation_element("q8_0"), activation_element("nvfp4")
    (1.0, 2.0, 2.0)
    """
    found = format_of(name)
    return found.bytes if found.arithmetic and found.bytes >= 1 else HALF


def cache_format(given: str | None, precision: str) -> str:
    """The format of caches: as given, else as engines keep them, in 16 bits, or as wide as the model runs.

    >>> cache_format(None, "fp8"), cache_format(None, "fp32"), cache_format("fp8", "bf16")
    ('bf16', 'fp32', 'fp8')
    """
    wide = "fp32" if precision == "tf32" else precision
    return given or (wide if format_of(wide).wide else "bf16")


def is_narrow(name: str) -> bool:
    """Whether a format has fewer than 16 bits."""
    return format_of(name).narrow


@cache
def compute_precision(name: str) -> str:
    """The format that products compute in on a chip that has it; 16 bits of a weight-only format."""
    return next(iter(format_of(name).arithmetic), "bf16")


@cache
def recipes() -> dict[str, Recipe]:
    """Recipes of training by name."""
    found = {}
    for name, entry in _table()["recipe"].items():
        fields: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()}
        found[name] = Recipe(name, **fields)
    return found


@cache
def recipe_of(precision: str, stack: str = "") -> Recipe:
    """The recipe of training in a format, that of the software itself first; a plain one of what has none."""
    found = [each for each in recipes().values() if precision in each.formats and each.stack in ("", stack)]
    return max(found, key=lambda each: bool(each.stack), default=Recipe(precision, (precision,)))


@kernel("""
    once: flop [1e6, 1e13], products: flop [1e6, 1e16], instructions [1, 10], tile_rows [1, 1e3],
    rate: flop/s [1e12, 1e15] -> time: s
""")
def expansion_time(once: Any, products: Any, instructions: Any, tile_rows: Any, rate: Any) -> Any:
    """Time in which weights are expanded: once each, or once for every tile of rows that they multiply."""
    return instructions * maximum(once, products / tile_rows) / rate


@kernel("weights [1e6, 1e13], element: byte [1, 4], rows [1, 1e6] -> moved: byte")
def expanded_bytes(weights: Any, element: Any, rows: Any) -> Any:
    """Bytes of whole matrices that are written expanded and read again; a single row is multiplied without."""
    return where(rows > 1, 2 * element * weights, 0.0 * element * weights)
