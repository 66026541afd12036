"""The main job: measure models on lanes, judge what came out, and write it down.

For each signature of each model, every lane gets the same inputs in a child process of its own. What the
reference lane returned is what the others are compared with. Each run is on disk before the next begins.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay import catalog, records
from assay.devices import local
from assay.devices.resident import BrowserWorker
from assay.errors import AssayError
from assay.lanes import registry
from assay.lanes.registry import REFERENCES
from assay.measure.bench import Bench, Runner, Subject, open_subjects
from assay.measure.entry import Context, browser_entry, device_entry, device_name
from assay.measure.settings import FAIL_ON, Settings
from assay.models.artifact import check_id, model_ids
from assay.records.meta import read_meta
from assay.records.store import locked
from assay.report.card import render_card
from assay.scratch import Scratch

__all__ = ["FAIL_ON", "Report", "RunResult", "Settings", "meta_file", "plan_lanes", "run_models"]


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
class _Plan:
    """What holds for a whole call of `run_models`."""

    settings: Settings
    lanes: Sequence[str]
    runner: Runner
    notify: Callable[[str], None]


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
    ids = model_ids(paths) if settings.model_id is None else [settings.model_id]
    report = Report(skipped=skipped, fail_on=settings.fail_on)
    if settings.model_id is not None:
        check_id(settings.model_id)
    with contextlib.ExitStack() as stack:
        if runner is None and any(registry.find(lane).runs_in == "browser" for lane in lanes):
            runner = stack.enter_context(BrowserWorker()).run_job
        plan = _Plan(settings, lanes, runner or local.run_job, notify)
        for path, model_id in zip(paths, ids, strict=True):
            _run_model(path, model_id, plan, report, done)
    return report


def _run_model(path: Path, model_id: str, plan: _Plan, report: Report, done: Callable[[RunResult], None]) -> None:
    settings = plan.settings
    try:
        meta = meta_file(path, settings)
        subjects = list(open_subjects(path, model_id, settings, meta))
        # Better known now than when something is measured and cannot be written.
        with locked(settings.out):
            pass
    except AssayError as error:
        report.errors.append(str(error))
        return
    before = len(report.results)
    for subject in subjects:
        for result in _run_subject(subject, plan, report):
            report.results.append(result)
            done(result)
    if len(report.results) == before:
        return
    plan.notify(f"{model_id}: card")
    try:
        report.cards.append(catalog.build_card(settings.out, model_id, render=render_card, meta=meta))
    except AssayError as error:
        # The runs are on disk; what is wrong with the card, a person must decide.
        report.warnings.append(f"no card: {error}")


def meta_file(path: Path, settings: Settings) -> Path | None:
    """What people know of a model: the file named in the settings, else `<stem>.meta.yaml` beside the model."""
    beside = path.parent / f"{path.stem}.meta.yaml"
    return settings.meta or (beside if beside.is_file() else None)


def _run_subject(subject: Subject, plan: _Plan, report: Report) -> Iterator[RunResult]:
    settings = plan.settings
    with Scratch() as scratch:
        try:
            bench = Bench(subject, settings, plan.lanes, plan.runner, scratch)
        except AssayError as error:
            report.errors.append(f"{subject.label}: {error}")
            return
        for lane in plan.lanes:
            plan.notify(f"{subject.label}: {lane}")
            started = datetime.datetime.now(datetime.UTC)
            measured = bench.measure(lane)
            plan.notify(f"{subject.label}: {lane}: verdict")
            judged = bench.judge(lane, measured)
            context = Context(
                artifact=subject.artifact,
                signature=subject.signature.key,
                nodes=subject.nodes,
                lane=registry.find(lane).name,
                started=started,
                command=settings.command,
                device=device_name(settings.device),
                inputs=bench.inputs,
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
        report.model_times_s += bench.model_times_s
