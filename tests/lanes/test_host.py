"""A child that crashes, hangs, eats memory or floods its log is an outcome, never our end."""

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from assay import processes
from assay.devices.base import JobOutcome
from assay.devices.local import LocalDevice
from assay.errors import AssayError
from assay.lanes import registry
from assay.lanes.job import Job, Observation, TensorSpec, read_observation
from assay.processes import LOG_LIMIT, Stopped


def make_job(folder: Path) -> Job:
    return Job(
        model="none",
        workdir=str(folder),
        signature=None,
        inputs=[TensorSpec("x", "float32", (1, 2))],
        outputs=[],
        resized=[],
        input_sets=[],
        sequence=[],
    )


def run(lane: str, folder: Path, **limits: object) -> JobOutcome:
    return LocalDevice().run_job(f"bad_lanes:{lane}", make_job(folder), **limits)


def test_a_native_crash(tmp_path: Path):
    outcome = run("Crash", tmp_path)
    assert outcome.returncode == -11
    assert outcome.observation is not None
    assert outcome.observation.stage == "load"
    assert "about to misbehave" in outcome.log
    assert "Segmentation fault" in outcome.log


def test_an_exit(tmp_path: Path):
    assert run("Exit", tmp_path).returncode == 17


def test_an_exception(tmp_path: Path):
    outcome = run("Raise", tmp_path)
    assert outcome.observation is not None
    assert outcome.observation.error == "RuntimeError: no such luck"
    assert outcome.returncode == 3


def test_a_hang_is_killed_with_all_that_it_started(tmp_path: Path):
    outcome = run("Hang", tmp_path, time_limit_s=3.0)
    assert outcome.timed_out
    grandchild = int((tmp_path / "grandchild").read_text())
    with contextlib.suppress(psutil.NoSuchProcess):
        assert psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE


def test_what_a_killed_child_leaves_is_removed(tmp_path: Path):
    outcome = run("Litter", tmp_path, time_limit_s=3.0)
    assert outcome.timed_out
    assert not Path((tmp_path / "litter").read_text()).exists()


def test_a_child_does_not_outlive_a_killed_parent(tmp_path: Path):
    code = (
        "import sys; from assay.devices.local import LocalDevice; from assay.lanes.job import Job; "
        "LocalDevice().run_job('bad_lanes:Hang', Job.from_json(sys.argv[1]))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, make_job(tmp_path).to_json()])
    while not (tmp_path / "grandchild").exists():
        assert parent.poll() is None
        time.sleep(0.1)
    family = psutil.Process(parent.pid).children(recursive=True)
    assert len(family) == 2
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def test_a_job_in_a_thread_can_be_stopped(tmp_path: Path):
    stop = threading.Event()

    def stop_later() -> None:
        while not (tmp_path / "grandchild").exists():
            time.sleep(0.1)
        stop.set()

    threading.Thread(target=stop_later, daemon=True).start()
    with pytest.raises(Stopped):
        run("Hang", tmp_path, stop=stop)
    with contextlib.suppress(psutil.NoSuchProcess):
        grandchild = int((tmp_path / "grandchild").read_text())
        assert psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE


def test_a_glutton_is_stopped(tmp_path: Path):
    outcome = run("Eat", tmp_path, memory_limit=300)
    assert outcome.out_of_memory
    assert not outcome.timed_out


def test_a_flood_is_stopped_and_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processes, "LOG_FILE_LIMIT", 2**22)
    outcome = run("Flood", tmp_path)
    assert outcome.flooded
    assert len(outcome.log) <= LOG_LIMIT + 100


def test_a_crash_spares_the_jobs_before_it(tmp_path: Path):
    jobs = [make_job(tmp_path / str(index)) for index in range(3)]
    outcomes = LocalDevice().run_jobs("bad_lanes:CrashOnSecond", jobs)
    assert outcomes[0].observation is not None
    assert outcomes[0].observation.error is None
    assert outcomes[1].returncode == -6
    assert outcomes[2].observation is None


def test_what_the_child_wrote_is_read_with_care(tmp_path: Path):
    (tmp_path / "observation.json").write_text('{"stage": "load"')
    assert read_observation(tmp_path) is None
    (tmp_path / "observation.json").write_text("[]")
    assert read_observation(tmp_path) is None


def test_jobs_and_observations_survive_json(tmp_path: Path):
    job = make_job(tmp_path)
    assert Job.from_json(job.to_json()) == job
    observation = Observation(stage="done", samples_ms=[1.0], output_specs=[TensorSpec("y", "int8", (3,))])
    assert Observation.from_json(observation.to_json()) == observation


def test_an_unknown_lane_names_those_there_are():
    with pytest.raises(AssayError, match="no lane 'gpu_magic'") as caught:
        registry.find("gpu_magic")
    assert "cpu_xnnpack" in caught.value.fix


def test_a_lane_that_cannot_be_imported():
    with pytest.raises(AssayError, match="cannot be loaded"):
        registry.find("no_such_module:Lane")


def test_references_come_first():
    assert registry.names()[:2] == ["cpu_reference", "cpu_xnnpack"]
