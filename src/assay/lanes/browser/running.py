"""A running browser with the server of its pages: started here, or attached to where it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from assay.errors import AssayError
from assay.lanes.browser import chromium, litertjs
from assay.lanes.browser.options import BrowserOptions
from assay.lanes.browser.server import Server
from assay.processes import kill_all

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page, Playwright

_OPEN_TIMEOUT_S = 60.0
_CLOSE_TIMEOUT_S = 5.0


class RunningBrowser:
    """A running browser with the server of its pages. For one thread.

    Args:
        options: Which browser, which adapter, which LiteRT.js.

    Attributes:
        options: As given.
        runtime: The LiteRT.js that its pages load.
        server: The server of its pages.
        version: The browser's version, as it says.

    Raises:
        AssayError: Playwright, the browser or the runtime is missing, or the browser cannot be reached.
    """

    def __init__(self, options: BrowserOptions) -> None:
        if not chromium.has_playwright():
            raise AssayError("the browser lanes need Playwright", fix=chromium.INSTALL_PLAYWRIGHT)
        self.options = options
        self.runtime = litertjs.require(options.litertjs)
        self.version = ""
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._scratch = Path(tempfile.mkdtemp(prefix="browser-"))
        self.server = Server(self.runtime, options.port)
        self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(self._open())
        except BaseException:
            self.close()
            raise

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something with the browser, to its end."""
        self._loop.run_until_complete(work)

    def close(self) -> None:
        """End the browser, whatever state it is in, and leave no file and no process."""
        # A browser that hangs does not answer: its processes are noted before it is asked to go.
        processes = psutil.Process().children(recursive=True)
        with contextlib.suppress(Exception):
            self._loop.run_until_complete(asyncio.wait_for(self._shut(), _CLOSE_TIMEOUT_S))
        kill_all(processes)
        psutil.wait_procs(processes, timeout=_CLOSE_TIMEOUT_S)
        self.server.close()
        self._loop.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    async def _open(self) -> None:
        from playwright.async_api import Error, async_playwright

        # What a browser leaves behind that is killed goes with this folder.
        before = os.environ.get("TMPDIR")
        os.environ["TMPDIR"] = str(self._scratch)
        try:
            self._playwright = await async_playwright().start()
            engine = self._playwright.chromium
            if self.options.cdp:
                self._browser = await engine.connect_over_cdp(
                    self.options.cdp, timeout=_OPEN_TIMEOUT_S * 1e3, no_defaults=True
                )
            else:
                adapter = chromium.resolve_adapter(self.options.adapter)
                self._browser = await engine.launch(
                    executable_path=chromium.find(),
                    args=chromium.launch_arguments(adapter, webnn=self.options.experimental),
                    chromium_sandbox=chromium.can_sandbox(),
                    timeout=_OPEN_TIMEOUT_S * 1e3,
                )
        except Error as error:
            where = self.options.cdp or str(chromium.find())
            raise AssayError(f"cannot start or reach the browser at {where}: {first_line(error)}") from error
        finally:
            if before is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = before
        self.version = self._browser.version

    async def _shut(self) -> None:
        if self._browser is not None:
            await self._browser.close()
        if self._playwright is not None:
            await self._playwright.stop()

    async def new_page(self) -> tuple[Page, BrowserContext | None]:
        """A page, and the context made for it; None for the context where the browser can make no other."""
        from playwright.async_api import Error

        assert self._browser is not None
        try:
            context = await self._browser.new_context()
        except Error:
            # Chrome on Android knows one context only.
            if not self.options.cdp or not self._browser.contexts:
                raise
            return await self._browser.contexts[0].new_page(), None
        return await context.new_page(), context


def first_line(error: Exception) -> str:
    """The first line of an error's text; its type where it has none."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
