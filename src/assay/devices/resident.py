"""A child process that stays for many jobs and keeps its browser between them, and the parent's side of it.

Each job still has a page of its own, its own log and its own limits. After any failure the browser is closed;
after a crash, a hang or want of memory the whole child is, and the next job starts a new one.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from pathlib import Path

from assay.devices import local
from assay.lanes import child
from assay.lanes.base import Job
from assay.lanes.registry import find
from assay.scratch import Scratch


class BrowserWorker:
    """Runs jobs of browser lanes in one long-lived child; those of other lanes each in a child of their own.

    Use as a context manager, and `run_job` wherever `assay.devices.local.run_job` would do.

    Args:
        stop: Ends the job at hand when it is set; see `assay.devices.local.run_jobs`.
    """

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: Scratch | None = None

    def __enter__(self) -> BrowserWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run_job(
        self, lane_name: str, job: Job, *, time_limit_s: float = 300.0, memory_limit: int | None = None
    ) -> local.Outcome:
        """Run one job; see `assay.devices.local.run_job`."""
        lane = find(lane_name)
        if lane.runs_in != "browser":
            return local.run_job(
                lane_name, job, time_limit_s=time_limit_s, memory_limit=memory_limit, stop=self._stop
            )
        workdir = Path(job.workdir)
        workdir.mkdir(parents=True, exist_ok=True)
        job_file = workdir / "job.json"
        job_file.write_text(job.to_json())
        process, log = self._started()
        start = log.stat().st_size
        assert process.stdin is not None and process.stdout is not None
        answers = process.stdout
        ended_by: str | None = None
        answered = False

        def ended(wait_s: float) -> bool:
            nonlocal answered
            if not select.select([answers], [], [], wait_s)[0]:
                return False
            answered = bool(answers.readline())
            return True

        try:
            process.stdin.write(json.dumps({"lane": lane_name, "job": str(job_file)}).encode() + b"\n")
            process.stdin.flush()
            limit = memory_limit or local.memory_limit_mb()
            ended_by = local.watch(process, log, time_limit_s, limit, self._stop, ended=ended)
        except BrokenPipeError:
            pass
        finally:
            if not answered:
                local.kill_family(process)
        outcome = local.Outcome(
            observation=local.read_observation(workdir),
            log=local.read_log(log, start),
            returncode=0 if answered else process.returncode,
            timed_out=ended_by == "time",
            out_of_memory=ended_by == "memory",
            flooded=ended_by == "log",
            workdir=workdir,
        )
        if not answered:
            self.close()
        return outcome

    def close(self) -> None:
        """End the child with its browser, and remove what they left."""
        process, self._process = self._process, None
        scratch, self._scratch = self._scratch, None
        if process is not None:
            if process.stdin is not None and process.poll() is None:
                # At the end of its input the child closes the browser and goes.
                process.stdin.close()
                local.wait_for(process, 10.0)
            local.kill_family(process)
            if process.stdout is not None:
                process.stdout.close()
        if scratch is not None:
            scratch.close()

    def _started(self) -> tuple[subprocess.Popen[bytes], Path]:
        """The child and its log; a new one where there is none that lives."""
        if self._process is None or self._scratch is None or self._process.poll() is not None:
            self.close()
            self._scratch = Scratch()
            with (self._scratch.path / "child.log").open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "assay.devices.resident"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    bufsize=0,
                    env={**os.environ, **self._scratch.environment, "PYTHONUNBUFFERED": "1"},
                    start_new_session=True,
                )
        return self._process, self._scratch.path / "child.log"


def main() -> None:
    """The child: a job a line on stdin, a line on stdout when it is done."""
    from assay.lanes.browser import BrowserLane
    from assay.lanes.browser.session import Measurer

    # What is printed by accident must not be taken for an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    child.set_up()
    measurer = Measurer(keep=True)
    try:
        for line in sys.stdin:
            request = json.loads(line)
            lane = find(request["lane"])
            if isinstance(lane, BrowserLane):
                lane.measurer = measurer
            child.measure(request["lane"], Job.from_json(Path(request["job"]).read_text()))
            print("done", file=answers)
    finally:
        measurer.close()


if __name__ == "__main__":
    main()
