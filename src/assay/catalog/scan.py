"""Which files make a catalog, and whether one has changed since it was read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from array import array
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.records.layout import BENCHMARKS, CARDS, DEVICE_RUNS, SWEEPS

FileKind = Literal["device_run", "sweep", "benchmark", "card"]

RACY_NS = 2_000_000_000
"""A file as young as this when it was read may be written again without a new time stamp, on file systems that
count in steps of up to two seconds. Its content is compared, not its stamp."""


Stamp = str
"""Size in bytes, modification time and change time in ns, and inode, in words. A program can set the
modification time as it likes, but not the change time."""

UNREAD = ""
"""The digest of a file that could not be read. No stamp tells when it can: it is tried again each time."""

REFUSED = "refused"
"""The digest of a file that is too large to be a document."""

_FACTS = 4
_INT64 = 2**63 - 1
_UNSTATED = (-1, 0, 0, 0)
"""For a file that cannot be looked at: reading it will say why."""

_CARD = "card.json"
_SHOWN = 3
_PLACES = {
    "device_run": "data/device_runs/<runtime version>/<date>/",
    "sweep": "data/sweep/<litertjs version>/<date>/",
    "card": "cards/<model id>/card.json",
}


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder with files of one kind, or one that cannot be read.

    Attributes:
        path: Relative to the catalog's folder.
        kind: What its files are.
        names: Its files, in the file system's order.
        facts: Size, modification time, change time and inode of each file, one after the other.
        problem: What of it cannot be read, and why; None if all of it can.
        fingerprint: A digest of all this.
    """

    path: str
    kind: FileKind
    names: list[str]
    facts: array[int]
    problem: str | None
    fingerprint: bytes

    def stamps(self) -> dict[str, Stamp]:
        """File name -> stamp, in the order of names."""
        places = sorted((name, place * _FACTS) for place, name in enumerate(self.names))
        return {name: " ".join(map(str, self.facts[at : at + _FACTS])) for name, at in places}


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
    kind: FileKind
    stamp: str
    read_at_ns: int


def digest(data: bytes) -> str:
    """Digest of a file's content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digest_of(path: Path) -> str:
    """Digest of a file's content; `REFUSED` or `UNREAD` if there is none."""
    from assay.records.document import DocumentError, UnreadableError, read_bytes

    try:
        return digest(read_bytes(path))
    except UnreadableError:
        return UNREAD
    except DocumentError:
        return REFUSED


