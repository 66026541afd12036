"""Which files make a catalog, and whether one has changed since it was read."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.records.layout import BENCHMARKS, CARDS, DEVICE_RUNS, SWEEPS

Kind = Literal["device_run", "sweep", "benchmark", "card"]

RACY_NS = 2_000_000_000
"""A file as young as this when it was read may be written again without a new time stamp, on file systems that
count in steps of up to two seconds. Its content is compared, not its stamp."""


Stamp = str
"""Size in bytes, modification time and change time in ns, and inode, in words. A program can set the
modification time as it likes, but not the change time."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder with files of one kind.

    Attributes:
        path: Relative to the catalog's folder.
        kind: What its files are.
        lines: Stamp and name of each file.
        fingerprint: A digest of all lines.
    """

    path: str
    kind: Kind
    lines: list[str]
    fingerprint: bytes

    def stamps(self) -> dict[str, Stamp]:
        """File name -> stamp."""
        parts = (line.split(" ", 4) for line in self.lines)
        return {name: " ".join(stamp) for *stamp, name in parts}


@dataclass(frozen=True, slots=True)
class Item:
    """A file to read.

    Attributes:
        file_id: Its number in the tables.
        path: Relative to the catalog's folder.
        kind: What it is.
        stamp: Its stamp before it was read.
        read_at_ns: When, in ns since the epoch.
    """

    file_id: int
    path: str
    kind: Kind
    stamp: str
    read_at_ns: int


def digest(data: bytes) -> str:
    """Digest of a file's content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digest_of(path: Path) -> str:
    """Digest of a file's content; empty if it cannot be read."""
    try:
        return digest(path.read_bytes())
    except OSError:
        return ""


def scan(root: Path) -> list[Folder]:
    """Look at every file of a catalog without opening one.

    Symbolic links below `root` are left alone, as is all that is no plain file: records come from strangers.

    Args:
        root: The catalog's folder.
    """
    found = [
        *_leaves(root, DEVICE_RUNS.as_posix(), 2, "device_run"),
        *_leaves(root, SWEEPS.as_posix(), 2, "sweep"),
    ]
    found += _tree(root, BENCHMARKS.as_posix(), "benchmark")
    found += _leaves(root, CARDS.as_posix(), 1, "card", only="card.json")
    return found


def is_racy(stamp: Stamp, read_at_ns: int) -> bool:
    """True if a file with this stamp, read at this time, could have changed after without a new stamp."""
    _, modified, changed, _ = stamp.split(" ")
    return max(int(modified), int(changed)) >= read_at_ns - RACY_NS


def _leaves(root: Path, path: str, depth: int, kind: Kind, only: str | None = None) -> Iterator[Folder]:
    if depth == 0:
        lines = _files(root, path, only)
        if lines:
            yield _folder(path, kind, lines)
        return
    for name in _folders(root, path):
        yield from _leaves(root, f"{path}/{name}", depth - 1, kind, only)


def _tree(root: Path, path: str, kind: Kind) -> Iterator[Folder]:
    lines = _files(root, path, None)
    if lines:
        yield _folder(path, kind, lines)
    for name in _folders(root, path):
        yield from _tree(root, f"{path}/{name}", kind)


def _folders(root: Path, path: str) -> list[str]:
    try:
        with os.scandir(root / path) as entries:
            return sorted(
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            )
    except (FileNotFoundError, NotADirectoryError):
        return []


def _files(root: Path, path: str, only: str | None) -> list[str]:
    # The loop that a query on many files spends its time in: a stat and a text for each, nothing more.
    lines: list[str] = []
    try:
        entries = os.scandir(root / path)
    except (FileNotFoundError, NotADirectoryError):
        return lines
    with entries:
        for entry in entries:
            name = entry.name
            if not name.endswith(".json") or name.startswith(".") or (only is not None and name != only):
                continue
            try:
                facts = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(facts.st_mode):
                lines.append(f"{facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns} {facts.st_ino} {name}")
    return lines


def _folder(path: str, kind: Kind, lines: list[str]) -> Folder:
    lines.sort()
    text = "\n".join(lines).encode("utf-8", "surrogateescape")
    return Folder(path, kind, lines, hashlib.blake2b(text, digest_size=16).digest())
