"""Files to table rows: read, checked, and written as lines of JSON that DuckDB loads in one go.

Run as a module it is a helper process for half of a large catalog: a list of files on stdin, lines into files.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from assay.catalog.scan import REFUSED, UNREAD, Item, digest
from assay.records.document import DocumentError, UnreadableError, parse, read_bytes
from assay.records.rows import RunRow, browser_rows, card_rows, device_rows
from assay.records.store import parse_browser_sweep, parse_device_runs

if TYPE_CHECKING:
    from assay.records.card import Card

TABLES = ("files", "run_rows", "evidence_lines", "card_rows", "benchmark_rows")
"""Tables that files are loaded into; each has a `file_id` to take a file out again."""

_HELPER_FROM = 4000
"""Files from which on a helper process is worth its start."""


def ingest(
    root: Path, items: Sequence[Item], folder: Path, advance: Callable[[int], None] = lambda count: None
) -> dict[str, list[Path]]:
    """Read files into files of JSON lines.

    Args:
        root: The catalog's folder.
        items: What to read.
        folder: Where the lines go.
        advance: Told how many files were read since it was last told.

    Returns:
        Table -> files of lines for it.
    """
    if len(items) < _HELPER_FROM:
        return _merge([_write(root, items, folder, "a", advance)])
    half = len(items) // 2
    command = [sys.executable, "-m", "assay.catalog.ingest", str(root), str(folder)]
    # A file, since a pipe that is not read while the other half is worked on would stop the helper.
    with tempfile.TemporaryFile(dir=folder) as given:
        given.write(json.dumps([dataclasses.astuple(item) for item in items[half:]]).encode())
        given.seek(0)
        helper = subprocess.Popen(command, stdin=given)
    try:
        written = [_write(root, items[:half], folder, "a", advance)]
        code = helper.wait()
    except BaseException:
        helper.kill()
        helper.wait()
        raise
    if code == 0:
        written.append({table: folder / f"b.{table}" for table in TABLES})
        advance(len(items) - half)
    else:
        written.append(_write(root, items[half:], folder, "c", advance))
    return _merge(written)


def _merge(written: list[dict[str, Path]]) -> dict[str, list[Path]]:
    return {table: [paths[table] for paths in written] for table in TABLES}


def _write(
    root: Path, items: Sequence[Item], folder: Path, name: str, advance: Callable[[int], None]
) -> dict[str, Path]:
    paths = {table: folder / f"{name}.{table}" for table in TABLES}
    files = {table: path.open("w", encoding="utf-8", errors="backslashreplace") for table, path in paths.items()}
    try:
        for count, item in enumerate(items, 1):
            _write_item(root, item, files)
            if count % 500 == 0:
                advance(500)
        advance(len(items) % 500)
    finally:
        for file in files.values():
            file.close()
    return paths


def _write_item(root: Path, item: Item, files: Mapping[str, IO[str]]) -> None:
    problem = None
    known = REFUSED
    lines: list[tuple[str, dict[str, Any]]] = []
    try:
        data = read_bytes(root / item.path)
        known = digest(data)
        # All of a file or nothing of it: a half-read record would be a wrong answer.
        lines = list(_rows(data, item))
    except DocumentError as error:
        known = UNREAD if isinstance(error, UnreadableError) else known
        problem = str(error).replace(str(root / item.path), item.path)
    folder, _, name = item.path.rpartition("/")
    head = {
        "file_id": item.file_id,
        "path": item.path,
        "folder": folder,
        "name": name,
        "kind": item.kind,
        "stamp": item.stamp,
        "digest": known,
        "read_at_ns": item.read_at_ns,
        "problem": problem,
    }
    for table, row in [("files", head), *lines]:
        row["file_id"] = item.file_id
        files[table].write(json.dumps(row, ensure_ascii=False) + "\n")


def _rows(data: bytes, item: Item) -> Iterator[tuple[str, dict[str, Any]]]:
    if item.kind == "device_run":
        yield from _runs(device_rows(parse_device_runs(data, item.path), item.path))
    elif item.kind == "sweep":
        yield from _runs(browser_rows(parse_browser_sweep(data, item.path), item.path))
    elif item.kind == "card":
        # Models are made when their module loads, which takes longer than reading the record of one run.
        from assay.records.card import Card

        card = parse(data, Card, item.path)
        yield "card_rows", _card_row(card, item.path)
        yield from _runs(card_rows(card))
    else:
        from assay.records.benchmark import BenchmarkFile

        document = parse(data, BenchmarkFile, item.path)
        for record in document.results:
            value = record.to_value()
            value["metrics"] = json.dumps(value.get("metrics") or {}, sort_keys=True)
            yield "benchmark_rows", {"model_id": document.model_id, "record": item.path, **value}


_RUN_FIELDS = tuple(
    field.name for field in dataclasses.fields(RunRow) if field.name not in ("metrics", "evidence")
)


def _runs(rows: Iterator[RunRow]) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in rows:
        value = {name: getattr(row, name) for name in _RUN_FIELDS}
        value["metrics"] = json.dumps(row.metrics, sort_keys=True, ensure_ascii=False)
        yield "run_rows", value
        for number, line in enumerate(row.evidence):
            place = {"origin": row.origin, "record": row.record, "position": row.position}
            yield "evidence_lines", {**place, "number": number, "line": line}


def _card_row(card: Card, path: str) -> dict[str, Any]:
    model, conversion = card.model, card.conversion
    sizes = [artifact.size_mb for artifact in card.artifacts]
    return {
        "model_id": model.id,
        "schema_version": card.schema_version,
        "family": model.family,
        "task": model.task,
        "license": model.license,
        "source_url": model.source_url,
        "conversion_tool": conversion.tool,
        "conversion_tool_version": conversion.tool_version,
        "conversion_command": conversion.command,
        "quantization": conversion.quantization,
        "files": [artifact.file for artifact in card.artifacts],
        "sha256s": [artifact.sha256 for artifact in card.artifacts],
        "size_mb": max((size for size in sizes if size is not None), default=None),
        "pitfalls": list(card.pitfalls),
        "benchmarks": len(card.benchmarks),
        "cross_runtime": len(card.cross_runtime),
        "card": path,
    }


def main() -> None:
    """Work as the helper process."""
    root, folder = Path(sys.argv[1]), Path(sys.argv[2])
    items = [Item(*values) for values in json.load(sys.stdin)]
    _write(root, items, folder, "b", lambda count: None)


if __name__ == "__main__":
    main()
