"""Run pieces of a graph on a lane, many in one process where that is safe, and keep going when one crashes."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from assay.devices.base import JobOutcome
from assay.devices.local import LocalDevice
from assay.lanes import registry
from assay.lanes.base import LaneFacts
from assay.lanes.job import Job, Json, TensorSpec
from assay.lanes.native import Array, load_arrays, save_arrays
from assay.protocol.acceptance import accept
from assay.records.failure import FailureClass
from assay.records.privacy import scrub_values
from assay.scratch import Scratch

_JOB_LINE = re.compile(r"^\[assay\] job (?P<folder>.+)$", re.MULTILINE)

MAX_TOGETHER = 64
"""Pieces in one process at most: what a crash in the last one costs stays bounded."""


@dataclass(frozen=True)
class Trial:
    """One model to be run once on a lane.

    Attributes:
        name: What it is, for the log.
        model: The bytes of the `.tflite` file, or the path of one.
        inputs: Inputs of its only signature, in order.
        outputs: Its outputs, in order.
        sets: Input sets; each has one array for each input.
        sequence: Which sets are run, in order, on the one loaded model.
        signature: Signature key; None for a model without signatures.
        resized: Inputs whose shape must be set first.
        options: Options of the lane.
        runs: Timed inferences of set 0 after the sequence; 0 for numbers only.
    """

    name: str
    model: bytes | Path
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    sets: Sequence[Sequence[Array]]
    sequence: Sequence[int]
    signature: str | None = None
    resized: Sequence[str] = ()
    options: dict[str, Json] = field(default_factory=dict[str, Json])
    runs: int = 0


@dataclass(frozen=True)
class TrialResult:
    """What became of a trial.

    Attributes:
        failure: Why it failed, or None if every inference was made.
        error: One sentence for the failure, or None.
        evidence: Log lines that show the failure.
        facts: What the lane's log shows: delegation and refusals.
        files: Outputs of each inference of the sequence that was made, in order; gone at the next launch.
        samples_ms: Timed inferences, in milliseconds.
    """

    failure: FailureClass | None
    error: str | None
    evidence: tuple[str, ...]
    facts: LaneFacts
    files: tuple[Path, ...]
    samples_ms: tuple[float, ...]

    def outputs(self, position: int) -> list[Array]:
        """The outputs of one inference of the sequence, in order."""
        return load_arrays(self.files[position])


class Launcher:
    """Runs trials on one lane and counts what it costs.

    Attributes:
        lane: The lane's name.
        launches: Processes started so far.
        pieces: Models run so far.
        seconds: Time spent in processes.
    """

    def __init__(
        self, lane: str, *, threads: int = 2, time_limit_s: float = 300.0, memory_limit: int | None = None
    ) -> None:
        self.lane = lane
        self.launches = 0
        self.pieces = 0
        self.seconds = 0.0
        self._threads = threads
        self._time_limit_s = time_limit_s
        self._memory_limit = memory_limit
        self._scratch = Scratch()
        self._folder = self._scratch.path / "trials"

    def close(self) -> None:
        """Remove the temporary files."""
        self._scratch.close()

    def run(self, trials: Sequence[Trial]) -> list[TrialResult]:
        """Run trials, in one process unless one of them ends it.

        The pieces after one that crashed, hung or ran out of memory are run again without it.

        Args:
            trials: Whatever is to be run; the outputs of earlier calls are removed.

        Returns:
            One result for each trial, in order.
        """
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        results: dict[int, TrialResult] = {}
        waiting = list(range(len(trials)))
        while waiting:
            batch = waiting[:MAX_TOGETHER]
            done = self._launch([trials[index] for index in batch], self._folder / f"{self.launches}")
            for index, result in zip(batch, done, strict=True):
                if result is not None:
                    results[index] = result
            waiting = [index for index in waiting if index not in results]
        return [results[index] for index in range(len(trials))]

    def _launch(self, trials: list[Trial], folder: Path) -> list[TrialResult | None]:
        """One process; None for a trial that its turn never came to."""
        jobs = [self._job(trial, folder / f"{index}") for index, trial in enumerate(trials)]
        start = time.monotonic()
        limit = self._time_limit_s * (1 + len(trials) / 8)
        outcomes = LocalDevice().run_jobs(self.lane, jobs, time_limit_s=limit, memory_limit=self._memory_limit)
        self.seconds += time.monotonic() - start
        self.launches += 1
        self.pieces += len(trials)
        logs = split_log(outcomes[0].log)
        results: list[TrialResult | None] = []
        for index, outcome in enumerate(outcomes):
            if outcome.observation is None and index > 0:
                results.append(None)
            else:
                log = logs.get(str(outcome.workdir), outcome.log)
                results.append(self._result(outcome, log))
        return results

    def _job(self, trial: Trial, folder: Path) -> Job:
        folder.mkdir(parents=True)
        path = trial.model
        if isinstance(path, bytes):
            data, path = path, folder / "model.tflite"
            path.write_bytes(data)
        files: list[str] = []
        for index, arrays in enumerate(trial.sets):
            file = folder / f"inputs{index}.npz"
            save_arrays(file, list(arrays))
            files.append(str(file))
        return Job(
            model=str(path),
            workdir=str(folder),
            signature=trial.signature,
            inputs=list(trial.inputs),
            outputs=list(trial.outputs),
            resized=list(trial.resized),
            input_sets=files,
            sequence=list(trial.sequence),
            warmup=2 if trial.runs else 0,
            runs=trial.runs,
            budget_s=5.0,
            threads=self._threads,
            options=dict(trial.options),
        )

    def _result(self, outcome: JobOutcome, log: str) -> TrialResult:
        observation = outcome.observation
        facts = registry.find(self.lane).read(log, observation)
        ending = outcome.ending
        if ending.error is not None or ending.stage == "done":
            # The process ended as its last job did; a job that had come to its end before is done all the same.
            ending = replace(ending, returncode=0, timed_out=False, out_of_memory=False, flooded=False)
        # That the CPU took a piece which the accelerator has nothing to do with is no failure of the piece.
        fallback = facts.failure is FailureClass.SILENT_CPU_FALLBACK
        accepted = accept(ending, log, None if fallback else facts.failure, registry.find(self.lane).explain)
        return TrialResult(
            failure=accepted.failure,
            error=scrub_values(accepted.error),
            evidence=tuple(scrub_values(accepted.evidence)),
            facts=replace(facts, evidence=tuple(scrub_values(facts.evidence))),
            files=tuple(outcome.output_files()),
            samples_ms=tuple(observation.samples_ms) if observation else (),
        )


def split_log(log: str) -> dict[str, str]:
    """The part of a child's log that belongs to each job, by the job's folder."""
    matches = list(_JOB_LINE.finditer(log))
    ends = [match.start() for match in matches[1:]] + [len(log)]
    return {match["folder"]: log[match.end() : end] for match, end in zip(matches, ends, strict=True)}
