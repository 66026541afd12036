"""Folders as strangers leave them: what can be read is read, what cannot is named."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay import build_card, check_card, records
from assay.catalog.check import check_cards
from assay.catalog.database import open_catalog
from assay.catalog.find import find_card
from assay.catalog.scan import scan
from assay.cli import main
from assay.errors import AssayError
from assay.report.card import render_card
from record_data import SEED, SEED_ID, device_entry, device_run, plain_device_file, write_json

POSIX = pytest.mark.skipif(os.name == "nt", reason="needs POSIX files")
DAY = "data/device_runs/2.3.0/2026-11-01"


def record(root: Path, name: str, folder: str = DAY, **changes: Any) -> Path:
    value = plain_device_file(name, "desk", [device_run(**changes)])
    return write_json(root / folder / f"{name}__desk.json", value)


def ask(root: Path) -> tuple[list[str], list[str]]:
    """Models that a query sees, and problems."""
    with open_catalog(root) as catalog:
        models = [row[0] for row in catalog.sql("SELECT DISTINCT model_id FROM runs ORDER BY 1").rows]
        return models, catalog.problems()


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A function that gives up root's power to read all, from inside `tmp_path`, until the test ends."""
    monkeypatch.chdir(tmp_path)
    before = os.geteuid()

    def give_up() -> None:
        # What Python loads on first use may lie where only root can read.
        ask(Path())
        if before == 0:
            for path in (tmp_path, *tmp_path.rglob("*")):
                os.chown(path, 65534, 65534)
            os.seteuid(65534)

    yield give_up
    os.seteuid(before)
    for path in (path for path in tmp_path.rglob("*") if path.is_dir()):
        path.chmod(0o755)


@POSIX
@pytest.mark.parametrize("mode", [0o000, 0o111])
def test_a_folder_that_cannot_be_listed_is_named_and_seen_again_later(
    tmp_path: Path, nobody: Callable[[], None], mode: int
) -> None:
    record(tmp_path, "a")
    record(tmp_path, "b", "data/device_runs/2.3.0/2026-11-02")
    closed = Path(DAY)
    nobody()
    assert ask(Path())[0] == ["a", "b"]
    for folder in (closed, closed.parents[1]):
        folder.chmod(mode)
        for _ in range(2):
            models, problems = ask(Path())
            assert models == (["b"] if folder == closed else [])
            assert problems == [f"{folder} cannot be read: Permission denied"]
        folder.chmod(0o755)
        assert ask(Path()) == (["a", "b"], [])


@POSIX
def test_files_that_cannot_be_looked_at_or_opened_are_named(tmp_path: Path, nobody: Callable[[], None]) -> None:
    path = record(Path(), "a")
    record(Path(), "b", "data/device_runs/2.3.0/2026-11-02")
    nobody()
    assert ask(Path())[0] == ["a", "b"]
    for place, mode in ((path.parent, 0o444), (path, 0o000)):
        place.chmod(mode)
        assert ask(Path()) == (["b"], [f"{DAY}/a__desk.json cannot be read: Permission denied"])
        place.chmod(0o755)
        assert ask(Path()) == (["a", "b"], [])


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system that takes any bytes for a name")
def test_names_that_are_not_utf_8_are_named(tmp_path: Path) -> None:
    path = record(tmp_path, "a")
    bad = os.fsdecode(b"\xff.json")
    path.with_name(bad).write_bytes(path.read_bytes())
    (path.parents[1] / os.fsdecode(b"\xfe")).mkdir()
    for _ in range(2):
        models, problems = ask(tmp_path)
        assert models == ["a"]
        assert problems == [
            r"data/device_runs/2.3.0 holds '\xfe', a name that is not UTF-8",
            DAY + r" holds '\xff.json', a name that is not UTF-8",
        ]
    path.with_name(bad).rename(path.with_name("b\nc [red].json"))
    (path.parents[1] / os.fsdecode(b"\xfe")).rmdir()
    assert ask(tmp_path) == (["a"], [])
    with open_catalog(tmp_path) as catalog:
        assert catalog.sql("SELECT count(*) FROM runs").rows == [(2,)]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system that takes any bytes for a name")
