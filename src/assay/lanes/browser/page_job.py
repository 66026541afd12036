"""One job on one page: what the page may fetch and send, and what its reports become in the observation."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assay.evidence import litertjs_log
from assay.lanes.browser.environment import browser_env, is_software
from assay.lanes.browser.options import BrowserOptions
from assay.lanes.browser.server import Body, Receiver, Server, save_body
from assay.lanes.job import Job, Observation, TensorSpec, save_observation
from assay.lanes.native import Array, load_arrays, save_arrays
from assay.protocol import machine
from assay.records.failure import FailureClass


class BrowserFailure(Exception):
    """A job failed in a way that has a class.

    Args:
        failure: The class; None where only the log can tell.
        text: What happened, in one line.
    """

    def __init__(self, failure: FailureClass | None, text: str) -> None:
        super().__init__(text)
        self.failure = failure


@dataclass
class PageEvent:
    """Something that a page reports, or the browser about a page; a page waits until it is answered.

    Attributes:
        kind: `stage`, `failure`, `crash` or `gone`.
        data: What came with it.
        answered: Set when the page may go on.
    """

    kind: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    answered: threading.Event = field(default_factory=threading.Event)


class PageJob:
    """A job as its page sees it.

    Args:
        job: What to measure.
        observation: Filled as the page reports.
        accelerator: LiteRT.js's name for where to run: `wasm`, `webgpu` or `webnn`.
        options: How the browser runs.
        litertjs_version: Version of the LiteRT.js that is served.
        browser_version: As the DevTools protocol tells it; None leaves it to what the page tells.
        own_browser: True if the browser is a child of this process, so that the load of others can be told.

    Attributes:
        console: Lines of the page's console so far.
    """

    def __init__(
        self,
        job: Job,
        observation: Observation,
        accelerator: str,
        options: BrowserOptions,
        *,
        litertjs_version: str,
        browser_version: str | None,
        own_browser: bool,
    ) -> None:
        self.console: list[str] = []
        self._job = job
        self._observation = observation
        self._accelerator = accelerator
        self._options = options
        self._litertjs_version = litertjs_version
        self._browser_version = browser_version
        self._own_browser = own_browser
        self._waiting: list[PageEvent] = []
        self._outputs = Path(job.workdir) / "outputs"
        self._clock: tuple[machine.State, machine.Clock] | None = None

    def publish(self, server: Server, prefix: str, notify: Callable[[PageEvent], None]) -> None:
        """Let the server serve this job's files and take what its page sends.

        Args:
            server: The server of the page.
            prefix: Folder of the page below the server's address.
            notify: Given each event, in the thread of the request.
        """
        job = self._job
        self._outputs.mkdir(exist_ok=True)
        server.serve(f"{prefix}model", Path(job.model))
        server.serve(f"{prefix}job.json", json.dumps(self._page_job()).encode())
        for position, path in enumerate(job.input_sets):
            for index in range(len(job.inputs)):
                server.serve(f"{prefix}input/{position}/{index}", _input_bytes(path, index))

        def hand_over(kind: str) -> Receiver:
            def receive(body: Body, length: int) -> None:
                event = PageEvent(kind, json.loads(body.read(length)))
                self._waiting.append(event)
                notify(event)
                event.answered.wait()

            return receive

        server.receive(f"{prefix}stage", hand_over("stage"))
        server.receive(f"{prefix}failure", hand_over("failure"))
        for position in range(len(job.sequence)):
            server.receive(f"{prefix}outputs/{position}", self._output_list(position))
            # More outputs than the file declares have no address to go to.
            for index in range(len(job.outputs)):
                path = self._outputs / f"{position}.{index}.raw"
                server.receive(
                    f"{prefix}output/{position}/{index}", lambda body, n, path=path: save_body(body, n, path)
                )

    def withdraw(self, server: Server, prefix: str) -> None:
        """Serve and take nothing of this job any more, and let a page that waits go on."""
        for name in ("job.json", "model", "input/", "output/", "outputs/", "stage", "failure"):
            server.forget(prefix + name)
        for event in self._waiting:
            event.answered.set()

    def take(self, report: dict[str, Any]) -> None:
        """Move what the page has measured so far into the observation."""
        observation = self._observation
        observation.load_ms = report.get("load_ms")
        observation.first_run_ms = report.get("first_run_ms")
        observation.samples_ms = report["samples_ms"]
        observation.budget_hit = bool(report.get("budget_hit"))
        facts: dict[str, Any] = report["facts"]
        observation.facts.update(facts)
        observation.facts["precision"] = self._options.precision
        if page := facts.get("browser"):
            observation.facts["env"] = browser_env(
                page,
                browser_version=self._browser_version or _told_version(page),
                litertjs_version=self._litertjs_version,
                wasm_file=str((facts.get("runtime") or {}).get("wasm_file", "")),
                remote=self._options.cdp is not None,
            )

    def enter(self, stage: str) -> bool:
        """Note that the page begins a stage.

        Returns:
            True if it was the last.

        Raises:
            BrowserFailure: The browser lacks what the job asks for.
        """
        observation = self._observation
        if stage == "runtime":
            self._check_adapter()
        if stage == "warmup" and self._own_browser:
            self._clock = machine.read_state(), machine.read_clock()
        if stage == "timed":
            observation.warmup_runs = self._job.warmup
        if stage == "done" and self._clock is not None:
            state, clock = self._clock
            others = machine.others_cores(clock, machine.read_clock())
            after = machine.read_state()
            observation.state = {
                "before": state.to_dict(),
                "after": after.to_dict(),
                "others_cores": others,
                "disturbances": machine.disturbances(others, state, after),
            }
        observation.stage = "start" if stage == "runtime" else stage
        save_observation(self._job, observation)
        return stage == "done"

    def failure(self, event: PageEvent) -> BrowserFailure | None:
        """What the event reports as failed, or what the console says that no call reported; None for neither."""
        if event.kind == "failure":
            error, stage = str(event.data["error"]), str(event.data["stage"])
            failure = litertjs_log.classify(error, self.console)
            text = f"{stage}: {litertjs_log.summary(error, self.console)}{self._tensors_of(failure, error)}"
            return BrowserFailure(failure, text)
        if silent := litertjs_log.silent_failure(self.console):
            text = f"the calls reported success after the console said: {silent}"
            return BrowserFailure(FailureClass.SILENT_RUN_FAILURE, text)
        return None

    def _tensors_of(self, failure: FailureClass | None, error: str) -> str:
        """Which tensors of the file have the type that LiteRT.js refuses, for the end of a sentence."""
        if failure is not FailureClass.UNSUPPORTED_DTYPE:
            return ""
        named = re.search(r"(?:Element type|DType) (\w+)", error)
        if named is None:
            return ""
        dtype = named[1].lower()
        tensors = [
            f"{direction} {spec.name!r}"
            for direction, specs in (("input", self._job.inputs), ("output", self._job.outputs))
            for spec in specs
            if spec.dtype == dtype
        ]
        where = ", ".join(tensors) or "a tensor of another signature"
        return f" ({where})"

    def _page_job(self) -> dict[str, Any]:
        job, options = self._job, self._options
        return {
            "accelerator": self._accelerator,
            "signature": job.signature,
            "inputs": [{"name": s.name, "dtype": s.dtype, "shape": s.shape} for s in job.inputs],
            "input_sets": len(job.input_sets),
            "sequence": job.sequence,
            "warmup": job.warmup,
            "runs": job.runs,
            "budget_s": job.budget_s,
            "runtime": {"jspi": options.jspi, "threads": options.threaded},
            "compile": {"threads": options.wasm_threads, "precision": options.precision},
        }

    def _output_list(self, position: int) -> Receiver:
        """Collects one invocation's raw outputs, in the file's order, into the `.npz` that the host expects."""

        def receive(body: Body, length: int) -> None:
            sent = json.loads(body.read(length))
            arrays: list[Array] = []
            for index, output in enumerate(sent):
                path = self._outputs / f"{position}.{index}.raw"
                arrays.append(np.fromfile(path, dtype=np.dtype(output["dtype"])).reshape(output["shape"]))
                path.unlink()
            order = self._output_order(len(arrays))
            arrays = [arrays[index] for index in order]
            if position == 0:
                self._observation.output_specs = [
                    TensorSpec(spec.name, array.dtype.name, array.shape)
                    for spec, array in zip(self._job.outputs, arrays, strict=True)
                ]
            save_arrays(self._outputs / f"{position}.npz", arrays)

        return receive

    def _output_order(self, count: int) -> list[int]:
        """Where each output of the file is among those that LiteRT.js returns: by name, else by position."""
        told: list[dict[str, Any]] = self._observation.facts.get("outputs") or []
        theirs = [str(output["name"]) for output in told]
        ours = [spec.name for spec in self._job.outputs]
        if len(set(theirs)) == count and set(theirs) == set(ours):
            return [theirs.index(name) for name in ours]
        return list(range(count))

    def _check_adapter(self) -> None:
        """Stop where WebGPU is to serve the run and the browser has no adapter, or not the kind asked for."""
        if self._accelerator != "webgpu":
            return
        webgpu: dict[str, Any] = self._observation.facts["browser"]["webgpu"]
        software = is_software(webgpu)
        wanted = self._options.adapter
        if not webgpu["present"]:
            raise BrowserFailure(
                FailureClass.NO_ACCELERATOR, "the browser has no WebGPU (navigator.gpu is missing)"
            )
        if software is None:
            raise BrowserFailure(
                FailureClass.NO_ACCELERATOR, "WebGPU is there, but requestAdapter found no adapter"
            )
        if (wanted == "hardware" and software) or (wanted == "swiftshader" and not software):
            found = webgpu["adapter"]
            raise BrowserFailure(
                FailureClass.NO_ACCELERATOR, f"the adapter asked for is {wanted}, and the browser has {found}"
            )


def _input_bytes(path: str, index: int) -> Callable[[], bytes]:
    # Read when the page asks: a job's inputs are not all held in memory.
    def read() -> bytes:
        return load_arrays(path)[index].tobytes()

    return read


def _told_version(page: dict[str, Any]) -> str:
    """The browser's version among the brands that it tells, the made-up one left aside."""
    brands: list[dict[str, str]] = (page.get("ua") or {}).get("fullVersionList") or []
    known = [brand["version"] for brand in brands if "Brand" not in brand["brand"]]
    return known[0] if known else "unknown"
