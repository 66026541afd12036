"""The parts of a model: buffers, tensors, nodes, signatures. Plain data, printable and mutable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from assay.graph.schema import DTYPE_BITS


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
