"""What `assay devices` shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from assay.report import lanes_table

if TYPE_CHECKING:
    from assay.devices.check import DeviceCheck


def show_list(devices: Mapping[str, str], file: str, console: Console) -> None:
    """Print the names and addresses of devices, and the file that they are from."""
    width = max(len(name) for name in devices)
    for name, address in devices.items():
        console.print(f"[bold]{escape(name):<{width}}[/bold]  {escape(address)}", soft_wrap=True)
    where = f"from {file}" if file else "no devices.yaml: see --help"
    console.print(f"[dim]{escape(where)}[/dim]", soft_wrap=True)


def show(check: DeviceCheck, console: Console) -> None:
    """Print a device, how it is, and its lanes."""
    console.print(f"[bold]{escape(check.label)}[/bold]  {escape(check.address)}", soft_wrap=True)
    if check.facts is None or check.state is None:
        console.print(f"  [red]not reached:[/red] {escape(check.problem or '')}", soft_wrap=True)
        if check.fix:
            console.print(f"  [dim]fix:[/dim] {escape(check.fix)}", soft_wrap=True)
        return
    facts, host, state = check.facts, check.facts.host, check.state
    parts = [facts.model, facts.soc, facts.os_build, host.get("arch")]
    parts += [f"{host['cores']} cores" if host.get("cores") else None]
    parts += [f"{host['memory_mb']} MiB" if host.get("memory_mb") else None]
    console.print(f"  [dim]is:[/dim] {escape(', '.join(str(part) for part in parts if part))}", soft_wrap=True)
    if facts.name:
        console.print(f"  [dim]name in records:[/dim] {escape(facts.name)}", soft_wrap=True)
    figures = [
        None if state.load1 is None else f"load {state.load1:.2f}",
        None if state.frequency_ratio is None else f"clock at {state.frequency_ratio:.0%} of the highest",
        None if state.hottest_c is None else f"{state.hottest_c:.0f} degrees C",
    ]
    known = ", ".join(figure for figure in figures if figure)
    console.print(f"  [dim]now:[/dim] {escape(known or 'it does not tell')}", soft_wrap=True)
    lanes_table.show(list(check.lanes), console)
