"""Drives one job on one page of a browser, from outside of it."""

from __future__ import annotations

import asyncio
import sys
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.evidence import litertjs_log
from assay.lanes.browser.page_job import BrowserFailure, PageEvent, PageJob
from assay.lanes.browser.running import first_line
from assay.lanes.job import Job, Observation
from assay.records.failure import FailureClass

if TYPE_CHECKING:
    from playwright.async_api import Page

    from assay.lanes.browser.running import RunningBrowser

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


class Measurement:
    """One job on one page of a session; see `run`."""

    def __init__(self, browser: RunningBrowser, job: Job, observation: Observation, accelerator: str) -> None:
        self._browser = browser
        self._job = job
        self._observation = observation
        self._page_job = PageJob(
            job,
            observation,
            accelerator,
            browser.options,
            litertjs_version=browser.runtime.version,
            browser_version=browser.version,
            own_browser=browser.options.cdp is None,
        )
        self._events: asyncio.Queue[PageEvent] = asyncio.Queue()
        self._over = False

    async def run(self) -> None:
        """Open the page and follow it to the end of the job.

        Raises:
            BrowserFailure: The job failed; the page may be in any state.
        """
        from playwright.async_api import Error

        loop = asyncio.get_running_loop()

        def notify(event: PageEvent) -> None:
            loop.call_soon_threadsafe(self._events.put_nowait, event)

        self._page_job.publish(self._browser.server, "", notify)
        try:
            page, context = await self._browser.new_page()
            page.on("console", lambda message: self._say(message.type, message.text))
            page.on("pageerror", lambda error: self._say("uncaught", str(error)))
            page.on("crash", lambda _: self._events.put_nowait(PageEvent("crash")))
            page.on("close", lambda _: self._events.put_nowait(PageEvent("gone")))
            await page.goto(self._browser.server.url + "run.html", wait_until="commit")
            await self._follow(page)
            await (page.close() if context is None else context.close())
        except Error as error:
            raise BrowserFailure(FailureClass.CRASHED, f"the browser is gone: {first_line(error)}") from error
        finally:
            # What the page says once nobody answers it any more is not about the model.
            self._over = True
            self._page_job.withdraw(self._browser.server, "")

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
            self._page_job.take(event.data["report"])
            if failure := self._page_job.failure(event):
                raise await self._explained(failure, page)
            if self._page_job.enter(str(event.data["stage"])):
                return
            event.answered.set()

    async def _explained(self, failure: BrowserFailure, page: Page) -> BrowserFailure:
        """The failure, with want of memory for its cause where WebAssembly turns out to be full."""
        if failure.failure not in _CERTAIN and (short := await self._memory_short(page)):
            return BrowserFailure(FailureClass.WASM_MEMORY_CEILING, f"{short}; {failure}")
        return failure

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

    def _say(self, kind: str, text: str) -> None:
        if self._over:
            return
        # The console's own type says nothing: LiteRT.js logs all levels as errors. Errors that nobody caught do.
        mark = f"{kind}: " if kind in ("uncaught", "assay") else ""
        for line in litertjs_log.plain(text).splitlines():
            self._page_job.console.append(mark + line)
            print(mark + line, file=sys.stderr, flush=True)


def _least_memory(job: Job) -> int:
    """Bytes that a graph's values need at once, at the least; its inputs and outputs where shapes are open."""
    from assay import graph
    from assay.graph.facts import summarize

    model = graph.read(job.model)
    facts = summarize(model).subgraphs[model.signature(job.signature).subgraph]
    if facts.activations_bytes is not None:
        return facts.activations_bytes
    return sum(prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in job.inputs + job.outputs)
