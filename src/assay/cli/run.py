"""`assay run`: measure models on lanes of devices, write records and a card."""

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli._measuring import AsJson, LaneOption, show, with_progress
from assay.cli._options import lane_options, lane_parameters, option_parameters, with_options
from assay.lanes import registry
from assay.measure.settings import Settings

app = typer.Typer(add_completion=False)

_NOT_HERE = ("options", "command", "quiet_timeout_s", "quiet_attempts")


@app.command(epilog="Example: assay run model.tflite --lane cpu_xnnpack --lane gpu_mldrift --threads 2")
@with_options(
    chosen=lambda: option_parameters(Settings, taken=_NOT_HERE),
    lanes=lambda: lane_parameters(registry.names),
)
def run(
    models: Annotated[list[Path], typer.Argument(help="The model files.", show_default=False)],
    *,
    option: LaneOption = None,
    as_json: AsJson = False,
    chosen: dict[str, Any],
    lanes: dict[str, Any],
) -> None:
    """Measure models on lanes of this machine and of other devices; write records and a card.

    Each lane runs in a process of its own, with the same inputs: seeded ones of several kinds, and yours. Its
    outputs are compared with those of the plain CPU kernels, and the verdict is match, precision noise or wrong,
    by the error that the model itself leads one to expect (docs/verdict.md). A crash, a hang or a refusal is a
    failed run with its failure class, and the rest goes on. Records: OUT/data/device_runs/<runtime
    version>/<date>/, for the browser lanes OUT/data/sweep/<LiteRT.js version>/<date>/. Cards: OUT/cards/<model
    id>/.

    Exit code: 0 all fine, 1 a run failed or showed what --fail-on names, 2 a file or an option cannot be used.
    """
    import assay
    from assay.measure.run import find_devices, plan_runs

    options = lane_options(registry.names(), lanes, option or [])
    settings = Settings.of({**chosen, "options": options, "command": ("assay", *sys.argv[1:])})
    out = settings.out
    with contextlib.ExitStack() as stack:
        among = [stack.enter_context(device) for device in find_devices(settings)]
        report = with_progress(
            len(models) * plan_runs(settings, among).runs,
            lambda notify, done: assay.run(models, settings, notify=notify, done=done, among=among),
            interrupted=f"interrupted; the runs so far are in {out}; for cards: assay card build --dir {out}",
        )
    show(report, out, as_json=as_json)
    raise typer.Exit(report.exit_code)
