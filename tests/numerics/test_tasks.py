import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import AssayError
from assay.numerics.tasks import (
    binary_iou,
    boundary_agreement,
    box_errors,
    guess_task,
    keypoint_errors,
    rank_correlation,
    task_metrics,
    top_k_agreement,
)


def square(low, high, side=40):
    mask = np.zeros((1, side, side, 1))
    mask[:, low:high, low:high] = 1
    return mask


def test_masks():
    a = square(10, 30)
    assert binary_iou(a, a, 0.5) == 1.0
    assert boundary_agreement(a, a, 0.5) == 1.0
    assert binary_iou(a, square(10, 20), 0.5) == pytest.approx(0.25)
    assert boundary_agreement(a, np.roll(a, 1, axis=1), 0.5) == 1.0
    assert boundary_agreement(a, np.roll(a, 8, axis=(1, 2)), 0.5) < 0.5
    assert binary_iou(a * 0, a * 0, 0.5) is None
    assert boundary_agreement(a * 0, a * 0, 0.5) is None
    assert boundary_agreement(a, a * 0, 0.5) == 0.0
    assert binary_iou(a, np.full_like(a, np.nan), 0.5) == 0.0


@given(st.integers(0, 2**32 - 1))
def test_mask_figures_are_symmetric_shares(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.random((2, 1, 12, 17, 2))
    for figure in (binary_iou, boundary_agreement):
        forth, back = figure(a, b, 0.5), figure(b, a, 0.5)
        assert forth == pytest.approx(back)
        assert 0 <= forth <= 1


def test_scores():
    r = np.array([[0.1, 0.7, 0.2, 0, 0, 0, 0], [0.9, 0.05, 0.05, 0, 0, 0, 0]])
    o = np.array([[0.4, 0.3, 0.2, 0, 0, 0, 0], [0.9, 0.05, 0.05, 0, 0, 0, 0]])
    assert top_k_agreement(r, r, 1) == 1.0
    assert top_k_agreement(r, o, 1) == 0.5
    assert top_k_agreement(r, o, 5) == 1.0
    assert top_k_agreement(r, np.full_like(r, np.nan), 1) == 0.5  # The first class, by index.
    assert top_k_agreement(r[:, :1], o[:, :1], 1) is None
    assert rank_correlation(np.arange(5.0), np.arange(5.0) ** 3) == pytest.approx(1.0)
    assert rank_correlation(np.arange(5.0), -np.arange(5.0)) == pytest.approx(-1.0)
    assert rank_correlation(np.zeros(5), np.arange(5.0)) is None


def test_boxes_and_keypoints():
    r = np.array([[0.0, 0.0, 10.0, 10.0], [5.0, 5.0, 6.0, 6.0]])
    o = r + np.array([[0, 0, 0, 10.0], [0, 0, 0, 0]])
    assert box_errors(r, o) == {"box_iou_min": pytest.approx(0.5), "box_error_max_px": 10.0}
    points = np.zeros((1, 3, 3))
    moved = points + np.array([[[3.0, 4.0, 99.0], [0, 0, 0], [0, 0, 0]]])
    found = keypoint_errors(points, moved)
    assert found["keypoint_error_max_px"] == 5.0
    assert found["keypoint_error_mean_px"] == pytest.approx(5 / 3)


@pytest.mark.parametrize(
    ("name", "shape", "task"),
    [
        ("segment_back", (1, 144, 256, 1), "mask"),
        ("masks", (1, 3, 256, 256), "mask"),
        ("class_scores", (1, 1000), "scores"),
        ("boxes", (1, 100, 4), "boxes"),
        ("landmarks", (1, 21, 3), "keypoints"),
        ("Identity", (1, 195), None),
        ("x", (), None),
        ("mask", (3,), None),
    ],
)
def test_guesses(name, shape, task):
    assert guess_task(name, shape) == task
    figures = task_metrics(np.zeros(shape), np.zeros(shape), task)
    assert bool(figures) == (task is not None)


def test_bad_calls():
    with pytest.raises(AssayError, match="no task"):
        task_metrics(np.zeros(1), np.zeros(1), "poems")
    with pytest.raises(AssayError, match="shape"):
        task_metrics(np.zeros(1), np.zeros(2), "mask")
