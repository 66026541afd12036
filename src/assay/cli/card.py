"""`assay card`: build cards from records, check them, show them."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    epilog="Example: assay card build face_landmark --dir assay-out --meta meta.yaml",
)

Dir = Annotated[Path, typer.Option("--dir", help="Folder with data/ and cards/.")]
Ids = Annotated[list[str] | None, typer.Argument(help="Model ids. Default: all.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


@app.callback()
def card() -> None:
    """Cards: all that is known of a model, built from its records."""


def _models(root: Path, given: list[str] | None) -> list[str]:
    from assay.catalog.cards import model_ids
    from assay.errors import AssayError

    found = list(given or model_ids(root))
    if not found:
        raise AssayError(f"{root} holds no records and no cards", fix="`assay run MODEL` writes some")
    return found


@app.command(epilog="Example: assay card build --dir assay-out")
def build(
    models: Ids = None,
    root: Dir = Path("assay-out"),
    meta: Annotated[
        Path | None, typer.Option(help="YAML with family, task, license, source_url, pitfalls; it is kept.")
    ] = None,
    keep_cells: Annotated[
        bool, typer.Option("--keep-cells", help="Keep cells of the card whose record is not here.")
    ] = False,
    drop_cells: Annotated[
        bool, typer.Option("--drop-cells", help="Drop cells of the card that no record gives.")
    ] = False,
    schema: Annotated[
        str | None, typer.Option(help="Schema version to write, 1.2 or 1.3. Default: the card's, or 1.2.")
    ] = None,
) -> None:
    """Build cards from records; write card.json and CARD.md.

    Each cell (device, lane, signature, context length, file) takes its newest measured run by date. A rebuild
    that would drop a cell of the present card is refused, unless --keep-cells or --drop-cells says what to do.
    """
    import assay
    from assay.catalog.cards import Orphans
    from assay.cli._output import progress
    from assay.errors import AssayError

    if keep_cells and drop_cells:
        raise AssayError("--keep-cells and --drop-cells exclude each other", fix="give one of them")
    if schema not in (None, "1.2", "1.3"):
        raise AssayError(f"schema {schema} cannot be written", fix="1.2 or 1.3")
    names = _models(root, models)
    if meta is not None and len(names) > 1:
        raise AssayError("--meta is about one model", fix="name the model")
    orphans: Orphans = "keep" if keep_cells else "drop" if drop_cells else "refuse"
    refused: list[str] = []
    with progress() as bar:
        for name in bar.track(names, description="cards"):
            try:
                print(assay.build_card(root, name, meta=meta, orphans=orphans, version=schema))
            except AssayError as error:
                if len(names) == 1:
                    raise
                refused.append(str(error))
    if refused:
        raise AssayError(f"{len(refused)} of {len(names)} cards were not built: " + "\n  ".join(refused))


@app.command(epilog="Example: assay card check --dir assay-out")
def check(models: Ids = None, root: Dir = Path("assay-out"), as_json: AsJson = False) -> None:
    """Find what in a card is not what its records make: edits by hand, old cards. Exit 1 if there is any."""
    import dataclasses

    import assay
    from assay.catalog.check import check_cards
    from assay.cli._output import err, out, print_json, progress
    from assay.report.card import render_card
    from assay.report.tables import check_lines, safe

    names = _models(root, models)
    with progress() as bar:
        if len(names) == 1:
            results = [assay.check_card(root, names[0])]
        else:
            results = list(check_cards(root, bar.track(names, description="checking"), render=render_card))
    for note in dict.fromkeys(note for result in results for note in result.notes):
        err.print(f"[yellow]note:[/] {safe(note, 1000)}", soft_wrap=True)
    if as_json:
        findings = [dataclasses.asdict(finding) for result in results for finding in result.findings]
        notes = [note for result in results for note in result.notes]
        for finding in findings:
            finding["file"] = str(finding["file"])
        print_json({"checked": [result.model_id for result in results], "findings": findings, "notes": notes})
    else:
        for line in check_lines(results):
            out.print(line, soft_wrap=True)
    raise typer.Exit(1 if any(result.findings for result in results) else 0)


@app.command(epilog="Example: assay card show face_landmark > CARD.md")
def show(
    model: Annotated[str, typer.Argument(help="Model id, or path of a card.json.", show_default=False)],
    root: Dir = Path("assay-out"),
    as_json: AsJson = False,
) -> None:
    """Print a card as Markdown."""
    from assay.catalog.find import find_card
    from assay.cli._output import print_json
    from assay.report.card import render_card

    found = find_card(root, model)
    if as_json:
        print_json(found.to_value())
    else:
        print(render_card(found), end="")
