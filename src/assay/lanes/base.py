"""The one interface behind which every way to run a model stands.

A lane is asked two things: can you run here (`available`), and measure this (`measure`, in a child process of
its own). A third, `read`, turns the child's log and answer into facts, in the parent, where a crash of the
child cannot hurt. Only standard-library types cross the process border: the child starts fast.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from assay.records.failure import FailureClass

if TYPE_CHECKING:
    from assay.graph import Signature

Json = Any
"""What `json` reads and writes."""

UNFEEDABLE = frozenset({"string", "resource", "variant"})
"""Element types that no lane can be given or asked for."""


@dataclass(frozen=True)
class Availability:
    """Whether a lane can run on this machine, and on what.

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
class TensorSpec:
    """One input or output of the signature that is run.

    Attributes:
        name: The name in the signature, or the tensor's name where the model has no signatures.
        dtype: NumPy's name for the element type, for example `float32`, `int8`, `bool`.
        shape: The resolved shape; no dimension is dynamic any more.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]


def input_specs(signature: Signature, shapes: Mapping[str, Sequence[int]]) -> list[TensorSpec]:
    """The inputs of a signature, with the shapes of a dictionary by name where it has them."""
    return [
        TensorSpec(entry.name, entry.tensor.dtype, tuple(shapes.get(entry.name, entry.tensor.shape)))
        for entry in signature.inputs
    ]


def output_specs(signature: Signature) -> list[TensorSpec]:
    """The outputs of a signature, with the shapes that the file has; a run shows what a dynamic one becomes."""
    return [TensorSpec(entry.name, entry.tensor.dtype, tuple(entry.tensor.shape)) for entry in signature.outputs]


def resized_inputs(signature: Signature, shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """Names of the inputs whose shape is not the file's, and must be set before a run."""
    return [
        entry.name
        for entry in signature.inputs
        if tuple(shapes.get(entry.name, entry.tensor.shape)) != tuple(entry.tensor.shape)
    ]


@dataclass(frozen=True)
class Job:
    """One model on one lane: all that the child process needs to know.

    Attributes:
        model: Path of the `.tflite` file.
        workdir: The only folder that the child writes to.
        signature: Signature key; None where the model has no signatures (subgraph 0 is run).
        inputs: The inputs of the signature, in order, with resolved shapes.
        outputs: The outputs of the signature, in order.
        resized: Names of the inputs whose shape must be set before the run, since the file leaves it dynamic
            or the user asked for another one.
        input_sets: `.npz` files, one for each set of inputs; arrays are keyed `"0"`, `"1"`, ... by position.
        sequence: Indices into `input_sets`, invoked in this order on the one loaded model, first thing after
            loading; the outputs of each are kept as `outputs/<position>.npz`, keyed in the same way.
            `[0, 1, 0]` shows whether the same input gives the same output after another one.
        warmup: Invocations before timing (the sequence not counted).
        runs: Timed invocations of set 0; 0 measures numbers only.
        budget_s: Seconds after which timing stops early, once 3 invocations are timed.
        threads: CPU threads.
        options: Options of one lane alone, as JSON.
    """

    model: str
    workdir: str
    signature: str | None
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    resized: list[str]
    input_sets: list[str]
    sequence: list[int]
    warmup: int = 3
    runs: int = 50
    budget_s: float = 30.0
    threads: int = 1
    options: dict[str, Json] = field(default_factory=dict[str, Json])

    @classmethod
    def of(
        cls,
        model: Path,
        signature: Signature,
        workdir: Path,
        input_sets: Sequence[Path],
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        sequence: Sequence[int] | None = None,
        **settings: Any,
    ) -> Job:
        """The job that runs a signature of a model file.

        Args:
            model: The `.tflite` file.
            signature: The signature, as `assay.graph.read` found it in the file.
            workdir: See the attribute.
            input_sets: `.npz` files, one for each set of inputs.
            shapes: Input name -> shape, for the inputs that do not have the file's.
            sequence: See the attribute; each set once by default.
            settings: Values of `warmup`, `runs`, `budget_s`, `threads` and `options`.
        """
        shapes = shapes or {}
        return cls(
            # Absolute: other processes read the job, wherever they run.
            model=str(model.resolve()),
            workdir=str(workdir),
            signature=signature.key,
            inputs=input_specs(signature, shapes),
            outputs=output_specs(signature),
            resized=resized_inputs(signature, shapes),
            input_sets=[str(path) for path in input_sets],
            sequence=list(range(len(input_sets)) if sequence is None else sequence),
            **settings,
        )

    def to_json(self) -> str:
        """This job as a JSON text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that `to_json` wrote."""
        data = json.loads(text)
        for key in ("inputs", "outputs"):
            data[key] = [TensorSpec(s["name"], s["dtype"], tuple(s["shape"])) for s in data[key]]
        return cls(**data)


