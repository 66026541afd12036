"""The main job: measure models on lanes, judge what came out, and write it down.

For each signature of each model, every lane gets the same inputs in a child process of its own. What the
reference lane returned is what the others are compared with. Each run is on disk before the next begins.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from assay import catalog, graph, records
from assay.artifact import Artifact, identify, model_ids
from assay.catalog.meta import read_meta
from assay.entry import Context, Measured, browser_entry, device_entry, device_name
from assay.errors import AssayError
from assay.judging import Judge, Judged, seeded_sets
from assay.lanes import host, registry
from assay.lanes.base import Job, Json, LaneFacts, TensorSpec
from assay.lanes.browser.worker import BrowserWorker
from assay.lanes.native import Array, load_arrays, save_arrays
from assay.numerics.consistency import plan_sequence
from assay.numerics.inputs import KINDS, resolve_shapes
from assay.numerics.source import source_outputs
from assay.numerics.user_inputs import InputSet, load_inputs
from assay.protocol import machine
from assay.protocol.acceptance import Acceptance, Ending, accept
from assay.protocol.statistics import summarize
from assay.records.failure import FailureClass

REFERENCES = ("cpu_reference", "cpu_xnnpack")
"""Lanes that others are compared with, the first that runs."""

DEFAULT_THREADS = 4
"""CPU threads at most, unless asked for more: phones have no more fast cores."""

FAIL_ON = ("wrong", "noise", "fallback", "unstable")
"""What a run can be failed for. `noise`: precision noise, or wrong. `fallback`: an accelerator did not take every
node. `unstable`: repeated inferences disagree, or the timings cannot be trusted."""

PROVENANCE_MARK = "assay.provenance"
"""Metadata entry of a model whose weights are random: whoever measures it measures an example."""

UNFEEDABLE = ("string", "resource", "variant")
"""Element types that no lane can be given or asked for."""


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes:
        lanes: Names of the lanes; empty for all that are available here.
        runs: Timed inferences; 0 compares numbers only.
        warmup: Untimed inferences before.
        budget_s: Seconds after which timing of a slow graph ends early.
        threads: CPU threads; 0 for as many as there are cores, 4 at most.
        out: Folder of records and cards.
        model_id: Name of the one model; by default it follows from the file's name.
        meta: YAML file with what people know of the model, for its card.
        shapes: Input name -> shape, for dynamic inputs.
        signatures: Signature keys to run; empty for all.
        seed: Of the inputs.
        kinds: Kinds of seeded inputs, see `assay.numerics.inputs.KINDS`; the first set is the one timed.
        inputs: The user's own inputs, run before the seeded ones: a `.npz`, `.npy` or image file, or a folder.
        image_range: What black and white of an image become in a float input.
        source: What the model was converted from, see `assay.numerics.source.source_outputs`; None for none.
        fail_on: What, besides a failed run, makes `Report.exit_code` 1: words of `FAIL_ON`.
        time_limit_s: For one lane on one model, in seconds.
        memory_limit: For one lane's process, in MiB; None for three quarters of the machine's memory.
        quiet_gate: Wait for a quiet machine before timing, and measure again when it was disturbed.
        quiet_timeout_s: Longest wait for quiet.
        quiet_attempts: Measurements at most, with the gate.
        device: Name of this machine in records; by default it follows from the processor's name.
        options: Lane options, see each lane.
        command: The command line, for the record.
    """

    lanes: tuple[str, ...] = ()
    runs: int = 50
    warmup: int = 3
    budget_s: float = 30.0
    threads: int = 0
    out: Path = Path("assay-out")
    model_id: str | None = None
    meta: Path | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    signatures: tuple[str, ...] = ()
    seed: int = 0
    kinds: tuple[str, ...] = KINDS
    inputs: Path | None = None
    image_range: tuple[float, float] = (0.0, 1.0)
    source: str | None = None
    fail_on: tuple[str, ...] = ("wrong",)
    time_limit_s: float = 300.0
    memory_limit: int | None = None
    quiet_gate: bool = False
    quiet_timeout_s: float = 60.0
    quiet_attempts: int = 3
    device: str | None = None
    options: dict[str, Json] = field(default_factory=dict[str, Json])
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunResult:
    """One run, as written down.

    Attributes:
        model: The file.
        model_id: Its name in records.
        signature: Signature key, None for a model without.
        lane: Lane's name.
        entry: The record's entry.
        record: The file that it was written to.
    """

    model: Path
    model_id: str
    signature: str | None
    lane: str
    entry: Any
    record: Path


