"""`assay query`: SQL over all records."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command(
    epilog="Examples: assay query wrong; assay query slower --since 2.3.0; "
    'assay query "SELECT model_id, accelerator, latency_p50_ms FROM cells ORDER BY 3"'
)
def query(
    sql: Annotated[
        str | None, typer.Argument(help="SQL, or the name of a ready query (see --list).", show_default=False)
    ] = None,
    root: Annotated[Path, typer.Option("--dir", help="Folder with data/ and cards/.")] = Path("assay-out"),
    listed: Annotated[bool, typer.Option("--list", help="List the ready queries.")] = False,
    since: Annotated[str | None, typer.Option(help="Runtime version, for a query that compares.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of rows on stdout.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV on stdout.")] = False,
    rebuild: Annotated[bool, typer.Option(help="Forget the cache and read all files again.")] = False,
) -> None:
    """Query all records and cards with SQL.

    Views: runs (every run), cells (the newest run of each device, lane, signature, context length and file),
    cards, evidence (log lines), benchmarks, problems (files that could not be read). DESCRIBE runs lists columns.
    The JSON files are the truth: each query first looks whether any changed. A query reads nothing else and
    writes nothing.
    """
    from assay.errors import AssayError

    if listed:
        _print_list()
        return
    if sql is None:
        raise AssayError("what to ask?", fix='assay query --list, or assay query "SELECT ... FROM cells"')
    from assay.catalog.database import open_catalog
    from assay.catalog.ready import ask
    from assay.cli._reading import name_unread, reading

    with reading() as progress, open_catalog(root, rebuild=rebuild, progress=progress) as catalog:
        table = ask(catalog, sql, since)
        problems = catalog.problems()
    name_unread(problems, root)
    _print_table(table.columns, table.rows, as_json, as_csv)


def _print_list() -> None:
    from assay.catalog.ready import ready_queries

    for ready in ready_queries().values():
        print(f"{ready.name:<10} {ready.help}")


def _print_table(columns: list[str], rows: list[tuple[object, ...]], as_json: bool, as_csv: bool) -> None:
    if as_json:
        import json

        # Straight to stdout: 100,000 rows would take long to lay out for a person.
        records = [dict(zip(columns, row, strict=True)) for row in rows]
        print(json.dumps(records, indent=2, ensure_ascii=False, default=str))
        return
    if as_csv:
        import csv
        import sys

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        return
    from rich.console import Console

    from assay.cli._output import err, out
    from assay.report.tables import query_table

    # In a pipe each row stays on its line, however long: the next program wants it whole.
    console = out if out.is_terminal else Console(highlight=False, width=100_000)
    console.print(query_table(columns, rows))
    err.print(f"{len(rows)} {'row' if len(rows) == 1 else 'rows'}")
