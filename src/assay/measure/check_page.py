"""The check page: a person drops a model on it and sees, live, what this browser makes of it on both lanes.

It is `assay.measure.run` with the user's own browser for the browser lanes: the page asks what to do next, runs it
in a frame, and sends back what came of it. Reference, verdict and records are made here, as for any other run.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay.devices.base import Device, DeviceFacts, JobOutcome
from assay.devices.local import LocalDevice
from assay.errors import AssayError
from assay.evidence import litertjs_log
from assay.lanes.base import Availability, Lane
from assay.lanes.browser import BrowserLane
from assay.lanes.browser.litertjs import Runtime
from assay.lanes.browser.options import BrowserOptions
from assay.lanes.browser.page_job import BrowserFailure, PageEvent, PageJob
from assay.lanes.browser.server import Body, Server, save_body
from assay.lanes.job import Job, Observation, save_observation
from assay.lanes.registry import find
from assay.measure.run import CardBuilder, RunResult, run_models
from assay.measure.settings import Settings
from assay.measure.sweep import sweep_lanes
from assay.models.artifact import slug
from assay.protocol.machine import State
from assay.scratch import Scratch

_POLL_S = 20.0
_MODEL_LIMIT = 2**32


class _PageDevice(Device):
    """The browser of whoever has the check page open."""

    address = "check page"
    kind = "browser"

    def __init__(self, runtime: Runtime, run: Callable[[str, Job, float], JobOutcome]) -> None:
        self._runtime, self._run = runtime, run

    def facts(self) -> DeviceFacts:
        """What its page tells comes with each run; the page is open on this machine."""
        return LocalDevice().facts()

    def close(self) -> None:
        """The page is its reader's."""

    def state(self) -> State:
        """Nobody tells."""
        return State(None, None, None)

    def look(self, lane: Lane) -> Availability:
        """The page is open, and the server has the runtime."""
        return Availability(True, on="this browser", details={"runtime_version": self._runtime.version})

    def run_jobs(
        self,
        lane_name: str,
        jobs: Sequence[Job],
        *,
        time_limit_s: float = 300.0,
        memory_limit: int | None = None,
        stop: threading.Event | None = None,
    ) -> list[JobOutcome]:
        """Run jobs in frames of the page; the browser's memory cannot be watched from here."""
        return [self._run(lane_name, job, time_limit_s) for job in jobs]


