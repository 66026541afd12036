"""A `.tflite` model as plain objects: model, subgraphs, nodes, tensors, signatures. Printable, and mutable.

Indices are those of the file: a node's inputs are positions in its subgraph's tensor list, a tensor's buffer is
a position in the model's buffer list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.graph.schema import DTYPE_BITS

if TYPE_CHECKING:
    import numpy as np

    from assay.graph.outline import Outline


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


@dataclass(slots=True)
class Buffer:
    """Bytes that tensors or metadata refer to. They stay in the file until they are looked at.

    Attributes:
        data: The bytes; read-only where they come from a file.
        external: True if they lie outside of the flatbuffer (`Buffer.offset`), as in files over 2 GB.
    """

    data: memoryview | bytes = b""
    external: bool = False

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"Buffer({len(self.data)} bytes{', external' if self.external else ''})"


@dataclass(slots=True)
class Quantization:
    """How integers stand for real numbers: `real = scale * (integer - zero_point)`.

    Attributes:
        scales: One scale for the tensor, or one for each slice along `axis`.
        zero_points: As many as there are scales.
        axis: The dimension that per-channel scales run along.
        min: Smallest real values seen by the converter, if it kept them.
        max: Largest real values seen by the converter, if it kept them.
        details_type: `CustomQuantization`, `BlockwiseQuantization`, `MultiAxisQuantization`, or None.
        details: The fields of that table.
    """

    scales: Sequence[float] = ()
    zero_points: Sequence[int] = ()
    axis: int = 0
    min: Sequence[float] = field(default=(), repr=False)
    max: Sequence[float] = field(default=(), repr=False)
    details_type: str | None = None
    details: dict[str, Any] | None = None

    @property
    def per_channel(self) -> bool:
        """True if there is more than one scale."""
        return len(self.scales) > 1


@dataclass(slots=True)
class Tensor:
    """A value in a subgraph.

    Attributes:
        index: Its position in the subgraph's tensor list.
        name: Its name; converters put the path of the source module there.
        dtype: NumPy's name where NumPy has the type (`float32`, `int8`, `bool`, ...), else the schema's in lower
            case (`bfloat16`, `int4`, `string`, `resource`, `variant`, ...).
        shape: The shape in the file; dynamic dimensions are 1 there.
        shape_signature: The shape with -1 for dynamic dimensions, or None if the file has none.
        quantization: Scales and zero points, or None for a tensor that is not quantized.
        buffer: Position of its buffer in the model; 0 is the empty one.
        is_constant: True if the file has its values.
        is_variable: True if it keeps its value from one run to the next.
        sparsity: The fields of `SparsityParameters` for a constant that is stored sparse, or None.
        has_rank: False may mean an unknown rank where the shape is empty.
        variant_tensors: What a `variant` tensor holds, as in the file.
        external_buffer: Id of a buffer in another file that holds its values, 0 for none.
    """

    index: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    shape_signature: tuple[int, ...] | None = None
    quantization: Quantization | None = None
    buffer: int = 0
    is_constant: bool = False
    is_variable: bool = False
    sparsity: dict[str, Any] | None = field(default=None, repr=False)
    has_rank: bool = field(default=False, repr=False)
    variant_tensors: list[dict[str, Any]] | None = field(default=None, repr=False)
    external_buffer: int = field(default=0, repr=False)

    @property
    def is_dynamic(self) -> bool:
        """True if a dimension is left open."""
        return self.shape_signature is not None and -1 in self.shape_signature

    @property
    def elements(self) -> int:
        """The number of elements, dynamic dimensions counted as 1."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int | None:
        """Bytes of the dense tensor; None for strings, resources and variants."""
        bits = DTYPE_BITS.get(self.dtype)
        return None if bits is None else (self.elements * bits + 7) // 8

    def __str__(self) -> str:
        shape = self.shape_signature if self.is_dynamic else self.shape
        dims = ",".join("?" if dimension < 0 else str(dimension) for dimension in shape or ())
        return f"%{self.index} {self.name!r} {self.dtype}[{dims}]{' const' if self.is_constant else ''}"


