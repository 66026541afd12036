"""The environment block of a browser record: what the page and the browser said, nothing assumed."""

from __future__ import annotations

import platform
from typing import Any

SOFTWARE_ADAPTERS = ("swiftshader", "llvmpipe", "lavapipe", "basic render", "warp")
"""Names under which adapters that compute on the CPU appear."""


def is_software(webgpu: dict[str, Any]) -> bool | None:
    """Whether a page's WebGPU adapter computes on the CPU; None where there is no adapter."""
    adapter = webgpu.get("adapter")
    if not adapter:
        return None
    text = " ".join(str(value) for value in adapter.values()).lower()
    return webgpu.get("is_fallback") is True or any(name in text for name in SOFTWARE_ADAPTERS)


def adapter_name(webgpu: dict[str, Any]) -> str | None:
    """One line that names a page's WebGPU adapter."""
    adapter = webgpu.get("adapter")
    if not adapter:
        return None
    parts = [adapter.get("vendor"), adapter.get("architecture"), adapter.get("device"), adapter.get("description")]
    return " ".join(part for part in parts if part) or "unnamed adapter"


def browser_env(
    page: dict[str, Any],
    *,
    browser_version: str,
    litertjs_version: str,
    wasm_file: str,
    remote: bool,
) -> dict[str, Any]:
    """The `env` object of a browser run.

    Args:
        page: What `describeBrowser` in the page returned.
        browser_version: As the DevTools protocol tells it.
        litertjs_version: Version in the package that was served.
        wasm_file: File of the WebAssembly build that the page fetched.
        remote: True if the browser may run on another machine than this one.

    Returns:
        Its fields; None for what the browser does not tell.
    """
    hints: dict[str, Any] = page.get("ua") or {}
    webgpu: dict[str, Any] = page.get("webgpu") or {}
    name, version = _system(hints, remote)
    features: list[str] | None = webgpu.get("features")
    return {
        "browser": _product(hints),
        "browser_version": browser_version,
        "cross_origin_isolated": page.get("cross_origin_isolated"),
        "headless": "headless" in str(page.get("user_agent", "")).lower(),
        "jspi": "jspi" in wasm_file,
        "jspi_supported": page.get("jspi_supported"),
        "litertjs_core_version": litertjs_version,
        "machine_label": hints.get("model") or "remote-browser" if remote else None,
        "os": name,
        "os_version": version,
        "shader_f16": None if features is None else "shader-f16" in features,
        "wasm_build": wasm_build(wasm_file),
        "webgpu_adapter": webgpu.get("adapter"),
        "webgpu_adapter_kind": {True: "software", False: "hardware", None: None}[is_software(webgpu)],
    }


def wasm_build(wasm_file: str) -> str | None:
    """Which WebAssembly build a file is: `jspi`, `threaded`, `compat` or `single`; None for no file."""
    if not wasm_file:
        return None
    return next((build for build in ("jspi", "threaded", "compat") if build in wasm_file), "single")


def _product(hints: dict[str, Any]) -> str:
    brands = {str(brand.get("brand", "")) for brand in hints.get("fullVersionList") or []}
    for brand, product in (("Google Chrome", "chrome"), ("Microsoft Edge", "edge"), ("Opera", "opera")):
        if brand in brands:
            return product
    return "chromium"


def _system(hints: dict[str, Any], remote: bool) -> tuple[str | None, str | None]:
    """Name and version of the browser's system; browsers on Linux tell no version, so ours is read here."""
    told = hints.get("platform") or None, hints.get("platformVersion") or None
    if remote or platform.system() != "Linux":
        return told
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return told[0] or platform.system(), told[1] or platform.release()
    return release.get("NAME"), release.get("VERSION_ID")
