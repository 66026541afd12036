"""`assay schema`: the JSON Schema of a document."""

from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: assay schema card > card.schema.json")
def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            help="card, device-run, browser-sweep, benchmark, ... Default: list them.", show_default=False
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of a document that Assay reads or writes."""
    from assay.cli._output import print_json
    from assay.errors import AssayError
    from assay.records.schemas import FORMS, json_schema

    if name is None:
        for form, model in FORMS.items():
            print(f"{form:<20} {(model.__doc__ or '').splitlines()[0]}")
        return
    if name not in FORMS:
        raise AssayError(f"there is no document {name!r}", fix=f"one of {', '.join(FORMS)}")
    print_json(json_schema(name))
