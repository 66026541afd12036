"""What is in a model: ops, types, ranks, parameters, multiply-accumulates, sizes, signatures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from assay.graph.check import called_subgraphs
from assay.graph.model import Model, Subgraph
from assay.graph.parts import Node, OpCode, Signature, Tensor

_MOST_SCALES = 256
#: What passes this comes from shapes that no runtime allocates.
_MOST_MACS = 1 << 62
#: Constants of these types are shapes, axes and indices unless they are quantized.
_INDEX_TYPES = frozenset({"bool", "int32", "int64", "string", "uint32"})


@dataclass(frozen=True, slots=True)
class OpCount:
    """How often an op occurs, in all subgraphs.

    Attributes:
        op: The op's name.
        version: The op's version.
        is_custom: True for a custom op.
        count: Nodes.
        macs: Multiply-accumulates of all of them; None if that is not known for one of them.
        parameters: Elements of the weights that they read, also through a DEQUANTIZE or DENSIFY of constants.
    """

    op: str
    version: int
    is_custom: bool
    count: int
    macs: int | None
    parameters: int


@dataclass(frozen=True, slots=True)
class SubgraphFacts:
    """One subgraph in numbers.

    Attributes:
        index: Its position.
        name: Its name.
        nodes: Nodes.
        tensors: Tensors.
        macs: Multiply-accumulates of one run; subgraphs that a node runs are counted once for each such node.
            None if unknown.
        unknown_macs: Ops that make it unknown, by name.
        activations_bytes: Most bytes that values between nodes need at one time, if each is kept from the node
            that computes it to the last that reads it: a lower bound for the runtime's arena. None if a type
            or a dimension is open.
        is_dynamic: True if a tensor has an open dimension.
    """

    index: int
    name: str
    nodes: int
    tensors: int
    macs: int | None
    unknown_macs: list[str]
    activations_bytes: int | None
    is_dynamic: bool


@dataclass(frozen=True, slots=True)
class TypeCount:
    """Tensors of one type.

    Attributes:
        tensors: How many.
        bytes: What they need, shared constants counted once; None if the type has no size or a dimension is open.
    """

    tensors: int
    bytes: int | None


@dataclass(slots=True)
class ModelSummary:
    """What `assay inspect` shows of one model.

    Attributes:
        file_bytes: Size of the file.
        description: What the converter wrote.
        schema_version: The schema's version.
        min_runtime_version: What the metadata ask for, or None.
        metadata: Name -> bytes.
        associated_files: Names in the zip after the flatbuffer.
        signatures: All signatures, as they are.
        subgraphs: Each subgraph in numbers.
        ops: The most frequent first.
        constants: Type -> constants.
        activations: Type -> tensors that depend on the inputs.
        ranks: Rank -> tensors that depend on the inputs.
        parameters: Elements of weights: constants of float or quantized types, shared ones counted once, sparse
            ones as the dense tensors that they stand for. Shapes, axes and indices are not among them.
        constant_bytes: Bytes of all constants, shared ones counted once.
        sparse_tensors: Constants that are stored sparse.
        external_bytes: Bytes of constants that lie outside of the flatbuffer.
        unknown: Fields in the file that this tool's schema does not know.
    """

    file_bytes: int
    description: str
    schema_version: int
    min_runtime_version: str | None
    metadata: dict[str, int]
    associated_files: list[str]
    signatures: list[Signature]
    subgraphs: list[SubgraphFacts]
    ops: list[OpCount]
    constants: dict[str, TypeCount]
    activations: dict[str, TypeCount]
    ranks: dict[int, int]
    parameters: int
    constant_bytes: int
    sparse_tensors: int
    external_bytes: int
    unknown: list[str] = field(default_factory=list[str])


def summarize(model: Model) -> ModelSummary:
    """Everything that `assay inspect` shows of a model; weights stay untouched."""
    constants = {
        (tensor.buffer, tensor.external_buffer): tensor
        for subgraph in model.subgraphs
        for tensor in subgraph.tensors
        if tensor.is_constant
    }
    unique = list(constants.values())
    values = [t for subgraph in model.subgraphs for t in _values(subgraph)]
    return ModelSummary(
        file_bytes=model.nbytes or 0,
        description=model.description,
        schema_version=model.version,
        min_runtime_version=_min_runtime_version(model),
        metadata={entry.name: len(model.buffers[entry.buffer].data) for entry in model.metadata},
        associated_files=_associated_files(model),
        signatures=model.signatures,
        subgraphs=[
            _subgraph(subgraph, *macs) for subgraph, macs in zip(model.subgraphs, _macs(model), strict=True)
        ],
        ops=_ops(model),
        constants=_types(unique, lambda tensor: len(model.buffers[tensor.buffer].data)),
        activations=_types(values, lambda tensor: None if tensor.is_dynamic else tensor.nbytes),
        ranks=dict(sorted(Counter(len(tensor.shape) for tensor in values).items())),
        parameters=sum(tensor.elements for tensor in unique if is_weight(tensor)),
        constant_bytes=sum(len(model.buffers[tensor.buffer].data) for tensor in unique),
        sparse_tensors=sum(tensor.sparsity is not None for tensor in unique),
        external_bytes=sum(len(buffer.data) for buffer in model.buffers if buffer.external),
        unknown=list(model.unknown),
    )


def _values(subgraph: Subgraph) -> list[Tensor]:
    """What depends on the inputs: neither constants nor what is computed from them alone."""
    fixed = {tensor for index in subgraph.constant_nodes() for tensor in subgraph.nodes[index].outputs}
    return [tensor for tensor in subgraph.tensors if not tensor.is_constant and tensor.index not in fixed]


def is_weight(tensor: Tensor) -> bool:
    """Whether a tensor is a trained constant, as far as its type shows."""
    if not tensor.is_constant:
        return False
    quantized = tensor.quantization is not None and len(tensor.quantization.scales) > 0
    return quantized or tensor.dtype not in _INDEX_TYPES


def node_macs(node: Node, tensors: list[Tensor]) -> int | None:
    """Multiply-accumulates of one node, dynamic dimensions counted as 1.

    Counted are convolutions, fully connected layers, matrix products and recurrent layers; all other builtin
    ops count 0, as is the custom. The formulas follow the definition of each op: one multiply-accumulate for
    each weight that contributes to each output value.

    Returns:
        The number, or None for custom ops and others whose work the file does not show.
    """

    def shape(index: int) -> tuple[int, ...]:
        return tensors[node.inputs[index]].shape

    out = tensors[node.outputs[0]].elements if node.outputs and node.outputs[0] >= 0 else 0
    op = node.op
    try:
        if node.is_custom:
            # MediaPipe's: input, filter [out, height, width, in], bias.
            is_known = op == "Convolution2DTransposeBias"
            return prod(shape(0)) * prod(shape(1)[:3]) if is_known else None
        if op == "CONV_2D":
            return out * prod(shape(1)[1:])
        if op == "DEPTHWISE_CONV_2D":
            return out * prod(shape(1)[1:3])
        if op == "TRANSPOSE_CONV":
            return prod(shape(2)) * prod(shape(1)[:3])
        if op == "CONV_3D":
            return out * prod(shape(1)[:4])
        if op == "CONV_3D_TRANSPOSE":
            return prod(shape(2)) * prod(shape(1)[:4])
        if op == "FULLY_CONNECTED":
            return out * shape(1)[-1]
        if op == "BATCH_MATMUL":
            return out * shape(0)[-2 if node.options.get("adj_x") else -1]
        if op in _RECURRENT:
            return _recurrent_macs(node, tensors)
    except IndexError:
        # Fewer inputs or dimensions than the op has: the runtime will refuse the node.
        return None
    return None if op in _UNCOUNTED or op.startswith("BUILTIN_") else 0


#: Op -> position of the first and last weight matrix among its inputs.
_RECURRENT = {
    "LSTM": (1, 8),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (1, 8),
    "RNN": (1, 2),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (1, 2),
    "SVDF": (1, 2),
}
_UNCOUNTED = frozenset(
    {
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        "BIDIRECTIONAL_SEQUENCE_RNN",
        "RFFT2D",
        "STABLEHLO_CONVOLUTION",
        "STABLEHLO_CUSTOM_CALL",
        "STABLEHLO_DOT_GENERAL",
    }
)


def _recurrent_macs(node: Node, tensors: list[Tensor]) -> int:
    """Each weight once for each row of the input (batch and time)."""
    first, last = _RECURRENT[node.op]
    weights = sum(tensors[index].elements for index in node.inputs[first : last + 1] if index >= 0)
    return weights * prod(tensors[node.inputs[0]].shape[:-1])


def _macs(model: Model) -> list[tuple[int | None, list[str]]]:
    """For each subgraph its multiply-accumulates, and the ops that make them unknown."""
    calls = [sorted({c for node in s.nodes for c in called_subgraphs(node.options)}) for s in model.subgraphs]
    done: dict[int, tuple[int | None, list[str]]] = {}
    for start in range(len(calls)):
        todo = [start]
        while todo:
            pending = [called for called in calls[todo[-1]] if called not in done]
            if pending:
                todo += pending
            else:
                index = todo.pop()
                done.setdefault(index, _own_macs(model.subgraphs[index], done))
    return [done[index] for index in range(len(calls))]


def _own_macs(subgraph: Subgraph, called: dict[int, tuple[int | None, list[str]]]) -> tuple[int | None, list[str]]:
    total, unknown = 0, set[str]()
    for node in subgraph.nodes:
        parts = [
            node_macs(node, subgraph.tensors),
            *(called[index][0] for index in called_subgraphs(node.options)),
        ]
        known = [part for part in parts if part is not None]
        total += sum(known)
        if len(known) < len(parts):
            unknown.add(node.op)
    return (None if unknown or total > _MOST_MACS else total), sorted(unknown)


def _subgraph(subgraph: Subgraph, macs: int | None, unknown: list[str]) -> SubgraphFacts:
    dynamic = any(tensor.is_dynamic for tensor in subgraph.tensors)
    return SubgraphFacts(
        index=subgraph.index,
        name=subgraph.name,
        nodes=len(subgraph.nodes),
        tensors=len(subgraph.tensors),
        macs=macs,
        unknown_macs=unknown,
        activations_bytes=None if dynamic else _most_alive(subgraph),
        is_dynamic=dynamic,
    )


def _most_alive(subgraph: Subgraph) -> int | None:
    """See `SubgraphFacts.activations_bytes`."""
    # A handle takes no room of its own.
    values = [tensor for tensor in _values(subgraph) if tensor.dtype not in {"resource", "variant"}]
    sizes = {tensor.index: tensor.nbytes for tensor in values}
    last: dict[int, int] = dict.fromkeys(subgraph.outputs, len(subgraph.nodes))
    for node in subgraph.nodes:
        for tensor in node.inputs:
            last[tensor] = max(last.get(tensor, 0), node.index)
    dying: Counter[int] = Counter()
    alive = most = 0
    for step, tensors in [(-1, subgraph.inputs), *((node.index, node.outputs) for node in subgraph.nodes)]:
        for index in tensors:
            size = sizes.get(index, 0)
            if size is None:
                return None
            alive += size
            dying[max(step, last.get(index, step))] += size
        most = max(most, alive)
        alive -= dying[step]
    return most


def _ops(model: Model) -> list[OpCount]:
    counts: Counter[OpCode] = Counter()
    macs: dict[OpCode, int | None] = {}
    parameters: Counter[OpCode] = Counter()
    for subgraph in model.subgraphs:
        weights = _weights(subgraph)
        for node in subgraph.nodes:
            code = OpCode(node.op, node.version, node.is_custom)
            counts[code] += 1
            more, sum_so_far = node_macs(node, subgraph.tensors), macs.get(code, 0)
            macs[code] = None if more is None or sum_so_far is None else sum_so_far + more
            parameters[code] += weights.get(node.index, 0)
    listed = [
        OpCount(code.op, code.version, code.is_custom, count, macs[code], parameters[code])
        for code, count in counts.items()
    ]
    return sorted(listed, key=lambda one: (-one.count, one.op, one.version))


def _weights(subgraph: Subgraph) -> dict[int, int]:
    """Node -> elements of the weights that it reads, directly or through nodes that only prepare constants."""
    elements = {tensor.index: tensor.elements for tensor in subgraph.tensors if is_weight(tensor)}
    preparing = subgraph.constant_nodes()
    read: dict[int, int] = {}
    for node in subgraph.nodes:
        count = sum(elements.get(tensor, 0) for tensor in node.inputs)
        if node.index in preparing:
            elements |= dict.fromkeys(node.outputs, count)
        else:
            read[node.index] = count
    return read


def _types(tensors: list[Tensor], size: Callable[[Tensor], int | None]) -> dict[str, TypeCount]:
    groups: dict[str, list[int | None]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(size(tensor))
    return {
        dtype: TypeCount(len(sizes), None if None in sizes else sum(s for s in sizes if s is not None))
        for dtype, sizes in sorted(groups.items())
    }


def _min_runtime_version(model: Model) -> str | None:
    for entry in model.metadata:
        if entry.name == "min_runtime_version":
            data = bytes(model.buffers[entry.buffer].data[:64])
            return data.split(b"\0")[0].decode("ascii", "backslashreplace") or None
    return None


def _associated_files(model: Model) -> list[str]:
    if not len(model.trailing):
        return []
    from assay.graph.bundle import names_in_zip

    return names_in_zip(memoryview(model.trailing))


def to_json(summary: ModelSummary) -> dict[str, Any]:
    """The summary as plain JSON data."""
    from dataclasses import asdict

    def tensors(entries: Any) -> list[dict[str, Any]]:
        return [
            {
                "dtype": entry.tensor.dtype,
                "name": entry.name,
                "quantization": _quantization(entry.tensor),
                "shape": list(entry.tensor.shape_signature or entry.tensor.shape),
                "tensor": entry.tensor.name,
            }
            for entry in entries
        ]

    document = {
        name: getattr(summary, name)
        for name in ModelSummary.__dataclass_fields__
        if name not in {"activations", "constants", "ops", "ranks", "signatures", "subgraphs"}
    }
    return document | {
        "activations": {dtype: asdict(count) for dtype, count in summary.activations.items()},
        "constants": {dtype: asdict(count) for dtype, count in summary.constants.items()},
        "ops": [asdict(count) for count in summary.ops],
        "ranks": {str(rank): count for rank, count in summary.ranks.items()},
        "signatures": [
            {
                "inputs": tensors(signature.inputs),
                "key": signature.key,
                "outputs": tensors(signature.outputs),
                "subgraph": signature.subgraph,
            }
            for signature in summary.signatures
        ],
        "subgraphs": [asdict(facts) for facts in summary.subgraphs],
    }


def _quantization(tensor: Tensor) -> dict[str, Any] | None:
    quantization = tensor.quantization
    if quantization is None or not len(quantization.scales):
        return None
    # No input or output has hundreds of scales but in a file that is made to fill memory.
    few = len(quantization.scales) <= _MOST_SCALES and len(quantization.zero_points) <= _MOST_SCALES
    return {
        "axis": quantization.axis if quantization.per_channel else None,
        "scales": list(quantization.scales) if few else None,
        "zero_points": list(quantization.zero_points) if few else None,
    }
