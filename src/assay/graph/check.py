"""What must hold in a model that decodes: indices in range, sound shapes, no cycles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from assay.graph.flatbuffer import Corrupt
from assay.graph.model import Model, Node, Subgraph, Tensor

#: No runtime has a kernel for more dimensions than 8; this leaves room for what a file may still describe.
MAX_RANK = 64
MAX_ELEMENTS_OF_TENSOR = 1 << 48
MAX_SUBGRAPHS = 1 << 14
#: Subgraphs that one node may name.
MAX_CALLS = 256

#: Options that name subgraphs which the op runs.
CALLS = frozenset(
    {
        "body_subgraph_index",
        "branch_subgraph_indices",
        "comparator_subgraph_index",
        "cond_subgraph_index",
        "decomposition_subgraph_index",
        "else_subgraph_index",
        "init_subgraph_index",
        "subgraph",
        "then_subgraph_index",
        "update_computation_subgraph_index",
        "called_computations",
    }
)


def check(model: Model) -> None:
    """Check a whole model.

    Raises:
        Corrupt: What is wrong, and where.
    """
    if not model.subgraphs:
        raise Corrupt("it has no subgraph")
    if len(model.subgraphs) > MAX_SUBGRAPHS:
        raise Corrupt(f"it has {len(model.subgraphs):,} subgraphs")
    for subgraph in model.subgraphs:
        where = f"subgraph {subgraph.index}: " if len(model.subgraphs) > 1 else ""
        for tensor in subgraph.tensors:
            _check_tensor(tensor, where)
        _check_indices("inputs", subgraph.inputs, len(subgraph.tensors), where, allow_absent=False)
        _check_indices("outputs", subgraph.outputs, len(subgraph.tensors), where, allow_absent=False)
        _check_nodes(subgraph, where)
    _check_calls(model)


def called_subgraphs(node: Node) -> list[int]:
    """Indices of the subgraphs that a node's options name.

    Raises:
        Corrupt: It names absurdly many.
    """
    if not node.options or not CALLS.intersection(node.options):
        return []
    called: list[int] = []
    for name in sorted(CALLS.intersection(node.options)):
        value: Any = node.options[name]
        if isinstance(value, int):
            value = (value,)
        if value is not None and len(value) > MAX_CALLS:
            raise Corrupt(f"node {node.index} ({node.op}) runs {len(value):,} subgraphs")
        # -1 (and an absent vector) stands for "none".
        called += value or ()
    return [index for index in called if index != -1]


def _check_tensor(tensor: Tensor, where: str) -> None:
    elements = 1
    for dimension in tensor.shape:
        if dimension < 0:
            raise Corrupt(f"{where}tensor {tensor.index} has the shape {list(tensor.shape)}")
        elements *= dimension
    if elements > MAX_ELEMENTS_OF_TENSOR:
        raise Corrupt(f"{where}tensor {tensor.index} claims {elements:.1e} elements, {list(tensor.shape)}")
    signature = tensor.shape_signature
    if signature is not None and (len(signature) != len(tensor.shape) or min(signature) < -1):
        raise Corrupt(
            f"{where}tensor {tensor.index} has the shape {list(tensor.shape)} "
            f"and the shape signature {list(signature)}"
        )


def _check_indices(what: str, indices: Iterable[int], count: int, where: str, *, allow_absent: bool) -> None:
    lowest = -1 if allow_absent else 0
    for index in indices:
        if not lowest <= index < count:
            raise Corrupt(f"{where}{what} has tensor {index} of {count}")


def _check_nodes(subgraph: Subgraph, where: str) -> None:
    """Indices in range, and every value computed once, before it is read."""
    tensors = subgraph.tensors
    count = len(tensors)
    written = bytearray(count)
    produced = bytearray(count)
    for node in subgraph.nodes:
        for tensor in node.outputs:
            if 0 <= tensor < count:
                produced[tensor] = 1
    for index in subgraph.inputs:
        written[index] = 1
        if produced[index]:
            raise Corrupt(f"{where}tensor {index} is an input of the graph and is computed by a node")
    for node in subgraph.nodes:
        label = f"{where}node {node.index} ({node.op}) "
        for tensor in node.inputs:
            if not -1 <= tensor < count:
                raise Corrupt(f"{label}reads tensor {tensor} of {count}")
            if tensor >= 0 and produced[tensor] and not written[tensor] and not tensors[tensor].is_variable:
                raise Corrupt(f"{label}reads tensor {tensor} before it is computed")
        _check_indices(f"{label}intermediates", node.intermediates or (), count, "", allow_absent=True)
        for tensor in node.outputs:
            if not -1 <= tensor < count:
                raise Corrupt(f"{label}writes tensor {tensor} of {count}")
            if tensor < 0:
                continue
            if tensors[tensor].is_constant:
                raise Corrupt(f"{label}writes tensor {tensor}, which is a constant")
            if written[tensor] and not tensors[tensor].is_variable:
                raise Corrupt(f"{label}writes tensor {tensor} a second time")
            written[tensor] = 1


def _check_calls(model: Model) -> None:
    """Subgraphs that nodes run exist and do not run themselves, however indirectly."""
    count = len(model.subgraphs)
    calls: list[list[int]] = []
    for subgraph in model.subgraphs:
        called: set[int] = set()
        for node in subgraph.nodes:
            for index in called_subgraphs(node):
                if not 0 <= index < count:
                    raise Corrupt(f"node {node.index} ({node.op}) runs subgraph {index} of {count}")
                called.add(index)
        calls.append(sorted(called))
    # Depth first with our own stack: a hostile chain of calls may be longer than Python's.
    state = bytearray(count)
    for start in range(count):
        stack = [(start, iter(calls[start]))] if not state[start] else []
        state[start] = state[start] or 1
        while stack:
            index, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                state[index] = 2
                stack.pop()
            elif state[following] == 1:
                raise Corrupt(f"subgraph {following} runs itself")
            elif state[following] == 0:
                state[following] = 1
                stack.append((following, iter(calls[following])))
