"""What people write: labels of chips and machines to the names of the zoo.

    NVIDIA H100-SXM5-80GB            H100: vendors say nothing, memory and form factor have to agree with the entry
    A100 PCIe 40GB                   A100_PCIe_40GB; "A100 PCIe" alone is two chips, and is refused
    8x H100 SXM, p5.48xlarge         a number of chips
    GB200 NVL72                      a number of chips too: seventy-two

A label has a core, what is left of it without the words of ``data/labels.toml``, and qualities: memory, kind of memory, form factor, power. The
entries whose names have the same core are compared: one that contradicts a quality is out, and of the rest the one that says least beyond the
label is meant. Two that say equally much are a refusal that names both. A registry asks here only for names that it does not have itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple, Protocol

from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si
from mlsysim.zoo.files import shipped

_MEMORY = r"(?<![a-z\d.])(\d+(?:\.\d+)?)\s*(gib|gb|g|tib|tb)s?(?![a-z\d])"
_POWER = r"(?<![a-z\d.])(\d{2,4})\s*w(?![a-z\d])"
_GLUED = r"(.*\d[a-z]?)(sxm\d?|pcie|nvl|oam)"
_NEAR = 0.08
"""By how much the memory that a label gives may differ from the entry's: 192 and 180 GB are one B200, 80 and 94 GB two H100."""
_ALIKE = 0.01
_COUNTED = (
    r"(?P<count>\d[\d_,]*)\s*[x×*]\s*(?P<name>.+)",
    r"(?P<name>.+?)\s*[x×*]\s*(?P<count>\d[\d_,]*)",
    r"(?P<name>.+?)\s*\(\s*x?\s*(?P<count>\d+)\s*(?:x|gpus?|chips?|cards?|accelerators?)?\s*\)",
    r"[^()]+\(\s*(?P<count>\d[\d_,]*)\s*(?:[x×*]\s*|\s)(?P<name>[^(),]+)(?:,[^()]*)?\)",
    r"(?P<count>\d[\d_,]*)[- ]?(?:gpus?|cards?)[- ](?P<name>.+)",
    r"gpu_(?P<count>\d+)x_(?P<name>.+)",
    r"(?P<count>\d[\d_,]*)\s*(?P<name>[a-z].*)",
)


_NODES = r"(?<=\d)\s*(?:nodes?|hosts?|servers?|machines?)\s*(?:[x×*,]|of|with)\s*(?=\d)"
_ON_NODES = r"\d+ (?:nodes?|hosts?|servers?|machines?)"
_PRODUCT = (
    r"(?P<counts>\d+(?:\s*[x×*]\s*\d+)+)\s*[x×*]?\s*(?P<name>[a-z].*)",
    r"(?P<name>.+?)\s+\(?(?P<counts>\d+(?:\s*[x×*]\s*\d+)+)\)?",
)


def words() -> dict[str, Any]:
    """The table of words."""
    return shipped("mlsysim.data", "labels.toml")


class Label(NamedTuple):
    """What a label of a chip says."""

    core: str
    memory: float | None = None
    kind: str = ""
    form: str = ""
    power: float | None = None

    @property
    def qualities(self) -> frozenset[str]:
        return frozenset(name for name in ("memory", "kind", "form", "power") if getattr(self, name))


@lru_cache(maxsize=4096)
def chip_label(text: str) -> Label:
    """The core of a chip's label and its qualities.

    >>> chip_label("NVIDIA A100-SXM4-80GB"), chip_label("RTX 4090 24 GB").core
    (Label(core='a100', memory=80.0, kind='', form='sxm', power=None), 'rtx4090')
    """
    table, memory, power = words()["chip"], None, None
    left = re.sub(r"[\u2010-\u2015\u2212]", "-", text.lower().replace("_", " "))  # dashes of typesetters
    left = re.sub(r"\b\d+[- ]?(?:gpu[- ]?)?(?:cores?|cus?)\b", " ", left).replace("pci-e", "pcie")
    left = re.sub(r"[-/,;:®™()\[\]\s]+", " ", left)
    for phrase in table["phrases"]:
        left = left.replace(phrase, " ")
    for rule, meant in table["rewritten"].items():
        left = re.sub(rule, meant, left)
    if found := re.search(_MEMORY, left):
        memory = float(found[1]) * (1000 if found[2].startswith("t") else 1)
        left = re.sub(_MEMORY, " ", left)
    if found := re.search(_POWER, left):
        power, left = float(found[1]), re.sub(_POWER, " ", left)
    kind = form = ""
    core = []
    for word in left.split():
        glued = re.fullmatch(_GLUED, word)
        for piece in glued.groups() if glued else (word,):
            piece = table["same"].get(piece, piece)
            if piece in table["forms"]:
                form = table["forms"][piece]
            elif piece in table["memories"]:
                kind = piece
            elif piece not in table["ignored"] and piece not in core:
                core.append(piece)
    return Label("".join(core).replace("-", ""), memory, kind, form, power)


