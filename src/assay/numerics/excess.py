"""How many times the expected error a lane's error is: overall, in its worst slice, and at its worst element.

A fault may be everywhere and small, in one channel or row only, or at one element; each of the three figures
sees one of these where the others may not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.numerics.envelope import OutputNoise, deviation, is_label
from assay.numerics.noise import Precision

K_OVERALL = 5.0
K_SLICE = 8.0
K_ELEMENT = 12.0
"""Times the expected error beyond which a difference is a wrong answer. Chosen on the tuning part of
`benchmarks/verdict.py`; the error rates on its other part are in docs/verdict.md."""

_PRIOR_DRAWS = 2.0
"""An element's own draws are few: the average of its channel counts like this many more."""

_TAIL = 0.4
"""Errors are heavy-tailed: where a decision in the network tips over, one element moves like the worst of its
channel does elsewhere. Each element may be expected this share of the worst expected error in its channel."""

_STEP_SQUARE = 0.3**2
"""Another rounding rule moves a quantized value by up to a step: a third of one is always to be expected."""


@dataclass(frozen=True)
class Excess:
    """A lane's error in units of the expected one, for one output on one set.

    Attributes:
        overall: Root mean square over all elements, lane by expected.
        slice: The same within the worst slice along an axis.
        slice_at: That slice: (axis, index); None if the output has one axis or less.
        element: |d| of the worst element, by its expected deviation (not less than 0.4 of the channel's worst).
        element_at: That element's index; None for an empty output.
    """

    overall: float
    slice: float
    slice_at: tuple[int, int] | None
    element: float
    element_at: tuple[int, ...] | None

    @property
    def score(self) -> float:
        """At most 1 if the error is inside the envelope by all three measures."""
        return max(self.overall / K_OVERALL, self.slice / K_SLICE, self.element / K_ELEMENT)

    @property
    def deciding(self) -> tuple[float, str]:
        """The measure that says most of where the error is, and that place in words: empty for everywhere."""
        if self.overall > K_OVERALL:
            return self.overall, ""
        if self.slice_at is not None and self.slice / K_SLICE >= self.element / K_ELEMENT:
            axis, index = self.slice_at
            return self.slice, f" in slice {index} of axis {axis}"
        return self.element, f" at element {list(self.element_at or ())}"


def measure(
    reference: NDArray[Any], output: NDArray[Any], noise: OutputNoise, precision: Precision, draws: int
) -> Excess:
    """Measure one output on one set against its expected error.

    Args:
        reference: The right values.
        output: The lane's values, of the same shape; elements that are not finite on either side are left out
            here, since a lost number is judged for itself.
        noise: The expected error.
        precision: The precision that it was learnt for.
        draws: The draws that it was learnt from.
    """
    moved = deviation(reference, output)
    if moved.size == 0:
        return Excess(0.0, 0.0, None, 0.0, None)
    moved = np.where(np.isfinite(moved), moved, 0.0)
    error, expected = np.square(moved), expected_square(reference, noise, precision, draws)
    tail = _TAIL**2 * expected.max(axis=_all_but_channel(expected), keepdims=True)
    ratio = np.sqrt(_divided(error, np.maximum(expected, tail)))
    worst = int(np.argmax(ratio))
    slice_ratio, slice_at = _worst_slice(error, expected)
    return Excess(
        overall=math.sqrt(float(_divided(error.mean(), expected.mean()))),
        slice=slice_ratio,
        slice_at=slice_at,
        element=float(ratio.reshape(-1)[worst]),
        element_at=tuple(int(i) for i in np.unravel_index(worst, moved.shape)),
    )


def expected_square(
    reference: NDArray[Any], noise: OutputNoise, precision: Precision, draws: int
) -> NDArray[np.float64]:
    """Each element's expected squared error: its own draws, steadied by its channel's, above a floor.

    The floor is what storing the output costs even where no arithmetic was done: half a unit roundoff of the
    output's root mean square; a third of a step for quantized values; for labels, one change in all the draws.
    """
    own = noise.square.astype(np.float64)
    channel = own.mean(axis=_all_but_channel(own), keepdims=True)
    steadied = (draws * own + _PRIOR_DRAWS * channel) / (draws + _PRIOR_DRAWS)
    if is_label(reference):
        floor = 1.0 / (max(reference.size, 1) * draws)
    elif reference.dtype.kind in "iu":
        floor = _STEP_SQUARE
    else:
        floor = (0.5 * precision.stored) ** 2 * mean_square(reference)
    return np.maximum(steadied, floor)


def mean_square(values: NDArray[Any]) -> float:
    """Mean square over the finite elements; 0.0 if there are none."""
    wide = values.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    return float(np.square(finite).mean()) if finite.size else 0.0


def _all_but_channel(values: NDArray[Any]) -> tuple[int, ...]:
    per_channel = values.ndim > 1 and values.size // max(values.shape[-1], 1) >= 64
    return tuple(range(values.ndim - 1 if per_channel else values.ndim))


def _worst_slice(
    error: NDArray[np.float64], expected: NDArray[np.float64]
) -> tuple[float, tuple[int, int] | None]:
    worst, where = 0.0, None
    for axis, size in enumerate(error.shape):
        if size in (1, error.size):
            continue
        others = tuple(a for a in range(error.ndim) if a != axis)
        ratios = _divided(error.mean(axis=others), expected.mean(axis=others))
        index = int(np.argmax(ratios))
        if ratios[index] > worst:
            worst, where = float(ratios[index]), (axis, index)
    return math.sqrt(worst), where


def _divided(error: Any, expected: Any) -> Any:
    """error / expected, with 0 / 0 = 0 and anything else / 0 as infinite."""
    error, expected = np.asarray(error), np.asarray(expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, error / expected)
