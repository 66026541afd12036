"""`assay sweep`: many models on the browser lanes."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from assay.cli._browser_options import (
    Adapter,
    Cdp,
    Experimental,
    Jspi,
    LiteRtJs,
    Port,
    Precision,
    WasmThreads,
    lane_options,
)
from assay.cli._measuring_options import (
    AsJson,
    Budget,
    Device,
    MemoryLimit,
    Out,
    QuietGate,
    Runs,
    Seed,
    TimeLimit,
    Warmup,
    show,
    with_progress,
)

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: assay sweep models/ --runs 20 --adapter swiftshader")
def sweep(
    catalog: Annotated[
        Path,
        typer.Argument(help="A folder of .tflite files, or a text file with one path a line.", show_default=False),
    ],
    lane: Annotated[
        list[str] | None,
        typer.Option(help="Lane; again for more. Default: wasm_xnnpack and webgpu_mldrift.", show_default=False),
    ] = None,
    runs: Runs = 50,
    warmup: Warmup = 3,
    budget: Budget = 10.0,
    jobs: Annotated[int, typer.Option(min=1, help="Models side by side; needs --runs 0.")] = 1,
    out: Out = Path("assay-out"),
    time_limit: TimeLimit = 300.0,
    memory_limit: MemoryLimit = None,
    seed: Seed = 0,
    quiet_gate: QuietGate = False,
    adapter: Adapter = "auto",
    cdp: Cdp = None,
    port: Port = 0,
    litertjs: LiteRtJs = None,
    wasm_threads: WasmThreads = None,
    jspi: Jspi = None,
    precision: Precision = None,
    experimental: Experimental = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Measure many models on the browser lanes; write a record and a card for each.

    The models are run by LiteRT.js in the system's Chromium, each on a page of its own; a crash, a hang or a
    refusal is a failed run and the rest goes on. An interrupted sweep goes on where it stopped when the same
    command is given again. Records: OUT/data/sweep/<LiteRT.js version>/<date>/.

    Exit code: 0 all fine, 1 a run failed or gave wrong numbers, 2 a file or an option cannot be used.
    """
    from assay.measure.run import Settings
    from assay.measure.sweep import LANES, find_models
    from assay.measure.sweep import sweep as run_sweep

    options = lane_options(
        lane or [],
        adapter=adapter,
        cdp=cdp,
        port=port,
        litertjs=litertjs,
        wasm_threads=wasm_threads,
        jspi=jspi,
        precision=precision,
        experimental=experimental,
        machine_label=device,
    )
    models = find_models(catalog)
    settings = Settings(
        lanes=tuple(lane or LANES),
        runs=runs,
        warmup=warmup,
        budget_s=budget,
        out=out,
        time_limit_s=time_limit,
        memory_limit=memory_limit,
        seed=seed,
        quiet_gate=quiet_gate,
        device=device,
        options=options,
        command=("assay", *sys.argv[1:]),
    )
    total = len(models) * len(settings.lanes)
    report = with_progress(
        total,
        lambda notify, done: run_sweep(models, settings, jobs=jobs, notify=notify, done=done),
        interrupted="interrupted; the same command goes on from here",
    )
    show(report, out, as_json=as_json)
    raise typer.Exit(report.exit_code)
