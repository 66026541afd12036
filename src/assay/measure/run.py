"""The main job: measure models on the lanes of devices, judge what came out, and write it down.

For each signature of each model, every lane of every device gets the same inputs in a child process for it alone.
What the reference lane returned on this machine is what the others are compared with. Each run is on disk before
the next begins.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from assay.devices import registry as devices
from assay.devices.base import Device
from assay.devices.local import LocalDevice
from assay.errors import AssayError
from assay.lanes import registry
from assay.lanes.base import Lane
from assay.measure.bench import Bench, RunSubject, open_subjects
from assay.measure.entry import Context, append_run
from assay.measure.settings import Settings
from assay.models.artifact import check_id, model_ids
from assay.records.meta import read_meta
from assay.records.store import locked
from assay.scratch import Scratch


class CardBuilder(Protocol):
    """Builds the card of a model from its records, as `assay.catalog.build_card` does."""

    def __call__(self, out: Path, model_id: str, /, *, meta: Path | None) -> Path:
        """The card's file.

        Raises:
            AssayError: The records are at odds with each other.
        """
        ...


@dataclass(frozen=True)
class RunResult:
    """One run, as written down.

    Attributes:
        model: The file.
        model_id: Its name in records.
        signature: Signature key, None for a model without.
        lane: Lane's name in the record.
        asked: The lane as it was asked for: its name, or `package.module:Class`.
        device: The device's name in records.
        entry: The record's entry.
        record: The file that it was written to.
    """

    model: Path
    model_id: str
    signature: str | None
    lane: str
    asked: str
    device: str
    entry: Any
    record: Path


@dataclass
class Report:
    """All that a call of `run_models` did.

    Attributes:
        results: The runs, in the order measured.
        skipped: Lanes that cannot run: name, with the device's where there are several -> (reason, fix).
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
        "fallback": run.full_delegation is False and registry.find(result.asked).accelerated,
        "unstable": bool(metrics.get("unstable")) or metrics.get("consistency") not in _STEADY,
    }
    return run.failure_class is not None or any(found[word] for word in fail_on)


_STEADY = (None, "consistent", "not_measured")


