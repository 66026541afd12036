"""Rewrites of the whole graph, tried one by one: equal on the reference, and right on the lane?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from assay import graph
from assay.diagnosis.bundle import describe_file
from assay.diagnosis.finding import Fix
from assay.diagnosis.kinds import Kind
from assay.diagnosis.launch import Launcher, TrialResult
from assay.diagnosis.session import Session, difference_of, judge
from assay.graph.rewrites import REWRITES, GraphRewrite, apply
from assay.records.files import write_atomic

_SAME = 1e-5
"""Relative to the largest value of an output."""

_AT_SOURCE: dict[Kind, str] = {
    Kind.LAYOUT: "convert again with the rewrite `attention-rank4`, which keeps the batch dimension",
    Kind.OVERFLOW: "convert again with the rewrite `layer-norm-prescaled`, or ask the lane for fp32",
    Kind.PRECISION: "ask the lane for fp32 (option enforce_f32), or keep these nodes off the accelerator",
    Kind.BROADCAST: "convert again with the rewrite `constants-baked`, which writes broadcast constants out",
    Kind.CONVERTER: "convert again: the file differs from its source, no lane can be right",
}
"""What a new conversion can do where no rewrite of the finished graph helps; names as `assay convert` has them."""


def try_fixes(
    session: Session, reference: Launcher, folder: Path | None, *, cures: Sequence[str], nodes: Sequence[int]
) -> list[Fix]:
    """Apply each exact rewrite to the whole model, first to the named nodes and their like, then everywhere.

    Args:
        session: Of the diagnosis.
        reference: Launcher of the reference lane.
        folder: Where a model that is right is written to; None writes nothing.
        cures: Rewrites with which the region was right; those are tried. Empty tries all.
        nodes: The nodes that are named.

    Returns:
        One entry for each rewrite that applies; the first that is equal and right is written.
    """
    wanted = [rewrite for rewrite in REWRITES if not cures or rewrite.name in cures]
    subject = session.subject
    ops = {subject.anatomy.subgraph.nodes[node].op for node in nodes}
    like = [node.index for node in subject.anatomy.subgraph.nodes if node.op in ops]
    rewritten: list[tuple[GraphRewrite, bytes]] = []
    for rewrite in wanted:
        model = apply(rewrite, subject.model, subject.signature.subgraph, like)
        if model is None:
            model = apply(rewrite, subject.model, subject.signature.subgraph, None)
        if model is not None:
            rewritten.append((rewrite, graph.write(model)))
    if not rewritten:
        return []
    sequence = [*range(len(subject.sets)), 0]
    right = [
        replace(subject.trial(sequence, options={}), name=rewrite.name, model=data) for rewrite, data in rewritten
    ]
    there = [replace(trial, options=dict(session.options)) for trial in right]
    on_reference, on_lane = reference.run(right), session.launcher.run(there)
    fixes: list[Fix] = []
    for (rewrite, data), equal, lane in zip(rewritten, on_reference, on_lane, strict=True):
        fix = Fix(
            rewrite=rewrite.name,
            summary=rewrite.summary,
            equal_on_reference=_equal(session, equal, sequence),
            reference_max_abs_diff=_gap(session, equal, sequence),
            right_on_lane=_right(session, lane, sequence),
            lane_max_abs_diff=_gap(session, lane, sequence),
            full_delegation=lane.facts.full_delegation,
        )
        if fix.equal_on_reference and fix.right_on_lane and folder is not None and not any(f.file for f in fixes):
            path = folder / f"{subject.path.stem}_{rewrite.name}.tflite"
            write_atomic(path, data)
            fix = replace(fix, file=describe_file(path, folder))
        fixes.append(fix)
    return fixes


def suggestion(kind: Kind | None, fixes: Sequence[Fix]) -> str:
    """What to do, in one sentence."""
    good = [fix for fix in fixes if fix.equal_on_reference and fix.right_on_lane]
    if good:
        where = f", written to {good[0].file.path}" if good[0].file else "; --fix writes the model"
        return f"{good[0].rewrite} ({good[0].summary}) makes the model right on this lane{where}"
    tried = f"none of the exact rewrites helped ({', '.join(fix.rewrite for fix in fixes)})" if fixes else ""
    source = _AT_SOURCE.get(kind) if kind is not None else None
    if source:
        return f"{tried}; {source}" if tried else source
    return tried or "no exact rewrite of the graph cures these nodes; keep them off this lane"


def _right(session: Session, result: TrialResult, sequence: Sequence[int]) -> bool:
    if result.failure is not None:
        return False
    tensors = session.subject.output_tensors
    values = session.reference.values
    return all(
        judge(result.outputs(position), tensors, values[index], session.limits).worst <= 1
        for position, index in enumerate(sequence)
    )


def _equal(session: Session, result: TrialResult, sequence: Sequence[int]) -> bool:
    """Equal up to what another order of float32 additions explains; the rewrites themselves round nothing."""
    if result.failure is not None:
        return False
    for position, index in enumerate(sequence):
        for tensor, output in zip(session.subject.output_tensors, result.outputs(position), strict=True):
            right = session.reference.values[index][tensor]
            largest = float(np.abs(right.astype(np.float64)).max(initial=0.0)) if right.dtype.kind == "f" else 0.0
            if difference_of(right, output) > _SAME * largest:
                return False
    return True


def _gap(session: Session, result: TrialResult, sequence: Sequence[int]) -> float | None:
    if result.failure is not None:
        return None
    gaps = [
        difference_of(session.reference.values[index][tensor], output)
        for position, index in enumerate(sequence)
        for tensor, output in zip(session.subject.output_tensors, result.outputs(position), strict=True)
    ]
    largest = max(gaps, default=0.0)
    return largest if largest < float("inf") else None
