"""`assay browser`: the LiteRT.js of the browser lanes, and a page that checks a model."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, help="LiteRT.js for the browser lanes."
)


@app.command(epilog="Example: assay browser install --litertjs 2.5.2")
def install(
    litertjs: Annotated[
        str | None, typer.Option(help="Version, or `latest`.", show_default="the one Assay is tested with")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch it again.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Fetch LiteRT.js from npm into the cache; offline from then on.

    The registry is the one that npm is configured for. The archives are checked against the integrity hashes
    that come with Assay, or, for other versions, those of the registry's metadata. Versions live side by side;
    the cache is ASSAY_CACHE, or the platform's cache folder.
    """
    from assay.cli._output import err, out, print_json
    from assay.lanes.browser import litertjs as runtimes

    with err.status("npm"):
        runtime = runtimes.install(litertjs or runtimes.DEFAULT_VERSION, force=force)
    if as_json:
        print_json(
            {
                "version": runtime.version,
                "folder": str(runtime.folder),
                "integrity": runtime.integrity,
                "pinned": runtime.pinned,
                "installed": [one.version for one in runtimes.installed()],
            }
        )
        return
    out.print(f"LiteRT.js {runtime.version} in {runtime.folder}", soft_wrap=True)
    for spec, integrity in runtime.integrity.items():
        known = "as pinned by Assay" if spec in runtimes.PINNED else "as the registry says"
        out.print(f"  {spec} {integrity[:22]}... {known}", soft_wrap=True)
    out.print(f"installed: {', '.join(one.version for one in runtimes.installed())}")


@app.command(epilog="Example: assay browser check")
def check(
    litertjs: Annotated[str | None, typer.Option(help="Version of LiteRT.js.", show_default="2.5.3")] = None,
    runs: Annotated[int, typer.Option(min=0, help="Timed inferences; 0 compares numbers only.")] = 30,
    budget: Annotated[
        float, typer.Option(min=0.0, help="Seconds after which timing of a slow model ends early.")
    ] = 10.0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Loopback port; 0: a random one.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for records and cards. Default: nothing is kept.")
    ] = None,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in your browser, or only print its address.")
    ] = True,
) -> None:
    """Open a page that checks the model you drop on it, in your own browser, on both lanes.

    The verdicts are those of `assay run`, with the native CPU kernels for a reference. The model goes from the
    page to this command on the same machine and nowhere else; it is deleted when the command ends (Ctrl-C).
    """
    import webbrowser

    import assay
    from assay.cli._output import err
    from assay.cli._output import out as stdout
    from assay.lanes.browser.litertjs import DEFAULT_VERSION, require
    from assay.measure.check_page import CheckServer

    runtime = require(litertjs or DEFAULT_VERSION)
    with CheckServer(runtime, port=port, out=out, runs=runs, budget_s=budget, card=assay.build_card) as server:
        stdout.print(server.url, soft_wrap=True)
        err.print("Drop a .tflite on that page. Ctrl-C ends.")
        if open_browser:
            webbrowser.open(server.url)
        try:
            server.wait()
        except KeyboardInterrupt:
            err.print("closed")