def scan(root: Path) -> list[Folder]:
    """Look at every file of a catalog without opening one.

    Symbolic links below `root` are left alone, as is all that is no plain file: records come from strangers.
    A folder that cannot be read is in the answer, with its problem.

    Args:
        root: The catalog's folder.
    """
    places = [
        *_places(root, DEVICE_RUNS.as_posix(), 2, "device_run"),
        *_places(root, SWEEPS.as_posix(), 2, "sweep"),
        *_places(root, BENCHMARKS.as_posix(), None, "benchmark"),
        *_places(root, CARDS.as_posix(), 1, "card"),
    ]

    def look_at(part: list[_Place]) -> list[Folder]:
        return [folder for place in part if (folder := _look(root, place)) is not None]

    # More than half of the time is the kernel's, and while one thread is there another can work.
    workers = min(4, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        parts = pool.map(look_at, (places[first::workers] for first in range(workers)))
        return [folder for part in parts for folder in part]


def is_racy(stamp: Stamp, read_at_ns: int) -> bool:
    """True if a file with this stamp, read at this time, could have changed after without a new stamp."""
    _, modified, changed, _ = stamp.split(" ")
    return max(int(modified), int(changed)) >= read_at_ns - RACY_NS


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder that may hold files, or on the way to one and with a problem."""

    path: str
    kind: FileKind
    has_files: bool = True
    problem: str | None = None


def _places(root: Path, path: str, depth: int | None, kind: FileKind) -> Iterator[_Place]:
    """The folders that hold files, at this depth or at any; and those on the way that have a problem."""
    if depth == 0:
        yield _Place(path, kind)
        return
    names, problem = _subfolders(root, path, kind, strays=depth is not None)
    if depth is None or problem is not None:
        yield _Place(path, kind, depth is None, problem)
    for name in names:
        yield from _places(root, f"{path}/{name}", None if depth is None else depth - 1, kind)


def _subfolders(root: Path, path: str, kind: FileKind, *, strays: bool) -> tuple[list[str], str | None]:
    names: list[str] = []
    astray: list[str] = []
    try:
        with os.scandir(root / path) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
                elif strays and entry.name.endswith(".json") and entry.is_file(follow_symlinks=False):
                    astray.append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return [], None
    except OSError as error:
        return [], f"{path} cannot be read: {error.strerror}"
    problems = [f"{path} holds {_some(astray)}; the place for it is {_PLACES[kind]}"] if astray else []
    if bad := [name for name in names if not _is_text(name)]:
        problems.append(f"{path} holds {_some(bad)}, a name that is not UTF-8")
    return sorted(set(names) - set(bad)), "; ".join(problems) or None


def _look(root: Path, place: _Place) -> Folder | None:
    if not place.has_files:
        return _folder(place.path, place.kind, [], [], place.problem)
    # The loop that a query on many files spends its time in: a look and five values for each file, no more.
    only = _CARD if place.kind == "card" else None
    names: list[str] = []
    facts: list[int] = []
    problem = place.problem
    try:
        with _entries(root / place.path) as entries:
            for entry in entries:
                name = entry.name
                if name[-5:] != ".json" or name[0] == "." or (only is not None and name != only):
                    continue
                try:
                    seen = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                except OSError:
                    names.append(name)
                    facts += _UNSTATED
                    continue
                if stat.S_ISREG(seen.st_mode):
                    names.append(name)
                    facts += (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        problem = f"{place.path} cannot be read: {error.strerror}"
    if not names and problem is None:
        return None
    return _folder(place.path, place.kind, names, facts, problem)


@contextlib.contextmanager
def _entries(path: Path) -> Generator[Iterator[os.DirEntry[str]]]:
    if os.scandir not in os.supports_fd:
        with os.scandir(path) as entries:
            yield entries
        return
    # From an open folder on, the kernel need not walk the whole path for each file: a fifth of the time.
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


def _folder(path: str, kind: FileKind, names: list[str], facts: list[int], problem: str | None) -> Folder:
    try:
        numbers = array("q", facts)
    except OverflowError:
        # An inode of 64 bits, or a date centuries ahead: another number will do, if it is always the same.
        numbers = array("q", (fact & _INT64 for fact in facts))
    try:
        text = "/".join(names).encode()
    except UnicodeEncodeError:
        return _without_bad_names(path, kind, names, numbers, problem)
    text += f"//{problem}".encode("utf-8", "replace")
    fingerprint = hashlib.blake2b(numbers.tobytes() + text, digest_size=16).digest()
    return Folder(path, kind, names, numbers, problem, fingerprint)


def _without_bad_names(
    path: str, kind: FileKind, names: list[str], numbers: array[int], problem: str | None
) -> Folder:
    """A folder less the files whose names no text can hold, which its problem tells of."""
    good = [place for place, name in enumerate(names) if _is_text(name)]
    bad = [name for name in names if not _is_text(name)]
    kept = [fact for place in good for fact in numbers[place * _FACTS : (place + 1) * _FACTS]]
    told = f"{path} holds {_some(bad)}, a name that is not UTF-8"
    problem = f"{problem}; {told}" if problem else told
    return _folder(path, kind, [names[place] for place in good], kept, problem)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _some(names: list[str]) -> str:
    """The first of these names, and how many more there are."""
    # As bytes, so that one that is no text is shown as the shell shows it.
    shown = ", ".join(repr(os.fsencode(name))[1:] for name in sorted(names)[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
