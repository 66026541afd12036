"""Which values an input may take, as far as the graph tells: indices must stay inside the table they index.

An index out of range is undefined behaviour in a kernel (a crash, or memory of others), so a seeded input
that feeds a GATHER must know how long the table is. The graph says so: from the input, follow the ops that
pass values on unchanged, and note each op that takes them as indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from assay.graph import Model, Node, Subgraph

_PASSES_VALUES = frozenset(
    {
        *("BROADCAST_TO", "CAST", "CONCATENATION", "EXPAND_DIMS", "IDENTITY", "MIRROR_PAD", "PACK", "PAD"),
        *("PADV2", "RESHAPE", "REVERSE_V2", "SLICE", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE"),
        *("TRANSPOSE", "UNPACK"),
    }
)
"""Ops whose outputs hold values of their data input, moved about but not computed upon."""

_DATA_INPUT = {"SPLIT": 1}
"""Position of the data input where it is not 0. PACK and CONCATENATION take data everywhere."""

_CHOOSES = {"SELECT": (1, 2), "SELECT_V2": (1, 2), "WHERE": (1, 2)}
_BODIES = {
    "IF": (1, ("then_subgraph_index", "else_subgraph_index")),
    "WHILE": (0, ("cond_subgraph_index", "body_subgraph_index")),
    "STABLEHLO_COMPOSITE": (0, ("decomposition_subgraph_index",)),
}
"""Op -> (position of the first input handed on, options that name the subgraphs it is handed to)."""

_MAX_STEPS = 20_000
"""Values followed at most: a hostile graph must not keep the walk going."""


def index_bound(model: Model, subgraph: int, tensor: int) -> int | None:
    """The smallest table that the values of a tensor index into.

    Args:
        model: The graph.
        subgraph: Index of the subgraph that the tensor lies in.
        tensor: Index of the tensor, in most cases a graph input.

    Returns:
        N such that 0, 1, ... N-1 are all valid; None if no op takes the values as indices.
    """
    bounds = list(_bounds(model, subgraph, tensor))
    return max(1, min(bounds)) if bounds else None


def _bounds(model: Model, subgraph: int, tensor: int) -> Iterator[int]:
    consumers: dict[int, dict[int, list[tuple[Node, int]]]] = {}
    # (subgraph, tensor, offset): what flows there is the input's value plus `offset`.
    waiting = [(subgraph, tensor, 0)]
    seen = set(waiting)
    while waiting and len(seen) < _MAX_STEPS:
        here, current, offset = waiting.pop()
        graph = model.subgraphs[here]
        if here not in consumers:
            consumers[here] = _consumers(graph)
        for node, position in consumers[here].get(current, ()):
            limit = _limit(model, graph, node, position)
            # An ADD that shifts past the table is the arm of a select that repairs negative indices.
            if limit is not None and limit - offset > 0:
                yield limit - offset
            for step in _next(model, node, position, here, offset):
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)


def _consumers(graph: Subgraph) -> dict[int, list[tuple[Node, int]]]:
    table: dict[int, list[tuple[Node, int]]] = {}
    for node in graph.nodes:
        for position, tensor in enumerate(node.inputs):
            table.setdefault(tensor, []).append((node, position))
    return table


def _next(model: Model, node: Node, position: int, here: int, offset: int) -> Iterator[tuple[int, int, int]]:
    """Where the value at one input of a node goes on to."""
    graph = model.subgraphs[here]
    op = node.op
    if (
        op in ("CONCATENATION", "PACK")
        or (op in _PASSES_VALUES and position == _DATA_INPUT.get(op, 0))
        or position in _CHOOSES.get(op, ())
    ):
        for output in node.outputs:
            yield here, output, offset
    elif op in ("GATHER", "GATHER_ND") and position == 0:
        yield here, node.outputs[0], offset
    elif op in ("ADD", "SUB") and len(node.inputs) == 2:
        constant = _constant(model, graph, node, 1 - position)
        if constant is not None and constant.size and np.issubdtype(constant.dtype, np.integer):
            if op == "ADD":
                yield here, node.outputs[0], offset + int(constant.max())
            elif position == 0:
                yield here, node.outputs[0], offset - int(constant.min())
    elif op in _BODIES:
        first, options = _BODIES[op]
        for option in options:
            body = node.options.get(option)
            if isinstance(body, int) and 0 <= body < len(model.subgraphs) and position >= first:
                inputs = model.subgraphs[body].inputs
                if position - first < len(inputs):
                    yield body, inputs[position - first], offset


def _limit(model: Model, graph: Subgraph, node: Node, position: int) -> int | None:
    """How many values are valid where a node takes this input as indices; None if it does not."""
    match node.op, position:
        case "GATHER", 1:
            table = _shape(graph, node, 0)
            axis = int(node.options.get("axis") or 0)
            return table[axis] if -len(table) <= axis < len(table) else None
        case "EMBEDDING_LOOKUP", 0:
            table = _shape(graph, node, 1)
            return table[0] if table else None
        case "EMBEDDING_LOOKUP_SPARSE", 0:
            table = _shape(graph, node, 4)
            return table[0] if table else None
        case "GATHER_ND", 1:
            indices = _shape(graph, node, 1)
            indexed = _shape(graph, node, 0)[: indices[-1] if indices else 1]
            return min(indexed, default=None)
        case "ONE_HOT", 0:
            depth = _constant(model, graph, node, 1)
            return int(depth.reshape(-1)[0]) if depth is not None and depth.size else None
        case "SCATTER_ND", 0:
            target = _constant(model, graph, node, 2)
            indices = _shape(graph, node, 0)
            dims = list(_shape_of_output(graph, node)) if target is None else [int(d) for d in target.reshape(-1)]
            return min(dims[: indices[-1] if indices else 1], default=None)
        case "SEGMENT_SUM" | "UNSORTED_SEGMENT_SUM" | "UNSORTED_SEGMENT_MAX", 1:
            out = _shape_of_output(graph, node)
            return out[0] if out else None
        case "DYNAMIC_UPDATE_SLICE", 2:
            operand, update = _shape(graph, node, 0), _shape(graph, node, 1)
            return min((o - u + 1 for o, u in zip(operand, update, strict=False)), default=None)
        case "SLICE", 1:
            operand, out = _shape(graph, node, 0), _shape_of_output(graph, node)
            return min((o - u + 1 for o, u in zip(operand, out, strict=False)), default=None)
        case _:
            return None


def _shape(graph: Subgraph, node: Node, position: int) -> tuple[int, ...]:
    if position >= len(node.inputs) or node.inputs[position] < 0:
        return ()
    return graph.tensors[node.inputs[position]].shape


def _shape_of_output(graph: Subgraph, node: Node) -> tuple[int, ...]:
    return graph.tensors[node.outputs[0]].shape if node.outputs else ()


def _constant(model: Model, graph: Subgraph, node: Node, position: int) -> np.ndarray | None:
    if position >= len(node.inputs) or node.inputs[position] < 0:
        return None
    tensor = graph.tensors[node.inputs[position]]
    return model.data(tensor) if tensor.is_constant else None
