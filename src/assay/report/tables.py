"""Cards, queries and differences as tables for a terminal."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from assay.catalog.check import CheckResult
from assay.catalog.difference import CellChange, Difference, Fact, SpeedChange, name_of
from assay.catalog.staleness import StaleCell
from assay.records.card import Card
from assay.records.rows import RunRow, card_rows
from assay.report.card import interval, is_language, nodes
from assay.report.text import number, plain

_COLORS = {"match": "green", "runs": "green", "partial": "yellow", "wrong": "red", "failed": "red"}
_WORDS = {
    "match": "yes, outputs match",
    "runs": "runs, not compared",
    "partial": "in part",
    "wrong": "WRONG OUTPUTS",
    "failed": "fails",
}


def safe(text: object, limit: int = 400) -> str:
    """A stranger's text for Rich: no control characters, no markup."""
    return escape(plain(text, limit))


def status_text(status: str, failure: str | None = None) -> str:
    """A status in words and color."""
    text = failure.replace("_", " ") if status == "failed" and failure else _WORDS.get(status, status)
    return f"[{_COLORS.get(status, 'default')}]{safe(text)}[/]"


def card_tables(card: Card) -> list[Table]:
    """A card's runs, one table for models timed by inference and one for language models."""
    rows = list(card_rows(card))
    language = [row for row in rows if is_language(row)]
    others = [row for row in rows if not is_language(row)]
    tables: list[Table] = []
    if others:
        table = _table("Device", "Lane", "Works", ">p50 ms", "95 % interval", "Nodes", ">MiB", "Runtime", "Date")
        for row in others:
            p50 = number(row.latency_p50_ms) + (" ?" if row.unstable else "")
            table.add_row(*_where(row), p50, interval(row), nodes(row), number(row.peak_mem_mb), *_when(row))
        tables.append(table)
    if language:
        columns = ("Device", "Lane", "Works", ">Prompt", ">Prefill t/s", ">Decode t/s", ">TTFT ms", ">MiB")
        table = _table(*columns, "Runtime", "Date")
        for row in language:
            speeds = (row.prefill_tokens_per_s, row.decode_tokens_per_s, row.ttft_ms, row.peak_mem_mb)
            table.add_row(*_where(row), number(row.prefill_tokens), *map(number, speeds), *_when(row))
        tables.append(table)
    return tables


def _where(row: RunRow) -> tuple[str, str, str]:
    device = safe(row.device) + (f" ({safe(row.browser)})" if row.browser else "")
    lane = safe(row.accelerator) + (f" {safe(row.signature)}" if row.signature else "")
    return device, lane, status_text(row.status, row.failure_class)


def _when(row: RunRow) -> tuple[str, str]:
    example = "" if row.provenance == "measured" else f" ({row.provenance})"
    return safe(row.runtime_version), row.date + example


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return table


def query_table(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Table:
    """A query's answer."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = any(isinstance(row[index], int | float) for row in rows[:50])
        table.add_column(safe(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_value(item) for item in row))
    return table


def _value(item: Any) -> str:
    if item is None:
        return "-"
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, float):
        return number(item, 6)
    if isinstance(item, datetime.datetime):
        return item.isoformat()
    return safe(item)


def difference_tables(difference: Difference) -> list[Table | str]:
    """A difference: what was gained and lost, what changed, and what is worse."""
    parts: list[Table | str] = [f"A: {safe(difference.a)}", f"B: {safe(difference.b)}"]
    for title, facts in (("Gained", difference.gained), ("Lost", difference.lost)):
        if facts:
            parts += [f"\n[bold]{title}[/] ({len(facts)} cells)", _facts_table(facts)]
    if difference.changed:
        parts += [f"\n[bold]Changed[/] ({len(difference.changed)} cells)", _changes_table(difference.changed)]
    parts.append(f"\n{difference.same} cells without a real change")
    if difference.regressions:
        parts.append(f"[red]{len(difference.regressions)} regressions[/]")
        parts += [f"  {safe(text)}" for text in difference.regressions]
    else:
        parts.append("[green]no regression[/]")
    return parts


def _facts_table(facts: Sequence[Fact]) -> Table:
    table = _table("Cell", "Status", ">p50 ms", "Runtime", "Date")
    for fact in facts:
        status = status_text(fact["status"], fact["failure_class"])
        p50 = number(fact["latency_p50_ms"])
        table.add_row(safe(name_of(fact)), status, p50, safe(fact["runtime_version"]), str(fact["date"]))
    return table


def _changes_table(changes: Sequence[CellChange]) -> Table:
    table = _table("Cell", "Before", "After", "Speed", "B / A", "95 % interval", "Change")
    for change in changes:
        before, after = (status_text(s["status"], s["failure_class"]) for s in (change.before, change.after))
        speeds = change.speeds or [None]
        for index, speed in enumerate(speeds):
            first = (safe(name_of(change.cell)), before, after) if index == 0 else ("", "", "")
            table.add_row(*first, *_speed(speed))
    return table


def _speed(speed: SpeedChange | None) -> tuple[str, str, str, str]:
    if speed is None:
        return "-", "-", "-", "-"
    values = f"{speed.metric} {number(speed.before)} to {number(speed.after)}"
    known = speed.ratio_low is not None and speed.ratio_high is not None
    bounds = f"{speed.ratio_low:.3f} to {speed.ratio_high:.3f}" if known else "unknown"
    color = {"real": "red" if speed.slower else "green", "noise": "dim", "unknown": "yellow"}[speed.reality]
    word = f"{speed.reality}, {'slower' if speed.slower else 'faster'}" if speed.reality != "noise" else "noise"
    return values, f"{speed.ratio:.3f}", bounds, f"[{color}]{word}[/]"


def stale_table(cells: Sequence[StaleCell]) -> Table:
    """Cells to measure again."""
    table = _table("Model", "Device", "Lane", "Measured on", "Newest", "Date", "Status")
    for cell in cells:
        lane = safe(cell.accelerator) + (f" {safe(cell.signature)}" if cell.signature else "")
        measured = f"{safe(cell.runtime)} {safe(cell.runtime_version)}"
        status = status_text(cell.status)
        table.add_row(safe(cell.model_id), safe(cell.device), lane, measured, safe(cell.newest), cell.date, status)
    return table


def check_lines(results: Sequence[CheckResult]) -> list[str]:
    """What checks of cards found, a line each."""
    lines: list[str] = []
    for result in results:
        lines += [f"[red]{safe(finding.text, 1000)}[/]" for finding in result.findings]
        if not result.findings:
            lines.append(f"{safe(result.model_id)}: as its records make it")
    return lines
