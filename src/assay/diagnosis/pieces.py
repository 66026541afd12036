"""Parts of a graph as models of their own, fed with the reference's own inner values.

Weights often pass through nodes before they are used (`DEQUANTIZE` of float16, `DENSIFY` of sparse ones). A cut
through such a chain would turn weights into run-time inputs, and lanes treat those differently: the piece would
show another fault, or none. So nodes that depend on constants alone travel with the node that uses them (a
`Unit`), and where one is left out on purpose its result is written into the piece as a constant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.errors import AssayError
from assay.graph import Buffer, Model, Node, Signature, SignatureTensor, Subgraph, Tensor
from assay.lanes.job import UNFEEDABLE, TensorSpec, input_specs, output_specs

Array = np.ndarray[Any, np.dtype[Any]]

_SOURCES = frozenset({"VAR_HANDLE", "READ_VARIABLE", "CALL_ONCE", "HASHTABLE", "RANDOM_UNIFORM"})
"""Ops whose result does not follow from their inputs, whatever these are."""


@dataclass(frozen=True)
class Unit:
    """A node that computes at run time, with the nodes that prepare its constants.

    Attributes:
        node: Index of the node.
        prepared_by: Indices of the constant nodes that it needs, directly or not, ascending.
    """

    node: int
    prepared_by: tuple[int, ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        """All its nodes in execution order."""
        return tuple(sorted({*self.prepared_by, self.node}))


class Anatomy:
    """What is known of a subgraph: who makes what, and what can be cut from what.

    Attributes:
        subgraph: The subgraph.
        constant_nodes: Nodes whose results depend on constants alone.
        units: The run-time nodes in execution order.
    """

    def __init__(self, subgraph: Subgraph) -> None:
        self.subgraph = subgraph
        self.producers = subgraph.producers()
        self.consumers = subgraph.consumers()
        kept = set(subgraph.outputs)
        constant: set[int] = set()
        for node in subgraph.nodes:
            if node.op in _SOURCES or kept.intersection(node.outputs):
                continue
            read = [index for index in node.inputs if index >= 0]
            if read and all(self._is_fixed(index, constant) for index in read):
                constant.add(node.index)
        self.constant_nodes = frozenset(constant)
        self.units = [
            Unit(node.index, self._preparation(node)) for node in subgraph.nodes if node.index not in constant
        ]
        if not self.units:
            self.units = [Unit(node.index, ()) for node in subgraph.nodes]

    def _is_fixed(self, tensor: int, constant: set[int]) -> bool:
        producer = self.producers.get(tensor)
        if producer is None:
            return self.subgraph.tensors[tensor].is_constant
        return producer in constant

    def _preparation(self, node: Node) -> tuple[int, ...]:
        found: set[int] = set()
        stack = list(node.inputs)
        while stack:
            producer = self.producers.get(stack.pop())
            if producer is not None and producer in self.constant_nodes and producer not in found:
                found.add(producer)
                stack.extend(self.subgraph.nodes[producer].inputs)
        return tuple(sorted(found))

    def nodes_of(self, places: Iterable[int]) -> tuple[int, ...]:
        """The nodes of some units, in execution order."""
        return tuple(sorted({node for place in places for node in self.units[place].nodes}))

    def inner_tensors(self) -> list[int]:
        """Every tensor that a node computes and that has numbers, in execution order."""
        return [
            index
            for node in self.subgraph.nodes
            for index in node.outputs
            if index >= 0 and self.subgraph.tensors[index].dtype not in UNFEEDABLE
        ]

    def label(self, node: int) -> str:
        """A node as people name it: its op and its place in the graph."""
        return f"{self.subgraph.nodes[node].op} #{node}"


@dataclass(frozen=True)
class Piece:
    """A part of a graph as a model of its own.

    Attributes:
        model: The model; one subgraph, no signature, tensor names unique.
        nodes: Indices of its nodes in the whole graph, in execution order.
        inputs: Tensor indices in the whole graph of its inputs, in order.
        outputs: Tensor indices in the whole graph of its outputs, in order.
    """

    model: Model
    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def specs(self) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Its inputs and outputs, in order."""
        return specs(self.model)


def specs(model: Model) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Inputs and outputs of a model's first signature, in order, with the shapes in the file."""
    signature = model.signatures[0]
    return input_specs(signature, {}), output_specs(signature)


def carve(
    model: Model,
    anatomy: Anatomy,
    nodes: Iterable[int],
    values: Mapping[int, Array],
    outputs: Sequence[int] | None = None,
) -> Piece:
    """Cut nodes out of a graph.

    What they read and do not compute becomes an input, except where it depends on constants alone: then the
    reference's value is written in as a constant. What others read, or the graph returns, becomes an output,
    again except for prepared constants, unless nothing else would be left to look at.

    Args:
        model: The whole model.
        anatomy: Of the subgraph that is cut.
        nodes: Node indices.
        values: Tensor index -> the reference's value; its shape is the piece's, so nothing stays dynamic.
        outputs: Tensors that the nodes compute, to be the outputs instead.

    Raises:
        AssayError: A needed value is not known, or a tensor cannot be fed (resources, strings).
    """
    graph = anatomy.subgraph
    chosen = [graph.nodes[index] for index in sorted(set(nodes))]
    made = {tensor for node in chosen for tensor in node.outputs}
    read = list(dict.fromkeys(tensor for node in chosen for tensor in node.inputs if tensor >= 0))
    outputs = list(outputs) if outputs is not None else _outputs(anatomy, chosen, made)
    inputs: list[int] = []
    builder = _Builder(model, graph)
    for tensor in read:
        if tensor in made:
            continue
        if graph.tensors[tensor].is_constant:
            builder.keep(tensor)
        elif graph.tensors[tensor].is_variable:
            # State that the graph keeps for itself: it begins as zeros here as there.
            builder.open(tensor, None)
        elif anatomy.producers.get(tensor) in anatomy.constant_nodes:
            builder.fix(tensor, _value(values, graph, tensor))
        else:
            builder.open(tensor, _value(values, graph, tensor))
            inputs.append(tensor)
    for tensor in sorted(made):
        builder.open(tensor, values.get(tensor))
    carved = builder.build(chosen, inputs, outputs)
    return Piece(carved, tuple(node.index for node in chosen), tuple(inputs), tuple(outputs))


