"""`assay run`: measure models on lanes, write records and a card."""

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


def _shapes(values: list[str]) -> dict[str, tuple[int, ...]]:
    from assay.errors import AssayError

    shapes: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, equals, sizes = value.rpartition("=")
        try:
            shapes[name] = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            equals = ""
        if not equals or not name:
            raise AssayError(f"--shape {value!r} is not understood", fix="write --shape name=1,224,224,3")
    return shapes


def _image_range(value: str) -> tuple[float, float]:
    from assay.errors import AssayError

    try:
        low, high = (float(part) for part in value.split(","))
    except ValueError:
        raise AssayError(f"--image-range {value!r} is not understood", fix="write --image-range -1,1") from None
    return low, high


def _fail_on(values: list[str]) -> tuple[str, ...]:
    from assay.errors import AssayError
    from assay.run import FAIL_ON

    words = tuple(word.strip() for value in values for word in value.split(","))
    for word in words:
        if word not in FAIL_ON:
            raise AssayError(f"--fail-on does not know {word!r}", fix=f"choose from {', '.join(FAIL_ON)}")
    return words


@app.command(epilog="Example: assay run model.tflite --lane cpu_xnnpack --lane gpu_mldrift --threads 2")
def run(
    models: Annotated[list[Path], typer.Argument(help="The .tflite files.", show_default=False)],
    lane: Annotated[
        list[str] | None,
        typer.Option(help="Lane to measure on; again for more. Default: all that can run here."),
    ] = None,
    runs: Annotated[int, typer.Option(min=0, help="Timed inferences; 0 checks the numbers only.")] = 50,
    warmup: Annotated[int, typer.Option(min=0, help="Untimed inferences first.")] = 3,
    budget: Annotated[
        float, typer.Option(min=0.0, help="Seconds after which timing of a slow graph ends early.")
    ] = 30.0,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads. 0: all cores, 4 at most.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for records and cards.")] = Path("assay-out"),
    model_id: Annotated[str | None, typer.Option(help="The model's name in records. Default: the file's.")] = None,
    meta: Annotated[
        Path | None, typer.Option(help="YAML file with what people know: family, task, license, source_url ...")
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="Shape of a dynamic input: name=1,224,224,3. Default: 1 for each ?.")
    ] = None,
    signature: Annotated[list[str] | None, typer.Option(help="Signature to run. Default: all.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 0,
    input_kind: Annotated[
        list[str] | None,
        typer.Option(
            help="Seeded inputs of this kind: uniform, normal, small, large, zeros, structured; again for more. "
            "The first is timed. Default: all six."
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(help="Your own inputs, beside the seeded ones: .npz, .npy, an image, or a folder of these."),
    ] = None,
    image_range: Annotated[
        str, typer.Option(help="What black and white become in a float input: 0,1 or -1,1 or 0,255.")
    ] = "0,1",
    source: Annotated[
        str | None,
        typer.Option(
            help="What the file was converted from, to tell a bad conversion from a bad lane: outputs.npz, "
            "model.onnx, or module.py:function that returns the PyTorch module (its code is run)."
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit 1 on: wrong, noise, fallback, unstable; again or with commas for more. Default: wrong."
        ),
    ] = None,
    gpu_fp32: Annotated[bool, typer.Option("--gpu-fp32", help="Ask the GPU for fp32 arithmetic.")] = False,
    adapter: Adapter = "auto",
    cdp: Cdp = None,
    port: Port = 0,
    litertjs: LiteRtJs = None,
    wasm_threads: WasmThreads = None,
    jspi: Jspi = None,
    precision: Precision = None,
    experimental: Experimental = False,
    time_limit: Annotated[float, typer.Option(min=1.0, help="Seconds for one lane on one model.")] = 300.0,
    memory_limit: Annotated[
        int | None, typer.Option(min=64, help="MiB for one lane's process. Default: 3/4 of the machine's.")
    ] = None,
    quiet_gate: Annotated[
        bool, typer.Option("--quiet-gate", help="Wait for a quiet machine; measure again when disturbed.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="This machine's name in records.", envvar="ASSAY_DEVICE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Measure models on this machine's lanes; write records and a card.

    Each lane runs in a process of its own, with the same inputs: seeded ones of several kinds, and yours. Its
    outputs are compared with those of the plain CPU kernels, and the verdict is match, precision noise or wrong,
    by the error that the model itself leads one to expect (docs/verdict.md). A crash, a hang or a refusal is a
    failed run with its failure class, and the rest goes on. Records: OUT/data/device_runs/<runtime
    version>/<date>/, for the browser lanes OUT/data/sweep/<LiteRT.js version>/<date>/. Cards: OUT/cards/<model
    id>/.

    Exit code: 0 all fine, 1 a run failed or showed what --fail-on names, 2 a file or an option cannot be used.
    """
    from assay.cli._output import err, print_json, progress
    from assay.cli._output import out as stdout
    from assay.numerics.inputs import KINDS
    from assay.report import run_table
    from assay.run import RunResult, Settings, plan_lanes, run_models

    browser = lane_options(
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
    settings = Settings(
        lanes=tuple(lane or ()),
        runs=runs,
        warmup=warmup,
        budget_s=budget,
        threads=threads,
        out=out,
        model_id=model_id,
        meta=meta,
        shapes=_shapes(shape or []),
        signatures=tuple(signature or ()),
        seed=seed,
        kinds=tuple(input_kind or KINDS),
        inputs=inputs,
        image_range=_image_range(image_range),
        source=source,
        fail_on=_fail_on(fail_on or ["wrong"]),
        time_limit_s=time_limit,
        memory_limit=memory_limit,
        quiet_gate=quiet_gate,
        device=device,
        options={**({"enforce_f32": True} if gpu_fp32 else {}), **browser},
        command=("assay", *sys.argv[1:]),
    )
    lanes, _ = plan_lanes(settings)
    with progress() as bar:
        task = bar.add_task("starting", total=len(models) * len(lanes))

        def done(result: RunResult) -> None:
            bar.advance(task)
            err.print(run_table.line(result), soft_wrap=True)

        report = run_models(models, settings, notify=lambda text: bar.update(task, description=text), done=done)
    for warning in report.warnings:
        err.print(f"[yellow]warning:[/yellow] {warning}", soft_wrap=True)
    for problem in report.errors:
        err.print(f"[red]error:[/red] {problem}", soft_wrap=True)
    if as_json:
        print_json(run_table.document(report))
    else:
        run_table.show(report, settings.out, stdout)
    raise typer.Exit(report.exit_code)
