"""A sweep: many models on the browser lanes, in one go that can be interrupted and goes on where it stopped."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from assay.devices.base import Device
from assay.errors import AssayError
from assay.lanes import registry
from assay.measure.run import CardBuilder, Report, RunResult, find_devices, plan_runs, run_models
from assay.measure.settings import Settings
from assay.models.artifact import identify, model_ids
from assay.models.file import open_model
from assay.records.files import write_atomic
from assay.records.store import locked

_LIST_LIMIT = 2**20


def sweep_lanes() -> tuple[str, ...]:
    """The lanes of a sweep, where none is named: those whose runs are sweep records."""
    return tuple(name for name in registry.default_names() if registry.find(name).record == "browser_sweep")


def find_models(catalog: Path) -> list[Path]:
    """The models of a sweep.

    Args:
        catalog: A folder, searched through; a `.tflite` file; or a text file with one path a line, relative to
            its own folder. Empty lines and lines that begin with `#` are left out.

    Returns:
        Paths, in the list's order, or sorted by name.

    Raises:
        AssayError: There is no such folder or file, or no model in it.
    """
    if catalog.is_dir():
        found = sorted(path for path in catalog.rglob("*.tflite") if path.is_file())
    elif catalog.suffix == ".tflite":
        found = [catalog]
    else:
        found = [catalog.parent / line for line in _lines(catalog)]
    if not found:
        raise AssayError(f"{catalog} holds no .tflite file", fix="name a folder with models, or a list of paths")
    for path in found:
        if not path.is_file():
            raise AssayError(f"{catalog}: there is no file {path}")
    return found


def _lines(catalog: Path) -> list[str]:
    try:
        if catalog.stat().st_size > _LIST_LIMIT:
            raise AssayError(f"{catalog} is too big for a list of models")
        text = catalog.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise AssayError(
            f"{catalog} cannot be read as a list of models: {why}", fix="name a folder with .tflite files"
        ) from error
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


class SweepJournal:
    """What a sweep has measured so far, in a file that is gone once the sweep is complete.

    Args:
        out: Folder of records; the journal lies in it.
        settings: A sweep with other settings is another sweep, with a journal of its own.
    """

    def __init__(self, out: Path, settings: Settings) -> None:
        what = settings.but(out=Path(), command=(), lanes=())
        key = hashlib.sha256(repr(what).encode()).hexdigest()[:12]
        self.path = out / f".sweep-{key}.json"
        self._lock = threading.Lock()
        try:
            self._done: set[str] = set(json.loads(self.path.read_text())["done"])
        except (OSError, ValueError, KeyError, TypeError):
            self._done = set()

    def missing(self, model: str, lanes: Sequence[str]) -> tuple[str, ...]:
        """The lanes on which a model, named by its digest, is yet to be measured."""
        return tuple(lane for lane in lanes if f"{model}:{lane}" not in self._done)

    def note(self, model: str, lane: str) -> None:
        """Note that a model's run on a lane is on disk."""
        with self._lock:
            self._done.add(f"{model}:{lane}")
            write_atomic(self.path, json.dumps({"done": sorted(self._done)}, indent=1) + "\n")

    def end(self) -> None:
        """The sweep is complete."""
        self.path.unlink(missing_ok=True)


def sweep(
    models: Sequence[Path],
    settings: Settings,
    *,
    jobs: int = 1,
    notify: Callable[[str], None] = lambda text: None,
    done: Callable[[RunResult], None] = lambda result: None,
    card: CardBuilder | None = None,
) -> Report:
    """Measure models on the browser lanes, one browser for all of them as long as nothing fails.

    What an earlier sweep with the same settings has measured before it was interrupted is not measured again.

    Args:
        models: `.tflite` files.
        settings: How to measure; without lanes, those of `sweep_lanes`.
        jobs: Models side by side, each with a browser of its own. Only for numbers (`runs=0`): neighbours
            would be in the timings.
        notify: Told what is being done.
        done: Told of each run when it is on disk; runs of an earlier sweep are not told again.
        card: See `run_models`.

    Returns:
        What this call has measured.

    Raises:
        AssayError: A lane cannot run here, or timing was asked for side by side.
    """
    if jobs > 1 and settings.runs:
        raise AssayError(
            "models side by side disturb each other's timings", fix="add --runs 0 to compare numbers only"
        )
    settings = settings.but(lanes=settings.lanes or sweep_lanes())
    lanes = list(dict.fromkeys(name for cell in plan_runs(settings).cells for name in cell.lanes))
    # Better known now than when something is measured and cannot be written.
    with locked(settings.out):
        pass
    ids = dict(zip(models, model_ids(models), strict=True))
    journal = SweepJournal(settings.out, settings)
    report = Report(fail_on=settings.fail_on)
    lock = threading.Lock()

    def measure(path: Path, among: Sequence[Device], stop: threading.Event) -> None:
        digest = identify(path).sha256
        missing = journal.missing(digest, lanes)
        if not missing:
            return
        one = settings.but(lanes=missing, model_id=ids[path])
        left = {lane: _signatures(path, settings) for lane in missing}

        def tell(result: RunResult) -> None:
            # A lane counts as measured once all of the model's signatures were.
            left[result.asked] -= 1
            if left[result.asked] == 0:
                journal.note(digest, result.asked)
            with lock:
                done(result)

        part = run_models([path], one, notify=notify, done=tell, among=among, card=card, stop=stop)
        with lock:
            report.results += part.results
            report.errors += part.errors
            report.warnings += part.warnings
            report.cards += part.cards
            report.model_times_s += part.model_times_s

    if jobs == 1:
        with contextlib.ExitStack() as stack:
            among = [stack.enter_context(device) for device in find_devices(settings)]
            for path in models:
                _measured(measure, path, among, threading.Event(), report)
    else:
        _side_by_side(
            models, jobs, settings, lambda path, among, stop: _measured(measure, path, among, stop, report)
        )
    journal.end()
    return report


def _signatures(path: Path, settings: Settings) -> int:
    return len(settings.signatures) or len(open_model(path).signatures)


_Measure = Callable[[Path, Sequence[Device], threading.Event], None]


def _measured(
    measure: _Measure, path: Path, among: Sequence[Device], stop: threading.Event, report: Report
) -> None:
    """A file that cannot be measured does not stop the others."""
    try:
        measure(path, among, stop)
    except AssayError as error:
        report.errors.append(str(error))


def _side_by_side(models: Sequence[Path], jobs: int, settings: Settings, measure: _Measure) -> None:
    mine = threading.local()
    opened = contextlib.ExitStack()
    stop = threading.Event()
    lock = threading.Lock()

    def start() -> None:
        with lock:
            mine.devices = [opened.enter_context(device) for device in find_devices(settings)]

    def on_my_devices(path: Path) -> None:
        measure(path, mine.devices, stop)

    with opened:
        pool = ThreadPoolExecutor(jobs, thread_name_prefix="sweep", initializer=start)
        try:
            for future in [pool.submit(on_my_devices, path) for path in models]:
                future.result()
        finally:
            # Where the sweep was interrupted, jobs are under way, and more of them would follow.
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
