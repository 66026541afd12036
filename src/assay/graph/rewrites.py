"""Rewrites of a finished `.tflite` graph that leave its results as they are, for what a lane gets wrong.

They need no source model. Each takes a model and returns a changed copy, or None where it finds nothing to
change. They move or copy values, or do the same arithmetic in another layout, so results are equal to the last
bit on kernels that work element by element; what a backend's own order of summation does is checked by running.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
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


_PART = 4 * 4096
"""Channels whose weights fit the smallest texture that GPUs have today, 4,096 texels of four channels a side."""


@dataclass(frozen=True)
class _Layer:
    """A convolution or a fully connected layer, its weights as the file stores them."""

    node: Node
    source: Tensor
    stored: Tensor
    bias: Tensor | None
    result: Tensor

    @property
    def input_part(self) -> int:
        """Input channels of a part: a texture has them times the window on one side."""
        window = math.prod(self.stored.shape[1:-1])
        return max(_PART // window // 4 * 4, 4)


def split_layer(model: Model, subgraph: int = 0, nodes: Nodes = None) -> Model | None:
    """Compute layers of very many channels in parts that are joined or added. Sums of parts round differently."""
    copy = model.copy()
    builder = GraphBuilder(copy, subgraph)
    graph = builder.subgraph
    producers = graph.producers()
    layers = [
        layer
        for node in _chosen(graph, nodes, {"CONV_2D", "FULLY_CONNECTED"})
        if (layer := _wide_layer(graph, node, producers)) is not None
    ]
    for layer in layers:
        _split(builder, layer)
    return _without_nodes(copy, graph, {layer.node.index for layer in layers}) if layers else None


def _wide_layer(graph: Subgraph, node: Node, producers: Mapping[int, int]) -> _Layer | None:
    if len(node.inputs) < 2 or min(node.inputs[:2]) < 0:
        return None
    source, weights = graph.tensors[node.inputs[0]], graph.tensors[node.inputs[1]]
    result = graph.tensors[node.outputs[0]]
    maker = graph.nodes[producers[weights.index]] if weights.index in producers else None
    stored = graph.tensors[maker.inputs[0]] if maker is not None and maker.op == "DEQUANTIZE" else weights
    bias = graph.tensors[node.inputs[2]] if len(node.inputs) > 2 and node.inputs[2] >= 0 else None
    if not stored.is_constant or stored.dtype not in ("float16", "float32") or stored.sparsity is not None:
        return None
    if bias is not None and not bias.is_constant:
        return None
    # Grouped convolutions, and layers that flatten what they read, have other channels than their source.
    if not source.shape or source.shape[-1] != stored.shape[-1] or result.is_dynamic or source.is_dynamic:
        return None
    layer = _Layer(node, source, stored, bias, result)
    return layer if stored.shape[0] > _PART or stored.shape[-1] > layer.input_part else None


def _split(builder: GraphBuilder, layer: _Layer) -> None:
    """Put the parts of a layer before it; it is left with nothing to compute."""
    weights = builder.model.data(layer.stored)
    bias = None if layer.bias is None else builder.model.data(layer.bias)
    name, activation = layer.result.name, layer.node.options["fused_activation_function"]
    options = {**layer.node.options, "fused_activation_function": "NONE"}
    sources = _channels(builder, layer)

    def put(
        op: str, read: Sequence[Tensor | None], out: Tensor, given: Mapping[str, object], version: int = 1
    ) -> None:
        place = builder.subgraph.nodes.index(layer.node)
        builder.node(op, read, [out], given, version=version, position=place)

    columns: list[Tensor] = []
    for first in range(0, weights.shape[0], _PART):
        part = weights[first : first + _PART]
        shape = (*layer.result.shape[:-1], len(part))
        total: Tensor | None = None
        for start, source in sources:
            piece = np.ascontiguousarray(part[..., start : start + source.shape[-1]])
            kernel = builder.constant(piece, f"{layer.stored.name}/part{first}.{start}")
            if layer.stored.dtype == "float16":
                real = builder.tensor(f"{kernel.name}/real", kernel.shape, "float32")
                put("DEQUANTIZE", [kernel], real, {}, 3)
                kernel = real
            # The bias counts once.
            own = None if bias is None else bias[first : first + _PART]
            own = own if start == 0 or own is None else np.zeros_like(own)
            shift = None if own is None else builder.constant(own, f"{name}/bias{first}.{start}")
            out = builder.tensor(f"{name}/part{first}.{start}", shape, "float32")
            put(layer.node.op, [source, kernel, shift], out, options, layer.node.version)
            if total is not None:
                added = builder.tensor(f"{name}/sum{first}.{start}", shape, "float32")
                put("ADD", [total, out], added, {"fused_activation_function": "NONE"})
                out = added
            total = out
        assert total is not None
        columns.append(total)
    joined = columns[0]
    if len(columns) > 1:
        joined = builder.tensor(f"{name}/joined", layer.result.shape, "float32")
        axis = {"axis": len(layer.result.shape) - 1, "fused_activation_function": "NONE"}
        put("CONCATENATION", columns, joined, axis)
    if activation in _ACTIVATIONS:
        put(str(activation), [joined], layer.result, {})
    else:
        # The last part put in has what the layer had.
        builder.subgraph.nodes[builder.subgraph.nodes.index(layer.node) - 1].outputs = [layer.result.index]


def _channels(builder: GraphBuilder, layer: _Layer) -> list[tuple[int, Tensor]]:
    """The input of a layer in runs of channels, each with the channel that it starts at."""
    source, step = layer.source, layer.input_part
    if source.shape[-1] <= step:
        return [(0, source)]
    found: list[tuple[int, Tensor]] = []
    for start in range(0, source.shape[-1], step):
        size = (*source.shape[:-1], min(step, source.shape[-1] - start))
        piece = builder.tensor(f"{layer.result.name}/input{start}", size, source.dtype)
        begin = builder.constant(np.array([0] * (len(size) - 1) + [start], np.int32))
        place = builder.subgraph.nodes.index(layer.node)
        wanted = builder.constant(np.array(size, np.int32))
        builder.node("SLICE", [source, begin, wanted], [piece], position=place)
        found.append((start, piece))
    return found


REWRITES: tuple[GraphRewrite, ...] = (
    GraphRewrite("fold-weights", "sparse weights stored dense (DENSIFY folded)", fold_weights),
    GraphRewrite("fold-dequantize", "float16 weights stored as float32 (DEQUANTIZE folded)", fold_dequantize),
    GraphRewrite("keep-batch", "rank-3 arithmetic with a leading batch dimension", keep_batch),
    GraphRewrite("expand-broadcast", "operands repeated to full size before they meet", expand_broadcast),
    GraphRewrite("split-activation", "fused activations as nodes of their own", split_activation),
    GraphRewrite("split-layer", "layers of very many channels computed in parts", split_layer),
    GraphRewrite("part-neighbours", "a RESHAPE between neighbours that are wrong together", part_neighbours),
)
"""All of them, the least invasive first."""


def apply(rewrite: GraphRewrite, model: Model, subgraph: int = 0, nodes: Nodes = None) -> Model | None:
    """Apply a rewrite; None also where the graph does not allow it."""
    try:
        return rewrite.apply(model, subgraph, nodes)
    except GraphError:
        return None
