"""What the documents say of the code is what the code says."""

from pathlib import Path

from assay.records.failure import FailureClass

ROOT = Path(__file__).resolve().parents[2]


def test_every_failure_class_is_documented_and_no_other():
    rows = (ROOT / "docs" / "failures.md").read_text().splitlines()
    named = [row.split("`")[1] for row in rows if row.startswith("| `")]
    assert named == [failure.value for failure in FailureClass]
