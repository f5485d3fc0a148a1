"""A fleet in one string.

    512xH100                 512 accelerators, in the node that the zoo has for them
    64xDGX_H100              64 nodes
    64xDGX_H100@NDR          on that fabric
    Meta_16K                 a cluster of the zoo
    8xB200 + 8xH100          groups of different accelerators
    p5.48xlarge, v5p-256     machines of clouds, slices of pods
    512 H100, H100 SXM x8, H100:8   other ways to write a number of them
    2 nodes of 4xH100        nodes of which four are used; 2x4xH100 is the same
    16 nodes of H100         as many as the node that the zoo has for them holds
    GB200 NVL72              a rack is a node: 72 accelerators
    8xmine/chip.toml         a chip of a file of your own

A chip without a node in the zoo gets eight to a node on its own link (or PCIe), said in the assumptions. Fewer
accelerators than a node holds are a part of that node, with their share of its host and adapters; 12 H100 are three halves of
nodes of eight. A board of a rack is no node: 8 x 4 GB200 are 32 of one NVL72.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from mlsysim.errors import InputError, fold, unknown_name
from mlsysim.hardware.registry import ENDING, Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.systems.registry import Clusters, Fabrics, Nodes
from mlsysim.systems.types import Fleet, NetworkFabric, Node
from mlsysim.units.registry import to_si
from mlsysim.zoo.labels import counted, machine
from mlsysim.zoo.writing import files_allowed

_GROUP = re.compile(r"^\s*(?:(?P<count>[\d_,]+)\s*[xX×*]\s*)?(?P<name>[^@]+?)\s*(?:@\s*(?P<fabric>[^@+]+?)\s*)?$")
_NO_CHIP = re.compile(
    r"^-?[\d.,_]+([kKMG]|\s*[xX×*].*|\s*_?(nodes?|gpus?|servers?|hosts?|chips?|accelerators?))?$", re.IGNORECASE
)
_SORT = re.compile(
    r"(an? |my |the )?([cgn]pu|cuda(:\d+)?|mps|laptop|desktop|workstation|notebook|phone|arduino|mcu|microcontroller|any|all|auto|best|cheapest)s?",
    re.IGNORECASE,
)
_OF_NODES = re.compile(
    r"(?P<count>\d[\d_,]*)\s*(?:nodes?|hosts?|servers?|machines?|racks?|boxes|box)\s*(?:[x×*,]|of|with)?\s+(?P<name>[a-z].*)"
    r"|(?P<number>\d[\d_,]*)\s*(?P<chip>[a-z].*?)\s+(?:nodes|node|hosts|host|servers|server|boxes|box)",
    re.IGNORECASE,
)
_EACH = re.compile(
    r"\d[\d_,]*\s*(?:[x×*]|(?:nodes?|hosts?|servers?|machines?)\s*(?:[x×*,]|of|with))\s*(?P<each>\d{1,3})\s*[x×*]?\s*(?P<name>[a-z].*)",
    re.IGNORECASE,
)
_LISTED = re.compile(r"[,;&]|\sand\s")
_MOST_GROUPS = 8
_MOST = 10**8
_PER_NODE, _MOST_PER_NODE = 8, 16


@dataclass
class Groups:
    """What a string says: fleets of one kind of node each, and what had to be assumed."""

    fleets: tuple[Fleet, ...]
    assumed: dict[str, str] = field(default_factory=dict)

    @property
    def one(self) -> Fleet:
        if len(self.fleets) != 1:
            raise InputError("This takes one kind of accelerator; give one group instead of several.")
        return self.fleets[0]

    @property
    def accelerators(self) -> int:
        return sum(fleet.total_accelerators for fleet in self.fleets)


def parse_fleet(text: str, fabric: str | None = None) -> Groups:
    """The fleets that a string names."""
    if not isinstance(text, str) or not text.strip():
        raise InputError("A fleet is written as a number and a chip or node, such as '512xH100'.", field="on")
    # A name may have the sign itself: "Xeon 8480+".
    whole = _GROUP.match(text) if "+" in text else None
    pieces = [text] if whole is not None and _is_system(whole["name"]) else text.split("+")
    if len(listed := [piece.strip() for piece in _LISTED.split(text)]) > 1 and all(
        _is_group(each) or _is_system(each) for each in listed
    ):
        several = f"or ask for each: `mlsysim compare MODEL@{listed[0]} MODEL@{listed[1]}`"
        raise InputError(
            f"Groups of one fleet are joined by a plus sign, {' + '.join(listed)!r}, {several}.", field="on"
        )
    if len(pieces) > 1 and not all(piece.strip() for piece in pieces):
        raise InputError(f"{text.strip()[:60]!r} has a plus sign with no group of accelerators beside it.", field="on")
    if len(pieces) > _MOST_GROUPS:
        raise InputError(f"A fleet has at most {_MOST_GROUPS} groups, got {len(pieces)}.", field="on")
    assumed: dict[str, str] = {}
    fleets = [_group(piece, fabric, assumed) for piece in pieces]
    names = [fleet.name for fleet in fleets]
    alike = {place: f"{name} (group {place + 1})" for place, name in enumerate(names) if names.count(name) > 1}
    named = (fleet.model_copy(update={"name": alike.get(at, fleet.name)}) for at, fleet in enumerate(fleets))
    return Groups(tuple(named), assumed)


def fleet_of(text: Any) -> Fleet:
    """A cluster of the zoo by its name, or the one fleet that a string names."""
    found: Fleet | None = Clusters.get(text, None)
    return parse_fleet(text).one if found is None else found


def parts_of(text: str) -> tuple[int | None, str, str | None]:
    """How many of what on which fabric a group says.

    >>> parts_of("64xDGX_H100@NDR"), parts_of("512 H100"), parts_of("Meta_16K")
    ((64, 'DGX_H100', 'NDR'), (512, 'H100', None), (None, 'Meta_16K', None))
    """
    match = _GROUP.match(text)
    if match is None or not match["name"].strip():
        raise InputError(
            f"{text.strip()[:60]!r} is not a group of accelerators; write a number and a chip or node, such as '512xH100' or '64xDGX_H100@NDR'.",
            field="on",
        )
    name, count = _counted(match["name"].strip(), _count(match["count"], text))
    return count, name, match["fabric"]


def _is_group(text: str) -> bool:
    """Whether a text says how many of something known."""
    count, name, _ = parts_of(text) if text else (None, "", None)
    return count is not None and _is_system(name)


def _group(text: str, fabric: str | None, assumed: dict[str, str]) -> Fleet:
    count, name, own = parts_of(text)
    kind, entry = find_system(name)
    chosen = own or fabric
    given = None if chosen is None else find_fabric(chosen)
    if kind == "cluster":
        if count not in (None, 1):
            raise InputError(f"{name!r} is a whole cluster; name it without a number.", field="on")
        found: Fleet = entry
        return found if given is None else found.model_copy(update={"fabric": given})
    node, nodes = (entry, count or 1) if kind == "node" else _node_for(entry, count or 1, _each(text), assumed)
    network = given or _fabric_for(node, nodes, assumed)
    label = f"{nodes * node.accelerators_per_node:,} x {node.accelerator.name}"
    return Fleet(name=label, node=node, count=nodes, fabric=network)


def _counted(name: str, count: int | None) -> tuple[str, int | None]:
    """A name and how many of it, where the name itself says a number: a cloud's machine, ``512 H100``."""
    if any(registry.has(name) for registry in _SYSTEMS.values()):
        return name, count
    if held := machine(name):
        return held[1], (count or 1) * held[0]
    if whole := count is None and _nodes_of(name):
        return whole
    if count is None and (listed := re.fullmatch(r"([^:]+):(\d[\d_,]*)", name)) and _is_system(listed[1]):
        return listed[1], _count(listed[2], name)
    if count is not None and not _is_system(name) and _is_system(name.removesuffix("s")):
        return name.removesuffix("s"), count
    ways = () if count is not None and _is_system(name) else counted(name)
    return next(((each, n * (count or 1)) for n, each in ways if _is_system(each)), (name, count))


