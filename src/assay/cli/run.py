"""`assay run`: measure models on lanes, write records and a card."""

import math
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
    parse_shapes,
    show,
    with_progress,
)

app = typer.Typer(add_completion=False)


def _image_range(value: str) -> tuple[float, float]:
    from assay.errors import AssayError

    try:
        low, high = (float(part) for part in value.split(","))
    except ValueError:
        low = high = 0.0
    if low == high or not (math.isfinite(low) and math.isfinite(high)):
        raise AssayError(f"--image-range {value!r} is not understood", fix="write --image-range -1,1")
    return low, high


def _fail_on(values: list[str]) -> tuple[str, ...]:
    from assay.errors import AssayError
    from assay.measure.run import FAIL_ON

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
    runs: Runs = 50,
    warmup: Warmup = 3,
    budget: Budget = 30.0,
    threads: Annotated[int, typer.Option(min=0, max=256, help="CPU threads. 0: all cores, 4 at most.")] = 0,
    out: Out = Path("assay-out"),
    model_id: Annotated[str | None, typer.Option(help="The model's name in records. Default: the file's.")] = None,
    meta: Annotated[
        Path | None, typer.Option(help="YAML file with what people know: family, task, license, source_url ...")
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="Shape of a dynamic input: name=1,224,224,3. Default: 1 for each ?.")
    ] = None,
    signature: Annotated[list[str] | None, typer.Option(help="Signature to run. Default: all.")] = None,
    seed: Seed = 0,
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
    time_limit: TimeLimit = 300.0,
    memory_limit: MemoryLimit = None,
    quiet_gate: QuietGate = False,
    device: Device = None,
    as_json: AsJson = False,
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
    from assay.measure.run import Settings, plan_lanes, run_models
    from assay.numerics.inputs import KINDS

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
        shapes=parse_shapes(shape or []),
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
    total = len(models) * len(plan_lanes(settings)[0])
    report = with_progress(
        total,
        lambda notify, done: run_models(models, settings, notify=notify, done=done),
        interrupted=f"interrupted; the runs so far are in {out}; for cards: assay card build --dir {out}",
    )
    show(report, out, as_json=as_json)
    raise typer.Exit(report.exit_code)
