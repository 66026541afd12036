"""Options of the browser lanes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field

from assay.errors import AssayError
from assay.lanes.browser.litertjs import DEFAULT_VERSION, check_version
from assay.lanes.options import LaneOptions


class BrowserOptions(LaneOptions):
    """How a browser lane runs; the options of a `Job`, checked."""

    adapter: Literal["auto", "swiftshader", "hardware"] = Field(
        default="auto",
        description="WebGPU adapter: swiftshader (software), hardware, or auto: hardware where there is one.",
    )
    cdp: str | None = Field(
        default=None,
        description="Attach to a running Chromium by its DevTools address, such as http://localhost:9222; the "
        "same as --on cdp://localhost:9222 (a phone: adb forward tcp:9222 "
        "localabstract:chrome_devtools_remote). It must reach this machine's --port.",
    )
    port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="Loopback port that serves the page; 0: a random one. For a phone: adb reverse tcp:PORT.",
    )
    litertjs: str = Field(default=DEFAULT_VERSION, description="Version of LiteRT.js.")
    wasm_threads: int | None = Field(
        default=None, ge=1, le=256, description="Threads of WebAssembly; more than 1 take the threaded build."
    )
    jspi: bool | None = Field(
        default=None,
        description="The build with JavaScript Promise Integration, or the one without. Default: with, where the "
        "browser has it.",
    )
    precision: Literal["fp16", "fp32"] | None = Field(
        default=None, description="Arithmetic of WebGPU and WebNN: fp32 or fp16. Default: LiteRT.js decides."
    )
    experimental: bool = Field(default=False, description="Allow experimental lanes: webnn.")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The options among those of a job; options of other lanes are left alone.

        Raises:
            AssayError: A value is not one that it can have.
        """
        chosen = super().of(options)
        check_version(chosen.litertjs)
        if chosen.jspi and chosen.threaded:
            raise AssayError(
                "LiteRT.js has no build with both JSPI and threads", fix="leave out --jspi or --wasm-threads"
            )
        return chosen

    @property
    def threaded(self) -> bool:
        """Whether the threaded WebAssembly build is asked for."""
        return self.wasm_threads is not None and self.wasm_threads > 1
