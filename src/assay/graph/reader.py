"""From the bytes of a `.tflite` file to a `Model`: mapped into memory, checked once, weights untouched."""

from __future__ import annotations

import gc
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.graph import associated
from assay.graph.check import MAX_RANK, check
from assay.graph.errors import GraphError
from assay.graph.flatbuffer import Corrupt, Decoder
from assay.graph.model import (
    Buffer,
    Metadata,
    Model,
    Node,
    OpCode,
    Quantization,
    Signature,
    SignatureTensor,
    Subgraph,
    Tensor,
)
from assay.graph.schema import DTYPES, ENUMS, UNIONS, op_name

_CUSTOM = ENUMS["BuiltinOperator"]["CUSTOM"]
_NONE: tuple[Any, ...] = ()
#: The tables that a large model has by the thousand.
_ROWS = frozenset({"Buffer", "Operator", "QuantizationParameters", "Tensor"})


def read(source: Path | str | bytes | memoryview, *, path: Path | None = None) -> Model:
    """Read a `.tflite` model.

    The file is mapped, not loaded: a model of any size opens in milliseconds, and weights are read from the
    disk only when asked for. Everything that the file says is checked, in bounded time and memory, so that the
    objects can be walked without further care: indices are in range, shapes are not negative, nodes come after
    those that they depend on, subgraphs do not call themselves.

    Args:
        source: The file, or its bytes.
        path: Where bytes came from, for messages and `Model.path`.

    Raises:
        GraphError: The file cannot be read or is not a sound `.tflite` model. The message names file and cause.

    Example:
        >>> model = read("selfie_segmentation.tflite")
        >>> print(model.subgraphs[0].nodes[0])
        %245 = CONV_2D(%0, %1, %2) {padding=SAME, stride_w=2, ...}
    """
    if isinstance(source, (bytes, memoryview)):
        data, where = memoryview(source).cast("B"), path
    else:
        where = Path(source)
        data = map_file(where)
    name = str(where) if where else "the model"
    if bytes(data[:8]) == b"LITERTLM" or bytes(data[:4]) == b"PK\x03\x04":
        raise GraphError(
            f"{name} is a bundle of models, not one .tflite",
            fix="Read its models with assay.graph.read_all",
        )
    try:
        model = _decode(data)
        model.path = where
        check(model)
        if not model.signatures:
            model.signatures = [default_signature(model.subgraphs[0])]
    except Corrupt as error:
        raise GraphError(
            f"{name} is not a valid .tflite model: {error}", fix="Fetch or convert the file again"
        ) from None
    return model


def map_file(path: Path) -> memoryview:
    """The bytes of a file, mapped into memory.

    Raises:
        GraphError: There is no such file, it cannot be read, or it is empty.
    """
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        raise GraphError(f"{path} does not exist") from None
    except ValueError:
        raise GraphError(f"{path} is empty") from None
    except OSError as error:
        raise GraphError(f"{path} cannot be read: {error.strerror}") from None


def _decode(data: memoryview) -> Model:
    if bytes(data[4:8]) != b"TFL3":
        raise Corrupt("it has no TFL3 mark at byte 4")
    decoder = Decoder(data, rows=_ROWS)
    # Thousands of objects are made and none is given up: the collector would only look at them again and again.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _model(decoder.root("Model"), decoder, data)
    finally:
        if collecting:
            gc.enable()


def _model(root: dict[str, Any], decoder: Decoder, data: memoryview) -> Model:
    buffers, end = _buffers(root["buffers"] or _NONE, data)
    codes = [_op_code(code) for code in root["operator_codes"] or _NONE]
    subgraphs = [
        _subgraph(index, fields, codes, buffers, data, decoder)
        for index, fields in enumerate(root["subgraphs"] or _NONE)
    ]
    return Model(
        description=root["description"] or "",
        version=root["version"],
        subgraphs=subgraphs,
        signatures=_signatures(root["signature_defs"] or _NONE, subgraphs),
        buffers=buffers,
        metadata=_metadata(root, buffers),
        op_codes=codes,
        external_buffer_groups=root["external_buffer_groups"] or [],
        external_buffers=root["external_buffers"] or [],
        metadata_buffer=tuple(root["metadata_buffer"] or _NONE),
        unknown=tuple(sorted(decoder.unknown)),
        trailing=associated.find(data, end),
        nbytes=len(data),
    )


def _buffers(rows: Sequence[Sequence[Any]], data: memoryview) -> tuple[list[Buffer], int]:
    """The buffers, and where in the file the last external one ends."""
    buffers: list[Buffer] = []
    last = 0
    for inside, offset, size, *_ in rows:
        # Offsets 0 and 1 mean that the data is in the flatbuffer.
        if offset > 1:
            end: int = offset + size
            if end > len(data):
                raise Corrupt(f"buffer {len(buffers)} claims bytes {offset:,} to {end:,}, past the end")
            buffers.append(Buffer(data[offset:end], True))
            last = max(last, end)
        else:
            buffers.append(Buffer(b"" if inside is None else inside))
    return buffers, last


def _op_code(fields: dict[str, Any]) -> OpCode:
    # Files from before 2020 have only the old one-byte field; newer ones have both. The larger counts.
    number = max(fields["builtin_code"], fields["deprecated_builtin_code"])
    if number < 0:
        raise Corrupt(f"an op has the number {number}")
    if number == _CUSTOM:
        return OpCode(fields["custom_code"] or "", fields["version"], is_custom=True)
    return OpCode(op_name(number), fields["version"])


