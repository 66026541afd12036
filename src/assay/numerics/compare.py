"""How far two sets of outputs are apart: every figure, per output, in one pass over blocks of bounded size.

Formulas, with r the reference, o the output, d = o - r, over the elements where both are finite:

- max/mean absolute difference: max |d|, mean |d|; root mean square: sqrt(mean d^2).
- max relative difference: max |d| / max |r|, relative to the output's scale, since an elementwise ratio
  says nothing where r is near zero. The elementwise one, |d| / |r| where r != 0, is given beside it.
- Pearson correlation: cov(r, o) / (std r * std o), by merging blocks' means and co-moments (Chan, Golub and
  LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979).
- cosine: sum(r o) / sqrt(sum r^2 * sum o^2).
- SNR: 10 log10(sum r^2 / sum d^2) in dB.
- ULP distance: how many representable numbers of the dtype lie between r and o (Dawson, "Comparing floating
  point numbers", 2012: the bit patterns, read as sign-magnitude integers, are ordered like the numbers).

All sums are float64.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import AssayError

BLOCK = 1 << 20
"""Elements looked at together: about 50 MB of float64 temporaries at most, whatever the tensor's size."""


@dataclass(frozen=True)
class Comparison:
    """One output beside its reference. A figure that has no meaning here is None.

    Attributes:
        name: The output's name.
        dtype: The output's dtype.
        shape: The output's shape.
        problem: Why the two cannot be compared (shape or kind of type differs), or None.
        elements: How many elements were compared.
        differing: Elements that are not equal, counted in their own dtype; NaN equals NaN.
        max_abs_diff: Largest |o - r|.
        max_abs_at: Where: the index in the tensor.
        mean_abs_diff: Mean |o - r|.
        rms_diff: Root mean square of o - r.
        max_rel_diff: `max_abs_diff` / max |r|; None if the reference is all zeros.
        max_elementwise_rel_diff: Largest |o - r| / |r| where r is not zero.
        max_elementwise_rel_at: Where.
        mean_elementwise_rel_diff: Mean |o - r| / |r| where r is not zero.
        reference_max_abs: max |r|.
        reference_rms: Root mean square of r.
        reference_std: Standard deviation of r.
        output_std: Standard deviation of o.
        correlation: Pearson; None where either is constant.
        cosine: Cosine of the angle between the two; None where either is all zeros.
        snr_db: Signal-to-noise ratio in dB; None where the two are identical or the reference is all zeros.
        max_ulp: Largest ULP distance; None for integers and for outputs of another dtype.
        mean_ulp: Mean ULP distance.
        outside_share: Share of elements with |d| > atol + rtol * |r|; NaN and infinity that the reference
            has not count as outside.
        reference_nan: NaNs in the reference.
        output_nan: NaNs in the output.
        reference_inf: Infinities in the reference.
        output_inf: Infinities in the output.
        nonfinite_mismatch: Elements where one is NaN or infinite and the other is not the same.
        reference_zero_share: Share of zeros in the reference.
        output_zero_share: Share of zeros in the output.
        reference_constant: True if all elements of the reference are equal.
        output_constant: True if all elements of the output are equal.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    problem: str | None = None
    elements: int = 0
    differing: int = 0
    max_abs_diff: float | None = None
    max_abs_at: tuple[int, ...] | None = None
    mean_abs_diff: float | None = None
    rms_diff: float | None = None
    max_rel_diff: float | None = None
    max_elementwise_rel_diff: float | None = None
    max_elementwise_rel_at: tuple[int, ...] | None = None
    mean_elementwise_rel_diff: float | None = None
    reference_max_abs: float | None = None
    reference_rms: float | None = None
    reference_std: float | None = None
    output_std: float | None = None
    correlation: float | None = None
    cosine: float | None = None
    snr_db: float | None = None
    max_ulp: int | None = None
    mean_ulp: float | None = None
    outside_share: float | None = None
    reference_nan: int = 0
    output_nan: int = 0
    reference_inf: int = 0
    output_inf: int = 0
    nonfinite_mismatch: int = 0
    reference_zero_share: float | None = None
    output_zero_share: float | None = None
    reference_constant: bool | None = None
    output_constant: bool | None = None

    @property
    def identical(self) -> bool:
        """True if every element equals its reference."""
        return self.problem is None and self.differing == 0

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON-ready values."""
        return dataclasses.asdict(self)


