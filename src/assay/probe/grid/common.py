"""Shapes and operands that the families share."""

from __future__ import annotations

from assay.probe.cases import Operand, Result

RANKS = (0, 1, 2, 3, 4, 5, 6)
DTYPES = ("float32", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "uint32", "bool")
QUANTIZED = ("int8", "uint8", "int16")
BATCHES = (1, 2)
VERSIONS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)

_SHAPES = {0: (), 1: (8,), 2: (1, 8), 3: (1, 6, 8), 4: (1, 5, 6, 8), 5: (1, 2, 5, 6, 8), 6: (1, 2, 2, 3, 4, 8)}
_OTHER_SHAPES = {1: (12,), 2: (1, 20), 3: (1, 7, 12), 4: (1, 9, 4, 5), 5: (1, 3, 2, 4, 6)}


def shape_of(rank: int, batch: int = 1, other: bool = False) -> tuple[int, ...]:
    """A small shape of a rank; `other` gives sizes that are no multiples of four."""
    shape = _OTHER_SHAPES.get(rank, _SHAPES[rank]) if other else _SHAPES[rank]
    return (batch, *shape[1:]) if rank > 1 else shape


def real(shape: tuple[int, ...], dtype: str = "float32", domain: str = "real") -> Operand:
    """A runtime operand."""
    return Operand(shape, dtype, domain=domain)


def fixed(value: object, shape: tuple[int, ...], dtype: str = "int32") -> Operand:
    """A constant operand with these values."""
    return Operand(shape, dtype, constant=value)


def kinds(dtypes: tuple[str, ...] = DTYPES) -> list[tuple[str, str]]:
    """Dtypes with their quantization: plain ones, and the integer ones with a scale as well."""
    return [(dtype, "") for dtype in dtypes] + [(dtype, "t") for dtype in QUANTIZED if dtype in dtypes]


def result(dtype: str = "float32", quantization: str = "") -> Result:
    """An output."""
    return Result(dtype, quantization)
