"""From a `Model` to the bytes of a `.tflite` file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.graph import associated
from assay.graph.check import check
from assay.graph.encoder import MAX_FLATBUFFER, Encoder, Late, Outside
from assay.graph.errors import GraphError
from assay.graph.flatbuffer import Corrupt
from assay.graph.model import Model, Subgraph
from assay.graph.parts import Buffer, Node, OpCode, Quantization, Signature, Tensor
from assay.graph.schema import DTYPE_CODES, OPS, UNIONS, op_number
from assay.records.files import write_atomic

#: Above this, weights go outside of the flatbuffer; the rest of its 2 GB is for the structure.
_MAX_INSIDE = MAX_FLATBUFFER - (1 << 27)
#: Custom op of models compiled for an NPU; its options hold the place of its code in the file.
_DISPATCH = "DISPATCH_OP"


def write(model: Model) -> bytes:
    """The bytes of a `.tflite` file that holds the model.

    Raises:
        GraphError: The model is not sound, or holds what cannot be rewritten. The message names it.
    """
    return b"".join(pieces(model))


def save(model: Model, path: Path | str) -> None:
    """Write the model to a file, whole or not at all; weights are copied in pieces, not held in memory.

    Raises:
        GraphError: As in `write`.
        OSError: The file cannot be written.
    """
    write_atomic(Path(path), pieces(model))


def pieces(model: Model) -> Iterator[bytes | memoryview]:
    """The bytes of the file, piece by piece, in order.

    Raises:
        GraphError: As in `write`.
    """
    _check(model)
    inside = sum(len(buffer.data) for buffer in model.buffers if not buffer.external)
    codes = list(dict.fromkeys(OpCode(node.op, node.version, node.is_custom) for _, node in model.nodes()))
    numbers = {code: number for number, code in enumerate(codes)}
    root: dict[str, Any] = {
        "version": model.version,
        "operator_codes": [_op_code(code) for code in codes],
        "subgraphs": [_subgraph(subgraph, numbers) for subgraph in model.subgraphs],
        "description": model.description,
        "buffers": [_buffer(buffer, inside > _MAX_INSIDE) for buffer in model.buffers] or [{}],
        "metadata_buffer": model.metadata_buffer or None,
        "metadata": [{"name": entry.name, "buffer": entry.buffer} for entry in model.metadata] or None,
        "signature_defs": [_signature(s) for s in model.signatures if s.key is not None] or None,
        "external_buffer_groups": model.external_buffer_groups or None,
        "external_buffers": model.external_buffers or None,
    }
    return _with_trailing(Encoder().file("Model", root, b"TFL3"), model.trailing)


def _with_trailing(
    file: Iterator[bytes | memoryview], trailing: bytes | memoryview
) -> Iterator[bytes | memoryview]:
    size = 0
    for piece in file:
        size += len(piece)
        yield piece
    if len(trailing):
        yield associated.moved(trailing, size)


def _check(model: Model) -> None:
    name = str(model.path) if model.path else "the model"
    try:
        check(model)
    except Corrupt as error:
        raise GraphError(f"{name} cannot be written: {error}") from None
    for subgraph in model.subgraphs:
        for position, tensor in enumerate(subgraph.tensors):
            if tensor.index != position:
                raise GraphError(f"{name} cannot be written: tensor {position} has the index {tensor.index}")
            if not 0 <= tensor.buffer < max(1, len(model.buffers)):
                raise GraphError(f"{name} cannot be written: tensor {position} has buffer {tensor.buffer}")
    if any(node.is_custom and node.op == _DISPATCH for _, node in model.nodes()):
        raise GraphError(
            f"{name} holds code compiled for an NPU at fixed places in the file, so it cannot be rewritten",
            fix="Edit the model before it is compiled",
        )


def _op_code(code: OpCode) -> dict[str, Any]:
    number = OPS["CUSTOM"] if code.is_custom else op_number(code.op)
    if number is None:
        raise GraphError(f"there is no builtin op {code.op!r}", fix="Set is_custom for a custom op")
    # Readers from before 2020 know only the one-byte field; 127 tells them that the op is newer.
    return {
        "deprecated_builtin_code": min(number, 127),
        "custom_code": code.op if code.is_custom else None,
        "version": code.version,
        "builtin_code": number,
    }


def _buffer(buffer: Buffer, all_outside: bool) -> dict[str, Any]:
    if not len(buffer.data):
        return {}
    if buffer.external or all_outside:
        return {"offset": Outside(buffer.data), "size": len(buffer.data)}
    return {"data": Late(buffer.data)}


def _subgraph(subgraph: Subgraph, numbers: dict[OpCode, int]) -> dict[str, Any]:
    return {
        "tensors": [_tensor(tensor) for tensor in subgraph.tensors],
        "inputs": subgraph.inputs,
        "outputs": subgraph.outputs,
        "operators": [_node(node, numbers) for node in subgraph.nodes],
        "name": subgraph.name,
        "debug_metadata_index": subgraph.debug_metadata_index,
    }


def _tensor(tensor: Tensor) -> dict[str, Any]:
    code = DTYPE_CODES.get(tensor.dtype)
    if code is None:
        prefix, _, digits = tensor.dtype.partition("type_")
        if prefix or not digits.isdecimal():
            raise GraphError(f"tensor {tensor.index} has the unknown type {tensor.dtype!r}")
        code = int(digits)
    return {
        "shape": tensor.shape,
        "type": code,
        "buffer": tensor.buffer,
        "name": tensor.name,
        "quantization": _quantization(tensor.quantization),
        "is_variable": tensor.is_variable,
        "sparsity": tensor.sparsity,
        "shape_signature": tensor.shape_signature,
        "has_rank": tensor.has_rank,
        "variant_tensors": tensor.variant_tensors,
        "external_buffer": tensor.external_buffer,
    }


def _quantization(quantization: Quantization | None) -> dict[str, Any] | None:
    if quantization is None:
        return None
    kind = quantization.details_type
    return {
        "min": quantization.min or None,
        "max": quantization.max or None,
        "scale": quantization.scales or None,
        "zero_point": quantization.zero_points or None,
        "details_type": UNIONS["QuantizationDetails"].index(kind) if kind else 0,
        "details": quantization.details,
        "quantized_dimension": quantization.axis,
    }


def _node(node: Node, numbers: dict[OpCode, int]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "opcode_index": numbers[OpCode(node.op, node.version, node.is_custom)],
        "inputs": node.inputs,
        "outputs": node.outputs,
        "custom_options": node.custom_options or None,
        "mutating_variable_inputs": node.mutating_variable_inputs,
        "intermediates": node.intermediates,
        "debug_metadata_index": node.debug_metadata_index,
    }
    if node.large_custom_options is not None:
        fields["large_custom_options_offset"] = Outside(node.large_custom_options)
        fields["large_custom_options_size"] = len(node.large_custom_options)
    if node.options_type is not None:
        for field, union in (("builtin_options", "BuiltinOptions"), ("builtin_options2", "BuiltinOptions2")):
            if node.options_type in UNIONS[union]:
                fields[f"{field}_type"] = UNIONS[union].index(node.options_type)
                fields[field] = node.options
                return fields
        raise GraphError(f"node {node.index} ({node.op}) has the unknown options {node.options_type!r}")
    if node.options:
        raise GraphError(f"node {node.index} ({node.op}) has options and no options_type")
    return fields


def _signature(signature: Signature) -> dict[str, Any]:
    def maps(entries: list[Any]) -> list[dict[str, Any]]:
        return [{"name": entry.name, "tensor_index": entry.tensor.index} for entry in entries]

    return {
        "inputs": maps(signature.inputs),
        "outputs": maps(signature.outputs),
        "signature_key": signature.key,
        "subgraph_index": signature.subgraph,
    }