@dataclass
class Observation:
    """What the child saw; written to `observation.json` after each stage, so a crash loses one stage only.

    Times are in milliseconds, memory in MiB (2**20 bytes), as measured in the child.

    Attributes:
        stage: What was begun last: `start`, `load`, `first_run`, `sequence`, `warmup`, `timed`, `done`.
        load_ms: From the file to a model that is ready to be given inputs (compilation included).
        first_run_ms: The first invocation, host to host.
        samples_ms: Every timed invocation, host to host, in order.
        warmup_runs: Invocations done before timing, the sequence not counted.
        budget_hit: True if timing stopped at the time budget before `runs` invocations.
        baseline_mb: Resident memory before the model was loaded.
        peak_mb: Highest resident memory seen.
        output_specs: The outputs as they came, in order: name, dtype, shape.
        error: Text of the exception that ended the measurement, or None.
        error_class: Failure class that the lane itself knows for the error, or None.
        facts: What the API says, raw, for `Lane.read`: versions, adapter, delegation flags.
        state: The machine before and after timing, for the acceptance rule.
    """

    stage: str = "start"
    load_ms: float | None = None
    first_run_ms: float | None = None
    samples_ms: list[float] = field(default_factory=list[float])
    warmup_runs: int = 0
    budget_hit: bool = False
    baseline_mb: float | None = None
    peak_mb: float | None = None
    output_specs: list[TensorSpec] = field(default_factory=list[TensorSpec])
    error: str | None = None
    error_class: FailureClass | None = None
    facts: dict[str, Json] = field(default_factory=dict[str, Json])
    state: dict[str, Json] = field(default_factory=dict[str, Json])

    def to_json(self) -> str:
        """This observation as a JSON text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Observation:
        """The observation that `to_json` wrote."""
        data = json.loads(text)
        data["output_specs"] = [TensorSpec(s["name"], s["dtype"], tuple(s["shape"])) for s in data["output_specs"]]
        if data["error_class"] is not None:
            data["error_class"] = FailureClass(data["error_class"])
        return cls(**data)


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


class Lane(Protocol):
    """A way to run a model. Entry-point group: `assay.lanes`; the entry's name is the lane's name.

    Attributes:
        name: The lane's name in records, for example `gpu_mldrift`.
        summary: One line for `assay lanes`.
        runs_in: `device` for lanes whose runs are device records, `browser` for sweep records.
        precision: The arithmetic that the lane may use for a float32 model: `fp32` or `fp16`.
    """

    name: str
    summary: str
    runs_in: str
    precision: str

    def available(self) -> Availability:
        """Whether the lane can run here; cheap, and never raises."""
        ...

    def child_env(self, options: dict[str, Json]) -> dict[str, str]:
        """Environment variables that the child process needs, in addition to the parent's."""
        ...

    def measure(self, job: Job, observation: Observation) -> None:
        """Measure the job in this process, which is the child; fill and save the observation as it goes.

        Raises:
            Exception: Anything; the child's main function writes it into the observation.
        """
        ...

    def read(self, log: str, observation: Observation | None) -> LaneFacts:
        """Facts from the child's log (its stderr and stdout, whole) and its observation, in the parent."""
        ...


def save_observation(job: Job, observation: Observation) -> None:
    """Write the observation to the job's folder, whole or not at all."""
    folder = Path(job.workdir)
    partial = folder / "observation.json.part"
    partial.write_text(observation.to_json())
    partial.replace(folder / "observation.json")