def compare(
    reference: Sequence[NDArray[Any]],
    outputs: Sequence[NDArray[Any]],
    names: Sequence[str],
    *,
    atol: float = 1e-5,
    rtol: float = 1e-3,
) -> list[Comparison]:
    """Compare outputs with their references, pair by pair.

    Args:
        reference: The right values, any numeric dtype and shape (memory-mapped arrays stay on the disk).
        outputs: What the lane returned, in the same order.
        names: The outputs' names.
        atol: Absolute part of the tolerance of `outside_share`.
        rtol: Relative part of it.

    Returns:
        One comparison for each output.

    Raises:
        AssayError: The three do not have the same length.
    """
    if not len(reference) == len(outputs) == len(names):
        raise AssayError(
            f"cannot compare {len(outputs)} outputs with {len(reference)} references and {len(names)} names"
        )
    return [
        compare_one(r, o, name, atol=atol, rtol=rtol) for r, o, name in zip(reference, outputs, names, strict=True)
    ]


def compare_one(
    reference: NDArray[Any], output: NDArray[Any], name: str = "", *, atol: float = 1e-5, rtol: float = 1e-3
) -> Comparison:
    """Compare one output with its reference; see `compare`."""
    reference, output = np.asarray(reference), np.asarray(output)
    problem = _problem(reference, output)
    if problem is not None:
        return Comparison(name, str(output.dtype), output.shape, problem=problem)
    sums = _Sums(ulps=reference.dtype == output.dtype and reference.dtype.kind == "f")
    flat_reference, flat_output = reference.reshape(-1), output.reshape(-1)
    for start, r, o in _blocks(flat_reference, flat_output):
        sums.add(start, r, o, atol, rtol)
    return sums.result(name, output)


def _problem(reference: NDArray[Any], output: NDArray[Any]) -> str | None:
    if reference.shape != output.shape:
        return f"the shape is {list(output.shape)}, the reference has {list(reference.shape)}"
    for array, whose in ((reference, "the reference"), (output, "the output")):
        if array.dtype.kind not in "biufc":
            return f"{whose} has type {array.dtype}, which is not numeric"
    return None


def _blocks(reference: NDArray[Any], output: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any], NDArray[Any]]]:
    for start in range(0, reference.size, BLOCK):
        yield start, reference[start : start + BLOCK], output[start : start + BLOCK]


