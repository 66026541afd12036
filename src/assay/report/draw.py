"""A picture of one model of a file, its nodes coloured by what lint predicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from assay.errors import AssayError
from assay.graph import Model
from assay.graph.inspection import Inspected
from assay.records.files import write_atomic
from assay.report.graph_html import render_graph


def draw(inspected: Inspected, target: Path, *, subgraph: int = 0, lane: str | None = None) -> None:
    """Write a picture of one model's subgraph as an HTML file.

    Args:
        inspected: What `inspect_file` gave; it must hold one model.
        target: The file to write.
        subgraph: The subgraph to draw.
        lane: Colour the nodes by what lint predicts for this lane.

    Raises:
        AssayError: There are several models, no such subgraph, or nothing is known of the lane.
    """
    if len(inspected.models) > 1:
        names = ", ".join(inspected.models)
        raise AssayError(
            f"{inspected.path} holds {len(inspected.models)} models", fix=f"Choose one with --part: {names}"
        )
    (name, model), *_ = inspected.models.items()
    colours = _Colours() if lane is None else _predicted(model, subgraph, lane)
    picture = render_graph(
        model, subgraph, status=colours.status, reasons=colours.reasons, title=name, note=colours.note
    )
    write_atomic(target, picture)


#: Answers of lint for nodes that the accelerator takes, and should not.
_BAD = frozenset({"crash", "failed", "wrong"})


@dataclass(slots=True)
class _Colours:
    """What `render_graph` takes."""

    status: dict[int, str] = field(default_factory=dict[int, str])
    reasons: dict[int, str] = field(default_factory=dict[int, str])
    note: str = ""


def _predicted(model: Model, subgraph: int, lane: str) -> _Colours:
    """What lint predicts for the nodes of a subgraph on a lane."""
    from assay.linting import for_lane, lint

    report = lint(model, for_lane(lane))
    colours = _Colours(note=f"predicted for {report.lane}, runtime {report.runtime_version}, by assay lint")
    if subgraph >= len(report.subgraphs):
        return colours
    for node in report.subgraphs[subgraph].nodes:
        index = node.index
        if node.place in {"accelerator", "folded"}:
            colours.status[index] = "wrong" if node.answer.status in _BAD else "delegated"
        else:
            colours.status[index] = "refused" if node.place == "cpu" else "unknown"
        if node.stranded:
            colours.reasons[index] = "The lane would take it, but takes one part of a graph only."
        elif node.answer.reason:
            colours.reasons[index] = node.answer.reason
    return colours
