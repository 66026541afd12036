"""What the lanes that run in this process share: feed, run, keep the outputs, time."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from assay.lanes.job import Job, Observation, TensorSpec, save_observation
from assay.protocol import machine
from assay.protocol.timing import time_runs

Array = np.ndarray[Any, np.dtype[Any]]
Invoke = Callable[[list[Array]], list[Array]]
"""One inference, host to host: inputs by position to outputs by position, read back whole."""


def runtime_version() -> str:
    """Version of the installed LiteRT runtime."""
    return importlib.metadata.version("ai-edge-litert")


def load_arrays(path: str | Path) -> list[Array]:
    """Arrays that `save_arrays` wrote, by position."""
    with np.load(path, allow_pickle=False) as arrays:
        return [arrays[str(index)] for index in range(len(arrays.files))]


def save_arrays(path: Path, arrays: list[Array]) -> None:
    """Write arrays keyed by position, whole or not at all."""
    partial = path.with_suffix(".part")
    with partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **{str(index): array for index, array in enumerate(arrays)})
    partial.replace(path)


def run_measurement(job: Job, observation: Observation, load: Callable[[], Invoke]) -> None:
    """Load, run the sequence, warm up and time; the observation is saved at each stage.

    Args:
        job: What to measure.
        observation: Filled as it goes.
        load: Makes the model ready and returns how to invoke it.
    """

    def begin(stage: str) -> None:
        observation.stage = stage
        save_observation(job, observation)

    sets = [load_arrays(path) for path in job.input_sets]
    machine.reset_peak()
    observation.baseline_mb = machine.resident_mb()
    begin("load")
    begun = start = time.perf_counter()
    invoke = load()
    observation.load_ms = (time.perf_counter() - start) * 1e3

    folder = Path(job.workdir) / "outputs"
    folder.mkdir(exist_ok=True)
    begin("first_run")
    for position, index in enumerate(job.sequence):
        start = time.perf_counter()
        outputs = invoke(sets[index])
        if position == 0:
            observation.first_run_ms = (time.perf_counter() - start) * 1e3
            observation.output_specs = [
                TensorSpec(spec.name, array.dtype.name, array.shape)
                for spec, array in zip(job.outputs, outputs, strict=True)
            ]
            begin("sequence")
        save_arrays(folder / f"{position}.npz", outputs)
    observation.peak_mb = machine.peak_mb()

    if job.runs:
        begin("warmup")
        before, clock = machine.read_state(), machine.read_clock()
        timing = time_runs(lambda: invoke(sets[0]), warmup=job.warmup, runs=job.runs, budget_s=job.budget_s)
        others = machine.others_cores(clock, machine.read_clock())
        after = machine.read_state()
        observation.samples_ms = timing.samples_ms
        observation.warmup_runs = timing.warmup_runs
        observation.budget_hit = timing.budget_hit
        observation.state = {
            "before": before.to_dict(),
            "after": after.to_dict(),
            "others_cores": others,
            "disturbances": machine.disturbances(others, before, after),
        }
        observation.peak_mb = machine.peak_mb()
    observation.facts["model_time_s"] = time.perf_counter() - begun
    begin("done")
