import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay import records
from assay.catalog.database import CACHE, open_catalog
from assay.catalog.ready import ready_queries, run_ready
from assay.catalog.scan import RACY_NS, is_racy
from assay.errors import AssayError
from assay.records.document import UnreadableError
from assay.records.rows import CELL, RunRow, device_rows, newest
from record_data import SEED_ID, device_entry, device_run, plain_device_file, write_json

COUNT = "SELECT count(*) FROM runs"


def ask(root: Path, sql: str = COUNT, **options: Any) -> list[tuple[Any, ...]]:
    with open_catalog(root, **options) as catalog:
        return catalog.sql(sql).rows


def record(root: Path, name: str, **changes: Any) -> Path:
    value = plain_device_file(name, "desk", [device_run(**changes)])
    return write_json(root / f"data/device_runs/2.3.0/2026-11-01/{name}__desk.json", value)


def age(*paths: Path) -> None:
    """Wait until the files' stamps prove their content, as they do for all but the newest files."""
    while any(is_racy(f"0 {s.st_mtime_ns} {s.st_ctime_ns} 0", time.time_ns()) for s in (p.stat() for p in paths)):
        time.sleep(RACY_NS / 20e9)


def test_views_hold_runs_cells_cards_and_evidence(root: Path) -> None:
    records.append_device_run(root, "a", "desk", device_entry(date="2026-11-20", latency_p50_ms=8.0))
    assert ask(root) == [(6,)]
    assert ask(root, "SELECT count(*) FROM cells") == [(5,)]
    assert ask(root, "SELECT latency_p50_ms FROM cells WHERE model_id = 'a' AND device = 'desk'") == [(8.0,)]
    assert ask(root, "SELECT model_id, status FROM cells ORDER BY 1, 2") == [
        ("a", "partial"),
        ("a", "runs"),
        ("b", "failed"),
        ("b", "match"),
        ("b", "wrong"),
    ]
    assert ask(root, "SELECT DISTINCT line FROM evidence") == [("a line of the log",)]
    assert ask(root, "SELECT metrics->>'iterations' FROM runs LIMIT 1") == [("50",)]


def test_a_card_without_records_gives_runs_of_its_own(seed_root: Path) -> None:
    assert ask(seed_root) == [(7,)]
    assert ask(seed_root, "SELECT license, size_mb FROM cards") == [("apache-2.0", 16.182)]
    assert ask(seed_root, "SELECT count(*) FROM evidence") == [(15,)]
    rows = ask(seed_root, "SELECT device, thermal, throttled FROM cells WHERE kind = 'device' ORDER BY 1")
    assert rows[0] == ("galaxy-s26", "NONE->NONE", False)
    assert rows[-1] == ("raspberry-pi-5", None, False)
    # Once the record is here, its runs count, and the card's copies do not.
    source = ask(seed_root, "SELECT DISTINCT record FROM cells WHERE device = 'raspberry-pi-5'")[0][0]
    write_json(seed_root / source, plain_device_file(SEED_ID, "raspberry-pi-5", [device_run(), device_run()]))
    assert ask(seed_root, f"SELECT origin, count(*) FROM runs WHERE record = '{source}' GROUP BY 1") == [
        ("record", 2)
    ]
    (seed_root / source).unlink()
    assert ask(seed_root) == [(7,)]


def test_added_changed_and_removed_files_are_seen(tmp_path: Path) -> None:
    a, b = record(tmp_path, "a"), record(tmp_path, "b")
    assert ask(tmp_path) == [(2,)]
    record(tmp_path, "c")
    assert ask(tmp_path) == [(3,)]
    record(tmp_path, "a", latency_p50_ms=77.0)
    assert ask(tmp_path, "SELECT latency_p50_ms FROM cells WHERE model_id = 'a'") == [(77.0,)]
    b.unlink()
    assert ask(tmp_path) == [(2,)]
    a.rename(a.with_name("d__desk.json"))
    assert ask(tmp_path, "SELECT record FROM runs WHERE model_id = 'a'")[0][0].endswith("d__desk.json")