class _Sums:
    """What is carried from block to block."""

    def __init__(self, *, ulps: bool) -> None:
        self.ulps = ulps
        self.elements = self.finite = self.differing = self.outside = self.mismatch = 0
        self.nan = [0, 0]
        self.inf = [0, 0]
        self.zeros = [0, 0]
        self.low = [math.inf, math.inf]
        self.high = [-math.inf, -math.inf]
        self.abs_sum = self.square_sum = self.rel_sum = self.ulp_sum = 0.0
        self.rel_count = 0
        self.abs_max = self.rel_max = -1.0
        self.abs_at = self.rel_at = 0
        self.ulp_max = 0
        self.reference_max = 0.0
        self.rr = self.oo = self.ro = 0.0
        self.moments = _Moments()

    def add(self, start: int, r: NDArray[Any], o: NDArray[Any], atol: float, rtol: float) -> None:
        if r.dtype.kind == "c" or o.dtype.kind == "c":
            # A complex number is two real ones; indices of maxima are those of its real view, halved below.
            r, o = (np.ascontiguousarray(a.astype(np.complex128)).view(np.float64) for a in (r, o))
        both_nan = _isnan(r) & _isnan(o)
        self.differing += int(np.count_nonzero((r != o) & ~both_nan))
        self.elements += r.size
        wide_r, wide_o = r.astype(np.float64), o.astype(np.float64)
        for side, wide in enumerate((wide_r, wide_o)):
            self._count(side, wide)
        usable = np.isfinite(wide_r) & np.isfinite(wide_o)
        same = both_nan | (wide_r == wide_o)
        mismatch = int(np.count_nonzero(~usable & ~same))
        self.mismatch += mismatch
        self.outside += mismatch
        if not usable.all():
            places = np.flatnonzero(usable)
            wide_r, wide_o, r, o = wide_r[usable], wide_o[usable], r[usable], o[usable]
        else:
            places = None
        if wide_r.size == 0:
            return
        # Sums of huge values overflow to infinity, which `_number` turns into None.
        with np.errstate(over="ignore", invalid="ignore"):
            self._differences(start, wide_r, wide_o, places, atol, rtol)
        if self.ulps:
            distance = ulp_distance(r, o)
            self.ulp_max = max(self.ulp_max, int(distance.max()))
            self.ulp_sum += float(distance.sum(dtype=np.float64))

    def _count(self, side: int, wide: NDArray[np.float64]) -> None:
        self.nan[side] += int(np.count_nonzero(np.isnan(wide)))
        self.inf[side] += int(np.count_nonzero(np.isinf(wide)))
        self.zeros[side] += int(np.count_nonzero(wide == 0))
        if wide.size:
            self.low[side] = min(self.low[side], float(np.min(wide)))
            self.high[side] = max(self.high[side], float(np.max(wide)))

    def _differences(
        self,
        start: int,
        r: NDArray[np.float64],
        o: NDArray[np.float64],
        places: NDArray[np.intp] | None,
        *tolerance: float,
    ) -> None:
        atol, rtol = tolerance
        difference = np.abs(o - r)
        size = np.abs(r)
        self.finite += r.size
        self.abs_sum += float(difference.sum())
        self.square_sum += float(np.square(difference).sum())
        self.reference_max = max(self.reference_max, float(size.max()))
        self.outside += int(np.count_nonzero(difference > atol + rtol * size))
        worst = int(np.argmax(difference))
        if difference[worst] > self.abs_max:
            self.abs_max = float(difference[worst])
            self.abs_at = start + int(worst if places is None else places[worst])
        nonzero = size > 0
        relative = np.divide(difference, size, out=np.zeros_like(difference), where=nonzero)
        self.rel_sum += float(relative.sum())
        self.rel_count += int(np.count_nonzero(nonzero))
        worst = int(np.argmax(relative))
        if nonzero[worst] and relative[worst] > self.rel_max:
            self.rel_max = float(relative[worst])
            self.rel_at = start + int(worst if places is None else places[worst])
        self.rr += float(np.square(r).sum())
        self.oo += float(np.square(o).sum())
        self.ro += float((r * o).sum())
        self.moments.add(r, o)

    def result(self, name: str, output: NDArray[Any]) -> Comparison:
        complex_step = 2 if output.dtype.kind == "c" else 1
        shape = output.shape
        empty = self.finite == 0

        def at(flat: int) -> tuple[int, ...]:
            return tuple(int(i) for i in np.unravel_index(flat // complex_step, shape))

        return Comparison(
            name=name,
            dtype=str(output.dtype),
            shape=shape,
            elements=self.elements,
            differing=self.differing,
            max_abs_diff=None if empty else _number(self.abs_max),
            max_abs_at=None if empty else at(self.abs_at),
            mean_abs_diff=None if empty else _number(self.abs_sum / self.finite),
            rms_diff=None if empty else _number(math.sqrt(self.square_sum / self.finite)),
            max_rel_diff=_ratio(self.abs_max, self.reference_max),
            max_elementwise_rel_diff=_number(self.rel_max) if self.rel_max >= 0 else None,
            max_elementwise_rel_at=at(self.rel_at) if self.rel_max >= 0 else None,
            mean_elementwise_rel_diff=_ratio(self.rel_sum, self.rel_count),
            reference_max_abs=None if empty else self.reference_max,
            reference_rms=None if empty else _number(math.sqrt(self.rr / self.finite)),
            reference_std=None if empty else _number(self.moments.std(0)),
            output_std=None if empty else _number(self.moments.std(1)),
            correlation=self.moments.correlation(),
            cosine=_cosine(self.rr, self.oo, self.ro),
            snr_db=_snr(self.rr, self.square_sum),
            max_ulp=self.ulp_max if self.ulps and not empty else None,
            mean_ulp=self.ulp_sum / self.finite if self.ulps and not empty else None,
            outside_share=_ratio(self.outside, self.elements),
            reference_nan=self.nan[0],
            output_nan=self.nan[1],
            reference_inf=self.inf[0],
            output_inf=self.inf[1],
            nonfinite_mismatch=self.mismatch,
            reference_zero_share=_ratio(self.zeros[0], self.elements),
            output_zero_share=_ratio(self.zeros[1], self.elements),
            reference_constant=self._constant(0),
            output_constant=self._constant(1),
        )

    def _constant(self, side: int) -> bool | None:
        return None if self.elements == 0 else self.nan[side] == 0 and self.low[side] == self.high[side]


class _Moments:
    """Means and co-moments of pairs, merged block by block (Chan, Golub and LeVeque 1979)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = np.zeros(2)
        self.scatter = np.zeros((2, 2))

    def add(self, r: NDArray[np.float64], o: NDArray[np.float64]) -> None:
        mean = np.array([r.mean(), o.mean()])
        dr, do = r - mean[0], o - mean[1]
        cross = float((dr * do).sum())
        scatter = np.array([[float((dr * dr).sum()), cross], [cross, float((do * do).sum())]])
        total = self.count + r.size
        delta = mean - self.mean
        self.scatter = self.scatter + scatter + np.outer(delta, delta) * (self.count * r.size / total)
        self.mean = self.mean + delta * (r.size / total)
        self.count = total

    def std(self, side: int) -> float:
        return math.sqrt(max(self.scatter[side, side], 0.0) / self.count)

    def correlation(self) -> float | None:
        if self.count < 2:
            return None
        if not np.isfinite(self.scatter).all():
            return None
        # Rounding of a constant's mean leaves a scatter of about (eps * mean)^2 per element: that is zero.
        noise = 4 * np.finfo(np.float64).eps * np.abs(self.mean) * math.sqrt(self.count)
        lengths = np.sqrt(np.diag(self.scatter))
        if (lengths <= noise).any() or not lengths.all():
            return None
        return float(np.clip(self.scatter[0, 1] / lengths[0] / lengths[1], -1.0, 1.0))


def ulp_distance(reference: NDArray[Any], output: NDArray[Any]) -> NDArray[np.uint64]:
    """Representable numbers between two finite floats, elementwise; 0 where equal, and +0 equals -0.

    Args:
        reference: float16, float32 or float64.
        output: The same dtype and shape.
    """
    a, b = _ordered(reference), _ordered(output)
    return np.where(a > b, a - b, b - a)


def _ordered(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Unsigned integers ordered like the floats, neighbours one apart."""
    bits = values.dtype.itemsize * 8
    signed = np.ascontiguousarray(values).view(f"i{bits // 8}").astype(np.int64)
    magnitude = (signed & np.int64(2 ** (bits - 1) - 1)).astype(np.uint64)
    middle = np.uint64(2**63)
    return np.where(signed < 0, middle - magnitude, middle + magnitude)


def _isnan(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isnan(values) if values.dtype.kind in "fc" else np.zeros(values.shape, np.bool_)


def _number(value: float) -> float | None:
    """A finite float, or None where a sum overflowed: JSON has no infinity."""
    return float(value) if math.isfinite(value) else None


def _ratio(part: float, whole: float) -> float | None:
    return _number(part / whole) if whole > 0 and part >= 0 else None


def _cosine(rr: float, oo: float, ro: float) -> float | None:
    length = math.sqrt(rr) * math.sqrt(oo)
    if not (math.isfinite(length) and length > 0):
        return None
    return max(-1.0, min(1.0, ro / length))


def _snr(signal: float, noise: float) -> float | None:
    if not (math.isfinite(signal) and math.isfinite(noise) and signal > 0 and noise > 0):
        return None
    return 10.0 * (math.log10(signal) - math.log10(noise))
