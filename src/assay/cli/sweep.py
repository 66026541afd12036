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
    runs: Annotated[int, typer.Option(min=0, help="Timed inferences; 0 compares numbers only.")] = 50,
    warmup: Annotated[int, typer.Option(min=0, help="Untimed inferences first.")] = 3,
    budget: Annotated[
        float, typer.Option(min=0.0, help="Seconds after which timing of a slow model ends early.")
    ] = 10.0,
    jobs: Annotated[int, typer.Option(min=1, help="Models side by side; needs --runs 0.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for records and cards.")] = Path("assay-out"),
    time_limit: Annotated[float, typer.Option(min=1.0, help="Seconds for one lane on one model.")] = 300.0,
    memory_limit: Annotated[
        int | None, typer.Option(min=64, help="MiB for the browser. Default: 3/4 of the machine's.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 0,
    quiet_gate: Annotated[
        bool, typer.Option("--quiet-gate", help="Wait for a quiet machine; measure again when disturbed.")
    ] = False,
    adapter: Adapter = "auto",
    cdp: Cdp = None,
    port: Port = 0,
    litertjs: LiteRtJs = None,
    wasm_threads: WasmThreads = None,
    jspi: Jspi = None,
    precision: Precision = None,
    experimental: Experimental = False,
    device: Annotated[
        str | None, typer.Option(help="The machine's name in records.", envvar="ASSAY_DEVICE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Measure many models on the browser lanes; write a record and a card for each.

    The models are run by LiteRT.js in the system's Chromium, each on a page of its own; a crash, a hang or a
    refusal is a failed run and the rest goes on. An interrupted sweep goes on where it stopped when the same
    command is given again. Records: OUT/data/sweep/<LiteRT.js version>/<date>/.

    Exit code: 0 all fine, 1 a run failed or gave wrong numbers, 2 a file or an option cannot be used.
    """
    from assay.cli._output import err, print_json, progress
    from assay.cli._output import out as stdout
    from assay.report import run_table
    from assay.run import RunResult, Settings
    from assay.sweep import LANES, find_models
    from assay.sweep import sweep as run_sweep

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
    try:
        with progress() as bar:
            task = bar.add_task("starting", total=len(models) * len(settings.lanes))

            def done(result: RunResult) -> None:
                bar.advance(task)
                err.print(run_table.line(result), soft_wrap=True)

            report = run_sweep(
                models,
                settings,
                jobs=jobs,
                notify=lambda text: bar.update(task, description=text),
                done=done,
            )
    except KeyboardInterrupt:
        err.print("interrupted; the same command goes on from here")
        raise typer.Exit(130) from None
    for problem in report.errors:
        err.print(f"[red]error:[/red] {problem}", soft_wrap=True)
    for warning in report.warnings:
        err.print(f"[yellow]warning:[/yellow] {warning}", soft_wrap=True)
    if as_json:
        print_json(run_table.document(report))
    else:
        run_table.show(report, out, stdout)
    raise typer.Exit(report.exit_code)
