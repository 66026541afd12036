"""Traits: options by name, and what else of shapes and constants a kernel looks at.

An option is kept as it is unless its value cannot matter to whether a kernel takes the node (a LEAKY_RELU's
alpha) or only a bucket of it can (a stride of 1, 2 or more). Everything unknown is kept: a trait too many
makes a signature "not measured", one too few would make it "measured" without being so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class TensorKind:
    """All of a tensor that a signature can depend on. Tensors of one kind share one object.

    Attributes:
        text: As signatures have it: `const int8@c[4]`.
        dtype: As in `Tensor.dtype`.
        shape: Its shape.
        is_constant: Whether the file has its values.
        data: Those values, for a constant that is a parameter of an op: axes, sizes, indices.
    """

    text: str
    dtype: str
    shape: tuple[int, ...]
    is_constant: bool
    data: bytes | None = None

    def valued(self, data: bytes) -> TensorKind:
        """This kind with values."""
        return replace(self, data=data)


TensorKinds = Sequence[TensorKind | None]
Traits = dict[str, str]

# Options whose value has no part in a signature: free numbers, sizes that the tensors say as well, names, and
# indices of other subgraphs.
_FREE = frozenset(
    {
        "alpha",
        "new_shape",
        "in_data_type",
        "out_data_type",
        "output_type",
        "values_count",
        "num",
        "squeeze_dims",
        "filter_width",
        "filter_height",
        "stride_w",
        "stride_h",
        "stride_d",
        "dilation_w_factor",
        "dilation_h_factor",
        "dilation_d_factor",
        "axis",
        "begin_mask",
        "end_mask",
        "shrink_axis_mask",
        "new_axis_mask",
        "seed",
        "seed2",
        "container",
        "shared_name",
        "boundaries",
        "init_subgraph_index",
        "then_subgraph_index",
        "else_subgraph_index",
        "cond_subgraph_index",
        "body_subgraph_index",
        "decomposition_subgraph_index",
        "composite_attributes",
        "table_id",
        "pot_scale_int16",
        "quant_spec",
        "num_splits",
        "depth_multiplier",
        "out_type",
        "key_dtype",
        "value_dtype",
        "validate_indices",
        "idx_out_type",
    }
)
# Values that a file may hold or leave out to say the same.
_DEFAULTS: tuple[Any, ...] = (None, False, 0, "NONE", "DEFAULT", "")
_BINARY = frozenset(
    {
        "ADD",
        "SUB",
        "MUL",
        "DIV",
        "MAXIMUM",
        "MINIMUM",
        "POW",
        "SQUARED_DIFFERENCE",
        "FLOOR_DIV",
        "FLOOR_MOD",
        "ATAN2",
        "LESS",
        "LESS_EQUAL",
        "GREATER",
        "GREATER_EQUAL",
        "EQUAL",
        "NOT_EQUAL",
        "LOGICAL_AND",
        "LOGICAL_OR",
        "BITWISE_XOR",
        "RIGHT_SHIFT",
        "STABLEHLO_SHIFT_LEFT",
        "STABLEHLO_REMAINDER",
        "PRELU",
        "SELECT",
        "SELECT_V2",
        "BROADCAST_TO",
    }
)
_REDUCE = frozenset(
    {"MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL", "REVERSE_V2"}
)
_PAD = frozenset({"PAD", "PADV2", "MIRROR_PAD"})
_AXIS_OPTION = frozenset({"CONCATENATION", "PACK", "UNPACK", "GATHER", "ONE_HOT"})
_AXIS_INPUT = {
    "SPLIT": (0, 1),
    "SPLIT_V": (2, 0),
    "ARG_MAX": (1, 0),
    "ARG_MIN": (1, 0),
    "CUMSUM": (1, 0),
    "EXPAND_DIMS": (1, 0),
}
_CONVOLUTION = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "CONV_3D", "CONV_3D_TRANSPOSE"})
_POOL = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"})


def option_traits(op: str, options: Mapping[str, Any]) -> Traits:
    """Traits that follow from options alone, by name."""
    traits = {
        name: _option(name, value)
        for name, value in options.items()
        if not (name in _FREE or value in _DEFAULTS or (name == "quantized_bias_type" and value == "float32"))
    }
    if op in _CONVOLUTION or op in _POOL:
        strides = [options.get(name) or 1 for name in ("stride_d", "stride_h", "stride_w") if name in options]
        traits["stride"] = _steps(strides)
        dilations = [options.get(f"dilation_{side}_factor") or 1 for side in "dhw"]
        if any(step != 1 for step in dilations):
            traits["dilation"] = _steps(dilations)
    return traits


def shape_traits(
    op: str, options: Mapping[str, Any], custom_options: bytes, inputs: TensorKinds, outputs: TensorKinds
) -> Traits:
    """Traits that follow from shapes and constants, by name; they overrule those that options are.

    Args:
        op: The op.
        options: Its options.
        custom_options: A custom op's options.
        inputs: Its input tensors, None where absent; a folded float16 constant stands for its DEQUANTIZE.
        outputs: Its output tensors.
    """
    traits: Traits = {}
    # A stranger's node may lack what its op has to have.
    inputs, outputs = inputs or (None,), outputs or (None,)
    main = inputs[0]
    if main is not None and not main.is_constant and len(main.shape) > 1:
        traits["batch"] = "1" if main.shape[0] == 1 else "n"
    if op in _BINARY:
        _broadcast(inputs, outputs, traits)
    elif op in _CONVOLUTION or op in _POOL:
        _window(op, options, inputs, traits)
    elif op in _REDUCE:
        _axes(_value(inputs, 1), main, traits)
    elif op in _PAD:
        _padding(_value(inputs, 1), traits)
    elif op in _AXIS_OPTION:
        _axis(options.get("axis", 0), outputs[0] if op in ("PACK", "ONE_HOT") else main, traits)
    elif op in _AXIS_INPUT:
        axis_at, of = _AXIS_INPUT[op]
        axis = _value(inputs, axis_at)
        if axis is not None and axis.size == 1:
            subject = outputs[0] if op == "EXPAND_DIMS" else inputs[of] if of < len(inputs) else None
            _axis(int(axis.reshape(-1)[0]), subject, traits)
    elif op in _SPECIAL:
        _SPECIAL[op](options, inputs, outputs, traits)
    elif custom_options:
        traits["custom_options"] = _bytes_trait(custom_options)
    return traits


def _value(inputs: TensorKinds, position: int) -> Any:
    """The value of a parameter as an array, or None where the input is not one or not there."""
    kind = inputs[position] if position < len(inputs) else None
    if kind is None or kind.data is None:
        return None
    return np.frombuffer(kind.data, kind.dtype).reshape(kind.shape)


def _option(name: str, value: Any) -> str:
    if name == "beta":
        return "1" if value == 1 else "other"
    if name == "block_size":
        return "1" if value == 1 else "n"
    if isinstance(value, bool):
        return "yes"
    if isinstance(value, (list, tuple)):
        return "x".join(str(item) for item in value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, bytes):
        return _bytes_trait(value)
    return str(value)


def _bytes_trait(value: bytes) -> str:
    # Custom options are opaque: the same bytes are the same options, other bytes are not measured.
    return bytes(value).hex() if len(value) <= 32 else f"{len(value)}b-{hash_bytes(value)}"


def hash_bytes(value: bytes) -> str:
    """A short name for a byte string."""
    import hashlib

    return hashlib.sha256(value).hexdigest()[:16]


def pattern(shape: Sequence[int], out: Sequence[int]) -> str:
    """How a shape broadcasts to another: a mark for each axis of `out`, `=` equal, `1` stretched, `-` missing.

    `same` where nothing is stretched or missing, `scalar` for a single element.
    """
    missing = len(out) - len(shape)
    if missing == 0 and tuple(shape) == tuple(out):
        return "same"
    size = 1
    for dim in shape:
        size *= dim
    if size == 1:
        return "scalar"
    if missing < 0:
        return "longer"
    marks = ["-"] * missing
    for dim, target in zip(shape, out[missing:], strict=True):
        marks.append("=" if dim == target else "1" if dim == 1 else "?")
    return "".join(marks)


def _broadcast(inputs: TensorKinds, outputs: TensorKinds, traits: Traits) -> None:
    out = outputs[0]
    if out is None:
        return
    patterns = [pattern(tensor.shape, out.shape) for tensor in inputs if tensor is not None]
    traits["operands"] = "/".join(patterns)


def _window(op: str, options: Mapping[str, Any], inputs: TensorKinds, traits: Traits) -> None:
    if op in _POOL:
        kernel = [options.get("filter_height") or 1, options.get("filter_width") or 1]
        traits["kernel"] = "1" if max(kernel) == 1 else "n"
        source = inputs[0]
        if source is not None and len(source.shape) == 4 and kernel == list(source.shape[1:3]):
            traits["kernel"] = "whole"
        return
    source, weights = (inputs[2], inputs[1]) if op == "TRANSPOSE_CONV" and len(inputs) > 2 else (inputs[0], None)
    if weights is None:
        weights = inputs[1] if len(inputs) > 1 else None
    if source is None or weights is None or len(weights.shape) != 4 or len(source.shape) != 4:
        return
    traits["kernel"] = "1" if weights.shape[1] == weights.shape[2] == 1 else "n"
    traits["batch"] = "1" if source.shape[0] == 1 else "n"
    if op == "CONV_2D":
        traits["groups"] = "1" if weights.shape[3] == source.shape[3] else "n"
    elif op == "DEPTHWISE_CONV_2D":
        traits["multiplier"] = "1" if weights.shape[3] == source.shape[3] else "n"


def _steps(steps: Sequence[int]) -> str:
    if len(set(steps)) == 1:
        return "1" if steps[0] == 1 else "2" if steps[0] == 2 else "n"
    return "uneven"


def _axes(value: Any, main: TensorKind | None, traits: Traits) -> None:
    if value is None or main is None:
        return
    rank = len(main.shape)
    axes = sorted({int(axis) + rank if axis < 0 else int(axis) for axis in value.reshape(-1)})
    traits["axes"] = "".join(map(str, axes)) or "none"


def _axis(axis: int, subject: TensorKind | None, traits: Traits) -> None:
    rank = len(subject.shape) if subject is not None else 0
    traits["axis"] = str(axis + rank if axis < 0 else axis)


def _padding(value: Any, traits: Traits) -> None:
    if value is None or value.ndim != 2:
        return
    axes = "".join(str(index) for index, pair in enumerate(value) if any(pair))
    traits["axes"] = axes or "none"
    traits["rows"] = str(len(value))


def _transpose(options: Mapping[str, Any], inputs: TensorKinds, outputs: TensorKinds, traits: Traits) -> None:
    value = _value(inputs, 1)
    if value is not None:
        traits["perm"] = "".join(str(int(axis)) for axis in value.reshape(-1))


def _slice(options: Mapping[str, Any], inputs: TensorKinds, outputs: TensorKinds, traits: Traits) -> None:
    source, out = inputs[0], outputs[0]
    if source is not None and out is not None and len(source.shape) == len(out.shape):
        cut = "".join(str(i) for i, (a, b) in enumerate(zip(source.shape, out.shape, strict=True)) if a != b)
        traits["axes"] = cut or "none"
    begin, size = _value(inputs, 1), _value(inputs, 2)
    if begin is not None and size is not None:
        traits["to_end"] = "yes" if (size.reshape(-1) == -1).any() else "no"


def _strided_slice(options: Mapping[str, Any], inputs: TensorKinds, outputs: TensorKinds, traits: Traits) -> None:
    source = inputs[0]
    begin, end, strides = _value(inputs, 1), _value(inputs, 2), _value(inputs, 3)
    for name in ("shrink_axis_mask", "new_axis_mask"):
        mask = options.get(name) or 0
        if mask:
            traits[name] = "".join(str(bit) for bit in range(mask.bit_length()) if mask >> bit & 1)
    if source is None or begin is None or end is None or strides is None:
        return
    shape, axes, ends = source.shape, [], set[str]()
    begin_mask, end_mask = options.get("begin_mask") or 0, options.get("end_mask") or 0
    steps = [int(step) for step in strides.reshape(-1)]
    traits["entries"] = str(len(steps))
    for axis, (first, last) in enumerate(zip(begin.reshape(-1), end.reshape(-1), strict=False)):
        if axis >= len(shape):
            break
        dim = shape[axis]
        low = 0 if begin_mask >> axis & 1 else int(first)
        high = dim if end_mask >> axis & 1 else int(last)
        if low != 0 or high != dim:
            axes.append(str(axis))
        ends.add(
            "masked" if end_mask >> axis & 1 else "negative" if high < 0 else "beyond" if high > dim else "plain"
        )
        if low < 0:
            ends.add("negative_begin")
    traits["axes"] = "".join(axes) or "none"
    traits["ends"] = "+".join(sorted(ends))
    stepped = "".join(str(axis) for axis, step in enumerate(steps) if step != 1)
    if stepped:
        traits["stepped"] = stepped + ("-" if min(steps) < 0 else "")


def _reshape(options: Mapping[str, Any], inputs: TensorKinds, outputs: TensorKinds, traits: Traits) -> None:
    source, out = inputs[0], outputs[0]
    if source is None or out is None or not source.shape or not out.shape:
        return
    traits["keeps"] = "batch" if source.shape[0] == out.shape[0] else "none"
    if len(inputs) == 1:
        traits["shape"] = "option"


def _fully_connected(
    options: Mapping[str, Any], inputs: TensorKinds, outputs: TensorKinds, traits: Traits
) -> None:
    source, weights = inputs[0], inputs[1] if len(inputs) > 1 else None
    if source is None or weights is None or not source.shape or not weights.shape:
        return
    traits["flattens"] = "no" if source.shape[-1] == weights.shape[-1] else "yes"


def _batch_matmul(options: Mapping[str, Any], inputs: TensorKinds, outputs: TensorKinds, traits: Traits) -> None:
    if len(inputs) < 2 or inputs[0] is None or inputs[1] is None:
        return
    left, right = tuple(inputs[0].shape[:-2]), tuple(inputs[1].shape[:-2])
    traits["batches"] = "equal" if left == right else "broadcast"


def _resize(options: Mapping[str, Any], inputs: TensorKinds, outputs: TensorKinds, traits: Traits) -> None:
    source, out = inputs[0], outputs[0]
    if source is None or out is None or len(source.shape) != 4 or len(out.shape) != 4:
        return
    pairs = list(zip(source.shape[1:3], out.shape[1:3], strict=True))
    up, down = any(b > a for a, b in pairs), any(b < a for a, b in pairs)
    traits["scale"] = "mixed" if up and down else "up" if up else "down" if down else "same"


def _tile(options: Mapping[str, Any], inputs: TensorKinds, outputs: TensorKinds, traits: Traits) -> None:
    value = _value(inputs, 1)
    if value is not None:
        traits["axes"] = "".join(str(i) for i, times in enumerate(value.reshape(-1)) if times != 1) or "none"


def _composite(options: Mapping[str, Any], inputs: TensorKinds, outputs: TensorKinds, traits: Traits) -> None:
    attributes = options.get("composite_attributes")
    if attributes is not None and len(attributes):
        traits["attributes"] = _bytes_trait(bytes(bytearray(attributes)))


def _squeeze(options: Mapping[str, Any], inputs: TensorKinds, outputs: TensorKinds, traits: Traits) -> None:
    source = inputs[0]
    dims = options.get("squeeze_dims")
    if source is not None and dims is not None and len(dims):
        traits["axes"] = "".join(str(int(dim) % max(len(source.shape), 1)) for dim in dims)


_SPECIAL: dict[str, Callable[[Mapping[str, Any], TensorKinds, TensorKinds, Traits], None]] = {
    "TRANSPOSE": _transpose,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "RESHAPE": _reshape,
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _batch_matmul,
    "RESIZE_BILINEAR": _resize,
    "RESIZE_NEAREST_NEIGHBOR": _resize,
    "TILE": _tile,
    "STABLEHLO_COMPOSITE": _composite,
    "SQUEEZE": _squeeze,
}