@dataclass
class Report:
    """All that a call of `run_models` did.

    Attributes:
        results: The runs, in the order measured.
        skipped: Lanes that cannot run here: name -> (reason, fix).
        errors: Files that could not be measured, one sentence each.
        cards: Cards that were written.
        warnings: What went wrong after the runs were written, one sentence each.
        model_times_s: Seconds that each child process spent inside a model, runs for the verdict included.
        fail_on: See `Settings.fail_on`.
    """

    results: list[RunResult] = field(default_factory=list[RunResult])
    skipped: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    errors: list[str] = field(default_factory=list[str])
    cards: list[Path] = field(default_factory=list[Path])
    warnings: list[str] = field(default_factory=list[str])
    model_times_s: list[float] = field(default_factory=list[float])
    fail_on: tuple[str, ...] = ("wrong",)

    @property
    def exit_code(self) -> int:
        """0 all fine, 1 a run failed or showed what `fail_on` names, 2 a file could not be measured at all."""
        if self.errors:
            return 2
        return int(any(_fails(result, self.fail_on) for result in self.results))


def _fails(result: RunResult, fail_on: Sequence[str]) -> bool:
    run = result.entry.run
    metrics = run.metrics or {}
    found = {
        "wrong": run.output_match is False,
        "noise": run.output_match is False or metrics.get("verdict") == "precision_noise",
        "fallback": run.full_delegation is False and result.lane not in _CPU_LANES,
        "unstable": bool(metrics.get("unstable")) or metrics.get("consistency") not in _STEADY,
    }
    return run.failure_class is not None or any(found[word] for word in fail_on)


_CPU_LANES = (*REFERENCES, "wasm_xnnpack")
_STEADY = (None, "consistent", "not_measured")


@dataclass(frozen=True)
class _Subject:
    """One signature of one model, ready to be measured."""

    artifact: Artifact
    model_id: str
    model: graph.Model
    signature: graph.Signature
    shapes: dict[str, tuple[int, ...]]
    provenance: str


class Runner(Protocol):
    """Runs one job on a lane, as `host.run_job` does."""

    def __call__(self, lane_name: str, job: Job, *, time_limit_s: float, memory_limit: int | None) -> host.Outcome:
        """The outcome, whatever becomes of the job."""
        ...


@dataclass(frozen=True)
class _Plan:
    """What holds for a whole call of `run_models`."""

    settings: Settings
    lanes: Sequence[str]
    runner: Runner
    notify: Callable[[str], None]
    errors: list[str]
    model_times_s: list[float]


def plan_lanes(settings: Settings) -> tuple[list[str], dict[str, tuple[str, str]]]:
    """Which lanes to measure on, references first, and which are left out: name -> (reason, fix).

    Raises:
        AssayError: A lane that was asked for by name does not exist or cannot run here.
    """
    skipped: dict[str, tuple[str, str]] = {}
    chosen: list[str] = []
    for name in dict.fromkeys(settings.lanes) or registry.default_names():
        availability = registry.find(name).available()
        if availability.available:
            chosen.append(name)
        elif settings.lanes:
            raise AssayError(f"lane {name} cannot run here: {availability.reason}", fix=availability.fix)
        else:
            skipped[name] = (availability.reason, availability.fix)
    chosen.sort(key=lambda name: REFERENCES.index(name) if name in REFERENCES else len(REFERENCES))
    return chosen, skipped


