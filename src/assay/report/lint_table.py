"""What `assay lint` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from assay.linting import Finding, LintReport, SubgraphReport

_COLOURS = {"error": "red", "fallback": "red", "unknown": "yellow", "warning": "yellow"}
_STATUS = {
    "supported": "green",
    "wrong": "yellow",
    "refused": "red",
    "failed": "red",
    "crash": "red",
    "unknown": "yellow",
}
_NAMED = 6


def show(report: LintReport, console: Console, *, with_nodes: bool = False) -> None:
    """Print the report: counts, a line a subgraph, findings with their hints, and the nodes if asked for."""
    first, last = report.measured
    when = first if first == last else f"{first} to {last}"
    where = (
        f"{escape(report.runtime)} {report.runtime_version} on {escape(report.adapter or 'an unnamed adapter')}"
    )
    console.print(
        f"[bold]{escape(report.model or 'model')}[/bold] on [bold]{report.lane}[/bold]: "
        f"predicted from measurements of {where}, {when}",
        soft_wrap=True,
    )
    for subgraph in report.subgraphs:
        if subgraph.total:
            console.print(_line(subgraph), soft_wrap=True)
    if report.findings:
        console.print()
    for finding in report.findings:
        _finding(finding, console)
    if not report.findings:
        console.print("[green]nothing to change[/green]")
    if with_nodes:
        console.print(_nodes(report))


def _line(subgraph: SubgraphReport) -> str:
    if subgraph.delegated is None:
        low, high = subgraph.delegated_range
        share = f"{low} to {high} of {subgraph.total} nodes delegated, open until unknown ones are measured"
    else:
        share = f"{subgraph.delegated} of {subgraph.total} nodes delegated"
    counts = ", ".join(
        f"{subgraph.count(*statuses)} {label}"
        for label, statuses in (
            ("refused", ("refused",)),
            ("unknown", ("unknown",)),
            ("with wrong numbers", ("wrong",)),
            ("fatal", ("failed", "crash")),
        )
        if subgraph.count(*statuses)
    )
    folded = sum(node.place == "folded" for node in subgraph.nodes)
    parts = f"{len(subgraph.partitions)} partition{'s' if len(subgraph.partitions) != 1 else ''}"
    crossing = f"{subgraph.crossings} host-device crossings"
    if subgraph.crossing_bytes:
        crossing += f" ({subgraph.crossing_bytes / 1024:.0f} KiB)"
    extra = [text for text in (counts, f"{folded} folded float16 weights" if folded else "") if text]
    tail = f"; {', '.join(extra)}" if extra else ""
    return f"subgraph {subgraph.index}: {share}, {parts}, {crossing}{tail}"


def _finding(finding: Finding, console: Console) -> None:
    colour = _COLOURS[finding.severity]
    console.print(f"[{colour}]{finding.severity}[/{colour}] {escape(finding.message)}", soft_wrap=True)
    if finding.nodes:
        named = ", ".join(
            str(node) if subgraph == 0 else f"{subgraph}:{node}" for subgraph, node in finding.nodes[:_NAMED]
        )
        more = f" and {len(finding.nodes) - _NAMED} more" if len(finding.nodes) > _NAMED else ""
        console.print(f"  [dim]nodes:[/dim] {named}{more}", soft_wrap=True)
    if finding.modules:
        more = f" and {len(finding.modules) - _NAMED} more" if len(finding.modules) > _NAMED else ""
        console.print(f"  [dim]modules:[/dim] {escape(', '.join(finding.modules[:_NAMED]))}{more}", soft_wrap=True)
    if finding.hint:
        console.print(f"  [dim]change:[/dim] {escape(finding.hint)}", soft_wrap=True)
    if finding.rewrite:
        console.print(f"  [dim]does it:[/dim] assay convert, rewrite {finding.rewrite}", soft_wrap=True)
    for line in finding.evidence[:3]:
        console.print(f"  [dim]evidence:[/dim] {escape(line)}", soft_wrap=True)


def _nodes(report: LintReport) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("node", "op", "answer", "place", "basis", "module"):
        table.add_column(title, overflow="fold")
    for subgraph in report.subgraphs:
        for node in subgraph.nodes:
            colour = _STATUS[node.answer.status]
            table.add_row(
                f"{subgraph.index}:{node.index}",
                escape(node.op),
                f"[{colour}]{node.answer.status}[/{colour}]",
                node.place,
                "measured" if node.answer.basis == "measured" else escape(node.answer.basis[:80]),
                escape(node.module or node.output[:60]),
            )
    return table
