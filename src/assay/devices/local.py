"""The parent's side of a measurement: start the child, watch time and memory, collect what it left."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from assay.lanes.base import Job, Observation
from assay.lanes.registry import find
from assay.protocol.acceptance import Ending
from assay.scratch import Scratch

LOG_LIMIT = 2**20
"""Of a longer log, the first and the last half of this many characters are read."""

LOG_FILE_LIMIT = 2**28
"""A child that writes a longer log is stopped: it is in a loop."""

_MIB = 2**20


class Stopped(BaseException):
    """A job was ended because whoever asked for it does not want it any more: it has no outcome."""


@dataclass(frozen=True)
class Outcome:
    """What became of one job.

    Attributes:
        observation: What the child wrote last; None if it wrote nothing readable.
        log: Its stdout and stderr.
        returncode: Its exit code; negative for the signal that ended it.
        timed_out: True if the time limit ended it.
        out_of_memory: True if the memory limit ended it.
        flooded: True if its log grew past all bounds, which ended it.
        workdir: The job's folder, with `outputs/<position>.npz` for each invocation that was kept.
    """

    observation: Observation | None
    log: str
    returncode: int
    timed_out: bool
    out_of_memory: bool
    flooded: bool
    workdir: Path

    @property
    def ending(self) -> Ending:
        """How it ended, for the acceptance rule."""
        seen = self.observation
        return Ending(
            stage=seen.stage if seen else None,
            loaded=seen is not None and seen.load_ms is not None,
            error=seen.error if seen else None,
            error_class=seen.error_class if seen else None,
            returncode=self.returncode,
            timed_out=self.timed_out,
            out_of_memory=self.out_of_memory,
            flooded=self.flooded,
        )

    def output_files(self) -> list[Path]:
        """Outputs of the sequence, in order, as far as it came."""
        folder = self.workdir / "outputs"
        return sorted(folder.glob("*.npz"), key=lambda path: int(path.stem)) if folder.is_dir() else []


def memory_limit_mb() -> int:
    """Default memory limit of a child: three quarters of the machine's memory, in MiB."""
    return int(psutil.virtual_memory().total * 0.75) // _MIB


def run_jobs(
    lane_name: str,
    jobs: list[Job],
    *,
    time_limit_s: float = 300.0,
    memory_limit: int | None = None,
    stop: threading.Event | None = None,
) -> list[Outcome]:
    """Run jobs in one child process of the lane, one after the other.

    Args:
        lane_name: See `registry.find`.
        jobs: Each with a folder of its own. When one crashes, those after it have no observation.
        time_limit_s: For all of them together, in seconds; the child and its children are killed at the end.
        memory_limit: Resident memory of the child and its children in MiB; `memory_limit_mb()` by default.
        stop: Ends the child when it is set, for jobs in threads, which no Ctrl-C reaches.

    Returns:
        One outcome for each job, in order.

    Raises:
        Stopped: `stop` was set.
    """
    stop = stop or threading.Event()
    lane = find(lane_name)
    paths: list[str] = []
    for job in jobs:
        folder = Path(job.workdir)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.json").write_text(job.to_json())
        paths.append(str(folder / "job.json"))
    log_path = Path(jobs[0].workdir) / "child.log"
    command = [sys.executable, "-m", "assay.lanes.child", lane_name, *paths]
    scratch = Scratch()
    environment = {**os.environ, **lane.child_env(jobs[0].options), **scratch.environment, "PYTHONUNBUFFERED": "1"}
    # What a child that is killed leaves behind goes with its folder for temporary files.
    with contextlib.closing(scratch), log_path.open("wb") as log_file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            env=environment,
            # A group of its own: Ctrl-C is for the parent, and a kill reaches what the child has started.
            start_new_session=True,
        )
        try:
            ended_by = watch(process, log_path, time_limit_s, memory_limit or memory_limit_mb(), stop)
        finally:
            kill_family(process)
    log = read_log(log_path)
    return [
        Outcome(
            observation=read_observation(Path(job.workdir)),
            log=log,
            returncode=process.returncode,
            timed_out=ended_by == "time",
            out_of_memory=ended_by == "memory",
            flooded=ended_by == "log",
            workdir=Path(job.workdir),
        )
        for job in jobs
    ]


def run_job(
    lane_name: str,
    job: Job,
    *,
    time_limit_s: float = 300.0,
    memory_limit: int | None = None,
    stop: threading.Event | None = None,
) -> Outcome:
    """Run one job in a child process of its own; see `run_jobs`."""
    return run_jobs(lane_name, [job], time_limit_s=time_limit_s, memory_limit=memory_limit, stop=stop)[0]


def watch(
    process: subprocess.Popen[bytes],
    log: Path,
    time_limit_s: float,
    memory_limit: int,
    stop: threading.Event,
    *,
    ended: Callable[[float], bool] | None = None,
) -> str | None:
    """Wait for the end of what a child does.

    Args:
        process: The child.
        log: Where it writes its output.
        time_limit_s: Longest wait in seconds.
        memory_limit: Resident memory of the child and its children in MiB.
        stop: Ends the wait when it is set.
        ended: Waits so many seconds at most, and says whether it is over; by default whether the child ended.

    Returns:
        What is to end it: `time`, `memory` or `log`; None if it is over.

    Raises:
        Stopped: `stop` was set before it was over.
    """
    ended = ended or functools.partial(wait_for, process)
    end = time.monotonic() + time_limit_s
    me = psutil.Process(process.pid)
    family: list[psutil.Process] = [me]
    looks = 0
    while True:
        # Rare looks: each takes CPU time from what is being measured.
        if ended(0.1 if looks < 5 else 0.25):
            return None
        if stop.is_set():
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
        if resident > memory_limit * _MIB:
            return "memory"
        if log.stat().st_size > LOG_FILE_LIMIT:
            return "log"
        looks += 1


def wait_for(process: subprocess.Popen[bytes], wait_s: float) -> bool:
    """Wait so many seconds at most for the end of a child; True if it ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(wait_s)
        return True
    return False


def kill_family(process: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it has started, and wait until they are gone."""
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        family = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    # A browser moves some of its processes to groups of their own.
    kill_all(family)
    process.wait()
    psutil.wait_procs(family, timeout=10)


def kill_all(processes: Sequence[psutil.Process]) -> None:
    """Kill processes, those that are gone already left aside."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def read_log(path: Path, start: int = 0) -> str:
    """A child's log from a position on; of a longer one than `LOG_LIMIT` its two ends."""
    size = path.stat().st_size - start
    with path.open("rb") as file:
        file.seek(start)
        if size <= LOG_LIMIT:
            data = file.read()
        else:
            data = file.read(LOG_LIMIT // 2)
            file.seek(-LOG_LIMIT // 2, os.SEEK_END)
            data += b"\n[...]\n" + file.read()
    return data.decode("utf-8", errors="replace")


def read_observation(folder: Path) -> Observation | None:
    """What a child wrote last into a job's folder; None if it wrote nothing readable."""
    try:
        return Observation.from_json((folder / "observation.json").read_text())
    except (OSError, ValueError, KeyError, TypeError):
        return None
