"""The probe on the real engine: entries of every kind, crashes survived, resumed where it stopped."""

import json
import subprocess
import sys

import pytest

from assay.errors import AssayError
from assay.graph import GraphBuilder, save
from assay.lanes import registry
from assay.linting import lint, load
from assay.probe import probe
from assay.probe.cases import Case, Operand, Result
from assay.probe.outcome import Outcome
from assay.probe.run import Progress, run_cases
from assay.probe.store import document_of, write_matrix

available = registry.find("gpu_mldrift").available()
needs_gpu = pytest.mark.skipif(not available.available, reason=available.reason)

TAKEN = Case("ABS", (Operand((1, 4, 4, 8)),))
REFUSED = Case("ZEROS_LIKE", (Operand((1, 4, 4, 8)),))
# An int16 constant beside a runtime operand: the engine's reader of constants aborts the process.
CRASHES = Case(
    "LESS",
    (Operand((1, 8), "int16"), Operand((1, 8), "int16", constant=True)),
    (Result("bool"),),
)
INVALID = Case("ABS", (Operand((1, 4), "bool"),), (Result("bool"),))
DYNAMIC = Case(
    "RESHAPE",
    (Operand((1, 24)), Operand((2,), "int32", domain="positive")),
    (Result(shape=(1, 24)),),
)


# int8 without a scale: the CPU's own kernel aborts the process.
ABORTS = Case(
    "ADD",
    (Operand((2, 8), "int8"), Operand((), "int8", constant=True)),
    (Result("int8"),),
    {"fused_activation_function": "NONE"},
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    progress = Progress.load(tmp_path_factory.mktemp("probe") / "progress.jsonl")
    environment = registry.find("gpu_mldrift").child_env({})
    run_cases([TAKEN, CRASHES, REFUSED, INVALID, DYNAMIC], progress, environment=environment)
    return progress


@needs_gpu
@pytest.mark.gpu
def test_each_case_has_its_outcome_and_a_crash_stops_nothing(outcomes):
    found = {case.op: outcomes.outcomes[case.id] for case in (TAKEN, CRASHES, REFUSED, DYNAMIC)}
    assert found["ABS"].status == "supported"
    assert found["ABS"].max_abs_diff == 0
    assert found["ZEROS_LIKE"].status == "refused"
    assert found["ZEROS_LIKE"].reason == "Operation is not supported."
    assert found["LESS"].status == "crash"
    assert any("Check failed" in line for line in found["LESS"].evidence)
    assert found["RESHAPE"].status == "refused"
    assert found["RESHAPE"].scope == "subgraph"
    assert outcomes.outcomes[INVALID.id].status == "invalid"


@needs_gpu
@pytest.mark.gpu
def test_how_the_delegate_behaves_is_measured(outcomes):
    behaviour = outcomes.session["behaviour"]
    assert behaviour == {
        "max_partitions": 1,
        "folds_float16_constants": True,
        "leaves_folded_constants_in_split_graphs": True,
        "weights_texture": 8192,
    }
    lines = outcomes.session["behaviour_evidence"]["weights_texture"]
    assert "exceeded maximum texture size" in lines[0]
    assert "no error" in lines[1]
    assert outcomes.session["adapter"]


@needs_gpu
@pytest.mark.gpu
def test_what_was_measured_is_not_measured_again(outcomes):
    again = Progress.load(outcomes.path)
    assert again.outcomes.keys() == outcomes.outcomes.keys()
    # No worker of that name could start: nothing is left to try.
    run_cases([TAKEN, CRASHES], again, environment={}, worker="no.such.module")


@needs_gpu
@pytest.mark.gpu
def test_probing_a_model_answers_what_lint_did_not_know(tmp_path):
    graph = GraphBuilder()
    x = graph.input("x", (1, 2, 3, 8))
    save(graph.finish([graph.op("COS", [x], (1, 2, 3, 8))]), tmp_path / "m.tflite")
    result = probe("gpu_mldrift", tmp_path / "out", ops=["COMPLEX_ABS", "RANK"])
    matrix = load(result.folder)
    assert lint(tmp_path / "m.tflite", matrix).count("unknown") == 1
    assert matrix.op("RANK") is not None


def test_a_worker_that_cannot_start_is_an_error(tmp_path):
    progress = Progress.load(tmp_path / "progress.jsonl")
    with pytest.raises(AssayError, match="cannot try a single case"):
        run_cases([TAKEN], progress, environment={}, worker="no.such.module")


def test_unknown_ops_and_lanes_are_named(tmp_path):
    with pytest.raises(AssayError, match="no probe"):
        probe("cpu_xnnpack", tmp_path)


def test_a_cut_off_line_of_the_progress_is_dropped(tmp_path):
    path = tmp_path / "progress.jsonl"
    progress = Progress.load(path)
    progress.add([Outcome("a", "ABS", "float32[1] -> float32[1] | version=1", "supported", date="2026-12-01")])
    with path.open("a") as file:
        file.write('{"case": "b", "op": "A')
    assert list(Progress.load(path).outcomes) == ["a"]


def test_matrix_files_are_canonical_and_small_changes_stay_small(tmp_path):
    outcomes = [
        Outcome(
            "a", "ABS", "float32[1] -> float32[1] | version=1", "supported", max_abs_diff=0.0, date="2026-12-01"
        ),
        Outcome("b", "ABS", "int64[1] -> int64[1] | version=1", "refused", "Tensor type", date="2026-12-02"),
        Outcome("c", "ABS", None, "invalid", "no kernel", date="2026-12-02"),
    ]
    header = {"lane": "gpu_mldrift", "runtime_version": "2.3.0"}
    whole = write_matrix(tmp_path / "one", outcomes, header)
    write_matrix(tmp_path / "two", reversed(outcomes), header)
    for name in ("matrix.json", "ABS.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert whole["measured"] == ["2026-12-01", "2026-12-02"]
    assert whole["ops"] == {"ABS": {"refused": 1, "supported": 1}}
    document = json.loads((tmp_path / "one" / "ABS.json").read_text())
    assert document == document_of("ABS", outcomes)


def test_cases_that_the_cpu_does_not_survive_are_found_before_a_lane_is_started(tmp_path):
    source, results, seen = tmp_path / "cases.json", tmp_path / "results.jsonl", tmp_path / "seen"
    source.write_text(json.dumps([case.to_json() for case in (TAKEN, ABORTS, REFUSED)]))
    code = f"""
from pathlib import Path
from assay.probe.outcome import Outcome
from assay.probe.worker import supervise
def batch(cases, say):
    with Path({str(seen)!r}).open("a") as file:
        print(*[case.id for case in cases], file=file)
    for case in cases:
        say({{"begin": case.id}})
        say({{"done": Outcome(case.id, case.op, "s", "supported").to_json()}})
supervise(Path({str(source)!r}), Path({str(results)!r}), batch, lambda say: None, survey=True)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    # One start of the lane, with the cases that can be tried; the other has its outcome all the same.
    assert seen.read_text().split("\n") == [f"{TAKEN.id} {REFUSED.id}", ""]
    done = [json.loads(line)["done"] for line in results.read_text().splitlines() if "done" in line]
    assert {item["case"]: item["status"] for item in done} == {
        TAKEN.id: "supported",
        ABORTS.id: "invalid",
        REFUSED.id: "supported",
    }
