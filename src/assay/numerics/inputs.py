"""Seeded inputs: the same seed gives the same bytes on every machine and with every NumPy version.

Only three things are used that stay fixed: the raw 64-bit stream of the Philox bit generator (NumPy's
NEP 19 promises bit generators' streams, not `Generator`'s methods), integer arithmetic, and single IEEE 754
operations (+, -, *, /), which are correctly rounded everywhere. No logarithm, sine or matrix product: their
last bits differ between machines. The normal distribution is therefore the sum of 12 uniforms minus 6
(Irwin-Hall, variance 1, bounded by 6), computed in integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import AssayError
from assay.numerics.ranges import index_bound

if TYPE_CHECKING:
    from assay.graph import Model, Signature, SignatureTensor, Tensor

KINDS: tuple[str, ...] = ("uniform", "normal", "small", "large", "zeros", "structured")
"""Kinds of seeded inputs.

`uniform` lies in [0, 1); `normal` has mean 0 and deviation 1; `small` is normal * 2**-10; `large` is
normal * 16; `zeros` is all zeros; `structured` is ramps along each axis with a box of inverted values, so
that every place of the tensor is told from every other: moved, transposed or repeated data show.
"""

MAX_INPUT_BYTES = 4 * 2**30
"""The largest single input that is made: a shape from a stranger's file must not fill the memory."""

_SMALL = 2.0**-10
_LARGE = 16.0
_UNINDEXED_INTEGERS = 8
"""Integers that nothing uses as an index are drawn from 0..7: valid for counts, types and positions alike."""


def resolve_shapes(
    signature: Signature, given: Mapping[str, Sequence[int]] | None = None
) -> dict[str, tuple[int, ...]]:
    """A fixed shape for every input: the file's own, with dynamic dimensions as given, else 1.

    Args:
        signature: The signature to run.
        given: Input name -> whole shape, for inputs with dynamic dimensions.

    Returns:
        Input name -> shape, for every input in order.

    Raises:
        AssayError: An unknown name, another rank, a size that the file fixes otherwise, a size below 1, or
            more than `MAX_INPUT_BYTES` bytes.
    """
    given = given or {}
    tensors = {entry.name: entry.tensor for entry in signature.inputs}
    for name in given:
        if name not in tensors:
            raise AssayError(f"the model has no input {name!r}", fix=f"its inputs are {_listed(tensors)}")
    return {name: _resolve(name, tensor, given.get(name)) for name, tensor in tensors.items()}


def _resolve(name: str, tensor: Tensor, given: Sequence[int] | None) -> tuple[int, ...]:
    declared = tensor.shape_signature or tensor.shape
    if given is None:
        shape = tuple(1 if size < 0 else size for size in declared)
    else:
        shape = tuple(int(size) for size in given)
        if len(shape) != len(declared):
            raise AssayError(
                f"shape {_spelled(shape)} for input {name!r} has {len(shape)} dimensions, "
                f"the file has {len(declared)}",
                fix=f"give a shape like {_spelled(declared)}",
            )
        for axis, (size, fixed) in enumerate(zip(shape, declared, strict=True)):
            if fixed >= 0 and size != fixed:
                raise AssayError(
                    f"dimension {axis} of input {name!r} is fixed at {fixed} in the file, {size} was asked for",
                    fix=f"only the dimensions shown as ? can be chosen: {_spelled(declared)}",
                )
            if fixed < 0 and size < 1:
                raise AssayError(f"dimension {axis} of input {name!r} must be 1 or more, not {size}")
    elements = math.prod(shape)
    if elements * _item_bytes(tensor.dtype) > MAX_INPUT_BYTES:
        raise AssayError(f"input {name!r} with shape {_spelled(shape)} is larger than 4 GiB")
    return shape


