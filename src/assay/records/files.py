"""Files that are whole or not there: atomic writes for everything the tool leaves behind."""

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def write_atomic(path: Path, data: str | bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part.

    The data goes to a temporary file in the same folder, is flushed to the disk, and takes `path`'s place
    in one step. Missing folders are made. A failure (full disk, Ctrl-C) leaves the old file as it was.

    Args:
        path: The file to write.
        data: Its whole content, or pieces of it in order; text is written as UTF-8.

    Raises:
        OSError: The folder cannot be written to, or the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
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
