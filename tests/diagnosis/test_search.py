import math

from hypothesis import given
from hypothesis import strategies as st

from assay.diagnosis.search import Places, find_region, minimize


class Oracle:
    """Shows the fault where a candidate holds all the places of one of the causes; counts rounds."""

    def __init__(self, *causes: set[int]) -> None:
        self.causes = causes
        self.rounds = 0

    def __call__(self, candidates: list[Places]) -> list[bool]:
        self.rounds += 1
        return [any(cause <= set(candidate) for cause in self.causes) for candidate in candidates]


@given(st.integers(1, 1000), st.data())
def test_single_place_is_found(count: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, count - 1))
    oracle = Oracle({place})
    region = find_region(count, oracle)
    assert region.places == (place,)
    assert region.isolated
    assert oracle.rounds <= math.ceil(math.log(count, 7)) + 1


@given(st.integers(2, 300), st.data())
def test_context_is_found_exactly(count: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, count - 2))
    others = data.draw(st.sets(st.integers(start + 1, min(count - 1, start + 20)), min_size=1, max_size=4))
    cause = {start, *others}
    oracle = Oracle(cause)
    region = find_region(count, oracle)
    assert set(region.places) == cause
    assert not region.isolated
    assert oracle.rounds <= 2 * math.log2(count) + 6


def test_first_of_two_single_places() -> None:
    assert find_region(100, Oracle({80}, {33})).places == (33,)


@given(st.integers(2, 60), st.data())
def test_minimize_leaves_nothing_out_that_is_needed(count: int, data: st.DataObject) -> None:
    cause = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=6))
    assert set(minimize(tuple(range(count)), Oracle(cause))) == cause


def test_minimize_with_two_alternatives_keeps_one() -> None:
    found = set(minimize(tuple(range(10)), Oracle({1, 5}, {2, 7})))
    assert found in ({1, 5}, {2, 7})