def run_models(
    paths: Sequence[Path],
    settings: Settings,
    *,
    notify: Callable[[str], None] = lambda text: None,
    done: Callable[[RunResult], None] = lambda result: None,
    runner: Runner | None = None,
) -> Report:
    """Measure models on lanes; write a record for each run and a card for each model.

    A file that cannot be measured is an entry in the report's `errors`; the others go on. Each run is on disk
    before the next one begins, so an interruption loses the current one only.

    Args:
        paths: `.tflite` files.
        settings: How to measure.
        notify: Told what is being done, one short line each time.
        done: Told of each run when it is on disk.
        runner: Runs the jobs. By default each in a child process of its own, but that the jobs of browser lanes
            have pages of their own in one browser, until one fails.

    Raises:
        AssayError: The settings cannot be met: an unknown lane, one name for several models.
    """
    lanes, skipped = plan_lanes(settings)
    if settings.model_id is not None and len(paths) > 1:
        raise AssayError("--model-id names one model", fix="give one model, or leave the name out")
    if settings.meta is not None:
        # Broken, it is misuse, and better known before anything is measured.
        read_meta(settings.meta)
    report = Report(skipped=skipped, fail_on=settings.fail_on)
    ids = [settings.model_id] if settings.model_id else model_ids(paths)
    with contextlib.ExitStack() as stack:
        if runner is None and any(registry.find(lane).runs_in == "browser" for lane in lanes):
            runner = stack.enter_context(BrowserWorker()).run_job
        plan = _Plan(settings, lanes, runner or host.run_job, notify, report.errors, report.model_times_s)
        for path, model_id in zip(paths, ids, strict=True):
            _run_model(path, model_id, plan, report, done)
    return report


def _run_model(path: Path, model_id: str, plan: _Plan, report: Report, done: Callable[[RunResult], None]) -> None:
    settings = plan.settings
    try:
        subjects = list(_subjects(path, model_id, settings))
    except AssayError as error:
        report.errors.append(str(error))
        return
    before = len(report.results)
    for subject in subjects:
        for result in _run_subject(subject, plan):
            report.results.append(result)
            done(result)
    if len(report.results) == before:
        return
    plan.notify(f"{model_id}: card")
    try:
        report.cards.append(catalog.build_card(settings.out, model_id, meta=meta_file(path, settings)))
    except AssayError as error:
        # The runs are on disk; what is wrong with the card, a person must decide.
        report.warnings.append(f"no card: {error}")


def meta_file(path: Path, settings: Settings) -> Path | None:
    """What people know of a model: the file named in the settings, else `<stem>.meta.yaml` beside the model."""
    beside = path.with_name(f"{path.stem}.meta.yaml")
    return settings.meta or (beside if beside.is_file() else None)


def _provenance(model: graph.Model, meta: Path | None) -> str:
    """`example` where the model or its meta file says that its weights are no real ones, else `measured`."""
    for entry in model.metadata:
        if entry.name == PROVENANCE_MARK and bytes(model.buffers[entry.buffer].data) == b"example":
            return "example"
    return (read_meta(meta).provenance or "measured") if meta else "measured"


def _subjects(path: Path, model_id: str, settings: Settings) -> Iterator[_Subject]:
    artifact = identify(path)
    model = graph.read(path)
    signatures = model.signatures
    if settings.signatures:
        known = {str(signature.key): signature for signature in signatures}
        for key in settings.signatures:
            if key not in known:
                raise AssayError(f"{path} has no signature {key!r}", fix=f"it has {', '.join(known)}")
        signatures = [known[key] for key in settings.signatures]
    if not signatures:
        raise AssayError(f"{path} has no graph to run")
    provenance = _provenance(model, meta_file(path, settings))
    for signature in signatures:
        shapes = resolve_shapes(signature, settings.shapes)
        yield _Subject(artifact, model_id, model, signature, shapes, provenance)


def _run_subject(subject: _Subject, plan: _Plan) -> Iterator[RunResult]:
    settings = plan.settings
    label = subject.model_id + (f":{subject.signature.key}" if subject.signature.key else "")
    with tempfile.TemporaryDirectory(prefix="assay-") as temporary:
        scratch = Path(temporary)
        unfeedable = _unfeedable(subject)
        try:
            feed = None if unfeedable else _feed(subject, plan, scratch)
        except AssayError as error:
            plan.errors.append(f"{label}: {error}")
            return
        if feed is not None:
            _set_unmeasured_reference(subject, feed, plan, scratch)
        for lane in plan.lanes:
            plan.notify(f"{label}: {lane}")
            started = datetime.datetime.now(datetime.UTC)
            if feed is None:
                measured, judged, inputs = _unfed(unfeedable or ""), None, {}
            else:
                measured = _measure(subject, feed, lane, scratch, plan)
                plan.notify(f"{label}: {lane}: verdict")
                judged, inputs = _judge(feed, lane, measured), feed.description
            context = Context(
                artifact=subject.artifact,
                signature=subject.signature.key,
                nodes=len(subject.model.subgraphs[subject.signature.subgraph].nodes),
                lane=registry.find(lane).name,
                started=started,
                command=settings.command,
                device=device_name(settings.device),
                inputs=inputs,
                provenance=subject.provenance,
                options=settings.options,
            )
            if registry.find(lane).runs_in == "browser":
                entry = browser_entry(context, measured, judged)
                record = records.append_browser_run(settings.out, subject.model_id, entry)
            else:
                entry = device_entry(context, measured, judged)
                record = records.append_device_run(settings.out, subject.model_id, context.device, entry)
            yield RunResult(
                subject.artifact.path, subject.model_id, context.signature, context.lane, entry, record
            )


