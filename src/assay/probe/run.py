"""The parent's side of a probe: it starts the child that tries the cases, and keeps what comes; resumable."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.errors import AssayError
from assay.probe.cases import Case
from assay.probe.outcome import Outcome
from assay.processes import Child
from assay.records.files import write_atomic


@dataclass
class Progress:
    """What a run of the probe has seen so far.

    Attributes:
        path: The file of outcomes, one JSON document a line, appended as they come.
        outcomes: By case id.
        session: Adapter and behaviour of the delegate, as the last child saw them.
    """

    path: Path
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    session: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def load(cls, path: Path) -> Progress:
        """Take up where an earlier run stopped; a line that was cut off is dropped."""
        progress = cls(path)
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    document = json.loads(line)
                    if "session" in document:
                        progress.session = document["session"]
                        continue
                    outcome = Outcome.from_json(document)
                except (ValueError, TypeError):
                    continue
                progress.outcomes[outcome.case] = outcome
        return progress

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Keep outcomes, on disk as well."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            for outcome in outcomes:
                file.write(json.dumps(outcome.to_json(), sort_keys=True) + "\n")
                self.outcomes[outcome.case] = outcome

    def remember(self, session: dict[str, Any]) -> None:
        """Keep what a child saw of adapter and delegate, on disk as well."""
        self.session = session
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({"session": session}, sort_keys=True) + "\n")


def run_cases(
    cases: Iterable[Case],
    progress: Progress,
    *,
    environment: Mapping[str, str],
    worker: str = "assay.probe.worker",
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Try every case that `progress` has no outcome for; each outcome is kept as it comes.

    Args:
        cases: The cases, in order.
        progress: Outcomes so far; added to.
        environment: What the child's environment has besides the parent's.
        worker: Module of the child process.
        tell: Called with the numbers of outcomes so far and of cases in all.

    Raises:
        AssayError: The child cannot try a single case.
    """
    wanted = list(cases)
    stuck = 0
    while waiting := [case for case in wanted if case.id not in progress.outcomes]:
        before = len(progress.outcomes)
        words = _run(waiting, progress, environment, worker, lambda done: tell(done, len(wanted)))
        if len(progress.outcomes) == before:
            stuck += 1
            if stuck > 1:
                raise AssayError(
                    f"the probe cannot try a single case: {words}", fix="run `assay lanes` to see what it lacks"
                )


def _run(
    waiting: list[Case],
    progress: Progress,
    environment: Mapping[str, str],
    worker: str,
    tell: Callable[[int], None],
) -> str:
    """One child over all cases that wait; the last words of its log."""
    folder = progress.path.parent
    source, results = folder / "waiting.json", folder / "results.jsonl"
    log = results.with_suffix(".log")
    write_atomic(source, json.dumps([case.to_json() for case in waiting]))
    for path in (results, log):
        path.unlink(missing_ok=True)
    command = [sys.executable, "-m", worker, str(source), str(results)]
    child = Child(command, log, environment={**environment, "OPENBLAS_NUM_THREADS": "1"})
    position = 0
    try:
        while True:
            ended = child.process.poll() is not None
            position = _take(results, position, progress)
            tell(len(progress.outcomes))
            if ended:
                break
            time.sleep(0.5)
    finally:
        child.close()
        _take(results, position, progress)
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    return " / ".join(lines[-2:])


def _take(results: Path, position: int, progress: Progress) -> int:
    """Keep the outcomes that stand in the results after a position; the position after the last whole line."""
    if not results.exists():
        return position
    with results.open("rb") as file:
        file.seek(position)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    found: list[Outcome] = []
    for line in whole.splitlines():
        document = json.loads(line)
        if "session" in document:
            progress.remember(document["session"])
        elif "done" in document:
            found.append(Outcome.from_json(document["done"]))
    progress.add(found)
    return position + len(whole)
