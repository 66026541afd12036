"""The one interface of a place where lanes run: what it is, how it is, and how a job gets there and back.

Entry-point group: `assay.devices`; the entry's name is the scheme of the device's address, as in `ssh://pi@board`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from assay.lanes.base import Availability, Lane
from assay.lanes.job import Job, Json, Observation
from assay.protocol.acceptance import Ending
from assay.protocol.machine import State


@dataclass(frozen=True)
class DeviceFacts:
    """What a device is, for records. None where nobody tells.

    Attributes:
        name: Short name in records and file names; never the host's name.
        model: The device's name for people, for example `Raspberry Pi 5 Model B Rev 1.0`, or its processor's.
        soc: System on chip.
        os_build: Operating system and its version.
        host: The machine in a record's words: CPU model, cores, architecture, kernel, memory.
    """

    name: str
    model: str
    soc: str | None = None
    os_build: str | None = None
    host: dict[str, Json] = field(default_factory=dict[str, Json])


@dataclass(frozen=True)
class JobOutcome:
    """What became of one job.

    Attributes:
        observation: What the child wrote last; None if it wrote nothing readable.
        log: Its stdout and stderr.
        returncode: Its exit code; negative for the signal that ended it.
        timed_out: True if the time limit ended it.
        out_of_memory: True if the memory limit ended it.
        flooded: True if its log grew past all bounds, which ended it.
        workdir: The job's folder on this machine, with `outputs/<position>.npz` for each invocation that was kept.
        lost: Why the device could not be reached any more; None if it could.
    """

    observation: Observation | None
    log: str
    returncode: int
    timed_out: bool
    out_of_memory: bool
    flooded: bool
    workdir: Path
    lost: str | None = None

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
            lost=self.lost,
        )

    def output_files(self) -> list[Path]:
        """Outputs of the sequence, in order, as far as it came."""
        folder = self.workdir / "outputs"
        return sorted(folder.glob("*.npz"), key=lambda path: int(path.stem)) if folder.is_dir() else []


class Device(ABC):
    """A place where lanes run. A context manager: what is kept for job after job ends with it.

    Attributes:
        address: How the user names it, for example `local` or `ssh://pi@raspberrypi`.
        kind: Which lanes can be asked for, see `Lane.places`.
        here: Whether its jobs take the time of this machine, so that nothing else may run meanwhile.
        invocations: How often a child is started for one measurement, unless the user says.
    """

    address: str
    kind: str = "system"
    here: bool = False
    invocations: int = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End and remove whatever was started on the device."""

    @abstractmethod
    def facts(self) -> DeviceFacts:
        """What it is.

        Raises:
            AssayError: It cannot be reached.
        """

    @abstractmethod
    def state(self) -> State:
        """Load, clock and heat now.

        Raises:
            AssayError: It cannot be reached.
        """

    def available(self, lane: Lane) -> Availability:
        """Whether a lane can run there.

        Raises:
            AssayError: It cannot be reached.
        """
        if self.kind not in lane.places:
            return Availability(
                False,
                reason=f"{lane.name} does not run on a device of the kind {self.kind!r} ({self.address})",
                fix=f"choose a device of the kind {' or '.join(lane.places)}",
            )
        return self.look(lane)

    @abstractmethod
    def look(self, lane: Lane) -> Availability:
        """Whether what a lane needs is there, for a lane that this kind of device can be asked for."""

    def runtime_version(self, lane: Lane, options: dict[str, Json]) -> str | None:
        """Version of the runtime that a lane has there; None if unknown."""
        return self.available(lane).details.get("runtime_version")

    def wait_for_quiet(self, timeout_s: float) -> bool:
        """Wait until the device does nothing else; False if it did not become quiet in so many seconds."""
        return True

    @abstractmethod
    def run_jobs(
        self,
        lane_name: str,
        jobs: Sequence[Job],
        *,
        time_limit_s: float = 300.0,
        memory_limit: int | None = None,
        stop: threading.Event | None = None,
    ) -> list[JobOutcome]:
        """Run jobs in one child process of the lane, one after the other.

        Args:
            lane_name: See `registry.find`.
            jobs: Each with a folder of its own on this machine. When one crashes, those after it have no
                observation.
            time_limit_s: For all of them together, in seconds; the child and its children are killed at the end.
            memory_limit: Resident memory of the child and its children in MiB; by default three quarters of the
                device's memory.
            stop: Ends the child when it is set, for jobs in threads, which no Ctrl-C reaches.

        Returns:
            One outcome for each job, in order.

        Raises:
            Stopped: `stop` was set.
        """

    def run_job(
        self,
        lane_name: str,
        job: Job,
        *,
        time_limit_s: float = 300.0,
        memory_limit: int | None = None,
        stop: threading.Event | None = None,
    ) -> JobOutcome:
        """Run one job; see `run_jobs`."""
        return self.run_jobs(lane_name, [job], time_limit_s=time_limit_s, memory_limit=memory_limit, stop=stop)[0]