def _subgraph(
    index: int,
    fields: dict[str, Any],
    codes: list[OpCode],
    buffers: list[Buffer],
    data: memoryview,
    decoder: Decoder,
) -> Subgraph:
    return Subgraph(
        index=index,
        name=fields["name"] or "",
        tensors=[_tensor(i, row, buffers) for i, row in enumerate(fields["tensors"] or _NONE)],
        nodes=[_node(i, row, codes, data, decoder) for i, row in enumerate(fields["operators"] or _NONE)],
        inputs=_listed(fields["inputs"], decoder),
        outputs=_listed(fields["outputs"], decoder),
        debug_metadata_index=fields["debug_metadata_index"],
    )


def _listed(numbers: Sequence[int] | None, decoder: Decoder) -> list[int]:
    """A vector as a list. Many tables may share one long vector, so that its length counts each time."""
    if not numbers:
        return []
    if not isinstance(numbers, tuple):
        decoder.spend(len(numbers))
    return list(numbers)


def _tensor(index: int, row: Sequence[Any], buffers: list[Buffer]) -> Tensor:
    # The slots of `Tensor`, in the schema's order.
    shape, code, buffer, name, quantization, is_variable, sparsity, signature, has_rank, variants, outer, *_ = row
    if buffer >= len(buffers):
        raise Corrupt(f"tensor {index} has buffer {buffer} of {len(buffers)}")
    for dims in (shape, signature):
        if dims and len(dims) > MAX_RANK:
            raise Corrupt(f"tensor {index} has {len(dims):,} dimensions")
    # By position: these are made by the thousand.
    return Tensor(
        index,
        name or "",
        DTYPES.get(code) or f"type_{code}",
        tuple(shape) if shape else _NONE,
        tuple(signature) if signature else None,
        None if quantization is None else _quantization(quantization),
        buffer,
        len(buffers[buffer].data) > 0 or outer != 0,
        is_variable,
        sparsity,
        has_rank,
        variants,
        outer,
    )


def _quantization(row: Sequence[Any]) -> Quantization | None:
    # The slots of `QuantizationParameters`.
    low, high, scales, zero_points, kind, details, axis, *_ = row
    # Converters write an empty table for tensors that are not quantized.
    if not (scales or zero_points or low or high or details is not None):
        return None
    return Quantization(
        scales=scales or _NONE,
        zero_points=zero_points or _NONE,
        axis=axis,
        min=low or _NONE,
        max=high or _NONE,
        details_type=None if details is None else UNIONS["QuantizationDetails"][kind],
        details=details,
    )


def _node(index: int, row: Sequence[Any], codes: list[OpCode], data: memoryview, decoder: Decoder) -> Node:
    # The slots of `Operator`.
    number, inputs, outputs, kind, options, custom, _, mutating, inner, place, size, kind2, options2, debug, *_ = (
        row
    )
    if number >= len(codes):
        raise Corrupt(f"node {index} has op code {number} of {len(codes)}")
    code = codes[number]
    options_type: str | None = None
    if options2 is not None:
        # No op has both: the second union only holds what was added when the first was full.
        options, options_type = options2, UNIONS["BuiltinOptions2"][kind2]
    elif options is not None:
        options_type = UNIONS["BuiltinOptions"][kind]
    large = None
    if place > 1:
        if place + size > len(data):
            raise Corrupt(f"node {index} claims options at bytes {place:,} to {place + size:,}, past the end")
        large = data[place : place + size]
    # By position: these are made by the thousand.
    return Node(
        index,
        code.op,
        code.version,
        _listed(inputs, decoder),
        _listed(outputs, decoder),
        options or {},
        options_type,
        code.is_custom,
        custom or b"",
        large,
        None if mutating is None else tuple(map(bool, _listed(mutating, decoder))),
        None if inner is None else _listed(inner, decoder),
        debug,
    )


def _metadata(root: dict[str, Any], buffers: list[Buffer]) -> list[Metadata]:
    entries = [Metadata(fields["name"] or "", fields["buffer"]) for fields in root["metadata"] or _NONE]
    for entry in entries:
        if entry.buffer >= len(buffers):
            raise Corrupt(f"metadata {entry.name!r} has buffer {entry.buffer} of {len(buffers)}")
    return entries


def _signatures(definitions: Sequence[dict[str, Any]], subgraphs: list[Subgraph]) -> list[Signature]:
    signatures: list[Signature] = []
    for fields in definitions:
        number = fields["subgraph_index"]
        if number >= len(subgraphs):
            raise Corrupt(f"a signature has subgraph {number} of {len(subgraphs)}")
        tensors = subgraphs[number].tensors
        sides: list[list[SignatureTensor]] = []
        for side in ("inputs", "outputs"):
            entries = fields[side] or _NONE
            for entry in entries:
                if entry["tensor_index"] >= len(tensors):
                    raise Corrupt(f"a signature has tensor {entry['tensor_index']} of {len(tensors)}")
            sides.append(
                [SignatureTensor(entry["name"] or "", tensors[entry["tensor_index"]]) for entry in entries]
            )
        signatures.append(Signature(fields["signature_key"] or "", number, *sides))
    return signatures


def default_signature(subgraph: Subgraph) -> Signature:
    """The signature that stands in where a model has none: inputs and outputs by their tensors' names."""

    def named(indices: list[int]) -> list[SignatureTensor]:
        return [SignatureTensor(subgraph.tensors[i].name, subgraph.tensors[i]) for i in indices]

    return Signature(None, subgraph.index, named(subgraph.inputs), named(subgraph.outputs))
