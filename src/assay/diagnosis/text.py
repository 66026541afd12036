"""A finding in words: for the terminal, and as a pitfall for the model's card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.diagnosis.finding import Delegation, Finding, Fix

if TYPE_CHECKING:
    from assay import records


_NO_GAIN = "  full delegation saves nothing that can be measured here: the refused nodes cost little"


def lines(finding: Finding) -> list[str]:
    """What a person reads, a line each; headings end with a colon and details are indented."""
    told = [f"{finding.model} on {finding.lane}: {finding.sentence}"]
    if finding.symptom not in ("none", "converter"):
        told += _symptom(finding)
    if finding.because:
        told += ["what shows it:", *(f"  {sentence}" for sentence in finding.because)]
    if finding.clues:
        told += ["what the wrong values look like:", *(f"  {sentence}" for sentence in finding.clues)]
    if finding.alone:
        told += ["alone:", *(f"  {sentence}" for sentence in finding.alone)]
    if finding.alike and finding.alike["tried"]:
        faulty, tried, of = len(finding.alike["faulty"]), finding.alike["tried"], finding.alike["of"]
        told.append(f"elsewhere: {faulty} of {tried} other places with the same ops show it ({of} there are)")
    if finding.smallest is not None:
        told.append(f"smallest file: {finding.smallest.path}, {finding.smallest.size_bytes:,} bytes")
    if finding.fixes:
        told += ["rewrites tried on the whole model:", *(f"  {_fix(fix)}" for fix in finding.fixes)]
    if finding.suggestion:
        told.append(f"what to do: {finding.suggestion}")
    if finding.side_findings:
        told += ["also seen:", *(f"  {sentence}" for sentence in finding.side_findings)]
    if finding.delegation is not None:
        told += _delegation(finding.delegation)
    if finding.cost is not None:
        cost = finding.cost
        told.append(f"cost: {cost.launches} processes, {cost.pieces} pieces, {cost.seconds:.0f} s")
    return told


def _symptom(finding: Finding) -> list[str]:
    if finding.failure is not None:
        return [f"symptom: the whole model fails, {finding.failure}: {finding.error}"]
    number = (
        "has values that are not finite"
        if finding.max_abs_diff is None
        else f"is off by {finding.max_abs_diff:.6g}"
    )
    times = "" if finding.times_limit is None else f", {finding.times_limit:,.0f} times what arithmetic explains"
    return [f"symptom: output {finding.worst_output!r} {number}{times} (inputs: {finding.inputs})"]


def _fix(fix: Fix) -> str:
    equal = "equal" if fix.equal_on_reference else "NOT equal"
    right = "right" if fix.right_on_lane else "still wrong"
    number = "" if fix.lane_max_abs_diff is None else f" ({fix.lane_max_abs_diff:.3g})"
    whole = ", fully delegated" if fix.full_delegation else ""
    return f"{fix.rewrite}: {equal} on the reference, {right} on the lane{number}{whole}"


def _delegation(delegation: Delegation) -> list[str]:
    if not delegation.refused:
        whole = delegation.delegated is None or delegation.delegated == delegation.total
        told = ["delegation: nothing is refused"] if whole else []
    else:
        taken = (
            f"{delegation.delegated} of {delegation.total} nodes" if delegation.delegated is not None else "a part"
        )
        told = [
            f"delegation: {taken} taken; {delegation.crossings} tensors cross between accelerator and CPU, "
            f"in {delegation.partitions} runs of nodes"
        ]
        for refused in delegation.refused:
            told.append(
                f"  {' -> '.join(refused.ops)}: {len(refused.nodes)} nodes, {refused.crossings_saved} crossings"
                f" ({'; '.join(refused.reasons)})"
            )
        if delegation.best_gain_ms is not None:
            gain = f"{delegation.best_gain_ms:.1f} ms of {delegation.whole_ms:.1f} ms at best"
            told.append(f"  full delegation saves {gain}" if delegation.best_gain_ms else _NO_GAIN)
    for region in delegation.regions:
        lane = "failed" if region.lane_ms is None else f"{region.lane_ms:.2f} ms"
        cpu = "failed" if region.cpu_ms is None else f"{region.cpu_ms:.2f} ms"
        told.append(f"  nodes {region.first}-{region.last} ({', '.join(region.ops)}): lane {lane}, CPU {cpu}")
    return told


def pitfall(finding: Finding, source: str) -> records.Pitfall | None:
    """The finding as a pitfall of the model's card.

    Args:
        finding: What was found.
        source: Where the finding is, relative to the output folder.

    Returns:
        None where nothing was found.
    """
    from assay import records
    from assay.lanes import registry

    if finding.symptom == "none":
        return None
    sentences = [finding.sentence, finding.suggestion or ""]
    text = " ".join(f"{each[0].upper()}{each[1:]}." for each in sentences if each)
    figures = [f"max_abs_diff {finding.max_abs_diff}"] if finding.max_abs_diff is not None else []
    return records.Pitfall(
        text=text,
        evidence=[*figures, *finding.because, *finding.evidence],
        date=finding.date,
        lane=registry.find(finding.lane).name,
        ops=list(dict.fromkeys(node.op for node in finding.nodes)) or None,
        source=source,
    )
