"""`assay catalog`: the index of all models."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True, epilog="Example: assay catalog index assay-out")


@app.callback()
def catalog() -> None:
    """The catalog: all models of a folder of records and cards."""


@app.command(epilog="Example: assay catalog index assay-out")
def index(
    root: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with data/ and cards/.")] = Path("assay-out"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the index as JSON on stdout too.")] = False,
) -> None:
    """Write index.json, INDEX.md (a table of all models) and llms.txt into DIR."""
    import assay
    from assay.catalog.index import INDEX_JSON
    from assay.cli._reading import name_unread, reading

    with reading() as progress:
        paths, problems = assay.write_index(root, progress)
    name_unread(problems, root)
    if as_json:
        print((root / INDEX_JSON).read_text(encoding="utf-8"), end="")
        return
    for path in paths:
        print(path)
