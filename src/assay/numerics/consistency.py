"""Does a lane give the same answer each time? Several inferences, the inputs changed in between and repeated.

Three faults hide from a single inference: a *stale* output (the previous input's answer), an answer that is
right *the first time only*, and one that depends on *what ran before*. Each is told from plain unsteadiness
by looking at which outputs agree with which.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import AssayError
from assay.numerics.envelope import Arrays, deviation

CONSISTENT = "consistent"
STALE = "stale"
FIRST_RUN_ONLY = "first_run_only"
ORDER_DEPENDENT = "order_dependent"
UNSTABLE = "unstable"
NOT_MEASURED = "not_measured"

REPEAT_TOLERANCE = 2.0**-18
"""Repeated inferences agree if they differ by less than this share of the output's root mean square. A lane that
adds up in another order each time (atomics) stays below; an fp16 one repeats itself to the last bit or not at
all, in steps of 2**-11, which are above."""


@dataclass(frozen=True)
class Consistency:
    """What repeated inferences showed.

    Attributes:
        label: `consistent`, `stale`, `first_run_only`, `order_dependent`, `unstable` or `not_measured`.
        sentence: The same in one plain sentence.
        bitwise: True if repeated inferences gave the same bits.
        max_abs_diff: Largest difference between two inferences of the same inputs; None if none was repeated.
    """

    label: str
    sentence: str
    bitwise: bool | None = None
    max_abs_diff: float | None = None

    def to_dict(self) -> dict[str, str | bool | float | None]:
        """As JSON-ready values."""
        return {
            "label": self.label,
            "sentence": self.sentence,
            "bitwise": self.bitwise,
            "max_abs_diff": self.max_abs_diff,
        }


def plan_sequence(sets: int) -> list[int]:
    """The order of inferences that shows every fault named here: all sets, then all again in reverse.

    With sets 0, 1, 2 that is 0 1 2 2 1 0: each set runs twice, after different others, and the last one at once
    again. Two sets run as 0 1 0 1 1. A single one runs three times, which shows no stale output.

    Raises:
        AssayError: No sets.
    """
    if sets < 1:
        raise AssayError("a sequence needs at least one set of inputs")
    if sets <= 2:
        return [0, 0, 0] if sets == 1 else [0, 1, 0, 1, 1]
    return [*range(sets), *reversed(range(sets))]


def check_consistency(sequence: Sequence[int], outputs: Sequence[Arrays], names: Sequence[str]) -> Consistency:
    """Look at which inferences agree.

    Args:
        sequence: Index of the input set of each inference, in order; sets are taken to differ.
        outputs: The outputs of each inference, in the same order; may be shorter, if the lane stopped early.
        names: The outputs' names.

    Returns:
        The finding. `first_run_only` means that the first inference stands alone and all later ones of the
        same inputs agree; whether the first or the later ones are right is for the verdict to say.
    """
    runs = list(zip(sequence, outputs, strict=False))
    repeats = [(i, j) for j in range(len(runs)) for i in range(j) if runs[i][0] == runs[j][0]]
    if not repeats:
        return Consistency(NOT_MEASURED, "no inputs were run twice")
    differences = [_difference(runs[i][1], runs[j][1], names) for i, j in repeats]
    largest = max(differences, key=lambda d: d.share)
    bitwise = all(d.bitwise for d in differences)
    if largest.share <= REPEAT_TOLERANCE:
        how = "to the last bit" if bitwise else f"to within {largest.absolute:.2g}"
        return Consistency(CONSISTENT, f"the same inputs gave the same outputs {how}", bitwise, largest.absolute)
    label, what = _named(runs, names)
    where = f"output {largest.name!r} differs by up to {largest.absolute:.3g} for the same inputs"
    return Consistency(label, f"{what}: {where}", False, _number(largest.absolute))


@dataclass(frozen=True)
class _Difference:
    name: str
    share: float
    absolute: float
    bitwise: bool


def _named(runs: list[tuple[int, Arrays]], names: Sequence[str]) -> tuple[str, str]:
    """The fault that the pattern of agreements shows."""
    position = _stale_position(runs, names)
    if position is not None:
        return STALE, f"inference {position + 1} returned the outputs of the inference before"
    later = [(i, j) for j in range(1, len(runs)) for i in range(1, j) if runs[i][0] == runs[j][0]]
    firsts = [j for j in range(1, len(runs)) if runs[j][0] == runs[0][0]]
    later_agree = all(_agree(runs[i][1], runs[j][1], names) for i, j in later)
    if later_agree and firsts and not any(_agree(runs[0][1], runs[j][1], names) for j in firsts):
        return FIRST_RUN_ONLY, "the first inference gives something else than all later ones"
    if _lags(runs, names):
        return STALE, "each inference returns the outputs that belong to the inputs before"
    if _depends_on_order(runs, names):
        return ORDER_DEPENDENT, "the outputs depend on which inputs were run before"
    return UNSTABLE, "repeated inferences disagree without a pattern"


def _stale_position(runs: list[tuple[int, Arrays]], names: Sequence[str]) -> int | None:
    """An inference that equals the one before though its inputs are others, and disagrees with its own repeat."""
    for position in range(1, len(runs)):
        current, before = runs[position], runs[position - 1]
        if current[0] == before[0] or not _agree(current[1], before[1], names):
            continue
        others = [run for run in runs[1:] if run[0] != before[0] and run is not current]
        if others and all(_agree(before[1], other[1], names) for other in others):
            continue  # Everything is the same after the first run: nothing was left over from one input.
        own = [other for other in runs if other[0] == current[0] and other is not current]
        if any(not _agree(current[1], other[1], names) for other in own):
            return position
    return None


def _lags(runs: list[tuple[int, Arrays]], names: Sequence[str]) -> bool:
    """True if the inputs before decide the outputs alone: same predecessor, same outputs, other inputs."""
    seen = False
    for j in range(1, len(runs)):
        for i in range(1, j):
            if runs[i - 1][0] == runs[j - 1][0]:
                if not _agree(runs[i][1], runs[j][1], names):
                    return False
                seen = seen or runs[i][0] != runs[j][0]
    return seen


def _depends_on_order(runs: list[tuple[int, Arrays]], names: Sequence[str]) -> bool:
    """True if inferences of the same inputs agree when their predecessor does, and differ when it does not."""
    same = different = 0
    for j in range(1, len(runs)):
        for i in range(1, j):
            if runs[i][0] != runs[j][0]:
                continue
            agree = _agree(runs[i][1], runs[j][1], names)
            if runs[i - 1][0] == runs[j - 1][0]:
                if not agree:
                    return False
                same += 1
            elif not agree:
                different += 1
    return different > 0


def _agree(a: Arrays, b: Arrays, names: Sequence[str]) -> bool:
    return _difference(a, b, names).share <= REPEAT_TOLERANCE


def _difference(a: Arrays, b: Arrays, names: Sequence[str]) -> _Difference:
    """The output that differs most, relative to its size."""
    worst = _Difference("", 0.0, 0.0, True)
    bitwise = True
    for name, first, second in zip(names, a, b, strict=True):
        found = _one(name, first, second)
        bitwise = bitwise and found.bitwise
        worst = max(worst, found, key=lambda d: (d.share, d.absolute))
    return _Difference(worst.name, worst.share, worst.absolute, bitwise)


def _one(name: str, first: NDArray[Any], second: NDArray[Any]) -> _Difference:
    if first.shape != second.shape or first.dtype != second.dtype:
        return _Difference(name, math.inf, math.inf, False)
    if first.tobytes() == second.tobytes():
        return _Difference(name, 0.0, 0.0, True)
    moved = np.abs(deviation(first, second))
    if not np.isfinite(moved).all():
        return _Difference(name, math.inf, math.inf, False)
    wide = first.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    size = math.sqrt(float(np.square(finite).mean())) if finite.size else 0.0
    absolute = float(moved.max(initial=0.0))
    share = 0.0 if absolute == 0 else absolute / size if size > 0 else math.inf
    return _Difference(name, share, absolute, False)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
