"""What `assay run` shows: a line for each run as it ends, one table at the end, or one JSON document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.evidence.litert_log import graphics_errors

if TYPE_CHECKING:
    from assay.measure.run import Report, RunResult


def status(result: RunResult) -> str:
    """One word or two for what came of a run, with its colour in Rich's markup."""
    run = result.entry.run
    if run.failure_class is not None:
        return f"[red]{run.failure_class}[/red]"
    if run.output_match is False:
        return "[bold red]wrong numbers[/bold red]"
    if run.metrics.get("consistency") in ("stale", "first_run_only", "order_dependent", "unstable"):
        return f"[yellow]{str(run.metrics['consistency']).replace('_', ' ')} outputs[/yellow]"
    match run.metrics.get("verdict"):
        case "match":
            return "[green]match[/green]"
        case "precision_noise":
            return "[green]precision noise[/green]"
        case _:
            return "[green]runs[/green]"


def line(result: RunResult) -> str:
    """One run in one line."""
    run = result.entry.run
    name = result.model_id + (f":{result.signature}" if result.signature else "")
    latency = f"{_number(run.latency_p50_ms)} ms" if run.latency_p50_ms is not None else run.error or ""
    return f"{escape(name)}  {result.lane}  {status(result)}  {escape(latency)}"


def show(report: Report, out: Path, console: Console) -> None:
    """Print the table, what was left out, and where everything lies."""
    if report.results:
        console.print(_table(report))
    for lane, (reason, fix) in report.skipped.items():
        console.print(f"[yellow]not here:[/yellow] {lane}: {escape(reason)} [dim]({escape(fix)})[/dim]")
    if any(result.entry.run.metrics.get("unstable") for result in report.results):
        console.print("[dim]~ unstable: values drift or spread, or the machine was busy; see the record[/dim]")
    for result in report.results:
        run = result.entry.run
        if run.output_match is False and (said := graphics_errors("\n".join(run.evidence or ()))):
            where = f"{result.model_id} on {result.lane}"
            console.print(f"[yellow]log:[/yellow] {escape(where)}: {escape(said[0])}", soft_wrap=True)
    if report.results:
        records = sorted({str(result.record.parent) for result in report.results})
        console.print(f"records  {', '.join(records)}", soft_wrap=True, markup=False)
        console.print(f"cards    {out / 'cards'}", soft_wrap=True, markup=False)


def _table(report: Report) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("model", overflow="fold", min_width=12)
    several = len({result.device for result in report.results}) > 1
    if several:
        table.add_column("device", overflow="fold")
    table.add_column("lane", no_wrap=True)
    table.add_column("result", no_wrap=True)
    for name in ("ops on it", "p50 ms", "load ms", "peak MB", "max diff"):
        table.add_column(name, justify="right", no_wrap=True)
    previous = None
    for result in report.results:
        run = result.entry.run
        name = result.model_id + (f":{result.signature}" if result.signature else "")
        unstable = "~" if run.metrics.get("unstable") else ""
        table.add_row(
            escape(name) if name != previous else "",
            *([escape(result.device or "browser")] if several else []),
            result.lane,
            status(result),
            _delegated(run),
            unstable + _number(run.latency_p50_ms),
            _number(run.metrics.get("load_ms")),
            _number(run.peak_mem_mb),
            "" if run.max_abs_diff is None else f"{run.max_abs_diff:.1e}",
        )
        previous = name
    return table


def _delegated(run: Any) -> str:
    if run.delegated_ops is None or run.total_ops is None:
        return ""
    text = f"{run.delegated_ops}/{run.total_ops}"
    return text if run.full_delegation else f"[yellow]{text}[/yellow]"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def document(report: Report) -> dict[str, Any]:
    """The report as one JSON document."""
    return {
        "runs": [
            {
                "model": str(result.model),
                "model_id": result.model_id,
                "record": str(result.record),
                **result.entry.model_dump(mode="json"),
            }
            for result in report.results
        ],
        "skipped": [
            {"lane": lane, "reason": reason, "fix": fix} for lane, (reason, fix) in report.skipped.items()
        ],
        "errors": report.errors,
        "warnings": report.warnings,
        "model_time_s": sum(report.model_times_s),
        "cards": [str(path) for path in report.cards],
    }
