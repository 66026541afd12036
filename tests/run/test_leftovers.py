"""However a command ends, it leaves no process and no temporary file, and what was measured is whole."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from assay.scratch import Scratch
from signals import start

ASSAY = str(Path(sys.executable).parent / "assay")
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "assay"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder for temporary files, short as browsers need it, for this process and its children.

    It is not `tmp_path`, which must be there before: pytest makes it where temporary files go.
    """
    folder = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


def abandoned(place: Path) -> Path:
    """The folder of a process that was killed."""
    code = "import time; from assay.scratch import Scratch; kept = Scratch(); print(kept.path, flush=True)"
    code += "; time.sleep(600)"
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    folder = Path(owner.stdout.readline().strip())
    assert folder.parent == place
    owner.kill()
    owner.wait()
    return folder


def make_old(folder: Path) -> None:
    os.utime(folder / "owner.lock", (time.time() - 3600, time.time() - 3600))


def test_a_folder_is_gone_at_the_end(place: Path):
    with Scratch() as folder:
        (folder / "file").write_text("x")
        assert folder.parent == place
    assert not any(place.iterdir())


def test_what_a_killed_process_left_is_removed_by_the_next(place: Path):
    left = abandoned(place)
    with Scratch():
        assert left.exists(), "its owner may be about to lock it"
    make_old(left)
    with Scratch():
        assert not left.exists()


def test_a_folder_in_use_stays_however_old(place: Path):
    with Scratch() as mine:
        make_old(mine)
        with Scratch():
            assert mine.exists()


def test_a_long_name_is_left_for_a_short_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Scratch() as folder:
        assert folder.parent == Path("/tmp")


def begun(command: list[str], ready: Callable[[str], bool]) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A command and its family, once one of its processes has a command line that is ready."""
    environment = os.environ | {"ASSAY_CACHE": str(CACHE)}
    process = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end:
        family = psutil.Process(process.pid).children(recursive=True)
        for member in family:
            try:
                if ready(" ".join(member.cmdline())):
                    return process, family
            except psutil.Error:
                continue
        time.sleep(0.1)
    raise AssertionError(f"it ended before: {process.communicate()}")


def ended(process: subprocess.Popen[str], family: list[psutil.Process], place: Path, number: int) -> None:
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else 128 + number)
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not [member for member in alive if member.status() != psutil.STATUS_ZOMBIE]
    assert not list(place.iterdir())


def test_a_command_gets_the_signals_that_the_parent_of_the_tests_ignores():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = start(["sleep", "600"])
    finally:
        signal.signal(signal.SIGINT, before)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == -signal.SIGINT


@pytest.mark.browser
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_stopped_in_a_browser(
    number: int, place: Path, tmp_path: Path, real_models: dict[str, Path]
):
    command = [ASSAY, "run", str(real_models["hand_recrop"]), "--lane", "cpu_xnnpack", "--lane", "webgpu_mldrift"]
    command += ["--runs", "100000", "--budget", "1", "--input-kind", "uniform", "--out", str(tmp_path / "out")]
    process, family = begun(command, lambda line: "--type=gpu-process" in line)
    ended(process, family, place, number)
    (record,) = (tmp_path / "out" / "data").rglob("*.json")
    entries = json.loads(record.read_text())["entries"]
    assert [entry["run"]["accelerator"] for entry in entries] == ["cpu_xnnpack"]


@pytest.mark.slow
@pytest.mark.browser
def test_a_sweep_that_is_stopped_side_by_side(place: Path, tmp_path: Path, real_models: dict[str, Path]):
    command = [ASSAY, "sweep", str(real_models["hand_recrop"].parent), "--runs", "0", "--jobs", "2"]
    process, family = begun([*command, "--out", str(tmp_path / "out")], lambda line: "--type=gpu-process" in line)
    ended(process, family, place, signal.SIGTERM)
    assert not list((tmp_path / "out").glob("data/**/*.json")), "it went on with the models at hand"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_diagnosis_that_is_stopped(number: int, place: Path, tmp_path: Path, real_models: dict[str, Path]):
    command = [ASSAY, "diagnose", str(real_models["face_landmark"]), "--lane", "cpu_xnnpack"]
    process, family = begun([*command, "--out", str(tmp_path / "out")], lambda line: "lanes.child" in line)
    ended(process, family, place, number)
