"""Commands that tests stop by a signal, whatever signals the tests' own parent ignores."""

import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGPIPE")


def _restore() -> None:
    for name in _NAMES:
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Start a command that gets every signal, its output as text.

    A process inherits the signals that its parent ignores: below `nohup` or a background job of a shell, Ctrl-C
    would do nothing.
    """
    if os.name == "posix":
        options["preexec_fn"] = _restore
    return subprocess.Popen(command, text=True, **options)
