"""Graphs of PyTorch in one form: from an exported program in memory, and from the JSON in a file of ``torch.export.save``."""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.counting import Shape
from mlsysim.importers.limits import size_in_words

_LARGEST_GRAPH = 200_000_000
_MOST_FILES = 100_000
_DEEPEST = 16
_GRAPH = re.compile(r"^/serialized_exported_program\.json\Z|/models/.*\.json\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """A tensor of the graph."""

    name: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A call: the operator's name without its overload, arguments by name, and the tensors it gives."""

    op: str
    namespace: str
    arguments: dict[str, Any]
    outputs: tuple[GraphTensor, ...]

    @property
    def tensors(self) -> list[GraphTensor]:
        return _tensors(self.arguments.values())


def _tensors(values: Iterable[Any]) -> list[GraphTensor]:
    """The tensors among values and in lists of them."""
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return [item for item in flat if isinstance(item, GraphTensor)]


@dataclass(slots=True)
class Program:
    """A graph, whoever wrote it: its calls, the shapes of its weights by name, and those of the user's inputs."""

    nodes: Iterable[GraphNode]
    weights: dict[str, Shape]
    buffers: dict[str, Shape]
    inputs: list[GraphTensor]
    held: set[str] = field(default_factory=set)
    strange: Counter[str] = field(default_factory=Counter)
    aliases: dict[str, str] = field(default_factory=dict)
    """A view of a weight is that weight."""


def graph_text(place: Path) -> bytes:
    """The JSON of the graph, out of the archive."""
    try:
        with zipfile.ZipFile(place) as archive:
            entries = archive.infolist()
            if len(entries) > _MOST_FILES:
                raise InputError(f"{place.name[:200]!r} holds more than {_MOST_FILES:,} files.")
            found = [entry for entry in entries if _GRAPH.search(f"/{entry.filename}")]
            if not found:
                raise InputError(
                    f"{place.name[:200]!r} holds no graph in JSON, as torch.export.save writes it; pickles are not read."
                )
            if len(found) > 1:
                raise InputError(f"{place.name[:200]!r} holds {len(found)} programs; save the one you mean by itself.")
            with archive.open(found[0]) as stream:
                data = stream.read(_LARGEST_GRAPH + 1)
    except InputError:
        raise
    except (zipfile.BadZipFile, zipfile.LargeZipFile, OSError, EOFError, RuntimeError, NotImplementedError, ValueError):
        raise InputError(f"{place.name[:200]!r} is not an archive of torch.export.save, or it is cut off.") from None
    except Exception as error:
        if type(error).__module__ not in ("zlib", "lzma", "_lzma"):
            raise
        raise InputError(f"{place.name[:200]!r} is cut off or damaged.") from None
    if len(data) > _LARGEST_GRAPH:
        raise InputError(f"The graph in {place.name[:200]!r} is larger than {size_in_words(_LARGEST_GRAPH)}.")
    return data


# --- the two forms of a program -----------------------------------------------------------------------------------------


def program_in_memory(program: Any) -> Program:
    """The calls of an exported program in memory."""
    given = [node for node in program.graph.nodes if node.op == "placeholder"]
    shapes = {node.name: _hinted(v.shape) for node in given if hasattr(v := node.meta.get("val"), "shape")}
    specs = [(spec.kind.name.lower(), getattr(spec.arg, "name", "")) for spec in program.graph_signature.input_specs]
    return _program(_fx_nodes(program.graph_module, {}, 0), specs, shapes)


def _program(nodes: Iterable[GraphNode], specs: Iterable[tuple[str, str]], shapes: Mapping[str, Shape]) -> Program:
    """The calls with what each input is: a parameter, one of the user's, or a buffer."""
    found = Program(nodes, {}, {}, [])
    for kind, key in specs:
        if key not in shapes:
            continue
        if kind == "user_input":
            found.inputs.append(GraphTensor(key, shapes[key]))
        else:
            (found.weights if kind == "parameter" else found.buffers)[key] = shapes[key]
    return found


def _hinted(sizes: Iterable[Any]) -> Shape:
    """Sizes of a tensor; one that the export left open has the size of the example."""
    found: list[Any] = [
        size if isinstance(size, int) else getattr(getattr(size, "node", None), "hint", None) for size in sizes
    ]
    if not all(isinstance(size, int) for size in found):
        raise InputError("The program has a dimension whose size depends on the data.")
    return tuple(found)


def _bounded(depth: int) -> None:
    if depth > _DEEPEST:
        raise InputError(f"The program nests graphs more than {_DEEPEST} deep.")


def _fx_nodes(module: Any, names: Mapping[str, str], depth: int) -> Iterator[GraphNode]:
    _bounded(depth)

    def tensors(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [tensors(item) for item in value]
        meta = getattr(value, "meta", None)
        if meta is None:
            return value
        found = meta.get("val")
        return GraphTensor(names.get(value.name, value.name), _hinted(found.shape)) if hasattr(found, "shape") else None

    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            attributes = [a for a in node.args if getattr(a, "op", "") == "get_attr"]
            inner = [graph for a in attributes if (graph := _graph_module(module, a.target)) is not None]
            if len(inner) == 1:
                given = [a for a in node.args if a not in attributes and hasattr(a, "meta")]
                inside = [n.name for n in inner[0].graph.nodes if n.op == "placeholder"]
                outer = {i: names.get(a.name, a.name) for i, a in zip(inside, given, strict=False)}
                yield from _fx_nodes(inner[0], outer, depth + 1)
            elif inner:
                yield GraphNode(str(node.target), "higher_order", {}, ())
            continue
        order = [argument.name for argument in schema.arguments]
        arguments = {key: tensors(value) for key, value in (*zip(order, node.args, strict=False), *node.kwargs.items())}
        value = node.meta.get("val")
        made = enumerate(value if isinstance(value, (list, tuple)) else (value,))
        shapes = [(f"{node.name}.{i}" if i else node.name, v.shape) for i, v in made if hasattr(v, "shape")]
        outputs = tuple(GraphTensor(name, _hinted(shape)) for name, shape in shapes)
        namespace, _, op = schema.name.partition("::")
        yield GraphNode(op, namespace, arguments, outputs)


def _graph_module(module: Any, target: str) -> Any:
    try:
        found = module.get_submodule(target)
    except AttributeError:
        return None
    return found if hasattr(found, "graph") else None


def program_in_json(document: Any, name: str) -> Program:
    """The calls of a program as ``torch.export.save`` writes them."""
    try:
        module = document["graph_module"]
        graph, signature = module["graph"], module["signature"]
        shapes = _json_shapes(graph)
        specs = []
        for spec in signature["input_specs"]:
            kind, content = next(iter(spec.items()))
            argument = content["arg"]
            named = argument.get("as_tensor", argument).get("name", "") if isinstance(argument, dict) else ""
            specs.append((kind, named))
        return _program(list(_json_nodes(graph, 0)), specs, shapes)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration, IndexError):
        raise InputError(f"The graph in {name[:200]!r} is not in a form that is known.") from None


def _json_shapes(graph: Mapping[str, Any]) -> dict[str, Shape]:
    found = {}
    for key, meta in graph["tensor_values"].items():
        sizes = [_json_size(size) for size in meta["sizes"]]
        if all(isinstance(size, int) and not isinstance(size, bool) for size in sizes):
            found[key] = tuple(sizes)
    return found


def _json_size(size: Mapping[str, Any]) -> Any:
    value = size.get("as_int")
    return ((size.get("as_expr") or {}).get("hint") or {}).get("as_int") if value is None else value


def _json_nodes(graph: Mapping[str, Any], depth: int) -> Iterator[GraphNode]:
    _bounded(depth)
    shapes = _json_shapes(graph)

    def tensor(entry: Mapping[str, Any]) -> GraphTensor | None:
        key = entry["name"]
        return GraphTensor(key, shapes[key]) if key in shapes else None

    def value(argument: Mapping[str, Any]) -> Any:
        if not argument:
            return None
        kind, content = next(iter(argument.items()))
        if kind == "as_tensor":
            return tensor(content)
        if kind == "as_tensors":
            return [tensor(item) for item in content]
        if kind == "as_optional_tensors":
            return [tensor(item["as_tensor"]) for item in content if "as_tensor" in item]
        return content if kind in ("as_bool", "as_int", "as_float", "as_ints", "as_string") else None

    for node in graph["nodes"]:
        words = node["target"].split(".")
        inner = [i["arg"]["as_graph"]["graph"] for i in node["inputs"] if "as_graph" in i["arg"]]
        if len(inner) == 1:
            yield from _json_nodes(inner[0], depth + 1)
            continue
        if inner:
            yield GraphNode(node["target"], "higher_order", {}, ())
            continue
        arguments = {item["name"] or str(i): value(item["arg"]) for i, item in enumerate(node["inputs"])}
        outputs = tuple(_tensors(value(output) for output in node["outputs"]))
        namespace = words[2] if words[:2] == ["torch", "ops"] and len(words) > 3 else ""
        yield GraphNode(words[3] if namespace else words[-1], namespace, arguments, outputs)
