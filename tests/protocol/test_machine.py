import subprocess
import sys

from assay.protocol import machine
from assay.protocol.machine import Clock, State

COOL = State(load1=0.1, frequency_ratio=1.0, hottest_c=40.0)


def test_the_machine_is_described():
    described = machine.describe()
    assert described["cpu_model"]
    assert described["cores"] >= 1
    assert described["memory_mb"] > 100


def test_others_use_of_the_cpu_leaves_our_own_out():
    before, after = Clock(0.0, 10.0, 0.0, 5.0), Clock(2.0, 14.0, 0.0, 8.0)
    assert machine.others_cores(before, after) == 0.5


def test_stolen_time_counts_as_others():
    assert machine.others_cores(Clock(0, 0, 0, 0), Clock(1, 1, 0.5, 1)) == 0.5


def test_a_quiet_cool_machine_disturbs_nothing():
    assert machine.disturbances(0.05, COOL, COOL) == []
    assert machine.disturbances(None, State(None, None, None), State(None, None, None)) == []


def test_each_disturbance_is_named():
    hot_and_slow = State(load1=4.0, frequency_ratio=0.5, hottest_c=99.0)
    reasons = machine.disturbances(1.5, COOL, hot_and_slow)
    assert [reason.split(":")[0].split(" ")[0] for reason in reasons] == ["machine", "clock", "hot"]


def test_a_busy_loop_elsewhere_is_seen():
    loop = [sys.executable, "-c", "import time\nend=time.time()+20\nwhile time.time()<end: pass"]
    # Started outside our own family of processes, as another program would be.
    shell = subprocess.Popen(["sh", "-c", '"$@" & echo $!', "sh", *loop], stdout=subprocess.PIPE, text=True)
    assert shell.stdout is not None
    pid = int(shell.stdout.readline())
    shell.wait()
    try:
        assert machine.wait_for_quiet(0.0, sample_s=0.5) is False
    finally:
        subprocess.run(["kill", str(pid)], check=False)


def test_memory_grows_with_what_is_held():
    machine.reset_peak()
    base = machine.resident_mb()
    block = bytearray(64 * 2**20)
    block[::4096] = b"x" * len(block[::4096])
    peak = machine.peak_mb()
    assert peak is not None
    assert peak - base > 50
    del block
