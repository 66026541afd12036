"""`assay show`: what is known of one model."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: assay show face_landmark, or assay show model.tflite")
def show(
    model: Annotated[
        str,
        typer.Argument(help="Model id or a part of it, a card.json, or the .tflite file.", show_default=False),
    ],
    root: Annotated[Path, typer.Option("--dir", help="Folder with data/ and cards/.")] = Path("assay-out"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the card as JSON on stdout.")] = False,
) -> None:
    """Show whether a model works where, how fast, and its pitfalls."""
    from assay.catalog.find import find_card
    from assay.cli._output import out, print_json
    from assay.report.tables import card_tables, safe

    card = find_card(root, model)
    if as_json:
        print_json(card.to_value())
        return
    facts = [card.model.task, card.model.family, card.model.license, card.conversion.quantization]
    out.print(f"[bold]{safe(card.model.id)}[/]")
    if any(facts):
        out.print(safe(", ".join(fact for fact in facts if fact)))
    for artifact in card.artifacts:
        size = f"{artifact.size_mb:g} MB" if artifact.size_mb is not None else "size unknown"
        out.print(f"{safe(artifact.file)}, {size}, sha256 {artifact.sha256[:16]}", soft_wrap=True)
    for table in card_tables(card):
        out.print()
        out.print(table)
    if card.pitfalls:
        out.print("\n[bold]Pitfalls[/]")
        for pitfall in card.pitfalls:
            out.print(f"- {safe(pitfall, 2000)}")