def make_inputs(
    model: Model | None, signature: Signature, shapes: Mapping[str, tuple[int, ...]], kind: str, seed: int
) -> list[NDArray[Any]]:
    """One set of inputs for a signature.

    Integer inputs that feed a lookup stay inside its table; quantized inputs cover their range around the
    zero point; inputs named as masks are 0 or 1, the first of each row 1 (a row that masks all is undefined
    in a softmax); booleans are drawn evenly.

    Args:
        model: The graph, which tells what an integer input is used for; None where there is none.
        signature: The signature to run.
        shapes: Input name -> shape, from `resolve_shapes`.
        kind: One of `KINDS`.
        seed: Any integer; the same seed gives the same bytes everywhere.

    Returns:
        One C-contiguous array for each input, in the signature's order, little-endian, in the input's dtype.

    Raises:
        AssayError: An unknown kind, or an input of a type that cannot be made (string, resource, variant).
    """
    if kind not in KINDS:
        raise AssayError(f"there is no kind of inputs {kind!r}", fix=f"choose from {', '.join(KINDS)}")
    arrays: list[NDArray[Any]] = []
    for position, entry in enumerate(signature.inputs):
        stream = _Stream(seed, KINDS.index(kind), position)
        bound = None if model is None else index_bound(model, signature.subgraph, entry.tensor.index)
        arrays.append(_make(entry, shapes[entry.name], kind, stream, bound))
    return arrays


