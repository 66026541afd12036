"""Ops with weights: convolutions, fully connected, matrix products; and pooling, which shares their options."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from assay.probe.cases import Case, Operand, Result
from assay.probe.grid.common import BATCHES, VERSIONS, fixed, shape_of
from assay.probe.grid.elementwise import ACTIVATIONS

#: Source, weights, bias and output types of a weighted op: (source, weights, bias, out), kinds after a `/`.
_FORMS = (
    ("float32", "float32", "float32", "float32"),
    ("float32", "float32/half", "float32/half", "float32"),
    ("float32", "float32/half", "float32", "float32"),
    ("float32", "int8/c", "float32", "float32"),
    ("float32", "int8/t", "float32", "float32"),
    ("float32", "int4/c", "float32", "float32"),
    ("float32", "int4/t", "float32", "float32"),
    ("int8/t", "int8/c", "int32/c", "int8/t"),
    ("int8/t", "int8/t", "int32/t", "int8/t"),
    ("int8/t", "int4/c", "int32/c", "int8/t"),
    ("uint8/t", "uint8/t", "int32/t", "uint8/t"),
    ("int16/t", "int8/c", "int64/c", "int16/t"),
    ("int16/t", "int8/t", "int64/t", "int16/t"),
    ("float16", "float16", "float16", "float16"),
)


def cases() -> Iterator[Case]:
    """All cases of the family."""
    yield from _conv_2d()
    yield from _depthwise()
    yield from _transposed()
    yield from _pools()
    yield from _fully_connected()
    yield from _batch_matmul()
    yield from _prelu()
    yield from _custom()


def _operand(form: str, shape: tuple[int, ...], axis: int, constant: Any = True) -> Operand:
    dtype, _, kind = form.partition("/")
    if kind == "half":
        return Operand(shape, half=True)
    if kind == "c" and shape[axis] == 1:
        kind = "t"
    return Operand(shape, dtype, kind, axis, constant)


def _out(form: str) -> tuple[Result, ...]:
    dtype, _, kind = form.partition("/")
    return (Result(dtype, kind),)


def _conv(
    op: str,
    form: tuple[str, str, str, str],
    options: dict[str, Any],
    version: int = 1,
    batch: int = 1,
    kernel: int = 3,
    bias: str = "const",
    weights: str = "const",
    groups: int = 1,
    channels: int = 8,
) -> Case:
    source, filters, offset, out = form
    defaults = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    side, multiplier = options.pop("_side", 7), options.pop("_multiplier", 1)
    chosen = {**defaults, **options}
    image = _operand(source, (batch, side, side + 1, channels), 3, None)
    if op == "DEPTHWISE_CONV_2D":
        shape, axis, count = (1, kernel, kernel, channels * multiplier), 3, channels * multiplier
        chosen.setdefault("depth_multiplier", multiplier)
    else:
        shape, axis, count = (16, kernel, kernel, channels // groups), 0, 16
    kernel_operand = _operand(filters, shape, axis, True if weights == "const" else None)
    inputs = [image, kernel_operand]
    if bias == "const":
        inputs.append(_operand(offset, (count,), 0))
    elif bias == "absent":
        inputs.append(Operand((), absent=True))
    elif bias == "runtime":
        inputs.append(_operand(offset, (count,), 0, None))
    return Case(op, tuple(inputs), _out(out), chosen, version)


def _windows() -> list[dict[str, Any]]:
    choices: list[dict[str, Any]] = []
    for padding in ("SAME", "VALID"):
        for high, wide in ((1, 1), (2, 2), (3, 3), (1, 2), (2, 1)):
            choices.append({"padding": padding, "stride_h": high, "stride_w": wide})
        for high, wide in ((2, 2), (3, 3), (1, 2)):
            choices.append({"padding": padding, "dilation_h_factor": high, "dilation_w_factor": wide, "_side": 11})
    return choices


def _conv_2d() -> Iterator[Case]:
    for form, window, kernel, batch in itertools.product(_FORMS, _windows(), (1, 3), BATCHES):
        if batch > 1 and form not in (_FORMS[0], _FORMS[3], _FORMS[7]):
            continue
        yield _conv("CONV_2D", form, dict(window), batch=batch, kernel=kernel)
        if form in _FORMS[:3]:
            yield _conv("CONV_2D", form, dict(window), batch=batch, kernel=kernel, bias="none")
            for activation in ACTIVATIONS[:2]:
                yield _conv(
                    "CONV_2D",
                    form,
                    {**window, "fused_activation_function": activation},
                    batch=batch,
                    kernel=kernel,
                )
    for form, activation, kernel in itertools.product(_FORMS, ACTIVATIONS, (1, 3)):
        for stride in (1, 2):
            options = {"fused_activation_function": activation, "stride_h": stride, "stride_w": stride}
            yield _conv("CONV_2D", form, options, kernel=kernel)
    for form, version, kernel in itertools.product(_FORMS, VERSIONS[1:9], (1, 3)):
        yield _conv("CONV_2D", form, {}, version, kernel=kernel)
        if form in (_FORMS[0], _FORMS[1], _FORMS[7]):
            yield _conv("CONV_2D", form, {"fused_activation_function": "RELU"}, version, kernel=kernel)
    for form, kernel, groups, batch in itertools.product(_FORMS[:5], (1, 3), (2, 4), BATCHES):
        for padding, bias in itertools.product(("SAME", "VALID"), ("const", "absent")):
            yield _conv(
                "CONV_2D", form, {"padding": padding}, kernel=kernel, groups=groups, batch=batch, bias=bias
            )
            yield _conv(
                "CONV_2D",
                form,
                {"padding": padding, "fused_activation_function": "RELU"},
                kernel=kernel,
                groups=groups,
                batch=batch,
                bias=bias,
            )
    for kernel, weights, bias, batch in itertools.product(
        (1, 3), ("const", "runtime"), ("const", "runtime", "none"), BATCHES
    ):
        for padding in ("SAME", "VALID"):
            yield _conv(
                "CONV_2D", _FORMS[0], {"padding": padding}, kernel=kernel, weights=weights, bias=bias, batch=batch
            )
    for channels, kernel in itertools.product((1, 3, 5, 16), (1, 3)):
        yield _conv("CONV_2D", _FORMS[0], {}, kernel=kernel, channels=channels)
    # Weights that are computed (unpacked from sparse ones, say) beside a bias that is a half.
    for window, kernel, activation in itertools.product(_windows()[:3], (1, 3), ("NONE", "RELU", "RELU6")):
        case = _conv(
            "CONV_2D",
            _FORMS[0],
            {**window, "fused_activation_function": activation},
            kernel=kernel,
            weights="runtime",
        )
        yield case
        yield replace(case, inputs=(*case.inputs[:2], Operand((16,), half=True)))


def _depthwise() -> Iterator[Case]:
    op = "DEPTHWISE_CONV_2D"
    for form, window, kernel, batch in itertools.product(_FORMS, _windows(), (1, 3), BATCHES):
        if batch > 1 and form not in (_FORMS[0], _FORMS[3], _FORMS[7]):
            continue
        yield _conv(op, form, dict(window), batch=batch, kernel=kernel)
        if form in _FORMS[:3]:
            yield _conv(op, form, {**window, "_multiplier": 2}, batch=batch, kernel=kernel)
            for activation in ("RELU", "RELU6"):
                yield _conv(
                    op, form, {**window, "fused_activation_function": activation}, batch=batch, kernel=kernel
                )
    for form, activation, multiplier in itertools.product(_FORMS, ACTIVATIONS, (1, 2)):
        for stride in (1, 2):
            options = {
                "fused_activation_function": activation,
                "_multiplier": multiplier,
                "stride_h": stride,
                "stride_w": stride,
            }
            yield _conv(op, form, options)
    for form, version in itertools.product(_FORMS, VERSIONS[1:8]):
        yield _conv(op, form, {}, version)
        yield _conv(op, form, {"fused_activation_function": "RELU"}, version)
    for form, bias in itertools.product(_FORMS[:4], ("absent", "none")):
        yield _conv(op, form, {}, bias=bias)
        yield _conv(op, form, {"stride_h": 2, "stride_w": 2}, bias=bias)
    for weights, batch in itertools.product(("runtime",), BATCHES):
        yield _conv(op, _FORMS[0], {}, weights=weights, batch=batch)
    # One input channel: the multiplier is the number of output channels.
    for multiplier in (8, 16):
        yield _conv(op, _FORMS[0], {"_multiplier": multiplier}, channels=1)


def _transposed() -> Iterator[Case]:
    for form, stride, padding, version in itertools.product(_FORMS, (1, 2, 3), ("SAME", "VALID"), (1, 2, 3, 4, 5)):
        if version in (1, 2, 5) and form not in (_FORMS[0], _FORMS[7]):
            continue
        source, filters, offset, out = form
        for bias, batch, kernel in itertools.product(
            (False, True), BATCHES, (2, 3) if form == _FORMS[0] else (3,)
        ):
            if version < 3 and bias:
                continue
            side = 5 * stride if padding == "SAME" else (5 - 1) * stride + kernel
            target = fixed([batch, side, side, 16], (4,))
            inputs = [
                target,
                _operand(filters, (16, kernel, kernel, 8), 0),
                _operand(source, (batch, 5, 5, 8), 3, None),
            ]
            if bias:
                inputs.append(_operand(offset, (16,), 0))
            options: dict[str, Any] = {"padding": padding, "stride_w": stride, "stride_h": stride}
            yield Case("TRANSPOSE_CONV", tuple(inputs), _out(out), options, version)
            if version == 4 and form == _FORMS[0]:
                for activation in ("RELU", "RELU6"):
                    yield Case(
                        "TRANSPOSE_CONV",
                        tuple(inputs),
                        _out(out),
                        {**options, "fused_activation_function": activation},
                        version,
                    )


def _pools() -> Iterator[Case]:
    for op, (dtype, kind), padding, batch in itertools.product(
        ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"),
        (("float32", ""), ("int8", "t"), ("uint8", "t"), ("int16", "t"), ("float16", "")),
        ("SAME", "VALID"),
        BATCHES,
    ):
        for size, stride in itertools.product(
            ((1, 1), (2, 2), (3, 3), (2, 3), (8, 6)), ((1, 1), (2, 2), (3, 3), (1, 2), (8, 6))
        ):
            options = {
                "padding": padding,
                "filter_height": size[0],
                "filter_width": size[1],
                "stride_h": stride[0],
                "stride_w": stride[1],
            }
            operand = Operand((batch, 8, 6, 8), dtype, kind)
            yield Case(op, (operand,), (Result(dtype, kind),), options)
            if dtype == "float32" and size in ((2, 2), (8, 6)):
                for activation in ("RELU", "RELU6"):
                    yield Case(
                        op,
                        (operand,),
                        (Result(dtype, kind),),
                        {**options, "fused_activation_function": activation},
                    )
        for version in (2, 3):
            options = {"padding": padding, "filter_height": 2, "filter_width": 2, "stride_h": 2, "stride_w": 2}
            yield Case(op, (Operand((batch, 8, 6, 8), dtype, kind),), (Result(dtype, kind),), options, version)


def _fully_connected() -> Iterator[Case]:
    sources = [(1, 8), (4, 8), (1, 6, 8), (2, 6, 8), (1, 5, 6, 8), (2, 5, 6, 8), (1, 1, 1, 8), (8,)]
    flattened = [(1, 2, 4), (1, 2, 2, 2), (2, 2, 2, 2), (3, 2, 4)]
    for form, source, keep, bias in itertools.product(
        _FORMS, sources + flattened, (False, True), ("const", "absent", "none")
    ):
        if keep and source in flattened:
            continue
        image = _operand(form[0], source, len(source) - 1, None)
        weights = _operand(form[1], (16, 8), 0)
        inputs = [image, weights]
        if bias == "const":
            inputs.append(_operand(form[2], (16,), 0))
        elif form == _FORMS[0]:
            inputs.append(Operand((), absent=True))
        choices: list[dict[str, Any]] = [{"keep_num_dims": keep}]
        if form[0] == "float32" and form in _FORMS[:4]:
            choices.append({"keep_num_dims": keep, "asymmetric_quantize_inputs": True})
            choices += [
                {"keep_num_dims": keep, "fused_activation_function": name} for name in ("RELU", "RELU6", "TANH")
            ]
        elif form[0] == "int8/t":
            choices.append({"keep_num_dims": keep, "fused_activation_function": "RELU"})
        for options in choices:
            yield Case("FULLY_CONNECTED", tuple(inputs), _out(form[3]), options)
    for form, version, keep in itertools.product(_FORMS, VERSIONS[1:], (False, True)):
        for source in ((1, 8), (1, 6, 8)):
            inputs = (
                _operand(form[0], source, len(source) - 1, None),
                _operand(form[1], (16, 8), 0),
                _operand(form[2], (16,), 0),
            )
            yield Case("FULLY_CONNECTED", inputs, _out(form[3]), {"keep_num_dims": keep}, version)
            if form[0] == "float32":
                yield Case("FULLY_CONNECTED", inputs[:2], _out(form[3]), {"keep_num_dims": keep}, version)
    for source, keep in itertools.product(((1, 8), (4, 8), (1, 6, 8), (1, 5, 6, 8)), (False, True)):
        options = {"keep_num_dims": keep}
        for bias in ((), (Operand((16,), constant=True),), (Operand((16,)),)):
            yield Case("FULLY_CONNECTED", (Operand(source), Operand((16, 8)), *bias), options=options)
            yield Case(
                "FULLY_CONNECTED", (Operand(source), Operand((16, 8), constant=True), *bias), options=options
            )
        yield Case("FULLY_CONNECTED", (Operand(source, constant=True), Operand((16, 8))), options=options)


def _batch_matmul() -> Iterator[Case]:
    def shapes(lead: tuple[int, ...], adj_x: bool, adj_y: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (*lead, 8, 5) if adj_x else (*lead, 5, 8), (*lead, 12, 8) if adj_y else (*lead, 8, 12)

    for lead, adj_x, adj_y in itertools.product(
        ((), (1,), (3,), (1, 1), (1, 4), (2, 4), (3, 1), (1, 2, 3)), (False, True), (False, True)
    ):
        left, right = shapes(lead, adj_x, adj_y)
        options = {"adj_x": adj_x, "adj_y": adj_y}
        for version in (1, 2, 3, 4):
            yield Case("BATCH_MATMUL", (Operand(left), Operand(right)), options=options, version=version)
            yield Case(
                "BATCH_MATMUL", (Operand(left), Operand(right, constant=True)), options=options, version=version
            )
        yield Case("BATCH_MATMUL", (Operand(left, constant=True), Operand(right)), options=options)
        yield Case("BATCH_MATMUL", (Operand(left), Operand(right, half=True)), options=options)
        if lead:
            flat = right[-2:]
            for other in (flat, (1,) * len(lead) + flat):
                yield Case("BATCH_MATMUL", (Operand(left), Operand(other)), options=options)
                yield Case("BATCH_MATMUL", (Operand(left), Operand(other, constant=True)), options=options)
                yield Case("BATCH_MATMUL", (Operand(left), Operand(other, half=True)), options=options)
            yield Case("BATCH_MATMUL", (Operand((1,) * len(lead) + left[-2:]), Operand(right)), options=options)
        for dtype in ("int8", "int16", "int32"):
            kind = "" if dtype == "int32" else "t"
            out = (Result(dtype, kind),)
            yield Case("BATCH_MATMUL", (Operand(left, dtype, kind), Operand(right, dtype, kind)), out, options)
            yield Case(
                "BATCH_MATMUL",
                (Operand(left, dtype, kind), Operand(right, dtype, kind, constant=True)),
                out,
                options,
            )
        for kind in ("t", "c"):
            axis = len(right) - (2 if adj_y else 1)
            weights = Operand(right, "int8", kind, axis, True)
            for asymmetric in (False, True):
                yield Case(
                    "BATCH_MATMUL",
                    (Operand(left), weights),
                    options={**options, "asymmetric_quantize_inputs": asymmetric},
                )


def _prelu() -> Iterator[Case]:
    for rank, batch in itertools.product((2, 3, 4, 5), BATCHES):
        shape = shape_of(rank, batch)
        alphas = [shape[-1:], shape[1:], (1,) * (rank - 2) + shape[-1:], (1,), (1,) * rank, (1,) * (rank - 1)]
        for alpha, half in itertools.product(alphas, (False, True)):
            slope = Operand(alpha, half=True) if half else Operand(alpha, constant=True)
            yield Case("PRELU", (Operand(shape), slope))
        yield Case("PRELU", (Operand(shape), Operand(shape[-1:])))
        yield Case(
            "PRELU",
            (Operand(shape, "int8", "t"), Operand(shape[-1:], "int8", "t", constant=True)),
            (Result("int8", "t"),),
        )
    for version in (2, 3):
        yield Case("PRELU", (Operand(shape_of(4)), Operand((8,), constant=True)), version=version)


def _custom() -> Iterator[Case]:
    # MediaPipe's transposed convolution with bias: its options are the C struct of padding and strides.
    for padding, stride, batch, half in itertools.product((1, 2), (1, 2, 3), BATCHES, (False, True)):
        custom = struct.pack("<iii", padding, stride, stride).hex()
        kernel = 2
        side = 5 * stride if padding == 1 else (5 - 1) * stride + kernel
        weights = [
            Operand((16, kernel, kernel, 8), half=half, constant=None if half else True),
            Operand((16,), half=half, constant=None if half else True),
        ]
        yield Case(
            "Convolution2DTransposeBias",
            (Operand((batch, 5, 5, 8)), *weights),
            (Result(shape=(batch, side, side, 16)),),
            custom=custom,
        )
