"""What verbs that measure share: their options, their progress, and how they end."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.measure.run import Report, RunResult

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
LaneOption = Annotated[
    list[str] | None,
    typer.Option("--option", help="Option of a lane that has none here: name=JSON; again for more."),
]


def with_progress(
    total: int,
    measure: Callable[[Callable[[str], None], Callable[["RunResult"], None]], "Report"],
    *,
    interrupted: str,
) -> "Report":
    """Measure with a progress bar, and say each run in a line when it is on disk.

    Args:
        total: Runs expected.
        measure: Measures; given what to tell of what is being done, and of each run.
        interrupted: What to say where the user stops it; the exit code is 130 then.
    """
    from rich.markup import escape

    from assay.cli._output import err, progress
    from assay.report import run_table

    with progress() as bar:
        task = bar.add_task("starting", total=total)

        def done(result: "RunResult") -> None:
            bar.advance(task)
            err.print(run_table.line(result), soft_wrap=True)

        try:
            return measure(lambda text: bar.update(task, description=escape(text)), done)
        except KeyboardInterrupt:
            err.print(escape(interrupted), soft_wrap=True)
            raise typer.Exit(130) from None


def show(report: "Report", out: Path, *, as_json: bool) -> None:
    """Print what was measured on stdout, and what went wrong on stderr."""
    from rich.markup import escape

    from assay.cli._output import err, print_json
    from assay.cli._output import out as stdout
    from assay.report import run_table

    for warning in report.warnings:
        err.print(f"[yellow]warning:[/yellow] {escape(warning)}", soft_wrap=True)
    for problem in report.errors:
        err.print(f"[red]error:[/red] {escape(problem)}", soft_wrap=True)
    if as_json:
        print_json(run_table.document(report))
    else:
        run_table.show(report, out, stdout)
