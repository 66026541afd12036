"""`assay diff`: what changed."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command(
    epilog="Examples: assay diff 2.2.0 2.3.0; assay diff 2026-11-01 2026-12-01; assay diff pixel-8a galaxy-s26; "
    "assay diff old-out new-out"
)
def diff(
    a: Annotated[
        str, typer.Argument(help="Before: a date, runtime version, device or folder.", show_default=False)
    ],
    b: Annotated[str, typer.Argument(help="After: another of the same kind.", show_default=False)],
    root: Annotated[Path, typer.Option("--dir", help="Folder with data/ and cards/.")] = Path("assay-out"),
    threshold: Annotated[
        float, typer.Option(min=0.0, help="Share of change that does not matter, however sure.")
    ] = 0.05,
    unknown_over: Annotated[
        float, typer.Option(min=0.0, help="Share of change that counts as real where no spread is known.")
    ] = 0.25,
    across_files: Annotated[
        bool, typer.Option("--across-files", help="Compare a model's runs whatever its file's digest.")
    ] = False,
    fail_on_lost: Annotated[
        bool, typer.Option("--fail-on-lost", help="A cell that is gone is a regression.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Compare two dates, runtime versions, devices or catalogs. Exit 1 on a regression.

    Cells gained and lost, changes of status, and speed ratios with their 95 % confidence interval: a change is
    real if the interval excludes 1 and it is above the threshold, else noise; unknown if the records do not
    say how much the timings spread. A worse status or a real slow-down is a regression.
    """
    from assay.catalog.difference import ChangeThresholds
    from assay.catalog.difference import diff as compare
    from assay.cli._output import out, print_json
    from assay.cli._reading import name_unread, reading
    from assay.report.tables import difference_tables

    thresholds = ChangeThresholds(threshold, unknown_over, across_files, fail_on_lost)
    with reading() as progress:
        result = compare(a, b, root=root, thresholds=thresholds, progress=progress)
    name_unread(result.problems, root)
    if as_json:
        print_json(result.to_value())
    else:
        for part in difference_tables(result):
            out.print(part)
    raise typer.Exit(1 if result.regressions else 0)
