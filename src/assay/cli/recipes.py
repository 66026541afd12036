"""`assay recipes`: what `assay convert` can convert, and the rewrites it can apply."""

from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: assay recipes --json | jq '.recipes[].name'")
def recipes(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """List the recipes of `assay convert` with their variants and options, and the rewrites.

    Exit code: 0.
    """
    from rich.table import Table

    from assay.cli._output import out, print_json
    from assay.conversion.recipes import RECIPES
    from assay.conversion.rewrites import REWRITES

    if as_json:
        print_json(
            {
                "recipes": [
                    {
                        "name": recipe.name,
                        "summary": recipe.summary,
                        "variants": dict(recipe.variants),
                        "options": {name: text for name, (_, text) in recipe.options.items()},
                    }
                    for recipe in RECIPES.values()
                ],
                "rewrites": [
                    {"name": r.name, "summary": r.summary, "error": r.error, "auto": r.auto}
                    for r in REWRITES.values()
                ],
            }
        )
        return
    for recipe in RECIPES.values():
        out.print(f"[bold]{recipe.name}[/bold]\n  {recipe.summary}", soft_wrap=True)
        for number, (variant, text) in enumerate(recipe.variants.items()):
            default = " (default)" if number == 0 else ""
            out.print(f"  --variant {variant}: {text}{default}", soft_wrap=True, markup=False)
        for name, (default, text) in recipe.options.items():
            out.print(f"  --set {name}={default}: {text}", soft_wrap=True, markup=False)
        out.print()
    table = Table(title="Rewrites (--rewrite NAME, --without NAME, --auto)", title_justify="left")
    for column in ("name", "what it does", "error"):
        table.add_column(column)
    for rewrite in REWRITES.values():
        table.add_row(rewrite.name, rewrite.summary, rewrite.error)
    out.print(table)
