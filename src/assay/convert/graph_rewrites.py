"""Rewrites of a finished `.tflite` graph that leave its results as they are, for what a lane gets wrong.

They need no source model. Each takes a model and returns a changed copy, or None where it finds nothing to
change. They move or copy values, or do the same arithmetic in another layout, so results are equal to the last
bit on kernels that work element by element; what a backend's own order of summation does is checked by running.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from assay.graph import GraphBuilder, GraphError, Model, Node, Subgraph, Tensor

Nodes = Collection[int] | None
"""Indices of the nodes that may be changed; None for all."""


@dataclass(frozen=True)
class GraphRewrite:
    """A rewrite of a finished graph.

    Attributes:
        name: Its name.
        summary: What it does, in one line.
        apply: Takes the model, the subgraph and the nodes; returns a changed copy, or None.
    """

    name: str
    summary: str
    apply: Callable[[Model, int, Nodes], Model | None]


_BINARY = frozenset({"ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "POW"})
_UNARY = frozenset(
    {
        *("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "GELU", "HARD_SWISH", "LEAKY_RELU", "LOG", "LOGISTIC"),
        *("LOG_SOFTMAX", "NEG", "RELU", "RELU6", "ROUND", "RSQRT", "SIN", "SOFTMAX", "SQRT", "SQUARE", "TANH"),
    }
)
_KEEPS_RANK = _BINARY | _UNARY | {"BATCH_MATMUL"}
_ACTIVATIONS = frozenset({"RELU", "RELU6", "RELU_N1_TO_1", "TANH"})


def _chosen(subgraph: Subgraph, nodes: Nodes, ops: Collection[str]) -> list[Node]:
    return [node for node in subgraph.nodes if node.op in ops and (nodes is None or node.index in nodes)]


def fold_weights(model: Model, subgraph: int = 0, nodes: Nodes = None) -> Model | None:
    """Store sparse weights dense: DENSIFY of a constant becomes the constant. Exact; the file grows."""
    return _folded(model, subgraph, nodes, "DENSIFY")


def fold_dequantize(model: Model, subgraph: int = 0, nodes: Nodes = None) -> Model | None:
    """Store float16 weights as float32: DEQUANTIZE of a constant becomes the constant. Exact."""
    return _folded(model, subgraph, nodes, "DEQUANTIZE")


def _folded(model: Model, subgraph: int, nodes: Nodes, op: str) -> Model | None:
    from assay.graph import Buffer

    copy = model.copy()
    graph = copy.subgraphs[subgraph]
    returned = set(graph.outputs)
    gone: set[int] = set()
    for node in _chosen(graph, nodes, {op}):
        source, result = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
        exact = op == "DENSIFY" or source.dtype == "float16"
        if not source.is_constant or not exact or result.index in returned:
            continue
        values = copy.data(source).astype(np.dtype(result.dtype))
        copy.buffers.append(Buffer(np.ascontiguousarray(values).tobytes()))
        result.buffer, result.is_constant, result.sparsity = len(copy.buffers) - 1, True, None
        gone.add(node.index)
    if not gone:
        return None
    return _without_nodes(copy, graph, gone)


def _without_nodes(model: Model, graph: Subgraph, gone: set[int]) -> Model:
    """Drop nodes, and the bytes of constants that nothing reads any more."""
    from assay.graph import Buffer

    graph.nodes = [node for node in graph.nodes if node.index not in gone]
    for position, node in enumerate(graph.nodes):
        node.index = position
    used = {entry.buffer for entry in model.metadata}
    for each in model.subgraphs:
        read = {tensor for node in each.nodes for tensor in (*node.inputs, *node.outputs)}
        read |= {*each.inputs, *each.outputs}
        for tensor in each.tensors:
            if tensor.index in read:
                used.add(tensor.buffer)
            else:
                # Indices of tensors must hold, so what is unread stays as an empty tensor.
                tensor.buffer, tensor.is_constant, tensor.sparsity = 0, False, None
    model.buffers = [b if position in used else Buffer() for position, b in enumerate(model.buffers)]
    return model


def keep_batch(model: Model, subgraph: int = 0, nodes: Nodes = None) -> Model | None:
    """Give rank-3 arithmetic a leading batch dimension of 1, with a RESHAPE before and after. Exact."""
    copy = model.copy()
    builder = GraphBuilder(copy, subgraph)
    graph = builder.subgraph
    chosen = [node for node in _chosen(graph, nodes, _KEEPS_RANK) if _is_rank_3(graph, node)]
    if not chosen:
        return None
    own = {node.index for node in chosen}
    readers = graph.consumers()
    returned = set(graph.outputs)
    wide: dict[int, Tensor] = {}
    # Indices move while nodes are put in, so the objects are held on to.
    outside = {
        tensor: any(reader not in own for reader in readers.get(tensor, [])) or tensor in returned
        for node in chosen
        for tensor in node.outputs
    }
    for node in chosen:
        for position, index in enumerate(node.inputs):
            tensor = graph.tensors[index] if index >= 0 else None
            if tensor is None or len(tensor.shape) != 3:
                continue
            if index not in wide:
                wide[index] = _reshaped(builder, tensor, (1, *tensor.shape), graph.nodes.index(node))
            node.inputs[position] = wide[index].index
        result = graph.tensors[node.outputs[0]]
        wide[result.index] = builder.tensor(f"{result.name}/rank4", (1, *result.shape), result.dtype)
        node.outputs = [wide[result.index].index]
        if outside[result.index]:
            _reshape_into(builder, wide[result.index], result, graph.nodes.index(node) + 1)
    return builder.finish()


def _is_rank_3(graph: Subgraph, node: Node) -> bool:
    read = [graph.tensors[index] for index in node.inputs if index >= 0]
    result = graph.tensors[node.outputs[0]]
    if len(node.outputs) != 1 or len(result.shape) != 3 or result.is_dynamic or result.quantization is not None:
        return False
    if node.op == "BATCH_MATMUL" and any(len(tensor.shape) != 3 for tensor in read):
        return False
    return any(len(tensor.shape) == 3 for tensor in read) and all(len(tensor.shape) <= 3 for tensor in read)


def _reshaped(builder: GraphBuilder, tensor: Tensor, shape: tuple[int, ...], position: int) -> Tensor:
    if tensor.is_constant:
        return builder.constant(builder.model.data(tensor).reshape(shape), f"{tensor.name}/rank{len(shape)}")
    result = builder.tensor(f"{tensor.name}/rank{len(shape)}", shape, tensor.dtype)
    _reshape_into(builder, tensor, result, position)
    return result


def _reshape_into(builder: GraphBuilder, source: Tensor, result: Tensor, position: int) -> None:
    spelled = builder.constant(np.array(result.shape, np.int32), f"{result.name}/shape")
    builder.node("RESHAPE", [source, spelled], [result], {"new_shape": result.shape}, position=position)


def expand_broadcast(model: Model, subgraph: int = 0, nodes: Nodes = None) -> Model | None:
    """Repeat the smaller operand of an element-wise op first: constants in the file, others by TILE. Exact."""
    copy = model.copy()
    builder = GraphBuilder(copy, subgraph)
    graph = builder.subgraph
    changed = False
    for node in _chosen(graph, nodes, _BINARY):
        result = graph.tensors[node.outputs[0]]
        if result.is_dynamic or result.quantization is not None:
            continue
        for position, index in enumerate(node.inputs):
            tensor = graph.tensors[index]
            if tensor.shape == result.shape or tensor.is_dynamic:
                continue
            node.inputs[position] = _expanded(builder, tensor, result.shape, graph.nodes.index(node)).index
            changed = True
    return builder.finish() if changed else None


def _expanded(builder: GraphBuilder, tensor: Tensor, shape: tuple[int, ...], position: int) -> Tensor:
    name = f"{tensor.name}/expanded"
    if tensor.is_constant:
        values = np.ascontiguousarray(np.broadcast_to(builder.model.data(tensor), shape))
        return builder.constant(values, name, tensor.dtype)
    padded = (1,) * (len(shape) - len(tensor.shape)) + tensor.shape
    source = tensor if padded == tensor.shape else _reshaped(builder, tensor, padded, position)
    position += source is not tensor
    repeats = np.array([full // size for full, size in zip(shape, padded, strict=True)], np.int32)
    result = builder.tensor(name, shape, tensor.dtype)
    builder.node("TILE", [source, builder.constant(repeats)], [result], position=position)
    return result


def split_activation(model: Model, subgraph: int = 0, nodes: Nodes = None) -> Model | None:
    """Make a fused activation a node of its own. Exact."""
    copy = model.copy()
    builder = GraphBuilder(copy, subgraph)
    graph = builder.subgraph
    chosen = [
        node
        for node in graph.nodes
        if node.options.get("fused_activation_function") in _ACTIVATIONS
        and (nodes is None or node.index in nodes)
        and graph.tensors[node.outputs[0]].quantization is None
    ]
    for node in chosen:
        result = graph.tensors[node.outputs[0]]
        raw = builder.tensor(
            f"{result.name}/raw", result.shape, result.dtype, shape_signature=result.shape_signature
        )
        activation = str(node.options["fused_activation_function"])
        node.options["fused_activation_function"] = "NONE"
        node.outputs = [raw.index]
        builder.node(activation, [raw], [result], position=graph.nodes.index(node) + 1)
    return builder.finish() if chosen else None


def part_neighbours(model: Model, subgraph: int = 0, nodes: Nodes = None) -> Model | None:
    """Put a RESHAPE to one dimension and back between neighbours, so that a backend cannot fuse them. Exact."""
    copy = model.copy()
    builder = GraphBuilder(copy, subgraph)
    graph = builder.subgraph
    chosen = [node for node in graph.nodes if nodes is None or node.index in nodes]
    computed = {tensor for node in chosen for tensor in node.outputs}
    constant = _prepared(graph)
    parted: dict[int, Tensor] = {}
    for node in chosen:
        for position, index in enumerate(node.inputs):
            if index not in computed or index in constant:
                continue
            tensor = graph.tensors[index]
            if tensor.is_dynamic or not tensor.shape or tensor.quantization is not None:
                continue
            if index not in parted:
                place = graph.nodes.index(node)
                flat = builder.tensor(f"{tensor.name}/flat", (math.prod(tensor.shape),), tensor.dtype)
                _reshape_into(builder, tensor, flat, place)
                parted[index] = builder.tensor(f"{tensor.name}/parted", tensor.shape, tensor.dtype)
                _reshape_into(builder, flat, parted[index], place + 1)
            node.inputs[position] = parted[index].index
    return builder.finish() if parted else None


def _prepared(graph: Subgraph) -> set[int]:
    """Tensors that depend on constants alone."""
    found = {tensor.index for tensor in graph.tensors if tensor.is_constant}
    for node in graph.nodes:
        read = [index for index in node.inputs if index >= 0]
        if read and all(index in found for index in read):
            found.update(node.outputs)
    return found


REWRITES: tuple[GraphRewrite, ...] = (
    GraphRewrite("fold-weights", "sparse weights stored dense (DENSIFY folded)", fold_weights),
    GraphRewrite("fold-dequantize", "float16 weights stored as float32 (DEQUANTIZE folded)", fold_dequantize),
    GraphRewrite("keep-batch", "rank-3 arithmetic with a leading batch dimension", keep_batch),
    GraphRewrite("expand-broadcast", "operands repeated to full size before they meet", expand_broadcast),
    GraphRewrite("split-activation", "fused activations as nodes of their own", split_activation),
    GraphRewrite("part-neighbours", "a RESHAPE between neighbours that are wrong together", part_neighbours),
)
"""All of them, the least invasive first."""


def apply(rewrite: GraphRewrite, model: Model, subgraph: int = 0, nodes: Nodes = None) -> Model | None:
    """Apply a rewrite; None also where the graph does not allow it."""
    try:
        return rewrite.apply(model, subgraph, nodes)
    except GraphError:
        return None