@dataclass(frozen=True)
class _Feed:
    """The sets of inputs of one subject, and who judges what comes of them."""

    files: list[Path]
    sequence: list[int]
    judge: Judge
    description: dict[str, Json]


def _feed(subject: _Subject, plan: _Plan, scratch: Path) -> _Feed:
    settings, signature = plan.settings, subject.signature
    own: list[InputSet] = []
    if settings.inputs is not None:
        own = load_inputs(settings.inputs, signature, subject.shapes, image_range=settings.image_range)
    # Outputs saved from a source belong to the user's inputs; nobody has them for ours.
    saved = settings.source is not None and settings.source.endswith(".npz")
    kinds = () if saved and own else settings.kinds
    sets = own + seeded_sets(subject.model, signature, subject.shapes, settings.seed, kinds)
    files: list[Path] = []
    for position, one in enumerate(sets):
        files.append(scratch / f"inputs-{position}.npz")
        save_arrays(files[-1], one.arrays)
    judge = Judge(
        subject.model,
        signature,
        sets,
        lambda lane, model, inputs: _numbers(subject, plan, scratch, lane, model, inputs),
        scratch,
        seed=settings.seed,
        resized=bool(_resized(subject)),
        source=source_outputs(settings.source, signature, sets) if settings.source else None,
    )
    description = {
        "kind": sets[0].name,
        "seed": settings.seed,
        "sets": [one.name for one in sets],
        "shapes": _listed(subject.shapes),
        "source": settings.source,
    }
    return _Feed(files, plan_sequence(len(sets)), judge, description)


def _unfeedable(subject: _Subject) -> str | None:
    for direction, entries in (("input", subject.signature.inputs), ("output", subject.signature.outputs)):
        for entry in entries:
            if entry.tensor.dtype in UNFEEDABLE:
                return f"{direction} {entry.name!r} is of type {entry.tensor.dtype}, which is not supported"
    return None


def _resized(subject: _Subject) -> list[str]:
    return [e.name for e in subject.signature.inputs if e.tensor.shape != subject.shapes[e.name]]


def _job(subject: _Subject, files: Sequence[Path], sequence: list[int], folder: Path, settings: Settings) -> Job:
    signature, shapes = subject.signature, subject.shapes
    return Job(
        model=str(subject.artifact.path.resolve()),
        workdir=str(folder),
        signature=signature.key,
        inputs=[TensorSpec(entry.name, entry.tensor.dtype, shapes[entry.name]) for entry in signature.inputs],
        outputs=[TensorSpec(entry.name, entry.tensor.dtype, entry.tensor.shape) for entry in signature.outputs],
        resized=_resized(subject),
        input_sets=[str(file) for file in files],
        sequence=sequence,
        warmup=settings.warmup,
        runs=settings.runs,
        budget_s=settings.budget_s,
        threads=settings.threads or min(os.cpu_count() or 1, DEFAULT_THREADS),
        options=settings.options,
    )


def _set_unmeasured_reference(subject: _Subject, feed: _Feed, plan: _Plan, scratch: Path) -> None:
    """Run a better reference than the lanes asked for hold, for its numbers only."""
    for name in REFERENCES:
        if name in plan.lanes:
            return
        job = _job(subject, feed.files, feed.sequence, scratch / f"numbers-{name}", plan.settings)
        measured = _run(name, dataclasses.replace(job, runs=0), plan)
        outputs = _outputs(measured)
        if outputs:
            feed.judge.set_reference(name, feed.sequence, outputs, _inference_ms(measured))
            return


