"""Ops that work element by element: one operand, two that broadcast, three that select."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from assay.probe.cases import Case, Operand, Result
from assay.probe.grid.common import BATCHES, RANKS, VERSIONS, kinds, shape_of

ACTIVATIONS = ("RELU", "RELU6", "RELU_N1_TO_1", "TANH", "SIGN_BIT")

_UNARY: dict[str, tuple[str, tuple[dict[str, Any], ...]]] = {
    "ABS": ("real", ({},)),
    "CEIL": ("real", ({},)),
    "COS": ("real", ({},)),
    "ELU": ("real", ({},)),
    "EXP": ("real", ({},)),
    "FLOOR": ("real", ({},)),
    "GELU": ("real", ({"approximate": False}, {"approximate": True})),
    "HARD_SWISH": ("real", ({},)),
    "LEAKY_RELU": ("real", ({"alpha": 0.2}, {"alpha": 0.01})),
    "LOG": ("positive", ({},)),
    "LOGISTIC": ("real", ({},)),
    "LOG_SOFTMAX": ("real", ({},)),
    "L2_NORMALIZATION": ("real", ({},)),
    "NEG": ("real", ({},)),
    "RELU": ("real", ({},)),
    "RELU6": ("real", ({},)),
    "RELU_0_TO_1": ("real", ({},)),
    "RELU_N1_TO_1": ("real", ({},)),
    "ROUND": ("real", ({},)),
    "RSQRT": ("positive", ({},)),
    "SIGN": ("real", ({},)),
    "SIN": ("real", ({},)),
    "SOFTMAX": ("real", ({"beta": 1.0}, {"beta": 0.5})),
    "SQRT": ("positive", ({},)),
    "SQUARE": ("real", ({},)),
    "TANH": ("real", ({},)),
    "ZEROS_LIKE": ("real", ({},)),
    "STABLEHLO_CBRT": ("positive", ({},)),
}
_BOOLEAN_UNARY = ("LOGICAL_NOT",)
_ARITHMETIC = {
    "ADD": "real",
    "SUB": "real",
    "MUL": "real",
    "DIV": "nonzero",
    "MAXIMUM": "real",
    "MINIMUM": "real",
    "POW": "positive",
    "SQUARED_DIFFERENCE": "real",
    "FLOOR_DIV": "nonzero",
    "FLOOR_MOD": "nonzero",
    "ATAN2": "nonzero",
    "STABLEHLO_REMAINDER": "nonzero",
}
_COMPARISON = ("LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "EQUAL", "NOT_EQUAL")
_LOGICAL = ("LOGICAL_AND", "LOGICAL_OR")
_BITWISE = ("BITWISE_XOR", "RIGHT_SHIFT", "STABLEHLO_SHIFT_LEFT")
_FUSED = ("ADD", "SUB", "MUL", "DIV")
#: Of the many ways to broadcast, how many of each op's are tried: all, every second, ... every eighth.
_EVERY = {"ADD": 1, "MUL": 1, "SUB": 1, "DIV": 2, "MAXIMUM": 2, "MINIMUM": 2, "SQUARED_DIFFERENCE": 2, "POW": 4}
_FREQUENT = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM")


def cases() -> Iterator[Case]:
    """All cases of the family."""
    yield from _unary()
    yield from _binary()
    yield from _casts()
    yield from _selects()


def _unary() -> Iterator[Case]:
    for op, (domain, choices) in _UNARY.items():
        for options, rank, (dtype, quantization), batch in itertools.product(choices, RANKS, kinds(), BATCHES):
            if batch > 1 and (rank < 2 or rank > 4):
                continue
            if rank in (0, 5, 6) and dtype not in ("float32", "int8", "int32"):
                continue
            if dtype == "int8" and not quantization and op not in ("ABS", "NEG", "SIGN", "ZEROS_LIKE"):
                continue
            operand = Operand(shape_of(rank, batch), dtype, quantization, domain=domain)
            yield Case(op, (operand,), (Result(dtype, quantization),), options)
        for rank, batch in itertools.product((1, 2, 3, 4), BATCHES):
            yield Case(op, (Operand(shape_of(rank, batch, other=True), domain=domain),), options=choices[0])
        for version in VERSIONS[1:6]:
            for rank in (2, 3, 4):
                yield Case(op, (Operand(shape_of(rank), domain=domain),), options=choices[0], version=version)
            for dtype in ("int8", "int32"):
                quantization = "t" if dtype == "int8" else ""
                operand = Operand(shape_of(4), dtype, quantization, domain=domain)
                yield Case(op, (operand,), (Result(dtype, quantization),), choices[0], version)
    for op in _BOOLEAN_UNARY:
        for rank, batch, version in itertools.product(RANKS, BATCHES, (1, 2)):
            yield Case(op, (Operand(shape_of(rank, batch), "bool"),), (Result("bool"),), version=version)


def _pairs(batch: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Shapes of two operands, one of them stretched along any set of axes, or shorter, or both."""
    pairs: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for rank in (2, 3, 4):
        full = shape_of(rank, batch)
        wide = [axis for axis in range(rank) if full[axis] > 1]
        for count in range(1, len(wide) + 1):
            for axes in itertools.combinations(wide, count):
                small = tuple(1 if axis in axes else dim for axis, dim in enumerate(full))
                pairs += [(full, small), (small, full)]
        for shorter in range(rank):
            tail = full[rank - shorter :]
            pairs += [(full, tail), (tail, full)]
            for axis in range(len(tail)):
                thin = tuple(1 if index == axis else dim for index, dim in enumerate(tail))
                pairs += [(full, thin), (thin, full)]
    full = shape_of(4, batch)
    # Both are stretched, along different axes.
    pairs += [((batch, 5, 1, 8), (1, 1, 6, 8)), ((batch, 1, 1, 8), (1, 5, 6, 1)), ((1, 5, 6, 1), (batch, 1, 1, 8))]
    pairs += [((batch, 1, 8), (1, 6, 1)), ((batch, 6, 1), (1, 1, 8)), ((batch, 5, 6, 1), (batch, 1, 1, 8))]
    return pairs