@dataclass(frozen=True)
class Cell:
    """The lanes of one device that are to be measured.

    Attributes:
        device: The device.
        lanes: Names of the lanes, references first.
    """

    device: Device
    lanes: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What is to be measured: every model on every cell.

    Attributes:
        cells: Lanes by device, in the order that devices were named.
        skipped: See `Report.skipped`.
    """

    cells: tuple[Cell, ...]
    skipped: dict[str, tuple[str, str]]

    @property
    def runs(self) -> int:
        """Runs for each signature of each model."""
        return sum(len(cell.lanes) for cell in self.cells)


def find_devices(settings: Settings) -> list[Device]:
    """The devices that settings name, in their order.

    Raises:
        AssayError: There is no such device.
    """
    found = [
        devices.find(text, settings.device if text == devices.DEFAULT else None)
        for text in dict.fromkeys(settings.on)
    ]
    if address := settings.options.get("cdp"):
        found.append(devices.find("cdp://" + str(address).partition("://")[2], settings.device))
    return found


def plan_runs(settings: Settings, among: Sequence[Device] | None = None) -> Plan:
    """Which lanes to measure on which devices, references first, and which are left out.

    Args:
        settings: Which lanes and devices.
        among: The devices; by default those that the settings name.

    Raises:
        AssayError: A device does not exist or cannot be reached, a lane's option has no such value, or a lane that
            was asked for by name does not exist or can run on none of the devices.
    """
    names = list(dict.fromkeys(settings.lanes)) or registry.default_names()
    for name in names:
        _check_lane(registry.find(name), settings)
    skipped: dict[str, tuple[str, str]] = {}
    cells: list[Cell] = []
    among = find_devices(settings) if among is None else list(among)
    for device in among:
        chosen: list[str] = []
        for name in names:
            lane = registry.find(name)
            if settings.options.get("cdp") and device.kind != "browser" and "browser" in lane.places:
                continue  # The browser that is attached to serves it.
            if not settings.lanes and device.kind not in lane.places:
                continue  # Nobody expects that lane on this kind of device.
            availability = device.available(lane)
            if availability.available:
                chosen.append(name)
            else:
                label = name if len(among) == 1 else f"{name} on {device.address}"
                skipped[label] = (availability.reason, availability.fix)
        ranked = registry.references()
        chosen.sort(key=lambda name: ranked.index(name) if name in ranked else len(ranked))
        cells.append(Cell(device, tuple(chosen)))
    measured = {name for cell in cells for name in cell.lanes}
    for name in settings.lanes:
        if name not in measured:
            reason, fix = next(
                (why for label, why in skipped.items() if label.partition(" on ")[0] == name),
                ("no device that was named serves it", "name another device with --on"),
            )
            raise AssayError(f"lane {name} cannot run here: {reason}", fix=fix)
    return Plan(tuple(cells), skipped if not settings.lanes or len(among) > 1 else {})


def _check_lane(lane: Lane, settings: Settings) -> None:
    """Options that a lane cannot have are misuse, and better known before anything is measured."""
    lane.check_options(settings.options)
    if lane.experimental and lane.asks_consent and not settings.options.get("experimental"):
        raise AssayError(f"the lane {lane.name} is experimental", fix="add --experimental")


@dataclass(frozen=True)
class _Work:
    """What holds for a whole call of `run_models`."""

    settings: Settings
    plan: Plan
    desk: Device
    notify: Callable[[str], None]
    report: Report
    done: Callable[[RunResult], None]
    card: CardBuilder | None
    stop: threading.Event
    lock: threading.Lock = field(default_factory=threading.Lock)


def run_models(
    paths: Sequence[Path],
    settings: Settings,
    *,
    notify: Callable[[str], None] = lambda text: None,
    done: Callable[[RunResult], None] = lambda result: None,
    among: Sequence[Device] | None = None,
    card: CardBuilder | None = None,
    stop: threading.Event | None = None,
) -> Report:
    """Measure models on lanes of devices; write a record for each run.

    A file that cannot be measured is an entry in the report's `errors`; the others go on. Each run is on disk
    before the next one of its device begins, so an interruption loses the current ones only. This machine is
    measured alone; other devices are measured side by side, each with one job at a time.

    Args:
        paths: Model files.
        settings: How to measure.
        notify: Told what is being done, one short line each time.
        done: Told of each run when it is on disk.
        among: The devices, opened by the caller; by default those that the settings name.
        card: Builds the card of each model when all its runs are on disk; None leaves cards out.
        stop: Ends the jobs at hand when it is set; see `Device.run_jobs`.

    Raises:
        AssayError: The settings cannot be met: an unknown lane or device, one name for several models.
    """
    if settings.model_id is not None and len(paths) > 1:
        raise AssayError("--model-id names one model", fix="give one model, or leave the name out")
    if settings.meta is not None:
        # Broken, it is misuse, and better known before anything is measured.
        read_meta(settings.meta)
    ids = model_ids(paths) if settings.model_id is None else [settings.model_id]
    if settings.model_id is not None:
        check_id(settings.model_id)
    with contextlib.ExitStack() as stack:
        if among is None:
            among = [stack.enter_context(device) for device in find_devices(settings)]
        plan = plan_runs(settings, among)
        here = next((cell.device for cell in plan.cells if cell.device.here), None)
        desk = here or stack.enter_context(LocalDevice(settings.device))
        report = Report(skipped=plan.skipped, fail_on=settings.fail_on)
        work = _Work(settings, plan, desk, notify, report, done, card, stop or threading.Event())
        for path, model_id in zip(paths, ids, strict=True):
            _run_model(path, model_id, work)
    return report


def _run_model(path: Path, model_id: str, work: _Work) -> None:
    settings, report = work.settings, work.report
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
        _run_subject(subject, work)
    if len(report.results) == before or work.card is None:
        return
    work.notify(f"{model_id}: card")
    try:
        report.cards.append(work.card(settings.out, model_id, meta=meta))
    except AssayError as error:
        # The runs are on disk; what is wrong with the card, a person must decide.
        report.warnings.append(f"no card: {error}")


def meta_file(path: Path, settings: Settings) -> Path | None:
    """What people know of a model: the file named in the settings, else `<stem>.meta.yaml` beside the model."""
    beside = path.parent / f"{path.stem}.meta.yaml"
    return settings.meta or (beside if beside.is_file() else None)


def _run_subject(subject: RunSubject, work: _Work) -> None:
    cells = [Cell(cell.device, tuple(_readable(subject, cell, work))) for cell in work.plan.cells]
    here = [cell for cell in cells if cell.device.here]
    elsewhere = [cell for cell in cells if not cell.device.here and cell.lanes]
    lanes = [lane for cell in here for lane in cell.lanes]
    with Scratch() as scratch:
        try:
            bench = Bench(subject, work.settings, work.desk, lanes, scratch, work.stop)
        except AssayError as error:
            work.report.errors.append(f"{subject.label}: {error}")
            return
        for cell in here:
            _run_cell(subject, bench, cell, work)
        if len(elsewhere) == 1:
            _run_cell(subject, bench, elsewhere[0], work)
        elif elsewhere:
            with ThreadPoolExecutor(len(elsewhere), thread_name_prefix="device") as pool:
                try:
                    for future in [pool.submit(_run_cell, subject, bench, cell, work) for cell in elsewhere]:
                        future.result()
                except BaseException:
                    # No Ctrl-C reaches the other threads.
                    work.stop.set()
                    raise
        work.report.model_times_s += bench.model_times_s


def _readable(subject: RunSubject, cell: Cell, work: _Work) -> Iterator[str]:
    """The lanes of a cell that read the model's format, or one of its variants."""
    for name in cell.lanes:
        lane = registry.find(name)
        if subject.file.for_formats(lane.formats) is not None:
            yield name
            continue
        reads = " or ".join(lane.formats)
        fix = f"give the same model in that format: --variant {lane.formats[0]}=FILE"
        if name in work.settings.lanes:
            work.report.errors.append(
                f"{subject.label}: lane {name} reads {reads}, the model is {subject.file.format}; {fix}"
            )
        else:
            work.report.skipped[name] = (f"it reads {reads}, {subject.model_id} is {subject.file.format}", fix)