def _nodes_of(text: str) -> tuple[str, int] | None:
    """The node and how many of it, of ``16 nodes of H100``: the one that the zoo has for the chip, or the accelerators of as many of eight."""
    found = _OF_NODES.fullmatch(text)
    if found is None or not _is_system(name := (found["name"] or found["chip"]).removesuffix("s")):
        return None
    count, (kind, entry) = _count(found["count"] or found["number"], text) or 1, find_system(name)
    if kind != "chip":
        return (name, count) if kind == "node" else None
    node = _usual_node(entry)
    return name, count * (_PER_NODE if node is None else node.accelerators_per_node)


def _count(text: str | None, whole: str) -> int | None:
    if text is None:
        return None
    digits = text.replace("_", "").replace(",", "")
    if not digits.isdigit() or not 1 <= int(digits[:12]) <= _MOST or len(digits) > 9:
        asked = f"{whole.strip()[:60]!r} asks for {text[:20]} of them"
        raise InputError(f"{asked}; a number from 1 to {_MOST:,} is expected.", field="on")
    return int(digits)


_SYSTEMS = {"chip": Hardware, "node": Nodes, "cluster": Clusters}


def _is_system(name: str) -> bool:
    return any(name in registry for registry in _SYSTEMS.values())


def find_system(name: str) -> tuple[str, Any]:
    """A chip, node or cluster by name: ("chip" | "node" | "cluster", entry). One that is called so goes before a label that is read."""
    # A default in place of an exception: to find the nearest names takes longer than all the rest.
    for kind, registry in sorted(_SYSTEMS.items(), key=lambda item: not item[1].has(name)):
        found = registry.get(name, None)
        if found is not None:
            return kind, found
    if why := Hardware.why(name):
        raise InputError(why, field="on")
    if name.lower().endswith((".toml", ".json", ".yaml", ".yml", ".safetensors", ".onnx")):
        raise InputError(_unread(name), field="on")
    chip, _, number = name.lower().rpartition("x")
    if number and not number.strip("0") and _is_system(chip):
        _count(number, name)
    if _SORT.fullmatch(name):
        raise InputError(
            f"{name!r} does not say which chip; name one, such as H100, 'RTX 4090' or 'M4 Max'.", field="on"
        )
    if _NO_CHIP.match(name):
        text = (
            f"{name[:60]!r} does not say how many of which chip; write a whole number and a chip, such as '512xH100'."
        )
        raise InputError(text, field="on")
    from mlsysim.models.registry import Models  # only a name that is wrong needs them

    if Models.has(name):
        raise InputError(f"{name[:80]!r} is a model, and a chip, node or cluster is expected here.", field="on")
    raise unknown_name("chip, node or cluster", name, [*Hardware.keys(), *Nodes.keys(), *Clusters.keys()])


