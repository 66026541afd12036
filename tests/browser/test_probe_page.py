"""The probe in a browser: an engine that gives up, and what is measured of the adapter."""

from pathlib import Path

import pytest

from assay.probe.cases import Case, Operand, Result
from assay.probe.run import Progress, run_cases

TAKEN = Case("ABS", (Operand((1, 4, 4, 8)),))
REFUSED = Case("ZEROS_LIKE", (Operand((1, 4, 4, 8)),))
# int8 without a scale: the CPU's own kernel aborts the process.
ABORTS = Case(
    "ADD",
    (Operand((2, 8), "int8"), Operand((), "int8", constant=True)),
    (Result("int8"),),
    {"fused_activation_function": "NONE"},
)


@pytest.mark.browser
def test_the_browsers_page_is_loaded_anew_when_the_engine_aborts(tmp_path: Path) -> None:
    # An engine that has no bfloat16 ends itself; what comes after it is measured all the same.
    aborts = Case(
        "ADD",
        (Operand((2, 8), "bfloat16"), Operand((8,), "bfloat16", constant=True)),
        (Result("bfloat16"),),
        {"fused_activation_function": "NONE"},
    )
    progress = Progress.load(tmp_path / "progress.jsonl")
    run_cases([TAKEN, aborts, REFUSED, ABORTS], progress, environment={}, worker="assay.probe.browser")
    found = {key: outcome.status for key, outcome in progress.outcomes.items()}
    assert found == {TAKEN.id: "supported", aborts.id: "invalid", REFUSED.id: "refused", ABORTS.id: "invalid"}
    assert "Aborted(" in (progress.outcomes[aborts.id].reason or "")
    assert progress.session["behaviour"]["weights_texture"] == 8192
    assert "no error" in progress.session["behaviour_evidence"]["weights_texture"][1]
