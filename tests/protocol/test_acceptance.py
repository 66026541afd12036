from dataclasses import replace

import pytest

from assay.protocol.acceptance import LAST_LINES, Ending, accept, last_lines
from assay.records.failure import FailureClass

FINE = Ending(
    stage="done",
    loaded=True,
    error=None,
    error_class=None,
    returncode=0,
    timed_out=False,
    out_of_memory=False,
    flooded=False,
)


def test_a_run_that_went_well():
    accepted = accept(FINE, "ERROR: std::bad_alloc is only a word in a log", None)
    assert (accepted.loads, accepted.runs, accepted.failure, accepted.error) == (True, True, None, None)


@pytest.mark.parametrize(
    ("change", "failure", "loads"),
    [
        ({"timed_out": True, "stage": "timed", "returncode": -9}, FailureClass.TIMED_OUT, True),
        ({"out_of_memory": True, "stage": "load", "loaded": False}, FailureClass.OUT_OF_MEMORY, False),
        ({"returncode": -11, "stage": "load", "loaded": False}, FailureClass.CRASHED, False),
        ({"returncode": 0, "stage": "warmup"}, FailureClass.CRASHED, True),
        ({"returncode": 1, "stage": None, "loaded": False}, FailureClass.CRASHED, None),
        ({"flooded": True, "stage": "timed"}, FailureClass.CRASHED, True),
        ({"error": "ValueError: x", "returncode": 3, "stage": "first_run"}, FailureClass.RUN_FAILED, True),
        (
            {"error": "RuntimeError: y", "returncode": 3, "stage": "load", "loaded": False},
            FailureClass.LOAD_FAILED,
            False,
        ),
    ],
)
def test_each_way_to_end(change: dict[str, object], failure: FailureClass, loads: bool | None):
    accepted = accept(replace(FINE, **change), "INFO: a\nlast words\n", None)
    assert accepted.failure is failure
    assert accepted.loads is loads
    assert accepted.runs is False
    assert accepted.error
    assert accepted.evidence == ("last words",)


def test_a_signal_is_named():
    assert "SIGSEGV" in str(accept(replace(FINE, returncode=-11), "", None).error)


def test_the_message_is_asked_before_the_log():
    ending = replace(FINE, error="RuntimeError: Encountered unresolved custom op: X.", returncode=3, loaded=False)
    accepted = accept(ending, "No adapters found\n", None)
    assert accepted.failure is FailureClass.UNSUPPORTED_OP
    assert accepted.evidence[0].endswith("unresolved custom op: X.")


def test_a_failure_that_only_the_log_shows():
    accepted = accept(FINE, "", FailureClass.SILENT_CPU_FALLBACK)
    assert accepted.failure is FailureClass.SILENT_CPU_FALLBACK
    assert accepted.runs is False
    assert accepted.loads is True


def test_evidence_is_bounded():
    lines = last_lines("INFO: fine\n" + "x" * 10_000 + "\n" + "y\n" * 100)
    assert len(lines) == LAST_LINES
    assert len(last_lines("x" * 10_000)[0]) == 500
