"""What `assay lanes` shows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from assay.devices.check import LaneCheck


def show(checks: list[LaneCheck], console: Console) -> None:
    """Print a block for each lane."""
    width = max((len(check.name) for check in checks), default=0)
    for check in checks:
        mark, facts = _facts(check)
        console.print(f"{mark} [bold]{check.name:<{width}}[/bold]  {escape(check.summary)}", soft_wrap=True)
        for label, text in facts:
            console.print(f"  {'':<{width}}  [dim]{label}[/dim] {escape(text)}", soft_wrap=True)


def _facts(check: LaneCheck) -> tuple[str, list[tuple[str, str]]]:
    availability = check.availability
    if not availability.available:
        return "[yellow]-[/yellow]", [("not here:", availability.reason), ("fix:", availability.fix)]
    facts = [("on:", availability.on)]
    if check.adapter:
        facts.append(("adapter:", f"{check.adapter}, {check.adapter_kind}"))
    if check.ran is False:
        return "[red]x[/red]", [*facts, ("failed:", check.problem or "no reason given")]
    return ("[green]+[/green]" if check.ran else "[green]?[/green]"), facts


def document(checks: list[LaneCheck]) -> list[dict[str, Any]]:
    """The lanes as JSON."""
    return [dataclasses.asdict(check) for check in checks]
