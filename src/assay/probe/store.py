"""From outcomes to a support matrix on disk, in the form that lint reads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from assay.linting.matrix import OpMatrix, file_name
from assay.probe.outcome import Outcome
from assay.records.files import write_atomic

SCHEMA_VERSION = "1.0"
_KEPT = ("supported", "refused", "wrong", "failed", "crash")


def document_of(op: str, outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """The file of one op: its signatures by outcome.

    `signatures` maps each signature to the largest difference from the CPU that was measured, null where
    numbers were not compared. Outcomes that say the same (status, reason, evidence, day) stand together.
    What follows from all of them together stands beside them (see `graph.lint.matrix`).
    """
    groups: dict[tuple[Any, ...], dict[str, float | None]] = {}
    for outcome in outcomes:
        if outcome.signature is None or outcome.status not in _KEPT:
            continue
        # The differences of single cases are with their signatures, so that equal reasons can stand together.
        reason = "gives other numbers than the CPU" if outcome.status == "wrong" else outcome.reason
        key = (outcome.status, reason, outcome.scope, tuple(outcome.evidence), outcome.date)
        signatures = groups.setdefault(key, {})
        before = signatures.get(outcome.signature)
        found = outcome.max_abs_diff
        signatures[outcome.signature] = (
            found if before is None else before if found is None else max(before, found)
        )
    listed = [
        {
            "status": status,
            "reason": reason,
            "scope": scope,
            "evidence": list(evidence),
            "date": date,
            "signatures": dict(sorted(signatures.items())),
        }
        for (status, reason, scope, evidence, date), signatures in groups.items()
    ]
    listed.sort(key=lambda item: (_KEPT.index(item["status"]), str(item["reason"]), item["evidence"]))
    document: dict[str, Any] = {"op": op, "outcomes": listed}
    return document | OpMatrix(op, document).derived()


def write_matrix(folder: Path, outcomes: Iterable[Outcome], header: Mapping[str, Any]) -> dict[str, Any]:
    """Write a matrix: one file an op and `matrix.json`, each whole or not at all.

    Args:
        folder: Where to; files of ops that are not among the outcomes stay.
        outcomes: What was measured.
        header: Lane, runtime version, adapter, host and behaviour.

    Returns:
        The header as written, with counts.
    """
    by_op: dict[str, list[Outcome]] = {}
    statuses: Counter[str] = Counter()
    days: set[str] = set()
    for outcome in outcomes:
        statuses[outcome.status] += 1
        if outcome.signature is not None and outcome.status in _KEPT:
            by_op.setdefault(outcome.op, []).append(outcome)
            days.add(outcome.date)
    counts: dict[str, dict[str, int]] = {}
    for op, mine in sorted(by_op.items()):
        document = document_of(op, mine)
        counts[op] = dict(sorted(Counter(outcome.status for outcome in mine).items()))
        text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        write_atomic(folder / f"{file_name(op)}.json", text)
    whole = {
        "schema_version": SCHEMA_VERSION,
        "kind": "support_matrix",
        **header,
        "measured": [min(days), max(days)] if days else ["", ""],
        "cases": dict(sorted(statuses.items())),
        "ops": counts,
    }
    write_atomic(folder / "matrix.json", json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    return whole