def _unread(name: str) -> str:
    """Why a name with the form of a file is no chip."""
    if not files_allowed():
        return "Paths are not read here; give the name of a chip, node or cluster of the zoo."
    if name.lower().endswith(ENDING):
        return f"There is no file {name[-80:]!r}; give the name of a chip, or the path of its TOML file."
    return f"{name[-80:]!r} is no description of a chip; give the name of one, or the path of its TOML file."


def find_fabric(name: str) -> NetworkFabric:
    """A fabric by name; part of a name is enough where only one technology has it, such as NDR or EFA_v3."""
    found: NetworkFabric
    if name in Fabrics:
        found = Fabrics.get(name)
        return found
    wanted = fold(name)
    close = [fabric for fabric in Fabrics if wanted and wanted in fold(fabric.metadata.key or fabric.name)]
    found = close[0] if len(close) == 1 else Fabrics.get(name)
    return found


def _usual_node(chip: HardwareNode) -> Node | None:
    """The first node of the zoo that holds a chip, or the zoo's chip that it was made from."""
    held = (n for n in Nodes.of("accelerator", chip.metadata.key) if n.accelerator.name == chip.name)
    node: Node | None = next(held, None)
    return node and node.with_chip(chip)


def _each(text: str) -> int | None:
    """How many accelerators a node has where a text says it.

    >>> _each("2 nodes of 4xH100@NDR"), _each("8x2xA100"), _each("2xinf2.48xlarge"), _each("8xH100")
    (4, 2, 12, None)
    """
    name = text.partition("@")[0].strip()
    if held := machine(re.sub(r"^[\d_,]+\s*[xX×*]\s*", "", name)):
        return held[0]
    found = _EACH.fullmatch(name)
    return int(found["each"]) if found is not None and _is_system(found["name"]) else None


