"""`assay inspect`: what is in a model, as tables, JSON or a picture."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command(
    epilog="Example: assay inspect selfie_segmentation.tflite --html graph.html --lane gpu_mldrift",
    no_args_is_help=True,
)
def inspect(
    model: Annotated[Path, typer.Argument(help="A .tflite file, or a .litertlm or .task bundle of them.")],
    part: Annotated[
        str | None, typer.Option("--part", help="Of a bundle, only the model with this name.", metavar="NAME")
    ] = None,
    nodes: Annotated[bool, typer.Option("--nodes", help="List every node, too.")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write a picture of the graph: one HTML file that opens offline."),
    ] = None,
    lane: Annotated[
        str | None,
        typer.Option("--lane", help="Colour the picture by what `assay lint` predicts for this lane."),
    ] = None,
    subgraph: Annotated[int, typer.Option("--subgraph", help="The subgraph to draw.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Show what is in a model: signatures, ops, types, ranks, parameters, multiply-accumulates, sizes.

    Nothing is run and weights are not read, so that a model of any size is shown at once.

    Exit code: 0, or 2 if the file is not a sound model.
    """
    import assay
    from assay.cli._output import err, out, print_json
    from assay.report import inspect_table
    from assay.report.draw import draw

    inspected = assay.inspect(model, part=part)
    # First of all: whoever reads the table may stop reading.
    if html is not None:
        draw(inspected, html, subgraph=subgraph, lane=lane)
        err.print(f"picture: {html}", markup=False, soft_wrap=True)
    if as_json:
        print_json(inspected.document(with_nodes=nodes))
    else:
        for line in inspected.other_parts():
            out.print(inspect_table.printable(line), markup=False, soft_wrap=True)
        for position, (name, one) in enumerate(inspected.models.items()):
            if position:
                out.print()
            inspect_table.show(name, inspected.summaries[name], out)
            if nodes:
                inspect_table.show_nodes(one, out)
