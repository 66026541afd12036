"""Ops that move values: reshape, transpose, concatenate, slice, pad, gather and their kin."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from assay.probe.cases import Case, Operand, Result
from assay.probe.grid.common import BATCHES, VERSIONS, fixed, kinds, shape_of

#: Types that layout ops are tried with everywhere; all of `kinds()` are tried on each op's plain form.
_COMMON = (("float32", ""), ("int32", ""), ("int8", "t"), ("bool", ""), ("int64", ""))


def cases() -> Iterator[Case]:
    """All cases of the family."""
    yield from _reshapes()
    yield from _transposes()
    yield from _joins()
    yield from _splits()
    yield from _slices()
    yield from _strided()
    yield from _pads()
    yield from _repeats()
    yield from _gathers()
    yield from _blocks()
    yield from _resizes()


def _reshapes() -> Iterator[Case]:
    shapes = [
        (),
        (24,),
        (1, 24),
        (4, 6),
        (1, 4, 6),
        (2, 3, 4),
        (4, 6, 1),
        (1, 2, 3, 4),
        (2, 3, 2, 2),
        (3, 1, 2, 4),
        (1, 2, 2, 3, 2),
        (2, 1, 2, 3, 2),
        (1, 2, 1, 2, 3, 2),
        (2, 1, 1, 2, 3, 2),
        (1, 1, 2, 1, 2, 3, 2),
        (24, 1, 1, 1),
        (1, 1, 1, 24),
        (1, 1, 24),
    ]
    for source, target in itertools.product(shapes, shapes):
        if (source == ()) != (target == ()):
            continue
        for dtype, quantization in _COMMON:
            yield _reshape(source, target, dtype, quantization)
    for rank, target in itertools.product((0, 1, 2, 3, 4), ((1,), (1, 1), (1, 1, 1), (1, 1, 1, 1), ())):
        yield _reshape((1,) * rank, target, "float32", "")
    for dtype, quantization in kinds():
        for source, target in (
            ((1, 2, 3, 4), (1, 24)),
            ((1, 24), (1, 2, 3, 4)),
            ((2, 3, 4), (1, 2, 3, 4)),
            ((4, 6), (24,)),
        ):
            yield _reshape(source, target, dtype, quantization)
    for source, target in itertools.product(shapes[1:12], shapes[1:12]):
        # Older converters leave the shape in the options.
        yield Case("RESHAPE", (Operand(source),), (Result(shape=target),), {"new_shape": list(target)})
    for source, target in (
        ((1, 2, 3, 4), (1, 24)),
        ((1, 24), (1, 2, 3, 4)),
        ((2, 3, 4), (1, 6, 4)),
        ((24,), (1, 24)),
    ):
        # A shape that is computed at run time leaves the output's size open.
        wanted = Operand((len(target),), "int32", domain="positive")
        yield Case("RESHAPE", (Operand(source), wanted), (Result(shape=target),))
        for version in VERSIONS[1:4]:
            yield Case("RESHAPE", (Operand(source), fixed(list(target), (len(target),))), version=version)
    for shape in ((1, 5, 6, 8), (1, 1, 6, 8), (1, 1, 1, 8), (1, 6, 8), (1, 8), (2, 1, 6, 8), (1, 1, 2, 3, 4)):
        ones = [axis for axis, dim in enumerate(shape) if dim == 1]
        for count in range(len(ones) + 1):
            for axes in itertools.combinations(ones, count):
                for dtype, quantization in (("float32", ""), ("int8", "t"), ("int32", "")):
                    yield Case(
                        "SQUEEZE",
                        (Operand(shape, dtype, quantization),),
                        (Result(dtype, quantization),),
                        {"squeeze_dims": list(axes)},
                    )
    for rank in (0, 1, 2, 3, 4):
        for axis, dtype, batch in itertools.product(
            range(rank + 1), ("float32", "int8", "int32", "bool", "int64"), BATCHES
        ):
            if batch > 1 and rank < 2:
                continue
            quantization = "t" if dtype == "int8" else ""
            yield Case(
                "EXPAND_DIMS",
                (Operand(shape_of(rank, batch), dtype, quantization), fixed([axis], ())),
                (Result(dtype, quantization),),
            )


def _reshape(source: tuple[int, ...], target: tuple[int, ...], dtype: str, quantization: str) -> Case:
    return Case(
        "RESHAPE",
        (Operand(source, dtype, quantization), fixed(list(target), (len(target),))),
        (Result(dtype, quantization),),
        {"new_shape": list(target)},
    )


def _transposes() -> Iterator[Case]:
    for rank in (1, 2, 3, 4, 5):
        orders = list(itertools.permutations(range(rank)))
        for order, batch, (dtype, quantization) in itertools.product(
            orders if rank < 5 else orders[::17], BATCHES, _COMMON if rank < 5 else _COMMON[:1]
        ):
            if batch > 1 and rank < 2:
                continue
            yield Case(
                "TRANSPOSE",
                (Operand(shape_of(rank, batch), dtype, quantization), fixed(list(order), (rank,))),
                (Result(dtype, quantization),),
            )
    yield Case("TRANSPOSE", (Operand((1, 2, 2, 3, 4, 5)), fixed([0, 2, 1, 3, 5, 4], (6,))))
    for dtype, quantization in kinds():
        yield Case(
            "TRANSPOSE",
            (Operand(shape_of(4), dtype, quantization), fixed([0, 3, 1, 2], (4,))),
            (Result(dtype, quantization),),
        )
    for version in VERSIONS[1:10]:
        yield Case("TRANSPOSE", (Operand(shape_of(4)), fixed([0, 3, 1, 2], (4,))), version=version)
        yield Case("TRANSPOSE", (Operand(shape_of(3)), fixed([0, 2, 1], (3,))), version=version)
    yield Case("TRANSPOSE", (Operand((5, 6)), Operand((2,), "int32", domain="index:2")), (Result(shape=(5, 6)),))


def _joins() -> Iterator[Case]:
    for rank in (1, 2, 3, 4, 5):
        for axis, count, batch, (dtype, quantization) in itertools.product(
            range(rank), (1, 2, 3, 4, 7, 12, 20), BATCHES, _COMMON
        ):
            if (batch > 1 and rank < 2) or (count > 4 and dtype != "float32"):
                continue
            operand = Operand(shape_of(rank, batch), dtype, quantization)
            options = {"axis": axis}
            yield Case("CONCATENATION", (operand,) * count, (Result(dtype, quantization),), options)
            if count in (2, 3):
                longer = list(operand.shape)
                longer[axis] += 3
                other = Operand(tuple(longer), dtype, quantization)
                yield Case(
                    "CONCATENATION", (*(operand,) * (count - 1), other), (Result(dtype, quantization),), options
                )
                constant = Operand(operand.shape, dtype, quantization, constant=True)
                yield Case(
                    "CONCATENATION", (*(operand,) * (count - 1), constant), (Result(dtype, quantization),), options
                )
                yield Case(
                    "CONCATENATION", (constant, *(operand,) * (count - 1)), (Result(dtype, quantization),), options
                )
                if dtype == "float32":
                    half = Operand(operand.shape, half=True)
                    yield Case("CONCATENATION", (half, *(operand,) * (count - 1)), options=options)
    for dtype, quantization in kinds():
        for rank in (2, 4):
            operand = Operand(shape_of(rank), dtype, quantization)
            yield Case("CONCATENATION", (operand, operand), (Result(dtype, quantization),), {"axis": rank - 1})
    for activation, rank in itertools.product(("RELU", "RELU6"), (2, 4)):
        yield Case(
            "CONCATENATION",
            (Operand(shape_of(rank)),) * 2,
            options={"axis": rank - 1, "fused_activation_function": activation},
        )
    for version in VERSIONS[1:6]:
        yield Case("CONCATENATION", (Operand(shape_of(4)),) * 2, options={"axis": 3}, version=version)
        yield Case(
            "CONCATENATION", (Operand(shape_of(4), "int8", "t"),) * 2, (Result("int8", "t"),), {"axis": 3}, version
        )
    for rank in (0, 1, 2, 3, 4):
        for axis, count, batch, (dtype, quantization) in itertools.product(
            range(rank + 1), (1, 2, 3, 7), BATCHES, _COMMON
        ):
            if batch > 1 and rank < 2:
                continue
            operand = Operand(shape_of(rank, batch), dtype, quantization)
            options = {"axis": axis, "values_count": count}
            yield Case("PACK", (operand,) * count, (Result(dtype, quantization),), options)
            if count == 2:
                constant = Operand(operand.shape, dtype, quantization, constant=True)
                yield Case("PACK", (operand, constant), (Result(dtype, quantization),), options)
                yield Case("PACK", (constant, operand), (Result(dtype, quantization),), options)


def _splits() -> Iterator[Case]:
    for rank in (1, 2, 3, 4, 5):
        for axis, count, batch, (dtype, quantization) in itertools.product(
            range(rank), (1, 2, 3, 4, 6), BATCHES, _COMMON[:4]
        ):
            if batch > 1 and rank < 2:
                continue
            shape = tuple(dim if index != axis else count * 2 for index, dim in enumerate(shape_of(rank, batch)))
            if axis == 0 and rank > 1:
                shape = (count * batch, *shape[1:])
            operand, out = Operand(shape, dtype, quantization), (Result(dtype, quantization),) * count
            yield Case("SPLIT", (fixed([axis], ()), operand), out, {"num_splits": count})
            sizes = [shape[axis] // count] * count
            if count > 1 and shape[axis] // count > 1:
                sizes = [1, shape[axis] // count * 2 - 1, *sizes[2:]]
            yield Case("SPLIT_V", (operand, fixed(sizes, (count,)), fixed([axis], ())), out, {"num_splits": count})
            if rank > 1:
                small = tuple(dim if index != axis else count for index, dim in enumerate(shape_of(rank, batch)))
                yield Case("UNPACK", (Operand(small, dtype, quantization),), out, {"num": count, "axis": axis})
    for version in VERSIONS[1:5]:
        yield Case(
            "SPLIT", (fixed([3], ()), Operand(shape_of(4))), (Result(), Result()), {"num_splits": 2}, version
        )
        yield Case(
            "SPLIT_V",
            (Operand(shape_of(4)), fixed([3, 5], (2,)), fixed([3], ())),
            (Result(), Result()),
            {"num_splits": 2},
            version,
        )
        yield Case("UNPACK", (Operand((1, 5, 6, 2)),), (Result(), Result()), {"num": 2, "axis": 3}, version)


def _slices() -> Iterator[Case]:
    for rank in (1, 2, 3, 4, 5):
        full = tuple(4 + index for index in range(rank))
        for count in range(min(rank, 4) + 1):
            for axes, to_end, (dtype, quantization) in itertools.product(
                itertools.combinations(range(rank), count), (False, True), _COMMON
            ):
                begin = [1 if axis in axes else 0 for axis in range(rank)]
                size = [dim - 2 * start for dim, start in zip(full, begin, strict=True)]
                if to_end:
                    size = [-1] * rank
                for batch in (full[0], 1):
                    if batch == 1 and (rank < 2 or 0 in axes):
                        continue
                    shape = (batch, *full[1:])
                    sizes = size if to_end or batch != 1 else [1, *size[1:]]
                    # This kernel wants the output's shape to be right in the file.
                    out = tuple(
                        dim - start if to_end else length
                        for dim, start, length in zip(shape, begin, sizes, strict=True)
                    )
                    yield Case(
                        "SLICE",
                        (Operand(shape, dtype, quantization), fixed(begin, (rank,)), fixed(sizes, (rank,))),
                        (Result(dtype, quantization, out),),
                    )
    for dtype, quantization in kinds():
        yield Case(
            "SLICE",
            (Operand((1, 5, 6, 8), dtype, quantization), fixed([0, 0, 0, 2], (4,)), fixed([1, 5, 6, 4], (4,))),
            (Result(dtype, quantization),),
        )
    for version in VERSIONS[1:8]:
        yield Case(
            "SLICE", (Operand((1, 5, 6, 8)), fixed([0, 0, 0, 2], (4,)), fixed([1, 5, 6, 4], (4,))), version=version
        )
    for rank in (2, 3, 4):
        shape = shape_of(rank)
        begin = Operand((rank,), "int32", domain="index:1")
        yield Case("SLICE", (Operand(shape), begin, fixed(list(shape), (rank,))), (Result(shape=shape),))
        yield Case("SLICE", (Operand(shape), begin, begin), (Result(shape=shape),))
        yield Case(
            "SLICE", (Operand(shape), fixed([0] * rank, (rank,), "int64"), fixed(list(shape), (rank,), "int64"))
        )


def _strided() -> Iterator[Case]:
    def case(
        shape: tuple[int, ...],
        begin: list[int],
        end: list[int],
        strides: list[int],
        dtype: str = "float32",
        kind: str = "",
        version: int = 1,
        **masks: int,
    ) -> Case:
        size = (len(begin),)
        return Case(
            "STRIDED_SLICE",
            (Operand(shape, dtype, kind), fixed(begin, size), fixed(end, size), fixed(strides, size)),
            (Result(dtype, kind),),
            dict(masks),
            version,
        )

    for rank in (1, 2, 3, 4, 5):
        for first, (dtype, kind) in itertools.product((1, 4), _COMMON[:1] if rank in (1, 5) else _COMMON[:2]):
            shape = (first if rank > 1 else 6, 5, 6, 8, 4)[:rank]
            whole = (1 << rank) - 1
            zeros, ones = [0] * rank, [1] * rank
            ends: list[int] = list(shape)
            for count in range(min(rank, 3) + 1):
                for axes in itertools.combinations(range(rank), count):
                    if shape[0] == 1 and 0 in axes:
                        continue
                    begin = [1 if axis in axes else 0 for axis in range(rank)]
                    end = [dim - 1 if axis in axes else dim for axis, dim in enumerate(shape)]
                    open_axes = sum(1 << axis for axis in range(rank) if axis not in axes)
                    yield case(shape, begin, end, ones, dtype, kind)
                    yield case(
                        shape,
                        begin,
                        [0 if axis not in axes else e for axis, e in enumerate(end)],
                        ones,
                        dtype,
                        kind,
                        begin_mask=open_axes,
                        end_mask=open_axes,
                    )
                    if axes:
                        yield case(
                            shape,
                            begin,
                            [e if axis not in axes else -1 for axis, e in enumerate(end)],
                            ones,
                            dtype,
                            kind,
                        )
                        yield case(
                            shape, begin, [0] * rank, ones, dtype, kind, begin_mask=open_axes, end_mask=whole
                        )
                        yield case(
                            shape,
                            zeros,
                            [0 if axis not in axes else -1 for axis in range(rank)],
                            ones,
                            dtype,
                            kind,
                            begin_mask=whole,
                            end_mask=open_axes,
                        )
                        yield case(
                            shape,
                            zeros,
                            [0 if axis not in axes else 2 for axis in range(rank)],
                            ones,
                            dtype,
                            kind,
                            begin_mask=whole,
                            end_mask=open_axes,
                        )
                        yield case(shape, begin, [dim + 9 for dim in shape], ones, dtype, kind)
                        yield case(shape, begin, [2**31 - 1] * rank, ones, dtype, kind)
                        negative = [-2 if axis in axes else 0 for axis in range(rank)]
                        yield case(shape, negative, ends, ones, dtype, kind)
                        for step in (2, -1):
                            strides = [step if axis in axes else 1 for axis in range(rank)]
                            yield case(shape, zeros, ends, strides, dtype, kind, begin_mask=whole, end_mask=whole)
                            if step == 2:
                                yield case(shape, zeros, ends, strides, dtype, kind)
                                yield case(shape, begin, ends, strides, dtype, kind)
            for axis in range(rank):
                begin = [1 if index == axis and shape[index] > 1 else 0 for index in range(rank)]
                end = [begin[index] + 1 if index == axis else dim for index, dim in enumerate(shape)]
                others = whole & ~(1 << axis)
                yield case(shape, begin, end, ones, dtype, kind, shrink_axis_mask=1 << axis)
                yield case(
                    shape,
                    begin,
                    [0 if index != axis else e for index, e in enumerate(end)],
                    ones,
                    dtype,
                    kind,
                    begin_mask=others,
                    end_mask=others,
                    shrink_axis_mask=1 << axis,
                )
                yield case(
                    shape,
                    zeros,
                    ends,
                    ones,
                    dtype,
                    kind,
                    begin_mask=others,
                    end_mask=others,
                    new_axis_mask=1 << axis,
                )
            yield case(shape, [0], [0], [1], dtype, kind, ellipsis_mask=1)
            if rank > 1:
                yield case(shape, [0, 1], [0, 3], [1, 1], dtype, kind, ellipsis_mask=1)
                tail = rank - 1
                yield case(shape, [0] * tail, list(shape[:tail]), [1] * tail, dtype, kind)
                yield case(shape, [0] * (tail - 1) + [1], [*shape[: tail - 1], 2], [1] * tail, dtype, kind)
    for version in VERSIONS[1:9]:
        yield case((1, 5, 6, 8), [0, 0, 0, 2], [1, 5, 6, 6], [1, 1, 1, 1], version=version)
    for dtype, kind in kinds():
        yield case((1, 5, 6, 8), [0, 0, 0, 2], [1, 5, 6, 6], [1, 1, 1, 1], dtype, kind)


def _pads() -> Iterator[Case]:
    for op, rank in itertools.product(("PAD", "PADV2", "MIRROR_PAD"), (1, 2, 3, 4, 5)):
        extra = (fixed([0.5], (), "float32"),) if op == "PADV2" else ()
        for count, (dtype, kind) in itertools.product(range(min(rank, 4) + 1), _COMMON):
            for axes, batch in itertools.product(itertools.combinations(range(rank), count), BATCHES):
                if (batch > 1 and rank < 2) or (op == "MIRROR_PAD" and batch == 1 and 0 in axes and rank > 1):
                    continue
                pads = [[1, 2] if axis in axes else [0, 0] for axis in range(rank)]
                if op == "MIRROR_PAD":
                    pads = [[1, 1] if axis in axes else [0, 0] for axis in range(rank)]
                more = (Operand((), dtype, kind, constant=[1]),) if op == "PADV2" else ()
                for mode in ("REFLECT", "SYMMETRIC") if op == "MIRROR_PAD" else ("",):
                    options = {"mode": mode} if mode else {}
                    yield Case(
                        op,
                        (Operand(shape_of(rank, batch), dtype, kind), fixed(pads, (rank, 2)), *more),
                        (Result(dtype, kind),),
                        options,
                    )
        for dtype, kind in kinds():
            more = (Operand((), dtype, kind, constant=[1]),) if op == "PADV2" else ()
            options = {"mode": "REFLECT"} if op == "MIRROR_PAD" else {}
            yield Case(
                op,
                (Operand((1, 5, 6, 8), dtype, kind), fixed([[0, 0], [1, 1], [1, 1], [0, 0]], (4, 2)), *more),
                (Result(dtype, kind),),
                options,
            )
        if op != "MIRROR_PAD":
            pads = [[0, 0], [1, 1], [1, 1], [0, 0]]
            for version in VERSIONS[1:5]:
                yield Case(op, (Operand((1, 5, 6, 8)), fixed(pads, (4, 2)), *extra), version=version)
            yield Case(op, (Operand((1, 5, 6, 8)), fixed(pads, (4, 2), "int64"), *extra))
            yield Case(op, (Operand((1, 6, 8)), fixed([[0, 0], [1, 1], [0, 0]], (3, 2), "int64"), *extra))


def _repeats() -> Iterator[Case]:
    for rank in (1, 2, 3, 4, 5):
        for count, batch, (dtype, kind) in itertools.product(range(min(rank, 3) + 1), BATCHES, _COMMON):
            if batch > 1 and rank < 2:
                continue
            for axes in itertools.combinations(range(rank), count):
                times = [2 if axis in axes else 1 for axis in range(rank)]
                yield Case(
                    "TILE",
                    (Operand(shape_of(rank, batch), dtype, kind), fixed(times, (rank,))),
                    (Result(dtype, kind),),
                )
    targets = {
        1: [(4,)],
        2: [(2, 4), (1, 4)],
        3: [(2, 3, 4), (1, 3, 4)],
        4: [(2, 3, 4, 5), (1, 3, 4, 5)],
        5: [(2, 2, 3, 4, 5)],
        6: [(2, 2, 2, 3, 4, 5)],
    }
    for rank, shapes in targets.items():
        for target, dtype in itertools.product(shapes, ("float32", "int32", "int64", "bool")):
            for stretched in range(rank + 1):
                source = tuple(1 if axis < stretched else dim for axis, dim in enumerate(target))
                yield Case(
                    "BROADCAST_TO",
                    (Operand(source, dtype), fixed(list(target), (rank,))),
                    (Result(dtype),),
                    version=2,
                )
                if rank > 1:
                    yield Case(
                        "BROADCAST_TO",
                        (Operand(source[1:], dtype), fixed(list(target), (rank,))),
                        (Result(dtype),),
                        version=3,
                    )
    for dtype in ("float32", "int32", "int64", "bool"):
        value = Operand((), dtype, constant=[1])
        yield Case("FILL", (fixed([2, 3], (2,)), value), (Result(dtype),))
        yield Case("FILL", (fixed([2, 3], (2,)), Operand((), dtype)), (Result(dtype),))


def _gathers() -> Iterator[Case]:
    for rank in (1, 2, 3, 4, 5):
        shape = (4, 5, 6, 8, 3)[:rank]
        for axis, (dtype, kind), batch in itertools.product(range(rank), _COMMON[:3], BATCHES):
            size = (1, *shape[1:]) if batch == 1 and rank > 1 else shape
            bound = f"index:{size[axis]}"
            for index_shape, index_dtype in itertools.product(((), (3,), (2, 3), (2, 1, 2)), ("int32", "int64")):
                if dtype != "float32" and index_dtype == "int64":
                    continue
                data = Operand(size, dtype, kind)
                indices = Operand(index_shape, index_dtype, domain=bound)
                fixed_indices = Operand(index_shape, index_dtype, constant=True, domain=bound)
                options: dict[str, Any] = {"axis": axis}
                out = (Result(dtype, kind),)
                yield Case("GATHER", (data, fixed_indices), out, options)
                yield Case("GATHER", (data, indices), out, options)
                if dtype in ("float32", "int8", "int32"):
                    table = Operand(size, dtype, kind, constant=True)
                    yield Case("GATHER", (table, indices), out, options)
                    if dtype == "float32":
                        yield Case("GATHER", (Operand(size, half=True), indices), out, options)
    for dtype, kind in kinds():
        indices = Operand((3,), "int32", constant=True, domain="index:5")
        yield Case("GATHER", (Operand((1, 5, 6, 8), dtype, kind), indices), (Result(dtype, kind),), {"axis": 1})
    for axis in (1, 2):
        indices = Operand((2, 3), "int32", constant=True, domain="index:5")
        yield Case("GATHER", (Operand((2, 5, 6)), indices), options={"axis": axis, "batch_dims": 1})
    for version in VERSIONS[1:7]:
        indices = Operand((3,), "int32", constant=True, domain="index:5")
        yield Case("GATHER", (Operand((1, 5, 6, 8)), indices), options={"axis": 1}, version=version)
    for rank, depth in ((2, 1), (2, 2), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (4, 3), (4, 4)):
        for dtype, constant in itertools.product(("float32", "int32", "int8", "int64"), (None, True)):
            shape = (4, 5, 6, 8)[:rank]
            for lead in ((3,), (2, 3), (1, 2, 3)):
                indices = Operand((*lead, depth), "int32", constant=constant, domain="index:4")
                yield Case("GATHER_ND", (Operand(shape, dtype), indices), (Result(dtype),))
    for dtype, kind, rank in (
        ("float32", "", 2),
        ("float32", "", 3),
        ("float32", "", 4),
        ("int8", "t", 2),
        ("int8", "c", 2),
        ("int4", "c", 2),
        ("int4", "t", 2),
        ("float16", "", 2),
    ):
        shape = {2: (10, 8), 3: (10, 2, 8), 4: (10, 2, 3, 8)}[rank]
        ids = Operand((3,), "int32", domain="index:10")
        for version in (1, 2, 3, 4):
            outputs = (Result("float32"), Result(dtype, kind)) if dtype == "int8" else (Result("float32"),)
            for out in outputs:
                yield Case(
                    "EMBEDDING_LOOKUP", (ids, Operand(shape, dtype, kind, constant=True)), (out,), version=version
                )
        if dtype == "float32":
            yield Case("EMBEDDING_LOOKUP", (ids, Operand(shape, half=True)))
    for rank, dtype in itertools.product((1, 2, 3, 4, 5), ("float32", "int32", "int64", "bool", "int8")):
        for batch in BATCHES:
            shape = shape_of(rank, batch)
            update = tuple(max(dim - 1, 1) for dim in shape)
            start = Operand((rank,), "int32", domain="index:1")
            target, piece = Operand(shape, dtype), Operand(update, dtype)
            yield Case("DYNAMIC_UPDATE_SLICE", (target, piece, start), (Result(dtype),))
            yield Case("DYNAMIC_UPDATE_SLICE", (target, piece, fixed([0] * rank, (rank,))), (Result(dtype),))
            yield Case(
                "DYNAMIC_UPDATE_SLICE", (target, Operand(update, dtype, constant=True), start), (Result(dtype),)
            )
    for dtype in ("float32", "int32", "bool"):
        for indices in (None, True):
            positions = Operand((3, 1), "int32", constant=indices, domain="index:4")
            yield Case("SCATTER_ND", (positions, Operand((3, 5), dtype), fixed([4, 5], (2,))), (Result(dtype),))


def _blocks() -> Iterator[Case]:
    for op, size, batch, (dtype, kind) in itertools.product(
        ("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"),
        (1, 2, 4),
        BATCHES,
        kinds(("float32", "int8", "int32", "uint8", "int64")),
    ):
        shape = (batch, 4, 4, 16)
        for version in (1, 2):
            yield Case(op, (Operand(shape, dtype, kind),), (Result(dtype, kind),), {"block_size": size}, version)
    for (dtype, kind), batch in itertools.product((("float32", ""), ("int8", "t"), ("int32", "")), BATCHES):
        source = Operand((batch, 4, 6, 3), dtype, kind)
        blocks = (fixed([2, 2], (2,)), fixed([[0, 0], [0, 0]], (2, 2)))
        yield Case("SPACE_TO_BATCH_ND", (source, *blocks), (Result(dtype, kind),))
        yield Case(
            "BATCH_TO_SPACE_ND", (Operand((4 * batch, 4, 6, 3), dtype, kind), *blocks), (Result(dtype, kind),)
        )
        yield Case(
            "SPACE_TO_BATCH_ND",
            (Operand((batch, 4, 3), dtype, kind), fixed([2], (1,)), fixed([[0, 0]], (1, 2))),
            (Result(dtype, kind),),
        )
    for rank, dtype in itertools.product((0, 1, 2, 3, 4), ("float32", "int32")):
        for out in ("int32", "int64"):
            yield Case("SHAPE", (Operand(shape_of(rank), dtype),), (Result(out),), {"out_type": out})
        yield Case("RANK", (Operand(shape_of(rank), dtype),), (Result("int32"),))


def _resizes() -> Iterator[Case]:
    choices = ({}, {"align_corners": True}, {"half_pixel_centers": True})
    for op, options, batch in itertools.product(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), choices, BATCHES):
        for size, (dtype, kind) in itertools.product(
            ([10, 12], [3, 3], [10, 3], [5, 6], [1, 1], [7, 11]), kinds(("float32", "int8", "uint8", "int16"))
        ):
            yield Case(
                op,
                (Operand((batch, 5, 6, 8), dtype, kind), fixed(size, (2,))),
                (Result(dtype, kind),),
                dict(options),
            )
        for version in (2, 3, 4):
            yield Case(
                op, (Operand((batch, 5, 6, 8)), fixed([10, 12], (2,))), options=dict(options), version=version
            )
            yield Case(
                op,
                (Operand((batch, 5, 6, 8), "int8", "t"), fixed([10, 12], (2,))),
                (Result("int8", "t"),),
                dict(options),
                version,
            )
        size = Operand((2,), "int32", domain="positive")
        yield Case(op, (Operand((batch, 5, 6, 8)), size), (Result(shape=(batch, 5, 6, 8)),), dict(options))
