"""One job on one page: what the page reports becomes the observation, and a failure gets its class."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.evidence import litertjs_log
from assay.lanes.base import Job, Observation, TensorSpec, save_observation
from assay.lanes.browser.environment import browser_env, is_software
from assay.lanes.browser.server import Body, Receiver, save_body
from assay.lanes.native import Array, load_arrays, save_arrays
from assay.protocol import machine
from assay.records.failure import FailureClass

if TYPE_CHECKING:
    from playwright.async_api import Page

    from assay.lanes.browser.session import Session

_SYNC_TIMEOUT_S = 30.0
_MIB = 2**20

# Failures that want of memory does not explain.
_CERTAIN = frozenset(
    {
        FailureClass.DEVICE_LOST,
        FailureClass.INVALID_MODEL,
        FailureClass.MISSING_JSPI,
        FailureClass.NO_ACCELERATOR,
        FailureClass.UNSUPPORTED_DTYPE,
        FailureClass.UNSUPPORTED_OP,
        FailureClass.UNSUPPORTED_SHAPE,
        FailureClass.WASM_MEMORY_CEILING,
    }
)


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
class _Event:
    """Something that the page, or the browser about the page, reports."""

    kind: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    answered: threading.Event = field(default_factory=threading.Event)


class Measurement:
    """One job on one page: what the page reports becomes the observation."""

    def __init__(self, session: Session, job: Job, observation: Observation, accelerator: str) -> None:
        self._session = session
        self._job = job
        self._observation = observation
        self._accelerator = accelerator
        self._options = session.options
        self._console: list[str] = []
        self._events: asyncio.Queue[_Event] = asyncio.Queue()
        self._waiting: list[_Event] = []
        self._outputs = Path(job.workdir) / "outputs"
        self._over = False
        self._clock: tuple[machine.State, machine.Clock] | None = None

    async def run(self) -> None:
        """Open the page and follow it to the end of the job.

        Raises:
            BrowserFailure: The job failed; the page may be in any state.
        """
        from playwright.async_api import Error

        self._publish(asyncio.get_running_loop())
        try:
            page, context = await self._session.new_page()
            page.on("console", lambda message: self._say(message.type, message.text))
            page.on("pageerror", lambda error: self._say("uncaught", str(error)))
            page.on("crash", lambda _: self._events.put_nowait(_Event("crash")))
            page.on("close", lambda _: self._events.put_nowait(_Event("gone")))
            await page.goto(self._session.server.url + "run.html", wait_until="commit")
            await self._follow(page)
            await (page.close() if context is None else context.close())
        except Error as error:
            raise BrowserFailure(FailureClass.CRASHED, f"the browser is gone: {first_line(error)}") from error
        finally:
            # What the page says once nobody answers it any more is not about the model.
            self._over = True
            for event in self._waiting:
                event.answered.set()
            for name in ("job.json", "model", "input/", "output/", "outputs/", "stage", "failure"):
                self._session.server.forget(name)

    async def _follow(self, page: Page) -> None:
        while True:
            event = await self._events.get()
            stage = self._observation.stage
            if event.kind in ("crash", "gone"):
                what = "crashed" if event.kind == "crash" else "went away"
                raise BrowserFailure(FailureClass.CRASHED, f"the page {what} in stage {stage!r}")
            try:
                # What the console said before this event has arrived once the page answers.
                async with asyncio.timeout(_SYNC_TIMEOUT_S):
                    await page.evaluate("0")
            except TimeoutError:
                raise BrowserFailure(FailureClass.TIMED_OUT, f"the page hangs in stage {stage!r}") from None
            self._take(event.data["report"])
            await self._stop_if_failed(page, event)
            if self._enter(str(event.data["stage"])):
                return
            event.answered.set()

    async def _stop_if_failed(self, page: Page, event: _Event) -> None:
        """Raise what the page reports as failed, and what the console says that no call reported."""
        silent = litertjs_log.silent_failure(self._console)
        if event.kind != "failure" and silent is None:
            return
        if event.kind == "failure":
            error, stage = str(event.data["error"]), str(event.data["stage"])
            failure = litertjs_log.classify(error, self._console)
            text = f"{stage}: {litertjs_log.summary(error, self._console)}{self._tensors_of(failure, error)}"
        else:
            failure = FailureClass.SILENT_RUN_FAILURE
            text = f"the calls reported success after the console said: {silent}"
        if failure not in _CERTAIN and (short := await self._memory_short(page)):
            failure, text = FailureClass.WASM_MEMORY_CEILING, f"{short}; {text}"
        raise BrowserFailure(failure, text)

    async def _memory_short(self, page: Page) -> str | None:
        """A sentence, if WebAssembly cannot hold what the graph needs at the least; else None."""
        needed = _least_memory(self._job)
        try:
            async with asyncio.timeout(_SYNC_TIMEOUT_S):
                memory: dict[str, Any] | None = await page.evaluate("n => self.assayMemory?.(n)", needed)
        except Exception:
            return None
        if not memory or memory["can_allocate"] is not False:
            return None
        sentence = (
            f"WebAssembly has {memory['wasm_memory_mb']:.0f} MiB and cannot allocate {needed / _MIB:.0f} MiB "
            "more, which the graph's tensors need at once"
        )
        self._say("assay", sentence)
        return sentence

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

    def _publish(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell the server what this job's page may fetch and send."""
        server, job = self._session.server, self._job
        self._outputs.mkdir(exist_ok=True)
        server.serve("model", Path(job.model))
        server.serve("job.json", json.dumps(self._page_job()).encode())
        for position, path in enumerate(job.input_sets):
            for index in range(len(job.inputs)):
                server.serve(f"input/{position}/{index}", _input_bytes(path, index))

        def hand_over(kind: str) -> Receiver:
            def receive(body: Body, length: int) -> None:
                event = _Event(kind, json.loads(body.read(length)))
                self._waiting.append(event)
                loop.call_soon_threadsafe(self._events.put_nowait, event)
                event.answered.wait()

            return receive

        server.receive("stage", hand_over("stage"))
        server.receive("failure", hand_over("failure"))
        for position in range(len(job.sequence)):
            server.receive(f"outputs/{position}", self._output_list(position))
            # More outputs than the file declares have no address to go to.
            for index in range(len(job.outputs)):
                path = self._outputs / f"{position}.{index}.raw"
                server.receive(f"output/{position}/{index}", lambda body, n, path=path: save_body(body, n, path))

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

    def _say(self, kind: str, text: str) -> None:
        if self._over:
            return
        # The console's own type says nothing: LiteRT.js logs all levels as errors. Errors that nobody caught do.
        mark = f"{kind}: " if kind in ("uncaught", "assay") else ""
        for line in text.splitlines():
            self._console.append(mark + line)
            print(mark + line, file=sys.stderr, flush=True)

    def _take(self, report: dict[str, Any]) -> None:
        """Move what the page has measured so far into the observation."""
        observation = self._observation
        observation.load_ms = report.get("load_ms")
        observation.first_run_ms = report.get("first_run_ms")
        observation.samples_ms = report["samples_ms"]
        observation.budget_hit = bool(report.get("budget_hit"))
        facts: dict[str, Any] = report["facts"]
        observation.facts.update(facts)
        if page := facts.get("browser"):
            observation.facts["env"] = browser_env(
                page,
                browser_version=self._session.version,
                litertjs_version=self._session.runtime.version,
                wasm_file=str((facts.get("runtime") or {}).get("wasm_file", "")),
                remote=self._options.cdp is not None,
                label=self._options.machine_label,
            )

    def _enter(self, stage: str) -> bool:
        """What is to be done as the page begins a stage; True if it was the last."""
        observation = self._observation
        if stage == "runtime":
            self._check_adapter()
        local = self._options.cdp is None
        if stage == "warmup" and local:
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


def _least_memory(job: Job) -> int:
    """Bytes that a graph's values need at once, at the least; its inputs and outputs where shapes are open."""
    from assay import graph
    from assay.graph.facts import summarize

    model = graph.read(job.model)
    facts = summarize(model).subgraphs[model.signature(job.signature).subgraph]
    if facts.activations_bytes is not None:
        return facts.activations_bytes
    return sum(prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in job.inputs + job.outputs)


def _input_bytes(path: str, index: int) -> Callable[[], bytes]:
    # Read when the page asks: a job's inputs are not all held in memory.
    def read() -> bytes:
        return load_arrays(path)[index].tobytes()

    return read


def first_line(error: Exception) -> str:
    """The first line of an error's text; its type where it has none."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