class CheckServer:
    """Serves the check page and does what is asked on it, one model at a time. A context manager.

    Args:
        runtime: The LiteRT.js that the page runs.
        port: Loopback port; 0 for a random one.
        out: Folder of records and cards; None keeps nothing.
        runs: Timed inferences.
        budget_s: Seconds after which timing of a slow model ends early.
        card: Builds a model's card; None leaves cards out.

    Attributes:
        url: Address of the page.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        port: int = 0,
        out: Path | None = None,
        runs: int = 30,
        budget_s: float = 10.0,
        card: CardBuilder | None = None,
    ) -> None:
        self._card = card
        self._scratch = Scratch()
        self._folder = self._scratch.path
        self._runtime = runtime
        self._out = out
        self._runs = runs
        self._budget_s = budget_s
        self._server = Server(runtime, port)
        self._server.receive("upload", self._upload)
        self._server.receive("start", self._start)
        self._server.receive("events", self._poll)
        self._events: list[dict[str, Any]] = []
        self._told = threading.Condition()
        self._busy = threading.Lock()
        self._closing = threading.Event()
        self._frames: queue.Queue[PageEvent] = queue.Queue()
        self._jobs = 0
        self.url = f"{self._server.url}check.html"

    def __enter__(self) -> CheckServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> None:
        """Serve until the program is interrupted."""
        while not self._closing.wait(3600):
            pass

    def close(self) -> None:
        """Stop, and delete the models that were dropped."""
        self._closing.set()
        self._frames.put(PageEvent("gone"))
        with self._told:
            self._told.notify_all()
        # A check that is under way ends at its next step; the process does not wait for more than that.
        with contextlib.suppress(RuntimeError):
            if self._busy.acquire(timeout=5):
                self._busy.release()
        self._server.close()
        self._scratch.close()

    def _tell(self, kind: str, **data: Any) -> None:
        with self._told:
            self._events.append({"kind": kind, **data})
            self._told.notify_all()

    def _poll(self, body: Body, length: int) -> bytes:
        """Events after those that the page has; waits a while for the first."""
        since = int(json.loads(body.read(length))["since"])
        with self._told:
            self._told.wait_for(lambda: len(self._events) > since or self._closing.is_set(), _POLL_S)
            return json.dumps(self._events[since:]).encode()

    def _upload(self, body: Body, length: int) -> bytes:
        if length > _MODEL_LIMIT:
            return json.dumps({"error": "the file is larger than WebAssembly can address"}).encode()
        if not self._busy.acquire(blocking=False):
            return json.dumps({"error": "another model is being checked"}).encode()
        try:
            save_body(body, length, self._folder / "incoming")
        except BaseException:
            self._busy.release()
            raise
        return b"{}"

    def _start(self, body: Body, length: int) -> bytes:
        """Begin with the file that was uploaded, whose lock this takes over."""
        name = str(json.loads(body.read(length))["name"])
        path = self._folder / f"{slug(Path(name).stem) or 'model'}.tflite"
        (self._folder / "incoming").replace(path)
        threading.Thread(target=self._check, args=(path,), daemon=True).start()
        return b"{}"

    def _check(self, path: Path) -> None:
        out = self._out or self._folder / "records"
        settings = Settings(
            lanes=sweep_lanes(),
            runs=self._runs,
            budget_s=self._budget_s,
            out=out,
            options={"litertjs": self._runtime.version},
            command=("assay", "browser", "check"),
        )
        errors: list[str] = []
        try:
            report = run_models(
                [path],
                settings,
                notify=lambda text: self._tell("note", text=text),
                done=self._tell_result,
                among=[_PageDevice(self._runtime, self._run_job)],
                card=self._card,
            )
            errors = report.errors
        except AssayError as error:
            errors = [str(error)]
        finally:
            path.unlink(missing_ok=True)
            self._busy.release()
        # The page knows the file by the name it was dropped with.
        self._tell("end", errors=[text.replace(f"{self._folder}/", "") for text in errors])

    def _tell_result(self, result: RunResult) -> None:
        run = result.entry.run.model_dump(mode="json")
        refused = [op.model_dump(mode="json") for op in result.entry.refused_ops]
        self._tell("run", lane=result.lane, signature=result.signature, run=run, refused_ops=refused)

    def _run_job(self, lane_name: str, job: Job, time_limit_s: float) -> JobOutcome:
        """Run a job of a browser lane in a frame of the page."""
        lane = find(lane_name)
        assert isinstance(lane, BrowserLane), "the page is asked for browser lanes only"
        Path(job.workdir).mkdir(parents=True, exist_ok=True)
        observation = Observation()
        page_job = PageJob(
            job,
            observation,
            lane.accelerator,
            BrowserOptions.of(job.options),
            litertjs_version=self._runtime.version,
            browser_version=None,
            own_browser=False,
        )
        self._jobs += 1
        prefix = f"job{self._jobs}/"
        self._frames = queue.Queue()
        self._server.mirror(prefix)
        page_job.publish(self._server, prefix, self._frames.put)
        self._tell("job", lane=lane_name, url=f"{prefix}frame.html")
        timed_out = False
        try:
            self._follow(page_job, time.monotonic() + time_limit_s)
        except queue.Empty:
            timed_out = True
        except BrowserFailure as failure:
            observation.error, observation.error_class = str(failure), failure.failure
        finally:
            page_job.withdraw(self._server, prefix)
            self._server.forget(prefix)
            self._tell("over", lane=lane_name)
        save_observation(job, observation)
        return JobOutcome(
            observation=observation,
            log="\n".join(page_job.console),
            returncode=0,
            timed_out=timed_out,
            out_of_memory=False,
            flooded=False,
            workdir=Path(job.workdir),
        )

    def _follow(self, page_job: PageJob, end: float) -> None:
        """Take a frame's reports until its job is done.

        Raises:
            queue.Empty: It took too long.
            BrowserFailure: It failed.
        """
        while True:
            event = self._frames.get(timeout=max(end - time.monotonic(), 0.01))
            if event.kind == "gone":
                raise AssayError("the check was stopped")
            page_job.console += [litertjs_log.plain(line) for line in event.data.get("console") or []]
            page_job.take(event.data["report"])
            if failure := page_job.failure(event):
                raise failure
            if page_job.enter(str(event.data["stage"])):
                return
            event.answered.set()
