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
from collections.abc import Mapping, Sequence
from importlib import import_module as _load
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers import counting, named
from mlsysim.importers.counting import Call, elements, product, unknown_operators, with_weights, workload_of
from mlsysim.importers.limits import existing, load_json, read_bounded
from mlsysim.importers.report import ImportReport
from mlsysim.importers.torch_programs import GraphNode, Program, graph_text, program_in_json, program_in_memory

_VIEWS, _MADE, _CONVOLUTIONS, _ATTENTIONS = (
    named("torch", kind) for kind in ("views", "made", "convolutions", "attentions")
)
_PRODUCTS = {
    **dict.fromkeys(("mm", "matmul", "bmm", "dot", "mv", "_scaled_mm", "_int_mm"), (0, 1)),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm", "addmv"), (1, 2)),
}
"""Products, with the places of their factors."""


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
    return _report(program_in_memory(program), title, "PyTorch module", batch, source=type(module).__name__)


def read_pt2(path: str | os.PathLike[str], name: str | None = None, *, batch: int | None = None) -> ImportReport:
    """The report on a file that ``torch.export.save`` wrote, from its JSON alone."""
    place = existing(path)
    read_bounded(place, 16, at_most=4)
    document = load_json(graph_text(place), max_depth=200, name=place.name, finite=False)
    return _report(
        program_in_json(document, place.name), name or place.stem, "PyTorch exported program", batch, place.name
    )


# --- counting ---------------------------------------------------------------------------------------------------------


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
    workload = workload_of(calls, title, batch or max(1, first), inputs)
    return ImportReport.of(
        workload, family, unread=tuple(sorted(program.strange)), warnings=tuple(warnings), source=source
    )


def _count(node: GraphNode, program: Program) -> list[Call]:
    """What a node counts for; empty where it only looks at data in another way."""
    op = node.op.rstrip("_") if node.op not in ("__and__", "__or__") else node.op
    tensors = node.tensors
    constants = program.weights | program.buffers
    origins = [program.aliases.get(t.name, t.name) for t in tensors]
    if op in _VIEWS or (tensors and all(origin in constants for origin in origins)):
        if tensors and origins[0] in constants:
            for output in node.outputs:
                program.aliases[output.name] = origins[0]
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
    for tensor, origin, constant in zip(tensors, origins, weight, strict=True):
        if not constant:
            continue
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
        lead = len(shapes[1]) - len(shapes[0])  # an input without a batch
        ones = (1,) * max(0, lead)
        return counting.convolution(op, (*ones, *shapes[0]), shapes[1], (*ones, *out), transposed)
    if op in ("linear", "_linear") and len(shapes) > 1 and len(shapes[1]) == 2:
        return product(op, shapes[0], (shapes[1][1], shapes[1][0]), weight[1])
    left, right = _PRODUCTS.get(op, (0, len(shapes)))
    if right < len(shapes):
        return product(op, shapes[left], shapes[right], weight[right])
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
