"""A lane that misbehaves is a failed run with its class and its last words; what else was asked for goes on."""

import subprocess
import sys
from pathlib import Path

import pytest
import strangers
from strangers import write

from assay.measure.run import run_models
from assay.measure.settings import Settings
from assay.records import read_device_runs


@pytest.mark.parametrize(
    ("lane", "failure", "words"),
    [
        ("Crash", "crashed", "SIGSEGV"),
        ("Exit", "crashed", "exit code 17"),
        ("Raise", "load_failed", "no such luck"),
        ("Hang", "timed_out", "time limit"),
        ("Eat", "out_of_memory", "memory limit"),
    ],
)
def test_the_rest_goes_on(lane: str, failure: str, words: str, tmp_path: Path):
    path = write(strangers.plain(), tmp_path, "m")
    lanes = ("cpu_reference", f"bad_lanes:{lane}", "cpu_xnnpack")
    settings = Settings(lanes=lanes, runs=3, out=tmp_path / "out", time_limit_s=8.0, memory_limit=600)
    report = run_models([path], settings)
    runs = {result.lane: result.entry.run for result in report.results}
    assert runs["cpu_reference"].failure_class is None
    assert runs["cpu_xnnpack"].failure_class is None
    assert runs["bad"].failure_class == failure
    assert words in str(runs["bad"].error)
    assert "about to misbehave" in runs["bad"].evidence
    assert (runs["bad"].loads, runs["bad"].runs, runs["bad"].latency_p50_ms) == (False, False, None)
    assert report.exit_code == 1
    written = read_device_runs(report.results[0].record)
    assert [entry.run.failure_class for entry in written.entries] == [
        result.entry.run.failure_class for result in report.results
    ]


def test_a_full_disk_is_no_fault_of_the_lane(tmp_path: Path):
    path = write(strangers.plain(), tmp_path, "m")
    settings = Settings(lanes=("cpu_xnnpack", "bad_lanes:NoRoom"), runs=3, out=tmp_path / "out")
    told: list[str] = []
    with pytest.raises(OSError, match="No space left on device"):
        run_models([path], settings, done=lambda result: told.append(result.lane))
    assert told == ["cpu_xnnpack"]
    (record,) = (tmp_path / "out" / "data").rglob("*.json")
    assert [entry.run.accelerator for entry in read_device_runs(record).entries] == ["cpu_xnnpack"]


def test_the_quiet_gate_tries_again_and_says_how_often(tmp_path: Path):
    # A busy loop for each core, outside our own family of processes.
    loop = "import time\nend=time.time()+60\nwhile time.time()<end: pass"
    command = f'for _ in 1 2 3 4; do "{sys.executable}" -c "{loop}" >/dev/null & echo $!; done'
    shell = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True)
    assert shell.stdout is not None
    pids = [shell.stdout.readline().strip() for _ in range(4)]
    shell.wait()
    try:
        path = write(strangers.large(64), tmp_path, "m")
        settings = Settings(
            lanes=("cpu_xnnpack",),
            runs=20,
            out=tmp_path / "out",
            quiet_gate=True,
            quiet_timeout_s=0.1,
            quiet_attempts=2,
        )
        run = run_models([path], settings).results[0].entry.run
    finally:
        subprocess.run(["kill", *pids], check=False)
    assert run.metrics["quiet_attempts"] == 2
    assert run.metrics["unstable"] is True
    assert run.metrics["unstable_because"]
