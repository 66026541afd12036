"""Find the smallest part of a sequence that shows a fault, with few rounds of tests.

Pure algorithms over a `Test`: they know nothing of graphs or lanes. One call of the test is one round, and all
of a round's candidates can be tried in one process, so the number of rounds is what counts. An item is a place
in the execution order; a candidate is a set of places that are run together with right values from outside.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Places = tuple[int, ...]
"""Places in execution order, ascending."""

Test = Callable[[Sequence[Places]], Sequence[bool]]
"""For each candidate whether it shows the fault; one call is one round."""

WIDTH = 8
"""Candidates in a round. Pieces of one interval cost together what the interval costs, so 8 are as cheap as 2."""

_SINGLY = 32
"""Up to this many places are left out one by one in a single round."""


@dataclass(frozen=True)
class Region:
    """The smallest part that was found to show the fault.

    Attributes:
        places: The places that are needed.
        isolated: True if one place alone shows the fault; False if it needs its neighbours.
    """

    places: Places
    isolated: bool


def find_region(count: int, test: Test, *, width: int = WIDTH) -> Region:
    """The first place, in execution order, that shows the fault, or the smallest context that keeps it.

    The interval known to be faulty is cut into `width` pieces, all tried in one round, and the first faulty
    one is cut again. Where no piece of a faulty interval is faulty, the fault needs places of more than one
    piece: then the shortest faulty beginning of the interval is looked for, then the latest start that still
    shows the fault, then every place between that can be left out.

    Args:
        count: Number of places; all of them together are known to show the fault.
        test: Tries candidates.
        width: Candidates in a round, at least 2.

    Returns:
        A region that showed the fault in a round of this search, or all places if nothing smaller did.
    """
    low, high = 0, count
    while high - low > 1:
        pieces = _split(low, high, width)
        results = test([tuple(range(start, end)) for start, end in pieces])
        faulty = next((piece for piece, shows in zip(pieces, results, strict=True) if shows), None)
        if faulty is None:
            return _in_context(low, high, pieces[0][1], test, width)
        low, high = faulty
    return Region((low,), isolated=True)


def _in_context(low: int, high: int, right_until: int, test: Test, width: int) -> Region:
    end = _first_faulty_end(low, right_until, high, test, width)
    start = _last_faulty_start(low, end, test, width)
    needed = minimize(tuple(range(start, end)), test, width=width)
    return Region(needed, isolated=len(needed) == 1)


def _first_faulty_end(low: int, right: int, faulty: int, test: Test, width: int) -> int:
    """The smallest end so that [low, end) shows the fault; [low, right) does not, [low, faulty) does."""
    while faulty - right > 1:
        ends = _between(right, faulty, width)
        results = test([tuple(range(low, end)) for end in ends])
        for end, shows in zip(ends, results, strict=True):
            if shows:
                faulty = end
                break
            right = end
    return faulty


def _last_faulty_start(low: int, end: int, test: Test, width: int) -> int:
    """The largest start so that [start, end) shows the fault; [low, end) does, the last place alone does not."""
    faulty, right = low, end - 1
    while right - faulty > 1:
        starts = _between(faulty, right, width)
        results = test([tuple(range(start, end)) for start in starts])
        for start, shows in zip(reversed(starts), reversed(list(results)), strict=True):
            if shows:
                faulty = start
                break
            right = start
    return faulty


def minimize(places: Places, test: Test, *, width: int = WIDTH) -> Places:
    """Delta debugging: a subset that shows the fault and of which no single place can be left out.

    First every place is left out by itself, all in one round: those that cannot be left out are needed, and
    most often they are all that is needed, which a second round confirms. Otherwise Zeller and Hildebrandt's
    ddmin (IEEE TSE 28(2), 2002) runs, with all subsets and complements of one granularity in one round.

    Args:
        places: Known to show the fault together.
        test: Tries candidates.
        width: Parts into which a long list is cut at first.

    Returns:
        The smallest subset found, in order.
    """
    current = places
    if 2 < len(current) <= _SINGLY:
        results = test([_without(current, (place,)) for place in current])
        needed = tuple(place for place, shows in zip(current, results, strict=True) if not shows)
        if needed == current:
            return current
        if needed and test([needed])[0]:
            return needed
    granularity = min(width, len(current))
    while len(current) > 1:
        granularity = min(granularity, len(current))
        parts = _parts(current, granularity)
        candidates = [*parts, *(_without(current, part) for part in parts)] if granularity > 2 else parts
        results = test(candidates)
        index = next((i for i, shows in enumerate(results) if shows), None)
        if index is None:
            if granularity == len(current):
                break
            granularity *= 2
        elif index < len(parts):
            current, granularity = candidates[index], 2
        else:
            current, granularity = candidates[index], max(granularity - 1, 2)
    return current


def _split(low: int, high: int, parts: int) -> list[tuple[int, int]]:
    """[low, high) cut into at most `parts` intervals of nearly equal length."""
    parts = min(parts, high - low)
    edges = [low + (high - low) * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))


def _between(low: int, high: int, width: int) -> list[int]:
    """Up to `width` numbers spread evenly in the open interval (low, high), ascending."""
    count = min(width, high - low - 1)
    return [low + (high - low) * (i + 1) // (count + 1) for i in range(count)]


def _parts(places: Places, count: int) -> list[Places]:
    return [places[start:end] for start, end in _split(0, len(places), count)]


def _without(places: Places, part: Places) -> Places:
    left_out = set(part)
    return tuple(place for place in places if place not in left_out)
