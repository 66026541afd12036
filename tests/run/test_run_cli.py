"""`assay run` and `assay lanes` as a user calls them: a real process, its streams and its exit code."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import strangers
from strangers import write

from signals import start

ASSAY = str(Path(sys.executable).parent / "assay")


def assay(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ASSAY, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, timeout=200)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(strangers.plain(), tmp_path, "tiny")


def test_help_teaches():
    result = assay("run", "--help")
    assert result.returncode == 0
    assert "Example: assay run" in result.stdout
    assert "--quiet-gate" in result.stdout
    result = assay("--help")
    assert result.returncode == 0
    assert "Exit codes: 0 fine, 1 found something, 2 misuse" in result.stdout.replace("\n  ", " ")


def test_a_run_writes_a_record_and_a_card(model: Path, tmp_path: Path):
    result = assay("run", model, "--lane", "cpu_xnnpack", "--runs", 5, "--out", tmp_path / "o")
    assert result.returncode == 0, result.stderr
    assert "cpu_xnnpack" in result.stdout
    assert str(tmp_path / "o" / "cards") in result.stdout
    records = list((tmp_path / "o" / "data" / "device_runs").glob("*/*/tiny__*.json"))
    assert len(records) == 1
    card = json.loads((tmp_path / "o" / "cards" / "tiny" / "card.json").read_text())
    assert card["schema_version"] == "1.2"
    run = card["device"]["records"][0]["run"]
    assert run["accelerator"] == "cpu_xnnpack"
    assert run["provenance"] == "measured"
    assert run["metrics"]["iterations"] == 5
    # Compared with the plain kernels, though that lane was not asked for and has no run of its own.
    assert run["metrics"]["compared_with"] == "cpu_reference"
    assert run["max_abs_diff"] == 0
    assert (tmp_path / "o" / "cards" / "tiny" / "CARD.md").read_text()


def test_json_is_all_there_is_on_stdout(model: Path, tmp_path: Path):
    result = assay("run", model, "--lane", "cpu_reference", "--runs", 3, "--out", tmp_path / "o", "--json")
    document = json.loads(result.stdout)
    assert document["errors"] == []
    run = document["runs"][0]
    assert len(run["samples_ms"]) == 3
    assert run["command"][:2] == ["assay", "run"]
    assert len(run["artifact"]["sha256"]) == 64
    for key in ("cpu_model", "cores", "os", "kernel"):
        assert run["host"][key]


def test_running_twice_adds_and_never_edits(model: Path, tmp_path: Path):
    for count in (1, 2):
        assay("run", model, "--lane", "cpu_xnnpack", "--runs", 3, "--out", tmp_path / "o")
        record = next((tmp_path / "o" / "data" / "device_runs").glob("*/*/tiny__*.json"))
        entries = json.loads(record.read_text())["entries"]
        assert len(entries) == count
        if count == 1:
            first = entries[0]
    assert entries[0] == first


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lane", "gpu_magic"], "no lane 'gpu_magic'"),
        (["--shape", "x"], "--shape 'x' is not understood"),
        (["--shape", "x=1,a"], "is not understood"),
        (["--runs", "-1"], "--runs"),
        (["--threads", "100000"], "--threads"),
        (["--image-range", "1,1"], "--image-range '1,1' is not understood"),
        (["--image-range", "0,nan"], "--image-range '0,nan' is not understood"),
        (["--model-id", "../evil"], "'../evil' cannot be a model's id"),
        (["--model-id", ""], "'' cannot be a model's id"),
    ],
)
def test_misuse_is_exit_2_and_one_clear_line(model: Path, tmp_path: Path, arguments: list[str], said: str):
    result = assay("run", model, *arguments, "--out", tmp_path / "o")
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "o").exists()


def test_nothing_is_measured_that_cannot_be_written(model: Path, tmp_path: Path):
    out = tmp_path / "file"
    out.write_text("mine")
    result = assay("run", model, "--lane", "cpu_xnnpack", "--runs", 1, "--out", out)
    assert result.returncode == 2
    assert "cannot be written to" in result.stderr
    assert "kept as" not in result.stderr, "it was measured"
    assert out.read_text() == "mine"


def test_names_are_printed_as_they_are(model: Path, tmp_path: Path):
    named = model.rename(tmp_path / "模型 [v2].tflite")
    out = tmp_path / "out [red]"
    result = assay("run", named, tmp_path / "no [b] file", "--lane", "cpu_xnnpack", "--runs", 1, "--out", out)
    assert result.returncode == 2
    assert "no [b] file does not exist" in result.stderr
    assert f"cards    {out / 'cards'}" in result.stdout
    assert [folder.name[:3] for folder in (out / "cards").iterdir()] == ["v2-"]


def test_a_path_that_is_no_name_is_exit_2(tmp_path: Path):
    result = assay("run", "", "--lane", "cpu_xnnpack", "--out", tmp_path / "o")
    assert (result.returncode, result.stderr.splitlines()[0][:24]) == (2, "error: . is a directory.")


def test_whoever_reads_the_output_may_go(tmp_path: Path):
    process = subprocess.Popen([ASSAY, "schema", "card"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0


def test_output_that_cannot_be_written_is_exit_2():
    with Path("/dev/full").open("w") as full:
        result = subprocess.run([ASSAY, "schema", "card"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2
    assert result.stderr.splitlines()[0] == "error: No space left on device"


def test_output_that_nobody_wants_is_no_error():
    result = subprocess.run(["sh", "-c", f'"{ASSAY}" schema card >&-'], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_missing_file_is_exit_2(tmp_path: Path):
    result = assay("run", tmp_path / "nothing.tflite", "--lane", "cpu_xnnpack", "--out", tmp_path / "o")
    assert result.returncode == 2
    assert "nothing.tflite does not exist" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_failed_run_is_exit_1(tmp_path: Path):
    path = write(strangers.custom("OnlyAtHome"), tmp_path, "m")
    result = assay("run", path, "--lane", "cpu_xnnpack", "--out", tmp_path / "o")
    assert result.returncode == 1
    assert "unsupported_op" in result.stdout


def test_what_is_published_names_files_and_no_folders(model: Path, tmp_path: Path):
    (tmp_path / "work").mkdir()
    lanes = ["--lane", "cpu_xnnpack", "--lane", "bad_lanes:Gossip"]
    result = assay("run", model, *lanes, "--runs", 1, "--out", tmp_path / "o", cwd=tmp_path / "work")
    assert result.returncode == 1, result.stderr
    (path,) = (tmp_path / "o" / "data").rglob("*.json")
    entry = json.loads(path.read_text())["entries"][-1]
    assert entry["command"] == ["assay", "run", "tiny.tflite", *lanes, "--runs", "1", "--out", "o"]
    assert entry["run"]["evidence"][0] == "loading tiny.tflite for notes"
    assert entry["run"]["error"] == "RuntimeError: could not open 'tiny.tflite': see log"
    texts = [file.read_text() for file in (tmp_path / "o").rglob("*") if file.is_file()]
    assert len(texts) >= 3
    assert not [folder for folder in (str(tmp_path), f"{Path.home()}/") if any(folder in text for text in texts)]


def test_two_models_of_one_name_are_kept_apart(tmp_path: Path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(strangers.plain(), tmp_path / folder, "same")
    paths = [tmp_path / folder / "same.tflite" for folder in ("a", "b")]
    result = assay("run", *paths, "--lane", "cpu_xnnpack", "--runs", 1, "--out", tmp_path / "o", "--json")
    assert [run["model_id"] for run in json.loads(result.stdout)["runs"]] == ["a__same", "b__same"]


def wait_for_children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The children of a command, once it has any."""
    family: list[psutil.Process] = []
    while not family and process.poll() is None:
        time.sleep(0.2)
        family = psutil.Process(process.pid).children(recursive=True)
    return family


