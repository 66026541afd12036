"""Assay: does a LiteRT model load, run, stay on the accelerator and give the right numbers? Measured.

Each verb of the command line is a function here:

    import assay

    report = assay.run("model.tflite", lanes=("cpu_xnnpack", "gpu_mldrift"), runs=20)
    for result in report.results:
        print(result.lane, result.entry.run.output_match, result.entry.run.latency_p50_ms)

    print(assay.lint("model.tflite").delegated)
    print(assay.diagnose("model.tflite", "gpu_mldrift").sentence)

What was written down is read with `assay.catalog`, a `.tflite` is read and cut with `assay.graph`, documents are
read with `assay.records`. Whatever is heavy is imported when it is used: `import assay` alone costs nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.lazy import lazy
from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from assay import catalog, graph, records
    from assay.catalog.cards import Orphans
    from assay.catalog.check import CheckResult
    from assay.conversion import ConversionDiffers, ConvertedModel, ModelFacts, Plan, Recipe, convert
    from assay.devices.base import Device
    from assay.diagnosis.engine import Progress
    from assay.diagnosis.finding import Finding
    from assay.errors import AssayError
    from assay.graph import Model
    from assay.graph.inspection import Inspected
    from assay.linting import LintReport
    from assay.measure.run import Report, RunResult
    from assay.measure.settings import Settings
    from assay.segment.segmenter import Prompt, Segmentation, Segmenter
else:
    # Not for type checkers, which would take any misspelt name for one that loads later.
    __getattr__, _ = lazy(
        __name__,
        {
            "conversion": ("ConvertedModel", "ConversionDiffers", "ModelFacts", "Plan", "Recipe", "convert"),
            "diagnosis.finding": ("Finding",),
            "errors": ("AssayError",),
            "graph.inspection": ("Inspected",),
            "linting": ("LintReport",),
            "measure.run": ("Report", "RunResult"),
            "measure.settings": ("Settings",),
            "segment.segmenter": ("Prompt", "Segmentation", "Segmenter"),
        },
        modules=("catalog", "graph", "records"),
    )


__all__ = [
    "AssayError",
    "ConversionDiffers",
    "ConvertedModel",
    "Finding",
    "Inspected",
    "LintReport",
    "ModelFacts",
    "Plan",
    "Prompt",
    "Recipe",
    "Report",
    "RunResult",
    "Segmentation",
    "Segmenter",
    "Settings",
    "__version__",
    "build_card",
    "catalog",
    "check_card",
    "convert",
    "diagnose",
    "graph",
    "inspect",
    "lint",
    "records",
    "run",
    "sweep",
    "write_index",
]


def __dir__() -> list[str]:
    return __all__


def run(
    models: Path | str | Sequence[Path | str],
    settings: Settings | None = None,
    *,
    notify: Callable[[str], None] = lambda text: None,
    done: Callable[[RunResult], None] = lambda result: None,
    among: Sequence[Device] | None = None,
    **changes: Any,
) -> Report:
    """Measure models on lanes of devices: a record for each run, a card for each model. What `assay run` does.

    Each lane runs in a process of its own, with the same inputs, and its outputs are compared with the
    reference's. A run that fails is a record with its failure class; the others go on.

    Args:
        models: A `.tflite` file, or several.
        settings: How to measure; by default as `assay run` does.
        notify: Told what is being done, one short line each time.
        done: Told of each run when it is on disk.
        among: Devices that you have opened; by default those that `settings.on` names.
        **changes: Fields of `Settings` that are to be otherwise: `lanes=("cpu_xnnpack",), runs=10`.

    Returns:
        The runs as they were written, the lanes left out and why, the cards; `Report.exit_code` is that of the
        command.

    Raises:
        AssayError: The settings cannot be met: an unknown lane, device or field, or one name for several models.
    """
    from assay.measure.run import run_models

    changed = _changed(settings, changes)
    return run_models(_paths(models), changed, notify=notify, done=done, among=among, card=build_card)


def sweep(
    models: Path | str | Sequence[Path | str],
    settings: Settings | None = None,
    *,
    jobs: int = 1,
    notify: Callable[[str], None] = lambda text: None,
    done: Callable[[RunResult], None] = lambda result: None,
    **changes: Any,
) -> Report:
    """Measure many models on the browser lanes, in one go that can be interrupted. What `assay sweep` does.

    What an earlier sweep with the same settings measured before it was interrupted is not measured again.

    Args:
        models: `.tflite` files; or one path: a folder that is searched through, or a text file with a path a line.
        settings: How to measure.
        jobs: Models side by side, each with a browser of its own. Only for numbers (`runs=0`).
        notify: Told what is being done.
        done: Told of each run when it is on disk.
        **changes: Fields of `Settings` that are to be otherwise.

    Returns:
        What this call has measured.

    Raises:
        AssayError: There is no model or field, a lane cannot run here, or timing was asked for side by side.
    """
    from assay.measure.sweep import find_models
    from assay.measure.sweep import sweep as measure

    named = _paths(models)
    found = find_models(named[0]) if len(named) == 1 else named
    return measure(found, _changed(settings, changes), jobs=jobs, notify=notify, done=done, card=build_card)


def inspect(model: Path | str, *, part: str | None = None) -> Inspected:
    """Read what is in a model: ops, types, parameters, signatures, sizes. What `assay inspect` does.

    Nothing is run and weights are not read.

    Args:
        model: A `.tflite`, or a `.litertlm` or `.task` bundle of them.
        part: Of a bundle, the name of one model.

    Returns:
        The graphs by name in `models`, what is in them in `summaries`; `document()` is the JSON of the command.

    Raises:
        AssayError: The file is not sound, or has no model of that name.
    """
    from assay.graph.inspection import inspect_file

    return inspect_file(Path(model), part)


def lint(model: Model | Path | str, *, lane: str | None = None, matrices: Iterable[Path | str] = ()) -> LintReport:
    """Predict what an accelerator does with a model, without running it. What `assay lint` does.

    Args:
        model: The file, or a model that `assay.graph.read` gave.
        lane: The accelerator; by default the native GPU lane, `gpu_mldrift`.
        matrices: Folders that `assay probe` wrote, besides the matrix of the lane that ships.

    Returns:
        Where each node runs, the partitions, and what to change: iterating gives the findings.

    Raises:
        AssayError: The file is not a sound model, or no matrix is known for the lane.
    """
    from assay.linting.check import DEFAULT_LANE
    from assay.linting.check import lint as predict
    from assay.linting.matrix import for_lane, joined, load

    matrix = for_lane(lane or DEFAULT_LANE)
    for folder in matrices:
        matrix = joined(matrix, load(Path(folder)))
    return predict(model, matrix)


def diagnose(
    model: Path | str,
    lane: str,
    *,
    reference: str | None = None,
    inputs: Path | str | None = None,
    source_outputs: Path | str | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    signature: str | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    threads: int = 2,
    time_limit_s: float = 120.0,
    fix: bool = False,
    regions: bool = False,
    resume: bool = True,
    out: Path | str | None = "assay-out",
    model_id: str | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Finding:
    """Name the nodes that make a lane wrong, and hand over the smallest file. What `assay diagnose` does.

    Args:
        model: A `.tflite` file.
        lane: The lane that gets it wrong, refuses it, or crashes on it.
        reference: Lane that gives the right values; by default the first reference that runs the model.
        inputs: Inputs that show the fault: a `.npz`, `.npy` or image file, or a folder; by default seeded ones.
        source_outputs: `.npz` with the source model's outputs for the first inputs: is it the file?
        shapes: Input name -> shape, for dynamic inputs.
        signature: Signature to run; by default the first.
        options: Options of the lane.
        seed: Of the seeded inputs.
        threads: CPU threads.
        time_limit_s: For one piece in one process, in seconds.
        fix: Write a rewritten model, if one is equal on the reference and right on the lane.
        regions: Measure time by region, on the lane and the CPU.
        resume: Go on from a diagnosis that was stopped.
        out: Folder of records and cards. The files go to `OUT/diagnose/MODEL__LANE`, and the finding becomes a
            pitfall of the model's card. None writes nothing.
        model_id: The model's name in records; by default it follows from the file's name.
        on_progress: Told before and after every process.

    Returns:
        What was found; `Finding.found` is False where the lane is right and takes the whole graph.

    Raises:
        AssayError: The file or an option is no good, the lane cannot run here, or no reference runs the model.
    """
    from assay.catalog.cards import CARD_JSON, add_pitfall
    from assay.diagnosis import engine, text
    from assay.diagnosis.subject import load_outputs, load_sets
    from assay.lanes import registry
    from assay.models.artifact import check_id, model_ids

    file = Path(model)
    if model_id is not None:
        check_id(model_id)
    if reference is not None:
        registry.find(reference)
    sets, names = load_sets(file, signature, shapes or {}, None if inputs is None else Path(inputs))
    root = None if out is None else Path(out)
    settings = engine.Settings(
        signature=signature,
        shapes=shapes,
        sets=sets,
        set_names=names,
        expected=load_outputs(None if source_outputs is None else Path(source_outputs)),
        reference=reference,
        options=dict(options or {}),
        seed=seed,
        threads=threads,
        time_limit_s=time_limit_s,
        fix=fix,
        regions=regions,
        resume=resume,
        out=None if root is None else root / engine.FOLDER,
    )
    finding = engine.diagnose(file, lane, settings, on_progress=on_progress)
    if root is None or settings.out is None:
        return finding
    folder = engine.folder_of(settings.out, file, lane)
    pitfall = text.pitfall(finding, folder.relative_to(root).as_posix())
    if pitfall is not None:
        name = model_id or model_ids([file])[0]
        kept = add_pitfall(root, name, pitfall)
        if (kept.parent / CARD_JSON).is_file():
            build_card(root, name)
    return finding


def build_card(
    out: Path | str,
    model_id: str,
    *,
    meta: Path | None = None,
    orphans: Orphans = "refuse",
    version: str | None = None,
) -> Path:
    """Build a model's card from its records; write `card.json` and `CARD.md`. What `assay card build` does.

    Args:
        out: Folder of records and cards.
        model_id: The model.
        meta: A `meta.yaml` with what people say of the model; it takes the place of the one in the card's folder.
        orphans: What to do with a cell that the card has today and no record gives: `refuse` to build, `keep` or
            `drop` it.
        version: Schema version to write, `1.2` or `1.3`; by default that of the present card, or 1.2.

    Returns:
        Path of `card.json`.

    Raises:
        AssayError: There is no record of the model, the rebuild would drop a cell, or `meta` is broken.
    """
    from assay.catalog.cards import build_card as build
    from assay.report.card import render_card

    return build(Path(out), model_id, render=render_card, meta=meta, orphans=orphans, version=version)


def check_card(out: Path | str, model_id: str) -> CheckResult:
    """Find what in a card is not what its records make: edits by hand, old cards. What `assay card check` does.

    Args:
        out: Folder of records and cards.
        model_id: The model.

    Returns:
        What is wrong in `findings`, what could not be checked in `notes`.

    Raises:
        AssayError: There is no such card.
    """
    from assay.catalog.check import check_card as check
    from assay.report.card import render_card

    return check(Path(out), model_id, render=render_card)


def write_index(
    root: Path | str, progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[list[Path], list[str]]:
    """Write the index of all models: `index.json`, `INDEX.md`, `llms.txt`. What `assay catalog index` does.

    Args:
        root: Folder of records and cards.
        progress: Told of long work: files read, of how many.

    Returns:
        The files written, and the records that could not be read, one sentence each.

    Raises:
        AssayError: There is no record, the folder cannot be written to, or DuckDB is not installed.
    """
    from assay.catalog.index import write_index as write
    from assay.report.index import renders

    return write(Path(root), renders(), progress)


def _paths(given: Path | str | Sequence[Path | str]) -> list[Path]:
    return [Path(given)] if isinstance(given, (str, Path)) else [Path(each) for each in given]


def _changed(settings: Settings | None, changes: Mapping[str, Any]) -> Settings:
    """Settings with some fields otherwise.

    Raises:
        AssayError: There is no such field, or it cannot have that value.
    """
    from assay.measure.settings import Settings

    return Settings.of({**(settings or Settings()).model_dump(), **changes})
