"""What a list of timings says: median, spread, a confidence interval, and whether it can be trusted."""

import bisect
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import bdtr

SPREAD_LIMIT = 0.05
"""Mean absolute deviation over the median, above which values spread."""

DRIFT_LIMIT = 0.05
"""Shift of the median from the first third to the last, over the median, above which values drift."""


@dataclass(frozen=True)
class Summary:
    """Statistics of timings, in milliseconds.

    Attributes:
        iterations: Number of values.
        p50_ms: Median.
        min_ms: Smallest.
        max_ms: Largest.
        mad_ms: Mean absolute deviation from the median.
        ci95_low_ms: Lower end of the 95 % confidence interval of the median; None below 6 values.
        ci95_high_ms: Upper end.
        spread: `mad_ms / p50_ms`.
        drift: Median of the last third minus that of the first, over `p50_ms`.
    """

    iterations: int
    p50_ms: float
    min_ms: float
    max_ms: float
    mad_ms: float
    ci95_low_ms: float | None
    ci95_high_ms: float | None
    spread: float
    drift: float

    @property
    def unsteady(self) -> list[str]:
        """Why the values themselves cannot be trusted; empty if they can."""
        reasons: list[str] = []
        if self.spread > SPREAD_LIMIT:
            reasons.append(f"values spread: mean absolute deviation {self.spread:.1%} of the median")
        if abs(self.drift) > DRIFT_LIMIT:
            reasons.append(f"values drift: last third {self.drift:+.1%} of the median against the first")
        return reasons


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """A confidence interval of the median that assumes no distribution.

    The interval is between order statistics whose ranks follow from the binomial distribution with p = 1/2
    (Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2): with x sorted, [x[k], x[n-1-k]] for the
    largest k with P(Bin(n, 1/2) <= k) <= (1 - confidence) / 2.

    Args:
        values: Independent values, any order.
        confidence: Between 0 and 1.

    Returns:
        Lower and upper end, or None where the values are too few (below 6 for 95 %).
    """
    count = len(values)
    tail = (1.0 - confidence) / 2.0
    # How many ranks, from 0 on, lie in the tail: the distribution function rises with the rank.
    below = bisect.bisect_right(range(count // 2), tail, key=lambda rank: float(bdtr(rank, count, 0.5)))
    if below == 0:
        return None
    rank = below - 1
    ordered = sorted(values)
    return ordered[rank], ordered[count - 1 - rank]


def summarize(samples_ms: Sequence[float]) -> Summary:
    """Statistics of one run's timings.

    Args:
        samples_ms: At least one value, in the order measured.

    Raises:
        ValueError: There is no value.
    """
    if not samples_ms:
        raise ValueError("no timings to summarize")
    median = statistics.median(samples_ms)
    deviation = statistics.fmean(abs(sample - median) for sample in samples_ms)
    interval = median_interval(samples_ms)
    third = len(samples_ms) // 3
    drift = 0.0
    # Below 9 values a third is too small to say anything about a trend.
    if third >= 3 and median > 0:
        drift = (statistics.median(samples_ms[-third:]) - statistics.median(samples_ms[:third])) / median
    return Summary(
        iterations=len(samples_ms),
        p50_ms=median,
        min_ms=min(samples_ms),
        max_ms=max(samples_ms),
        mad_ms=deviation,
        ci95_low_ms=interval[0] if interval else None,
        ci95_high_ms=interval[1] if interval else None,
        spread=deviation / median if median > 0 else 0.0,
        drift=drift,
    )
