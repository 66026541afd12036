"""Ops that fold axes: sums, means, extremes, arg-extremes, cumulative sums, sorts; and reversal."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from assay.probe.cases import Case, Operand, Result
from assay.probe.grid.common import BATCHES, VERSIONS, fixed, kinds, shape_of

_REDUCERS = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
_BOOLEAN = ("REDUCE_ANY", "REDUCE_ALL")


def cases() -> Iterator[Case]:
    """All cases of the family."""
    yield from _reductions()
    yield from _along_an_axis()


def _reductions() -> Iterator[Case]:
    for op, rank in itertools.product((*_REDUCERS, *_BOOLEAN), (1, 2, 3, 4, 5)):
        if op in _BOOLEAN:
            tried = (("bool", ""),)
        else:
            tried = (("float32", ""), ("int32", ""), ("int8", "t"), ("int64", ""))
        for count in range(1, min(rank, 4) + 1):
            for axes, keep, batch, (dtype, kind) in itertools.product(
                itertools.combinations(range(rank), count), (True, False), BATCHES, tried
            ):
                if batch > 1 and rank < 2:
                    continue
                source = Operand(shape_of(rank, batch), dtype, kind, domain="unit")
                yield Case(op, (source, fixed(list(axes), (count,))), (Result(dtype, kind),), {"keep_dims": keep})
        if rank == 4 and op not in _BOOLEAN:
            for (dtype, kind), keep in itertools.product(kinds(), (True, False)):
                yield Case(
                    op,
                    (Operand(shape_of(4), dtype, kind), fixed([1, 2], (2,))),
                    (Result(dtype, kind),),
                    {"keep_dims": keep},
                )
    for op, version, keep in itertools.product((*_REDUCERS, *_BOOLEAN), VERSIONS[1:5], (True, False)):
        dtype = "bool" if op in _BOOLEAN else "float32"
        yield Case(
            op, (Operand(shape_of(4), dtype), fixed([1, 2], (2,))), (Result(dtype),), {"keep_dims": keep}, version
        )
        yield Case(
            op, (Operand(shape_of(3), dtype), fixed([2], (1,))), (Result(dtype),), {"keep_dims": keep}, version
        )
        if op not in _BOOLEAN:
            yield Case(
                op,
                (Operand(shape_of(4), "int8", "t"), fixed([1, 2], (2,))),
                (Result("int8", "t"),),
                {"keep_dims": keep},
                version,
            )
    for op in _REDUCERS:
        # The axes are given as a scalar by some converters, and computed in a few models.
        for rank in (2, 3, 4):
            yield Case(op, (Operand(shape_of(rank)), fixed([rank - 1], ())), options={"keep_dims": True})
            axes = Operand((1,), "int32", domain="index:1")
            yield Case(op, (Operand(shape_of(rank)), axes), (Result(shape=shape_of(rank)),), {"keep_dims": True})


def _along_an_axis() -> Iterator[Case]:
    for rank in (1, 2, 3, 4, 5):
        for axis, batch in itertools.product(range(rank), BATCHES):
            if batch > 1 and rank < 2:
                continue
            shape = shape_of(rank, batch)
            for op, dtype, out in itertools.product(
                ("ARG_MAX", "ARG_MIN"), ("float32", "int8", "int32"), ("int32", "int64")
            ):
                kind = "t" if dtype == "int8" else ""
                yield Case(
                    op, (Operand(shape, dtype, kind), fixed([axis], ())), (Result(out),), {"output_type": out}
                )
                yield Case(
                    op, (Operand(shape, dtype, kind), fixed([axis], (1,))), (Result(out),), {"output_type": out}
                )
            for dtype in ("float32", "int32", "int64"):
                for exclusive, backward in itertools.product((False, True), repeat=2):
                    yield Case(
                        "CUMSUM",
                        (Operand(shape, dtype), fixed([axis], ())),
                        (Result(dtype),),
                        {"exclusive": exclusive, "reverse": backward},
                    )
        for count in range(1, min(rank, 2) + 1):
            for axes, dtype, batch in itertools.product(
                itertools.combinations(range(rank), count), ("float32", "int32", "int8", "bool", "int64"), BATCHES
            ):
                if batch > 1 and rank < 2:
                    continue
                yield Case(
                    "REVERSE_V2",
                    (Operand(shape_of(rank, batch), dtype), fixed(list(axes), (count,))),
                    (Result(dtype),),
                )
    for rank, dtype, k, batch in itertools.product(
        (1, 2, 3, 4), ("float32", "int32", "int8", "int64"), (1, 3), BATCHES
    ):
        if batch > 1 and rank < 2:
            continue
        yield Case(
            "TOPK_V2", (Operand(shape_of(rank, batch), dtype), fixed([k], ())), (Result(dtype), Result("int32"))
        )
        yield Case(
            "TOPK_V2", (Operand(shape_of(rank, batch), dtype), fixed([k], (1,))), (Result(dtype), Result("int32"))
        )
    for version in (2, 3):
        yield Case("TOPK_V2", (Operand(shape_of(2)), fixed([3], ())), (Result(), Result("int32")), version=version)
        yield Case(
            "ARG_MAX",
            (Operand(shape_of(4)), fixed([3], ())),
            (Result("int32"),),
            {"output_type": "int32"},
            version,
        )
    for rank in (1, 2, 3, 4):
        for dtype in ("float32", "bool", "int32"):
            yield Case("WHERE", (Operand(shape_of(rank), dtype),), (Result("int64", shape=(1, rank)),))
    for shape, axis in (
        ((3,), -1),
        ((1,), -1),
        ((), -1),
        ((1, 3), -1),
        ((2, 3), -1),
        ((1, 1, 3), -1),
        ((3,), 0),
        ((3,), 1),
    ):
        for on in ("float32", "int32"):
            ids = Operand(shape, "int32", domain="index:4")
            values = (fixed([1], (), on), fixed([0], (), on))
            yield Case("ONE_HOT", (ids, fixed([5], ()), *values), (Result(on),), {"axis": axis})
            yield Case(
                "ONE_HOT",
                (Operand(shape, "int64", domain="index:4"), fixed([5], ()), *values),
                (Result(on),),
                {"axis": axis},
            )
