"""The options of verbs that measure in browsers."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

Adapter = Annotated[
    str,
    typer.Option(help="WebGPU adapter: swiftshader (software), hardware, or auto: hardware where there is one."),
]
Cdp = Annotated[
    str | None,
    typer.Option(
        help="Attach to a running Chromium by its DevTools address, such as http://localhost:9222 (a phone: adb "
        "forward tcp:9222 localabstract:chrome_devtools_remote). It must reach this machine's --port."
    ),
]
Port = Annotated[
    int,
    typer.Option(
        min=0,
        max=65535,
        help="Loopback port that serves the page; 0: a random one. For --cdp: adb reverse tcp:PORT.",
    ),
]
LiteRtJs = Annotated[str | None, typer.Option("--litertjs", help="Version of LiteRT.js.", show_default="2.5.3")]
WasmThreads = Annotated[
    int | None,
    typer.Option(min=1, max=256, help="Threads of WebAssembly; more than 1 take the threaded build."),
]
Jspi = Annotated[
    bool | None,
    typer.Option(
        "--jspi/--no-jspi",
        help="The build with JavaScript Promise Integration, or the one without. Default: with, where the browser "
        "has it.",
    ),
]
Precision = Annotated[
    str | None, typer.Option(help="Arithmetic of WebGPU and WebNN: fp32 or fp16. Default: LiteRT.js decides.")
]
Experimental = Annotated[bool, typer.Option("--experimental", help="Allow experimental lanes: webnn.")]


def lane_options(
    lanes: Sequence[str],
    *,
    adapter: str,
    cdp: str | None,
    port: int,
    litertjs: str | None,
    wasm_threads: int | None,
    jspi: bool | None,
    precision: str | None,
    experimental: bool,
    machine_label: str | None,
) -> dict[str, Any]:
    """The lane options for `Settings.options`, checked before anything is measured.

    Raises:
        AssayError: A value is not possible, a lane is experimental, or that LiteRT.js is not installed.
    """
    from assay.errors import AssayError
    from assay.lanes.browser.chromium import BrowserOptions
    from assay.lanes.browser.litertjs import require

    if "webnn" in lanes and not experimental:
        raise AssayError("the lane webnn is experimental", fix="add --experimental")
    given = {
        "adapter": adapter if adapter != "auto" else None,
        "cdp": cdp,
        "port": port or None,
        "litertjs": litertjs,
        "wasm_threads": wasm_threads,
        "jspi": jspi,
        "precision": precision,
        "experimental": experimental or None,
        "machine_label": machine_label,
    }
    options = {name: value for name, value in given.items() if value is not None}
    BrowserOptions.of(options)
    if litertjs is not None:
        require(litertjs)
    return options
