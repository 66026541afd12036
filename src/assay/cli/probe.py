"""`assay probe`: measure which ops a lane takes, refuses, or gets wrong."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: assay probe --lane gpu_mldrift --op CONV_2D --op SOFTMAX --out matrices")
def probe(
    lane: Annotated[str, typer.Option("--lane", help="The accelerator to measure.")] = "gpu_mldrift",
    op: Annotated[
        list[str] | None, typer.Option("--op", help="Only this op, for example CONV_2D. May be given again.")
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            help="Instead of the grid, the nodes of this model that the shipped matrix does not know. "
            "May be given again.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the matrix and the progress of the probe.")
    ] = Path("assay-out/matrices"),
    list_ops: Annotated[bool, typer.Option("--list-ops", help="Print the ops of the grid and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Build one-op models, run each on a lane, compare with the CPU, and write a support matrix.

    The grid has tens of thousands of cases (op, element types, ranks, options, constness, versions) and takes
    half an hour to an hour. It runs in child processes, so that a crash is an entry and not the end; what was
    measured stays measured: Ctrl-C, and the same command again goes on where it stopped.

    Exit code: 0; 2 if the lane cannot run here.
    """
    from assay.cli._output import err, print_json, progress
    from assay.cli._output import out as console
    from assay.probe import grid
    from assay.probe import probe as run_probe

    if list_ops:
        print("\n".join(grid.known_ops()))
        return
    with progress() as bar:
        task = bar.add_task(f"probing {lane}", total=None)
        result = run_probe(
            lane,
            out,
            ops=op or (),
            models=model or (),
            tell=lambda done, total: bar.update(task, completed=done, total=total),
        )
    document = {"folder": str(result.folder), "cases": result.statuses, "ops": result.header["ops"]}
    if as_json:
        print_json(document)
        return
    from assay.report import probe_table

    probe_table.show(result, console)
    err.print(f"matrix: {result.folder} (assay lint MODEL --matrix {result.folder})", soft_wrap=True)
