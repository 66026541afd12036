"""`assay sweep`: many models on the browser lanes."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli._measuring import AsJson, LaneOption, show, with_progress
from assay.cli._options import lane_options, lane_parameters, option_parameters, with_options
from assay.lanes import registry
from assay.measure.settings import Settings
from assay.measure.sweep import find_models, sweep_lanes

app = typer.Typer(add_completion=False)

_TIMED = ("runs", "warmup", "budget_s", "quiet_gate", "time_limit_s", "memory_limit")
_CHOSEN = ("lanes", "on", *_TIMED, "seed", "out", "device")


@app.command(epilog="Example: assay sweep models/ --runs 20 --adapter swiftshader")
@with_options(
    chosen=lambda: option_parameters(Settings, only=_CHOSEN, defaults={"budget_s": 10.0}),
    lanes=lambda: lane_parameters(
        lambda: [name for name in registry.names() if registry.find(name).record == "browser_sweep"]
    ),
)
def sweep(
    catalog: Annotated[
        Path,
        typer.Argument(help="A folder of .tflite files, or a text file with one path a line.", show_default=False),
    ],
    *,
    jobs: Annotated[int, typer.Option(min=1, help="Models side by side; needs --runs 0.")] = 1,
    option: LaneOption = None,
    as_json: AsJson = False,
    chosen: dict[str, Any],
    lanes: dict[str, Any],
) -> None:
    """Measure many models on the browser lanes, unless others are named; write a record and a card for each.

    The models are run by LiteRT.js in the system's Chromium, each on a page of its own; a crash, a hang or a
    refusal is a failed run and the rest goes on. An interrupted sweep goes on where it stopped when the same
    command is given again. Records: OUT/data/sweep/<LiteRT.js version>/<date>/.

    Exit code: 0 all fine, 1 a run failed or gave wrong numbers, 2 a file or an option cannot be used.
    """
    import assay
    from assay.measure.run import plan_runs

    options = lane_options(registry.names(), lanes, option or [])
    settings = Settings.of({**chosen, "options": options, "command": ("assay", *sys.argv[1:])})
    settings = settings.but(lanes=settings.lanes or sweep_lanes())
    models = find_models(catalog)
    report = with_progress(
        len(models) * plan_runs(settings).runs,
        lambda notify, done: assay.sweep(models, settings, jobs=jobs, notify=notify, done=done),
        interrupted="interrupted; the same command goes on from here",
    )
    show(report, settings.out, as_json=as_json)
    raise typer.Exit(report.exit_code)
