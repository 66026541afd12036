"""A sweep: many models on the browser lanes, in one go that can be interrupted and goes on where it stopped."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from assay import graph
from assay.devices.resident import BrowserWorker
from assay.errors import AssayError
from assay.measure.run import Report, RunResult, Settings, plan_lanes, run_models
from assay.models.artifact import identify, model_ids
from assay.records.files import write_atomic
from assay.records.store import locked

LANES = ("wasm_xnnpack", "webgpu_mldrift")
"""The lanes of a sweep, where none is named."""

_LIST_LIMIT = 2**20


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


class Journal:
    """What a sweep has measured so far, in a file that is gone once the sweep is complete.

    Args:
        out: Folder of records; the journal lies in it.
        settings: A sweep with other settings is another sweep, with a journal of its own.
    """

    def __init__(self, out: Path, settings: Settings) -> None:
        what = dataclasses.replace(settings, out=Path(), command=(), lanes=())
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
) -> Report:
    """Measure models on the browser lanes, one browser for all of them as long as nothing fails.

    What an earlier sweep with the same settings has measured before it was interrupted is not measured again.

    Args:
        models: `.tflite` files.
        settings: How to measure; without lanes, those of `LANES`.
        jobs: Models side by side, each with a browser of its own. Only for numbers (`runs=0`): neighbours
            would be in the timings.
        notify: Told what is being done.
        done: Told of each run when it is on disk; runs of an earlier sweep are not told again.

    Returns:
        What this call has measured.

    Raises:
        AssayError: A lane cannot run here, or timing was asked for side by side.
    """
    if jobs > 1 and settings.runs:
        raise AssayError(
            "models side by side disturb each other's timings", fix="add --runs 0 to compare numbers only"
        )
    settings = dataclasses.replace(settings, lanes=settings.lanes or LANES)
    lanes, _ = plan_lanes(settings)
    # Better known now than when something is measured and cannot be written.
    with locked(settings.out):
        pass
    ids = dict(zip(models, model_ids(models), strict=True))
    journal = Journal(settings.out, settings)
    report = Report(fail_on=settings.fail_on)
    lock = threading.Lock()

    def measure(path: Path, worker: BrowserWorker) -> None:
        digest = identify(path).sha256
        missing = journal.missing(digest, lanes)
        if not missing:
            return
        one = dataclasses.replace(settings, lanes=missing, model_id=ids[path])
        left = {lane: _signatures(path, settings) for lane in missing}

        def tell(result: RunResult) -> None:
            # A lane counts as measured once all of the model's signatures were.
            left[result.lane] -= 1
            if left[result.lane] == 0:
                journal.note(digest, result.lane)
            with lock:
                done(result)

        part = run_models([path], one, notify=notify, done=tell, runner=worker.run_job)
        with lock:
            report.results += part.results
            report.errors += part.errors
            report.warnings += part.warnings
            report.cards += part.cards
            report.model_times_s += part.model_times_s

    if jobs == 1:
        with BrowserWorker() as worker:
            for path in models:
                _measured(measure, path, worker, report)
    else:
        _side_by_side(models, jobs, lambda path, worker: _measured(measure, path, worker, report))
    journal.end()
    return report


def _signatures(path: Path, settings: Settings) -> int:
    return len(settings.signatures) or len(graph.read(path).signatures)


def _measured(
    measure: Callable[[Path, BrowserWorker], None], path: Path, worker: BrowserWorker, report: Report
) -> None:
    """A file that cannot be measured does not stop the others."""
    try:
        measure(path, worker)
    except AssayError as error:
        report.errors.append(str(error))


def _side_by_side(models: Sequence[Path], jobs: int, measure: Callable[[Path, BrowserWorker], None]) -> None:
    mine = threading.local()
    workers: list[BrowserWorker] = []
    stop = threading.Event()

    def start() -> None:
        mine.worker = BrowserWorker(stop)
        workers.append(mine.worker)

    def on_my_worker(path: Path) -> None:
        measure(path, mine.worker)

    pool = ThreadPoolExecutor(jobs, thread_name_prefix="sweep", initializer=start)
    try:
        for future in [pool.submit(on_my_worker, path) for path in models]:
            future.result()
    finally:
        # Where the sweep was interrupted, jobs are under way, and more of them would follow.
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
        for worker in workers:
            worker.close()