@dataclass(slots=True)
class Node:
    """An op with its inputs and outputs.

    Attributes:
        index: Its position in the subgraph, which is the order of execution.
        op: The builtin op's name (`CONV_2D`), or a custom op's own name.
        version: The op's version.
        inputs: Tensor indices; -1 is an optional input that is absent.
        outputs: Tensor indices.
        options: The op's options by name; enums are names (`SAME`, `RELU6`), tensor types as in `Tensor.dtype`.
        options_type: Name of the options table, for example `Conv2DOptions`; None if the file has none.
        is_custom: True for a custom op.
        custom_options: The bytes that a custom op gets, usually a FlexBuffer.
        large_custom_options: The same for options that lie outside of the flatbuffer; None if there are none.
        mutating_variable_inputs: As in the file.
        intermediates: As in the file: tensor indices of inner values of a fused op.
        debug_metadata_index: As in the file.
    """

    index: int
    op: str
    version: int
    inputs: list[int]
    outputs: list[int]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    options_type: str | None = field(default=None, repr=False)
    is_custom: bool = field(default=False, repr=False)
    custom_options: bytes = field(default=b"", repr=False)
    large_custom_options: bytes | memoryview | None = field(default=None, repr=False)
    mutating_variable_inputs: tuple[bool, ...] | None = field(default=None, repr=False)
    intermediates: list[int] | None = field(default=None, repr=False)
    debug_metadata_index: int = field(default=-1, repr=False)

    def copy(self) -> Node:
        """A node that can be changed without changing this one."""
        return replace(
            self,
            inputs=list(self.inputs),
            outputs=list(self.outputs),
            options=dict(self.options),
            intermediates=None if self.intermediates is None else list(self.intermediates),
        )

    def __str__(self) -> str:
        def names(indices: Sequence[int]) -> str:
            return ", ".join("-" if index < 0 else f"%{index}" for index in indices)

        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{names(self.outputs)} = {self.op}({names(self.inputs)}){' {' + options + '}' if options else ''}"


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


@dataclass(frozen=True, slots=True)
class SignatureTensor:
    """An input or output of a signature: the name that callers use, and the tensor."""

    name: str
    tensor: Tensor


@dataclass(slots=True)
class Signature:
    """A named way to call a subgraph.

    Attributes:
        key: Its name; None for the one that stands in where a model has no signatures.
        subgraph: Index of the subgraph.
        inputs: Names and tensors, in the order of the file.
        outputs: Names and tensors, in the order of the file.
    """

    key: str | None
    subgraph: int
    inputs: list[SignatureTensor]
    outputs: list[SignatureTensor]

    def __str__(self) -> str:
        def tensors(entries: list[SignatureTensor]) -> str:
            return ", ".join(f"{entry.name}: {entry.tensor.dtype}{list(entry.tensor.shape)}" for entry in entries)

        return f"{self.key or '(default)'}({tensors(self.inputs)}) -> ({tensors(self.outputs)})"


@dataclass(frozen=True, slots=True)
class OpCode:
    """An op that the model uses: its name, version, and whether it is a custom op."""

    op: str
    version: int
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class Metadata:
    """A named buffer that the runtime does not need, such as `min_runtime_version`."""

    name: str
    buffer: int


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
        from assay.graph.values import decode

        return decode(self, tensor)

    def constant_bytes(self, tensor: Tensor) -> memoryview | bytes:
        """The raw bytes of a constant tensor, empty if it is none."""
        return self.buffers[tensor.buffer].data if tensor.is_constant else b""

    def outline(self, subgraph: Subgraph) -> Outline:
        """The structure of one of its subgraphs, in arrays.

        Raises:
            Corrupt: The subgraph was built with absurd numbers.
        """
        from assay.graph.outline import Outline

        found = subgraph.outlined() if self.untouched("buffers") else None
        return found or Outline.of(self, subgraph)

    def signature(self, key: str | None = None) -> Signature:
        """The signature with a key; without one, the first.

        Raises:
            GraphError: There is no such signature; the message lists those that there are.
        """
        from assay.graph.errors import GraphError

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
