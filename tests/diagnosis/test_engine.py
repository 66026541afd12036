from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.diagnosis.bundle import run_file
from assay.diagnosis.engine import Settings, diagnose
from assay.diagnosis.finding import Finding
from assay.diagnosis.kinds import Kind
from assay.errors import AssayError

LANE = "assay.lanes.fault:FaultLane"


def run(model: Path, fault: dict[str, Any], out: Path, **settings: Any) -> Finding:
    return diagnose(model, LANE, Settings(options={"faults": [fault]}, out=out, **settings))


def named(finding: Finding) -> list[str]:
    return [node.outputs[0] for node in finding.nodes]


def test_right_lane_is_called_right(small_model: Path, tmp_path: Path) -> None:
    finding = run(small_model, {"output": "no such tensor", "kind": "zeroed"}, tmp_path)
    assert finding.symptom == "none"
    assert not finding.found


def test_node_alone_is_named_with_a_small_file_that_shows_it(small_model: Path, tmp_path: Path) -> None:
    finding = run(small_model, {"output": "depthwise2", "kind": "channel_off"}, tmp_path)
    assert named(finding) == ["depthwise2"]
    assert finding.isolated
    assert finding.kind == Kind.KERNEL
    assert finding.cost is not None
    assert finding.cost.launches <= 18
    folder = tmp_path / "small__FaultLane"
    assert finding.smallest is not None
    assert finding.smallest.size_bytes < 2000
    sets = [(np.load(folder / "inputs.npz"), np.load(folder / "expected.npz"))]
    faults = {"faults": [{"output": "depthwise2", "kind": "channel_off"}]}
    assert run_file(folder / "minimized.tflite", LANE, sets, options=faults)[0][0] > 0.01
    assert run_file(folder / "minimized.tflite", "cpu_xnnpack", sets, options={})[0][0] < 1e-5
    for name in ("actual.npz", "repro.py", "issue.md", "finding.json", "steps.jsonl"):
        assert (folder / name).is_file()


def test_fault_in_context_is_named_with_its_context(small_model: Path, tmp_path: Path) -> None:
    fault = {"output": "depthwise2", "context": ["sum1", "sum2"], "kind": "scaled"}
    finding = run(small_model, fault, tmp_path)
    assert sorted(named(finding)) == ["depthwise2", "sum1", "sum2"]
    assert not finding.isolated
    assert Kind.FUSION in {finding.kind, *finding.also}


def test_weights_that_are_unpacked_wrongly_are_named(small_model: Path, tmp_path: Path) -> None:
    finding = run(small_model, {"output": "w1", "kind": "rows_swapped"}, tmp_path)
    assert named(finding) == ["w1"]


def test_crash_is_a_finding(small_model: Path, tmp_path: Path) -> None:
    finding = run(small_model, {"output": "rows", "kind": "crash"}, tmp_path)
    assert finding.symptom == "failed"
    assert finding.failure == "crashed"
    assert named(finding) == ["rows"]


def test_what_is_handed_over_names_no_folder(small_model: Path, tmp_path: Path) -> None:
    finding = diagnose(small_model, "bad_lanes:Gossip", Settings(out=tmp_path))
    assert finding.error == "RuntimeError: could not open 'small.tflite': see log"
    assert finding.on == "driver icd.json"
    assert finding.evidence[0] == "loading small.tflite for notes"
    for path in tmp_path.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".md", ".py"):
            text = path.read_text()
            assert not [folder for folder in (Path.home(), tmp_path, small_model.parent) if f"{folder}/" in text]


def test_refusal_is_located(small_model: Path, tmp_path: Path) -> None:
    finding = run(small_model, {"output": "sum1", "kind": "refuse"}, tmp_path)
    assert finding.failure == "unsupported_op"
    assert named(finding) == ["sum1"]


def test_stale_state(small_model: Path, tmp_path: Path) -> None:
    finding = run(small_model, {"output": "sum0", "kind": "stale"}, tmp_path)
    assert finding.kind == Kind.STALE
    assert named(finding) == ["sum0"]


def test_non_determinism(small_model: Path, tmp_path: Path) -> None:
    finding = run(small_model, {"output": "sum0", "kind": "flaky"}, tmp_path)
    assert finding.kind == Kind.NON_DETERMINISM
    assert named(finding) == ["sum0"]


def test_precision_is_gone_with_fp32(small_model: Path, tmp_path: Path) -> None:
    finding = run(small_model, {"output": "conv1", "kind": "fp16", "cured_by": "enforce_f32"}, tmp_path)
    assert finding.kind == Kind.PRECISION
    assert named(finding) == ["conv1"]


def test_rank_is_told_by_keeping_the_batch_dimension(small_model: Path, tmp_path: Path) -> None:
    finding = run(small_model, {"op": "BATCH_MATMUL", "rank": 3, "kind": "scaled"}, tmp_path, fix=True)
    assert finding.kind == Kind.LAYOUT
    assert named(finding) == ["scores"]
    assert finding.alike is not None
    assert finding.alike["tried"] == len(finding.alike["faulty"]) == 1
    (fix,) = [each for each in finding.fixes if each.rewrite == "keep-batch"]
    assert fix.equal_on_reference
    assert fix.right_on_lane
    assert fix.file is not None
    assert (tmp_path / "small__FaultLane" / fix.file.path).is_file()


def test_broadcast_is_told_by_repeating_the_operand(small_model: Path, tmp_path: Path) -> None:
    finding = run(small_model, {"op": "SUB", "broadcast": True, "kind": "broadcast_wrong"}, tmp_path)
    assert finding.kind == Kind.BROADCAST
    assert named(finding) == ["centered"]


def test_conversion_fault_is_told_from_a_lane_fault(small_model: Path, tmp_path: Path) -> None:
    wrong = {"centered": np.ones((1, 64, 8), np.float32)}
    finding = run(small_model, {"output": "none", "kind": "nan"}, tmp_path, expected=wrong)
    assert finding.symptom == "converter"
    assert finding.kind == Kind.CONVERTER


def test_stopped_diagnosis_goes_on(small_model: Path, tmp_path: Path) -> None:
    fault = {"output": "depthwise2", "kind": "channel_off"}
    first = run(small_model, fault, tmp_path)
    again = run(small_model, fault, tmp_path)
    assert named(first) == named(again)
    assert first.cost is not None
    assert again.cost is not None
    assert again.cost.launches < first.cost.launches
    assert again.cost.resumed > 0


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.tflite"
    path.write_bytes(b"not a model")
    with pytest.raises(AssayError):
        diagnose(path, LANE, Settings())
