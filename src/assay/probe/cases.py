"""Cases: one op with its operands and options, small enough to run thousands of, and the model of each."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from assay.graph.model import Model, Subgraph
from assay.graph.parts import Buffer, Node, Quantization, Tensor
from assay.graph.schema import options_type

Array = np.ndarray[Any, np.dtype[Any]]

#: Value ranges of operands that an op is defined on. `index:N` are whole numbers below N; a `sparse` constant has
#: every other value of its last axis and is stored as such.
DOMAINS = ("real", "positive", "unit", "nonzero", "bool", "sparse")

_WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL")
#: Ops whose int8 kernels want one certain output scale and zero point.
_OUTPUT_SCALES = {
    "LOGISTIC": (1 / 256, -128),
    "SOFTMAX": (1 / 256, -128),
    "TANH": (1 / 128, 0),
    "L2_NORMALIZATION": (1 / 128, 0),
    "LOG_SOFTMAX": (16 / 256, 127),
}
#: Stands for the bytes of a constant without elements until the file is made.
_EMPTY = b"assay: no elements"
#: Number of that table in the schema's union of sparse index vectors.
_INT32_VECTOR = 1
_STATE = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")
ON_CONSTANTS = ("DEQUANTIZE", "DENSIFY")
_BYTES_OF = {"int4": "int8", "uint4": "uint8", "bfloat16": "uint16"}


@dataclass(frozen=True)
class Operand:
    """An input of the op.

    Attributes:
        shape: Its shape.
        dtype: As in `graph.Tensor.dtype`.
        quantization: `""` none, `"t"` one scale for the tensor, `"c"` one for each slice of `axis`.
        axis: The axis of per-channel scales.
        constant: None for a runtime input; `True` for seeded values in the file; a nested list for these values.
        half: The values are stored as a float16 constant behind a DEQUANTIZE, as converters store fp16 weights.
        domain: See `DOMAINS`.
        dynamic: Axes that the file leaves open.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    quantization: str = ""
    axis: int = 0
    constant: Any = None
    half: bool = False
    domain: str = "real"
    absent: bool = False
    dynamic: tuple[int, ...] = ()


@dataclass(frozen=True)
class Result:
    """An output of the op; the runtime's CPU kernel says its shape where None."""

    dtype: str = "float32"
    quantization: str = ""
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Case:
    """One op to try.

    Attributes:
        op: Builtin name, or a custom op's name.
        inputs: Its inputs, in order.
        outputs: Its outputs, in order.
        options: Options by name.
        version: Version of the op.
        custom: Custom options as hex; None for a builtin op.
        repeat: The same input twice.
    """

    op: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Result, ...] = (Result(),)
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    version: int = 1
    custom: str | None = None
    repeat: bool = False

    def to_json(self) -> dict[str, Any]:
        """This case as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Case:
        """The case that `to_json` wrote."""
        inputs: list[Operand] = []
        for item in data["inputs"]:
            fields: dict[str, Any] = {**item, "shape": tuple(item["shape"]), "dynamic": tuple(item["dynamic"])}
            inputs.append(Operand(**fields))
        outputs: list[Result] = []
        for item in data["outputs"]:
            shape = None if item["shape"] is None else tuple(item["shape"])
            outputs.append(Result(item["dtype"], item["quantization"], shape))
        whole: dict[str, Any] = {**data, "inputs": tuple(inputs), "outputs": tuple(outputs)}
        return cls(**whole)

    @property
    def id(self) -> str:
        """A name that says what the case is: equal for equal cases."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def with_shapes(self, shapes: Sequence[tuple[int, ...]]) -> Case:
        """The case with the shapes of its outputs filled in."""
        outputs = tuple(replace(result, shape=shape) for result, shape in zip(self.outputs, shapes, strict=True))
        return replace(self, outputs=outputs)


def storage(dtype: str) -> np.dtype[Any]:
    """NumPy's type for the values of a tensor dtype (int4 by the byte, bfloat16 as its 16 bits)."""
    return np.dtype(_BYTES_OF.get(dtype, dtype))


