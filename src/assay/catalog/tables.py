"""Tables and views of the catalog's database."""

import dataclasses
import re

from assay.records.rows import AGE, CELL, RunRow

_SQL_TYPES = {"str": "VARCHAR", "int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN"}


def _run_columns() -> dict[str, str]:
    columns: dict[str, str] = {"file_id": "BIGINT"}
    for field in dataclasses.fields(RunRow):
        if field.name == "evidence":
            continue
        base = re.split(r"[ |\[]", str(field.type))[0]
        columns[field.name] = _SQL_TYPES.get(base, "JSON")
    # The order of the files' own text; a day is also worth having as a day.
    columns["date"] = "DATE"
    return columns


COLUMNS: dict[str, dict[str, str]] = {
    "files": {
        "file_id": "BIGINT",
        "path": "VARCHAR",
        "folder": "VARCHAR",
        "name": "VARCHAR",
        "kind": "VARCHAR",
        "stamp": "VARCHAR",
        "digest": "VARCHAR",
        "read_at_ns": "BIGINT",
        "problem": "VARCHAR",
    },
    "run_rows": _run_columns(),
    "evidence_lines": {
        "file_id": "BIGINT",
        "origin": "VARCHAR",
        "record": "VARCHAR",
        "position": "BIGINT",
        "number": "BIGINT",
        "line": "VARCHAR",
    },
    "card_rows": {
        "file_id": "BIGINT",
        "model_id": "VARCHAR",
        "schema_version": "VARCHAR",
        "family": "VARCHAR",
        "task": "VARCHAR",
        "license": "VARCHAR",
        "source_url": "VARCHAR",
        "conversion_tool": "VARCHAR",
        "conversion_tool_version": "VARCHAR",
        "conversion_command": "VARCHAR",
        "quantization": "VARCHAR",
        "files": "VARCHAR[]",
        "sha256s": "VARCHAR[]",
        "size_mb": "DOUBLE",
        "pitfalls": "VARCHAR[]",
        "benchmarks": "BIGINT",
        "cross_runtime": "BIGINT",
        "card": "VARCHAR",
    },
    "benchmark_rows": {
        "file_id": "BIGINT",
        "model_id": "VARCHAR",
        "record": "VARCHAR",
        "device": "VARCHAR",
        "soc": "VARCHAR",
        "backend": "VARCHAR",
        "runtime": "VARCHAR",
        "precision": "VARCHAR",
        "latency_p50_ms": "DOUBLE",
        "tokens_per_s": "DOUBLE",
        "peak_mem_mb": "DOUBLE",
        "metrics": "JSON",
        "harness": "VARCHAR",
        "harness_version": "VARCHAR",
        "runs": "BIGINT",
        "statistic": "VARCHAR",
        "date": "DATE",
        "provenance": "VARCHAR",
        "notes": "VARCHAR",
    },
}
"""Table -> column -> SQL type."""

VIEWS = ("runs", "cells", "cards", "evidence", "benchmarks", "problems")
"""What queries see."""


def create_statements() -> list[str]:
    """The SQL that makes an empty database."""
    statements = [
        "CREATE TABLE state (name VARCHAR, value VARCHAR)",
        "CREATE TABLE folders (path VARCHAR, fingerprint BLOB, problem VARCHAR)",
    ]
    for table, columns in COLUMNS.items():
        listed = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        statements.append(f"CREATE TABLE {table} ({listed})")
    statements += [
        "ALTER TABLE files ADD COLUMN racy BOOLEAN DEFAULT false",
        "ALTER TABLE run_rows ADD COLUMN live BOOLEAN DEFAULT false",
        "ALTER TABLE run_rows ADD COLUMN newest BOOLEAN DEFAULT false",
    ]
    runs = ", ".join(f'"{name}"' for name in COLUMNS["run_rows"] if name != "file_id")
    return [
        *statements,
        f"CREATE VIEW runs AS SELECT {runs} FROM run_rows WHERE live",
        f"CREATE VIEW cells AS SELECT {runs} FROM run_rows WHERE newest",
        "CREATE VIEW cards AS SELECT * EXCLUDE (file_id) FROM card_rows",
        "CREATE VIEW benchmarks AS SELECT * EXCLUDE (file_id) FROM benchmark_rows",
        "CREATE VIEW problems AS SELECT path, problem FROM folders WHERE problem IS NOT NULL "
        "UNION ALL SELECT path, problem FROM files WHERE problem IS NOT NULL",
        "CREATE VIEW evidence AS SELECT r.model_id, r.device, r.accelerator, r.date, r.status, e.number, e.line, "
        "e.record, e.position FROM evidence_lines e JOIN run_rows r ON r.file_id = e.file_id "
        "AND r.origin = e.origin AND r.record = e.record AND r.position = e.position WHERE r.live",
    ]


def settle_statements() -> list[str]:
    """The SQL that marks which runs of the models in the table `touched` are seen, and which a cell takes.

    A card repeats its records' runs, so a card's run is seen only where no readable record gives it.
    """
    cell = ", ".join(CELL)
    age = ", ".join(f"{expression} DESC" for expression in AGE)
    mine = "model_id IN (SELECT model_id FROM touched)"
    return [
        "UPDATE run_rows SET newest = false, live = (origin = 'record' OR record NOT IN "
        f"(SELECT path FROM files WHERE problem IS NULL)) WHERE {mine}",
        "UPDATE run_rows SET newest = true WHERE rowid IN (SELECT id FROM (SELECT rowid AS id, row_number() OVER "
        f"(PARTITION BY {cell} ORDER BY {age}) AS place FROM run_rows WHERE live AND {mine}) WHERE place = 1)",
    ]