def _binary_dtypes(op: str) -> tuple[str, str]:
    if op in _COMPARISON:
        return "float32", "bool"
    if op in _LOGICAL:
        return "bool", "bool"
    return ("int32", "int32") if op in _BITWISE else ("float32", "float32")


def _binary() -> Iterator[Case]:
    for op in (*_ARITHMETIC, *_COMPARISON, *_LOGICAL, *_BITWISE):
        domain = _ARITHMETIC.get(op, "positive" if op in _BITWISE else "real")
        dtype, out = _binary_dtypes(op)
        base = {"fused_activation_function": "NONE"} if op in _FUSED else {}
        yield from _same_shape(op, domain, base)
        for batch in BATCHES:
            for left, right in _pairs(batch)[:: _EVERY.get(op, 8)]:
                yield from _constness(op, left, right, dtype, out, base, domain)
        if op in _FREQUENT:
            for left, right in _pairs(1)[::7]:
                wide = "bool" if out == "bool" else "int32"
                yield from _constness(op, left, right, "int32", wide, base, domain, halves=False)
        for version in VERSIONS[1:9]:
            for rank, constant in itertools.product((2, 4), (None, True)):
                shape = shape_of(rank)
                second = Operand(shape, dtype, constant=constant, domain=domain)
                yield Case(op, (Operand(shape, dtype, domain=domain), second), (Result(out),), base, version)
        for rank in (2, 3, 4):
            operand = Operand(shape_of(rank), dtype, domain=domain)
            yield Case(op, (operand,), (Result(out),), base, repeat=True)
        if op in _FUSED:
            yield from _activations(op, domain)