class Zoo(Protocol):
    """What a reader asks of a zoo."""

    def keys_by_name(self) -> dict[str, str]:
        """Keys by every name; the same object until names change."""

    def entry(self, key: str) -> Any:
        """The entry of a key."""

    def named(self, name: str) -> str | None:
        """The key that a name means by itself."""


@dataclass(frozen=True)
class _Entry:
    """The names of a chip with one core: their forms and powers, and what its shortest name already says."""

    key: str
    labels: tuple[Label, ...]

    @property
    def least(self) -> frozenset[str]:
        return min((label.qualities for label in self.labels), key=len)

    def holds(self, name: str, value: Any) -> bool:
        return any(getattr(label, name) == value for label in self.labels)

    def states(self, name: str) -> bool:
        return any(getattr(label, name) for label in self.labels)


class Chips:
    """Reads labels of chips: ``key`` is what one means, ``why`` says why nothing is meant."""

    def __init__(self) -> None:
        self._for: dict[str, str] | None = None
        self._cores: dict[str, list[_Entry]] = {}

    def key(self, text: str, zoo: Zoo) -> str | None:
        """The key that a label means, or None."""
        found = self.capped(text, zoo)
        return None if found is None or found[1] is not None else found[0]

    def capped(self, text: str, zoo: Zoo) -> tuple[str, float | None] | None:
        """The key that a label means and a power limit that is not the chip's own."""
        found, label = self._meant(text, zoo), chip_label(text)
        if len(found) != 1:
            return None
        return found[0].key, None if _powered(found[0], label, zoo.entry) else label.power

    def why(self, text: str, zoo: Zoo) -> str:
        """A sentence about a label that is refused, empty where nothing is known of it."""
        said = repr(text[:60])
        if held := machine(text):
            return f"{said} is {held[0]:,} x {held[1]}; give it as a fleet, or name the chip."
        for count, name in counted(text):
            if key := zoo.named(name) or self.key(name, zoo):
                return f"{said} is {count:,} x {key}; give it as a fleet, or name the chip."
        label, found = chip_label(text), self._meant(text, zoo)
        if len(found) > 1:
            return f"{said} may be {' or '.join(each.key for each in found)}; say which."
        if found:
            return f"{said} is {found[0].key} at another power; name the chip, and give the limit as power_cap."
        if known := self._entries(zoo).get(label.core):
            keys = " or ".join(each.key for each in known)
            return f"{said} has other memory or another form than what the zoo knows; did you mean {keys}?"
        return ""

    def _meant(self, text: str, zoo: Zoo) -> list[_Entry]:
        """The entries that agree with a label and say least beyond it; of two names, one among what stands in brackets, that both have."""
        found = self._agreeing(chip_label(text), zoo)
        if not found and (two := re.fullmatch(r"([^()]+)\(([^()]+)\)\s*", text)):
            second = {each.key for part in two[2].split(",") for each in self._agreeing(chip_label(part), zoo)}
            found = [each for each in self._agreeing(chip_label(two[1]), zoo) if each.key in second]
        return found

    def _agreeing(self, label: Label, zoo: Zoo) -> list[_Entry]:
        entries = self._entries(zoo)
        known = entries.get(label.core) or entries.get(label.core.removesuffix("s"), [])
        formed = any(each.states("form") for each in known)
        fitting = [each for each in known if _agrees(each, label, formed, zoo.entry)]
        if label.memory is not None and fitting:
            apart = {each.key: _apart(each, label.memory, zoo.entry) for each in fitting}
            fitting = [each for each in fitting if apart[each.key] <= min(apart.values()) + _ALIKE]
        beyond = {each.key: len(each.least - label.qualities) for each in fitting}
        return [each for each in fitting if beyond[each.key] == min(beyond.values())]

    def _entries(self, zoo: Zoo) -> dict[str, list[_Entry]]:
        """Entries by the cores of their names."""
        names = zoo.keys_by_name()
        if names is not self._for:
            cores: dict[str, dict[str, list[Label]]] = {}
            for name, key in names.items():
                label = chip_label(name)
                if label.core:
                    cores.setdefault(label.core, {}).setdefault(key, []).append(label)
            self._for = names
            self._cores = {core: [_Entry(k, tuple(v)) for k, v in held.items()] for core, held in cores.items()}
        return self._cores


def _agrees(found: _Entry, label: Label, formed: bool, entry: Callable[[str], Any]) -> bool:
    """Whether nothing of a label contradicts an entry; ``formed`` says that chips of this core come in several forms."""
    plain = words()["chip"]["plain_forms"]
    if label.form and not found.holds("form", label.form) and (formed or label.form not in plain):
        return False
    own = str(entry(found.key).memory.type or "").lower() if label.kind else ""
    if own and own != label.kind and not found.holds("kind", label.kind):
        return False
    return label.memory is None or _apart(found, label.memory, entry) <= _NEAR


