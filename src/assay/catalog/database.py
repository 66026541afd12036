"""SQL over the JSON files of a catalog, through a cache that follows every change of a file.

The JSON files are the truth. The cache is a DuckDB file in `DIR/.assay/`; it may be deleted at any time. Before
each query all files are looked at, and those that changed, came or went are read again. A query sees nothing
but these tables: no other file, no network, and it cannot write.
"""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.catalog.scan import UNREAD, Folder, Item, digest_of, is_racy, scan
from assay.distribution import install
from assay.errors import AssayError
from assay.records.layout import private_folder

if TYPE_CHECKING:
    import duckdb

CACHE = "catalog.duckdb"

FORMAT = "2"
"""Changes whenever tables or the way files are read change; a cache of another format is built anew."""

_LOCK_WAIT_S = 30.0
_LOCK_POLL_S = 0.05
_SAFE = (
    "SET enable_external_access = false",
    "SET allow_community_extensions = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET lock_configuration = true",
)

Progress = Callable[[int, int], None]
"""Told how many files were read, of how many."""


@dataclass(frozen=True)
class Table:
    """A query's answer.

    Attributes:
        columns: Names.
        rows: Values, a tuple for each row.
    """

    columns: list[str]
    rows: list[tuple[Any, ...]]

    def records(self) -> list[dict[str, Any]]:
        """The rows as name -> value."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Catalog:
    """An open catalog. Made by `open_catalog`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, root: Path) -> None:
        self._connection = connection
        self.root = root

    def sql(self, query: str, parameters: dict[str, Any] | None = None) -> Table:
        """Answer one query.

        Args:
            query: SQL over the views `runs`, `cells`, `cards`, `evidence`, `benchmarks` and `problems`.
            parameters: Values for `$name` in the query.

        Raises:
            AssayError: The query is wrong, wants something else than the views, or runs out of memory.
        """
        import duckdb

        try:
            cursor = self._connection.execute(query, parameters) if parameters else self._connection.execute(query)
            columns = [column[0] for column in cursor.description or ()]
            return Table(columns, cursor.fetchall() if columns else [])
        except duckdb.Error as error:
            raise AssayError(f"the query failed: {_first_lines(error)}", fix=_query_fix(error)) from error

    def problems(self) -> list[str]:
        """Files that could not be read, one sentence each."""
        return [row[0] for row in self.sql("SELECT problem FROM problems ORDER BY path").rows]


@contextlib.contextmanager
def open_catalog(
    root: Path, *, rebuild: bool = False, progress: Progress = lambda done, total: None
) -> Generator[Catalog]:
    """Open a catalog, up to date with its files.

    Args:
        root: The folder with `data/` and `cards/`.
        rebuild: Forget the cache.
        progress: Told of long work.

    Raises:
        AssayError: There is no such folder, it holds no record, or DuckDB is not installed.
    """
    _need_duckdb()
    if not root.is_dir():
        raise AssayError(f"{root} is not a folder", fix="name the folder that `assay run --out` wrote to")
    folders = _scan_and_load(root)
    if not folders:
        raise AssayError(f"{root} holds no records and no cards", fix="`assay run MODEL` writes some")
    connection = _up_to_date(root, folders, rebuild, progress)
    try:
        for statement in _SAFE:
            connection.execute(statement)
        yield Catalog(connection, root)
    finally:
        connection.close()


def _need_duckdb() -> None:
    if importlib.util.find_spec("duckdb") is None:
        raise AssayError("queries need DuckDB", fix=install("catalog"))


def _scan_and_load(root: Path) -> list[Folder]:
    """Look at the files, and load DuckDB meanwhile: each takes a third of a query on 100,000 files."""
    with ThreadPoolExecutor(1) as pool:
        folders = pool.submit(scan, root)
        importlib.import_module("duckdb")
        return folders.result()


def _up_to_date(root: Path, folders: list[Folder], rebuild: bool, progress: Progress) -> duckdb.DuckDBPyConnection:
    try:
        path = private_folder(root) / CACHE
    except OSError:
        return _in_memory(root, folders, progress)
    if rebuild:
        _remove(path)
    connection = _open(path, read_only=True)
    if connection is not None:
        if not _changes(connection, root, folders).any():
            return connection
        connection.close()
    if not _refresh(path, root, folders, progress):
        return _in_memory(root, folders, progress)
    connection = _open(path, read_only=True)
    # Another process may have taken a later look at the files since, and be right in it: take its answer.
    return connection or _in_memory(root, folders, progress)


def _in_memory(root: Path, folders: list[Folder], progress: Progress) -> duckdb.DuckDBPyConnection:
    """The catalog without a cache: where the folder cannot be written to, or others hold the cache for long."""
    import duckdb

    connection = duckdb.connect(":memory:")
    _create(connection)
    _apply(connection, root, _changes(connection, root, folders), progress)
    return connection