def test_an_edit_that_keeps_size_and_time_is_seen(tmp_path: Path) -> None:
    path = record(tmp_path, "a", latency_p50_ms=11.0)
    other = record(tmp_path, "b")
    age(path, other)
    stamp = path.stat()
    assert ask(tmp_path, "SELECT latency_p50_ms FROM cells WHERE model_id = 'a'") == [(11.0,)]
    path.write_text(path.read_text().replace("11.0", "22.0"))
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stamp.st_size, stamp.st_mtime_ns)
    assert ask(tmp_path, "SELECT latency_p50_ms FROM cells WHERE model_id = 'a'") == [(22.0,)]


def test_an_edit_that_no_stamp_shows_is_seen_while_the_file_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file system that counts time in steps of two seconds: all writes within a step have one stamp.
    from assay.catalog import scan

    real = scan._folder  # pyright: ignore[reportPrivateUsage]

    def coarse(path: str, kind: Any, names: list[str], facts: list[int], problem: str | None) -> scan.Folder:
        stamps = [facts[at : at + 2] for at in range(0, len(facts), 4)]
        steps = [(size, time_ns // RACY_NS * RACY_NS) for size, time_ns in stamps]
        return real(path, kind, names, [fact for size, step in steps for fact in (size, step, step, 0)], problem)

    monkeypatch.setattr(scan, "_folder", coarse)
    path = record(tmp_path, "a", latency_p50_ms=11.0)
    text = path.read_text()
    for value in ("11.0", "22.0", "33.0", "44.0"):
        path.write_text(text.replace('"latency_p50_ms": 11.0', f'"latency_p50_ms": {value}'))
        assert ask(tmp_path, "SELECT latency_p50_ms FROM cells") == [(float(value),)]


def test_files_that_settle_are_no_longer_compared_by_content(tmp_path: Path) -> None:
    path = record(tmp_path, "a")
    ask(tmp_path)
    age(path)
    ask(tmp_path)
    import duckdb

    with duckdb.connect(str(tmp_path / ".assay" / CACHE), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM files WHERE racy").fetchall() == [(0,)]


def test_a_file_that_the_system_withheld_once_is_read_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A disk or a network that fails leaves no trace in the file's stamp.
    a, b = record(tmp_path, "a"), record(tmp_path, "b")
    age(a, b)

    def withheld(path: Path) -> bytes:
        if path == a:
            raise UnreadableError(f"{path} cannot be read: Input/output error")
        return path.read_bytes()

    with monkeypatch.context() as patch:
        patch.setattr("assay.catalog.ingest.read_bytes", withheld)
        with open_catalog(tmp_path) as catalog:
            assert catalog.sql(COUNT).rows == [(1,)]
            assert catalog.problems() == [f"{a.relative_to(tmp_path)} cannot be read: Input/output error"]
    with open_catalog(tmp_path) as catalog:
        assert catalog.sql(COUNT).rows == [(2,)]
        assert catalog.problems() == []


SCRIBBLER = """
import os, random, sys, time
from pathlib import Path
folder, text = Path(sys.argv[1]), Path(sys.argv[2]).read_text()
rng = random.Random(0)
until = time.monotonic() + 5
number = 0
while time.monotonic() < until:
    number += 1
    path = folder / f"w{rng.randrange(40)}.json"
    value = text.replace('"latency_p50_ms": 10.0', f'"latency_p50_ms": {number}.0')
    what = rng.random()
    if what < 0.5:
        with path.open("w") as file:
            half = len(value) // 2
            file.write(value[:half]); file.flush(); time.sleep(0.002); file.write(value[half:])
    elif what < 0.8:
        path.with_suffix(".part").write_text(value)
        os.replace(path.with_suffix(".part"), path)
    elif what < 0.9:
        path.unlink(missing_ok=True)
    else:
        if path.exists():
            path.rename(folder / f"w{rng.randrange(40)}.json")
"""


def test_a_folder_that_is_written_to_is_read_and_in_the_end_right(tmp_path: Path) -> None:
    root = tmp_path / "out"
    steady = [record(root, f"m{number}") for number in range(20)]
    command = [sys.executable, "-c", SCRIBBLER, str(steady[0].parent), str(steady[0])]
    scribbler = subprocess.Popen(command)
    asked = 0
    while scribbler.poll() is None:
        with open_catalog(root) as catalog:
            names = {Path(row[0]).name for row in catalog.sql("SELECT record FROM runs").rows}
            # What nobody touches is always there; of the rest, what is half written is named.
            assert names >= {path.name for path in steady}
            assert all(f"{steady[0].parent.relative_to(root)}/w" in problem for problem in catalog.problems())
        asked += 1
    assert scribbler.wait() == 0 and asked > 2
    truth = {
        path.name: json.loads(path.read_text())["results"][0]["latency_p50_ms"]
        for path in steady[0].parent.glob("*.json")
    }
    with open_catalog(root) as catalog:
        found = catalog.sql("SELECT record, latency_p50_ms FROM runs").rows
        assert {Path(record).name: latency for record, latency in found} == truth
        assert catalog.problems() == []


BROKEN = ["", "{", '{"schema_version": "1.0"}', "null", '{"schema_version": "1.0", "results": [{}]}', "\0" * 50]


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_among_many_is_named_and_the_rest_works(tmp_path: Path, content: str) -> None:
    for number in range(60):
        record(tmp_path, f"m{number}")
    broken = tmp_path / "data/device_runs/2.3.0/2026-11-01/m7__desk.json"
    broken.write_text(content)
    for _ in range(2):
        with open_catalog(tmp_path) as catalog:
            assert catalog.sql(COUNT).rows == [(59,)]
            (problem,) = catalog.problems()
            assert "m7__desk.json" in problem and str(tmp_path) not in problem
    record(tmp_path, "m7")
    with open_catalog(tmp_path) as catalog:
        assert catalog.sql(COUNT).rows == [(60,)]
        assert catalog.problems() == []


def test_texts_of_strangers_do_no_harm(tmp_path: Path) -> None:
    nasty = "'); DROP TABLE runs; -- \u0000 \u2028 \x1b[2J [red]"
    record(tmp_path, "a", error=nasty, evidence=[nasty], metrics={nasty: nasty, "iterations": 2**62})
    record(tmp_path, "b", latency_p50_ms=2**62, metrics={"load_ms": 1e308})
    assert ask(tmp_path) == [(2,)]
    assert ask(tmp_path, "SELECT line FROM evidence WHERE model_id = 'a'") == [(nasty,)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_json('{root}/data/**/*.json')",
        "SELECT * FROM '{file}'",
        "COPY (SELECT 1) TO '{root}/stolen.csv'",
        "ATTACH '{root}/other.duckdb'",
        "EXPORT DATABASE '{root}/dump'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "DELETE FROM run_rows WHERE true",
        "CREATE TABLE x AS SELECT 1",
        "PRAGMA database_list; COPY (SELECT 1) TO '{root}/stolen.csv'",
    ],
)
def test_a_query_reads_and_writes_nothing_but_the_views(root: Path, sql: str) -> None:
    secret = root / "secret.txt"
    secret.write_text("secret")
    before = sorted(path for path in root.rglob("*") if ".assay" not in path.parts)
    with pytest.raises(AssayError, match="the query failed"):
        ask(root, sql.format(file=secret, root=root))
    assert sorted(path for path in root.rglob("*") if ".assay" not in path.parts) == before
    assert ask(root) == [(5,)]


def test_symbolic_links_and_pipes_are_left_alone(tmp_path: Path) -> None:
    path = record(tmp_path, "a")
    (path.parent / "link.json").symlink_to("/etc/hostname")
    os.mkfifo(path.parent / "pipe.json")
    with open_catalog(tmp_path) as catalog:
        assert catalog.sql(COUNT).rows == [(1,)]
        assert catalog.problems() == []


@pytest.mark.parametrize("content", [b"", b"no database", b"\0" * 8192])
def test_a_damaged_cache_is_made_anew(root: Path, content: bytes) -> None:
    assert ask(root) == [(5,)]
    (root / ".assay" / CACHE).write_bytes(content)
    assert ask(root) == [(5,)]


def test_a_cache_of_another_format_is_made_anew(root: Path) -> None:
    import duckdb

    ask(root)
    with duckdb.connect(str(root / ".assay" / CACHE)) as connection:
        connection.execute("UPDATE state SET value = 'old'")
    assert ask(root) == [(5,)]


def test_a_folder_that_cannot_be_written_to_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(root: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("assay.catalog.database.private_folder", refuse)
    assert ask(root) == [(5,)]
    assert not (root / ".assay" / CACHE).exists()


READER = "import sys; from pathlib import Path; from assay.catalog.database import open_catalog\n" + (
    "with open_catalog(Path(sys.argv[1])) as c: print(c.sql('SELECT count(*) FROM runs').rows[0][0])"
)


def test_queries_at_once_agree(tmp_path: Path) -> None:
    for number in range(40):
        record(tmp_path, f"m{number}")
    command = [sys.executable, "-c", READER, str(tmp_path)]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [reader.communicate(timeout=100)[0].strip() for reader in readers] == ["40"] * 3


def test_a_helper_process_reads_half_of_a_large_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.catalog.ingest._HELPER_FROM", 10)
    for number in range(30):
        record(tmp_path, f"m{number}")
    seen: list[tuple[int, int]] = []
    assert ask(tmp_path, progress=lambda done, total: seen.append((done, total))) == [(30,)]
    assert seen[-1] == (30, 30)


def test_every_ready_query_answers(root: Path) -> None:
    with open_catalog(root) as catalog:
        answers = {name: run_ready(catalog, name, since="2.3.0") for name in ready_queries()}
        assert [row[0] for row in answers["wrong"].rows] == ["b"]
        assert [(row[0], row[3]) for row in answers["fallback"].rows] == [("a", "gpu_mldrift"), ("b", "npu_qnn")]
        assert [(row[0], row[2], row[3]) for row in answers["fastest"].rows] == [
            ("a", "desk", "cpu_xnnpack"),
            ("a", "phone", "gpu_mldrift"),
            ("b", "desk", "wasm_xnnpack"),
        ]
        with pytest.raises(AssayError, match="no ready query"):
            run_ready(catalog, "nothing")
        with pytest.raises(AssayError, match="--since"):
            run_ready(catalog, "slower")


def test_slower_since_a_version(tmp_path: Path) -> None:
    for version, latency in (("2.2.0.dev20260804", 5.0), ("2.2.0", 10.0), ("2.10.0", 13.0)):
        entry = device_entry(env={"runtime_version": version}, latency_p50_ms=latency, date="2026-11-03")
        records.append_device_run(tmp_path, "m", "desk", entry)
    with open_catalog(tmp_path) as catalog:
        (row,) = run_ready(catalog, "slower", since="2.3.0").records()
        assert (row["version_before"], row["version_since"], row["ratio"]) == ("2.2.0", "2.10.0", 1.3)
        (row,) = run_ready(catalog, "slower", since="2.2.0").records()
        assert (row["version_before"], row["ratio"]) == ("2.2.0.dev20260804", 2.6)


@pytest.mark.parametrize("name", ["none", "file"])
def test_no_catalog_is_a_clear_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AssayError, match="is not a folder"):
        ask(tmp_path / name)
    with pytest.raises(AssayError, match="holds no records"):
        ask(tmp_path)


RUNS = st.lists(
    st.builds(
        device_run,
        accelerator=st.sampled_from(["cpu", "gpu"]),
        date=st.sampled_from(["2026-01-01", "2026-02-01"]),
        context_length=st.sampled_from([None, 128]),
        provenance=st.sampled_from(["measured", "example"]),
        env=st.builds(dict, runtime_version=st.sampled_from(["1.0", "1.0.dev1", "2.0"])),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=8, deadline=None)
@given(st.lists(RUNS, min_size=1, max_size=3))
def test_sql_and_cards_take_the_same_run_for_a_cell(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[dict[str, Any]]]
) -> None:
    root = tmp_path_factory.mktemp("same")
    rows: list[RunRow] = []
    for number, runs in enumerate(files):
        value = plain_device_file("m", "desk", runs)
        path = write_json(root / f"data/device_runs/x/y/{number}.json", value)
        document = records.read_device_runs(path)
        rows += device_rows(document, path.relative_to(root).as_posix())
    expected = sorted((row.record, row.position) for row in newest(rows))
    assert sorted(ask(root, "SELECT record, position FROM cells")) == expected
    assert len({tuple(getattr(row, name) for name in CELL) for row in rows}) == len(expected)
