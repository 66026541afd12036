"""Forms that converters write and that the products of the other families do not reach."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from assay.probe.cases import Case, Operand, Result
from assay.probe.grid.common import BATCHES, fixed, shape_of

_TYPES = (("float32", ""), ("int8", "t"), ("int32", ""))
_NO_ACTIVATION = {"fused_activation_function": "NONE"}
_NO_MASKS: dict[str, Any] = {"ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0, "offset": False}


def cases() -> Iterator[Case]:
    """All cases of the family."""
    yield from _last_rows()
    yield from _lower_constants()
    yield from _scalar_axes()
    yield from _constant_parts()
    yield from _computed_shapes()
    yield from _choices()
    yield from _flattened_products()


def _last_rows() -> Iterator[Case]:
    """`x[:, -n:]`, as streaming models keep their state, and `x[:, :-n]`."""
    for rank, batch, (dtype, kind), version in itertools.product((2, 3, 4), BATCHES, _TYPES, (1, 2)):
        shape = shape_of(rank, batch)
        for axis, count in itertools.product(range(1, rank), (1, 3)):
            begin = [-count if position == axis else 0 for position in range(rank)]
            end = [-count if position == axis else 0 for position in range(rank)]
            masks = (1 << rank) - 1
            kept = {"begin_mask": masks & ~(1 << axis), "end_mask": masks}
            dropped = {"begin_mask": masks, "end_mask": masks & ~(1 << axis)}
            for first, last, options in ((begin, [0] * rank, kept), ([0] * rank, end, dropped)):
                bounds = (fixed(first, (rank,)), fixed(last, (rank,)), fixed([1] * rank, (rank,)))
                operand = Operand(shape, dtype, kind)
                out = (Result(dtype, kind),)
                yield Case("STRIDED_SLICE", (operand, *bounds), out, _NO_MASKS | options, version)


def _lower_constants() -> Iterator[Case]:
    """A constant of fewer dimensions, with every way to stretch the ones that it has."""
    for op, rank, batch, dtype in itertools.product(
        ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM"), (3, 4), BATCHES, ("float32", "int32")
    ):
        shape = shape_of(rank, batch)
        options = _NO_ACTIVATION if op in ("ADD", "SUB", "MUL", "DIV") else {}
        for size in range(1, rank):
            for kept in itertools.product((True, False), repeat=size):
                pairs = zip(shape[rank - size :], kept, strict=True)
                small = tuple(dim if keep else 1 for dim, keep in pairs)
                constant = Operand(small, dtype, constant=True, domain="positive")
                out = (Result(dtype),)
                yield Case(op, (Operand(shape, dtype), constant), out, dict(options))
                yield Case(op, (constant, Operand(shape, dtype, domain="positive")), out, dict(options))


def _scalar_axes() -> Iterator[Case]:
    """The one axis that is reduced, as a scalar."""
    for op, rank, batch, keep in itertools.product(
        ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), (2, 3, 4), BATCHES, (True, False)
    ):
        for axis, (dtype, kind) in itertools.product(range(rank), _TYPES):
            source = Operand(shape_of(rank, batch), dtype, kind, domain="unit")
            yield Case(op, (source, fixed([axis], ())), (Result(dtype, kind),), {"keep_dims": keep})


def _constant_parts() -> Iterator[Case]:
    """Joins of constants, and of constants and values."""
    for count, dtype in itertools.product((2, 3, 4), ("int32", "float32", "int64")):
        scalar = Operand((), dtype, constant=[1])
        yield Case("PACK", (scalar,) * count, (Result(dtype),), {"axis": 0, "values_count": count})
        value = Operand((), dtype)
        parts = (value, *(scalar,) * (count - 1))
        yield Case("PACK", parts, (Result(dtype, shape=(count,)),), {"axis": 0, "values_count": count})
    for rank, (dtype, kind) in itertools.product((1, 2, 3, 4), _TYPES):
        shape = shape_of(rank)
        value, constant = Operand(shape, dtype, kind), Operand(shape, dtype, kind, constant=True)
        for axis, parts in itertools.product(
            range(rank), ((constant, value), (value, constant), (constant, constant, value))
        ):
            yield Case("CONCATENATION", parts, (Result(dtype, kind),), {"axis": axis, **_NO_ACTIVATION})
    for rank, (dtype, kind), version in itertools.product((2, 3, 4), _TYPES, (1, 2)):
        shape = (*shape_of(rank)[:-1], 6)
        for axis in range(1, rank):
            sizes = [shape[axis] - 2, 2]
            operands = (Operand(shape, dtype, kind), fixed(sizes, (2,)), fixed([axis], ()))
            yield Case("SPLIT_V", operands, (Result(dtype, kind),) * 2, {"num_splits": 2}, version)


def _computed_shapes() -> Iterator[Case]:
    """A reshape to a size that is computed in the graph: no accelerator can know it."""
    for source, target in (
        ((8,), (2, 4)),
        ((8,), (8, 1, 1)),
        ((1, 8), (2, 4)),
        ((1, 6, 8), (6, 8)),
        ((1, 5, 6, 8), (1, 30, 8)),
    ):
        shape = Operand((len(target),), "int32", domain="positive")
        for dtype in ("float32", "int8", "int32"):
            yield Case("RESHAPE", (Operand(source, dtype), shape), (Result(dtype, shape=target),))
    empty = Operand((0,), "int32", constant=[])
    for rank, dtype in itertools.product((1, 2, 3, 4), ("float32", "bool", "int32")):
        yield Case("RESHAPE", (Operand((1,) * rank, dtype), empty), (Result(dtype),), {"new_shape": []})


def _choices() -> Iterator[Case]:
    """A choice by a mask that is known: of constants, of values, of scalars."""
    for rank, dtype in itertools.product((1, 2, 3, 4), ("float32", "int32")):
        shape = shape_of(rank)
        mask = Operand(shape, "bool", constant=True, domain="bool")
        value, constant = Operand(shape, dtype), Operand(shape, dtype, constant=True)
        scalar = Operand((), dtype, constant=[1])
        row = Operand((1,) * (rank - 1) + shape[-1:], dtype, constant=True)
        for one, other in (
            (value, scalar),
            (scalar, value),
            (value, constant),
            (value, row),
            (scalar, scalar),
            (row, row),
        ):
            yield Case("SELECT_V2", (mask, one, other), (Result(dtype),))


def _flattened_products() -> Iterator[Case]:
    """A fully connected layer on an image, its weights with one scale."""
    for batch, keep, version in itertools.product(BATCHES, (True, False), (1, 4, 5, 9)):
        options = {"keep_num_dims": keep, "weights_format": "DEFAULT", "asymmetric_quantize_inputs": False}
        source = Operand((batch, 2, 3, 8), "int8", "t")
        flat = Operand((batch, 1, 1, 8), "int8", "t")
        for operand, width in ((source, 48), (source, 8), (flat, 8)):
            weights, bias = (
                Operand((4, width), "int8", "t", constant=True),
                Operand((4,), "int32", "t", constant=True),
            )
            yield Case(
                "FULLY_CONNECTED",
                (operand, weights, bias),
                (Result("int8", "t"),),
                options | _NO_ACTIVATION,
                version,
            )
