"""A model with the rounding noise of a precision built into it: run it a few times to see what is to be expected.

Each op that computes gets, on its output y, the noise that arithmetic of unit roundoff u leaves there:

    y' = y + n * (s * u * |y| + 0.25 * u * sqrt(K) * rms(y)),    n normal with deviation 1, per element

The first term is the rounding of the stored result (and of a function such as exp). The second is what
summing K products one after the other leaves: each addition rounds with a relative error of up to u, and
independent errors add like a random walk (Higham and Mary, "A new approach to probabilistic rounding error
analysis", 2019), so it grows with sqrt(K) and with the size of the partial sums, for which the channel's root
mean square of y (before a fused activation) stands. The factor 0.25 was measured: with it, the real fp16 GPU
and the differences between two fp32 CPU kernels both come out near once the prediction (docs/verdict.md).

The noise is made inside the graph by RANDOM_STANDARD_NORMAL, so that each invocation is a new draw, any lane
that has the op can run it, and the file grows by kilobytes only.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import AssayError
from assay.graph import Buffer, Model, Node, Signature, SignatureTensor, Subgraph, Tensor


@dataclass(frozen=True)
class Precision:
    """An arithmetic, by what it leaves of a number.

    Attributes:
        name: `fp32`, `fp16`, `bf16` or `int8`.
        sums: Unit roundoff of the accumulator.
        stored: Unit roundoff of stored activations.
        weights: How constants are stored: `float32`, `float16`, `bfloat16`, or `int8` (per channel, symmetric).
        steps: Activations in steps of max |y| / 127, as an integer lane stores them.
        nearest: int8 weights are rounded to the nearest step, as a real lane does, not at random.
        cast: Activations really pass through float16, so that its range (65504) and subnormals show too.
    """

    name: str
    sums: float
    stored: float
    weights: str
    steps: bool = False
    cast: bool = False
    nearest: bool = False


PRECISIONS: dict[str, Precision] = {
    "fp32": Precision("fp32", sums=2.0**-24, stored=2.0**-24, weights="float32"),
    "fp16": Precision("fp16", sums=2.0**-11, stored=2.0**-11, weights="float16", cast=True),
    # Hardware that stores bfloat16 adds up in float32.
    "bf16": Precision("bf16", sums=2.0**-24, stored=2.0**-8, weights="bfloat16"),
    "int8": Precision("int8", sums=2.0**-24, stored=2.0**-24, weights="int8", steps=True),
    "int8_weights": Precision("int8_weights", sums=2.0**-24, stored=2.0**-24, weights="int8"),
}

SUM_FACTOR = 0.25
_STORE_FACTOR = 0.4
"""Deviation of a rounding error, in units of u * |y|: uniform between half-way points, 0.29 to 0.58."""
_FUNCTION_FACTOR = 2.0
"""Accelerators' exp, tanh, sqrt and division are good to a few units in the last place."""
_UNIT_RANGE_FLOOR = 2.0**-4
"""In units of u: outputs of LOGISTIC and SOFTMAX live on the scale of 1, whatever their own size."""
_STEP_DEVIATION = 0.3
"""Deviation, in quantization steps, of a result that another rounding rule would have given: sqrt(1/12)."""

_HYBRID_NOISE = 0.01
"""A float op with int8 weights: kernels round its float input to int8 on the way, each in its own manner, or not
at all. With 4 deviations in 127 steps, rounding leaves 4 / 127 / sqrt(12) of the input's size on the output."""

