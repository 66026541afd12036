"""`assay diagnose`: name the nodes that make a lane wrong, and hand over the smallest file that shows it."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli._options import parse_option

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: assay diagnose pose_detection.tflite --lane gpu_mldrift --fix")
def diagnose(
    model: Annotated[Path, typer.Argument(help="The .tflite file.", show_default=False)],
    lane: Annotated[str, typer.Option(help="The lane that gets it wrong; see `assay lanes`.", show_default=False)],
    reference: Annotated[
        str | None,
        typer.Option(help="Lane that gives the right values. Default: cpu_reference, else cpu_xnnpack."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(help="Inputs that show the fault: .npz, .npy, an image, a folder. Default: seeded ones."),
    ] = None,
    source_outputs: Annotated[
        Path | None,
        typer.Option(
            help="Outputs of the source model for the first inputs (.npz by output name): is it the file?"
        ),
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Shape of a dynamic input: name=1,224,224,3.")] = None,
    signature: Annotated[str | None, typer.Option(help="Signature to run. Default: the first.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Lane option: name=JSON, for example enforce_f32=true.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    time_limit: Annotated[float, typer.Option(min=1.0, help="Seconds for one piece in one process.")] = 120.0,
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Write a rewritten model, if one is equal on the reference and right here."),
    ] = False,
    regions: Annotated[
        bool, typer.Option("--regions", help="Measure time by region, on the lane and the CPU.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew; do not go on from a stopped diagnosis.")
    ] = False,
    model_id: Annotated[str | None, typer.Option(help="The model's name in records. Default: the file's.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for records and cards; findings go to OUT/diagnose.")] = Path(
        "assay-out"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the finding as JSON on stdout.")] = False,
) -> None:
    """Name the nodes that make a lane wrong, slow or fail, and hand over the smallest file that shows it.

    The graph is cut into pieces, which run on the lane with the reference's own inner values as inputs. The
    first piece whose outputs are further off than the lane's arithmetic explains is cut again, until one node
    is left, or the smallest group that is wrong only together. Then: what kind of fault it is, where else it
    shows, which exact rewrite cures it, and, for an accelerator, what its refusals cost.

    In OUT/diagnose/MODEL__LANE: minimized.tflite with inputs, expected and actual outputs, repro.py, issue.md,
    finding.json, and steps.jsonl, the verdict of every step. A diagnosis that was stopped goes on from there. The
    finding also becomes a pitfall in the model's card.

    Exit code: 0 the lane is right and takes the whole graph, 1 something was found, 2 misuse.
    """
    import json

    import assay
    from assay import records
    from assay.cli._output import err, print_json
    from assay.cli._output import out as stdout
    from assay.diagnosis import engine, text
    from assay.measure.settings import parse_shapes

    with err.status("starting") as status:

        def tell(progress: engine.Progress) -> None:
            left = "" if progress.seconds_left is None else f", about {progress.seconds_left:.0f} s left"
            status.update(f"{progress.stage} (process {progress.launches} of about {progress.expected}{left})")

        finding = assay.diagnose(
            model,
            lane,
            reference=reference,
            inputs=inputs,
            source_outputs=source_outputs,
            shapes=parse_shapes(shape or []),
            signature=signature,
            options=dict(map(parse_option, option or [])),
            seed=seed,
            threads=threads,
            time_limit_s=time_limit,
            fix=fix,
            regions=regions,
            resume=not fresh,
            out=out,
            model_id=model_id,
            on_progress=tell,
        )
    if as_json:
        print_json(json.loads(records.dumps(finding.to_dict())))
    else:
        for line in text.lines(finding):
            stdout.print(line, markup=False, soft_wrap=True)
        folder = engine.folder_of(out / engine.FOLDER, model, lane)
        stdout.print(f"files: {folder}", markup=False, soft_wrap=True)
    raise typer.Exit(1 if finding.found else 0)