def _same_shape(op: str, domain: str, base: dict[str, Any]) -> Iterator[Case]:
    comparison = op in _COMPARISON
    tried = [kind for kind in kinds() if not (kind[1] and op in (*_BITWISE, *_LOGICAL))]
    for rank, (dtype, quantization), batch in itertools.product(RANKS, tried, BATCHES):
        common = dtype in (("float32", "int32", "int8") if op in _FREQUENT else ("float32", "int32"))
        if (batch > 1 and (rank < 2 or rank > 4)) or (not common and rank not in (2, 4)):
            continue
        out = Result("bool") if comparison or op in _LOGICAL else Result(dtype, quantization)
        operand = Operand(shape_of(rank, batch), dtype, quantization, domain=domain)
        yield Case(op, (operand, operand), (out,), base)
        yield Case(op, (operand, replace(operand, constant=True)), (out,), base)
        yield Case(op, (replace(operand, constant=True), operand), (out,), base)
        scalar = replace(operand, shape=(), constant=True)
        single = replace(operand, shape=(1,), constant=True)
        for other in (scalar, single):
            yield Case(op, (operand, other), (out,), base)
            yield Case(op, (other, operand), (out,), base)
        if rank > 1:
            channel = replace(operand, shape=operand.shape[-1:], constant=True)
            yield Case(op, (operand, channel), (out,), base)


def _constness(
    op: str,
    left: tuple[int, ...],
    right: tuple[int, ...],
    dtype: str,
    out: str,
    base: dict[str, Any],
    domain: str,
    halves: bool = True,
) -> Iterator[Case]:
    a, b = Operand(left, dtype, domain=domain), Operand(right, dtype, domain=domain)
    result = (Result(out),)
    yield Case(op, (a, b), result, base)
    yield Case(op, (a, replace(b, constant=True)), result, base)
    yield Case(op, (replace(a, constant=True), b), result, base)
    if halves and op in _FREQUENT:
        yield Case(op, (a, replace(b, half=True)), result, base)


def _activations(op: str, domain: str) -> Iterator[Case]:
    for activation in ACTIVATIONS:
        options = {"fused_activation_function": activation}
        for rank, batch in itertools.product((1, 2, 3, 4), BATCHES):
            operand = Operand(shape_of(rank, batch), domain=domain)
            yield Case(op, (operand, operand), options=options)
            yield Case(op, (operand, replace(operand, constant=True)), options=options)
            channel = replace(operand, shape=operand.shape[-1:], constant=True)
            yield Case(op, (operand, channel), options=options)
            yield Case(op, (operand, replace(operand, shape=(), constant=True)), options=options)
        for kind in ("int8",):
            operand = Operand(shape_of(4), kind, "t", domain=domain)
            yield Case(op, (operand, operand), (Result(kind, "t"),), options)
            yield Case(op, (operand, replace(operand, constant=True)), (Result(kind, "t"),), options)


