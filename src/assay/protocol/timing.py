"""The timing loop: warm-up, then repeats, with a time budget for slow graphs."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

MIN_TIMED = 3
"""However slow a graph is, a median is taken of at least this many values."""


@dataclass(frozen=True)
class Timing:
    """What the loop measured.

    Attributes:
        samples_ms: Wall time of each timed call in milliseconds, in order.
        warmup_runs: Calls made before.
        budget_hit: True if the budget ended the loop before all runs were made.
    """

    samples_ms: list[float]
    warmup_runs: int
    budget_hit: bool


def time_runs(call: Callable[[], object], *, warmup: int, runs: int, budget_s: float) -> Timing:
    """Call `call` some times to warm up, then time it `runs` times or until the budget is spent.

    A quarter of the budget bounds the warm-up, the whole of it the timed calls; one warm-up call and three
    timed calls are made in any case. The garbage collector rests meanwhile.

    Args:
        call: One invocation, host to host.
        warmup: Untimed calls first; 0 for none.
        runs: Timed calls.
        budget_s: Seconds.
    """
    clock = time.perf_counter_ns
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        warmed = 0
        end = clock() + int(budget_s * 0.25e9)
        while warmed < warmup and (warmed == 0 or clock() < end):
            call()
            warmed += 1
        samples: list[int] = []
        end = clock() + int(budget_s * 1e9)
        while len(samples) < runs:
            start = clock()
            if start > end and len(samples) >= MIN_TIMED:
                break
            call()
            samples.append(clock() - start)
    finally:
        if collecting:
            gc.enable()
    return Timing([sample / 1e6 for sample in samples], warmed, len(samples) < runs)