def _refresh(path: Path, root: Path, folders: list[Folder], progress: Progress) -> bool:
    """Bring the cache up to date; False if it cannot be written."""
    import duckdb

    for _ in range(2):
        try:
            connection = _open(path, read_only=False)
            if connection is None:
                return False
            with connection:
                _apply(connection, root, _changes(connection, root, folders), progress)
            return True
        except OSError:
            return False
        except duckdb.Error:
            # A cache that was damaged, or that no longer fits on the disk: once more from nothing.
            _remove(path)
    return False


def _open(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection | None:
    """Open the cache, waiting for other processes; None if it is not there, not ours, or held for too long."""
    import duckdb

    if read_only and not path.exists():
        return None
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            connection = duckdb.connect(str(path), read_only=read_only)
        except duckdb.IOException as error:
            if "lock" not in str(error).lower():
                return _reopen(path, read_only)
            if time.monotonic() > deadline:
                return None
            time.sleep(_LOCK_POLL_S)
            continue
        except duckdb.Error:
            return _reopen(path, read_only)
        if _format(connection) == FORMAT:
            return connection
        if read_only:
            connection.close()
            return None
        if _is_empty(connection):
            _create(connection)
            return connection
        connection.close()
        _remove(path)


def _reopen(path: Path, read_only: bool) -> duckdb.DuckDBPyConnection | None:
    """After an error that is not a lock: the file is damaged or of another DuckDB, and is made anew."""
    import duckdb

    if read_only:
        return None
    _remove(path)
    try:
        connection = duckdb.connect(str(path))
    except duckdb.Error:
        return None
    _create(connection)
    return connection


def _format(connection: duckdb.DuckDBPyConnection) -> str | None:
    import duckdb

    try:
        row = connection.execute("SELECT value FROM state WHERE name = 'format'").fetchone()
    except duckdb.Error:
        return None
    return row[0] if row else None


def _is_empty(connection: duckdb.DuckDBPyConnection) -> bool:
    row = connection.execute("SELECT count(*) FROM information_schema.tables").fetchone()
    return row is not None and row[0] == 0


def _create(connection: duckdb.DuckDBPyConnection) -> None:
    from assay.catalog.tables import create_statements

    connection.execute("BEGIN")
    for statement in create_statements():
        connection.execute(statement)
    connection.execute("INSERT INTO state VALUES ('format', $format)", {"format": FORMAT})
    connection.execute("COMMIT")


def _remove(path: Path) -> None:
    for name in (path, path.with_name(path.name + ".wal")):
        with contextlib.suppress(OSError):
            name.unlink()


# --- what changed ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Changes:
    """What the tables lack.

    Attributes:
        items: Files to read, with the number they get.
        gone: Numbers of files to take out.
        settled: Numbers of files that are as they were read and can no longer change unseen, with the time.
        folders: Folders whose fingerprint is to be written.
        gone_folders: Folders to forget.
    """

    items: list[Item]
    gone: list[int]
    settled: list[tuple[int, int]]
    folders: list[Folder]
    gone_folders: list[str]

    def any(self) -> bool:
        return bool(self.items or self.gone or self.settled or self.folders or self.gone_folders)


def _changes(connection: duckdb.DuckDBPyConnection, root: Path, folders: list[Folder]) -> _Changes:
    now = time.time_ns()
    known = dict(connection.execute("SELECT path, fingerprint FROM folders").fetchall())
    changed = [folder for folder in folders if known.get(folder.path) != folder.fingerprint]
    gone_folders = sorted(known.keys() - {folder.path for folder in folders})
    stored = _stored(connection, [*(folder.path for folder in changed), *gone_folders])
    row = connection.execute("SELECT coalesce(max(file_id), 0) FROM files").fetchone()
    next_id = (row[0] if row else 0) + 1
    items: list[Item] = []
    gone = [file_id for path in gone_folders for file_id, _ in stored.get(path, {}).values()]
    for folder in changed:
        before = stored.get(folder.path, {})
        stamps = folder.stamps()
        gone += [file_id for name, (file_id, _) in before.items() if name not in stamps]
        for name, stamp in stamps.items():
            if name in before and before[name][1] == stamp:
                continue
            if name in before:
                gone.append(before[name][0])
            items.append(Item(next_id + len(items), f"{folder.path}/{name}", folder.kind, stamp, now))
    settled, again = _check_racy(connection, root, now, set(gone), next_id + len(items))
    gone += [old for old, _ in again]
    items += [item for _, item in again]
    return _Changes(items, gone, settled, changed, gone_folders)


def _stored(connection: duckdb.DuckDBPyConnection, folders: list[str]) -> dict[str, dict[str, tuple[int, str]]]:
    stored: dict[str, dict[str, tuple[int, str]]] = {}
    if folders:
        query = "SELECT folder, name, file_id, stamp FROM files WHERE folder IN (SELECT unnest($folders))"
        for folder, name, file_id, stamp in connection.execute(query, {"folders": folders}).fetchall():
            stored.setdefault(folder, {})[name] = (file_id, stamp)
    return stored


def _check_racy(
    connection: duckdb.DuckDBPyConnection, root: Path, now: int, gone: set[int], next_id: int
) -> tuple[list[tuple[int, int]], list[tuple[int, Item]]]:
    """Compare by content the files whose stamp proves nothing: they were new when they were read, or were not."""
    settled: list[tuple[int, int]] = []
    again: list[tuple[int, Item]] = []
    query = "SELECT file_id, path, kind, stamp, digest FROM files WHERE racy"
    for file_id, path, kind, stamp, digest in connection.execute(query).fetchall():
        if file_id in gone:
            continue
        if digest_of(root / path) != digest:
            again.append((file_id, Item(next_id + len(again), path, kind, stamp, now)))
        elif digest != UNREAD and not is_racy(stamp, now):
            settled.append((file_id, now))
    return settled, again


def _apply(connection: duckdb.DuckDBPyConnection, root: Path, changes: _Changes, progress: Progress) -> None:
    """Bring the tables up to date, all of it or nothing."""
    if not changes.any():
        return
    from assay.scratch import Scratch

    with Scratch() as folder:
        lines = _read(root, changes.items, folder, progress)
        connection.execute("BEGIN")
        if changes.items or changes.gone:
            _replace(connection, changes, lines)
        _mark(connection, changes)
        connection.execute("COMMIT")


def _read(root: Path, items: list[Item], folder: Path, progress: Progress) -> dict[str, list[Path]]:
    """Read files into files of lines below `folder`: table -> files."""
    if not items:
        return {}
    # Only here: it loads the documents' models, which a query on an unchanged catalog does not need.
    from assay.catalog.ingest import ingest

    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(done, len(items))

    return ingest(root, items, folder, advance)


def _replace(connection: duckdb.DuckDBPyConnection, changes: _Changes, lines: dict[str, list[Path]]) -> None:
    """Take rows out and put rows in, and mark again what is live and newest of the models concerned."""
    from assay.catalog.tables import COLUMNS, settle_statements

    connection.execute("CREATE TEMP TABLE touched AS SELECT DISTINCT model_id FROM run_rows WHERE false")
    _touch(connection, changes.gone)
    for table in COLUMNS:
        if changes.gone:
            query = f"DELETE FROM {table} WHERE file_id IN (SELECT unnest($gone))"
            connection.execute(query, {"gone": changes.gone})
    for table, paths in lines.items():
        _load(connection, table, [path for path in paths if path.stat().st_size > 0])
    _touch(connection, [item.file_id for item in changes.items])
    for statement in settle_statements():
        connection.execute(statement)
    connection.execute("DROP TABLE touched")


def _touch(connection: duckdb.DuckDBPyConnection, file_ids: list[int]) -> None:
    """Note the models of these files, and of the cards that name one of them as a source."""
    if file_ids:
        connection.execute(
            "INSERT INTO touched SELECT DISTINCT model_id FROM run_rows WHERE file_id IN (SELECT unnest($ids)) "
            "OR (origin = 'card' AND record IN (SELECT path FROM files WHERE file_id IN (SELECT unnest($ids))))",
            {"ids": file_ids},
        )


def _load(connection: duckdb.DuckDBPyConnection, table: str, paths: Sequence[Path]) -> None:
    if not paths:
        return
    from assay.catalog.tables import COLUMNS

    columns = COLUMNS[table]
    types = ", ".join(f"'{name}': '{'VARCHAR' if kind == 'JSON' else kind}'" for name, kind in columns.items())
    listed = ", ".join(f'"{name}"' for name in columns)
    query = (
        f"INSERT INTO {table} ({listed}) SELECT {listed} FROM read_json($paths, format = 'newline_delimited', "
        f"columns = {{{types}}}, maximum_object_size = {2**28})"
    )
    connection.execute(query, {"paths": [str(path) for path in paths]})


def _mark(connection: duckdb.DuckDBPyConnection, changes: _Changes) -> None:
    racy = [item.file_id for item in changes.items if is_racy(item.stamp, item.read_at_ns)]
    connection.execute("UPDATE files SET racy = true WHERE digest = $unread AND NOT racy", {"unread": UNREAD})
    for numbers, value in ((racy, True), ([file_id for file_id, _ in changes.settled], False)):
        if numbers:
            query = "UPDATE files SET racy = $value WHERE file_id IN (SELECT unnest($numbers))"
            connection.execute(query, {"value": value, "numbers": numbers})
    folders = [*changes.gone_folders, *(folder.path for folder in changes.folders)]
    if folders:
        connection.execute("DELETE FROM folders WHERE path IN (SELECT unnest($folders))", {"folders": folders})
    if changes.folders:
        rows = [(folder.path, folder.fingerprint, folder.problem) for folder in changes.folders]
        paths, prints, problems = map(list, zip(*rows, strict=True))
        query = "INSERT INTO folders SELECT unnest($paths), unnest($prints), unnest($problems)"
        connection.execute(query, {"paths": paths, "prints": prints, "problems": problems})


def _first_lines(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines()[:3] if line.strip())


def _query_fix(error: Exception) -> str:
    text = str(error)
    if "does not exist" in text or "not found" in text:
        return "the views are runs, cells, cards, evidence, benchmarks, problems; `DESCRIBE runs` lists columns"
    if "external access" in text or "disabled by configuration" in text or "read-only" in text:
        return "a query reads the catalog's views and nothing else"
    return ""
