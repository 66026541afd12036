"""This machine: each job in a child process that is watched, or in one that stays for the jobs of a lane."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from assay.devices.base import Device, DeviceFacts, JobOutcome
from assay.devices.resident import ResidentChild
from assay.lanes.base import Availability, Lane
from assay.lanes.job import Job, Json, read_observation
from assay.lanes.registry import find
from assay.models.artifact import slug
from assay.processes import Child
from assay.protocol import machine
from assay.protocol.machine import State


class LocalDevice(Device):
    """This machine.

    Within a `with` block, a lane that is `resident` keeps its process from job to job.

    Args:
        name: Its name in records; `ASSAY_DEVICE` by default, else a name made of its processor's.
        address: How the user names it.
    """

    here = True

    def __init__(self, name: str | None = None, address: str = "local") -> None:
        self.address = address
        self._name = name
        self._kept: ResidentChild | None = None

    def __enter__(self) -> LocalDevice:
        self._kept = ResidentChild()
        return self

    def close(self) -> None:
        """End the process that was kept."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def facts(self) -> DeviceFacts:
        """What this machine is."""
        return DeviceFacts(
            name=slug(self._name or os.environ.get("ASSAY_DEVICE") or machine.label()),
            model=machine.board_model() or machine.cpu_model(),
            os_build=machine.os_name(),
            host=machine.describe(),
        )

    def state(self) -> State:
        """Load, clock and heat now."""
        return machine.read_state()

    def look(self, lane: Lane) -> Availability:
        """What the lane says."""
        return lane.available()

    def runtime_version(self, lane: Lane, options: dict[str, Json]) -> str | None:
        """What the lane says."""
        return lane.runtime_version(options)

    def wait_for_quiet(self, timeout_s: float) -> bool:
        """Wait until other processes leave the machine alone."""
        return machine.wait_for_quiet(timeout_s)

    def run_jobs(
        self,
        lane_name: str,
        jobs: Sequence[Job],
        *,
        time_limit_s: float = 300.0,
        memory_limit: int | None = None,
        stop: threading.Event | None = None,
    ) -> list[JobOutcome]:
        """Run jobs in one child process; see `Device.run_jobs`."""
        lane = find(lane_name)
        paths: list[str] = []
        for job in jobs:
            folder = Path(job.workdir)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "job.json").write_text(job.to_json())
            paths.append(str(folder / "job.json"))
        if self._kept is not None and lane.resident:
            return [
                self._kept.run(
                    lane_name, Path(job.workdir), time_limit_s=time_limit_s, memory_limit=memory_limit, stop=stop
                )
                for job in jobs
            ]
        command = [sys.executable, "-m", "assay.lanes.child", lane_name, *paths]
        log = Path(jobs[0].workdir) / "child.log"
        with contextlib.closing(Child(command, log, environment=lane.child_env(jobs[0].options))) as child:
            ended_by = child.watch(time_limit_s=time_limit_s, memory_limit=memory_limit, stop=stop)
            child.kill()
            text = child.read_log()
        return [
            JobOutcome(
                observation=read_observation(Path(job.workdir)),
                log=text,
                returncode=child.process.returncode,
                timed_out=ended_by == "time",
                out_of_memory=ended_by == "memory",
                flooded=ended_by == "log",
                workdir=Path(job.workdir),
            )
            for job in jobs
        ]
