"""Every other builtin op in its plainest form: most accelerators refuse them, and that too has to be measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from assay.probe.cases import Case, Operand, Result
from assay.probe.grid.common import fixed, shape_of


def cases() -> Iterator[Case]:
    """All cases of the family."""
    yield from _plain()
    yield from _matrices()
    yield from _segments()
    yield from _complex()
    yield from _recurrent()
    yield from _control()
    yield from _detections()


def _plain() -> Iterator[Case]:
    for rank in (2, 3, 4):
        operand = Operand(shape_of(rank))
        yield Case("FAKE_QUANT", (operand,), options={"min": -1.0, "max": 1.0, "num_bits": 8})
        yield Case("ADD_N", (operand, operand))
        yield Case("ADD_N", (operand, operand, operand))
        yield Case("BUCKETIZE", (operand,), (Result("int32"),), {"boundaries": [-1.0, 0.0, 1.0]})
        yield Case("REVERSE_SEQUENCE", (operand, Operand((1,), "int32", domain="index:2")), options={"seq_dim": 1})
    yield Case(
        "LOCAL_RESPONSE_NORMALIZATION",
        (Operand(shape_of(4)),),
        options={"radius": 2, "bias": 1.0, "alpha": 1.0, "beta": 0.5},
    )
    yield Case("RANGE", (fixed([0], ()), fixed([8], ()), fixed([1], ())), (Result("int32"),))
    yield Case(
        "RANGE",
        (Operand((), "int32", domain="index:1"), fixed([8], ()), fixed([1], ())),
        (Result("int32", shape=(8,)),),
    )
    yield Case("RANGE", (fixed([0.0], (), "float32"), fixed([8.0], (), "float32"), fixed([1.0], (), "float32")))
    yield Case(
        "UNIQUE",
        (Operand((8,), "int32"),),
        (Result("int32", shape=(8,)), Result("int32", shape=(8,))),
        {"idx_out_type": "int32"},
    )
    yield Case("BROADCAST_ARGS", (fixed([2, 1], (2,)), fixed([1, 3], (2,))), (Result("int32"),))
    yield Case(
        "BROADCAST_ARGS", (Operand((2,), "int32", domain="positive"), fixed([1, 1], (2,))), (Result("int32"),)
    )
    yield Case(
        "SPARSE_TO_DENSE",
        (Operand((2, 1), "int32", domain="index:4"), fixed([4], (1,)), Operand((2,)), fixed([0.0], (), "float32")),
    )
    for op in ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"):
        yield Case(op, (fixed([2, 3], (2,)),), (Result(),), {"seed": 1, "seed2": 2})
    yield Case("MULTINOMIAL", (Operand((1, 5)), fixed([3], ())), (Result("int64"),), {"seed": 1, "seed2": 2})
    yield Case("DILATE", (Operand((4, 5)), fixed([2, 2], (2,)), fixed([0.0], (), "float32")))
    window = (
        fixed([2, 2], (2,), "int64"),
        fixed([1, 1], (2,), "int64"),
        fixed([1, 1], (2,), "int64"),
        fixed([1, 1], (2,), "int64"),
    )
    yield Case(
        "REDUCE_WINDOW",
        (Operand((4, 5)), fixed([0.0], (), "float32"), *window),
        options={"reduce_function": "ADD"},
    )
    yield Case("STABLEHLO_CLAMP", (Operand((4, 5)), Operand((4, 5)), Operand((4, 5))))


def _matrices() -> Iterator[Case]:
    for rank in (1, 2, 3):
        yield Case("MATRIX_DIAG", (Operand(shape_of(rank)),))
    yield Case("MATRIX_SET_DIAG", (Operand((4, 4)), Operand((4,))))
    yield Case("MATRIX_SET_DIAG", (Operand((2, 4, 4)), Operand((2, 4))))
    for padding, stride in itertools.product(("SAME", "VALID"), (1, 2)):
        options = {"padding": padding, "stride_d": stride, "stride_h": stride, "stride_w": stride}
        bias = Operand((4,), constant=True)
        yield Case(
            "CONV_3D", (Operand((1, 4, 5, 6, 3)), Operand((2, 2, 2, 3, 4), constant=True), bias), options=options
        )
    yield Case(
        "CONV_3D_TRANSPOSE",
        (fixed([1, 4, 5, 6, 3], (5,)), Operand((2, 2, 2, 3, 4), constant=True), Operand((1, 4, 5, 6, 4))),
        options={"padding": "SAME", "stride_d": 1, "stride_h": 1, "stride_w": 1},
    )


def _segments() -> Iterator[Case]:
    yield Case("SEGMENT_SUM", (Operand((4, 3)), fixed([0, 0, 1, 1], (4,))))
    for name in ("SUM", "PROD", "MIN", "MAX"):
        for dtype in ("float32", "int32"):
            yield Case(
                f"UNSORTED_SEGMENT_{name}",
                (Operand((4, 3), dtype), fixed([0, 1, 0, 1], (4,)), fixed([2], ())),
                (Result(dtype),),
            )


def _complex() -> Iterator[Case]:
    yield Case("RFFT2D", (Operand((8, 8)), fixed([8, 8], (2,))), (Result("complex64"),))
    for op in ("REAL", "IMAG", "COMPLEX_ABS"):
        yield Case(op, (Operand((4, 5), "complex64"),))


def _recurrent() -> Iterator[Case]:
    yield Case(
        "SVDF",
        (
            Operand((1, 3)),
            Operand((4, 3), constant=True),
            Operand((4, 8), constant=True),
            Operand((), absent=True),
            Operand((1, 32), constant=None),
        ),
        options={"rank": 1},
    )
    yield Case(
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        (
            Operand((1, 4, 3)),
            Operand((5, 3), constant=True),
            Operand((5, 5), constant=True),
            Operand((5,), constant=True),
            Operand((1, 5)),
        ),
    )
    yield Case(
        "RNN",
        (
            Operand((1, 3)),
            Operand((5, 3), constant=True),
            Operand((5, 5), constant=True),
            Operand((5,), constant=True),
            Operand((1, 5)),
        ),
    )


def _control() -> Iterator[Case]:
    yield Case(
        "IF",
        (Operand((1,), "bool"), Operand((1, 8))),
        options={"then_subgraph_index": 1, "else_subgraph_index": 2},
    )
    yield Case("WHILE", (Operand((1,)),), options={"cond_subgraph_index": 1, "body_subgraph_index": 2})
    yield Case("CALL_ONCE", (), (), {"init_subgraph_index": 1})
    for dtype, kind in (("float32", ""), ("int8", "t")):
        for op in ("VAR_HANDLE", "ASSIGN_VARIABLE", "READ_VARIABLE"):
            yield Case(op, (Operand((1, 8), dtype, kind),), (Result(dtype, kind, (1, 8)),))
    yield Case(
        "HASHTABLE",
        (),
        (Result("resource", shape=(1,)),),
        {"table_id": 1, "key_dtype": "int64", "value_dtype": "int64"},
    )


def _detections() -> Iterator[Case]:
    scalar = fixed([0.5], (), "float32")
    boxes, scores = Operand((6, 4)), Operand((6,))
    yield Case(
        "NON_MAX_SUPPRESSION_V4",
        (boxes, scores, fixed([3], ()), scalar, scalar),
        (Result("int32"), Result("int32")),
    )
    yield Case(
        "NON_MAX_SUPPRESSION_V5",
        (boxes, scores, fixed([3], ()), scalar, scalar, scalar),
        (Result("int32"), Result(), Result("int32")),
    )
