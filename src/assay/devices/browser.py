"""A browser that runs already, here or on another machine, reached by its DevTools port."""

from __future__ import annotations

import dataclasses
import json
import threading
import urllib.request
from collections.abc import Sequence

from assay.devices.base import Device, DeviceFacts, JobOutcome
from assay.devices.local import LocalDevice
from assay.errors import AssayError
from assay.lanes.base import Availability, Lane
from assay.lanes.job import Job, Json
from assay.models.artifact import slug
from assay.protocol.machine import State

_TIMEOUT_S = 10.0
_ANSWER_LIMIT = 2**16


class BrowserDevice(Device):
    """A running browser. Its machine is known by what its pages tell, and by nothing else.

    Args:
        name: Its name in records; by default what its pages tell.
        address: `cdp://HOST:PORT`.
    """

    kind = "browser"

    def __init__(self, name: str | None = None, address: str = "cdp://localhost:9222") -> None:
        self.address = address
        self._url = "http://" + address.removeprefix("cdp://")
        self._name = name
        # Playwright, which speaks to the browser, runs in a child process here.
        self._desk = LocalDevice()

    def __enter__(self) -> BrowserDevice:
        self._desk.__enter__()
        return self

    def close(self) -> None:
        """End the process that speaks to the browser; the browser itself stays."""
        self._desk.close()

    def facts(self) -> DeviceFacts:
        """What the browser says of itself; its name is empty where none was chosen, since its pages tell it."""
        told = self._ask()
        return DeviceFacts(
            name=slug(self._name) if self._name else "",
            model=str(told.get("Browser", "browser")),
            host={"browser": told.get("Browser"), "user_agent": told.get("User-Agent")},
        )

    def _ask(self) -> dict[str, Json]:
        try:
            with urllib.request.urlopen(f"{self._url}/json/version", timeout=_TIMEOUT_S) as answer:
                told = json.loads(answer.read(_ANSWER_LIMIT))
        except (OSError, ValueError) as error:
            raise AssayError(
                f"no browser answers at {self._url}: {error}",
                fix="start it with --remote-debugging-port=9222, or forward the port of a phone's Chrome with "
                "adb forward tcp:9222 localabstract:chrome_devtools_remote",
            ) from error
        return told if isinstance(told, dict) else {}

    def state(self) -> State:
        """Nobody tells."""
        return State(None, None, None)

    def look(self, lane: Lane) -> Availability:
        """What the lane needs on this machine to speak to a browser, and whether one answers."""
        availability = lane.available()
        if not availability.available:
            return availability
        browser = str(self._ask().get("Browser", "browser"))
        version = availability.details.get("runtime_version")
        on = f"{browser} at {self._url}, {lane.runtime} {version}"
        return Availability(True, on=on, details={"runtime_version": version, "browser": browser})

    def runtime_version(self, lane: Lane, options: dict[str, Json]) -> str | None:
        """What the lane serves to the browser."""
        return lane.runtime_version(options)

    def run_jobs(
        self,
        lane_name: str,
        jobs: Sequence[Job],
        *,
        time_limit_s: float = 300.0,
        memory_limit: int | None = None,
        stop: threading.Event | None = None,
    ) -> list[JobOutcome]:
        """Run jobs on pages of the browser; see `Device.run_jobs`."""
        jobs = [dataclasses.replace(job, options={**job.options, "cdp": self._url}) for job in jobs]
        return self._desk.run_jobs(
            lane_name, jobs, time_limit_s=time_limit_s, memory_limit=memory_limit, stop=stop
        )
