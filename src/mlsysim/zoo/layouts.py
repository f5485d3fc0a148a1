"""How layouts are written: TP4PP2, DEP8, ``--tp-size 8``, TPxPPxDP = 8x4x16, 2xTP4, FSDP.

The words are those of ``data/labels.toml``. A letter before a degree of experts says what attention does: DEP8 has it in eight copies
(each device the whole of it, for its own requests), TEP4 split over four. A layout that is written twice, one for prompts and one for answers, is none.
"""

from __future__ import annotations

import re

from mlsysim.zoo.labels import words

_DEGREES = r"([a-z]+)\s*[=:_-]?\s*(\d+)"
_LISTED = r"([a-z]+(?:\s*[x*,/-]\s*[a-z]+)+)\s*[=:]?\s*\(?(\d+(?:\s*[x*,/-]\s*\d+)+)\)?"
_COPIES = (
    r"(\d+)\s*[x*]\s*([a-z].*)",
    r"([a-z][a-z ]*[=:]?\d+)\s*[x*]\s*(\d+)(?:\s*(?:replicas?|copies|instances?))?",
)


def mapping(text: str) -> dict[str, int] | None:
    """The degrees of a layout such as TP4PP2, DEP8 (attention in eight copies, experts on eight) or TEP4; None where it is none.

    >>> mapping("TP4PP2"), mapping("DEP8"), mapping("TEP4"), mapping("8-way TP"), mapping("DEP4 + DEP16")
    ({'tp': 4, 'pp': 2}, {'tp': 1, 'ep': 8}, {'tp': 4, 'ep': 4}, {'tp': 8}, None)
    >>> mapping("TPxPPxDP = 8x4x16"), mapping("2xTP4"), mapping("FSDP2"), mapping("TP8 + DPA")
    ({'tp': 8, 'pp': 4, 'dp': 16}, {'tp': 4, 'dp': 2}, {'zero': 3}, {'tp': 1, 'ep': 8, 'attention_dp': 8})
    """
    plain = re.sub(r"\(\s*\d+\s*(?:nodes?|gpus?)\s*\)", "", text.strip().lower()).strip()
    if listed := re.fullmatch(_LISTED, plain):
        names, degrees = re.findall("[a-z]+", re.sub("x", " ", listed[1])), re.findall(r"\d+", listed[2])
        return _together(list(zip(names, degrees, strict=True))) if len(names) == len(degrees) else None
    if several := re.fullmatch(_COPIES[0], plain) or re.fullmatch(_COPIES[1], plain):
        count, each = sorted(several.groups(), key=lambda group: not group.isdigit())
        found = mapping(each)
        return None if found is None or "dp" in found else found | {"dp": int(count)}
    plain = re.sub(r"\b(\d+)[- ]way\s+([a-z ]+)", r"\2\1 ", re.sub(r"(?:^|\s)-+(?=[a-z])", " ", plain).strip())
    plain = re.sub(r"(?<=[a-z])[-_](?=[a-z])", "", re.sub(r"(?<=\d)\s*[x_-]\s*(?=[a-z])", " ", plain))
    flags: dict[str, int] = {}
    for word, held in words()["layouts"].items():
        alone = rf"(?<![a-z])(?:{word})(?![a-z\d=:]|\s+\d)"
        if re.search(alone, plain):
            plain, flags = re.sub(alone, " ", plain), flags | held
    plain = re.sub(r"[\s,;/+&]+", "", plain)
    pieces = re.findall(_DEGREES, plain)
    if "".join(name + degree for name, degree in pieces) != re.sub(r"[=:_-]", "", plain):
        return None
    found = _together(pieces)
    return None if found is None or not found | flags else _attention(found | flags)


def _attention(found: dict[str, int]) -> dict[str, int] | None:
    """Attention by requests over the devices of a group: eight copies of TP8 have it whole, and the experts on all eight."""
    copies = found.pop("attention_dp", None)
    if copies is None:
        return found
    devices = found.get("tp", copies or found.get("dp", 0))
    if not devices:
        return None
    groups = copies or found.pop("dp", devices)
    return found | {"tp": max(1, devices // groups), "ep": found.get("ep", devices), "attention_dp": groups}


def _together(pieces: list[tuple[str, str]]) -> dict[str, int] | None:
    """The degrees of names and numbers; None where one is unknown or is there twice with two numbers."""
    found: dict[str, int] = {}
    for name, digits in pieces:
        degree = int(digits)
        both = {
            "dep": {"tp": 1, "ep": degree},
            "tep": {"tp": degree, "ep": degree},
            "fsdp": {"zero": 3, "dp": degree},
        }.get(name)
        if both is None and name not in words()["mapping"]:
            return None
        degrees = both or {words()["mapping"][name]: degree}
        if any(found.get(each, value) != value for each, value in degrees.items()):
            return None  # two layouts, such as those of prefill and decode
        found |= degrees
    return found
