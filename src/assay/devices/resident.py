"""A child process that stays for many jobs and keeps what is costly to start, and the parent's side of it.

Each job still has its own log and its own limits. After a failure the lane does not use again what it kept; after
a crash, a hang or want of memory the whole child is ended, and the next job starts a new one.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from pathlib import Path

from assay.devices.base import JobOutcome
from assay.lanes import child
from assay.lanes.base import Lane
from assay.lanes.job import Job, read_observation
from assay.lanes.registry import find
from assay.processes import Child
from assay.scratch import Scratch

_GRACE_S = 10.0
"""How long the child may take to close what it kept."""


class ResidentChild:
    """Runs job after job of lanes that are `resident` in one process, which is started with the first."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._scratch: Scratch | None = None

    def run(
        self,
        lane_name: str,
        workdir: Path,
        *,
        time_limit_s: float,
        memory_limit: int | None,
        stop: threading.Event | None,
    ) -> JobOutcome:
        """Run the job whose `job.json` is in a folder; see `Device.run_jobs`."""
        worker = self._started()
        start = worker.log.stat().st_size
        assert worker.process.stdin is not None and worker.process.stdout is not None
        answers = worker.process.stdout
        ended_by: str | None = None
        answered = False

        def ended(wait_s: float) -> bool:
            nonlocal answered
            if not select.select([answers], [], [], wait_s)[0]:
                return False
            answered = bool(answers.readline())
            return True

        request = {"lane": lane_name, "job": str(workdir / "job.json")}
        try:
            worker.process.stdin.write(json.dumps(request).encode() + b"\n")
            worker.process.stdin.flush()
            ended_by = worker.watch(time_limit_s=time_limit_s, memory_limit=memory_limit, stop=stop, ended=ended)
        except BrokenPipeError:
            pass
        finally:
            if not answered:
                worker.kill()
        outcome = JobOutcome(
            observation=read_observation(workdir),
            log=worker.read_log(start),
            returncode=0 if answered else worker.process.returncode,
            timed_out=ended_by == "time",
            out_of_memory=ended_by == "memory",
            flooded=ended_by == "log",
            workdir=workdir,
        )
        if not answered:
            self.close()
        return outcome

    def close(self) -> None:
        """End the child with what it kept, and remove what they left."""
        worker, self._child = self._child, None
        scratch, self._scratch = self._scratch, None
        if worker is not None:
            worker.close(grace_s=_GRACE_S)
        if scratch is not None:
            scratch.close()

    def _started(self) -> Child:
        """The child; a new one where there is none that lives."""
        if self._child is None or self._scratch is None or self._child.process.poll() is not None:
            self.close()
            self._scratch = Scratch()
            command = [sys.executable, "-m", "assay.devices.resident"]
            self._child = Child(command, self._scratch.path / "child.log", piped=True)
        return self._child


def main() -> None:
    """The child: a job a line on stdin, a line on stdout when it is done."""
    # What is printed by accident must not be taken for an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    child.set_up()
    used: dict[str, Lane] = {}
    try:
        for line in sys.stdin:
            request = json.loads(line)
            name = str(request["lane"])
            if name not in used:
                used[name] = find(name)
                used[name].keep()
            child.measure(name, Job.from_json(Path(request["job"]).read_text()))
            print("done", file=answers)
    finally:
        for lane in used.values():
            lane.close()


if __name__ == "__main__":
    main()
