"""Lanes that misbehave, to see that the host holds. Reached as `bad_lanes:NAME`."""

import ctypes
import errno
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from assay.lanes.base import Availability, Lane, LaneFacts
from assay.lanes.job import Job, Observation, save_observation


class _Bad(Lane):
    name = "bad"
    summary = "misbehaves"

    def available(self) -> Availability:
        return Availability(True, on="nowhere")

    def read(self, log: str, observation: Observation | None) -> LaneFacts:
        return LaneFacts()

    def measure(self, job: Job, observation: Observation) -> None:
        observation.stage = "load"
        save_observation(job, observation)
        print("about to misbehave", file=sys.stderr, flush=True)
        self.misbehave(job)


class Crash(_Bad):
    def misbehave(self, job: Job) -> None:
        ctypes.string_at(0)


class Exit(_Bad):
    def misbehave(self, job: Job) -> None:
        os._exit(17)


class Raise(_Bad):
    def misbehave(self, job: Job) -> None:
        raise RuntimeError("no such luck")


class Gossip(_Bad):
    """Tells where everything lies."""

    def available(self) -> Availability:
        return Availability(True, on=f"driver {Path.home()}/drivers/icd.json")

    def read(self, log: str, observation: Observation | None) -> LaneFacts:
        return LaneFacts(evidence=tuple(line for line in log.splitlines() if "loading" in line))

    def misbehave(self, job: Job) -> None:
        print(f"loading {job.model} for {Path.home()}/notes", file=sys.stderr, flush=True)
        raise RuntimeError(f"could not open '{job.model}': see {job.workdir}/log")


class NoRoom(_Bad):
    def misbehave(self, job: Job) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Hang(_Bad):
    """Hangs, with a child of its own that must not outlive it."""

    def misbehave(self, job: Job) -> None:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (Path(job.workdir) / "grandchild").write_text(str(child.pid))
        time.sleep(600)


class Litter(_Bad):
    """Hangs with files in the system's folder for temporary files, as browsers and drivers do."""

    def misbehave(self, job: Job) -> None:
        folder = tempfile.mkdtemp()
        (Path(folder) / "litter").write_text("left")
        (Path(job.workdir) / "litter").write_text(folder)
        time.sleep(600)


class Eat(_Bad):
    def misbehave(self, job: Job) -> None:
        held = []
        while True:
            held.append(b"x" * (32 * 2**20))
            time.sleep(0.01)


class Flood(_Bad):
    def misbehave(self, job: Job) -> None:
        while True:
            print("blah " * 10_000)


class CrashOnSecond(_Bad):
    """The first job of a process goes well, the second crashes it."""

    done = False

    def misbehave(self, job: Job) -> None:
        if CrashOnSecond.done:
            os.abort()
        CrashOnSecond.done = True