def _outputs(anatomy: Anatomy, chosen: Sequence[Node], made: set[int]) -> list[int]:
    own = {node.index for node in chosen}
    returned = set(anatomy.subgraph.outputs)
    ends = [
        (node, tensor)
        for node in chosen
        for tensor in node.outputs
        if tensor in returned
        or not (readers := anatomy.consumers.get(tensor, []))
        or any(reader not in own for reader in readers)
    ]
    computed = [tensor for node, tensor in ends if node.index not in anatomy.constant_nodes]
    return computed or [tensor for _, tensor in ends]


def _value(values: Mapping[int, Array], graph: Subgraph, tensor: int) -> Array:
    entry = graph.tensors[tensor]
    if entry.dtype in UNFEEDABLE:
        raise AssayError(f"tensor {entry.name!r} is a {entry.dtype}: no piece can be cut there")
    if tensor not in values:
        raise AssayError(f"the reference gave no value for tensor {entry.name!r}")
    return values[tensor]


class _Builder:
    """Collects tensors of a piece; their new index is the order in which they came."""

    def __init__(self, model: Model, graph: Subgraph) -> None:
        self._source = model
        self._graph = graph
        self._buffers: list[Buffer] = [Buffer()]
        self._tensors: list[Tensor] = []
        self._index: dict[int, int] = {-1: -1}
        self._names: set[str] = set()

    def keep(self, tensor: int) -> None:
        """A constant of the file, as it is."""
        entry = self._graph.tensors[tensor]
        self._buffers.append(self._source.buffers[entry.buffer])
        self._add(tensor, buffer=len(self._buffers) - 1)

    def fix(self, tensor: int, value: Array) -> None:
        """A computed tensor, turned into a constant."""
        self._buffers.append(Buffer(np.ascontiguousarray(value).tobytes()))
        self._add(
            tensor,
            buffer=len(self._buffers) - 1,
            is_constant=True,
            shape=tuple(value.shape),
            shape_signature=None,
            sparsity=None,
        )

    def open(self, tensor: int, value: Array | None) -> None:
        """A tensor with no value of its own; its shape is that of the value, where one is known."""
        entry = self._graph.tensors[tensor]
        shape = tuple(value.shape) if value is not None else entry.shape
        variable = entry.is_variable
        self._add(tensor, buffer=0, is_constant=False, shape=shape, shape_signature=None, is_variable=variable)

    def _add(self, tensor: int, **changes: Any) -> None:
        if tensor in self._index:
            return
        entry = self._graph.tensors[tensor]
        # Lanes address inputs and outputs by name.
        name = entry.name if entry.name and entry.name not in self._names else f"{entry.name}@{tensor}"
        self._names.add(name)
        self._index[tensor] = len(self._tensors)
        self._tensors.append(dataclasses.replace(entry, index=len(self._tensors), name=name, **changes))

    def build(self, nodes: Sequence[Node], inputs: Sequence[int], outputs: Sequence[int]) -> Model:
        """The model; control-flow nodes bring the other subgraphs with them, at the indices they had."""
        new = [
            dataclasses.replace(
                node,
                index=position,
                inputs=[self._index[tensor] for tensor in node.inputs],
                outputs=[self._index[tensor] for tensor in node.outputs],
                intermediates=None,
                debug_metadata_index=-1,
            )
            for position, node in enumerate(nodes)
        ]
        graph = Subgraph(
            index=0,
            name="main",
            tensors=self._tensors,
            nodes=new,
            inputs=[self._index[tensor] for tensor in inputs],
            outputs=[self._index[tensor] for tensor in outputs],
        )
        signature = Signature(
            key=None,
            subgraph=0,
            inputs=[SignatureTensor(self._tensors[i].name, self._tensors[i]) for i in graph.inputs],
            outputs=[SignatureTensor(self._tensors[i].name, self._tensors[i]) for i in graph.outputs],
        )
        others = self._called(new)
        return Model(subgraphs=[graph, *others], signatures=[signature], buffers=self._buffers)

    def _called(self, nodes: Sequence[Node]) -> list[Subgraph]:
        """The other subgraphs with their constants, if a node calls any."""
        calls = any(name.endswith("subgraph_index") for node in nodes for name in node.options)
        if not calls:
            return []
        if self._graph.index != 0:
            raise AssayError("a node that calls other subgraphs can only be cut out of the first subgraph")
        copies: list[Subgraph] = []
        for graph in self._source.subgraphs[1:]:
            tensors: list[Tensor] = []
            for tensor in graph.tensors:
                buffer = 0
                if tensor.is_constant:
                    self._buffers.append(self._source.buffers[tensor.buffer])
                    buffer = len(self._buffers) - 1
                tensors.append(dataclasses.replace(tensor, buffer=buffer))
            copies.append(dataclasses.replace(graph, tensors=tensors))
        return copies
