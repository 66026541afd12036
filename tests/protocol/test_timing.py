import gc
import time

from assay.protocol.timing import MIN_TIMED, time_runs


def test_every_run_is_made_within_the_budget():
    calls: list[int] = []
    timing = time_runs(lambda: calls.append(1), warmup=3, runs=20, budget_s=60)
    assert len(calls) == 23
    assert (len(timing.samples_ms), timing.warmup_runs, timing.budget_hit) == (20, 3, False)
    assert all(sample >= 0 for sample in timing.samples_ms)


def test_a_slow_graph_is_cut_short_but_never_below_the_minimum():
    timing = time_runs(lambda: time.sleep(0.02), warmup=5, runs=1000, budget_s=0.0)
    assert len(timing.samples_ms) == MIN_TIMED
    assert timing.warmup_runs == 1
    assert timing.budget_hit


def test_samples_are_milliseconds():
    timing = time_runs(lambda: time.sleep(0.01), warmup=0, runs=3, budget_s=10)
    assert all(sample >= 10.0 for sample in timing.samples_ms)


def test_the_collector_is_left_as_it_was():
    time_runs(lambda: None, warmup=0, runs=1, budget_s=1)
    assert gc.isenabled()
