import numpy as np
import pytest

from assay.diagnosis.clues import Clue, look
from assay.numerics.faults import inject

RIGHT = np.random.default_rng(1).normal(size=(1, 6, 5, 8)).astype(np.float32)
PREVIOUS = np.random.default_rng(2).normal(size=(1, 6, 5, 8)).astype(np.float32)


def clues(wrong: np.ndarray, right: np.ndarray = RIGHT) -> list[Clue]:
    return [seen.clue for seen in look(right, wrong, 1e-5, previous=PREVIOUS if right is RIGHT else None)]


@pytest.mark.parametrize(
    ("kind", "size", "clue"),
    [
        ("shifted", "small", Clue.SHIFTED),
        ("shifted", "large", Clue.SHIFTED),
        ("offset", "small", Clue.OFFSET),
        ("offset", "large", Clue.OFFSET),
        ("scaled", "small", Clue.SCALED),
        ("scaled", "large", Clue.SCALED),
        ("transposed", "large", Clue.AXES_PERMUTED),
        ("rows_swapped", "small", Clue.ROWS_REORDERED),
        ("rows_swapped", "large", Clue.ROWS_REORDERED),
        ("broadcast_wrong", "small", Clue.ROWS_REPEATED),
        ("broadcast_wrong", "large", Clue.ROWS_REPEATED),
        ("stale", "small", Clue.PREVIOUS_RUN),
        ("stale", "large", Clue.PREVIOUS_RUN),
        ("zeroed", "large", Clue.ZEROED),
        ("zeroed", "small", Clue.PART),
        ("nan", "small", Clue.NOT_FINITE),
        ("nan", "large", Clue.NOT_FINITE),
        ("saturated", "small", Clue.SATURATED),
        ("saturated", "large", Clue.SATURATED),
        ("channel_off", "small", Clue.ONE_CHANNEL),
        ("channel_off", "large", Clue.ONE_CHANNEL),
    ],
)
def test_each_fault_leaves_its_clue(kind: str, size: str, clue: Clue) -> None:
    wrong = inject(kind, RIGHT, size=size, seed=3, previous=PREVIOUS)
    assert clues(wrong)[0] == clue


def test_equal_tensors_show_nothing() -> None:
    assert clues(RIGHT.copy()) == []
    assert clues(RIGHT + np.float32(1e-6)) == []


def test_equal_infinities_show_nothing() -> None:
    right = np.array([1.0, np.inf, -np.inf])
    assert look(right, right.copy(), 0.0) == []


def test_one_value_and_empty_tensors() -> None:
    assert look(np.zeros(0), np.zeros(0), 0.0) == []
    assert [seen.clue for seen in look(np.array(2.0), np.array(0.0), 0.1)] == [Clue.ZEROED]


def test_noise_has_no_clue() -> None:
    noise = np.random.default_rng(5).normal(size=RIGHT.shape)
    assert clues(RIGHT + 10 * noise) == []
