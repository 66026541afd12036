"""The `.tflite` schema as plain tables: enums, unions and the fields of each table, slot by slot.

`schema.json` is written by `scripts/make_schema.py` from the schema that the runtime ships.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple


class Field(NamedTuple):
    """One slot of a table.

    Attributes:
        name: The field's name in snake case; empty if the schema no longer uses the slot.
        kind: `struct` code of a scalar, `s` string, `:Name` table, `|Name` union; a leading `[` is a vector.
        default: A scalar's value where the file has none; None for everything else.
        enum: Name of the enum of its values, or None.
    """

    name: str
    kind: str
    default: float | int | bool | None
    enum: str | None


_document = json.loads((Path(__file__).parent / "schema.json").read_text())

TABLES: dict[str, tuple[Field, ...]] = {
    name: tuple(Field(*field) for field in fields) for name, fields in _document["tables"].items()
}
UNIONS: dict[str, list[str]] = _document["unions"]
ENUMS: dict[str, dict[str, int]] = _document["enums"]

DTYPES: dict[int, str] = {number: name.lower() for name, number in ENUMS["TensorType"].items()}
"""TensorType -> NumPy-like name: `float32`, `bool`, `string`, `int4`, ..."""

DTYPE_CODES: dict[str, int] = {name: number for number, name in DTYPES.items()}

DTYPE_BITS: dict[str, int] = {
    "float64": 64,
    "float32": 32,
    "float16": 16,
    "bfloat16": 16,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "int64": 64,
    "int32": 32,
    "int16": 16,
    "int8": 8,
    "int4": 4,
    "int2": 2,
    "uint64": 64,
    "uint32": 32,
    "uint16": 16,
    "uint8": 8,
    "uint4": 4,
    "bool": 8,
    "complex64": 64,
    "complex128": 128,
}
"""Bits of one element, for the types that have a fixed size."""

OPS: dict[str, int] = ENUMS["BuiltinOperator"]
"""Builtin op name -> number."""

OP_NAMES: dict[int, str] = {number: name for name, number in OPS.items()}

ENUM_NAMES: dict[str, dict[int, str]] = {
    enum: {number: name for name, number in values.items()} for enum, values in ENUMS.items()
} | {"TensorType": DTYPES}
"""Enum -> number -> name, as option values are shown. Tensor types have their NumPy-like names."""

ENUM_CODES: dict[str, dict[str, int]] = ENUMS | {"TensorType": DTYPE_CODES}
"""Enum -> name -> number: the way back from `ENUM_NAMES`."""


def op_name(number: int) -> str:
    """The name of a builtin op; `BUILTIN_<number>` for one that this schema does not know."""
    return OP_NAMES.get(number, f"BUILTIN_{number}")


def op_number(name: str) -> int | None:
    """The number of a builtin op, the way back from `op_name`; None if there is no such op."""
    if name in OPS:
        return OPS[name]
    prefix, _, digits = name.rpartition("BUILTIN_")
    return int(digits) if not prefix and digits.isdecimal() and digits.isascii() else None


#: Ops whose options table is not named after them.
_OTHER_OPTIONS = {
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "MULTINOMIAL": "RandomOptions",
    "RANDOM_STANDARD_NORMAL": "RandomOptions",
    "RANDOM_UNIFORM": "RandomOptions",
    "REDUCE_ALL": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "SUM": "ReducerOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
}
_OPTIONS_BY_NAME = {
    table.removesuffix("Options").lower(): table
    for union in ("BuiltinOptions2", "BuiltinOptions")
    for table in UNIONS[union]
    if table != "NONE"
}


def options_type(op: str) -> str | None:
    """The name of a builtin op's options table, for example `Conv2DOptions`; None if it has no options."""
    return _OTHER_OPTIONS.get(op) or _OPTIONS_BY_NAME.get(op.replace("_", "").lower())