class _Stream:
    """Random numbers of one input, from the raw Philox stream."""

    def __init__(self, seed: int, kind: int, position: int) -> None:
        key = np.array([seed % 2**64, kind << 32 | position], dtype=np.uint64)
        self._bits = np.random.Philox(key=key)

    def integers(self, shape: tuple[int, ...], high: int) -> NDArray[np.int64]:
        """Integers from 0 to high - 1; uneven by less than high / 2**53."""
        return np.floor(self.uniform(shape) * high).astype(np.int64)

    def uniform(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Multiples of 2**-24 in [0, 1): exact in float32."""
        raw = self._raw(math.prod(shape)) >> np.uint64(40)
        return (raw.astype(np.float64) * 2.0**-24).reshape(shape)

    def normal(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Irwin-Hall: the sum of 12 16-bit uniforms minus its mean, in units of 2**-16."""
        count = math.prod(shape)
        halves = self._raw(3 * count).astype("<u8").view("<u2").reshape(count, 12)
        sums = halves.sum(axis=1, dtype=np.int64)
        return ((sums - 12 * 65535 // 2) * 2.0**-16).reshape(shape)

    def _raw(self, count: int) -> NDArray[np.uint64]:
        return self._bits.random_raw(count) if count else np.zeros(0, np.uint64)


def _make(
    entry: SignatureTensor, shape: tuple[int, ...], kind: str, stream: _Stream, bound: int | None
) -> NDArray[Any]:
    tensor = entry.tensor
    dtype = numpy_dtype(entry.name, tensor.dtype)
    if dtype == np.bool_:
        return _bits(shape, kind, stream).astype(np.bool_)
    if bound is not None:
        return _indices(shape, kind, stream, min(bound, _largest(dtype))).astype(dtype)
    if _is_mask(entry.name):
        mask = _bits(shape, kind, stream)
        if shape:
            mask[..., :1] = 1
        return mask.astype(dtype)
    if np.issubdtype(dtype, np.integer):
        if tensor.quantization is None:
            return _indices(shape, kind, stream, min(_UNINDEXED_INTEGERS, _largest(dtype))).astype(dtype)
        return _quantized(shape, kind, stream, dtype, _zero_point(tensor, dtype))
    if np.issubdtype(dtype, np.complexfloating):
        return np.ascontiguousarray(_real((*shape, 2), kind, stream)).view(np.complex128)[..., 0].astype(dtype)
    return np.ascontiguousarray(_real(shape, kind, stream).astype(dtype))


def numpy_dtype(name: str, dtype: str) -> np.dtype[Any]:
    """The NumPy dtype for a tensor's element type.

    Raises:
        AssayError: NumPy has no such type, so no value can be made or given for the input.
    """
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if found is None or found.kind not in "biufc":
        raise AssayError(f"input {name!r} is of type {dtype}, for which no values can be made")
    return found


def _real(shape: tuple[int, ...], kind: str, stream: _Stream) -> NDArray[np.float64]:
    match kind:
        case "uniform":
            return stream.uniform(shape)
        case "normal":
            return stream.normal(shape)
        case "small":
            return stream.normal(shape) * _SMALL
        case "large":
            return stream.normal(shape) * _LARGE
        case "structured":
            return _ramps(shape, stream)
        case _:
            return np.zeros(shape)


def _ramps(shape: tuple[int, ...], stream: _Stream) -> NDArray[np.float64]:
    """Ramps in [0, 1], another slope for each axis, with a box in the middle of the larger axes inverted."""
    rank = len(shape)
    phases = stream.uniform((rank + 1,))
    total = np.full(shape, phases[rank])
    box = np.ones(shape, dtype=np.bool_)
    for axis, size in enumerate(shape):
        along = [1] * rank
        along[axis] = size
        places = np.arange(size, dtype=np.float64).reshape(along)
        total = total + (1.0 + phases[axis]) * (places / max(size, 1))
        if size >= 8:
            box &= (places >= size // 4) & (places < size // 2)
    values = total - np.floor(total)
    return np.where(box & (math.prod(shape) > 1), 1.0 - values, values)


def _bits(shape: tuple[int, ...], kind: str, stream: _Stream) -> NDArray[np.float64]:
    match kind:
        case "zeros":
            return np.zeros(shape)
        case "large":
            return np.ones(shape)
        case "structured":
            return (_ramps(shape, stream) >= 0.5).astype(np.float64)
        case _:
            return (stream.uniform(shape) >= 0.5).astype(np.float64)


def _indices(shape: tuple[int, ...], kind: str, stream: _Stream, bound: int) -> NDArray[np.int64]:
    match kind:
        case "uniform":
            return stream.integers(shape, bound)
        case "normal":
            drawn = np.floor((stream.normal(shape) + 6.0) / 12.0 * bound).astype(np.int64)
            return np.clip(drawn, 0, bound - 1)
        case "small":
            return stream.integers(shape, min(bound, 4))
        case "large":
            return bound - 1 - stream.integers(shape, min(bound, 4))
        case "structured":
            return (np.arange(math.prod(shape), dtype=np.int64) % bound).reshape(shape)
        case _:
            return np.zeros(shape, np.int64)


def _quantized(
    shape: tuple[int, ...], kind: str, stream: _Stream, dtype: np.dtype[Any], zero: int
) -> NDArray[Any]:
    """Quantized values: the whole range for uniform and structured, around the zero point otherwise."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    span = high - low
    match kind:
        case "uniform":
            values = low + stream.uniform(shape) * (span + 1)
        case "normal":
            values = zero + stream.normal(shape) * (span / 8)
        case "small":
            values = zero + stream.normal(shape) * 2.0
        case "large":
            values = zero + stream.normal(shape) * (span / 2)
        case "structured":
            values = low + _ramps(shape, stream) * span
        case _:
            values = np.full(shape, float(zero))
    return np.clip(np.floor(values), low, high).astype(dtype)


def _zero_point(tensor: Tensor, dtype: np.dtype[Any]) -> int:
    limits = np.iinfo(dtype)
    if tensor.quantization is None or len(tensor.quantization.zero_points) == 0:
        return 0
    return min(max(int(tensor.quantization.zero_points[0]), int(limits.min)), int(limits.max))


def _is_mask(name: str) -> bool:
    return "mask" in name.lower()


def _largest(dtype: np.dtype[Any]) -> int:
    return int(np.iinfo(dtype).max) if np.issubdtype(dtype, np.integer) else 2**24


def _item_bytes(dtype: str) -> int:
    try:
        return np.dtype(dtype).itemsize
    except TypeError:
        return 4


def _spelled(shape: Sequence[int]) -> str:
    return "x".join("?" if size < 0 else str(size) for size in shape) or "(scalar)"


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
