"""Parts of a graph as models of their own, and inner tensors as outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from assay.graph.build import GraphBuilder
from assay.graph.check import CALLS, called_subgraphs
from assay.graph.errors import GraphError
from assay.graph.model import Model, Subgraph
from assay.graph.parts import Buffer, Metadata, SignatureTensor, Tensor
from assay.graph.reader import default_signature

#: Values of these types stand for state inside of the runtime, so that they cannot be fed from outside.
_HANDLES = frozenset({"resource", "variant"})
#: Metadata that stays true of a part of a model.
_KEPT_METADATA = frozenset({"min_runtime_version"})


def cut(model: Model, nodes: Iterable[int], subgraph: int = 0, *, with_weights: bool = True) -> Model:
    """A model of some nodes of a subgraph, whatever nodes they are.

    What the nodes read from others becomes an input; what others, or the graph's outputs, read from them
    becomes an output; where nothing does, the values that no chosen node reads. Subgraphs that the nodes run come
    along, and so do the nodes that make resources, which cannot be fed. Names stay (made unique where they are
    not), node order stays, and the bytes of constants are shared with `model`, not copied.

    Args:
        model: The model, which is left as it is.
        nodes: Indices of nodes.
        subgraph: The subgraph that they are of.
        with_weights: Take along nodes that only prepare constants for the chosen ones (DEQUANTIZE of float16
            weights, DENSIFY of sparse ones). Without them those values become inputs.

    Returns:
        A model with one default signature, whose inputs and outputs are in the order of the nodes.

    Raises:
        GraphError: There is no such node or subgraph, no node is given, or the nodes compute no value.
    """
    if not 0 <= subgraph < len(model.subgraphs):
        raise GraphError(f"there is no subgraph {subgraph}; the model has {len(model.subgraphs)}")
    source = model.subgraphs[subgraph]
    asked = set(nodes)
    chosen = _closed(source, asked, with_weights)
    body = [node for node in source.nodes if node.index in chosen]
    # What was only taken along is no result of the part.
    prepared = {tensor for node in body if node.index not in asked for tensor in node.outputs}
    inner = {tensor for node in body for tensor in node.outputs if tensor >= 0}
    outer_reads = {t for node in source.nodes if node.index not in chosen for t in node.inputs}
    wanted = outer_reads | set(source.outputs)
    inner_reads = {tensor for node in body for tensor in node.inputs}
    made = [
        tensor
        for node in body
        for tensor in node.outputs
        if tensor >= 0 and source.tensors[tensor].dtype not in _HANDLES
    ]
    outputs = [tensor for tensor in made if tensor in wanted and tensor not in prepared]
    outputs = outputs or [tensor for tensor in made if tensor not in inner_reads]
    if not outputs:
        raise GraphError("these nodes compute no value that could be an output")
    inputs = dict.fromkeys(
        tensor
        for node in body
        for tensor in node.inputs
        if tensor >= 0 and tensor not in inner and not _is_given(source.tensors[tensor])
    )
    part = Subgraph(0, source.name, [], [], list(inputs), list(dict.fromkeys(outputs)))
    part.nodes = [node.copy() for node in body]
    part.tensors = source.tensors
    return _assemble(model, part)


def tap(model: Model, tensors: Sequence[int], subgraph: int = 0) -> Model:
    """The model with inner tensors as further outputs.

    Each value goes through an added op that keeps it exactly (a multiplication by 1 for float32, a RESHAPE to
    its own shape for all else), so that the output is an end of the graph: a delegate that fuses or overwrites
    the inner tensor still has to hand its value to the added op.

    Args:
        model: The model, which is left as it is.
        tensors: Tensor indices; constants cannot be tapped.
        subgraph: The subgraph that they are of; not one that a node runs.

    Returns:
        A model whose last `len(tensors)` outputs are the taps, in order, in the subgraph and in each of its
        signatures, where their names are `tap_<tensor index>`.

    Raises:
        GraphError: There is no such tensor, it is a constant or holds a handle, or a node runs the subgraph.
    """
    if any(subgraph in called_subgraphs(node.options) for _, node in model.nodes()):
        raise GraphError(f"subgraph {subgraph} is run by a node, so it cannot have more outputs")
    copy = model.copy()
    builder = GraphBuilder(copy, subgraph)
    target = builder.subgraph
    count = len(target.tensors)
    taps: list[Tensor] = []
    for index in tensors:
        if not 0 <= index < count:
            raise GraphError(f"there is no tensor {index}; the subgraph has {count}")
        if target.tensors[index].is_constant or target.tensors[index].dtype in _HANDLES:
            raise GraphError(f"tensor {index} ({target.tensors[index].name!r}) is no value that a run computes")
        taps.append(_same(builder, target.tensors[index], f"tap_{index}"))
    target.outputs += [tensor.index for tensor in taps]
    for signature in copy.signatures:
        if signature.subgraph == subgraph:
            signature.outputs += [SignatureTensor(tensor.name, tensor) for tensor in taps]
    return builder.finish()


def _same(builder: GraphBuilder, tensor: Tensor, name: str) -> Tensor:
    """A new tensor with the same value, computed by an op that every lane has."""
    new = builder.tensor(
        name,
        tensor.shape,
        tensor.dtype,
        shape_signature=tensor.shape_signature,
        quantization=tensor.quantization,
    )
    if tensor.dtype == "float32":
        builder.node("MUL", [tensor, builder.constant(np.ones(1, np.float32), f"{name}/one")], [new])
    elif not tensor.is_dynamic:
        shape = builder.constant(np.array(tensor.shape, np.int32), f"{name}/shape")
        builder.node("RESHAPE", [tensor, shape], [new], {"new_shape": tensor.shape})
    else:
        shape = builder.op("SHAPE", [tensor], (len(tensor.shape),), "int32", {"out_type": "int32"})
        builder.node("RESHAPE", [tensor, shape], [new])
    return new


def _is_given(tensor: Tensor) -> bool:
    """True for what needs no producer: constants, and state that the runtime keeps."""
    return tensor.is_constant or tensor.is_variable


def _closed(subgraph: Subgraph, nodes: set[int], with_weights: bool) -> set[int]:
    """The nodes, and those without which they cannot be had."""
    if not nodes:
        raise GraphError("no node is given")
    if unknown := nodes - set(range(len(subgraph.nodes))):
        raise GraphError(f"there is no node {min(unknown)}; the subgraph has {len(subgraph.nodes)}")
    producers = subgraph.producers()
    chosen, todo = set(nodes), list(nodes)
    constant = subgraph.constant_nodes() if with_weights else set[int]()
    while todo:
        for tensor in subgraph.nodes[todo.pop()].inputs:
            producer = producers.get(tensor)
            needed = tensor >= 0 and (subgraph.tensors[tensor].dtype in _HANDLES or producer in constant)
            if needed and producer is not None and producer not in chosen:
                chosen.add(producer)
                todo.append(producer)
    if any(t >= 0 and subgraph.tensors[t].dtype in _HANDLES for i in chosen for t in subgraph.nodes[i].inputs):
        # State is initialised by CALL_ONCE; without it the runtime refuses to read it.
        chosen |= {node.index for node in subgraph.nodes if node.op == "CALL_ONCE"}
    return chosen


def _assemble(model: Model, main: Subgraph) -> Model:
    """A model of `main` (with tensors of the old numbering), the subgraphs that it runs, and what they use."""
    order = _reached(model, main)
    numbers = {old: new for new, old in enumerate(order, start=1)}
    buffers: dict[int, int] = {0: 0}
    new = Model(
        description=model.description,
        version=model.version,
        external_buffer_groups=model.external_buffer_groups,
        external_buffers=model.external_buffers,
    )
    for position, subgraph in enumerate([main, *(model.subgraphs[old] for old in order)]):
        part = replace(subgraph, index=position, nodes=[node.copy() for node in subgraph.nodes])
        for index, node in enumerate(part.nodes):
            node.index = index
            node.debug_metadata_index = -1
            for option in CALLS.intersection(node.options):
                node.options[option] = _renumbered(node.options[option], numbers)
        part.debug_metadata_index = -1
        _compact(part)
        for tensor in part.tensors:
            tensor.buffer = buffers.setdefault(tensor.buffer, len(buffers))
        new.subgraphs.append(part)
    for entry in model.metadata:
        if entry.name in _KEPT_METADATA:
            new.metadata.append(Metadata(entry.name, buffers.setdefault(entry.buffer, len(buffers))))
    new.buffers = [Buffer() if old == 0 else replace(model.buffers[old]) for old in buffers]
    _name_apart(new.subgraphs[0])
    new.signatures = [default_signature(new.subgraphs[0])]
    return new


def _reached(model: Model, main: Subgraph) -> list[int]:
    """Indices of all subgraphs that `main` runs, however indirectly."""
    order: dict[int, None] = {}
    todo = [main]
    while todo:
        for node in todo.pop().nodes:
            for index in called_subgraphs(node.options):
                if index not in order:
                    order[index] = None
                    todo.append(model.subgraphs[index])
    return list(order)


def _renumbered(value: Any, numbers: dict[int, int]) -> Any:
    if isinstance(value, int):
        return numbers.get(value, value)
    return None if value is None else tuple(numbers.get(index, index) for index in value)


def _compact(subgraph: Subgraph) -> None:
    """Keep only the tensors that are used, with new numbers, in their old order."""
    used = {*subgraph.inputs, *subgraph.outputs}
    for node in subgraph.nodes:
        used.update(node.inputs, node.outputs, node.intermediates or ())
    used.discard(-1)
    kept = sorted(used)
    numbers = {old: new for new, old in enumerate(kept)} | {-1: -1}
    subgraph.tensors = [replace(subgraph.tensors[old], index=new) for new, old in enumerate(kept)]
    subgraph.inputs = [numbers[tensor] for tensor in subgraph.inputs]
    subgraph.outputs = [numbers[tensor] for tensor in subgraph.outputs]
    for node in subgraph.nodes:
        node.inputs = [numbers[tensor] for tensor in node.inputs]
        node.outputs = [numbers[tensor] for tensor in node.outputs]
        if node.intermediates is not None:
            node.intermediates = [numbers[tensor] for tensor in node.intermediates]


def _name_apart(subgraph: Subgraph) -> None:
    """Give inputs and outputs names of their own: callers know them by name."""
    seen: set[str] = set()
    for index in dict.fromkeys([*subgraph.inputs, *subgraph.outputs]):
        tensor = subgraph.tensors[index]
        name = tensor.name or f"t{index}"
        if name in seen:
            name = f"{name}_{index}"
        tensor.name = name
        seen.add(name)
