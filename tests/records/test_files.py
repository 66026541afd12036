"""Atomic writes: what is flushed, in which order, and what a failure leaves."""

import errno
import os
import stat
from pathlib import Path

import pytest

from assay.records.files import write_atomic

FLUSHES = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs to see which file is flushed")


class Flushes:
    """Notes what is flushed, and flushes it; or fails to, for folders."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails_with: int = 0) -> None:
        self.seen: list[tuple[Path, list[str]]] = []
        self._fails_with = fails_with
        self._real = os.fsync
        monkeypatch.setattr("assay.records.files.os.fsync", self)

    def __call__(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self.seen.append((path, sorted(entry.name for entry in path.iterdir())))
            if self._fails_with:
                raise OSError(self._fails_with, os.strerror(self._fails_with))
        else:
            self.seen.append((path, []))
        self._real(descriptor)


@FLUSHES
def test_the_file_is_flushed_before_it_has_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes = Flushes(monkeypatch)
    write_atomic(tmp_path / "a.json", "new")
    (part, _), folder = flushes.seen
    assert part.parent == tmp_path and part.suffix == ".part"
    assert folder == (tmp_path, ["a.json"])


@FLUSHES
def test_folders_that_were_made_are_flushed_into_the_ones_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").mkdir()
    flushes = Flushes(monkeypatch)
    write_atomic(tmp_path / "old/x/y/a.json", "new")
    assert flushes.seen[1:] == [
        (tmp_path / "old/x/y", ["a.json"]),
        (tmp_path / "old/x", ["y"]),
        (tmp_path / "old", ["x"]),
    ]
    # The second file finds its folders there.
    flushes.seen.clear()
    write_atomic(tmp_path / "old/x/y/a.json", "newer")
    assert [path for path, _ in flushes.seen[1:]] == [tmp_path / "old/x/y"]


@FLUSHES
@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_flushes_no_folders_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    Flushes(monkeypatch, number)
    write_atomic(tmp_path / "a.json", "new")
    assert (tmp_path / "a.json").read_text() == "new"


@FLUSHES
def test_a_disk_that_fails_to_flush_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Flushes(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        write_atomic(tmp_path / "a.json", "new")


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, "old")

    def pieces() -> "list[bytes]":
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, (piece for _ in range(2) for piece in pieces()))
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX modes")
def test_the_umask_says_who_may_read(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a.json", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o640
