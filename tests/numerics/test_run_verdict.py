"""The verdict as `assay run` gives it: lanes in processes of their own, records on disk, exit codes."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from assay.cli._app import app
from assay.measure.run import run_models
from assay.measure.settings import Settings
from assay.records import read_device_runs


def measure(model: Path, out: Path, *lanes: str, **options):
    settings = Settings(lanes=lanes, runs=0, out=out, kinds=("uniform", "structured", "large"), **options)
    report = run_models([model], settings)
    return report, {result.lane: result.entry for result in report.results}


def test_wrong_lanes_are_called_by_what_they_do(real_models, tmp_path):
    names = [f"wrong_lanes:{name}" for name in ("Scaled", "Half", "FirstOnly", "OneBehind")]
    report, entries = measure(
        real_models["face_detection_short_range"], tmp_path, "cpu_reference", "cpu_xnnpack", *names
    )
    found = {
        lane: (entry.run.metrics.get("verdict"), entry.run.metrics["consistency"], entry.run.output_match)
        for lane, entry in entries.items()
    }
    assert found == {
        "cpu_reference": (None, "consistent", None),
        "cpu_xnnpack": ("match", "consistent", True),
        "scaled": ("wrong", "consistent", False),
        "half": ("precision_noise", "consistent", True),
        "first_only": ("wrong", "first_run_only", False),
        "one_behind": ("wrong", "stale", False),
    }
    assert report.exit_code == 1
    wrong = entries["scaled"]
    assert wrong.run.max_abs_diff > 1 and 0.04 < wrong.run.max_rel_diff < 0.06
    assert "regressors" in wrong.verdict["sentence"]
    assert {e["precision"] for e in wrong.verdict["envelopes"]} == {"fp32", "fp16"}
    assert entries["cpu_xnnpack"].inputs["sets"] == ["uniform", "structured", "large"]
    written = read_device_runs(report.results[0].record)
    assert [entry.run.output_match for entry in written.entries] == [None, True, False, True, False, False]


@pytest.mark.parametrize(("fail_on", "code"), [(("wrong",), 0), (("noise",), 1), (("unstable",), 0)])
def test_fail_on(real_models, tmp_path, fail_on, code):
    report, _ = measure(real_models["hand_recrop"], tmp_path, "cpu_xnnpack", "wrong_lanes:Half", fail_on=fail_on)
    assert report.exit_code == code


def test_the_users_inputs_come_first_and_a_source_is_judged(real_models, tmp_path):
    model = real_models["iris_landmark"]
    photo = np.random.default_rng(0).random((1, 64, 64, 3), dtype=np.float32)
    np.save(tmp_path / "photo.npy", photo)
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(model))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], photo)
    interpreter.invoke()
    outputs = {d["name"]: interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()}
    np.savez(tmp_path / "good.npz", **outputs)
    np.savez(tmp_path / "bad.npz", **{name: value * 1.1 for name, value in outputs.items()})
    for name, label, code in (("good", "match", 0), ("bad", "wrong", 1)):
        report, entries = measure(
            *(model, tmp_path / name, "cpu_xnnpack"),
            inputs=tmp_path / "photo.npy",
            source=str(tmp_path / f"{name}.npz"),
        )
        entry = entries["cpu_xnnpack"]
        assert entry.inputs["sets"] == ["photo.npy"]
        assert entry.run.metrics["verdict"] == "match"
        assert entry.run.metrics["source_verdict"] == label
        assert report.exit_code == code


def test_misuse_exits_with_2_and_names_the_fix(real_models, tmp_path):
    model = str(real_models["hand_recrop"])
    for options, words in [
        (["--fail-on", "rain"], "--fail-on does not know 'rain'"),
        (["--image-range", "dark"], "--image-range 'dark'"),
    ]:
        result = CliRunner().invoke(app, ["run", model, "--out", str(tmp_path), *options])
        assert result.exit_code != 0
        assert words in str(result.exception)
    report, _ = measure(real_models["hand_recrop"], tmp_path, "cpu_xnnpack", inputs=tmp_path / "none.npz")
    assert report.exit_code == 2 and "does not exist" in report.errors[0]
