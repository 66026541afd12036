"""Keep the converter's chatter off the terminal, and keep it for the error message."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Generator

_KEPT = 20_000


class NativeOutput:
    """What native code and libraries printed while they were kept quiet.

    Attributes:
        text: The last 20,000 characters; empty until the block has ended.
    """

    text: str = ""


@contextlib.contextmanager
def kept_quiet() -> Generator[NativeOutput]:
    """Send file descriptors 1 and 2, warnings and log records to a temporary file for the length of a block.

    C++ code writes to the descriptors themselves, so redirecting `sys.stdout` alone would not do. Progress of our
    own must go to a console on a copy of the descriptor, made before.
    """
    kept = NativeOutput()
    sys.stdout.flush()
    sys.stderr.flush()
    before = logging.root.manager.disable
    with tempfile.TemporaryFile() as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        saved = [os.dup(1), os.dup(2)]
        try:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            # Python's own streams need not be those descriptors: not in a notebook, nor under a test runner.
            with (
                os.fdopen(os.dup(file.fileno()), "w", buffering=1) as stream,
                contextlib.redirect_stdout(stream),
                contextlib.redirect_stderr(stream),
            ):
                yield kept
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, copy in zip((1, 2), saved, strict=True):
                os.dup2(copy, descriptor)
                os.close(copy)
            logging.disable(before)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _KEPT))
            kept.text = file.read().decode(errors="replace")
