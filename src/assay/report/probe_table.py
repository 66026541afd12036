"""What `assay probe` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from assay.probe import ProbeResult

_COLUMNS = ("supported", "refused", "wrong", "failed", "crash")


def show(result: ProbeResult, console: Console) -> None:
    """Print a line an op: how many signatures were taken, refused, wrong, and so on."""
    header = result.header
    console.print(
        f"[bold]{header['lane']}[/bold], {header['runtime']} {header['runtime_version']}, "
        f"{escape(str(header.get('adapter') or 'adapter unknown'))}: {sum(result.statuses.values())} cases",
        soft_wrap=True,
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("op")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for op, counts in sorted(header["ops"].items()):
        table.add_row(escape(op), *(str(counts.get(column, "")) for column in _COLUMNS))
    console.print(table)
    left_out = {name: count for name, count in result.statuses.items() if name not in _COLUMNS}
    if left_out:
        words = ", ".join(f"{count} {name}" for name, count in sorted(left_out.items()))
        console.print(f"[dim]no entry: {words} (invalid: the runtime's own CPU kernel refuses the case)[/dim]")