def test_ctrl_c_leaves_whole_files(real_models: dict[str, Path], tmp_path: Path):
    command = [ASSAY, "run", str(real_models["hand_recrop"]), "--lane", "cpu_xnnpack", "--lane", "cpu_reference"]
    command += ["--runs", "100000", "--budget", "60", "--out", str(tmp_path / "o")]
    process = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for_children(process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert f"interrupted; the runs so far are in {tmp_path / 'o'}" in stderr
    for path in (tmp_path / "o").rglob("*.json"):
        json.loads(path.read_text())


def test_lanes_says_what_is_here_and_what_is_not():
    result = assay("lanes", "--json")
    checks = {check["name"]: check for check in json.loads(result.stdout)}
    assert checks["cpu_xnnpack"]["ran"] is True
    gpu = checks["gpu_mldrift"]
    if gpu["availability"]["available"]:
        assert gpu["adapter"]
        assert gpu["adapter_kind"] in ("software", "hardware")
    else:
        assert gpu["availability"]["reason"]
        assert gpu["availability"]["fix"]


def test_a_lane_that_lacks_its_driver_names_the_fix(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("assay.lanes.gpu._SWIFTSHADER", ())
    monkeypatch.setattr("assay.lanes.gpu._hardware_icds", list)
    for name in ("VK_ICD_FILENAMES", "VK_DRIVER_FILES"):
        monkeypatch.delenv(name, raising=False)
    from assay.lanes.gpu import MlDriftLane

    availability = MlDriftLane().available()
    assert not availability.available
    assert availability.reason
    assert "apt-get install" in availability.fix


def test_being_told_to_end_ends_the_children_too(real_models: dict[str, Path], tmp_path: Path):
    command = [ASSAY, "run", str(real_models["hand_recrop"]), "--lane", "cpu_xnnpack", "--lane", "cpu_reference"]
    command += ["--runs", "100000", "--budget", "60", "--out", str(tmp_path / "o")]
    process = start(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    family = wait_for_children(process)
    process.terminate()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Traceback" not in stderr
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in family)
