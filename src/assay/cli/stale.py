"""`assay stale`: what to measure again."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


def _known(values: list[str]) -> dict[str, str]:
    from assay.errors import AssayError

    known: dict[str, str] = {}
    for value in values:
        runtime, equals, version = value.partition("=")
        if not equals or not runtime or not version:
            raise AssayError(f"--known {value!r} is not understood", fix="write --known litert=2.4.0")
        known[runtime] = version
    return known


@app.command(epilog="Example: assay stale --known litert=2.4.0")
def stale(
    root: Annotated[Path, typer.Option("--dir", help="Folder with data/ and cards/.")] = Path("assay-out"),
    known: Annotated[
        list[str] | None,
        typer.Option(help="A version that no record has yet: litert=2.4.0. Again for more.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """List cells measured on a runtime older than the newest known. Exit 1 if there are any.

    The newest known is the newest release in the records, or what --known says. Pre-releases count only where
    there is no release.
    """
    import dataclasses

    from assay.catalog.database import open_catalog
    from assay.catalog.staleness import stale as find
    from assay.cli._output import err, out, print_json
    from assay.cli._reading import name_unread, reading
    from assay.report.tables import stale_table

    with reading() as progress, open_catalog(root, progress=progress) as catalog:
        cells = find(catalog, _known(known or []))
        problems = catalog.problems()
    name_unread(problems, root)
    if as_json:
        print_json([dataclasses.asdict(cell) for cell in cells])
    elif cells:
        out.print(stale_table(cells))
    else:
        err.print("every cell is on the newest runtime known")
    raise typer.Exit(1 if cells else 0)
