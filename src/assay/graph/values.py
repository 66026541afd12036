"""Values from and to the bytes of a buffer; `Model.data` reads a constant tensor with them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from assay.graph.errors import GraphError
from assay.graph.schema import DTYPE_BITS

_PACKED = {"int4": (4, True), "uint4": (4, False), "int2": (2, True)}


def elements(data: memoryview | bytes, dtype: str, count: int) -> np.ndarray[Any, Any]:
    """The first `count` elements of packed bytes, as a read-only vector (types as in `Model.data`)."""
    if dtype in _PACKED:
        values = _unpack(np.frombuffer(data, np.uint8), *_PACKED[dtype])[:count]
    elif dtype == "bfloat16":
        # The upper half of a float32.
        values = (np.frombuffer(data, "<u2", count).astype("<u4") << 16).view("<f4")
    elif dtype.startswith("float8"):
        values = _float8(np.frombuffer(data, np.uint8, count), dtype)
    else:
        return np.frombuffer(data, np.dtype(dtype).newbyteorder("<"), count)
    values.flags.writeable = False
    return values


def encode(values: np.ndarray[Any, Any], dtype: str) -> bytes:
    """The bytes of a buffer for values of a type: the way back from `Model.data` (not for sparse tensors).

    Raises:
        GraphError: Values of this type cannot be written.
    """
    if dtype == "string":
        texts = [text if isinstance(text, bytes) else str(text).encode() for text in values.ravel().tolist()]
        ends = np.cumsum([0, *map(len, texts)]) + 4 * (len(texts) + 2)
        return struct.pack(f"<i{len(ends)}i", len(texts), *ends) + b"".join(texts)
    if dtype in _PACKED:
        bits = _PACKED[dtype][0]
        per_byte = 8 // bits
        flat = values.ravel().astype(np.int16) & ((1 << bits) - 1)
        flat = np.concatenate([flat, np.zeros(-len(flat) % per_byte, np.int16)]).reshape(-1, per_byte)
        return (flat << (np.arange(per_byte) * bits)).sum(axis=1).astype(np.uint8).tobytes()
    if dtype == "bfloat16":
        wide = np.ascontiguousarray(values, "<f4").view("<u4").astype(np.uint64)
        # To the nearest, halves to even.
        return ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype("<u2").tobytes()
    if dtype not in DTYPE_BITS or dtype.startswith("float8"):
        raise GraphError(f"values of the type {dtype} cannot be written")
    return np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<")).tobytes()


def _unpack(packed: np.ndarray[Any, Any], bits: int, signed: bool) -> np.ndarray[Any, Any]:
    """Elements of fewer than 8 bits, lowest bits first."""
    shifts = np.arange(8 // bits, dtype=np.uint8) * bits
    values = (packed[:, None] >> shifts) & ((1 << bits) - 1)
    if not signed:
        return values.ravel()
    shift = 8 - bits
    return ((values << shift).astype(np.uint8).view(np.int8) >> shift).ravel()


def _float8(codes: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Eight-bit floats as float32 (OCP 8-bit floating point specification, revision 1.0)."""
    mantissa_bits, bias = (3, 7) if dtype == "float8_e4m3fn" else (2, 15)
    code = np.arange(256)
    sign = np.where(code & 0x80, -1.0, 1.0)
    exponent = (code & 0x7F) >> mantissa_bits
    fraction = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    table = sign * np.where(
        exponent > 0, np.exp2(exponent - bias) * (1 + fraction), np.exp2(1.0 - bias) * fraction
    )
    if mantissa_bits == 3:
        table[[0x7F, 0xFF]] = np.nan
    else:
        table[[0x7C, 0xFC]] = np.inf, -np.inf
        table[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    return table.astype(np.float32)[codes]


def strings(data: memoryview | bytes, label: str) -> np.ndarray[Any, Any]:
    """A string tensor: the count, count + 1 offsets from the start, and the bytes."""
    count = struct.unpack_from("<i", data)[0] if len(data) >= 4 else -1
    if count < 0 or 4 * (count + 2) > len(data):
        raise GraphError(f"{label} is not a string tensor")
    offsets = struct.unpack_from(f"<{count + 1}i", data, 4)
    if list(offsets) != sorted(offsets) or offsets[0] < 0 or offsets[-1] > len(data):
        raise GraphError(f"{label} is not a string tensor")
    values = np.empty(count, object)
    for index in range(count):
        values[index] = bytes(data[offsets[index] : offsets[index + 1]])
    values.flags.writeable = False
    return values
