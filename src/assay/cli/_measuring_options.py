"""What verbs that measure share: their options, their progress, and how they end."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.measure.run import Report, RunResult

Runs = Annotated[int, typer.Option(min=0, help="Timed inferences; 0 compares numbers only.")]
Warmup = Annotated[int, typer.Option(min=0, help="Untimed inferences first.")]
Budget = Annotated[float, typer.Option(min=0.0, help="Seconds after which timing of a slow model ends early.")]
Out = Annotated[Path, typer.Option(help="Folder for records and cards.")]
Seed = Annotated[int, typer.Option(help="Seed of the inputs.")]
TimeLimit = Annotated[float, typer.Option(min=1.0, help="Seconds for one lane on one model.")]
MemoryLimit = Annotated[
    int | None,
    typer.Option(min=64, help="MiB for one lane's process or browser. Default: 3/4 of the machine's."),
]
QuietGate = Annotated[
    bool, typer.Option("--quiet-gate", help="Wait for a quiet machine; measure again when disturbed.")
]
Device = Annotated[str | None, typer.Option(help="This machine's name in records.", envvar="ASSAY_DEVICE")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def parse_shapes(values: list[str]) -> dict[str, tuple[int, ...]]:
    """Shapes by input name, from `name=1,224,224,3` each.

    Raises:
        AssayError: One is not of that form.
    """
    from assay.errors import AssayError

    shapes: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, _, sizes = value.rpartition("=")
        try:
            shapes[name] = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            name = ""
        if not name:
            raise AssayError(f"--shape {value!r} is not understood", fix="write --shape name=1,224,224,3")
    return shapes


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
