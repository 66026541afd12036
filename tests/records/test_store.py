import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay import records
from assay.errors import AssayError
from record_data import browser_entry, device_entry, plain_device_file, write_json

HERE = Path(__file__).parents[1]

WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from record_data import device_entry
from assay import records
for number in range(int(sys.argv[4])):
    entry = device_entry(metrics={"writer": sys.argv[3], "number": number})
    records.append_device_run(Path(sys.argv[2]), "m", "desk", entry)
    print(number, flush=True)
"""


def writer(root: Path, name: str, count: int, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(HERE), str(root), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_running_twice_adds_a_run_and_edits_none(tmp_path: Path) -> None:
    path = records.append_device_run(tmp_path, "m", "desk", device_entry())
    first = json.loads(path.read_text())["entries"][0]
    assert records.append_device_run(tmp_path, "m", "desk", device_entry(latency_p50_ms=11.0)) == path
    value = json.loads(path.read_text())
    assert value["entries"][0] == first
    assert [entry["run"]["latency_p50_ms"] for entry in value["entries"]] == [10.0, 11.0]
    assert path == tmp_path / "data/device_runs/2.3.0/2026-11-01/m__desk.json"


def test_a_browser_run_goes_to_its_sweep(tmp_path: Path) -> None:
    path = records.append_browser_run(tmp_path, "m", browser_entry())
    assert path == tmp_path / "data/sweep/2.5.3/2026-11-02/m.json"
    assert records.read_browser_sweep(path).to_value() == json.loads(path.read_text())


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    writers = [writer(tmp_path, name, 15) for name in ("a", "b")]
    for process in writers:
        assert process.wait(timeout=120) == 0
    document = records.read_device_runs(tmp_path / "data/device_runs/2.3.0/2026-11-01/m__desk.json")
    found = [(entry.run.metrics["writer"], entry.run.metrics["number"]) for entry in document.entries]  # type: ignore[union-attr]
    assert sorted(found) == [(name, number) for name in ("a", "b") for number in range(15)]
    for name in ("a", "b"):
        assert [number for who, number in found if who == name] == list(range(15))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.parametrize("delay", [0.0, 0.013, 0.05])
def test_kill_9_in_the_middle_of_a_write_loses_nothing_that_was_written(tmp_path: Path, delay: float) -> None:
    process = writer(tmp_path, "a", 10_000)
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(3)]
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    said += process.stdout.readlines()
    process.wait()
    # The last line may have been cut in the pipe; what was told whole is on disk, and the file is whole.
    told = [int(line) for line in said if line.endswith("\n")]
    path = tmp_path / "data/device_runs/2.3.0/2026-11-01/m__desk.json"
    document = records.read_device_runs(path)
    numbers = [entry.run.metrics["number"] for entry in document.entries]  # type: ignore[union-attr]
    assert numbers[: len(told)] == told
    # The lock of the dead is free.
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    assert len(records.read_device_runs(path).entries) == len(numbers) + 1  # type: ignore[union-attr]


FULL = """
import resource, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from record_data import device_entry
from assay import records
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
if sys.argv[3] == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
try:
    for number in range(10_000):
        records.append_device_run(Path(sys.argv[2]), "m", "desk", device_entry(metrics={"number": number}))
except records.UnsavedRunError as error:
    print(number)
    print(error)
    sys.exit(7)
"""


def run_full(root: Path, how: str, temporary: Path) -> tuple[int, str]:
    environment = os.environ | {"TMPDIR": str(temporary)}
    command = [sys.executable, "-c", FULL, str(HERE), str(root), how]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 7, done.stderr
    number, text = done.stdout.split("\n", 1)
    return int(number), text


def check_after_full(root: Path, written: int) -> None:
    path = root / "data/device_runs/2.3.0/2026-11-01/m__desk.json"
    numbers = [entry.run.metrics["number"] for entry in records.read_device_runs(path).entries]  # type: ignore[union-attr]
    assert numbers == list(range(written))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.skipif(sys.platform == "win32", reason="needs file-size limits")
def test_a_file_that_cannot_grow_leaves_the_record_whole(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    written, text = run_full(tmp_path / "out", "limit", temporary)
    assert written > 0
    check_after_full(tmp_path / "out", written)
    # One run alone is below the limit: it was kept, and it can be moved into place as it is.
    (rescued,) = temporary.glob("*.json")
    assert str(rescued) in text
    rescued.rename(tmp_path / "out/data/device_runs/2.3.0/2026-11-01" / rescued.name)
    kept = records.read_device_runs(tmp_path / "out/data/device_runs/2.3.0/2026-11-01" / rescued.name)
    assert kept.entries[0].run.metrics["number"] == written  # type: ignore[union-attr]


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="needs root to mount a small disk")
def test_a_full_disk_leaves_the_record_whole_and_keeps_the_run(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    temporary = tmp_path / "tmp"
    disk.mkdir()
    temporary.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True
    ).returncode:
        pytest.skip("cannot mount here")
    try:
        written, text = run_full(disk, "disk", temporary)
        assert written > 0
        assert "No space left" in text
        check_after_full(disk, written)
        assert len(list(temporary.glob("*.json"))) == 1
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("content", ["", "{", '{"schema_version": "1.2"}', "[]"])
def test_a_broken_record_is_left_for_mending_and_the_run_is_kept(tmp_path: Path, content: str) -> None:
    path = records.append_device_run(tmp_path, "m", "desk", device_entry())
    path.write_text(content)
    other = records.append_device_run(tmp_path, "m", "desk", device_entry())
    assert path.read_text() == content
    assert other.name == "m__desk.1.json"
    assert records.append_device_run(tmp_path, "m", "desk", device_entry()) == other


def test_another_producers_record_is_never_edited(tmp_path: Path) -> None:
    value = plain_device_file("m", "desk", [device_entry()["run"]])
    path = write_json(tmp_path / "data/device_runs/2.3.0/2026-11-01/m__desk.json", value)
    assert records.append_device_run(tmp_path, "m", "desk", device_entry()).name == "m__desk.1.json"
    assert json.loads(path.read_text()) == value


def test_a_newer_record_keeps_what_this_version_does_not_know(tmp_path: Path) -> None:
    path = records.append_device_run(tmp_path, "m", "desk", device_entry())
    value = json.loads(path.read_text()) | {"schema_version": "1.9", "new": 1}
    value["entries"][0]["newer"] = 2
    path.write_text(json.dumps(value))
    assert records.append_device_run(tmp_path, "m", "desk", device_entry()) == path
    after = json.loads(path.read_text())
    assert after["new"] == 1 and after["entries"][0]["newer"] == 2 and len(after["entries"]) == 2


@pytest.mark.parametrize("name", ["../m", "a/b", "", ".hidden", "a\\b", "n\0ul", "x" * 300])
def test_a_name_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(AssayError):
        records.append_device_run(tmp_path / "out", name, "desk", device_entry())
    with pytest.raises(AssayError):
        records.append_device_run(tmp_path / "out", "m", "desk", device_entry(env={"runtime_version": name}))
    assert list(tmp_path.rglob("*.json")) == []


def test_a_run_of_the_wrong_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="latency_p50_ms"):
        records.append_device_run(tmp_path, "m", "desk", device_entry(latency_p50_ms="fast"))
