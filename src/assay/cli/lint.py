"""`assay lint`: what an accelerator will refuse of a model, without running it."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command(
    epilog="Example: assay lint model.tflite --fail-on fallback --fail-on partitions:1",
    no_args_is_help=True,
)
def lint(
    model: Annotated[Path, typer.Argument(help="A .tflite file.")],
    lane: Annotated[
        str | None, typer.Option("--lane", help="The accelerator. Default: gpu_mldrift.", show_default=False)
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="fallback|wrong|partitions:N",
            help="Exit 1 if nodes run on the CPU or the model does not load; if nodes were measured to give "
            "wrong numbers; if there are more than N accelerator partitions; and if a node is unknown. May be "
            "given again.",
        ),
    ] = None,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Do not fail on nodes that were not measured.")
    ] = False,
    matrix: Annotated[
        list[Path] | None,
        typer.Option("--matrix", help="A folder that `assay probe` wrote, besides the matrix that ships."),
    ] = None,
    nodes: Annotated[bool, typer.Option("--nodes", help="List every node.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Predict, without running it, where each node of a model will run and what to change.

    Each node is looked up in a support matrix that was measured on the lane (`assay probe`) and ships with
    Assay. What was not measured and does not follow from measurements is unknown, never fine.

    Exit code: 0; 1 if a --fail-on condition holds; 2 if the model or an option is not usable.
    """
    import assay
    from assay.cli._output import out, print_json
    from assay.linting.gate import Gate

    gate = Gate.parse(fail_on or [], allow_unknown=allow_unknown)
    report = assay.lint(model, lane=lane, matrices=matrix or [])
    reasons = gate.reasons(report)
    if as_json:
        print_json({**report.to_json(), "failed": reasons})
    else:
        from assay.report import lint_table

        lint_table.show(report, out, with_nodes=nodes)
        for reason in reasons:
            out.print(f"[red]fails[/red] {reason}", soft_wrap=True)
    if reasons:
        raise typer.Exit(1)
