"""Files that are whole or not there: atomic writes for everything the tool leaves behind."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def write_atomic(path: Path, data: str | bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part.

    The data goes to a temporary file in the same folder, is flushed to the disk, and takes `path`'s place
    in one step, which is flushed too: a power cut after the return loses nothing. Missing folders are made. A
    failure (full disk, Ctrl-C) leaves the old file as it was.

    Args:
        path: The file to write.
        data: Its whole content, or pieces of it in order; text is written as UTF-8.

    Raises:
        OSError: The folder cannot be written to, or the disk is full.
    """
    changed = [path.parent, *_make(path.parent)]
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:80]}.", suffix=".part", dir=path.parent)
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if isinstance(data, str):
                data = data.encode()
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files that only the owner can read; records are for everyone the umask allows.
        umask = os.umask(0)
        os.umask(umask)
        partial.chmod(0o666 & ~umask)
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    for folder in changed:
        _flush_entries(folder)


def _make(folder: Path) -> list[Path]:
    """Make a folder and those above it; the folders that have a new one in them, the innermost first."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return [place.parent for place in missing]


def _flush_entries(folder: Path) -> None:
    """Flush to the disk which files a folder holds, where the system can do so for a folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        # Windows opens no folders; elsewhere this is one that may be written to and not be listed.
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