_FUNCTIONS = frozenset(
    {
        *("ATAN2", "COS", "CUMSUM", "DIV", "ELU", "EXP", "GELU", "HARD_SWISH", "L2_NORMALIZATION"),
        *("LOCAL_RESPONSE_NORMALIZATION", "LOG", "LOGISTIC", "LOG_SOFTMAX", "POW", "RSQRT", "SIN", "SOFTMAX"),
        *("SQRT", "TANH"),
    }
)
_UNIT_RANGE = frozenset({"LOGISTIC", "SOFTMAX"})
_EXACT = frozenset(
    {
        *("ABS", "ARG_MAX", "ARG_MIN", "ASSIGN_VARIABLE", "BATCH_TO_SPACE_ND", "BITCAST", "BROADCAST_TO", "CALL"),
        *("CALL_ONCE", "CEIL", "CONCATENATION", "DENSIFY", "DEPTH_TO_SPACE", "DEQUANTIZE", "DILATE"),
        *("DYNAMIC_UPDATE_SLICE", "EMBEDDING_LOOKUP", "EQUAL", "EXPAND_DIMS", "FILL", "FLOOR", "GATHER"),
        *("GATHER_ND", "GREATER", "GREATER_EQUAL", "IF", "LESS", "LESS_EQUAL", "LOGICAL_AND", "LOGICAL_NOT"),
        *("LOGICAL_OR", "MATRIX_DIAG", "MATRIX_SET_DIAG", "MAXIMUM", "MAX_POOL_2D", "MINIMUM", "MIRROR_PAD"),
        *("NEG", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "NOT_EQUAL", "ONE_HOT", "PACK", "PAD"),
        *("PADV2", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "RANGE", "RANK", "READ_VARIABLE", "REDUCE_MAX"),
        *("REDUCE_MIN", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "RESHAPE", "RESIZE_NEAREST_NEIGHBOR"),
        *("REVERSE_SEQUENCE", "REVERSE_V2", "ROUND", "SCATTER_ND", "SELECT", "SELECT_V2", "SHAPE", "SIGN"),
        *("SLICE", "SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH", "SPARSE_TO_DENSE", "SPLIT", "SPLIT_V", "SQUEEZE"),
        *(
            "STABLEHLO_COMPOSITE",
            "STRIDED_SLICE",
            "TILE",
            "TOPK_V2",
            "TRANSPOSE",
            "UNIQUE",
            "UNPACK",
            "VAR_HANDLE",
        ),
        *("WHERE", "WHILE", "ZEROS_LIKE"),
    }
)
"""Ops that move or choose values: what they put out was rounded before. A body (IF, WHILE, composites) gets its
noise inside."""

_ACTIVATIONS = {"RELU": "RELU", "RELU6": "RELU6", "RELU_N1_TO_1": "RELU_N1_TO_1", "TANH": "TANH"}
_WEIGHT_CHANNELS = {
    "CONV_2D": 0,
    "CONV_3D": 4,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 0,
    "TRANSPOSE_CONV": 0,
    "BATCH_MATMUL": -1,
    "Convolution2DTransposeBias": 0,
}
"""Op -> axis of input 1 along which int8 weights have a scale each."""


def noisy(model: Model, precision: Precision, seed: int, *, resized: bool = False) -> Model:
    """A copy of a model whose every invocation carries another draw of a precision's rounding noise.

    Args:
        model: The model; it is not changed, and buffers are shared with it.
        precision: The arithmetic to imitate.
        seed: Seed of the noise and of weights' stochastic rounding.
        resized: True if shapes are not those in the file, so that the noise takes its shape at run time.

    Returns:
        A model with the same signatures, inputs and outputs.
    """
    copy = dataclasses.replace(
        model,
        path=None,
        subgraphs=[_copied(subgraph) for subgraph in model.subgraphs],
        signatures=[
            dataclasses.replace(s, inputs=list(s.inputs), outputs=list(s.outputs)) for s in model.signatures
        ],
        buffers=list(model.buffers),
    )
    _round_weights(copy, precision, seed)
    for subgraph in copy.subgraphs:
        dynamic = resized or any(tensor.is_dynamic for tensor in subgraph.tensors)
        _Inserter(copy, subgraph, precision, seed, dynamic).run()
    return copy


