import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from assay.errors import AssayError
from assay.numerics import compare as module
from assay.numerics.compare import compare, compare_one, ulp_distance

floats = hnp.arrays(
    st.sampled_from([np.float16, np.float32, np.float64]),
    hnp.array_shapes(max_dims=3, max_side=6),
    elements={"allow_subnormal": True},
)


@given(floats)
def test_an_output_is_identical_to_itself(values):
    found = compare_one(values, values.copy())
    assert found.identical
    assert found.nonfinite_mismatch == 0
    assert found.max_abs_diff in (0.0, None)
    assert found.outside_share == 0.0
    assert found.max_ulp in (0, None)
    assert found.snr_db is None
    assert found.correlation is None or found.correlation == pytest.approx(1.0)


@given(
    hnp.arrays(np.float32, 40, elements={"min_value": -1000, "max_value": 1000}),
    hnp.arrays(np.float32, 40, elements={"min_value": -1000, "max_value": 1000}),
)
def test_figures_equal_the_plain_formulas(r, o):
    found = compare_one(r.reshape(4, 10), o.reshape(4, 10))
    a, b = r.astype(np.float64), o.astype(np.float64)
    d = b - a
    assert found.max_abs_diff == np.abs(d).max()
    assert found.mean_abs_diff == pytest.approx(np.abs(d).mean())
    assert found.rms_diff == pytest.approx(math.sqrt((d**2).mean()))
    assert found.max_abs_at == np.unravel_index(np.argmax(np.abs(d)), (4, 10))
    if np.abs(a).max() > 0:
        assert found.max_rel_diff == pytest.approx(np.abs(d).max() / np.abs(a).max())
    assert found.outside_share == np.mean(np.abs(d) > 1e-5 + 1e-3 * np.abs(a))
    if a.std() > 1e-3 and b.std() > 1e-3:
        assert found.correlation == pytest.approx(np.corrcoef(a, b)[0, 1], abs=1e-9)
    if (a**2).sum() > 0 and (d**2).sum() > 0:
        assert found.snr_db == pytest.approx(10 * math.log10((a**2).sum() / (d**2).sum()), abs=1e-6)


@given(st.integers(1, 200), st.integers(1, 60))
def test_blocks_give_what_the_whole_gives(size, block):
    rng = np.random.default_rng(size)
    r, o = rng.normal(5, 2, size), rng.normal(5, 2, size)
    whole = compare_one(r, o)
    before, module.BLOCK = module.BLOCK, block
    try:
        parts = compare_one(r, o)
    finally:
        module.BLOCK = before
    for name, value in whole.to_dict().items():
        other = parts.to_dict()[name]
        assert (
            other == pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else other == value
        ), name


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(0, 1000))
def test_ulp_distance_counts_steps_of_nextafter(start, steps):
    value = np.float32(start)
    moved = value
    for _ in range(steps % 40):
        following = np.nextafter(moved, np.float32(np.inf))
        if not np.isfinite(following):
            break
        moved = following
        steps_done = ulp_distance(np.array([value]), np.array([moved]))[0]
    if moved != value:
        bits = ulp_distance(np.array([moved]), np.array([value]))[0]
        assert bits == steps_done
        assert bits <= steps % 40


def test_ulps_of_signed_zeros_and_across_zero():
    assert ulp_distance(np.array([-0.0], np.float32), np.array([0.0], np.float32))[0] == 0
    tiny = np.nextafter(np.float32(0), np.float32(1))
    assert ulp_distance(np.array([-tiny]), np.array([tiny]))[0] == 2


def test_lost_numbers_are_counted_and_left_out():
    r = np.array([1.0, 2.0, np.nan, np.inf, 5.0])
    o = np.array([1.0, np.nan, np.nan, -np.inf, 6.0])
    found = compare_one(r, o)
    assert (found.reference_nan, found.output_nan) == (1, 2)
    assert (found.reference_inf, found.output_inf) == (1, 1)
    assert found.nonfinite_mismatch == 2
    assert found.max_abs_diff == 1.0
    assert found.max_abs_at == (4,)
    assert found.differing == 3


def test_everything_lost_leaves_no_figures():
    found = compare_one(np.ones(3), np.full(3, np.nan))
    assert found.max_abs_diff is None
    assert found.nonfinite_mismatch == 3
    assert found.outside_share == 1.0
    assert not found.identical


def test_integers_booleans_complex_and_wide_integers():
    assert compare_one(np.array([0, 255], np.uint8), np.array([255, 0], np.uint8)).max_abs_diff == 255
    assert compare_one(np.array([True]), np.array([False])).differing == 1
    big = np.array([2**62], np.int64)
    assert compare_one(big, big + 1).differing == 1
    found = compare_one(np.array([1 + 1j, 0]), np.array([1 + 1j, 3j]))
    assert found.max_abs_diff == 3
    assert found.max_abs_at == (1,)


def test_empty_scalar_and_other_shapes():
    assert compare_one(np.zeros((0, 3)), np.zeros((0, 3))).elements == 0
    assert compare_one(np.array(1.0), np.array(2.0)).max_abs_at == ()
    assert "shape" in str(compare_one(np.zeros(2), np.zeros(3)).problem)
    assert "numeric" in str(compare_one(np.array(["a"]), np.array(["a"])).problem)
    with pytest.raises(AssayError):
        compare([np.zeros(1)], [], ["a"])


def test_a_constant_has_no_correlation():
    r = np.full(1000, 0.1, np.float32)
    assert compare_one(r, np.random.default_rng(0).random(1000)).correlation is None
    assert compare_one(r, r).reference_constant is True


@settings(max_examples=20)
@given(hnp.arrays(np.float32, 50, elements=st.floats(width=32)))
def test_any_bits_give_figures_that_json_can_hold(values):
    rng = np.random.default_rng(1)
    found = compare_one(values, rng.permutation(values)).to_dict()
    for value in found.values():
        assert not isinstance(value, float) or math.isfinite(value)