def _numbers(
    subject: _Subject, plan: _Plan, scratch: Path, lane: str, model: Path, inputs: list[list[Array]]
) -> list[list[Array]]:
    """Outputs of another model file with the same inputs and outputs, for a list of input sets.

    Raises:
        AssayError: The lane did not give them.
    """
    with tempfile.TemporaryDirectory(prefix="numbers-", dir=scratch) as temporary:
        files: dict[int, Path] = {}
        for arrays in inputs:
            # The same set comes again and again: one file of each.
            if id(arrays) not in files:
                files[id(arrays)] = Path(temporary) / f"inputs-{len(files)}.npz"
                save_arrays(files[id(arrays)], arrays)
        order = list(files)
        sequence = [order.index(id(arrays)) for arrays in inputs]
        job = _job(subject, list(files.values()), sequence, Path(temporary) / "job", plan.settings)
        measured = _run(lane, dataclasses.replace(job, model=str(model.resolve()), runs=0, options={}), plan)
        outputs = _outputs(measured) or []
        if len(outputs) != len(inputs):
            raise AssayError(measured.acceptance.error or f"{lane} gave {len(outputs)} of {len(inputs)} outputs")
        return outputs


def _measure(subject: _Subject, feed: _Feed, lane: str, scratch: Path, plan: _Plan) -> Measured:
    """Measure once, or with the quiet gate until a measurement was not disturbed."""
    settings = plan.settings
    attempts = 0
    while True:
        attempts += 1
        if settings.quiet_gate:
            machine.wait_for_quiet(settings.quiet_timeout_s)
        folder = scratch / f"{lane.replace(':', '.')}-{attempts}"
        job = _job(subject, feed.files, feed.sequence, folder, settings)
        measured = dataclasses.replace(_run(lane, job, plan), attempts=attempts)
        again = settings.quiet_gate and measured.unstable and attempts < settings.quiet_attempts
        if not again:
            return measured


def _run(lane: str, job: Job, plan: _Plan) -> Measured:
    limits = plan.settings
    outcome = plan.runner(lane, job, time_limit_s=limits.time_limit_s, memory_limit=limits.memory_limit)
    observation = outcome.observation
    if observation is not None:
        plan.model_times_s.append(observation.facts.get("model_time_s") or 0.0)
    facts = registry.find(lane).read(outcome.log, observation)
    ending = Ending(
        stage=observation.stage if observation else None,
        loaded=observation is not None and observation.load_ms is not None,
        error=observation.error if observation else None,
        error_class=observation.error_class if observation else None,
        returncode=outcome.returncode,
        timed_out=outcome.timed_out,
        out_of_memory=outcome.out_of_memory,
        flooded=outcome.flooded,
    )
    acceptance = accept(ending, outcome.log, facts.failure)
    summary = None
    unstable: list[str] = []
    if observation is not None and observation.samples_ms and acceptance.failure is None:
        summary = summarize(observation.samples_ms)
        unstable = summary.unsteady + list(observation.state.get("disturbances", []))
    return Measured(outcome, facts, acceptance, summary, unstable, attempts=1)


def _outputs(measured: Measured) -> list[list[Array]] | None:
    """The outputs of each inference of the sequence, or None if the run does not count."""
    if measured.outcome is None or measured.acceptance.failure is not None:
        return None
    return [load_arrays(path) for path in measured.outcome.output_files()]


def _inference_ms(measured: Measured) -> float | None:
    if measured.summary is not None:
        return measured.summary.p50_ms
    observation = measured.outcome.observation if measured.outcome else None
    return observation.first_run_ms if observation else None


def _judge(feed: _Feed, lane: str, measured: Measured) -> Judged | None:
    """What is to be said of the outputs, or None where there are none."""
    outputs = _outputs(measured)
    if not outputs:
        return None
    if feed.judge.reference is None and lane in REFERENCES:
        feed.judge.set_reference(lane, feed.sequence, outputs, _inference_ms(measured))
    return feed.judge.judge(
        lane, measured.facts.precision or registry.find(lane).precision, feed.sequence, outputs
    )


def _unfed(reason: str) -> Measured:
    acceptance = Acceptance(None, False, FailureClass.UNSUPPORTED_DTYPE, reason, ())
    return Measured(None, LaneFacts(), acceptance)


def _listed(shapes: dict[str, tuple[int, ...]]) -> dict[str, list[int]]:
    return {name: list(shape) for name, shape in shapes.items()}