def _apart(found: _Entry, memory: float, entry: Callable[[str], Any]) -> float:
    if found.holds("memory", memory):
        return 0.0
    size = to_si(entry(found.key).memory.capacity, "byte")
    return min(abs(memory * unit / size - 1) for unit in (1e9, 2**30))


def _powered(found: _Entry, label: Label, entry: Callable[[str], Any]) -> bool:
    if label.power is None or found.holds("power", label.power):
        return True
    tdp = entry(found.key).tdp
    return tdp is not None and abs(label.power / to_si(tdp, "W") - 1) < _ALIKE


@cache
def _machines() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(rule, re.IGNORECASE), held) for rule, held in words()["machines"].items()]


@lru_cache(maxsize=1024)
def machine(text: str) -> tuple[int, str] | None:
    """Number and chip of a cloud's machine or of a slice of a pod; None where the name is none of them.

    >>> machine("a3-highgpu-8g"), machine("v5litepod-256"), machine("v5p-256"), machine("H100")
    ((8, 'H100'), (256, 'TPU_v5e'), (128, 'TPU_v5p'), None)
    """
    plain = re.sub(r"^(?:ml\.|(?:aws|amazon|azure|gcp|oci|oracle|microsoft)\s+)", "", text.strip(), flags=re.IGNORECASE)
    bare = re.sub(r"\s*\([^()]*\)$", "", plain)
    for name, (rule, held) in product(dict.fromkeys((plain, plain.replace(" ", "_"), bare)), _machines()):
        if found := rule.fullmatch(name):
            count, _, chip = found.expand(held).partition("x")
            number, _, divided = count.partition("/")
            return max(1, int(number) // int(divided or 1)), chip.upper() if chip.islower() else chip
    return None


def held(text: str) -> tuple[int, str] | None:
    """Number and chip of a machine, by its own name or behind that of a chip without a number; of so many of its chips where it says so.

    >>> held("A10G (g5.xlarge)"), held("g5.12xlarge"), held("2x A10G (g5.12xlarge)"), held("GB200 NVL72 (8 GPUs)")
    ((1, 'A10G'), (4, 'A10G'), None, (8, 'GB200'))
    """
    some = re.fullmatch(r"([^()]+)\((\d{1,5}) ?(?:gpus?|chips?|accelerators?|cards?)\)", text.strip(), re.IGNORECASE)
    if some and (whole := machine(some[1].strip())):
        return int(some[2]), whole[1]
    behind = re.fullmatch(r"[a-z][^()]*?(?<![x×*]\d)\s*\(([^()]+)\)", text.strip(), re.IGNORECASE)
    return machine(text) or (machine(behind[1]) if behind else None)


class Cloud(NamedTuple):
    """A cloud, and what it calls one of its machines."""

    name: str
    machine: str


def cloud(text: str) -> Cloud | None:
    """The cloud whose machine a label names, one or a number of them.

    >>> cloud("p5.48xlarge"), cloud("H100")
    (Cloud(name='AWS', machine='p5.48xlarge'), None)
    """
    name = re.sub(r"^\s*\d[\d_,]*\s*(?:[x×*]\s*|\s)", "", text.partition("@")[0]).strip().replace(" ", "_")
    rules = words()["clouds"].items()
    return next((Cloud(whose, name) for whose, rule in rules if re.fullmatch(rule, name, re.IGNORECASE)), None)


def counted(text: str) -> Iterable[tuple[int, str]]:
    """Ways to read a label as a number of something: ``8x H100``, ``H100 x8``, ``512 H100s``, ``dual RTX 3090``, ``2 nodes of 8x H100``, ``v5p 4x4x8``."""
    text = text.strip()
    if (told := re.fullmatch(r"(\d.*\w)\s*\(([^()]+)\)", text)) and (
        re.fullmatch(_ON_NODES, told[2]) or machine(told[2])
    ):
        text = told[1]
    for count, name in _ways(re.sub(_NODES, "x", text, flags=re.IGNORECASE)):
        yield count, name
        if name.endswith("s"):
            yield count, name[:-1]


def _ways(text: str) -> Iterable[tuple[int, str]]:
    first, _, rest = text.partition(" ")
    if (number := words()["chip"]["numbers"].get(first.lower())) and rest:
        yield number, rest.strip()
    for rule in _PRODUCT:
        if found := re.fullmatch(rule, text, re.IGNORECASE):
            factors = [int(each) for each in re.findall(r"\d{1,6}", found["counts"])]
            if 0 < prod(factors) < 10**9:
                yield prod(factors), found["name"].strip()
    for rule in _COUNTED:
        if found := re.fullmatch(rule, text, re.IGNORECASE):
            digits = re.sub("[_,]", "", found["count"])
            if len(digits) <= 9 and int(digits) > 0:
                yield int(digits), found["name"].strip()
