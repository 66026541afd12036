"""The browser: find the system's Chromium, start it so that WebGPU works, and attach to one elsewhere."""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from assay.errors import AssayError
from assay.lanes.browser.litertjs import DEFAULT_VERSION, check_version

_COMMANDS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge"]
_PLACES = [
    "/usr/bin/chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
]
INSTALL_PLAYWRIGHT = "pip install 'assay[browser]'"
ADAPTERS = ("auto", "swiftshader", "hardware")


@dataclass(frozen=True)
class BrowserOptions:
    """How a browser lane runs; the options of a `Job`, checked.

    Attributes:
        adapter: WebGPU adapter: `swiftshader` (software), `hardware`, or `auto`: hardware where the machine
            shows a graphics device, else software.
        cdp: Address of a running browser's DevTools port, such as `http://localhost:9222`; None starts one here.
        port: Loopback port of the server; 0 for a random one. A fixed one can be forwarded to a device.
        litertjs: Version of LiteRT.js.
        wasm_threads: Threads of the threaded WebAssembly build; None or 1 for a single-threaded build.
        jspi: The build with JavaScript Promise Integration or the one without; None for the one with it where
            the browser has it and no threads are asked for.
        precision: Arithmetic that WebGPU or WebNN may use, `fp16` or `fp32`; None leaves it to LiteRT.js.
        machine_label: Name of the machine in records; None for the host's name.
        experimental: Whether experimental lanes may run.
    """

    adapter: str = "auto"
    cdp: str | None = None
    port: int = 0
    litertjs: str = DEFAULT_VERSION
    wasm_threads: int | None = None
    jspi: bool | None = None
    precision: str | None = None
    machine_label: str | None = None
    experimental: bool = False

    @classmethod
    def of(cls, options: dict[str, Any]) -> BrowserOptions:
        """The options among those of a job; options of other lanes are left alone.

        Raises:
            AssayError: A value is not one that it can have.
        """
        names = {field.name for field in fields(cls)}
        chosen = cls(**{name: value for name, value in options.items() if name in names and value is not None})
        check_version(chosen.litertjs)
        if chosen.adapter not in ADAPTERS:
            raise AssayError(f"no adapter {chosen.adapter!r}", fix=f"choose from {', '.join(ADAPTERS)}")
        if chosen.precision not in (None, "fp16", "fp32"):
            raise AssayError(f"no precision {chosen.precision!r}", fix="choose fp16 or fp32")
        if chosen.jspi and chosen.threaded:
            raise AssayError(
                "LiteRT.js has no build with both JSPI and threads", fix="leave out --jspi or --wasm-threads"
            )
        return chosen

    @property
    def threaded(self) -> bool:
        """Whether the threaded WebAssembly build is asked for."""
        return self.wasm_threads is not None and self.wasm_threads > 1


def find() -> Path:
    """The system's Chromium: `ASSAY_CHROMIUM`, else the first one on PATH or in its usual place.

    Raises:
        AssayError: There is none.
    """
    if chosen := os.environ.get("ASSAY_CHROMIUM"):
        found = shutil.which(chosen)
        if found is None:
            raise AssayError(f"ASSAY_CHROMIUM names {chosen!r}, which cannot be run")
        return Path(found)
    for name in [*_COMMANDS, *_PLACES]:
        if found := shutil.which(name):
            return Path(found)
    raise AssayError(
        "no Chromium or Chrome found", fix="install one (Debian: apt install chromium) or set ASSAY_CHROMIUM"
    )


@functools.cache
def version(browser: Path) -> str:
    """What the browser says of its version, or an empty string."""
    try:
        done = subprocess.run(
            [str(browser), "--version"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def has_playwright() -> bool:
    """Whether the `browser` extra is installed."""
    return importlib.util.find_spec("playwright") is not None


def resolve_adapter(adapter: str) -> str:
    """`swiftshader` or `hardware`: for `auto`, hardware where the machine shows a graphics device."""
    if adapter != "auto":
        return adapter
    if sys.platform.startswith("linux"):
        return "hardware" if any(Path("/dev/dri").glob("renderD*")) else "swiftshader"
    return "hardware"


def launch_arguments(adapter: str, *, webnn: bool = False) -> list[str]:
    """Chromium's arguments for an adapter, `swiftshader` or `hardware`; `ASSAY_CHROMIUM_ARGS` adds more."""
    arguments = ["--enable-unsafe-webgpu"]
    features: list[str] = []
    if adapter == "swiftshader":
        arguments.append("--use-webgpu-adapter=swiftshader")
    elif sys.platform.startswith("linux"):
        arguments.append("--ignore-gpu-blocklist")
        features.append("Vulkan")
    if webnn:
        features.append("WebMachineLearningNeuralNetwork")
    if features:
        arguments.append(f"--enable-features={','.join(features)}")
    return arguments + shlex.split(os.environ.get("ASSAY_CHROMIUM_ARGS", ""))


def can_sandbox() -> bool:
    """Whether Chromium's sandbox can work: it refuses to for the superuser."""
    return not (hasattr(os, "geteuid") and os.geteuid() == 0)
