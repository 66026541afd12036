"""The ways in which a lane gets a tensor wrong, as pure functions over arrays.

Each fault imitates one that accelerators have shown: indices off by one, a factor lost, two axes read in the
other order, rows mixed up, one row used for all, the previous inference's values, a buffer never written, NaN,
an fp16 overflow clamped at 65504, one channel with the wrong bias. A fault keeps shape and dtype, so a graph
that is fed the corrupted tensor runs on and reports nothing: that is what makes the verdict necessary.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import AssayError

FP16_MAX = 65504.0
"""The largest finite float16."""

KINDS: tuple[str, ...] = (
    "shifted",
    "offset",
    "scaled",
    "transposed",
    "rows_swapped",
    "broadcast_wrong",
    "stale",
    "zeroed",
    "nan",
    "saturated",
    "channel_off",
)
"""Fault kinds.

| kind | small | large |
|---|---|---|
| `shifted` | every element moved by one place along the longest axis | moved by a quarter of that axis |
| `offset` | 1/20 of the deviation added | one deviation added |
| `scaled` | times 1.02 | times 1.5 |
| `transposed` | the two longest axes read in the other order in the last quarter | read so throughout |
| `rows_swapped` | two neighbouring rows change places | all rows in reverse order |
| `broadcast_wrong` | the last row repeats row 0 | every row repeats row 0 |
| `stale` | the last quarter keeps the previous inference's values | all of it does |
| `zeroed` | one sixteenth is zero | all is zero |
| `nan` | one element is NaN | all are |
| `saturated` | the largest element becomes 65504 | the largest tenth does |
| `channel_off` | one channel gets 1/4 deviation added | one channel gets two deviations added |
"""

SIZES: tuple[str, ...] = ("small", "large")


def inject(
    kind: str, array: NDArray[Any], *, size: str = "large", seed: int = 0, previous: NDArray[Any] | None = None
) -> NDArray[Any]:
    """A copy of a tensor with one fault in it.

    Rows are the slices along the longest axis before the last; channels are the slices along the last axis.
    Which row, channel or block is hit follows from the seed. The fault may leave the values as they were (a
    constant tensor has no order to lose): compare before calling a case faulty.

    Args:
        kind: One of `KINDS`.
        array: The right tensor, any numeric dtype and shape.
        size: `small` or `large`; see `KINDS`.
        seed: Chooses the place of the fault.
        previous: The same tensor in the inference before, for `stale`; without it, zeros, as in a buffer
            that was never written.

    Returns:
        A new array of the same shape and dtype. Integer types take NaN as 0 and 65504 as their maximum.

    Raises:
        AssayError: An unknown kind or size, or `previous` of another shape.
    """
    if kind not in KINDS:
        raise AssayError(f"there is no fault {kind!r}", fix=f"choose from {', '.join(KINDS)}")
    if size not in SIZES:
        raise AssayError(f"there is no fault size {size!r}", fix="choose small or large")
    if previous is not None and previous.shape != array.shape:
        raise AssayError(f"the previous tensor has shape {previous.shape}, this one {array.shape}")
    if array.size == 0:
        return array.copy()
    large = size == "large"
    before = np.zeros_like(array) if previous is None else previous.astype(array.dtype)
    match kind:
        case "shifted":
            return _shifted(array, large)
        case "offset":
            return _as(array, _wide(array) + _deviation(array) * (1.0 if large else 0.05))
        case "scaled":
            return _as(array, _wide(array) * (1.5 if large else 1.02))
        case "transposed":
            return _transposed(array, large)
        case "rows_swapped":
            return _rows_swapped(array, large, seed)
        case "broadcast_wrong":
            return _broadcast_wrong(array, large)
        case "stale":
            return _tail(array, before, 1.0 if large else 0.25)
        case "zeroed":
            return _zeroed(array, large, seed)
        case "nan":
            return _nan(array, large, seed)
        case "saturated":
            return _saturated(array, large)
        case _:
            return _channel_off(array, large, seed)


def _wide(array: NDArray[Any]) -> NDArray[np.float64]:
    return array.astype(np.float64)


def _as(like: NDArray[Any], values: NDArray[np.float64]) -> NDArray[Any]:
    if like.dtype.kind in "iu":
        limits = np.iinfo(like.dtype)
        values = np.clip(np.rint(np.nan_to_num(values)), limits.min, limits.max)
    elif like.dtype.kind == "b":
        return np.asarray(values >= 0.5)
    return values.astype(like.dtype)


def _deviation(array: NDArray[Any]) -> float:
    """The standard deviation, or the magnitude of a constant tensor, or 1: never 0, so the fault is one."""
    wide = _wide(array)
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        return 1.0
    return float(finite.std()) or float(np.abs(finite).max()) or 1.0


def _rows_axis(array: NDArray[Any]) -> int:
    """The longest axis, the last one only if no other is longer than 1."""
    if array.ndim <= 1:
        return 0
    axis = int(np.argmax(array.shape[:-1]))
    return axis if array.shape[axis] > 1 else array.ndim - 1


def _shifted(array: NDArray[Any], large: bool) -> NDArray[Any]:
    if array.ndim == 0:
        return array.copy()
    axis = _rows_axis(array)
    return np.roll(array, max(1, array.shape[axis] // 4) if large else 1, axis=axis)


def _transposed(array: NDArray[Any], large: bool) -> NDArray[Any]:
    axes = sorted(np.argsort(array.shape, kind="stable")[-2:]) if array.ndim >= 2 else []
    if len(axes) < 2 or array.shape[axes[0]] < 2:
        return array.copy()
    order = list(range(array.ndim))
    order[axes[0]], order[axes[1]] = order[axes[1]], order[axes[0]]
    swapped = np.ascontiguousarray(array.transpose(order)).reshape(array.shape)
    return swapped if large else _tail(array, swapped, 0.25)


def _rows_swapped(array: NDArray[Any], large: bool, seed: int) -> NDArray[Any]:
    if array.ndim == 0:
        return array.copy()
    axis = _rows_axis(array)
    rows = array.shape[axis]
    order = np.arange(rows)
    if large:
        order = order[::-1]
    elif rows > 1:
        first = seed % (rows - 1)
        order[[first, first + 1]] = order[[first + 1, first]]
    return np.take(array, order, axis=axis)


def _broadcast_wrong(array: NDArray[Any], large: bool) -> NDArray[Any]:
    if array.ndim == 0:
        return array.copy()
    axis = _rows_axis(array)
    order = np.arange(array.shape[axis])
    order[0 if large else -1 :] = 0
    return np.take(array, order, axis=axis)


def _tail(array: NDArray[Any], other: NDArray[Any], share: float) -> NDArray[Any]:
    """`array` with the last share of its elements, in memory order, from `other`."""
    result = array.copy()
    count = max(1, math.ceil(array.size * share))
    result.reshape(-1)[-count:] = other.reshape(-1)[-count:]
    return result


def _zeroed(array: NDArray[Any], large: bool, seed: int) -> NDArray[Any]:
    if large:
        return np.zeros_like(array)
    result = array.copy()
    count = max(1, array.size // 16)
    start = (seed % 16) * count % max(1, array.size - count + 1)
    result.reshape(-1)[start : start + count] = 0
    return result


def _nan(array: NDArray[Any], large: bool, seed: int) -> NDArray[Any]:
    wide = _wide(array)
    if large:
        wide[...] = np.nan
    else:
        wide.reshape(-1)[seed % array.size] = np.nan
    return _as(array, wide)


def _saturated(array: NDArray[Any], large: bool) -> NDArray[Any]:
    wide = _wide(array)
    flat = wide.reshape(-1)
    count = max(1, array.size // 10) if large else 1
    largest = np.argsort(np.abs(flat), kind="stable")[-count:]
    flat[largest] = np.where(np.signbit(flat[largest]), -FP16_MAX, FP16_MAX)
    return _as(array, wide)


def _channel_off(array: NDArray[Any], large: bool, seed: int) -> NDArray[Any]:
    wide = _wide(array)
    added = _deviation(array) * (2.0 if large else 0.25)
    if array.ndim == 0:
        return _as(array, wide + added)
    wide[..., seed % array.shape[-1]] += added
    return _as(array, wide)
