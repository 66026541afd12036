"""Temporary folders that do not outlive their process, however it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

import filelock

_PREFIX = "assay-"
_LOCK = "owner.lock"
_YOUNG_S = 60.0
"""A folder this young may not be locked yet by the process that has just made it."""

_LONGEST_PLACE = 30
"""Browsers make sockets some 75 bytes below, whose paths must not be longer than 107."""


class Scratch:
    """A temporary folder of this process; a context manager that gives its path.

    It is removed at the end. Where this process is killed, it is removed when the next `Scratch` is made.

    Attributes:
        path: The folder.
    """

    def __init__(self) -> None:
        place = _place()
        _remove_abandoned(place)
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place, ignore_cleanup_errors=True)
        self.path = Path(self._folder.name)
        self._lock = filelock.FileLock(self.path / _LOCK, thread_local=False)
        self._lock.acquire(blocking=False)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which a child process puts its own temporary files in here."""
        return dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(self.path))

    def close(self) -> None:
        """Remove the folder."""
        self._lock.release()
        self._folder.cleanup()


def _place() -> Path:
    """The system's folder for temporary files, or `/tmp` where its name is too long for sockets."""
    place, short = Path(tempfile.gettempdir()), Path("/tmp")
    if len(os.fsencode(place)) > _LONGEST_PLACE and os.access(short, os.W_OK):
        return short
    return place


def _remove_abandoned(place: Path) -> None:
    """Remove the folders of processes that were killed: their locks are free."""
    for path in place.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError, filelock.Timeout):
            status = path.stat()
            mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
            if mine and time.time() - status.st_mtime > _YOUNG_S:
                filelock.FileLock(path, thread_local=False).acquire(blocking=False).lock.release()
                shutil.rmtree(path.parent, ignore_errors=True)
