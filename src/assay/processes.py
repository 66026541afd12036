"""Child processes: started with a folder for what they leave, watched, and ended with all that they started."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from assay.scratch import Scratch

LOG_LIMIT = 2**20
"""Of a longer log, the first and the last half of this many characters are read."""

LOG_FILE_LIMIT = 2**28
"""A child that writes a longer log is stopped: it is in a loop."""

_MIB = 2**20


class Stopped(BaseException):
    """A job was ended because whoever asked for it does not want it any more: it has no outcome."""


def memory_limit_mb() -> int:
    """Default memory limit of a child: three quarters of the machine's memory, in MiB."""
    return int(psutil.virtual_memory().total * 0.75) // _MIB


class Child:
    """A child process with its log in a file. A context manager that ends it with all that it has started.

    Args:
        command: What to run.
        log: File for its standard error, and for its standard output unless that is `piped`.
        environment: Variables in addition to this process's own.
        piped: Whether its standard input and output are pipes.

    Attributes:
        process: The process.
        log: The file.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        piped: bool = False,
    ) -> None:
        self.log = log
        # What a child that is killed leaves behind goes with its folder for temporary files.
        self._scratch = Scratch()
        with contextlib.ExitStack() as undo:
            undo.callback(self._scratch.close)
            with log.open("wb") as file:
                self.process = subprocess.Popen(
                    list(command),
                    stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if piped else file,
                    stderr=file,
                    bufsize=0,
                    env={
                        **os.environ,
                        **(environment or {}),
                        **self._scratch.environment,
                        "PYTHONUNBUFFERED": "1",
                    },
                    # A group of its own: Ctrl-C is for the parent, and a kill reaches what the child has started.
                    start_new_session=True,
                )
            undo.pop_all()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def watch(
        self,
        *,
        time_limit_s: float,
        memory_limit: int | None = None,
        stop: threading.Event | None = None,
        ended: Callable[[float], bool] | None = None,
    ) -> str | None:
        """Wait for the end of what the child does.

        Args:
            time_limit_s: Longest wait in seconds.
            memory_limit: Resident memory of the child and its children in MiB; `memory_limit_mb()` by default.
            stop: Ends the wait when it is set.
            ended: Waits so many seconds at most, and says whether it is over; by default whether the child ended.

        Returns:
            What is to end it: `time`, `memory` or `log`; None if it is over.

        Raises:
            Stopped: `stop` was set before it was over.
        """
        ended = ended or functools.partial(wait_for, self.process)
        limit = (memory_limit or memory_limit_mb()) * _MIB
        end = time.monotonic() + time_limit_s
        me = psutil.Process(self.process.pid)
        family: list[psutil.Process] = [me]
        looks = 0
        while True:
            # Rare looks: each takes CPU time from what is being measured.
            if ended(0.1 if looks < 5 else 0.25):
                return None
            if stop is not None and stop.is_set():
                raise Stopped
            if time.monotonic() > end:
                return "time"
            if looks % 4 == 0:
                with contextlib.suppress(psutil.Error):
                    family = [me, *me.children(recursive=True)]
            resident = 0
            for member in family:
                with contextlib.suppress(psutil.Error):
                    resident += member.memory_info().rss
            if resident > limit:
                return "memory"
            if self.log.stat().st_size > LOG_FILE_LIMIT:
                return "log"
            looks += 1

    def kill(self) -> None:
        """End the child and whatever it has started, and wait until they are gone."""
        family: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            family = psutil.Process(self.process.pid).children(recursive=True)
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        # A browser moves some of its processes to groups of their own.
        kill_all(family)
        self.process.wait()
        psutil.wait_procs(family, timeout=10)

    def close(self, *, grace_s: float = 0.0) -> None:
        """End the child and remove its temporary files.

        Args:
            grace_s: With pipes, how long the child may take to end by itself at the end of its input.
        """
        if self.process.stdin is not None and self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            wait_for(self.process, grace_s)
        self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._scratch.close()

    def read_log(self, start: int = 0) -> str:
        """The log from a position on, in bytes; of a longer one than `LOG_LIMIT` its two ends."""
        size = self.log.stat().st_size - start
        with self.log.open("rb") as file:
            file.seek(start)
            if size <= LOG_LIMIT:
                data = file.read()
            else:
                data = file.read(LOG_LIMIT // 2)
                file.seek(-LOG_LIMIT // 2, os.SEEK_END)
                data += b"\n[...]\n" + file.read()
        return data.decode("utf-8", errors="replace")


def wait_for(process: subprocess.Popen[bytes], wait_s: float) -> bool:
    """Wait so many seconds at most for the end of a process; True if it ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(wait_s)
        return True
    return False


def kill_all(processes: Sequence[psutil.Process]) -> None:
    """Kill processes, those that are gone already left aside."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
