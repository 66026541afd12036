import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.protocol.statistics import median_interval, summarize

times = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=200)


@given(times)
def test_figures_are_in_order_and_independent_of_the_order_of_values(values: list[float]):
    summary = summarize(values)
    assert summary.min_ms <= summary.p50_ms <= summary.max_ms
    assert summary.p50_ms == statistics.median(values)
    assert 0 <= summary.mad_ms <= summary.max_ms - summary.min_ms
    assert summary.iterations == len(values)
    again = summarize(sorted(values))
    assert (again.p50_ms, again.ci95_low_ms, again.ci95_high_ms) == (
        summary.p50_ms,
        summary.ci95_low_ms,
        summary.ci95_high_ms,
    )


@given(times)
def test_the_interval_holds_the_median(values: list[float]):
    interval = median_interval(values)
    if len(values) < 6:
        assert interval is None
    else:
        assert interval is not None
        assert min(values) <= interval[0] <= statistics.median(values) <= interval[1] <= max(values)


def test_ranks_are_those_of_the_tables():
    # n = 10: the 2nd and 9th value (confidence 97.9 %); n = 50: the 18th and 33rd (96.7 %).
    assert median_interval(range(1, 11)) == (2, 9)
    assert median_interval(range(1, 51)) == (18, 33)


def test_many_values_have_an_interval_too():
    # About 1.96 standard deviations, sqrt(n) / 2 each, beside the middle.
    assert median_interval(range(1, 1_000_001)) == (499_020, 500_981)


def test_the_interval_covers_the_true_median_as_often_as_it_says():
    draws = np.random.default_rng(7).lognormal(0.0, 0.5, size=(2000, 50))
    covered = 0
    for row in draws:
        interval = median_interval(row.tolist())
        assert interval is not None
        covered += interval[0] <= 1.0 <= interval[1]
    assert 0.95 <= covered / len(draws) <= 0.985


def test_steady_values_are_trusted():
    assert summarize([10.0, 10.1] * 25).unsteady == []


def test_spread_and_drift_are_named():
    assert "spread" in summarize([10.0, 20.0] * 25).unsteady[0]
    drifting = summarize([10.0 + 0.05 * step for step in range(50)])
    assert any("drift" in reason for reason in drifting.unsteady)


def test_no_values():
    with pytest.raises(ValueError, match="no timings"):
        summarize([])