def _node_for(chip: HardwareNode, count: int, said: int | None, assumed: dict[str, str]) -> tuple[Node, int]:
    """The node that the zoo has for a chip, or one of eight, or of as many as a text said, and how many."""
    node = _usual_node(chip)
    if said and node is not None and said < node.accelerators_per_node <= _MOST_PER_NODE:
        assumed["node"] = f"{said} of the {node.accelerators_per_node} accelerators of each {node.name}"
        return node.part(said), count // said
    if node is None:
        rate, joined = _link(chip)
        per_node = min(said if said and said <= _MOST_PER_NODE else _PER_NODE, count)
        name = f"{per_node} x {chip.name}"
        node = Node(name=name, accelerator=chip, accelerators_per_node=per_node, intra_node_bw=rate)
        if count > 1:
            assumed["node"] = f"{per_node} to a node, joined by {joined}; the zoo has no node of {chip.name}"
    per_node, found = node.accelerators_per_node, node.holding(count)
    if found is None:
        low = count - count % per_node
        raise InputError(
            f"{count} x {chip.name} is not a whole number of nodes of {per_node} ({node.name}); use {low} or {low + per_node}.",
            field="on",
        )
    each = found[0].accelerators_per_node
    if each < per_node:
        if count > 1 or node.unit_cost is not None:
            assumed["node"] = (
                f"{each} of the {per_node} accelerators of {'one' if count == each else 'each'} {node.name}"
            )
    elif "node" not in assumed:
        assumed["node"] = f"{node.name}, {per_node} to a node"
    return found


def _link(chip: HardwareNode) -> tuple[Any, str]:
    """Rate of both directions and name of what joins chips in a node: their own link, their host link, PCIe 4."""
    if chip.link is not None:
        return chip.link.bandwidth_total, chip.link.name
    if chip.interconnect is not None:
        return chip.interconnect.bandwidth * 2, chip.interconnect.name
    return Fabrics.get("PCIe_Gen4_x16").bandwidth * 2, "PCIe 4 x16"


def _fabric_for(node: Node, nodes: int, assumed: dict[str, str]) -> NetworkFabric:
    """The fabric of the first cluster of the zoo with this node, else the InfiniBand of its adapters, else 100G Ethernet."""
    key = node.metadata.key
    clusters = (cluster for cluster in Clusters.of("node", key) if key and cluster.node.metadata.key == key)
    fabric = next((cluster.fabric for cluster in clusters), None)
    if fabric is None:
        rate = to_si(node.nic_bandwidth, "byte/s") if node.nic_bandwidth is not None else None
        same = [f for f in Fabrics if rate and abs(to_si(f.bandwidth, "byte/s") / rate - 1) < 0.01]
        infiniband = [f for f in same if (f.technology or f.name).lower().startswith("infiniband")]
        fabric = (infiniband or same or [Fabrics.get("Ethernet_100G")])[0]
    if nodes > 1:
        assumed["fabric"] = f"{fabric.name} (write @NAME after the fleet for another)"
    return fabric