def _run_cell(subject: RunSubject, bench: Bench, cell: Cell, work: _Work) -> None:
    """Measure a subject on the lanes of one device, one after the other."""
    settings, device = work.settings, cell.device
    label = subject.label if len(work.plan.cells) == 1 else f"{subject.label} on {device.address}"
    facts = device.facts()
    for name in cell.lanes:
        lane = registry.find(name)
        artifact = subject.file.for_formats(lane.formats)
        assert artifact is not None
        work.notify(f"{label}: {name}")
        started = datetime.datetime.now(datetime.UTC)
        measured = bench.measure(device, name)
        # The verdict takes this machine's time: one at a time.
        with work.lock:
            work.notify(f"{label}: {name}: verdict")
            judged = bench.judge(device, name, measured)
            context = Context(
                artifact=artifact,
                signature=subject.signature.key,
                nodes=subject.nodes,
                lane=lane,
                runtime_version=device.runtime_version(lane, settings.options),
                started=started,
                command=settings.command,
                device=facts,
                in_page=device.kind == "browser",
                inputs=bench.inputs,
                provenance=subject.provenance,
                options=settings.options,
            )
            entry, record = append_run(settings.out, subject.model_id, context, measured, judged)
            result = RunResult(
                artifact.path, subject.model_id, context.signature, lane.name, name, facts.name, entry, record
            )
            work.report.results.append(result)
            work.done(result)
