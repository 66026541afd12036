"""A `.tflite` model as plain objects: the model and its subgraphs, made of `parts`. Printable, and mutable.

Indices are those of the file: a node's inputs are positions in its subgraph's tensor list, a tensor's buffer is
a position in the model's buffer list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.graph.errors import GraphError
from assay.graph.outline import Outline
from assay.graph.parts import Buffer, Metadata, Node, OpCode, Signature, SignatureTensor, Tensor
from assay.graph.schema import DTYPE_BITS
from assay.graph.sparse import densify
from assay.graph.values import elements, strings


class _OnDemand:
    """Attributes that are made when they are first asked for: a model that is only linted needs no objects."""

    _makers: dict[str, Callable[[], Any]]

    def make_later(self, **makers: Callable[[], Any]) -> None:
        """Give up the values of attributes; each is made by its function when it is asked for."""
        for name in makers:
            del self.__dict__[name]
        self._makers = makers

    def untouched(self, *names: str) -> bool:
        """True if none of these attributes was asked for, so that nobody can have changed them."""
        return not any(name in self.__dict__ for name in names)

    def __getattr__(self, name: str) -> Any:
        # Called for what is not there.
        maker = self.__dict__.get("_makers", {}).get(name)
        if maker is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        value = maker()
        setattr(self, name, value)
        return value


@dataclass(repr=False)
class Subgraph(_OnDemand):
    """Nodes in the order of execution, and the tensors that they pass on.

    Attributes:
        index: Its position in the model.
        name: Its name, often empty or `main`.
        tensors: All its tensors.
        nodes: All its nodes.
        inputs: Tensor indices of the graph's inputs, in order.
        outputs: Tensor indices of the graph's outputs, in order.
        debug_metadata_index: As in the file.
    """

    index: int
    name: str
    tensors: list[Tensor]
    nodes: list[Node]
    inputs: list[int]
    outputs: list[int]
    debug_metadata_index: int = -1

    def keep_outline(self, outline: Outline) -> None:
        """Remember an outline that holds as long as nobody asks for tensors or nodes."""
        self.__dict__["_outline"] = outline

    def outlined(self) -> Outline | None:
        """Its outline as it was read from a file; None if it may have been changed since, or was built."""
        outline: Outline | None = self.__dict__.get("_outline")
        if outline is None or not self.untouched("tensors", "nodes"):
            return None
        outline.inputs, outline.outputs = self.inputs, self.outputs
        return outline

    def producers(self) -> dict[int, int]:
        """Tensor index -> index of the node that computes it."""
        return {tensor: node.index for node in self.nodes for tensor in node.outputs if tensor >= 0}

    def consumers(self) -> dict[int, list[int]]:
        """Tensor index -> indices of the nodes that read it, in order."""
        readers: dict[int, list[int]] = {}
        for node in self.nodes:
            for tensor in dict.fromkeys(node.inputs):
                if tensor >= 0:
                    readers.setdefault(tensor, []).append(node.index)
        return readers

    def constant_nodes(self) -> set[int]:
        """Indices of the nodes that compute from constants alone: weights made float32 or dense, mostly."""
        found: set[int] = set()
        fixed = {tensor.index for tensor in self.tensors if tensor.is_constant}
        for node in self.nodes:
            reads = [tensor for tensor in node.inputs if tensor >= 0]
            if reads and fixed.issuperset(reads):
                found.add(node.index)
                fixed.update(node.outputs)
        return found

    def __repr__(self) -> str:
        return (
            f"Subgraph({self.index}, {self.name!r}, {len(self.nodes)} nodes, {len(self.tensors)} tensors, "
            f"inputs={self.inputs}, outputs={self.outputs})"
        )

    def __str__(self) -> str:
        lines = [f"subgraph {self.index} {self.name!r} {{"]
        lines += [f"  input  {self.tensors[index]}" for index in self.inputs]
        lines += [f"  {node.index}: {node}" for node in self.nodes]
        lines += [f"  output {self.tensors[index]}" for index in self.outputs]
        return "\n".join([*lines, "}"])


@dataclass(repr=False)
class Model(_OnDemand):
    """A whole model. See `assay.graph.read`.

    Attributes:
        path: The file that it came from; None for one that was built or read from bytes.
        description: The converter's name, usually.
        version: The schema's version, 3.
        subgraphs: All subgraphs; the first is the main one.
        signatures: At least one if there is a subgraph: a model without signatures has a default one (key None).
        buffers: All buffers. Their bytes stay in the file until they are looked at.
        metadata: Named buffers.
        op_codes: The ops that the file declares, in its order. Writing makes them anew from the nodes.
        external_buffer_groups: As in the file: names of the files that hold external buffers.
        external_buffers: As in the file: where in those files they lie.
        unknown: Fields that the file has and this schema does not know, as `Table.slot`; writing drops them.
        metadata_buffer: As in the file: buffers that very old files name without a name.
        trailing: Bytes after the flatbuffer that no buffer refers to: a zip of associated files such as labels.
        nbytes: Size of the file, or None for a model that was built.
    """

    path: Path | None = None
    description: str = ""
    version: int = 3
    subgraphs: list[Subgraph] = field(default_factory=list[Subgraph])
    signatures: list[Signature] = field(default_factory=list[Signature])
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    metadata: list[Metadata] = field(default_factory=list[Metadata])
    op_codes: list[OpCode] = field(default_factory=list[OpCode])
    external_buffer_groups: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    external_buffers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    metadata_buffer: tuple[int, ...] = ()
    unknown: tuple[str, ...] = ()
    trailing: memoryview | bytes = b""
    nbytes: int | None = None

    def data(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """The values of a constant tensor; nothing else of the file is touched.

        Returns:
            A read-only array of the tensor's shape. Types that NumPy lacks are widened, value for value:
            `bfloat16` to float32, `int4` and `int2` to int8, `uint4` to uint8; `string` is an array of bytes
            objects. A sparse tensor is made dense.

        Raises:
            GraphError: The tensor is not a constant, its values lie in another file, or the buffer's size does
                not fit its shape.
        """
        label = f"tensor {tensor.index} ({tensor.name!r})"
        if not tensor.is_constant:
            raise GraphError(f"{label} is not a constant")
        if tensor.external_buffer:
            raise GraphError(f"{label} has its values in another file, which is not read")
        data = self.buffers[tensor.buffer].data
        if tensor.dtype == "string":
            return strings(data, label).reshape(tensor.shape)
        if tensor.dtype not in DTYPE_BITS:
            raise GraphError(f"{label} has the type {tensor.dtype}, whose values cannot be read")
        if tensor.sparsity is not None:
            return densify(tensor, data)
        if len(data) != tensor.nbytes:
            raise GraphError(f"{label} needs {tensor.nbytes:,} bytes and its buffer has {len(data):,}")
        return elements(data, tensor.dtype, tensor.elements).reshape(tensor.shape)

    def constant_bytes(self, tensor: Tensor) -> memoryview | bytes:
        """The raw bytes of a constant tensor, empty if it is none."""
        return self.buffers[tensor.buffer].data if tensor.is_constant else b""

    def outline(self, subgraph: Subgraph) -> Outline:
        """The structure of one of its subgraphs, in arrays.

        Raises:
            Corrupt: The subgraph was built with absurd numbers.
        """
        found = subgraph.outlined() if self.untouched("buffers") else None
        return found or Outline.of(
            subgraph.tensors, subgraph.nodes, subgraph.inputs, subgraph.outputs, self.constant_bytes
        )

    def signature(self, key: str | None = None) -> Signature:
        """The signature with a key; without one, the first.

        Raises:
            GraphError: There is no such signature; the message lists those that there are.
        """
        for signature in self.signatures:
            if key is None or signature.key == key:
                return signature
        there = ", ".join(repr(signature.key) for signature in self.signatures) or "none"
        raise GraphError(f"no signature {key!r}", fix=f"The model's signatures: {there}")

    def copy(self) -> Model:
        """A model that can be changed without changing this one. The bytes of buffers are shared."""
        subgraphs = [
            replace(
                subgraph,
                tensors=[replace(tensor) for tensor in subgraph.tensors],
                nodes=[node.copy() for node in subgraph.nodes],
                inputs=list(subgraph.inputs),
                outputs=list(subgraph.outputs),
            )
            for subgraph in self.subgraphs
        ]

        def over(entries: list[SignatureTensor], tensors: list[Tensor]) -> list[SignatureTensor]:
            return [SignatureTensor(entry.name, tensors[entry.tensor.index]) for entry in entries]

        signatures = [
            replace(
                signature,
                inputs=over(signature.inputs, subgraphs[signature.subgraph].tensors),
                outputs=over(signature.outputs, subgraphs[signature.subgraph].tensors),
            )
            for signature in self.signatures
        ]
        return replace(
            self,
            subgraphs=subgraphs,
            signatures=signatures,
            buffers=[replace(buffer) for buffer in self.buffers],
            metadata=list(self.metadata),
            op_codes=list(self.op_codes),
        )

    def nodes(self) -> Iterator[tuple[Subgraph, Node]]:
        """Every node of every subgraph."""
        for subgraph in self.subgraphs:
            for node in subgraph.nodes:
                yield subgraph, node

    def __repr__(self) -> str:
        nodes = sum(len(subgraph.nodes) for subgraph in self.subgraphs)
        where = repr(str(self.path)) if self.path else "in memory"
        return f"Model({where}, {len(self.subgraphs)} subgraphs, {nodes} nodes, {len(self.buffers)} buffers)"

    def __str__(self) -> str:
        return "\n".join([repr(self), *map(str, self.signatures), *map(repr, self.subgraphs)])
