"""`assay lanes`: which lanes can run on a device, on what, or why not and the fix."""

from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: assay lanes --quick --json")
def lanes(
    on: Annotated[str, typer.Option(help="The device; see `assay devices`.")] = "local",
    quick: Annotated[bool, typer.Option("--quick", help="Look only at what is installed; run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """List each lane: can it run here, on what (adapter, driver, version), or why not and the fix.

    Unless --quick is given, a model of one op is run on each lane, so that what is shown as working has worked.

    Exit code: 0 whether or not a lane can run; 1 if a lane that looks complete failed to run the model.
    """
    from assay.cli._output import err, out, print_json, progress
    from assay.devices import registry
    from assay.devices.check import check_lanes
    from assay.report import lanes_table

    with progress() as bar, registry.find(on) as device:
        task = bar.add_task("looking", total=None)
        checks = check_lanes(device, run=not quick, notify=lambda text: bar.update(task, description=text))
    if as_json:
        print_json(lanes_table.document(checks))
    else:
        lanes_table.show(checks, out)
    failed = [check.name for check in checks if check.failed]
    if failed:
        err.print(f"[red]failed to run a one-op model:[/red] {', '.join(failed)}")
        raise typer.Exit(1)
