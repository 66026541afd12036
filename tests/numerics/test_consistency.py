from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import AssayError
from assay.numerics.consistency import check_consistency, plan_sequence

RIGHT = [np.random.default_rng(seed).normal(size=(2, 5)).astype(np.float32) for seed in range(6)]


def played(sequence, lane):
    """The outputs of a lane: a function of (position, set, the sets before)."""
    return [[lane(position, index, sequence[:position])] for position, index in enumerate(sequence)]


def label(lane, sets=3):
    sequence = plan_sequence(sets)
    return check_consistency(sequence, played(sequence, lane), ["y"]).label


def correct(position, index, before):
    return RIGHT[index]


def stale_once(position, index, before):
    return RIGHT[before[-1]] if position == 2 else RIGHT[index]


def one_behind(position, index, before):
    return RIGHT[before[-1]] if before else RIGHT[5] * 3


def first_only(position, index, before):
    return RIGHT[index] if position == 0 else RIGHT[index] * 0.5


def order(position, index, before):
    return RIGHT[index] + (before[-1] if before else 7)


def noisy(position, index, before):
    return RIGHT[index] + np.float32(position) * 0.1


@pytest.mark.parametrize("sets", [2, 3, 6])
@pytest.mark.parametrize(
    ("lane", "name"),
    [
        (correct, "consistent"),
        (stale_once, "stale"),
        (one_behind, "stale"),
        (first_only, "first_run_only"),
        (order, "order_dependent"),
    ],
)
def test_each_fault_has_its_name(lane, name, sets):
    assert label(lane, sets) == name


def test_one_set_shows_what_it_can():
    assert label(correct, 1) == "consistent"
    assert label(first_only, 1) == "first_run_only"
    assert label(noisy, 1) in ("unstable", "order_dependent")


def test_plain_unsteadiness_is_not_given_a_pattern():
    sequence = [0, 1, 0, 1, 0, 1]
    assert check_consistency(sequence, played(sequence, noisy), ["y"]).label == "unstable"


@given(st.integers(1, 8))
def test_a_sequence_runs_all_sets_and_repeats_some(sets):
    sequence = plan_sequence(sets)
    assert set(sequence) == set(range(sets))
    assert len(sequence) > sets
    if sets > 1:
        # A repeat after another set, so that a stale output shows.
        assert any(
            before != after and after in sequence[: i + 1] for i, (before, after) in enumerate(pairwise(sequence))
        )


def test_reordered_sums_are_consistent_and_not_bitwise():
    sequence = [0, 1, 0]
    outputs = [[RIGHT[0]], [RIGHT[1]], [np.nextafter(RIGHT[0], np.float32(np.inf))]]
    found = check_consistency(sequence, outputs, ["y"])
    assert found.label == "consistent" and found.bitwise is False
    assert check_consistency([0, 1], outputs[:2], ["y"]).label == "not_measured"


def test_nan_the_second_time_is_not_consistent():
    bad = RIGHT[0].copy()
    bad[0, 0] = np.nan
    assert check_consistency([0, 1, 0], [[RIGHT[0]], [RIGHT[1]], [bad]], ["y"]).label != "consistent"
    assert check_consistency([0, 1, 0], [[bad], [RIGHT[1]], [bad.copy()]], ["y"]).label == "consistent"


def test_no_sets():
    with pytest.raises(AssayError):
        plan_sequence(0)