def values(operand: Operand, rng: np.random.Generator) -> Array:
    """Seeded values of an operand, within its domain."""
    shape, domain = operand.shape, operand.domain
    if domain.startswith("index:"):
        return rng.integers(0, int(domain[6:]), shape).astype(storage(operand.dtype))
    if operand.dtype == "bool" or domain == "bool":
        return (rng.random(shape) < 0.5).astype(storage(operand.dtype))
    if operand.dtype in ("float32", "float16", "float64", "bfloat16"):
        real = rng.uniform(-2, 2, shape)
        if domain == "positive":
            real = rng.uniform(0.1, 3, shape)
        elif domain == "unit":
            real = rng.uniform(-0.9, 0.9, shape)
        elif domain == "nonzero":
            real = np.where(np.abs(real) < 0.25, 0.5, real)
        if operand.dtype == "bfloat16":
            return (real.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return real.astype(operand.dtype)
    if operand.dtype == "complex64":
        return (rng.uniform(-2, 2, shape) + 1j * rng.uniform(-2, 2, shape)).astype(np.complex64)
    low, high = {"int4": (-7, 8), "uint8": (0, 200), "uint16": (0, 200), "uint32": (0, 200)}.get(
        operand.dtype, (-100, 100)
    )
    if not operand.quantization and operand.dtype != "int4":
        low, high = max(low, -9), min(high, 9)
    if domain in ("positive", "nonzero"):
        low = 1
    return rng.integers(low, high, shape).astype(storage(operand.dtype))


def _quantization(kind: str, shape: tuple[int, ...], axis: int, dtype: str) -> Quantization | None:
    if not kind:
        return None
    count = shape[axis] if kind == "c" else 1
    zero = 128 if dtype == "uint8" else 0
    return Quantization(
        scales=[0.02 + 0.001 * index for index in range(count)], zero_points=[zero] * count, axis=axis
    )


def _fit_scales(case: Case, inputs: Sequence[Tensor | None], output: Tensor | None) -> None:
    """Scales as the quantization rules of the op demand them, wide enough that results do not saturate."""
    if output is None or output.quantization is None:
        return
    if case.op in _OUTPUT_SCALES and output.dtype == "int8":
        scale, zero = _OUTPUT_SCALES[case.op]
        output.quantization = Quantization(scales=[scale], zero_points=[zero])
    if case.op not in _WEIGHTED:
        return
    output.quantization = Quantization(
        scales=[0.002 if output.dtype == "int16" else 0.5], zero_points=output.quantization.zero_points
    )
    tensors: list[Tensor | None] = list(inputs[1:] if case.op == "TRANSPOSE_CONV" else inputs)
    if case.op == "TRANSPOSE_CONV" and len(tensors) > 1:
        tensors[0], tensors[1] = tensors[1], tensors[0]
    if len(tensors) < 3 or any(tensor is None or tensor.quantization is None for tensor in tensors[:3]):
        return
    source, weights, bias = (tensor.quantization for tensor in tensors[:3] if tensor is not None)
    assert source is not None and weights is not None and bias is not None
    scales = [source.scales[0] * scale for scale in weights.scales]
    count = len(bias.scales)
    bias.scales = (scales * count)[:count] if len(scales) == 1 else scales[:count]


def build(case: Case, seed: int = 7) -> Model:
    """The one-op model of a case; an op whose weights are halves has their DEQUANTIZE before it.

    Returns:
        A model that `graph.write` turns into a file. Outputs without a shape get one of rank 1.
    """
    if case.op in _STATE:
        return _state(case)
    rng = np.random.default_rng(seed)
    model = Model(description="assay probe", buffers=[Buffer()])
    tensors: list[Tensor] = []
    nodes: list[Node] = []
    runtime: list[int] = []

    def add(name: str, dtype: str, shape: tuple[int, ...], kind: str = "", axis: int = 0) -> Tensor:
        tensor = Tensor(
            index=len(tensors),
            name=name,
            dtype=dtype,
            shape=shape,
            quantization=_quantization(kind, shape, axis, dtype),
            has_rank=True,
        )
        tensors.append(tensor)
        return tensor

    def constant(tensor: Tensor, array: Array) -> None:
        if not array.size:
            tensor.buffer = len(model.buffers)
            model.buffers.append(Buffer(_EMPTY))
            return
        if tensor.dtype == "int4":
            flat = array.reshape(-1).astype(np.int8)
            if flat.size % 2:
                flat = np.append(flat, np.int8(0))
            packed = (flat[0::2] & 0xF) | ((flat[1::2] & 0xF) << 4)
            array = packed.astype(np.uint8)
        tensor.buffer = len(model.buffers)
        tensor.is_constant = True
        model.buffers.append(Buffer(np.ascontiguousarray(array).tobytes()))

    arguments: list[int] = []
    for position, operand in enumerate(case.inputs):
        if operand.absent:
            arguments.append(-1)
            continue
        name = f"input{position}"
        if operand.half:
            stored = add(f"{name}_half", "float16", operand.shape)
            constant(stored, values(operand, rng).astype(np.float16))
            tensor = add(name, "float32", operand.shape)
            nodes.append(Node(len(nodes), "DEQUANTIZE", 3, [stored.index], [tensor.index]))
        else:
            tensor = add(name, operand.dtype, operand.shape, operand.quantization, operand.axis)
            if operand.dynamic:
                tensor.shape_signature = tuple(
                    -1 if axis in operand.dynamic else dim for axis, dim in enumerate(operand.shape)
                )
            if operand.constant is None:
                runtime.append(tensor.index)
            elif operand.domain == "sparse":
                constant(tensor, values(operand, rng)[..., ::2])
                tensor.sparsity = _every_other(operand.shape)
            elif operand.constant is True:
                constant(tensor, values(operand, rng))
            else:
                array = np.asarray(operand.constant, dtype=storage(operand.dtype)).reshape(operand.shape)
                constant(tensor, array)
        arguments.append(tensor.index)
    if case.repeat:
        arguments.append(arguments[0])
    outputs: list[int] = []
    # A few kernels want the output's rank to be right in the file; most ops keep that of their first input.
    guess = (1,) * next((len(operand.shape) for operand in case.inputs if operand.constant is None), 1)
    for position, result in enumerate(case.outputs):
        shape = guess if result.shape is None else result.shape
        outputs.append(add(f"output{position}", result.dtype, shape, result.quantization).index)
    _fit_scales(
        case,
        [tensors[index] if index >= 0 else None for index in arguments],
        tensors[outputs[0]] if outputs else None,
    )
    node = Node(len(nodes), case.op, case.version, arguments, outputs, dict(case.options))
    if case.custom is not None:
        node.is_custom = True
        node.custom_options = bytes.fromhex(case.custom)
    else:
        node.options_type = options_type(case.op) if case.options else None
    nodes.append(node)
    if case.op in ON_CONSTANTS and not runtime:
        # A graph of constants alone is no graph: what the op gives is added to an input.
        found = tensors[outputs[0]]
        if found.dtype != "float32":
            real = add("real", "float32", found.shape)
            nodes.append(Node(len(nodes), "DEQUANTIZE", 3, [found.index], [real.index]))
            found = real
        runtime.append(add("added", "float32", found.shape).index)
        outputs = [add("sum", "float32", found.shape).index]
        nodes.append(Node(len(nodes), "ADD", 1, [runtime[0], found.index], outputs))
    model.subgraphs.append(Subgraph(0, "main", tensors, nodes, runtime, outputs))
    if branches := [index for name, index in case.options.items() if name.endswith("_subgraph_index")]:
        model.subgraphs += [_branch(case, index) for index in sorted(branches)]
    return model


def _state(case: Case) -> Model:
    """A variable that is written and read: none of the three ops makes sense without the others."""
    dtype = case.inputs[0].dtype if case.op == "ASSIGN_VARIABLE" else case.outputs[0].dtype
    kind = "t" if dtype == "int8" else ""
    value = Tensor(1, "input0", dtype, (1, 8), quantization=_quantization(kind, (1, 8), 0, dtype), has_rank=True)
    out = Tensor(2, "output0", dtype, (1, 8), quantization=value.quantization, has_rank=True)
    tensors = [Tensor(0, "handle", "resource", (1,), has_rank=True), value, out]
    names = {"shared_name": "v", "container": ""}
    nodes = [
        Node(0, "VAR_HANDLE", 1, [], [0], names, options_type("VAR_HANDLE")),
        Node(1, "ASSIGN_VARIABLE", 1, [0, 1], []),
        Node(2, "READ_VARIABLE", 1, [0], [2]),
    ]
    model = Model(description="assay probe", buffers=[Buffer()])
    model.subgraphs.append(Subgraph(0, "main", tensors, nodes, [1], [2]))
    return model


def _branch(case: Case, index: int) -> Subgraph:
    """A subgraph that a control-flow op calls: passes its input on, or says no."""
    if case.op == "CALL_ONCE":
        return Subgraph(index, f"init{index}", [], [], [], [])
    shape = case.inputs[-1].shape
    source = Tensor(0, "argument", "float32", shape, has_rank=True)
    if case.op == "WHILE" and index == 1:
        out = Tensor(1, "again", "bool", (1,), has_rank=True)
        zero = Tensor(2, "axis", "int32", (2,), has_rank=True)
        nodes = [Node(0, "LESS", 1, [0, 0], [1], {}, options_type("LESS"))]
        return Subgraph(index, "condition", [source, out, zero], nodes, [0], [1])
    out = Tensor(1, "value", "float32", shape, has_rank=True)
    return Subgraph(index, f"branch{index}", [source, out], [Node(0, "NEG", 1, [0], [1])], [0], [1])


def file_of(case: Case) -> bytes:
    """The file of a case's model."""
    from assay.graph.writer import write

    # A constant without elements is one by a vector of bytes that is there and empty: the mark's length becomes 0.
    return write(build(case)).replace(struct.pack("<I", len(_EMPTY)) + _EMPTY, struct.pack("<I", 0) + _EMPTY)


def _every_other(shape: tuple[int, ...]) -> dict[str, Any]:
    """Sparsity parameters of a tensor that keeps every other value of its last axis."""
    rows = int(np.prod(shape[:-1], dtype=np.int64))
    kept = list(range(0, shape[-1], 2))
    dense = [{"format": "DENSE", "dense_size": dim} for dim in shape[:-1]]
    segments = {"values": [row * len(kept) for row in range(rows + 1)]}
    last = {
        "format": "SPARSE_CSR",
        "dense_size": 0,
        "array_segments_type": _INT32_VECTOR,
        "array_segments": segments,
        "array_indices_type": _INT32_VECTOR,
        "array_indices": {"values": kept * rows},
    }
    return {"traversal_order": list(range(len(shape))), "block_map": None, "dim_metadata": [*dense, last]}


def probed(model: Model, op: str) -> Node:
    """The node that a case's model is about: the last one of its op."""
    return next(node for node in reversed(model.subgraphs[0].nodes) if node.op == op)