def test_a_folder_of_benchmarks_with_bad_names_gives_its_good_ones(tmp_path: Path) -> None:
    run = {"device": "Desk", "backend": "cpu", "harness": "h", "date": "2026-01-02", "provenance": "measured"}
    folder = tmp_path / "data/benchmarks"
    write_json(folder / "a.json", {"schema_version": "1.0", "model_id": "m", "results": [run]})
    (folder / os.fsdecode(b"\xfe")).mkdir()
    (folder / os.fsdecode(b"\xff.json")).write_text("{}")
    with open_catalog(tmp_path) as catalog:
        assert catalog.sql("SELECT model_id FROM benchmarks").rows == [("m",)]
        (problem,) = catalog.problems()
    assert r"'\xfe'" in problem and r"'\xff.json'" in problem


def test_records_in_the_wrong_folder_are_named(tmp_path: Path) -> None:
    record(tmp_path, "a")
    record(tmp_path, "b", "data/device_runs")
    write_json(tmp_path / "cards/b.json", {})
    assert ask(tmp_path) == (
        ["a"],
        [
            "cards holds 'b.json'; the place for it is cards/<model id>/card.json",
            "data/device_runs holds 'b__desk.json'; the place for it is "
            "data/device_runs/<runtime version>/<date>/",
        ],
    )


@POSIX
def test_links_that_go_in_circles_and_what_is_no_file_are_left_alone(tmp_path: Path) -> None:
    path = record(tmp_path, "a")
    (path.parent / "loop").symlink_to(tmp_path, target_is_directory=True)
    (path.parent / "self.json").symlink_to("self.json")
    (path.parents[1] / "up").symlink_to("..", target_is_directory=True)
    (tmp_path / "data/benchmarks/x").mkdir(parents=True)
    (tmp_path / "data/benchmarks/x/up").symlink_to("..", target_is_directory=True)
    (path.parent / "folder.json").mkdir()
    os.mkfifo(path.parent / "pipe.json")
    assert ask(tmp_path) == (["a"], [])
    build_card(tmp_path, "a")
    assert not check_card(tmp_path, "a").findings


@POSIX
def test_a_card_that_is_a_pipe_is_an_error_and_not_a_wait(tmp_path: Path) -> None:
    record(tmp_path, "a")
    build_card(tmp_path, "a")
    (tmp_path / "cards/pipe").mkdir()
    os.mkfifo(tmp_path / "cards/pipe/card.json")
    write_json(tmp_path / "cards/broken/card.json", {})
    with pytest.raises(AssayError, match="is not a plain file"):
        find_card(tmp_path, "pipe")
    found = {
        result.model_id: result.findings
        for result in check_cards(tmp_path, ["a", "broken", "none", "pipe"], render=render_card)
    }
    assert found["a"] == []
    assert "schema_version" in found["broken"][0].text
    assert "does not exist" in found["none"][0].text
    assert "is not a plain file" in found["pipe"][0].text


def test_a_card_in_a_folder_of_another_name_is_found_by_its_model(seed_root: Path) -> None:
    (seed_root / "cards" / SEED_ID).rename(seed_root / "cards/other")
    assert find_card(seed_root, SEED_ID) == find_card(seed_root, "other") == records.read(SEED, records.Card)


def test_a_model_with_records_and_no_card_is_told_so(tmp_path: Path) -> None:
    records.append_device_run(tmp_path, "m", "desk", device_entry())
    with pytest.raises(AssayError, match="it has records: assay card build m"):
        find_card(tmp_path, "m")


def test_times_and_inodes_beyond_64_bits_are_told_apart(tmp_path: Path) -> None:
    path = record(tmp_path, "a")
    # 2400-01-01: more nanoseconds than 63 bits hold. File systems that stop earlier take their last second.
    os.utime(path, ns=(0, 13_569_465_600 * 10**9))
    assert ask(tmp_path) == (["a"], [])
    before = scan(tmp_path)
    os.utime(path, ns=(0, 13_569_465_601 * 10**9))
    record(tmp_path, "a", latency_p50_ms=3.0)
    assert scan(tmp_path) != before
    with open_catalog(tmp_path) as catalog:
        assert catalog.sql("SELECT latency_p50_ms FROM runs").rows == [(3.0,)]


def test_many_problems_do_not_hide_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, "a")
    for number in range(30):
        write_json(tmp_path / DAY / f"broken{number}.json", {})
    monkeypatch.setattr(sys, "argv", ["assay", "query", "SELECT model_id FROM runs", "--dir", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    captured = capsys.readouterr()
    assert "a" in captured.out.split()
    assert captured.err.count("not read: ") == 20
    assert "and 10 more: assay query" in captured.err and "1 row\n" in captured.err
