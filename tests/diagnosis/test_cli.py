import json
import subprocess
import sys
from pathlib import Path

import pytest

from assay import graph
from assay.diagnosis import text
from assay.diagnosis.finding import Cost, Delegation, Finding, NodeRef, RefusedOp

FAULT = 'faults=[{"output":"sum1","kind":"offset"}]'


def assay(*arguments: str) -> "subprocess.CompletedProcess[str]":
    code = "import sys; from assay.cli import main; sys.argv = ['assay', *sys.argv[1:]]; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_finding_as_json_and_as_a_pitfall(small_model: Path, tmp_path: Path) -> None:
    lane = "assay.lanes.fault:FaultLane"
    done = assay("diagnose", str(small_model), "--lane", lane, "--option", FAULT, "--out", str(tmp_path), "--json")
    assert done.returncode == 1, done.stderr
    finding = json.loads(done.stdout)
    assert [node["outputs"] for node in finding["nodes"]] == [["sum1"]]
    (pitfall,) = json.loads((tmp_path / "cards" / "small" / "pitfalls.json").read_text())["pitfalls"]
    assert pitfall["ops"] == ["ADD"]
    assert pitfall["source"] == "diagnose/small__FaultLane"
    minimized = graph.read(tmp_path / "diagnose" / "small__FaultLane" / "minimized.tflite")
    assert [node.op for node in minimized.subgraphs[0].nodes] == ["ADD"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.tflite", "--lane", "cpu_xnnpack"], "does not exist"),
        (["{model}", "--lane", "no_such_lane"], "there is no lane"),
        (["{model}", "--lane", "cpu_xnnpack", "--option", "fp32"], "is not understood"),
        (["{model}", "--lane", "cpu_xnnpack", "--shape", "image"], "is not understood"),
        (["{model}", "--lane", "cpu_xnnpack", "--inputs", "none.npz"], "does not exist"),
        (["{model}", "--lane", "cpu_xnnpack", "--reference", "no_such_lane"], "fix: choose from cpu_reference"),
        (["{model}", "--lane", "cpu_xnnpack", "--model-id", "../evil"], "'../evil' cannot be a model's id"),
    ],
)
def test_misuse_is_one_line_and_exit_2(small_model: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    given = [each.format(model=small_model) for each in arguments]
    done = assay("diagnose", *given, "--out", str(tmp_path))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_words() -> None:
    finding = Finding(
        *("m.tflite", "0" * 64, 1, "gpu_mldrift", "cpu_reference", "an adapter", {}, "2026-12-01"),
        symptom="wrong",
        sentence="SUM #3 alone is wrong on gpu_mldrift (overflow: values reach beyond 65504)",
        inputs="seeded normal, seed 0",
        max_abs_diff=12.5,
        worst_output="y",
        times_limit=1234.6,
        nodes=(NodeRef(3, "SUM", ("y",), ((1, 4),)),),
        because=("with fp32 it is right",),
        suggestion="ask the lane for fp32",
        delegation=Delegation(9, 10, 2, 3, (RefusedOp(("CAST",), ("CAST: no",), (4,), 2),), 10.0, 7.5, 2.5),
        cost=Cost(9, 40, 0, 12.3),
    )
    assert text.lines(finding) == [
        "m.tflite on gpu_mldrift: SUM #3 alone is wrong on gpu_mldrift (overflow: values reach beyond 65504)",
        "symptom: output 'y' is off by 12.5, 1,235 times what arithmetic explains (inputs: seeded normal, seed 0)",
        "what shows it:",
        "  with fp32 it is right",
        "what to do: ask the lane for fp32",
        "delegation: 9 of 10 nodes taken; 2 tensors cross between accelerator and CPU, in 3 runs of nodes",
        "  CAST: 1 nodes, 2 crossings (CAST: no)",
        "  full delegation saves 2.5 ms of 10.0 ms at best",
        "cost: 9 processes, 40 pieces, 12 s",
    ]
    pitfall = text.pitfall(finding, "diagnose/m__gpu_mldrift")
    assert pitfall is not None
    assert pitfall.lane == "gpu_mldrift"
    assert pitfall.ops == ["SUM"]
    assert pitfall.text.endswith("Ask the lane for fp32.")
