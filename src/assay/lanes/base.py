"""The one interface behind which every way to run a model stands.

A lane says what it is (the class attributes of `Lane`) and is asked three things: can you run on this machine
(`available`), make this model ready (`load`, in a child process that is its own), and what do log and observation
show (`read`, in the parent, where a crash of the child cannot hurt).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from assay.lanes.job import Job, Json, Observation

if TYPE_CHECKING:
    from assay.lanes.native import Invoke
    from assay.lanes.options import LaneOptions
    from assay.records.failure import FailureClass

RecordKind = Literal["device_run", "browser_sweep"]
"""Kinds of record that a lane's runs are written to."""


@dataclass(frozen=True)
class Availability:
    """Whether a lane can run on a machine, and on what.

    Attributes:
        available: True if the lane can run.
        on: What would serve it: adapter, driver and version, or the browser. Empty if not available.
        reason: Why not. Empty if available.
        fix: What to install or set. Empty if available.
        details: Facts for the record, such as `adapter`, `adapter_kind`, `runtime_version`.
    """

    available: bool
    on: str = ""
    reason: str = ""
    fix: str = ""
    details: dict[str, Json] = field(default_factory=dict[str, Json])


@dataclass(frozen=True)
class Refusal:
    """An op that the accelerator did not take.

    Attributes:
        op: The op's name as the log has it, for example `BROADCAST_TO`.
        reason: The reason word for word.
        count: How many log lines said so.
    """

    op: str
    reason: str
    count: int = 1


@dataclass(frozen=True)
class LaneFacts:
    """What the log and the API show of one run.

    Attributes:
        served: True if evidence shows that this lane ran the model (at least in part), False if it shows
            that it did not, None if nothing shows either.
        full_delegation: True if the accelerator took every node; None if unknown.
        delegated_ops: Nodes that the accelerator took; None if unknown.
        total_ops: Nodes in all, as the runtime counts them; None if unknown.
        refusals: Ops refused, with their reasons.
        evidence: The lines, word for word, that the above were read from.
        failure: A failure that the log shows, whatever the call returned; None if it shows none.
        adapter: The adapter that ran it, as the log names it; None for a CPU lane.
        adapter_kind: `software`, `hardware`, or None.
        metrics: Further figures, with their unit in the name (`_ms`, `_mb`, `_count`).
        precision: `fp32` where the run shows that it cannot have used less; None leaves it at `Lane.precision`.
    """

    served: bool | None = None
    full_delegation: bool | None = None
    delegated_ops: int | None = None
    total_ops: int | None = None
    refusals: tuple[Refusal, ...] = ()
    evidence: tuple[str, ...] = ()
    failure: FailureClass | None = None
    adapter: str | None = None
    adapter_kind: str | None = None
    metrics: dict[str, float | int | str | bool | None] = field(
        default_factory=dict[str, float | int | str | bool | None]
    )
    precision: str | None = None


class Lane:
    """A way to run a model. Entry-point group: `assay.lanes`; the entry's name is the lane's name.

    A lane that runs in this process writes `load`; one that does not (a browser, a tool of a vendor) writes
    `measure`. A lane that is `accelerated` writes `read`: nobody else can tell whether the accelerator served.

    Attributes:
        name: The lane's name in records, for example `gpu_mldrift`.
        summary: One line for `assay lanes`.
        accelerated: Whether an accelerator is asked for; False for the CPU, whatever kernels it uses.
        reference_rank: Place among the lanes that others are compared with, the least is best; None for none.
        calibrates: Whether the model with noise in it, which shows the error to expect, is run here. A fast lane
            that has the ops which the noise is made of.
        precision: The arithmetic that the lane may use for a float32 model: `fp32` or `fp16`.
        runtime: Name of what runs the model, for records: `litert`, `@litertjs/core`, `onnxruntime` ...
        record: Kind of record that its runs are written to.
        formats: Formats of model files that it reads, see `assay.models.formats`.
        places: Kinds of device that can be asked for it: `system` runs our child process, `browser` our page.
        experimental: Whether it is run only when it is named.
        asks_consent: Whether the option `experimental` must be set too.
        resident: Whether one process serves job after job, since what it starts is costly (a browser).
        order: Where it stands in lists; references come first in any case.
        probe: Module of the child process that tries one-op models on it, or None.
    """

    name: str
    summary: str
    accelerated: bool = True
    reference_rank: int | None = None
    calibrates: bool = False
    precision: str = "fp32"
    runtime: str = "litert"
    record: RecordKind = "device_run"
    formats: tuple[str, ...] = ("tflite",)
    places: tuple[str, ...] = ("system",)
    experimental: bool = False
    asks_consent: bool = False
    resident: bool = False
    order: int = 100
    probe: str | None = None

    _observation: Observation | None = None

    def available(self) -> Availability:
        """Whether the lane can run on this machine; cheap, and never raises."""
        raise NotImplementedError

    def options_model(self) -> type[LaneOptions]:
        """The lane's options: a pydantic model, whose fields become options of the command line.

        Imported here and not above, so that a child process does without pydantic.
        """
        from assay.lanes.options import LaneOptions

        return LaneOptions

    def check_options(self, options: dict[str, Json]) -> None:
        """Look at the options before anything is measured.

        Raises:
            AssayError: A value is not one that it can have, or what it asks for is not there.
        """
        self.options_model().of(options)

    def runtime_version(self, options: dict[str, Json]) -> str | None:
        """Version of the runtime that these options take; None if it is not installed."""
        told = self.available().details.get("runtime_version")
        if told is None and self.runtime == "litert":
            from assay.lanes.native import runtime_version

            return runtime_version()
        return told

    def child_env(self, options: dict[str, Json]) -> dict[str, str]:
        """Environment variables that the child process needs, in addition to the parent's."""
        return {}

    def load(self, job: Job) -> Invoke:
        """Make a model ready in this process, which is the child, and return how to invoke it.

        What `read` is to know besides the log goes into `self.facts`.

        Raises:
            Exception: Anything; its text is the run's error.
        """
        raise NotImplementedError(f"the lane {self.name} has no load")

    @property
    def facts(self) -> dict[str, Json]:
        """Facts of the job at hand, in the child; they come back as `Observation.facts`."""
        assert self._observation is not None, "there is no job at hand"
        return self._observation.facts

    def measure(self, job: Job, observation: Observation) -> None:
        """Measure a job in this process, which is the child; fill and save the observation as it goes.

        Raises:
            Exception: Anything; the child's main function writes it into the observation.
        """
        from assay.lanes.native import run_measurement

        self._observation = observation
        observation.facts["threads"] = job.threads
        run_measurement(job, observation, lambda: self.load(job))

    def read(self, log: str, observation: Observation | None) -> LaneFacts:
        """Facts from the child's log (its stderr and stdout, whole) and its observation, in the parent."""
        loaded = observation is not None and observation.load_ms is not None
        # The CPU serves what it loads; of an accelerator that must be shown.
        return LaneFacts(served=None if observation is None or (self.accelerated and loaded) else loaded)

    def explain(self, text: str) -> tuple[FailureClass, str] | None:
        """The failure class that an error or a log shows, and the line that shows it; None for neither."""
        from assay.evidence import litert_log

        return litert_log.failure(text)

    def keep(self) -> None:
        """More jobs will follow in this process: what is costly to start may stay until `close`."""

    def close(self) -> None:
        """End what was kept."""
