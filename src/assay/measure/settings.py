"""How to measure: what a user can choose for a run or a sweep."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from assay.lanes.base import Json
from assay.numerics.inputs import KINDS

DEFAULT_THREADS = 4
"""CPU threads at most, unless asked for more: phones have no more fast cores."""

FAIL_ON = ("wrong", "noise", "fallback", "unstable")
"""What a run can be failed for. `noise`: precision noise, or wrong. `fallback`: an accelerator did not take every
node. `unstable`: repeated inferences disagree, or the timings cannot be trusted."""


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

    @property
    def cpu_threads(self) -> int:
        """CPU threads, with 0 resolved for this machine."""
        return self.threads or min(os.cpu_count() or 1, DEFAULT_THREADS)
