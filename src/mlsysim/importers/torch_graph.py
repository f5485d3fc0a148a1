"""PyTorch modules and exported programs as workloads, counted on their graph of ATen operators.

``import_module`` takes an ``nn.Module`` (on the meta device, if you like: no weight is needed) with example inputs, or a
``torch.export.ExportedProgram``; shapes come from fake tensors, nothing is run. A ``.pt2`` file is read without PyTorch: it
is a zip whose graph is JSON (``models/*.json``, or ``serialized_exported_program.json`` of earlier versions). Its pickles (sample
inputs, some weights) are never opened.

Operations agree with ``torch.utils.flop_counter.FlopCounterMode``, except that attention that is called as causal counts
the unmasked half. Left out: branches of ``torch.cond`` and bodies of loops, which are warned of.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from importlib import import_module as _load
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers import counting, named, table
from mlsysim.importers.counting import Call, Shape, elements, product, unknown_operators, with_weights, workload_of
from mlsysim.importers.limits import existing, load_json, read_bounded, size_in_words
from mlsysim.importers.report import ImportReport
from mlsysim.units.records import dataclass

_VIEWS, _MADE, _CONVOLUTIONS, _ATTENTIONS = (
    named("torch", kind) for kind in ("views", "made", "convolutions", "attentions")
)
_FACTORS: dict[str, list[int]] = table("names")["factors"]
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
    weights: dict[str, Shape] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    """Weights and buffers."""
    inputs: list[GraphTensor] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    strange: Counter[str] = field(default_factory=Counter)
    aliases: dict[str, str] = field(default_factory=dict)
    """A view of a weight is that weight."""


def import_module(
    module: Any,
    example_inputs: Sequence[Any] = (),
    name: str | None = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    batch: int | None = None,
) -> ImportReport:
    """The report on a module, given example inputs, or on an exported program.

    ``batch`` is the number of samples in the example inputs; unless given, the first size of the first of them.
    """
    try:
        torch = _load("torch")
    except ImportError:
        raise InputError(
            "Reading a PyTorch module needs PyTorch, which is not installed; say pip install torch."
        ) from None
    if isinstance(module, torch.export.ExportedProgram):
        program, title = module, name or type(getattr(module, "graph_module", module)).__name__
    elif isinstance(module, torch.nn.Module):
        inputs = tuple(example_inputs) if isinstance(example_inputs, (list, tuple)) else (example_inputs,)
        try:
            with torch.no_grad():
                program = torch.export.export(module, inputs, dict(example_kwargs or {}), strict=False)
        except Exception as error:  # whatever the module's own code raises
            reason = str(error).strip().split("\n")[0][:200]
            raise InputError(
                f"torch.export could not follow {type(module).__name__} ({type(error).__name__}: {reason.rstrip('.')})."
            ) from error
        title = name or type(module).__name__
    else:
        raise InputError(f"A module is an nn.Module or an ExportedProgram, not {type(module).__name__}.")
    return _report(_program_in_memory(program), title, "PyTorch module", batch, source=type(module).__name__)


def read_pt2(path: str | os.PathLike[str], name: str | None = None, *, batch: int | None = None) -> ImportReport:
    """The report on a file that ``torch.export.save`` wrote, from its JSON alone."""
    place = existing(path)
    read_bounded(place, 16, at_most=4)
    document = load_json(_graph_text(place), max_depth=200, name=place.name, finite=False, once=False)
    program = _program_in_json(document, place.name)
    return _report(program, name or place.stem, "PyTorch exported program", batch, place.name)


def _report(program: Program, title: str, family: str, batch: int | None, source: str) -> ImportReport:
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise InputError(f"The batch is a whole number of at least 1, got {str(batch)[:40]!r}.")
    first = next((tensor.shape[0] for tensor in program.inputs if tensor.shape), 1)
    calls = [call for node in program.nodes for call in _count(node, program)]
    warnings = unknown_operators(program.strange)
    unused = sum(elements(shape) for key, shape in program.weights.items() if key not in program.held)
    if unused:
        warnings.append(f"{unused:,.0f} parameters are not used by the graph and were not counted.")
    inputs = ((tensor.name, tensor.shape) for tensor in program.inputs[:4])
    workload, strange = workload_of(calls, title, batch or max(1, first), inputs), tuple(sorted(program.strange))
    return ImportReport.of(workload, family, unread=strange, warnings=tuple(warnings), source=source)


def _count(node: GraphNode, program: Program) -> list[Call]:
    """What a node counts for; empty where it only looks at data in another way."""
    op = node.op.rstrip("_") if node.op not in ("__and__", "__or__") else node.op
    tensors = node.tensors
    constants = program.constants
    origins = [program.aliases.get(t.name, t.name) for t in tensors]
    if op in _VIEWS or (tensors and all(origin in constants for origin in origins)):
        if tensors and origins[0] in constants:
            program.aliases.update((output.name, origins[0]) for output in node.outputs)
        return []
    if not node.outputs or op in _MADE:
        if node.namespace == "higher_order":
            program.strange[node.op] += 1
        return []
    if node.namespace not in ("aten", "prims"):
        program.strange[f"{node.namespace}.{op}" if node.namespace else op] += 1
    weight = [origin in constants for origin in origins]
    call = _call(op, node, weight)
    read = parameters = 0.0
    for tensor, origin in ((t, o) for t, o in zip(tensors, origins, strict=True) if o in constants):
        read += elements(tensor.shape)
        if origin in program.weights and origin not in program.held:
            program.held.add(origin)
            parameters += elements(program.weights[origin])
    if call.kind == "embedding":
        read = 0.0  # the rows that are taken are counted, not the table
    return [with_weights(call, max(0.0, read - call.weights), parameters)]


def _call(op: str, node: GraphNode, weight: list[bool]) -> Call:
    tensors, out = node.tensors, node.outputs[0].shape
    shapes = [tensor.shape for tensor in tensors]
    if not shapes:
        return counting.moved(op, (), [tensor.shape for tensor in node.outputs])
    if op in _CONVOLUTIONS and len(shapes) > 1:
        transposed = "transpose" in op or node.arguments.get("transposed") is True
        ones = (1,) * (len(shapes[1]) - len(shapes[0]))  # an input without a batch
        return counting.convolution(op, (*ones, *shapes[0]), shapes[1], (*ones, *out), transposed)
    left, right = _FACTORS.get(op, (0, len(shapes)))
    linear = op in ("linear", "_linear")
    if right < len(shapes) and (len(shapes[right]) == 2 or not linear):
        return product(op, shapes[left], counting.turned(shapes[right]) if linear else shapes[right], weight[right])
    if op in _ATTENTIONS and len(shapes) > 2:
        return counting.attention(op, shapes[0], shapes[1], shapes[2], causal=node.arguments.get("is_causal") is True)
    if op in ("embedding", "embedding_bag", "index_select") and weight[0]:
        return counting.lookup(op, out)
    if op in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        held = sum(elements(s) for s, constant in zip(shapes, weight, strict=True) if constant and len(s) == 2)
        return counting.recurrent(op, shapes[0], held, [t.shape for t in node.outputs])
    if op == "einsum" and isinstance(node.arguments.get("equation"), str):
        found = counting.contraction(op, node.arguments["equation"], shapes, weight[-1])
        if found is not None:
            return found
    inputs = [shape for shape, constant in zip(shapes, weight, strict=True) if not constant]
    return counting.moved(op, inputs, [tensor.shape for tensor in node.outputs])


def _graph_text(place: Path) -> bytes:
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


def _program_in_memory(program: Any) -> Program:
    """The calls of an exported program in memory."""
    given = [node for node in program.graph.nodes if node.op == "placeholder"]
    shapes = {node.name: _hinted(v.shape) for node in given if hasattr(v := node.meta.get("val"), "shape")}
    specs = [(spec.kind.name.lower(), getattr(spec.arg, "name", "")) for spec in program.graph_signature.input_specs]
    return _program(_fx_nodes(program.graph_module, {}, 0), specs, shapes)


def _program(nodes: Iterable[GraphNode], specs: Iterable[tuple[str, str]], shapes: Mapping[str, Shape]) -> Program:
    """The calls with what each input is: a parameter, one of the user's, or a buffer."""
    found = Program(nodes)
    for kind, key in ((kind, key) for kind, key in specs if key in shapes):
        if kind == "user_input":
            found.inputs.append(GraphTensor(key, shapes[key]))
            continue
        found.constants.add(key)
        if kind == "parameter":
            found.weights[key] = shapes[key]
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


def _program_in_json(document: Any, name: str) -> Program:
    """The calls of a program as ``torch.export.save`` writes them."""
    try:
        graph, specs = document["graph_module"]["graph"], []
        shapes = _json_shapes(graph)
        for spec in document["graph_module"]["signature"]["input_specs"]:
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
