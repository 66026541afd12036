"""The structure of a subgraph as arrays: what checking and linting look at, without objects by the thousand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.graph.columns import Positions, Ragged
from assay.graph.parts import Node, OpCode, Tensor
from assay.graph.schema import DTYPE_BITS

Flags = NDArray[np.bool_]


@dataclass
class Outline:
    """A subgraph without names and weights. Positions are those of its tensors and nodes.

    Attributes:
        shapes: Each tensor's shape.
        signatures: Each tensor's shape signature, empty where it has none.
        dtypes: Each tensor's type, as in `Tensor.dtype`.
        constant: Whether the file has a tensor's values.
        variable: Whether a tensor keeps its value from one run to the next.
        sparse: Whether a tensor is stored sparse.
        scales: How many quantization scales a tensor has.
        ops: The ops and versions that there are.
        codes: Each node's position in `ops`.
        reads: The tensors that each node reads, -1 for one that is absent.
        writes: The tensors that each node writes.
        intermediates: Inner tensors of fused ops.
        options: The options that there are; not to be changed.
        option_ids: Each node's position in `options`.
        custom: The custom options of the nodes that have some.
        inputs: The graph's inputs.
        outputs: The graph's outputs.
        name: Gives a tensor's name.
        constant_bytes: Gives the bytes of a constant tensor.
    """

    shapes: Ragged
    signatures: Ragged
    dtypes: list[str]
    constant: Flags
    variable: Flags
    sparse: Flags
    scales: Positions
    ops: list[OpCode]
    codes: Positions
    reads: Ragged
    writes: Ragged
    intermediates: Ragged
    options: list[dict[str, Any]]
    option_ids: list[int]
    custom: dict[int, bytes]
    inputs: list[int]
    outputs: list[int]
    name: Callable[[int], str]
    constant_bytes: Callable[[int], memoryview | bytes]

    @classmethod
    def of(
        cls,
        tensors: Sequence[Tensor],
        nodes: Sequence[Node],
        inputs: list[int],
        outputs: list[int],
        constant_bytes: Callable[[Tensor], memoryview | bytes],
    ) -> Outline:
        """The outline of a subgraph that was built or may have been changed since it was read.

        Raises:
            Corrupt: An index or a size in it is absurd.
        """
        ops: dict[OpCode, int] = {}
        options: dict[str, int] = {}
        distinct: list[dict[str, Any]] = []
        option_ids: list[int] = []
        for node in nodes:
            text = str(node.options)
            if text not in options:
                options[text] = len(distinct)
                distinct.append(node.options)
            option_ids.append(options[text])
        codes = [ops.setdefault(OpCode(node.op, node.version, node.is_custom), len(ops)) for node in nodes]
        return cls(
            shapes=Ragged.of([tensor.shape for tensor in tensors]),
            signatures=Ragged.of([tensor.shape_signature or () for tensor in tensors]),
            dtypes=[tensor.dtype for tensor in tensors],
            constant=np.array([tensor.is_constant for tensor in tensors], bool),
            variable=np.array([tensor.is_variable for tensor in tensors], bool),
            sparse=np.array([tensor.sparsity is not None for tensor in tensors], bool),
            scales=np.array(
                [0 if tensor.quantization is None else len(tensor.quantization.scales) for tensor in tensors],
                np.int64,
            ),
            ops=list(ops),
            codes=np.array(codes, np.int64),
            reads=Ragged.of([node.inputs for node in nodes]),
            writes=Ragged.of([node.outputs for node in nodes]),
            intermediates=Ragged.of([node.intermediates or () for node in nodes]),
            options=distinct,
            option_ids=option_ids,
            custom={node.index: bytes(node.custom_options) for node in nodes if node.custom_options},
            inputs=inputs,
            outputs=outputs,
            name=lambda index: tensors[index].name,
            constant_bytes=lambda index: constant_bytes(tensors[index]),
        )

    @cached_property
    def shape(self) -> list[tuple[int, ...]]:
        """Each tensor's shape."""
        return self.shapes.tuples()

    @cached_property
    def op(self) -> list[str]:
        """Each node's op."""
        names = [code.op for code in self.ops]
        return [names[code] for code in self.codes.tolist()]

    @cached_property
    def read(self) -> list[tuple[int, ...]]:
        """What each node reads."""
        return self.reads.tuples()

    @cached_property
    def written(self) -> list[tuple[int, ...]]:
        """What each node writes."""
        return self.writes.tuples()

    @cached_property
    def is_constant(self) -> list[bool]:
        """Whether the file has each tensor's values."""
        return self.constant.tolist()

    def nodes_of(self, *ops: str) -> list[int]:
        """The nodes of some ops, in order."""
        found = np.zeros(len(self.codes), bool)
        for position, code in enumerate(self.ops):
            if code.op in ops:
                found |= self.codes == position
        return np.flatnonzero(found).tolist()

    def nbytes(self, tensor: int) -> int:
        """Bytes of a dense tensor; 0 for strings, resources and variants."""
        return (prod(self.shape[tensor]) * DTYPE_BITS.get(self.dtypes[tensor], 0) + 7) // 8

    def producers(self) -> dict[int, int]:
        """Tensor -> the node that computes it."""
        pairs = zip(self.writes.flat.tolist(), self.writes.owners().tolist(), strict=True)
        return {tensor: node for tensor, node in pairs if tensor >= 0}
