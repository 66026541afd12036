"""The browser: find the system's Chromium, start it so that WebGPU works, and attach to one elsewhere."""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from assay.distribution import install
from assay.errors import AssayError

_COMMANDS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge"]
_PLACES = [
    "/usr/bin/chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
]
INSTALL_PLAYWRIGHT = install("browser")


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