def _copied(subgraph: Subgraph) -> Subgraph:
    return dataclasses.replace(
        subgraph,
        tensors=[dataclasses.replace(tensor) for tensor in subgraph.tensors],
        nodes=[
            dataclasses.replace(
                node, inputs=list(node.inputs), outputs=list(node.outputs), options=dict(node.options)
            )
            for node in subgraph.nodes
        ],
        inputs=list(subgraph.inputs),
        outputs=list(subgraph.outputs),
    )


def summands(subgraph: Subgraph, node: Node) -> int:
    """How many products one output element sums up; 1 for an op that sums nothing.

    A pooling or mean over many elements counts as 4: everyone adds those up pairwise or in float32, since one
    after the other would not work at all in fp16.
    """

    def shape(position: int) -> tuple[int, ...]:
        index = node.inputs[position] if position < len(node.inputs) else -1
        return subgraph.tensors[index].shape if index >= 0 else ()

    match node.op:
        case "CONV_2D":
            return max(1, math.prod(shape(1)[1:]))
        case "TRANSPOSE_CONV" | "Convolution2DTransposeBias":
            # With a stride of s, an output element sees 1 in s * s of the kernel's places; 2 is the usual one.
            return max(1, math.prod(shape(1)[1:]) // 4)
        case "DEPTHWISE_CONV_2D":
            return max(1, math.prod(shape(1)[1:3]))
        case "CONV_3D" | "CONV_3D_TRANSPOSE":
            return max(1, math.prod(shape(1)[:4]))
        case "FULLY_CONNECTED":
            return _last(shape(1))
        case "BATCH_MATMUL":
            return _last(shape(0))
        case "SVDF" | "UNIDIRECTIONAL_SEQUENCE_LSTM" | "UNIDIRECTIONAL_SEQUENCE_RNN" | "RNN" | "LSTM":
            return _last(shape(0))
        case "MEAN" | "SUM" | "AVERAGE_POOL_2D" | "CUMSUM" | "SEGMENT_SUM":
            return 4
        case _:
            return 1


def _last(shape: tuple[int, ...]) -> int:
    return max((1, *shape[-1:]))


def natural_scales(model: Model, signature: Signature) -> list[float | None]:
    """For each output, the scale that its last function gives it: 1 for LOGISTIC, SOFTMAX and TANH, else None."""
    subgraph = model.subgraphs[signature.subgraph]
    producers = {tensor: node for node in subgraph.nodes for tensor in node.outputs}
    scales: list[float | None] = []
    for entry in signature.outputs:
        node = producers.get(entry.tensor.index)
        for _ in subgraph.nodes:
            if node is None or node.op not in _EXACT or not node.inputs:
                break
            node = producers.get(node.inputs[0])
        scales.append(1.0 if node is not None and node.op in (*_UNIT_RANGE, "TANH") else None)
    return scales


class _Inserter:
    """Puts the noise into one subgraph."""

    def __init__(self, model: Model, subgraph: Subgraph, precision: Precision, seed: int, dynamic: bool) -> None:
        self.model, self.subgraph, self.precision = model, subgraph, precision
        self.seed, self.dynamic = seed, dynamic
        self.nodes: list[Node] = []
        self.replaced: dict[int, int] = {}
        self.draws = 0

    def run(self) -> None:
        for tensor in self.subgraph.inputs:
            if self._is_float(tensor):
                self.replaced[tensor] = self._stored(tensor, 0.0, 0.0, 0.0)
        for node in self.subgraph.nodes:
            node.inputs = [self.replaced.get(tensor, tensor) for tensor in node.inputs]
            self.nodes.append(node)
            if node.op not in _EXACT:
                self._after(node)
        for index, node in enumerate(self.nodes):
            node.index = index
        self.subgraph.nodes = self.nodes
        self.subgraph.outputs = [self.replaced.get(tensor, tensor) for tensor in self.subgraph.outputs]
        for signature in self.model.signatures:
            if signature.subgraph == self.subgraph.index:
                signature.inputs = [self._entry(entry, {}) for entry in signature.inputs]
                signature.outputs = [self._entry(entry, self.replaced) for entry in signature.outputs]

    def _entry(self, entry: SignatureTensor, replaced: dict[int, int]) -> SignatureTensor:
        index = replaced.get(entry.tensor.index, entry.tensor.index)
        return SignatureTensor(entry.name, self.subgraph.tensors[index])

    def _is_float(self, tensor: int) -> bool:
        return tensor >= 0 and self.subgraph.tensors[tensor].dtype == "float32"

    def _after(self, node: Node) -> None:
        """Add the noise of one computing node to its outputs."""
        for tensor in list(node.outputs):
            if self._is_float(tensor):
                self.replaced[tensor] = self._after_float(node, tensor)
            elif tensor >= 0 and self._steps_of(tensor) and node.op != "QUANTIZE":
                self.replaced[tensor] = self._stepped(tensor)

    def _after_float(self, node: Node, tensor: int) -> int:
        precision = self.precision
        count = summands(self.subgraph, node)
        relative = precision.sums * _FUNCTION_FACTOR if node.op in _FUNCTIONS else 0.0
        of_rms = SUM_FACTOR * precision.sums * math.sqrt(count) if count > 1 else 0.0
        if self._is_hybrid(node):
            of_rms += _HYBRID_NOISE
        constant = precision.sums * _UNIT_RANGE_FLOOR if node.op in _UNIT_RANGE else 0.0
        if precision.steps:
            of_rms += _STEP_DEVIATION * 3.0 / 127.0  # The largest value is near three deviations.
        fused = node.options.get("fused_activation_function")
        activation = _ACTIVATIONS.get(str(fused))
        if activation is not None:
            node.options["fused_activation_function"] = "NONE"
        result = self._stored(tensor, relative, of_rms, constant)
        if activation is not None:
            result = self._add(activation, [result], self._like(tensor))
        return result

    def _stored(self, tensor: int, relative: float, of_rms: float, constant: float) -> int:
        """The tensor with its noise, as it is read back from where the lane keeps it."""
        coarse = self.precision.stored > 2.0**-24
        if not self.precision.cast and (coarse or relative or of_rms or constant):
            relative += self.precision.stored * _STORE_FACTOR
        result = tensor
        if relative or of_rms or constant:
            result = self._noised(tensor, relative, of_rms, constant)
        if self.precision.cast:
            types = [{"in_data_type": "float32", "out_data_type": "float16"}]
            types.append({"in_data_type": "float16", "out_data_type": "float32"})
            half = self._add("CAST", [result], self._like(tensor, "float16"), "CastOptions", **types[0])
            result = self._add("CAST", [half], self._like(tensor), "CastOptions", **types[1])
        return result

    def _is_hybrid(self, node: Node) -> bool:
        """True for an op that multiplies float activations with integer weights."""
        if node.op not in _WEIGHT_CHANNELS or len(node.inputs) < 2 or node.inputs[1] < 0:
            return False
        weights = self.subgraph.tensors[node.inputs[1]]
        return weights.dtype in ("int8", "uint8", "int4", "int2", "uint4") and self._is_float(node.inputs[0])

    def _steps_of(self, tensor: int) -> bool:
        """True for an integer activation that stands for real numbers."""
        entry = self.subgraph.tensors[tensor]
        return (
            entry.dtype in ("int8", "uint8", "int16")
            and entry.quantization is not None
            and len(entry.quantization.scales) == 1
        )

    def _stepped(self, tensor: int) -> int:
        """An integer activation as another rounding rule might give it: dequantized, moved, quantized again."""
        entry = self.subgraph.tensors[tensor]
        assert entry.quantization is not None
        real = self._add("DEQUANTIZE", [tensor], self._like(tensor, "float32"), "DequantizeOptions")
        step = self._constant(np.float32(entry.quantization.scales[0] * _STEP_DEVIATION))
        moved = self._sum(real, self._product(self._draw(tensor), step))
        return self._add("QUANTIZE", [moved], self._like(tensor, entry.dtype), "QuantizeOptions")

    def _noised(self, tensor: int, relative: float, of_rms: float, constant: float) -> int:
        """`tensor` plus noise of deviation relative * |y| + of_rms * rms(y) + constant."""
        shape = self.subgraph.tensors[tensor].shape
        if not shape:
            relative, of_rms = relative + of_rms, 0.0
        size = self._product(tensor, self._constant(np.float32(relative)))
        if of_rms:
            size = self._sum(
                size, self._product(self._root_mean_square(tensor), self._constant(np.float32(of_rms)))
            )
        elif constant:
            size = self._sum(size, self._constant(np.float32(constant)))
        return self._sum(tensor, self._product(self._draw(tensor), size))

    def _root_mean_square(self, tensor: int) -> int:
        """Per channel where there are enough elements to tell, else of the whole tensor."""
        shape = self.subgraph.tensors[tensor].shape
        per_channel = len(shape) > 1 and math.prod(shape[:-1]) >= 64
        axes = list(range(len(shape) - 1 if per_channel else len(shape)))
        reduced = [1] * (len(shape) - 1) + [_last(shape) if per_channel else 1]
        mean = self._new("float32", tuple(reduced))
        square = self._product(tensor, tensor)
        self._add(
            "MEAN", [square, self._constant(np.array(axes, np.int32))], mean, "ReducerOptions", keep_dims=True
        )
        return self._add("SQRT", [mean], self._new("float32", tuple(reduced)))

    def _draw(self, tensor: int) -> int:
        """Normal numbers of a tensor's shape."""
        shape = self.subgraph.tensors[tensor].shape
        if self.dynamic and shape:
            spelled = self._new("int32", (len(shape),))
            self._add("SHAPE", [tensor], spelled, "ShapeOptions", out_type="int32")
        else:
            spelled = self._constant(np.array(shape, np.int32))
        self.draws += 1
        seeds = {"seed": self.seed % 2**31 + 1, "seed2": self.subgraph.index * 1_000_003 + self.draws}
        return self._add(
            "RANDOM_STANDARD_NORMAL", [spelled], self._like(tensor, "float32"), "RandomOptions", **seeds
        )

    def _product(self, a: int, b: int) -> int:
        return self._add("MUL", [a, b], self._wider(a, b), "MulOptions", fused_activation_function="NONE")

    def _sum(self, a: int, b: int) -> int:
        options = {"fused_activation_function": "NONE", "pot_scale_int16": True}
        return self._add("ADD", [a, b], self._wider(a, b), "AddOptions", **options)

    def _wider(self, a: int, b: int) -> int:
        """A new tensor of the shape that broadcasting the two gives: one of theirs, in what is built here."""
        first, second = self.subgraph.tensors[a], self.subgraph.tensors[b]
        wider = len(first.shape) >= len(second.shape) and first.elements >= second.elements
        return self._like(a if wider else b)

    def _like(self, tensor: int, dtype: str = "float32") -> int:
        model = self.subgraph.tensors[tensor]
        quantization = model.quantization if dtype == model.dtype else None
        return self._new(dtype, model.shape, model.shape_signature, quantization)

    def _new(self, dtype: str, shape: tuple[int, ...], signature: Any = None, quantization: Any = None) -> int:
        index = len(self.subgraph.tensors)
        self.subgraph.tensors.append(
            Tensor(index, f"noise/{index}", dtype, shape, signature, quantization, has_rank=True)
        )
        return index

    def _constant(self, value: NDArray[Any] | np.generic) -> int:
        array = np.asarray(value)
        index = self._new(str(array.dtype), array.shape)
        self.model.buffers.append(Buffer(array.tobytes()))
        tensor = self.subgraph.tensors[index]
        tensor.buffer, tensor.is_constant = len(self.model.buffers) - 1, True
        return index

    def _add(
        self, op: str, inputs: list[int], output: int, options_type: str | None = None, **options: Any
    ) -> int:
        version = 2 if op in ("DEQUANTIZE", "QUANTIZE") else 1
        self.nodes.append(Node(0, op, version, inputs, [output], options, options_type))
        return output


def _round_weights(model: Model, precision: Precision, seed: int) -> None:
    """Store the constants at the precision; int8 only where an op has a scale for each channel."""
    if precision.weights == "float32":
        return
    rounded: dict[tuple[int, int | None], int] = {}
    for subgraph in model.subgraphs:
        sources = _constant_sources(subgraph)
        for node in subgraph.nodes:
            if node.op in ("DENSIFY", "DEQUANTIZE"):
                continue
            for position, index in enumerate(node.inputs):
                source = sources.get(index)
                channels = _WEIGHT_CHANNELS.get(node.op) if position == 1 else None
                to_int8 = precision.weights == "int8"
                if source is None or (to_int8 and channels is None):
                    continue
                # Constants are shared between nodes: each is rounded once.
                key = (source.buffer, channels if to_int8 else None)
                if key not in rounded:
                    values = _rounded(model.data(source), precision, channels, seed + source.buffer)
                    model.buffers.append(Buffer(values.tobytes()))
                    rounded[key] = len(model.buffers) - 1
                node.inputs[position] = len(subgraph.tensors)
                subgraph.tensors.append(
                    Tensor(
                        *(len(subgraph.tensors), f"rounded/{source.name}", "float32", source.shape),
                        buffer=rounded[key],
                        is_constant=True,
                    )
                )


def _constant_sources(subgraph: Subgraph) -> dict[int, Tensor]:
    """Tensors that hold float constants, by index: the constants, and those a DEQUANTIZE or DENSIFY unfolds."""
    floats = ("float32", "float16")
    found = {t.index: t for t in subgraph.tensors if t.is_constant and t.dtype in floats}
    for node in subgraph.nodes:
        if node.op in ("DENSIFY", "DEQUANTIZE") and node.inputs[0] in found:
            found[node.outputs[0]] = found[node.inputs[0]]
    return {index: tensor for index, tensor in found.items() if subgraph.tensors[index].dtype == "float32"}


def _rounded(values: NDArray[Any], precision: Precision, channels: int | None, seed: int) -> NDArray[np.float32]:
    wide = np.asarray(values, dtype=np.float32)
    match precision.weights:
        case "float16":
            # A constant beyond the range is a mask's minus infinity: clamped, as the engines do.
            return np.clip(wide, -65504.0, 65504.0).astype(np.float16).astype(np.float32)
        case "bfloat16":
            bits = np.ascontiguousarray(wide).view(np.uint32)
            even = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
            return (even & np.uint32(0xFFFF0000)).view(np.float32)
        case "int8":
            return _in_int8_steps(wide, channels, None if precision.nearest else seed)
        case _:
            raise AssayError(f"weights cannot be rounded to {precision.weights}")


def _in_int8_steps(values: NDArray[np.float32], channels: int | None, seed: int | None) -> NDArray[np.float32]:
    """Symmetric per-channel int8, to the nearest step, or with a seed up or down at random (unbiased)."""
    if channels is None or values.ndim == 0:
        return values
    axis = channels % values.ndim
    others = tuple(a for a in range(values.ndim) if a != axis)
    scale = np.abs(values).max(axis=others, keepdims=True) / np.float32(127)
    scale = np.where(scale > 0, scale, np.float32(1))
    if seed is None:
        return (np.rint(values / scale) * scale).astype(np.float32)
    raw = np.random.Philox(key=seed % 2**64).random_raw(values.size) >> np.uint64(40)
    up = (raw.astype(np.float32) * np.float32(2.0**-24)).reshape(values.shape)
    return (np.clip(np.floor(values / scale + up), -127, 127) * scale).astype(np.float32)
