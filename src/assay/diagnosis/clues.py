"""What a wrong tensor looks like beside the right one: zeros, another axis order, one row for all, the last run's.

Pure functions over arrays. A clue is an observation that can be checked by hand, never a guess: each is true of
the two arrays up to `limit`, the largest absolute difference that counts as equal.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from assay.numerics.faults import FP16_MAX

Array = np.ndarray[Any, np.dtype[Any]]


class Clue(StrEnum):
    """How a wrong tensor differs from the right one."""

    NOT_FINITE = "not_finite"
    SATURATED = "saturated"
    ZEROED = "zeroed"
    CONSTANT = "constant"
    PREVIOUS_RUN = "previous_run"
    AXES_PERMUTED = "axes_permuted"
    ROWS_REPEATED = "rows_repeated"
    ROWS_REORDERED = "rows_reordered"
    SHIFTED = "shifted"
    SCALED = "scaled"
    OFFSET = "offset"
    ONE_CHANNEL = "one_channel"
    PART = "part"


@dataclass(frozen=True)
class Seen:
    """A clue, and the sentence that says what was seen."""

    clue: Clue
    sentence: str


def look(right: Array, wrong: Array, limit: float, *, previous: Array | None = None) -> list[Seen]:
    """What is seen in a wrong tensor, the most telling first.

    Args:
        right: The reference's values, any shape.
        wrong: The lane's values, same shape.
        limit: Largest absolute difference that counts as equal, in the tensor's own unit.
        previous: The reference's values for the inputs of the run before, where there was one.

    Returns:
        Empty where nothing of the kind is seen, or where the tensors are equal up to the limit.
    """
    if right.size == 0 or right.shape != wrong.shape:
        return []
    if right.dtype.kind not in "fiub" or wrong.dtype.kind not in "fiub":
        return []
    right, wrong = right.astype(np.float64), wrong.astype(np.float64)
    before = None if previous is None or previous.shape != right.shape else previous.astype(np.float64)
    if _same(right, wrong, limit):
        return []
    seen = [*_values(right, wrong, limit), *_stale(right, wrong, limit, before)]
    if not seen:
        seen = [*_order(right, wrong, limit), *_arithmetic(right, wrong, limit)]
    return seen or _extent(right, wrong, limit)


def _same(left: Array, right: Array, limit: float) -> bool:
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.all((np.abs(left - right) <= limit) | (left == right)))


def _values(right: Array, wrong: Array, limit: float) -> list[Seen]:
    seen: list[Seen] = []
    bad = ~np.isfinite(wrong) & np.isfinite(right)
    if bad.any():
        nans = int(np.isnan(wrong[bad]).sum())
        sentence = f"{int(bad.sum())} of {wrong.size} values are not finite ({nans} NaN) where the reference's are"
        seen.append(Seen(Clue.NOT_FINITE, sentence))
    saturated = (np.abs(wrong) == FP16_MAX) & (np.abs(right - wrong) > limit)
    if saturated.any():
        seen.append(Seen(Clue.SATURATED, f"{int(saturated.sum())} values stand at 65504, the largest float16"))
    if not wrong.any() and np.abs(right).max() > limit:
        seen.append(Seen(Clue.ZEROED, f"all {wrong.size} values are zero"))
    elif wrong.size > 1 and wrong.min() == wrong.max() and np.ptp(right) > limit:
        seen.append(Seen(Clue.CONSTANT, f"all {wrong.size} values are {wrong.flat[0]:.6g}"))
    return seen


def _stale(right: Array, wrong: Array, limit: float, previous: Array | None) -> list[Seen]:
    if previous is None or _same(right, previous, limit):
        return []
    stale = (np.abs(wrong - previous) <= limit) & (np.abs(right - wrong) > limit)
    differs = np.abs(right - wrong) > limit
    if not differs.any() or stale.sum() < differs.sum():
        return []
    return [Seen(Clue.PREVIOUS_RUN, f"the {int(differs.sum())} wrong values are those of the inference before")]


def _order(right: Array, wrong: Array, limit: float) -> list[Seen]:
    """Right values in wrong places."""
    seen: list[Seen] = []
    if 1 < right.ndim <= 5 and np.ptp(right) > limit:
        for order in itertools.permutations(range(right.ndim)):
            if order == tuple(range(right.ndim)):
                continue
            moved = np.ascontiguousarray(right.transpose(order)).reshape(right.shape)
            if _same(moved, wrong, limit) and not _same(moved, right, limit):
                seen.append(Seen(Clue.AXES_PERMUTED, f"the values are right in the axis order {list(order)}"))
                break
    for axis, size in enumerate(right.shape):
        if size < 2 or seen:
            continue
        if found := _rows(right, wrong, axis, limit):
            seen.append(found)
    return seen


def _by_row(array: Array, axis: int) -> Array:
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def _rows(right: Array, wrong: Array, axis: int, limit: float) -> Seen | None:
    first = np.take(right, [0], axis=axis)
    others: Array = np.asarray(np.abs(right - wrong) > limit)
    repeats: Array = np.asarray(np.abs(wrong - first) <= limit)
    other: Array = np.asarray(_by_row(others, axis).any(axis=1))
    repeated: Array = np.asarray(_by_row(repeats, axis).all(axis=1))
    where = f"along axis {axis}"
    if other.any() and not other[0] and repeated[other].all():
        return Seen(Clue.ROWS_REPEATED, f"{where}, {int(other.sum())} of {other.size} rows repeat row 0")
    for step in range(1, min(right.shape[axis], 64)):
        for shift in (step, -step):
            if _same(np.roll(right, shift, axis=axis), wrong, limit):
                return Seen(Clue.SHIFTED, f"{where}, all values are moved by {shift}")
    quarter = right.shape[axis] // 4
    if quarter >= 64 and _same(np.roll(right, quarter, axis=axis), wrong, limit):
        return Seen(Clue.SHIFTED, f"{where}, all values are moved by {quarter}")
    if _same(np.flip(right, axis=axis), wrong, limit):
        return Seen(Clue.ROWS_REORDERED, f"{where}, the rows are in reverse order")
    moved = np.flatnonzero(other)
    if 2 <= moved.size <= 64:
        right_rows = _by_row(right, axis)[moved]
        wrong_rows = _by_row(wrong, axis)[moved]
        taken = [
            next((j for j in range(moved.size) if _same(row, right_rows[j], limit)), -1) for row in wrong_rows
        ]
        if sorted(taken) == list(range(moved.size)):
            places = ", ".join(str(place) for place in moved[:4])
            return Seen(Clue.ROWS_REORDERED, f"{where}, rows {places} have changed places")
    return None


def _arithmetic(right: Array, wrong: Array, limit: float) -> list[Seen]:
    seen: list[Seen] = []
    power = float((right * right).sum())
    if power > 0 and np.isfinite(wrong).all():
        factor = float((right * wrong).sum()) / power
        # A factor is told from chance by how little it leaves over.
        left = float(np.abs(wrong - factor * right).max())
        if left <= max(limit, 1e-4 * abs(factor - 1) * float(np.abs(right).max())) and factor != 0:
            seen.append(Seen(Clue.SCALED, f"all values are {factor:.6g} times the reference's"))
    difference = wrong - right
    if not seen and right.size > 1 and np.isfinite(difference).all():
        middle = float(np.median(difference))
        if float(np.abs(difference - middle).max()) <= max(limit, 1e-4 * abs(middle)):
            seen.append(Seen(Clue.OFFSET, f"{middle:.6g} is added to all values"))
    return seen


def _extent(right: Array, wrong: Array, limit: float) -> list[Seen]:
    differs = ~((np.abs(right - wrong) <= limit) | (right == wrong))
    if right.ndim and right.shape[-1] > 1:
        channels = np.flatnonzero(differs.reshape(-1, right.shape[-1]).any(axis=0))
        if channels.size == 1:
            return [Seen(Clue.ONE_CHANNEL, f"only channel {channels[0]} of {right.shape[-1]} differs")]
    share = float(differs.mean())
    if share <= 0.5:
        return [Seen(Clue.PART, f"{int(differs.sum())} of {differs.size} values differ ({share:.1%})")]
    return []
