import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from assay.errors import AssayError
from assay.numerics.faults import FP16_MAX, KINDS, SIZES, inject

arrays = hnp.arrays(
    st.sampled_from([np.float32, np.int8, np.uint8, np.int32]),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
)


@given(arrays, st.sampled_from(KINDS), st.sampled_from(SIZES), st.integers(0, 99))
def test_a_fault_keeps_shape_dtype_and_the_original(array, kind, size, seed):
    before = array.copy()
    bad = inject(kind, array, size=size, seed=seed)
    assert bad.shape == array.shape and bad.dtype == array.dtype
    assert array.tobytes() == before.tobytes()
    assert inject(kind, array, size=size, seed=seed).tobytes() == bad.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_every_fault_changes_an_ordinary_tensor(kind, size):
    array = np.random.default_rng(0).normal(size=(1, 9, 7, 5)).astype(np.float32)
    bad = inject(kind, array, size=size, seed=4)
    assert not np.array_equal(array, bad)
    changed = np.mean((array != bad) | np.isnan(bad))
    if size == "small" and kind not in ("offset", "scaled", "shifted"):
        assert changed <= 0.3


def test_faults_are_what_they_say():
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert np.array_equal(inject("rows_swapped", array), array[::-1])
    assert np.array_equal(inject("broadcast_wrong", array), np.broadcast_to(array[0], (4, 6)))
    assert np.array_equal(inject("transposed", array), array.T.reshape(4, 6))
    assert np.array_equal(inject("shifted", array, size="small"), np.roll(array, 1, axis=0))
    assert np.array_equal(inject("stale", array, previous=array * 2), array * 2)
    assert np.isnan(inject("nan", array, size="small")).sum() == 1
    assert inject("saturated", array, size="small").max() == FP16_MAX
    moved = inject("channel_off", array, seed=2) != array
    assert moved[:, 2].all() and moved.sum() == 4


def test_bad_calls():
    with pytest.raises(AssayError, match="no fault"):
        inject("odd", np.zeros(3))
    with pytest.raises(AssayError, match="size"):
        inject("nan", np.zeros(3), size="huge")
    with pytest.raises(AssayError, match="previous"):
        inject("stale", np.zeros(3), previous=np.zeros(4))