def _casts() -> Iterator[Case]:
    for (source, target), rank, batch in itertools.product(
        itertools.permutations(("float32", "float16", "int8", "uint8", "int16", "int32", "int64", "bool"), 2),
        (1, 2, 3, 4, 5),
        BATCHES,
    ):
        if batch > 1 and rank not in (2, 3, 4):
            continue
        domain = "positive" if target.startswith("u") else "real"
        yield Case("CAST", (Operand(shape_of(rank, batch), source, domain=domain),), (Result(target),))
    for version in VERSIONS[1:8]:
        for source, target in (
            ("float32", "int32"),
            ("int32", "float32"),
            ("float32", "bool"),
            ("bool", "float32"),
        ):
            yield Case("CAST", (Operand(shape_of(4), source),), (Result(target),), version=version)
    for source, rank in itertools.product(("int8", "uint8", "int16", "float16", "int4"), (1, 2, 3, 4, 5)):
        for constant, kind in itertools.product((None, True), ("",) if source == "float16" else ("t", "c")):
            for version in (1, 2, 3, 5):
                shape = shape_of(rank)
                operand = Operand(shape, source, kind, max(rank - 1, 0), constant)
                if constant is None or source != "float16":
                    yield Case("DEQUANTIZE", (operand,), (Result(shape=shape),), version=version)
    for dtype, rank, version in itertools.product(("float32", "float16", "int8"), (2, 4), (1, 2)):
        # Sparse weights: DENSIFY unpacks them, and where they are halves a DEQUANTIZE follows.
        operand = Operand(shape_of(rank), dtype, constant=True, domain="sparse")
        yield Case("DENSIFY", (operand,), (Result(dtype, shape=shape_of(rank)),), version=version)
    for target, rank, batch in itertools.product(("int8", "uint8", "int16"), (1, 2, 3, 4, 5), BATCHES):
        for version in (1, 2, 3):
            yield Case("QUANTIZE", (Operand(shape_of(rank, batch)),), (Result(target, "t"),), version=version)
    for source, target in itertools.permutations(("int8", "uint8", "int16"), 2):
        for rank in (2, 4):
            yield Case("QUANTIZE", (Operand(shape_of(rank), source, "t"),), (Result(target, "t"),), version=2)
    for rank in (2, 4):
        yield Case("QUANTIZE", (Operand(shape_of(rank), "int8", "t"),), (Result("int8", "t"),), version=2)
    for source, target in (("float32", "int32"), ("int32", "float32"), ("int32", "uint32"), ("int8", "uint8")):
        for rank in (1, 2, 3, 4):
            yield Case("BITCAST", (Operand(shape_of(rank), source),), (Result(target),))


def _selects() -> Iterator[Case]:
    for op, rank, batch in itertools.product(("SELECT", "SELECT_V2"), (0, 1, 2, 3, 4, 5), BATCHES):
        shape = shape_of(rank, batch)
        if batch > 1 and rank < 2:
            continue
        conditions = [shape, ()] + ([(*shape[:-1], 1), shape[-1:], (1,)] if rank > 1 else [])
        for condition, dtype in itertools.product(conditions, ("float32", "int32")):
            a, b = Operand(shape, dtype), Operand(shape, dtype)
            yes = Operand(condition, "bool")
            out = (Result(dtype),)
            yield Case(op, (yes, a, b), out)
            yield Case(op, (yes, replace(a, constant=True), b), out)
            yield Case(op, (yes, a, replace(b, constant=True)), out)
            yield Case(op, (yes, replace(a, constant=True), replace(b, constant=True)), out)
            yield Case(op, (replace(yes, constant=True), a, b), out)
            for thin in ((), (1,)):
                yield Case(op, (yes, a, replace(b, shape=thin, constant=True)), out)
                yield Case(op, (yes, replace(a, shape=thin, constant=True), b), out)
                yield Case(
                    op, (yes, replace(a, shape=thin, constant=True), replace(b, shape=thin, constant=True)), out
                )
            if rank > 1:
                row = shape[-1:]
                yield Case(op, (yes, a, replace(b, shape=row, constant=True)), out)
                yield Case(op, (yes, replace(a, shape=row, constant=True), b), out)
                yield Case(op, (yes, a, replace(b, shape=row)), out)
    for op, rank, dtype in itertools.product(("SELECT", "SELECT_V2"), (2, 4), ("int64", "int8", "bool", "int16")):
        shape = shape_of(rank)
        yield Case(op, (Operand(shape, "bool"), Operand(shape, dtype), Operand(shape, dtype)), (Result(dtype),))
    for op, version in itertools.product(("SELECT", "SELECT_V2"), (2, 3, 4)):
        shape = shape_of(4)
        yield Case(op, (Operand(shape, "bool"), Operand(shape), Operand(shape)), version=version)
